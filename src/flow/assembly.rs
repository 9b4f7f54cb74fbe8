//! From packets to transport messages: SEND and RDMA WRITE of several packets, put together by PSN.
//!
//! Packets that follow each other are one *run*; a lost packet leaves two runs, which join when it comes after all:
//!
//! ```text
//! First 10, Middle 11,  -,  Last 13      runs [10..12) [13..14)      12 was lost before the capture
//! ... go-back-N: 12 (13 is a repeat)     run  [10..14) First to Last: complete
//! ```
//! Only packets that are seen for the first time come here: copies and repeats are sorted out by the ledger. What never
//! becomes complete is given out when room is needed, or at the end.

use crate::model::PacketRecord;
use ibscope_parsers::ib::{Opcode, Reth};
use ibscope_parsers::mpi::Head;

/// Runs that a connection may hold. A sender finishes one message before it starts the next, so more than one stands only where
/// packets are missing.
const MAX_RUNS: usize = 32;
/// Bytes that are kept of a message whose later packets have envelopes of their own (coalesced sends: they are eager ones).
const MAX_KEPT_BYTES: usize = 1 << 16;

/// A transport message, or what was seen of it.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    /// PSN of its first packet, or of the first that was seen.
    pub(super) psn: u32,
    /// Opcode of that packet.
    pub(super) opcode: Opcode,
    /// What the start of its payload showed.
    pub(super) head: Option<Head>,
    /// Where an RDMA WRITE goes to, and how long it is as a whole.
    pub(super) target: Option<Reth>,
    /// The immediate data of an RDMA WRITE, most significant byte first.
    pub(super) immediate: Option<u32>,
    /// Payload that was seen, in bytes.
    pub(super) payload_bytes: u64,
    /// LRH to VCRC, or whole Ethernet frames, of the packets seen.
    pub(super) wire_bytes: u64,
    /// Packets seen.
    pub(super) packets: u64,
    /// Time of the first and last of them.
    pub(super) times_ns: (i64, i64),
    /// True length in bytes, where both the first and the last packet were seen.
    pub(super) message_bytes: Option<u64>,
    /// Its first packet was seen.
    pub(super) started: bool,
    /// All its packets were seen.
    pub(super) complete: bool,
    /// The captured payload, where later parts of it are needed.
    pub(super) kept: Vec<u8>,
}

impl Transport {
    /// A message as its first packet shows it; complete if that is the only one.
    pub(super) fn new(packet: &PacketRecord, head: Option<Head>, target: Option<Reth>) -> Self {
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
            kept: Vec::new(),
        }
    }

    fn add(&mut self, other: Self) {
        self.immediate = self.immediate.or(other.immediate);
        self.payload_bytes += other.payload_bytes;
        self.wire_bytes += other.wire_bytes;
        self.packets += other.packets;
        self.times_ns = join_times(self.times_ns, other.times_ns);
        let room = MAX_KEPT_BYTES.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room));
    }

    fn add_packet(&mut self, packet: &PacketRecord, immediate: Option<u32>) {
        self.immediate = self.immediate.or(immediate);
        self.payload_bytes += u64::from(packet.payload_bytes);
        self.wire_bytes += u64::from(packet.wire_bytes);
        self.packets += 1;
        self.times_ns = join_times(self.times_ns, (packet.time_ns, packet.time_ns));
    }

    /// Keeps the captured payload of a packet, after that of the ones before it.
    fn keep(&mut self, payload: &[u8]) {
        let room = MAX_KEPT_BYTES.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&payload[..payload.len().min(room)]);
    }
}

/// The time from the first to the last of two spans. Spans without a time do not count.
pub(super) fn join_times(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    match (a.0 == PacketRecord::NO_TIME, b.0 == PacketRecord::NO_TIME) {
        (true, _) => b,
        (_, true) => a,
        _ => (a.0.min(b.0), a.1.max(b.1)),
    }
}

/// The messages of one connection that are not complete, as runs in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    runs: Vec<Run>,
}

#[derive(Clone, Debug)]
struct Run {
    /// Unwrapped PSN of its first packet.
    start: i64,
    /// One past its last.
    end: i64,
    has_first: bool,
    has_last: bool,
    /// Payload of its first packet: the path MTU, where that is a First or Middle.
    mtu_bytes: u16,
    /// Payload of its last packet.
    last_bytes: u16,
    /// The first number behind it at which something else was seen: its message ends before.
    other: Option<i64>,
    /// Two packets or more are missing in a row: the end of this message and the start of the next may be among them.
    may_be_two: bool,
    seen: Transport,
}

impl Assembly {
    /// Notes a request that is none of these packets, or begins a message: the message before it has ended, whether that was seen or not.
    #[inline]
    pub(super) fn other(&mut self, number: i64) {
        if let Some(run) = self.runs.iter_mut().rev().find(|run| run.start < number).filter(|run| !run.has_last) {
            run.other = Some(run.other.map_or(number, |other| other.min(number)));
        }
    }

