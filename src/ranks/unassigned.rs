//! The list of queue pairs that have no rank, each with the reason.
//!
//! Only queue pairs that a process of a job may use are listed: those of storage and of the network
//! itself need no rank. Invariant: queue pairs that the list has no room for are counted in a note.

use super::{QueuePairPartners, RanksByQueuePair, ResolvedRanks, reverse, tag_layout};
use crate::model::profile::UnassignedRow;
use crate::model::{ConnectionTotals, QueuePair, TrafficKind};
use std::collections::{BTreeMap, BTreeSet};

/// Unassigned queue pairs to list at most; a damaged capture may have any number.
const MAX_UNASSIGNED: usize = 1 << 16;

/// The ranks of the queue pairs, and the reasons why others have none.
#[derive(Default)]
pub(super) struct RankAssignment {
    pub(super) ranks: RanksByQueuePair,
    pub(super) reasons: BTreeMap<QueuePair, String>,
}

impl RankAssignment {
    /// Lists the queue pairs without a rank in `identified`, whose classes are known.
    pub(super) fn list_unassigned(
        &self,
        connections: &[Box<ConnectionTotals>],
        paired: &QueuePairPartners,
        identified: &mut ResolvedRanks,
    ) {
        let mut ends = data_ends(connections, paired);
        ends.retain(|end| !self.ranks.contains_key(end));
        if !ends.is_empty() {
            ends_of_no_job(connections, paired, identified).for_each(|end| _ = ends.remove(&end));
        }
        if ends.len() > MAX_UNASSIGNED {
            identified
                .notes
                .push(format!("{} queue pairs have no rank; only the first {MAX_UNASSIGNED} are listed", ends.len()));
        }
        let mut jobs: BTreeMap<QueuePair, u32> = BTreeMap::new();
        let mut mpi: BTreeSet<QueuePair> = BTreeSet::new();
        for (connection, job) in connections.iter().zip(&identified.job_of) {
            let receiver = tag_layout::receiver(&connection.key);
            let both = [Some(receiver), paired.partner(receiver).map(|(end, _)| end)];
            for end in both.into_iter().flatten() {
                jobs.extend(job.map(|job| (end, job)));
                if identified.detection.stack(&connection.key).is_some() {
                    mpi.insert(end);
                }
            }
        }
        let row = |end: QueuePair| {
            let by_default = if mpi.contains(&end) {
                "its messages name no rank of MPI_COMM_WORLD"
            } else {
                "no MPI message was detected on it"
            };
            UnassignedRow {
                job: jobs.get(&end).copied(),
                endpoint: end.endpoint.to_string(),
                qpn: end.qpn.value(),
                reason: self.reasons.get(&end).cloned().unwrap_or_else(|| by_default.to_owned()),
            }
        };
        identified.unassigned = ends.into_iter().take(MAX_UNASSIGNED).map(row).collect();
    }
}

/// Queue pairs that carry data.
pub(super) fn data_ends(connections: &[Box<ConnectionTotals>], paired: &QueuePairPartners) -> BTreeSet<QueuePair> {
    let mut ends = BTreeSet::new();
    for key in connections.iter().map(|connection| &connection.key).filter(|key| key.kind == TrafficKind::Data) {
        let receiver = tag_layout::receiver(key);
        ends.insert(receiver);
        if key.is_datagram() {
            ends.insert(QueuePair { endpoint: key.src, qpn: key.src_qp });
        } else {
            ends.extend(paired.partner(receiver).map(|(end, _)| end));
        }
    }
    ends
}

/// Queue pairs of protocols that no process of a job uses.
fn ends_of_no_job(
    connections: &[Box<ConnectionTotals>],
    paired: &QueuePairPartners,
    identified: &ResolvedRanks,
) -> impl Iterator<Item = QueuePair> {
    let others = connections.iter().zip(&identified.classes).filter(|(_, class)| class.is_of_no_job());
    others.flat_map(|(own, _)| [Some(tag_layout::receiver(&own.key)), reverse::sender(&own.key, paired)]).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ConnectionClass;
    use crate::ranks::tests::connection;

    /// Queue pairs of one port; no message names a rank. Those of storage take no room in the list.
    #[test]
    fn unlisted_queue_pairs_are_counted_in_a_note() {
        let storage = 10;
        for (count, note) in [(MAX_UNASSIGNED, None), (MAX_UNASSIGNED + 1, Some("65537 queue pairs have no rank"))] {
            let all = count + storage;
            let connections: Vec<Box<ConnectionTotals>> =
                (0..all).map(|number| Box::new(connection(3, 4, 0x100 + number as u32))).collect();
            let class = |number| if number < storage { ConnectionClass::Nfs } else { ConnectionClass::Unknown };
            let mut identified = ResolvedRanks {
                job_of: vec![None; all],
                classes: (0..all).map(class).collect(),
                ..ResolvedRanks::default()
            };
            RankAssignment::default().list_unassigned(&connections, &QueuePairPartners::default(), &mut identified);
            assert_eq!(identified.unassigned.len(), MAX_UNASSIGNED);
            assert_eq!(identified.unassigned[0].qpn, 0x100 + storage as u32);
            assert_eq!(identified.notes.len(), usize::from(note.is_some()));
            assert!(note.is_none_or(|note| identified.notes[0].starts_with(note)), "{:?}", identified.notes);
        }
    }
}
