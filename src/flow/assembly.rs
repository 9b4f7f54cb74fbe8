//! Assembles transport messages: SENDs and RDMA WRITEs of several packets, by PSN.
//!
//! Packets with consecutive PSNs form one *run*. A lost packet leaves two runs; they join when its
//! retransmission arrives:
//!
//! ```text
//! First 10, Middle 11,  -,  Last 13     runs [10..12) [13..14)    12 was lost upstream of the capture
//! ... go-back-N: 12 (13 retransmitted)     run  [10..14) First to Last: complete
//! ```
//! Only the first observation of each packet comes here; the ledger filters mirror copies and
//! retransmissions. A message that stays incomplete is emitted when its connection has too many
//! runs, or at the end.

use crate::model::PacketRecord;
use ibscope_parsers::ib::{Opcode, Reth};
use ibscope_parsers::mpi::MpiHeader;

/// Runs that a connection may have. A sender finishes one message before it starts the next, so
/// several runs exist only where packets are missing.
const MAX_RUNS: usize = 32;
/// Payload bytes kept of a message that may hold further envelopes in its later packets (coalesced
/// sends, which are eager).
const MAX_PAYLOAD_BYTES: usize = 1 << 16;

/// A transport message, or the observed part of it.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    /// PSN of its first packet, or of the first observed one.
    pub(super) psn: u32,
    /// Opcode of that packet.
    pub(super) opcode: Opcode,
    /// MPI header at the start of its payload, if recognized.
    pub(super) head: Option<MpiHeader>,
    /// Target address and whole length of an RDMA WRITE.
    pub(super) target: Option<Reth>,
    /// Immediate data of an RDMA WRITE, most significant byte first.
    pub(super) immediate: Option<u32>,
    /// Observed payload in bytes.
    pub(super) payload_bytes: u64,
    /// Wire bytes of the observed packets: LRH to VCRC, or whole Ethernet frames.
    pub(super) wire_bytes: u64,
    /// Observed packets.
    pub(super) packets: u64,
    /// Times of the first and the last of them.
    pub(super) times_ns: (i64, i64),
    /// Full length in bytes, where both the first and the last packet were observed.
    pub(super) message_bytes: Option<u64>,
    /// Its first packet was observed.
    pub(super) started: bool,
    /// All its packets were observed.
    pub(super) complete: bool,
    /// [`start_hash`](crate::model::start_hash) of its data, where it is needed.
    pub(super) start_hash: Option<u32>,
    /// Captured payload, kept only where later parts of it are needed.
    pub(super) payload: Vec<u8>,
}

impl Transport {
    /// A message that has its first packet only; complete if it has no more.
    pub(super) fn new(packet: &PacketRecord, head: Option<MpiHeader>, target: Option<Reth>) -> Self {
        let opcode = packet.opcode();
        let payload_bytes = u64::from(packet.payload_bytes);
        let whole = !opcode.is_first() && !opcode.is_middle() && !opcode.is_last();
        Self {
            psn: packet.psn().value(),
            opcode,
            head,
            target,
            immediate: None,
            payload_bytes,
            wire_bytes: u64::from(packet.wire_bytes),
            packets: 1,
            times_ns: (packet.time_ns, packet.time_ns),
            message_bytes: whole.then_some(payload_bytes),
            started: !(opcode.is_middle() || opcode.is_last()),
            complete: whole,
            start_hash: None,
            payload: Vec::new(),
        }
    }

    fn add(&mut self, other: Self) {
        self.immediate = self.immediate.or(other.immediate);
        self.payload_bytes += other.payload_bytes;
        self.wire_bytes += other.wire_bytes;
        self.packets += other.packets;
        self.times_ns = join_times(self.times_ns, other.times_ns);
        let room = MAX_PAYLOAD_BYTES.saturating_sub(self.payload.len());
        self.payload.extend(other.payload.into_iter().take(room));
    }

    fn add_packet(&mut self, packet: &PacketRecord, immediate: Option<u32>) {
        self.immediate = self.immediate.or(immediate);
        self.payload_bytes += u64::from(packet.payload_bytes);
        self.wire_bytes += u64::from(packet.wire_bytes);
        self.packets += 1;
        self.times_ns = join_times(self.times_ns, (packet.time_ns, packet.time_ns));
    }

    /// Appends the captured payload of a packet.
    fn keep(&mut self, payload: &[u8]) {
        let room = MAX_PAYLOAD_BYTES.saturating_sub(self.payload.len());
        self.payload.extend_from_slice(&payload[..payload.len().min(room)]);
    }
}

/// Joins two time spans: earliest start, latest end. Spans without a time do not count.
pub(super) fn join_times(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    match (a.0 == PacketRecord::NO_TIME, b.0 == PacketRecord::NO_TIME) {
        (true, _) => b,
        (_, true) => a,
        _ => (a.0.min(b.0), a.1.max(b.1)),
    }
}

