//! Measures NCCL messages over verbs: matches the receives that a receiver has posted with the
//! WRITEs that fill them.
//!
//! ```text
//! B -> A  WRITE                      {address, size, keys}, rank of A; index 1, 2, 3 ...   a queue
//! A -> B  WRITE                      a share of the message, at the address or after it    a path
//! A -> B  WRITE with immediate data  a share, nothing, or the lengths of several messages
//! ```
//! No data packet names a process: the clear-to-send elements give the sender's rank, the WRITEs
//! with immediate data give the lengths. A message may be split over several queue pairs, called
//! *paths* here, on one port or on several. Each path carries one WRITE with immediate data per
//! message, which gives the length of the whole message. So every path counts whole messages, and
//! notes whether its shares start messages or continue them. `rails` decides which paths count,
//! when all paths are known.
//!
//! A path belongs to one queue and takes its receives in index order. Half of the receives, or all,
//! may be posted through another port, and a capture may miss some. Then the memory key identifies
//! the queue, and the rank is the one that all its elements have named.
mod path;
mod queue;
mod share;
#[cfg(test)]
mod tests;

pub(super) use queue::is_one_ring;
pub(super) use share::{NcclMessage, NcclOutcome, WriteSums, envelope};

use super::assembly::Transport;
use crate::model::{ConnectionKey, CtsPath, CtsQueue, HashMap, QueuePair};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Reth;
use ibscope_parsers::mpi::nccl;
use path::{DataPath, MAX_CHAIN, MessageLengths, PathMessage};
use queue::{CtsQueueState, QueueRanks, Receive};
use share::{NcclShare, ReceivePosition};
use smallvec::SmallVec;

/// Receives kept per queue: no connection has more requests in flight (`NCCL_NET_MAX_REQUESTS`).
const MAX_RECEIVES: usize = 32;

/// Receives kept per queue once all queues together hold more than [`MANY_RECEIVES`].
const FEW_RECEIVES: usize = 4;

/// Number of receives in all queues above which each queue keeps only [`FEW_RECEIVES`].
const MANY_RECEIVES: usize = 1 << 14;

/// Messages of a path that may wait for their queue or their length.
const MAX_WAITING: usize = 32;

/// Distance that an index may have from the highest one of its queue if its address does not
/// confirm it. Packets may be lost upstream of the capture and retransmitted.
const WINDOW: u64 = 64;

type DataDirection = (Endpoint, Endpoint);

/// NCCL traffic between some pairs of endpoints.
#[derive(Debug, Default)]
pub(super) struct Nccl {
    /// By number of the connection that carries the clear-to-send elements.
    queues: HashMap<u32, CtsQueueState>,
    /// Queues by the direction of their data.
    by_direction: HashMap<DataDirection, Vec<u32>>,
    /// By number of the connection that carries the data. Only data that is, or may be, NCCL's.
    paths: HashMap<u32, DataPath>,
    /// Number of receives in all queues.
    receive_count: usize,
}

impl Nccl {
    /// Takes clear-to-send elements that `src`, the receiver of the data, sent to `dst`, the sender
    /// of the data. `None` if the index is too far from the earlier ones: then these bytes are no
    /// clear-to-send elements.
    pub(super) fn clear_to_send(
        &mut self,
        (src, dst): DataDirection,
        (connection, time_ns): (u32, i64),
        payload: &[u8],
        reth: Reth,
    ) -> Option<NcclOutcome> {
        let cts = nccl::cts(payload, reth.dma_len)?;
        let queue = self.queues.entry(connection).or_insert_with(|| {
            self.by_direction.entry((dst, src)).or_default().push(connection);
            CtsQueueState::new(&cts, reth.va)
        });
        let is_near = cts.index.abs_diff(queue.highest_index) <= WINDOW;
        if !is_near && !is_one_ring(cts.release, queue.slot, (cts.index, reth.va)) {
            return None;
        }
        let before = queue.receives.len();
        let most = if self.receive_count > MANY_RECEIVES { FEW_RECEIVES } else { MAX_RECEIVES };
        let mut outcome = NcclOutcome::default();
        queue.add(Receive::of(&cts, time_ns), most, &mut outcome);
        self.receive_count = self.receive_count + queue.receives.len() - before;
        Some(outcome)
    }

    /// True if receives were posted for data of this direction.
    pub(super) fn awaits(&self, direction: DataDirection) -> bool {
        !self.by_direction.is_empty() && self.by_direction.contains_key(&direction)
    }

    /// True for a WRITE on a path whose earlier WRITEs carried data, or into the memory of a receive.
    pub(super) fn is_data(&self, direction: DataDirection, connection: u32, reth: &Reth) -> bool {
        if self.paths.get(&connection).is_some_and(|path| path.queue.is_some()) {
            return true;
        }
        let mut queues = self.by_direction.get(&direction).into_iter().flatten();
        queues.any(|number| self.queues.get(number).is_some_and(|queue| queue.position(reth, 0, false).is_some()))
    }

