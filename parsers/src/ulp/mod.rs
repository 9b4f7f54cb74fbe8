//! Upper-layer protocols other than MPI libraries: storage, IP over InfiniBand, RDS.
//!
//! In: the first packet of a SEND or datagram, or a CM message. Out: the protocol whose format the
//! message matches. As for MPI libraries, a single match proves little: callers count the matches
//! per connection. A match is *distinctive* if a random payload has it with a probability below one
//! in a million; others only do not contradict the protocol. Messages are recognized here;
//! [`storage`] decodes the commands of storage protocols. In the layouts of the submodules, "P+n"
//! is byte n of the InfiniBand payload.

pub mod ipoib;
pub mod iser;
pub mod lustre;
pub mod nfs;
mod nfs_rpc;
pub mod nvmeof;
pub mod rds;
pub mod smb_direct;
pub mod srp;
pub mod storage;
mod storage_message;
mod storage_operation;

use crate::mpi::Payload;

/// An upper-layer protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum UpperLayer {
    /// `NVMe` over Fabrics, RDMA transport.
    NvmeOf,
    /// RPC-over-RDMA version 1, whose programs are those of NFS.
    Nfs,
    /// iSCSI extensions for RDMA.
    Iser,
    /// SCSI RDMA protocol.
    Srp,
    /// SMB Direct.
    SmbDirect,
    /// IP over InfiniBand, datagram and connected mode.
    Ipoib,
    /// Reliable Datagram Sockets.
    Rds,
    /// Lustre's `LNet` over verbs (`o2iblnd`).
    Lustre,
}

impl UpperLayer {
    /// All protocols, in the order of their discriminants.
    pub const ALL: [Self; 8] =
        [Self::NvmeOf, Self::Nfs, Self::Iser, Self::Srp, Self::SmbDirect, Self::Ipoib, Self::Rds, Self::Lustre];
}

/// The protocol that a message looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayerMessage {
    /// The protocol.
    pub protocol: UpperLayer,
    /// A random payload matches with a probability below one in a million.
    pub is_distinctive: bool,
}

/// Degree to which a payload matches a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchStrength {
    /// It does not contradict the protocol.
    Possible,
    /// A random payload matches with a probability below one in a million.
    Distinctive,
}

/// Finds the protocol of the first packet of a SEND (connected) or of a datagram.
///
/// The most distinctive layouts come first. A merely possible match counts only if no protocol
/// matches distinctively.
#[must_use]
pub fn recognize(is_datagram: bool, payload: &Payload<'_>) -> Option<UpperLayerMessage> {
    let ip = [(UpperLayer::Ipoib, ipoib::message as fn(&Payload<'_>) -> Option<MatchStrength>)];
    let connected = [
        (UpperLayer::Lustre, lustre::message as fn(&Payload<'_>) -> Option<MatchStrength>),
        (UpperLayer::Nfs, nfs::message),
        (UpperLayer::Rds, rds::message),
        (UpperLayer::SmbDirect, smb_direct::message),
        (UpperLayer::Iser, iser::message),
        (UpperLayer::NvmeOf, nvmeof::message),
        (UpperLayer::Srp, srp::message),
    ];
    let candidates = ip.iter().chain(connected.iter().filter(|_| !is_datagram));
    let mut possible = None;
    for (protocol, message) in candidates {
        let Some(strength) = message(payload) else { continue };
        let found = UpperLayerMessage { protocol: *protocol, is_distinctive: strength == MatchStrength::Distinctive };
        if found.is_distinctive {
            return Some(found);
        }
        possible = possible.or(Some(found));
    }
    possible
}

/// Service ids of the RDMA IP CM service, port space TCP (InfiniBand Architecture, annex A11). The
/// port is in the low 16 bits.
pub const IP_CM_TCP: u64 = 0x0000_0000_0106_0000;
/// Bytes of addresses that `rdma_cm` puts before the private data of a REQ.
const IP_HEADER_BYTES: usize = 36;

/// The TCP port of an IP CM service id.
#[must_use]
pub const fn tcp_port(service_id: u64) -> Option<u16> {
    if service_id & !0xFFFF == IP_CM_TCP { Some(service_id as u16) } else { None }
}

/// The protocol of a CM REQ, from its service id and its private data. A port that is registered
/// for another protocol than the private data show gives `None`.
#[must_use]
pub fn of_request(service_id: u64, private_data: &[u8]) -> Option<UpperLayer> {
    if ipoib::is_service(service_id) {
        return Some(UpperLayer::Ipoib);
    }
    let Some(port) = tcp_port(service_id) else {
        return srp::is_login(private_data).then_some(UpperLayer::Srp);
    };
    let own = of_private_data(private_data.get(IP_HEADER_BYTES..).unwrap_or_default());
    match (of_port(port), own) {
        (Some(port), Some(own)) if port != own => None,
        (port, own) => port.or(own),
    }
}

/// The protocol of a CM REP, from its private data.
#[must_use]
pub fn of_reply(private_data: &[u8]) -> Option<UpperLayer> {
    of_private_data(private_data)
}

/// The protocol whose format identifier begins the private data.
fn of_private_data(data: &[u8]) -> Option<UpperLayer> {
    if nfs::is_private_data(data) {
        Some(UpperLayer::Nfs)
    } else if lustre::is_private_data(data) {
        Some(UpperLayer::Lustre)
    } else {
        None
    }
}

/// The protocol that a TCP port is registered for, or that the kernel uses it for. Linux gives
/// `rdma_cm` programs without a port of their own one from 32768 on, so a program that is none of
/// these protocols has such a port only if its user chose it.
const fn of_port(port: u16) -> Option<UpperLayer> {
    match port {
        nvmeof::PORT => Some(UpperLayer::NvmeOf),
        nfs::PORT => Some(UpperLayer::Nfs),
        iser::PORT => Some(UpperLayer::Iser),
        smb_direct::PORT | smb_direct::IWARP_PORT => Some(UpperLayer::SmbDirect),
        rds::PORT | rds::IPV6_PORT => Some(UpperLayer::Rds),
        lustre::PORT => Some(UpperLayer::Lustre),
        _ => None,
    }
}

/// The `N` bytes at `offset`; `None` if they were not captured.
fn bytes<const N: usize>(payload: &[u8], offset: usize) -> Option<[u8; N]> {
    payload.get(offset..)?.first_chunk::<N>().copied()
}

/// True if all bytes of the range are captured and zero.
fn is_zero(payload: &[u8], range: core::ops::Range<usize>) -> bool {
    payload.get(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// True if the message is this long, or if its length is not known.
fn has_length(payload: &Payload<'_>, bytes: u64) -> bool {
    payload.message_bytes.is_none_or(|message_bytes| u64::from(message_bytes) == bytes)
}

#[cfg(test)]
mod tests;
