//! Checks the folder for captures on a sink. No other user may be able to change which files its
//! names lead to, the same rule as for folders on the orchestrator's machine (`folder`).

use crate::context::FailureText;
use crate::folder;
use crate::remote::RemoteError;
use crate::remote::process::RemoteNode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bits of a file's mode that show its type, and the types folder and link (`inode(7)`).
const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// Creates the folder if it is missing. Refuses a folder that other users can change: they could
/// redirect captures onto other files, or read them.
pub(crate) fn prepare(node: &RemoteNode<'_>, place: &str, path: &Path) -> Result<(), FailureText> {
    let look = || {
        FolderOwnership::read(&node.stat_folders(path).map_err(|error: RemoteError| error.to_string())?, place, path)
    };
    let found = look()?;
    if found.exists(path) {
        return found.check(path);
    }
    // If nobody else can write to the parents, nobody can put anything in the folder's place while
    // it is created.
    found.check_above(path)?;
    node.make_folder(path).map_err(|error| error.to_string())?;
    look()?.check(path)
}

/// Checks the folder. A missing folder is no fault, because the start of a capture creates it.
pub(crate) fn inspect(node: &RemoteNode<'_>, place: &str, path: &Path) -> Result<(), FailureText> {
    let found = FolderOwnership::read(&node.stat_folders(path).map_err(|error| error.to_string())?, place, path)?;
    if found.exists(path) { found.check(path) } else { found.check_above(path) }
}

/// Owners and modes of a folder and its parents on a node.
struct FolderOwnership<'a> {
    place: &'a str,
    /// Number of the current user on the node.
    own: u32,
    /// Path of the folder without links.
    actual: PathBuf,
    /// User and mode by path.
    user_and_mode: BTreeMap<PathBuf, (u32, u32)>,
}

impl<'a> FolderOwnership<'a> {
    fn read(printed: &str, place: &'a str, path: &Path) -> Result<Self, FailureText> {
        let unread = || format!("{place}: the owner of {} is unknown: {printed:?}", path.display());
        let mut lines = printed.lines();
        let own = lines.next().and_then(|line| line.trim().parse().ok()).ok_or_else(unread)?;
        let actual = lines.next().map(PathBuf::from).filter(|path| path.is_absolute()).ok_or_else(unread)?;
        let entry = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let user = words.next()?.parse().ok()?;
            let mode = u32::from_str_radix(words.next()?, 16).ok()?;
            Some((PathBuf::from(words.next()?), (user, mode)))
        };
        let found = lines.map(entry).collect::<Option<_>>().ok_or_else(unread)?;
        Ok(Self { place, own, actual, user_and_mode: found })
    }

    fn exists(&self, path: &Path) -> bool {
        self.user_and_mode.contains_key(path)
    }

    /// Checks the folder and all its parents, by its path and by the path without links.
    fn check(&self, path: &Path) -> Result<(), FailureText> {
        self.check_above(path)?;
        self.check_one(path, false)?;
        self.check_one(&self.actual, false)
    }

    fn check_above(&self, path: &Path) -> Result<(), FailureText> {
        let above = [path, &self.actual].into_iter().flat_map(|path| path.ancestors().skip(1));
        above.into_iter().try_for_each(|folder| self.check_one(folder, true))
    }

    fn check_one(&self, folder: &Path, is_on_the_way: bool) -> Result<(), FailureText> {
        let refused = |what: &str| format!("{}: {} {what}; see capture.directory", self.place, folder.display());
        let Some(&(user, mode)) = self.user_and_mode.get(folder) else {
            return Err(refused("does not exist; create it as root"));
        };
        let fault = match mode & TYPE {
            FOLDER => folder::trust_fault(folder, (user, mode), is_on_the_way, self.own),
            LINK if user == 0 || user == self.own => None,
            LINK => Some(format!("is a symbolic link of user {user}")),
            _ => Some("is not a folder".to_owned()),
        };
        fault.map_or(Ok(()), |what| Err(refused(&what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::LocalRunner;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// User who swaps folders.
    const USER: u32 = 65_534;
    const RACES: usize = 1000;

    /// A user swaps the entry at the path in a tight loop while it is created and checked. A folder
    /// that is accepted belongs to root only, and stays.
    #[test]
    fn a_user_who_swaps_folders_never_redirects_captures() {
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
        let runner = LocalRunner::default();
        let node = RemoteNode { runner: &runner, name: None, timeout: Duration::from_mins(1) };
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
        assert!(won < RACES, "the attacker did not run");
        assert_eq!(fs::read_dir(vault).unwrap().count(), 0);
    }

    fn fault_of(found: &[&str], path: &str, actual: &str) -> String {
        let printed = [&["0", actual][..], found, &["0 41ed /"]].concat().join("\n");
        let found = FolderOwnership::read(&printed, "n1", Path::new(path)).expect("the output of a node");
        found.check(Path::new(path)).err().unwrap_or_default()
    }

    #[test]
    fn folders_that_others_can_change_are_refused() {
        const CAPTURES: &str = "/var/tmp/ibscope";
        let above = ["0 43ff /var/tmp", "0 41ed /var"];
        let with = |own: &'static str| [&[own][..], &above].concat();
        assert_eq!(fault_of(&with("0 41c0 /var/tmp/ibscope"), CAPTURES, CAPTURES), "");
        let of_user = fault_of(&with("1000 41c0 /var/tmp/ibscope"), CAPTURES, CAPTURES);
        assert!(of_user.starts_with("n1: /var/tmp/ibscope belongs to user 1000"), "{of_user}");
        assert!(fault_of(&with("0 43ff /var/tmp/ibscope"), CAPTURES, CAPTURES).contains("has mode 1777"));
        assert!(fault_of(&with("0 81c0 /var/tmp/ibscope"), CAPTURES, CAPTURES).contains("is not a folder"));
        assert!(
            fault_of(&with("1000 a1ff /var/tmp/ibscope"), CAPTURES, CAPTURES)
                .contains("is a symbolic link of user 1000")
        );
        // A link of root to a folder of another user.
        let linked = ["0 a1ff /var/tmp/ibscope", "0 43ff /var/tmp", "0 41ed /var", "1000 41ed /home", "0 41c0 /home/x"];
        assert!(fault_of(&linked, CAPTURES, "/home/x").contains("/home belongs to user 1000"));
        assert!(fault_of(&above, CAPTURES, CAPTURES).contains("does not exist"));
        for nonsense in ["", "root", "0", "0\nrelative", "0\n/a\n0 /a"] {
            assert!(FolderOwnership::read(nonsense, "n1", Path::new("/a")).is_err(), "{nonsense}");
        }
    }
}
