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
use super::{Detection, QueuePairPartners, ResolvedRanks};
use crate::model::profile::{ConnectionRow, CoverageState, PairCoverage, Traffic};
use crate::model::traffic::{ConnectionTotals, SequenceSpan};
use crate::model::{ConnectionKey, ConnectionRanks, JobRank, Profile, QueuePair, RankIndex, TrafficKind, count_of};
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Lid, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// PSNs and MSNs have 24 bits and wrap: a number that is ahead by more than half the range is
/// behind.
const MASK: u64 = 0xFF_FFFF;
const HALF: u64 = 1 << 23;
/// Messages that may be unacknowledged when a capture ends; no send queue is deeper by default.
const PACKETS_IN_FLIGHT: u64 = 1 << 12;
/// Request packets that a connection needs to count for the detection of a sampling mirror.
const MIN_REQUESTS: u64 = 32;
/// Share of the packets that a sampling mirror passes at most, in percent: one of two, with a
/// margin for chance.
const SAMPLED_PERCENT: u64 = 70;
/// Share of the connections that must look sampled, in percent: bursts of losses hit only some.
const SAMPLED_CONNECTIONS_PERCENT: usize = 80;

/// The coverage of each connection, in connection order. `first_psns` are the first PSNs that
/// connection messages state for each queue pair. With `is_window`, packets outside the window do
/// not count as missing.
pub(super) fn coverage(
    connections: &[Box<ConnectionTotals>],
    first_psns: &BTreeMap<QueuePair, u32>,
    paired: &QueuePairPartners,
    detection: &Detection,
    is_window: bool,
) -> Vec<PairCoverage> {
    let views = views(connections, first_psns, paired, detection, is_window);
    let mut all: Vec<PairCoverage> = views.map(|view| view.coverage(detection)).collect();
    mark_sampled(connections, &mut all);
    all
}

/// The connections with the data that bear on their coverage; arguments as in [`coverage`].
pub(super) fn views<'a>(
    connections: &'a [Box<ConnectionTotals>],
    first_psns: &BTreeMap<QueuePair, u32>,
    paired: &QueuePairPartners,
    detection: &Detection,
    is_window: bool,
) -> impl Iterator<Item = ConnectionView<'a>> {
    connections.iter().map(move |own| ConnectionView {
        own,
        reverse: reverse_connection(connections, &own.key, paired),
        first_psn: first_psns
            .get(&tag_layout::receiver(&own.key))
            .copied()
            .or_else(|| library_first_psn(detection, &own.key)),
        is_window,
    })
}

/// The connection in the opposite direction.
fn reverse_connection<'a>(
    connections: &'a [Box<ConnectionTotals>],
    key: &ConnectionKey,
    paired: &QueuePairPartners,
) -> Option<&'a ConnectionTotals> {
    let (sender, _) = paired.partner(tag_layout::receiver(key))?;
    let back = ConnectionKey { src: key.dst, dst: key.src, dest_qp: sender.qpn, src_qp: Qpn::new(0), ..*key };
    let at = connections.binary_search_by_key(&back, |own| own.key).ok()?;
    Some(&connections[at])
}

