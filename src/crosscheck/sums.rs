//! The comparison with sums by rank, where there is no trace: what each rank sent and received, all peers together.
//!
//! Sums do not say who the peer was, so what stays on a node cannot be taken out of them. But what ranks of one node send each other is sent and received
//! there: what the wire lacks of a node's sends must be what it lacks of its receives. That finds a single byte that is wrong.

use super::contexts::Contexts;
use super::cubex::{CubeProfile, RankProfile};
use super::message_sums::Sums;
use super::placement::Placement;
use super::unidentified::{self, Accounts, Unidentified};
use super::verdict::{Cause, Verdict};
use super::wire::Wire;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a rank sent or received point-to-point, in a profile of sums and on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankSums {
    /// World rank.
    pub rank: u32,
    /// Sent or received.
    pub direction: Direction,
    /// Bytes in the profile.
    pub trace_bytes: u64,
    /// Bytes received that may be of these messages or of nonblocking collectives: the profile does not tell them apart.
    pub uncertain_bytes: u64,
    /// Calls of one message each, also those to nobody (`MPI_PROC_NULL`); `None` where persistent requests were started, any number of them.
    pub calls: Option<u64>,
    /// Messages on the wire, all of them.
    pub wire: Sums,
    /// Those of them that are the tracer's own.
    pub tracer: Sums,
    /// Bytes that the profile has and the wire has not, for a reason that is known.
    pub missing_bytes: u64,
    /// What is on the wire with a sender or receiver that is not identified, and may be of this
    /// rank.
    pub unidentified: Sums,
    /// What the comparison came to.
    pub verdict: Verdict,
    /// What explains a difference.
    pub causes: Vec<Cause>,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// By the rank.
    Sent,
    /// By the rank.
    Received,
}

impl Direction {
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
    /// Bytes that the wire lacks: at least, and at most.
    fn lacking(&self) -> (i128, i128) {
        let own = i128::from(self.wire.bytes) - i128::from(self.tracer.bytes) + i128::from(self.unidentified.bytes);
        let least = i128::from(self.trace_bytes) - own;
        (least, least + i128::from(self.uncertain_bytes))
    }

    fn own_messages(&self) -> u64 {
        (self.wire.messages - self.tracer.messages).saturating_add(self.unidentified.messages)
    }

    /// Takes what the wire lacks out of a pool of messages that may be of this rank, as far as it
    /// goes.
    fn take_unidentified(&mut self, pool: &mut Sums) {
        let Some(bytes) = u64::try_from(self.lacking().0).ok().filter(|bytes| *bytes > 0) else { return };
        let calls = self.calls.map(|calls| calls.saturating_sub(self.own_messages()));
        let missing = Sums { messages: calls.unwrap_or(u64::MAX), bytes };
        let mut rest = missing;
        unidentified::transfer(pool, &mut rest);
        self.unidentified = missing.less(rest);
    }

    /// Why a message of this rank may have no rank at its other end, or at this one.
    fn unidentified_cause(&self, is_identified: bool) -> Option<Cause> {
        let is_at_receiver = is_identified == (self.direction == Direction::Sent);
        let cause = if is_at_receiver { Cause::ReceiverNotIdentified } else { Cause::SenderNotIdentified };
        (self.unidentified != Sums::default()).then_some(cause)
    }
}

/// Gives the ranks that lack something what is on the wire without a rank: to those that are
/// identified what has them at one end, to others what has no rank at theirs.
fn give_unidentified(rows: &mut [RankSums], wire: &Wire, accounts: &mut [Unidentified]) {
    let mut pools: BTreeMap<(Direction, Option<u32>), Sums> = BTreeMap::new();
    for account in accounts.iter() {
        *pools.entry((Direction::Sent, account.src)).or_default() += account.wire;
        *pools.entry((Direction::Received, account.dst)).or_default() += account.wire;
    }
    let mut taken: BTreeMap<(Direction, u32), Sums> = BTreeMap::new();
    for row in rows {
        let rank = wire.is_identified(row.rank).then_some(row.rank);
        if let Some(pool) = pools.get_mut(&(row.direction, rank)) {
            row.take_unidentified(pool);
            taken.insert((row.direction, row.rank), row.unidentified);
        }
    }
    for account in accounts {
        let sent = account.src.and_then(|rank| taken.get(&(Direction::Sent, rank)));
        let received = account.dst.and_then(|rank| taken.get(&(Direction::Received, rank)));
        account.explaining = sent.or(received).copied().unwrap_or_default();
    }
}

