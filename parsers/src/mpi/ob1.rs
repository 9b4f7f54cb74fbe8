//! Open MPI `ob1` over the `openib` BTL, releases 1.4 to 4.1.
//!
//! A 4-byte BTL header (tag, credit fields) precedes the `ob1` header, whose type equals the tag
//! (`btl_openib_frag.h`, `pml_ob1_hdr.h`; offsets of the x86-64 layout):
//!
//! ```text
//! P+0 tag  P+2 credits u16 | P+4 type  P+5 flags
//! MATCH, RNDV, RGET: P+6 context u16  P+8 rank i32  P+12 MPI tag i32  P+16 seq u16
//!   MATCH: P+18 data
//!   RNDV:  P+20 message length u64  P+28 request u64  P+36 data
//!   RGET:  P+20 message length      P+28 request      P+36 fragment u64  P+44 address u64  P+52 handle   from 2.0 on
//!                                   P+36 segments u32  P+44 descriptor u64  P+52 {address u64, length u64, key}   to 1.10
//! ACK:     P+12 request u64  P+20 receiver's request u64  P+28 offset u64  (P+36 length u64 from 2.0 on)
//! FRAG:    P+12 offset u64   P+20 request u64  P+28 receiver's request u64  P+36 data
//! PUT:     P+12 request u64  P+20 fragment  P+28 receiver's request  P+36 offset u64  P+44 address u64  P+52 length u64
//! ```
//! All fields have the sender's byte order: little-endian, unless a flag marks big-endian headers,
//! which machines of different byte order use between each other. Builds for such machines start
//! the data of a MATCH at P+20. Their BTL credits are byte-swapped as well and are not parsed.

use super::{
    Envelope, Identity, Length, MatchFields, MpiMessageId, MpiMessagePart, MpiMessageStart, Payload, Protocol, bytes,
    ob1_coalesced,
};

const MATCH: u8 = 0x41;
const RNDV: u8 = 0x42;
const RGET: u8 = 0x43;
const ACK: u8 = 0x44;
const FRAG: u8 = 0x46;
const PUT: u8 = 0x48;
const FIN: u8 = 0x49;
/// BTL control messages: credits, ring addresses, coalesced sends, clear to send.
const CONTROL: u8 = 0x20;
/// Control type of a coalesced send.
const CONTROL_COALESCED: u8 = 2;
/// Highest control type (`MCA_BTL_OPENIB_CONTROL_*`).
const CONTROL_LAST: u8 = 3;
/// Minimum length of a coalesced send: its headers and one packed match header.
const COALESCED_BYTES: usize = 31;
/// Flag of headers in network byte order (`MCA_PML_OB1_HDR_FLAGS_NBO`).
const BIG_ENDIAN: u8 = 2;
/// Length of the headers of a MATCH: BTL header and packed match header.
const MATCH_BYTES: u32 = 18;
/// The same length in builds for machines of different byte order.
const MATCH_PADDED_BYTES: u32 = 20;
/// Length of the headers of a RNDV or FRAG.
const RNDV_BYTES: u32 = 36;
/// Length of a RGET from 2.0 on, which carries no data.
const RGET_BYTES: u32 = 60;
/// Length of the footer of a message in an eager RDMA ring.
const FOOTER_BYTES: u32 = 4;
/// Upper limit of message lengths.
const LENGTH_LIMIT_BYTES: u64 = 1 << 48;
/// Upper limit of the length of an RDMA WRITE.
const WRITE_LIMIT_BYTES: u64 = 1 << 31;
/// User addresses of 64-bit Linux: below 2^47, and above the first pages.
const ADDRESS: core::ops::Range<u64> = 1 << 16..1 << 47;
/// Plausible number of segments in a RGET up to 1.10. A pointer is a multiple of 16, so its lower
/// half is hardly ever in this range.
const SEGMENTS: core::ops::RangeInclusive<u32> = 1..=16;

