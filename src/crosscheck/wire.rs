//! What the wire showed, by rank: the profile's streams and traffic.

use super::trace::Sums;
use crate::model::profile::StreamEnvelope;
use crate::model::{Kind, Profile, RankIndex, StreamSums};
use ibscope_parsers::mpi::Operation;
use std::collections::BTreeMap;

/// Messages and traffic between ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    /// MPI messages by sender, receiver, envelope and operation.
    pub(super) streams: BTreeMap<(u32, u32, Option<StreamEnvelope>, Operation), StreamSums>,
    /// All traffic by sender and receiver.
    pub(super) traffic: BTreeMap<(u32, u32), Traffic>,
    /// Point-to-point messages of which a rank is not known.
    pub(super) unknown: Sums,
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
    /// `None` where the profile has no streams.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let ranks = RankIndex::of(profile);
        let ends: Vec<Option<(u32, u32)>> = profile
            .connections
            .iter()
            .map(|row| {
                let ends = ranks.connection(row);
                (row.kind == Kind::Data).then_some((ends.src?, ends.dst?))
            })
            .collect();
        let mut wire = Self::default();
        for row in profile.streams.as_ref()? {
            let Some(&ends) = ends.get(row.connection as usize) else { continue };
            let sums = row.sums;
            if let Some((src, dst)) = ends {
                let key = (src, dst, row.envelope, row.operation);
                wire.streams.entry(key).and_modify(|stream| stream.merge(sums)).or_insert(sums);
            } else if row.operation == Operation::PointToPoint {
                wire.unknown += Sums { messages: sums.messages, bytes: sums.mpi_bytes };
            }
        }
        for (row, pair) in profile.connections.iter().zip(&ends).filter_map(|(row, pair)| Some((row, (*pair)?))) {
            let traffic = wire.traffic.entry(pair).or_default();
            add(&mut traffic.packets, row.traffic.packets);
            add(&mut traffic.wire_bytes, row.traffic.wire_bytes);
            add(&mut traffic.payload_bytes, row.traffic.payload_bytes);
            add(&mut traffic.retransmitted_wire_bytes, row.repeats.wire_bytes);
        }
        for row in &profile.health {
            let Some(Some((src, dst))) = ends.get(row.connection as usize).copied() else { continue };
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
