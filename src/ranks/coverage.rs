//! How much of each connection the capture holds, as far as the connection itself shows it.
//!
//! Three numberings say what a capture missed, without any knowledge of what captured it:
//!
//! ```text
//! PSNs of requests         consecutive: a hole is a missing packet; the first one is known from CM, and 0 of UCX and NCCL
//! READ requests            state how many response packets have to come
//! MSNs of acknowledgements count the messages that the receiver has completed since the connection exists
//! ```
//! The last one covers what lies before the first packet of the capture too. Datagrams have UCX's own numbers or none. A
//! connection counts as complete where these say so, and not where they say nothing.

use super::reading::{self, Family};
use super::{Detection, Identified, Pairs};
use crate::model::profile::{ConnectionRow, CoverageState, PairCoverage, Traffic};
use crate::model::traffic::{ConnectionTotals, Numbered};
use crate::model::{ConnectionKey, ConnectionRanks, JobRank, Kind, Profile, QueuePair, RankIndex};
use ibscope_parsers::ib::{Opcode, Service};
use ibscope_parsers::{Endpoint, Lid, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of 24 bits wrap around: what is ahead by more than half of them is behind.
const MASK: u64 = 0xFF_FFFF;
const HALF: u64 = 1 << 23;
/// Messages that may be under way unacknowledged when a capture ends; no queue is deeper by default.
const UNDER_WAY: u64 = 1 << 12;
/// Request packets that a connection needs to have a say in whether the mirror samples.
const ENOUGH: u64 = 32;
/// Share of packets that a sampling mirror lets through at most (one of two), in percent, with room for chance.
const SAMPLED_PERCENT: u64 = 70;
/// Share of the connections that must look sampled, in percent: losses in bursts hit some.
const SAMPLED_CONNECTIONS_PERCENT: usize = 80;

/// The coverage of each connection, in their order. `first_psns`: what connection messages say that a queue pair is
/// sent first. In a window of time what lies outside is not missing.
pub(super) fn coverage(
    connections: &[Box<ConnectionTotals>],
    first_psns: &BTreeMap<QueuePair, u32>,
    paired: &Pairs,
    detection: &Detection,
    is_window: bool,
) -> Vec<PairCoverage> {
    let views = connections.iter().map(|own| View {
        own,
        back: back(connections, &own.key, paired),
        first_psn: first_psns
            .get(&reading::receiver(&own.key))
            .copied()
            .or_else(|| starts_at_zero(detection, &own.key)),
        is_window,
    });
    let mut all: Vec<PairCoverage> = views.map(|view| view.coverage(detection)).collect();
    mark_sampled(connections, &mut all);
    all
}

/// The connection in the other direction.
fn back<'a>(
    connections: &'a [Box<ConnectionTotals>],
    key: &ConnectionKey,
    paired: &Pairs,
) -> Option<&'a ConnectionTotals> {
    let (sender, _) = paired.partner(reading::receiver(key))?;
    let back = ConnectionKey { src: key.dst, dst: key.src, dest_qp: sender.qpn, src_qp: Qpn::new(0), ..*key };
    let at = connections.binary_search_by_key(&back, |own| own.key).ok()?;
    Some(&connections[at])
}

/// UCX and NCCL set both PSNs of a connection to 0 (`uct_rc_iface_qp_connect`, `ncclIbRtrQp`).
fn starts_at_zero(detection: &Detection, key: &ConnectionKey) -> Option<u32> {
    let family = Family::of(detection.form(key)?);
    matches!(family, Family::Ucx | Family::Nccl).then_some(0)
}

/// A connection with what speaks of it.
struct View<'a> {
    own: &'a ConnectionTotals,
    back: Option<&'a ConnectionTotals>,
    first_psn: Option<u32>,
    is_window: bool,
}

