//! Resolves the path of a result: follows its links, and detects a result that would overwrite an
//! input of the same command.
//!
//! In: the path that the user named, and the inputs. Out: the path to write, and the input that it
//! would overwrite, if any. Invariant: links stay links; the file or folder they point to is
//! written.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The path that `path` leads to when all links are followed. It need not exist yet.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => follow_links(path),
        resolved => resolved,
    }
}

/// The end of a chain of links whose target does not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    /// Links that Linux follows.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            // A relative link starts at its own folder.
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// True if the file `found` is the file `input`, or a file in the profile `input`.
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

/// The first of the inputs that is `folder` itself or a file in it.
#[must_use]
pub fn read_within<'a>(folder: &Path, inputs: &[&'a Path]) -> Option<&'a Path> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let found: Vec<Metadata> = entries.chain([folder.to_owned()]).filter_map(|path| fs::metadata(path).ok()).collect();
    inputs.iter().copied().find(|input| found.iter().any(|found| is_read_from(found, input)))
}
