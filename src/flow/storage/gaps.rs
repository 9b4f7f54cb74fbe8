//! Finds out whether a completion may belong to a later command than the one with its id.
//!
//! Clients use ids again, so a capture that misses a completion and the next command with the same
//! id shows a wrong pair:
//!
//! ```text
//! client:  command 7          command 7 (missing)
//! server:        completion 7 (missing)      completion 7
//! ```
//! Both a message of the client and a message of the server must be missing for that. So a pair is
//! certain if one of the two directions has no gap between the command and its completion. A gap is
//! a place where a whole message may be missing, by the PSNs that were not observed. The packets of
//! a message of known length leave no room for another one:
//!
//! ```text
//! WRITE 10, 8 packets    .. 12 .. 17    SEND 18       no gap
//! SEND 18                               SEND 20       gap
//! ```
//! The client may have sent the missing command after its last message before the completion, so its
//! next message decides (`unconfirmed`).
//!
//! Invariant: without a gap since a command, its completion was not missed.

use super::CommandTime;
use crate::model::HashMap;

/// Times that wait for the next message of their client, per queue.
const MAX_UNCONFIRMED: usize = 1 << 12;
/// The path MTUs of `InfiniBand`.
const PATH_MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// The PSNs that a message takes, unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) struct MessageSpan {
    number: i64,
    /// One past the last that it takes for certain.
    end: i64,
    /// Length of a READ whose path MTU is not known.
    unsized_bytes: Option<u32>,
}

impl MessageSpan {
    /// A message of one packet, or of unknown length, from this PSN on.
    pub(in crate::flow) const fn packet(number: i64) -> Self {
        Self { number, end: number + 1, unsized_bytes: None }
    }

    /// A WRITE or READ of this length.
    pub(in crate::flow) fn data(number: i64, bytes: u32, mtu_bytes: Option<u32>) -> Self {
        match mtu_bytes {
            Some(mtu_bytes) => Self { end: number + packets(bytes, mtu_bytes), ..Self::packet(number) },
            None => Self { unsized_bytes: Some(bytes), ..Self::packet(number) },
        }
    }

    /// True if the message that starts at `next` may follow directly.
    fn reaches(&self, next: i64) -> bool {
        let may_end_at = |bytes: u32| PATH_MTUS.iter().any(|mtu| self.number + packets(bytes, *mtu) == next);
        self.end == next || self.unsized_bytes.is_some_and(may_end_at)
    }
}

fn packets(bytes: u32, mtu_bytes: u32) -> i64 {
    i64::from(bytes.div_ceil(mtu_bytes.max(1)).max(1))
}

/// True if ascending ranges, whose neighbors may touch, cover all numbers from `start` to `end`.
fn covers(ranges: impl Iterator<Item = (i64, i64)>, start: i64, end: i64) -> bool {
    let reached = ranges.fold(start, |at, (from, to)| if from <= at { at.max(to) } else { at });
    reached >= end
}

/// The messages of storage connections, in the order of their first packets.
#[derive(Debug, Default)]
pub(super) struct MessageStreams(HashMap<u32, MessageStream>);

#[derive(Debug)]
struct MessageStream {
    last: MessageSpan,
    has_gap: bool,
}

impl MessageStreams {
    /// Takes a message. `observed` are the PSNs of its connection that were observed. Returns true
    /// if a whole message may be missing between the one before and this one.
    pub(super) fn start(
        &mut self,
        connection: u32,
        span: MessageSpan,
        observed: impl Iterator<Item = (i64, i64)>,
    ) -> bool {
        let stream = self.0.entry(connection).or_insert(MessageStream { last: span, has_gap: false });
        let last = std::mem::replace(&mut stream.last, span);
        if last == span || last.reaches(span.number) {
            return false;
        }
        // A message with an earlier PSN was overtaken, or the connection started anew.
        let is_gap = span.number < last.end || !covers(observed, last.end, span.number);
        stream.has_gap |= is_gap;
        is_gap
    }

    pub(super) fn contains(&self, connection: u32) -> bool {
        self.0.contains_key(&connection)
    }

    fn has_no_gap(&self, connection: u32) -> bool {
        self.0.get(&connection).is_some_and(|stream| !stream.has_gap)
    }
}

/// Whether a completion belongs to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionMatch {
    Certain,
    /// If the client's next message follows without a gap.
    Unconfirmed,
    Unknown,
}

/// Gaps in the two directions of a queue, in terms of the numbers of its commands.
#[derive(Debug, Default)]
pub(super) struct QueueGaps {
    /// The connection with the completions, once known.
    completions: Option<u32>,
    /// Since the commands from this number on, no completion may be missing.
    completed_from: u64,
    /// Since the commands from this number on, no command may be missing.
    sent_from: u64,
    unconfirmed: Vec<CommandTime>,
    /// Outstanding commands from `completed_from` on.
    outstanding: u64,
    /// Most of them since the last message of the server: too many if the next one shows a gap.
    peak: u64,
    /// Most commands that were outstanding at a time for certain.
    most: u64,
}

