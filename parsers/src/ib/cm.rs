//! Communication management (CM): the messages that set up and tear down connections.
//!
//! They name the queue pairs of both ends, which no other packet of a connection does. Field
//! offsets are those of the tables in chapter 12 of the InfiniBand Architecture, counted from the
//! end of the MAD header.

use crate::error::take;
use crate::field::{Lid, Psn, Qpn};
use crate::ib::{MadHeader, be16, be32, be64};
use crate::{Layer, ParseError};

/// Transport service that a REQ requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CmTransport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Service given by the extended transport type; 1 is XRC.
    Extended(u8),
}

/// Path of a REQ between two ports, primary or alternate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPath {
    /// LID of the sender's port.
    pub local_lid: Lid,
    /// LID of the receiver's port.
    pub remote_lid: Lid,
    /// GID of the sender's port.
    pub local_gid: [u8; 16],
    /// GID of the receiver's port.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Code of the packet rate, 6 bits.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: u8,
    /// True if both ports are in one subnet.
    pub subnet_local: bool,
    /// Code of the local ACK timeout, 5 bits: 4.096 us * 2^code.
    pub ack_timeout: u8,
}

/// REQ: request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmReq<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// Service requested; `rdma_cm` puts the port in the low 16 bits.
    pub service_id: u64,
    /// GUID of the sender's adapter.
    pub local_ca_guid: u64,
    /// Queue key, for datagram services.
    pub local_q_key: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// Outstanding READs and atomics that the sender can serve as responder.
    pub responder_resources: u8,
    /// The sender's end-to-end context, 24 bits.
    pub local_eecn: u32,
    /// Outstanding READs and atomics that the sender will initiate.
    pub initiator_depth: u8,
    /// The receiver's end-to-end context, 24 bits.
    pub remote_eecn: u32,
    /// Code of the receiver's response timeout, 5 bits.
    pub remote_cm_timeout: u8,
    /// Transport service requested.
    pub transport: CmTransport,
    /// True if the sender supports end-to-end flow control.
    pub flow_control: bool,
    /// PSN that the *receiver* of this message must use in its first request.
    pub starting_psn: Psn,
    /// Code of the sender's response timeout, 5 bits.
    pub local_cm_timeout: u8,
    /// Transport retry count, 3 bits.
    pub retry_count: u8,
    /// Partition key.
    pub p_key: u16,
    /// Code of the path MTU, 4 bits; see [`CmReq::path_mtu_bytes`].
    pub path_mtu: u8,
    /// True if a reliable datagram channel exists.
    pub rdc_exists: bool,
    /// Retries after "receiver not ready", 3 bits; 7 means unlimited.
    pub rnr_retry_count: u8,
    /// Retries of this message, 4 bits.
    pub max_cm_retries: u8,
    /// True if the sender uses a shared receive queue.
    pub srq: bool,
    /// Primary path.
    pub primary: CmPath,
    /// Alternate path, all zero if there is none.
    pub alternate: CmPath,
    /// Private data of the application, up to 92 bytes.
    pub private_data: &'a [u8],
}

impl CmReq<'_> {
    /// Path MTU, the largest payload of a packet, in bytes; `None` for a reserved code.
    #[must_use]
    pub const fn path_mtu_bytes(&self) -> Option<u16> {
        match self.path_mtu {
            1 => Some(256),
            2 => Some(512),
            3 => Some(1024),
            4 => Some(2048),
            5 => Some(4096),
            _ => None,
        }
    }
}

/// MRA: the sender received a message and will respond later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMra<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// The receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Message that was received, 2 bits: 0 REQ, 1 REP, 2 LAP.
    pub message: u8,
    /// Code of the time that the sender needs, 5 bits.
    pub service_timeout: u8,
    /// Private data of the application, up to 222 bytes.
    pub private_data: &'a [u8],
}

/// REJ: rejection of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmRej<'a> {
    /// The sender's id of the connection; 0 if it has none.
    pub local_comm_id: u32,
    /// The receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Message that is rejected, 2 bits: 0 REQ, 1 REP, 2 no message.
    pub message: u8,
    /// Valid bytes of `info`, 7 bits.
    pub info_bytes: u8,
    /// Reason code.
    pub reason: u16,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Private data of the application, up to 148 bytes.
    pub private_data: &'a [u8],
}

