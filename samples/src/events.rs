//! What happens when: events in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::Packet;

/// What happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet passes a port that this sink mirrors.
    Seen(u16, Packet),
    /// The stream of this index goes on.
    Continue(usize),
}

/// An event in the queue: earliest first, and of the same time the one that was queued first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queued {
    time_ns: u64,
    number: u64,
    event: Event,
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The events to come.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: BinaryHeap<Reverse<Queued>>,
    queued: u64,
}

impl Events {
    /// Something will happen at `time_ns`.
    pub(crate) fn push(&mut self, time_ns: u64, event: Event) {
        self.queue.push(Reverse(Queued { time_ns, number: self.queued, event }));
        self.queued += 1;
    }

    /// The next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.queue.pop().map(|Reverse(Queued { time_ns, event, .. })| (time_ns, event))
    }
}
