//! Connections that look like one library's -> those that make a job: endpoints that talk to each other, as different ranks.
//!
//! Other traffic may read as a message of rank 0 again and again. A job has several ranks, and each of them is at one port.

use crate::model::traffic::ConnectionTotals;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Form;
use std::collections::{BTreeMap, BTreeSet};

/// Endpoints that talk to each other, directly or through others.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Another endpoint of the same group, or itself.
    towards: BTreeMap<Endpoint, Endpoint>,
}

impl Groups {
    /// Two endpoints talk to each other.
    pub(super) fn join(&mut self, a: Endpoint, b: Endpoint) {
        let (a, b) = (self.group(a), self.group(b));
        self.towards.insert(a.max(b), a.min(b));
    }

    /// The endpoint that stands for the group.
    pub(super) fn group(&mut self, endpoint: Endpoint) -> Endpoint {
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
}

/// Connections of one form, by the endpoints that talk to each other.
#[derive(Debug, Default)]
pub(super) struct Jobs<'a> {
    connections: Vec<(&'a ConnectionTotals, Option<u32>)>,
    groups: Groups,
}

impl<'a> Jobs<'a> {
    /// Adds a connection and the world rank of its sender; `None` where the library has introduced it without one.
    pub(super) fn add(&mut self, connection: &'a ConnectionTotals, rank: Option<u32>) {
        self.connections.push((connection, rank));
        self.groups.join(connection.key.src, connection.key.dst);
    }

    /// All but those of groups in which all senders are one rank: several ports cannot be, and where only one sends, its messages must be
    /// of a kind that nothing else looks like, or UCX must have wired it up.
    pub(super) fn believable(mut self, form: Form, wired_up: &BTreeSet<Endpoint>) -> Vec<&'a ConnectionTotals> {
        let is_distinct = matches!(form, Form::Rxm | Form::UcxUd | Form::Ob1 | Form::Nccl);
        let mut claims: BTreeMap<Endpoint, BTreeSet<(Endpoint, Option<u32>)>> = BTreeMap::new();
        for (connection, rank) in &self.connections {
            let group = self.groups.group(connection.key.src);
            claims.entry(group).or_default().insert((connection.key.src, *rank));
        }
        let is_job = |claims: &BTreeSet<(Endpoint, Option<u32>)>| {
            let senders: BTreeSet<Endpoint> = claims.iter().map(|(sender, _)| *sender).collect();
            let ranks: BTreeSet<Option<u32>> = claims.iter().map(|(_, rank)| *rank).collect();
            let is_wired_up = || senders.iter().any(|sender| wired_up.contains(sender));
            ranks.len() > 1 || ranks.contains(&None) || senders.len() < 2 && (is_distinct || is_wired_up())
        };
        let groups = &mut self.groups;
        let of_jobs =
            self.connections.into_iter().filter(|(connection, _)| is_job(&claims[&groups.group(connection.key.src)]));
        of_jobs.map(|(connection, _)| connection).collect()
    }
}
