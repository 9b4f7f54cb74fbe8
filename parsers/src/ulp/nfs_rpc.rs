//! RPC calls and replies of NFS inside RPC-over-RDMA version 1 (RFC 8166, RFC 5531, RFC 1813, RFC
//! 8881, RFC 8267). All fields are big-endian words; strings and opaque data have a length word and
//! are padded to whole words.
//!
//! ```text
//! P+0 XID   P+4 version   P+8 credits   P+12 procedure
//! read list    { 1, position, handle, length, offset (2) } ... 0
//! write list   { 1, n, n times { handle, length, offset (2) } } ... 0
//! reply chunk  0, or 1, n, n times { handle, length, offset (2) }
//! call         XID, 0, 2, program, version, procedure, credential, verifier, arguments
//! reply        XID, 1, 0, verifier, accept state, results    or    XID, 1, 1, reject state ...
//! credential, verifier: flavor, opaque
//! ```
//! The data of a READ or WRITE leave the call or reply for a chunk, or stay inside. In both cases
//! their length word stays, so the results of a reply give the bytes. NFS version 4 has one procedure,
//! COMPOUND: a list of operations. The first one that names no file and asks for no attributes gives
//! the COMPOUND its name, as in Linux' `mountstats`.

use super::bytes;
use super::storage_message::{
    ClientCommand, ClientMemory, CommandTransfer, QueueEvidence, StorageCompletion, StorageMessage, StorageStatus,
    Wrapping,
};
use super::storage_operation::{NFS3_READ, NFS3_WRITE, NFS4_READ, NFS4_READ_PLUS, NFS4_WRITE, StorageOperation};
use crate::mpi::Payload;
use alloc::vec::Vec;

/// Procedures of the transport.
const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const NFS_PROGRAM: u32 = 100_003;
/// Programs that servers call at clients have transient numbers from here on (RFC 8881).
const FIRST_TRANSIENT: u32 = 0x4000_0000;

const NFS4_COMPOUND: u32 = 1;
const ACCESS: u32 = 3;
const COMMIT: u32 = 5;
const GETATTR: u32 = 9;
const GETFH: u32 = 10;
const LOOKUP: u32 = 15;
const PUTFH: u32 = 22;
const PUTPUBFH: u32 = 23;
const PUTROOTFH: u32 = 24;
const READLINK: u32 = 27;
const RESTOREFH: u32 = 31;
const SAVEFH: u32 = 32;
const SEQUENCE: u32 = 53;

const STATE_ID_BYTES: usize = 16;
const SESSION_ID_BYTES: usize = 16;
/// Attributes of a file in NFS version 3, and those that its replies compare.
const FILE_ATTRIBUTES_BYTES: usize = 84;
const WEAK_ATTRIBUTES_BYTES: usize = 24;
const RPCSEC_GSS: u32 = 6;
/// `accept_stat` and `reply_stat` of success.
const ACCEPTED: u32 = 0;
const REJECTED_CALL: u32 = 0x100;

/// Reads words; `None` where the captured part ends.
#[derive(Clone, Copy)]
struct XdrWords<'a> {
    captured: &'a [u8],
    at: usize,
}

impl<'a> XdrWords<'a> {
    const fn new(captured: &'a [u8], at: usize) -> Self {
        Self { captured, at }
    }

    fn next(&mut self) -> Option<u32> {
        let word = bytes(self.captured, self.at).map(u32::from_be_bytes)?;
        self.at += 4;
        Some(word)
    }

    const fn skip(&mut self, length: usize) {
        self.at = self.at.saturating_add(length);
    }

    /// Skips opaque data and their padding. Returns their length.
    fn opaque(&mut self) -> Option<u32> {
        let length = self.next()?;
        self.skip(length.next_multiple_of(4) as usize);
        Some(length)
    }

    /// Skips a list of words, such as a bitmap.
    fn list(&mut self) -> Option<()> {
        let count = self.next()? as usize;
        self.skip(count.saturating_mul(4));
        Some(())
    }
}

/// The chunk lists of a message.
#[derive(Default)]
struct Chunks {
    /// Memory that data pass through.
    memory: Vec<ClientMemory>,
    /// Data of the message are in read chunks.
    has_reads: bool,
    /// Bytes of the segments in the write list.
    written_bytes: u64,
    /// The message has a write list.
    has_writes: bool,
    /// First segment of the reply chunk.
    reply: Option<ClientMemory>,
}

