//! Result types of [`link`](crate::link): the position of the InfiniBand packet in a record, or the
//! kind of record that has none. [`ib`](crate::ib) starts from a [`Location`].

use crate::field::Endpoint;
use crate::frame::LinkType;
use crate::tunnel::{MAX_DEPTH, TunnelKind, TunnelKinds};
use core::fmt;

/// Protocol stack below the InfiniBand transport headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Encapsulation {
    /// LRH first, on an InfiniBand link.
    Native,
    /// GRH directly after `EtherType` 0x8915.
    RoceV1,
    /// BTH after IPv4 and UDP port 4791.
    RoceV2Ipv4,
    /// BTH after IPv6 and UDP port 4791.
    RoceV2Ipv6,
}

impl Encapsulation {
    /// Name used in messages and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "InfiniBand",
            Self::RoceV1 => "RoCEv1",
            Self::RoceV2Ipv4 => "RoCEv2/IPv4",
            Self::RoceV2Ipv6 => "RoCEv2/IPv6",
        }
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Position and addresses of the InfiniBand packet in a record. Offsets count from the record's
/// first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// Encapsulation of the packet.
    pub encapsulation: Encapsulation,
    /// Offset of the first InfiniBand byte: LRH (native), GRH (`RoCEv1`) or BTH (`RoCEv2`).
    pub start: usize,
    /// Offset of the first byte that the ICRC covers: IP header (`RoCEv2`), GRH (`RoCEv1`) or LRH
    /// (native).
    pub network: usize,
    /// Original length in bytes from `start` through the ICRC, even if the record is truncated.
    pub ib_bytes: usize,
    /// Original length on the wire in bytes: LRH through VCRC on native InfiniBand, otherwise the
    /// Ethernet frame without its checksum, as its headers state it: 14 bytes, tags, labels, and
    /// the IP total length, or up to 60 bytes with the padding that the record has. Bytes after
    /// that are a trailer of the capture and do not count. In tunnels, the innermost frame. Records
    /// and tunnels without the Ethernet header (Linux cooked, raw IP, IP in IP): 14 bytes are added
    /// for it, and padding is not counted.
    pub wire_bytes: u32,
    /// Source: the LID (native), the GID (`RoCEv1`) or the IP address (`RoCEv2`).
    pub src: Endpoint,
    /// Destination, of the same address type as the source.
    pub dst: Endpoint,
    /// Tunnels that were removed; none for a bare frame.
    pub tunnels: TunnelKinds,
}

impl Location {
    /// Offset just after the ICRC: `start + ib_bytes`.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.start.saturating_add(self.ib_bytes)
    }
}

/// Content of a record that holds no InfiniBand packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NotInfiniband {
    /// Ethernet frame with this `EtherType`; below 0x600 the value is the length of an 802.3 frame.
    EtherType(u16),
    /// IP packet with this protocol, or GRH with this next header.
    IpProtocol(u8),
    /// UDP datagram to this port.
    UdpPort(u16),
    /// Fragment of an IP packet that may hold RoCE or a tunnel: RoCE is never fragmented, a tunnel
    /// may be, and a lone fragment cannot be parsed.
    Fragment,
    /// GRE packet with this protocol.
    GreProtocol(u16),
    /// Tunnel whose header names content of an unknown type: a protocol, a frame type, or a version
    /// of the header (ERSPAN).
    TunnelPayload(TunnelKind, u16),
    /// Frame in more tunnels than are removed.
    TooDeep,
    /// Record of a link type that cannot carry InfiniBand transport.
    LinkType(LinkType),
    /// ERF record of this type.
    ErfType(u8),
    /// Raw InfiniBand packet (LNH 0 or 1) that is not a mirror copy.
    RawPacket,
}

impl NotInfiniband {
    /// True if the frame may hold RoCE that cannot be read: it is a fragment, or in a tunnel whose
    /// content is not known.
    #[must_use]
    pub const fn may_hold_roce(self) -> bool {
        match self {
            Self::Fragment | Self::TunnelPayload(..) | Self::TooDeep => true,
            // Not a frame: keepalives (0), OSI, CDP, redirected web traffic, PPP.
            Self::GreProtocol(protocol) => !matches!(protocol, 0 | 0x00FE | 0x2000 | 0x883E | 0x880B),
            _ => false,
        }
    }
}

impl fmt::Display for NotInfiniband {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EtherType(0x0806) => f.write_str("ARP"),
            Self::EtherType(0x8808) => f.write_str("Ethernet flow control"),
            Self::EtherType(0x88CC) => f.write_str("LLDP"),
            Self::EtherType(value) => write!(f, "EtherType {value:#06x}"),
            Self::IpProtocol(1) => f.write_str("ICMP"),
            Self::IpProtocol(2) => f.write_str("IGMP"),
            Self::IpProtocol(6) => f.write_str("TCP"),
            Self::IpProtocol(58) => f.write_str("ICMPv6"),
            Self::IpProtocol(value) => write!(f, "IP protocol {value}"),
            Self::UdpPort(value) => write!(f, "UDP port {value}"),
            Self::Fragment => f.write_str("IP fragment"),
            Self::GreProtocol(value) => write!(f, "GRE protocol {value:#06x}"),
            Self::TunnelPayload(kind, value) => write!(f, "{kind} with unknown content {value:#06x}"),
            Self::TooDeep => write!(f, "frame in more than {MAX_DEPTH} tunnels"),
            Self::LinkType(value) => write!(f, "link type {}", value.0),
            Self::ErfType(value) => write!(f, "ERF record type {value}"),
            Self::RawPacket => f.write_str("raw InfiniBand packet"),
        }
    }
}

/// Result of [`link::locate`](crate::link::locate).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkContent {
    /// An InfiniBand packet.
    Infiniband(Location),
    /// Another protocol; the headers read so far are complete.
    Other(NotInfiniband),
}