/// The incomplete messages of one connection, as runs ordered by PSN.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    runs: Vec<PacketRun>,
}

#[derive(Clone, Debug)]
struct PacketRun {
    /// Unwrapped PSN of its first packet.
    start: i64,
    /// One past the unwrapped PSN of its last packet.
    end: i64,
    has_first: bool,
    has_last: bool,
    /// Payload of its first packet: the path MTU, if that is a First or Middle.
    mtu_bytes: u16,
    /// Payload of its last packet.
    last_bytes: u16,
    /// Lowest PSN after `start` that another message or request took: this run's message ends
    /// before it.
    next_other: Option<i64>,
    /// Two or more packets are missing in a row: the end of this message and the start of the next
    /// may be among them.
    may_be_two: bool,
    message: Transport,
}

impl Assembly {
    /// Notes a request that starts a message or is not part of any run: the message before it has
    /// ended, observed or not.
    #[inline]
    pub(super) fn other_request_at(&mut self, number: i64) {
        if let Some(run) = self.runs.iter_mut().rev().find(|run| run.start < number).filter(|run| !run.has_last) {
            run.next_other = Some(run.next_other.map_or(number, |other| other.min(number)));
        }
    }

    /// Takes a First, Middle or Last packet with its unwrapped PSN and returns the message that it
    /// completes. `first` is the message that a First starts. `keep` asks to keep the payload.
    /// `immediate` is the immediate data of the last packet of an RDMA WRITE.
    pub(super) fn packet(
        &mut self,
        packet: &PacketRecord,
        payload: &[u8],
        number: i64,
        first: Option<Transport>,
        keep: bool,
        immediate: Option<u32>,
    ) -> Option<Transport> {
        let opcode = packet.opcode();
        // Common case: the next packet of the latest message.
        if first.is_none()
            && let Some(run) = self.runs.last_mut().filter(|run| run.end == number && !run.has_last)
        {
            run.end += 1;
            run.has_last = opcode.is_last();
            run.last_bytes = packet.payload_bytes;
            run.message.add_packet(packet, immediate);
            if !run.message.payload.is_empty() {
                run.message.keep(payload);
            }
            return if run.has_last && run.has_first { self.runs.pop().map(finished) } else { None };
        }
        let mut seen = first.unwrap_or_else(|| Transport::new(packet, None, None));
        seen.immediate = immediate;
        if keep {
            seen.keep(payload);
        }
        self.insert(packet, number, seen)
    }

    /// General case: a new run, which may close the gap between its neighbors.
    fn insert(&mut self, packet: &PacketRecord, number: i64, seen: Transport) -> Option<Transport> {
        let has_first = seen.started;
        if has_first {
            self.other_request_at(number);
        }
        let run = PacketRun {
            start: number,
            end: number + 1,
            has_first,
            has_last: packet.opcode().is_last(),
            mtu_bytes: packet.payload_bytes,
            last_bytes: packet.payload_bytes,
            next_other: None,
            may_be_two: false,
            message: seen,
        };
        let mut at = self.runs.partition_point(|other| other.start < number);
        self.runs.insert(at, run);
        let joins = |a: &PacketRun, b: &PacketRun| a.end == b.start && !a.has_last && !b.has_first;
        if self.runs.get(at + 1).is_some_and(|next| joins(&self.runs[at], next)) {
            self.join(at);
        }
        if at > 0 && joins(&self.runs[at - 1], &self.runs[at]) {
            at -= 1;
            self.join(at);
        }
        let run = &self.runs[at];
        (run.has_first && run.has_last).then(|| finished(self.runs.remove(at)))
    }

    fn join(&mut self, at: usize) {
        let next = self.runs.remove(at + 1);
        let run = &mut self.runs[at];
        run.end = next.end;
        run.has_last = next.has_last;
        run.last_bytes = next.last_bytes;
        run.next_other = next.next_other;
        run.message.add(next.message);
    }

    /// Evicts the oldest message, incomplete, if there are too many runs.
    pub(super) fn evict(&mut self) -> Option<Transport> {
        (self.runs.len() > MAX_RUNS).then(|| self.oldest()).flatten()
    }

