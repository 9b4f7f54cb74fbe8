use super::*;
use crate::model::{ConnectionKey, PacketFields};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

const SEND_ONLY: u8 = 0x04;
const READ_REQUEST: u8 = 0x0C;
const READ_RESPONSE_ONLY: u8 = 0x10;
const PIECE_BYTES: u64 = 100;

fn pair() -> EndpointPair {
    (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
}

fn record(opcode: u8, psn: u32, (length_bytes, payload_bytes): (u32, u16)) -> PacketRecord {
    PacketRecord::new(PacketFields {
        time_ns: i64::from(psn),
        opcode: Opcode(opcode),
        psn: Psn::new(psn),
        extension: length_bytes,
        payload_bytes,
        ..PacketFields::default()
    })
}

fn transport(part: MpiMessagePart, bytes: u16) -> Transport {
    let head = MpiHeader { stack: LibraryStack::UcxVerbs, part, datagram: None };
    Transport::new(&record(SEND_ONLY, 0, (0, bytes)), Some(head), None)
}

/// A ready-to-send for `bytes` bytes, with memory to READ them from.
fn ready_to_send(messages: &mut MessageTracker, connection: u32, request: u64, bytes: u64, memory: Option<(u64, u64)>) {
    let envelope = Envelope { matching: MatchFields::UcxTag(7), length: Length::Explicit(bytes), sequence: None };
    let start = MpiMessageStart {
        envelope,
        protocol: Protocol::Rendezvous,
        header_bytes: 0,
        id: Some(MpiMessageId::SenderRequest(request)),
        memory,
        done_id: None,
    };
    let message = transport(MpiMessagePart::Start(start), 0);
    messages.begin(pair(), connection, &message);
    messages.transport(pair(), (connection, None), &message, &[]);
}

/// The receiver grants one memory range.
fn grant(messages: &mut MessageTracker, request: u64, piece: u64) {
    let part = MpiMessagePart::Grant {
        message: MpiMessageId::SenderRequest(request),
        receiver_id: None,
        memory: Some((piece * PIECE_BYTES, PIECE_BYTES)),
        done_id: None,
    };
    let (src, dst) = pair();
    messages.transport((dst, src), (99, None), &transport(part, 0), &[]);
}

/// A WRITE to one memory range.
fn write(messages: &mut MessageTracker, connection: u32, piece: u64) {
    let reth = ibscope_parsers::ib::Reth { va: piece * PIECE_BYTES, r_key: 9, dma_len: PIECE_BYTES as u32 };
    let message = Transport::new(&record(0x0A, 0, (0, PIECE_BYTES as u16)), None, Some(reth));
    messages.begin(pair(), connection, &message);
    messages.transport(pair(), (connection, None), &message, &[]);
}

fn key(from: Endpoint, to: Endpoint) -> ConnectionKey {
    ConnectionKey::of((from, to), Opcode(SEND_ONLY), Qpn::new(7), 0)
}

/// The receiver READs from `address`. A connection responds to the requests of the connection
/// with its number plus 1000.
fn read(messages: &mut MessageTracker, connection: u32, psn: u32, address: u64) {
    let key = key(pair().1, pair().0);
    let record = record(READ_REQUEST, psn, (PIECE_BYTES as u32, 0));
    messages.read(connection, PacketRef { key: &key, record: &record }, (address, PIECE_BYTES), |own| Some(own + 1000));
}

fn respond(messages: &mut MessageTracker, psn: u32, likely: u32) {
    let key = key(pair().0, pair().1);
    let record = record(READ_RESPONSE_ONLY, psn, (0, PIECE_BYTES as u16));
    messages.read_response(55 + likely, PacketRef { key: &key, record: &record }, Some(likely));
}

/// All messages, as connection and completeness.
fn all(messages: &mut MessageTracker) -> Vec<(u32, bool)> {
    messages.finish();
    let mut all: Vec<(u32, bool)> = messages.take().map(|message| (message.connection, message.complete)).collect();
    all.sort_unstable();
    all
}

fn complete(messages: &mut MessageTracker) -> usize {
    all(messages).iter().filter(|(_, complete)| *complete).count()
}

#[test]
fn the_oldest_of_too_many_open_messages_is_evicted_and_counted() {
    for (depth, times, most) in [(Depth::Messages, false, MAX_OPEN), (Depth::Envelopes, true, MAX_OPEN_FOR_TIMES)] {
        let mut messages = MessageTracker::new(depth, times);
        messages.emit_messages();
        (0..most as u32).for_each(|message| ready_to_send(&mut messages, message, message.into(), 100, None));
        assert_eq!((messages.evicted, messages.take().count()), (0, 0));
        ready_to_send(&mut messages, 9999, 9999, 100, None);
        let given: Vec<(u32, bool)> = messages.take().map(|own| (own.connection, own.complete)).collect();
        assert_eq!((messages.evicted, given), (1, vec![(0, false)]));
        assert_eq!(all(&mut messages).len(), most);
    }
}

/// The sender writes every part of the message.
#[test]
fn a_message_in_too_many_parts_is_incomplete() {
    for (pieces, is_complete) in [(MAX_GRANTS as u64, true), (MAX_GRANTS as u64 + 1, false)] {
        let mut messages = MessageTracker::new(Depth::Messages, false);
        ready_to_send(&mut messages, 1, 7, pieces * PIECE_BYTES, None);
        (0..pieces).for_each(|piece| grant(&mut messages, 7, piece));
        (0..pieces).for_each(|piece| write(&mut messages, 1, piece));
        assert_eq!(all(&mut messages), [(1, is_complete)]);
    }
}

/// Messages with the same name, one per process, then a grant of the oldest without its
/// connection.
#[test]
fn too_many_messages_with_one_name_match_none_of_them() {
    for (namesakes, granted) in [(MAX_NAMESAKES as u32, 1), (MAX_NAMESAKES as u32 + 1, 0)] {
        let mut messages = MessageTracker::new(Depth::Messages, false);
        (0..namesakes).for_each(|connection| ready_to_send(&mut messages, connection, 7, PIECE_BYTES, None));
        grant(&mut messages, 7, 3);
        write(&mut messages, 0, 3);
        assert_eq!(complete(&mut messages), granted);
    }
    // With a connection, every message is found up to the limit, and none beyond.
    let mut messages = MessageTracker::new(Depth::Messages, false);
    (0..MAX_NAMESAKES as u32 + 2).for_each(|connection| ready_to_send(&mut messages, connection, 7, PIECE_BYTES, None));
    for connection in 0..MAX_NAMESAKES as u32 + 2 {
        let data = MpiMessagePart::Data { message: MpiMessageId::SenderRequest(7), header_bytes: 0 };
        let data = transport(data, PIECE_BYTES as u16);
        messages.begin(pair(), connection, &data);
        messages.transport(pair(), (connection, None), &data, &[]);
    }
    let last = MAX_NAMESAKES as u32 + 1;
    assert!(all(&mut messages).into_iter().all(|(connection, complete)| complete == (connection < last)));
}

/// One buffer that goes to several processes, and the READ of each process.
#[test]
fn with_too_many_messages_of_one_buffer_a_read_needs_its_connection() {
    for (processes, complete) in [(MAX_OVERLAPPING as u32, MAX_OVERLAPPING), (MAX_OVERLAPPING as u32 + 1, 64)] {
        let mut messages = MessageTracker::new(Depth::Messages, false);
        for own in 0..processes {
            ready_to_send(&mut messages, own, own.into(), PIECE_BYTES, Some((0x1000, PIECE_BYTES)));
        }
        // The READ of the oldest comes first; beyond the limit its memory range is not among
        // those searched.
        for own in 0..processes {
            read(&mut messages, 1000 + own, own, 0x1000);
            respond(&mut messages, own, 1000 + own);
        }
        let all = all(&mut messages);
        assert_eq!(all.iter().filter(|(_, complete)| *complete).count(), complete.max(processes as usize));
    }
    // READs without a known connection take the messages in order, within the limit.
    for (processes, expected) in [(MAX_OVERLAPPING as u32, MAX_OVERLAPPING), (MAX_OVERLAPPING as u32 + 1, 0)] {
        let mut messages = MessageTracker::new(Depth::Messages, false);
        for own in 0..processes {
            ready_to_send(&mut messages, own, own.into(), PIECE_BYTES, Some((0x1000, PIECE_BYTES)));
        }
        for psn in 0..processes {
            read(&mut messages, 7, psn, 0x1000);
            respond(&mut messages, psn, 7);
        }
        assert_eq!(complete(&mut messages), expected);
    }
}

/// READs of one message each are in flight, then all get their responses.
#[test]
fn the_oldest_of_too_many_reads_is_evicted_and_counted() {
    for (depth, times, most) in [(Depth::Messages, false, MAX_READS), (Depth::Envelopes, true, MAX_READS_FOR_TIMES)] {
        for (reads, evicted) in [(most as u32, 0), (most as u32 + 1, 1)] {
            let mut messages = MessageTracker::new(depth, times);
            messages.emit_messages();
            for own in 0..reads {
                let memory = Some((u64::from(own) * PIECE_BYTES, PIECE_BYTES));
                // More messages than may be open for times: the READs alone are checked there.
                ready_to_send(&mut messages, own, own.into(), PIECE_BYTES, memory);
                read(&mut messages, 1000 + own, own, u64::from(own) * PIECE_BYTES);
            }
            (0..reads).for_each(|own| respond(&mut messages, own, 1000 + own));
            assert_eq!(messages.evicted, evicted);
            let all = all(&mut messages);
            assert_eq!(all[0], (0, evicted == 0));
            assert!(all.len() == reads as usize && all[1..].iter().all(|(_, complete)| *complete));
        }
    }
}
