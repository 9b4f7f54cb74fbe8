//! Health per link: what lies between a port and its switch, each direction for itself.
//!
//! ```text
//! port A ==from A==> switch ... switch ==to B==> port B
//! ```
//! A packet from A to B passes two of them, so it counts at both, and so does all that was observed of it: a packet that is sent again shows both links,
//! and the one that they have in common with others tells which is bad. Links between switches carry any of it and are not told apart.
//!
//! Responses are lost the other way than the requests whose row they stand in, and are counted there. A packet that one of two places of observation
//! lacks was missed at one of two links, no one knows which: half of such packets are in the estimate, none in its lower bound, all in the upper.

use super::connection::severity;
use crate::model::profile::Repeats;
use crate::model::{Health, Kind, Profile};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Which way packets go.
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
    pub(crate) repeats: Repeats,
    pub(crate) health: Health,
    /// Never seen at all: best estimate, bounds.
    pub(crate) lost: [u64; 3],
}

impl Link {
    /// Packets that one of two places of observation lacks.
    const fn at_one_place(&self) -> u64 {
        self.health.one_sided_packets + self.health.missing_in_other_inputs
    }

    /// Packets that the capture of this link missed: best estimate, at least, at most; and the same as shares of those that passed.
    pub(crate) fn capture_loss(&self) -> [(u64, f64); 3] {
        let single = self.at_one_place();
        let [lost, least, most] = self.lost;
        [(lost, single.div_ceil(2)), (least, 0), (most, single)].map(|(unseen, missed)| {
            let passed = (self.packets + unseen).max(1);
            // What other inputs lack may be more than what counts, where there are several of them.
            (unseen + missed, ((unseen + missed) as f64 / passed as f64).min(1.0))
        })
    }

    /// Packets that were sent again.
    pub(crate) const fn repeated(&self) -> u64 {
        self.repeats.request_packets + self.repeats.response_packets + self.repeats.acknowledge_packets
    }

    /// How bad it is, for comparison.
    pub(crate) fn severity(&self) -> u64 {
        severity(&self.health, &self.repeats).saturating_add(self.at_one_place())
    }
}

pub(crate) type Links = BTreeMap<(Endpoint, LinkDirection), Link>;

/// All links that carried packets of applications.
pub(crate) fn links(profile: &Profile) -> Links {
    let mut links = Links::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == Kind::Data) {
        for end in [(connection.src, LinkDirection::From), (connection.dst, LinkDirection::To)] {
            let link = links.entry(end).or_default();
            link.connections += 1;
            link.packets += connection.traffic.packets;
            link.wire_bytes += connection.traffic.wire_bytes;
            link.repeats += connection.repeats;
        }
    }
    for row in &profile.health {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        let health = &row.health;
        // Of responses the estimate is exact, so what is left of the bounds is about requests.
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
