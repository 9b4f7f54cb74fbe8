//! Libraries without a recorded run: packets built from their message layouts, and the rank matrix
//! that follows by arithmetic.
//!
//! The layouts are those of the sources named in `parsers/src/mpi`; P is the start of the payload,
//! numbers are little-endian.

use crate::wire::{EndpointCells, WireBuilder, WireQueuePair, by_rank, profile};
use ibscope::analysis::matrix::Selection;
use ibscope::model::{Interval, Profile};
use std::collections::BTreeMap;

/// Processes with a LID and a pair of queue pairs to each other, and the messages they sent.
struct ConstructedJob {
    wire: WireBuilder,
    /// World ranks; the process with index n has LID 0x11 + n.
    ranks: Vec<u32>,
    queues: BTreeMap<(usize, usize), WireQueuePair>,
    p2p: EndpointCells,
    collective: EndpointCells,
    /// Rendezvous messages, and how many of them have a completion message.
    rendezvous: [u64; 2],
}

impl ConstructedJob {
    fn new(ranks: &[u32]) -> Self {
        let pairs = (0..ranks.len()).flat_map(|one| (0..ranks.len()).map(move |other| (one, other)));
        let queue = |(src, dst)| ((src, dst), WireQueuePair::new(lid(src), lid(dst), queue_pair(dst, src)));
        Self {
            wire: WireBuilder::new(),
            ranks: ranks.to_vec(),
            queues: pairs.filter(|(src, dst)| src != dst).map(queue).collect(),
            p2p: EndpointCells::new(),
            collective: EndpointCells::new(),
            rendezvous: [0; 2],
        }
    }

    /// Calls `act` with both directions between two processes.
    fn with(
        &mut self,
        (src, dst): (usize, usize),
        act: impl FnOnce(&mut WireBuilder, &mut WireQueuePair, &mut WireQueuePair),
    ) {
        let mut there = self.queues.remove(&(src, dst)).expect("queue");
        let mut back = self.queues.remove(&(dst, src)).expect("queue");
        act(&mut self.wire, &mut there, &mut back);
        self.queues.insert((src, dst), there);
        self.queues.insert((dst, src), back);
    }

    /// A SEND and its acknowledgement.
    fn send(&mut self, pair: (usize, usize), payload: &[u8]) {
        self.with(pair, |wire, there, back| {
            there.send(wire, payload);
            back.ack(wire, there);
        });
    }

    /// An RDMA WRITE and its acknowledgement.
    fn write(&mut self, pair: (usize, usize), va: u64, payload: &[u8]) {
        self.with(pair, |wire, there, back| {
            there.write(wire, va, R_KEY, payload);
            back.ack(wire, there);
        });
    }

    /// An RDMA READ by the first of the pair, with the response of the second.
    fn read(&mut self, pair: (usize, usize), va: u64, length_bytes: usize) {
        self.with(pair, |wire, there, back| {
            there.read(wire, va, R_KEY, length_bytes);
            back.read_response(wire, there, &data(length_bytes));
        });
    }

    /// Counts an MPI message as sent.
    fn sent(&mut self, (src, dst): (usize, usize), collective: bool, mpi_bytes: usize) {
        let cells = if collective { &mut self.collective } else { &mut self.p2p };
        let cell = cells.entry((self.ranks[src].to_string(), self.ranks[dst].to_string())).or_default();
        (cell.0, cell.1) = (cell.0 + 1, cell.1 + mpi_bytes as u64);
    }

    /// Counts the message as a rendezvous.
    fn count_rendezvous(&mut self, is_done: bool) {
        self.rendezvous[0] += 1;
        self.rendezvous[1] += u64::from(is_done);
    }

    /// Analyzes the capture, and checks that every process has a rank and that all messages count.
    fn check(&mut self) -> Profile {
        let messages: u64 = self.p2p.values().chain(self.collective.values()).map(|cell| cell.0).sum();
        assert!(messages >= 20, "{messages} messages");
        let profile = profile(&[self.wire.file()]);
        let stacks: Vec<_> = profile.connections.iter().map(|row| row.stack.as_deref().unwrap_or("-")).collect();
        let case = format!("{stacks:?}, {:?}", profile.notes);
        assert_eq!(by_rank(&profile, Selection::P2p), self.p2p, "point-to-point; {case}");
        assert_eq!(by_rank(&profile, Selection::Collective), self.collective, "collective; {case}");
        let named = profile.ranks.iter().map(|row| (row.rank, row.endpoint.clone()));
        let expected = self.ranks.iter().enumerate().map(|(index, rank)| (*rank, lid(index).to_string()));
        let mut named: Vec<_> = named.collect();
        named.dedup();
        assert_eq!(named, expected.collect::<Vec<_>>(), "{case}");
        assert_eq!(profile.coverage.icrc_ok, self.wire.packets());
        let samples = |interval| {
            let rows = profile.latencies.iter().filter(|row| row.timing.interval == interval);
            rows.map(|row| row.histogram.samples()).sum::<u64>()
        };
        let [asked, done] = self.rendezvous;
        let phases = [Interval::RendezvousRequest, Interval::RendezvousData, Interval::RendezvousCompletion];
        assert_eq!(phases.map(samples), [asked, asked, done], "phases of rendezvous; {case}");
        assert_eq!(samples(Interval::MpiMessage), 0, "a capture of one port");
        profile
    }
}

