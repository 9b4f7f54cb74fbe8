//! Reads text files that a user names: tables, manifests, configurations.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum number of bytes of a text file: some million lines, far more than any fabric has ports.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Reads a whole text file.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or is longer than 64 MiB.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        let what = format!("longer than {} MiB, the limit for text files; give another file", MAX_TEXT_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts.csv");
        let file = File::create(&path).unwrap();
        file.set_len(MAX_TEXT_BYTES).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, MAX_TEXT_BYTES);
        file.set_len(MAX_TEXT_BYTES + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
