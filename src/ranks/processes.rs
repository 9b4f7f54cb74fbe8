//! Queue pairs -> processes -> ranks.
//!
//! A process is a set of queue pairs. Which belong together is known where a library says so (the worker of UCX's wire-up
//! messages, introductions); which rank they are is voted by the envelopes that went out from them, and stated by the connection
//! messages of Open MPI's `openib` and of MVAPICH2.

use super::{Belief, Pairs, Witnesses};
use crate::model::QueuePair;
use crate::model::traffic::Communicator;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Form;
use std::collections::{BTreeMap, BTreeSet};

/// What speaks for the ranks of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    /// Its queue pairs.
    pub(super) queue_pairs: BTreeSet<QueuePair>,
    /// Envelopes on `MPI_COMM_WORLD` by the rank they name.
    pub(super) envelopes: BTreeMap<u32, u64>,
    /// Envelopes on other communicators by context id and the rank they name there.
    pub(super) elsewhere: BTreeMap<(u32, u32), u64>,
    /// Connection messages by the rank they state.
    pub(super) stated: BTreeMap<u32, u64>,
}

/// The processes behind all queue pairs that send, and what speaks for senders whose queue pair is not known, by endpoint.
pub(super) fn find(
    witnesses: &Witnesses<'_>,
    belief: &Belief,
    paired: &Pairs,
) -> (Vec<Process>, BTreeMap<Endpoint, Process>) {
    let Witnesses { connections, cm, wireups, named, introductions, .. } = *witnesses;
    let mut groups = Groups::default();
    let mut workers: BTreeMap<(Endpoint, u64), BTreeSet<QueuePair>> = BTreeMap::new();
    for (wireup, named) in wireups.iter().zip(named) {
        let queue_pairs = workers.entry((wireup.src, wireup.worker)).or_default();
        queue_pairs.extend(wireup.datagram_qp.map(|qpn| QueuePair { endpoint: wireup.src, qpn }));
        // A number that stands in the address by chance would join two processes.
        if let [end] = named[..] {
            queue_pairs.insert(end);
        }
    }
    // The datagram queue pair of a process is one.
    let mut speakers: BTreeMap<QueuePair, BTreeSet<QueuePair>> = BTreeMap::new();
    for said in introductions {
        let own = said.queue_pairs.iter().map(|&qpn| QueuePair { endpoint: said.from.endpoint, qpn });
        speakers.entry(said.from).or_default().extend(own.chain([said.from]));
    }
    for queue_pairs in workers.values().chain(speakers.values()) {
        groups.join(queue_pairs);
    }
    // NCCL's connections go one way, so those on which a process receives name it nowhere. It has a port for each GPU as a rule: its queue pairs
    // there are taken as one process, whose messages contradict each other where that is wrong.
    let mut ports: BTreeMap<Endpoint, BTreeSet<QueuePair>> = BTreeMap::new();
    for key in connections.iter().map(|connection| &connection.key).filter(|key| belief.form(key) == Some(Form::Nccl)) {
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        ports.entry(key.dst).or_default().insert(receiver);
        if let Some((sender, _)) = paired.partner(receiver) {
            ports.entry(key.src).or_default().insert(sender);
        }
    }
    ports.values().for_each(|queue_pairs| groups.join(queue_pairs));
    let mut loose: BTreeMap<Endpoint, Process> = BTreeMap::new();
    for connection in connections {
        let key = &connection.key;
        let Some((form, layout)) = belief.reading(key) else { continue };
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        let sender = if key.is_datagram() {
            Some(QueuePair { endpoint: key.src, qpn: key.src_qp })
        } else {
            paired.partner(receiver).map(|(end, _)| end)
        };
        let process = match sender {
            Some(sender) => groups.process(sender),
            None => loose.entry(key.src).or_default(),
        };
        for (communicator, rank, count) in connection.votes().of(form, layout) {
            match communicator {
                Communicator::World => *process.envelopes.entry(rank).or_default() += count,
                Communicator::Context(context) => *process.elsewhere.entry((context, rank)).or_default() += count,
            }
        }
        // The receiver may never send: it is a process all the same.
        groups.process(receiver);
    }
    for row in cm {
        if let (Some(qpn), Some(rank), "REQ" | "REP") = (row.qpn, row.world_rank, row.message.as_str()) {
            *groups.process(QueuePair { endpoint: row.src, qpn }).stated.entry(rank).or_default() += 1;
        }
    }
    for said in introductions {
        if let Some(rank) = said.world_rank {
            *groups.process(said.from).stated.entry(rank).or_default() += 1;
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
