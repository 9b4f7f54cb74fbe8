//! The messages, one-sided operations and collective operations of one job as events of its ranks,
//! by time.
//!
//! In: the messages and one-sided operations of a job, sorted by the time of their first packet, and
//! its collective operations. Out: send, receive, begin and end of each rank. Invariant: the times of
//! a rank never decrease, and the receives of a pair of ranks with one communicator and tag have the
//! order of the sends, because readers of a trace match them in that order.
//!
//! A send has the time of the message's first packet, a receive that of its last packet. The wire
//! does not show when a process made or ended a call, or whether the call was blocking.

mod merge;
#[cfg(test)]
mod tests;

use super::collective_instances::{CollectiveInstance, UncertainOperations};
use crate::model::message_table::times;
use crate::model::{MessageRow, Profile, Verb};
use ibscope_parsers::mpi::MpiOperation;
use merge::JobEvents;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The way in which the bytes of a [`RankMessage`] move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankTransfer {
    /// A message: the receiver has an event too.
    Message,
    /// A one-sided WRITE.
    Put,
    /// A one-sided READ: the bytes move from `dst` to `src`.
    Get,
}

/// A message of a job, or a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMessage {
    /// Times of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Number of the message in the order of the captures, for messages of equal times.
    pub number: u64,
    /// World rank of the sender, or of the process that puts or gets.
    pub src: u32,
    /// World rank of the receiver, or of the target.
    pub dst: u32,
    /// The kind.
    pub transfer: RankTransfer,
    /// Index of the communicator.
    pub communicator: u32,
    /// MPI tag; 0 for a one-sided operation.
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
    /// Messages and one-sided operations between processes whose ranks are not known.
    pub without_ranks: u64,
    /// Messages and one-sided operations whose length or time is not known.
    pub without_length_or_time: u64,
    /// Collective operations whose kind or ranks are not known.
    pub operations: u64,
    /// The other collective operations that are uncertain.
    pub uncertain: UncertainOperations,
}

/// Collects the messages of one job: those of point-to-point communication or all of them.
#[derive(Debug, Default)]
pub struct RankMessages {
    communicators: BTreeMap<EventCommunicator, u32>,
    messages: u64,
    one_sided: u64,
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
        let communicator =
            if identity.world { EventCommunicator::World } else { EventCommunicator::Context(identity.context) };
        let message = self.between_ranks(row, row.mpi_bytes(), RankTransfer::Message, (communicator, identity.tag))?;
        self.messages += 1;
        Some(message)
    }

    /// The one-sided operation of a row; `None` if the row is another transport message, moves no
    /// data, or is left out. `profile` is that of the same captures.
    pub fn one_sided(&mut self, profile: &Profile, row: &MessageRow) -> Option<RankMessage> {
        let connection = profile.connections.get(row.connection as usize)?;
        if row.identity().is_some() || connection.one_sided.is_none() {
            return None;
        }
        let transfer = match row.raw.transfer_verb {
            Verb::Write => RankTransfer::Put,
            Verb::Read => RankTransfer::Get,
            Verb::Send | Verb::Datagram | Verb::Atomic => return None,
        };
        // Operations of length 0, with which libraries wait for earlier ones, move no data.
        let bytes = row.payload_bytes();
        if bytes == Some(0) {
            return None;
        }
        let operation = self.between_ranks(row, bytes, transfer, (EventCommunicator::World, 0))?;
        self.one_sided += 1;
        Some(operation)
    }

    fn between_ranks(
        &mut self,
        row: &MessageRow,
        bytes: Option<u64>,
        transfer: RankTransfer,
        (communicator, tag): (EventCommunicator, i32),
    ) -> Option<RankMessage> {
        let (Some(src), Some(dst)) = (row.src_rank, row.dst_rank) else {
            self.left_out.without_ranks += 1;
            return None;
        };
        let ((Some(first_ns), Some(last_ns)), Some(bytes)) = (times(row), bytes) else {
            self.left_out.without_length_or_time += 1;
            return None;
        };
        let communicator = self.number(communicator);
        let number = self.messages + self.one_sided + 1;
        let times_ns = (first_ns, last_ns.max(first_ns));
        Some(RankMessage { times_ns, number, src, dst, transfer, communicator, tag, bytes })
    }

    fn number(&mut self, communicator: EventCommunicator) -> u32 {
        let next = self.communicators.len() as u32;
        *self.communicators.entry(communicator).or_insert(next)
    }

    /// Adds the collective operations that their messages show. Returns the plan of all events but those
    /// of the messages.
    #[must_use]
    pub fn finish(mut self, profile: &Profile, job: u32, operations: &[CollectiveInstance]) -> EventPlan {
        let mut members: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut collectives = Vec::new();
        let mut kept = 0;
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
            if !self.left_out.uncertain.keep(own) {
                continue;
            }
            kept += 1;
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
            one_sided: self.one_sided,
            operations: kept,
            with_requests: false,
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
    /// Number of one-sided operations.
    pub one_sided: u64,
    /// Number of collective operations.
    pub operations: u64,
    /// Messages have the events of requests: [`JobEventKind::ReceiveBegin`] and
    /// [`JobEventKind::End`].
    pub with_requests: bool,
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
        JobEvents::new(messages, std::mem::take(&mut self.collectives), self.with_requests)
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
    /// The first packet of a one-sided operation of the rank.
    OneSided(RankMessage),
    /// The last packet of a one-sided operation of the rank or, with requests, of a message that it
    /// sent.
    End(RankMessage),
    /// With requests, the first packet of a message to the rank.
    ReceiveBegin(RankMessage),
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
