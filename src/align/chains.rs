//! Files of one capture point that follow each other: rotated by a recorder, or cut by hand.
//!
//! ```text
//! a.pcap   QP 7: PSN 100 .. 163      QP 9: PSN 5 .. 80
//! b.pcap   QP 7: PSN 161 .. 240      QP 9: PSN 81 .. 90      goes on where a ended: one stream
//! c.pcap   QP 7: PSN 100 .. 240                              begins anew: another run under the same numbers
//! ```
//! Where the requests of most connections go on in the next file, both are tracked as one: what is open at the end of
//! the first continues in the second, and a copy of a packet across the seam counts once.

use super::sights::{Seam, Sights};
use crate::model::ConnectionKey;
use std::collections::BTreeMap;

/// PSNs have 24 bits.
const MASK: u32 = 0xFF_FFFF;
/// Share of the shorter of two files, in percent, by which they may overlap in time without proof that they hold the same
/// records there: those of a seam may be out of order.
const OVERLAP_PERCENT: i64 = 10;

/// A file: its time, and the first and last PSN of the requests of each connection.
struct File<'a> {
    input: usize,
    times_ns: (i64, i64),
    seams: BTreeMap<ConnectionKey, Seam>,
    sights: &'a Sights,
}

/// Inputs by stream: those of one in the order of time. `None` stands for inputs of which there is no sample: each is a
/// stream by itself.
#[must_use]
pub fn chains(samples: &[Option<&Sights>]) -> Vec<Vec<usize>> {
    let mut files = Vec::new();
    let mut streams: Vec<Vec<usize>> = Vec::new();
    for (input, sample) in samples.iter().enumerate() {
        match sample.and_then(|sights| Some((sights.span_ns()?, sights))) {
            Some((times_ns, sights)) => files.push(File { input, times_ns, seams: sights.seams(), sights }),
            None => streams.push(vec![input]),
        }
    }
    files.sort_by_key(|file| (file.times_ns, file.input));
    let mut chains: Vec<Vec<&File<'_>>> = Vec::new();
    for file in &files {
        let continuing = |chain: &&mut Vec<&File<'_>>| chain.last().is_some_and(|last| continues(last, file));
        // Of several the one that ended last: its connections are the nearest.
        let best = chains.iter_mut().filter(continuing).max_by_key(|chain| chain.last().map(|last| last.times_ns.1));
        match best {
            Some(chain) => chain.push(file),
            None => chains.push(vec![file]),
        }
    }
    streams.extend(chains.iter().map(|chain| chain.iter().map(|file| file.input).collect()));
    streams.sort();
    streams
}

/// The later file goes on where the earlier one ended.
fn continues(earlier: &File<'_>, later: &File<'_>) -> bool {
    let length_ns = |file: &File<'_>| file.times_ns.1.saturating_sub(file.times_ns.0);
    let overlap_ns = earlier.times_ns.1.saturating_sub(later.times_ns.0);
    if overlap_ns > length_ns(earlier).min(length_ns(later)) / 100 * OVERLAP_PERCENT {
        return earlier.sights.overlaps(later.sights);
    }
    let (mut on, mut anew) = (0u64, 0u64);
    for (key, seam) in &later.seams {
        let Some(before) = earlier.seams.get(key) else { continue };
        let length = before.last.wrapping_sub(before.first) & MASK;
        let at = seam.first.wrapping_sub(before.first) & MASK;
        // What lies in the first half of the earlier range, or anywhere behind it, has begun anew.
        let is_on = at > length / 2 && at < MASK / 2;
        *(if is_on { &mut on } else { &mut anew }) += u64::from(length) + 1;
    }
    on > anew.saturating_mul(4)
}
