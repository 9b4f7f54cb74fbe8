//! The messages and collective operations of one job as events of its ranks, by time.
//!
//! In: the messages of a job, sorted by the time of their first packet, and its collective
//! operations. Out: send, receive, begin and end of each rank. Invariant: the times of a rank never
//! decrease, and the receives of a pair of ranks with one communicator and tag have the order of the
//! sends, because readers of a trace match them in that order.
//!
//! A send has the time of the message's first packet, a receive that of its last packet. The wire
//! does not show when a process made or ended a call.

use super::collective_instances::CollectiveInstance;
use crate::model::message_table::times;
use crate::model::{MessageRow, Profile};
use ibscope_parsers::mpi::MpiOperation;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::iter::Peekable;
use std::vec::IntoIter;

/// Streams whose last receive is remembered before the first search for those that are over.
const FIRST_STREAMS: usize = 1 << 12;

/// A point-to-point message of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMessage {
    /// Times of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Number of the message in the order of the captures, for messages of equal times.
    pub number: u64,
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Index of the communicator.
    pub communicator: u32,
    /// MPI tag.
    pub tag: i32,
    /// Length in bytes.
    pub bytes: u64,
}

impl RankMessage {
    /// The order of messages in time.
    #[must_use]
    pub fn in_time(&self, other: &Self) -> Ordering {
        (self.times_ns, self.number).cmp(&(other.times_ns, other.number))
    }
}

/// A communicator of the events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventCommunicator {
    /// `MPI_COMM_WORLD`.
    World,
    /// The communicators with this context id. The wire does not show all of their members.
    Context(u32),
    /// A communicator of collective operations, by its name in `ibscope collectives`.
    Named(String),
}

/// Messages that are no events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOutMessages {
    /// Messages between processes whose ranks are not known.
    pub without_ranks: u64,
    /// Messages whose length or time is not known.
    pub without_length_or_time: u64,
    /// Collective operations whose kind or ranks are not known.
    pub operations: u64,
}

/// Collects the messages of one job: those of point-to-point communication or all of them.
#[derive(Debug, Default)]
pub struct RankMessages {
    communicators: BTreeMap<EventCommunicator, u32>,
    messages: u64,
    left_out: LeftOutMessages,
    has_collectives: bool,
}

impl RankMessages {
    /// Collects messages of collective operations too.
    #[must_use]
    pub fn with_collectives() -> Self {
        Self { has_collectives: true, ..Self::default() }
    }

    /// The message of a row; `None` if it is not collected, or left out.
    pub fn message(&mut self, row: &MessageRow) -> Option<RankMessage> {
        let identity = row.identity()?;
        if identity.operation() != MpiOperation::PointToPoint && !self.has_collectives {
            return None;
        }
        let (Some(src), Some(dst)) = (row.src_rank, row.dst_rank) else {
            self.left_out.without_ranks += 1;
            return None;
        };
        let ((Some(first_ns), Some(last_ns)), Some(bytes)) = (times(row), row.mpi_bytes()) else {
            self.left_out.without_length_or_time += 1;
            return None;
        };
        let communicator =
            if identity.world { EventCommunicator::World } else { EventCommunicator::Context(identity.context) };
        let communicator = self.number(communicator);
        self.messages += 1;
        let times_ns = (first_ns, last_ns.max(first_ns));
        Some(RankMessage { times_ns, number: self.messages, src, dst, communicator, tag: identity.tag, bytes })
    }

    fn number(&mut self, communicator: EventCommunicator) -> u32 {
        let next = self.communicators.len() as u32;
        *self.communicators.entry(communicator).or_insert(next)
    }

    /// Adds the collective operations. Returns the plan of all events but those of the messages.
    #[must_use]
    pub fn finish(mut self, profile: &Profile, job: u32, operations: &[CollectiveInstance]) -> EventPlan {
        let mut members: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut collectives = Vec::new();
        // Packets of an operation may be later than the first ones of the next.
        let mut until_ns: BTreeMap<u32, i64> = BTreeMap::new();
        let mut by_start: Vec<&CollectiveInstance> = operations.iter().filter(|own| own.job == job).collect();
        by_start.sort_by_key(|own| own.start_ns);
        for own in by_start {
            if own.activity.is_empty() || matches!(own.operation, MpiOperation::Nonblocking | MpiOperation::Collective)
            {
                self.left_out.operations += 1;
                continue;
            }
            let communicator = match own.communicator.as_str() {
                "world" => EventCommunicator::World,
                name => EventCommunicator::Named(name.to_owned()),
            };
            let communicator = self.number(communicator);
            for activity in &own.activity {
                members.entry(communicator).or_default().insert(activity.rank);
                let until_ns = until_ns.entry(activity.rank).or_insert(i64::MIN);
                let begin_ns = activity.start_ns.max(*until_ns);
                let end_ns = activity.end_ns.max(begin_ns);
                *until_ns = end_ns;
                let operation =
                    EventOperation { operation: own.operation, communicator, ranks: own.ranks, bytes: own.bytes };
                for (time_ns, kind) in [
                    (begin_ns, JobEventKind::CollectiveBegin { operation, end_ns }),
                    (end_ns, JobEventKind::CollectiveEnd(operation)),
                ] {
                    collectives.push(JobEvent { time_ns, rank: activity.rank, kind });
                }
            }
        }
        // Stable: the begin of an operation stays after the end of the previous one.
        collectives.sort_by_key(|event| event.time_ns);
        let ranks = profile.ranks.iter().filter(|row| row.job == job).map(|row| row.rank + 1).max().unwrap_or(0);
        let mut communicators: Vec<(EventCommunicator, u32)> = self.communicators.into_iter().collect();
        communicators.sort_by_key(|(_, number)| *number);
        let with_members = communicators.into_iter().map(|(communicator, number)| {
            let known = members.remove(&number).filter(|_| matches!(communicator, EventCommunicator::Named(_)));
            let ranks = known.map_or_else(|| (0..ranks).collect(), |known| known.into_iter().collect());
            (communicator, ranks)
        });
        EventPlan {
            ranks,
            communicators: with_members.collect(),
            messages: self.messages,
            left_out: self.left_out,
            collectives,
        }
    }
}