    /// Removes the oldest message: its runs up to the one with the Last packet, or up to the start
    /// of the next message.
    pub(super) fn oldest(&mut self) -> Option<Transport> {
        let ends = |index: usize| {
            let run = &self.runs[index];
            let is_another =
                |next: &PacketRun| next.has_first || run.next_other.is_some_and(|other| other < next.start);
            run.has_last || self.runs.get(index + 1).is_some_and(is_another)
        };
        let count = (0..self.runs.len()).find(|&index| ends(index)).map_or(self.runs.len(), |index| index + 1);
        let mut runs = self.runs.drain(..count);
        let mut message = runs.next()?;
        for next in runs {
            message.may_be_two |= next.start - message.end > 1;
            message.end = next.end;
            message.has_last = next.has_last;
            message.last_bytes = next.last_bytes;
            message.message.add(next.message);
        }
        // Its kept payload has gaps, so envelopes in it cannot be found.
        message.message.payload.clear();
        Some(with_length(message))
    }
}

fn finished(run: PacketRun) -> Transport {
    let mut message = with_length(run);
    message.complete = true;
    message
}

/// The message of a run, with its length if both ends were observed and belong to one message: all
/// packets but the last carry a full path MTU.
fn with_length(run: PacketRun) -> Transport {
    let mut message = run.message;
    message.started = run.has_first;
    if run.has_first && run.has_last && !run.may_be_two {
        let full_packets = u64::try_from(run.end - 1 - run.start).unwrap_or_default();
        message.message_bytes = Some(full_packets * u64::from(run.mtu_bytes) + u64::from(run.last_bytes));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PacketFields;
    use ibscope_parsers::Psn;
    use proptest::prelude::*;

    const FIRST: u8 = 0;
    const MIDDLE: u8 = 1;
    const LAST: u8 = 2;
    const MTU_BYTES: u16 = 4096;

    fn packet(opcode: u8, psn: u32, payload_bytes: u16) -> PacketRecord {
        PacketRecord::new(PacketFields {
            time_ns: i64::from(psn),
            opcode: Opcode(opcode),
            psn: Psn::new(psn),
            wire_bytes: u32::from(payload_bytes) + 30,
            payload_bytes,
            ..PacketFields::default()
        })
    }

    fn feed(assembly: &mut Assembly, opcode: u8, psn: u32, payload_bytes: u16) -> Option<Transport> {
        let packet = packet(opcode, psn, payload_bytes);
        let first = (opcode == FIRST).then(|| Transport::new(&packet, None, None));
        assembly.packet(&packet, &[], i64::from(psn), first, false, None)
    }

    #[test]
    fn in_order() {
        let mut assembly = Assembly::default();
        assert!(feed(&mut assembly, FIRST, 10, MTU_BYTES).is_none());
        assert!(feed(&mut assembly, MIDDLE, 11, MTU_BYTES).is_none());
        let message = feed(&mut assembly, LAST, 12, 5).expect("complete");
        assert_eq!((message.psn, message.packets, message.complete), (10, 3, true));
        assert_eq!((message.payload_bytes, message.message_bytes), (8197, Some(8197)));
        assert_eq!((message.wire_bytes, message.times_ns), (8197 + 90, (10, 12)));
        assert!(assembly.runs.is_empty());
    }

    #[test]
    fn a_hole_suspends_the_message_until_it_is_filled() {
        let mut assembly = Assembly::default();
        feed(&mut assembly, FIRST, 10, MTU_BYTES);
        assert!(feed(&mut assembly, LAST, 13, 1).is_none());
        // The gap does not delay the next message.
        feed(&mut assembly, FIRST, 14, MTU_BYTES);
        assert_eq!(feed(&mut assembly, LAST, 15, 2).expect("next").message_bytes, Some(4098));
        assert!(feed(&mut assembly, MIDDLE, 12, MTU_BYTES).is_none());
        let message = feed(&mut assembly, MIDDLE, 11, MTU_BYTES).expect("filled");
        assert_eq!((message.packets, message.message_bytes, message.complete), (4, Some(3 * 4096 + 1), true));
    }

    #[test]
    fn the_length_is_known_without_the_middle() {
        let mut assembly = Assembly::default();
        feed(&mut assembly, FIRST, 10, MTU_BYTES);
        feed(&mut assembly, MIDDLE, 12, MTU_BYTES);
        feed(&mut assembly, LAST, 14, 1);
        let message = assembly.oldest().expect("left");
        assert_eq!((message.message_bytes, message.payload_bytes), (Some(4 * 4096 + 1), 8193));
        assert!(message.started && !message.complete);
        assert!(assembly.oldest().is_none());
    }

    #[test]
    fn a_hole_of_two_may_hold_an_end_and_a_start() {
        let mut assembly = Assembly::default();
        feed(&mut assembly, FIRST, 10, MTU_BYTES);
        feed(&mut assembly, LAST, 13, 1);
        let message = assembly.oldest().expect("left");
        assert!(message.started && !message.complete && message.message_bytes.is_none());
    }

    #[test]
    fn a_request_in_the_gap_separates_two_messages() {
        let mut assembly = Assembly::default();
        feed(&mut assembly, FIRST, 10, MTU_BYTES);
        // Last 11 is lost, 12 is another request, First 13 is lost.
        assembly.other_request_at(12);
        feed(&mut assembly, LAST, 14, 1);
        let endless = assembly.oldest().expect("endless");
        assert!(endless.started && endless.message_bytes.is_none());
        let headless = assembly.oldest().expect("headless");
        assert!(!headless.started && headless.psn == 14);
        // A message that is complete by now also counts as another request.
        feed(&mut assembly, FIRST, 20, MTU_BYTES);
        feed(&mut assembly, FIRST, 22, MTU_BYTES);
        feed(&mut assembly, LAST, 23, 7).expect("complete");
        feed(&mut assembly, LAST, 25, 1);
        assert!(assembly.oldest().expect("endless").message_bytes.is_none());
        // A request before the run does not end its message.
        assert!(assembly.oldest().is_some_and(|headless| !headless.started));
        feed(&mut assembly, FIRST, 30, MTU_BYTES);
        assembly.other_request_at(29);
        feed(&mut assembly, LAST, 32, 1);
        assert_eq!(assembly.oldest().expect("both ends").message_bytes, Some(2 * 4096 + 1));
    }

    #[test]
    fn neither_start_nor_end() {
        let mut assembly = Assembly::default();
        feed(&mut assembly, LAST, 3, 9);
        feed(&mut assembly, FIRST, 4, MTU_BYTES);
        feed(&mut assembly, FIRST, 8, MTU_BYTES);
        let headless = assembly.oldest().expect("headless");
        assert!(!headless.started && headless.message_bytes.is_none());
        let endless = assembly.oldest().expect("endless");
        assert!(endless.started && endless.message_bytes.is_none() && endless.psn == 4);
        assert_eq!(assembly.oldest().expect("the other").psn, 8);
    }

    #[test]
    fn too_many_open_messages_evict_the_oldest() {
        let mut assembly = Assembly::default();
        for message in 0..MAX_RUNS as u32 {
            feed(&mut assembly, FIRST, message * 10, MTU_BYTES);
            assert!(assembly.evict().is_none());
        }
        feed(&mut assembly, FIRST, 10_000, MTU_BYTES);
        assert_eq!(assembly.evict().expect("evicted").psn, 0);
        assert_eq!(assembly.runs.len(), MAX_RUNS);
    }

    /// A First and a Last with `bytes` bytes of captured payload in total.
    #[test]
    fn at_most_max_payload_bytes_of_a_message_are_kept() {
        for bytes in [MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1] {
            let payload = vec![7; bytes - 1];
            let mut assembly = Assembly::default();
            let first = Transport::new(&packet(FIRST, 10, MTU_BYTES), None, None);
            assembly.packet(&packet(FIRST, 10, MTU_BYTES), &payload, 10, Some(first), true, None);
            let last = assembly.packet(&packet(LAST, 11, 1), &[9], 11, None, true, None).expect("complete");
            assert_eq!(last.payload.len(), MAX_PAYLOAD_BYTES);
            assert_eq!(last.payload.last(), Some(if bytes > MAX_PAYLOAD_BYTES { &7 } else { &9 }));
            assert_eq!(last.payload_bytes, u64::from(MTU_BYTES) + 1);
        }
    }

    proptest! {
        /// Messages of any length, with their packets in any order: each message is emitted once,
        /// with its length.
        #[test]
        fn any_order_gives_the_same_messages(
            lengths in prop::collection::vec(2u32..6, 1..8),
            priorities in prop::collection::vec(any::<u32>(), 40),
        ) {
            let mut packets = Vec::new();
            for length in &lengths {
                let first_psn = packets.len() as u32;
                for index in 0..*length {
                    let psn = first_psn + index;
                    let opcode = if index == 0 { FIRST } else if index + 1 == *length { LAST } else { MIDDLE };
                    let bytes = if opcode == LAST { psn as u16 + 1 } else { MTU_BYTES };
                    packets.push((opcode, psn, bytes));
                }
            }
            packets.sort_by_key(|&(_, psn, _)| priorities[psn as usize]);
            let mut assembly = Assembly::default();
            let mut found: Vec<(u32, u64)> = packets
                .iter()
                .filter_map(|&(opcode, psn, bytes)| feed(&mut assembly, opcode, psn, bytes))
                .map(|message| (message.packets as u32, message.message_bytes.expect("length")))
                .collect();
            found.sort_unstable();
            let mut psn = 0;
            let mut expected: Vec<(u32, u64)> = lengths.iter().map(|&length| {
                psn += length;
                (length, u64::from(length - 1) * 4096 + u64::from(psn))
            }).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
            prop_assert!(assembly.runs.is_empty());
        }
    }
}
