//! Event queue: events in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::SamplePacket;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleEvent {
    /// A packet passes a port that this sink mirrors.
    Observation(u16, SamplePacket),
    /// The stream of this index continues.
    Continue(usize),
}

/// A queued event. The earliest comes first; events of equal time keep the order in which they were
/// queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuedEvent {
    time_ns: u64,
    number: u64,
    event: SampleEvent,
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Queue of future events.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    queue: BinaryHeap<Reverse<QueuedEvent>>,
    queued: u64,
}

impl EventQueue {
    /// Queues an event for `time_ns`.
    pub(crate) fn push(&mut self, time_ns: u64, event: SampleEvent) {
        self.queue.push(Reverse(QueuedEvent { time_ns, number: self.queued, event }));
        self.queued += 1;
    }

    /// Removes the next event; returns its time and the event.
    pub(crate) fn pop(&mut self) -> Option<(u64, SampleEvent)> {
        self.queue.pop().map(|Reverse(QueuedEvent { time_ns, event, .. })| (time_ns, event))
    }
}