/// The definitions, which are known before the first event.
#[derive(Debug, Default)]
pub struct EventPlan {
    /// Number of ranks of the job: the highest known rank and one.
    pub ranks: u32,
    /// The communicators, with the world ranks of their members. Those of messages have all ranks.
    pub communicators: Vec<(EventCommunicator, Vec<u32>)>,
    /// Number of messages.
    pub messages: u64,
    /// Messages and operations without events.
    pub left_out: LeftOutMessages,
    /// Events of collective operations, by time.
    collectives: Vec<JobEvent>,
}

impl EventPlan {
    /// The events by time. `messages` are sorted by [`RankMessage::in_time`].
    pub fn events<E>(
        &mut self,
        messages: impl Iterator<Item = Result<RankMessage, E>>,
    ) -> impl Iterator<Item = Result<JobEvent, E>> {
        JobEvents {
            messages: messages.peekable(),
            receives: BinaryHeap::new(),
            collectives: std::mem::take(&mut self.collectives).into_iter().peekable(),
            streams: StreamTimes::default(),
        }
    }
}

/// An event of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// Nanoseconds since the epoch.
    pub time_ns: i64,
    /// World rank.
    pub rank: u32,
    /// The action of the rank.
    pub kind: JobEventKind,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEventKind {
    /// The first packet of a message that the rank sent.
    Send(RankMessage),
    /// The last packet of a message to the rank.
    Receive(RankMessage),
    /// The first packet of the rank in a collective operation.
    CollectiveBegin {
        /// The operation.
        operation: EventOperation,
        /// Time of the last packet of the rank in it.
        end_ns: i64,
    },
    /// The last packet of the rank in that operation.
    CollectiveEnd(EventOperation),
}

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventOperation {
    /// The operation.
    pub operation: MpiOperation,
    /// Index of the communicator.
    pub communicator: u32,
    /// Number of its ranks; `None` if it is not known.
    pub ranks: Option<u32>,
    /// See [`CollectiveInstance::bytes`].
    pub bytes: Option<u64>,
}

/// Merges messages and operations by time.
struct JobEvents<I: Iterator> {
    messages: Peekable<I>,
    /// Receives of messages that were sent already.
    receives: BinaryHeap<Reverse<PendingReceive>>,
    collectives: Peekable<IntoIter<JobEvent>>,
    streams: StreamTimes,
}

impl<E, I: Iterator<Item = Result<RankMessage, E>>> Iterator for JobEvents<I> {
    type Item = Result<JobEvent, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let send_ns = match self.messages.peek() {
            Some(Err(_)) => return self.messages.next()?.err().map(Err),
            Some(Ok(message)) => Some(message.times_ns.0),
            None => None,
        };
        let receive_ns = self.receives.peek().map(|receive| receive.0.time_ns);
        let collective_ns = self.collectives.peek().map(|event| event.time_ns);
        let next_ns = [receive_ns, collective_ns, send_ns].into_iter().flatten().min()?;
        if receive_ns == Some(next_ns) {
            let Reverse(PendingReceive { time_ns, message }) = self.receives.pop()?;
            return Some(Ok(JobEvent { time_ns, rank: message.dst, kind: JobEventKind::Receive(message) }));
        }
        if collective_ns == Some(next_ns) {
            return self.collectives.next().map(Ok);
        }
        let message = match self.messages.next()? {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        let time_ns = self.streams.receive_ns(&message);
        self.receives.push(Reverse(PendingReceive { time_ns, message }));
        Some(Ok(JobEvent { time_ns: next_ns, rank: message.src, kind: JobEventKind::Send(message) }))
    }
}

/// A receive that is later than the events so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingReceive {
    time_ns: i64,
    message: RankMessage,
}

