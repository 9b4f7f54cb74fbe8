//! Which two directed connections are the two directions of one: the BTH names the receiver's queue pair only.
//!
//! An answer (ACK, READ response, atomic acknowledgement) repeats the PSN of the request it answers. So each answer on
//! B -> A votes for the connections A -> B on which a request with that PSN waits for one:
//!
//! ```text
//! A -> B, QP 7:  SEND 41 (asks for an ACK)                        waiting: 41 {7}
//! A -> B, QP 9:  SEND 41                                          waiting: 41 {7, 9}
//! B -> A, QP 5:  ACK 41    votes for 7 and 9
//! B -> A, QP 5:  ACK 42    votes for 7 only, where 9 has sent no 42
//! ```
//! Libraries that start every queue pair at PSN 0 make single votes worthless and sums clear. `ranks` weighs them.

use super::ballot::Ballot;
use super::waiting::Waiting;
use crate::model::{ConnectionKey, Paged, Seeded};
use hashbrown::HashTable;
use ibscope_parsers::Endpoint;
use std::hash::BuildHasher as _;

/// Votes that settle a connection's partner: from there on neither its requests nor its answers are looked at.
const SETTLED: u32 = 64;

/// Votes for the other direction of connections.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    /// Requests by sender and receiver, and where they are.
    waiting: Paged<((Endpoint, Endpoint), Waiting)>,
    index: HashTable<u32>,
    hasher: Seeded,
    ballot: Ballot,
    /// Connections whose requests, and whose answers, need not be looked at any more.
    settled_requests: Settled,
    settled_answers: Settled,
}

/// Numbers of connections.
#[derive(Debug, Default)]
struct Settled(Vec<bool>);

impl Settled {
    fn contains(&self, connection: u32) -> bool {
        self.0.get(connection as usize).copied().unwrap_or(false)
    }

    fn insert(&mut self, connection: u32) {
        let index = connection as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, false);
        }
        self.0[index] = true;
    }
}

impl Pairing {
    /// A request that wants an answer with this PSN.
    pub(super) fn request(&mut self, key: &ConnectionKey, connection: u32, psn: u32) {
        if self.settled_requests.contains(connection) {
            return;
        }
        let pair = (key.src, key.dst);
        let number = self.find(pair).unwrap_or_else(|| self.add(pair));
        self.waiting[number as usize].1.add(psn, connection);
    }

    fn find(&self, pair: (Endpoint, Endpoint)) -> Option<u32> {
        let is_it = |number: &u32| self.waiting[*number as usize].0 == pair;
        self.index.find(self.hasher.hash_one(pair), is_it).copied()
    }

    fn add(&mut self, pair: (Endpoint, Endpoint)) -> u32 {
        let Self { waiting, index, hasher, .. } = self;
        let number = waiting.len() as u32;
        waiting.push((pair, Waiting::default()));
        let hash = |number: &u32| hasher.hash_one(waiting[*number as usize].0);
        index.insert_unique(hasher.hash_one(pair), number, hash);
        number
    }

    /// An answer with this PSN.
    pub(super) fn answer(&mut self, key: &ConnectionKey, connection: u32, psn: u32) {
        if self.settled_answers.contains(connection) {
            return;
        }
        let Some(number) = self.find((key.dst, key.src)) else { return };
        let waiting = &mut self.waiting[number as usize].1;
        let candidates = waiting.of(psn);
        let mut settled = None;
        for candidate in &candidates {
            if self.ballot.vote(connection, *candidate) == SETTLED {
                settled = Some(*candidate);
            }
        }
        // The likeliest of the candidates has its answer now.
        let votes = self.ballot.votes(connection);
        let votes_for =
            |candidate: &u32| votes.iter().find(|(partner, _)| partner == candidate).map(|(_, count)| *count);
        if let Some(index) = (0..candidates.len()).max_by_key(|&index| votes_for(&candidates[index])) {
            waiting.remove(psn, index);
        }
        let Some(request) = settled else { return };
        self.settled_requests.insert(request);
        self.settled_answers.insert(connection);
        // Requests that a later answer completed wait for ever: those of a settled connection are let go.
        waiting.forget(request);
    }

    /// The votes of connections that answer.
    pub(super) const fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    /// The connection whose requests this one answers, if that is clear by now.
    pub(super) fn partner(&self, connection: u32) -> Option<u32> {
        self.ballot.partner(connection)
    }
}
