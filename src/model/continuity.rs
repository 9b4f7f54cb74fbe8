//! Missing packets of a connection, as its sequence numbers show them.
//!
//! Invariant: parts of a connection that are added in time order have the continuity of the whole.

use ibscope_parsers::Psn;
use serde::{Deserialize, Serialize};

/// Largest jump of PSNs that counts as a gap of missing packets. A larger one may also be a new
/// connection on a reused queue pair number.
pub const MAX_GAP: i64 = 1 << 16;

/// Missing packets of a connection, by sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub struct Continuity {
    /// Request packets, between the first and the last observed one, that were not observed.
    pub missing_requests: u64,
    /// The missing packets are uncertain: READ requests of unknown length precede gaps, or PSNs
    /// jump too far, or an uncounted input holds packets before or after the counted inputs, or two
    /// inputs that follow each other may hold the same packet.
    pub uncertain: bool,
    /// True if READ requests were observed before the path MTU was known, so `expected_responses`
    /// is too low.
    pub guessed_reads: bool,
    /// PSN of the first request.
    pub first_psn: Option<u32>,
    /// Request packets, without retransmissions.
    pub request_packets: u64,
    /// Later observations of these packets: at another port, or retransmitted.
    pub requests_again: u64,
    /// READ responses and atomic acknowledgements that the requests of the connection expect, at
    /// least.
    pub expected_responses: u64,
    /// READ responses and atomic acknowledgements, without retransmissions.
    pub response_packets: u64,
    /// Later observations of these packets.
    pub responses_again: u64,
    /// Latest message sequence number in the ACKs of this connection: the number of request
    /// messages of the other direction that its receiver has completed since the connection was set
    /// up (AETH, InfiniBand Architecture 9.7.5).
    pub last_msn: Option<u32>,
    /// The first request was observed again a second or more later: the queue pair may serve a second
    /// connection, or these are mirror copies of a port with another clock.
    pub restarted: bool,
    /// Missing datagrams by the library's own sequence numbers; `None` without such numbers.
    pub missing_datagrams: Option<u64>,
    /// Datagrams before the first one of the capture, by the same numbers.
    pub datagrams_before: u64,
    /// PSN of the last request; the last PSN of its responses for a READ.
    pub last_request: Option<u32>,
    /// PSN of the last request that asks for a response; for a READ, the last PSN of its responses.
    pub last_asking: Option<u32>,
    /// PSNs of the last ACK and the last response of this connection.
    pub last_responses: [Option<u32>; 2],
    /// Requests that ask for an ACK.
    pub ack_requests: PsnDigest,
    /// The number of these requests.
    pub asking_requests: u64,
    /// ACKs of this connection, without NAKs.
    pub acks: PsnDigest,
    /// NAKs of this connection, PSN sequence error, about requests that the input had observed
    /// once, and about requests that it had not observed.
    pub naks_observed_once: u64,
    /// See [`Self::naks_observed_once`].
    pub naks_unobserved: u64,
    /// Packets known to be lost on the fabric: observed at the sender's port and rejected as
    /// missing by the receiver.
    pub lost_on_fabric: u64,
    /// The inputs that count hold every packet twice: they have two observation points.
    pub is_observed_twice: bool,
    /// Whether inputs that do not count observed the connection too. Set when the inputs are combined.
    #[serde(skip)]
    pub other_inputs: OtherInputs,
    /// Inputs that hold packets of the connection. Set when the inputs are combined.
    #[serde(skip)]
    pub held_by: InputSet,
    /// The ledgers overflowed.
    pub has_overflowed: bool,
    /// Packets appear more often than one or two observation points explain, and not all equally often.
    /// Set when the inputs are combined.
    #[serde(skip)]
    pub has_unclear_copies: bool,
    /// The PSNs of all packets, each once, by role. Only with several inputs, which it compares.
    pub packets: PsnDigest,
    /// The PSNs of all further observations. Likewise.
    pub later_packets: PsnDigest,
    /// Distances between the PSNs of requests.
    pub psn_steps: PsnSteps,
    /// Packets have a wrong ICRC, and others of the same port in the same input have a correct one: they
    /// were damaged or changed, so their headers and contents prove nothing. Set when the inputs are
    /// combined.
    #[serde(skip)]
    pub has_damaged: bool,
}

/// Inputs that hold a connection beside those that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherInputs {
    /// There are none at the same time.
    #[default]
    None,
    /// Inputs that overlap in time hold the same packets, or count as one union.
    Same,
    /// They may hold packets that the inputs that count miss.
    Different,
}

/// A set of inputs. All inputs from the 64th on count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputSet(u64);

impl InputSet {
    const fn bit(input: u32) -> u64 {
        1 << if input < u64::BITS { input } else { u64::BITS - 1 }
    }