/// Ranks that were compared.
#[derive(Default)]
pub(super) struct Ranks {
    pub(super) rows: Vec<RankSums>,
    /// The context of the tracer's own communicator.
    pub(super) tracer: Option<u32>,
    pub(super) unidentified: Vec<Unidentified>,
}

/// Compares all ranks of the profile and of the wire.
pub(super) fn ranks(sums: &CubeProfile, wire: &Wire, placement: &Placement, tolerance_percent: f64) -> Ranks {
    // The tracer's context is told by when it is used, and unidentified messages may be of another
    // job: where there are several ways, the one that leaves fewest ranks that differ, and of those
    // the first.
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
        Ranks { rows, tracer, unidentified }
    });
    let bad = |ranks: &Ranks| ranks.rows.iter().filter(|row| row.verdict == Verdict::Unexplained).count();
    ways.reduce(|best, next| if bad(&next) < bad(&best) { next } else { best }).unwrap_or_default()
}

/// Both directions of each rank, not yet judged.
fn rows(sums: &CubeProfile, wire: &Wire, tracer: Option<u32>) -> Vec<RankSums> {
    let mut on_wire: BTreeMap<(u32, Direction), (Sums, Sums)> = BTreeMap::new();
    for ((src, dst), envelope, stream) in wire.messages() {
        let stream = Sums { messages: stream.messages, bytes: stream.mpi_bytes };
        let is_tracers = tracer.is_some() && envelope.map(|envelope| envelope.context) == tracer;
        for end in [(src, Direction::Sent), (dst, Direction::Received)] {
            let (all, own) = on_wire.entry(end).or_default();
            *all += stream;
            if is_tracers {
                *own += stream;
            }
        }
    }
    let ranks: BTreeSet<u32> = sums.ranks.keys().copied().chain(on_wire.keys().map(|(rank, _)| *rank)).collect();
    let ends = ranks.into_iter().flat_map(|rank| [(rank, Direction::Sent), (rank, Direction::Received)]);
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
            (Direction::Sent, _) => (sent_bytes, 0),
            // All that is completed are messages.
            (Direction::Received, 0) => (received_bytes.saturating_add(completed_bytes), 0),
            (Direction::Received, _) => (received_bytes, completed_bytes),
        };
        let calls = if direction == Direction::Sent { send_calls } else { receive_calls };
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
            unidentified: Sums::default(),
            verdict: Verdict::Equal,
            causes: Vec::new(),
        }
    };
    ends.map(row).collect()
}

/// What the wire lacks of the sends and of the receives of some ranks.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    sent: i128,
    received: (i128, i128),
    /// The wire has more than the profile.
    is_exceeded: bool,
}

impl Balance {
    fn add(&mut self, row: &RankSums) {
        let (least, most) = row.lacking();
        self.is_exceeded |= most < 0 || row.calls.is_some_and(|calls| row.own_messages() > calls);
        match row.direction {
            Direction::Sent => self.sent += least,
            Direction::Received => {
                self.received.0 += least;
                self.received.1 += most;
            }
        }
    }

    /// What is lacking of the sends is lacking of the receives.
    fn is_even(&self) -> bool {
        !self.is_exceeded && (self.received.0..=self.received.1).contains(&self.sent)
    }
}

/// Nodes that lack something, told by what is lacking.
#[derive(Default)]
struct Lacking {
    /// Node of each rank, by a number.
    nodes: BTreeMap<u32, usize>,
    /// Nodes that send something else than they receive.
    odd: BTreeSet<usize>,
    /// Ports that were not captured may be why the odd ones lack something: as much at both ends, and no packet between two of them was seen.
    ports_explain_odd: bool,
    /// Nodes of one rank, which lack as much at both ends, and so does another node, of which no packet to or from it was seen. That it talks to itself
    /// is less likely.
    apart: BTreeSet<usize>,
}

