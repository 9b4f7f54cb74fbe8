//! Queue pairs -> processes -> ranks.
//!
//! A process is a set of queue pairs. Which belong together is known where a library says so (the worker of UCX's wire-up
//! messages); which rank they are is voted by the envelopes that went out from them, and stated by the connection messages
//! of Open MPI's `openib`.

use super::Belief;
use super::pairs::{self, Pairs};
use crate::model::profile::CmRow;
use crate::model::traffic::ConnectionTotals;
use crate::model::{QueuePair, Wireup};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// What speaks for the ranks of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    /// Its queue pairs.
    pub(super) queue_pairs: BTreeSet<QueuePair>,
    /// Envelopes on `MPI_COMM_WORLD` by the rank they name.
    pub(super) envelopes: BTreeMap<u32, u64>,
    /// Connection messages by the rank they state.
    pub(super) stated: BTreeMap<u32, u64>,
}

impl Process {
    /// Adds what speaks for another.
    pub(super) fn add(&mut self, other: &Self) {
        for (votes, others) in [(&mut self.envelopes, &other.envelopes), (&mut self.stated, &other.stated)] {
            for (rank, count) in others {
                *votes.entry(*rank).or_default() += count;
            }
        }
    }
}

/// The processes behind all queue pairs that send, and the votes of senders whose queue pair is not known, by endpoint.
pub(super) fn find(
    connections: &[ConnectionTotals],
    belief: &Belief,
    paired: &Pairs,
    cm: &[CmRow],
    wireups: &[Wireup],
) -> (Vec<Process>, BTreeMap<Endpoint, BTreeMap<u32, u64>>) {
    let mut groups = Groups::default();
    let connected = pairs::connected(connections);
    let mut workers: BTreeMap<(Endpoint, u64), BTreeSet<QueuePair>> = BTreeMap::new();
    for wireup in wireups {
        let queue_pairs = workers.entry((wireup.src, wireup.worker)).or_default();
        queue_pairs.extend(wireup.datagram_qp.map(|qpn| QueuePair { endpoint: wireup.src, qpn }));
        // A number that stands in the address by chance would join two processes.
        if let [end] = pairs::named_in(wireup, &connected)[..] {
            queue_pairs.insert(end);
        }
    }
    for queue_pairs in workers.values() {
        groups.join(queue_pairs);
    }
    let mut loose: BTreeMap<Endpoint, BTreeMap<u32, u64>> = BTreeMap::new();
    for connection in connections {
        let key = &connection.key;
        let Some(form) = belief.form(key) else { continue };
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        let sender = if key.is_datagram() {
            Some(QueuePair { endpoint: key.src, qpn: key.src_qp })
        } else {
            paired.partner(receiver).map(|(end, _)| end)
        };
        let votes =
            connection.votes.world.iter().filter(|((voted, layout, _), _)| *voted == form && *layout == belief.layout);
        let into = match sender {
            Some(sender) => &mut groups.process(sender).envelopes,
            None => loose.entry(key.src).or_default(),
        };
        for (&(_, _, rank), &count) in votes {
            *into.entry(rank).or_default() += count;
        }
        // The receiver may never send: it is a process all the same.
        groups.process(receiver);
    }
    for row in cm {
        if let (Some(qpn), Some(rank), "REQ" | "REP") = (row.qpn, row.world_rank, row.message.as_str()) {
            *groups.process(QueuePair { endpoint: row.src, qpn }).stated.entry(rank).or_default() += 1;
        }
    }
    (groups.processes.into_iter().flatten().collect(), loose)
}

/// Sets of queue pairs that grow together.
#[derive(Default)]
struct Groups {
    index: BTreeMap<QueuePair, usize>,
    /// Emptied where one was joined to another.
    processes: Vec<Option<Process>>,
}

impl Groups {
    fn process(&mut self, end: QueuePair) -> &mut Process {
        let next = self.processes.len();
        let index = *self.index.entry(end).or_insert(next);
        if index == next {
            self.processes.push(None);
        }
        let process = self.processes[index].get_or_insert_default();
        process.queue_pairs.insert(end);
        process
    }

    fn join(&mut self, ends: &BTreeSet<QueuePair>) {
        let Some(first) = ends.first() else { return };
        self.process(*first);
        let into = self.index[first];
        for end in ends {
            self.process(*end);
            let from = self.index[end];
            if from == into {
                continue;
            }
            if let Some(joined) = self.processes[from].take() {
                for end in &joined.queue_pairs {
                    self.index.insert(*end, into);
                }
                if let Some(process) = &mut self.processes[into] {
                    process.queue_pairs.extend(joined.queue_pairs);
                }
            }
        }
    }
}
