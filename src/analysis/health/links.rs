//! Health per link between a port and its switch, for each direction.
//!
//! ```text
//! port A ==from A==> switch ... switch ==to B==> port B
//! ```
//! A packet from A to B passes two links and counts at both, with all its problems: a retransmitted
//! packet raises both links, and the link that it shares with other affected connections is the bad
//! one. Links between switches cannot be distinguished.
//!
//! Lost responses traveled in the opposite direction of the requests of their row, and count at the
//! links of that direction. A packet that was captured at only one of two observation points was
//! missed at one of two links, and the capture does not show which: half of these packets are in
//! the best estimate, none in the lower bound, all in the upper bound.

use super::connection::severity;
use crate::model::profile::RetransmissionSums;
use crate::model::{Health, Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Direction of packets on a link, seen from the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkDirection {
    From,
    To,
}

impl LinkDirection {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::From => "from",
            Self::To => "to",
        }
    }
}

/// Sums of one direction of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) connections: u64,
    pub(crate) packets: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) retransmissions: RetransmissionSums,
    pub(crate) health: Health,
    /// Packets captured at no observation point: best estimate, lower bound, upper bound.
    pub(crate) lost: [u64; 3],
}

impl Link {
    /// Packets that are missing at one of two observation points.
    const fn observed_once(&self) -> u64 {
        self.health.single_observation_packets + self.health.missing_in_other_inputs
    }

    /// Packets that the capture of this link missed, and their share of all that passed: best
    /// estimate, lower bound, upper bound.
    pub(crate) fn capture_loss(&self) -> [(u64, f64); 3] {
        let single = self.observed_once();
        let [lost, least, most] = self.lost;
        [(lost, single.div_ceil(2)), (least, 0), (most, single)].map(|(unseen, missed)| {
            let passed = (self.packets + unseen).max(1);
            // With several other inputs, the packets missing there may exceed the packets counted
            // here.
            (unseen + missed, ((unseen + missed) as f64 / passed as f64).min(1.0))
        })
    }

    /// Number of retransmitted packets.
    pub(crate) const fn retransmitted_packets(&self) -> u64 {
        self.retransmissions.request_packets
            + self.retransmissions.response_packets
            + self.retransmissions.acknowledge_packets
    }

    /// Severity of the link's problems, for sorting.
    pub(crate) fn severity(&self) -> u64 {
        severity(&self.health, &self.retransmissions).saturating_add(self.observed_once())
    }
}

pub(crate) type Links = BTreeMap<(Endpoint, LinkDirection), Link>;

/// All links that carried data packets.
pub(crate) fn links(profile: &Profile) -> Links {
    let mut links = Links::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data) {
        for end in [(connection.src, LinkDirection::From), (connection.dst, LinkDirection::To)] {
            let link = links.entry(end).or_default();
            link.connections += 1;
            link.packets += connection.traffic.packets;
            link.wire_bytes += connection.traffic.wire_bytes;
            link.retransmissions += super::known_retransmissions(connection);
        }
    }
    for row in &profile.health {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        let health = &super::known_health(connection, &row.health);
        // Estimates of lost responses are exact, so the remaining uncertainty is about requests.
        let responses = health.lost_responses;
        let bounds = [health.lost_at_least, health.lost_at_most].map(|bound| bound.saturating_sub(responses));
        let requests = [health.lost_requests, bounds[0], bounds[1]];
        let ends = |src, dst| [(src, LinkDirection::From), (dst, LinkDirection::To)];
        for end in ends(connection.src, connection.dst) {
            let link = links.entry(end).or_default();
            link.health += *health;
            add(&mut link.lost, requests);
        }
        for end in ends(connection.dst, connection.src).into_iter().filter(|_| responses > 0) {
            add(&mut links.entry(end).or_default().lost, [responses; 3]);
        }
    }
    links
}

fn add(sums: &mut [u64; 3], more: [u64; 3]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
}
