//! Open MPI `ob1` over the `openib` BTL, releases 1.4 to 4.1.
//!
//! A 4-byte BTL header (tag, credit fields) comes before the header of `ob1`, whose type repeats the tag
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
//! The layout is in the sender's byte order, little-endian on every machine that ibscope has met, unless a flag says big-endian:
//! between machines of different byte order. Builds for these start the data of a MATCH at P+20; the credits of the BTL header, swapped
//! as well there, are not read.

use super::{Envelope, Identity, Length, Matching, Name, Part, Payload, Protocol, Start, bytes, ob1_coalesced};

const MATCH: u8 = 0x41;
const RNDV: u8 = 0x42;
const RGET: u8 = 0x43;
const ACK: u8 = 0x44;
const FRAG: u8 = 0x46;
const PUT: u8 = 0x48;
const FIN: u8 = 0x49;
/// BTL control messages: credits, ring addresses, coalesced sends, clear to send.
const CONTROL: u8 = 0x20;
/// Type of a control message with other messages in it.
const CONTROL_COALESCED: u8 = 2;
/// Highest type of a control message (`MCA_BTL_OPENIB_CONTROL_*`).
const CONTROL_LAST: u8 = 3;
/// Bytes that a coalesced send has at least: its headers and one packed match header.
const COALESCED_BYTES: usize = 31;
/// Flag of headers in network byte order (`MCA_PML_OB1_HDR_FLAGS_NBO`).
const BIG_ENDIAN: u8 = 2;
/// Bytes before the data of a MATCH: BTL header and the packed match header.
const MATCH_BYTES: u32 = 18;
/// The same in builds for machines of different byte order.
const MATCH_PADDED_BYTES: u32 = 20;
/// Bytes before the data of a RNDV or FRAG.
const RNDV_BYTES: u32 = 36;
/// Bytes of a RGET from 2.0 on, which has no data.
const RGET_BYTES: u32 = 60;
/// Footer of a message written into an eager RDMA ring.
const FOOTER_BYTES: u32 = 4;
/// No message is longer.
const LENGTH_LIMIT_BYTES: u64 = 1 << 48;
/// An RDMA WRITE has no more.
const WRITE_LIMIT_BYTES: u64 = 1 << 31;
/// User addresses of 64-bit Linux lie below, and above the first pages.
const ADDRESS: core::ops::Range<u64> = 1 << 16..1 << 47;
/// Segments of a RGET up to 1.10; a pointer has more in its lower half, or is no multiple of 16.
const SEGMENTS: core::ops::RangeInclusive<u32> = 1..=16;

/// A message that came by SEND.
#[must_use]
pub fn send(first: &Payload<'_>) -> Option<Part> {
    let Payload { captured: payload, message_bytes, .. } = *first;
    // The shortest message, "clear to send", ends with its type.
    let [tag, _, _, _, kind] = bytes::<5>(payload, 0)?;
    match tag {
        MATCH..=FIN if kind == tag => Header::new(first, kind)?.part(message_bytes, 0),
        CONTROL if kind == CONTROL_COALESCED => {
            let message_bytes = message_bytes.unwrap_or(payload.len() as u32);
            let is_coalesced = ob1_coalesced::parts(payload, message_bytes).is_some();
            // Cut before the first of its messages can be seen, it is still one of the library's.
            let is_cut = payload.len() < COALESCED_BYTES && payload.len() < message_bytes as usize;
            if is_coalesced { Some(Part::Several) } else { is_cut.then_some(Part::Control) }
        }
        CONTROL if kind <= CONTROL_LAST => Some(Part::Control),
        _ => None,
    }
}