/// Parses a message that was sent by SEND.
#[must_use]
pub fn send(first: &Payload<'_>) -> Option<MpiMessagePart> {
    let Payload { captured: payload, message_bytes, .. } = *first;
    // The shortest message, "clear to send", ends with its type.
    let [tag, _, _, _, kind] = bytes::<5>(payload, 0)?;
    match tag {
        MATCH..=FIN if kind == tag => Header::new(first, kind)?.part(message_bytes, 0),
        CONTROL if kind == CONTROL_COALESCED => {
            let message_bytes = message_bytes.unwrap_or(payload.len() as u32);
            let is_coalesced = ob1_coalesced::messages(payload, message_bytes).is_some();
            // Truncated before its first message, the send still belongs to `ob1`.
            let is_cut = payload.len() < COALESCED_BYTES && payload.len() < message_bytes as usize;
            if is_coalesced { Some(MpiMessagePart::Coalesced) } else { is_cut.then_some(MpiMessagePart::Control) }
        }
        CONTROL if kind <= CONTROL_LAST => Some(MpiMessagePart::Control),
        _ => None,
    }
}

/// Parses a message in an eager RDMA ring; `dma_bytes` is the length of the WRITE.
///
/// The headers are those of a SEND. A footer `length (24 bits), 0xff` follows the data; it is
/// checked if `payload` is the whole message. Control messages are so short that the footer must be
/// captured.
#[must_use]
pub fn eager_rdma(first: &Payload<'_>, dma_bytes: u32) -> Option<MpiMessagePart> {
    let payload = first.captured;
    let [tag, _, _, _, kind] = bytes::<5>(payload, 0)?;
    let is_whole = payload.len() == dma_bytes as usize;
    if is_whole {
        let footer = u32::from_le_bytes(bytes(payload, payload.len().checked_sub(FOOTER_BYTES as usize)?)?);
        if footer != 0xFF00_0000 | dma_bytes {
            return None;
        }
    }
    // Recorded: credits, and the address of the ring in the other direction.
    if is_whole && tag == CONTROL && kind <= CONTROL_LAST && kind != CONTROL_COALESCED {
        return Some(MpiMessagePart::Control);
    }
    if tag == CONTROL && kind == CONTROL_COALESCED {
        let content_bytes = dma_bytes.checked_sub(FOOTER_BYTES)?;
        return ob1_coalesced::messages(payload, content_bytes).map(|_| MpiMessagePart::Coalesced);
    }
    if !(MATCH..=FIN).contains(&tag) || kind != tag || dma_bytes < MATCH_BYTES + FOOTER_BYTES {
        return None;
    }
    let part = Header::new(first, kind)?.part(Some(dma_bytes), FOOTER_BYTES)?;
    // The WRITE states its length, so the result does not depend on later packets.
    Some(match part {
        MpiMessagePart::Start(MpiMessageStart {
            envelope,
            protocol,
            header_bytes,
            id: name,
            memory,
            done_id: done,
        }) if envelope.length != Length::NotCaptured => {
            let length = Length::Explicit(envelope.length.in_message(u64::from(dma_bytes)));
            let envelope = Envelope { length, ..envelope };
            MpiMessagePart::Start(MpiMessageStart { envelope, protocol, header_bytes, id: name, memory, done_id: done })
        }
        part => part,
    })
}

/// An `ob1` header.
struct Header<'a> {
    payload: &'a [u8],
    is_truncated: bool,
    kind: u8,
    flags: u8,
}

impl<'a> Header<'a> {
    const fn new(first: &Payload<'a>, kind: u8) -> Option<Self> {
        let (payload, is_cut) = (first.captured, first.is_truncated());
        // Truncated before the flags: accept only types whose fields are not needed.
        match payload {
            [_, _, _, _, _, flags, ..] => Some(Self { payload, is_truncated: is_cut, kind, flags: *flags }),
            _ if matches!(kind, MATCH | RNDV | RGET) => None,
            _ => Some(Self { payload, is_truncated: is_cut, kind, flags: 0 }),
        }
    }

