//! Where a result goes: behind which links, and whether the command reads what stands there.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The place that a path leads to: links are followed, so that they stay and what they point to is written, whether it is there yet or not.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => behind_links(path),
        resolved => resolved,
    }
}

/// The path where nothing stands yet, or the end of a chain of links.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    /// Links that Linux follows.
    const MOST: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST {
        match fs::read_link(&path) {
            // A relative link starts from the folder that it lies in.
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// True where the file that was found is this input, or a file of this profile.
#[must_use]
pub fn is_read_from(found: &Metadata, input: &Path) -> bool {
    let is =
        |other: io::Result<Metadata>| other.is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()));
    if input.as_os_str() == "-" {
        return is(io::stdin().as_fd().try_clone_to_owned().and_then(|stdin| File::from(stdin).metadata()));
    }
    is(fs::metadata(input))
        || fs::read_dir(input)
            .is_ok_and(|entries| entries.filter_map(Result::ok).any(|entry| is(fs::metadata(entry.path()))))
}

/// The first of the inputs that is this folder, or is in it.
#[must_use]
pub fn read_within<'a>(folder: &Path, inputs: &[&'a Path]) -> Option<&'a Path> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let found: Vec<Metadata> = entries.chain([folder.to_owned()]).filter_map(|path| fs::metadata(path).ok()).collect();
    inputs.iter().copied().find(|input| found.iter().any(|found| is_read_from(found, input)))
}