/// A message that was written into an eager RDMA ring: the same headers and a footer `length (24 bits), 0xff`, which is
/// checked where `payload` is the whole message. `dma_bytes` is the length of the WRITE.
///
/// Control messages are so short that the footer must be there.
#[must_use]
pub fn eager_rdma(first: &Payload<'_>, dma_bytes: u32) -> Option<Part> {
    let payload = first.captured;
    let [tag, _, _, _, kind] = bytes::<5>(payload, 0)?;
    let is_whole = payload.len() == dma_bytes as usize;
    if is_whole {
        let footer = u32::from_le_bytes(bytes(payload, payload.len().checked_sub(FOOTER_BYTES as usize)?)?);
        if footer != 0xFF00_0000 | dma_bytes {
            return None;
        }
    }
    // Recorded: credits and the address of the ring in the other direction.
    if is_whole && tag == CONTROL && kind <= CONTROL_LAST && kind != CONTROL_COALESCED {
        return Some(Part::Control);
    }
    if tag == CONTROL && kind == CONTROL_COALESCED {
        let content_bytes = dma_bytes.checked_sub(FOOTER_BYTES)?;
        return ob1_coalesced::parts(payload, content_bytes).map(|_| Part::Several);
    }
    if !(MATCH..=FIN).contains(&tag) || kind != tag || dma_bytes < MATCH_BYTES + FOOTER_BYTES {
        return None;
    }
    let part = Header::new(first, kind)?.part(Some(dma_bytes), FOOTER_BYTES)?;
    // The write states its own length, so that nothing depends on seeing its last packet.
    Some(match part {
        Part::Start(Start { envelope, protocol, header_bytes, name, memory, done })
            if envelope.length != Length::NotCaptured =>
        {
            let length = Length::Stated(envelope.length.of(u64::from(dma_bytes)));
            let envelope = Envelope { length, ..envelope };
            Part::Start(Start { envelope, protocol, header_bytes, name, memory, done })
        }
        part => part,
    })
}

/// A header of `ob1`.
struct Header<'a> {
    payload: &'a [u8],
    is_cut: bool,
    kind: u8,
    flags: u8,
}

impl<'a> Header<'a> {
    const fn new(first: &Payload<'a>, kind: u8) -> Option<Self> {
        let (payload, is_cut) = (first.captured, first.is_cut());
        // Cut before its flags: only types whose fields would not be read.
        match payload {
            [_, _, _, _, _, flags, ..] => Some(Self { payload, is_cut, kind, flags: *flags }),
            _ if matches!(kind, MATCH | RNDV | RGET) => None,
            _ => Some(Self { payload, is_cut, kind, flags: 0 }),
        }
    }

    const fn is_big_endian(&self) -> bool {
        self.flags & BIG_ENDIAN != 0
    }

    /// The `N` bytes at `P+at`, the least significant one first.
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

    /// Of a transport message with `message_bytes` in all, of which a footer takes `footer_bytes`.
    fn part(&self, message_bytes: Option<u32>, footer_bytes: u32) -> Option<Part> {
        match self.kind {
            MATCH | RNDV | RGET => self.start(message_bytes, footer_bytes).map(Part::Start),
            // Recorded: a message of MPI_Ssend is a RNDV with all its data, and this is its answer as well.
            ACK => Some(self.long(12).map_or(Part::Control, |request| Part::Grant {
                of: Name::Request(request),
                receiver: self.long(20).map(Name::Receiver),
                memory: None,
                done: None,
            })),
            FRAG => Some(self.long(28).map_or(Part::Control, |request| Part::Data {
                of: Name::Receiver(request),
                header_bytes: RNDV_BYTES + footer_bytes,
            })),
            PUT => Some(self.put().unwrap_or(Part::Control)),
            FIN => Some(self.finished().map_or(Part::Control, |fragment| Part::Done { of: Name::Fragment(fragment) })),
            // NACK and GET: nothing that is needed to count messages.
            _ => Some(Part::Control),
        }
    }

