//! MVAPICH2 `ch3:mrail`, releases 1.9 to 2.3.7, over RC, UD and its eager RDMA ring.
//!
//! Every packet starts with the same little-endian fields (`mpidpkt.h`; offsets of the x86-64
//! layout):
//!
//! ```text
//! P+0  type u8   P+2 sequence u16  P+4 acknowledged u16  P+6 credits u8, u8
//! P+8  u64: the receiver's connection as a pointer, or u32: the sender's world rank (hybrid mode, from 512 ranks)
//! P+16 credit u8 P+17 rail u8
//! eager, ready to send: P+20 request i32  P+24 tag i32  P+28 rank i16  P+30 context u16  P+32 length i64  P+40 data
//!    (ranks of 32 bits: P+28 rank i32  P+32 context u16  P+40 length i64  P+48 data)
//! ready to send: after the length, address u64 and keys.  clear to send: P+24 length i64, P+32 address u64, keys, two requests
//! ```
//! Most type numbers differ between builds, so ready to send, clear to send, and the synchronous
//! and ready sends are recognized by shape. Builds without header caching (types from 2 on are
//! shifted by two) or with GPU support are not recognized.

use super::{Envelope, Identity, Length, MatchFields, MpiMessageId, MpiMessagePart, MpiMessageStart, Protocol, bytes};

const EAGER_SEND: u8 = 0;
const EAGER_SEND_CONTIG: u8 = 1;
const FAST_EAGER: u8 = 2;
const FAST_EAGER_WITH_REQ: u8 = 3;
const RPUT_FINISH: u8 = 4;
const RGET_FINISH: u8 = 5;
/// Range of the types whose numbers depend on the build.
const BUILD_DEPENDENT: core::ops::RangeInclusive<u8> = 24..=48;
const TYPE_LAST: u8 = 64;
/// Limit of the rail number: at most 40 subrails can be configured.
const RAIL_LIMIT: u8 = 40;
const RANK_LIMIT: u32 = 1 << 20;
const LENGTH_LIMIT_BYTES: u64 = 1 << 40;
/// User addresses of 64-bit Linux: below 2^47, and above the first pages.
const ADDRESS: core::ops::Range<u64> = 1 << 16..1 << 47;
/// Length of the fields that all packets share.
const COMMON_BYTES: usize = 20;
/// Lengths of a ready to send or clear to send: keys of 4 to 10 HCAs, with and without 32-bit
/// ranks.
const RENDEZVOUS_BYTES: core::ops::RangeInclusive<u32> = 64..=256;
/// Length of the head and tail flags of a packet in the eager RDMA ring.
const FLAG_BYTES: usize = 8;

/// Fields at the start of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    /// Type; the meaning of most numbers depends on the build.
    pub kind: u8,
    /// Sequence number of the packet on its connection, from 0; 0xFFFF in packets without a number.
    pub sequence: u16,
    /// Sequence number of the last packet that the sender received.
    pub acknowledged: u16,
    /// Source field.
    pub source: SourceField,
    /// Rail number, from 0.
    pub rail: u8,
}

/// The source field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceField {
    /// The receiver's pointer to its connection, the same in all packets of a connection.
    Pointer(u64),
    /// The sender's world rank (hybrid mode). Small values with an empty upper half are no
    /// pointers.
    WorldRank(u32),
}

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mvapich2 {
    /// A message with all or the first of its data.
    Eager {
        /// Sender and tag.
        identity: Identity,
        /// Length of the MPI message in bytes.
        data_bytes: u64,
        /// Bytes from the start of the payload to the data.
        header_bytes: u32,
    },
    /// Ready to send: start of a rendezvous.
    Rts {
        /// Sender and tag.
        identity: Identity,
        /// Length of the MPI message in bytes.
        data_bytes: u64,
        /// The sender's request, which clear to send returns.
        sender_request: i32,
        /// Address of the data; 0 if they will not be READ.
        address: u64,
    },
    /// Clear to send: response of the receiver.
    Cts {
        /// The sender's request.
        sender_request: i32,
        /// The receiver's request.
        receiver_request: i32,
        /// Bytes that the receiver accepts.
        data_bytes: u64,
        /// Address to write the data to; 0 if they will be sent by SEND.
        address: u64,
    },
    /// The data of a rendezvous were written or read.
    Finish {
        /// Finished request: the receiver's after WRITE, the sender's after READ.
        message: MpiMessageId,
    },
    /// A message with the envelope of the last [`Self::Eager`] of up to 255 bytes on the same ring.
    CachedHeader {
        /// Length of the MPI message in bytes.
        data_bytes: u8,
        /// Sequence number of the packet on its connection.
        sequence: u16,
        /// The sender's request, if it expects a response.
        sender_request: Option<i32>,
    },
    /// A packet without an envelope.
    Other,
}