impl QueueGaps {
    /// Sets the connection with the completions. `next` is the number of the next command.
    pub(super) const fn set_completions(&mut self, connection: u32, next: u64) {
        if !matches!(self.completions, Some(known) if known == connection) {
            self.completions = Some(connection);
            self.miss_completions(next);
        }
    }

    pub(super) const fn has_completions(&self) -> bool {
        self.completions.is_some()
    }

    /// From here on only commands from `next` on are outstanding for certain.
    const fn miss_completions(&mut self, next: u64) {
        (self.completed_from, self.outstanding, self.peak) = (next, 0, 0);
    }

    /// Takes a message of the server.
    pub(super) fn server_message(&mut self, is_gap: bool, next: u64) {
        if is_gap {
            self.miss_completions(next);
        } else {
            self.most = self.most.max(self.peak);
            self.peak = self.outstanding;
        }
    }

    /// Takes a message of the client. Returns the times that it confirms.
    pub(super) fn client_message(&mut self, is_gap: bool, next: u64) -> Vec<CommandTime> {
        let confirmed = std::mem::take(&mut self.unconfirmed);
        if is_gap {
            self.sent_from = next;
            return Vec::new();
        }
        confirmed
    }

    pub(super) fn command(&mut self) {
        self.outstanding += 1;
        self.peak = self.peak.max(self.outstanding);
    }

    /// Takes the end of a command.
    pub(super) const fn ended(&mut self, number: u64) {
        if number >= self.completed_from {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    /// Whether a completion on `connection` belongs to a command.
    pub(super) fn completion_match(&self, number: u64, connection: u32) -> CompletionMatch {
        if self.completions == Some(connection) && number >= self.completed_from {
            CompletionMatch::Certain
        } else if number >= self.sent_from {
            CompletionMatch::Unconfirmed
        } else {
            CompletionMatch::Unknown
        }
    }

    /// Keeps a time until the next message of the client.
    pub(super) fn await_client(&mut self, time: CommandTime) {
        if self.unconfirmed.len() < MAX_UNCONFIRMED {
            self.unconfirmed.push(time);
        }
    }

    /// Ends the queue on connection `own`. Returns the times that no gap of the whole capture
    /// contradicts, and the most commands that were outstanding at a time; `observed_most` counts
    /// those without a completion too.
    pub(super) fn finish(&mut self, own: u32, streams: &MessageStreams, observed_most: u64) -> (Vec<CommandTime>, u64) {
        let has_no_gap = |connection| streams.has_no_gap(connection);
        if has_no_gap(own) && self.completions.is_some_and(has_no_gap) {
            return (std::mem::take(&mut self.unconfirmed), observed_most);
        }
        self.unconfirmed.clear();
        (Vec::new(), self.most.max(observed_most.min(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interval, SizeClass, TimingKey, Verb};

    fn gaps(messages: &[MessageSpan], observed: &[(i64, i64)]) -> Vec<bool> {
        let mut streams = MessageStreams::default();
        messages.iter().map(|span| streams.start(0, *span, observed.iter().copied())).collect()
    }

    #[test]
    fn packets_of_a_message_of_known_length_leave_no_gap() {
        let send = MessageSpan::packet;
        // 8000 bytes take 8 packets of 1024 bytes.
        let write = MessageSpan::data(10, 8000, Some(1024));
        assert_eq!(gaps(&[write, send(18), send(19)], &[]), [false; 3]);
        assert_eq!(gaps(&[write, send(19)], &[(10, 11), (19, 20)]), [false, true]);
        // Packets of messages that were not noted, or of a SEND of several packets.
        assert_eq!(gaps(&[send(10), send(14)], &[(10, 12), (12, 15)]), [false, false]);
        assert_eq!(gaps(&[send(10), send(14)], &[(10, 12), (13, 15)]), [false, true]);
        assert_eq!(gaps(&[send(10), send(9), send(10)], &[(9, 11)]), [false, true, false], "overtaken");
    }

    /// 2048 bytes take 1, 2, 4 or 8 packets.
    #[test]
    fn a_read_of_unknown_mtu_may_end_at_five_places() {
        let gap = |next| gaps(&[MessageSpan::data(10, 2048, None), MessageSpan::packet(next)], &[])[1];
        assert_eq!([11, 12, 13, 14, 15, 18, 19].map(gap), [false, false, true, false, true, false, true]);
    }

    /// Commands without a next message of their client: at most so many times wait for it.
    #[test]
    fn times_beyond_the_bound_wait_for_no_client() {
        for (completions, confirmed) in [(MAX_UNCONFIRMED, MAX_UNCONFIRMED), (MAX_UNCONFIRMED + 1, MAX_UNCONFIRMED)] {
            let mut queue = QueueGaps::default();
            for number in 0..completions as i64 {
                let key = TimingKey { interval: Interval::StorageCommand, verb: Verb::Read, size: SizeClass::of(4096) };
                queue.await_client(CommandTime { connection: 0, from_ns: number, until_ns: number + 1, key });
            }
            assert_eq!(queue.client_message(false, completions as u64).len(), confirmed);
        }
    }
}
