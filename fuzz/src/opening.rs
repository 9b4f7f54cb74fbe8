//! Files as they are opened: plain, gzip in several members, zstd in several frames, whole or cut off.

use crate::scratch;
use ibscope::input::{self, SourceOptions};
use std::io::Write as _;
use std::path::Path;

/// No batch is longer, as no record is.
const MOST_BATCH_BYTES: usize = 32 << 20;

/// What came out of a file: the records, and how it ended.
type Read = Result<(Vec<u8>, Option<String>), String>;

/// The first byte says what is done to the rest: it is read as it stands, or packed in pieces and held against the plain file.
///
/// # Panics
/// Where a packed file gives other records than the plain one.
pub fn run(bytes: &[u8]) {
    let Some((&how, rest)) = bytes.split_first() else { return };
    let plain = scratch::file("capture", rest, read);
    let pieces = usize::from(how >> 2 & 7) + 1;
    let packed = match how & 3 {
        1 => in_pieces(rest, pieces, gzip),
        2 => in_pieces(rest, pieces, zstd),
        // A second packing is not unpacked.
        3 => gzip(&zstd(rest)),
        _ => return,
    };
    // A file that begins as packed ones do is unpacked itself.
    let is_packed = rest.starts_with(&[0x1F, 0x8B]) || rest.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]);
    let unpacked = scratch::file("capture", &packed, read);
    if how & 3 != 3 && !is_packed {
        match (&plain, &unpacked) {
            (Ok(plain), Ok(unpacked)) => assert_eq!(plain, unpacked),
            (Err(_), Err(_)) => {}
            _ => panic!("{plain:?} {unpacked:?}"),
        }
    }
    // Cut off in the middle: records before the cut, or an error.
    let cut = packed.len() * usize::from(how) / 256;
    if let (Ok((whole, _)), Ok((cut, _))) = (&unpacked, scratch::file("capture", &packed[..cut], read)) {
        assert!(whole.starts_with(&cut));
    }
}

fn read(path: &Path) -> Read {
    let options = SourceOptions { xxh3: true, sha256: true, ..SourceOptions::default() };
    let mut captures = input::open(&[path.to_owned()], &options).map_err(|error| error.to_string())?;
    let capture = &mut captures[0];
    let mut all = Vec::new();
    while let Some(batch) = capture.next_batch(Vec::new()) {
        assert!(!batch.bytes.is_empty() && batch.bytes.len() <= MOST_BATCH_BYTES);
        all.extend(batch.bytes);
        // Of a bomb the beginning is enough.
        if all.len() > 2 * MOST_BATCH_BYTES {
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
