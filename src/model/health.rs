//! Health counts of a connection: errors, congestion, and packets that the capture missed.

use super::column::column_values;
use super::observation::{OCCURRENCES, occurrence_class};
use super::packet::PacketFlags;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// The text of a doc comment as the meaning of a column.
const fn trimmed(text: &str) -> &str {
    let text = text.trim_ascii();
    match text.as_bytes() {
        [phrase @ .., b'.'] => text.split_at(phrase.len()).0,
        _ => text,
    }
}

/// Defines [`Health`] with its columns, so that no table or sum can omit a column. The doc comment
/// of a field is the meaning of its column, in `docs/columns.md` too.
macro_rules! health {
    ($($(#[doc = $doc:literal])* $name:ident = $column:literal: $join:ident $unit:ident,)*) => {
        /// Counts of the transmissions of one directed connection, without mirror copies. The
        /// columns of `health.parquet`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Health {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        column_values! {
            Health { $($name: $column, $unit, trimmed(concat!($($doc),*));)* }
        }

        impl AddAssign for Health {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = health!(@$join self.$name, other.$name);)*
            }
        }
    };
    (@sum $a:expr, $b:expr) => { $a.saturating_add($b) };
    (@max $a:expr, $b:expr) => { $a.max($b) };
}

health! {
    /// Request packets of connected services, with retransmissions.
    request_packets = "request_packets": sum Count,
    /// READ requests and atomics among them, first transmissions: their responses are data, not
    /// ACKs.
    data_requests = "data_requests": sum Count,
    /// ACKs and NAKs, with duplicates; fewer than the requests that they acknowledge if the
    /// responder coalesces ACKs.
    acknowledge_packets = "acknowledge_packets": sum Count,
    /// Go-back-N episodes: the sender stepped back in its PSNs and retransmitted at least one
    /// request. An episode ends with the next new PSN, or with the next step back.
    episodes = "episodes": sum Count,
    /// Requests that were retransmitted in these episodes.
    episode_packets = "episode_packets": sum Count,
    /// Episodes whose first transmission was observed too, so that their time is known.
    episodes_timed = "episodes_timed": sum Count,
    /// Time of these episodes together: from the first transmission of the first retransmitted PSN
    /// (of the next higher one if that PSN was lost upstream of the capture) to its retransmission.
    /// Exact if the sender stepped back by at most 32 requests; up to the time of 32 requests too
    /// long if by at most 1024; unknown, and not counted, beyond.
    episode_ns = "episode_ns": sum Nanoseconds,
    /// The longest of these episodes.
    longest_episode_ns = "longest_episode_ns": max Nanoseconds,
    /// Requests and responses that were first observed after a later PSN: retransmitted after a
    /// loss upstream of the capture, or out of order.
    late_packets = "late_packets": sum Count,
    /// Requests and responses that arrived after a later PSN although nothing was lost or
    /// retransmitted: the packets took several paths (adaptive routing, per-packet ECMP). If
    /// the capture has both observation points, only reordering between them counts.
    reordered_packets = "reordered_packets": sum Count,
    /// Reorder distance of these packets, summed: from each PSN to the highest one that was
    /// observed before it.
    reorder_distance_psns = "reorder_distance_psns": sum Count,
    /// The longest of these distances.
    longest_reorder_distance_psns = "longest_reorder_distance_psns": max Count,
    /// Requests with a PSN that belongs to the responses of the READ or atomic before them: the
    /// sender must skip these PSNs.
    reused_psn_packets = "reused_psn_packets": sum Count,
    /// ACKs and responses that `src` sent with a wrong MSN: it decreased, increased by more than
    /// the number of requests, or did not change while messages were acknowledged.
    wrong_msn_packets = "wrong_msn_packets": sum Count,
    /// Transmissions of the oldest request that was not acknowledged by the end, if there were at
    /// least 4: the connection made no progress.
    stalled_transmissions = "stalled_transmissions": max Count,
    /// NAKs that `src` sent about requests of `dst`: PSN sequence error.
    nak_sequence = "nak_sequence": sum Count,
    /// NAKs: invalid request.
    nak_invalid_request = "nak_invalid_request": sum Count,
    /// NAKs: remote access error.
    nak_remote_access = "nak_remote_access": sum Count,
    /// NAKs: remote operational error.
    nak_remote_operational = "nak_remote_operational": sum Count,
    /// NAKs: invalid reliable datagram request.
    nak_invalid_rd = "nak_invalid_rd": sum Count,
    /// NAKs with a code that the specification reserves.
    nak_reserved = "nak_reserved": sum Count,
    /// RNR NAKs that `src` sent: it had no receive buffer for a request of `dst`.
    rnr_naks = "rnr_naks": sum Count,
    /// The longest wait that an RNR NAK requested.
    longest_rnr_timer_ns = "longest_rnr_timer_ns": max Nanoseconds,
    /// Congestion notifications: they ask the queue pair at `dst` to slow down.
    cnp_packets = "cnp_packets": sum Count,
    /// Congestion notifications about requests of the row whose effect was measured: 17 new
    /// requests before and 16 after were observed.
    cnp_reactions = "cnp_reactions": sum Count,
    /// Mean gap of the 16 requests before each of these notifications, summed over the
    /// notifications.
    cnp_gap_before_ns = "cnp_gap_before_ns": sum Nanoseconds,
    /// Mean gap of the 16 requests after each of these notifications, summed over the
    /// notifications.
    cnp_gap_after_ns = "cnp_gap_after_ns": sum Nanoseconds,
    /// Packets with FECN: a switch on their path was congested.
    fecn_packets = "fecn_packets": sum Count,
    /// Packets with BECN that are not congestion notifications.
    becn_packets = "becn_packets": sum Count,
    /// RoCE packets with ECN "congestion experienced" in the IP header or GRH.
    ecn_ce_packets = "ecn_ce_packets": sum Count,
    /// Packets with a wrong ICRC.
    icrc_bad_packets = "icrc_bad_packets": sum Count,
    /// Native packets with a wrong VCRC. If most VCRCs of a capture are wrong, the capture does not
    /// preserve the VCRC, and none counts.
    vcrc_bad_packets = "vcrc_bad_packets": sum Count,
    /// Datagrams that UCX retransmitted in its own protocol, with new PSNs. No loss in the fabric.
    library_retransmissions = "library_retransmissions": sum Count,
    /// PSNs of UD queue pairs that were not observed here. Normal, because a queue pair
    /// numbers the datagrams to all destinations in one sequence.
    datagram_gap_psns = "datagram_gap_psns": sum Count,
    /// Request PSNs that were never observed and are not known to be acknowledged: lost on the
    /// path, or the other direction is not in the capture.
    unobserved_psns = "unobserved_psns": sum Count,
    /// Capture loss: requests that were acknowledged and never observed, best estimate (a READ
    /// takes several PSNs and is one packet).
    lost_requests = "lost_requests": sum Count,
    /// Capture loss: responses that were never observed although later responses were; the requests
    /// are those of this row.
    lost_responses = "lost_responses": sum Count,
    /// Lower bound of `lost_requests` and `lost_responses` together. Missing ACKs cannot be
    /// noticed, nor packets before the first request of a connection or after the last acknowledged
    /// one.
    lost_at_least = "lost_at_least": sum Count,
    /// Upper bound of `lost_requests` and `lost_responses` together, with the same exceptions.
    lost_at_most = "lost_at_most": sum Count,
    /// Packets that only one of the two observation points of a file observed.
    single_observation_packets = "single_observation_packets": sum Count,
    /// Packets that other captures do not hold, though these overlap in time and observe the
    /// connection. Exact if one capture is complete; packets before another capture began count
    /// too.
    missing_in_other_inputs = "missing_in_other_inputs": sum Count,
}

