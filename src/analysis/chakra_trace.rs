//! The schedule of a job as nodes of Chakra execution traces.
//!
//! In: the operations of each rank in their order. Out: a node per operation, with the nodes of its
//! rank that must end before it starts. Invariant: a node depends only on nodes before it.
//!
//! Chakra has no dependency on the start of a node. An operation that starts after the start of
//! another one therefore depends on the nodes that end before that one starts.

use super::collective_instances::{CollectiveInstance, UncertainOperations};
use super::instances::InstanceList;
use super::rank_schedule::{JOINED_RECEIVES, PeerMessage, RankOperation, RankOperationKind};
use crate::model::count_of;
use ibscope_parsers::mpi::MpiOperation;
use std::collections::VecDeque;

/// A node of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChakraNode {
    /// World rank.
    pub rank: u32,
    /// Number of the node, from 1; numbers of a rank increase.
    pub id: u64,
    /// Kind of the node.
    pub kind: ChakraNodeKind,
    /// Microseconds from the first packet of the job, rounded down.
    pub start_us: u64,
    /// Microseconds from start to end. Start and end are rounded, so errors do not add up.
    pub duration_us: u64,
    /// Nodes of the rank that end before this one starts, sorted.
    pub data_deps: Vec<u64>,
}

/// The kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChakraNodeKind {
    /// Sends a message.
    Send(PeerMessage),
    /// Receives a message.
    Receive(PeerMessage),
    /// Takes part in a collective operation.
    Collective {
        /// The operation; one for which [`input_bytes`] returns a number.
        operation: MpiOperation,
        /// Index of the communicator.
        communicator: u32,
        /// Bytes that the rank passes to the operation.
        input_bytes: u64,
    },
    /// Computes, or joins dependencies.
    Compute,
}

/// Bytes that each rank passes to a collective operation, as `PyTorch` states them in Chakra traces:
/// the vector of an Allreduce, the blocks for all ranks of an Alltoall. `None` if they are not known,
/// or if Chakra does not have the operation. `bytes` as in [`CollectiveInstance`].
#[must_use]
pub fn input_bytes(operation: MpiOperation, ranks: Option<u32>, bytes: Option<u64>) -> Option<u64> {
    match operation {
        MpiOperation::Barrier => Some(0),
        MpiOperation::Allreduce
        | MpiOperation::Reduce
        | MpiOperation::Bcast
        | MpiOperation::Allgather
        | MpiOperation::Gather => bytes,
        MpiOperation::Alltoall | MpiOperation::ReduceScatterBlock | MpiOperation::Scatter => {
            bytes?.checked_mul(ranks?.into())
        }
        _ => None,
    }
}

/// The reason why the collective operations of a job cannot be nodes, as the end of "unknown,
/// because ..."; `None` if they can. A trace without some of them would show their time as
/// computation.
#[must_use]
pub fn collectives_unknown_because(list: &InstanceList, job: u32) -> Option<String> {
    if let Some(reason) = list.unknown_because {
        return Some(reason.to_owned());
    }
    let left_out = list.without_ranks + list.beyond_bound + list.nccl_left_out + list.nccl_beyond_bound;
    if left_out > 0 {
        return Some(format!("the captures do not have all packets or ranks of {}", count_of(left_out, "message")));
    }
    let of_job = || list.instances.iter().filter(|own| own.job == job);
    let count = of_job().filter(|own| !is_known(own)).count();
    (count > 0).then(|| {
        let all = of_job().count();
        format!(
            "the kind, size or ranks of {count} of {all} operations are not known, or Chakra does not have the kind"
        )
    })
}

fn is_known(own: &CollectiveInstance) -> bool {
    let is_of_all = own.ranks.is_some_and(|ranks| own.activity.len() == ranks as usize);
    UncertainOperations::default().keep(own) && is_of_all && input_bytes(own.operation, own.ranks, own.bytes).is_some()
}

/// Turns the operations of a job into nodes.
pub struct ChakraNodes<I> {
    operations: I,
    origin_ns: i64,
    rank: Option<u32>,
    /// Dependencies of the last send or collective operation, and of the last receive.
    last_start: Vec<u64>,
    last_receive: Vec<u64>,
    ready: VecDeque<ChakraNode>,
}

