//! Classes of what devices do to frames on their way to the capture: damage, masks and late copies.

use crate::library::Library;
use crate::scene::{Scene, cast};
use ibscope_samples::Random;
use ibscope_samples::hard::frame::change_packets;
use ibscope_samples::hard::{Recording, combine, partial};

/// ICRC and VCRC.
const CHECKSUM_BYTES: usize = 6;

/// Changes the packets that were captured in full, and leaves their checksums as they are. `change` gets
/// the offset of the BTH.
fn change(file: &Recording, mut change: impl FnMut(usize, &mut [u8])) -> Recording {
    change_packets(file, |number, frame, data| {
        if file.records[number].original_bytes as usize == data.len() {
            change(frame.bth_at, data);
        }
    })
}

/// Single bits are wrong behind the addresses.
pub(super) fn damaged(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let per_mille = [1, 5, 50][random.below(3) as usize];
    let mut damage = |bth_at: usize, data: &mut [u8]| {
        if random.below(1000) < per_mille {
            let at = bth_at + random.below((data.len() - bth_at) as u64) as usize;
            data[at] ^= 1 << random.below(8);
        }
    };
    let files = cast.files.iter().map(|file| change(file, &mut damage)).collect();
    Scene { files, complete: false, ..cast.scene(format!("{about}, {per_mille} per mille damaged")) }
}

/// An appliance writes zeros over the payload from some offset on, in one file or in all.
pub(super) fn masked(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let offset = 12 + 4 * random.below(20) as usize;
    let only = Some(random.below(cast.files.len() as u64) as usize).filter(|_| random.below(2) == 0);
    let mask = |bth_at: usize, data: &mut [u8]| {
        let end = data.len().saturating_sub(CHECKSUM_BYTES);
        if let Some(payload) = data.get_mut(bth_at + offset..end) {
            payload.fill(0);
        }
    };
    let masked = |(number, file): (usize, &Recording)| {
        if only.is_none_or(|only| only == number) { change(file, mask) } else { file.clone() }
    };
    let files = cast.files.iter().enumerate().map(masked).collect();
    let of = only.map_or_else(String::new, |only| format!(" (file {only})"));
    Scene { files, complete: false, ..cast.scene(format!("{about}, zeros {offset} bytes behind the BTH{of}")) }
}

/// A device copies all records once more, or some of them, and delays the copies.
pub(super) fn late_copies(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let one_in = [1, 1, 3][random.below(3) as usize];
    let delay_us = [100, 900, 1_500, 2_000, 5_000, 20_000][random.below(6) as usize];
    let mut with_copies = |file: &Recording| {
        let copies = partial::keep(file, |_, _| random.below(one_in) == 0);
        combine::merge(&[file.clone(), combine::shift(&copies, delay_us * 1_000)])
    };
    let files = cast.files.iter().map(&mut with_copies).collect();
    Scene { files, complete: false, ..cast.scene(format!("{about}, copies of 1 in {one_in}, {delay_us} us late")) }
}