/// REP: acceptance of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmRep<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// The receiver's id of the connection: `local_comm_id` of the REQ.
    pub remote_comm_id: u32,
    /// Queue key, for datagram services.
    pub local_q_key: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// The sender's end-to-end context, 24 bits; its queue pair for XRC.
    pub local_eecn: u32,
    /// PSN that the *receiver* of this message must use in its first request.
    pub starting_psn: Psn,
    /// Outstanding READs and atomics that the sender can serve as responder.
    pub responder_resources: u8,
    /// Outstanding READs and atomics that the sender will initiate.
    pub initiator_depth: u8,
    /// Code of the delay before an ACK, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path was accepted, 2 bits.
    pub failover_accepted: u8,
    /// True if the sender supports end-to-end flow control.
    pub flow_control: bool,
    /// Retries after "receiver not ready", 3 bits; 7 means unlimited.
    pub rnr_retry_count: u8,
    /// True if the sender uses a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub local_ca_guid: u64,
    /// Private data of the application, up to 196 bytes.
    pub private_data: &'a [u8],
}

/// RTU (ready to use) or DREP (reply to a disconnect request): a message with the two connection
/// ids only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmIds<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// The receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Private data of the application, up to 224 bytes.
    pub private_data: &'a [u8],
}

/// DREQ: request to disconnect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmDreq<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// The receiver's id of the connection.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data of the application, up to 220 bytes.
    pub private_data: &'a [u8],
}

/// SIDR REQ: request for the queue pair of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmSidrReq<'a> {
    /// The sender's id of the request.
    pub request_id: u32,
    /// Partition key.
    pub p_key: u16,
    /// Service requested.
    pub service_id: u64,
    /// Private data of the application, up to 216 bytes.
    pub private_data: &'a [u8],
}

/// SIDR REP: reply to a [`CmSidrReq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmSidrRep<'a> {
    /// `request_id` of the request.
    pub request_id: u32,
    /// Status; 0 means that the queue pair is valid.
    pub status: u8,
    /// Valid bytes of `info`.
    pub info_bytes: u8,
    /// Queue pair of the service.
    pub qpn: Qpn,
    /// Service requested.
    pub service_id: u64,
    /// Queue key of the service.
    pub q_key: u32,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Private data of the application, up to 136 bytes.
    pub private_data: &'a [u8],
}

/// LAP: proposal of another alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmLap<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// The receiver's id of the connection.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// LID of the sender's port on the new path.
    pub alternate_local_lid: Lid,
    /// LID of the receiver's port on the new path.
    pub alternate_remote_lid: Lid,
    /// GID of the sender's port on the new path.
    pub alternate_local_gid: [u8; 16],
    /// GID of the receiver's port on the new path.
    pub alternate_remote_gid: [u8; 16],
    /// Private data of the application, up to 168 bytes.
    pub private_data: &'a [u8],
}

/// APR: reply to a [`CmLap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmApr<'a> {
    /// The sender's id of the connection.
    pub local_comm_id: u32,
    /// The receiver's id of the connection.
    pub remote_comm_id: u32,
    /// Valid bytes of `info`.
    pub info_bytes: u8,
    /// Status; 0 means that the path was loaded.
    pub status: u8,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Private data of the application, up to 148 bytes.
    pub private_data: &'a [u8],
}

