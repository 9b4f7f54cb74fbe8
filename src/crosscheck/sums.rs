//! Compares the wire with sums by rank, for profiles without a trace: the bytes that each rank sent
//! and received, to and from all peers together.
//!
//! Sums do not show the peers, so the messages within a node cannot be subtracted. But both ends of
//! such messages are on the node: the bytes missing on the wire from the sends of a node must equal
//! those missing from its receives. A single wrong byte violates this balance.

use super::contexts::Contexts;
use super::cubex::{CubeProfile, RankProfile};
use super::message_sums::MessageSums;
use super::placement::Placement;
use super::unidentified::{self, Accounts, UnidentifiedMessages};
use super::verdict::{Cause, CrosscheckVerdict};
use super::wire::WireMessages;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a rank sent or received point-to-point, in a profile of sums and on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankSums {
    /// World rank.
    pub rank: u32,
    /// Sent or received.
    pub direction: RankDirection,
    /// Bytes in the profile.
    pub trace_bytes: u64,
    /// Bytes received by messages or by nonblocking collectives, which the profile does not
    /// distinguish.
    pub uncertain_bytes: u64,
    /// Calls with one message each, including those to `MPI_PROC_NULL`; `None` if the rank started
    /// persistent requests, whose number is unknown.
    pub calls: Option<u64>,
    /// All messages on the wire.
    pub wire: MessageSums,
    /// The tracer's own messages in `wire`.
    pub tracer: MessageSums,
    /// Bytes that are in the profile but not on the wire, for a known cause.
    pub missing_bytes: u64,
    /// Messages on the wire with an unidentified sender or receiver that may be of this rank.
    pub unidentified: MessageSums,
    /// The result of the comparison.
    pub verdict: CrosscheckVerdict,
    /// Causes of the differences.
    pub causes: Vec<Cause>,
}

/// Direction of messages, seen from the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankDirection {
    /// Sent by the rank.
    Sent,
    /// Received by the rank.
    Received,
}

impl RankDirection {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Received => "received",
        }
    }
}

impl RankSums {
    /// Bytes missing on the wire: lower and upper bound.
    fn missing_range(&self) -> (i128, i128) {
        let own = i128::from(self.wire.bytes) - i128::from(self.tracer.bytes) + i128::from(self.unidentified.bytes);
        let least = i128::from(self.trace_bytes) - own;
        (least, least + i128::from(self.uncertain_bytes))
    }

    fn own_messages(&self) -> u64 {
        (self.wire.messages - self.tracer.messages).saturating_add(self.unidentified.messages)
    }

    /// Assigns messages of a pool with unidentified ranks to this rank, up to its missing bytes.
    fn take_unidentified(&mut self, pool: &mut MessageSums) {
        let Some(bytes) = u64::try_from(self.missing_range().0).ok().filter(|bytes| *bytes > 0) else { return };
        let calls = self.calls.map(|calls| calls.saturating_sub(self.own_messages()));
        let missing = MessageSums { messages: calls.unwrap_or(u64::MAX), bytes };
        let mut rest = missing;
        unidentified::transfer(pool, &mut rest);
        self.unidentified = missing.less(rest);
    }

    /// The cause of the unidentified messages that are assigned to this rank.
    fn unidentified_cause(&self, is_identified: bool) -> Option<Cause> {
        let is_at_receiver = is_identified == (self.direction == RankDirection::Sent);
        let cause = if is_at_receiver { Cause::ReceiverNotIdentified } else { Cause::SenderNotIdentified };
        (self.unidentified != MessageSums::default()).then_some(cause)
    }
}

