//! Target `opening`: the bytes are a file, opened plain, in several gzip members or in several zstd
//! frames, whole or truncated.

use crate::scratch;
use ibscope::input::{self, SourceOptions};
use std::io::Write as _;
use std::path::Path;

/// Limit of the length of a batch.
const MAX_BATCH_BYTES: usize = 32 << 20;

/// Result of reading a file: the bytes of its records, and the note on its end.
type ReadResult = Result<(Vec<u8>, Option<String>), String>;

/// The first byte selects how the rest is compressed: not at all, or in pieces whose records are
/// compared with those of the plain file.
///
/// # Panics
/// If a compressed file yields other records than the plain one.
pub fn run(bytes: &[u8]) {
    let Some((&how, rest)) = bytes.split_first() else { return };
    let plain = scratch::file("capture", rest, read);
    let pieces = usize::from(how >> 2 & 7) + 1;
    let packed = match how & 3 {
        1 => in_pieces(rest, pieces, gzip),
        2 => in_pieces(rest, pieces, zstd),
        // Nested compression is not decompressed.
        3 => gzip(&zstd(rest)),
        _ => return,
    };
    // A file that begins like a compressed one is decompressed itself.
    let is_packed = rest.starts_with(&[0x1F, 0x8B]) || rest.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]);
    let unpacked = scratch::file("capture", &packed, read);
    if how & 3 != 3 && !is_packed {
        match (&plain, &unpacked) {
            (Ok(plain), Ok(unpacked)) => assert_eq!(plain, unpacked),
            (Err(_), Err(_)) => {}
            _ => panic!("{plain:?} {unpacked:?}"),
        }
    }
    // Truncated in the middle: the records before the truncation, or an error.
    let cut = packed.len() * usize::from(how) / 256;
    if let (Ok((whole, _)), Ok((cut, _))) = (&unpacked, scratch::file("capture", &packed[..cut], read)) {
        assert!(whole.starts_with(&cut));
    }
}

fn read(path: &Path) -> ReadResult {
    let options = SourceOptions { xxh3: true, sha256: true, ..SourceOptions::default() };
    let mut captures = input::open(&[path.to_owned()], &options).map_err(|error| error.to_string())?;
    let capture = &mut captures[0];
    let mut all = Vec::new();
    while let Some(batch) = capture.next_batch(Vec::new()) {
        assert!(!batch.bytes.is_empty() && batch.bytes.len() <= MAX_BATCH_BYTES);
        all.extend(batch.bytes);
        // For a decompression bomb the beginning is enough.
        if all.len() > 2 * MAX_BATCH_BYTES {
            break;
        }
    }
    Ok((all, capture.ending().note))
}

fn in_pieces(bytes: &[u8], pieces: usize, pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    bytes.chunks(bytes.len().div_ceil(pieces).max(1)).flat_map(pack).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("written to memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("written to memory")
}