    const fn is_big_endian(&self) -> bool {
        self.flags & BIG_ENDIAN != 0
    }

    /// The `N` bytes at `P+at`, converted to little-endian.
    fn field<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut field: [u8; N] = bytes(self.payload, at)?;
        if self.is_big_endian() {
            field.reverse();
        }
        Some(field)
    }

    fn long(&self, at: usize) -> Option<u64> {
        self.field(at).map(u64::from_le_bytes)
    }

    /// Role of the transport message: `message_bytes` long in all, with a footer of `footer_bytes`.
    fn part(&self, message_bytes: Option<u32>, footer_bytes: u32) -> Option<MpiMessagePart> {
        match self.kind {
            MATCH | RNDV | RGET => self.start(message_bytes, footer_bytes).map(MpiMessagePart::Start),
            // Recorded: MPI_Ssend sends a RNDV with all its data; this ACK responds to it, too.
            ACK => Some(self.long(12).map_or(MpiMessagePart::Control, |request| MpiMessagePart::Grant {
                message: MpiMessageId::SenderRequest(request),
                receiver_id: self.long(20).map(MpiMessageId::ReceiverRequest),
                memory: None,
                done_id: None,
            })),
            FRAG => Some(self.long(28).map_or(MpiMessagePart::Control, |request| MpiMessagePart::Data {
                message: MpiMessageId::ReceiverRequest(request),
                header_bytes: RNDV_BYTES + footer_bytes,
            })),
            PUT => Some(self.put().unwrap_or(MpiMessagePart::Control)),
            FIN => Some(self.fin_fragment().map_or(MpiMessagePart::Control, |fragment| MpiMessagePart::Done {
                message: MpiMessageId::Fragment(fragment),
            })),
            // NACK and GET do not matter for counting messages.
            _ => Some(MpiMessagePart::Control),
        }
    }

    fn start(&self, message_bytes: Option<u32>, footer_bytes: u32) -> Option<MpiMessageStart> {
        // MATCH has no flags; RNDV and RGET may have ACK, PIN, CONTIG, NORDMA and SIGNAL.
        let known_flags = BIG_ENDIAN | if self.kind == MATCH { 0 } else { 0x3D };
        let context = u32::from(u16::from_le_bytes(self.field(6)?));
        // RoCE captured with 64 bytes holds the lower half of the rank: all of it in jobs of up to
        // 65536 ranks.
        let low = || self.field(8).filter(|_| self.is_truncated && !self.is_big_endian()).map(u16::from_le_bytes);
        let rank = self.field(8).map(i32::from_le_bytes).or_else(|| low().map(i32::from))?;
        if self.flags & !known_flags != 0 || context >= 0x1000 || !(0..1 << 20).contains(&rank) {
            return None;
        }
        let tag = self.field(12).map(i32::from_le_bytes);
        let length_bytes = self.long(20);
        let is_short = tag.is_none() || self.kind != MATCH && length_bytes.is_none();
        if is_short && !self.is_truncated {
            return None;
        }
        let tag = tag.unwrap_or(0);
        let identity = Identity { rank: rank.cast_unsigned(), context, tag, world: context == 0, collective: tag < 0 };
        let matching = MatchFields::Named(identity);
        let sequence = self.field(16).map(u16::from_le_bytes);
        if is_short {
            let envelope = Envelope { matching, length: Length::NotCaptured, sequence };
            let protocol = if self.kind == MATCH { Protocol::Eager } else { Protocol::Rendezvous };
            return Some(MpiMessageStart {
                envelope,
                protocol,
                header_bytes: 0,
                id: None,
                memory: None,
                done_id: None,
            });
        }
        if self.kind == MATCH {
            let match_bytes = if self.is_big_endian() { MATCH_PADDED_BYTES } else { MATCH_BYTES };
            let header_bytes = match_bytes + footer_bytes;
            let envelope = Envelope { matching, length: Length::AfterHeaders(header_bytes), sequence };
            let protocol = Protocol::Eager;
            return Some(MpiMessageStart { envelope, protocol, header_bytes, id: None, memory: None, done_id: None });
        }
        let stated_bytes = length_bytes.filter(|&bytes| bytes < LENGTH_LIMIT_BYTES)?;
        let (header_bytes, offered) = if self.kind == RNDV {
            (RNDV_BYTES + footer_bytes, None)
        } else {
            // A RGET ends with keys, whose length depends on the release, and carries no data.
            (message_bytes.unwrap_or(RGET_BYTES + footer_bytes), self.rget_source(stated_bytes))
        };
        Some(MpiMessageStart {
            envelope: Envelope { matching, length: Length::Explicit(stated_bytes), sequence },
            protocol: Protocol::Rendezvous,
            header_bytes,
            id: self.long(28).map(MpiMessageId::SenderRequest),
            memory: offered.map(|(_, memory)| memory),
            done_id: offered.map(|(fragment, _)| MpiMessageId::Fragment(fragment)),
        })
    }

    /// Memory of a RGET's data and the id that FIN will carry, in both layouts: the segment count
    /// of the older layout cannot be a pointer.
    fn rget_source(&self, stated_bytes: u64) -> Option<(u64, (u64, u64))> {
        let segments = u32::from_le_bytes(self.field(36)?);
        if SEGMENTS.contains(&segments) {
            let (fragment, address, segment_bytes) = (self.long(44)?, self.long(52)?, self.long(60)?);
            // Up to 1.6 the length has 32 bits and a key follows it: skip these.
            let plausible = ADDRESS.contains(&address) && (1..=stated_bytes).contains(&segment_bytes);
            return plausible.then_some((fragment, (address, segment_bytes)));
        }
        let (fragment, address) = (self.long(36)?, self.long(44)?);
        (ADDRESS.contains(&fragment) && ADDRESS.contains(&address)).then_some((fragment, (address, 0)))
    }

    /// The receiver's memory that a PUT names. The layouts of 1.7 to 1.10 agree in these fields if
    /// there is one segment; older layouts have a key in the upper half of the length.
    fn put(&self) -> Option<MpiMessagePart> {
        let (request, address, length_bytes) = (self.long(12)?, self.long(44)?, self.long(52)?);
        let plausible = ADDRESS.contains(&address) && (1..=WRITE_LIMIT_BYTES).contains(&length_bytes);
        plausible.then_some(MpiMessagePart::Grant {
            message: MpiMessageId::SenderRequest(request),
            receiver_id: None,
            memory: Some((address, length_bytes)),
            done_id: self.long(20).map(MpiMessageId::Fragment),
        })
    }

    /// The memory that a FIN names: after a length from 2.0 on, before that directly after the
    /// flags.
    fn fin_fragment(&self) -> Option<u64> {
        [20, 12].into_iter().filter_map(|at| self.long(at)).find(|fragment| ADDRESS.contains(fragment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;

    const REQUEST: u64 = 0x5566_0000_1280;
    const RECEIVER: u64 = 0x5577_0000_3380;
    const FRAGMENT: u64 = 0x5566_0000_4010;
    const ADDRESS: u64 = 0x7F12_3456_7000;

    /// Parses a message of `message_bytes` in one packet, or the first packet of a longer message.
    fn send(payload: &[u8], message_bytes: Option<u32>) -> Option<MpiMessagePart> {
        let packet_bytes = message_bytes.unwrap_or(payload.len() as u32);
        super::send(&Payload { captured: payload, packet_bytes, message_bytes })
    }

    fn eager_rdma(payload: &[u8], dma_bytes: u32) -> Option<MpiMessagePart> {
        let first = Payload { captured: payload, packet_bytes: dma_bytes, message_bytes: Some(dma_bytes) };
        super::eager_rdma(&first, dma_bytes)
    }

    fn header(kind: u8, rank: i32, tag: i32) -> Vec<u8> {
        let mut payload = Vec::from([kind, 0, 0, 0, kind, 0, 0, 0]);
        payload.extend(rank.to_le_bytes());
        payload.extend(tag.to_le_bytes());
        payload.extend(9u16.to_le_bytes());
        payload
    }

    /// A RNDV or RGET with rank 3, tag -12 and 1 MiB; `words` follow the request.
    fn rendezvous(kind: u8, words: &[u64]) -> Vec<u8> {
        let mut payload = header(kind, 3, -12);
        payload.extend([0xEE; 2]);
        payload.extend(1_048_576u64.to_le_bytes());
        payload.extend(REQUEST.to_le_bytes());
        payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        payload
    }

    /// A header without envelope, with garbage in the compiler's padding.
    fn other(kind: u8, words: &[u64]) -> Vec<u8> {
        let mut payload = Vec::from([kind, 0, 0, 0, kind, 0, 1, 0, 1, 0, 0, 0]);
        payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        payload
    }

    fn whole(payload: &[u8]) -> Option<MpiMessagePart> {
        send(payload, Some(payload.len() as u32))
    }

    fn start(part: Option<MpiMessagePart>) -> MpiMessageStart {
        match part {
            Some(MpiMessagePart::Start(start)) => start,
            other => panic!("no start: {other:?}"),
        }
    }

    fn eager((rank, tag, sequence): (u32, i32, u16), length: Length, header_bytes: u32) -> MpiMessagePart {
        let identity = Identity { rank, context: 0, tag, world: true, collective: tag < 0 };
        let envelope = Envelope { matching: MatchFields::Named(identity), length, sequence: Some(sequence) };
        let protocol = Protocol::Eager;
        MpiMessagePart::Start(MpiMessageStart {
            envelope,
            protocol,
            header_bytes,
            id: None,
            memory: None,
            done_id: None,
        })
    }

    fn rendezvous_start(header_bytes: u32, memory: Option<(u64, u64)>) -> MpiMessagePart {
        let identity = Identity { rank: 3, context: 0, tag: -12, world: true, collective: true };
        let envelope =
            Envelope { matching: MatchFields::Named(identity), length: Length::Explicit(1_048_576), sequence: Some(9) };
        let name = Some(MpiMessageId::SenderRequest(REQUEST));
        let done = memory.map(|_| MpiMessageId::Fragment(FRAGMENT));
        MpiMessagePart::Start(MpiMessageStart {
            envelope,
            protocol: Protocol::Rendezvous,
            header_bytes,
            id: name,
            memory,
            done_id: done,
        })
    }

    fn ring(mut payload: Vec<u8>) -> Vec<u8> {
        let dma_bytes = payload.len() as u32 + 4;
        payload.extend((0xFF00_0000 | dma_bytes).to_le_bytes());
        payload
    }

    #[test]
    fn match_of_the_recorded_runs() {
        // Recorded: rank 1, tag 6, sequence 13.
        let payload = [0x41, 0, 0, 0, 0x41, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0x0d, 0, 0xAA, 0xBB];
        assert_eq!(whole(&payload), Some(eager((1, 6, 13), Length::AfterHeaders(18), 18)));
        assert_eq!(send(&payload, None), whole(&payload), "the length is not needed");
        assert_eq!(start(whole(&payload)).envelope.length.in_message(payload.len() as u64), 2);
    }

    #[test]
    fn rendezvous_states_its_length_and_request() {
        let payload = rendezvous(RNDV, &[0x1122_3344]);
        assert_eq!(whole(&payload), Some(rendezvous_start(36, None)));
        assert_eq!(start(send(&payload[..35], Some(44))).id, None, "the request was not captured");
        let cut = start(send(&payload[..27], Some(44)));
        assert_eq!(cut.envelope.length, Length::NotCaptured);
        assert_eq!(send(&payload[..27], Some(27)), None, "it has none");
    }

    #[test]
    fn both_layouts_of_rget_name_the_memory() {
        let keys = 0x1000_0000_2000;
        let from_2_0 = rendezvous(RGET, &[FRAGMENT, ADDRESS, keys]);
        assert_eq!(from_2_0.len(), 60);
        assert_eq!(whole(&from_2_0), Some(rendezvous_start(60, Some((ADDRESS, 0)))));
        assert_eq!(send(&from_2_0, None), Some(rendezvous_start(60, Some((ADDRESS, 0)))));
        assert_eq!(send(&from_2_0[..51], Some(60)), Some(rendezvous_start(60, None)), "the address was not captured");
        // One segment; the upper half of the word is garbage.
        let to_1_10 = rendezvous(RGET, &[0xEEEE_EEEE_0000_0001, FRAGMENT, ADDRESS, 1_048_576, 0x2000]);
        assert_eq!(whole(&to_1_10), Some(rendezvous_start(76, Some((ADDRESS, 1_048_576)))));
        let to_1_6 = rendezvous(RGET, &[1, FRAGMENT, ADDRESS, 0x2000_0010_0000, 0]);
        assert_eq!(whole(&to_1_6), Some(rendezvous_start(76, None)), "a length of 32 bits with a key after it");
    }

    #[test]
    fn responses_and_data_carry_the_request_ids() {
        let ack = other(ACK, &[REQUEST, RECEIVER, 65536, 983_040]);
        let receiver = Some(MpiMessageId::ReceiverRequest(RECEIVER));
        let granted = MpiMessagePart::Grant {
            message: MpiMessageId::SenderRequest(REQUEST),
            receiver_id: receiver,
            memory: None,
            done_id: None,
        };
        assert_eq!(whole(&ack), Some(granted));
        assert_eq!(send(&ack[..19], Some(44)), Some(MpiMessagePart::Control), "the request was not captured");
        let granted = MpiMessagePart::Grant {
            message: MpiMessageId::SenderRequest(REQUEST),
            receiver_id: None,
            memory: None,
            done_id: None,
        };
        assert_eq!(send(&ack[..27], Some(44)), Some(granted), "the receiver's request was not captured");

        let mut data = other(FRAG, &[65536, REQUEST, RECEIVER]);
        data.extend([0xAB; 100]);
        assert_eq!(
            whole(&data),
            Some(MpiMessagePart::Data { message: MpiMessageId::ReceiverRequest(RECEIVER), header_bytes: 36 })
        );
        assert_eq!(send(&data[..35], Some(136)), Some(MpiMessagePart::Control));

        let put = other(PUT, &[REQUEST, 0x5577_0000_5010, RECEIVER, 0, ADDRESS, 1 << 20, 0x1000_0000_2000]);
        assert_eq!(put.len(), 68);
        let memory = Some((ADDRESS, 1 << 20));
        let done_id = Some(MpiMessageId::Fragment(0x5577_0000_5010));
        assert_eq!(
            whole(&put),
            Some(MpiMessagePart::Grant {
                message: MpiMessageId::SenderRequest(REQUEST),
                receiver_id: None,
                memory,
                done_id
            })
        );
        assert_eq!(send(&put[..59], Some(68)), Some(MpiMessagePart::Control));
        // 1.4 has the offset at the position of the receiver's request, followed by the segments.
        let put = other(PUT, &[REQUEST, 0x5577_0000_5010, 0, ADDRESS, 0x2000_0010_0000, 0]);
        assert_eq!(whole(&put), Some(MpiMessagePart::Control));
    }

    #[test]
    fn fin_names_the_memory() {
        let done = Some(MpiMessagePart::Done { message: MpiMessageId::Fragment(FRAGMENT) });
        assert_eq!(whole(&other(FIN, &[1 << 20, FRAGMENT])), done);
        assert_eq!(whole(&other(FIN, &[FRAGMENT])), done, "1.5 to 1.10");
        assert_eq!(whole(&other(FIN, &[FRAGMENT, 1])), done, "1.4");
        assert_eq!(
            send(&other(FIN, &[1 << 10, FRAGMENT])[..27], Some(28)),
            Some(MpiMessagePart::Control),
            "not captured"
        );
    }

    #[test]
    fn messages_without_a_message_still_belong_to_the_library() {
        for kind in [0x45, 0x47, FIN] {
            assert_eq!(whole(&other(kind, &[0; 2])), Some(MpiMessagePart::Control));
        }
        for kind in ACK..=FIN {
            assert_eq!(
                send(&[kind, 0, 0, 0, kind], Some(40)),
                Some(MpiMessagePart::Control),
                "truncated after the type"
            );
        }
        // Recorded: "clear to send" is five bytes long.
        assert_eq!(whole(&[0x20, 0, 0, 0, 3]), Some(MpiMessagePart::Control));
        assert_eq!(whole(&[0x20, 0, 0, 0, 0, 1, 3, 0]), Some(MpiMessagePart::Control));
        assert_eq!(whole(&[0x20, 0, 0, 0, 4, 0, 0, 0]), None);
    }

    #[test]
    fn coalesced_sends_hold_several_messages() {
        let mut payload = Vec::from([0x20, 0, 0, 0, 2]);
        for tag in [5, 6] {
            payload.extend([MATCH, 0, 0, 0, 24, 0, 0, 0, 24, 0, 0, 0]);
            payload.extend(&header(MATCH, 1, tag)[4..]);
            payload.extend([0xAB; 10]);
        }
        assert_eq!(whole(&payload), Some(MpiMessagePart::Coalesced));
        assert_eq!(send(&payload, None), Some(MpiMessagePart::Coalesced));
        assert_eq!(send(&payload[..31], Some(77)), Some(MpiMessagePart::Coalesced));
        assert_eq!(send(&payload[..28], Some(77)), Some(MpiMessagePart::Control), "its messages were not captured");
        payload[9] = 200;
        assert_eq!(whole(&payload), None);
    }

    #[test]
    fn ring_messages_need_their_footer() {
        let mut payload = header(MATCH, 1, 5);
        payload.extend([7; 10]);
        let mut payload = ring(payload);
        let dma_bytes = payload.len() as u32;
        let expected = Some(eager((1, 5, 9), Length::Explicit(10), 22));
        assert_eq!(eager_rdma(&payload, dma_bytes), expected);
        *payload.last_mut().unwrap() = 0;
        assert_eq!(eager_rdma(&payload, dma_bytes), None);
        assert_eq!(eager_rdma(&payload[..24], dma_bytes), expected, "the footer was not captured");
    }

    #[test]
    fn control_messages_of_the_recorded_ring() {
        let credits = [0x20, 0, 0, 0, 0, 0, 5, 0, 0x0C, 0, 0, 0xFF];
        assert_eq!(eager_rdma(&credits, 12), Some(MpiMessagePart::Control));
        assert_eq!((eager_rdma(&credits, 13), eager_rdma(&credits[..8], 12)), (None, None), "no footer");
        let other = [0x20, 0, 0, 0, 2, 0, 5, 0, 0x0C, 0, 0, 0xFF];
        assert_eq!(eager_rdma(&other, 12), None, "coalesced sends do not come so");
    }

    #[test]
    fn footers_are_no_data() {
        let payload = ring(rendezvous(RNDV, &[7]));
        assert_eq!(eager_rdma(&payload, 48), Some(rendezvous_start(40, None)));
        let payload = ring(rendezvous(RGET, &[FRAGMENT, ADDRESS, 0x1000]));
        assert_eq!(eager_rdma(&payload, 64), Some(rendezvous_start(64, Some((ADDRESS, 0)))));
        let payload = ring(other(FRAG, &[65536, REQUEST, RECEIVER, 7]));
        assert_eq!(
            eager_rdma(&payload, 48),
            Some(MpiMessagePart::Data { message: MpiMessageId::ReceiverRequest(RECEIVER), header_bytes: 40 })
        );
    }

    #[test]
    fn headers_may_be_big_endian() {
        let mut payload = Vec::from([MATCH, 0, 0, 0, MATCH, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0x0d, 0, 0]);
        payload.extend([0xAB; 5]);
        assert_eq!(whole(&payload), Some(eager((1, 6, 13), Length::AfterHeaders(20), 20)));
        assert_eq!(start(whole(&payload)).envelope.length.in_message(25), 5);
        let dma_bytes = payload.len() as u32 + 4;
        assert_eq!(eager_rdma(&ring(payload), dma_bytes), Some(eager((1, 6, 13), Length::Explicit(5), 24)));

        let mut payload = Vec::from([RNDV, 0, 0, 0, RNDV, 2 | 8, 0, 0]);
        payload.extend(3i32.to_be_bytes());
        payload.extend((-12i32).to_be_bytes());
        payload.extend([0, 9, 0, 0]);
        payload.extend(1_048_576u64.to_be_bytes());
        payload.extend(REQUEST.to_be_bytes());
        assert_eq!(whole(&payload), Some(rendezvous_start(36, None)));

        let mut ack = Vec::from([ACK, 0, 0, 0, ACK, 2, 0, 0, 0, 0, 0, 0]);
        ack.extend([REQUEST, RECEIVER, 65536, 983_040].iter().flat_map(|word| word.to_be_bytes()));
        let receiver = Some(MpiMessageId::ReceiverRequest(RECEIVER));
        let granted = MpiMessagePart::Grant {
            message: MpiMessageId::SenderRequest(REQUEST),
            receiver_id: receiver,
            memory: None,
            done_id: None,
        };
        assert_eq!(whole(&ack), Some(granted));
    }

    #[test]
    fn other_payloads_are_not_taken() {
        assert_eq!(whole(&[0x41; 4]), None);
        assert_eq!(whole(&header(MATCH, -1, 0)), None);
        assert_eq!(whole(&header(MATCH, 1 << 20, 0)), None);
        // The extended communicator ids of 5.0 do not exist on this BTL.
        assert_eq!(whole(&header(0x4A, 1, 0)), None);
        let mut flagged = header(MATCH, 0, 0);
        flagged[5] = 1;
        assert_eq!(whole(&flagged), None);
        let mut far = header(MATCH, 0, 0);
        far[7] = 0x10;
        assert_eq!(whole(&far), None, "context 4096");
        // IPoIB connected mode starts with an EtherType.
        assert_eq!(whole(&[0x08, 0, 0, 0, 0x45, 0, 0, 0x54, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(eager_rdma(&header(MATCH, 0, 0), 8), None);
    }

    #[test]
    fn noise_is_not_taken() {
        // In noise, tag and type match in one of 65536 payloads each.
        for (kind, highest) in [(MATCH, 1e-9), (RNDV, 1e-9), (RGET, 1e-9)] {
            let forced = [(0, kind), (4, kind), (11, 0)];
            let rate = noise::rate(96, &forced, 2f64.powi(-24), 400_000, |payload, _| whole(payload).is_some());
            assert!(rate < highest, "{kind:x} {rate}");
            let forced = [(0, kind), (4, kind)];
            let rate =
                noise::rate(96, &forced, 2f64.powi(-16), 400_000, |payload, _| eager_rdma(payload, 96).is_some());
            assert!(rate < highest, "{kind:x} {rate}");
        }
    }
}
