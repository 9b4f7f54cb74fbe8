//! Where in a record an InfiniBand packet lies, or what lies there instead: what [`link`](crate::link) finds and
//! [`ib`](crate::ib) reads from.

use crate::field::Endpoint;
use crate::frame::LinkType;
use core::fmt;

/// What carries the InfiniBand transport headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Framed {
    /// LRH first, on an InfiniBand link.
    Native,
    /// GRH directly behind `EtherType` 0x8915.
    RoceV1,
    /// BTH behind IPv4 and UDP port 4791.
    RoceV2Ipv4,
    /// BTH behind IPv6 and UDP port 4791.
    RoceV2Ipv6,
}

impl Framed {
    /// The name used in messages and outputs.
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

impl fmt::Display for Framed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the InfiniBand packet of a record lies, and between whom it travels. Offsets count from the record's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// What carries it.
    pub framed: Framed,
    /// Offset of the first InfiniBand byte: LRH (native), GRH (`RoCEv1`) or BTH (`RoCEv2`).
    pub start: usize,
    /// Offset of what the ICRC begins with: the IP header (`RoCEv2`), the GRH (`RoCEv1`) or the LRH (native).
    pub network: usize,
    /// True length in bytes from `start` through the ICRC, also when the record is cut.
    pub ib_bytes: usize,
    /// True length on the wire in bytes: LRH through VCRC on native InfiniBand, else the whole Ethernet frame as sent.
    /// Linux cooked and raw IP records do not hold the frame: there 14 bytes of Ethernet header are added to what they do
    /// hold, and padding is unknown.
    pub wire_bytes: u32,
    /// Source: the LID (native), the GID (`RoCEv1`) or the IP address (`RoCEv2`).
    pub src: Endpoint,
    /// Destination, of the same kind as the source.
    pub dst: Endpoint,
}

impl Location {
    /// The offset behind the ICRC: `start + ib_bytes`.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.start.saturating_add(self.ib_bytes)
    }
}

/// What a record holds that is no InfiniBand packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NotInfiniband {
    /// An Ethernet frame with this `EtherType` (below 0x600: the length of an 802.3 frame).
    EtherType(u16),
    /// An IP packet with this protocol, or a GRH with this next header.
    IpProtocol(u8),
    /// A UDP datagram to this port.
    UdpPort(u16),
    /// A fragment of an IP packet: RoCE is never fragmented, and a fragment alone cannot be read.
    Fragment,
    /// A record of a link type that cannot carry InfiniBand transport.
    LinkType(LinkType),
    /// An ERF record of this type.
    ErfType(u8),
    /// A raw InfiniBand packet (LNH 0 or 1) that is no mirrored copy.
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

/// What [`link::locate`](crate::link::locate) found in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Located {
    /// An InfiniBand packet.
    Infiniband(Location),
    /// Something else, whole as far as it was read.
    Other(NotInfiniband),
}
