//! The folder on a sink that captures go to: nobody else can change what a name in it means, as with those here (`folder`).

use crate::effort::Refusal;
use crate::folder;
use crate::remote::RemoteError;
use crate::remote::process::Node;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Type of a file among the bits of its mode, and those of a folder and of a link (`inode(7)`).
const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// Makes the folder where it is missing, and refuses one that others can change: they could have captures written over other files, or read them.
pub(crate) fn prepare(node: &Node<'_>, place: &str, path: &Path) -> Result<(), Refusal> {
    let look = || Sight::read(&node.folders(path).map_err(|error: RemoteError| error.to_string())?, place, path);
    let sight = look()?;
    if sight.is_there(path) {
        return sight.check(path);
    }
    // Nobody can put anything in its place while it is made.
    sight.check_above(path)?;
    node.make_folder(path).map_err(|error| error.to_string())?;
    look()?.check(path)
}

/// Says what is wrong with it; one that is missing is made when a capture starts.
pub(crate) fn inspect(node: &Node<'_>, place: &str, path: &Path) -> Result<(), Refusal> {
    let sight = Sight::read(&node.folders(path).map_err(|error| error.to_string())?, place, path)?;
    if sight.is_there(path) { sight.check(path) } else { sight.check_above(path) }
}

/// What a node says of a folder and those above it.
struct Sight<'a> {
    place: &'a str,
    /// The user who asks there.
    own: u32,
    /// The folder without links.
    actual: PathBuf,
    /// User and mode by name.
    found: BTreeMap<PathBuf, (u32, u32)>,
}

