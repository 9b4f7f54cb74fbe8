//! Result types of [`link`](crate::link): the position of the InfiniBand packet in a record, or the
//! kind of record that has none. [`ib`](crate::ib) starts from a [`Location`].

use crate::field::Endpoint;
use crate::frame::LinkType;
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
    /// whole Ethernet frame. Linux cooked and raw IP records do not hold the Ethernet header: 14
    /// bytes are added for it, and frame padding is not counted.
    pub wire_bytes: u32,
    /// Source: the LID (native), the GID (`RoCEv1`) or the IP address (`RoCEv2`).
    pub src: Endpoint,
    /// Destination, of the same address type as the source.
    pub dst: Endpoint,
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
    /// Fragment of an IP packet: RoCE is never fragmented, and a lone fragment cannot be parsed.
    Fragment,
    /// Record of a link type that cannot carry InfiniBand transport.
    LinkType(LinkType),
    /// ERF record of this type.
    ErfType(u8),
    /// Raw InfiniBand packet (LNH 0 or 1) that is not a mirror copy.
    RawPacket,
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
