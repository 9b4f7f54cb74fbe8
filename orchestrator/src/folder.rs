//! Folders in which root writes: nobody else can change what a name in them means.
//!
//! A path is walked from the root of the file system. Every folder on it belongs to root or to the user that runs this, and nobody
//! else may write to it; in a folder with the sticky bit, as `/tmp`, others may add names and not change ours. The last folder stays
//! open, and what is done in it is done by its handle: a link that somebody puts in the place of a folder or file is not followed.

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Component, Path, PathBuf};

/// Links on a path, as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// Others may write.
const OTHERS_WRITE: u32 = 0o022;
/// Others may not change names that are not theirs.
const STICKY: u32 = 0o1000;

/// User and group by their numbers.
pub type Ids = (u32, Option<u32>);

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    dir: Dir,
    path: PathBuf,
    /// A user whose files in it are read and written as well.
    owner: Option<u32>,
    /// The folder belongs to that user. The user can hard-link a file of root's into it and unlink
    /// it again at any moment, so only files that belong to the user are used.
    is_given: bool,
}

impl Folder {
    /// Opens a folder that is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { dir: walk(path, None, own_id()?)?, path: path.to_owned(), owner: None, is_given: false })
    }

    /// Opens a folder; where one on the path is missing, it is made with this mode.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self { dir: walk(path, Some(mode), own_id()?)?, path: path.to_owned(), owner: None, is_given: false })
    }

    /// The folder that a file is in, and the file's name.
    pub fn of(path: &Path) -> io::Result<(Self, &OsStr)> {
        let name = path.file_name().ok_or_else(|| refused(path, "is no file's path"))?;
        Ok((Self::open(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    /// A folder in this one, made with this mode where it is missing. It may belong to `owner` as well: names in it are that user's to change.
    pub fn inside(&self, name: &OsStr, mode: u32, owner: Option<Ids>) -> io::Result<Self> {
        let path = self.path.join(name);
        make_missing(&self.dir, name, mode)?;
        let dir = self.dir.open_dir_nofollow(name)?;
        let metadata = dir.dir_metadata()?;
        let is_owned = owner.is_some_and(|(user, _)| metadata.uid() == user) && metadata.mode() & OTHERS_WRITE == 0;
        if !is_owned {
            trust(&path, &metadata, false, own_id()?)?;
        }
        Ok(Self { dir, path, owner: owner.map(|(user, _)| user), is_given: is_owned })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file that is not there yet.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.missing(name.as_ref(), OpenOptions::new().write(true), mode)
    }

    /// Opens a file for reading; refused where it is a link, no regular file, or of another user than root and us.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.existing(name.as_ref(), OpenOptions::new().read(true))
    }

    /// All bytes of a file that [`Folder::read`] opens.
    pub fn bytes(&self, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens a file to write behind its end; the same is refused.
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.existing(name.as_ref(), OpenOptions::new().append(true))
    }

    /// The same of a file that is made where it is missing.
    pub fn append_or_create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = name.as_ref();
        loop {
            match self.append(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found,
            }
            match self.missing(name, OpenOptions::new().append(true), mode) {
                // Somebody else was quicker.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    fn missing(&self, name: &OsStr, options: &mut OpenOptions, mode: u32) -> io::Result<File> {
        let file = self.dir.open_with(name, options.create_new(true).mode(mode))?.into_std();
        // Whatever the mask is.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        Ok(file)
    }

    fn existing(&self, name: &OsStr, options: &mut OpenOptions) -> io::Result<File> {
        // A FIFO would make us wait for somebody else.
        options.follow(FollowSymlinks::No).nonblock(true);
        let file = self.dir.open_with(name, options)?.into_std();
        let (metadata, path) = (file.metadata()?, self.path.join(name));
        if !metadata.is_file() {
            return Err(refused(&path, "is no regular file"));
        }
        let user = metadata.uid();
        let is_ours = !self.is_given && (user == 0 || user == own_id()?);
        if !is_ours && Some(user) != self.owner {
            let whose = if self.is_given { "the folder's owner" } else { "root" };
            return Err(refused(&path, &format!("belongs to user {user}, not to {whose}")));
        }
        // Another name of a file that is elsewhere.
        if metadata.nlink() > 1 {
            return Err(refused(&path, "has several names"));
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            return Err(refused(&path, "can be written by others than its owner"));
        }
        Ok(file)
    }

    /// Writes a file as a whole, in one step: who reads it sees the one before or this one. It belongs to `owner` then.
    pub fn put(&self, name: &OsStr, bytes: &[u8], mode: u32, owner: Option<Ids>) -> io::Result<()> {
        let mut scratch = OsString::from(".");
        scratch.push(name);
        scratch.push(format!(".part-{}", std::process::id()));
        // Left by a process of this number that was killed right here.
        self.remove(&scratch)?;
        let written = (|| {
            let mut file = self.create(&scratch, mode)?;
            file.write_all(bytes)?;
            give(&file, owner)?;
            file.sync_all()?;
            self.rename(&scratch, name)?;
            self.sync()
        })();
        if written.is_err() {
            // The error already names the cause; there may be no scratch file.
            let _ = self.remove(&scratch);
        }
        written
    }

    /// Gives a file in it another name in it.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.dir.rename(from, &self.dir, to)
    }

    /// Moves a file into another folder.
    pub fn rename_into(&self, name: &OsStr, other: &Self) -> io::Result<()> {
        self.dir.rename(name, &other.dir, name)
    }

    /// Removes a file, if it is there. A link is removed itself.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match self.dir.remove_file(name.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Names in it, in no order.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        self.dir.entries()?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// The folder as a file: what keeps it open names it alone (`O_PATH`).
    fn handle(&self) -> io::Result<File> {
        Ok(self.dir.open(".")?.into_std())
    }

    /// Brings its names to the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.handle()?.sync_all()
    }

    /// Gives it to its owner: the last thing that is done with it.
    pub fn give(&self, owner: Option<Ids>) -> io::Result<()> {
        give(&self.handle()?, owner)
    }
}

/// Gives an open file to its owner.
pub fn give(file: &File, owner: Option<Ids>) -> io::Result<()> {
    owner.map_or(Ok(()), |(user, group)| fchown(file, Some(user), group))
}

/// The user that runs this.
pub(crate) fn own_id() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

fn make_missing(dir: &Dir, name: &OsStr, mode: u32) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(mode);
    match dir.create_dir_with(name, &builder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Checks a folder and those above it, as `own` may use them; the user it belongs to.
pub(crate) fn user_of(path: &Path, own: u32) -> io::Result<u32> {
    Ok(walk(path, None, own)?.dir_metadata()?.uid())
}

/// Opens the last folder of a path, each one checked. Where one is missing, it is made with this mode.
fn walk(path: &Path, mode: Option<u32>, own: u32) -> io::Result<Dir> {
    if !path.is_absolute() {
        return Err(refused(path, "is no absolute path"));
    }
    let names = |path: &Path| -> Vec<OsString> {
        let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let root = Dir::open_ambient_dir("/", ambient_authority())?;
    trust(Path::new("/"), &root.dir_metadata()?, false, own)?;
    let (mut way, mut at, mut links) = (vec![root], PathBuf::from("/"), 0);
    let mut left: VecDeque<OsString> = names(path).into();
    while let (Some(name), Some(dir)) = (left.pop_front(), way.last()) {
        if name == ".." {
            if way.len() > 1 {
                way.pop();
                at.pop();
            }
            continue;
        }
        let here = at.join(&name);
        if let Some(mode) = mode {
            make_missing(dir, &name, mode)?;
        }
        let found = dir.symlink_metadata(&name)?;
        if found.is_symlink() {
            links += 1;
            if links > MOST_LINKS || found.uid() != 0 && found.uid() != own {
                return Err(refused(&here, &format!("is a link of user {}", found.uid())));
            }
            let target = dir.read_link_contents(&name)?;
            if target.is_absolute() {
                way.truncate(1);
                at = PathBuf::from("/");
            }
            names(&target).into_iter().rev().for_each(|name| left.push_front(name));
            continue;
        }
        let next = dir.open_dir_nofollow(&name)?;
        trust(&here, &next.dir_metadata()?, !left.is_empty(), own)?;
        way.push(next);
        at = here;
    }
    way.pop().ok_or_else(|| refused(path, "is no folder"))
}

/// Refuses a folder in which somebody else may change names.
fn trust(path: &Path, metadata: &Metadata, is_on_the_way: bool, own: u32) -> io::Result<()> {
    match fault(path, (metadata.uid(), metadata.mode()), is_on_the_way, own) {
        Some(what) => Err(refused(path, &what)),
        None => Ok(()),
    }
}

/// Why somebody else than root and `own` may change names in the folder of this user and mode. `is_on_the_way` says that the next name in it is
/// checked as well.
pub(crate) fn fault(path: &Path, (user, mode): (u32, u32), is_on_the_way: bool, own: u32) -> Option<String> {
    let path = path.display();
    if user != 0 && user != own {
        return Some(format!(
            "belongs to user {user}, who could put links into it; make it root's: `chown root {path}`"
        ));
    }
    let is_open = mode & OTHERS_WRITE != 0 && !(is_on_the_way && mode & STICKY != 0);
    let bits = mode & 0o7777;
    is_open.then(|| format!("has mode {bits:04o}: others could put links into it; run `chmod go-w {path}`"))
}

fn refused(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::process::Command;

    /// A user that is not us.
    const OTHER: u32 = 65_534;

    /// Only root can give files to others.
    fn is_root() -> bool {
        let is_root = own_id().unwrap() == 0;
        if !is_root {
            eprintln!("SKIPPED: only root can make files of others");
        }
        is_root
    }

    fn said(result: io::Result<impl Sized>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn folders_that_others_can_change_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let (open, inner) = (home.path().join("open"), home.path().join("open/inner"));
        fs::create_dir_all(&inner).unwrap();
        Folder::open(&inner).unwrap();
        for (mode, expected) in [(0o777, "has mode 0777"), (0o775, "has mode 0775"), (0o1777, "has mode 1777")] {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            let refused = said(Folder::open(&open));
            assert!(refused.contains(expected) && refused.contains("chmod go-w"), "{refused}");
            // With the sticky bit, names that are there stay.
            assert_eq!(Folder::open(&inner).is_ok(), mode == 0o1777, "{mode:o}");
        }
        assert!(said(Folder::open(Path::new("relative"))).contains("no absolute path"));
    }

    #[test]
    fn folders_and_links_of_others_are_refused() {
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("theirs/inner")).unwrap();
        fs::create_dir(at("ours")).unwrap();
        chown(at("theirs"), Some(OTHER), None).unwrap();
        for path in [at("theirs"), at("theirs/inner"), at("theirs/new")] {
            let refused = said(Folder::make(&path, 0o700));
            assert!(refused.contains("belongs to user 65534") && refused.contains("chown root"), "{refused}");
        }
        assert!(!at("theirs/new").exists());
        symlink(at("ours"), at("link")).unwrap();
        assert!(Folder::open(&at("link")).is_ok(), "a link of root's");
        std::os::unix::fs::lchown(at("link"), Some(OTHER), None).unwrap();
        assert!(said(Folder::open(&at("link"))).contains("is a link of user 65534"));
        symlink("../theirs", at("ours/back")).unwrap();
        assert!(said(Folder::open(&at("ours/back"))).contains("theirs belongs to user"));
        symlink("loop", at("loop")).unwrap();
        assert!(Folder::open(&at("loop")).is_err());
    }

    #[test]
    fn planted_files_are_neither_read_nor_written() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let folder = Folder::open(home.path()).unwrap();
        fs::write(at("secret"), "secret").unwrap();
        symlink(at("secret"), at("link")).unwrap();
        fs::hard_link(at("secret"), at("twin")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        for name in ["link", "twin", "fifo"] {
            assert!(folder.read(name).is_err() && folder.append(name).is_err(), "{name}");
            assert!(folder.append_or_create(name, 0o600).is_err() && folder.create(name, 0o600).is_err(), "{name}");
        }
        // Whatever stands there is replaced, and what it leads to is not touched.
        for name in ["link", "twin", "fifo"] {
            folder.put(OsStr::new(name), b"ours", 0o644, None).unwrap();
            assert_eq!(folder.bytes(name).unwrap(), b"ours");
        }
        assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
        fs::set_permissions(at("link"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(said(folder.read("link")).contains("can be written by others"));
        if is_root() {
            chown(at("twin"), Some(OTHER), None).unwrap();
            assert!(said(folder.read("twin")).contains("belongs to user 65534"));
        }
    }

    /// A folder that was given to its owner is worked in again, by handles, and files of others in it are refused all the same.
    #[test]
    fn the_folder_of_an_owner_is_theirs_and_ours() {
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (all, owner) = (Folder::open(home.path()).unwrap(), Some((OTHER, None)));
        let run = all.inside(OsStr::new("run"), 0o700, owner).unwrap();
        run.put(OsStr::new("file"), b"packets", 0o600, owner).unwrap();
        run.give(owner).unwrap();
        let again = all.inside(OsStr::new("run"), 0o700, owner).unwrap();
        assert_eq!(again.bytes("file").unwrap(), b"packets");
        assert!(said(all.inside(OsStr::new("run"), 0o700, None)).contains("belongs to user 65534"));
        let secret = home.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, home.path().join("run/file.part")).unwrap();
        fs::hard_link(&secret, home.path().join("run/twin")).unwrap();
        for name in ["file.part", "twin"] {
            assert!(again.read(name).is_err() && again.append_or_create(name, 0o600).is_err(), "{name}");
        }
        // A link count of 1 proves nothing here: the owner may have hard-linked a file of root's,
        // which is unlinked elsewhere by now.
        fs::write(home.path().join("run/moved"), "root's").unwrap();
        for refused in [again.read("moved"), again.append("moved"), again.append_or_create("moved", 0o600)] {
            assert!(said(refused).contains("belongs to user 0, not to the folder's owner"));
        }
        symlink(home.path(), home.path().join("linked")).unwrap();
        assert!(all.inside(OsStr::new("linked"), 0o700, owner).is_err());
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
    }
}