impl<E, I: Iterator<Item = Result<RankOperation, E>>> ChakraNodes<I> {
    /// The nodes of `operations`: those of rank 0, then those of rank 1, and so on. Times count from
    /// `origin_ns`.
    pub const fn new(operations: I, origin_ns: i64) -> Self {
        Self {
            operations,
            origin_ns,
            rank: None,
            last_start: Vec::new(),
            last_receive: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    fn add(&mut self, operation: &RankOperation) {
        if self.rank.replace(operation.rank) != Some(operation.rank) {
            self.last_start.clear();
            self.last_receive.clear();
        }
        let is_receive = matches!(operation.kind, RankOperationKind::Receive(_));
        let mut data_deps: Vec<u64> = operation.after_end.iter().map(|number| id(*number)).collect();
        if operation.after_start.is_some() {
            data_deps.extend(if is_receive { &self.last_receive } else { &self.last_start });
        }
        data_deps.sort_unstable();
        data_deps.dedup();
        if data_deps.len() > JOINED_RECEIVES {
            let join = id(operation.number) - 1;
            let at_ns = (operation.times_ns.0, operation.times_ns.0);
            let all = std::mem::replace(&mut data_deps, vec![join]);
            self.push(operation.rank, join, ChakraNodeKind::Compute, at_ns, all);
        }
        match operation.kind {
            RankOperationKind::Receive(_) => self.last_receive.clone_from(&data_deps),
            RankOperationKind::Send(_) | RankOperationKind::Collective(_) => self.last_start.clone_from(&data_deps),
            RankOperationKind::Compute => {}
        }
        let kind = match operation.kind {
            RankOperationKind::Send(message) => ChakraNodeKind::Send(message),
            RankOperationKind::Receive(message) => ChakraNodeKind::Receive(message),
            RankOperationKind::Collective(own) => ChakraNodeKind::Collective {
                operation: own.operation,
                communicator: own.communicator,
                input_bytes: input_bytes(own.operation, own.ranks, own.bytes).unwrap_or(0),
            },
            RankOperationKind::Compute => ChakraNodeKind::Compute,
        };
        self.push(operation.rank, id(operation.number), kind, operation.times_ns, data_deps);
    }

    fn push(&mut self, rank: u32, id: u64, kind: ChakraNodeKind, times_ns: (i64, i64), data_deps: Vec<u64>) {
        let us = |time_ns: i64| time_ns.saturating_sub(self.origin_ns).max(0) as u64 / 1000;
        let (start_us, end_us) = (us(times_ns.0), us(times_ns.1));
        let duration_us = end_us.saturating_sub(start_us);
        self.ready.push_back(ChakraNode { rank, id, kind, start_us, duration_us, data_deps });
    }
}

/// Number of the node of an operation. The number before it is that of a node that joins its
/// dependencies.
const fn id(number: u64) -> u64 {
    2 * number
}

impl<E, I: Iterator<Item = Result<RankOperation, E>>> Iterator for ChakraNodes<I> {
    type Item = Result<ChakraNode, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(node) = self.ready.pop_front() {
                return Some(Ok(node));
            }
            match self.operations.next()? {
                Err(error) => return Some(Err(error)),
                Ok(operation) => self.add(&operation),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::collective_instances::Confidence;
    use crate::model::RankActivity;

    fn send(number: u64, times_ns: (i64, i64), after_end: Vec<u64>, after_start: Option<u64>) -> RankOperation {
        let kind = RankOperationKind::Send(PeerMessage { peer: 1, bytes: 8, tag: 0 });
        RankOperation { rank: 0, number, kind, times_ns, after_end, after_start }
    }

    fn nodes(operations: Vec<RankOperation>) -> Vec<ChakraNode> {
        let operations = operations.into_iter().map(Ok::<_, ()>);
        ChakraNodes::new(operations, 1_000_000).map(|node| node.expect("no error")).collect()
    }

    /// The second send starts during the first one, so both require the end of operation 1.
    #[test]
    fn a_send_during_another_requires_what_that_one_requires() {
        let compute =
            RankOperation { kind: RankOperationKind::Compute, ..send(1, (1_000_000, 1_001_999), vec![], None) };
        let found = nodes(vec![
            compute,
            send(2, (1_001_999, 1_009_000), vec![1], None),
            send(3, (1_002_001, 1_008_000), vec![], Some(2)),
        ]);
        let dependencies: Vec<&[u64]> = found.iter().map(|node| node.data_deps.as_slice()).collect();
        assert_eq!(dependencies, [&[][..], &[2], &[2]]);
        // 1.999 to 9 us is 1 to 9 us in whole microseconds.
        let times: Vec<(u64, u64)> = found.iter().map(|node| (node.start_us, node.duration_us)).collect();
        assert_eq!(times, [(0, 1), (1, 8), (2, 6)]);
    }

    /// Sends that overlap inherit dependencies; a node joins them beyond the bound.
    #[test]
    fn dependencies_beyond_the_bound_are_joined() {
        let first = send(10_000, (1_000_000, 2_000_000), (1..=JOINED_RECEIVES as u64).collect(), None);
        let second = send(10_001, (1_000_001, 2_000_000), vec![9_000], Some(10_000));
        let found = nodes(vec![first, second]);
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].data_deps.len(), found[1].data_deps.len()), (JOINED_RECEIVES, JOINED_RECEIVES + 1));
        assert_eq!((found[1].kind, found[1].id), (ChakraNodeKind::Compute, 20_001));
        assert_eq!(found[2].data_deps, [20_001]);
    }

