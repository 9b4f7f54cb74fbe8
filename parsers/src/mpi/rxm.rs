//! libfabric's `verbs;ofi_rxm`: Open MPI's `mtl/ofi` and `btl/ofi`, MPICH `ch4:ofi`, Intel MPI over
//! verbs.
//!
//! Every SEND starts with 64 bytes, little-endian (`ofi_proto.h`, `rxm.h` of libfabric 1.8 to 2.6):
//!
//! ```text
//! P+0  control version = 4   P+1 control type   P+2 segment size u16   P+4 segment u32   P+8 connection id u64
//! P+16 message id u64        P+24 control data u64
//! P+32 op version = 2 or 3   P+33 receive index P+34 op P+35 op data   P+36 flags u32    P+40 size u64
//! P+48 completion data u64   P+56 tag u64       P+64 data
//! rendezvous request: P+64 four times {address u64, length u64, key u64}  P+160 how many are used u8
//! ```
//! The receiver of a rendezvous READs from these addresses and then responds with the sender's
//! message id (recorded). The MPI library above fills tag and completion data;
//! [`identity_open_mpi`], [`identity_mpich`] and the functions for messages without completion data
//! decode them.

use super::{Envelope, Identity, Length, MatchFields, MpiMessageId, MpiMessagePart, MpiMessageStart, Protocol, bytes};

/// Length of the header before the data of a message.
pub const HEADER_BYTES: usize = 64;
/// Control type of a message in a single SEND.
pub const EAGER: u8 = 0;
/// Control type of a segment of a message that is split into several SENDs.
pub const SEGMENT: u8 = 1;
/// Control type of a message whose data the receiver fetches by RDMA READ.
pub const RENDEZVOUS: u8 = 2;
/// Control type of the response to a rendezvous: the receiver has READ the data.
pub const READ_DONE: u8 = 3;
/// Operation: message without a tag.
pub const MESSAGE: u8 = 0;
/// Operation: message with a tag.
pub const TAGGED: u8 = 1;

/// Version of the control header (`RXM_CTRL_VERSION`).
const CONTROL_VERSION: u8 = 4;
/// Highest control type: 8 ends a rendezvous by WRITE.
const CONTROL_LAST: u8 = 8;
/// Versions of the operation header (`OFI_OP_VERSION`): libfabric 1.17 was recorded with 2; later
/// ones write 3.
const OP_VERSIONS: core::ops::RangeInclusive<u8> = 2..=3;
/// Highest operation (`ofi_op_*`).
const OP_LAST: u8 = 9;
/// Flags that mark valid completion data: `OFI_REMOTE_CQ_DATA` (bit 0) and libfabric's public
/// `FI_REMOTE_CQ_DATA` (bit 17), which op version 2 was recorded with.
const HAS_CQ_DATA: u32 = 1 | 1 << 17;
/// Length of a rendezvous request: the header, four entries of address, length and key, their
/// number, and 7 more bytes (`rxm_rndv_hdr`; recorded).
const RENDEZVOUS_BYTES: u32 = 168;
/// User addresses of the CPU (47 bits) or of a GPU (49 bits).
const ADDRESS: core::ops::Range<u64> = 1 << 12..1 << 49;
/// Upper limit of message lengths.
const SIZE_LIMIT_BYTES: u64 = 1 << 48;
/// Upper limit of ranks per job.
const RANK_LIMIT: u64 = 1 << 20;

/// Header of an rxm packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rxm {
    /// Control type, 0 to 8: [`EAGER`], [`SEGMENT`], [`RENDEZVOUS`], [`READ_DONE`], 4 atomic, 5
    /// atomic response, 6 credits, 7 and 8 WRITE rendezvous.
    pub control: u8,
    /// Operation, 0 to 9: [`MESSAGE`], [`TAGGED`]; the others are one-sided.
    pub op: u8,
    /// Flags of the operation; bit 0 or bit 17 marks valid completion data.
    pub flags: u32,
    /// Number of the segment, from 0, for control type [`SEGMENT`].
    pub segment: u32,
    /// The sender's id of the message, the same in all segments.
    pub message_id: u64,
    /// The receiver's id of the connection.
    pub connection_id: u64,
    /// Length of the whole message in bytes, also in segments and rendezvous requests. Packets
    /// without a message (ends of a rendezvous) were recorded with operation, size and tag of an
    /// earlier one.
    pub size_bytes: u64,
    /// Completion data, if the flags announce them.
    pub cq_data: Option<u64>,
    /// Tag of [`TAGGED`] messages.
    pub tag: u64,
    /// Offset of the data in the payload, in bytes.
    pub data_offset: usize,
}