/// A message in a SEND that several messages share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalescedEnvelope {
    /// Offset of the packet header in the payload, in bytes.
    pub offset: usize,
    /// Sender and tag.
    pub identity: Identity,
    /// Length of the MPI message in bytes.
    pub data_bytes: u64,
}

/// Parses the common fields; `None` if they are implausible.
#[must_use]
pub fn common_header(payload: &[u8]) -> Option<CommonHeader> {
    let head: [u8; COMMON_BYTES] = bytes(payload, 0)?;
    // Reject a cleared buffer, which would parse as the first packet of world rank 0.
    if head.iter().all(|&byte| byte == 0) {
        return None;
    }
    let source = u64::from_le_bytes(bytes(&head, 8)?);
    let source = if source < u64::from(RANK_LIMIT) {
        SourceField::WorldRank(source as u32)
    } else if ADDRESS.contains(&source) {
        SourceField::Pointer(source)
    } else {
        return None;
    };
    let [kind] = bytes(&head, 0)?;
    let [rail] = bytes(&head, 17)?;
    let sequence = u16::from_le_bytes(bytes(&head, 2)?);
    let acknowledged = u16::from_le_bytes(bytes(&head, 4)?);
    (kind <= TYPE_LAST && rail < RAIL_LIMIT).then_some(CommonHeader { kind, sequence, acknowledged, source, rail })
}

/// Parses the packet at the start of a SEND or datagram with `message_bytes` of payload on the wire
/// (`None`: unknown).
///
/// If several messages share the SEND, the result is the first one; [`coalesced`] lists all.
/// Without the length, only eager sends and rendezvous requests are recognized.
#[must_use]
pub fn send(payload: &[u8], message_bytes: Option<u32>) -> Option<Mvapich2> {
    let common = common_header(payload)?;
    let build_dependent = BUILD_DEPENDENT.contains(&common.kind);
    if matches!(common.kind, EAGER_SEND | EAGER_SEND_CONTIG) || build_dependent {
        let eager =
            [NARROW_LAYOUT, WIDE_LAYOUT].into_iter().find_map(|shape| shape.eager(payload, common.kind, message_bytes));
        if eager.is_some() {
            return eager;
        }
    }
    if build_dependent && message_bytes.is_none_or(|length_bytes| RENDEZVOUS_BYTES.contains(&length_bytes)) {
        let rendezvous =
            [NARROW_LAYOUT, WIDE_LAYOUT].into_iter().find_map(|shape| shape.ready_to_send(payload, message_bytes));
        let rendezvous = rendezvous.or_else(|| clear_to_send(payload, message_bytes?));
        if rendezvous.is_some() {
            return rendezvous;
        }
    }
    let pointer = matches!(common.source, SourceField::Pointer(_));
    match (common.kind, message_bytes?) {
        (RPUT_FINISH | RGET_FINISH, length_bytes) if length_bytes == 24 || pointer && length_bytes <= 48 => {
            let request = i32::from_le_bytes(bytes(payload, 20)?) as u64;
            let of = if common.kind == RPUT_FINISH {
                MpiMessageId::ReceiverRequest(request)
            } else {
                MpiMessageId::SenderRequest(request)
            };
            Some(Mvapich2::Finish { message: of })
        }
        // The shapes of these types are known: reject any other shape.
        (EAGER_SEND | EAGER_SEND_CONTIG | FAST_EAGER | FAST_EAGER_WITH_REQ | RPUT_FINISH | RGET_FINISH, _) => None,
        // Many payloads have a small number at P+8; few have a pointer of more than 32 bits there.
        _ => matches!(common.source, SourceField::Pointer(pointer) if pointer >> 32 != 0).then_some(Mvapich2::Other),
    }
}

