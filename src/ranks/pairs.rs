//! Pairs of queue pairs: the two ends of each connection.
//!
//! Evidence, strongest first:
//!
//! 1. CM messages: a REP responds to a REQ.
//! 2. Connection messages of Open MPI's `udcm` and of MVAPICH2: both sides list their queue pairs.
//! 3. UCX wire-up messages: a reply names the endpoint of the request, and both contain queue pair
//!    numbers.
//! 4. Responses that return request numbers.
//! 5. Responses with the PSNs of requests.
//! 6. A single connection in each direction between two ports.
//!
//! Invariant: votes pair two queue pairs only if each is the other's clear favorite. Paired queue
//! pairs drop out of the vote, and the rest vote again. If whole connections are missing,
//! directions of two different connections may match, because UCX starts all of them at the same
//! PSN. So queue pairs with inconsistent numbers stay without a partner ([`PairNumbers`]).

use super::pair_numbers::PairNumbers;
use super::partners::{PairEvidence, QueuePairPartners};
use super::{IdentityEvidence, aliases, tag_layout};
use crate::model::profile::CmRow;
use crate::model::{ConnectionTotals, MpiConnectionMessage, QueuePair, TrafficKind, VecMap, WorkerWireup};
use ibscope_parsers::{Endpoint, Qpn};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Finds the pairs of all connected queue pairs.
#[must_use]
pub fn pair(evidence: &IdentityEvidence<'_>) -> QueuePairPartners {
    let IdentityEvidence { connections, cm, wireups, named_queue_pairs: named, connection_messages: messages, .. } =
        *evidence;
    let has_messages = !(cm.is_empty() && messages.is_empty() && wireups.is_empty());
    let senders = if has_messages { senders(connections) } else { Vec::new() };
    let mut stated = ConnectionMessagePairs { pairs: QueuePairPartners::default(), senders };
    by_cm(&mut stated, cm);
    by_connection_messages(&mut stated, messages);
    by_wireup(&mut stated, wireups, named);
    let mut pairs = stated.pairs;
    let is_lossy = is_lossy(connections);
    let is_favorite: fn(u64, u64) -> bool = if is_lossy { beyond_chance } else { twice_as_many };
    let numbers = PairNumbers::new(connections, evidence.is_window);
    let echoes = votes(connections, |connection| &connection.echoes);
    by_votes(&mut pairs, echoes, (is_favorite, &numbers), PairEvidence::Echo);
    let responses = votes(connections, |connection| &connection.partners);
    by_votes(&mut pairs, responses, (is_favorite, &numbers), PairEvidence::Responses);
    if !is_lossy {
        by_only_connection(&mut pairs, connections, &numbers);
    }
    pairs
}

/// Ports that send to each queue pair, sorted. There may be a million.
fn senders(connections: &[Box<ConnectionTotals>]) -> Vec<(QueuePair, Endpoint)> {
    let mut senders: Vec<(QueuePair, Endpoint)> =
        connections.iter().map(|own| (tag_layout::receiver(&own.key), own.key.src)).collect();
    senders.par_sort_unstable();
    senders
}

/// Pairs that connection messages state, unless packets show that they mean another port.
struct ConnectionMessagePairs {
    pairs: QueuePairPartners,
    senders: Vec<(QueuePair, Endpoint)>,
}

impl ConnectionMessagePairs {
    fn pair(&mut self, a: QueuePair, b: QueuePair, evidence: PairEvidence) {
        let receives_from = |end: QueuePair, other: QueuePair| {
            let first = self.senders.partition_point(|(to, _)| *to < end);
            let mut ports = self.senders[first..].iter().take_while(|(to, _)| *to == end).peekable();
            ports.peek().is_none() || ports.any(|(_, port)| *port == other.endpoint)
        };
        if receives_from(a, b) && receives_from(b, a) {
            self.pairs.pair(a, b, evidence);
        }
    }
}

/// Share of missing requests, in percent, above which responses without a request outnumber chance.
const LOSSY_PERCENT: u64 = 2;

/// True if so many requests are missing that responses may belong to another queue pair.
fn is_lossy(connections: &[Box<ConnectionTotals>]) -> bool {
    let requests = connections.iter().filter(|own| !own.key.is_datagram()).map(|own| &own.continuity);
    let (seen, missing) = requests.fold((0, 0), |sum, own| (sum.0 + own.request_packets, sum.1 + own.missing_requests));
    missing * 100 > (seen + missing) * LOSSY_PERCENT
}

/// If every response finds its request, another queue pair has that request only by chance.
const fn twice_as_many(best: u64, next: u64) -> bool {
    best >= next.saturating_mul(2) && best > 0
}

/// If requests are missing, every queue pair that used a PSN may be the one that lost it. Only a
/// difference of four standard deviations decides (a fair coin exceeds it once in 30 000).
const fn beyond_chance(best: u64, next: u64) -> bool {
    let difference = best.saturating_sub(next);
    difference.saturating_mul(difference) >= best.saturating_add(next).saturating_mul(16) && best > 0
}

