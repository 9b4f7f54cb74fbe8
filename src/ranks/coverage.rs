//! Capture coverage of each connection, from the numbers in its own packets.
//!
//! Connections go in; a [`PairCoverage`] for each comes out. Three numberings show missing packets,
//! independent of the capture tool:
//!
//! ```text
//! PSNs of requests          consecutive; CM states the first one, UCX and NCCL use 0
//! READ requests             state the number of response packets
//! MSNs of acknowledgements  count the messages that the receiver completed so far
//! ```
//! The MSN also covers the time before the first captured packet. Datagrams have UCX's own numbers
//! or none. Invariant: a connection is complete only if these numbers prove it; without numbers it
//! is unknown.

use super::tag_layout::{self, Family};
use super::{Detection, ResolvedRanks, ReverseConnections};
use crate::model::profile::{ConnectionRow, CoverageState, PairCoverage, Traffic};
use crate::model::{
    ConnectionClass, ConnectionKey, ConnectionRanks, ConnectionTotals, Continuity, JobRank, Profile, QueuePair,
    RankIndex, SequenceSpan, TrafficKind,
};
use ibscope_parsers::Psn;
use ibscope_parsers::ib::{Opcode, Service};
use std::collections::{BTreeMap, BTreeSet};

/// PSNs and MSNs have 24 bits and wrap: a number that is ahead by more than half the range is
/// behind.
const MASK: u64 = 0xFF_FFFF;
const HALF: u64 = 1 << 23;
/// Messages that may be unacknowledged when a capture ends; no send queue is deeper by default.
const PACKETS_IN_FLIGHT: u64 = 1 << 12;
/// Maximum number of datagrams that connect two UCX endpoints.
const CONNECTING_DATAGRAMS: u64 = 16;
/// Request packets that a connection needs to count for the detection of a sampling mirror.
const MIN_REQUESTS: u64 = 32;
/// Share of the packets that a sampling mirror passes at most, in percent: one of two, with a
/// margin for chance.
const SAMPLED_PERCENT: u64 = 70;
/// Gaps between its PSNs that a connection needs to look sampled: a sample of one of two packets has one
/// after every second packet, an interrupted capture has a few long ones.
const MIN_GAPS: f64 = 4.0;
/// Share of the connections that must look sampled, in percent: bursts of losses hit only some.
const SAMPLED_CONNECTIONS_PERCENT: usize = 80;

/// Views of connections, by index. `first_psns` are the first PSNs that connection messages state
/// for each queue pair. With `is_window`, packets outside the window do not count as missing.
pub(super) fn views<'a>(
    reverse: &ReverseConnections<'a>,
    first_psns: &BTreeMap<QueuePair, u32>,
    detection: &Detection,
    is_window: bool,
) -> impl Fn(usize) -> ConnectionView<'a> + Sync {
    move |index| {
        let own = &reverse.connections[index];
        let first_psn = first_psns.get(&tag_layout::receiver(&own.key)).copied();
        ConnectionView {
            own,
            reverse: reverse.connected(index),
            first_psn: first_psn.or_else(|| library_first_psn(detection, &own.key)),
            is_window,
        }
    }
}

/// UCX and NCCL set both PSNs of a connection to 0 (`uct_rc_iface_qp_connect`, `ncclIbRtrQp`).
fn library_first_psn(detection: &Detection, key: &ConnectionKey) -> Option<u32> {
    let family = Family::of(detection.stack(key)?);
    matches!(family, Family::Ucx | Family::Nccl).then_some(0)
}

/// A connection with the data that bear on its coverage.
pub(super) struct ConnectionView<'a> {
    pub(super) own: &'a ConnectionTotals,
    pub(super) reverse: Option<&'a ConnectionTotals>,
    first_psn: Option<u32>,
    is_window: bool,
}