/// Assigns messages with unidentified ranks to the rows with missing bytes: an identified rank gets
/// messages that name it at its end, other ranks get messages without a rank at their end.
fn give_unidentified(rows: &mut [RankSums], wire: &WireMessages, accounts: &mut [UnidentifiedMessages]) {
    let mut pools: BTreeMap<(RankDirection, Option<u32>), MessageSums> = BTreeMap::new();
    for account in accounts.iter() {
        *pools.entry((RankDirection::Sent, account.src)).or_default() += account.wire;
        *pools.entry((RankDirection::Received, account.dst)).or_default() += account.wire;
    }
    let mut taken: BTreeMap<(RankDirection, u32), MessageSums> = BTreeMap::new();
    for row in rows {
        let rank = wire.is_identified(row.rank).then_some(row.rank);
        if let Some(pool) = pools.get_mut(&(row.direction, rank)) {
            row.take_unidentified(pool);
            taken.insert((row.direction, row.rank), row.unidentified);
        }
    }
    for account in accounts {
        let sent = account.src.and_then(|rank| taken.get(&(RankDirection::Sent, rank)));
        let received = account.dst.and_then(|rank| taken.get(&(RankDirection::Received, rank)));
        account.explaining = sent.or(received).copied().unwrap_or_default();
    }
}

/// The result of the comparison by rank.
#[derive(Default)]
pub(super) struct RankComparison {
    pub(super) rows: Vec<RankSums>,
    /// The context of the tracer's own communicator.
    pub(super) tracer: Option<u32>,
    pub(super) unidentified: Vec<UnidentifiedMessages>,
}

/// Compares all ranks of the profile and of the wire.
pub(super) fn ranks(
    sums: &CubeProfile,
    wire: &WireMessages,
    placement: &Placement,
    tolerance_percent: f64,
) -> RankComparison {
    // The tracer's context is guessed from the times of its messages, and unidentified messages may
    // be of another job. Try all combinations and take the first with the fewest unexplained ranks.
    let candidates: Vec<Option<u32>> =
        Contexts::candidates(&sums.trace, wire).into_iter().map(Some).chain([None]).collect();
    let ways = [true, false].into_iter().flat_map(|is_given| candidates.iter().map(move |tracer| (is_given, *tracer)));
    let ways = ways.map(|(is_given, tracer)| {
        let mut rows = rows(sums, wire, tracer);
        let mut unidentified = Accounts::of(wire, tracer).rows();
        if is_given {
            give_unidentified(&mut rows, wire, &mut unidentified);
        }
        judge(&mut rows, wire, placement, tolerance_percent);
        RankComparison { rows, tracer, unidentified }
    });
    let bad =
        |ranks: &RankComparison| ranks.rows.iter().filter(|row| row.verdict == CrosscheckVerdict::Unexplained).count();
    ways.reduce(|best, next| if bad(&next) < bad(&best) { next } else { best }).unwrap_or_default()
}

/// Both directions of each rank, without a verdict.
fn rows(sums: &CubeProfile, wire: &WireMessages, tracer: Option<u32>) -> Vec<RankSums> {
    let mut on_wire: BTreeMap<(u32, RankDirection), (MessageSums, MessageSums)> = BTreeMap::new();
    for ((src, dst), envelope, stream) in wire.messages() {
        let stream = MessageSums { messages: stream.messages, bytes: stream.mpi_bytes };
        let is_tracers = tracer.is_some() && envelope.map(|envelope| envelope.context) == tracer;
        for end in [(src, RankDirection::Sent), (dst, RankDirection::Received)] {
            let (all, own) = on_wire.entry(end).or_default();
            *all += stream;
            if is_tracers {
                *own += stream;
            }
        }
    }
    let ranks: BTreeSet<u32> = sums.ranks.keys().copied().chain(on_wire.keys().map(|(rank, _)| *rank)).collect();
    let ends = ranks.into_iter().flat_map(|rank| [(rank, RankDirection::Sent), (rank, RankDirection::Received)]);
    let row = |(rank, direction)| {
        let RankProfile {
            sent_bytes,
            received_bytes,
            completed_bytes,
            nonblocking,
            send_calls,
            receive_calls,
            start_calls,
            ..
        } = sums.ranks.get(&rank).copied().unwrap_or_default();
        let (trace_bytes, uncertain_bytes) = match (direction, nonblocking) {
            (RankDirection::Sent, _) => (sent_bytes, 0),
            // Without nonblocking collectives, all completed bytes are messages.
            (RankDirection::Received, 0) => (received_bytes.saturating_add(completed_bytes), 0),
            (RankDirection::Received, _) => (received_bytes, completed_bytes),
        };
        let calls = if direction == RankDirection::Sent { send_calls } else { receive_calls };
        let (wire, tracer) = on_wire.get(&(rank, direction)).copied().unwrap_or_default();
        RankSums {
            rank,
            direction,
            trace_bytes,
            uncertain_bytes,
            calls: (start_calls == 0).then_some(calls),
            wire,
            tracer,
            missing_bytes: 0,
            unidentified: MessageSums::default(),
            verdict: CrosscheckVerdict::Equal,
            causes: Vec::new(),
        }
    };
    ends.map(row).collect()
}

