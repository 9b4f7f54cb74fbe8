//! The messages and traffic of one job on the wire, by rank, from the streams of a profile.

use super::message_sums::MessageSums;
use crate::model::profile::{ConnectionRow, StreamEnvelope, StreamRow};
use crate::model::{Profile, RankIndex, StreamSums, TrafficKind};
use ibscope_parsers::mpi::MpiOperation;
use std::collections::{BTreeMap, BTreeSet};

/// Sender, receiver, context and tag of a stream on the wire.
pub(super) type WireKey = (u32, u32, u32, i32);

/// Ranks of the sender and the receiver, if they are identified.
pub(super) type RankEnds = (Option<u32>, Option<u32>);

/// Messages and traffic between the ranks of one job.
#[derive(Clone, Debug, Default)]
pub(super) struct WireMessages {
    /// MPI messages by sender, receiver, envelope and operation.
    pub(super) streams: BTreeMap<(u32, u32, Option<StreamEnvelope>, MpiOperation), StreamSums>,
    /// All traffic by sender and receiver.
    pub(super) traffic: BTreeMap<(u32, u32), WireTotals>,
    /// Point-to-point messages with an unidentified sender or receiver.
    pub(super) unidentified: BTreeMap<(RankEnds, Option<StreamEnvelope>), MessageSums>,
    /// Messages of collective operations with an unidentified sender or receiver.
    pub(super) unidentified_collectives: MessageSums,
    /// Ranks that are identified on at least one queue pair.
    identified: BTreeSet<u32>,
}

/// All traffic from one rank to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WireTotals {
    pub(super) packets: u64,
    pub(super) wire_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) retransmitted_wire_bytes: u64,
    /// Upper bound of the requests that the capture missed: PSNs missing between captured ones.
    /// Each may have carried the envelope of a message.
    pub(super) lost_packets: u64,
    /// MPI messages that count in no stream: the capture does not show their lengths, or does not hold
    /// them.
    pub(super) incomplete_messages: u64,
    /// Packets older than the PSN window that may be retransmissions.
    pub(super) late_packets: u64,
}

/// Saturates, because a profile may contain arbitrary numbers.
fn add(sum: &mut u64, number: u64) {
    *sum = sum.saturating_add(number);
}

impl WireMessages {
    /// Collects the messages of a job. `None` if the profile has no streams.
    pub(super) fn of(profile: &Profile, job: u32) -> Option<Self> {
        let ranks = RankIndex::of(profile);
        // Traffic of an unknown job may be of any rank of this job.
        let ends_in_job = |row: &ConnectionRow| match (row.kind, ranks.connection(row)) {
            (TrafficKind::Data, ends) if ends.job == Some(job) => Some((ends.src, ends.dst)),
            (TrafficKind::Data, ends) if ends.job.is_none() => Some((None, None)),
            _ => None,
        };
        let ends: Vec<Option<RankEnds>> = profile.connections.iter().map(ends_in_job).collect();
        let pairs: Vec<Option<(u32, u32)>> = ends.iter().map(|ends| ends.and_then(|(src, dst)| src.zip(dst))).collect();
        let mut wire = Self::default();
        wire.identified.extend(ends.iter().flatten().flat_map(|(src, dst)| [*src, *dst]).flatten());
        for row in profile.streams.as_ref()? {
            let Some(&Some(ends)) = ends.get(row.connection as usize) else { continue };
            wire.add_stream(ends, row);
        }
        for (row, pair) in profile.connections.iter().zip(&pairs).filter_map(|(row, pair)| Some((row, (*pair)?))) {
            let traffic = wire.traffic.entry(pair).or_default();
            add(&mut traffic.packets, row.traffic.packets);
            add(&mut traffic.wire_bytes, row.traffic.wire_bytes);
            add(&mut traffic.payload_bytes, row.traffic.payload_bytes);
            add(&mut traffic.retransmitted_wire_bytes, row.retransmissions.wire_bytes);
            add(&mut traffic.incomplete_messages, row.coverage.missing_messages);
        }
        for row in &profile.health {
            let Some(Some((src, dst))) = pairs.get(row.connection as usize).copied() else { continue };
            // Requests carry the envelopes, whichever direction the data takes.
            let lost = row.health.lost_requests.saturating_add(row.health.unobserved_psns);
            let traffic = wire.traffic.entry((src, dst)).or_default();
            add(&mut traffic.lost_packets, lost);
            if profile.coverage.window_overflows > 0 {
                add(&mut traffic.late_packets, row.health.late_packets);
            }
        }
        Some(wire)
    }

    fn add_stream(&mut self, ends: RankEnds, row: &StreamRow) {
        let sums = MessageSums { messages: row.sums.messages, bytes: row.sums.mpi_bytes };
        match (ends, row.operation) {
            ((Some(src), Some(dst)), _) => {
                let key = (src, dst, row.envelope, row.operation);
                self.streams.entry(key).and_modify(|stream| stream.merge(row.sums)).or_insert(row.sums);
            }
            (_, MpiOperation::PointToPoint) => *self.unidentified.entry((ends, row.envelope)).or_default() += sums,
            _ => self.unidentified_collectives += sums,
        }
    }

    /// A wire without messages, with these ranks identified.
    #[cfg(test)]
    pub(super) fn of_ranks(ranks: impl IntoIterator<Item = u32>) -> Self {
        Self { identified: ranks.into_iter().collect(), ..Self::default() }
    }

    /// True if a queue pair of this rank is identified.
    pub(super) fn is_identified(&self, rank: u32) -> bool {
        self.identified.contains(&rank)
    }

    /// The traffic of some pairs of ranks.
    pub(super) fn of_pairs(&self, is_of: impl Fn(u32, u32) -> bool) -> impl Iterator<Item = &WireTotals> {
        self.traffic.iter().filter(move |((src, dst), _)| is_of(*src, *dst)).map(|(_, traffic)| traffic)
    }

    /// The sum of all traffic and messages.
    pub(super) fn total(&self) -> super::RankTraffic {
        let mut total = super::RankTraffic::default();
        for traffic in self.traffic.values() {
            add(&mut total.payload_bytes, traffic.payload_bytes);
            add(&mut total.wire_bytes, traffic.wire_bytes);
            add(&mut total.retransmitted_wire_bytes, traffic.retransmitted_wire_bytes);
        }
        total.mpi_bytes = self.streams.values().fold(0, |sum, stream| sum.saturating_add(stream.mpi_bytes));
        total
    }

    /// The point-to-point messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = ((u32, u32), Option<StreamEnvelope>, StreamSums)> + '_ {
        self.streams
            .iter()
            .filter(|((_, _, _, operation), _)| *operation == MpiOperation::PointToPoint)
            .map(|(&(src, dst, envelope, _), &sums)| ((src, dst), envelope, sums))
    }
}
