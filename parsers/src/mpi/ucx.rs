//! UCX active messages of MPI's point-to-point protocol, UCX 1.3 and later.
//!
//! The transport header comes first (`rc_iface.h`, `rc_mlx5_common.h`, `ud_def.h`):
//!
//! ```text
//! RC, DC verbs: P+0 active message id (low 5 bits)
//! RC, DC mlx5:  P+0 = 0 (no hardware tag)  P+1 active message id (low 5 bits)
//! UD:           P+0 u32: destination endpoint (24), is-message, ack, ecn, id (5)   P+4 sequence u16   P+6 acknowledged u16
//! ```
//! The packed, little-endian header of the message follows (`eager.h`, `proto_am.h`, `rndv.h`); A
//! is its first byte:
//!
//! ```text
//!  2 eager, whole          A+0 tag  A+8 data
//!  3 eager, first          A+0 tag  A+8 length  A+16 message  A+24 data
//!  4 eager, more           A+0 message  A+8 offset  A+16 data
//!  6 synchronous, whole    A+0 tag  A+8 endpoint  A+16 request  A+24 data
//!  7 synchronous, first    A+0 tag  A+8 length  A+16 message  A+24 endpoint  A+32 request  A+40 data
//!  8 synchronous, matched  A+0 request
//!  9 ready to send         A+0 tag  A+8 endpoint  A+16 request  A+24 address  A+32 length  (1.11: A+40 operation u8), keys
//!    of 1.10               A+0 endpoint  A+8 request  A+16 address  A+24 length  A+32 flags u16  A+34 tag, keys
//! 10 all received          A+0 request
//! 11 ready to receive      A+0 request  A+8 receiver's request  A+16 address  (1.8: A+24 length  A+32 offset), keys
//! 12 rendezvous data       A+0 receiver's request  A+8 offset  A+16 data
//! 16 all written           A+0 receiver's request
//! ```
//! Fields without a type have 64 bits.

use super::ucx_wireup::{NETH_BYTES, NETH_CONTROL, NETH_IS_MESSAGE, NO_ENDPOINT};
use super::{
    Envelope, Length, LibraryStack, MatchFields, MpiHeader, MpiMessageId, MpiMessagePart, MpiMessageStart, Payload,
    Protocol, bytes,
};

/// `Q_Key` of every UCX UD queue pair (`UCT_IB_KEY`).
pub const Q_KEY: u32 = 0x1EE7_A330;

const EAGER_ONLY: u8 = 2;
const EAGER_FIRST: u8 = 3;
const EAGER_MIDDLE: u8 = 4;
const EAGER_SYNC_ONLY: u8 = 6;
const EAGER_SYNC_FIRST: u8 = 7;
const EAGER_SYNC_ACK: u8 = 8;
const RNDV_RTS: u8 = 9;
const RNDV_ATS: u8 = 10;
const RNDV_RTR: u8 = 11;
const RNDV_DATA: u8 = 12;
const RNDV_ATP: u8 = 16;
/// Highest active message id (`ucp_types.h`: `UCP_AM_ID_LAST` is 29).
const AM_ID_LAST: u8 = 28;

const NETH_PUT: u32 = 1 << 28;

/// Upper limit of message lengths.
const LENGTH_LIMIT_BYTES: u64 = 1 << 48;
/// Lower limit of addresses, to distinguish them from lengths: heaps and mappings of 64-bit Linux
/// are above it, except in programs linked to a fixed address.
const ADDRESS_FROM: u64 = 1 << 40;
/// User addresses of the CPU (47 bits) or of a GPU (49 bits).
const ADDRESS: core::ops::Range<u64> = 1 << 12..1 << 49;
/// Plausible lengths in a ready to receive.
const RTR_LENGTHS_BYTES: core::ops::Range<u64> = 256..LENGTH_LIMIT_BYTES;
/// Flags of a 1.10 ready to send for a tagged message (`UCP_RNDV_RTS_FLAG_TAG`; the only other flag
/// is for active messages).
const FLAGS_OF_TAGGED: u16 = 1;
/// Operation of a 1.11 ready to send for an active message (`UCP_RNDV_RTS_AM`).
const OPERATION_ACTIVE_MESSAGE: u8 = 1;

/// UCX's endpoint and sequence number of a UD datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Endpoint id at the receiver, 24 bits.
    pub endpoint: u32,
    /// Sequence number on the endpoint, 16 bits.
    pub sequence: u16,
}

