//! Counts the packets of a connection by their path fields (SL, P_Key, DSCP, UDP source port ...).
//!
//! Nearly all connections have one combination, and then every packet of the connection has it. So
//! only the packets of further combinations are counted one by one; those of the first are the
//! rest.

use super::{PartialSums, TransmissionRule};
use crate::model::observation::{OCCURRENCES, occurrence_class};
use crate::model::paths::{ConnectionPaths, PathPlace, PathSums, add_path};
use crate::model::{ConnectionKey, PacketObservation, PacketRecord, PacketRole, PointCount};
use ibscope_parsers::PathFields;
use serde::{Deserialize, Serialize};

/// Combinations of one connection in one input.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PathTally {
    /// The combination of the first packet; the default before it.
    first: PathFields,
    /// Boxed, because most connections have none.
    #[expect(clippy::box_collection, reason = "8 bytes instead of 24 in each of many connections")]
    others: Option<Box<Vec<PathEntry>>>,
}

/// A further combination, with its packets.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct PathEntry {
    fields: PathFields,
    counts: PathCounts,
}

/// Packets by occurrence class: those with a PSN of their own, and the others.
type PathCounts = [[PathCount; OCCURRENCES]; 2];

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct PathCount {
    packets: u64,
    wire_bytes: u64,
}

impl PathTally {
    /// Index of the entry that counts the packets of a combination: 0 for the first.
    pub(super) fn index(&mut self, fields: PathFields) -> u8 {
        if self.first == fields || self.first == PathFields::default() {
            self.first = fields;
            return 0;
        }
        let others = self.others.get_or_insert_default();
        let entry = |index: usize| match index.checked_sub(1) {
            Some(other) => others.get(other).map_or(PathFields::OTHERS, |entry| entry.fields),
            None => self.first,
        };
        // The list has a bound below 256.
        match PathPlace::of(fields, others.len() + 1, entry) {
            PathPlace::At(index) => index as u8,
            PathPlace::New(fields) => {
                others.push(PathEntry { fields, counts: PathCounts::default() });
                others.len() as u8
            }
        }
    }

    /// Counts a packet of a further combination.
    pub(super) fn count(&mut self, index: u8, packet: &PacketRecord, observation: &PacketObservation) {
        let entry = self.others.as_mut().and_then(|others| others.get_mut(usize::from(index).checked_sub(1)?));
        let Some(entry) = entry else { return };
        let group = usize::from(observation.role == PacketRole::Other);
        let count = &mut entry.counts[group][occurrence_class(observation.occurrence)];
        count.packets += 1;
        count.wire_bytes += u64::from(packet.wire_bytes);
    }
}

/// The combinations of a connection in one input, without mirror copies; `points` are the observation
/// points of its pair in the input.
pub(super) fn of_connection(key: &ConnectionKey, partial: &PartialSums, points: PointCount) -> ConnectionPaths {
    let PathTally { first, others } = &partial.paths;
    let mut rest = PathCounts::default();
    for (role, class, sums) in partial.classified() {
        let group = usize::from(role == PacketRole::Other as usize);
        rest[group][class].packets += sums.packets;
        rest[group][class].wire_bytes += sums.wire_bytes;
    }
    let others: &[PathEntry] = others.as_ref().map_or(&[], |others| others);
    for entry in others {
        for (rest, counts) in rest.iter_mut().flatten().zip(entry.counts.iter().flatten()) {
            // A damaged partial profile may contain any counts.
            rest.packets = rest.packets.saturating_sub(counts.packets);
            rest.wire_bytes = rest.wire_bytes.saturating_sub(counts.wire_bytes);
        }
    }
    let first = PathEntry { fields: *first, counts: rest };
    let mut paths = ConnectionPaths::new();
    for entry in std::iter::once(&first).chain(others) {
        // Packets of a file that an earlier file of the stream has too are not counted here.
        if entry.counts.iter().flatten().any(|count| count.packets > 0) {
            add_path(&mut paths, sums(key, entry, points));
        }
    }
    paths
}

/// The transmissions of one combination.
fn sums(key: &ConnectionKey, entry: &PathEntry, points: PointCount) -> PathSums {
    let rules = [TransmissionRule::new(points, !key.is_datagram()), TransmissionRule::unnumbered(points)];
    let mut sums = PathSums { fields: entry.fields, ..PathSums::default() };
    let mut copies = 0;
    for (rule, counts) in rules.iter().zip(&entry.counts) {
        for (class, count) in counts.iter().enumerate() {
            if !rule.transmission[class] {
                copies += count.packets;
                continue;
            }
            sums.packets += count.packets;
            sums.wire_bytes += count.wire_bytes;
            if rule.retransmission[class] {
                sums.retransmitted_packets += count.packets;
            }
        }
    }
    // A switch between the two observation points sets the mark, so only the copy has the mark.
    if entry.fields.ecn() == Some(PathFields::ECN_CE) {
        sums.ecn_ce_packets = sums.packets.max(copies);
    }
    sums
}