/// Reads a segment: handle, length, offset.
fn segment(words: &mut XdrWords<'_>) -> Option<ClientMemory> {
    let (key, length_bytes) = (words.next()?, words.next()?);
    let address = u64::from(words.next()?) << 32 | u64::from(words.next()?);
    Some(ClientMemory { key, address, length_bytes })
}

/// Reads the chunk lists and leaves `words` at the RPC message.
fn chunks(words: &mut XdrWords<'_>) -> Option<Chunks> {
    let mut chunks = Chunks::default();
    while words.next()? != 0 {
        let position = words.next()?;
        let segment = segment(words)?;
        // At position 0 is the message itself, not its data.
        if position != 0 {
            chunks.has_reads = true;
            chunks.memory.push(segment);
        }
    }
    while words.next()? != 0 {
        chunks.has_writes = true;
        for _ in 0..words.next()? {
            let segment = segment(words)?;
            chunks.written_bytes = chunks.written_bytes.saturating_add(segment.length_bytes.into());
            chunks.memory.push(segment);
        }
    }
    if words.next()? != 0 {
        let segments = words.next()? as usize;
        let mut first = *words;
        chunks.reply = if segments == 0 { None } else { segment(&mut first) };
        words.skip(segments.saturating_mul(16));
    }
    Some(chunks)
}

/// Reads a message of RPC-over-RDMA.
pub(super) fn storage_message(payload: &Payload<'_>) -> StorageMessage {
    let mut words = XdrWords::new(payload.captured, 0);
    let mut header = || Some((words.next()?, words.next()?, words.next()?, words.next()?));
    let Some((xid, _, _, procedure)) = header() else { return StorageMessage::Truncated };
    let id = u64::from(xid);
    match procedure {
        ERROR => return StorageMessage::Completion(id),
        MSG | NOMSG => {}
        _ => return StorageMessage::Other,
    }
    if procedure == NOMSG {
        return long_message(id, words);
    }
    let Some(chunks) = chunks(&mut words) else { return StorageMessage::Truncated };
    let (Some(inner), Some(direction)) = (words.next(), words.next()) else { return StorageMessage::Truncated };
    match direction {
        CALL if inner == xid => call(id, words, chunks),
        REPLY if inner == xid => StorageMessage::Completion(id),
        _ => StorageMessage::Other,
    }
}

/// A message whose RPC part is in a chunk: a call has it at position 0 of the read list, a reply in
/// the reply chunk.
fn long_message(id: u64, mut words: XdrWords<'_>) -> StorageMessage {
    match words.next() {
        None => StorageMessage::Truncated,
        Some(0) => StorageMessage::Completion(id),
        Some(_) => StorageMessage::Command(ClientCommand {
            id,
            transfer: CommandTransfer::of_unknown_length(StorageOperation::Unknown),
            memory: Vec::new(),
            reply: None,
            queue: QueueEvidence::None,
        }),
    }
}

fn call(id: u64, mut words: XdrWords<'_>, chunks: Chunks) -> StorageMessage {
    let program = program(&mut words);
    if program.is_some_and(|(program, _)| program >= FIRST_TRANSIENT) {
        // A call of the server at the client.
        return StorageMessage::Other;
    }
    let transfer = match program {
        None => CommandTransfer::of_unknown_length(StorageOperation::Unknown),
        Some((NFS_PROGRAM, (version, procedure))) => nfs_call((version, procedure), words, &chunks),
        Some((program, _)) => CommandTransfer::sized(StorageOperation::Rpc(program), 0, 0),
    };
    let Chunks { memory, reply, .. } = chunks;
    StorageMessage::Command(ClientCommand { id, transfer, memory, reply, queue: QueueEvidence::None })
}

/// Program, version and procedure of a call; leaves `words` after them.
fn program(words: &mut XdrWords<'_>) -> Option<(u32, (u32, u32))> {
    (words.next()? == RPC_VERSION).then_some(())?;
    Some((words.next()?, (words.next()?, words.next()?)))
}