pub(crate) const R_KEY: u32 = 0x0001_2345;
/// Address of the user buffers.
pub(crate) const BUFFER: u64 = 0x7F12_3456_0000;

fn lid(process: usize) -> u16 {
    0x11 + process as u16
}

/// The queue pair of a process for its connection with another.
pub(crate) fn queue_pair(process: usize, other: usize) -> u32 {
    (0x100 * (process + 1) + other) as u32
}

/// Application data: no two bytes in a row are equal, and no byte is as small as the numbers in a
/// header.
pub(crate) fn data(length_bytes: usize) -> Vec<u8> {
    (0..length_bytes).map(|at| (at * 37 + 0x8B) as u8 | 0x80).collect()
}

/// Message lengths, some of more than one packet.
fn length(number: usize) -> usize {
    [8, 40, 100, 1000, 5000, 8000][number % 6]
}

/// Rounds of messages between all pairs of processes: calls `act` with the number of the message
/// within its pair, and the pair.
fn rounds(job: &mut ConstructedJob, rounds: usize, mut act: impl FnMut(&mut ConstructedJob, usize, (usize, usize))) {
    let pairs: Vec<(usize, usize)> = job.queues.keys().copied().collect();
    for number in 0..rounds {
        pairs.iter().for_each(|&pair| act(job, number, pair));
    }
}

/// Every fourth message belongs to a collective operation.
fn is_collective(number: usize) -> bool {
    number % 4 == 3
}

/// A header, built field by field at offsets.
#[derive(Clone, Default)]
pub(crate) struct HeaderBuilder(Vec<u8>);

impl HeaderBuilder {
    fn new(length_bytes: usize) -> Self {
        Self(vec![0; length_bytes])
    }

    fn put(mut self, at: usize, field: impl AsRef<[u8]>) -> Self {
        let field = field.as_ref();
        self.0[at..at + field.len()].copy_from_slice(field);
        self
    }

    fn u16(self, at: usize, value: u16) -> Self {
        self.put(at, value.to_le_bytes())
    }

    fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, value.to_le_bytes())
    }

    fn i32(self, at: usize, value: i32) -> Self {
        self.put(at, value.to_le_bytes())
    }

    fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, value.to_le_bytes())
    }

    pub(crate) fn then(self, data: &[u8]) -> Vec<u8> {
        [&self.0[..], data].concat()
    }
}

/// MVAPICH2 2.3.7: message types, and the numbers of RTS and CTS in a build with CMA and without
/// checkpointing.
pub(crate) mod mvapich2 {
    use super::{BUFFER, HeaderBuilder, R_KEY};

    pub(crate) const EAGER_SEND: u8 = 0;
    pub(crate) const EAGER_SEND_CONTIG: u8 = 1;
    pub(crate) const FAST_EAGER: u8 = 2;
    pub(crate) const FAST_EAGER_WITH_REQ: u8 = 3;
    const RPUT_FINISH: u8 = 4;
    const RTS: u8 = 32;
    const CTS: u8 = 33;

    /// Type u8, sequence u16 @2, acknowledged u16 @4, credits u8 @6 and @7, the receiver's
    /// connection as a pointer @8, credit @16, rail @17.
    fn common(kind: u8, sequence: u16, length_bytes: usize) -> HeaderBuilder {
        HeaderBuilder::new(length_bytes)
            .put(0, [kind])
            .u16(2, sequence)
            .u16(4, sequence.saturating_sub(1))
            .put(6, [1, 0])
            .u64(8, 0x5566_1234_5680)
            .put(16, [2, 0])
    }

    /// Tag i32 @24, rank i16 @28, context u16 @30, length i64 @32; the data follow at @40.
    pub(crate) fn envelope(
        kind: u8,
        sequence: u16,
        (rank, tag, context): (u16, i32, u16),
        data_bytes: usize,
    ) -> HeaderBuilder {
        let length_bytes = if kind == RTS { 144 } else { 40 };
        common(kind, sequence, length_bytes)
            .i32(20, 0x2C00_0001)
            .i32(24, tag)
            .u16(28, rank)
            .u16(30, context)
            .u64(32, data_bytes as u64)
    }

    /// Rendezvous: address u64 @40, keys from @48 on.
    pub(crate) fn ready_to_send(sequence: u16, identity: (u16, i32, u16), data_bytes: usize) -> Vec<u8> {
        envelope(RTS, sequence, identity, data_bytes).u64(40, BUFFER).u32(48, R_KEY).0
    }

    /// Length i64 @24, address u64 @32, keys from @40 on, the requests of sender and receiver at
    /// @136 and @140.
    pub(crate) fn clear_to_send(sequence: u16, data_bytes: usize) -> Vec<u8> {
        let header = common(CTS, sequence, 144).u64(24, data_bytes as u64).u64(32, BUFFER).u32(40, R_KEY);
        header.i32(136, 0x2C00_0001).i32(140, 0x2C00_0002).0
    }

    /// The receiver's request @20.
    pub(crate) fn finish(sequence: u16) -> Vec<u8> {
        common(RPUT_FINISH, sequence, 24).i32(20, 0x2C00_0002).0
    }

