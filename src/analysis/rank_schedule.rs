//! The messages and collective operations of one job as a schedule of each rank, for simulators.
//!
//! In: the events of a job by time. Out: operations of ranks with their dependencies.
//! Invariant: an operation depends only on operations that come earlier in the input, so the
//! schedule has no cycle for any times.
//!
//! The wire does not show computation. These rules infer it from the times of packets:
//!
//! - A send requires all receives of its rank that ended before its first packet, and all sends that
//!   ended before it. It may start while an earlier send of its rank is under way.
//! - A receive is posted after the last receive of its rank that ended before the first packet of its
//!   message, and in the order in which the receives of its rank end. Time before a receive is
//!   waiting, because the message ends it.
//! - A collective operation is like a send: it lasts from the first to the last packet of the rank.
//! - Before a send, the rank computes from the end of its last message (sent or received) to the
//!   first packet of the send. This time includes the work of the library and waiting for ranks of
//!   the same node. The schedule does not contain computation during a transfer, or before the first
//!   message of a rank.

use super::rank_events::{EventOperation, JobEvent, JobEventKind, RankMessage};
use crate::model::HashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Receives that an empty computation joins, so that memory is bounded in a rank that never sends.
pub const JOINED_RECEIVES: usize = 1 << 10;

/// An operation of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOperation {
    /// World rank.
    pub rank: u32,
    /// Number of the operation among those of its rank, from 1.
    pub number: u64,
    /// Kind of the operation.
    pub kind: RankOperationKind,
    /// Start and end, nanoseconds since the epoch: of a message or collective operation, the times of
    /// its first and last packet.
    pub times_ns: (i64, i64),
    /// Operations of the rank that end before this one starts.
    pub after_end: Vec<u64>,
    /// Operation of the rank that starts before this one starts.
    pub after_start: Option<u64>,
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankOperationKind {
    /// Sends a message.
    Send(PeerMessage),
    /// Receives a message.
    Receive(PeerMessage),
    /// Takes part in a collective operation.
    Collective(EventOperation),
    /// Computes from start to end.
    Compute,
}

impl RankOperation {
    /// Nanoseconds from start to end.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.times_ns.1.saturating_sub(self.times_ns.0).max(0) as u64
    }
}

/// A message of a rank with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The other rank.
    pub peer: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// MPI tag; negative tags of collective operations as 32-bit two's complement.
    pub tag: u32,
}

/// Turns the events of a job into operations.
pub struct RankSchedule<I> {
    events: I,
    ranks: HashMap<u32, RankState>,
    /// The last receive of the receiver before each message under way, by the number of the message.
    posted_after: HashMap<u64, Option<u64>>,
    ready: VecDeque<RankOperation>,
}

/// The operations of a rank that later ones may depend on.
#[derive(Default)]
struct RankState {
    operations: u64,
    /// Receives since the last send.
    received: Vec<u64>,
    /// End and number of the sends and collective operations that may be under way.
    open_sends: Vec<(i64, u64)>,
    /// The last send or collective operation.
    last_send: Option<u64>,
    last_receive: Option<u64>,
    /// Last packet of the messages so far.
    busy_until_ns: Option<i64>,
}

impl<E, I: Iterator<Item = Result<JobEvent, E>>> RankSchedule<I> {
    /// The schedule of these events, which are sorted by time.
    pub fn new(events: I) -> Self {
        Self { events, ranks: HashMap::default(), posted_after: HashMap::default(), ready: VecDeque::new() }
    }

    fn send(&mut self, message: &RankMessage) {
        let last_receive = self.ranks.entry(message.dst).or_default().last_receive;
        self.posted_after.insert(message.number, last_receive);
        let sent = PeerMessage { peer: message.dst, bytes: message.bytes, tag: message.tag as u32 };
        self.start(message.src, RankOperationKind::Send(sent), message.times_ns);
    }

