//! Target `parts`: the bytes are changes of the merge data that a profile stores, with matching
//! checksums. `pipeline::parts` documents the format.

use crate::profile::edited;
use crate::{render, sample_profiles, scratch};
use arbitrary::Unstructured;
use ibscope::model::Profile;
use ibscope::pipeline::{self, AnalysisOptions};
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

/// Length of the magic number and version, and of the three numbers before each piece.
const HEAD_BYTES: usize = 12;
const PIECE_HEAD_BYTES: usize = 24;

static PIECES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let bytes = sample_profiles::profile().parts.as_deref().expect("parts");
    let mut rest = &bytes[HEAD_BYTES..];
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().expect("eight bytes")) as usize;
        let (length, stored) = (number(0), number(8));
        let (piece, behind) = rest[PIECE_HEAD_BYTES..].split_at(stored);
        let is_packed = stored < length;
        pieces.push(if is_packed { zstd::bulk::decompress(piece, length).expect("a piece") } else { piece.to_vec() });
        rest = behind;
    }
    pieces
});

/// The first byte selects one of the longer pieces, the rest are changes of it; or the rest are the
/// whole merge data.
///
/// # Panics
/// If a merge succeeds but its result cannot be merged again.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(which) = input.arbitrary::<u8>() else { return };
    let long: Vec<usize> = (0..PIECES.len()).filter(|&index| PIECES[index].len() > 100).collect();
    let whole = sample_profiles::profile().parts.as_deref().expect("parts");
    let parts = if let Some(&index) = long.get(usize::from(which) % (long.len() + 1)) {
        let own = edited(&PIECES[index], &mut input);
        let pieces = PIECES.iter().enumerate().map(|(at, piece)| if at == index { &own } else { piece });
        pieces.fold(whole[..HEAD_BYTES].to_vec(), |mut all, piece| {
            let length = piece.len() as u64;
            all.extend([length, length, xxh3_64(piece)].map(u64::to_le_bytes).as_flattened());
            all.extend(piece);
            all
        })
    } else {
        input.take_rest().to_vec()
    };
    let place = sample_profiles::write_profile("parts.ibp", &Profile { parts: Some(parts), ..Profile::default() });
    let options = AnalysisOptions { threads: 1, ..AnalysisOptions::default() };
    let Ok(merged) = pipeline::merge(&[place], &options) else { return };
    render::all(&merged, false);
    let again = sample_profiles::write_profile("again.ibp", &merged);
    assert!(pipeline::merge(&[again], &options).is_ok(), "a merge of one");
    let _ = std::fs::remove_dir_all(scratch::path("again.ibp"));
}