    /// A slot of the eager RDMA ring: flag u64, content, flag u64. The flag is the length and,
    /// every other round, bit 15.
    pub(crate) fn slot(content: &[u8], round: usize) -> Vec<u8> {
        let flag = (content.len() as u64 | (round as u64 & 1) << 15).to_le_bytes();
        [&flag, content, &flag].concat()
    }
}

/// MPICH's contexts: 0 and 1 are `MPI_COMM_WORLD`, point-to-point and collective.
fn mpich_identity(src: usize, number: usize) -> (u16, i32, u16) {
    (src as u16, 100 + number as i32, u16::from(is_collective(number)))
}

#[test]
fn mvapich2_eager_and_rendezvous() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    let mut sequences: BTreeMap<(usize, usize), u16> = BTreeMap::new();
    rounds(&mut job, 16, |job, number, (src, dst)| {
        let mut next = |pair| {
            let sequence = sequences.entry(pair).or_default();
            *sequence += 1;
            *sequence - 1
        };
        let identity = mpich_identity(src, number);
        let (pair, back) = ((src, dst), (dst, src));
        if number % 5 == 2 {
            let bytes = 100_000 + number;
            job.send(pair, &mvapich2::ready_to_send(next(pair), identity, bytes));
            job.send(back, &mvapich2::clear_to_send(next(back), bytes));
            job.write(pair, BUFFER, &data(bytes));
            job.send(pair, &mvapich2::finish(next(pair)));
            job.count_rendezvous(true);
            job.sent(pair, is_collective(number), bytes);
        } else {
            let bytes = length(number);
            let kind = if bytes <= 1000 { mvapich2::EAGER_SEND } else { mvapich2::EAGER_SEND_CONTIG };
            job.send(pair, &mvapich2::envelope(kind, next(pair), identity, bytes).then(&data(bytes)));
            job.sent(pair, is_collective(number), bytes);
        }
    });
    job.check();
}

/// After some messages by SEND each side writes into the other's ring. The ring caches the envelope
/// and omits an equal one.
#[test]
fn mvapich2_fast_path_with_cached_headers() {
    let mut job = ConstructedJob::new(&[0, 1]);
    rounds(&mut job, 40, |job, number, (src, dst)| {
        // The tag changes with every eighth message; then the envelope is written.
        let identity = (src as u16, 7 + number as i32 / 8, 0);
        let bytes = 8 + number;
        let (pair, sequence) = ((src, dst), number as u16);
        let full = || mvapich2::envelope(mvapich2::EAGER_SEND, sequence, identity, bytes).then(&data(bytes));
        let cached = |kind| {
            let mut content = vec![kind, bytes as u8];
            content.extend(sequence.to_le_bytes());
            content
        };
        let content = match number % 8 {
            _ if number < 8 => {
                job.send(pair, &full());
                job.sent(pair, false, bytes);
                return;
            }
            0 => full(),
            5 => [cached(mvapich2::FAST_EAGER_WITH_REQ), vec![1, 0, 0, 0x2C], data(bytes)].concat(),
            _ => [cached(mvapich2::FAST_EAGER), data(bytes)].concat(),
        };
        let (slot, round) = ((number - 8) % 16, (number - 8) / 16);
        // Slots of 2 KiB.
        job.write(pair, 0x5566_4000_0000 + slot as u64 * 2048, &mvapich2::slot(&content, round));
        job.sent(pair, false, bytes);
    });
    job.check();
}

/// Messages of these lengths in one SEND, each with its header of 40 bytes, unaligned.
fn mvapich2_together(
    job: &mut ConstructedJob,
    pair: (usize, usize),
    number: usize,
    first_sequence: usize,
    lengths: &[usize],
) {
    let mut payload = Vec::new();
    for (part, &bytes) in lengths.iter().enumerate() {
        let (sequence, identity) = ((first_sequence + part) as u16, mpich_identity(pair.0, number + part));
        payload.extend(mvapich2::envelope(mvapich2::EAGER_SEND, sequence, identity, bytes).then(&data(bytes)));
        job.sent(pair, is_collective(number + part), bytes);
    }
    job.send(pair, &payload);
}

/// Under back-pressure several messages share a SEND.
#[test]
fn mvapich2_coalesced_sends() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 8, |job, number, pair| {
        let lengths = [5, 12, 19].map(|bytes| bytes + number);
        if number < 4 {
            mvapich2_together(job, pair, number, number, &lengths[..1]);
        } else {
            mvapich2_together(job, pair, number, number * 3 - 8, &lengths);
        }
    });
    job.check();
}

/// A coalesced SEND of several packets: later messages are in later packets.
#[test]
fn mvapich2_coalesced_sends_of_several_packets() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 8, |job, number, pair| {
        mvapich2_together(job, pair, number, number * 3, &[2000, 2300, 2600].map(|bytes| bytes + number));
    });
    job.check();
}