impl ConnectionView<'_> {
    /// The coverage of the connection.
    pub(super) fn coverage(&self, detection: &Detection) -> PairCoverage {
        let key = &self.own.key;
        if key.kind != TrafficKind::Data {
            return PairCoverage::default();
        }
        let missing = self.own.missing.as_deref().zip(detection.stack(key));
        let open = missing.map_or(0, |(missing, _)| missing.mpi_incomplete + missing.mpi_truncated);
        let may_hide_messages = missing.is_some_and(|(missing, stack)| missing.truncated_headers_of(stack) > 0);
        let continuity = &self.own.continuity;
        let (state, missing_packets, missing_messages) = match Opcode(key.service << 5).service() {
            // A datagram is never retransmitted under the same number.
            Service::Ud if continuity.restarted || continuity.uncertain || continuity.has_unclear_copies => {
                (CoverageState::Unknown, 0, 0)
            }
            Service::Ud => self.datagram_coverage(),
            Service::Rc | Service::Xrc | Service::Uc | Service::Rd => self.connected_coverage(),
            _ => (CoverageState::Complete, 0, 0),
        };
        let missing_messages = missing_messages.max(open);
        let is_short = missing_packets + missing_messages > 0;
        let state = if is_short { state.max(CoverageState::Incomplete) } else { state };
        let is_doubtful = (may_hide_messages || self.is_damaged()) && state == CoverageState::Complete;
        let state = if is_doubtful { CoverageState::Unknown } else { state };
        PairCoverage { state, missing_packets, missing_messages }
    }

    fn connected_coverage(&self) -> (CoverageState, u64, u64) {
        let continuity = &self.own.continuity;
        let expected = self.reverse.map_or(0, |back| back.continuity.expected_responses);
        let responses = expected.saturating_sub(continuity.response_packets);
        let before = self.requests_before_capture();
        let messages = self.missing_messages();
        let missing_packets = continuity.missing_requests + responses + before.unwrap_or(0);
        let is_silent = continuity.request_packets == 0;
        // Without their READ request, nothing shows how many responses there were.
        let guesses = self.reverse.is_some_and(|back| back.continuity.guessed_reads);
        let are_asked_for = self.is_window || guesses || continuity.response_packets <= expected;
        let is_proven = are_asked_for && (is_silent || self.is_window || before.is_some() || messages.is_some());
        let Continuity { restarted, uncertain, has_overflowed, has_unclear_copies, .. } = *continuity;
        let is_unclear = restarted || uncertain || has_overflowed || has_unclear_copies;
        let state = if is_unclear || !is_proven || self.hides_responses() {
            CoverageState::Unknown
        } else {
            CoverageState::Complete
        };
        (state, missing_packets, messages.unwrap_or(0))
    }

    /// True if packets of either direction were damaged or changed on their way.
    pub(super) fn is_damaged(&self) -> bool {
        let has_damaged = |own: &ConnectionTotals| own.continuity.has_damaged;
        has_damaged(self.own) || self.reverse.is_some_and(has_damaged)
    }

    /// True if requests ask for ACKs and the capture holds packets of the opposite direction, but no
    /// response: a capture filter hides short packets, at the end of the connection too.
    fn hides_responses(&self) -> bool {
        let has_none = |back: &ConnectionTotals| back.continuity.last_responses.iter().all(Option::is_none);
        !self.is_window && self.own.continuity.asking_requests > 0 && self.reverse.is_some_and(has_none)
    }

    /// Number of requests before the first captured one; `None` if the first PSN of the connection
    /// is unknown.
    pub(super) fn requests_before_capture(&self) -> Option<u64> {
        let first = self.own.continuity.first_psn.filter(|_| !self.is_window)?;
        let ahead = u64::from(first.wrapping_sub(self.first_psn?)) & MASK;
        (ahead < HALF).then_some(ahead)
    }

    /// Messages that the receiver completed and the capture does not contain; `None` if no
    /// acknowledgement shows the number.
    fn missing_messages(&self) -> Option<u64> {
        let msn = self.reverse.and_then(|back| back.continuity.last_msn).filter(|_| !self.is_window)?;
        let seen = self.own.traffic.messages;
        let ahead = u64::from(msn).wrapping_sub(seen) & MASK;
        let behind = seen.wrapping_sub(u64::from(msn)) & MASK;
        if (1..HALF).contains(&ahead) {
            return Some(ahead);
        }
        // The MSN does not count messages after the last acknowledgement. Captured ones hide as many
        // missing earlier messages, unless they account for all PSNs after it. The MSN proves nothing
        // if the adapter does not count, or if a second connection uses the same numbers.
        (behind <= PACKETS_IN_FLIGHT && self.unanswered_psns() <= behind).then_some(0)
    }

    /// Number of PSNs of requests after the last response; `u64::MAX` if there is no response.
    pub(super) fn unanswered_psns(&self) -> u64 {
        let Some(last) = self.own.continuity.last_request else { return 0 };
        let responses = self.reverse.map(|reverse| reverse.continuity.last_responses).unwrap_or_default();
        let behind = responses.into_iter().flatten().map(|psn| Psn::new(last).since(Psn::new(psn)));
        behind.map(|psns| u64::try_from(psns).unwrap_or(0)).min().unwrap_or(u64::MAX)
    }

    fn datagram_coverage(&self) -> (CoverageState, u64, u64) {
        let votes = self.own.votes();
        let is_control =
            votes.enveloped.iter().sum::<u64>() == 0 && self.own.starts() > 0 && self.own.unknown_starts == 0;
        let continuity = &self.own.continuity;
        let before = if self.is_window { 0 } else { continuity.datagrams_before };
        match continuity.missing_datagrams {
            // The few datagrams before connection messages are connection messages, too, or messages before
            // the endpoint was removed.
            Some(0) if is_control && (1..=CONNECTING_DATAGRAMS).contains(&before) => (CoverageState::Unknown, 0, 0),
            Some(missing) => (CoverageState::Complete, missing + before, 0),
            // Connection messages are retransmitted until they arrive.
            None if is_control => (CoverageState::Complete, 0, 0),
            None => (CoverageState::Unknown, 0, 0),
        }
    }
}

