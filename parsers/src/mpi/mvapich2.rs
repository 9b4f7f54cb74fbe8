//! MVAPICH2 `ch3:mrail`, releases 1.9 to 2.3.7, over RC, UD and its eager RDMA ring.
//!
//! Every packet starts with the same fields, little-endian (`mpidpkt.h`; offsets of the x86-64 layout):
//!
//! ```text
//! P+0  type u8   P+2 sequence u16  P+4 acknowledged u16  P+6 credits u8, u8
//! P+8  u64: the receiver's connection as a pointer, or u32: the sender's world rank (hybrid mode, from 512 ranks)
//! P+16 credit u8 P+17 rail u8
//! eager, ready to send: P+20 request i32  P+24 tag i32  P+28 rank i16  P+30 context u16  P+32 length i64  P+40 data
//!    (ranks of 32 bits: P+28 rank i32  P+32 context u16  P+40 length i64  P+48 data)
//! ready to send: after the length, address u64 and keys.  clear to send: P+24 length i64, P+32 address u64, keys, two requests
//! ```
//! The numbers of most types differ between builds, so ready to send, clear to send and the synchronous and ready sends are
//! recognised by shape. Builds without header caching (types from 2 on shifted by two) and with GPU support are not known here.

use super::{Identity, bytes};

const EAGER_SEND: u8 = 0;
const EAGER_SEND_CONTIG: u8 = 1;
const FAST_EAGER: u8 = 2;
const FAST_EAGER_WITH_REQ: u8 = 3;
const RPUT_FINISH: u8 = 4;
const RGET_FINISH: u8 = 5;
/// The types whose numbers depend on the build lie between these.
const BUILD_DEPENDENT: core::ops::RangeInclusive<u8> = 24..=48;
const TYPE_LAST: u8 = 64;
/// Rails: at most 40 subrails are configurable.
const RAIL_LIMIT: u8 = 40;
const RANK_LIMIT: u32 = 1 << 20;
const LENGTH_LIMIT_BYTES: u64 = 1 << 40;
/// User addresses of 64-bit Linux lie below, and above the first pages.
const ADDRESS: core::ops::Range<u64> = 1 << 16..1 << 47;
/// Fields common to all packets, up to the first field of a type.
const COMMON_BYTES: usize = 20;
/// Lengths that a ready to send or clear to send has: 4 to 10 HCAs' keys, with and without 32-bit ranks.
const RENDEZVOUS_BYTES: core::ops::RangeInclusive<u32> = 64..=256;
/// Head and tail flag of a packet in the eager RDMA ring.
const FLAG_BYTES: usize = 8;

/// The fields at the start of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Type; what most numbers mean depends on the build.
    pub kind: u8,
    /// Number of the packet on its connection, from 0; 0xFFFF in packets that are not counted.
    pub sequence: u16,
    /// Number of the last packet that the sender has received.
    pub acknowledged: u16,
    /// What the sender writes as source.
    pub source: Source,
    /// Rail, from 0.
    pub rail: u8,
}

/// The source field of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Pointer of the receiver to its connection: the same in all packets of a connection.
    Pointer(u64),
    /// The sender's world rank (hybrid mode). A value that small with an empty upper half is no pointer.
    WorldRank(u32),
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mvapich2 {
    /// A message with its data, or with the first of them.
    Eager {
        /// Sender and tag.
        identity: Identity,
        /// Length of the MPI message, in bytes.
        data_bytes: u64,
        /// Bytes before the data, from the start of the payload.
        header_bytes: u32,
    },
    /// Ready to send: the start of a rendezvous.
    Rts {
        /// Sender and tag.
        identity: Identity,
        /// Length of the MPI message, in bytes.
        data_bytes: u64,
        /// The sender's request, which clear to send repeats.
        sender_request: i32,
    },
    /// Clear to send: the answer of the receiver.
    Cts {
        /// The sender's request.
        sender_request: i32,
        /// The receiver's request.
        receiver_request: i32,
        /// Bytes that the receiver takes.
        data_bytes: u64,
    },
    /// The data of a rendezvous have been written or read.
    Finish {
        /// The request that is finished: the receiver's after WRITE, the sender's after READ.
        request: i32,
    },
    /// A message whose envelope equals that of the last [`Self::Eager`] of up to 255 bytes on the same ring.
    CachedHeader {
        /// Length of the MPI message, in bytes.
        data_bytes: u8,
        /// Number of the packet on its connection.
        sequence: u16,
        /// The sender's request, where it wants an answer.
        sender_request: Option<i32>,
    },
    /// A packet without an envelope.
    Other,
}