impl View<'_> {
    fn coverage(&self, detection: &Detection) -> PairCoverage {
        let key = &self.own.key;
        if key.kind != Kind::Data {
            return PairCoverage::default();
        }
        let open = self.own.missing.as_deref().filter(|_| detection.form(key).is_some());
        let open = open.map_or(0, |missing| missing.mpi_incomplete + missing.mpi_cut);
        let (state, missing_packets, missing_messages) = match Opcode(key.service << 5).service() {
            // A datagram is never sent again under its number.
            Service::Ud if self.own.continuity.restarted => (CoverageState::Unknown, 0, 0),
            Service::Ud => self.datagrams(),
            Service::Rc | Service::Xrc | Service::Uc | Service::Rd => self.connected(),
            _ => (CoverageState::Complete, 0, 0),
        };
        let missing_messages = missing_messages.max(open);
        let is_short = missing_packets + missing_messages > 0;
        let state = if is_short { state.max(CoverageState::Incomplete) } else { state };
        PairCoverage { state, missing_packets, missing_messages }
    }

    fn connected(&self) -> (CoverageState, u64, u64) {
        let continuity = &self.own.continuity;
        let asked = self.back.map_or(0, |back| back.continuity.asked_packets);
        let responses = asked.saturating_sub(continuity.response_packets);
        let before = self.before();
        let messages = self.messages();
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

    /// Requests before the first one of the capture; `None` where the first PSN of the connection is unknown.
    fn before(&self) -> Option<u64> {
        let first = self.own.continuity.first_psn.filter(|_| !self.is_window)?;
        let ahead = u64::from(first.wrapping_sub(self.first_psn?)) & MASK;
        (ahead < HALF).then_some(ahead)
    }

    /// Messages that the receiver has completed and the capture does not hold; `None` where no acknowledgement tells.
    fn messages(&self) -> Option<u64> {
        let msn = self.back.and_then(|back| back.continuity.last_msn).filter(|_| !self.is_window)?;
        let seen = self.own.traffic.messages;
        let ahead = u64::from(msn).wrapping_sub(seen) & MASK;
        let behind = seen.wrapping_sub(u64::from(msn)) & MASK;
        // An adapter that does not count, or a second connection under the same numbers, proves nothing.
        (ahead < HALF || behind <= UNDER_WAY).then_some(if ahead < HALF { ahead } else { 0 })
    }

    fn datagrams(&self) -> (CoverageState, u64, u64) {
        let votes = self.own.votes();
        let is_control =
            votes.enveloped.iter().sum::<u64>() == 0 && self.own.starts() > 0 && self.own.unknown_starts == 0;
        let continuity = &self.own.continuity;
        let before = if self.is_window { 0 } else { continuity.datagrams_before };
        match continuity.missing_datagrams {
            Some(missing) => (CoverageState::Complete, missing + before, 0),
            // Messages by which processes connect are sent again until they arrive.
            None if is_control => (CoverageState::Complete, 0, 0),
            None => (CoverageState::Unknown, 0, 0),
        }
    }
}