    /// Takes a First, Middle or Last packet with its unwrapped PSN. `first` is what a First shows of its message; `keep` asks for
    /// payload to be kept: of a message that needs it, or of one whose start is missing and which may. `immediate` is what the last packet of an
    /// RDMA WRITE has. Gives the message that is complete now.
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
        // The next packet of the message that is being sent.
        if first.is_none()
            && let Some(run) = self.runs.last_mut().filter(|run| run.end == number && !run.has_last)
        {
            run.end += 1;
            run.has_last = opcode.is_last();
            run.last_bytes = packet.payload_bytes;
            run.seen.add_packet(packet, immediate);
            if !run.seen.kept.is_empty() {
                run.seen.keep(payload);
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

    /// The general case: a new run, which may close the hole between its neighbours.
    fn insert(&mut self, packet: &PacketRecord, number: i64, seen: Transport) -> Option<Transport> {
        let has_first = seen.started;
        if has_first {
            self.other(number);
        }
        let run = Run {
            start: number,
            end: number + 1,
            has_first,
            has_last: packet.opcode().is_last(),
            mtu_bytes: packet.payload_bytes,
            last_bytes: packet.payload_bytes,
            other: None,
            may_be_two: false,
            seen,
        };
        let mut at = self.runs.partition_point(|other| other.start < number);
        self.runs.insert(at, run);
        let joins = |a: &Run, b: &Run| a.end == b.start && !a.has_last && !b.has_first;
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
        run.other = next.other;
        run.seen.add(next.seen);
    }

    /// The oldest message, incomplete, if too many are open.
    pub(super) fn evict(&mut self) -> Option<Transport> {
        (self.runs.len() > MAX_RUNS).then(|| self.oldest()).flatten()
    }

    /// What is left of the oldest message: its runs up to the one that ends it, or to the start of the next.
    pub(super) fn oldest(&mut self) -> Option<Transport> {
        let ends = |index: usize| {
            let run = &self.runs[index];
            let is_another = |next: &Run| next.has_first || run.other.is_some_and(|other| other < next.start);
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
            message.seen.add(next.seen);
        }
        // Nothing of it joins any more, so what was kept has holes.
        message.seen.kept.clear();
        Some(measured(message))
    }
}

fn finished(run: Run) -> Transport {
    let mut message = measured(run);
    message.complete = true;
    message
}

/// With its length, where both ends were seen and are of one message: all packets but the last carry a full path MTU.
fn measured(run: Run) -> Transport {
    let mut message = run.seen;
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
    use crate::model::{Kind, Marks};
    use ibscope_parsers::Psn;
    use proptest::prelude::*;

    const FIRST: u8 = 0;
    const MIDDLE: u8 = 1;
    const LAST: u8 = 2;
    const MTU_BYTES: u16 = 4096;

    fn packet(opcode: u8, psn: u32, payload_bytes: u16) -> PacketRecord {
        PacketRecord::new(
            i64::from(psn),
            (Opcode(opcode), 0),
            (Kind::Data, Psn::new(psn), false),
            Marks::default(),
            u32::from(payload_bytes) + 30,
            0,
            0,
            (payload_bytes, 0),
        )
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
        // The next message is not held up.
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
    fn what_came_between_tells_messages_apart() {
        let mut assembly = Assembly::default();
        feed(&mut assembly, FIRST, 10, MTU_BYTES);
        // Last 11 is lost, 12 is another request, First 13 is lost.
        assembly.other(12);
        feed(&mut assembly, LAST, 14, 1);
        let endless = assembly.oldest().expect("endless");
        assert!(endless.started && endless.message_bytes.is_none());
        let headless = assembly.oldest().expect("headless");
        assert!(!headless.started && headless.psn == 14);
        // A message that is complete by now is another request too.
        feed(&mut assembly, FIRST, 20, MTU_BYTES);
        feed(&mut assembly, FIRST, 22, MTU_BYTES);
        feed(&mut assembly, LAST, 23, 7).expect("complete");
        feed(&mut assembly, LAST, 25, 1);
        assert!(assembly.oldest().expect("endless").message_bytes.is_none());
        // What comes before its end does not end it.
        assert!(assembly.oldest().is_some_and(|headless| !headless.started));
        feed(&mut assembly, FIRST, 30, MTU_BYTES);
        assembly.other(29);
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

    /// A First and a Last of which so many bytes are kept in all.
    #[test]
    fn no_more_than_so_many_bytes_of_a_message_are_kept() {
        for bytes in [MAX_KEPT_BYTES, MAX_KEPT_BYTES + 1] {
            let payload = vec![7; bytes - 1];
            let mut assembly = Assembly::default();
            let first = Transport::new(&packet(FIRST, 10, MTU_BYTES), None, None);
            assembly.packet(&packet(FIRST, 10, MTU_BYTES), &payload, 10, Some(first), true, None);
            let last = assembly.packet(&packet(LAST, 11, 1), &[9], 11, None, true, None).expect("complete");
            assert_eq!(last.kept.len(), MAX_KEPT_BYTES);
            assert_eq!(last.kept.last(), Some(if bytes > MAX_KEPT_BYTES { &7 } else { &9 }));
            assert_eq!(last.payload_bytes, u64::from(MTU_BYTES) + 1);
        }
    }

    proptest! {
        /// Messages of any length, their packets in any order within a window: each comes out once, with its bytes.
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
