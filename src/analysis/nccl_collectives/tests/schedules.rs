//! Messages of NCCL's operations, constructed from its ring and tree algorithms
//! (`src/device/*.h`, `src/enqueue.cc`, `src/transport/net.cc`): each rank runs one program per
//! channel, and posts receives as its proxy does.

use super::super::trees::parents;
use super::super::{NcclAlgorithm, NcclOperation, NcclTransfer};
use crate::model::NcclReceive;
use std::collections::BTreeMap;

/// Buffers of a connection (`NCCL_STEPS`), of the simple protocol 512 KiB each.
const STEPS: u64 = 8;
/// Time from a message to those that depend on it, of a packet, and bytes per nanosecond.
const REACTION_NS: i64 = 4_000;
const LATENCY_NS: i64 = 1_500;
const BYTES_PER_NS: u64 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Simple,
    Ll,
    Ll128,
    /// `ncclSend`, over connections of its own.
    Send,
}

/// A call of all ranks.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) operation: NcclOperation,
    pub(super) algorithm: NcclAlgorithm,
    /// Bytes of the vector, or of the block of each rank.
    pub(super) bytes: u64,
    pub(super) protocol: Protocol,
    pub(super) root: u32,
}

impl Call {
    /// The bytes that the wire shows: LL128 fills lines, so its messages do not show their length.
    pub(super) fn bytes_on_wire(&self) -> Option<u64> {
        (self.protocol != Protocol::Ll128).then_some(self.bytes)
    }

    /// Bytes of a message with data of this length (`prims_ll.h`, `prims_ll128.h`: `waitSend`).
    const fn on_wire(&self, bytes: u64) -> u64 {
        match self.protocol {
            Protocol::Simple | Protocol::Send => bytes,
            Protocol::Ll => bytes.div_ceil(8) * 16,
            Protocol::Ll128 => bytes.div_ceil(1920) * 2048,
        }
    }

    fn has_slices(&self) -> bool {
        self.protocol == Protocol::Simple
            && self.algorithm == NcclAlgorithm::Ring
            && !matches!(self.operation, NcclOperation::Broadcast | NcclOperation::Reduce)
    }

    /// Bytes of data in one buffer, and buffers per message and per chunk.
    fn buffers(&self) -> (u64, u64, u64) {
        let step_bytes = match self.protocol {
            Protocol::Simple => 512 << 10,
            Protocol::Ll => 32 << 10,
            Protocol::Ll128 => (600 << 10) / 16 * 15,
            Protocol::Send => 128 << 10,
        };
        if self.has_slices() { (step_bytes, 2, 4) } else { (step_bytes, 1, 1) }
    }
}

/// Calls one after the other.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ranks: u32,
    pub(super) channels: u32,
    pub(super) calls: Vec<Call>,
    /// The start of the data was captured.
    pub(super) has_data: bool,
    /// A rank that enters each call later, by this time in nanoseconds.
    pub(super) late: Option<(u32, i64)>,
}

/// One part of a rank's program: receive a chunk, then send one.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: Option<u32>,
    to: Option<u32>,
    bytes: u64,
    /// The chunk, and whether the rank adds its own data to it.
    chunk: u64,
    adds: bool,
}

/// Messages of a connection in one call.
#[derive(Debug, Default)]
struct Stream {
    /// Start, bytes and data of messages that were sent.
    sent: Vec<(i64, u64, u64)>,
    /// Times at which the receiver had used them.
    used_ns: Vec<i64>,
}

fn mixed(a: u64, b: u64) -> u64 {
    let value = (a ^ b.rotate_left(31) ^ 0x0123_4567_89AB_CDEF).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value ^ value >> 29
}

impl Job {
    pub(super) fn new(ranks: u32, channels: u32, calls: &[Call]) -> Self {
        Self { ranks, channels, calls: calls.to_vec(), has_data: true, late: None }
    }