/// Jobs of more than 64 ranks connect on demand: datagrams of `Q_Key` 0 contain the world ranks and
/// queue pairs of both ends. The messages then use another communicator with other ranks.
#[test]
fn mvapich2_connection_messages_give_ranks() {
    let mut job = ConstructedJob::new(&[70, 71, 75]);
    let ranks = job.ranks.clone();
    for (client, server) in [(0, 1), (0, 2), (2, 1)] {
        // Request u32, rank of the server u32, rank of the client u32, type u8, rails u8, LIDs
        // u16[40] @14, GIDs @96, queue pairs u32[40] @736.
        let message = |kind: u8, sender: usize, other: usize| {
            let header = HeaderBuilder::new(1296).u32(0, 1 + client as u32).u32(4, ranks[server]).u32(8, ranks[client]);
            let header = header.put(12, [kind, 1]).u16(14, lid(sender));
            header.u32(736, queue_pair(sender, other)).u64(896, 0x5566_1234_5680).0
        };
        let (client_qp, server_qp) = (0x50 + client as u32, 0x50 + server as u32);
        WireQueuePair::new(lid(client), lid(server), server_qp).datagram(
            &mut job.wire,
            0,
            client_qp,
            &message(0, client, server),
        );
        WireQueuePair::new(lid(server), lid(client), client_qp).datagram(
            &mut job.wire,
            0,
            server_qp,
            &message(1, server, client),
        );
    }
    rounds(&mut job, 6, |job, number, pair| {
        let bytes = length(number);
        // Context 0x40: neither the world's (0, 1) nor a sub-communicator of it.
        let identity = (pair.0 as u16, 9, 0x40 + u16::from(is_collective(number)));
        let header = mvapich2::envelope(mvapich2::EAGER_SEND_CONTIG, number as u16, identity, bytes);
        job.send(pair, &header.then(&data(bytes)));
        job.sent(pair, is_collective(number), bytes);
    });
    job.check();
}

/// A "clear to send" of NCCL 2.20: elements {address u64, size u32, keys u32[2], elements u32 @20,
/// rank of the sender of the data u32 @24, index u64 @32}, 64 bytes each.
fn nccl_elements(addresses: &[u64], size_bytes: u32, rank: u32, index: u64) -> Vec<u8> {
    let element = |address: &u64| {
        let header =
            HeaderBuilder::new(64).u64(0, *address).u32(8, size_bytes).u32(12, R_KEY).u32(20, addresses.len() as u32);
        header.u32(24, rank).u64(32, index).0
    };
    addresses.iter().flat_map(element).collect()
}

/// Checks a ring of NCCL: messages are completed elements, bytes are written data. The wire does
/// not show whether they are point-to-point or collective.
fn check_nccl(job: &mut ConstructedJob) {
    let profile = profile(&[job.wire.file()]);
    assert_eq!(by_rank(&profile, Selection::All), job.p2p, "{:?}", profile.notes);
    let named: Vec<_> = profile.ranks.iter().map(|row| (row.rank, row.endpoint.as_str())).collect();
    assert_eq!(named, [(0, "17"), (1, "18"), (2, "19")]);
}

/// A ring of three: each rank receives from the one before it. Large data are written first and
/// completed by an empty WRITE with Immediate; small data are in the WRITE with Immediate.
#[test]
fn nccl_ring() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    for number in 0..24u64 {
        for src in 0..3 {
            let dst = (src + 1) % 3;
            let address = BUFFER + number % 8 * 0x10_0000;
            let bytes = if number % 3 == 0 { 512 } else { 10_000 + number as usize };
            // A slot of 512 bytes in the sender's memory; the receiver writes the rank that it
            // waits for.
            let elements = nccl_elements(&[address], 1 << 20, src as u32, number + 1);
            job.write((dst, src), 0x5577_0000_0000 + number % 8 * 512, &elements);
            job.with((src, dst), |wire, there, back| {
                if bytes > 8192 {
                    there.write(wire, address, R_KEY, &data(bytes));
                    there.write_immediate(wire, 0, 0, &[], bytes as u32);
                } else {
                    there.write_immediate(wire, address, R_KEY, &data(bytes), bytes as u32);
                }
                back.ack(wire, there);
            });
            job.sent((src, dst), false, bytes);
        }
    }
    check_nccl(&mut job);
}

/// A "clear to send" that was lost and retransmitted arrives after the following ones.
#[test]
fn nccl_ring_with_a_late_clear_to_send() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    for round in 0..8u64 {
        for src in 0..3 {
            let dst = (src + 1) % 3;
            for number in [1, 3, 2].map(|order| round * 3 + order) {
                let elements = nccl_elements(&[BUFFER + number * 0x10_0000], 1 << 20, src as u32, number);
                job.write((dst, src), 0x5577_0000_0000 + number % 8 * 512, &elements);
            }
            for number in (1..=3).map(|order| round * 3 + order) {
                job.with((src, dst), |wire, there, back| {
                    there.write_immediate(wire, BUFFER + number * 0x10_0000, R_KEY, &data(700), 700);
                    back.ack(wire, there);
                });
                job.sent((src, dst), false, 700);
            }
        }
    }
    check_nccl(&mut job);
}

/// Two receives in one "clear to send": both buffers are written, and the WRITE with Immediate
/// contains their lengths.
#[test]
fn nccl_ring_with_several_receives() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    for number in 0..12u64 {
        for src in 0..3 {
            let dst = (src + 1) % 3;
            let addresses = [BUFFER + number % 8 * 0x10_0000, BUFFER + 0x1000_0000 + number % 8 * 0x10_0000];
            let lengths = [3000 + number as usize, 20_000 + number as usize];
            let elements = nccl_elements(&addresses, 1 << 20, src as u32, number + 1);
            job.write((dst, src), 0x5577_0000_0000 + number % 8 * 512, &elements);
            job.with((src, dst), |wire, there, back| {
                for (address, length) in addresses.iter().zip(lengths) {
                    there.write(wire, *address, R_KEY, &data(length));
                }
                let sizes: Vec<u8> = lengths.iter().flat_map(|length| (*length as u32).to_le_bytes()).collect();
                there.write_immediate(wire, 0x5588_0000_0000 + number % 8 * 32, R_KEY, &sizes, 0);
                back.ack(wire, there);
            });
            lengths.iter().for_each(|length| job.sent((src, dst), false, *length));
        }
    }
    check_nccl(&mut job);
}