/// Pairs the queue pairs that both sides list, in list order. Several connection messages between
/// the same two processes are paired in order.
fn by_connection_messages(stated: &mut ConnectionMessagePairs, messages: &[MpiConnectionMessage]) {
    type Lists<'a> = BTreeMap<(QueuePair, QueuePair, u32), Vec<&'a [Qpn]>>;
    let mut lists: Lists<'_> = BTreeMap::new();
    let mut seen_messages = BTreeSet::new();
    for message in messages {
        // Connection messages are retransmitted until they are acknowledged.
        if seen_messages.insert((message.from, message.to, message.number, &message.queue_pairs)) {
            lists.entry((message.from, message.to, message.number)).or_default().push(&message.queue_pairs);
        }
    }
    for (&(from, to, number), own) in &lists {
        let Some(others) = lists.get(&(to, from, number)).filter(|_| from < to) else { continue };
        for (own, others) in own.iter().zip(others) {
            for (&own, &other) in own.iter().zip(others.iter()) {
                let a = QueuePair { endpoint: from.endpoint, qpn: own };
                let b = QueuePair { endpoint: to.endpoint, qpn: other };
                stated.pair(a, b, PairEvidence::ConnectionMessage);
            }
        }
    }
}

fn by_cm(stated: &mut ConnectionMessagePairs, cm: &[CmRow]) {
    let requests: BTreeMap<_, _> = cm
        .iter()
        .filter(|row| row.message == "REQ")
        .filter_map(|row| Some(((row.src, row.dst, row.local_comm_id), row.qpn?)))
        .collect();
    for reply in cm.iter().filter(|row| row.message == "REP") {
        let (Some(remote), Some(qpn)) = (reply.remote_comm_id, reply.qpn) else { continue };
        if let Some(&requester) = requests.get(&(reply.dst, reply.src, remote)) {
            let (a, b) = (QueuePair { endpoint: reply.dst, qpn: requester }, QueuePair { endpoint: reply.src, qpn });
            stated.pair(a, b, PairEvidence::Cm);
        }
    }
}

/// For each UCX wire-up message, the sender's queue pairs that it lists and the receiver sends to.
#[must_use]
pub fn named_queue_pairs(connections: &[Box<ConnectionTotals>], wireups: &[WorkerWireup]) -> Vec<Vec<QueuePair>> {
    if wireups.is_empty() {
        return Vec::new();
    }
    let mut connected: BTreeMap<(Endpoint, Endpoint), BTreeSet<Qpn>> = BTreeMap::new();
    for key in connections.iter().map(|connection| &connection.key) {
        if key.kind == TrafficKind::Data && !key.is_datagram() {
            connected.entry((key.dst, key.src)).or_default().insert(key.dest_qp);
        }
    }
    let of_message = |wireup: &WorkerWireup| {
        let Some(own) = connected.get(&(wireup.src, wireup.dst)) else { return Vec::new() };
        let listed: BTreeSet<QueuePair> = aliases::listed_queue_pairs(wireup).collect();
        listed.into_iter().filter(|listed| listed.endpoint == wireup.src && own.contains(&listed.qpn)).collect()
    };
    wireups.iter().map(of_message).collect()
}

fn by_wireup(stated: &mut ConnectionMessagePairs, wireups: &[WorkerWireup], named: &[Vec<QueuePair>]) {
    // UCX endpoints by owner and id: the workers with such an id, and the queue pairs that their
    // messages name.
    let mut endpoints: BTreeMap<(Endpoint, u64), BTreeMap<u64, BTreeSet<QueuePair>>> = BTreeMap::new();
    let mut replies = BTreeSet::new();
    for (wireup, ends) in wireups.iter().zip(named) {
        if ends.is_empty() {
            continue;
        }
        let workers = endpoints.entry((wireup.src, wireup.sender_endpoint)).or_default();
        workers.entry(wireup.worker).or_default().extend(ends);
        if wireup.receiver_endpoint != 0 {
            replies.insert((wireup.src, wireup.worker, wireup.sender_endpoint, wireup.dst, wireup.receiver_endpoint));
        }
    }
    for (src, worker, sender, dst, receiver) in replies {
        let only = |ends: &BTreeSet<QueuePair>| ends.iter().next().copied().filter(|_| ends.len() == 1);
        let own = endpoints.get(&(src, sender)).and_then(|workers| workers.get(&worker));
        let Some(end) = own.and_then(only) else { continue };
        // The id is the receiver's and does not identify its worker, so only one worker may have
        // it.
        let Some(others) = endpoints.get(&(dst, receiver)).filter(|workers| workers.len() == 1) else { continue };
        if let Some(other) = others.values().next().and_then(only) {
            stated.pair(end, other, PairEvidence::Wireup);
        }
    }
}

