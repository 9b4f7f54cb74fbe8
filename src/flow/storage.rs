//! Tracks the commands of storage protocols from command to completion.
//!
//! ```text
//! client -> server  SEND {command, id, memory}            (or with the data inside)
//! server -> client  WRITE data into the memory            a command that reads
//! server -> client  READ the memory  -> responses         a command that writes
//! server -> client  SEND {completion, id, status}
//! ```
//! Both directions are connections of their own. A command and its completion have the same id; an
//! id is unique only among the outstanding commands of one connection, and `pairing` finds the
//! connection that a completion responds to. Data belong to the command whose memory they name, as
//! the data of a rendezvous belong to an MPI message.
//!
//! Invariant: commands count for the connection that carries them, and bytes count when the command
//! completes. State exists only for connections with a command. A time exists only if the completion
//! certainly belongs to the command (`gaps`).

mod gaps;

use super::reads::EndpointPair;
use crate::model::storage::{StorageCounts, StorageSums};
use crate::model::{HashMap, Interval, SizeClass, TimingKey, Verb};
use gaps::{CompletionMatch, MessageStreams, QueueGaps};
use ibscope_parsers::ib::Reth;
use ibscope_parsers::mpi::Payload;
use ibscope_parsers::ulp::storage::{
    self, ClientCommand, ClientMemory, CommandTransfer, QueueEvidence, StorageCompletion, StorageMessage,
    StorageOperation, StorageStatus, UserData,
};
use ibscope_parsers::ulp::{UpperLayer, UpperLayerMessage};
use std::collections::BTreeMap;

pub(super) use gaps::MessageSpan;

/// Outstanding commands of a connection. `NVMe` allows 65 535; hosts and NFS clients use at most 1024.
const MAX_OUTSTANDING: usize = 1 << 12;
/// Outstanding commands of a connection once all connections of a tracker have [`MANY_OUTSTANDING`].
const FEW_OUTSTANDING: usize = 16;
const MANY_OUTSTANDING: usize = 1 << 14;
/// Memory ranges of a command; a list of data descriptors or chunks has a few.
const MAX_RANGES: usize = 8;

/// Connections of a tracker with short messages that may be completions of `NVMe`.
const MAX_EARLY: usize = 1 << 10;

/// Storage traffic between some pairs of endpoints.
#[derive(Debug, Default)]
pub(super) struct StorageTracker {
    /// By number of the connection that carries the commands.
    queues: HashMap<u32, Box<CommandQueue>>,
    /// Those queues by client and server.
    by_pair: HashMap<EndpointPair, Vec<u32>>,
    /// For a connection with completions, the queue of their commands; the latest message decides.
    of_completions: HashMap<u32, u32>,
    /// Completions and truncated messages on connections whose queue is not known.
    strays: HashMap<u32, StorageSums>,
    /// Short messages that may be completions of `NVMe`, by connection: any program may send such
    /// messages, so they count only if their connection turns out to carry completions.
    early: HashMap<u32, u64>,
    /// The messages of connections with commands or completions.
    streams: MessageStreams,
    outstanding: usize,
}

/// The commands of one connection.
#[derive(Debug)]
struct CommandQueue {
    outstanding: HashMap<u64, OutstandingCommand>,
    /// Ids in the order of the commands.
    order: BTreeMap<u64, u64>,
    next: u64,
    /// End and outstanding command of the memory ranges, by key and first address.
    memory: BTreeMap<(u32, u64), (u64, u64)>,
    gaps: QueueGaps,
    sums: StorageSums,
}

#[derive(Debug)]
struct OutstandingCommand {
    number: u64,
    transfer: CommandTransfer,
    memory: Vec<ClientMemory>,
    time_ns: i64,
    rdma_read_bytes: u64,
    rdma_written_bytes: u64,
    reply: Option<ClientMemory>,
    /// The reply that the server has written into memory.
    long_reply: Option<StorageCompletion>,
}

/// A SEND of a storage protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageSend<'a> {
    /// Number of its connection.
    pub(super) connection: u32,
    /// Its sender and receiver.
    pub(super) pair: EndpointPair,
    /// The connection whose requests its connection responds to, if that is clear.
    pub(super) partner: Option<u32>,
    /// Capture time of its first packet.
    pub(super) time_ns: i64,
    /// Payload of its first packet.
    pub(super) payload: Payload<'a>,
}

/// The time from a command to its completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandTime {
    /// The connection of the command.
    pub(super) connection: u32,
    pub(super) from_ns: i64,
    pub(super) until_ns: i64,
    pub(super) key: TimingKey,
}