/// Role of a SEND or datagram of `message_bytes` on the wire (`None`: unknown) in the MPI protocol.
#[must_use]
pub fn part(payload: &[u8], message_bytes: Option<u32>) -> Option<MpiMessagePart> {
    match send(payload, message_bytes)? {
        // Only the last packet of a SEND shows whether more messages follow.
        Mvapich2::Eager { data_bytes, header_bytes, .. }
            if message_bytes.is_none_or(|all| u64::from(all) > u64::from(header_bytes) + data_bytes) =>
        {
            Some(MpiMessagePart::Coalesced)
        }
        packet => Some(packet.part(message_bytes?, 0)),
    }
}

/// Role of a WRITE of `dma_bytes` into an eager RDMA ring. The flags at both ends count as headers.
#[must_use]
pub fn ring_part(payload: &[u8], dma_bytes: u32) -> Option<MpiMessagePart> {
    // `header_bytes` already includes the flag before the data.
    Some(fast_path(payload, dma_bytes)?.part(dma_bytes, FLAG_BYTES as u32))
}

impl Mvapich2 {
    /// Role of the packet in a transport message of `message_bytes`, with `footer_bytes` after the
    /// data.
    const fn part(self, message_bytes: u32, footer_bytes: u32) -> MpiMessagePart {
        match self {
            Self::Eager { identity, data_bytes, header_bytes } => {
                let header_bytes = header_bytes + footer_bytes;
                start(identity, Protocol::Eager, data_bytes, header_bytes, None, 0)
            }
            // Keys follow, but no data.
            Self::Rts { identity, data_bytes, sender_request, address } => {
                let name = Some(MpiMessageId::SenderRequest(sender_request as u64));
                start(identity, Protocol::Rendezvous, data_bytes, message_bytes, name, address)
            }
            Self::Cts { sender_request, receiver_request, data_bytes, address } => {
                let receiver = Some(MpiMessageId::ReceiverRequest(receiver_request as u64));
                let (memory, done) = if address == 0 { (None, None) } else { (Some((address, data_bytes)), receiver) };
                MpiMessagePart::Grant {
                    message: MpiMessageId::SenderRequest(sender_request as u64),
                    receiver_id: receiver,
                    memory,
                    done_id: done,
                }
            }
            Self::CachedHeader { data_bytes, .. } => MpiMessagePart::Cached { mpi_bytes: data_bytes as u64 },
            Self::Finish { message: of } => MpiMessagePart::Done { message: of },
            Self::Other => MpiMessagePart::Control,
        }
    }
}

const fn start(
    identity: Identity,
    protocol: Protocol,
    data_bytes: u64,
    header_bytes: u32,
    name: Option<MpiMessageId>,
    address: u64,
) -> MpiMessagePart {
    let envelope =
        Envelope { matching: MatchFields::Named(identity), length: Length::Explicit(data_bytes), sequence: None };
    let (memory, done) = if address == 0 { (None, None) } else { (Some((address, 0)), name) };
    MpiMessagePart::Start(MpiMessageStart { envelope, protocol, header_bytes, id: name, memory, done_id: done })
}

/// Parses the packet in a WRITE of `dma_bytes` into an eager RDMA ring.
///
/// The packet is between two equal flags that hold its length. The flag at the end is checked if it
/// was captured. `header_bytes` counts from the start of the payload. The length of a message needs
/// neither the flags nor the last packet of the WRITE.
#[must_use]
pub fn fast_path(payload: &[u8], dma_bytes: u32) -> Option<Mvapich2> {
    let flag = u64::from_le_bytes(bytes(payload, 0)?);
    // Bit 15 alternates between the rounds of the ring.
    let content_bytes = (flag & 0x7FFF) as u32;
    if flag >> 16 != 0 || content_bytes == 0 || content_bytes.checked_add(16) != Some(dma_bytes) {
        return None;
    }
    let tail_at = FLAG_BYTES.checked_add(content_bytes as usize)?;
    if bytes(payload, tail_at).is_some_and(|tail| u64::from_le_bytes(tail) != flag) {
        return None;
    }
    let content = payload.get(FLAG_BYTES..)?;
    let content = content.get(..content_bytes as usize).unwrap_or(content);
    if let Some(cached) = cached_header(content, content_bytes) {
        return Some(cached);
    }
    if content.len() < COMMON_BYTES && content.len() < content_bytes as usize {
        // Truncated: the flag identifies the library, because its upper 48 bits are 0 and its lower
        // ones match the length.
        return Some(Mvapich2::Other);
    }
    match send(content, Some(content_bytes))? {
        Mvapich2::Eager { identity, data_bytes, header_bytes } => {
            Some(Mvapich2::Eager { identity, data_bytes, header_bytes: header_bytes + FLAG_BYTES as u32 })
        }
        packet => Some(packet),
    }
}