impl Rxm {
    /// True for the first packet of a two-sided message: an eager message, the first segment, or a
    /// rendezvous request.
    #[must_use]
    pub const fn starts_message(&self) -> bool {
        let first = match self.control {
            EAGER | RENDEZVOUS => true,
            SEGMENT => self.segment == 0,
            _ => false,
        };
        first && self.op <= TAGGED
    }
}

/// Parses the header of a SEND; `None` if it is not from rxm.
#[must_use]
pub fn send(payload: &[u8]) -> Option<Rxm> {
    let [version, control] = bytes(payload, 0)?;
    let [op_version, _, op, _] = bytes(payload, 32)?;
    if version != CONTROL_VERSION || control > CONTROL_LAST || !OP_VERSIONS.contains(&op_version) || op > OP_LAST {
        return None;
    }
    let flags = u32::from_le_bytes(bytes(payload, 36)?);
    let size_bytes = u64::from_le_bytes(bytes(payload, 40)?);
    if size_bytes >= SIZE_LIMIT_BYTES {
        return None;
    }
    let cq_data = u64::from_le_bytes(bytes(payload, 48)?);
    Some(Rxm {
        control,
        op,
        flags,
        segment: u32::from_le_bytes(bytes(payload, 4)?),
        message_id: u64::from_le_bytes(bytes(payload, 16)?),
        connection_id: u64::from_le_bytes(bytes(payload, 8)?),
        size_bytes,
        cq_data: (flags & HAS_CQ_DATA != 0).then_some(cq_data),
        tag: u64::from_le_bytes(bytes(payload, 56)?),
        data_offset: HEADER_BYTES,
    })
}

/// Role of a SEND in the MPI protocol. One-sided operations and packets internal to rxm are
/// [`MpiMessagePart::Control`].
#[must_use]
pub fn part(payload: &[u8]) -> Option<MpiMessagePart> {
    let rxm = send(payload)?;
    Some(match rxm.control {
        // Ignore the operation: recorded packets repeat that of an earlier packet.
        READ_DONE => MpiMessagePart::Done { message: MpiMessageId::SenderRequest(rxm.message_id) },
        EAGER | SEGMENT | RENDEZVOUS if rxm.op > TAGGED => MpiMessagePart::Control,
        EAGER => rxm.start(Protocol::Eager, HEADER_BYTES as u32, None, None),
        SEGMENT if rxm.segment == 0 => {
            rxm.start(Protocol::Eager, HEADER_BYTES as u32, Some(MpiMessageId::MultiPacket(rxm.message_id)), None)
        }
        SEGMENT => MpiMessagePart::Data {
            message: MpiMessageId::MultiPacket(rxm.message_id),
            header_bytes: HEADER_BYTES as u32,
        },
        RENDEZVOUS => {
            let name = Some(MpiMessageId::SenderRequest(rxm.message_id));
            rxm.start(Protocol::Rendezvous, RENDEZVOUS_BYTES, name, memory(payload, rxm.size_bytes))
        }
        _ => MpiMessagePart::Control,
    })
}

impl Rxm {
    const fn start(
        &self,
        protocol: Protocol,
        header_bytes: u32,
        name: Option<MpiMessageId>,
        memory: Option<(u64, u64)>,
    ) -> MpiMessagePart {
        let matching = MatchFields::OfiTag(self.tag, self.cq_data);
        let envelope = Envelope { matching, length: Length::Explicit(self.size_bytes), sequence: None };
        // The READ_DONE packet carries the same message id.
        let done = if memory.is_some() { name } else { None };
        MpiMessagePart::Start(MpiMessageStart { envelope, protocol, header_bytes, id: name, memory, done_id: done })
    }
}

/// The first memory entry of a rendezvous request for `size_bytes`; most requests have one.
fn memory(payload: &[u8], size_bytes: u64) -> Option<(u64, u64)> {
    let address = u64::from_le_bytes(bytes(payload, HEADER_BYTES)?);
    let length_bytes = u64::from_le_bytes(bytes(payload, HEADER_BYTES + 8)?);
    (ADDRESS.contains(&address) && (1..=size_bytes).contains(&length_bytes)).then_some((address, length_bytes))
}