    /// Takes a WRITE from the sender of data to the receiver. `body` is its captured payload, if it
    /// is a single packet.
    pub(super) fn write(
        &mut self,
        direction: DataDirection,
        connection: u32,
        message: &Transport,
        body: &[u8],
    ) -> NcclOutcome {
        let mut outcome = NcclOutcome::default();
        let position = self.receive_position(direction, connection, message);
        let is_bound = self.paths.get(&connection).is_some_and(|path| path.queue.is_some());
        if !is_bound && message.immediate.is_none() {
            return outcome;
        }
        outcome.is_data = true;
        let path = self.paths.entry(connection).or_default();
        path.note_continuity(message);
        let share = NcclShare { position, sums: WriteSums::of(connection, message) };
        match message.immediate {
            None => path.push(share),
            Some(word) => self.end(connection, word, share, (message, body), &mut outcome),
        }
        outcome
    }

    /// Emits the remaining messages at the end of the input.
    pub(super) fn finish(&mut self) -> NcclOutcome {
        let mut outcome = NcclOutcome::default();
        let mut paths: Vec<u32> = self.paths.keys().copied().collect();
        paths.sort_unstable();
        // A message on one path may resolve messages that wait on another path.
        paths.iter().for_each(|connection| self.resolve(*connection, &mut outcome));
        let mut queues: Vec<(&u32, &mut CtsQueueState)> = self.queues.iter_mut().collect();
        queues.sort_unstable_by_key(|(connection, _)| **connection);
        for (_, queue) in queues {
            queue.receives.drain(..).for_each(|receive| receive.end(queue.ring, queue.width, &mut outcome));
        }
        for connection in &paths {
            let Some(path) = self.paths.get_mut(connection) else { continue };
            // Messages that are received together end with their last WRITE, and the WRITEs still
            // in `chain` have had none.
            if path.queue.is_some() {
                outcome.unknown.extend(path.chain.drain(..).map(|_| (*connection, None)));
            }
            for message in path.waiting.drain(..) {
                if path.queue.is_some() {
                    outcome.unknown.push((*connection, None));
                } else {
                    outcome.others.push(message.together());
                }
            }
        }
        self.receive_count = 0;
        outcome
    }

    /// The queues as evidence for grouping. `keys` are the connection keys by number.
    pub(super) fn queues(&self, keys: &[ConnectionKey]) -> Vec<CtsQueue> {
        let mut paths: HashMap<u32, Vec<CtsPath>> = HashMap::default();
        for (connection, path) in &self.paths {
            let Some(queue) = path.queue else { continue };
            let qpn = keys[*connection as usize].dest_qp;
            paths.entry(queue).or_default().push(CtsPath { qpn, unmatched: path.evidence.clone() });
        }
        let as_evidence = |(connection, queue): (&u32, &CtsQueueState)| {
            let ConnectionKey { src, dst, dest_qp, .. } = keys[*connection as usize];
            let mut paths = paths.remove(connection).unwrap_or_default();
            paths.sort_unstable();
            CtsQueue {
                from: src,
                to: QueuePair { endpoint: dst, qpn: dest_qp },
                index: queue.slot.0,
                address: queue.slot.1,
                release: queue.release,
                step: queue.step,
                r_keys: queue.r_keys.to_vec(),
                memory: queue.evidence.clone(),
                paths,
            }
        };
        let mut queues: Vec<CtsQueue> = self.queues.iter().map(as_evidence).collect();
        queues.sort_unstable();
        queues
    }

    /// Finds the receive that a WRITE fills, in the queue of its path. A path without a queue gets
    /// the one with such a receive, or else one whose memory has this key.
    fn receive_position(
        &mut self,
        direction: DataDirection,
        connection: u32,
        message: &Transport,
    ) -> Option<ReceivePosition> {
        let reth = message.target?;
        let path = self.paths.get(&connection);
        let (own, from) =
            path.map_or((None, 0), |path| (path.queue.filter(|_| path.is_first.is_some()), path.next_index));
        let among = match &own {
            Some(number) => std::slice::from_ref(number),
            None => self.by_direction.get(&direction)?,
        };
        let queues = among.iter().filter_map(|number| Some((*number, self.queues.get(number)?)));
        let is_last = message.immediate.is_some();
        // Empty shares do not count: they may point after the message, where others start.
        let mut placed = queues.clone().filter(|_| reth.dma_len > 0);
        let found = placed.find_map(|(number, queue)| Some((number, queue.position(&reth, from, is_last)?)));
        let mut with_key = queues.filter(|(_, queue)| queue.known_keys.contains(&reth.r_key));
        let by_key = with_key.next();
        let is_one_rank = by_key.is_some_and(|(_, queue)| with_key.all(|(_, other)| other.ranks == queue.ranks));
        let number = found.map(|(number, _)| number).or(by_key.map(|(number, _)| number))?;
        let path = self.paths.entry(connection).or_default();
        path.queue = Some(number);
        path.is_one_rank = is_one_rank || found.is_some() || path.is_first.is_some();
        path.note_position(&reth, found.map(|(_, place)| place));
        found.map(|(_, place)| place)
    }

