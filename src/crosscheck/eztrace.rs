//! The messages that eztrace itself sends, which its trace does not contain.
//!
//! When the program ends, each rank but 0 sends its definitions to rank 0 of `MPI_COMM_WORLD`,
//! which writes them. Each definition takes one message with tag 17 (4 bytes: its kind) and one
//! with tag 18 (fields of a fixed size); strings and communicators take a second message with tag
//! 18 (the text with its NUL, or 8 bytes per member). A last message with tag 17 ends the list.
//! Each process numbers its definitions from the reference of its first thread on.
//!
//! In: the definitions of an archive. Out: the messages that each rank must have sent. Invariant: a
//! message on the wire counts as eztrace's own only if the definitions prove it.

use super::message_sums::MessageSums;
use std::collections::BTreeMap;

/// Tags of the messages: kinds of definitions, and their content.
pub(super) const TAGS: [i32; 2] = [17, 18];

/// Messages by tag, in the order of [`TAGS`].
pub(super) type EztraceSums = [MessageSums; 2];

/// A message with tag 17, which contains a kind.
const KIND: MessageSums = MessageSums { messages: 1, bytes: 4 };

/// A definition, as a process sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EztraceDefinition {
    String { bytes: u64 },
    Function,
    Thread,
    Attribute,
    Communicator { members: u64 },
}

impl EztraceDefinition {
    /// Messages with tag 18 for this definition.
    const fn content(self) -> MessageSums {
        let (messages, bytes) = match self {
            Self::String { bytes } => (2, 8 + bytes.saturating_add(1)),
            Self::Function => (1, 8),
            Self::Thread | Self::Attribute => (1, 12),
            Self::Communicator { members } => (2, 8 + members.saturating_mul(8)),
        };
        MessageSums { messages, bytes }
    }
}

/// The messages of each rank but 0. `processes` maps the reference of the first definition of each
/// process to its rank.
pub(super) fn own_messages(
    processes: &BTreeMap<u64, u32>,
    definitions: impl Iterator<Item = (u64, EztraceDefinition)>,
) -> BTreeMap<u32, EztraceSums> {
    let senders = processes.values().filter(|rank| **rank != 0);
    let mut own: BTreeMap<u32, EztraceSums> = senders.map(|rank| (*rank, [KIND, MessageSums::default()])).collect();
    for (id, definition) in definitions {
        let process = processes.range(..=id).next_back();
        if let Some([kinds, contents]) = process.and_then(|(_, rank)| own.get_mut(rank)) {
            *kinds += KIND;
            *contents += definition.content();
        }
    }
    own
}

/// The part of the excess messages on the wire that is eztrace's own: all messages that it must
/// have sent, or fewer if not all are on the wire. `None` if the messages cannot be eztrace's.
pub(super) fn tracer_part(beyond: &EztraceSums, own: &EztraceSums) -> Option<EztraceSums> {
    let [kinds, contents] = [0, 1].map(|tag| {
        let (found, sent) = (beyond[tag], own[tag]);
        let is_part = found.messages <= sent.messages && found.bytes <= sent.bytes;
        let has_all = found.messages >= sent.messages && found.bytes >= sent.bytes;
        if is_part { Some(found) } else { has_all.then_some(sent) }
    });
    let (kinds, contents) = (kinds?, contents?);
    (Some(kinds.bytes) == kinds.messages.checked_mul(KIND.bytes)).then_some([kinds, contents])
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sums(messages: u64, bytes: u64) -> MessageSums {
        MessageSums { messages, bytes }
    }

    /// The definitions of a rank of NAS FT (`samples/runs2/ompi-rc-ft.S-2x2`): three communicators
    /// of its own, eight strings, seven functions.
    #[test]
    fn definitions_prove_messages() {
        let first = 536_870_911;
        let texts = [
            "EZTrace finalize",
            "P#1T#0",
            "Working",
            "mpi_bcast_",
            "MPI_Comm_split",
            "mpi_alltoall_",
            "mpi_barrier_",
            "mpi_reduce_",
        ];
        let strings = texts.iter().map(|text| EztraceDefinition::String { bytes: text.len() as u64 });
        let others =
            [EztraceDefinition::Communicator { members: 1 }; 3].into_iter().chain([EztraceDefinition::Function; 7]);
        let definitions = strings.chain(others).map(|definition| (first + 1, definition));
        // Rank 0 does not send its definitions.
        let of_rank_0 = (first - 1, EztraceDefinition::Function);
        let own = own_messages(&BTreeMap::from([(0, 0), (first, 1)]), definitions.chain([of_rank_0]));
        assert_eq!(own, BTreeMap::from([(1, [sums(19, 76), sums(29, 265)])]));
    }

    #[test]
    fn threads_and_large_communicators_have_their_sizes() {
        let definitions =
            [EztraceDefinition::Thread, EztraceDefinition::Attribute, EztraceDefinition::Communicator { members: 3 }];
        let own = own_messages(&BTreeMap::from([(0, 0), (10, 1)]), definitions.into_iter().map(|one| (10, one)));
        assert_eq!(own[&1], [sums(4, 16), sums(4, 12 + 12 + 8 + 24)]);
    }

    #[test]
    fn no_more_is_taken_than_was_sent() {
        let own = [sums(19, 76), sums(29, 265)];
        assert_eq!(tracer_part(&own, &own), Some(own));
        // The excess beyond eztrace's messages belongs to another sender.
        assert_eq!(tracer_part(&[sums(20, 80), sums(30, 1000)], &own), Some(own));
        assert_eq!(tracer_part(&[sums(5, 20), sums(7, 60)], &own), Some([sums(5, 20), sums(7, 60)]));
        // Fewer messages with more bytes, and kinds with a length other than 4 bytes.
        assert_eq!(tracer_part(&[sums(19, 76), sums(28, 300)], &own), None);
        assert_eq!(tracer_part(&[sums(18, 70), sums(29, 265)], &own), None);
    }
}