/// Without captured acknowledgements, a single connection in each direction between two ports is
/// one connection.
fn by_only_connection(pairs: &mut QueuePairPartners, connections: &[Box<ConnectionTotals>], numbers: &PairNumbers<'_>) {
    // Sorted like the connections; `None` if there are several.
    let mut receivers: Vec<((Endpoint, Endpoint, u8), Option<Qpn>)> = Vec::new();
    for key in connections.iter().map(|connection| &connection.key) {
        if key.kind == TrafficKind::Data && !key.is_datagram() {
            let between = (key.src, key.dst, key.service);
            match receivers.last_mut().filter(|(last, _)| *last == between) {
                Some((_, only)) => *only = only.filter(|only| *only == key.dest_qp),
                None => receivers.push((between, Some(key.dest_qp))),
            }
        }
    }
    let only = |src, dst, service| {
        let at = receivers.binary_search_by_key(&(src, dst, service), |(between, _)| *between).ok()?;
        receivers[at].1.map(|qpn| QueuePair { endpoint: dst, qpn })
    };
    for &((src, dst, service), _) in receivers.iter().filter(|((src, dst, _), _)| src < dst) {
        if let (Some(there), Some(back)) = (only(src, dst, service), only(dst, src, service))
            && numbers.admit(there, back)
        {
            pairs.pair(there, back, PairEvidence::OnlyConnection);
        }
    }
}

/// Votes for a pair of queue pairs, from responses or from repeated request numbers.
struct Vote {
    end: QueuePair,
    candidate: QueuePair,
    count: u64,
    /// Responses come before the requests of the candidate: other votes do not outweigh this.
    is_refuted: bool,
}

impl Vote {
    const fn ends(&self) -> (QueuePair, QueuePair) {
        (self.end, self.candidate)
    }
}

/// The votes of all connections, sorted: each pair of queue pairs in both orders, once.
fn votes(connections: &[Box<ConnectionTotals>], cast: impl Fn(&ConnectionTotals) -> &VecMap<Qpn, u64>) -> Vec<Vote> {
    let mut votes: Vec<Vote> = Vec::new();
    for connection in connections {
        let key = &connection.key;
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        for (&qpn, &count) in cast(connection).iter() {
            let sender = QueuePair { endpoint: key.src, qpn };
            let both = [(receiver, sender), (sender, receiver)];
            votes.extend(both.map(|(end, candidate)| Vote { end, candidate, count, is_refuted: count == 0 }));
        }
    }
    votes.par_sort_unstable_by_key(Vote::ends);
    votes.dedup_by(|vote, kept| {
        let is_same = vote.ends() == kept.ends();
        if is_same {
            kept.count += vote.count;
            kept.is_refuted |= vote.is_refuted;
        }
        is_same
    });
    votes.retain(|vote| !vote.is_refuted);
    votes
}

/// The candidate with clearly the most votes of one queue pair.
fn favorite(votes: &[Vote], is_favorite: fn(u64, u64) -> bool) -> Option<QueuePair> {
    let best = votes.iter().max_by_key(|vote| (vote.count, std::cmp::Reverse(vote.candidate)))?;
    let others = votes.iter().filter(|vote| vote.candidate != best.candidate);
    let next = others.map(|vote| vote.count).max().unwrap_or(0);
    is_favorite(best.count, next).then_some(best.candidate)
}

/// Pairs queue pairs that are each other's favorite, until no two are left.
fn by_votes(
    pairs: &mut QueuePairPartners,
    mut votes: Vec<Vote>,
    (is_favorite, numbers): (fn(u64, u64) -> bool, &PairNumbers<'_>),
    evidence: PairEvidence,
) {
    let mut rejected: BTreeSet<QueuePair> = BTreeSet::new();
    loop {
        let is_open = |end: &QueuePair| !pairs.partners.contains_key(end) && !rejected.contains(end);
        votes.retain(|vote| is_open(&vote.end) && is_open(&vote.candidate));
        // There may be as many queue pairs as connections, so all threads take part.
        let by_end: Vec<&[Vote]> = votes.chunk_by(|a, b| a.end == b.end).collect();
        let favorites: Vec<(QueuePair, QueuePair)> =
            by_end.par_iter().filter_map(|own| Some((own[0].end, favorite(own, is_favorite)?))).collect();
        let favorite_of = |end: &QueuePair| {
            let at = favorites.binary_search_by_key(end, |(end, _)| *end).ok()?;
            Some(favorites[at].1)
        };
        let mutual: Vec<(QueuePair, QueuePair, bool)> = favorites
            .par_iter()
            .filter(|(end, other)| end < other && favorite_of(other) == Some(*end))
            .map(|&(end, other)| (end, other, numbers.admit(end, other)))
            .collect();
        if mutual.is_empty() {
            return;
        }
        pairs.reserve(mutual.len());
        for (end, other, is_admitted) in mutual {
            if is_admitted {
                pairs.pair(end, other, evidence);
            } else {
                rejected.extend([end, other]);
            }
        }
    }
}