impl Ord for PendingReceive {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time_ns.cmp(&other.time_ns).then_with(|| self.message.in_time(&other.message))
    }
}

impl PartialOrd for PendingReceive {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The last receive of each stream: a sender, a receiver, a communicator and a tag. Streams whose
/// last receive is over are forgotten, so memory is bounded by the messages under way.
#[derive(Debug, Default)]
struct StreamTimes {
    receives_ns: HashMap<(u32, u32, u32, i32), i64>,
    most: usize,
}

impl StreamTimes {
    /// Time of the receive of the next message: not before that of the message before in its stream.
    fn receive_ns(&mut self, message: &RankMessage) -> i64 {
        if self.receives_ns.len() >= self.most {
            self.receives_ns.retain(|_, last_ns| *last_ns > message.times_ns.0);
            self.most = (2 * self.receives_ns.len()).max(FIRST_STREAMS);
        }
        let key = (message.src, message.dst, message.communicator, message.tag);
        let last_ns = self.receives_ns.entry(key).or_insert(i64::MIN);
        *last_ns = message.times_ns.1.max(*last_ns);
        *last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::collective_instances::Confidence;
    use crate::model::RankActivity;

    fn message(number: u64, times_ns: (i64, i64), tag: i32) -> RankMessage {
        RankMessage { times_ns, number, src: 0, dst: 1, communicator: 0, tag, bytes: 8 }
    }

    fn times_of(events: impl Iterator<Item = Result<JobEvent, ()>>) -> Vec<(i64, u32, &'static str, u64)> {
        let row = |event: JobEvent| match event.kind {
            JobEventKind::Send(message) => (event.time_ns, event.rank, "send", message.number),
            JobEventKind::Receive(message) => (event.time_ns, event.rank, "receive", message.number),
            JobEventKind::CollectiveBegin { .. } => (event.time_ns, event.rank, "begin", 0),
            JobEventKind::CollectiveEnd(operation) => {
                (event.time_ns, event.rank, "end", operation.bytes.unwrap_or_default())
            }
        };
        events.map(|event| row(event.expect("no error"))).collect()
    }

    /// A large message ends after a small one that was sent later: with one tag the small one is
    /// received later, with another tag it is not.
    #[test]
    fn receives_of_one_stream_keep_the_order_of_the_sends() {
        let messages = [message(1, (10, 50), 7), message(2, (20, 30), 7), message(3, (25, 30), 8)];
        let mut plan = EventPlan::default();
        assert_eq!(
            times_of(plan.events(messages.into_iter().map(Ok))),
            [
                (10, 0, "send", 1),
                (20, 0, "send", 2),
                (25, 0, "send", 3),
                (30, 1, "receive", 3),
                (50, 1, "receive", 1),
                (50, 1, "receive", 2)
            ]
        );
    }

    /// The packets of two operations overlap at rank 0: its second begin is moved to the first end.
    #[test]
    fn operations_of_a_rank_do_not_overlap() {
        let activity = |rank, start_ns, end_ns| RankActivity {
            rank,
            start_ns,
            end_ns,
            first_send_ns: None,
            last_receive_ns: None,
        };
        let operation = |number, bytes, activity: Vec<RankActivity>| CollectiveInstance {
            job: 1,
            is_nccl: false,
            communicator: "world".to_owned(),
            number,
            operation: MpiOperation::Allreduce,
            algorithms: Vec::new(),
            confidence: Confidence::High,
            ranks: Some(2),
            bytes: Some(bytes),
            start_ns: activity[0].start_ns,
            end_ns: activity[0].end_ns,
            last_rank: None,
            skew_ns: None,
            activity,
        };
        let operations = [
            operation(1, 100, vec![activity(0, 10, 30), activity(1, 10, 20)]),
            operation(2, 200, vec![activity(0, 25, 28), activity(1, 26, 40)]),
        ];
        let mut plan = RankMessages::default().finish(&Profile::default(), 1, &operations);
        assert_eq!(plan.communicators, [(EventCommunicator::World, Vec::new())]);
        assert_eq!(
            times_of(plan.events(std::iter::empty())),
            [
                (10, 0, "begin", 0),
                (10, 1, "begin", 0),
                (20, 1, "end", 100),
                (26, 1, "begin", 0),
                (30, 0, "end", 100),
                (30, 0, "begin", 0),
                (30, 0, "end", 200),
                (40, 1, "end", 200)
            ]
        );
    }

    /// Streams that ended are forgotten, those under way are not.
    #[test]
    fn memory_is_bounded_by_the_messages_under_way() {
        let mut streams = StreamTimes::default();
        for tag in 0..100_000 {
            let sent_ns = i64::from(tag) * 10;
            streams.receive_ns(&message(0, (sent_ns, sent_ns + 25), tag));
            assert!(streams.receives_ns.len() <= FIRST_STREAMS, "{tag}");
        }
        assert_eq!(streams.receive_ns(&message(0, (1_000_000, 1_000_001), 99_999)), 1_000_015);
    }
}