/// `ob1` increments the sequence number before it sends (`mca_pml_ob1_send`).
const FIRST_NUMBER: i64 = 1;

/// The ranks of a connection's sender and receiver.
pub(super) type RanksOfEnds = [Option<JobRank>; 2];

/// Marks pairs of ranks with gaps in `ob1`'s sequence numbers. `ob1` numbers the messages between
/// two processes across all queue pairs and ports.
pub(super) fn mark_numbers_missing(
    connections: &[Box<ConnectionTotals>],
    ends: &[RanksOfEnds],
    is_window: bool,
    identified: &mut ResolvedRanks,
) {
    let mut streams: BTreeMap<(JobRank, JobRank, u32), Vec<SequenceSpan>> = BTreeMap::new();
    let mut members: BTreeMap<(JobRank, JobRank), Vec<usize>> = BTreeMap::new();
    let mut unknown: BTreeSet<(JobRank, JobRank)> = BTreeSet::new();
    for (at, (own, ends)) in connections.iter().zip(ends).enumerate() {
        let [Some(src), Some(dst)] = *ends else { continue };
        members.entry((src, dst)).or_default().push(at);
        if own.votes().misses_sequence_numbers() {
            unknown.insert((src, dst));
        }
        for (context, numbered) in own.votes().sequence_spans.iter() {
            streams.entry((src, dst, *context)).or_default().push(*numbered);
        }
    }
    let mut missing: BTreeMap<(JobRank, JobRank), u64> = BTreeMap::new();
    for ((src, dst, _), parts) in streams {
        let last = parts.iter().map(|part| part.last).max().unwrap_or(0);
        // Numbers of several connections share an origin only if none has wrapped around to 0.
        if parts.len() > 1 && last > i64::from(u16::MAX) {
            continue;
        }
        let first = parts.iter().map(|part| part.first).min().unwrap_or(0);
        let first = if is_window { first } else { first.min(FIRST_NUMBER) };
        let sent = u64::try_from(last - first + 1).unwrap_or(0);
        *missing.entry((src, dst)).or_default() += sent.saturating_sub(parts.iter().map(|part| part.messages).sum());
    }
    for at in unknown.iter().filter_map(|pair| members.get(pair)).flatten() {
        identified.coverage[*at].state = identified.coverage[*at].state.max(CoverageState::Unknown);
    }
    for (pair, missing) in missing.into_iter().filter(|(_, missing)| *missing > 0) {
        let members = members.get(&pair).map_or(&[][..], Vec::as_slice);
        let counted: u64 = members.iter().map(|at| identified.coverage[*at].missing_messages).sum();
        for (number, at) in members.iter().enumerate() {
            let coverage = &mut identified.coverage[*at];
            coverage.state = coverage.state.max(CoverageState::Incomplete);
            if number == 0 {
                coverage.missing_messages += missing.saturating_sub(counted);
            }
        }
    }
}