    /// All messages.
    pub(super) fn transfers(&self) -> Vec<NcclTransfer> {
        let mut transfers = Vec::new();
        // Messages and buffers of each connection so far.
        let mut used: BTreeMap<(u32, u32, u32, bool), (u64, u64)> = BTreeMap::new();
        let mut ready_ns: Vec<i64> = (0..i64::from(self.ranks)).map(|rank| 1_000_000 + rank * 700).collect();
        for (number, call) in self.calls.iter().enumerate() {
            let enter = |(rank, ready_ns): (u32, &i64)| {
                let late_ns = self.late.filter(|(late, _)| *late == rank).map_or(0, |(_, late_ns)| late_ns);
                ready_ns + late_ns + (mixed(u64::from(rank), number as u64) % 20_000) as i64
            };
            let latest_ns = ready_ns.iter().copied().max().unwrap_or(0);
            let base_ns: Vec<i64> =
                if self.late.is_some() { vec![latest_ns; ready_ns.len()] } else { ready_ns.clone() };
            let entry_ns: Vec<i64> = (0..).zip(&base_ns).map(enter).collect();
            for channel in 0..self.channels {
                let programs: Vec<Vec<Step>> = (0..self.ranks).map(|rank| self.program(call, channel, rank)).collect();
                let streams = self.run(call, (number as u64, channel), &programs, &entry_ns, &mut ready_ns);
                for ((src, dst), stream) in streams {
                    let key = (src, dst, channel, call.protocol == Protocol::Send);
                    transfers.extend(self.messages(
                        call,
                        key,
                        &stream,
                        entry_ns[dst as usize],
                        used.entry(key).or_default(),
                    ));
                }
            }
        }
        transfers
    }

    /// The messages of a connection as the wire shows them.
    fn messages(
        &self,
        call: &Call,
        (src, dst, channel, is_send): (u32, u32, u32, bool),
        stream: &Stream,
        entry_ns: i64,
        used: &mut (u64, u64),
    ) -> Vec<NcclTransfer> {
        let (step_bytes, steps, chunk_steps) = call.buffers();
        // An operation starts at a multiple of the buffers of a chunk.
        used.1 = used.1.next_multiple_of(chunk_steps);
        let mut transfers = Vec::new();
        for (at, &(start_ns, bytes, data)) in stream.sent.iter().enumerate() {
            let buffer = used.1 % STEPS;
            used.0 += 1;
            used.1 += steps;
            let is_hashed = self.has_data && bytes >= 64;
            transfers.push(NcclTransfer {
                job: 1,
                src,
                dst,
                times_ns: (start_ns, start_ns + LATENCY_NS + (bytes / BYTES_PER_NS) as i64),
                bytes,
                receive: NcclReceive {
                    ring: 0x5577_0000_0000 + u64::from(channel) * 0x10_0000 + u64::from(is_send),
                    index: used.0,
                    posted_ns: posted_ns(stream, at, entry_ns, steps),
                    buffer_address: 0x7F00_0000_0000 + call.on_wire(step_bytes) * buffer,
                    buffer_bytes: call.on_wire(step_bytes) * steps,
                    data_hash: is_hashed.then_some(data as u32),
                },
            });
        }
        transfers
    }

