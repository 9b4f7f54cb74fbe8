//! What the wire showed, by rank: the profile's streams and traffic.

use super::message_sums::Sums;
use crate::model::profile::{ConnectionRow, StreamEnvelope, StreamRow};
use crate::model::{Kind, Profile, RankIndex, StreamSums};
use ibscope_parsers::mpi::Operation;
use std::collections::{BTreeMap, BTreeSet};

/// Which messages on the wire are one stream: sender, receiver, context and tag.
pub(super) type WireKey = (u32, u32, u32, i32);

/// Ranks of the sender and the receiver, where they are identified.
pub(super) type Ends = (Option<u32>, Option<u32>);

/// Messages and traffic between ranks of one job.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    /// MPI messages by sender, receiver, envelope and operation.
    pub(super) streams: BTreeMap<(u32, u32, Option<StreamEnvelope>, Operation), StreamSums>,
    /// All traffic by sender and receiver.
    pub(super) traffic: BTreeMap<(u32, u32), Traffic>,
    /// Point-to-point messages of which at least one rank is not identified.
    pub(super) unidentified: BTreeMap<(Ends, Option<StreamEnvelope>), Sums>,
    /// Messages of collective operations of which at least one rank is not identified.
    pub(super) unidentified_collectives: Sums,
    /// Ranks that are identified on at least one queue pair.
    identified: BTreeSet<u32>,
}

/// All traffic from one rank to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) wire_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) retransmitted_wire_bytes: u64,
    /// Requests that the capture has missed, at most: numbers that were never seen between others. Each may have held the envelope of a message.
    pub(super) lost_packets: u64,
    /// Packets behind later ones where numbers had to be forgotten: they may be repeats.
    pub(super) late_packets: u64,
}

/// Whoever writes a profile may write any numbers.
fn add(sum: &mut u64, number: u64) {
    *sum = sum.saturating_add(number);
}

impl Wire {
    /// What the wire showed of a job. `None` where the profile has no streams.
    pub(super) fn of(profile: &Profile, job: u32) -> Option<Self> {
        let ranks = RankIndex::of(profile);
        // Traffic that cannot be told from another job's may be this one's, of whichever rank.
        let ends_in_job = |row: &ConnectionRow| match (row.kind, ranks.connection(row)) {
            (Kind::Data, ends) if ends.job == Some(job) => Some((ends.src, ends.dst)),
            (Kind::Data, ends) if ends.job.is_none() => Some((None, None)),
            _ => None,
        };
        let ends: Vec<Option<Ends>> = profile.connections.iter().map(ends_in_job).collect();
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
            add(&mut traffic.retransmitted_wire_bytes, row.repeats.wire_bytes);
        }
        for row in &profile.health {
            let Some(Some((src, dst))) = pairs.get(row.connection as usize).copied() else { continue };
            // Envelopes are in requests, wherever the data come from.
            let lost = row.health.lost_requests.saturating_add(row.health.open_psns);
            let traffic = wire.traffic.entry((src, dst)).or_default();
            add(&mut traffic.lost_packets, lost);
            if profile.coverage.window_overflows > 0 {
                add(&mut traffic.late_packets, row.health.late_packets);
            }
        }
        Some(wire)
    }

    fn add_stream(&mut self, ends: Ends, row: &StreamRow) {
        let sums = Sums { messages: row.sums.messages, bytes: row.sums.mpi_bytes };
        match (ends, row.operation) {
            ((Some(src), Some(dst)), _) => {
                let key = (src, dst, row.envelope, row.operation);
                self.streams.entry(key).and_modify(|stream| stream.merge(row.sums)).or_insert(row.sums);
            }
            (_, Operation::PointToPoint) => *self.unidentified.entry((ends, row.envelope)).or_default() += sums,
            _ => self.unidentified_collectives += sums,
        }
    }

    /// Nothing but ranks that are identified.
    #[cfg(test)]
    pub(super) fn of_ranks(ranks: impl IntoIterator<Item = u32>) -> Self {
        Self { identified: ranks.into_iter().collect(), ..Self::default() }
    }

    /// True where a queue pair is known to be this rank's.
    pub(super) fn is_identified(&self, rank: u32) -> bool {
        self.identified.contains(&rank)
    }

    /// Requests that the capture has missed of some pairs, at most.
    pub(super) fn lost_packets(&self, is_of: impl Fn(u32, u32) -> bool) -> u64 {
        let lost =
            self.traffic.iter().filter(|((src, dst), _)| is_of(*src, *dst)).map(|(_, traffic)| traffic.lost_packets);
        lost.fold(0, u64::saturating_add)
    }

    /// All of it.
    pub(super) fn total(&self) -> super::Traffic {
        let mut total = super::Traffic::default();
        for traffic in self.traffic.values() {
            add(&mut total.payload_bytes, traffic.payload_bytes);
            add(&mut total.wire_bytes, traffic.wire_bytes);
            add(&mut total.retransmitted_wire_bytes, traffic.retransmitted_wire_bytes);
        }
        total.mpi_bytes = self.streams.values().fold(0, |sum, stream| sum.saturating_add(stream.mpi_bytes));
        total
    }

    /// Point-to-point messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = ((u32, u32), Option<StreamEnvelope>, StreamSums)> + '_ {
        self.streams
            .iter()
            .filter(|((_, _, _, operation), _)| *operation == Operation::PointToPoint)
            .map(|(&(src, dst, envelope, _), &sums)| ((src, dst), envelope, sums))
    }
}