/// Marks connections of no known protocol whose packets were captured too short to show a message of a
/// library: nothing shows how many messages they carried.
pub(super) fn mark_truncated(
    connections: &[Box<ConnectionTotals>],
    classes: &[ConnectionClass],
    all: &mut [PairCoverage],
) {
    for ((own, class), coverage) in connections.iter().zip(classes).zip(all) {
        let is_hidden = own.missing.as_ref().is_some_and(|missing| missing.truncated_packets() > 0);
        if is_hidden && *class == ConnectionClass::Unknown && coverage.state == CoverageState::Complete {
            coverage.state = CoverageState::Unknown;
        }
    }
}

/// Marks pairs of ranks whose messages are longer than their payload: the data took another way,
/// through a port that was not captured or a connection with unknown ranks.
pub fn mark_unseen_payload(profile: &mut Profile) {
    let ranks = RankIndex::of(profile);
    let pair = |row: &ConnectionRow| {
        let ConnectionRanks { job, src, dst } = ranks.connection(row);
        Some((job?, src?, dst?)).filter(|_| row.kind == TrafficKind::Data)
    };
    let mut sums: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for (row, pair) in profile.connections.iter().filter_map(|row| Some((row, pair(row)?))) {
        let Traffic { p2p_mpi_bytes, collective_mpi_bytes, payload_bytes, .. } = row.traffic;
        let sum = sums.entry(pair).or_default();
        sum.0 = sum.0.saturating_add(p2p_mpi_bytes).saturating_add(collective_mpi_bytes);
        sum.1 = sum.1.saturating_add(payload_bytes);
    }
    sums.retain(|_, (mpi_bytes, payload_bytes)| mpi_bytes > payload_bytes);
    for row in &mut profile.connections {
        if pair(row).is_some_and(|pair| sums.contains_key(&pair)) {
            row.coverage.state = row.coverage.state.max(CoverageState::Incomplete);
        }
    }
}

/// True if nearly all connections miss a similar share of their packets, as behind a sampling
/// mirror.
pub(super) fn looks_sampled(connections: &[Box<ConnectionTotals>]) -> bool {
    let shares: Vec<bool> = connections
        .iter()
        .filter(|own| own.key.kind == TrafficKind::Data && !own.key.is_datagram())
        .filter_map(|own| {
            let seen = own.continuity.request_packets;
            let sent = seen + own.continuity.missing_requests;
            let is_short = seen * 100 <= sent * SAMPLED_PERCENT;
            let is_clear = sent >= MIN_REQUESTS && (!is_short || own.continuity.psn_steps.gaps() >= MIN_GAPS);
            is_clear.then_some(is_short)
        })
        .collect();
    let sampled = shares.iter().filter(|is_sampled| **is_sampled).count();
    sampled > 0 && sampled * 100 >= shares.len() * SAMPLED_CONNECTIONS_PERCENT
}

/// Marks all pairs as sampled. If the sampling is stated (`is_stated`), packets are missing at random
/// only, so a pair whose packets leave its coverage unknown is sampled, too.
pub(super) fn mark_sampled(connections: &[Box<ConnectionTotals>], all: &mut [PairCoverage], is_stated: bool) {
    for (own, coverage) in connections.iter().zip(all) {
        // A connection that is too short to show a gap was sampled as well.
        if own.key.kind == TrafficKind::Data {
            let inferred = coverage.state.max(CoverageState::Sampled);
            coverage.state = if is_stated { CoverageState::Sampled } else { inferred };
        }
    }
}