/// UCX active messages by id.
mod ucx {
    use super::{BUFFER, HeaderBuilder, data};

    /// {tag, data}.
    pub(super) fn eager_only(tag: u64, bytes: usize) -> Vec<u8> {
        HeaderBuilder::new(9).put(0, [2]).u64(1, tag).then(&data(bytes))
    }

    /// {tag, length, message id, data} and {message id, offset, data}: 8 KiB of active message
    /// each.
    pub(super) fn fragments(tag: u64, bytes: usize, id: u64) -> Vec<Vec<u8>> {
        let whole = data(bytes);
        let first_bytes = 8192 - 25;
        let first = HeaderBuilder::new(25).put(0, [3]).u64(1, tag).u64(9, bytes as u64).u64(17, id);
        let mut messages = vec![first.then(&whole[..first_bytes])];
        for (index, part) in whole[first_bytes..].chunks(8192 - 17).enumerate() {
            let offset = first_bytes + index * (8192 - 17);
            messages.push(HeaderBuilder::new(17).put(0, [4]).u64(1, id).u64(9, offset as u64).then(part));
        }
        messages
    }

    /// {tag, endpoint id, request id, address, size, opcode u8}, then a packed key.
    pub(super) fn ready_to_send(tag: u64, bytes: usize, request: u64) -> Vec<u8> {
        let header = HeaderBuilder::new(42).put(0, [9]).u64(1, tag).u64(9, 0x7F00_0000_1230).u64(17, request);
        header.u64(25, BUFFER).u64(33, bytes as u64).then(&[0x10, 0, 0, 0, 9, 0x45, 0x23, 1, 0])
    }

    /// UCX 1.10: {endpoint id, request id, address, size, flags u16 (bit 0: tag), tag}.
    pub(super) fn ready_to_send_1_10(tag: u64, bytes: usize, request: u64) -> Vec<u8> {
        let header = HeaderBuilder::new(43).put(0, [9]).u64(1, 0x7F00_0000_1230).u64(9, request).u64(17, BUFFER);
        header.u64(25, bytes as u64).u16(33, 1).u64(35, tag).then(&[0x10, 0, 0, 0, 9, 0x45, 0x23, 1, 0])
    }

    /// The completion after the data were read: {request id, status}.
    pub(super) fn completion(request: u64) -> Vec<u8> {
        HeaderBuilder::new(10).put(0, [10]).u64(1, request).0
    }
}

/// Open MPI 3.0 and later: tag 63-40 (negative tags are the library's), rank 39-20, context 19-0.
fn open_mpi_tag(src: usize, number: usize) -> u64 {
    let tag: i64 = if is_collective(number) { -12 } else { 30 + number as i64 };
    (tag << 40).cast_unsigned() & 0xFFFF_FF00_0000_0000 | (src as u64) << 20
}

/// Eager messages, fragments and rendezvous of UCX. `wrap` changes every payload; `rts` builds the
/// request to send.
fn ucx_job(wrap: impl Fn(Vec<u8>) -> Vec<u8>, rts: impl Fn(u64, usize, u64) -> Vec<u8>) -> ConstructedJob {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 14, |job, number, (src, dst)| {
        let tag = open_mpi_tag(src, number);
        let (pair, back) = ((src, dst), (dst, src));
        let bytes = match number % 7 {
            5 => {
                let bytes = 20_000 + number;
                for message in ucx::fragments(tag, bytes, 0xA5A5_0000_0000_0001 + number as u64) {
                    job.send(pair, &wrap(message));
                }
                bytes
            }
            6 => {
                let (bytes, request) = (300_000 + number, 0x4000 + number as u64);
                job.send(pair, &wrap(rts(tag, bytes, request)));
                job.read(back, BUFFER, bytes);
                job.send(back, &wrap(ucx::completion(request)));
                job.count_rendezvous(true);
                bytes
            }
            _ => {
                let bytes = length(number);
                job.send(pair, &wrap(ucx::eager_only(tag, bytes)));
                bytes
            }
        };
        job.sent(pair, is_collective(number), bytes);
    });
    job
}

/// The mlx5 transport puts a byte 0 (no hardware tag) before the id.
#[test]
fn ucx_over_mlx5() {
    ucx_job(|message| [&[0], &message[..]].concat(), ucx::ready_to_send).check();
}

/// The same over the verbs transport, which has recorded runs: this checks the builder.
#[test]
fn ucx_over_verbs() {
    ucx_job(|message| message, ucx::ready_to_send).check();
}

#[test]
fn ucx_1_10_ready_to_send() {
    ucx_job(|message| message, ucx::ready_to_send_1_10).check();
}

