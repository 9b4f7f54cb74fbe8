//! Target `cubex`: the bytes are a Score-P profile, either a whole archive or the files of one.

use crate::{crosscheck, scratch};
use ibscope::crosscheck::cubex::{is_archive, read};

/// Separator between the files of an archive that is built here.
const SEPARATOR: &[u8] = b"\xFF\xFE\xFD";

/// Parses bytes that begin like an archive as they are. Other bytes are split at `SEPARATOR`: the
/// first part is the description, the others are index and data of the metrics 0, 1 ...
///
/// # Panics
/// If an error does not name its file.
pub fn run(bytes: &[u8]) {
    let packed;
    let archive = if is_archive(bytes) {
        bytes
    } else {
        packed = archive(bytes);
        &packed
    };
    match scratch::file("profile.cubex", archive, read) {
        Ok(sums) => crosscheck::cube_profile(&sums),
        Err(error) => assert!(error.to_string().contains("profile.cubex"), "{error}"),
    }
}

fn archive(bytes: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut rest = bytes;
    for number in 0.. {
        let end = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let name = match number {
            0 => "anchor.xml".to_owned(),
            odd if odd % 2 == 1 => format!("{}.index", odd / 2),
            even => format!("{}.data", even / 2 - 1),
        };
        let mut header = tar::Header::new_ustar();
        header.set_size(part.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, part).expect("written to memory");
        match behind.get(SEPARATOR.len()..) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    builder.into_inner().expect("written to memory")
}
