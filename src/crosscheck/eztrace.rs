//! The messages that eztrace sends itself, which are not in its trace.
//!
//! When the program ends, each rank but 0 sends rank 0 of `MPI_COMM_WORLD` its definitions, so that
//! rank 0 can write them. Each definition takes one message of tag 17 (4 bytes: its kind) and one
//! of tag 18 (fields of a fixed size); strings and communicators take a second one of tag 18 (the
//! text with its NUL, or 8 bytes for each member). A last message of tag 17 ends the list. A
//! process numbers its definitions from a number of its own on, that of its first thread.
//!
//! In: the definitions of an archive. Out: the messages that each rank must have sent. Invariant:
//! nothing on the wire is called eztrace's own that its definitions do not prove.

use super::message_sums::Sums;
use std::collections::BTreeMap;

/// Tags of these messages: kinds of definitions, and their content.
pub(super) const TAGS: [i32; 2] = [17, 18];

/// Messages by tag, in the order of [`TAGS`].
pub(super) type ByTag = [Sums; 2];

/// The kind that a message of tag 17 holds.
const KIND: Sums = Sums { messages: 1, bytes: 4 };

/// A definition, as a process sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    String { bytes: u64 },
    Function,
    Thread,
    Attribute,
    Communicator { members: u64 },
}

impl Definition {
    /// Its messages of tag 18.
    const fn content(self) -> Sums {
        let (messages, bytes) = match self {
            Self::String { bytes } => (2, 8 + bytes.saturating_add(1)),
            Self::Function => (1, 8),
            Self::Thread | Self::Attribute => (1, 12),
            Self::Communicator { members } => (2, 8 + members.saturating_mul(8)),
        };
        Sums { messages, bytes }
    }
}

/// What each rank but 0 sends. `processes` are the ranks by the first number of their definitions.
pub(super) fn own_messages(
    processes: &BTreeMap<u64, u32>,
    definitions: impl Iterator<Item = (u64, Definition)>,
) -> BTreeMap<u32, ByTag> {
    let senders = processes.values().filter(|rank| **rank != 0);
    let mut own: BTreeMap<u32, ByTag> = senders.map(|rank| (*rank, [KIND, Sums::default()])).collect();
    for (id, definition) in definitions {
        let process = processes.range(..=id).next_back();
        if let Some([kinds, contents]) = process.and_then(|(_, rank)| own.get_mut(rank)) {
            *kinds += KIND;
            *contents += definition.content();
        }
    }
    own
}

/// Which of the messages that the wire has beyond the trace are eztrace's, of those that it must
/// have sent: all of them, or fewer where not all are on the wire. None where they cannot be.
pub(super) fn among(beyond: &ByTag, own: &ByTag) -> Option<ByTag> {
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

    const fn sums(messages: u64, bytes: u64) -> Sums {
        Sums { messages, bytes }
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
        let strings = texts.iter().map(|text| Definition::String { bytes: text.len() as u64 });
        let others = [Definition::Communicator { members: 1 }; 3].into_iter().chain([Definition::Function; 7]);
        let definitions = strings.chain(others).map(|definition| (first + 1, definition));
        // Those of rank 0 are not sent.
        let of_rank_0 = (first - 1, Definition::Function);
        let own = own_messages(&BTreeMap::from([(0, 0), (first, 1)]), definitions.chain([of_rank_0]));
        assert_eq!(own, BTreeMap::from([(1, [sums(19, 76), sums(29, 265)])]));
    }

    #[test]
    fn threads_and_large_communicators_have_their_sizes() {
        let definitions = [Definition::Thread, Definition::Attribute, Definition::Communicator { members: 3 }];
        let own = own_messages(&BTreeMap::from([(0, 0), (10, 1)]), definitions.into_iter().map(|one| (10, one)));
        assert_eq!(own[&1], [sums(4, 16), sums(4, 12 + 12 + 8 + 24)]);
    }

    #[test]
    fn no_more_is_taken_than_was_sent() {
        let own = [sums(19, 76), sums(29, 265)];
        assert_eq!(among(&own, &own), Some(own));
        // Of more than that the rest is somebody else's.
        assert_eq!(among(&[sums(20, 80), sums(30, 1000)], &own), Some(own));
        assert_eq!(among(&[sums(5, 20), sums(7, 60)], &own), Some([sums(5, 20), sums(7, 60)]));
        // Fewer messages with more bytes, and kinds that are not of 4 bytes.
        assert_eq!(among(&[sums(19, 76), sums(28, 300)], &own), None);
        assert_eq!(among(&[sums(18, 70), sums(29, 265)], &own), None);
    }
}