impl StorageTracker {
    /// True if no connection carries commands.
    pub(super) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// True if this connection carries commands.
    pub(super) fn is_queue(&self, connection: Option<u32>) -> bool {
        connection.is_some_and(|connection| self.queues.contains_key(&connection))
    }

    /// The protocol of a connection with commands or completions.
    fn protocol(&self, connection: u32) -> Option<UpperLayer> {
        let queue = self.of_completions.get(&connection).unwrap_or(&connection);
        self.queues.get(queue).map(|queue| queue.sums.protocol)
    }

    /// The protocol to read a SEND with; `found` is what its payload looks like.
    pub(super) fn protocol_of(&self, connection: u32, found: Option<UpperLayerMessage>) -> Option<UpperLayer> {
        self.protocol(connection)
            .or(found.map(|found| found.protocol))
            .filter(|protocol| storage::is_decoded(*protocol))
    }

    /// Takes the start of a message, before [`Self::send`] or [`Self::rdma`] takes its content.
    /// `observed` are the PSNs of its connection that were observed. Returns the times that the
    /// message confirms.
    pub(super) fn starts(
        &mut self,
        connection: u32,
        span: MessageSpan,
        observed: impl Iterator<Item = (i64, i64)>,
    ) -> Vec<CommandTime> {
        let is_gap = self.streams.start(connection, span, observed);
        let completed = self.of_completions.get(&connection);
        if let Some(queue) = completed.and_then(|queue| self.queues.get_mut(queue)) {
            queue.gaps.server_message(is_gap, queue.next);
        }
        match self.queues.get_mut(&connection) {
            Some(queue) => queue.gaps.client_message(is_gap, queue.next),
            None => Vec::new(),
        }
    }

    /// Takes the first packet of a SEND. Returns the time of the command that it completes.
    pub(super) fn send(&mut self, protocol: UpperLayer, send: StorageSend<'_>) -> Option<CommandTime> {
        match storage::message(protocol, &send.payload) {
            StorageMessage::Command(command) => self.command(protocol, send, command),
            StorageMessage::Completion(id) => return self.complete(protocol, send, id),
            StorageMessage::Truncated => self.sums_of(protocol, send).truncated += 1,
            StorageMessage::Other => {}
        }
        None
    }

    /// The sums that a message without a command counts in: those of its queue, or of its own
    /// connection while the queue is not known.
    fn sums_of(&mut self, protocol: UpperLayer, send: StorageSend<'_>) -> &mut StorageSums {
        let queue = self.queue_of(send.connection, send.partner).unwrap_or(send.connection);
        match self.queues.get_mut(&queue) {
            Some(queue) => &mut queue.sums,
            None => self.strays.entry(send.connection).or_insert_with(|| StorageSums::new(protocol)),
        }
    }

    /// The queue of the commands that a connection completes, if its partner is one.
    fn queue_of(&mut self, connection: u32, partner: Option<u32>) -> Option<u32> {
        let number = partner?;
        let queue = self.queues.get_mut(&number)?;
        queue.gaps.set_completions(connection, queue.next);
        self.of_completions.insert(connection, number);
        Some(number)
    }

    fn command(&mut self, protocol: UpperLayer, send: StorageSend<'_>, command: ClientCommand) {
        let StorageSend { connection, pair, partner, time_ns, .. } = send;
        let by_pair = &mut self.by_pair;
        let queue = self.queues.entry(connection).or_insert_with(|| {
            by_pair.entry(pair).or_default().push(connection);
            Box::new(CommandQueue::new(protocol))
        });
        let ClientCommand { id, transfer, mut memory, reply, queue: evidence } = command;
        queue.sums.queue.add(evidence);
        // The partner may have sent messages before the first command.
        if let Some(partner) =
            partner.filter(|partner| !queue.gaps.has_completions() && self.streams.contains(*partner))
        {
            queue.gaps.set_completions(partner, queue.next);
            self.of_completions.insert(partner, connection);
        }
        // The client uses the id again: the completion of the earlier command is missing.
        self.outstanding -= usize::from(queue.close(id));
        let most = if self.outstanding < MANY_OUTSTANDING { MAX_OUTSTANDING } else { FEW_OUTSTANDING };
        while queue.outstanding.len() >= most
            && let Some((_, &oldest)) = queue.order.first_key_value()
        {
            queue.sums.dropped += 1;
            self.outstanding -= usize::from(queue.close(oldest));
        }
        memory.truncate(MAX_RANGES);
        queue.open(
            id,
            OutstandingCommand {
                number: 0,
                transfer,
                memory,
                time_ns,
                rdma_read_bytes: 0,
                rdma_written_bytes: 0,
                reply,
                long_reply: None,
            },
        );
        self.outstanding += 1;
    }