    fn start(&self, message_bytes: Option<u32>, footer_bytes: u32) -> Option<Start> {
        // MATCH knows no flags; RNDV and RGET know ACK, PIN, CONTIG, NORDMA and SIGNAL.
        let known_flags = BIG_ENDIAN | if self.kind == MATCH { 0 } else { 0x3D };
        let context = u32::from(u16::from_le_bytes(self.field(6)?));
        // Of RoCE at 64 bytes the lower half of the rank is left, which is all of it in jobs of up to 65536.
        let low = || self.field(8).filter(|_| self.is_cut && !self.is_big_endian()).map(u16::from_le_bytes);
        let rank = self.field(8).map(i32::from_le_bytes).or_else(|| low().map(i32::from))?;
        if self.flags & !known_flags != 0 || context >= 0x1000 || !(0..1 << 20).contains(&rank) {
            return None;
        }
        let tag = self.field(12).map(i32::from_le_bytes);
        let length_bytes = self.long(20);
        let is_short = tag.is_none() || self.kind != MATCH && length_bytes.is_none();
        if is_short && !self.is_cut {
            return None;
        }
        let tag = tag.unwrap_or(0);
        let identity = Identity { rank: rank.cast_unsigned(), context, tag, world: context == 0, collective: tag < 0 };
        let matching = Matching::Named(identity);
        let sequence = self.field(16).map(u16::from_le_bytes);
        if is_short {
            let envelope = Envelope { matching, length: Length::NotCaptured, sequence };
            let protocol = if self.kind == MATCH { Protocol::Eager } else { Protocol::Rendezvous };
            return Some(Start { envelope, protocol, header_bytes: 0, name: None, memory: None, done: None });
        }
        if self.kind == MATCH {
            let match_bytes = if self.is_big_endian() { MATCH_PADDED_BYTES } else { MATCH_BYTES };
            let header_bytes = match_bytes + footer_bytes;
            let envelope = Envelope { matching, length: Length::Beyond(header_bytes), sequence };
            let protocol = Protocol::Eager;
            return Some(Start { envelope, protocol, header_bytes, name: None, memory: None, done: None });
        }
        let stated_bytes = length_bytes.filter(|&bytes| bytes < LENGTH_LIMIT_BYTES)?;
        let (header_bytes, offered) = if self.kind == RNDV {
            (RNDV_BYTES + footer_bytes, None)
        } else {
            // It ends with keys, whose length depends on the release, and has no data.
            (message_bytes.unwrap_or(RGET_BYTES + footer_bytes), self.offered(stated_bytes))
        };
        Some(Start {
            envelope: Envelope { matching, length: Length::Stated(stated_bytes), sequence },
            protocol: Protocol::Rendezvous,
            header_bytes,
            name: self.long(28).map(Name::Request),
            memory: offered.map(|(_, memory)| memory),
            done: offered.map(|(fragment, _)| Name::Fragment(fragment)),
        })
    }

    /// Where the data of a RGET are, and what FIN calls them, in both its layouts: the number of segments of the older one is no pointer.
    fn offered(&self, stated_bytes: u64) -> Option<(u64, (u64, u64))> {
        let segments = u32::from_le_bytes(self.field(36)?);
        if SEGMENTS.contains(&segments) {
            let (fragment, address, segment_bytes) = (self.long(44)?, self.long(52)?, self.long(60)?);
            // The lengths of 1.6 and before have 32 bits, with a key after them: these are not read.
            let plausible = ADDRESS.contains(&address) && (1..=stated_bytes).contains(&segment_bytes);
            return plausible.then_some((fragment, (address, segment_bytes)));
        }
        let (fragment, address) = (self.long(36)?, self.long(44)?);
        (ADDRESS.contains(&fragment) && ADDRESS.contains(&address)).then_some((fragment, (address, 0)))
    }

    /// The receiver's memory that a PUT names. The layouts of 1.7 to 1.10 agree in these fields where there is one segment; older
    /// ones have a key in the upper half of the length.
    fn put(&self) -> Option<Part> {
        let (request, address, length_bytes) = (self.long(12)?, self.long(44)?, self.long(52)?);
        let plausible = ADDRESS.contains(&address) && (1..=WRITE_LIMIT_BYTES).contains(&length_bytes);
        plausible.then_some(Part::Grant {
            of: Name::Request(request),
            receiver: None,
            memory: Some((address, length_bytes)),
            done: self.long(20).map(Name::Fragment),
        })
    }