/// UCX and NCCL set both PSNs of a connection to 0 (`uct_rc_iface_qp_connect`, `ncclIbRtrQp`).
fn library_first_psn(detection: &Detection, key: &ConnectionKey) -> Option<u32> {
    let family = Family::of(detection.form(key)?);
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
    fn coverage(&self, detection: &Detection) -> PairCoverage {
        let key = &self.own.key;
        if key.kind != TrafficKind::Data {
            return PairCoverage::default();
        }
        let open = self.own.missing.as_deref().filter(|_| detection.form(key).is_some());
        let open = open.map_or(0, |missing| missing.mpi_incomplete + missing.mpi_truncated);
        let (state, missing_packets, missing_messages) = match Opcode(key.service << 5).service() {
            // A datagram is never retransmitted under the same number.
            Service::Ud if self.own.continuity.restarted => (CoverageState::Unknown, 0, 0),
            Service::Ud => self.datagram_coverage(),
            Service::Rc | Service::Xrc | Service::Uc | Service::Rd => self.connected_coverage(),
            _ => (CoverageState::Complete, 0, 0),
        };
        let missing_messages = missing_messages.max(open);
        let is_short = missing_packets + missing_messages > 0;
        let state = if is_short { state.max(CoverageState::Incomplete) } else { state };
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
        let is_proven = is_silent || self.is_window || before.is_some() || messages.is_some();
        let state = if continuity.restarted || continuity.uncertain || !is_proven {
            CoverageState::Unknown
        } else {
            CoverageState::Complete
        };
        (state, missing_packets, messages.unwrap_or(0))
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
        // An adapter that does not count, or a second connection under the same numbers, proves
        // nothing.
        (ahead < HALF || behind <= PACKETS_IN_FLIGHT).then_some(if ahead < HALF { ahead } else { 0 })
    }

    fn datagram_coverage(&self) -> (CoverageState, u64, u64) {
        let votes = self.own.votes();
        let is_control =
            votes.enveloped.iter().sum::<u64>() == 0 && self.own.starts() > 0 && self.own.unknown_starts == 0;
        let continuity = &self.own.continuity;
        let before = if self.is_window { 0 } else { continuity.datagrams_before };
        match continuity.missing_datagrams {
            Some(missing) => (CoverageState::Complete, missing + before, 0),
            // Connection messages are retransmitted until they arrive.
            None if is_control => (CoverageState::Complete, 0, 0),
            None => (CoverageState::Unknown, 0, 0),
        }
    }
}

