//! Chains the files of one capture: rotated by the capture program, or split by hand.
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

use super::packet_sample::{PacketSample, PacketTimestamps, PsnRange};
use crate::model::ConnectionKey;
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// PSNs have 24 bits.
const MASK: u32 = 0xFF_FFFF;
/// Records of one capture may be this much out of order, because they are timestamped when
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
    timestamps: PacketTimestamps,
}

/// How badly a file continues a chain. Sums over several files and their chains can be compared, too.
/// The most important criterion is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Misfit {
    /// 1 without proof that the file repeats records of the chain.
    unproven: i64,
    /// Number of the pairs of ports that both have, negated.
    other_ports: i64,
    /// Packets that both hold, at different times. A file of another port with the same traffic holds
    /// the packets that were in flight when both files were rotated, or that passed within the
    /// difference of the clocks.
    at_other_times: i64,
    /// 1 if the chain ends after the file starts.
    not_ended: i64,
    /// Mean number of PSNs between them.
    psn_gap: i64,
    /// Time between them.
    idle_ns: i64,
}

impl std::ops::Add for Misfit {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            unproven: self.unproven + other.unproven,
            other_ports: self.other_ports + other.other_ports,
            at_other_times: self.at_other_times + other.at_other_times,
            not_ended: self.not_ended + other.not_ended,
            psn_gap: self.psn_gap + other.psn_gap,
            idle_ns: self.idle_ns.saturating_add(other.idle_ns),
        }
    }
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
                    timestamps: sample.timestamps(),
                });
            }
            None => streams.push(vec![input]),
        }
    }
    files.sort_by_key(|file| (file.times_ns, file.input));
    let mut chains: Vec<FileChain<'_>> = Vec::new();
    let mut rest = &files[..];
    while !rest.is_empty() {
        let (group, others) = rest.split_at(concurrent(rest, &mut repeats));
        extend(&mut chains, group, &mut repeats);
        rest = others;
    }
    streams.extend(chains.iter().map(|chain| chain.files.iter().map(|file| file.input).collect()));
    streams.sort();
    streams
}

/// Number of files at the start of the list, at least one, of which none continues another.
fn concurrent(files: &[ChainFile<'_>], repeats: &mut impl FnMut(usize, usize) -> bool) -> usize {
    let mut group: Vec<FileChain<'_>> = Vec::new();
    for file in files {
        if group.iter().any(|earlier| earlier.continues(file, repeats)) {
            break;
        }
        group.push(FileChain::new(file));
    }
    group.len()
}

/// Adds files, of which none continues another, to the chains that they continue. A file that
/// continues none starts a chain.
///
/// The files of several ports that are rotated at the same time match the chains of all these ports.
/// So they are assigned together, such that the sum of their misfits is small.
fn extend<'a>(
    chains: &mut Vec<FileChain<'a>>,
    group: &'a [ChainFile<'a>],
    repeats: &mut impl FnMut(usize, usize) -> bool,
) {
    let mut misfits: Vec<BTreeMap<usize, Misfit>> = Vec::with_capacity(group.len());
    for file in group {
        let mut own = BTreeMap::new();
        for (at, chain) in chains.iter().enumerate() {
            if chain.continues(file, repeats) {
                own.insert(at, chain.misfit(file, repeats));
            }
        }
        misfits.push(own);
    }
    let chosen = assign(&misfits);
    let taken: BTreeSet<usize> = chosen.iter().copied().flatten().collect();
    let mut left: Vec<Option<FileChain<'a>>> = std::mem::take(chains).into_iter().map(Some).collect();
    for ((file, misfits), chosen) in group.iter().zip(&misfits).zip(chosen) {
        let Some(mut chain) = chosen.and_then(|chain| left[chain].take()) else {
            chains.push(FileChain::new(file));
            continue;
        };
        // Other chains that the file continues, with the same ports, that ended before this one
        // started, are of the same capture too.
        let mut others: Vec<(Misfit, usize)> = misfits
            .iter()
            .filter(|(other, _)| !taken.contains(other))
            .map(|(other, misfit)| (*misfit, *other))
            .collect();
        others.sort_unstable();
        for (_, other) in others {
            let is_earlier = |other: &mut FileChain<'_>| {
                let fewest = other.port_pairs.len().min(chain.port_pairs.len());
                let has_same_ports = chain.common_port_pairs(&other.port_pairs) * 2 >= fewest;
                has_same_ports && other.times_ns().1 <= chain.times_ns().0
            };
            if let Some(mut earlier) = left[other].take_if(is_earlier) {
                chain.files.iter().for_each(|file| earlier.add(file));
                chain = earlier;
            }
        }
        chain.add(file);
        chains.push(chain);
    }
    chains.extend(left.into_iter().flatten());
}

/// Assigns files to chains, at most one to each. `misfits` are those of each file, by chain. Takes the
/// best pairs first, then swaps two chains at a time while a swap assigns more files or lowers the sum.
fn assign(misfits: &[BTreeMap<usize, Misfit>]) -> Vec<Option<usize>> {
    let mut pairs: Vec<(Misfit, usize, usize)> = misfits
        .iter()
        .enumerate()
        .flat_map(|(file, own)| own.iter().map(move |(chain, misfit)| (*misfit, file, *chain)))
        .collect();
    pairs.sort_unstable();
    let mut chosen: Vec<Option<usize>> = vec![None; misfits.len()];
    let mut owners: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, file, chain) in &pairs {
        if chosen[*file].is_none() && !owners.contains_key(chain) {
            (chosen[*file], _) = (Some(*chain), owners.insert(*chain, *file));
        }
    }
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for (misfit, file, chain) in &pairs {
            let Some(owner) = owners.get(chain).copied().filter(|owner| owner != file) else { continue };
            let (own, others) = (&misfits[*file], &misfits[owner]);
            // The chain that the owner gets instead: that of the file, or a free one.
            let instead = match chosen[*file] {
                Some(chain) => others.contains_key(&chain).then_some(chain),
                None => others.keys().copied().find(|chain| !owners.contains_key(chain)),
            };
            let Some(instead) = instead else { continue };
            let is_better =
                chosen[*file].is_none_or(|before| *misfit + others[&instead] < own[&before] + others[chain]);
            if is_better {
                (chosen[*file], chosen[owner]) = (Some(*chain), Some(instead));
                owners.extend([(*chain, *file), (instead, owner)]);
                has_changed = true;
            }
        }
    }
    chosen
}

/// Files of one capture, in the order of time.
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

    /// See [`Misfit`].
    fn misfit(&self, later: &ChainFile<'_>, repeats: &mut impl FnMut(usize, usize) -> bool) -> Misfit {
        let Some(last) = self.files.last() else { return Misfit::default() };
        let idle_ns = later.times_ns.0.saturating_sub(last.times_ns.1);
        let is_proven = repeats(last.input, later.input) || idle_ns < -DISORDER_NS;
        Misfit {
            unproven: i64::from(!is_proven),
            other_ports: -(self.common_port_pairs(&later.port_pairs) as i64),
            at_other_times: last.timestamps.at_other_times(&later.timestamps).0 as i64,
            not_ended: i64::from(idle_ns < 0),
            psn_gap: i64::from(self.psn_gap(later)),
            idle_ns,
        }
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
            return !last.timestamps.holds_most_of(&later.timestamps);
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