/// Open MPI 2.x: tag 63-40, rank 39-16, context 15-0.
#[test]
fn open_mpi_2_tags() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 12, |job, number, pair| {
        let tag: i64 = if is_collective(number) { -16 } else { 30 + number as i64 };
        let tag = (tag << 40).cast_unsigned() & 0xFFFF_FF00_0000_0000 | (pair.0 as u64) << 16;
        let bytes = length(number);
        job.send(pair, &ucx::eager_only(tag, bytes));
        job.sent(pair, is_collective(number), bytes);
    });
    job.check();
}

/// MPICH 4.3: context 63-48, rank 47-32, bit 31 marks an active message, tag 30-0. Active messages
/// are the library's own.
#[test]
fn mpich_4_3_tags() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 16, |job, number, pair| {
        let (rank, tag, context) = mpich_identity(pair.0, number);
        let active = number % 5 == 2;
        let protocol = u64::from(active) << 31;
        let tag = u64::from(context) << 48 | u64::from(rank) << 32 | protocol | u64::from(tag.cast_unsigned());
        let bytes = length(number);
        job.send(pair, &ucx::eager_only(tag, bytes));
        if !active {
            job.sent(pair, is_collective(number), bytes);
        }
    });
    job.check();
}

/// Open MPI's `openib` BTL and `ob1`: BTL header {tag u8, 0, credits u16}, then the PML header H at
/// P+4.
mod ob1 {
    use super::{BUFFER, HeaderBuilder, R_KEY};

    const MATCH: u8 = 0x41;
    pub(super) const RNDV: u8 = 0x42;
    pub(super) const RGET: u8 = 0x43;
    const ACK: u8 = 0x44;
    const FRAG: u8 = 0x46;
    const PUT: u8 = 0x48;
    const FIN: u8 = 0x49;
    const SOURCE_REQUEST: u64 = 0x5566_0000_1000;
    const RECEIVER_REQUEST: u64 = 0x5566_0000_2000;
    pub(super) const SOURCE_FRAGMENT: u64 = 0x5566_0000_3000;
    pub(super) const RECEIVER_FRAGMENT: u64 = 0x5566_0000_4000;

    /// Rank, MPI tag, context and number of the message.
    pub(super) type Ob1Identity = (u32, i32, u16, u16);

    /// A PML header after the BTL header: type and flags.
    fn header(kind: u8, flags: u8, pml_bytes: usize) -> HeaderBuilder {
        HeaderBuilder::new(4 + pml_bytes).put(0, [kind]).put(4, [kind, flags])
    }

    /// Context u16 H+2, rank i32 H+4, tag i32 H+8, sequence u16 H+12.
    fn matching(header: HeaderBuilder, (rank, tag, context, sequence): Ob1Identity) -> HeaderBuilder {
        header.u16(6, context).u32(8, rank).i32(12, tag).u16(16, sequence)
    }

    pub(super) fn eager(identity: Ob1Identity, data: &[u8]) -> Vec<u8> {
        matching(header(MATCH, 0, 14), identity).then(data)
    }

    /// The PML header and data of an eager message, without the BTL header.
    pub(super) fn pml(identity: Ob1Identity, data: &[u8]) -> Vec<u8> {
        eager(identity, data).split_off(4)
    }

    /// Length u64 H+16, request of the sender u64 H+24, the first data H+32.
    pub(super) fn rendezvous(identity: Ob1Identity, length_bytes: usize, first: &[u8]) -> Vec<u8> {
        matching(header(RNDV, 1, 32), identity).u64(20, length_bytes as u64).u64(28, SOURCE_REQUEST).then(first)
    }

    /// As RNDV, then fragment u64 H+32, address u64 H+40, keys u32 H+48 and H+52.
    pub(super) fn get(identity: Ob1Identity, length_bytes: usize) -> Vec<u8> {
        let header = matching(header(RGET, 8, 56), identity).u64(20, length_bytes as u64).u64(28, SOURCE_REQUEST);
        header.u64(36, SOURCE_FRAGMENT).u64(44, BUFFER).u32(52, R_KEY).u32(56, R_KEY + 1).0
    }

    /// Requests H+8 and H+16, offset H+24, size H+32.
    pub(super) fn acknowledge(offset: usize) -> Vec<u8> {
        let header = header(ACK, 0, 40).u64(12, SOURCE_REQUEST).u64(20, RECEIVER_REQUEST);
        header.u64(28, offset as u64).0
    }

    /// Offset H+8, requests H+16 and H+24, data H+32.
    pub(super) fn fragment(offset: usize, data: &[u8]) -> Vec<u8> {
        let header = header(FRAG, 0, 32).u64(12, offset as u64).u64(20, SOURCE_REQUEST).u64(28, RECEIVER_REQUEST);
        header.then(data)
    }

    /// Request H+8, fragment H+16, receiver's request H+24, offset H+32, address H+40, size H+48,
    /// key H+56.
    pub(super) fn put(offset: usize, length_bytes: usize) -> Vec<u8> {
        let header = header(PUT, 0, 64).u64(12, SOURCE_REQUEST).u64(20, RECEIVER_FRAGMENT).u64(28, RECEIVER_REQUEST);
        header.u64(36, offset as u64).u64(44, BUFFER).u64(52, length_bytes as u64).u32(60, R_KEY).u32(64, R_KEY).0
    }