/// Marks what lacks messages that were seen and are in no count of the pair: those of connections whose library or ranks
/// are unknown. Between two ports they may be of any two ranks there. Processes may have other ports: in a job, with one
/// end's rank known, they may be of any pair of this rank; with a port of a job at one end, of any pair of its ranks; with
/// ports of no job, of those whose LIDs may be of the same ports.
pub(super) fn mark_uncounted(
    connections: &[Box<ConnectionTotals>],
    paired: &Pairs,
    is_window: bool,
    identified: &mut Identified,
) {
    if identified.jobs.is_empty() {
        return;
    }
    let ranks = RankIndex::new(&identified.ranks);
    let ends = |own: &ConnectionTotals| {
        let receiver = reading::receiver(&own.key);
        let sender =
            if own.key.is_datagram() { Some(own.key.src_qp) } else { paired.partner(receiver).map(|(end, _)| end.qpn) };
        [ranks.ranks(own.key.src, sender).next(), ranks.ranks(own.key.dst, Some(own.key.dest_qp)).next()]
    };
    mark_numbers_missing(connections, ends, is_window, identified);
    // Storage has messages that look like some library's by chance.
    let speaks = |own: &ConnectionTotals| {
        let enveloped = own.votes().enveloped.iter().sum::<u64>();
        enveloped > 0 && enveloped * 2 >= own.starts()
    };
    // Data of storage go the way back of messages that are of no library.
    let answers_storage = |own: &ConnectionTotals| {
        back(connections, &own.key, paired).is_some_and(|back| back.starts() > 0 && !speaks(back))
    };
    let is_uncounted = |own: &ConnectionTotals, is_known: bool| {
        // Too little of it was seen to say what it is; of storage whole messages were.
        let is_dark = own.starts() == 0 && own.traffic.payload_bytes > 0 && !answers_storage(own);
        let is_detected = identified.detection.form(&own.key).is_some();
        own.key.kind == Kind::Data
            && (speaks(own) && !(is_detected && is_known) || is_dark && !is_known && !own.key.is_datagram())
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
    // Ranks that have sent what was not captured, and the ports that it went to. Of the ranks there it may be to any.
    let mut unseen: BTreeSet<(JobRank, Endpoint)> = BTreeSet::new();
    let mut one_way: BTreeSet<(Endpoint, Endpoint)> = BTreeSet::new();
    for (own, job) in connections.iter().zip(&identified.job_of) {
        let [sender, receiver] = ends(own);
        if !is_window && answers_what_was_not_captured(connections, own, paired) {
            one_way.insert((own.key.dst, own.key.src));
            unseen.extend(receiver.map(|receiver| (receiver, own.key.src)));
        }
        if !is_uncounted(own, sender.is_some() && receiver.is_some()) {
            continue;
        }
        let ports = (own.key.src, own.key.dst);
        // Without a rank at either end it may be of another program as well.
        let may_be_foreign = sender.is_none() && receiver.is_none();
        if may_be_foreign {
            foreign.insert(ports)
        } else {
            between.insert(ports)
        };
        match (sender, receiver) {
            (Some(sender), None) if *job == Some(sender.job) => _ = of_rank[0].insert(sender),
            (None, Some(receiver)) if *job == Some(receiver.job) => _ = of_rank[1].insert(receiver),
            (None, None) if speaks(own) => {
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
            more => format!(", and between {more} more pairs of ports"),
        };
        identified.notes.push(format!(
            "requests from {from} to {to} were answered and not captured{more}: what they carried is in no count; capture both directions of all ports"
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

/// `ob1` counts up before it sends (`mca_pml_ob1_send`).
const FIRST_NUMBER: i64 = 1;

/// Marks pairs of ranks of which messages are missing by the library's own numbers (`ob1`): it numbers what one process sends another,
/// whichever queue pair and port carry it.
fn mark_numbers_missing(
    connections: &[Box<ConnectionTotals>],
    ends: impl Fn(&ConnectionTotals) -> [Option<JobRank>; 2],
    is_window: bool,
    identified: &mut Identified,
) {
    let mut streams: BTreeMap<(JobRank, JobRank, u32), Vec<Numbered>> = BTreeMap::new();
    let mut members: BTreeMap<(JobRank, JobRank), Vec<usize>> = BTreeMap::new();
    let mut unknown: BTreeSet<(JobRank, JobRank)> = BTreeSet::new();
    for (at, own) in connections.iter().enumerate() {
        let [Some(src), Some(dst)] = ends(own) else { continue };
        members.entry((src, dst)).or_default().push(at);
        if own.votes().lacks_numbers() {
            unknown.insert((src, dst));
        }
        for (context, numbered) in own.votes().numbered.iter() {
            streams.entry((src, dst, *context)).or_default().push(*numbered);
        }
    }
    let mut missing: BTreeMap<(JobRank, JobRank), u64> = BTreeMap::new();
    for ((src, dst, _), parts) in streams {
        let last = parts.iter().map(|part| part.last).max().unwrap_or(0);
        // Numbers of several connections have one origin only where none has begun again from 0.
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
        let told: u64 = members.iter().map(|at| identified.coverage[*at].missing_messages).sum();
        for (number, at) in members.iter().enumerate() {
            let coverage = &mut identified.coverage[*at];
            coverage.state = coverage.state.max(CoverageState::Incomplete);
            if number == 0 {
                coverage.missing_messages += missing.saturating_sub(told);
            }
        }
    }
}

/// Marks pairs of ranks whose messages are longer than the payload between them: data of them went another way, through a port that was
/// not captured, or on a connection whose ranks are unknown.
pub fn mark_unseen_payload(profile: &mut Profile) {
    let ranks = RankIndex::of(profile);
    let pair = |row: &ConnectionRow| {
        let ConnectionRanks { job, src, dst } = ranks.connection(row);
        Some((job?, src?, dst?)).filter(|_| row.kind == Kind::Data)
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

/// It answers requests, and of the other direction nothing was captured.
fn answers_what_was_not_captured(
    connections: &[Box<ConnectionTotals>],
    own: &ConnectionTotals,
    paired: &Pairs,
) -> bool {
    let continuity = &own.continuity;
    let answers = continuity.last_msn.is_some_and(|msn| msn > 0) || continuity.response_packets > 0;
    own.key.kind == Kind::Data && answers && back(connections, &own.key, paired).is_none()
}

/// LIDs that one port may answer to: the subnet manager gives a port `2^LMC` of them, the first a multiple of that (IBTA
/// volume 1, 3.5.10). Fabrics use an LMC of up to 3.
const LIDS_OF_PORT: u16 = 8;

/// What ports have in common that may be one, with several LIDs.
fn first_of_port(port: Endpoint) -> Endpoint {
    port.lid().map_or(port, |lid| Endpoint::from_lid(Lid(lid.0 / LIDS_OF_PORT * LIDS_OF_PORT)))
}

/// Where nearly all connections lack a like share of their packets, the mirror samples.
fn mark_sampled(connections: &[Box<ConnectionTotals>], all: &mut [PairCoverage]) {
    let shares: Vec<(usize, bool)> = connections
        .iter()
        .zip(all.iter())
        .enumerate()
        .filter(|(_, (own, _))| own.key.kind == Kind::Data && !own.key.is_datagram())
        .filter_map(|(at, (own, _))| {
            let seen = own.continuity.request_packets;
            let sent = seen + own.continuity.missing_requests;
            (sent >= ENOUGH).then_some((at, seen * 100 <= sent * SAMPLED_PERCENT))
        })
        .collect();
    let sampled = shares.iter().filter(|(_, is_sampled)| *is_sampled).count();
    if sampled == 0 || sampled * 100 < shares.len() * SAMPLED_CONNECTIONS_PERCENT {
        return;
    }
    for (own, coverage) in connections.iter().zip(all) {
        // What is too short to show a hole was sampled as well.
        if own.key.kind == Kind::Data {
            coverage.state = coverage.state.max(CoverageState::Sampled);
        }
    }
}