/// Skips credential and verifier of a call.
fn credentials(words: &mut XdrWords<'_>) -> Option<Wrapping> {
    let flavor = words.next()?;
    let mut own = *words;
    words.opaque()?;
    let wrapping = if flavor == RPCSEC_GSS {
        // Length, version, procedure, sequence number, service.
        own.skip(16);
        match own.next()? {
            2 => Wrapping::Integrity,
            3 => Wrapping::Privacy,
            _ => Wrapping::None,
        }
    } else {
        Wrapping::None
    };
    words.next()?;
    words.opaque()?;
    Some(wrapping)
}

fn nfs_call((version, procedure): (u32, u32), mut words: XdrWords<'_>, chunks: &Chunks) -> CommandTransfer {
    let of_version_3 = |wrapping| {
        let is_transfer = matches!(procedure, NFS3_READ | NFS3_WRITE);
        let lengths = if is_transfer { None } else { Some(0) };
        CommandTransfer {
            operation: StorageOperation::Nfs3(procedure),
            read_bytes: if procedure == NFS3_WRITE { Some(0) } else { lengths },
            written_bytes: if procedure == NFS3_READ { Some(0) } else { lengths },
            wrapping,
            is_single: true,
        }
    };
    match (version, procedure, credentials(&mut words)) {
        (3, _, Some(wrapping)) => of_version_3(wrapping),
        (3, _, None) => of_version_3(Wrapping::None),
        // The procedure NULL of all versions.
        (4, 0, _) => CommandTransfer::sized(StorageOperation::Nfs3(0), 0, 0),
        (4, NFS4_COMPOUND, Some(wrapping)) => compound(words, wrapping, chunks),
        _ => CommandTransfer::of_unknown_length(StorageOperation::Unknown),
    }
}

/// The operations of a COMPOUND.
fn compound(mut words: XdrWords<'_>, wrapping: Wrapping, chunks: &Chunks) -> CommandTransfer {
    match wrapping {
        Wrapping::None => {}
        Wrapping::Integrity => words.skip(8),
        Wrapping::Privacy => return CommandTransfer::of_unknown_length(StorageOperation::Unknown),
    }
    let mut listed = CompoundOperations::default();
    let is_whole = listed.walk(words, chunks).is_some();
    // The operation that names the COMPOUND may follow the captured part.
    let minor = listed.minor.filter(|_| is_whole);
    let Some(operation) = listed.main.or(minor) else {
        return CommandTransfer { wrapping, ..CommandTransfer::of_unknown_length(StorageOperation::Unknown) };
    };
    // An operation after the last readable one may transfer data too. Without chunks it seldom
    // does; the target of a symbolic link may be in a chunk.
    let is_other = listed.transfers.is_empty() && (chunks.memory.is_empty() || operation == READLINK);
    let none = if is_whole || is_other { Some(0) } else { None };
    let is_in = |kinds: &[u32]| listed.transfers.iter().any(|transfer| kinds.contains(transfer));
    CommandTransfer {
        operation: StorageOperation::Nfs4(operation),
        read_bytes: if is_in(&[NFS4_READ, NFS4_READ_PLUS]) { None } else { none },
        written_bytes: if is_in(&[NFS4_WRITE]) { None } else { none },
        wrapping,
        is_single: is_whole && listed.transfers.len() == 1,
    }
}

#[derive(Default)]
struct CompoundOperations {
    /// The operation that gives the COMPOUND its name.
    main: Option<u32>,
    /// An operation that does so if there is no other.
    minor: Option<u32>,
    /// Operations that transfer data.
    transfers: Vec<u32>,
}

impl CompoundOperations {
    /// Reads the operations as far as they are captured and their arguments are known. `None` if
    /// that is not to the end.
    fn walk(&mut self, mut words: XdrWords<'_>, chunks: &Chunks) -> Option<()> {
        words.opaque()?;
        words.next()?;
        for _ in 0..words.next()? {
            let operation = words.next()?;
            match operation {
                SEQUENCE | PUTFH | PUTPUBFH | PUTROOTFH | SAVEFH | RESTOREFH | GETFH => {
                    self.minor = self.minor.or(Some(operation));
                }
                GETATTR => self.minor = Some(operation),
                _ => self.main = self.main.or(Some(operation)),
            }
            if matches!(operation, NFS4_READ | NFS4_WRITE | NFS4_READ_PLUS) {
                self.transfers.push(operation);
            }
            skip_arguments(&mut words, operation, chunks.has_reads)?;
        }
        Some(())
    }
}