fn cached_header(content: &[u8], content_bytes: u32) -> Option<Mvapich2> {
    let [kind, data_bytes, s0, s1] = bytes(content, 0)?;
    let (header_bytes, sender_request) = match kind {
        FAST_EAGER => (4, None),
        FAST_EAGER_WITH_REQ => (8, Some(i32::from_le_bytes(bytes(content, 4)?))),
        _ => return None,
    };
    let sequence = u16::from_le_bytes([s0, s1]);
    (content_bytes == header_bytes + u32::from(data_bytes)).then_some(Mvapich2::CachedHeader {
        data_bytes,
        sequence,
        sender_request,
    })
}

/// All messages of a SEND of eager packets: one if nothing was coalesced, none if the first packet
/// is not eager. Ends with the captured bytes.
pub fn coalesced(payload: &[u8], message_bytes: u32) -> impl Iterator<Item = CoalescedEnvelope> + '_ {
    let mut next = 0;
    core::iter::from_fn(move || {
        let header = payload.get(next..)?;
        let left_bytes = u64::from(message_bytes).checked_sub(next as u64)?;
        let kind = common_header(header)?.kind;
        let (identity, data_bytes) = NARROW_LAYOUT.envelope(header)?;
        let offset = next;
        let part_bytes = data_bytes.checked_add(NARROW_LAYOUT.data as u64)?;
        // Synchronous and ready sends, whose types depend on the build, are never coalesced.
        let stands_alone = offset == 0 && BUILD_DEPENDENT.contains(&kind) && part_bytes == u64::from(message_bytes);
        if !matches!(kind, EAGER_SEND | EAGER_SEND_CONTIG) && !stands_alone {
            return None;
        }
        // A large message continues in further SENDs, so no other message follows it in this one.
        next = next.checked_add(usize::try_from(part_bytes.min(left_bytes)).ok()?)?;
        Some(CoalescedEnvelope { offset, identity, data_bytes })
    })
}

/// Offsets of the fields of an envelope.
#[derive(Clone, Copy)]
struct EnvelopeLayout {
    wide_rank: bool,
    context: usize,
    length: usize,
    data: usize,
}

/// 16-bit ranks, the default.
const NARROW_LAYOUT: EnvelopeLayout = EnvelopeLayout { wide_rank: false, context: 30, length: 32, data: 40 };
/// 32-bit ranks (`--with-ch3-rank-bits=32`).
const WIDE_LAYOUT: EnvelopeLayout = EnvelopeLayout { wide_rank: true, context: 32, length: 40, data: 48 };

impl EnvelopeLayout {
    fn envelope(self, payload: &[u8]) -> Option<(Identity, u64)> {
        let tag = i32::from_le_bytes(bytes(payload, 24)?);
        let rank = if self.wide_rank {
            i32::from_le_bytes(bytes(payload, 28)?)
        } else {
            i32::from(i16::from_le_bytes(bytes(payload, 28)?))
        };
        let context = u32::from(u16::from_le_bytes(bytes(payload, self.context)?));
        let data_bytes = u64::from_le_bytes(bytes(payload, self.length)?);
        if !(0..RANK_LIMIT.cast_signed()).contains(&rank) || data_bytes >= LENGTH_LIMIT_BYTES {
            return None;
        }
        // Context ids are those of MPICH: 0 and 1 are MPI_COMM_WORLD, odd ones are collective.
        let (world, collective) = (context <= 1, context & 1 == 1);
        Some((Identity { rank: rank.cast_unsigned(), context, tag, world, collective }, data_bytes))
    }

