//! Connections that look like one library's -> those that make a job: endpoints that talk to each other, as different ranks.
//!
//! Other traffic may read as a message of rank 0 again and again. A job has several ranks, and each of them is at one port.

use crate::model::traffic::ConnectionTotals;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Form;
use std::collections::{BTreeMap, BTreeSet};

/// Connections of one form, by the endpoints that talk to each other.
#[derive(Debug, Default)]
pub(super) struct Jobs<'a> {
    connections: Vec<(&'a ConnectionTotals, Option<u32>)>,
    /// Any other endpoint of the same group, or itself.
    towards: BTreeMap<Endpoint, Endpoint>,
}

impl<'a> Jobs<'a> {
    /// Adds a connection and the world rank of its sender; `None` where the library has introduced it without one.
    pub(super) fn add(&mut self, connection: &'a ConnectionTotals, rank: Option<u32>) {
        self.connections.push((connection, rank));
        let (a, b) = (self.group(connection.key.src), self.group(connection.key.dst));
        self.towards.insert(a.max(b), a.min(b));
    }

    fn group(&mut self, endpoint: Endpoint) -> Endpoint {
        let mut at = endpoint;
        loop {
            let next = *self.towards.entry(at).or_insert(at);
            if next == at {
                self.towards.insert(endpoint, at);
                return at;
            }
            at = next;
        }
    }

    /// All but those of groups in which all senders are one rank: several ports cannot be, and where only one sends, its messages must be
    /// of a kind that nothing else looks like, or UCX must have wired it up.
    pub(super) fn believable(mut self, form: Form, wired_up: &BTreeSet<Endpoint>) -> Vec<&'a ConnectionTotals> {
        let is_distinct = matches!(form, Form::Rxm | Form::UcxUd | Form::Ob1 | Form::Nccl);
        let mut claims: BTreeMap<Endpoint, BTreeSet<(Endpoint, Option<u32>)>> = BTreeMap::new();
        for (connection, rank) in std::mem::take(&mut self.connections) {
            let group = self.group(connection.key.src);
            claims.entry(group).or_default().insert((connection.key.src, rank));
            self.connections.push((connection, rank));
        }
        let is_job = |claims: &BTreeSet<(Endpoint, Option<u32>)>| {
            let senders: BTreeSet<Endpoint> = claims.iter().map(|(sender, _)| *sender).collect();
            let ranks: BTreeSet<Option<u32>> = claims.iter().map(|(_, rank)| *rank).collect();
            let is_wired_up = || senders.iter().any(|sender| wired_up.contains(sender));
            ranks.len() > 1 || ranks.contains(&None) || senders.len() < 2 && (is_distinct || is_wired_up())
        };
        let connections = std::mem::take(&mut self.connections);
        let of_jobs =
            connections.into_iter().filter(|(connection, _)| is_job(&claims[&self.group(connection.key.src)]));
        of_jobs.map(|(connection, _)| connection).collect()
    }
}
