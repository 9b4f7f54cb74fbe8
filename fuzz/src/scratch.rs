//! Bytes as a file on the disk, for what reads files only.

use std::path::{Path, PathBuf};

thread_local! {
    /// One folder for all that a thread does; libFuzzer has one thread.
    static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder");
}

/// Gives the path of a file with these bytes to `work`.
pub(crate) fn file<T>(name: &str, bytes: &[u8], work: impl FnOnce(&Path) -> T) -> T {
    let path = place(name);
    std::fs::write(&path, bytes).expect("room for a file");
    work(&path)
}

/// A path where nothing stands, or what stood there before.
pub(crate) fn place(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}
