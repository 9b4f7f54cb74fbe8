//! Stores messages until the analysis knows which messages count: in memory up to a limit, beyond
//! it in one temporary file that all spills share.

use crate::model::{NcclReceive, RawMessage, Verb};
use ibscope_parsers::mpi::{Identity, LibraryStack, MatchFields, Protocol};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that a spill keeps in memory, and bytes of each block in the file. There are 32 spills per
/// input.
const BLOCK_BYTES: usize = 546 * STORED_BYTES;
/// Length of a stored message.
const STORED_BYTES: usize = 120;

/// The temporary file that all spills share; created on first use.
#[derive(Clone, Debug, Default)]
pub(super) struct SpillFile(Arc<Mutex<Option<File>>>);

impl SpillFile {
    /// Appends a block and returns its offset.
    fn put(&self, block: &[u8]) -> io::Result<u64> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let at = file.seek(SeekFrom::End(0))?;
        file.write_all(block)?;
        Ok(at)
    }

    fn get(&self, at: u64, block: &mut [u8]) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &mut *file else { return Err(io::ErrorKind::NotFound.into()) };
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(block)
    }
}

/// A sequence of messages, written once and then read.
#[derive(Debug)]
pub(super) struct Spill {
    file: SpillFile,
    /// Offsets of its blocks in the file, in order.
    blocks: VecDeque<u64>,
    /// The messages after the last block.
    memory: Vec<u8>,
    failed: Option<io::Error>,
}

impl Spill {
    pub(super) const fn new(file: SpillFile) -> Self {
        Self { file, blocks: VecDeque::new(), memory: Vec::new(), failed: None }
    }

    /// Adds a message. [`Spill::read`] reports an error of the file.
    pub(super) fn push(&mut self, message: &RawMessage) {
        if self.failed.is_some() {
            return;
        }
        self.memory.extend_from_slice(&store(message));
        if self.memory.len() == BLOCK_BYTES {
            match self.file.put(&self.memory) {
                Ok(at) => self.blocks.push_back(at),
                Err(error) => self.failed = Some(error),
            }
            self.memory.clear();
        }
    }

    /// The messages, in the order in which they were added.
    pub(super) fn read(self) -> io::Result<SpillReader> {
        match self.failed {
            Some(error) => Err(error),
            None => {
                Ok(SpillReader { file: self.file, blocks: self.blocks, last: self.memory, block: Vec::new(), at: 0 })
            }
        }
    }
}

/// Reads the messages of a spill.
#[derive(Debug)]
pub(super) struct SpillReader {
    file: SpillFile,
    blocks: VecDeque<u64>,
    /// The messages after the last block.
    last: Vec<u8>,
    block: Vec<u8>,
    at: usize,
}

impl Iterator for SpillReader {
    type Item = io::Result<RawMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.block.len() {
            self.at = 0;
            if let Some(at) = self.blocks.pop_front() {
                self.block.resize(BLOCK_BYTES, 0);
                if let Err(error) = self.file.get(at, &mut self.block) {
                    return Some(Err(error));
                }
            } else {
                self.block = std::mem::take(&mut self.last);
            }
        }
        let stored = self.block.get(self.at..)?.first_chunk()?;
        self.at += STORED_BYTES;
        Some(Ok(restore(*stored)))
    }
}

const NO_MPI: u8 = 0;
const NAMED: u8 = 1;
const UCX_TAG: u8 = 2;
const OFI_TAG: u8 = 3;
const OFI_TAG_AND_DATA: u8 = 4;

/// Sixteen bytes of matching fields, and the kind that defines their meaning.
fn matching_words(matching: MatchFields) -> (u8, [u64; 2]) {
    match matching {
        MatchFields::Named(Identity { rank, context, tag, world, collective }) => {
            let flags = u64::from(world) | u64::from(collective) << 1;
            (NAMED, [u64::from(rank) << 32 | u64::from(context), u64::from(tag.cast_unsigned()) << 32 | flags])
        }
        MatchFields::UcxTag(tag) => (UCX_TAG, [tag, 0]),
        MatchFields::OfiTag(tag, None) => (OFI_TAG, [tag, 0]),
        MatchFields::OfiTag(tag, Some(cq_data)) => (OFI_TAG_AND_DATA, [tag, cq_data]),
    }
}

fn matching(kind: u8, [a, b]: [u64; 2]) -> MatchFields {
    match kind {
        UCX_TAG => MatchFields::UcxTag(a),
        OFI_TAG => MatchFields::OfiTag(a, None),
        OFI_TAG_AND_DATA => MatchFields::OfiTag(a, Some(b)),
        _ => MatchFields::Named(Identity {
            rank: (a >> 32) as u32,
            context: a as u32,
            tag: ((b >> 32) as u32).cast_signed(),
            world: b & 1 != 0,
            collective: b & 2 != 0,
        }),
    }
}