/// Skips the arguments of an operation; `None` if their format is not known here or not captured.
fn skip_arguments(words: &mut XdrWords<'_>, operation: u32, has_reads: bool) -> Option<()> {
    match operation {
        SEQUENCE => words.skip(SESSION_ID_BYTES + 16),
        PUTFH | LOOKUP => _ = words.opaque()?,
        PUTPUBFH | PUTROOTFH | SAVEFH | RESTOREFH | GETFH => {}
        GETATTR => words.list()?,
        ACCESS => words.skip(4),
        COMMIT => words.skip(12),
        NFS4_READ | NFS4_READ_PLUS => words.skip(STATE_ID_BYTES + 12),
        NFS4_WRITE => {
            words.skip(STATE_ID_BYTES + 12);
            let length = words.next()?;
            if !has_reads {
                words.skip(length.next_multiple_of(4) as usize);
            }
        }
        _ => return None,
    }
    (words.at <= words.captured.len()).then_some(())
}

/// Reads a reply.
pub(super) fn completion(payload: &Payload<'_>, transfer: &CommandTransfer) -> StorageCompletion {
    let mut words = XdrWords::new(payload.captured, 12);
    let unknown = StorageCompletion::of(StorageStatus::NotCaptured, transfer);
    match words.next() {
        Some(ERROR) => {
            let code = words.next().unwrap_or_default();
            return StorageCompletion::of(StorageStatus::TransportFailed(code), transfer);
        }
        Some(MSG) => {}
        // The reply is in the reply chunk; the data are in the write list.
        Some(NOMSG) => return with_written_chunks(unknown, transfer, chunks(&mut words)),
        _ => return unknown,
    }
    let Some(lists) = chunks(&mut words) else { return unknown };
    match accepted(&mut words) {
        None => with_written_chunks(unknown, transfer, Some(lists)),
        Some(status @ StorageStatus::RpcRejected(_)) => StorageCompletion::of(status, transfer),
        Some(_) => {
            results(words, transfer, &lists).unwrap_or_else(|| with_written_chunks(unknown, transfer, Some(lists)))
        }
    }
}

/// Reads a reply that the server writes into the reply chunk of its call.
pub(super) fn long_reply(captured: &[u8], id: u64, transfer: &CommandTransfer) -> Option<StorageCompletion> {
    let mut words = XdrWords::new(captured, 0);
    (u64::from(words.next()?) == id && words.next()? == REPLY).then_some(())?;
    let mut words = XdrWords::new(captured, 0);
    match accepted(&mut words)? {
        status @ StorageStatus::RpcRejected(_) => Some(StorageCompletion::of(status, transfer)),
        // A READ with a long reply has its data in the write list of the call.
        _ => results(words, transfer, &Chunks { has_writes: true, ..Chunks::default() }),
    }
}

/// A reply whose results were not captured: the write list gives the bytes of a READ.
fn with_written_chunks(
    unknown: StorageCompletion,
    transfer: &CommandTransfer,
    lists: Option<Chunks>,
) -> StorageCompletion {
    let is_read = matches!(transfer.operation, StorageOperation::Nfs3(NFS3_READ) | StorageOperation::Nfs4(NFS4_READ));
    let of_chunks = lists.filter(|lists| is_read && transfer.is_single && lists.has_writes);
    StorageCompletion {
        read_bytes: of_chunks.map(|lists| lists.written_bytes).or(transfer.read_bytes),
        written_bytes: transfer.written_bytes,
        ..unknown
    }
}

/// The state of a reply as far as the RPC layer gives it; leaves `words` at the results.
fn accepted(words: &mut XdrWords<'_>) -> Option<StorageStatus> {
    words.skip(8);
    if words.next()? != 0 {
        return Some(StorageStatus::RpcRejected(REJECTED_CALL + words.next()?));
    }
    words.next()?;
    words.opaque()?;
    match words.next()? {
        ACCEPTED => Some(StorageStatus::Success),
        state => Some(StorageStatus::RpcRejected(state)),
    }
}