    /// Adds a send or a collective operation of the rank, after the computation before it.
    fn start(&mut self, rank: u32, kind: RankOperationKind, times_ns: (i64, i64)) {
        let state = self.ranks.entry(rank).or_default();
        let (first_ns, last_ns) = times_ns;
        let mut after_end = std::mem::take(&mut state.received);
        state.open_sends.retain(|(end_ns, number)| {
            let is_open = *end_ns > first_ns;
            if !is_open {
                after_end.push(*number);
            }
            is_open
        });
        let after_start = state.last_send.filter(|last| state.open_sends.iter().any(|(_, number)| number == last));
        let (mut after_end, mut after_start) = (after_end, after_start);
        if let Some(until_ns) = state.busy_until_ns.filter(|until_ns| *until_ns < first_ns) {
            let times_ns = (until_ns, first_ns);
            let compute = state.next(rank, RankOperationKind::Compute, times_ns, after_end, after_start);
            (after_end, after_start) = (vec![compute.number], None);
            self.ready.push_back(compute);
        }
        let operation = state.next(rank, kind, times_ns, after_end, after_start);
        state.open_sends.push((last_ns, operation.number));
        state.last_send = Some(operation.number);
        state.busy_until_ns = state.busy_until_ns.max(Some(last_ns));
        self.ready.push_back(operation);
    }

    fn receive(&mut self, message: &RankMessage, end_ns: i64) {
        let posted_after = self.posted_after.remove(&message.number).flatten();
        let state = self.ranks.entry(message.dst).or_default();
        if state.received.len() >= JOINED_RECEIVES {
            let all = std::mem::take(&mut state.received);
            let join = state.next(message.dst, RankOperationKind::Compute, (end_ns, end_ns), all, None);
            state.received.push(join.number);
            self.ready.push_back(join);
        }
        let after_start = state.last_receive.filter(|last| Some(*last) != posted_after);
        let kind = RankOperationKind::Receive(PeerMessage {
            peer: message.src,
            bytes: message.bytes,
            tag: message.tag as u32,
        });
        let times_ns = (message.times_ns.0, end_ns);
        let receive = state.next(message.dst, kind, times_ns, posted_after.into_iter().collect(), after_start);
        state.received.push(receive.number);
        state.last_receive = Some(receive.number);
        state.busy_until_ns = state.busy_until_ns.max(Some(end_ns));
        self.ready.push_back(receive);
    }
}

impl RankState {
    const fn next(
        &mut self,
        rank: u32,
        kind: RankOperationKind,
        times_ns: (i64, i64),
        after_end: Vec<u64>,
        after_start: Option<u64>,
    ) -> RankOperation {
        self.operations += 1;
        RankOperation { rank, number: self.operations, kind, times_ns, after_end, after_start }
    }
}