/// Parses a message on an RC or DC queue pair of the verbs transports.
#[must_use]
pub fn verbs(payload: &Payload<'_>) -> Option<MpiMessagePart> {
    let (&first, rest) = payload.captured.split_first()?;
    // No active message has id 0; a first byte of 0 belongs to mlx5.
    if first == 0 { None } else { message(first, rest, 1, payload) }
}

/// Parses a message on an RC or DC queue pair of the mlx5 transports.
#[must_use]
pub fn mlx5(payload: &Payload<'_>) -> Option<MpiMessagePart> {
    let ([0, second], rest) = payload.captured.split_first_chunk()? else { return None };
    message(*second, rest, 2, payload)
}

/// Parses a message on a UD queue pair with UCX's `Q_Key`.
#[must_use]
pub fn datagram(first: &Payload<'_>) -> Option<MpiHeader> {
    let payload = first.captured;
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    let rest = payload.get(NETH_BYTES..)?;
    if word & NETH_IS_MESSAGE == 0 {
        // Acknowledgements, connection requests and puts belong to UCX but are no messages.
        return Some(MpiHeader { stack: LibraryStack::UcxUd, part: MpiMessagePart::Control, datagram: None });
    }
    let part = message((word >> 27) as u8, rest, NETH_BYTES as u32, first)?;
    Some(MpiHeader { stack: LibraryStack::UcxUd, part, datagram: Some(endpoint_datagram(payload)?) })
}

/// Endpoint and number of a datagram with UCX's `Q_Key` that is no message but is numbered like one: a
/// put, or the reply to a connection request. An acknowledgement has the number of the next datagram,
/// and a connection request (always number 1) names no endpoint of the receiver.
#[must_use]
pub fn datagram_without_message(payload: &[u8]) -> Option<Datagram> {
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    let is_numbered = word & NETH_IS_MESSAGE == 0 && word & (NETH_PUT | NETH_CONTROL) != 0;
    endpoint_datagram(payload).filter(|datagram| is_numbered && datagram.endpoint != NO_ENDPOINT)
}

fn endpoint_datagram(payload: &[u8]) -> Option<Datagram> {
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    Some(Datagram { endpoint: word & 0xFF_FFFF, sequence: u16::from_le_bytes(bytes(payload, 4)?) })
}

fn message(id_byte: u8, rest: &[u8], transport_bytes: u32, payload: &Payload<'_>) -> Option<MpiMessagePart> {
    let id = id_byte & 0x1F;
    let long = |at| bytes(rest, at).map(u64::from_le_bytes);
    let start = |tag, protocol, length, header_bytes, name| {
        let envelope = Envelope { matching: MatchFields::UcxTag(tag), length, sequence: None };
        MpiMessagePart::Start(MpiMessageStart {
            envelope,
            protocol,
            header_bytes,
            id: name,
            memory: None,
            done_id: None,
        })
    };
    let whole = |protocol, header_bytes, name| {
        let header_bytes = transport_bytes + header_bytes;
        Some(start(long(0)?, protocol, Length::AfterHeaders(header_bytes), header_bytes, name))
    };
    let first = |protocol, header_bytes| {
        let header_bytes = transport_bytes + header_bytes;
        let length = match long(8) {
            // More packets follow, so the message must be longer than this one.
            Some(bytes) if bytes < u64::from(payload.packet_bytes.saturating_sub(header_bytes)) => return None,
            Some(bytes) => Length::Explicit(Some(bytes).filter(|&bytes| bytes < LENGTH_LIMIT_BYTES)?),
            None if payload.is_truncated() => Length::NotCaptured,
            None => return None,
        };
        Some(start(long(0)?, protocol, length, header_bytes, long(16).map(MpiMessageId::MultiPacket)))
    };
    // A part of a message belongs to UCX even if the message id was not captured.
    let about = |part: &dyn Fn(u64) -> MpiMessagePart| Some(long(0).map_or(MpiMessagePart::Control, part));
    let data_at = transport_bytes + 16;
    match id {
        EAGER_ONLY => whole(Protocol::Eager, 8, None),
        EAGER_SYNC_ONLY => whole(Protocol::Synchronous, 24, long(16).map(MpiMessageId::SenderRequest)),
        EAGER_FIRST => first(Protocol::Eager, 24),
        EAGER_SYNC_FIRST => first(Protocol::Synchronous, 40),
        EAGER_MIDDLE => {
            about(&|id| MpiMessagePart::Data { message: MpiMessageId::MultiPacket(id), header_bytes: data_at })
        }
        RNDV_DATA => {
            about(&|id| MpiMessagePart::Data { message: MpiMessageId::ReceiverRequest(id), header_bytes: data_at })
        }
        EAGER_SYNC_ACK | RNDV_ATS => about(&|id| MpiMessagePart::Done { message: MpiMessageId::SenderRequest(id) }),
        RNDV_ATP => about(&|id| MpiMessagePart::Done { message: MpiMessageId::ReceiverRequest(id) }),
        RNDV_RTS => rts(rest, payload.is_truncated()),
        RNDV_RTR => about(&|id| {
            let address = long(16).filter(|&address| address != 0);
            // Up to 1.7 the keys start here, with a small number.
            let room_bytes = long(24).filter(|bytes| RTR_LENGTHS_BYTES.contains(bytes)).unwrap_or(0);
            MpiMessagePart::Grant {
                message: MpiMessageId::SenderRequest(id),
                receiver_id: long(8).map(MpiMessageId::ReceiverRequest),
                memory: address.map(|address| (address, room_bytes)),
                done_id: address.and(long(8)).map(MpiMessageId::ReceiverRequest),
            }
        }),
        // Flow-control grants have id 0 and the upper bits set.
        0 if id_byte != 0 => Some(MpiMessagePart::Control),
        1..=AM_ID_LAST => Some(MpiMessagePart::Control),
        _ => None,
    }
}