/// Bytes of the sends and of the receives of some ranks that are missing on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    sent: i128,
    received: (i128, i128),
    /// True if the wire has more than the profile.
    is_exceeded: bool,
}

impl Balance {
    fn add(&mut self, row: &RankSums) {
        let (least, most) = row.missing_range();
        self.is_exceeded |= most < 0 || row.calls.is_some_and(|calls| row.own_messages() > calls);
        match row.direction {
            RankDirection::Sent => self.sent += least,
            RankDirection::Received => {
                self.received.0 += least;
                self.received.1 += most;
            }
        }
    }

    /// True if the sends and the receives may miss the same number of bytes.
    fn is_even(&self) -> bool {
        !self.is_exceeded && (self.received.0..=self.received.1).contains(&self.sent)
    }
}

/// Nodes with missing bytes, classified by the likely cause.
#[derive(Default)]
struct IncompleteNodes {
    /// Node number of each rank.
    nodes: BTreeMap<u32, usize>,
    /// Nodes of several ranks with messages that are incomplete in the capture: what is missing of these
    /// hides whether the rest is of messages within the node.
    truncated: BTreeSet<usize>,
    /// Nodes whose sends and receives miss different numbers of bytes.
    odd: BTreeSet<usize>,
    /// True if uncaptured ports may explain the odd nodes: over all nodes, sends and receives miss
    /// the same bytes, and no packet between two odd nodes was captured.
    ports_explain_odd: bool,
    /// Nodes of one rank with missing bytes that exchanged no captured packet with another node
    /// with missing bytes. Uncaptured messages between them are likelier than messages of a rank to
    /// itself.
    apart: BTreeSet<usize>,
}

impl IncompleteNodes {
    fn of(rows: &[RankSums], wire: &WireMessages, placement: &Placement) -> Self {
        let mut incomplete = Self::default();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut ranks: Vec<BTreeSet<u32>> = Vec::new();
        for rank in rows.iter().map(|row| row.rank).chain(wire.traffic.keys().flat_map(|(src, dst)| [*src, *dst])) {
            let name = placement.node(rank).map_or_else(|| format!("rank {rank}"), str::to_owned);
            let number = *numbers.entry(name).or_insert(ranks.len());
            if number == ranks.len() {
                ranks.push(BTreeSet::new());
            }
            ranks[number].insert(rank);
            incomplete.nodes.insert(rank, number);
        }
        let (mut balances, mut all) = (vec![Balance::default(); ranks.len()], Balance::default());
        let mut nodes_with_missing = BTreeSet::new();
        for row in rows {
            balances[incomplete.nodes[&row.rank]].add(row);
            all.add(row);
            if row.missing_range().0 > 0 {
                nodes_with_missing.insert(incomplete.nodes[&row.rank]);
            }
        }
        incomplete.odd = (0..ranks.len()).filter(|node| !balances[*node].is_even()).collect();
        let truncated = wire.traffic.iter().filter(|(_, traffic)| traffic.incomplete_messages > 0);
        let truncated = truncated.flat_map(|((src, dst), _)| [src, dst]).map(|rank| incomplete.nodes[rank]);
        incomplete.truncated = truncated.filter(|node| ranks[*node].len() > 1).collect();
        let mut seen: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ranks.len()];
        for ((src, dst), _) in wire.traffic.iter().filter(|(_, traffic)| traffic.packets > 0) {
            let [src, dst] = [src, dst].map(|rank| incomplete.nodes[rank]);
            seen[src].insert(dst);
            seen[dst].insert(src);
        }
        let is_seen_odd = incomplete
            .odd
            .iter()
            .any(|node| seen[*node].iter().any(|other| other != node && incomplete.odd.contains(other)));
        incomplete.ports_explain_odd = all.is_even() && !is_seen_odd;
        let is_apart = |node: &usize| {
            ranks[*node].len() == 1
                && nodes_with_missing.iter().any(|other| other != node && !seen[*node].contains(other))
        };
        incomplete.apart = nodes_with_missing.iter().copied().filter(|node| all.is_even() && is_apart(node)).collect();
        incomplete
    }
}