    /// Size H+8, fragment H+16.
    pub(super) fn finish(fragment: u64, length_bytes: usize) -> Vec<u8> {
        header(FIN, 0, 24).u64(12, length_bytes as u64).u64(20, fragment).0
    }

    /// Network byte order (flag 2): for machines of different architectures, where a MATCH has 16
    /// bytes instead of 14.
    pub(super) fn big_endian(kind: u8, (rank, tag, context, sequence): Ob1Identity, rest: &[u8]) -> Vec<u8> {
        let header = header(kind, 2, 16).put(6, context.to_be_bytes()).put(8, rank.to_be_bytes());
        header.put(12, tag.to_be_bytes()).put(16, sequence.to_be_bytes()).then(rest)
    }

    pub(super) const fn kind_match() -> u8 {
        MATCH
    }
}

/// Negative tags are those of collective operations: -12 is allreduce. Context 0 is
/// `MPI_COMM_WORLD`; messages count from 1.
fn ob1_identity(src: usize, number: usize) -> ob1::Ob1Identity {
    let tag = if is_collective(number) { -12 } else { 30 + number as i32 };
    (src as u32, tag, 0, 1 + number as u16)
}

/// Shared receive queues: every message is a SEND with Immediate, whose word is the receiver's
/// index of the sender.
#[test]
fn ob1_sends_with_immediate() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 12, |job, number, pair| {
        let bytes = length(number);
        let payload = ob1::eager(ob1_identity(pair.0, number), &data(bytes));
        job.with(pair, |wire, there, back| {
            there.send_immediate(wire, &payload, (pair.0 as u32).swap_bytes());
            back.ack(wire, there);
        });
        job.sent(pair, is_collective(number), bytes);
    });
    job.check();
}

/// Control message 2: from P+5 on {tag u8, 3 unused, size u32, allocated u32} and a PML header with
/// its data, repeatedly.
#[test]
fn ob1_coalesced_sends() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 8, |job, number, pair| {
        // One message in even rounds, three in odd ones.
        let first = number / 2 * 4 + number % 2;
        if number % 2 == 0 {
            let bytes = length(number);
            job.send(pair, &ob1::eager(ob1_identity(pair.0, first), &data(bytes)));
            job.sent(pair, is_collective(first), bytes);
            return;
        }
        let mut payload = vec![0x20, 0, 0, 0, 2];
        for part in 0..3 {
            let bytes = 3 + 10 * part + number;
            let identity = ob1_identity(pair.0, first + part);
            let pml = ob1::pml(identity, &data(bytes));
            // Allocated in steps of 4 bytes.
            let allocated = pml.len().next_multiple_of(4);
            let header =
                HeaderBuilder::new(12).put(0, [ob1::kind_match()]).u32(4, pml.len() as u32).u32(8, allocated as u32);
            payload.extend(header.then(&pml));
            payload.resize(payload.len() + allocated - pml.len(), 0);
            job.sent(pair, is_collective(first + part), bytes);
        }
        job.send(pair, &payload);
    });
    job.check();
}

/// The same in the eager RDMA ring, followed by a footer: its length and 0xff.
#[test]
fn ob1_coalesced_messages_in_the_ring() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 8, |job, number, pair| {
        let mut payload = vec![0x20, 0, 0, 0, 2];
        for part in 0..3 {
            let bytes = 3 + 10 * part + number;
            let identity = ob1_identity(pair.0, number * 3 + part);
            let pml = ob1::pml(identity, &data(bytes));
            let header =
                HeaderBuilder::new(12).put(0, [ob1::kind_match()]).u32(4, pml.len() as u32).u32(8, pml.len() as u32);
            payload.extend(header.then(&pml));
            job.sent(pair, is_collective(number * 3 + part), bytes);
        }
        let length = payload.len() as u32 + 4;
        payload.extend((length | 0xFF00_0000).to_le_bytes());
        job.write(pair, BUFFER - u64::from(length), &payload);
    });
    job.check();
}

/// RNDV with the first data, ACK, and the rest in fragments of 64 KiB.
#[test]
fn ob1_rendezvous_with_fragments() {
    ob1_rendezvous(|job, pair, back, identity, bytes| {
        let (whole, first) = (data(bytes), 12_000);
        job.send(pair, &ob1::rendezvous(identity, bytes, &whole[..first]));
        job.send(back, &ob1::acknowledge(first));
        for (index, part) in whole[first..].chunks(65_536 - 36).enumerate() {
            job.send(pair, &ob1::fragment(first + index * (65_536 - 36), part));
        }
        job.count_rendezvous(false);
    });
}

/// RNDV with the first data, PUT with the receiver's buffer, WRITE, FIN.
#[test]
fn ob1_rendezvous_with_put() {
    ob1_rendezvous(|job, pair, back, identity, bytes| {
        let (whole, first) = (data(bytes), 12_000);
        job.send(pair, &ob1::rendezvous(identity, bytes, &whole[..first]));
        job.send(back, &ob1::put(first, bytes - first));
        job.write(pair, BUFFER, &whole[first..]);
        job.send(pair, &ob1::finish(ob1::RECEIVER_FRAGMENT, bytes - first));
        job.count_rendezvous(true);
    });
}