/// Decodes a tag of Open MPI's `mtl/ofi` with completion data: communicator in bits 63 to 34,
/// protocol in 33 and 32, tag in 31 to 0; the completion data are the sender's rank
/// (`mtl_ofi_types.h`).
///
/// `None` for invalid ranks and for acknowledgements of synchronous sends (bit 33), which are no
/// messages of the application.
#[must_use]
pub fn identity_open_mpi(tag: u64, cq_data: u64) -> Option<Identity> {
    open_mpi((tag >> 34) as u32, (tag >> 32) as u8, (tag as u32).cast_signed(), cq_data)
}

/// Decodes a tag of Open MPI's `mtl/ofi` without completion data, first form: communicator (12
/// bits), rank (18), protocol (2), tag (32).
#[must_use]
pub fn identity_open_mpi_12_18_32(tag: u64) -> Option<Identity> {
    open_mpi((tag >> 52) as u32, (tag >> 32) as u8, (tag as u32).cast_signed(), tag >> 34 & 0x3_FFFF)
}

/// Decodes a tag of Open MPI's `mtl/ofi` without completion data, second form: communicator (24
/// bits), rank (18), protocol (2), tag (20, signed).
#[must_use]
pub fn identity_open_mpi_24_18_20(tag: u64) -> Option<Identity> {
    // The arithmetic shift keeps the sign of the 20-bit tag.
    let mpi_tag = ((tag as u32) << 12).cast_signed() >> 12;
    open_mpi((tag >> 40) as u32, (tag >> 20) as u8, mpi_tag, tag >> 22 & 0x3_FFFF)
}

fn open_mpi(context: u32, protocol: u8, tag: i32, rank: u64) -> Option<Identity> {
    const SYNC_ACK: u8 = 2;
    if protocol & SYNC_ACK != 0 || rank >= RANK_LIMIT {
        return None;
    }
    Some(Identity { rank: rank as u32, context, tag, world: context == 0, collective: tag < 0 })
}

/// Decodes a tag of MPICH 3.4 and later with completion data: context in bits 50 to 31, tag in 30
/// to 0; the low 30 bits of the completion data are the sender's rank (`ofi_types.h`). The protocol
/// flags above the context differ between releases: [`protocol_mpich`].
#[must_use]
pub fn identity_mpich(tag: u64, cq_data: u64) -> Option<Identity> {
    mpich((tag >> 31) as u32 & 0xF_FFFF, (tag & 0x7FFF_FFFF) as u32, cq_data & 0x3FFF_FFFF)
}

/// Flag in [`protocol_mpich`] of an acknowledgement of a synchronous send, in 3.3 to 4.1
/// (`MPIDI_OFI_SYNC_SEND_ACK`). The other flags differ between releases.
pub const MPICH_ACKNOWLEDGES: u16 = 1;

/// The protocol flags above the context in a tag of [`identity_mpich`]: nonzero in synchronous
/// sends, their acknowledgements, huge messages and active messages.
#[must_use]
pub const fn protocol_mpich(tag: u64) -> u16 {
    (tag >> 51) as u16
}

/// Decodes a tag without completion data of MPICH 3.3, and of the `minimal` capability set of 3.4
/// and 4.0: context (16 bits) << 44, rank (24) << 20, tag (20).
#[must_use]
pub fn identity_mpich_16_24_20(tag: u64) -> Option<Identity> {
    mpich((tag >> 44) as u32 & 0xFFFF, (tag & 0xF_FFFF) as u32, tag >> 20 & 0xFF_FFFF)
}