    /// An Allgather passes one block, an Alltoall a block for each rank (`MPI_Alltoall`), a barrier
    /// nothing. Chakra has no Scan.
    #[test]
    fn input_sizes_follow_from_the_operation() {
        let of = |operation| input_bytes(operation, Some(4), Some(8));
        assert_eq!(of(MpiOperation::Allgather), Some(8));
        assert_eq!(of(MpiOperation::Alltoall), Some(32));
        assert_eq!(of(MpiOperation::ReduceScatterBlock), Some(32));
        assert_eq!(input_bytes(MpiOperation::Barrier, None, None), Some(0));
        assert_eq!(of(MpiOperation::Scan), None);
        assert_eq!(input_bytes(MpiOperation::Alltoall, None, Some(8)), None);
    }

    fn instance(bytes: Option<u64>, seen: u32) -> CollectiveInstance {
        let activity = |rank| RankActivity { rank, start_ns: 0, end_ns: 9, first_send_ns: None, last_receive_ns: None };
        CollectiveInstance {
            job: 1,
            is_nccl: true,
            communicator: "world".to_owned(),
            number: 1,
            operation: MpiOperation::Allreduce,
            algorithms: Vec::new(),
            confidence: Confidence::High,
            misses_messages: false,
            ranks: Some(2),
            bytes,
            start_ns: 0,
            end_ns: 9,
            last_rank: None,
            skew_ns: None,
            activity: (0..seen).map(activity).collect(),
        }
    }

    #[test]
    fn operations_that_are_not_known_completely_are_no_nodes() {
        let list = |instances| InstanceList { instances, ..InstanceList::default() };
        let reason = |list: &InstanceList| collectives_unknown_because(list, 1);
        assert_eq!(reason(&list(vec![instance(Some(8), 2)])), None);
        let unknown = "the kind, size or ranks of 1 of 2 operations are not known, or Chakra does not have the kind";
        for other in [instance(None, 2), instance(Some(8), 1)] {
            assert_eq!(reason(&list(vec![instance(Some(8), 2), other])).as_deref(), Some(unknown));
        }
        let sampled = InstanceList { unknown_because: Some("it is sampled"), ..InstanceList::default() };
        assert_eq!(reason(&sampled).as_deref(), Some("it is sampled"));
        let missing = InstanceList { nccl_left_out: 3, ..InstanceList::default() };
        assert!(reason(&missing).is_some_and(|reason| reason.ends_with("of 3 messages")));
    }
}