    /// The piece of memory that a FIN names: after a length from 2.0 on, before it nothing but flags.
    fn finished(&self) -> Option<u64> {
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

    /// Of a message of `message_bytes` in one packet, or of the first packet of a longer one.
    fn send(payload: &[u8], message_bytes: Option<u32>) -> Option<Part> {
        let packet_bytes = message_bytes.unwrap_or(payload.len() as u32);
        super::send(&Payload { captured: payload, packet_bytes, message_bytes })
    }

    fn eager_rdma(payload: &[u8], dma_bytes: u32) -> Option<Part> {
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

    /// A RNDV or RGET: rank 3, tag -12, 1 MiB, and what follows the request.
    fn rendezvous(kind: u8, words: &[u64]) -> Vec<u8> {
        let mut payload = header(kind, 3, -12);
        payload.extend([0xEE; 2]);
        payload.extend(1_048_576u64.to_le_bytes());
        payload.extend(REQUEST.to_le_bytes());
        payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        payload
    }

    /// A header without an envelope, with garbage where the compiler pads it.
    fn other(kind: u8, words: &[u64]) -> Vec<u8> {
        let mut payload = Vec::from([kind, 0, 0, 0, kind, 0, 1, 0, 1, 0, 0, 0]);
        payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        payload
    }

    fn whole(payload: &[u8]) -> Option<Part> {
        send(payload, Some(payload.len() as u32))
    }

    fn start(part: Option<Part>) -> Start {
        match part {
            Some(Part::Start(start)) => start,
            other => panic!("no start: {other:?}"),
        }
    }

    fn eager((rank, tag, sequence): (u32, i32, u16), length: Length, header_bytes: u32) -> Part {
        let identity = Identity { rank, context: 0, tag, world: true, collective: tag < 0 };
        let envelope = Envelope { matching: Matching::Named(identity), length, sequence: Some(sequence) };
        let protocol = Protocol::Eager;
        Part::Start(Start { envelope, protocol, header_bytes, name: None, memory: None, done: None })
    }

    fn asked(header_bytes: u32, memory: Option<(u64, u64)>) -> Part {
        let identity = Identity { rank: 3, context: 0, tag: -12, world: true, collective: true };
        let envelope =
            Envelope { matching: Matching::Named(identity), length: Length::Stated(1_048_576), sequence: Some(9) };
        let name = Some(Name::Request(REQUEST));
        let done = memory.map(|_| Name::Fragment(FRAGMENT));
        Part::Start(Start { envelope, protocol: Protocol::Rendezvous, header_bytes, name, memory, done })
    }

    fn ring(mut payload: Vec<u8>) -> Vec<u8> {
        let dma_bytes = payload.len() as u32 + 4;
        payload.extend((0xFF00_0000 | dma_bytes).to_le_bytes());
        payload
    }

    #[test]
    fn match_of_the_recorded_runs() {
        // wire-formats, recorded: rank 1, tag 6, sequence 13.
        let payload = [0x41, 0, 0, 0, 0x41, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0x0d, 0, 0xAA, 0xBB];
        assert_eq!(whole(&payload), Some(eager((1, 6, 13), Length::Beyond(18), 18)));
        assert_eq!(send(&payload, None), whole(&payload), "the length is not needed");
        assert_eq!(start(whole(&payload)).envelope.length.of(payload.len() as u64), 2);
    }

    #[test]
    fn rendezvous_states_its_length_and_request() {
        let payload = rendezvous(RNDV, &[0x1122_3344]);
        assert_eq!(whole(&payload), Some(asked(36, None)));
        assert_eq!(start(send(&payload[..35], Some(44))).name, None, "the request was not captured");
        let cut = start(send(&payload[..27], Some(44)));
        assert_eq!(cut.envelope.length, Length::NotCaptured);
        assert_eq!(send(&payload[..27], Some(27)), None, "it has none");
    }

    #[test]
    fn both_layouts_of_rget_name_the_memory() {
        let keys = 0x1000_0000_2000;
        let from_2_0 = rendezvous(RGET, &[FRAGMENT, ADDRESS, keys]);
        assert_eq!(from_2_0.len(), 60);
        assert_eq!(whole(&from_2_0), Some(asked(60, Some((ADDRESS, 0)))));
        assert_eq!(send(&from_2_0, None), Some(asked(60, Some((ADDRESS, 0)))));
        assert_eq!(send(&from_2_0[..51], Some(60)), Some(asked(60, None)), "the address was not captured");
        // One segment, and garbage after the number.
        let to_1_10 = rendezvous(RGET, &[0xEEEE_EEEE_0000_0001, FRAGMENT, ADDRESS, 1_048_576, 0x2000]);
        assert_eq!(whole(&to_1_10), Some(asked(76, Some((ADDRESS, 1_048_576)))));
        let to_1_6 = rendezvous(RGET, &[1, FRAGMENT, ADDRESS, 0x2000_0010_0000, 0]);
        assert_eq!(whole(&to_1_6), Some(asked(76, None)), "a length of 32 bits with a key after it");
    }

    #[test]
    fn answers_and_data_name_the_requests() {
        let ack = other(ACK, &[REQUEST, RECEIVER, 65536, 983_040]);
        let receiver = Some(Name::Receiver(RECEIVER));
        let granted = Part::Grant { of: Name::Request(REQUEST), receiver, memory: None, done: None };
        assert_eq!(whole(&ack), Some(granted));
        assert_eq!(send(&ack[..19], Some(44)), Some(Part::Control), "the request was not captured");
        let granted = Part::Grant { of: Name::Request(REQUEST), receiver: None, memory: None, done: None };
        assert_eq!(send(&ack[..27], Some(44)), Some(granted), "the receiver's request was not captured");

        let mut data = other(FRAG, &[65536, REQUEST, RECEIVER]);
        data.extend([0xAB; 100]);
        assert_eq!(whole(&data), Some(Part::Data { of: Name::Receiver(RECEIVER), header_bytes: 36 }));
        assert_eq!(send(&data[..35], Some(136)), Some(Part::Control));

        let put = other(PUT, &[REQUEST, 0x5577_0000_5010, RECEIVER, 0, ADDRESS, 1 << 20, 0x1000_0000_2000]);
        assert_eq!(put.len(), 68);
        let memory = Some((ADDRESS, 1 << 20));
        let done = Some(Name::Fragment(0x5577_0000_5010));
        assert_eq!(whole(&put), Some(Part::Grant { of: Name::Request(REQUEST), receiver: None, memory, done }));
        assert_eq!(send(&put[..59], Some(68)), Some(Part::Control));
        // 1.4: the offset stands where the receiver's request is later, and the segments follow it.
        let put = other(PUT, &[REQUEST, 0x5577_0000_5010, 0, ADDRESS, 0x2000_0010_0000, 0]);
        assert_eq!(whole(&put), Some(Part::Control));
    }

    #[test]
    fn finished_names_the_memory() {
        let done = Some(Part::Done { of: Name::Fragment(FRAGMENT) });
        assert_eq!(whole(&other(FIN, &[1 << 20, FRAGMENT])), done);
        assert_eq!(whole(&other(FIN, &[FRAGMENT])), done, "1.5 to 1.10");
        assert_eq!(whole(&other(FIN, &[FRAGMENT, 1])), done, "1.4");
        assert_eq!(send(&other(FIN, &[1 << 10, FRAGMENT])[..27], Some(28)), Some(Part::Control), "not captured");
    }

    #[test]
    fn messages_without_a_message_still_belong_to_the_library() {
        for kind in [0x45, 0x47, FIN] {
            assert_eq!(whole(&other(kind, &[0; 2])), Some(Part::Control));
        }
        for kind in ACK..=FIN {
            assert_eq!(send(&[kind, 0, 0, 0, kind], Some(40)), Some(Part::Control), "cut after the type");
        }
        // Recorded: "clear to send" is five bytes.
        assert_eq!(whole(&[0x20, 0, 0, 0, 3]), Some(Part::Control));
        assert_eq!(whole(&[0x20, 0, 0, 0, 0, 1, 3, 0]), Some(Part::Control));
        assert_eq!(whole(&[0x20, 0, 0, 0, 4, 0, 0, 0]), None);
    }

    #[test]
    fn coalesced_sends_are_several() {
        let mut payload = Vec::from([0x20, 0, 0, 0, 2]);
        for tag in [5, 6] {
            payload.extend([MATCH, 0, 0, 0, 24, 0, 0, 0, 24, 0, 0, 0]);
            payload.extend(&header(MATCH, 1, tag)[4..]);
            payload.extend([0xAB; 10]);
        }
        assert_eq!(whole(&payload), Some(Part::Several));
        assert_eq!(send(&payload, None), Some(Part::Several));
        assert_eq!(send(&payload[..31], Some(77)), Some(Part::Several));
        assert_eq!(send(&payload[..28], Some(77)), Some(Part::Control), "its messages were not captured");
        payload[9] = 200;
        assert_eq!(whole(&payload), None);
    }

    #[test]
    fn ring_messages_need_their_footer() {
        let mut payload = header(MATCH, 1, 5);
        payload.extend([7; 10]);
        let mut payload = ring(payload);
        let dma_bytes = payload.len() as u32;
        let expected = Some(eager((1, 5, 9), Length::Stated(10), 22));
        assert_eq!(eager_rdma(&payload, dma_bytes), expected);
        *payload.last_mut().unwrap() = 0;
        assert_eq!(eager_rdma(&payload, dma_bytes), None);
        assert_eq!(eager_rdma(&payload[..24], dma_bytes), expected, "the footer was not captured");
    }

    #[test]
    fn control_messages_of_the_recorded_ring() {
        let credits = [0x20, 0, 0, 0, 0, 0, 5, 0, 0x0C, 0, 0, 0xFF];
        assert_eq!(eager_rdma(&credits, 12), Some(Part::Control));
        assert_eq!((eager_rdma(&credits, 13), eager_rdma(&credits[..8], 12)), (None, None), "no footer");
        let other = [0x20, 0, 0, 0, 2, 0, 5, 0, 0x0C, 0, 0, 0xFF];
        assert_eq!(eager_rdma(&other, 12), None, "coalesced sends do not come so");
    }

    #[test]
    fn footers_are_no_data() {
        let payload = ring(rendezvous(RNDV, &[7]));
        assert_eq!(eager_rdma(&payload, 48), Some(asked(40, None)));
        let payload = ring(rendezvous(RGET, &[FRAGMENT, ADDRESS, 0x1000]));
        assert_eq!(eager_rdma(&payload, 64), Some(asked(64, Some((ADDRESS, 0)))));
        let payload = ring(other(FRAG, &[65536, REQUEST, RECEIVER, 7]));
        assert_eq!(eager_rdma(&payload, 48), Some(Part::Data { of: Name::Receiver(RECEIVER), header_bytes: 40 }));
    }

    #[test]
    fn headers_may_be_big_endian() {
        let mut payload = Vec::from([MATCH, 0, 0, 0, MATCH, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0x0d, 0, 0]);
        payload.extend([0xAB; 5]);
        assert_eq!(whole(&payload), Some(eager((1, 6, 13), Length::Beyond(20), 20)));
        assert_eq!(start(whole(&payload)).envelope.length.of(25), 5);
        let dma_bytes = payload.len() as u32 + 4;
        assert_eq!(eager_rdma(&ring(payload), dma_bytes), Some(eager((1, 6, 13), Length::Stated(5), 24)));

        let mut payload = Vec::from([RNDV, 0, 0, 0, RNDV, 2 | 8, 0, 0]);
        payload.extend(3i32.to_be_bytes());
        payload.extend((-12i32).to_be_bytes());
        payload.extend([0, 9, 0, 0]);
        payload.extend(1_048_576u64.to_be_bytes());
        payload.extend(REQUEST.to_be_bytes());
        assert_eq!(whole(&payload), Some(asked(36, None)));

        let mut ack = Vec::from([ACK, 0, 0, 0, ACK, 2, 0, 0, 0, 0, 0, 0]);
        ack.extend([REQUEST, RECEIVER, 65536, 983_040].iter().flat_map(|word| word.to_be_bytes()));
        let receiver = Some(Name::Receiver(RECEIVER));
        let granted = Part::Grant { of: Name::Request(REQUEST), receiver, memory: None, done: None };
        assert_eq!(whole(&ack), Some(granted));
    }

    #[test]
    fn other_payloads_are_not_taken() {
        assert_eq!(whole(&[0x41; 4]), None);
        assert_eq!(whole(&header(MATCH, -1, 0)), None);
        assert_eq!(whole(&header(MATCH, 1 << 20, 0)), None);
        // The extended communicator ids of 5.0 do not come over this BTL.
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
        // Tag and type are right once in 65536 payloads each.
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