fn mpich(context: u32, tag: u32, rank: u64) -> Option<Identity> {
    if rank >= RANK_LIMIT {
        return None;
    }
    let (world, collective) = (context <= 1, context & 1 == 1);
    Some(Identity { rank: rank as u32, context, tag: tag.cast_signed(), world, collective })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;
    use hex_literal::hex;

    /// Built from the layout: eager, tagged, 5 bytes, completion data 3, tag 7.
    fn packet(control: u8, segment: u32, op_version: u8, flags: u32) -> Vec<u8> {
        let mut payload = Vec::from([4, control, 0, 0x40]);
        payload.extend(segment.to_le_bytes());
        payload.extend(0x11u64.to_le_bytes());
        payload.extend(0x22u64.to_le_bytes());
        payload.extend([0; 8]);
        payload.extend([op_version, 0, 1, 0]);
        payload.extend(flags.to_le_bytes());
        payload.extend(5u64.to_le_bytes());
        payload.extend(3u64.to_le_bytes());
        payload.extend(7u64.to_le_bytes());
        payload.extend(*b"hello");
        payload
    }

    #[test]
    fn rendezvous_of_the_recorded_run() {
        // Open MPI over libfabric 1.17: rank 1, tag 9, 262144 bytes; connection 1, message 3.
        let payload = hex!(
            "04020040 03000000 0100000000000000 0300000000000000 0300000000000000"
            "02000100 00000200 0000040000000000 0100000000000000 0900000000000000"
        );
        let rxm = send(&payload).unwrap();
        assert_eq!((rxm.control, rxm.op, rxm.size_bytes, rxm.cq_data), (RENDEZVOUS, TAGGED, 262_144, Some(1)));
        assert_eq!((rxm.connection_id, rxm.message_id, rxm.tag), (1, 3, 9));
        assert!(rxm.starts_message());
        let identity = identity_open_mpi(rxm.tag, rxm.cq_data.unwrap()).unwrap();
        assert_eq!(identity, Identity { rank: 1, context: 0, tag: 9, world: true, collective: false });
    }

    #[test]
    fn memory_and_end_of_the_recorded_rendezvous() {
        let request = hex!(
            "04020040 03000000 0100000000000000 0300000000000000 0300000000000000"
            "02000100 00000200 0000040000000000 0100000000000000 0900000000000000"
            "00746a5e45560000 0000040000000000 1908000000000000"
        );
        let envelope =
            Envelope { matching: MatchFields::OfiTag(9, Some(1)), length: Length::Explicit(262_144), sequence: None };
        let name = Some(MpiMessageId::SenderRequest(3));
        // The receiver's READ names this address and length.
        let memory = Some((0x5645_5E6A_7400, 262_144));
        let start = MpiMessageStart {
            envelope,
            protocol: Protocol::Rendezvous,
            header_bytes: 168,
            id: name,
            memory,
            done_id: name,
        };
        assert_eq!(part(&request), Some(MpiMessagePart::Start(start)));
        assert_eq!(
            part(&request[..79]),
            Some(MpiMessagePart::Start(MpiMessageStart { memory: None, done_id: None, ..start })),
            "truncated"
        );
        // The response: the sender's message id, with size and tag of another message; then the
        // same with operation 6.
        let mut done: [u8; 64] = hex!(
            "04030040 00000000 0100000000000000 0300000000000000 0300000000000000"
            "02000100 00000200 0000010000000000 0100000000000000 0800000000000000"
        );
        assert_eq!(part(&done), Some(MpiMessagePart::Done { message: MpiMessageId::SenderRequest(3) }));
        done[34] = 6;
        assert_eq!(part(&done), Some(MpiMessagePart::Done { message: MpiMessageId::SenderRequest(3) }));
    }

    #[test]
    fn parts_by_control_type() {
        let start = |name| {
            let envelope =
                Envelope { matching: MatchFields::OfiTag(7, Some(3)), length: Length::Explicit(5), sequence: None };
            Some(MpiMessagePart::Start(MpiMessageStart {
                envelope,
                protocol: Protocol::Eager,
                header_bytes: 64,
                id: name,
                memory: None,
                done_id: None,
            }))
        };
        assert_eq!(part(&packet(EAGER, 0, 3, 1)), start(None));
        assert_eq!(part(&packet(SEGMENT, 0, 3, 1)), start(Some(MpiMessageId::MultiPacket(0x22))));
        let data = MpiMessagePart::Data { message: MpiMessageId::MultiPacket(0x22), header_bytes: 64 };
        assert_eq!(part(&packet(SEGMENT, 1, 3, 1)), Some(data));
        for control in 4..=8 {
            assert_eq!(part(&packet(control, 0, 3, 1)), Some(MpiMessagePart::Control), "{control}");
        }
        assert_eq!(part(&packet(9, 0, 3, 1)), None);
        for control in [EAGER, SEGMENT, RENDEZVOUS] {
            let mut one_sided = packet(control, 0, 3, 1);
            one_sided[34] = 4;
            assert_eq!(part(&one_sided), Some(MpiMessagePart::Control), "{control}");
        }
    }

    #[test]
    fn part_and_starts_message_agree() {
        for control in 0..=8 {
            for (segment, op) in [(0, MESSAGE), (0, TAGGED), (1, TAGGED), (0, 2)] {
                let mut payload = packet(control, segment, 3, 1);
                payload[34] = op;
                let is_start = matches!(part(&payload), Some(MpiMessagePart::Start(_)));
                assert_eq!(is_start, send(&payload).unwrap().starts_message(), "{control} {segment} {op}");
            }
        }
    }

    #[test]
    fn both_op_versions_and_both_flags() {
        for op_version in [2, 3] {
            for (flags, cq_data) in [(0, None), (1, Some(3)), (1 << 17, Some(3))] {
                let payload = packet(EAGER, 0, op_version, flags);
                let rxm = send(&payload).unwrap();
                assert_eq!((rxm.cq_data, rxm.tag, rxm.size_bytes), (cq_data, 7, 5));
                assert_eq!(&payload[rxm.data_offset..], b"hello");
            }
        }
        assert_eq!(send(&packet(EAGER, 0, 4, 0)), None);
        assert_eq!(send(&packet(9, 0, 3, 0)), None);
    }

    #[test]
    fn only_the_first_segment_starts_a_message() {
        let starts = |control, segment| send(&packet(control, segment, 3, 0)).unwrap().starts_message();
        assert!(starts(EAGER, 0) && starts(SEGMENT, 0) && starts(RENDEZVOUS, 3));
        assert!(!starts(SEGMENT, 1) && !starts(3, 0) && !starts(6, 0));
    }

    #[test]
    fn open_mpi_tags() {
        let ids = [
            identity_open_mpi(5 << 34 | 1 << 32 | 0xFFFF_FFE5, 2),
            identity_open_mpi_12_18_32(5 << 52 | 2 << 34 | 0xFFFF_FFE5),
            identity_open_mpi_24_18_20(5 << 40 | 2 << 22 | 1 << 20 | 0xF_FFE5),
        ];
        let expected = Identity { rank: 2, context: 5, tag: -27, world: false, collective: true };
        assert_eq!(ids, [Some(expected); 3]);
        assert_eq!(identity_open_mpi(2 << 32 | 7, 2), None, "acknowledgement of a synchronous send");
        assert_eq!(identity_open_mpi(7, 1 << 20), None);
    }

    #[test]
    fn mpich_tags() {
        let id = identity_mpich(1 << 51 | 0x21 << 31 | 0x7FFF_FFFF, 1 << 30 | 9).unwrap();
        assert_eq!(id, Identity { rank: 9, context: 0x21, tag: 0x7FFF_FFFF, world: false, collective: true });
        assert_eq!(protocol_mpich(1 << 51 | 0x21 << 31), 1);
        assert!(identity_mpich(1 << 31, 0).unwrap().world);
        let id = identity_mpich_16_24_20(4 << 44 | 9 << 20 | 0xD).unwrap();
        assert_eq!(id, Identity { rank: 9, context: 4, tag: 13, world: false, collective: false });
    }

    #[test]
    fn truncated_headers_are_rejected() {
        let payload = packet(EAGER, 0, 2, 1);
        for cut in 0..HEADER_BYTES {
            assert_eq!(send(&payload[..cut]), None, "{cut}");
        }
        assert!(send(&payload[..HEADER_BYTES]).is_some());
    }

    #[test]
    fn noise_is_not_taken() {
        // The version lets 1 in 256 pass, the op version 2 in 256; the check of the size does most
        // of the rest.
        let rate = noise::rate(80, &[(0, 4), (32, 2)], 2.0 / 65536.0, 400_000, |payload, _| send(payload).is_some());
        assert!(rate < 1e-6, "{rate}");
        // With a plausible size as well, only the remaining checks count.
        let sane = [(0, 4), (32, 2), (46, 0), (47, 0)];
        let rate = noise::rate(80, &sane, 2f64.powi(-31), 100_000, |payload, _| send(payload).is_some());
        assert!(rate < 1e-9, "{rate}");
    }
}
