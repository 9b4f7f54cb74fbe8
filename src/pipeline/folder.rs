//! The captures in a folder.
//!
//! In: a folder, with any folders inside it. Out: the files that are captures, in the order of
//! their paths, and the names of all other files. The first bytes of a file decide, not its name.
//! Invariant: links to folders are not followed, so the search ends and finds no file twice.

use super::PipelineError;
use crate::input::{self, InputError};
use crate::profile::has_profile_document;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders inside each other that are searched at most; deeper ones count as skipped.
const MAX_DEPTH: usize = 16;

/// The files in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderContents {
    /// Captures with at least one packet record, in the order of their paths.
    pub captures: Vec<PathBuf>,
    /// Everything else, relative to the folder: other files, captures without packets, profiles.
    pub skipped: Vec<PathBuf>,
}

/// Finds the captures in a folder and in the folders inside it.
///
/// # Errors
/// A file or folder cannot be read, or no file is a capture.
pub fn captures_in(folder: &Path) -> Result<FolderContents, PipelineError> {
    let mut contents = FolderContents::default();
    search(folder, MAX_DEPTH, &mut contents)?;
    for path in &mut contents.skipped {
        if let Ok(relative) = path.strip_prefix(folder) {
            *path = relative.to_owned();
        }
    }
    if contents.captures.is_empty() {
        return Err(InputError::NoCapture { path: folder.to_owned(), why: String::new() }.into());
    }
    Ok(contents)
}

fn search(folder: &Path, depth: usize, contents: &mut FolderContents) -> Result<(), InputError> {
    let failed = |source| InputError::Open { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    for path in paths {
        let kind = fs::symlink_metadata(&path).map_err(failed)?.file_type();
        if kind.is_dir() && depth > 1 && !has_profile_document(&path) {
            search(&path, depth - 1, contents)?;
        } else if path.is_file() && input::is_capture(&path)? {
            contents.captures.push(path);
        } else {
            contents.skipped.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pcap file of the native link type with this number of records.
    fn pcap(records: usize) -> Vec<u8> {
        let mut file = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 247, 0, 0, 0];
        (0..records).for_each(|_| file.extend([[0; 8].as_slice(), &[1, 0, 0, 0, 1, 0, 0, 0, 7]].concat()));
        file
    }

    #[test]
    fn captures_are_found_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("sink2/later")).unwrap();
        fs::create_dir_all(at("job.ibp")).unwrap();
        for (name, content) in [
            ("b.pcap", pcap(2)),
            ("a", pcap(1)),
            ("sink2/later/c.pcap.gz", pcap(1)),
            ("empty.pcap", pcap(0)),
            ("notes.pcap", b"no capture".to_vec()),
            ("job.ibp/profile.json", b"{}".to_vec()),
            ("job.ibp/d.pcap", pcap(1)),
        ] {
            fs::write(at(name), content).unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), at("loop")).unwrap();
        let found = captures_in(folder.path()).unwrap();
        assert_eq!(found.captures, [at("a"), at("b.pcap"), at("sink2/later/c.pcap.gz")]);
        assert_eq!(found.skipped, ["empty.pcap", "job.ibp", "loop", "notes.pcap"].map(PathBuf::from));
    }

    #[test]
    fn folders_beyond_the_depth_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let levels = |levels: usize| (1..levels).fold(folder.path().to_owned(), |path, _| path.join("inside"));
        fs::create_dir_all(levels(MAX_DEPTH + 1)).unwrap();
        for level in [MAX_DEPTH, MAX_DEPTH + 1] {
            fs::write(levels(level).join("a.pcap"), pcap(1)).unwrap();
        }
        let found = captures_in(folder.path()).unwrap();
        assert_eq!(found.captures, [levels(MAX_DEPTH).join("a.pcap")]);
        assert_eq!(folder.path().join(&found.skipped[0]), levels(MAX_DEPTH + 1));
    }

    #[test]
    fn a_folder_without_captures_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = captures_in(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("no file in this folder is a capture; give the folder that the capture is written to"));
    }
}