    fn complete(&mut self, protocol: UpperLayer, send: StorageSend<'_>, id: u64) -> Option<CommandTime> {
        let queue = self.queue_of(send.connection, send.partner);
        // The partner may be a connection whose commands were not captured.
        let only = if queue.is_none() && send.partner.is_none() { self.only_queue(send.pair, protocol) } else { None };
        let Some(number) = queue.or(only) else {
            self.stray_completion(protocol, send);
            return None;
        };
        let queue = self.queues.get_mut(&number).filter(|queue| queue.sums.protocol == protocol)?;
        let Some(command) = queue.take(id) else {
            queue.sums.without_command += 1;
            return None;
        };
        self.outstanding -= 1;
        let completion = storage::completion(protocol, &send.payload, &command.transfer);
        let is_long = completion.status == StorageStatus::NotCaptured;
        let completion = command.long_reply.filter(|_| is_long).unwrap_or(completion);
        queue.sums.queue.add(completion.queue);
        queue.count(&command, completion);
        let key = timing_key(&command.transfer, &completion)?;
        let time = CommandTime { connection: number, from_ns: command.time_ns, until_ns: send.time_ns, key };
        if has_unique_ids(protocol) {
            return Some(time);
        }
        match queue.gaps.completion_match(command.number, send.connection) {
            CompletionMatch::Certain => return Some(time),
            CompletionMatch::Unconfirmed => queue.gaps.await_client(time),
            CompletionMatch::Unknown => {}
        }
        None
    }

    /// Counts a completion of an unknown queue.
    fn stray_completion(&mut self, protocol: UpperLayer, send: StorageSend<'_>) {
        if protocol != UpperLayer::NvmeOf {
            self.sums_of(protocol, send).without_command += 1;
        } else if self.early.len() < MAX_EARLY || self.early.contains_key(&send.connection) {
            *self.early.entry(send.connection).or_default() += 1;
        }
    }

    /// The queue between the two endpoints, if there is only one. Used until the partner of the
    /// connection is clear.
    fn only_queue(&self, (server, client): EndpointPair, protocol: UpperLayer) -> Option<u32> {
        let [only] = self.by_pair.get(&(client, server))?[..] else { return None };
        self.queues.get(&only).filter(|queue| queue.sums.protocol == protocol).map(|_| only)
    }

    /// Takes an RDMA WRITE or a READ request of a server, and the captured payload of the first packet
    /// of a WRITE.
    pub(super) fn rdma(&mut self, (connection, partner): (u32, Option<u32>), target: Reth, written: Option<&[u8]>) {
        let Some(queue) = self.queue_of(connection, partner).and_then(|queue| self.queues.get_mut(&queue)) else {
            return;
        };
        let Some(id) = queue.command_at(target.r_key, target.va) else { return };
        let Some(command) = queue.outstanding.get_mut(&id) else { return };
        if command.reply.is_some_and(|reply| (reply.key, reply.address) == (target.r_key, target.va)) {
            if command.long_reply.is_none() {
                command.long_reply = written.and_then(|bytes| storage::long_reply(bytes, id, &command.transfer));
            }
        } else {
            let sum = if written.is_some() { &mut command.rdma_read_bytes } else { &mut command.rdma_written_bytes };
            *sum = sum.saturating_add(target.dma_len.into());
        }
    }

    /// Ends the input for the times. Returns those that were not confirmed and that no gap
    /// contradicts.
    pub(super) fn finish_times(&mut self) -> Vec<CommandTime> {
        let mut times = Vec::new();
        for (connection, queue) in &mut self.queues {
            let (confirmed, most) = queue.gaps.finish(*connection, &self.streams, queue.sums.most_outstanding);
            times.extend(confirmed);
            queue.sums.most_outstanding = most;
        }
        times
    }