impl Health {
    /// Columns that were added without a new format version: older profiles of this version do not
    /// have them.
    pub const LATER_COLUMNS: [&str; 6] = [
        "reordered_packets",
        "reorder_distance_psns",
        "longest_reorder_distance_psns",
        "reused_psn_packets",
        "wrong_msn_packets",
        "stalled_transmissions",
    ];

    /// Columns that count single packets. A sample of the packets shows these, and none of the
    /// others: where a packet is missing, or is there twice, sampling may be the reason.
    pub const OF_SINGLE_PACKETS: [&str; 17] = [
        "request_packets",
        "data_requests",
        "acknowledge_packets",
        "nak_sequence",
        "nak_invalid_request",
        "nak_remote_access",
        "nak_remote_operational",
        "nak_invalid_rd",
        "nak_reserved",
        "rnr_naks",
        "longest_rnr_timer_ns",
        "cnp_packets",
        "fecn_packets",
        "becn_packets",
        "ecn_ce_packets",
        "icrc_bad_packets",
        "vcrc_bad_packets",
    ];

    /// The counts that a sample of the packets shows; all others are 0.
    #[must_use]
    pub fn of_samples(&self) -> Self {
        let mut values = self.values();
        for (value, column) in values.iter_mut().zip(Self::COLUMNS) {
            if !Self::OF_SINGLE_PACKETS.contains(&column.name) {
                *value = 0;
            }
        }
        Self::from_values(values)
    }

