//! Bytes as changes of what a profile keeps for a merge, in pieces whose sums fit again: see `pipeline::parts` for their form.

use crate::profile::edited;
use crate::{base, render, scratch};
use arbitrary::Unstructured;
use ibscope::model::Profile;
use ibscope::pipeline::{self, Options};
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

/// Magic and version in front, and the three numbers of each piece.
const HEAD_BYTES: usize = 12;
const PIECE_HEAD_BYTES: usize = 24;

static PIECES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let bytes = base::profile().parts.as_deref().expect("parts");
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

/// The first byte chooses one of the longer pieces; the rest is changes of it. Without any, the bytes stand for all that is kept.
///
/// # Panics
/// Where a merge succeeds and what it gave cannot be merged again.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(which) = input.arbitrary::<u8>() else { return };
    let long: Vec<usize> = (0..PIECES.len()).filter(|&index| PIECES[index].len() > 100).collect();
    let whole = base::profile().parts.as_deref().expect("parts");
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
    let place = base::written("parts.ibp", &Profile { parts: Some(parts), ..Profile::default() });
    let options = Options { threads: 1, ..Options::default() };
    let Ok(merged) = pipeline::merge(&[place], &options) else { return };
    render::all(&merged, false);
    let again = base::written("again.ibp", &merged);
    assert!(pipeline::merge(&[again], &options).is_ok(), "a merge of one");
    let _ = std::fs::remove_dir_all(scratch::place("again.ibp"));
}
