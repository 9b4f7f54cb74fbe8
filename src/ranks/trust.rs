//! Whether the capture holds every packet: a proof for each reliable connection, or the obstacle to
//! the proof.
//!
//! Connections and connection management messages go in, a [`Trust`] comes out. A connection misses
//! nothing if all of these hold (`docs/method.md` explains why):
//!
//! ```text
//! start      the first request has the first PSN, or the last MSN is the number of observed messages
//! end        the last request has its response
//! requests   no PSN is missing
//! intact     no packet was damaged or changed on its way
//! responses  each expected READ response, and an ACK for each request that asks for one
//! once       no retransmission: of two transmissions, one record can be missing unnoticed
//! ```
//! A *response* is an ACK, a NAK or a packet with response data.
//!
//! Invariant: `complete` needs a proof. The bounds of a capture that is not complete are those of
//! `loss`, which distinguishes the losses of the capture from those of the fabric: they contain the
//! losses that packets prove, and statistical margins for losses without a trace.

use super::coverage::ConnectionView;
use super::loss::{CaptureLosses, ConnectionLoss, LossService, LossSums, PossibleLoss};
use crate::model::profile::CmRow;
use crate::model::{
    ConnectionKey, ConnectionTotals, Continuity, Health, ObservationSums, OtherInputs, PacketBounds, RecordSeries,
    SeededHasher, TrafficKind, Trust, TrustVerdict,
};
use ibscope_parsers::ib::{Opcode, Service};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// MSNs have 24 bits.
const MASK: u64 = 0xFF_FFFF;

/// Reasons why a connection is not proven complete; the first that applies counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    Packets,
    Damaged,
    Unpaired,
    Retransmissions,
    OnePort,
    Acks,
    Start,
    End,
    Unclear,
    Unreliable,
    Notifications,
}

impl Gap {
    const fn meaning(self) -> &'static str {
        match self {
            Self::Packets => "requests or responses are missing",
            Self::Damaged => {
                "packets have a wrong ICRC, and others of the same port a correct one: damaged or changed on their way, so \
                 their headers and contents prove nothing"
            }
            Self::Unpaired => "the opposite direction is not known",
            Self::Retransmissions => {
                "there are retransmissions, NAKs or late packets, so a missing transmission can go unnoticed"
            }
            Self::OnePort => {
                "packets were observed at one of two ports only: lost on the fabric, or by the capture at the other port"
            }
            Self::Acks => "requests ask for ACKs that are not in the capture: coalesced by the responder, or lost",
            Self::Start => "no evidence that the first captured request is the first of the connection",
            Self::End => "the capture holds no response to the last request",
            Self::Unclear => {
                "the PSNs of one input form no known sequence: a queue pair number was reused, gaps are of unknown size or too \
                 many, the number of observation points is unclear, or several inputs hold parts of the connection, or of the \
                 connections between its ports"
            }
            Self::Unreliable => "no packet is acknowledged, so missing packets cannot be detected",
            Self::Notifications => {
                "congestion notifications have no PSNs of their own, so lost ones cannot be detected"
            }
        }
    }
}

