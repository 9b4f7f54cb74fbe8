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
/// Records of one capture point may be so much out of order: they are stamped when they are polled for.
const DISORDER_NS: i64 = 1_000_000;

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
    let mut chains: Vec<Chain<'_>> = Vec::new();
    for file in &files {
        let (mut before, others): (Vec<_>, Vec<_>) = chains.into_iter().partition(|chain| chain.continues(file));
        chains = others;
        // Of several the one that ended last: its connections are the nearest. Those that ended before it began are of
        // the same capture point, and had other connections.
        before.sort_by_key(|chain| chain.times_ns().1);
        let Some(mut chain) = before.pop() else {
            chains.push(Chain::new(file));
            continue;
        };
        while let Some(mut other) = before.pop() {
            if other.times_ns().1 <= chain.times_ns().0 {
                chain.files.iter().for_each(|file| other.add(file));
                chain = other;
            } else {
                chains.push(other);
            }
        }
        chain.add(file);
        chains.push(chain);
    }
    streams.extend(chains.iter().map(|chain| chain.files.iter().map(|file| file.input).collect()));
    streams.sort();
    streams
}

/// Files of one capture point, in the order of time.
struct Chain<'a> {
    files: Vec<&'a File<'a>>,
    /// Of each connection where it was seen last.
    seams: BTreeMap<ConnectionKey, Seam>,
}

impl<'a> Chain<'a> {
    fn new(file: &'a File<'a>) -> Self {
        Self { files: vec![file], seams: file.seams.clone() }
    }

    fn add(&mut self, file: &'a File<'a>) {
        self.files.push(file);
        self.seams.extend(file.seams.iter().map(|(key, seam)| (*key, *seam)));
    }

    /// Where its first file begins, and where its last one ends.
    fn times_ns(&self) -> (i64, i64) {
        let ends = self.files.last().map_or(i64::MIN, |file| file.times_ns.1);
        (self.files.first().map_or(i64::MAX, |file| file.times_ns.0), ends)
    }

    /// The file goes on where the chain ends.
    fn continues(&self, later: &File<'_>) -> bool {
        let length_ns = |file: &File<'_>| file.times_ns.1.saturating_sub(file.times_ns.0);
        let Some(last) = self.files.last() else { return false };
        let overlap_ns = last.times_ns.1.saturating_sub(later.times_ns.0);
        // Nothing begins anew so soon. A few copies of earlier packets may come first, and all connections may be others.
        if overlap_ns.saturating_abs() <= DISORDER_NS {
            return true;
        }
        if overlap_ns > (length_ns(last).min(length_ns(later)) / 100 * OVERLAP_PERCENT).max(DISORDER_NS) {
            return last.sights.overlaps(later.sights);
        }
        let (mut on, mut anew) = (0u64, 0u64);
        for (key, seam) in &later.seams {
            let Some(before) = self.seams.get(key) else { continue };
            let length = before.last.wrapping_sub(before.first) & MASK;
            let at = seam.first.wrapping_sub(before.first) & MASK;
            // What lies in the first half of the earlier range, or anywhere behind it, has begun anew.
            let is_on = at >= length.div_ceil(2) && at < MASK / 2;
            *(if is_on { &mut on } else { &mut anew }) += u64::from(length) + 1;
        }
        on > anew.saturating_mul(4)
    }
}