/// Marks pairs that may be missing messages of uncounted connections, those whose library or ranks
/// are unknown. Between two ports with ranks, such messages may belong to any two ranks there.
/// Processes may have further ports. So inside a job with one known end, the messages may belong to
/// any pair with that rank; with one end at a port of a job, to any pair of the ranks at that port;
/// between ports without a job, to ports with neighboring LIDs.
pub(super) fn mark_uncounted(
    connections: &[Box<ConnectionTotals>],
    paired: &QueuePairPartners,
    is_window: bool,
    identified: &mut ResolvedRanks,
) {
    if identified.jobs.is_empty() {
        return;
    }
    let ranks = RankIndex::new(&identified.ranks);
    let ends = |own: &ConnectionTotals| {
        let receiver = tag_layout::receiver(&own.key);
        let sender =
            if own.key.is_datagram() { Some(own.key.src_qp) } else { paired.partner(receiver).map(|(end, _)| end.qpn) };
        [ranks.ranks(own.key.src, sender).next(), ranks.ranks(own.key.dst, Some(own.key.dest_qp)).next()]
    };
    mark_numbers_missing(connections, ends, is_window, identified);
    // Storage traffic contains messages that match some library's format by chance.
    let has_envelopes = |own: &ConnectionTotals| {
        let enveloped = own.votes().enveloped.iter().sum::<u64>();
        enveloped > 0 && enveloped * 2 >= own.starts()
    };
    // The data of a storage READ flow opposite to requests that match no library.
    let responds_to_storage = |own: &ConnectionTotals| {
        reverse_connection(connections, &own.key, paired).is_some_and(|back| back.starts() > 0 && !has_envelopes(back))
    };
    let is_uncounted = |own: &ConnectionTotals, is_known: bool| {
        // Connections with data but no message starts: too little was captured to tell MPI from
        // storage.
        let is_dark = own.starts() == 0 && own.traffic.payload_bytes > 0 && !responds_to_storage(own);
        let is_detected = identified.detection.form(&own.key).is_some();
        own.key.kind == TrafficKind::Data
            && (has_envelopes(own) && !(is_detected && is_known) || is_dark && !is_known && !own.key.is_datagram())
    };
    let mut between: BTreeSet<(Endpoint, Endpoint)> = BTreeSet::new();
    let mut foreign: BTreeSet<(Endpoint, Endpoint)> = BTreeSet::new();
    let mut of_rank: [BTreeSet<JobRank>; 2] = Default::default();
    let mut may_be_at: [BTreeSet<Endpoint>; 2] = Default::default();
    let mut alike: BTreeSet<[Endpoint; 2]> = BTreeSet::new();
    let mut at_port: BTreeMap<Endpoint, BTreeSet<JobRank>> = BTreeMap::new();
    let mut ports_of: BTreeMap<JobRank, BTreeSet<Endpoint>> = BTreeMap::new();
    for row in &identified.ranks {
        if let Ok(port) = row.endpoint.parse() {
            let rank = JobRank { job: row.job, rank: row.rank };
            at_port.entry(port).or_default().insert(rank);
            ports_of.entry(rank).or_default().insert(port);
        }
    }
    // Ranks whose requests were not captured, with the destination port: any rank there may be the
    // receiver.
    let mut unseen: BTreeSet<(JobRank, Endpoint)> = BTreeSet::new();
    let mut one_way: BTreeSet<(Endpoint, Endpoint)> = BTreeSet::new();
    for (own, job) in connections.iter().zip(&identified.job_of) {
        let [sender, receiver] = ends(own);
        if !is_window && responds_to_uncaptured_requests(connections, own, paired) {
            one_way.insert((own.key.dst, own.key.src));
            unseen.extend(receiver.map(|receiver| (receiver, own.key.src)));
        }
        if !is_uncounted(own, sender.is_some() && receiver.is_some()) {
            continue;
        }
        let ports = (own.key.src, own.key.dst);
        // With both ranks unknown, the messages may come from a program outside the job.
        let may_be_foreign = sender.is_none() && receiver.is_none();
        if may_be_foreign {
            foreign.insert(ports)
        } else {
            between.insert(ports)
        };
        match (sender, receiver) {
            (Some(sender), None) if *job == Some(sender.job) => _ = of_rank[0].insert(sender),
            (None, Some(receiver)) if *job == Some(receiver.job) => _ = of_rank[1].insert(receiver),
            (None, None) if has_envelopes(own) => {
                let [from, to] = [own.key.src, own.key.dst].map(|port| at_port.get(&port));
                match (from, to) {
                    (Some(_), None) => _ = may_be_at[0].insert(own.key.src),
                    (None, Some(_)) => _ = may_be_at[1].insert(own.key.dst),
                    (None, None) => _ = alike.insert([own.key.src, own.key.dst].map(first_of_port)),
                    (Some(_), Some(_)) => {}
                }
            }
            _ => {}
        }
    }
    let may_be: [BTreeSet<JobRank>; 2] =
        may_be_at.map(|ports| ports.iter().filter_map(|port| at_port.get(port)).flatten().copied().collect());
    if let Some((from, to)) = one_way.first() {
        let more = match one_way.len() - 1 {
            0 => String::new(),
            more => format!(", and between {} of ports", count_of(more as u64, "more pair")),
        };
        identified.notes.push(format!(
            "requests from {from} to {to} were answered but not captured{more}, so no count includes their data; capture both directions of all ports"
        ));
    }
    let is_of = |own: &ConnectionTotals, ranks: &[BTreeSet<JobRank>; 2]| {
        let is_one = |(end, ranks): (Option<JobRank>, &BTreeSet<JobRank>)| end.is_some_and(|end| ranks.contains(&end));
        ranks.iter().any(|ranks| !ranks.is_empty()) && ends(own).into_iter().zip(ranks).any(is_one)
    };
    for ((own, coverage), job) in connections.iter().zip(&mut identified.coverage).zip(&identified.job_of) {
        if job.is_none() {
            continue;
        }
        let ports = (own.key.src, own.key.dst);
        let is_unseen = match ends(own) {
            [Some(src), Some(dst)] if src.job == dst.job && src != dst => {
                ports_of.get(&dst).into_iter().flatten().any(|port| unseen.contains(&(src, *port)))
            }
            _ => false,
        };
        if is_unseen || between.contains(&ports) || is_of(own, &of_rank) {
            coverage.state = coverage.state.max(CoverageState::Incomplete);
        } else if foreign.contains(&ports)
            || is_of(own, &may_be)
            || alike.contains(&[own.key.src, own.key.dst].map(first_of_port))
        {
            coverage.state = coverage.state.max(CoverageState::Unknown);
        }
    }
}

