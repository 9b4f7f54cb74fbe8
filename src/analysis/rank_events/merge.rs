//! Merges messages and collective operations into the events of ranks.
//!
//! In: messages and events of collective operations, both sorted by time. Out: all events, sorted by
//! time. Invariant: memory is bounded by the messages under way.

use super::{JobEvent, JobEventKind, RankMessage, RankTransfer};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::iter::Peekable;
use std::vec::IntoIter;

/// Streams whose last receive is remembered before the first search for those that are over.
pub(super) const FIRST_STREAMS: usize = 1 << 12;

/// Merges messages and operations by time.
pub(super) struct JobEvents<I: Iterator> {
    messages: Peekable<I>,
    /// Later events of messages that were sent already.
    pending: BinaryHeap<Reverse<PendingEvent>>,
    with_requests: bool,
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
        let pending_ns = self.pending.peek().map(|pending| pending.0.time_ns);
        let collective_ns = self.collectives.peek().map(|event| event.time_ns);
        let next_ns = [pending_ns, collective_ns, send_ns].into_iter().flatten().min()?;
        if pending_ns == Some(next_ns) {
            return self.pending.pop().map(|pending| Ok(pending.0.event()));
        }
        if collective_ns == Some(next_ns) {
            return self.collectives.next().map(Ok);
        }
        let message = match self.messages.next()? {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(JobEvent { time_ns: next_ns, rank: message.src, kind: self.first_event(message) }))
    }
}

impl<I: Iterator> JobEvents<I> {
    /// `messages` and `collectives` are sorted by time.
    pub(super) fn new(messages: I, collectives: Vec<JobEvent>, with_requests: bool) -> Self {
        Self {
            messages: messages.peekable(),
            pending: BinaryHeap::new(),
            with_requests,
            collectives: collectives.into_iter().peekable(),
            streams: StreamTimes::default(),
        }
    }

    /// The event of the first packet. The later ones become pending.
    fn first_event(&mut self, message: RankMessage) -> JobEventKind {
        let mut later = |time_ns, stage| self.pending.push(Reverse(PendingEvent { time_ns, message, stage }));
        if message.transfer != RankTransfer::Message {
            later(message.times_ns.1, PendingStage::End);
            return JobEventKind::OneSided(message);
        }
        if self.with_requests {
            later(message.times_ns.0, PendingStage::ReceiveBegin);
            later(message.times_ns.1, PendingStage::End);
        }
        later(self.streams.receive_ns(&message), PendingStage::Receive);
        JobEventKind::Send(message)
    }
}

/// An event of a message that is later than the events so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingEvent {
    time_ns: i64,
    message: RankMessage,
    stage: PendingStage,
}

/// The kinds of pending events, in the order of those with one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PendingStage {
    ReceiveBegin,
    End,
    Receive,
}

impl PendingEvent {
    const fn event(&self) -> JobEvent {
        let Self { time_ns, message, stage } = *self;
        let (rank, kind) = match stage {
            PendingStage::ReceiveBegin => (message.dst, JobEventKind::ReceiveBegin(message)),
            PendingStage::End => (message.src, JobEventKind::End(message)),
            PendingStage::Receive => (message.dst, JobEventKind::Receive(message)),
        };
        JobEvent { time_ns, rank, kind }
    }
}

impl Ord for PendingEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_message = || self.message.in_time(&other.message);
        self.time_ns.cmp(&other.time_ns).then_with(by_message).then(self.stage.cmp(&other.stage))
    }
}

impl PartialOrd for PendingEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The last receive of each stream: a sender, a receiver, a communicator and a tag. Streams whose
/// last receive is over are forgotten, so memory is bounded by the messages under way.
#[derive(Debug, Default)]
pub(super) struct StreamTimes {
    pub(super) receives_ns: HashMap<(u32, u32, u32, i32), i64>,
    most: usize,
}

impl StreamTimes {
    /// Time of the receive of the next message: not before that of the message before in its stream.
    pub(super) fn receive_ns(&mut self, message: &RankMessage) -> i64 {
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