    /// Adds an input.
    pub const fn insert(&mut self, input: u32) {
        self.0 |= Self::bit(input);
    }

    /// True if the set contains the input, or possibly, from the 64th on.
    #[must_use]
    pub const fn may_contain(self, input: u32) -> bool {
        self.0 & Self::bit(input) != 0
    }
}

/// Distances from each observed PSN to the next observed one. Over the last runs of PSNs only, so
/// that they take no memory while a capture is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsnSteps {
    /// Number of distances.
    pub steps: u64,
    /// Their sum.
    pub sum: u64,
    /// The sum of their squares.
    pub squares: u64,
}

impl PsnSteps {
    /// Adds `steps` times the distance `step`.
    pub const fn add(&mut self, step: u64, steps: u64) {
        self.steps += steps;
        self.sum += step * steps;
        self.squares = self.squares.saturating_add(step.saturating_mul(step).saturating_mul(steps));
    }

    /// Mean length of the gap around a missing PSN; 1 if none is missing.
    #[must_use]
    pub fn gap_packets(self) -> f64 {
        let missing = self.sum.saturating_sub(self.steps);
        if missing == 0 {
            return 1.0;
        }
        let squares = (self.squares.saturating_add(self.steps)).saturating_sub(2 * self.sum);
        (squares as f64 / missing as f64).max(1.0)
    }

    /// Number of gaps; gaps that are much shorter than the longest ones count little.
    #[must_use]
    pub fn gaps(self) -> f64 {
        self.sum.saturating_sub(self.steps) as f64 / self.gap_packets()
    }

    /// Adds those of a later part.
    pub const fn join(&mut self, later: Self) {
        self.steps += later.steps;
        self.sum += later.sum;
        self.squares = self.squares.saturating_add(later.squares);
    }
}

/// Digest of a multiset of PSNs: two with equal digests are equal. A sum, so that the order of the
/// packets does not matter and parts add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsnDigest(u64);

impl PsnDigest {
    /// Adds a PSN.
    #[inline]
    pub const fn add(&mut self, psn: u32) {
        // The finalizer of splitmix64 spreads PSNs over 64 bits.
        let mixed = (psn as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.0 = self.0.wrapping_add(mixed ^ mixed >> 31);
    }

    /// Adds the PSNs of a later part.
    pub const fn join(&mut self, later: Self) {
        self.0 = self.0.wrapping_add(later.0);
    }
}

impl Continuity {
    /// Adds a later part of the same connection. By the PSNs of their requests, requests may be
    /// missing between the parts, or be in both.
    pub fn add(&mut self, later: &Self) {
        let next = self.last_request.zip(later.first_psn);
        let gap = next.map_or(0, |(last, first)| i64::from(Psn::new(first).since(Psn::new(last))) - 1);
        let is_gap = (0..=MAX_GAP).contains(&gap);
        self.missing_requests += later.missing_requests + if is_gap { gap.cast_unsigned() } else { 0 };
        self.uncertain |= later.uncertain || !is_gap;
        self.guessed_reads |= later.guessed_reads;
        self.first_psn = self.first_psn.or(later.first_psn);
        self.request_packets += later.request_packets;
        self.requests_again += later.requests_again;
        self.expected_responses += later.expected_responses;
        self.response_packets += later.response_packets;
        self.responses_again += later.responses_again;
        self.last_msn = later.last_msn.or(self.last_msn);
        self.restarted |= later.restarted;
        self.has_damaged |= later.has_damaged;
        self.last_request = later.last_request.or(self.last_request);
        self.last_asking = later.last_asking.or(self.last_asking);
        for (own, later) in self.last_responses.iter_mut().zip(later.last_responses) {
            *own = later.or(*own);
        }
        self.ack_requests.join(later.ack_requests);
        self.asking_requests += later.asking_requests;
        self.acks.join(later.acks);
        self.naks_observed_once += later.naks_observed_once;
        self.naks_unobserved += later.naks_unobserved;
        self.lost_on_fabric += later.lost_on_fabric;
        self.is_observed_twice &= later.is_observed_twice;
        self.other_inputs = self.other_inputs.max(later.other_inputs);
        self.has_overflowed |= later.has_overflowed;
        self.has_unclear_copies |= later.has_unclear_copies;
        self.psn_steps.join(later.psn_steps);
        self.packets.join(later.packets);
        self.later_packets.join(later.later_packets);
        if self.missing_datagrams.is_none() {
            self.datagrams_before = later.datagrams_before;
        }
        self.missing_datagrams = match (self.missing_datagrams, later.missing_datagrams) {
            (Some(own), Some(others)) => Some(own + others),
            (own, others) => own.or(others),
        };
    }
}