impl Lacking {
    fn of(rows: &[RankSums], wire: &Wire, placement: &Placement) -> Self {
        let mut lacking = Self::default();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut ranks: Vec<BTreeSet<u32>> = Vec::new();
        for rank in rows.iter().map(|row| row.rank).chain(wire.traffic.keys().flat_map(|(src, dst)| [*src, *dst])) {
            let name = placement.node(rank).map_or_else(|| format!("rank {rank}"), str::to_owned);
            let number = *numbers.entry(name).or_insert(ranks.len());
            if number == ranks.len() {
                ranks.push(BTreeSet::new());
            }
            ranks[number].insert(rank);
            lacking.nodes.insert(rank, number);
        }
        let (mut balances, mut all) = (vec![Balance::default(); ranks.len()], Balance::default());
        let mut lacks = BTreeSet::new();
        for row in rows {
            balances[lacking.nodes[&row.rank]].add(row);
            all.add(row);
            if row.lacking().0 > 0 {
                lacks.insert(lacking.nodes[&row.rank]);
            }
        }
        lacking.odd = (0..ranks.len()).filter(|node| !balances[*node].is_even()).collect();
        let mut seen: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ranks.len()];
        for ((src, dst), _) in wire.traffic.iter().filter(|(_, traffic)| traffic.packets > 0) {
            let [src, dst] = [src, dst].map(|rank| lacking.nodes[rank]);
            seen[src].insert(dst);
            seen[dst].insert(src);
        }
        let is_seen_odd =
            lacking.odd.iter().any(|node| seen[*node].iter().any(|other| other != node && lacking.odd.contains(other)));
        lacking.ports_explain_odd = all.is_even() && !is_seen_odd;
        let is_apart = |node: &usize| {
            ranks[*node].len() == 1 && lacks.iter().any(|other| other != node && !seen[*node].contains(other))
        };
        lacking.apart = lacks.iter().copied().filter(|node| all.is_even() && is_apart(node)).collect();
        lacking
    }
}

fn judge(rows: &mut [RankSums], wire: &Wire, placement: &Placement, tolerance_percent: f64) {
    let lacking = Lacking::of(rows, wire, placement);
    for row in rows {
        let (least, most) = row.lacking();
        let node = lacking.nodes[&row.rank];
        let lost_packets = wire.lost_packets(|src, dst| match row.direction {
            Direction::Sent => src == row.rank,
            Direction::Received => dst == row.rank,
        });
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
        let known = match (lacking.odd.contains(&node), lacking.ports_explain_odd) {
            _ if is_exceeded => None,
            _ if least <= 0 => Some(None),
            (false, _) if lacking.apart.contains(&node) => Some(Some(Cause::NotCaptured)),
            (false, _) => Some(Some(Cause::SameNode)),
            (true, true) => Some(Some(Cause::NotCaptured)),
            (true, false) => {
                missing.is_some_and(|missing| missing > 0 && missing <= lost_packets).then_some(Some(Cause::Lost))
            }
        };
        if let Some(cause) = known {
            // What may be of collectives is not known to be missing.
            row.missing_bytes = u64::try_from(least).unwrap_or(0).saturating_add(row.unidentified.bytes);
            causes.extend(cause);
        }
        row.verdict = match known {
            // A node whose sums contradict each other, without a rank that is wrong by itself.
            None => Verdict::Unexplained,
            Some(_) if causes.is_empty() => Verdict::Equal,
            Some(_) => Verdict::Explained,
        };
        let within = |bytes: i128| bytes.unsigned_abs() as f64 * 100.0 <= tolerance_percent * row.trace_bytes as f64;
        if row.verdict == Verdict::Unexplained && tolerance_percent > 0.0 && within(least) {
            row.verdict = Verdict::Tolerated;
        }
        row.causes = causes.into_iter().collect();
    }
}