    /// All NAKs except RNR NAKs.
    #[must_use]
    pub const fn naks(&self) -> u64 {
        self.nak_sequence
            + self.nak_invalid_request
            + self.nak_remote_access
            + self.nak_remote_operational
            + self.nak_invalid_rd
            + self.nak_reserved
    }

    /// Best estimate of the packets that the capture missed.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_requests + self.lost_responses
    }
}

/// Health of one connection in compact form. There may be very many connections, and most have only
/// packet counts.
#[derive(Clone, Debug, Default)]
pub struct BriefHealth {
    request_packets: u64,
    acknowledge_packets: u64,
    /// All counts, if others are not 0.
    whole: Option<Box<Health>>,
}

impl From<Health> for BriefHealth {
    fn from(health: Health) -> Self {
        let Health { request_packets, acknowledge_packets, .. } = health;
        let is_all = health == Health { request_packets, acknowledge_packets, ..Health::default() };
        Self { request_packets, acknowledge_packets, whole: (!is_all).then(|| Box::new(health)) }
    }
}

impl BriefHealth {
    /// All counts.
    #[must_use]
    pub fn whole(&self) -> Health {
        let Self { request_packets, acknowledge_packets, ref whole } = *self;
        whole.as_deref().copied().unwrap_or(Health { request_packets, acknowledge_packets, ..Health::default() })
    }

    /// Changes the counts.
    pub fn change(&mut self, change: impl FnOnce(&mut Health)) {
        let mut health = self.whole();
        change(&mut health);
        *self = health.into();
    }
}

/// Go-back-N episodes, for one assumed number of observation points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episodes {
    /// Number of episodes.
    pub count: u64,
    /// Retransmitted request packets.
    pub packets: u64,
    /// Episodes whose time is known.
    pub timed: u64,
    /// Sum of their times.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Packets that arrived out of order without a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReorderingSums {
    /// Packets.
    pub packets: u64,
    /// Sum of their distances in PSNs.
    pub distance_psns: u64,
    /// The longest distance.
    pub longest_psns: u64,
}

impl ReorderingSums {
    /// Adds a packet.
    pub fn add(&mut self, distance_psns: u64) {
        *self += Self { packets: 1, distance_psns, longest_psns: distance_psns };
    }
}

impl AddAssign for ReorderingSums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.distance_psns = self.distance_psns.saturating_add(other.distance_psns);
        self.longest_psns = self.longest_psns.max(other.longest_psns);
    }
}

/// Acknowledged packets that were not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Requests, best estimate.
    pub requests: u64,
    /// Responses.
    pub responses: u64,
    /// Lower bound of both.
    pub at_least: u64,
    /// Upper bound of both.
    pub at_most: u64,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.responses += other.responses;
        self.at_least += other.at_least;
        self.at_most += other.at_most;
    }
}