/// Judges a capture by its connections.
pub(super) fn judge<'a>(
    views: impl Iterator<Item = ConnectionView<'a>>,
    cm: &[CmRow],
    is_sampled: bool,
    records: &[RecordSeries],
) -> Trust {
    let mut trust = Trust::default();
    let mut gaps: BTreeMap<Gap, u64> = BTreeMap::new();
    let mut responders: HashSet<ConnectionKey, SeededHasher> = HashSet::default();
    let mut without_requests: Vec<ConnectionKey> = Vec::new();
    let mut losses = LossSums::new(CaptureLosses::new(records));
    let (mut management, mut of_management) = (0, Vec::new());
    for view in views {
        let ConnectionView { own, reverse, .. } = view;
        if own.key.kind == TrafficKind::Management {
            of_management.push(view.loss());
        } else {
            losses.add(&view.loss());
        }
        if own.key.kind == TrafficKind::Management {
            management += own.traffic.packets;
            continue;
        }
        let is_reliable = is_reliable(&own.key);
        trust.reliable_connections += u64::from(is_reliable);
        let only_responds = |own: &&ConnectionTotals| own.continuity.request_packets == 0;
        responders.extend(reverse.filter(only_responds).map(|reverse| reverse.key));
        let gap = if is_reliable { view.gap() } else { Some(Gap::Unreliable) };
        match gap {
            Some(gap) => *gaps.entry(gap).or_default() += 1,
            None if own.continuity.request_packets == 0 => without_requests.push(own.key),
            None => trust.proven_connections += 1,
        }
    }
    // Responses are proven together with their requests.
    let paired = without_requests.iter().filter(|key| responders.contains(key)).count() as u64;
    trust.proven_connections += paired;
    *gaps.entry(Gap::Unpaired).or_default() += without_requests.len() as u64 - paired;
    gaps.retain(|_, connections| *connections > 0);
    trust.reasons = gaps.iter().map(|(gap, connections)| reason(*gap, *connections)).collect();
    let of_exchanges = management_reason(management, cm);
    for mut own in of_management {
        own.possible = own.possible.filter(|_| of_exchanges.is_some()).or(Some(PossibleLoss::NONE));
        losses.add(&own);
    }
    trust.reasons.extend(of_exchanges);
    [trust.lost_by_capture_packets, trust.never_captured_packets, trust.lost_on_fabric_packets] = losses.bounds();
    if is_sampled {
        trust.verdict = TrustVerdict::Sampled;
        // A packet that one of two ports did not sample is not lost.
        trust.lost_on_fabric_packets = PacketBounds::default();
    } else if trust.lost_by_capture_packets.at_least > 0 {
        trust.verdict = TrustVerdict::Incomplete;
    } else if trust.reasons.is_empty() && trust.reliable_connections > 0 {
        trust.verdict = TrustVerdict::Complete;
        // The proof replaces the statistical margins.
        trust.lost_by_capture_packets = PacketBounds::NONE;
        trust.never_captured_packets = PacketBounds::NONE;
    }
    trust
}

fn reason(gap: Gap, connections: u64) -> String {
    let kind = if gap == Gap::Unreliable { "unreliable " } else { "" };
    let plural = if connections == 1 { "" } else { "s" };
    format!("{connections} {kind}connection{plural}: {}", gap.meaning())
}

/// The reason why packets of connection management may be missing: a packet is not part of a
/// complete exchange, or was retransmitted, which hides whether the capture has all transmissions.
/// `cm` has each message once.
fn management_reason(packets: u64, cm: &[CmRow]) -> Option<String> {
    let is_whole = packets == cm.len() as u64 && has_whole_exchanges(cm);
    let plural = if packets == 1 { "" } else { "s" };
    (!is_whole).then(|| {
        format!("{packets} management packet{plural}: some were retransmitted, or are not part of a complete exchange")
    })
}

/// True if each message has the one that it responds to, and the response that it needs.
fn has_whole_exchanges(cm: &[CmRow]) -> bool {
    let own = |row: &CmRow| (row.src, row.dst, row.message.clone(), row.local_comm_id);
    let by_own: BTreeSet<_> = cm.iter().map(own).collect();
    let other = |row: &CmRow| Some((row.src, row.dst, row.message.clone(), row.remote_comm_id?));
    let by_other: BTreeSet<_> = cm.iter().filter_map(other).collect();
    let has_response = |row: &CmRow, kinds: &[&str]| {
        kinds.iter().any(|kind| by_other.contains(&(row.dst, row.src, (*kind).to_owned(), row.local_comm_id)))
    };
    let responds = |row: &CmRow, kinds: &[&str]| {
        let to = |kind: &&str| Some((row.dst, row.src, (*kind).to_owned(), row.remote_comm_id?));
        kinds.iter().filter_map(to).any(|message| by_own.contains(&message))
    };
    cm.iter().all(|row| match row.message.as_str() {
        "REQ" => has_response(row, &["REP", "REJ"]),
        "REP" => responds(row, &["REQ"]) && has_response(row, &["RTU", "REJ"]),
        "RTU" => responds(row, &["REP"]),
        "REJ" => responds(row, &["REQ", "REP"]),
        "DREQ" => has_response(row, &["DREP"]),
        "DREP" => responds(row, &["DREQ"]),
        _ => false,
    })
}