/// Parses a ready to send. It carries keys but no data, so `header_bytes` is [`u32::MAX`], "the
/// whole payload".
///
/// No field identifies the release. 1.10 has the length where other releases have an address (or
/// 0), and its flags where they have the low 16 bits of the length. The 1.10 layout is used if both
/// fields are plausible for it, and if the number is too small for an address or the length of the
/// other layout is too large. Only a length of 1 plus a multiple of 65536 at an address below 2^40
/// is misread.
///
/// Active messages of 1.11 are [`MpiMessagePart::Control`]; a capture that ends before byte 42 does
/// not distinguish them. If the capture ends before the length, the tag is read at its offset in
/// all releases but 1.10.
fn rts(rest: &[u8], is_cut: bool) -> Option<MpiMessagePart> {
    let long = |at| bytes(rest, at).map(u64::from_le_bytes);
    let start = |tag, request, address, length| {
        MpiMessagePart::Start(MpiMessageStart {
            envelope: Envelope { matching: MatchFields::UcxTag(tag), length, sequence: None },
            protocol: Protocol::Rendezvous,
            header_bytes: u32::MAX,
            id: Some(MpiMessageId::SenderRequest(request)),
            memory: (address != 0).then_some((address, 0)),
            done_id: (address != 0).then_some(MpiMessageId::SenderRequest(request)),
        })
    };
    if is_cut && rest.len() < 40 {
        return Some(start(long(0)?, 0, 0, Length::NotCaptured));
    }
    let [first, second, third, fourth, fifth] = [long(0)?, long(8)?, long(16)?, long(24)?, long(32)?];
    let fits_1_10 = fifth as u16 == FLAGS_OF_TAGGED
        && (1..LENGTH_LIMIT_BYTES).contains(&fourth)
        && (third == 0 || ADDRESS.contains(&third));
    let fits_others = fifth < LENGTH_LIMIT_BYTES;
    if fits_1_10 && (fourth < ADDRESS_FROM || !fits_others) {
        // The tag comes last: the capture may end before it.
        return Some(start(long(34)?, second, third, Length::Explicit(fourth)));
    }
    // Up to 1.9 the keys start at the operation, with a map whose upper bytes are 0.
    if bytes(rest, 40).is_some_and(|[operation, keys]| operation == OPERATION_ACTIVE_MESSAGE && keys != 0) {
        return Some(MpiMessagePart::Control);
    }
    fits_others.then(|| start(first, third, fourth, Length::Explicit(fifth)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::TagLayout;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Recorded: eager first, rank 1, tag 6, 12288 bytes.
    const EAGER_FIRST_RECORDED: [u8; 17] = [3, 0, 0, 0x10, 0, 0, 6, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0];
    /// Rank 1, tag 6 on `MPI_COMM_WORLD` of Open MPI.
    const TAG: u64 = 6 << 40 | 1 << 20;
    const ADDRESS: u64 = 0x7F12_3456_7000;

    /// Parses payloads that were captured whole.
    fn verbs(payload: &[u8]) -> Option<MpiMessagePart> {
        super::verbs(&Payload::whole(payload))
    }

    fn mlx5(payload: &[u8]) -> Option<MpiMessagePart> {
        super::mlx5(&Payload::whole(payload))
    }

    fn datagram(payload: &[u8]) -> Option<MpiHeader> {
        super::datagram(&Payload::whole(payload))
    }

    fn am(id: u8, words: &[u64]) -> Vec<u8> {
        core::iter::once(id).chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    /// The same message with the header of mlx5.
    fn under_mlx5(verbs: &[u8]) -> Vec<u8> {
        [&[0], verbs].concat()
    }

    fn start(part: Option<MpiMessagePart>) -> MpiMessageStart {
        match part {
            Some(MpiMessagePart::Start(start)) => start,
            other => panic!("no start: {other:?}"),
        }
    }

    fn tagged(protocol: Protocol, length: Length, header_bytes: u32, name: Option<MpiMessageId>) -> MpiMessageStart {
        let envelope = Envelope { matching: MatchFields::UcxTag(TAG), length, sequence: None };
        MpiMessageStart { envelope, protocol, header_bytes, id: name, memory: None, done_id: None }
    }

    #[test]
    fn eager_first_of_the_recorded_runs() {
        let start = start(verbs(&EAGER_FIRST_RECORDED));
        assert_eq!(start.envelope.length, Length::Explicit(12288));
        assert_eq!((start.protocol, start.header_bytes, start.id), (Protocol::Eager, 25, None));
        let identity = start.envelope.matching.identity(TagLayout::OpenMpi).unwrap();
        assert_eq!((identity.rank, identity.tag, identity.world), (1, 6, true));
    }

    #[test]
    fn whole_messages_are_as_long_as_their_transport_message() {
        let mut eager = am(2, &[TAG]);
        eager.extend([0; 48]);
        let mut synchronous = am(6, &[TAG, 0xE, 0x4E]);
        synchronous.extend([0; 48]);
        for (payload, protocol, header_bytes, name) in [
            (eager, Protocol::Eager, 9, None),
            (synchronous, Protocol::Synchronous, 25, Some(MpiMessageId::SenderRequest(0x4E))),
        ] {
            let found = start(verbs(&payload));
            assert_eq!(found, tagged(protocol, Length::AfterHeaders(header_bytes), header_bytes, name));
            assert_eq!(found.envelope.length.in_message(payload.len() as u64), 48);
            let payload = under_mlx5(&payload);
            let found = start(mlx5(&payload));
            assert_eq!(found, tagged(protocol, Length::AfterHeaders(header_bytes + 1), header_bytes + 1, name));
            assert_eq!(found.envelope.length.in_message(payload.len() as u64), 48);
        }
    }

    #[test]
    fn messages_in_several_packets_have_an_id() {
        let length = Length::Explicit(20_000);
        let first = am(3, &[TAG, 20_000, 0x1D]);
        let expected = tagged(Protocol::Eager, length, 25, Some(MpiMessageId::MultiPacket(0x1D)));
        assert_eq!(verbs(&first), Some(MpiMessagePart::Start(expected)));
        assert_eq!(
            mlx5(&under_mlx5(&first)),
            Some(MpiMessagePart::Start(MpiMessageStart { header_bytes: 26, ..expected }))
        );
        let first = am(7, &[TAG, 20_000, 0x1D, 0xE, 0x4E]);
        let expected = tagged(Protocol::Synchronous, length, 41, Some(MpiMessageId::MultiPacket(0x1D)));
        assert_eq!(verbs(&first), Some(MpiMessagePart::Start(expected)));
        let more = am(4, &[0x1D, 8000]);
        assert_eq!(
            verbs(&more),
            Some(MpiMessagePart::Data { message: MpiMessageId::MultiPacket(0x1D), header_bytes: 17 })
        );
        assert_eq!(
            mlx5(&under_mlx5(&more)),
            Some(MpiMessagePart::Data { message: MpiMessageId::MultiPacket(0x1D), header_bytes: 18 })
        );
    }

    #[test]
    fn responses_carry_the_request_id() {
        for id in [8, 10] {
            let mut payload = am(id, &[0x4E]);
            payload.push(0);
            assert_eq!(verbs(&payload), Some(MpiMessagePart::Done { message: MpiMessageId::SenderRequest(0x4E) }));
            assert_eq!(verbs(&payload[..8]), Some(MpiMessagePart::Control), "the name was not captured");
        }
        assert_eq!(
            verbs(&am(12, &[0x5E, 0])),
            Some(MpiMessagePart::Data { message: MpiMessageId::ReceiverRequest(0x5E), header_bytes: 17 })
        );
        assert_eq!(
            verbs(&am(16, &[0x5E])),
            Some(MpiMessagePart::Done { message: MpiMessageId::ReceiverRequest(0x5E) })
        );
        let grant = |memory: Option<(u64, u64)>| {
            let receiver = Some(MpiMessageId::ReceiverRequest(0x5E));
            Some(MpiMessagePart::Grant {
                message: MpiMessageId::SenderRequest(0x4E),
                receiver_id: receiver,
                memory,
                done_id: memory.and(receiver),
            })
        };
        assert_eq!(verbs(&am(11, &[0x4E, 0x5E, ADDRESS, 65536, 0])), grant(Some((ADDRESS, 65536))));
        assert_eq!(verbs(&am(11, &[0x4E, 0x5E, ADDRESS])), grant(Some((ADDRESS, 0))), "the length was not captured");
        assert_eq!(verbs(&am(11, &[0x4E, 0x5E, ADDRESS, 4])), grant(Some((ADDRESS, 0))), "keys of 1.7");
        assert_eq!(verbs(&am(11, &[0x4E, 0x5E, 0, 65536, 0])), grant(None));
    }

    fn ready(tag: u64, request: u64, address: u64, length_bytes: u64) -> MpiMessagePart {
        MpiMessagePart::Start(MpiMessageStart {
            envelope: Envelope {
                matching: MatchFields::UcxTag(tag),
                length: Length::Explicit(length_bytes),
                sequence: None,
            },
            protocol: Protocol::Rendezvous,
            header_bytes: u32::MAX,
            id: Some(MpiMessageId::SenderRequest(request)),
            memory: (address != 0).then_some((address, 0)),
            done_id: (address != 0).then_some(MpiMessageId::SenderRequest(request)),
        })
    }

    /// Ready to send of 1.11 and later with its operation, and of 1.10 with its flags.
    fn ready_1_11(tag: u64, request: u64, address: u64, length_bytes: u64) -> Vec<u8> {
        let mut payload = am(9, &[tag, 0xE, request, address, length_bytes]);
        payload.extend([0, 4, 0, 0]);
        payload
    }

    fn ready_1_10(tag: u64, request: u64, address: u64, length_bytes: u64) -> Vec<u8> {
        let mut payload = am(9, &[0xE, request, address, length_bytes]);
        payload.extend(1u16.to_le_bytes());
        payload.extend(tag.to_le_bytes());
        payload
    }

    #[test]
    fn ready_to_send_of_both_layouts() {
        let expected = Some(ready(TAG, 0x4E, ADDRESS, 262_144));
        let payload = ready_1_11(TAG, 0x4E, ADDRESS, 262_144);
        assert_eq!(verbs(&payload), expected);
        assert_eq!(verbs(&payload[..41]), expected, "up to 1.9 keys follow, or nothing");
        assert_eq!(verbs(&payload[..40]), None);
        assert_eq!(mlx5(&under_mlx5(&payload)[..42]), expected);
        let payload = ready_1_10(TAG, 0x4E, ADDRESS, 262_144);
        assert_eq!(verbs(&payload), expected);
        assert_eq!(verbs(&payload[..42]), None, "the tag was not captured");
        assert_eq!(verbs(&ready_1_11(TAG, 0x4E, 0, 262_144)), Some(ready(TAG, 0x4E, 0, 262_144)));
        assert_eq!(verbs(&ready_1_10(TAG, 0x4E, 0, 262_144)), Some(ready(TAG, 0x4E, 0, 262_144)));
        // Rank 0 of MPICH is the hardest case: read as 1.11 the length would be 0x50001.
        assert_eq!(verbs(&ready_1_10(5, 0x4E, ADDRESS, 262_144)), Some(ready(5, 0x4E, ADDRESS, 262_144)));
    }

    #[test]
    fn active_messages_are_no_messages_of_mpi() {
        let mut payload = ready_1_11(TAG, 0x4E, ADDRESS, 262_144);
        payload[41] = 1;
        assert_eq!(verbs(&payload), Some(MpiMessagePart::Control));
        // Keys of 1.9 whose map is 1.
        payload[42] = 0;
        assert_eq!(verbs(&payload), Some(ready(TAG, 0x4E, ADDRESS, 262_144)));
    }

    proptest! {
        #[test]
        fn ready_to_send_is_read_as_the_release_that_wrote_it(
            tag: u64,
            request: u64,
            address in prop_oneof![Just(0u64), 1u64 << 40..1 << 47],
            length_bytes in 1u64..1 << 40,
        ) {
            let expected = Some(ready(tag, request, address, length_bytes));
            prop_assert_eq!(verbs(&ready_1_11(tag, request, address, length_bytes)), expected);
            prop_assert_eq!(verbs(&ready_1_10(tag, request, address, length_bytes)), expected);
            // Lengths whose low 16 bits equal the flags of 1.10.
            let length_bytes = length_bytes & !0xFFFF | 1;
            let expected = Some(ready(tag, request, address, length_bytes));
            prop_assert_eq!(verbs(&ready_1_11(tag, request, address, length_bytes)), expected);
        }

        #[test]
        fn small_tags_and_ranks_are_read_as_the_release_that_wrote_them(
            context in 0u64..64,
            rank in 0u64..4096,
            mpi_tag in 0u64..1 << 16,
            request in prop_oneof![0u64..4096, 1u64 << 22..1 << 47],
            address in prop_oneof![Just(0u64), 1u64 << 22..1 << 47],
            length_bytes in (1u64..1 << 32).prop_filter("the known exception", |length| length & 0xFFFF != 1),
        ) {
            for tag in [mpi_tag << 40 | rank << 20 | context, context << 48 | rank << 32 | mpi_tag] {
                let expected = Some(ready(tag, request, address, length_bytes));
                prop_assert_eq!(verbs(&ready_1_11(tag, request, address, length_bytes)), expected);
                prop_assert_eq!(verbs(&ready_1_10(tag, request, address, length_bytes)), expected);
            }
        }
    }

    #[test]
    fn datagrams_name_endpoint_and_sequence() {
        let mut payload = Vec::new();
        payload.extend((2u32 << 27 | NETH_IS_MESSAGE | 0x1234).to_le_bytes());
        payload.extend(7u16.to_le_bytes());
        payload.extend(3u16.to_le_bytes());
        payload.extend(TAG.to_le_bytes());
        payload.extend([0; 5]);
        let head = datagram(&payload).unwrap();
        assert_eq!(head.datagram, Some(Datagram { endpoint: 0x1234, sequence: 7 }));
        assert_eq!(head.part, MpiMessagePart::Start(tagged(Protocol::Eager, Length::AfterHeaders(16), 16, None)));
        assert_eq!(datagram_without_message(&payload), None);
        let own = Some(Datagram { endpoint: 0x1234, sequence: 7 });
        for (word, expected) in [
            (0x1234, None),
            (1 << 27 | 0x1234, None),
            (1 << 28 | 0x1234, own),
            (1 << 29 | 0x1234, own),
            (1 << 29 | 0xFF_FFFF, None),
        ] {
            payload[..4].copy_from_slice(&u32::to_le_bytes(word));
            let other = datagram(&payload).unwrap();
            assert_eq!((other.part, other.datagram), (MpiMessagePart::Control, None), "{word:#x}");
            assert_eq!(datagram_without_message(&payload), expected, "{word:#x}");
        }
        assert_eq!(datagram_without_message(&payload[..5]), None);
    }

    #[test]
    fn first_bytes_distinguish_the_transports() {
        assert_eq!(verbs(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(mlx5(&am(2, &[TAG])), None);
        assert_eq!((verbs(&[]), mlx5(&[]), mlx5(&[0])), (None, None, None));
        // A flow-control grant is one byte with the upper bits set; ids from 29 on do not exist.
        assert_eq!((verbs(&[0xE0]), mlx5(&[0, 0xE0])), (Some(MpiMessagePart::Control), Some(MpiMessagePart::Control)));
        assert_eq!((verbs(&[29]), mlx5(&[0, 29]), mlx5(&[0, 0])), (None, None, None));
        // The upper bits may be set in any message.
        assert_eq!(verbs(&am(0xA0 | 4, &[1, 2])), verbs(&am(4, &[1, 2])));
    }

    #[test]
    fn truncated_headers_are_rejected() {
        for cut in 0..EAGER_FIRST_RECORDED.len() {
            assert_eq!(verbs(&EAGER_FIRST_RECORDED[..cut]), None, "{cut}");
        }
    }
}