    /// Takes the WRITE that ends a message on its path.
    fn end(
        &mut self,
        connection: u32,
        word: u32,
        last: NcclShare,
        (transport, body): (&Transport, &[u8]),
        outcome: &mut NcclOutcome,
    ) {
        let Some(path) = self.paths.get_mut(&connection) else { return };
        let chain = std::mem::take(&mut path.chain);
        let is_whole = std::mem::replace(&mut path.is_whole, true);
        let place = last.position.or_else(|| chain.iter().rev().find_map(|share| share.position));
        let queue = path.queue.and_then(|number| self.queues.get(&number));
        let receive = place.and_then(|place| queue?.receive(place.index));
        // The receive must have as many buffers as there are WRITEs; otherwise the WRITEs fill
        // another one.
        let receive = receive.filter(|receive| {
            let (writes, most) = (chain.len(), receive.buffers.len());
            writes == most || writes < most && (writes == 0 || !is_whole)
        });
        if let Some(receive) = receive {
            path.next_index = receive.index + 1;
            let places = chain.iter().chain([&last]).filter_map(|share| share.position);
            let own = places.filter(|place| place.index == receive.index);
            outcome.shares.extend(own.map(|place| (connection, place.offset == 0)));
        }
        let dma_bytes = transport.target.map_or(0, |reth| reth.dma_len);
        let is_empty = receive.is_none() && is_whole && chain.is_empty() && dma_bytes == 0;
        let next = queue.filter(|_| is_empty).and_then(|queue| queue.receive(path.next_index));
        let next_receive = next.filter(|receive| receive.buffers.len() == 1).map(Receive::matched);
        // Indices of a path ascend.
        path.next_index += u64::from(next_receive.is_some());
        path.waiting.push(PathMessage {
            word,
            chain,
            last,
            is_started: transport.started,
            is_whole,
            lengths: nccl::lengths(body, dma_bytes).into_iter().flatten().collect(),
            receive: receive.map(Receive::matched),
            next_receive,
        });
        if path.queue.is_some() {
            self.resolve(connection, outcome);
        } else if path.waiting.len() > MAX_WAITING {
            outcome.others.push(path.waiting.remove(0).together());
        }
    }

    /// Emits the messages of a path whose queue and length are known.
    fn resolve(&mut self, connection: u32, outcome: &mut NcclOutcome) {
        let Some(path) = self.paths.get_mut(&connection) else { return };
        let Some(queue) = path.queue.and_then(|number| self.queues.get_mut(&number)) else { return };
        queue.immediate_format =
            queue.immediate_format.or_else(|| path.waiting.iter().find_map(PathMessage::immediate_format));
        let mut left = Vec::new();
        for message in path.waiting.drain(..) {
            let of_queue = match queue.ranks {
                QueueRanks::One(rank) if path.is_one_rank => Some([rank; MAX_CHAIN]),
                QueueRanks::One(_) | QueueRanks::Unknown | QueueRanks::Several => None,
            };
            let of_receive: Option<SmallVec<[Option<u32>; 1]>> =
                message.receive.as_ref().map(|receive| receive.buffers.iter().map(|own| own.rank).collect());
            let count = message.count(queue.immediate_format, queue.release);
            let Some(ranks) = of_receive.as_deref().or(of_queue.as_ref().map(<[_; _]>::as_slice)) else {
                outcome.unknown.extend(std::iter::repeat_n((connection, None), count.unwrap_or(1)));
                continue;
            };
            let unknown = ranks.iter().take(count.unwrap_or(1)).map(|rank| (connection, *rank));
            match message.lengths(count, queue.immediate_format) {
                MessageLengths::Wait => left.push(message),
                MessageLengths::Sum if queue.sum(&message, path.is_first == Some(true)) => {}
                MessageLengths::Sum | MessageLengths::Unknown => outcome.unknown.extend(unknown),
                MessageLengths::Stated(lengths) => {
                    outcome.shares.extend(message.is_empty_share_of(&lengths).then_some((connection, false)));
                    let messages = message.messages(&lengths).into_iter().zip(ranks).enumerate();
                    outcome.ended.extend(messages.map(|(at, (written, rank))| {
                        let receive = message.receive.as_ref().or(message.next_receive.as_ref());
                        let receive = receive.and_then(|receive| receive.of_message(queue.ring, at, &written));
                        NcclMessage::of(*rank, written, receive)
                    }));
                }
            }
        }
        let surplus = left.len().saturating_sub(MAX_WAITING);
        outcome.unknown.extend(left.drain(..surplus).map(|_| (connection, None)));
        path.waiting = left;
    }
}
