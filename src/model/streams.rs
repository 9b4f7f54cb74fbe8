//! Counts MPI messages by envelope (communicator, sender and tag), so that `crosscheck` can compare
//! them with a trace of the application.
//!
//! Most programs use few tags, so a connection has few streams. A program that numbers its messages
//! by tag would have any number of streams; messages beyond the limit are counted without tag and
//! communicator.

use super::{MpiMessage, PacketRecord, VecMap};
use ibscope_parsers::mpi::{Identity, LibraryStack, MatchFields};
use serde::{Deserialize, Serialize};

/// Streams per connection.
const MAX_STREAMS_PER_CONNECTION: usize = 1 << 10;
/// First of the tags that Open MPI counts down, one per nonblocking collective. They do not
/// identify the operation.
const NONBLOCKING_TAG: i32 = -27;

/// Messages of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSums {
    /// Messages.
    pub messages: u64,
    /// Their MPI bytes.
    pub mpi_bytes: u64,
    /// Times of the first and last envelope, nanoseconds since the epoch; `None` if no envelope has
    /// a time.
    pub times_ns: Option<(i64, i64)>,
}

impl StreamSums {
    /// Adds other messages.
    pub fn merge(&mut self, other: Self) {
        self.messages += other.messages;
        self.mpi_bytes = self.mpi_bytes.saturating_add(other.mpi_bytes);
        self.times_ns = match (self.times_ns, other.times_ns) {
            (Some(own), Some(others)) => Some((own.0.min(others.0), own.1.max(others.1))),
            (own, others) => own.or(others),
        };
    }
}

/// Streams of one connection, by library stack and match fields as on the wire.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Streams(VecMap<(LibraryStack, MatchFields), StreamSums>);

impl Streams {
    /// Adds a message. `room` is the number of streams that may still be added in all; without room
    /// the message is added to none.
    pub fn record(&mut self, message: &MpiMessage, room: &mut usize) {
        let time_ns = (message.time_ns != PacketRecord::NO_TIME).then_some(message.time_ns);
        let sums = StreamSums {
            messages: 1,
            mpi_bytes: message.mpi_bytes,
            times_ns: time_ns.map(|time_ns| (time_ns, time_ns)),
        };
        let key = (message.stack, merge_nonblocking_tags(message.envelope.matching));
        if let Some(stream) = self.0.get_mut(&key) {
            stream.merge(sums);
        } else if *room > 0 && self.0.len() < MAX_STREAMS_PER_CONNECTION {
            *room -= 1;
            self.0.or_insert_with(key, || sums);
        }
    }

    /// Adds the streams of another part of the connection.
    pub fn merge(&mut self, other: Self) {
        for (key, sums) in other.0 {
            self.0.join(key, sums, StreamSums::merge);
        }
    }

    /// All streams.
    pub fn iter(&self) -> impl Iterator<Item = (LibraryStack, MatchFields, StreamSums)> + '_ {
        self.0.iter().map(|(&(stack, matching), &sums)| (stack, matching, sums))
    }
}

/// Replaces the tags of nonblocking collectives by one tag. Only Open MPI has such tags.
fn merge_nonblocking_tags(matching: MatchFields) -> MatchFields {
    match matching {
        MatchFields::UcxTag(tag) if (tag.cast_signed() >> 40) < i64::from(NONBLOCKING_TAG) => MatchFields::UcxTag(
            ((i64::from(NONBLOCKING_TAG) << 40) | (tag.cast_signed() & 0xFF_FFFF_FFFF)).cast_unsigned(),
        ),
        MatchFields::Named(identity) if identity.collective && identity.tag < NONBLOCKING_TAG => {
            MatchFields::Named(Identity { tag: NONBLOCKING_TAG, ..identity })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::mpi::{Envelope, Length, TagLayout};

    fn message(tag: i64, bytes: u64, time_ns: i64) -> MpiMessage {
        // Open MPI: rank 3 on context 5.
        let matching = MatchFields::UcxTag((tag << 40 | 3 << 20 | 5).cast_unsigned());
        let envelope = Envelope { matching, length: Length::Explicit(bytes), sequence: None };
        MpiMessage { stack: LibraryStack::UcxVerbs, envelope, mpi_bytes: bytes, time_ns }
    }

    #[test]
    fn messages_of_one_envelope_are_one_stream() {
        let (mut streams, mut room) = (Streams::default(), 10);
        for (tag, bytes, time_ns) in [(7, 100, 50), (8, 1, 60), (7, 200, 40), (7, 0, PacketRecord::NO_TIME)] {
            streams.record(&message(tag, bytes, time_ns), &mut room);
        }
        assert_eq!(room, 8);
        let sums: Vec<StreamSums> = streams.iter().map(|(_, _, sums)| sums).collect();
        assert_eq!(sums[0], StreamSums { messages: 3, mpi_bytes: 300, times_ns: Some((40, 50)) });
        assert_eq!(sums[1], StreamSums { messages: 1, mpi_bytes: 1, times_ns: Some((60, 60)) });
    }

    #[test]
    fn nonblocking_collectives_are_one_stream_and_room_is_limited() {
        let (mut streams, mut room) = (Streams::default(), 3);
        (-200..=-27).for_each(|tag| streams.record(&message(tag, 4, 1), &mut room));
        let all: Vec<_> = streams.iter().collect();
        assert_eq!((all.len(), all[0].2.messages), (1, 174));
        let identity = all[0].1.identity(TagLayout::OpenMpi).expect("Open MPI");
        assert_eq!((identity.rank, identity.context, identity.tag), (3, 5, -27));
        (0..100).for_each(|tag| streams.record(&message(tag, 4, 1), &mut room));
        assert_eq!((streams.iter().count(), room), (3, 0));
    }

    #[test]
    fn streams_of_a_connection_are_limited() {
        for tags in [MAX_STREAMS_PER_CONNECTION, MAX_STREAMS_PER_CONNECTION + 1] {
            let (mut streams, mut room) = (Streams::default(), usize::MAX);
            (0..tags as i64).for_each(|tag| streams.record(&message(tag, 4, 1), &mut room));
            assert_eq!(
                (streams.iter().count(), usize::MAX - room),
                (MAX_STREAMS_PER_CONNECTION, MAX_STREAMS_PER_CONNECTION)
            );
        }
    }
}
