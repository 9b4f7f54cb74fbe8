//! Temporary files, for functions that read files only.

use std::path::{Path, PathBuf};

thread_local! {
    /// One folder per thread; libFuzzer has a single thread.
    static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder");
}

/// Writes the bytes to a file and passes its path to `work`.
pub(crate) fn file<T>(name: &str, bytes: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    let path = path(name);
    std::fs::write(&path, bytes).expect("room for a file");
    work(&path)
}

/// A path in the folder of the thread; an earlier file may exist there.
pub(crate) fn path(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}
