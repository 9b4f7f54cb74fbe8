//! The two directions of connections: which queue pair at the one end belongs to which at the other.
//!
//! Strongest first: CM messages (REP answers REQ), the introductions of Open MPI's `udcm` and of MVAPICH2 (both sides list their queue
//! pairs), UCX's wire-up messages (a reply names the endpoint of the request, and both hold the queue pair number), answers that repeat
//! request numbers, answers with the PSN of requests, and that there is but one connection each way between two ports. Votes pair two queue pairs only where each is the other's clear
//! favourite; what is paired no longer competes, so the rest is looked at again.

use super::partners::{Evidence, Pairs};
use super::{Witnesses, moved, reading};
use crate::model::profile::CmRow;
use crate::model::traffic::ConnectionTotals;
use crate::model::{Few, HashMap, Introduction, Kind, QueuePair, Wireup};
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// Finds all pairs.
#[must_use]
pub fn pair(witnesses: &Witnesses<'_>) -> Pairs {
    let Witnesses { connections, cm, wireups, named, introductions, .. } = *witnesses;
    let states = !(cm.is_empty() && introductions.is_empty() && wireups.is_empty());
    let senders = if states { senders(connections) } else { Vec::new() };
    let mut stated = Stated { pairs: Pairs::default(), senders };
    by_cm(&mut stated, cm);
    by_introductions(&mut stated, introductions);
    by_wireup(&mut stated, wireups, named);
    let mut pairs = stated.pairs;
    let is_favorite: fn(u64, u64) -> bool = if is_lossy(connections) { beyond_chance } else { twice_as_many };
    by_votes(&mut pairs, connections, is_favorite, Evidence::Echo, |connection| &connection.echoes);
    by_votes(&mut pairs, connections, is_favorite, Evidence::Answers, |connection| &connection.partners);
    if !is_lossy(connections) {
        alone(&mut pairs, connections);
    }
    pairs
}

/// Ports that send to each queue pair, sorted. There may be a million.
fn senders(connections: &[Box<ConnectionTotals>]) -> Vec<(QueuePair, Endpoint)> {
    let mut senders: Vec<(QueuePair, Endpoint)> =
        connections.iter().map(|own| (reading::receiver(&own.key), own.key.src)).collect();
    senders.sort_unstable();
    senders
}

/// What connection messages state, as far as packets do not show that they mean another port.
struct Stated {
    pairs: Pairs,
    senders: Vec<(QueuePair, Endpoint)>,
}