/// One message of several that share a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where its packet header starts in the payload, in bytes.
    pub offset: usize,
    /// Sender and tag.
    pub identity: Identity,
    /// Length of the MPI message, in bytes.
    pub data_bytes: u64,
}

/// The common fields, if they are plausible.
#[must_use]
pub fn common(payload: &[u8]) -> Option<Common> {
    let head: [u8; COMMON_BYTES] = bytes(payload, 0)?;
    // A cleared buffer would be the first packet of world rank 0.
    if head.iter().all(|&byte| byte == 0) {
        return None;
    }
    let source = u64::from_le_bytes(bytes(&head, 8)?);
    let source = if source < u64::from(RANK_LIMIT) {
        Source::WorldRank(source as u32)
    } else if ADDRESS.contains(&source) {
        Source::Pointer(source)
    } else {
        return None;
    };
    let [kind] = bytes(&head, 0)?;
    let [rail] = bytes(&head, 17)?;
    let sequence = u16::from_le_bytes(bytes(&head, 2)?);
    let acknowledged = u16::from_le_bytes(bytes(&head, 4)?);
    (kind <= TYPE_LAST && rail < RAIL_LIMIT).then_some(Common { kind, sequence, acknowledged, source, rail })
}

/// The packet at the start of a SEND or datagram of `message_bytes` payload bytes on the wire; `None`: the length is not known.
///
/// Where several messages share the SEND this is the first of them: [`coalesced`] lists all. Without the length only eager
/// sends and rendezvous requests are recognised.
#[must_use]
pub fn send(payload: &[u8], message_bytes: Option<u32>) -> Option<Mvapich2> {
    let common = common(payload)?;
    let build_dependent = BUILD_DEPENDENT.contains(&common.kind);
    if matches!(common.kind, EAGER_SEND | EAGER_SEND_CONTIG) || build_dependent {
        let eager = [NARROW, WIDE].into_iter().find_map(|shape| shape.eager(payload, common.kind, message_bytes));
        if eager.is_some() {
            return eager;
        }
    }
    if build_dependent && message_bytes.is_none_or(|length_bytes| RENDEZVOUS_BYTES.contains(&length_bytes)) {
        let rendezvous = [NARROW, WIDE].into_iter().find_map(|shape| shape.ready_to_send(payload, message_bytes));
        let rendezvous = rendezvous.or_else(|| clear_to_send(payload, message_bytes?));
        if rendezvous.is_some() {
            return rendezvous;
        }
    }
    let pointer = matches!(common.source, Source::Pointer(_));
    match (common.kind, message_bytes?) {
        (RPUT_FINISH | RGET_FINISH, length_bytes) if length_bytes == 24 || pointer && length_bytes <= 48 => {
            Some(Mvapich2::Finish { request: i32::from_le_bytes(bytes(payload, 20)?) })
        }
        // The shapes of these types are known: what does not have them is something else.
        (EAGER_SEND | EAGER_SEND_CONTIG | FAST_EAGER | FAST_EAGER_WITH_REQ | RPUT_FINISH | RGET_FINISH, _) => None,
        // Small numbers stand at P+8 in many payloads, pointers of more than 32 bits in few.
        _ => matches!(common.source, Source::Pointer(pointer) if pointer >> 32 != 0).then_some(Mvapich2::Other),
    }
}

/// The packet in a WRITE of `dma_bytes` into an eager RDMA ring: between two equal flags that hold its length.
///
/// The flag at the end is checked where the capture reaches it. `header_bytes` counts from the start of the payload, and
/// for the length of a message neither the flags nor the last packet of the WRITE are needed.
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