    fn eager(self, payload: &[u8], kind: u8, message_bytes: Option<u32>) -> Option<Mvapich2> {
        let (identity, data_bytes) = self.envelope(payload)?;
        let whole = Mvapich2::Eager { identity, data_bytes, header_bytes: self.data as u32 };
        let exact = message_bytes.map(|length_bytes| u64::from(length_bytes).checked_sub(self.data as u64));
        let taken = match exact {
            Some(data) if data == Some(data_bytes) => true,
            // Longer than this SEND: the first of several. A build-dependent type could be a ready
            // to send.
            Some(Some(data)) if data < data_bytes => kind == EAGER_SEND_CONTIG && !self.wide_rank,
            Some(Some(_)) => {
                !self.wide_rank
                    && kind <= EAGER_SEND_CONTIG
                    && self.next_is_plausible(payload, message_bytes?, data_bytes)
            }
            Some(None) => false,
            // A ready to send fits in one packet, so a longer SEND starts with an eager send,
            // synchronous or not.
            None => !self.wide_rank,
        };
        taken.then_some(whole)
    }

    /// True if a second packet header follows the data, or would follow after the captured bytes.
    fn next_is_plausible(self, payload: &[u8], message_bytes: u32, data_bytes: u64) -> bool {
        let at = data_bytes.saturating_add(self.data as u64);
        if u64::from(message_bytes) < at.saturating_add(self.data as u64) {
            return false;
        }
        let rest = usize::try_from(at).ok().and_then(|at| payload.get(at..)).unwrap_or_default();
        rest.len() < self.data
            || common_header(rest).is_some_and(|next| next.kind <= TYPE_LAST) && self.envelope(rest).is_some()
    }

    fn ready_to_send(self, payload: &[u8], message_bytes: Option<u32>) -> Option<Mvapich2> {
        let (identity, data_bytes) = self.envelope(payload)?;
        let address = u64::from_le_bytes(bytes(payload, self.data)?);
        let sender_request = i32::from_le_bytes(bytes(payload, COMMON_BYTES)?);
        let room = message_bytes.is_none_or(|length_bytes| length_bytes as usize >= self.data + 24);
        // Without RDMA the address is 0.
        let plausible = data_bytes > 0 && (address == 0 || ADDRESS.contains(&address)) && sender_request != 0 && room;
        plausible.then_some(Mvapich2::Rts { identity, data_bytes, sender_request, address })
    }
}