impl<E, I: Iterator<Item = Result<JobEvent, E>>> Iterator for RankSchedule<I> {
    type Item = Result<RankOperation, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(operation) = self.ready.pop_front() {
                return Some(Ok(operation));
            }
            match self.events.next()? {
                Err(error) => return Some(Err(error)),
                Ok(event) => match event.kind {
                    JobEventKind::Send(message) => self.send(&message),
                    JobEventKind::Receive(message) => self.receive(&message, event.time_ns),
                    JobEventKind::CollectiveBegin { operation, end_ns } => {
                        self.start(event.rank, RankOperationKind::Collective(operation), (event.time_ns, end_ns));
                    }
                    JobEventKind::OneSided(_)
                    | JobEventKind::End(_)
                    | JobEventKind::ReceiveBegin(_)
                    | JobEventKind::CollectiveEnd(_) => {}
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::rank_events::{EventPlan, RankTransfer};
    use ibscope_parsers::mpi::MpiOperation;

    fn message(number: u64, pair: (u32, u32), times_ns: (i64, i64)) -> RankMessage {
        let (src, dst, transfer) = (pair.0, pair.1, RankTransfer::Message);
        RankMessage { times_ns, number, src, dst, transfer, communicator: 0, tag: -12, bytes: 8 * number }
    }

    fn schedule(messages: Vec<RankMessage>) -> Vec<RankOperation> {
        let mut plan = EventPlan::default();
        RankSchedule::new(plan.events(messages.into_iter().map(Ok::<_, ()>)))
            .map(|own| own.expect("no error"))
            .collect()
    }

    /// An operation with dependencies on the ends of others.
    fn operation(
        rank: u32,
        number: u64,
        kind: RankOperationKind,
        times_ns: (i64, i64),
        after_end: &[u64],
    ) -> RankOperation {
        RankOperation { rank, number, kind, times_ns, after_end: after_end.to_vec(), after_start: None }
    }

    fn with(peer: u32, bytes: u64) -> PeerMessage {
        PeerMessage { peer, bytes, tag: 0xffff_fff4 }
    }

    /// Rank 1 receives until 20 ns and responds at 50 ns: it computes 30 ns in between. Rank 0
    /// waits.
    #[test]
    fn a_rank_computes_before_it_sends_and_waits_before_it_receives() {
        assert_eq!(
            schedule(vec![message(1, (0, 1), (10, 20)), message(2, (1, 0), (50, 60))]),
            [
                operation(0, 1, RankOperationKind::Send(with(1, 8)), (10, 20), &[]),
                operation(1, 1, RankOperationKind::Receive(with(0, 8)), (10, 20), &[]),
                operation(1, 2, RankOperationKind::Compute, (20, 50), &[1]),
                operation(1, 3, RankOperationKind::Send(with(0, 16)), (50, 60), &[2]),
                operation(0, 2, RankOperationKind::Receive(with(1, 16)), (50, 60), &[]),
            ]
        );
    }

    /// Rank 0 computes 20 ns before each of two operations, and the second one requires the first.
    #[test]
    fn a_rank_computes_before_it_takes_part_in_an_operation() {
        let own =
            EventOperation { operation: MpiOperation::Allreduce, communicator: 0, ranks: Some(2), bytes: Some(8) };
        let event = |time_ns, kind| Ok::<_, ()>(JobEvent { time_ns, rank: 0, kind });
        let begin = |time_ns, end_ns| event(time_ns, JobEventKind::CollectiveBegin { operation: own, end_ns });
        let end = |time_ns| event(time_ns, JobEventKind::CollectiveEnd(own));
        let found: Vec<RankOperation> = RankSchedule::new([begin(10, 30), end(30), begin(50, 60), end(60)].into_iter())
            .map(|own| own.expect("no error"))
            .collect();
        assert_eq!(
            found,
            [
                operation(0, 1, RankOperationKind::Collective(own), (10, 30), &[]),
                operation(0, 2, RankOperationKind::Compute, (30, 50), &[1]),
                operation(0, 3, RankOperationKind::Collective(own), (50, 60), &[2]),
            ]
        );
    }

    /// Two large messages cross each other: neither rank waits for its send before it receives, so a
    /// simulation with rendezvous does not hang.
    #[test]
    fn exchanges_do_not_depend_on_each_other() {
        let found =
            schedule(vec![message(1, (0, 1), (10, 90)), message(2, (1, 0), (20, 95)), message(3, (0, 1), (30, 99))]);
        let receives: Vec<_> = found.iter().filter(|own| matches!(own.kind, RankOperationKind::Receive(_))).collect();
        assert!(receives.iter().all(|own| own.after_end.is_empty()), "{receives:?}");
        // The second receive of rank 1 is posted after the first; the second send of rank 0 starts
        // while the first one is under way.
        assert_eq!(receives[2].after_start, Some(receives[0].number));
        let second = found.iter().filter(|own| own.rank == 0 && matches!(own.kind, RankOperationKind::Send(_))).nth(1);
        assert_eq!(second.map(|own| (own.after_end.as_slice(), own.after_start)), Some((&[][..], Some(1))));
    }

    /// Rank 1 only receives: its receives are joined, and its first send requires the join.
    #[test]
    fn receives_beyond_the_bound_are_joined() {
        let count = JOINED_RECEIVES as u64 + 1;
        let mut messages: Vec<RankMessage> =
            (1..=count).map(|number| message(number, (0, 1), (number as i64, number as i64))).collect();
        messages.push(message(count + 1, (1, 0), (count as i64, count as i64 + 9)));
        let found = schedule(messages);
        let join =
            found.iter().find(|own| own.kind == RankOperationKind::Compute && own.duration_ns() == 0).expect("a join");
        assert_eq!(join.after_end.len(), JOINED_RECEIVES);
        let send =
            found.iter().rfind(|own| own.rank == 1 && matches!(own.kind, RankOperationKind::Send(_))).expect("a send");
        assert_eq!(send.after_end, [join.number, join.number + 1]);
        assert!(found.iter().all(|own| own.after_end.len() <= JOINED_RECEIVES));
    }
}