/// `ob1` increments the sequence number before it sends (`mca_pml_ob1_send`).
const FIRST_NUMBER: i64 = 1;

/// Marks pairs of ranks with gaps in `ob1`'s sequence numbers. `ob1` numbers the messages between
/// two processes across all queue pairs and ports.
fn mark_numbers_missing(
    connections: &[Box<ConnectionTotals>],
    ends: impl Fn(&ConnectionTotals) -> [Option<JobRank>; 2],
    is_window: bool,
    identified: &mut ResolvedRanks,
) {
    let mut streams: BTreeMap<(JobRank, JobRank, u32), Vec<SequenceSpan>> = BTreeMap::new();
    let mut members: BTreeMap<(JobRank, JobRank), Vec<usize>> = BTreeMap::new();
    let mut unknown: BTreeSet<(JobRank, JobRank)> = BTreeSet::new();
    for (at, own) in connections.iter().enumerate() {
        let [Some(src), Some(dst)] = ends(own) else { continue };
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

/// True if the connection carries responses, and no connection in the opposite direction was
/// captured.
fn responds_to_uncaptured_requests(
    connections: &[Box<ConnectionTotals>],
    own: &ConnectionTotals,
    paired: &QueuePairPartners,
) -> bool {
    let continuity = &own.continuity;
    let responds = continuity.last_msn.is_some_and(|msn| msn > 0) || continuity.response_packets > 0;
    own.key.kind == TrafficKind::Data && responds && reverse_connection(connections, &own.key, paired).is_none()
}

/// LIDs that one port may have: the subnet manager assigns `2^LMC` of them, the first a multiple of
/// that (IBTA volume 1, 3.5.10). Fabrics use an LMC of up to 3.
const LIDS_OF_PORT: u16 = 8;

/// The first LID of the block of LIDs that may be one port; other endpoints unchanged.
fn first_of_port(port: Endpoint) -> Endpoint {
    port.lid().map_or(port, |lid| Endpoint::from_lid(Lid(lid.0 / LIDS_OF_PORT * LIDS_OF_PORT)))
}

/// Marks all pairs as sampled if nearly all connections are missing a similar share of packets.
fn mark_sampled(connections: &[Box<ConnectionTotals>], all: &mut [PairCoverage]) {
    let shares: Vec<(usize, bool)> = connections
        .iter()
        .zip(all.iter())
        .enumerate()
        .filter(|(_, (own, _))| own.key.kind == TrafficKind::Data && !own.key.is_datagram())
        .filter_map(|(at, (own, _))| {
            let seen = own.continuity.request_packets;
            let sent = seen + own.continuity.missing_requests;
            (sent >= MIN_REQUESTS).then_some((at, seen * 100 <= sent * SAMPLED_PERCENT))
        })
        .collect();
    let sampled = shares.iter().filter(|(_, is_sampled)| *is_sampled).count();
    if sampled == 0 || sampled * 100 < shares.len() * SAMPLED_CONNECTIONS_PERCENT {
        return;
    }
    for (own, coverage) in connections.iter().zip(all) {
        // A connection that is too short to show a gap was sampled as well.
        if own.key.kind == TrafficKind::Data {
            coverage.state = coverage.state.max(CoverageState::Sampled);
        }
    }
}