/// All messages of a SEND of eager packets, back to back; one where nothing was coalesced, none where the first packet is no
/// eager one. Ends with the captured bytes.
pub fn coalesced(payload: &[u8], message_bytes: u32) -> impl Iterator<Item = Part> + '_ {
    let mut next = 0;
    core::iter::from_fn(move || {
        let header = payload.get(next..)?;
        let left_bytes = u64::from(message_bytes).checked_sub(next as u64)?;
        common(header).filter(|common| matches!(common.kind, EAGER_SEND | EAGER_SEND_CONTIG))?;
        let (identity, data_bytes) = NARROW.envelope(header)?;
        let offset = next;
        let part_bytes = data_bytes.checked_add(NARROW.data as u64)?;
        // The data of a large message go on in further SENDs: nothing follows it in this one.
        next = next.checked_add(usize::try_from(part_bytes.min(left_bytes)).ok()?)?;
        Some(Part { offset, identity, data_bytes })
    })
}

/// Where the fields of an envelope stand.
#[derive(Clone, Copy)]
struct Shape {
    wide_rank: bool,
    context: usize,
    length: usize,
    data: usize,
}

/// Ranks of 16 bits, the default.
const NARROW: Shape = Shape { wide_rank: false, context: 30, length: 32, data: 40 };
/// Ranks of 32 bits (`--with-ch3-rank-bits=32`).
const WIDE: Shape = Shape { wide_rank: true, context: 32, length: 40, data: 48 };

impl Shape {
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
        // Context ids are MPICH's: 0 and 1 are MPI_COMM_WORLD, odd ones are for collectives.
        let (world, collective) = (context <= 1, context & 1 == 1);
        Some((Identity { rank: rank.cast_unsigned(), context, tag, world, collective }, data_bytes))
    }

    fn eager(self, payload: &[u8], kind: u8, message_bytes: Option<u32>) -> Option<Mvapich2> {
        let (identity, data_bytes) = self.envelope(payload)?;
        let whole = Mvapich2::Eager { identity, data_bytes, header_bytes: self.data as u32 };
        let exact = message_bytes.map(|length_bytes| u64::from(length_bytes).checked_sub(self.data as u64));
        let taken = match exact {
            Some(data) if data == Some(data_bytes) => true,
            // Longer than this SEND: the first of several. Types that vary with the build would not be told from ready to send.
            Some(Some(data)) if data < data_bytes => kind == EAGER_SEND_CONTIG && !self.wide_rank,
            Some(Some(_)) => !self.wide_rank && kind <= EAGER_SEND_CONTIG && self.next_is_plausible(payload, message_bytes?, data_bytes),
            Some(None) => false,
            None => !self.wide_rank && kind <= EAGER_SEND_CONTIG,
        };
        taken.then_some(whole)
    }

    /// True where a second packet header follows the data, or would follow beyond what was captured.
    fn next_is_plausible(self, payload: &[u8], message_bytes: u32, data_bytes: u64) -> bool {
        let at = data_bytes.saturating_add(self.data as u64);
        if u64::from(message_bytes) < at.saturating_add(self.data as u64) {
            return false;
        }
        let rest = usize::try_from(at).ok().and_then(|at| payload.get(at..)).unwrap_or_default();
        rest.len() < self.data || common(rest).is_some_and(|next| next.kind <= TYPE_LAST) && self.envelope(rest).is_some()
    }

    fn ready_to_send(self, payload: &[u8], message_bytes: Option<u32>) -> Option<Mvapich2> {
        let (identity, data_bytes) = self.envelope(payload)?;
        let address = u64::from_le_bytes(bytes(payload, self.data)?);
        let sender_request = i32::from_le_bytes(bytes(payload, COMMON_BYTES)?);
        let room = message_bytes.is_none_or(|length_bytes| length_bytes as usize >= self.data + 24);
        // Without RDMA there is no address.
        let plausible = data_bytes > 0 && (address == 0 || ADDRESS.contains(&address)) && sender_request != 0 && room;
        plausible.then_some(Mvapich2::Rts { identity, data_bytes, sender_request })
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
    plausible.then_some(Mvapich2::Cts { sender_request, receiver_request, data_bytes })
}