impl<'a> Sight<'a> {
    fn read(said: &str, place: &'a str, path: &Path) -> Result<Self, Refusal> {
        let unread = || format!("{place}: the owner of {} is unknown: {said:?}", path.display());
        let mut lines = said.lines();
        let own = lines.next().and_then(|line| line.trim().parse().ok()).ok_or_else(unread)?;
        let actual = lines.next().map(PathBuf::from).filter(|path| path.is_absolute()).ok_or_else(unread)?;
        let entry = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let user = words.next()?.parse().ok()?;
            let mode = u32::from_str_radix(words.next()?, 16).ok()?;
            Some((PathBuf::from(words.next()?), (user, mode)))
        };
        let found = lines.map(entry).collect::<Option<_>>().ok_or_else(unread)?;
        Ok(Self { place, own, actual, found })
    }

    fn is_there(&self, path: &Path) -> bool {
        self.found.contains_key(path)
    }

    /// The folder and all above it, by its name and by the one without links.
    fn check(&self, path: &Path) -> Result<(), Refusal> {
        self.check_above(path)?;
        self.one(path, false)?;
        self.one(&self.actual, false)
    }

    fn check_above(&self, path: &Path) -> Result<(), Refusal> {
        let above = [path, &self.actual].into_iter().flat_map(|path| path.ancestors().skip(1));
        above.into_iter().try_for_each(|folder| self.one(folder, true))
    }

    fn one(&self, folder: &Path, is_on_the_way: bool) -> Result<(), Refusal> {
        let refused = |what: &str| format!("{}: {} {what}; see capture.directory", self.place, folder.display());
        let Some(&(user, mode)) = self.found.get(folder) else {
            return Err(refused("is not there; create it as root"));
        };
        let fault = match mode & TYPE {
            FOLDER => folder::fault(folder, (user, mode), is_on_the_way, self.own),
            LINK if user == 0 || user == self.own => None,
            LINK => Some(format!("is a link of user {user}")),
            _ => Some("is no folder".to_owned()),
        };
        fault.map_or(Ok(()), |what| Err(refused(&what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Local;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// The user who swaps folders.
    const USER: u32 = 65_534;
    const RACES: usize = 1000;

    /// A user swaps the entry at the path in a tight loop while it is created and checked. A folder
    /// that is not refused belongs to root alone, and stays.
    #[test]
    fn users_lose_the_race_for_a_folder_of_captures() {
        if folder::own_id().unwrap() != 0 {
            eprintln!("SKIPPED: only root can run something as another user");
            return;
        }
        let arena = tempfile::tempdir().unwrap();
        let [shared, vault] = ["shared", "vault"].map(|name| arena.path().join(name));
        let (path, items) = (shared.join("captures"), shared.join("items"));
        for (folder, mode) in [(arena.path(), 0o755), (&shared, 0o1777), (&vault, 0o700), (&items, 0o755)] {
            fs::create_dir_all(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(items.join("folder")).unwrap();
        for folder in [items.join("folder"), items.clone()] {
            chown(folder, Some(USER), Some(USER)).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fabric/attacks/swap.pl");
        let ids = [format!("--reuid={USER}"), format!("--regid={USER}")];
        let mut thief = Command::new("setpriv")
            .args(ids)
            .args(["--clear-groups", "--pdeathsig=KILL", "perl", "-e", &fs::read_to_string(script).unwrap(), "--"])
            .args([&path, &vault, &items])
            .stdin(Stdio::null())
            .current_dir("/")
            .spawn()
            .unwrap();
        let runner = Local::default();
        let node = Node { runner: &runner, name: None, timeout: Duration::from_mins(1) };
        let mut won = 0;
        for _ in 0..RACES {
            if prepare(&node, "here", &path).is_ok() {
                let found = fs::symlink_metadata(&path).unwrap();
                assert!(found.is_dir() && found.uid() == 0 && found.mode() & 0o7777 == 0o700, "{found:?}");
                won += 1;
            }
            if fs::symlink_metadata(&path).is_ok_and(|found| found.uid() == 0) {
                fs::remove_dir(&path).unwrap();
            }
        }
        thief.kill().unwrap();
        thief.wait().unwrap();
        println!("root was first {won} times of {RACES}");
        assert!(won < RACES, "the thief was not there");
        assert_eq!(fs::read_dir(vault).unwrap().count(), 0);
    }

    fn refusal(found: &[&str], path: &str, actual: &str) -> String {
        let said = [&["0", actual][..], found, &["0 41ed /"]].concat().join("\n");
        let sight = Sight::read(&said, "n1", Path::new(path)).expect("what a node says");
        sight.check(Path::new(path)).err().unwrap_or_default()
    }

    #[test]
    fn folders_that_others_can_change_are_refused() {
        const CAPTURES: &str = "/var/tmp/ibscope";
        let above = ["0 43ff /var/tmp", "0 41ed /var"];
        let with = |own: &'static str| [&[own][..], &above].concat();
        assert_eq!(refusal(&with("0 41c0 /var/tmp/ibscope"), CAPTURES, CAPTURES), "");
        let of_user = refusal(&with("1000 41c0 /var/tmp/ibscope"), CAPTURES, CAPTURES);
        assert!(of_user.starts_with("n1: /var/tmp/ibscope belongs to user 1000"), "{of_user}");
        assert!(refusal(&with("0 43ff /var/tmp/ibscope"), CAPTURES, CAPTURES).contains("has mode 1777"));
        assert!(refusal(&with("0 81c0 /var/tmp/ibscope"), CAPTURES, CAPTURES).contains("is no folder"));
        assert!(refusal(&with("1000 a1ff /var/tmp/ibscope"), CAPTURES, CAPTURES).contains("is a link of user 1000"));
        // A link of root's to a folder of somebody else's.
        let linked = ["0 a1ff /var/tmp/ibscope", "0 43ff /var/tmp", "0 41ed /var", "1000 41ed /home", "0 41c0 /home/x"];
        assert!(refusal(&linked, CAPTURES, "/home/x").contains("/home belongs to user 1000"));
        assert!(refusal(&above, CAPTURES, CAPTURES).contains("is not there"));
        for nonsense in ["", "root", "0", "0\nrelative", "0\n/a\n0 /a"] {
            assert!(Sight::read(nonsense, "n1", Path::new("/a")).is_err(), "{nonsense}");
        }
    }
}
