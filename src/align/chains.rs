//! Chains the files of one capture point that follow each other: rotated by the capture program, or
//! split by hand.
//!
//! ```text
//! a.pcap   QP 7: PSN 100 .. 163      QP 9: PSN 5 .. 80
//! b.pcap   QP 7: PSN 161 .. 240      QP 9: PSN 81 .. 90      continues a: one stream
//! c.pcap   QP 7: PSN 100 .. 240                              starts over: another run
//! ```
//!
//! In: one packet sample and the time span of each input. Out: the inputs grouped into streams,
//! each in the order of time. Invariant: each input is in exactly one stream.
//!
//! The files of a stream are tracked as one: a message that is open at the end of one file
//! continues in the next, and a packet that both hold counts once.

use super::packet_sample::{PacketSample, PsnRange};
use crate::model::ConnectionKey;
use ibscope_parsers::Endpoint;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// PSNs have 24 bits.
const MASK: u32 = 0xFF_FFFF;
/// Records of one capture point may be this much out of order, because they are timestamped when
/// the capture program polls for them. Two files that overlap more need proof that both hold the
/// same records.
const DISORDER_NS: i64 = 1_000_000;

/// Files farther apart in time need a pair of ports in common, in one direction: two sinks that see
/// one direction each, with clocks that differ by so much, are no stream.
const LONG_IDLE_NS: i64 = 300_000_000_000;

/// A file: the times of its first and last record, and the first and last request PSN per
/// connection.
struct ChainFile<'a> {
    input: usize,
    times_ns: (i64, i64),
    psn_ranges: BTreeMap<ConnectionKey, PsnRange>,
    /// Senders and receivers of its packets.
    port_pairs: BTreeSet<(Endpoint, Endpoint)>,
    sample: &'a PacketSample,
}