fn store(message: &RawMessage) -> [u8; STORED_BYTES] {
    let (kind, stack, protocol, words) = match message.mpi {
        None => (NO_MPI, 0, 0, [0; 2]),
        Some((stack, matching, protocol)) => {
            let (kind, words) = matching_words(matching);
            (kind, stack as u8, protocol as u8, words)
        }
    };
    let tags = [
        kind,
        stack,
        protocol,
        message.transfer_verb as u8,
        u8::from(message.complete),
        u8::from(message.length_bytes.is_some()),
        u8::from(message.receive.is_some()),
        u8::from(message.receive.is_some_and(|receive| receive.data_hash.is_some())),
    ];
    let receive = message.receive.map(|receive| {
        [
            receive.ring,
            receive.index,
            receive.posted_ns.cast_unsigned(),
            receive.buffer_address,
            receive.buffer_bytes,
            receive.data_hash.unwrap_or(0).into(),
        ]
    });
    let words = [
        u64::from_le_bytes(tags),
        u64::from(message.connection) << 32 | u64::from(message.psn),
        words[0],
        words[1],
        message.length_bytes.unwrap_or(0),
        message.wire_bytes,
        message.packets,
        message.times_ns.0.cast_unsigned(),
        message.times_ns.1.cast_unsigned(),
    ];
    let mut stored = [0; STORED_BYTES];
    let (chunks, _) = stored.as_chunks_mut::<8>();
    let words = words.into_iter().chain(receive.unwrap_or_default());
    chunks.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
    stored
}

fn restore(stored: [u8; STORED_BYTES]) -> RawMessage {
    let (chunks, _) = stored.as_chunks::<8>();
    let word = |index: usize| chunks.get(index).map_or(0, |&chunk| u64::from_le_bytes(chunk));
    let [kind, stack, protocol, moved, complete, has_length, has_receive, has_hash] = word(0).to_le_bytes();
    let stack = LibraryStack::ALL.get(usize::from(stack)).copied();
    let protocol = Protocol::ALL.get(usize::from(protocol)).copied();
    let mpi = stack.zip(protocol).filter(|_| kind != NO_MPI);
    RawMessage {
        connection: (word(1) >> 32) as u32,
        psn: word(1) as u32,
        mpi: mpi.map(|(stack, protocol)| (stack, matching(kind, [word(2), word(3)]), protocol)),
        transfer_verb: Verb::ALL.get(usize::from(moved)).copied().unwrap_or(Verb::Send),
        length_bytes: (has_length != 0).then_some(word(4)),
        wire_bytes: word(5),
        packets: word(6),
        times_ns: (word(7).cast_signed(), word(8).cast_signed()),
        complete: complete != 0,
        receive: (has_receive != 0).then(|| NcclReceive {
            ring: word(9),
            index: word(10),
            posted_ns: word(11).cast_signed(),
            buffer_address: word(12),
            buffer_bytes: word(13),
            data_hash: (has_hash != 0).then_some(word(14) as u32),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matchings() -> impl Strategy<Value = MatchFields> {
        let identity = (any::<u32>(), any::<u32>(), any::<i32>(), any::<bool>(), any::<bool>());
        prop_oneof![
            identity.prop_map(|(rank, context, tag, world, collective)| MatchFields::Named(Identity {
                rank,
                context,
                tag,
                world,
                collective
            })),
            any::<u64>().prop_map(MatchFields::UcxTag),
            (any::<u64>(), any::<Option<u64>>()).prop_map(|(tag, data)| MatchFields::OfiTag(tag, data)),
        ]
    }

    fn messages() -> impl Strategy<Value = RawMessage> {
        let mpi = prop::option::of((
            prop::sample::select(LibraryStack::ALL.to_vec()),
            matchings(),
            prop::sample::select(Protocol::ALL.to_vec()),
        ));
        let moved = prop::sample::select(Verb::ALL.to_vec());
        let numbers = (any::<u32>(), any::<u32>(), any::<Option<u64>>(), any::<u64>(), any::<u64>());
        let receive = prop::option::of((any::<[u64; 4]>(), any::<i64>(), any::<Option<u32>>()).prop_map(
            |([ring, index, buffer_address, buffer_bytes], posted_ns, data_hash)| NcclReceive {
                ring,
                index,
                posted_ns,
                buffer_address,
                buffer_bytes,
                data_hash,
            },
        ));
        (numbers, mpi, moved, any::<(i64, i64)>(), any::<bool>(), receive).prop_map(
            |((connection, psn, length_bytes, wire_bytes, packets), mpi, moved, times_ns, complete, receive)| {
                RawMessage {
                    connection,
                    psn,
                    mpi,
                    transfer_verb: moved,
                    length_bytes,
                    wire_bytes,
                    packets,
                    times_ns,
                    complete,
                    receive,
                }
            },
        )
    }

    proptest! {
        /// In memory and in the file, for two spills that share the file.
        #[test]
        fn stored_messages_are_read_back_unchanged(sent in prop::collection::vec(messages(), 0..20), times in prop::sample::select(vec![1, 100, 400])) {
            let file = SpillFile::default();
            let mut spills = [Spill::new(file.clone()), Spill::new(file)];
            for _ in 0..times {
                for message in &sent {
                    spills.iter_mut().for_each(|spill| spill.push(message));
                }
            }
            for spill in spills {
                let found: Vec<RawMessage> = spill.read().unwrap().map(Result::unwrap).collect();
                prop_assert_eq!(found, sent.repeat(times));
            }
        }
    }
}