    /// Runs the programs of all ranks on one channel. `ready_ns` becomes the time at which each rank
    /// is done with all channels.
    fn run(
        &self,
        call: &Call,
        (number, channel): (u64, u32),
        programs: &[Vec<Step>],
        entry_ns: &[i64],
        ready_ns: &mut [i64],
    ) -> BTreeMap<(u32, u32), Stream> {
        let (_, steps, chunk_steps) = call.buffers();
        let slices = chunk_steps / steps;
        let mut streams: BTreeMap<(u32, u32), Stream> = BTreeMap::new();
        let mut state: Vec<(usize, i64, BTreeMap<u64, u64>)> =
            entry_ns.iter().map(|entry_ns| (0, *entry_ns, BTreeMap::new())).collect();
        // A step is split into slices: the program counter counts slices.
        while (0..self.ranks).any(|rank| state[rank as usize].0 < programs[rank as usize].len() * slices as usize) {
            let mut progress = false;
            for rank in 0..self.ranks {
                let (at, time_ns, chunks) = &mut state[rank as usize];
                let Some(step) = programs[rank as usize].get(*at / slices as usize) else { continue };
                let slice = *at as u64 % slices;
                let half = step.bytes.div_ceil(32).next_multiple_of(8).saturating_mul(16);
                let first = half.max(if slices == 2 { 32 << 10 } else { 0 }).min(step.bytes);
                let bytes = match (slices, slice) {
                    (1, _) => step.bytes,
                    (_, 0) => first,
                    _ => step.bytes - first,
                };
                let chunk = step.chunk * slices + slice;
                let own = mixed(mixed(number << 32 | u64::from(channel), u64::from(rank)), chunk);
                let mut now_ns = *time_ns;
                if let Some(from) = step.from {
                    let stream = streams.entry((from, rank)).or_default();
                    let Some(&(start_ns, length, data)) = stream.sent.get(stream.used_ns.len()) else { continue };
                    let arrival_ns = start_ns + LATENCY_NS + (length / BYTES_PER_NS) as i64;
                    now_ns = now_ns.max(arrival_ns + REACTION_NS);
                    let known = chunks.entry(chunk).or_insert(own);
                    *known = if step.adds { known.wrapping_add(data) } else { data };
                }
                if let Some(to) = step.to {
                    let receiver_ns = entry_ns[to as usize];
                    let stream = streams.entry((rank, to)).or_default();
                    let next = stream.sent.len();
                    let depth = (STEPS / steps) as usize;
                    if next >= depth && stream.used_ns.len() <= next - depth {
                        continue;
                    }
                    let posted = posted_ns(stream, next, receiver_ns, steps);
                    now_ns = now_ns.max(posted + LATENCY_NS);
                    // One message after the other.
                    let before =
                        stream.sent.last().map(|(start_ns, bytes, _)| start_ns + (bytes / BYTES_PER_NS) as i64);
                    now_ns = now_ns.max(before.unwrap_or(now_ns));
                    let data = *chunks.entry(chunk).or_insert(own);
                    stream.sent.push((now_ns, call.on_wire(bytes), data));
                    now_ns += 200;
                }
                if let Some(from) = step.from {
                    streams.entry((from, rank)).or_default().used_ns.push(now_ns);
                }
                *time_ns = now_ns;
                *at += 1;
                progress = true;
            }
            assert!(progress, "a deadlock");
        }
        for (rank, (_, time_ns, _)) in state.into_iter().enumerate() {
            ready_ns[rank] = ready_ns[rank].max(time_ns + 3_000);
        }
        streams
    }

    /// Bytes of this channel.
    fn part(&self, call: &Call, channel: u32) -> u64 {
        let even = call.bytes.div_ceil(u64::from(self.channels)).next_multiple_of(16);
        let start = even * u64::from(channel);
        call.bytes.saturating_sub(start).min(even)
    }

    fn program(&self, call: &Call, channel: u32, rank: u32) -> Vec<Step> {
        let part = self.part(call, channel);
        let (step_bytes, _, chunk_steps) = call.buffers();
        let chunk_bytes = step_bytes * chunk_steps;
        match (call.algorithm, call.operation) {
            (NcclAlgorithm::Ring, NcclOperation::Broadcast | NcclOperation::Reduce) => {
                self.chain(call, rank, &pieces(part, chunk_bytes))
            }
            (NcclAlgorithm::Ring, _) => self.ring(call, rank, part, chunk_bytes),
            (NcclAlgorithm::Tree, _) => self.tree(channel, rank, &pieces(part, chunk_bytes)),
            (NcclAlgorithm::Direct, _) => self.direct(rank, &pieces(part, chunk_bytes)),
        }
    }