fn is_reliable(key: &ConnectionKey) -> bool {
    key.kind == TrafficKind::Data && Opcode(key.service << 5).service() == Service::Rc
}

/// Packets of a connection that are certainly missing at every observation point: requests that
/// were acknowledged, and responses before later ones.
fn certain_loss(own: &ConnectionTotals) -> u64 {
    let health = own.health.whole();
    if !is_reliable(&own.key) || is_ambiguous(own) || own.continuity.other_inputs == OtherInputs::Different {
        return 0;
    }
    // A response that was lost on the fabric is retransmitted; at the end of a capture it may still
    // be missing.
    let doubtful = if has_retransmissions(own, &health) { health.lost_responses } else { 0 };
    health.lost_at_least.saturating_sub(doubtful)
}

fn has_retransmissions(own: &ConnectionTotals, health: &Health) -> bool {
    own.retransmissions.packets() + health.late_packets + health.naks() + health.rnr_naks + health.episodes > 0
}

/// True if the PSNs of one input form no known sequence.
const fn is_ambiguous(own: &ConnectionTotals) -> bool {
    let Continuity { uncertain, restarted, has_overflowed, has_unclear_copies, .. } = own.continuity;
    uncertain || restarted || has_overflowed || has_unclear_copies
}

/// True if the PSNs of the inputs form no known sequence.
fn is_unclear(own: &ConnectionTotals) -> bool {
    let has_unclear_points = own.observations.as_deref().is_some_and(|sums| sums.points == 0);
    is_ambiguous(own) || own.inputs.len() > 1 || has_unclear_points
}