/// Reaction of a connection's requests to congestion notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaction {
    /// Number of measured notifications.
    pub count: u64,
    /// Sum of the mean gaps between requests before them.
    pub before_ns: u64,
    /// Sum of the mean gaps after them.
    pub after_ns: u64,
}

/// Observations by their number: the first, the second, the later odd, and the later even observations of
/// the same packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsByObservation([u64; OCCURRENCES]);

impl CountsByObservation {
    /// Counts an observation by its number, from 1.
    pub const fn add(&mut self, occurrence: u32) {
        let count = &mut self.0[occurrence_class(occurrence)];
        *count = count.saturating_add(1);
    }

    /// The first observations.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.0[0]
    }

    /// The second observations.
    #[must_use]
    pub const fn second(&self) -> u64 {
        self.0[1]
    }

    /// The odd and the even observations.
    #[must_use]
    pub const fn by_parity(&self) -> [u64; 2] {
        let [first, second, odd, even] = self.0;
        [first.saturating_add(odd), second.saturating_add(even)]
    }

    /// All observations.
    #[must_use]
    pub const fn all(&self) -> u64 {
        let [odd, even] = self.by_parity();
        odd.saturating_add(even)
    }
}

/// Health events of a connection from the flow stage, before the number of observations per packet
/// is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthEvents {
    /// Episodes if every packet is observed once, and if twice.
    pub episodes: [Episodes; 2],
    /// First observations after a later PSN.
    pub late_packets: u64,
    /// Packets out of order without a loss if every packet is observed once, and if twice.
    pub reordered: [ReorderingSums; 2],
    /// Requests with PSNs of a READ or atomic: of odd (first, third, ...) and of even observations
    /// of the same packet.
    pub reused_psns: [u64; 2],
    /// First observations of ACKs and responses with a wrong MSN.
    pub wrong_msns: u64,
    /// Observations of the oldest request that was not acknowledged by the end, if there were
    /// several.
    pub stalled_observations: u64,
    /// Observations of NAKs by code: PSN sequence, invalid request, remote access, remote
    /// operation, invalid RD, reserved.
    pub naks: [CountsByObservation; 6],
    /// Observations of RNR NAKs.
    pub rnr_naks: CountsByObservation,
    /// Longest timer in an RNR NAK.
    pub longest_rnr_timer_ns: u64,
    /// First observations of READ requests and atomics.
    pub data_requests: u64,
    /// Observations of flagged packets by flag ([`PacketFlags::ALL`]).
    pub flagged: [CountsByObservation; PacketFlags::ALL.len()],
    /// Reaction of the requests to congestion notifications.
    pub reaction: Reaction,
    /// Datagrams retransmitted by UCX.
    pub library_retransmissions: u64,
    /// Missing request PSNs, between the first and the last observed one, that are not in `loss`.
    pub unobserved_psns: u64,
    /// Capture loss.
    pub loss: Loss,
}

impl HealthEvents {
    /// Sets the counts of a flag to 0.
    pub fn reset_flag(&mut self, flag: PacketFlags) {
        let counts = self.flagged.iter_mut().zip(PacketFlags::ALL);
        counts.filter(|(_, of)| *of == flag).for_each(|(count, _)| *count = CountsByObservation::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_show_the_counts_of_single_packets_only() {
        let all = Health::from_values([1; Health::COLUMNS.len()]);
        let shown = all.of_samples().values();
        let names = Health::COLUMNS.iter().zip(shown).filter(|(_, value)| *value == 1).map(|(column, _)| column.name);
        assert_eq!(names.collect::<Vec<_>>(), Health::OF_SINGLE_PACKETS);
        let unknown = all.of_samples();
        assert_eq!((unknown.lost(), unknown.late_packets, unknown.episodes, unknown.unobserved_psns), (0, 0, 0, 0));
        assert_eq!((unknown.naks(), unknown.rnr_naks, unknown.icrc_bad_packets), (6, 1, 1));
    }
}