    fn ring(&self, call: &Call, rank: u32, part: u64, chunk_bytes: u64) -> Vec<Step> {
        let n = u64::from(self.ranks);
        let (next, before) = ((rank + 1) % self.ranks, (rank + self.ranks - 1) % self.ranks);
        let is_allreduce = call.operation == NcclOperation::AllReduce;
        let steps = if is_allreduce { 2 * (n - 1) } else { n - 1 };
        let loops = if is_allreduce { pieces(part, n * chunk_bytes) } else { pieces(part, chunk_bytes) };
        let mut program = Vec::new();
        for (number, bytes) in (0..).zip(loops) {
            let chunk_of = |step: u64| (u64::from(rank) + 2 * n - 1 - step) % n;
            let length = |step: u64| {
                if !is_allreduce {
                    return bytes;
                }
                let even = chunk_bytes.min(bytes.div_ceil(n).next_multiple_of(16));
                bytes.saturating_sub(chunk_of(step) * even).min(even)
            };
            for step in 0..=steps {
                let adds = match call.operation {
                    NcclOperation::AllReduce => step < n,
                    NcclOperation::ReduceScatter => true,
                    _ => false,
                };
                program.push(Step {
                    from: (step > 0).then_some(before),
                    to: (step < steps).then_some(next),
                    bytes: length(step),
                    chunk: number * n + chunk_of(step),
                    adds,
                });
            }
        }
        program
    }

    fn chain(&self, call: &Call, rank: u32, pieces: &[u64]) -> Vec<Step> {
        let (next, before) = ((rank + 1) % self.ranks, (rank + self.ranks - 1) % self.ranks);
        let is_reduce = call.operation == NcclOperation::Reduce;
        // A broadcast starts at the root, a reduction ends there.
        let first = if is_reduce { (call.root + 1) % self.ranks } else { call.root };
        let last = (first + self.ranks - 1) % self.ranks;
        let step = |(chunk, bytes): (u64, &u64)| Step {
            from: (rank != first).then_some(before),
            to: (rank != last).then_some(next),
            bytes: *bytes,
            chunk,
            adds: is_reduce,
        };
        (0..).zip(pieces).map(step).collect()
    }

    fn tree(&self, channel: u32, rank: u32, pieces: &[u64]) -> Vec<Step> {
        let tree = &parents(self.ranks)[usize::from(channel >= self.channels.div_ceil(2))];
        let parent = tree[rank as usize];
        let children: Vec<u32> = (0..self.ranks).filter(|child| tree[*child as usize] == Some(rank)).collect();
        let mut program = Vec::new();
        let mut push = |from, to, (chunk, bytes): (u64, u64), adds| program.push(Step { from, to, bytes, chunk, adds });
        for (chunk, bytes) in (0..).zip(pieces.iter().copied()) {
            children.iter().for_each(|child| push(Some(*child), None, (chunk, bytes), true));
            if parent.is_some() {
                push(None, parent, (chunk, bytes), false);
            }
        }
        for (chunk, bytes) in (0..).zip(pieces.iter().copied()) {
            if parent.is_some() {
                push(parent, None, (chunk, bytes), false);
            }
            children.iter().for_each(|child| push(None, Some(*child), (chunk, bytes), false));
        }
        program
    }

    fn direct(&self, rank: u32, pieces: &[u64]) -> Vec<Step> {
        let mut program = Vec::new();
        for (chunk, bytes) in (0..).zip(pieces.iter().copied()) {
            for distance in 1..self.ranks {
                let to = (rank + distance) % self.ranks;
                let chunk = chunk * u64::from(self.ranks) + u64::from(distance);
                program.push(Step { from: None, to: Some(to), bytes, chunk, adds: false });
            }
            for distance in 1..self.ranks {
                let from = (rank + self.ranks - distance) % self.ranks;
                let chunk = (chunk << 20) + u64::from(distance);
                program.push(Step { from: Some(from), to: None, bytes, chunk, adds: false });
            }
        }
        program
    }
}

/// Time at which the proxy posts receive number `at` of an operation: at once, or when the message
/// that used the same buffer before is used.
fn posted_ns(stream: &Stream, at: usize, entry_ns: i64, steps: u64) -> i64 {
    let depth = (STEPS / steps) as usize;
    at.checked_sub(depth).and_then(|before| stream.used_ns.get(before)).map_or(entry_ns, |used_ns| used_ns + 500)
}

/// Lengths of the pieces of `most` bytes.
fn pieces(bytes: u64, most: u64) -> Vec<u64> {
    (0..bytes.div_ceil(most).max(1)).map(|piece| (bytes - piece * most).min(most)).collect()
}
