//! The traffic of a page: sums by pair, over the whole run and by bin, as packed columns.
//!
//! A pair is a sending and a receiving end. An end is a port with the rank there, if known, so both
//! matrices (by rank and by endpoint) are sums of the same numbers. Connections with and without a
//! detected library are separate pairs, because MPI bytes of the latter are unknown, not 0.
//! Connections of different classes or coverage are separate pairs too, because a time window may
//! have only one of them.
//!
//! ```text
//! number of pairs, number of cells
//! per pair: sender, receiver, has MPI, class and coverage (their numbers), missing packets, missing
//!           messages, 8 sums
//! per cell: bin (difference to the cell before), pair (difference to the cell before; in a new
//!           bin, the number itself), 8 sums
//! ```
//! A deflated cell takes about ten bytes.

use super::packed::{self, PackedColumns};
use crate::analysis::{EndpointLabels, GroupBy, Label};
use crate::model::profile::{BinRetransmissions, ConnectionRow, PairCoverage, Traffic};
use crate::model::{ConnectionClass, Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Largest size of the encoded cells in bytes, and the addition per end. Bins are widened until the
/// cells fit.
const BYTES: usize = 1 << 20;
const BYTES_PER_END: usize = 3 << 10;
/// Maximum number of cells: a browser sums them without a noticeable delay when the window moves. A
/// profile with default options has fewer.
const MAX_CELLS: usize = 1 << 20;

/// A port and the rank there.
pub(super) type RankedPort = (Endpoint, Label);

/// The packed traffic with its ends and bins.
#[derive(Debug, PartialEq)]
pub(super) struct PackedTraffic {
    /// All ends; a pair refers to its ends by their indices.
    pub(super) ends: Vec<RankedPort>,
    /// Width of a bin in nanoseconds; 0 without a timeline.
    pub(super) bin_ns: i64,
    /// Start of bin 0 in nanoseconds since the epoch.
    pub(super) first_ns: i64,
    /// Numbers of the bins with retransmitted packets, and the sums of these packets.
    pub(super) retransmitted: Vec<(u64, BinRetransmissions)>,
    /// Sums of each class by the number of the bin; empty if all traffic is of one class.
    pub(super) classes: BTreeMap<(u64, ConnectionClass), Traffic>,
    /// The columns, deflated and encoded as base64.
    pub(super) base64: String,
}

/// The indices of the ends of a pair, whether a library was detected, and the numbers of its class and
/// of its coverage.
type PairKey = [u32; 5];
/// Sums and coverage of each pair.
type PairSums = BTreeMap<PairKey, (Traffic, PairCoverage)>;

/// Start of a bin in nanoseconds since the epoch, number of a pair, and sums of the pair in the
/// bin.
type PackedCell = (i64, u32, Traffic);

/// Packs the traffic of a profile.
pub(super) fn pack(profile: &Profile) -> io::Result<PackedTraffic> {
    pack_within(profile, |ends| BYTES + BYTES_PER_END * ends)
}

/// Packs the traffic into at most the bytes that `most_bytes` returns for the number of ends.
fn pack_within(profile: &Profile, most_bytes: impl Fn(usize) -> usize) -> io::Result<PackedTraffic> {
    let ranks = EndpointLabels::new(profile, GroupBy::Rank);
    let ends_of = |row: &ConnectionRow| [(row.src, ranks.sender(row)), (row.dst, ranks.receiver(row))];
    let is_shown = |row: &ConnectionRow| row.kind == TrafficKind::Data && row.traffic.packets > 0;
    let mut ends: Vec<RankedPort> = profile.connections.iter().filter(|row| is_shown(row)).flat_map(ends_of).collect();
    ends.sort();
    ends.dedup();
    let number = |end: &RankedPort| ends.binary_search(end).unwrap_or_default() as u32;
    let mut pairs: PairSums = BTreeMap::new();
    let key = |row: &ConnectionRow| {
        let [src, dst] = ends_of(row);
        let has_mpi = u32::from(profile.mpi_read && row.stack.is_some());
        [number(&src), number(&dst), has_mpi, row.class as u32, row.coverage.state as u32]
    };
    let keys: Vec<Option<PairKey>> = profile.connections.iter().map(|row| is_shown(row).then(|| key(row))).collect();
    for (row, key) in profile.connections.iter().zip(&keys) {
        if let Some(key) = key {
            let (traffic, coverage) = pairs.entry(*key).or_default();
            *traffic += row.traffic;
            coverage.merge(&row.coverage);
        }
    }
    let place: BTreeMap<PairKey, u32> = pairs.keys().copied().zip(0..).collect();
    let pair_of = |connection: u32| keys.get(connection as usize).copied().flatten().and_then(|key| place.get(&key));
    let rows = profile.timeline.iter().filter(|_| profile.bin_ns > 0);
    let own = || rows.clone().filter_map(|row| Some((row, *pair_of(row.connection)?)));
    let mut cells: Vec<PackedCell> = own().map(|(row, pair)| (row.time_ns, pair, row.traffic)).collect();
    let mut bin_ns = profile.bin_ns.max(0);
    join(&mut cells);
    let most_bytes = most_bytes(ends.len());
    let mut most_cells = MAX_CELLS;
    let packed = loop {
        if cells.len() <= most_cells {
            let packed = deflate(&pairs, &cells, bin_ns)?;
            if packed.len() <= most_bytes {
                break packed;
            }
            // Wider bins hold larger sums, so the encoding of a cell does not get shorter: more cells
            // than this cannot fit.
            most_cells = cells.len() * most_bytes / packed.len();
        }
        // A single bin cannot be reduced further.
        let is_one = cells.first().map(|cell| cell.0) == cells.last().map(|cell| cell.0);
        let Some(wider_ns) = bin_ns.checked_mul(2).filter(|_| !is_one) else { break deflate(&pairs, &cells, bin_ns)? };
        bin_ns = wider_ns;
        for cell in &mut cells {
            cell.0 = start_of(cell.0, bin_ns);
        }
        join(&mut cells);
    };
    let first_ns = cells.first().map_or(0, |cell| cell.0);
    let mut retransmitted: BTreeMap<u64, BinRetransmissions> = BTreeMap::new();
    for (row, _) in own().filter(|(row, _)| row.retransmissions.packets > 0) {
        *retransmitted.entry(bin_of(start_of(row.time_ns, bin_ns), first_ns, bin_ns)).or_default() +=
            row.retransmissions;
    }
    let mut classes: BTreeMap<(u64, ConnectionClass), Traffic> = BTreeMap::new();
    for (row, _) in own() {
        let class = profile.connections.get(row.connection as usize).map_or_else(Default::default, |row| row.class);
        *classes.entry((bin_of(start_of(row.time_ns, bin_ns), first_ns, bin_ns), class)).or_default() += row.traffic;
    }
    if classes.keys().map(|(_, class)| class).collect::<BTreeSet<_>>().len() < 2 {
        classes.clear();
    }
    let base64 = packed::base64(&packed);
    let retransmitted = retransmitted.into_iter().collect();
    Ok(PackedTraffic { ends, bin_ns, first_ns, retransmitted, classes, base64 })
}

/// Start of the bin that contains a time.
const fn start_of(time_ns: i64, bin_ns: i64) -> i64 {
    time_ns.div_euclid(bin_ns).saturating_mul(bin_ns)
}

/// Number of the bin that starts at `start_ns`, counted from the first bin.
fn bin_of(start_ns: i64, first_ns: i64, bin_ns: i64) -> u64 {
    let bins = (i128::from(start_ns) - i128::from(first_ns)) / i128::from(bin_ns.max(1));
    u64::try_from(bins).unwrap_or_default()
}

/// Sorts the cells and merges cells of the same pair and bin.
fn join(cells: &mut Vec<PackedCell>) {
    cells.sort_by_key(|&(time_ns, pair, _)| (time_ns, pair));
    cells.dedup_by(|next, kept| {
        let is_same = (next.0, next.1) == (kept.0, kept.1);
        if is_same {
            kept.2 += next.2;
        }
        is_same
    });
}

fn deflate(pairs: &PairSums, cells: &[PackedCell], bin_ns: i64) -> io::Result<Vec<u8>> {
    let mut columns = PackedColumns::default();
    columns.put([pairs.len() as u64, cells.len() as u64].into_iter())?;
    for index in 0..5 {
        columns.put(pairs.keys().map(|key| u64::from(key[index])))?;
    }
    columns.put(pairs.values().map(|(_, coverage)| coverage.missing_packets))?;
    columns.put(pairs.values().map(|(_, coverage)| coverage.missing_messages))?;
    sums(&mut columns, &pairs.values().map(|(traffic, _)| traffic))?;
    let first_ns = cells.first().map_or(0, |cell| cell.0);
    let bin = |cell: &PackedCell| bin_of(cell.0, first_ns, bin_ns);
    let before = || std::iter::once(None).chain(cells.iter().map(Some));
    columns.put(cells.iter().zip(before()).map(|(cell, before)| bin(cell) - before.map_or(0, bin)))?;
    let pair = |(cell, before): (&PackedCell, Option<&PackedCell>)| {
        let before = before.filter(|before| before.0 == cell.0);
        u64::from(cell.1 - before.map_or(0, |before| before.1))
    };
    columns.put(cells.iter().zip(before()).map(pair))?;
    sums(&mut columns, &cells.iter().map(|cell| &cell.2))?;
    columns.finish()
}

/// Eight columns of sums, in the order of `data.js`.
fn sums<'a>(columns: &mut PackedColumns, rows: &(impl Iterator<Item = &'a Traffic> + Clone)) -> io::Result<()> {
    let of: [fn(&Traffic) -> u64; 8] = [
        |sums| sums.packets,
        |sums| sums.wire_bytes,
        |sums| sums.payload_bytes,
        |sums| sums.messages,
        |sums| sums.p2p_messages,
        |sums| sums.p2p_mpi_bytes,
        |sums| sums.collective_messages,
        |sums| sums.collective_mpi_bytes,
    ];
    of.into_iter().try_for_each(|of| columns.put(rows.clone().map(of)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::matrix::{Selection, matrix};
    use crate::model::profile::{CoverageState, RetransmissionSums, TimelineRow};
    use crate::render::html::packed::tests::{bytes_of, numbers_of};
    use ibscope_parsers::{Lid, Qpn};

    const BIN_NS: i64 = 10;

    /// Four ports; each sends to two others, in bins at increasing distances.
    fn profile() -> Profile {
        let mut profile = Profile { bin_ns: BIN_NS, mpi_read: true, ..Profile::default() };
        for (src, dst) in (1..=4).flat_map(|src| [(src, src % 4 + 1), (src, (src + 1) % 4 + 1)]) {
            let connection = profile.connections.len() as u32;
            let mut total = Traffic::default();
            for bin in 0..9 {
                let packets = 1 + u64::from(connection) * 1000 + bin;
                let traffic = Traffic { packets, wire_bytes: packets << 33, p2p_messages: bin, ..Traffic::default() };
                total += traffic;
                let retransmissions = BinRetransmissions { packets: bin % 2, wire_bytes: bin };
                let time_ns = -50 + BIN_NS * (1 << bin);
                profile.timeline.push(TimelineRow {
                    time_ns,
                    connection,
                    traffic,
                    retransmissions,
                    ..TimelineRow::default()
                });
            }
            profile.connections.push(ConnectionRow {
                src: Endpoint::from_lid(Lid(src)),
                dst: Endpoint::from_lid(Lid(dst)),
                kind: TrafficKind::Data,
                service: 0,
                dest_qp: Qpn::new(7),
                src_qp: None,
                src_qp_evidence: None,
                first_time_ns: 0,
                last_time_ns: 0,
                traffic: total,
                retransmissions: RetransmissionSums::default(),
                stack: (src == 1).then(|| "a library".to_owned()),
                job: None,
                class: crate::model::ConnectionClass::default(),
                one_sided: None,
                sampled: None,
                coverage: PairCoverage {
                    state: if src == 2 { CoverageState::Incomplete } else { CoverageState::Complete },
                    missing_packets: if src == 2 { u64::from(dst) } else { 0 },
                    missing_messages: 0,
                },
                paths: smallvec::SmallVec::default(),
                is_at_both_ports: None,
            });
        }
        profile.timeline.sort_by_key(|row| (row.time_ns, row.connection));
        profile
    }

    #[test]
    fn columns_hold_the_sums_of_the_matrix() {
        let profile = profile();
        let cells = pack(&profile).expect("packed");
        assert_eq!((cells.bin_ns, cells.first_ns, cells.ends.len()), (BIN_NS, -40, 4));
        let numbers = numbers_of(&cells.base64);
        let (pairs, count) = (numbers[0] as usize, numbers[1] as usize);
        assert_eq!((pairs, count, numbers.len()), (8, 72, 2 + 8 * 15 + 72 * 10));
        let column = |index: usize| &numbers[2 + index * pairs..][..pairs];
        let matrix = matrix(&profile, GroupBy::Endpoint, Selection::P2p);
        for pair in 0..pairs {
            let key = (column(0)[pair] as u32, column(1)[pair] as u32);
            let cell = &matrix.cells[&key];
            assert_eq!(column(2)[pair] == 1, cell.mpi_bytes.is_some());
            let PairCoverage { state, missing_packets, .. } = cell.coverage;
            assert_eq!(column(3)[pair], ConnectionClass::default() as u64);
            assert_eq!((column(4)[pair], column(5)[pair], column(6)[pair]), (state as u64, missing_packets, 0));
            assert_eq!((column(7)[pair], column(8)[pair]), (cell.packets, cell.wire_bytes));
            assert_eq!(column(11)[pair], cell.messages);
        }
        // The distances from the first bin are powers of two less one.
        assert_eq!(cells.retransmitted.iter().map(|(bin, _)| *bin).collect::<Vec<_>>(), [1, 7, 31, 127]);
        assert_eq!(cells.retransmitted[3].1, BinRetransmissions { packets: 8, wire_bytes: 56 });
    }

    #[test]
    fn classes_have_the_sums_of_their_connections() {
        let mut profile = profile();
        assert!(pack(&profile).expect("packed").classes.is_empty(), "one class");
        for row in &mut profile.connections {
            row.class = if row.src == Endpoint::from_lid(Lid(1)) { ConnectionClass::Mpi } else { ConnectionClass::Nfs };
        }
        let cells = pack(&profile).expect("packed");
        assert_eq!(cells.classes.len(), 9 * 2);
        for class in [ConnectionClass::Mpi, ConnectionClass::Nfs] {
            let own = cells.classes.iter().filter(|((_, of), _)| *of == class).map(|(_, sums)| sums.packets);
            let rows = profile.connections.iter().filter(|row| row.class == class).map(|row| row.traffic.packets);
            assert_eq!(own.sum::<u64>(), rows.sum::<u64>(), "{class:?}");
        }
        // The distances of the bins from the first one are powers of two less one; MPI has the
        // connections 0 and 1.
        assert_eq!(cells.classes[&(3, ConnectionClass::Mpi)].packets, (1 + 2) + (1 + 1000 + 2));
    }

    #[test]
    fn bins_are_widened_until_the_cells_fit() {
        let profile = profile();
        let of = |cells: &PackedTraffic| {
            let numbers = numbers_of(&cells.base64);
            let (pairs, count) = (numbers[0] as usize, numbers[1] as usize);
            let packets = &numbers[2 + pairs * 15 + count * 2..][..count];
            (count, packets.iter().sum::<u64>(), bytes_of(&cells.base64).len())
        };
        let fine = pack(&profile).expect("packed");
        let (all, packets, length) = of(&fine);
        let half = pack_within(&profile, |_| length * 2 / 3).expect("packed");
        let (some, same, shorter) = of(&half);
        assert!(some < all && shorter <= length * 2 / 3 && half.bin_ns > BIN_NS, "{some} of {all}");
        assert_eq!(same, packets);
        // No cell fits into 0 bytes: a single bin is left.
        let (one, same, _) = of(&pack_within(&profile, |_| 0).expect("packed"));
        assert_eq!((one % 8, same), (0, packets));
        assert!(one <= 16, "times below and above 0 never meet");
    }
}
