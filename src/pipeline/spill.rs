//! Messages that wait until it is known which of them count: in memory while they are few, in a temporary file beyond that.

use crate::model::{Moved, RawMessage};
use ibscope_parsers::mpi::{Form, Identity, Matching, Protocol};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write as _};
use tempfile::SpooledTempFile;

/// Bytes that are kept in memory per spill: there are 32 for each input.
const MEMORY_BYTES: usize = 1 << 18;
/// Length of a stored message.
const STORED_BYTES: usize = 72;

/// A sequence of messages.
#[derive(Debug)]
pub(super) struct Spill {
    file: BufWriter<SpooledTempFile>,
    failed: Option<io::Error>,
}

impl Spill {
    pub(super) fn new() -> Self {
        Self { file: BufWriter::new(SpooledTempFile::new(MEMORY_BYTES)), failed: None }
    }

    /// Adds a message. That it could not be stored is told by [`Spill::read`].
    pub(super) fn push(&mut self, message: &RawMessage) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(&store(message)).err();
        }
    }

    /// The messages, in the order in which they came.
    pub(super) fn read(self) -> io::Result<Messages> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(Messages { file: BufReader::new(file) })
    }
}

/// Messages that are read again.
#[derive(Debug)]
pub(super) struct Messages {
    file: BufReader<SpooledTempFile>,
}

impl Iterator for Messages {
    type Item = io::Result<RawMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut stored = [0; STORED_BYTES];
        match self.file.read_exact(&mut stored) {
            Ok(()) => Some(Ok(restore(stored))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => Some(Err(error)),
        }
    }
}

const NO_MPI: u8 = 0;
const NAMED: u8 = 1;
const UCX_TAG: u8 = 2;
const OFI_TAG: u8 = 3;
const OFI_TAG_AND_DATA: u8 = 4;

/// Sixteen bytes that mean what the kind before them says.
fn matching_words(matching: Matching) -> (u8, [u64; 2]) {
    match matching {
        Matching::Named(Identity { rank, context, tag, world, collective }) => {
            let flags = u64::from(world) | u64::from(collective) << 1;
            (NAMED, [u64::from(rank) << 32 | u64::from(context), u64::from(tag.cast_unsigned()) << 32 | flags])
        }
        Matching::UcxTag(tag) => (UCX_TAG, [tag, 0]),
        Matching::OfiTag(tag, None) => (OFI_TAG, [tag, 0]),
        Matching::OfiTag(tag, Some(cq_data)) => (OFI_TAG_AND_DATA, [tag, cq_data]),
    }
}

fn matching(kind: u8, [a, b]: [u64; 2]) -> Matching {
    match kind {
        UCX_TAG => Matching::UcxTag(a),
        OFI_TAG => Matching::OfiTag(a, None),
        OFI_TAG_AND_DATA => Matching::OfiTag(a, Some(b)),
        _ => Matching::Named(Identity {
            rank: (a >> 32) as u32,
            context: a as u32,
            tag: ((b >> 32) as u32).cast_signed(),
            world: b & 1 != 0,
            collective: b & 2 != 0,
        }),
    }
}

fn store(message: &RawMessage) -> [u8; STORED_BYTES] {
    let (kind, form, protocol, words) = match message.mpi {
        None => (NO_MPI, 0, 0, [0; 2]),
        Some((form, matching, protocol)) => {
            let (kind, words) = matching_words(matching);
            (kind, form as u8, protocol as u8, words)
        }
    };
    let tags = [
        kind,
        form,
        protocol,
        message.moved as u8,
        u8::from(message.complete),
        u8::from(message.length_bytes.is_some()),
        0,
        0,
    ];
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
    chunks.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
    stored
}

fn restore(stored: [u8; STORED_BYTES]) -> RawMessage {
    let (chunks, _) = stored.as_chunks::<8>();
    let word = |index: usize| chunks.get(index).map_or(0, |&chunk| u64::from_le_bytes(chunk));
    let [kind, form, protocol, moved, complete, has_length, ..] = word(0).to_le_bytes();
    let form = Form::ALL.get(usize::from(form)).copied();
    let protocol = Protocol::ALL.get(usize::from(protocol)).copied();
    let mpi = form.zip(protocol).filter(|_| kind != NO_MPI);
    RawMessage {
        connection: (word(1) >> 32) as u32,
        psn: word(1) as u32,
        mpi: mpi.map(|(form, protocol)| (form, matching(kind, [word(2), word(3)]), protocol)),
        moved: Moved::ALL.get(usize::from(moved)).copied().unwrap_or(Moved::Send),
        length_bytes: (has_length != 0).then_some(word(4)),
        wire_bytes: word(5),
        packets: word(6),
        times_ns: (word(7).cast_signed(), word(8).cast_signed()),
        complete: complete != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matchings() -> impl Strategy<Value = Matching> {
        let identity = (any::<u32>(), any::<u32>(), any::<i32>(), any::<bool>(), any::<bool>());
        prop_oneof![
            identity.prop_map(|(rank, context, tag, world, collective)| Matching::Named(Identity {
                rank,
                context,
                tag,
                world,
                collective
            })),
            any::<u64>().prop_map(Matching::UcxTag),
            (any::<u64>(), any::<Option<u64>>()).prop_map(|(tag, data)| Matching::OfiTag(tag, data)),
        ]
    }

    fn messages() -> impl Strategy<Value = RawMessage> {
        let mpi = prop::option::of((
            prop::sample::select(Form::ALL.to_vec()),
            matchings(),
            prop::sample::select(Protocol::ALL.to_vec()),
        ));
        let moved = prop::sample::select(Moved::ALL.to_vec());
        let numbers = (any::<u32>(), any::<u32>(), any::<Option<u64>>(), any::<u64>(), any::<u64>());
        (numbers, mpi, moved, any::<(i64, i64)>(), any::<bool>()).prop_map(
            |((connection, psn, length_bytes, wire_bytes, packets), mpi, moved, times_ns, complete)| RawMessage {
                connection,
                psn,
                mpi,
                moved,
                length_bytes,
                wire_bytes,
                packets,
                times_ns,
                complete,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(sent in prop::collection::vec(messages(), 0..20)) {
            let mut spill = Spill::new();
            sent.iter().for_each(|message| spill.push(message));
            let found: Vec<RawMessage> = spill.read().unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(found, sent);
        }
    }
}