/// The results of NFS; `None` if their status was not captured.
fn results(mut words: XdrWords<'_>, transfer: &CommandTransfer, lists: &Chunks) -> Option<StorageCompletion> {
    if transfer.wrapping == Wrapping::Integrity {
        words.skip(8);
    }
    let is_readable = transfer.wrapping != Wrapping::Privacy
        && matches!(transfer.operation, StorageOperation::Nfs3(_) | StorageOperation::Nfs4(_));
    if !is_readable {
        // Programs without a status of their own, and calls that were not captured.
        let is_other = matches!(transfer.operation, StorageOperation::Rpc(_));
        let status = if is_other { StorageStatus::Success } else { StorageStatus::NotCaptured };
        return Some(StorageCompletion::of(status, transfer));
    }
    // The procedure NULL has no results.
    if transfer.operation == StorageOperation::Nfs3(0) {
        return Some(StorageCompletion::of(StorageStatus::Success, transfer));
    }
    let status = match words.next()? {
        0 => StorageStatus::Success,
        status => StorageStatus::Failed(status),
    };
    let mut completion = StorageCompletion::of(status, transfer);
    match transfer.operation {
        StorageOperation::Nfs3(NFS3_READ) if status == StorageStatus::Success => {
            completion.read_bytes = count_of_v3(&mut words, &[FILE_ATTRIBUTES_BYTES]);
        }
        StorageOperation::Nfs3(NFS3_WRITE) if status == StorageStatus::Success => {
            completion.written_bytes = count_of_v3(&mut words, &[WEAK_ATTRIBUTES_BYTES, FILE_ATTRIBUTES_BYTES]);
        }
        StorageOperation::Nfs4(_) => {
            let mut sums = CompoundResults::default();
            let is_whole = sums.walk(words, lists.has_writes).is_some();
            let is_known = is_whole || transfer.is_single && sums.transfers > 0;
            let of = |expected: Option<u64>, sum: u64| expected.or(is_known.then_some(sum));
            // What came before the operation that failed took place.
            completion.read_bytes = of(transfer.read_bytes, sums.read_bytes);
            completion.written_bytes = of(transfer.written_bytes, sums.written_bytes);
        }
        _ => {}
    }
    if completion.read_bytes.is_none() && lists.written_bytes > 0 && status == StorageStatus::Success {
        return Some(StorageCompletion {
            status,
            ..with_written_chunks(
                completion,
                transfer,
                Some(Chunks { written_bytes: lists.written_bytes, has_writes: true, ..Chunks::default() }),
            )
        });
    }
    Some(completion)
}

/// The count after optional attributes.
fn count_of_v3(words: &mut XdrWords<'_>, attributes: &[usize]) -> Option<u64> {
    for length in attributes {
        if words.next()? != 0 {
            words.skip(*length);
        }
    }
    words.next().map(u64::from)
}

#[derive(Default)]
struct CompoundResults {
    read_bytes: u64,
    written_bytes: u64,
    /// READs and WRITEs.
    transfers: u32,
}

impl CompoundResults {
    /// Adds up the results as far as they are captured and known. `None` if that is not to the end.
    fn walk(&mut self, mut words: XdrWords<'_>, has_writes: bool) -> Option<()> {
        words.opaque()?;
        for _ in 0..words.next()? {
            let operation = words.next()?;
            if words.next()? != 0 {
                // A failed operation is the last one.
                self.transfers += u32::from(matches!(operation, NFS4_READ | NFS4_WRITE));
                return Some(());
            }
            match operation {
                SEQUENCE => words.skip(SESSION_ID_BYTES + 20),
                PUTFH | PUTPUBFH | PUTROOTFH | SAVEFH | RESTOREFH | LOOKUP => {}
                GETFH => _ = words.opaque()?,
                GETATTR => {
                    words.list()?;
                    words.opaque()?;
                }
                ACCESS | COMMIT => words.skip(8),
                NFS4_READ => {
                    words.next()?;
                    let length = words.next()?;
                    self.read_bytes = self.read_bytes.saturating_add(length.into());
                    self.transfers += 1;
                    if !has_writes {
                        words.skip(length.next_multiple_of(4) as usize);
                    }
                }
                NFS4_WRITE => {
                    self.written_bytes = self.written_bytes.saturating_add(words.next()?.into());
                    self.transfers += 1;
                    words.skip(12);
                }
                _ => return None,
            }
        }
        Some(())
    }
}