    /// Ends all commands, after [`Self::finish_times`]. Returns the sums by connection.
    pub(super) fn finish(&mut self) -> HashMap<u32, Box<StorageSums>> {
        let mut sums: HashMap<u32, Box<StorageSums>> = HashMap::default();
        let Self { queues, strays, early, of_completions, .. } = std::mem::take(self);
        for (connection, mut queue) in queues {
            let left: Vec<u64> = queue.order.values().copied().collect();
            left.into_iter().for_each(|id| _ = queue.close(id));
            sums.insert(connection, Box::new(queue.sums));
        }
        for (connection, stray) in strays {
            // Its queue may have become known later.
            let queue = of_completions.get(&connection).copied().unwrap_or(connection);
            let own = sums.entry(queue).or_insert_with(|| Box::new(StorageSums::new(stray.protocol)));
            own.merge(&stray);
        }
        for (connection, completions) in early {
            let queue = of_completions.get(&connection).and_then(|queue| sums.get_mut(queue));
            if let Some(queue) = queue.filter(|queue| queue.protocol == UpperLayer::NvmeOf) {
                queue.without_command += completions;
            }
        }
        sums
    }
}

impl CommandQueue {
    fn new(protocol: UpperLayer) -> Self {
        Self {
            outstanding: HashMap::default(),
            order: BTreeMap::new(),
            next: 0,
            memory: BTreeMap::new(),
            gaps: QueueGaps::default(),
            sums: StorageSums::new(protocol),
        }
    }

    fn open(&mut self, id: u64, mut command: OutstandingCommand) {
        command.number = self.next;
        self.order.insert(self.next, id);
        self.next += 1;
        for range in command.memory.iter().chain(&command.reply) {
            let end = range.address.saturating_add(range.length_bytes.into());
            self.memory.insert((range.key, range.address), (end, id));
        }
        self.outstanding.insert(id, command);
        self.gaps.command();
        self.sums.most_outstanding = self.sums.most_outstanding.max(self.outstanding.len() as u64);
    }

    fn take(&mut self, id: u64) -> Option<OutstandingCommand> {
        let command = self.outstanding.remove(&id)?;
        self.order.remove(&command.number);
        self.gaps.ended(command.number);
        for range in command.memory.iter().chain(&command.reply) {
            // A later command may name the same memory.
            let start = (range.key, range.address);
            if self.memory.get(&start).is_some_and(|(_, owner)| *owner == id) {
                self.memory.remove(&start);
            }
        }
        Some(command)
    }

    /// The outstanding command whose memory this address is in.
    fn command_at(&self, key: u32, address: u64) -> Option<u64> {
        let (&(found, _), &(end, id)) = self.memory.range(..=(key, address)).next_back()?;
        (found == key && address < end).then_some(id)
    }

    /// Ends a command without a completion. Returns false if there is none with this id.
    fn close(&mut self, id: u64) -> bool {
        let Some(command) = self.take(id) else { return false };
        let completion = StorageCompletion {
            status: StorageStatus::NoCompletion,
            read_bytes: Some(0),
            written_bytes: Some(0),
            queue: QueueEvidence::None,
        };
        self.count(&command, completion);
        true
    }

    fn count(&mut self, command: &OutstandingCommand, completion: StorageCompletion) {
        let StorageCompletion { status, read_bytes, written_bytes, .. } = completion;
        let counts = StorageCounts {
            commands: 1,
            read_bytes: read_bytes.unwrap_or(0),
            written_bytes: written_bytes.unwrap_or(0),
            read_unknown: u64::from(read_bytes.is_none()),
            written_unknown: u64::from(written_bytes.is_none()),
            rdma_read_bytes: command.rdma_read_bytes,
            rdma_written_bytes: command.rdma_written_bytes,
        };
        self.sums.add(command.transfer.operation, status, counts);
    }
}

/// True if clients do not use ids again: an RPC client counts its transaction ids up (RFC 5531), and
/// repeats one only to retransmit a call.
const fn has_unique_ids(protocol: UpperLayer) -> bool {
    matches!(protocol, UpperLayer::Nfs)
}

/// Commands that read count as READs, those that write as WRITEs, all others as SENDs. Commands that
/// set up a queue are not measured.
fn timing_key(transfer: &CommandTransfer, completion: &StorageCompletion) -> Option<TimingKey> {
    if matches!(transfer.operation, StorageOperation::NvmeFabrics(_)) {
        return None;
    }
    let (verb, bytes) = match transfer.operation.user_data() {
        UserData::Read => (Verb::Read, completion.read_bytes),
        UserData::Written => (Verb::Write, completion.written_bytes),
        UserData::None | UserData::Unknown => (Verb::Send, None),
    };
    Some(TimingKey { interval: Interval::StorageCommand, verb, size: SizeClass::of(bytes.unwrap_or(0)) })
}

#[cfg(test)]
mod tests;