impl Stated {
    fn pair(&mut self, a: QueuePair, b: QueuePair, evidence: Evidence) {
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

/// Share of the requests that may be missing, in percent, before answers whose request is missing outnumber chance.
const LOSSY_PERCENT: u64 = 2;

/// True where a capture lacks so many requests that what answers may have been sent to another queue pair.
fn is_lossy(connections: &[Box<ConnectionTotals>]) -> bool {
    let requests = connections.iter().filter(|own| !own.key.is_datagram()).map(|own| &own.continuity);
    let (seen, missing) = requests.fold((0, 0), |sum, own| (sum.0 + own.request_packets, sum.1 + own.missing_requests));
    missing * 100 > (seen + missing) * LOSSY_PERCENT
}

/// Where each answer finds its request, another queue pair has that request by chance only.
const fn twice_as_many(best: u64, next: u64) -> bool {
    best >= next.saturating_mul(2) && best > 0
}

/// Where requests are missing, every queue pair that has used a PSN is as likely to have kept it: only a difference of
/// four standard deviations tells (a fair coin gives it once in 30 000).
const fn beyond_chance(best: u64, next: u64) -> bool {
    let difference = best.saturating_sub(next);
    difference.saturating_mul(difference) >= best.saturating_add(next).saturating_mul(16) && best > 0
}

/// The queue pairs that both sides list belong together one by one. Introductions between the same two speakers are taken in turn.
fn by_introductions(stated: &mut Stated, introductions: &[Introduction]) {
    type Lists<'a> = BTreeMap<(QueuePair, QueuePair, u32), Vec<&'a [Qpn]>>;
    let mut lists: Lists<'_> = BTreeMap::new();
    let mut said_before = BTreeSet::new();
    for said in introductions {
        // They are repeated until they are acknowledged.
        if said_before.insert((said.from, said.to, said.number, &said.queue_pairs)) {
            lists.entry((said.from, said.to, said.number)).or_default().push(&said.queue_pairs);
        }
    }
    for (&(from, to, number), own) in &lists {
        let Some(others) = lists.get(&(to, from, number)).filter(|_| from < to) else { continue };
        for (own, others) in own.iter().zip(others) {
            for (&own, &other) in own.iter().zip(others.iter()) {
                let a = QueuePair { endpoint: from.endpoint, qpn: own };
                let b = QueuePair { endpoint: to.endpoint, qpn: other };
                stated.pair(a, b, Evidence::Introduction);
            }
        }
    }
}

fn by_cm(stated: &mut Stated, cm: &[CmRow]) {
    let requests: BTreeMap<_, _> = cm
        .iter()
        .filter(|row| row.message == "REQ")
        .filter_map(|row| Some(((row.src, row.dst, row.local_comm_id), row.qpn?)))
        .collect();
    for reply in cm.iter().filter(|row| row.message == "REP") {
        let (Some(remote), Some(qpn)) = (reply.remote_comm_id, reply.qpn) else { continue };
        if let Some(&requester) = requests.get(&(reply.dst, reply.src, remote)) {
            let (a, b) = (QueuePair { endpoint: reply.dst, qpn: requester }, QueuePair { endpoint: reply.src, qpn });
            stated.pair(a, b, Evidence::Cm);
        }
    }
}

/// The queue pairs that each of UCX's wire-up messages names: those of the sender that the receiver sends to.
#[must_use]
pub fn named(connections: &[Box<ConnectionTotals>], wireups: &[Wireup]) -> Vec<Vec<QueuePair>> {
    if wireups.is_empty() {
        return Vec::new();
    }
    let mut connected: BTreeMap<(Endpoint, Endpoint), BTreeSet<Qpn>> = BTreeMap::new();
    for key in connections.iter().map(|connection| &connection.key) {
        if key.kind == Kind::Data && !key.is_datagram() {
            connected.entry((key.dst, key.src)).or_default().insert(key.dest_qp);
        }
    }
    let of_message = |wireup: &Wireup| {
        let Some(own) = connected.get(&(wireup.src, wireup.dst)) else { return Vec::new() };
        let listed: BTreeSet<QueuePair> = moved::listed(wireup).collect();
        listed.into_iter().filter(|listed| listed.endpoint == wireup.src && own.contains(&listed.qpn)).collect()
    };
    wireups.iter().map(of_message).collect()
}

fn by_wireup(stated: &mut Stated, wireups: &[Wireup], named: &[Vec<QueuePair>]) {
    // A UCX endpoint by its owner and its id, the workers that have such an id, and the one queue pair that their messages name.
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
        // The id is the receiver's: it tells nothing of its worker, so it must be the only one with that id.
        let Some(others) = endpoints.get(&(dst, receiver)).filter(|workers| workers.len() == 1) else { continue };
        if let Some(other) = others.values().next().and_then(only) {
            stated.pair(end, other, Evidence::Wireup);
        }
    }
}

/// Where acknowledgements were not captured, one connection each way between two ports is one connection.
fn alone(pairs: &mut Pairs, connections: &[Box<ConnectionTotals>]) {
    // Sorted as the connections are; `None` where there is more than one.
    let mut receivers: Vec<((Endpoint, Endpoint, u8), Option<Qpn>)> = Vec::new();
    for key in connections.iter().map(|connection| &connection.key) {
        if key.kind == Kind::Data && !key.is_datagram() {
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
        if let (Some(there), Some(back)) = (only(src, dst, service), only(dst, src, service)) {
            pairs.pair(there, back, Evidence::Alone);
        }
    }
}

/// The candidate with clearly the most votes.
fn favorite(candidates: &Few<QueuePair, u64>, is_favorite: fn(u64, u64) -> bool) -> Option<QueuePair> {
    let (best, most) = candidates.iter().max_by_key(|(end, count)| (**count, std::cmp::Reverse(**end)))?;
    let next = candidates.iter().filter(|(end, _)| *end != best).map(|(_, count)| *count).max().unwrap_or(0);
    is_favorite(*most, next).then_some(*best)
}

fn by_votes(
    pairs: &mut Pairs,
    connections: &[Box<ConnectionTotals>],
    is_favorite: fn(u64, u64) -> bool,
    evidence: Evidence,
    cast: impl Fn(&ConnectionTotals) -> &Few<Qpn, u64>,
) {
    // There may be as many as connections: looked up, and never gone through in an order that matters.
    let mut votes: HashMap<QueuePair, Few<QueuePair, u64>> = HashMap::default();
    for connection in connections {
        let key = &connection.key;
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        for (&qpn, &count) in cast(connection).iter() {
            let sender = QueuePair { endpoint: key.src, qpn };
            *votes.entry(receiver).or_default().or_default(sender) += count;
            *votes.entry(sender).or_default().or_default(receiver) += count;
        }
    }
    loop {
        votes.retain(|end, _| !pairs.partners.contains_key(end));
        for candidates in votes.values_mut() {
            candidates.retain(|end| !pairs.partners.contains_key(end));
        }
        let favourites: HashMap<QueuePair, QueuePair> =
            votes.iter().filter_map(|(end, candidates)| Some((*end, favorite(candidates, is_favorite)?))).collect();
        let mutual: Vec<(QueuePair, QueuePair)> = favourites
            .iter()
            .filter(|(end, other)| end < other && favourites.get(other) == Some(end))
            .map(|(end, other)| (*end, *other))
            .collect();
        if mutual.is_empty() {
            return;
        }
        mutual.into_iter().for_each(|(end, other)| pairs.pair(end, other, evidence));
    }
}