/// A communication management message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmMessage<'a> {
    /// Request for a connection.
    Req(CmReq<'a>),
    /// Acknowledgement of a message that will be answered later.
    Mra(CmMra<'a>),
    /// Rejection.
    Rej(CmRej<'a>),
    /// Acceptance.
    Rep(CmRep<'a>),
    /// The connection is ready to use.
    Rtu(CmIds<'a>),
    /// Request to disconnect.
    Dreq(CmDreq<'a>),
    /// Reply to a disconnect request.
    Drep(CmIds<'a>),
    /// Request for the queue pair of a datagram service.
    SidrReq(CmSidrReq<'a>),
    /// Reply to [`CmMessage::SidrReq`].
    SidrRep(CmSidrRep<'a>),
    /// Proposal of another alternate path.
    Lap(CmLap<'a>),
    /// Reply to [`CmMessage::Lap`].
    Apr(CmApr<'a>),
}

/// Length of a MAD in bytes.
const MAD_BYTES: usize = 256;

impl<'a> CmMessage<'a> {
    /// Parses the message of a management datagram that begins at its MAD header.
    ///
    /// Private data and additional information may be truncated by the capture; the captured part
    /// is returned.
    ///
    /// # Errors
    /// The fields before the private data are truncated, the class is not CM, or the attribute is
    /// no CM message.
    pub fn parse(mad: &'a [u8]) -> Result<Self, ParseError> {
        let header = MadHeader::parse(mad)?;
        if header.class != MadHeader::CLASS_CM {
            return Err(ParseError::invalid(Layer::Mad, "MgmtClass", u64::from(header.class)));
        }
        let body = mad.get(MadHeader::LEN..mad.len().min(MAD_BYTES)).unwrap_or_default();
        Self::parse_body(header.attr_id, body).map_err(|error| match error.layer {
            Layer::Cm => error.add_offset(MadHeader::LEN),
            _ => error,
        })
    }

    /// Name used in messages and outputs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
            Self::Lap(_) => "LAP",
            Self::Apr(_) => "APR",
        }
    }

    fn parse_body(attr_id: u16, body: &'a [u8]) -> Result<Self, ParseError> {
        Ok(match attr_id {
            0x10 => Self::Req(req(body)?),
            0x11 => {
                let fields = take::<10>(body, Layer::Cm)?;
                Self::Mra(CmMra {
                    local_comm_id: be32(fields, 0),
                    remote_comm_id: be32(fields, 4),
                    message: fields[8] >> 6,
                    service_timeout: fields[9] >> 3,
                    private_data: captured_range(body, 10, 232),
                })
            }
            0x12 => {
                let fields = take::<12>(body, Layer::Cm)?;
                Self::Rej(CmRej {
                    local_comm_id: be32(fields, 0),
                    remote_comm_id: be32(fields, 4),
                    message: fields[8] >> 6,
                    info_bytes: fields[9] >> 1,
                    reason: be16(fields, 10),
                    info: captured_range(body, 12, 84),
                    private_data: captured_range(body, 84, 232),
                })
            }
            0x13 => Self::Rep(rep(body)?),
            0x14 => Self::Rtu(ids(body)?),
            0x15 => {
                let fields = take::<12>(body, Layer::Cm)?;
                Self::Dreq(CmDreq {
                    local_comm_id: be32(fields, 0),
                    remote_comm_id: be32(fields, 4),
                    remote_qpn: Qpn::new(be24(fields, 8)),
                    private_data: captured_range(body, 12, 232),
                })
            }
            0x16 => Self::Drep(ids(body)?),
            0x17 => {
                let fields = take::<16>(body, Layer::Cm)?;
                Self::SidrReq(CmSidrReq {
                    request_id: be32(fields, 0),
                    p_key: be16(fields, 4),
                    service_id: be64(fields, 8),
                    private_data: captured_range(body, 16, 232),
                })
            }
            0x18 => {
                let fields = take::<24>(body, Layer::Cm)?;
                Self::SidrRep(CmSidrRep {
                    request_id: be32(fields, 0),
                    status: fields[4],
                    info_bytes: fields[5],
                    qpn: Qpn::new(be24(fields, 8)),
                    service_id: be64(fields, 12),
                    q_key: be32(fields, 20),
                    info: captured_range(body, 24, 96),
                    private_data: captured_range(body, 96, 232),
                })
            }
            0x19 => {
                let fields = take::<64>(body, Layer::Cm)?;
                Self::Lap(CmLap {
                    local_comm_id: be32(fields, 0),
                    remote_comm_id: be32(fields, 4),
                    remote_qpn: Qpn::new(be24(fields, 12)),
                    alternate_local_lid: Lid(be16(fields, 20)),
                    alternate_remote_lid: Lid(be16(fields, 22)),
                    alternate_local_gid: gid(fields, 24),
                    alternate_remote_gid: gid(fields, 40),
                    private_data: captured_range(body, 64, 232),
                })
            }
            0x1A => {
                let fields = take::<12>(body, Layer::Cm)?;
                Self::Apr(CmApr {
                    local_comm_id: be32(fields, 0),
                    remote_comm_id: be32(fields, 4),
                    info_bytes: fields[8],
                    status: fields[9],
                    info: captured_range(body, 12, 84),
                    private_data: captured_range(body, 84, 232),
                })
            }
            other => return Err(ParseError::invalid(Layer::Mad, "AttributeID", u64::from(other))),
        })
    }
}

fn req(body: &[u8]) -> Result<CmReq<'_>, ParseError> {
    let fields = take::<140>(body, Layer::Cm)?;
    Ok(CmReq {
        local_comm_id: be32(fields, 0),
        service_id: be64(fields, 8),
        local_ca_guid: be64(fields, 16),
        local_q_key: be32(fields, 28),
        local_qpn: Qpn::new(be24(fields, 32)),
        responder_resources: fields[35],
        local_eecn: be24(fields, 36),
        initiator_depth: fields[39],
        remote_eecn: be24(fields, 40),
        remote_cm_timeout: fields[43] >> 3,
        transport: match fields[43] >> 1 & 0x03 {
            0 => CmTransport::Rc,
            1 => CmTransport::Uc,
            2 => CmTransport::Rd,
            _ => CmTransport::Extended(fields[51] & 0x07),
        },
        flow_control: fields[43] & 0x01 != 0,
        starting_psn: Psn::new(be24(fields, 44)),
        local_cm_timeout: fields[47] >> 3,
        retry_count: fields[47] & 0x07,
        p_key: be16(fields, 48),
        path_mtu: fields[50] >> 4,
        rdc_exists: fields[50] & 0x08 != 0,
        rnr_retry_count: fields[50] & 0x07,
        max_cm_retries: fields[51] >> 4,
        srq: fields[51] & 0x08 != 0,
        primary: path(fields, 52),
        alternate: path(fields, 96),
        private_data: captured_range(body, 140, 232),
    })
}

/// Parses the 44 bytes of a path in a REQ.
fn path(fields: &[u8; 140], at: usize) -> CmPath {
    let rate = be32(fields, at + 36);
    let [traffic_class, hop_limit, sl, ack_timeout] = be32(fields, at + 40).to_be_bytes();
    CmPath {
        local_lid: Lid(be16(fields, at)),
        remote_lid: Lid(be16(fields, at + 2)),
        local_gid: gid(fields, at + 4),
        remote_gid: gid(fields, at + 20),
        flow_label: rate >> 12,
        packet_rate: (rate & 0x3F) as u8,
        traffic_class,
        hop_limit,
        sl: sl >> 4,
        subnet_local: sl & 0x08 != 0,
        ack_timeout: ack_timeout >> 3,
    }
}

fn rep(body: &[u8]) -> Result<CmRep<'_>, ParseError> {
    let fields = take::<36>(body, Layer::Cm)?;
    Ok(CmRep {
        local_comm_id: be32(fields, 0),
        remote_comm_id: be32(fields, 4),
        local_q_key: be32(fields, 8),
        local_qpn: Qpn::new(be24(fields, 12)),
        local_eecn: be24(fields, 16),
        starting_psn: Psn::new(be24(fields, 20)),
        responder_resources: fields[24],
        initiator_depth: fields[25],
        target_ack_delay: fields[26] >> 3,
        failover_accepted: fields[26] >> 1 & 0x03,
        flow_control: fields[26] & 0x01 != 0,
        rnr_retry_count: fields[27] >> 5,
        srq: fields[27] & 0x10 != 0,
        local_ca_guid: be64(fields, 28),
        private_data: captured_range(body, 36, 232),
    })
}

fn ids(body: &[u8]) -> Result<CmIds<'_>, ParseError> {
    let fields = take::<8>(body, Layer::Cm)?;
    Ok(CmIds {
        local_comm_id: be32(fields, 0),
        remote_comm_id: be32(fields, 4),
        private_data: captured_range(body, 8, 232),
    })
}

/// The captured part of `body[start..end]`.
fn captured_range(body: &[u8], start: usize, end: usize) -> &[u8] {
    body.get(start..body.len().min(end)).unwrap_or_default()
}

/// The 24 bits at `at`.
fn be24<const N: usize>(fields: &[u8; N], at: usize) -> u32 {
    be32(fields, at) >> 8
}

fn gid<const N: usize>(fields: &[u8; N], at: usize) -> [u8; 16] {
    fields.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ib::samples::{CM_DREQ, CM_REP, CM_REQ, CM_RTU};
    use hex_literal::hex;
    use std::vec::Vec;

    /// Ethernet 14, IPv4 20, UDP 8, BTH 12, DETH 8; the ICRC follows the MAD.
    fn mad(frame: &[u8; 322]) -> &[u8] {
        &frame[62..318]
    }

    /// A message whose bytes after the MAD header count up from 0.
    fn counting(attr_id: u8) -> Vec<u8> {
        let mut mad = hex!("01 07 02 03 0000 0000 0000000000000001 0000 0000 00000000").to_vec();
        mad[17] = attr_id;
        mad.extend(0..232u8);
        mad
    }

    #[test]
    fn a_recorded_connection_names_both_queue_pairs() {
        let Ok(CmMessage::Req(req)) = CmMessage::parse(mad(&CM_REQ)) else { panic!() };
        // The port of the service is perftest's 18515; the PSNs are those of the first requests in
        // the recording.
        assert_eq!((req.local_comm_id, req.service_id), (0x972D_9B99, 0x0000_0000_0106_4853));
        assert_eq!(req.service_id & 0xFFFF, 18515);
        assert_eq!((req.local_qpn, req.starting_psn), (Qpn::new(0xE8), Psn::new(0x77_29BD)));
        assert_eq!((req.transport, req.p_key, req.path_mtu_bytes()), (CmTransport::Rc, 0xFFFF, Some(4096)));
        assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries, req.srq), (7, 7, 15, false));
        assert_eq!((req.primary.local_lid, req.primary.remote_lid), (Lid(0xFFFF), Lid(0xFFFF)));
        assert_eq!(req.primary.local_gid, hex!("00000000000000000000ffff0a4d0001"));
        assert_eq!(req.primary.remote_gid, hex!("00000000000000000000ffff0a4d0002"));
        assert_eq!((req.primary.flow_label, req.primary.hop_limit), (0x2_5C87, 64));
        assert_eq!(req.alternate.local_gid, [0; 16]);
        assert_eq!(req.private_data.len(), 92);
        assert_eq!(req.private_data[32..36], [10, 77, 0, 2]);

        let Ok(CmMessage::Rep(rep)) = CmMessage::parse(mad(&CM_REP)) else { panic!() };
        assert_eq!((rep.local_comm_id, rep.remote_comm_id), (0xA078_0A65, req.local_comm_id));
        assert_eq!((rep.local_qpn, rep.starting_psn), (Qpn::new(0xDF), Psn::new(0xF7_3DA5)));
        assert_eq!((rep.local_ca_guid, rep.rnr_retry_count, rep.srq), (0x5054_00FF_FE00_0002, 7, false));

        let Ok(CmMessage::Rtu(rtu)) = CmMessage::parse(mad(&CM_RTU)) else { panic!() };
        assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), (req.local_comm_id, rep.local_comm_id));
        let Ok(CmMessage::Dreq(dreq)) = CmMessage::parse(mad(&CM_DREQ)) else { panic!() };
        assert_eq!((dreq.local_comm_id, dreq.remote_comm_id), (0x962D_9B99, 0xA678_0A65));
        assert_eq!(dreq.remote_qpn, Qpn::new(0xE0));
    }

    #[test]
    fn every_field_of_a_request_has_its_offset() {
        let bytes = counting(0x10);
        let Ok(CmMessage::Req(req)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!(req.local_comm_id, 0x0001_0203);
        assert_eq!(req.service_id, 0x0809_0A0B_0C0D_0E0F);
        assert_eq!(req.local_ca_guid, 0x1011_1213_1415_1617);
        assert_eq!(req.local_q_key, 0x1C1D_1E1F);
        assert_eq!((req.local_qpn, req.responder_resources), (Qpn::new(0x20_2122), 35));
        assert_eq!((req.local_eecn, req.initiator_depth), (0x24_2526, 39));
        assert_eq!(req.remote_eecn, 0x28_292A);
        // Byte 43 = 0b00101_01_1.
        assert_eq!((req.remote_cm_timeout, req.transport, req.flow_control), (5, CmTransport::Uc, true));
        // Byte 47 = 0b00101_111.
        assert_eq!((req.starting_psn, req.local_cm_timeout, req.retry_count), (Psn::new(0x2C_2D2E), 5, 7));
        assert_eq!(req.p_key, 0x3031);
        // Byte 50 = 0b0011_0_010, byte 51 = 0b0011_0_011.
        assert_eq!((req.path_mtu, req.rdc_exists, req.rnr_retry_count), (3, false, 2));
        assert_eq!((req.path_mtu_bytes(), req.max_cm_retries, req.srq), (Some(1024), 3, false));
        assert_eq!((req.primary.local_lid, req.primary.remote_lid), (Lid(0x3435), Lid(0x3637)));
        assert_eq!(req.primary.local_gid, hex!("38393a3b3c3d3e3f4041424344454647"));
        assert_eq!(req.primary.remote_gid, hex!("48494a4b4c4d4e4f5051525354555657"));
        // Bytes 88 to 91 = 58 59 5a 5b; 91 = 0b01_011011; 94 = 0b0101_1_110; 95 = 0b01011_111.
        assert_eq!((req.primary.flow_label, req.primary.packet_rate), (0x5_8595, 0b01_1011));
        assert_eq!((req.primary.traffic_class, req.primary.hop_limit), (92, 93));
        assert_eq!((req.primary.sl, req.primary.subnet_local, req.primary.ack_timeout), (5, true, 11));
        assert_eq!((req.alternate.local_lid, req.alternate.remote_lid), (Lid(0x6061), Lid(0x6263)));
        assert_eq!((req.alternate.local_gid[0], req.alternate.remote_gid[15]), (100, 131));
        assert_eq!((req.alternate.flow_label, req.alternate.traffic_class), (0x8_4858, 136));
        assert_eq!((req.private_data[0], req.private_data.len()), (140, 92));
    }

    #[test]
    fn transports_and_sizes_have_the_codes_of_the_table() {
        let transport = |bits: u8, extended: u8| {
            let mut bytes = counting(0x10);
            bytes[24 + 43] = bits << 1;
            bytes[24 + 51] = 0x08 | extended;
            bytes[24 + 50] = 0x98;
            let Ok(CmMessage::Req(req)) = CmMessage::parse(&bytes) else { panic!() };
            assert!(req.srq && req.rdc_exists && req.path_mtu_bytes().is_none());
            req.transport
        };
        assert_eq!(
            [transport(0, 1), transport(1, 1), transport(2, 1)],
            [CmTransport::Rc, CmTransport::Uc, CmTransport::Rd]
        );
        assert_eq!(transport(3, 1), CmTransport::Extended(1));
        let mtu = |code: u8| {
            let mut bytes = counting(0x10);
            bytes[24 + 50] = code << 4;
            let Ok(CmMessage::Req(req)) = CmMessage::parse(&bytes) else { panic!() };
            req.path_mtu_bytes()
        };
        assert_eq!([1, 2, 3, 4, 5].map(mtu), [Some(256), Some(512), Some(1024), Some(2048), Some(4096)]);
        assert_eq!([0, 6, 15].map(mtu), [None; 3]);
    }

    #[test]
    fn every_field_of_the_other_messages_has_its_offset() {
        let (local, remote) = (0x0001_0203, 0x0405_0607);
        let bytes = counting(0x13);
        let Ok(CmMessage::Rep(rep)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((rep.local_comm_id, rep.remote_comm_id, rep.local_q_key), (local, remote, 0x0809_0A0B));
        assert_eq!((rep.local_qpn, rep.local_eecn), (Qpn::new(0x0C_0D0E), 0x10_1112));
        assert_eq!((rep.starting_psn, rep.responder_resources, rep.initiator_depth), (Psn::new(0x14_1516), 24, 25));
        // Byte 26 = 0b00011_01_0, byte 27 = 0b000_1_1011.
        assert_eq!((rep.target_ack_delay, rep.failover_accepted, rep.flow_control), (3, 1, false));
        assert_eq!((rep.rnr_retry_count, rep.srq, rep.local_ca_guid), (0, true, 0x1C1D_1E1F_2021_2223));
        assert_eq!((rep.private_data[0], rep.private_data.len()), (36, 196));

        let bytes = counting(0x12);
        let Ok(CmMessage::Rej(rej)) = CmMessage::parse(&bytes) else { panic!() };
        // Byte 8 = 0b00_001000, byte 9 = 0b0000100_1.
        assert_eq!((rej.local_comm_id, rej.remote_comm_id, rej.message, rej.info_bytes), (local, remote, 0, 4));
        assert_eq!((rej.reason, rej.info.len(), rej.info[0]), (0x0A0B, 72, 12));
        assert_eq!((rej.private_data[0], rej.private_data.len()), (84, 148));

        let mut bytes = counting(0x11);
        bytes[24 + 8] = 0x80;
        let Ok(CmMessage::Mra(mra)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((mra.local_comm_id, mra.remote_comm_id, mra.message, mra.service_timeout), (local, remote, 2, 1));
        assert_eq!((mra.private_data[0], mra.private_data.len()), (10, 222));

        let (rtu, drep) = (counting(0x14), counting(0x16));
        let (Ok(CmMessage::Rtu(rtu)), Ok(CmMessage::Drep(drep))) = (CmMessage::parse(&rtu), CmMessage::parse(&drep))
        else {
            panic!()
        };
        assert_eq!(rtu, drep);
        assert_eq!((rtu.local_comm_id, rtu.remote_comm_id, rtu.private_data.len()), (local, remote, 224));

        let bytes = counting(0x15);
        let Ok(CmMessage::Dreq(dreq)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((dreq.local_comm_id, dreq.remote_comm_id, dreq.remote_qpn), (local, remote, Qpn::new(0x08_090A)));
        assert_eq!((dreq.private_data[0], dreq.private_data.len()), (12, 220));

        let bytes = counting(0x17);
        let Ok(CmMessage::SidrReq(sidr)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((sidr.request_id, sidr.p_key, sidr.service_id), (local, 0x0405, 0x0809_0A0B_0C0D_0E0F));
        assert_eq!((sidr.private_data[0], sidr.private_data.len()), (16, 216));

        let bytes = counting(0x18);
        let Ok(CmMessage::SidrRep(sidr)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((sidr.request_id, sidr.status, sidr.info_bytes, sidr.qpn), (local, 4, 5, Qpn::new(0x08_090A)));
        assert_eq!((sidr.service_id, sidr.q_key), (0x0C0D_0E0F_1011_1213, 0x1415_1617));
        assert_eq!((sidr.info[0], sidr.info.len(), sidr.private_data[0], sidr.private_data.len()), (24, 72, 96, 136));

        let bytes = counting(0x19);
        let Ok(CmMessage::Lap(lap)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((lap.local_comm_id, lap.remote_comm_id, lap.remote_qpn), (local, remote, Qpn::new(0x0C_0D0E)));
        assert_eq!((lap.alternate_local_lid, lap.alternate_remote_lid), (Lid(0x1415), Lid(0x1617)));
        assert_eq!((lap.alternate_local_gid[0], lap.alternate_remote_gid[0]), (24, 40));
        assert_eq!((lap.private_data[0], lap.private_data.len()), (64, 168));

        let bytes = counting(0x1A);
        let Ok(CmMessage::Apr(apr)) = CmMessage::parse(&bytes) else { panic!() };
        assert_eq!((apr.local_comm_id, apr.remote_comm_id, apr.info_bytes, apr.status), (local, remote, 8, 9));
        assert_eq!((apr.info[0], apr.info.len(), apr.private_data[0], apr.private_data.len()), (12, 72, 84, 148));
    }

    #[test]
    fn truncated_private_data_yield_the_captured_part() {
        // Length in bytes of the fields before the private data, by attribute.
        let fixed = [140, 10, 12, 36, 8, 12, 8, 16, 24, 64, 12];
        for (attr_id, fixed) in (0x10..).zip(fixed) {
            let whole = counting(attr_id);
            for there in 0..whole.len() {
                let message = CmMessage::parse(&whole[..there]);
                assert_eq!(message.is_ok(), there >= MadHeader::LEN + fixed, "{attr_id:#x} {there}");
                if let Err(error) = message {
                    assert!(error.is_truncated() && error.offset == if there < 24 { 0 } else { 24 });
                }
            }
        }
        let whole = counting(0x10);
        let Ok(CmMessage::Req(req)) = CmMessage::parse(&whole[..24 + 150]) else { panic!() };
        assert_eq!(req.private_data, [140, 141, 142, 143, 144, 145, 146, 147, 148, 149]);
    }

    #[test]
    fn other_classes_and_attributes_are_rejected() {
        let mut bytes = counting(0x1B);
        assert_eq!(CmMessage::parse(&bytes), Err(ParseError::invalid(Layer::Mad, "AttributeID", 0x1B)));
        bytes[1] = 0x03;
        assert_eq!(CmMessage::parse(&bytes), Err(ParseError::invalid(Layer::Mad, "MgmtClass", 3)));
    }
}
