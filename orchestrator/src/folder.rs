//! Folders in which root can write safely: no other user can change which files their names lead
//! to.
//!
//! A path is walked from the root of the file system. Each folder on it must belong to root or to
//! the current user, and nobody else may write to it. In a folder with the sticky bit, such as
//! `/tmp`, others may add names but not change ours. The last folder stays open and is used by its
//! handle, so a link that somebody puts in the place of a folder or file is not followed.

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on a path, the same limit as the kernel's.
const MAX_LINKS: usize = 40;
/// Mode bits that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// Sticky bit: users can rename or remove only their own files.
const STICKY: u32 = 0o1000;

/// User number and group number.
pub type OwnerIds = (u32, Option<u32>);

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    dir: Dir,
    path: PathBuf,
    /// Number of another user whose files in the folder are used too.
    owner: Option<u32>,
    /// True if the folder belongs to that user. The user can hard-link a file of root into it and
    /// unlink it again at any moment, so only files that belong to the user are used.
    is_owned_by_user: bool,
}

impl Folder {
    /// Opens an existing folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { dir: walk(path, None, own_id()?)?, path: path.to_owned(), owner: None, is_owned_by_user: false })
    }

    /// Opens a folder. Missing folders on the path are created with this mode.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self {
            dir: walk(path, Some(mode), own_id()?)?,
            path: path.to_owned(),
            owner: None,
            is_owned_by_user: false,
        })
    }

    /// Opens the folder of a file, and returns it with the file's name.
    pub fn parent_of(path: &Path) -> io::Result<(Self, &OsStr)> {
        let name = path.file_name().ok_or_else(|| permission_error(path, "is not the path of a file"))?;
        Ok((Self::open(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    /// Opens a folder in this one; creates it with this mode if it is missing. It may belong to
    /// `owner`, who can then change the names in it.
    pub fn inside(&self, name: &OsStr, mode: u32, owner: Option<OwnerIds>) -> io::Result<Self> {
        let path = self.path.join(name);
        make_missing(&self.dir, name, mode)?;
        let dir = self.dir.open_dir_nofollow(name)?;
        let metadata = dir.dir_metadata()?;
        let is_owned = owner.is_some_and(|(user, _)| metadata.uid() == user) && metadata.mode() & OTHERS_WRITE == 0;
        if !is_owned {
            check_trusted(&path, &metadata, false, own_id()?)?;
        }
        Ok(Self { dir, path, owner: owner.map(|(user, _)| user), is_owned_by_user: is_owned })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file that does not exist yet.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.missing(name.as_ref(), OpenOptions::new().write(true), mode)
    }

    /// Opens a file for reading. Links, special files and files of users other than root, the
    /// current user and the folder's owner are refused.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.existing(name.as_ref(), OpenOptions::new().read(true))
    }

    /// Reads all bytes of a file, with the checks of [`Folder::read`].
    pub fn bytes(&self, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens a file for appending, with the checks of [`Folder::read`].
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.existing(name.as_ref(), OpenOptions::new().append(true))
    }

    /// Opens a file for appending, and creates it if it is missing.
    pub fn append_or_create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = name.as_ref();
        loop {
            match self.append(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => return found,
            }
            match self.missing(name, OpenOptions::new().append(true), mode) {
                // Another process created the file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    fn missing(&self, name: &OsStr, options: &mut OpenOptions, mode: u32) -> io::Result<File> {
        let file = self.dir.open_with(name, options.create_new(true).mode(mode))?.into_std();
        // The mode must not depend on the umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        Ok(file)
    }

    fn existing(&self, name: &OsStr, options: &mut OpenOptions) -> io::Result<File> {
        // Opening a FIFO would block until somebody else opens it.
        options.follow(FollowSymlinks::No).nonblock(true);
        let file = self.dir.open_with(name, options)?.into_std();
        let (metadata, path) = (file.metadata()?, self.path.join(name));
        if !metadata.is_file() {
            return Err(permission_error(&path, "is not a regular file"));
        }
        let user = metadata.uid();
        let is_ours = !self.is_owned_by_user && (user == 0 || user == own_id()?);
        if !is_ours && Some(user) != self.owner {
            let whose = if self.is_owned_by_user { "the folder's owner" } else { "root" };
            return Err(permission_error(&path, &format!("belongs to user {user}, not to {whose}")));
        }
        // Another hard link may lead to a file elsewhere.
        if metadata.nlink() > 1 {
            return Err(permission_error(&path, "has several hard links; remove the others"));
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            return Err(permission_error(&path, "can be written by users other than its owner"));
        }
        Ok(file)
    }

    /// Renames a written file to its final name. The content is on the disk before the name is, and
    /// the name before this returns.
    pub fn put_in_place(&self, file: &File, scratch: &OsStr, name: &OsStr) -> io::Result<()> {
        file.sync_all()?;
        self.rename(scratch, name)?;
        self.sync()
    }

    /// Renames a file in this folder.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.dir.rename(from, &self.dir, to)
    }

    /// Moves a file into another folder.
    pub fn rename_into(&self, name: &OsStr, other: &Self) -> io::Result<()> {
        self.dir.rename(name, &other.dir, name)
    }

    /// Removes a file if it exists. A link itself is removed, not its target.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match self.dir.remove_file(name.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Names in the folder, in no particular order.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        self.dir.entries()?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// The folder as a file that can be synced, because the open handle is `O_PATH`.
    pub(crate) fn handle(&self) -> io::Result<File> {
        Ok(self.dir.open(".")?.into_std())
    }

    /// Syncs the names in the folder to the disk.
    fn sync(&self) -> io::Result<()> {
        self.handle()?.sync_all()
    }

    /// Gives the folder to its owner. This must be the last operation on it.
    pub fn set_owner(&self, owner: Option<OwnerIds>) -> io::Result<()> {
        set_owner(&self.handle()?, owner)
    }
}

/// Gives an open file to its owner.
pub fn set_owner(file: &File, owner: Option<OwnerIds>) -> io::Result<()> {
    owner.map_or(Ok(()), |(user, group)| fchown(file, Some(user), group))
}

/// Number of the current user.
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

/// Checks a folder and its parents for use by the user `own`. Returns the folder's user.
pub(crate) fn user_of(path: &Path, own: u32) -> io::Result<u32> {
    Ok(walk(path, None, own)?.dir_metadata()?.uid())
}

/// Opens the last folder of a path and checks each folder on the way. Missing folders are created
/// with `mode`, if it is given.
fn walk(path: &Path, mode: Option<u32>, own: u32) -> io::Result<Dir> {
    if !path.is_absolute() {
        return Err(permission_error(path, "is not an absolute path"));
    }
    let names = |path: &Path| -> Vec<OsString> {
        let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let root = Dir::open_ambient_dir("/", ambient_authority())?;
    check_trusted(Path::new("/"), &root.dir_metadata()?, false, own)?;
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
            if links > MAX_LINKS {
                return Err(permission_error(&here, "leads through too many symbolic links"));
            }
            if found.uid() != 0 && found.uid() != own {
                return Err(permission_error(&here, &format!("is a symbolic link of user {}", found.uid())));
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
        check_trusted(&here, &next.dir_metadata()?, !left.is_empty(), own)?;
        way.push(next);
        at = here;
    }
    way.pop().ok_or_else(|| permission_error(path, "is not a folder"))
}

/// Refuses a folder in which another user may change names.
fn check_trusted(path: &Path, metadata: &Metadata, is_on_the_way: bool, own: u32) -> io::Result<()> {
    match trust_fault(path, (metadata.uid(), metadata.mode()), is_on_the_way, own) {
        Some(what) => Err(permission_error(path, &what)),
        None => Ok(()),
    }
}

/// Reason why a user other than root and `own` may change names in a folder of this user and mode.
/// `is_on_the_way` means that the next name in it is checked as well.
pub(crate) fn trust_fault(path: &Path, (user, mode): (u32, u32), is_on_the_way: bool, own: u32) -> Option<String> {
    let path = path.display();
    if user != 0 && user != own {
        return Some(format!("belongs to user {user}, who could put links into it; run `chown root {path}`"));
    }
    let is_open = mode & OTHERS_WRITE != 0 && !(is_on_the_way && mode & STICKY != 0);
    let bits = mode & 0o7777;
    is_open.then(|| format!("has mode {bits:04o}: others could put links into it; run `chmod go-w {path}`"))
}

fn permission_error(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::process::Command;

    /// A user other than the current one.
    const OTHER: u32 = 65_534;

    /// Only root can give files to others.
    fn is_root() -> bool {
        let is_root = own_id().unwrap() == 0;
        if !is_root {
            eprintln!("SKIPPED: only root can make files of others");
        }
        is_root
    }

    fn error_text(result: io::Result<impl Sized>) -> String {
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
            let refused = error_text(Folder::open(&open));
            assert!(refused.contains(expected) && refused.contains("chmod go-w"), "{refused}");
            // With the sticky bit, others cannot change existing names.
            assert_eq!(Folder::open(&inner).is_ok(), mode == 0o1777, "{mode:o}");
        }
        assert!(error_text(Folder::open(Path::new("relative"))).contains("not an absolute path"));
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
            let refused = error_text(Folder::make(&path, 0o700));
            assert!(refused.contains("belongs to user 65534") && refused.contains("chown root"), "{refused}");
        }
        assert!(!at("theirs/new").exists());
        symlink(at("ours"), at("link")).unwrap();
        assert!(Folder::open(&at("link")).is_ok(), "a link of root");
        std::os::unix::fs::lchown(at("link"), Some(OTHER), None).unwrap();
        assert!(error_text(Folder::open(&at("link"))).contains("is a symbolic link of user 65534"));
        symlink("../theirs", at("ours/back")).unwrap();
        assert!(error_text(Folder::open(&at("ours/back"))).contains("theirs belongs to user"));
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
        // Replacing does not follow these names: the files that they lead to stay unchanged.
        for name in ["link", "twin", "fifo"] {
            folder.replace(OsStr::new(name), b"ours", 0o644, None).unwrap();
            assert_eq!(folder.bytes(name).unwrap(), b"ours");
        }
        assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
        fs::set_permissions(at("link"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(error_text(folder.read("link")).contains("can be written by users other than"));
        if is_root() {
            chown(at("twin"), Some(OTHER), None).unwrap();
            assert!(error_text(folder.read("twin")).contains("belongs to user 65534"));
        }
    }

    /// After a folder was given to its owner, it can be opened again, and files of other users in
    /// it are refused.
    #[test]
    fn a_folder_given_to_its_owner_stays_usable() {
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (all, owner) = (Folder::open(home.path()).unwrap(), Some((OTHER, None)));
        let run = all.inside(OsStr::new("run"), 0o700, owner).unwrap();
        run.replace(OsStr::new("file"), b"packets", 0o600, owner).unwrap();
        run.set_owner(owner).unwrap();
        let again = all.inside(OsStr::new("run"), 0o700, owner).unwrap();
        assert_eq!(again.bytes("file").unwrap(), b"packets");
        assert!(error_text(all.inside(OsStr::new("run"), 0o700, None)).contains("belongs to user 65534"));
        let secret = home.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, home.path().join("run/file.part")).unwrap();
        fs::hard_link(&secret, home.path().join("run/twin")).unwrap();
        for name in ["file.part", "twin"] {
            assert!(again.read(name).is_err() && again.append_or_create(name, 0o600).is_err(), "{name}");
        }
        // A link count of 1 proves nothing here: the owner may have hard-linked a file of root,
        // which was unlinked elsewhere afterwards.
        fs::write(home.path().join("run/moved"), "root's").unwrap();
        for refused in [again.read("moved"), again.append("moved"), again.append_or_create("moved", 0o600)] {
            assert!(error_text(refused).contains("belongs to user 0, not to the folder's owner"));
        }
        symlink(home.path(), home.path().join("linked")).unwrap();
        assert!(all.inside(OsStr::new("linked"), 0o700, owner).is_err());
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
    }
}