/// RGET with the sender's buffer, READ by the receiver, FIN.
#[test]
fn ob1_rendezvous_with_get() {
    ob1_rendezvous(|job, pair, back, identity, bytes| {
        job.send(pair, &ob1::get(identity, bytes));
        job.read(back, BUFFER, bytes);
        job.send(back, &ob1::finish(ob1::SOURCE_FRAGMENT, bytes));
        job.count_rendezvous(true);
    });
}

type RankPair = (usize, usize);

/// Eager messages, and some that are too long for eager.
fn ob1_rendezvous(mut long: impl FnMut(&mut ConstructedJob, RankPair, RankPair, ob1::Ob1Identity, usize)) {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 9, |job, number, pair| {
        let identity = ob1_identity(pair.0, number);
        let bytes = if number % 3 == 1 { 200_000 + number } else { length(number) };
        if number % 3 == 1 {
            long(job, pair, (pair.1, pair.0), identity, bytes);
        } else {
            job.send(pair, &ob1::eager(identity, &data(bytes)));
        }
        job.sent(pair, is_collective(number), bytes);
    });
    job.check();
}

/// Open MPI's `udcm`: datagrams of `Q_Key` 0 with the sender's rank in `MPI_COMM_WORLD` and its
/// four queue pairs. The messages then are on another communicator and one-way, without
/// acknowledgements. Only CONNECT shows which queue pairs belong together, and their ranks.
#[test]
fn udcm_gives_ranks_and_queue_pairs() {
    let mut job = ConstructedJob::new(&[5, 9]);
    let queue_pairs = |process: usize| (0..4).map(move |queue| queue_pair(process, 1 - process) + 0x10 * queue);
    for sender in [0, 1] {
        // Type 100, context u64 @8, sender's endpoint @16, receiver's @24, {job, rank} u32 @32,
        // index i32 (big-endian) @40, port u8 @44, {queue pair, PSN} u32 (big-endian) from @56 on.
        let header = HeaderBuilder::new(56).put(0, [100]).u64(8, 0x5566_0000_5000).u64(16, 0x5566_0000_6000);
        let header = header.u32(32, 19_476 << 16 | 1).u32(36, job.ranks[sender]);
        let header = header.put(40, (3 + sender as i32).to_be_bytes()).put(44, [1]);
        let entries: Vec<u8> =
            queue_pairs(sender).flat_map(|qpn| [qpn.to_be_bytes(), (qpn * 0x111).to_be_bytes()].concat()).collect();
        let payload = header.then(&entries);
        // 56 + 8 for each of four queues.
        assert_eq!(payload.len(), 88);
        let (own, other) = (0x40 + sender as u32, 0x41 - sender as u32);
        WireQueuePair::new(lid(sender), lid(1 - sender), other).datagram(&mut job.wire, 0, own, &payload);
    }
    for (index, (one, other)) in queue_pairs(0).zip(queue_pairs(1)).enumerate() {
        for (src, from, to) in [(0, one, other), (1, other, one)] {
            // Process 0 uses the first two queues, process 1 the others.
            if (index < 2) != (src == 0) {
                continue;
            }
            let mut queue = WireQueuePair::new(lid(src), lid(1 - src), to);
            queue.psn = from * 0x111;
            for number in 0..10 {
                // Context 3 has the ranks in reverse order.
                let sequence = 1 + index % 2 * 10 + number;
                let identity = (1 - src as u32, 30 + number as i32, 3, sequence as u16);
                let bytes = length(number);
                let payload = ob1::eager(identity, &data(bytes));
                // The receiver's index from its CONNECT, in host byte order.
                queue.send_immediate(&mut job.wire, &payload, (4 - src as u32).swap_bytes());
                job.sent((src, 1 - src), false, bytes);
            }
        }
    }
    let profile = job.check();
    let mut paired: Vec<(u32, Option<u32>)> = profile
        .connections
        .iter()
        .filter(|row| row.service == 0)
        .map(|row| (row.dest_qp.value(), row.src_qp.map(ibscope_parsers::Qpn::value)))
        .collect();
    paired.sort_unstable();
    let mut expected: Vec<(u32, Option<u32>)> = Vec::new();
    for (index, (one, other)) in queue_pairs(0).zip(queue_pairs(1)).enumerate() {
        expected.push(if index < 2 { (other, Some(one)) } else { (one, Some(other)) });
    }
    expected.sort_unstable();
    assert_eq!(paired, expected);
}

/// Between machines of different byte order, `ob1` writes its headers in network byte order and
/// sets flag 2.
#[test]
fn ob1_in_network_byte_order() {
    let mut job = ConstructedJob::new(&[0, 1, 2]);
    rounds(&mut job, 12, |job, number, pair| {
        let identity = ob1_identity(pair.0, number);
        let bytes = length(number);
        let payload = if number % 5 == 4 {
            // Length u64 H+16, request u64 H+24, the data H+32: a synchronous send of a short
            // message is a RNDV with all of its data.
            let rest = [&(bytes as u64).to_be_bytes()[..], &[0, 0, 0x55, 0x66, 0, 0, 0x10, 0], &data(bytes)].concat();
            ob1::big_endian(ob1::RNDV, identity, &rest)
        } else {
            ob1::big_endian(ob1::kind_match(), identity, &data(bytes))
        };
        job.send(pair, &payload);
        job.sent(pair, is_collective(number), bytes);
    });
    job.check();
}