fn clear_to_send(payload: &[u8], message_bytes: u32) -> Option<Mvapich2> {
    let data_bytes = u64::from_le_bytes(bytes(payload, 24)?);
    let address = u64::from_le_bytes(bytes(payload, 32)?);
    // The two requests end the packet: at byte 136 with the keys of ten HCAs, earlier with fewer.
    let requests = (message_bytes as usize).checked_sub(8)?;
    let sender_request = i32::from_le_bytes(bytes(payload, requests)?);
    let receiver_request = i32::from_le_bytes(bytes(payload, requests.checked_add(4)?)?);
    let plausible = (1..LENGTH_LIMIT_BYTES).contains(&data_bytes)
        && (address == 0 || ADDRESS.contains(&address))
        && sender_request != 0
        && receiver_request != 0;
    plausible.then_some(Mvapich2::Cts { sender_request, receiver_request, data_bytes, address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;

    const POINTER: u64 = 0x0000_5566_1234_5680;
    const ADDRESS: u64 = 0x7F12_3456_7000;

    fn header(kind: u8, source: u64) -> Vec<u8> {
        let mut packet = Vec::from([kind, 0xEE, 7, 0, 6, 0, 1, 0]);
        packet.extend(source.to_le_bytes());
        packet.extend([2, 1, 0, 0]);
        packet
    }

    /// Constructed from the layout: rank 3, tag 17, context 1.
    fn envelope(kind: u8, wide: bool, data_bytes: u64) -> Vec<u8> {
        let mut packet = header(kind, POINTER);
        packet.extend(0x2C00_0001u32.to_le_bytes());
        packet.extend(17i32.to_le_bytes());
        if wide {
            packet.extend(3i32.to_le_bytes());
            packet.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        } else {
            packet.extend([3, 0, 1, 0]);
        }
        packet.extend(data_bytes.to_le_bytes());
        packet
    }

    fn eager(kind: u8, data_bytes: u64) -> Vec<u8> {
        let mut packet = envelope(kind, false, data_bytes);
        packet.extend(core::iter::repeat_n(0xAB, data_bytes as usize));
        packet
    }

    fn ready_to_send(kind: u8) -> Vec<u8> {
        let mut packet = envelope(kind, false, 1 << 20);
        packet.extend(ADDRESS.to_le_bytes());
        packet.extend(0x1234_5678u32.to_le_bytes());
        packet.resize(144, 0);
        packet
    }

    fn clear(kind: u8) -> Vec<u8> {
        let mut packet = header(kind, POINTER);
        packet.extend([0; 4]);
        packet.extend((1u64 << 20).to_le_bytes());
        packet.extend(ADDRESS.to_le_bytes());
        packet.extend(0x1234_5678u32.to_le_bytes());
        packet.resize(136, 0);
        packet.extend([1, 0, 0, 0x2C, 2, 0, 0, 0x2C]);
        packet
    }

    fn ring(content: &[u8]) -> Vec<u8> {
        let flag = (content.len() as u64 | 0x8000).to_le_bytes();
        [&flag, content, &flag].concat()
    }

    fn whole(packet: &[u8]) -> Option<Mvapich2> {
        send(packet, Some(packet.len() as u32))
    }

    const IDENTITY: Identity = Identity { rank: 3, context: 1, tag: 17, world: true, collective: true };

    #[test]
    fn eager_sends_of_all_types() {
        // Types 0 and 1, and build-dependent types of synchronous and ready sends.
        for kind in [0, 1, 29, 31] {
            let expected = Mvapich2::Eager { identity: IDENTITY, data_bytes: 100, header_bytes: 40 };
            assert_eq!(whole(&eager(kind, 100)), Some(expected), "{kind}");
            assert_eq!(send(&eager(kind, 100)[..48], Some(140)), Some(expected), "truncated after the header");
            let odd = send(&eager(kind, 100), Some(141));
            assert!(matches!(odd, None | Some(Mvapich2::Other)), "a byte that no header accounts for: {odd:?}");
        }
        let mut wide = envelope(0, true, 5);
        wide.extend([0; 5]);
        assert_eq!(whole(&wide), Some(Mvapich2::Eager { identity: IDENTITY, data_bytes: 5, header_bytes: 48 }));
    }

    #[test]
    fn rendezvous_by_shape() {
        for kind in [30, 32] {
            let expected = Mvapich2::Rts {
                identity: IDENTITY,
                data_bytes: 1 << 20,
                sender_request: 0x2C00_0001,
                address: ADDRESS,
            };
            assert_eq!(whole(&ready_to_send(kind)), Some(expected));
            let expected = Mvapich2::Cts {
                sender_request: 0x2C00_0001,
                receiver_request: 0x2C00_0002,
                data_bytes: 1 << 20,
                address: ADDRESS,
            };
            assert_eq!(whole(&clear(kind + 1)), Some(expected));
        }
        let mut finish = header(4, POINTER);
        finish.extend([2, 0, 0, 0x2C]);
        assert_eq!(whole(&finish), Some(Mvapich2::Finish { message: MpiMessageId::ReceiverRequest(0x2C00_0002) }));
        assert_eq!(whole(&header(12, POINTER)), Some(Mvapich2::Other));
    }

    #[test]
    fn source_is_a_pointer_or_a_world_rank() {
        assert_eq!(common_header(&header(0, POINTER)).unwrap().source, SourceField::Pointer(POINTER));
        let common = common_header(&header(1, 600)).unwrap();
        assert_eq!(common.source, SourceField::WorldRank(600));
        assert_eq!((common.kind, common.sequence, common.acknowledged, common.rail), (1, 7, 6, 1));
        assert_eq!(super::common_header(&header(0, 1 << 63)), None);
        assert_eq!(super::common_header(&[0; 40]), None);
    }

    #[test]
    fn ring_packets_stand_between_flags() {
        let packet = ring(&eager(0, 64));
        let expected = Mvapich2::Eager { identity: IDENTITY, data_bytes: 64, header_bytes: 48 };
        assert_eq!(fast_path(&packet, packet.len() as u32), Some(expected));
        assert_eq!(fast_path(&packet[..60], packet.len() as u32), Some(expected), "tail not captured");
        assert_eq!(fast_path(&packet, packet.len() as u32 + 1), None);
        let mut bad_tail = packet.clone();
        *bad_tail.last_mut().unwrap() = 1;
        assert_eq!(fast_path(&bad_tail, packet.len() as u32), None);

        let cached = ring(&[2, 3, 9, 0, 1, 2, 3]);
        let expected = Mvapich2::CachedHeader { data_bytes: 3, sequence: 9, sender_request: None };
        assert_eq!(fast_path(&cached, cached.len() as u32), Some(expected));
        let cached = ring(&[3, 1, 9, 0, 5, 0, 0, 0x2C, 1]);
        let expected = Mvapich2::CachedHeader { data_bytes: 1, sequence: 9, sender_request: Some(0x2C00_0005) };
        assert_eq!(fast_path(&cached, cached.len() as u32), Some(expected));
    }

    fn started(
        protocol: Protocol,
        bytes: u64,
        header_bytes: u32,
        name: Option<MpiMessageId>,
        address: u64,
    ) -> MpiMessagePart {
        let envelope =
            Envelope { matching: MatchFields::Named(IDENTITY), length: Length::Explicit(bytes), sequence: None };
        let memory = (address != 0).then_some((address, 0));
        MpiMessagePart::Start(MpiMessageStart {
            envelope,
            protocol,
            header_bytes,
            id: name,
            memory,
            done_id: memory.and(name),
        })
    }

    #[test]
    fn parts_of_sends() {
        let part_of = |packet: &[u8]| part(packet, Some(packet.len() as u32));
        assert_eq!(part_of(&eager(0, 100)), Some(started(Protocol::Eager, 100, 40, None, 0)));
        assert_eq!(
            part(&eager(1, 100), None),
            Some(MpiMessagePart::Coalesced),
            "others may follow in the next packets"
        );
        assert_eq!(part_of(&[eager(0, 5), eager(0, 7)].concat()), Some(MpiMessagePart::Coalesced));
        // Part of a large message: the data continue in other SENDs.
        assert_eq!(part(&eager(1, 9000), Some(8192)), Some(started(Protocol::Eager, 9000, 40, None, 0)));

        let request = Some(MpiMessageId::SenderRequest(0x2C00_0001));
        let asked =
            |header_bytes, address| Some(started(Protocol::Rendezvous, 1 << 20, header_bytes, request, address));
        let packet = ready_to_send(32);
        assert_eq!(part_of(&packet), asked(144, ADDRESS));
        let mut sent = packet;
        sent[40..48].fill(0);
        assert_eq!(part_of(&sent), asked(144, 0), "no address: the data come by SEND");

        let granted = |memory: Option<(u64, u64)>| {
            let receiver = Some(MpiMessageId::ReceiverRequest(0x2C00_0002));
            Some(MpiMessagePart::Grant {
                message: MpiMessageId::SenderRequest(0x2C00_0001),
                receiver_id: receiver,
                memory,
                done_id: memory.and(receiver),
            })
        };
        let mut packet = clear(33);
        assert_eq!(part_of(&packet), granted(Some((ADDRESS, 1 << 20))));
        packet[32..40].fill(0);
        assert_eq!(part_of(&packet), granted(None));

        let mut finish = header(4, POINTER);
        finish.extend([2, 0, 0, 0x2C]);
        assert_eq!(
            part_of(&finish),
            Some(MpiMessagePart::Done { message: MpiMessageId::ReceiverRequest(0x2C00_0002) })
        );
        finish[0] = 5;
        assert_eq!(part_of(&finish), Some(MpiMessagePart::Done { message: MpiMessageId::SenderRequest(0x2C00_0002) }));
        assert_eq!(part_of(&header(12, POINTER)), Some(MpiMessagePart::Control));
        assert_eq!(part_of(&[0; 40]), None);
    }

    #[test]
    fn parts_of_the_ring_count_its_flags() {
        let packet = ring(&eager(0, 64));
        assert_eq!(packet.len(), 56 + 64);
        assert_eq!(ring_part(&packet, 120), Some(started(Protocol::Eager, 64, 56, None, 0)));
        let packet = ring(&[2, 3, 9, 0, 1, 2, 3]);
        assert_eq!(ring_part(&packet, packet.len() as u32), Some(MpiMessagePart::Cached { mpi_bytes: 3 }));
        let packet = ring(&[3, 255, 9, 0, 5, 0, 0, 0x2C]);
        assert_eq!(ring_part(&packet, packet.len() as u32), None, "255 bytes are not there");
        let packet = ring(&header(12, POINTER));
        assert_eq!(ring_part(&packet, packet.len() as u32), Some(MpiMessagePart::Control));
        let packet = ring(&ready_to_send(32));
        let request = Some(MpiMessageId::SenderRequest(0x2C00_0001));
        assert_eq!(ring_part(&packet, 160), Some(started(Protocol::Rendezvous, 1 << 20, 160, request, ADDRESS)));
    }

    #[test]
    fn coalesced_messages_are_all_found() {
        let payload = [eager(0, 5), eager(0, 0), eager(1, 33)].concat();
        let length_bytes = payload.len() as u32;
        let parts: Vec<CoalescedEnvelope> = coalesced(&payload, length_bytes).collect();
        let found: Vec<_> = parts.iter().map(|part| (part.offset, part.data_bytes)).collect();
        assert_eq!(found, [(0, 5), (45, 0), (85, 33)]);
        assert!(matches!(whole(&payload), Some(Mvapich2::Eager { data_bytes: 5, .. })));
        for cut in 0..payload.len() {
            let seen: Vec<CoalescedEnvelope> = coalesced(&payload[..cut], length_bytes).collect();
            assert_eq!(seen, parts[..seen.len()], "{cut}");
            assert_eq!(seen.len(), [40, 85, 125].iter().filter(|&&end| end <= cut).count(), "{cut}");
        }
        assert_eq!(coalesced(&envelope(1, false, u64::MAX >> 30), 4096).count(), 1);
    }

    #[test]
    fn truncated_packets_are_not_misread() {
        for packet in [eager(0, 16), ready_to_send(32), clear(33)] {
            let expected = whole(&packet);
            for cut in 0..packet.len() {
                let seen = send(&packet[..cut], Some(packet.len() as u32));
                assert!(seen.is_none() || seen == expected || seen == Some(Mvapich2::Other), "{cut}: {seen:?}");
            }
        }
        let packet = ring(&eager(0, 16));
        let expected = fast_path(&packet, packet.len() as u32);
        for cut in 0..packet.len() {
            let seen = fast_path(&packet[..cut], packet.len() as u32);
            assert!(seen.is_none() || seen == expected || seen == Some(Mvapich2::Other), "{cut}: {seen:?}");
        }
    }

    #[test]
    fn noise_is_not_taken() {
        let (short, cut) = (144, 4096);
        for length_bytes in [short, cut] {
            // Forces an address below 2^48, which noise has with probability 1/65536.
            let forced = [(14, 0), (15, 0)];
            let any = noise::rate(144, &forced, 2f64.powi(-16), 200_000, |payload, _| {
                send(payload, Some(length_bytes)).is_some()
            });
            assert!(any < 1e-6, "{any}");
            let envelopes = noise::rate(144, &forced, 2f64.powi(-16), 200_000, |payload, _| {
                matches!(send(payload, Some(length_bytes)), Some(Mvapich2::Eager { .. } | Mvapich2::Rts { .. }))
            });
            assert!(envelopes < 1e-9, "{envelopes}");
        }
        let fast = noise::rate(144, &[(2, 0), (3, 0)], 2f64.powi(-16), 400_000, |payload, noise| {
            fast_path(payload, (noise.next() & 0x7FFF) as u32).is_some()
        });
        assert!(fast < 1e-9, "{fast}");
    }
}