impl<'a> ConnectionView<'a> {
    /// Evidence of the losses of the connection.
    fn loss(&self) -> ConnectionLoss<'a> {
        let own = self.own;
        let health = own.health.whole();
        // Where both ports are in one input, a packet is late too if its first record is missing.
        let is_late = health.late_packets > 0 && health.single_observation_packets == 0;
        let retransmits = is_late || has_retransmissions(own, &Health { late_packets: 0, ..health });
        let service = match is_reliable(&own.key) {
            true => LossService::Reliable,
            false if own.continuity.missing_datagrams.is_some() => LossService::Numbered,
            false => LossService::Unreliable,
        };
        ConnectionLoss {
            observations: own.observations.as_deref(),
            service,
            never: match service {
                LossService::Numbered if !own.continuity.restarted && !own.continuity.has_overflowed => {
                    own.continuity.missing_datagrams.unwrap_or(0)
                }
                _ => certain_loss(own),
            },
            possible: if service == LossService::Reliable { self.possible_loss() } else { self.possible_datagrams() },
            reported: own.continuity.lost_on_fabric,
            retransmits: retransmits || health.library_retransmissions > 0,
            unanswered: self.unanswered_psns(),
            sends_responses: own.continuity.response_packets > 0,
            steps: own.continuity.psn_steps,
        }
    }

    /// Packets of a reliable connection that possibly no observation point has; `None` if any
    /// number may be missing.
    fn possible_loss(&self) -> Option<PossibleLoss> {
        let own = self.own;
        let health = own.health.whole();
        let continuity = &own.continuity;
        if is_unclear(own) || health.cnp_packets > 0 {
            return None;
        }
        if continuity.request_packets == 0 {
            // Responses without requests: the requests are missing.
            return self.reverse.map(|_| PossibleLoss::NONE);
        }
        let responses = &self.reverse?.continuity;
        let is_held = |sums: &ObservationSums| sums.acks.first_packets;
        let acks = self.reverse.and_then(|reverse| reverse.observations.as_deref()).map_or(0, is_held);
        let missing_requests = health.lost_requests.max(continuity.missing_requests);
        let mut packets = (health.lost_at_most + health.unobserved_psns).max(continuity.missing_requests);
        packets += continuity.expected_responses.saturating_sub(responses.response_packets + health.lost_responses);
        let gap = self.response_gap(responses);
        if gap.is_none() && packets == 0 {
            return Some(PossibleLoss::NONE);
        }
        let is_acknowledged = continuity.ack_requests == responses.acks;
        let asked = if is_acknowledged { 0 } else { continuity.asking_requests.saturating_sub(acks).max(1) };
        let start = if self.counts_all(responses) { Some(0) } else { self.requests_before_capture() };
        Some(PossibleLoss {
            packets: packets + start.unwrap_or(0),
            acks: asked + missing_requests,
            open_ends: u64::from(start.is_none()) + u64::from(!self.is_answered(responses)),
        })
    }

    /// Datagrams that no observation point has, by the library's own numbers. Two points that miss
    /// the same packet are rare; a single point may miss any number.
    fn possible_datagrams(&self) -> Option<PossibleLoss> {
        let own = self.own;
        let points = own.observations.as_deref().map_or(1, |sums| sums.points);
        let continuity = &own.continuity;
        let is_known = own.key.is_datagram() && !continuity.has_overflowed && !continuity.restarted;
        let missing = continuity.missing_datagrams;
        (is_known && points > 1).then(|| PossibleLoss {
            packets: missing.unwrap_or(0) + continuity.datagrams_before,
            acks: 0,
            open_ends: if missing.is_some() { 2 } else { 0 },
        })
    }

    /// The obstacle to the proof that no packet of a reliable connection is missing.
    fn gap(&self) -> Option<Gap> {
        let own = self.own;
        let health = own.health.whole();
        if own.continuity.missing_requests + health.lost_at_most + health.unobserved_psns > 0 {
            return Some(Gap::Packets);
        }
        if self.is_damaged() {
            return Some(Gap::Damaged);
        }
        if has_retransmissions(own, &health) {
            return Some(Gap::Retransmissions);
        }
        if health.single_observation_packets + health.missing_in_other_inputs > 0 {
            return Some(Gap::OnePort);
        }
        if is_unclear(own) {
            return Some(Gap::Unclear);
        }
        if health.cnp_packets > 0 {
            return Some(Gap::Notifications);
        }
        if own.continuity.request_packets == 0 {
            return None;
        }
        let Some(reverse) = self.reverse else { return Some(Gap::Unpaired) };
        self.response_gap(&reverse.continuity)
    }

    /// True if the last request has its response.
    fn is_answered(&self, responses: &Continuity) -> bool {
        let last = self.own.continuity.last_request;
        last.is_some_and(|last| responses.last_responses.contains(&Some(last)))
    }

    /// True if the receiver completed as many messages as were captured.
    fn counts_all(&self, responses: &Continuity) -> bool {
        responses.last_msn.is_some_and(|msn| u64::from(msn) == self.own.traffic.messages & MASK)
    }

    /// The obstacle to the proof that all responses to a connection's requests are in the capture,
    /// and that its first and last request are.
    fn response_gap(&self, responses: &Continuity) -> Option<Gap> {
        let own = &self.own.continuity;
        if own.expected_responses != responses.response_packets {
            return Some(Gap::Packets);
        }
        if own.ack_requests != responses.acks {
            return Some(Gap::Acks);
        }
        if !self.counts_all(responses) && self.requests_before_capture() != Some(0) {
            return Some(Gap::Start);
        }
        (!self.is_answered(responses)).then_some(Gap::End)
    }
}