/// Groups the inputs by stream, each stream in the order of time. `spans_ns` are the times of the
/// first and last record of each input, nanoseconds since the epoch. `repeats` reports whether the
/// second of two inputs starts with records of the first. An input without a sample or times
/// (`None`) is a stream of its own.
pub fn chains(
    samples: &[Option<&PacketSample>],
    spans_ns: &[Option<(i64, i64)>],
    mut repeats: impl FnMut(usize, usize) -> bool,
) -> Vec<Vec<usize>> {
    let mut files = Vec::new();
    let mut streams: Vec<Vec<usize>> = Vec::new();
    for (input, (sample, times_ns)) in samples.iter().zip(spans_ns).enumerate() {
        match times_ns.zip(*sample) {
            Some((times_ns, sample)) => {
                files.push(ChainFile {
                    input,
                    times_ns,
                    psn_ranges: sample.psn_ranges(),
                    port_pairs: sample.port_pairs(),
                    sample,
                });
            }
            None => streams.push(vec![input]),
        }
    }
    files.sort_by_key(|file| (file.times_ns, file.input));
    let mut chains: Vec<FileChain<'_>> = Vec::new();
    for file in &files {
        let (mut before, others): (Vec<_>, Vec<_>) =
            chains.into_iter().partition(|chain| chain.continues(file, &mut repeats));
        chains = others;
        // If several chains match, the file joins the one with the most ports in common, of those
        // one that ended before the file starts, of those the one with the fewest packets that the
        // file has too (another port of the same traffic has those that were under way when both
        // files were rotated), of those the one whose PSNs it continues best, of those the one that
        // ended last. Chains with the same ports that ended before that one
        // started are of the same capture point and are joined too.
        let is_choice = before.len() > 1;
        before.sort_by_cached_key(|chain| {
            let end_ns = chain.times_ns().1;
            let has_ended = end_ns <= file.times_ns.0;
            let common = if is_choice { chain.common_packets(file) } else { 0 };
            let common_ports = chain.common_port_pairs(&file.port_pairs);
            (common_ports, has_ended, Reverse(common), Reverse(chain.psn_gap(file)), end_ns)
        });
        let Some(mut chain) = before.pop() else {
            chains.push(FileChain::new(file));
            continue;
        };
        while let Some(mut other) = before.pop() {
            let fewest = other.port_pairs.len().min(chain.port_pairs.len());
            let has_same_ports = chain.common_port_pairs(&other.port_pairs) * 2 >= fewest;
            if has_same_ports && other.times_ns().1 <= chain.times_ns().0 {
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
struct FileChain<'a> {
    files: Vec<&'a ChainFile<'a>>,
    /// PSN range of each connection in the last file that holds it.
    psn_ranges: BTreeMap<ConnectionKey, PsnRange>,
    port_pairs: BTreeSet<(Endpoint, Endpoint)>,
}

impl<'a> FileChain<'a> {
    fn new(file: &'a ChainFile<'a>) -> Self {
        Self { files: vec![file], psn_ranges: file.psn_ranges.clone(), port_pairs: file.port_pairs.clone() }
    }

    fn add(&mut self, file: &'a ChainFile<'a>) {
        self.files.push(file);
        self.port_pairs.extend(&file.port_pairs);
        self.psn_ranges.extend(file.psn_ranges.iter().map(|(key, range)| (*key, *range)));
    }

    /// Times of the first packet of its first file and the last packet of its last file.
    fn times_ns(&self) -> (i64, i64) {
        let ends = self.files.last().map_or(i64::MIN, |file| file.times_ns.1);
        (self.files.first().map_or(i64::MAX, |file| file.times_ns.0), ends)
    }

    /// Packets that its last file and the later file both hold.
    fn common_packets(&self, later: &ChainFile<'_>) -> usize {
        self.files.last().map_or(0, |last| last.sample.common_packets(later.sample).0)
    }

    /// Mean number of PSNs between the last request of the chain and the first one of the file, over
    /// their common connections; the maximum without any.
    fn psn_gap(&self, later: &ChainFile<'_>) -> u32 {
        let gap = |(key, range): (&ConnectionKey, &PsnRange)| {
            let ahead = range.first.wrapping_sub(self.psn_ranges.get(key)?.last).wrapping_sub(1) & MASK;
            Some(u64::from(ahead.min(MASK + 1 - ahead)))
        };
        let gaps: Vec<u64> = later.psn_ranges.iter().filter_map(gap).collect();
        (gaps.iter().sum::<u64>()).checked_div(gaps.len() as u64).map_or(u32::MAX, |mean| mean as u32)
    }

    fn common_port_pairs(&self, others: &BTreeSet<(Endpoint, Endpoint)>) -> usize {
        self.port_pairs.intersection(others).count()
    }

    /// True if the file has a port of the chain; `directed` if it must be a sender and its
    /// receiver.
    fn shares_ports(&self, later: &ChainFile<'_>, directed: bool) -> bool {
        if directed {
            return !self.port_pairs.is_disjoint(&later.port_pairs);
        }
        let ports = |pairs: &BTreeSet<(Endpoint, Endpoint)>| -> BTreeSet<Endpoint> {
            pairs.iter().flat_map(|(src, dst)| [*src, *dst]).collect()
        };
        !ports(&self.port_pairs).is_disjoint(&ports(&later.port_pairs))
    }

    /// True if the file continues the chain.
    fn continues(&self, later: &ChainFile<'_>, repeats: &mut impl FnMut(usize, usize) -> bool) -> bool {
        let Some(last) = self.files.last() else { return false };
        let overlap_ns = last.times_ns.1.saturating_sub(later.times_ns.0);
        if repeats(last.input, later.input) {
            return true;
        }
        // No program starts again within this time. The PSNs prove nothing here: retransmissions
        // may come first, and all connections may be new ones.
        if overlap_ns.saturating_abs() <= DISORDER_NS {
            return !last.sample.holds_most_of(later.sample);
        }
        if overlap_ns > 0 {
            return last.sample.overlaps(later.sample);
        }
        let (mut continued, mut restarted) = (0u64, 0u64);
        for (key, range) in &later.psn_ranges {
            let Some(before) = self.psn_ranges.get(key) else { continue };
            let length = before.last.wrapping_sub(before.first) & MASK;
            let at = range.first.wrapping_sub(before.first) & MASK;
            // A range that starts in the first half of the earlier one, or before it, starts over.
            let is_continued = at >= length.div_ceil(2) && at < MASK / 2;
            *(if is_continued { &mut continued } else { &mut restarted }) += u64::from(length) + 1;
        }
        if continued + restarted == 0 {
            // Other connections, as in short files, or none at all.
            let has_none = self.port_pairs.is_empty() || later.port_pairs.is_empty();
            return has_none || self.shares_ports(later, overlap_ns.saturating_neg() > LONG_IDLE_NS);
        }
        continued > restarted.saturating_mul(4)
    }
}
