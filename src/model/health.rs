//! What went wrong on a connection, and what the capture missed of it.

use super::packet::Marks;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Defines [`Health`] with its columns, so that a column cannot be forgotten in a table or a sum.
macro_rules! health {
    ($($(#[$doc:meta])* $name:ident: $join:ident,)*) => {
        /// Counts of one directed connection, of transmissions: a mirror copy is none. The columns of `health.parquet`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Health {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Health {
            /// Names of the columns, in the order of [`Health::values`].
            pub const COLUMNS: [&'static str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

            /// The counts.
            #[must_use]
            pub const fn values(&self) -> [u64; Self::COLUMNS.len()] {
                [$(self.$name),*]
            }

            /// The counts from their values.
            #[must_use]
            pub const fn from_values([$($name),*]: [u64; Self::COLUMNS.len()]) -> Self {
                Self { $($name),* }
            }
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
    /// Request packets of a connected service, repeats included.
    request_packets: sum,
    /// READ requests and atomics among them, first transmissions: answered with data, not by an ACK.
    data_requests: sum,
    /// ACKs and NAKs, repeats included. Fewer than the requests that they answer where the responder coalesces.
    acknowledge_packets: sum,
    /// Go-back-N episodes: the sender stepped back in its PSNs and sent at least one request packet again. A run ends with the first new PSN,
    /// or where the sender steps back once more.
    episodes: sum,
    /// Request packets sent again in them.
    episode_packets: sum,
    /// Episodes of which the first transmission was seen too, so that their time is known.
    episodes_timed: sum,
    /// What they cost together: from the first transmission of the first PSN that was sent again to its repetition. Where that PSN was not
    /// seen before (lost before the capture), from the next higher one that was. Exact within the last 32 packets; farther back up to 32 packets too much.
    episode_ns: sum,
    /// The longest of them.
    longest_episode_ns: max,
    /// Requests and responses that were seen for the first time behind a later PSN: out of order, or sent again after a loss before the capture.
    late_packets: sum,
    /// NAKs on this connection (about requests that went the other way): PSN sequence error.
    nak_sequence: sum,
    /// NAKs: invalid request.
    nak_invalid_request: sum,
    /// NAKs: remote access error.
    nak_remote_access: sum,
    /// NAKs: remote operational error.
    nak_remote_operational: sum,
    /// NAKs: invalid reliable datagram request.
    nak_invalid_rd: sum,
    /// NAKs with a code that the specification reserves.
    nak_reserved: sum,
    /// RNR NAKs on this connection: its sender had no receive buffer for what came the other way.
    rnr_naks: sum,
    /// The longest wait that one of them asked for.
    longest_rnr_timer_ns: max,
    /// Congestion notifications to the queue pair: the receiver of this row is to slow down.
    cnp_packets: sum,
    /// Notifications about the requests of this connection whose effect was measured: 17 new requests before and 16 after were seen.
    cnp_reactions: sum,
    /// Mean gap between the 17 requests before such a notification, summed over those measured.
    cnp_gap_before_ns: sum,
    /// The same from the last request before it to the 16th after it. Divided by the one above: how many times slower the sender became.
    cnp_gap_after_ns: sum,
    /// Packets with FECN: they met congestion on the way.
    fecn_packets: sum,
    /// Packets with BECN that are no congestion notifications.
    becn_packets: sum,
    /// RoCE packets with ECN "congestion experienced" in the IP header or GRH.
    ecn_ce_packets: sum,
    /// Packets whose ICRC does not fit.
    icrc_bad_packets: sum,
    /// Native packets whose VCRC does not fit, in captures that keep it.
    vcrc_bad_packets: sum,
    /// Datagrams that UCX sent again in its own layer, under new PSNs.
    library_repeats: sum,
    /// PSNs between the first and the last of a UD queue pair pair that were not seen: normal, as one sequence serves all destinations. No loss.
    datagram_gap_psns: sum,
    /// Request PSNs that were never seen and are not known to have been acknowledged.
    open_psns: sum,
    /// Capture loss: request packets that were acknowledged and never seen, best estimate (a READ takes several PSNs and is one packet).
    lost_requests: sum,
    /// Capture loss: READ responses and atomic acknowledgements, of requests on this connection, that were never seen though later ones were.
    lost_responses: sum,
    /// Lower bound of the two. Missing ACKs, and what lies before the first request or after the last acknowledged one, cannot be seen.
    lost_at_least: sum,
    /// Upper bound of the two, under the same reservation.
    lost_at_most: sum,
    /// Packets seen at one only of the two observation points of a file.
    one_sided_packets: sum,
    /// Packets that other inputs lack, which overlap the counted one in time and saw this connection.
    missing_in_other_inputs: sum,
}

impl Health {
    /// All NAKs but RNR.
    #[must_use]
    pub const fn naks(&self) -> u64 {
        self.nak_sequence
            + self.nak_invalid_request
            + self.nak_remote_access
            + self.nak_remote_operational
            + self.nak_invalid_rd
            + self.nak_reserved
    }

    /// Best estimate of the packets that the counted capture lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_requests + self.lost_responses
    }
}

/// The health of one of very many connections, most of which have no more to say than how much they sent.
#[derive(Clone, Debug, Default)]
pub struct BriefHealth {
    request_packets: u64,
    acknowledge_packets: u64,
    /// All of it, where there is more.
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

/// Go-back-N episodes of one reading of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episodes {
    /// How many.
    pub count: u64,
    /// Request packets that were sent again.
    pub packets: u64,
    /// Episodes whose time is known.
    pub timed: u64,
    /// Sum of their times.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Acknowledged packets that were never seen.
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

/// How the requests of a connection slowed down after notifications of congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaction {
    /// Notifications measured.
    pub count: u64,
    /// Sum of the mean gaps between requests before them.
    pub before_ns: u64,
    /// And after them.
    pub after_ns: u64,
}

/// What the flow stage has to say of a connection, before it is known whether the input shows each packet once or twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Episodes if each packet stands once, and if it stands twice.
    pub episodes: [Episodes; 2],
    /// First sights behind a later PSN.
    pub late: u64,
    /// Sights of NAKs by code: PSN sequence, invalid request, remote access, remote operation, invalid RD, reserved.
    pub naks: [u64; 6],
    /// Sights of RNR NAKs.
    pub rnr_naks: u64,
    /// The longest timer in them.
    pub longest_rnr_timer_ns: u64,
    /// First sights of READ requests and atomics.
    pub data_requests: u64,
    /// Marked packets by mark (see [`super::packet::Marks`]) and by whether the sight of the packet has an odd or an even number.
    pub marked: [[u64; 2]; Marks::ALL.len()],
    /// What notifications of congestion did to the requests.
    pub reaction: Reaction,
    /// Datagrams repeated by UCX.
    pub library_repeats: u64,
    /// Request PSNs between the first and the last that were not seen and are not in `loss`.
    pub open_psns: u64,
    /// Capture loss.
    pub loss: Loss,
}

impl Observed {
    /// Takes back what was counted of a mark.
    pub fn forget(&mut self, mark: Marks) {
        let counts = self.marked.iter_mut().zip(Marks::ALL);
        counts.filter(|(_, of)| *of == mark).for_each(|(count, _)| *count = [0, 0]);
    }
}
