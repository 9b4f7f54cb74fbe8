//! Finds the two connections that are the two directions of one: a BTH names the receiver's queue
//! pair only.
//!
//! A response (ACK, READ response, atomic acknowledgement) carries the PSN of its request. So each
//! response on B -> A votes for the connections A -> B on which a request with that PSN is pending:
//!
//! ```text
//! A -> B, QP 7:  SEND 41 (asks for an ACK)                        pending: 41 {7}
//! A -> B, QP 9:  SEND 41                                          pending: 41 {7, 9}
//! B -> A, QP 5:  ACK 41    votes for 7 and 9
//! B -> A, QP 5:  ACK 42    votes for 7 only, if 9 has sent no 42
//! ```
//! If a library starts every queue pair at PSN 0, a single vote is weak evidence, but the sums are
//! clear. `ranks` weighs them. A PSN that several connections wait for stays pending for all of them
//! until it has as many responses. A response before its request counts against a candidate:
//!
//! ```text
//! B -> A, QP 5:  ACK 43    if 7 has not sent 43 yet, 5 probably does not respond to 7
//! ```

use super::ballot::Ballot;
use super::waiting::PendingRequests;
use crate::model::{ConnectionKey, PagedVec, SeededHasher, clear_favorite};
use hashbrown::HashTable;
use ibscope_parsers::{Endpoint, Psn};
use std::hash::BuildHasher as _;

/// Votes that pair a connection for good: its requests and its responses cast and get no more
/// votes.
const ENOUGH_VOTES: u32 = 64;

/// Pending requests, and votes for the other direction of connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionPairing {
    /// Pending requests, by sender and receiver.
    waiting: PagedVec<((Endpoint, Endpoint), PendingRequests)>,
    index: HashTable<u32>,
    hasher: SeededHasher,
    ballot: Ballot,
    /// Connections whose requests are paired for good.
    paired_requests: ConnectionSet,
    /// By connection: the partner of one whose responses are paired for good. Its votes no longer
    /// change, so they are counted once.
    paired_responses: Vec<Option<Partner>>,
}

/// The connection whose requests another one responds to, if the votes are clear.
#[derive(Clone, Copy, Debug)]
struct Partner(Option<u32>);

/// A set of connection numbers.
#[derive(Debug, Default)]
struct ConnectionSet(Vec<bool>);

impl ConnectionSet {
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

impl ConnectionPairing {
    /// Takes a request that expects a response with this PSN.
    pub(super) fn request(&mut self, key: &ConnectionKey, connection: u32, psn: u32) {
        if self.paired_requests.contains(connection) {
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
        waiting.push((pair, PendingRequests::default()));
        let hash = |number: &u32| hasher.hash_one(waiting[*number as usize].0);
        index.insert_unique(hasher.hash_one(pair), number, hash);
        number
    }

    /// Takes a response with this PSN. `last_sent` is the PSN of the last request of a connection of
    /// which no request is missing.
    pub(super) fn response(
        &mut self,
        key: &ConnectionKey,
        connection: u32,
        psn: u32,
        last_sent: impl Fn(u32) -> Option<u32>,
    ) {
        if self.paired(connection).is_some() {
            return;
        }
        let Some(number) = self.find((key.dst, key.src)) else { return };
        let waiting = &mut self.waiting[number as usize].1;
        let candidates = waiting.of(psn);
        self.ballot.note_early(connection, |candidate| {
            let is_unsent = |last: &u32| Psn::new(psn).since(Psn::new(*last)) > 0;
            if candidates.contains(&candidate) { None } else { last_sent(candidate).filter(is_unsent) }
        });
        let mut paired = None;
        for candidate in &candidates {
            if self.ballot.vote(connection, *candidate) == ENOUGH_VOTES {
                paired = Some(*candidate);
            }
        }
        // A clear candidate has its response now. Between others a guess would remove the request of the
        // wrong one, and the next response would vote for the wrong one alone.
        let votes = self.ballot.votes(connection).map(|(partner, count)| (partner, u64::from(count)));
        let among = votes.filter(|(partner, _)| candidates.contains(partner));
        let favorite = if candidates.len() == 1 { candidates.first().copied() } else { clear_favorite(among) };
        match candidates.iter().position(|candidate| Some(*candidate) == favorite) {
            Some(index) => waiting.remove(psn, index),
            None if candidates.is_empty() => {}
            None => waiting.answer(psn),
        }
        let Some(request) = paired else { return };
        self.paired_requests.insert(request);
        let index = connection as usize;
        if index >= self.paired_responses.len() {
            self.paired_responses.resize(index + 1, None);
        }
        self.paired_responses[index] = Some(Partner(self.ballot.partner(connection)));
        // Requests that a later response completed would stay pending; those of a paired connection
        // are removed.
        waiting.forget(request);
    }

    /// The votes of the responding connections.
    pub(super) const fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    /// The connections that have voted for this one and may respond to its requests, in ascending
    /// order.
    pub(super) fn responders(&mut self, request: u32) -> impl Iterator<Item = u32> + '_ {
        self.ballot.responders(request)
    }

    /// The connection whose requests this one responds to, if the votes are clear by now.
    pub(super) fn partner(&self, connection: u32) -> Option<u32> {
        self.paired(connection).map_or_else(|| self.ballot.partner(connection), |Partner(partner)| partner)
    }

    fn paired(&self, connection: u32) -> Option<Partner> {
        self.paired_responses.get(connection as usize).copied().flatten()
    }
}