fn judge(rows: &mut [RankSums], wire: &WireMessages, placement: &Placement, tolerance_percent: f64) {
    let incomplete = IncompleteNodes::of(rows, wire, placement);
    for row in rows {
        let (least, most) = row.missing_range();
        let node = incomplete.nodes[&row.rank];
        let (rank, direction) = (row.rank, row.direction);
        let is_of_row = move |src: u32, dst: u32| match direction {
            RankDirection::Sent => src == rank,
            RankDirection::Received => dst == rank,
        };
        let lost_packets = wire.of_pairs(is_of_row).map(|traffic| traffic.lost_packets).fold(0, u64::saturating_add);
        let is_truncated = wire.of_pairs(is_of_row).any(|traffic| traffic.incomplete_messages > 0);
        let missing = row.calls.map(|calls| calls.saturating_sub(row.own_messages()));
        let is_exceeded = most < 0 || row.calls.is_some_and(|calls| row.own_messages() > calls);
        let mut causes = BTreeSet::new();
        if row.tracer.messages > 0 {
            causes.insert(Cause::Tracer);
        }
        if row.uncertain_bytes > 0 {
            causes.insert(Cause::Nonblocking);
        }
        causes.extend(row.unidentified_cause(wire.is_identified(row.rank)));
        let known = match (incomplete.odd.contains(&node), incomplete.ports_explain_odd) {
            _ if is_exceeded => None,
            _ if least <= 0 => Some(None),
            _ if is_truncated && missing.is_none_or(|missing| missing > 0) => Some(Some(Cause::Incomplete)),
            (false, _) if incomplete.apart.contains(&node) => Some(Some(Cause::NotCaptured)),
            (false, _) => Some(Some(Cause::SameNode)),
            (true, _) if incomplete.truncated.contains(&node) => Some(Some(Cause::SameNode)),
            (true, true) => Some(Some(Cause::NotCaptured)),
            (true, false) => {
                missing.is_some_and(|missing| missing > 0 && missing <= lost_packets).then_some(Some(Cause::Lost))
            }
        };
        if let Some(cause) = known {
            // Bytes that may be of collectives are not known to be missing.
            row.missing_bytes = u64::try_from(least).unwrap_or(0).saturating_add(row.unidentified.bytes);
            causes.extend(cause);
        }
        row.verdict = match known {
            // The sums of the node contradict each other, though no single rank exceeds its sums.
            None => CrosscheckVerdict::Unexplained,
            Some(_) if causes.is_empty() => CrosscheckVerdict::Equal,
            Some(_) => CrosscheckVerdict::Explained,
        };
        let within = |bytes: i128| bytes.unsigned_abs() as f64 * 100.0 <= tolerance_percent * row.trace_bytes as f64;
        if row.verdict == CrosscheckVerdict::Unexplained && tolerance_percent > 0.0 && within(least) {
            row.verdict = CrosscheckVerdict::Tolerated;
        }
        row.causes = causes.into_iter().collect();
    }
}
