//! From a capture record to the first InfiniBand byte: link layer, tags, IP and UDP are walked once, and what comes out
//! is a [`Location`] in byte offsets of the record.
//!
//! Only the bytes that decide are read, so records that a snap length cut behind them are located all the same, with the
//! true lengths that the headers name.

mod encap;
mod ethernet;
mod ip;
mod sll;
mod udp;

use crate::error::take;
use crate::field::Endpoint;
use crate::frame::LinkType;
use crate::{Layer, ParseError};
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

/// What [`locate`] found in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Located {
    /// An InfiniBand packet.
    Infiniband(Location),
    /// Something else, whole as far as it was read.
    Other(NotInfiniband),
}

/// Finds the InfiniBand packet of a record. `data` are the captured bytes and `original_bytes` the length that the record
/// had before it was cut; both include the ERF header where there is one.
///
/// # Errors
/// A header is cut short before it could decide, or holds a value that cannot be.
#[inline]
pub fn locate(link_type: LinkType, data: &[u8], original_bytes: u32) -> Result<Located, ParseError> {
    match link_type {
        LinkType::ETHERNET => ethernet::locate(data, 0, Wire::Frame { bytes: original_bytes }),
        LinkType::ERF => encap::erf(data, original_bytes),
        LinkType::INFINIBAND => encap::native(data, 0),
        LinkType::SLL => sll::v1(data),
        LinkType::SLL2 => sll::v2(data),
        LinkType::RAW => ip::by_version(data, 0, Wire::Cooked { header_bytes: 0 }),
        other => Ok(Located::Other(NotInfiniband::LinkType(other))),
    }
}

/// How the length of the Ethernet frame is known.
#[derive(Clone, Copy)]
enum Wire {
    /// The record held the whole frame.
    Frame { bytes: u32 },
    /// The capture put a header of its own, of this length, where the Ethernet header was.
    Cooked { header_bytes: usize },
}

impl Wire {
    const ETHERNET_BYTES: usize = 14;

    /// Bytes of the frame whose network header begins at `network` and has `network_bytes` up to its packet's end.
    const fn bytes(self, network: usize, network_bytes: usize) -> u32 {
        match self {
            Self::Frame { bytes } => bytes,
            Self::Cooked { header_bytes } => {
                (network.saturating_sub(header_bytes) + Self::ETHERNET_BYTES + network_bytes) as u32
            }
        }
    }
}

/// The `N` bytes at offset `at`; an error points there.
#[inline]
fn take_at<const N: usize>(data: &[u8], at: usize, layer: Layer) -> Result<&[u8; N], ParseError> {
    take::<N>(data.get(at..).unwrap_or_default(), layer).map_err(|error| error.add_offset(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::ib::samples::{ERF, ETHERNET, NATIVE};
    use proptest::prelude::*;
    use std::string::ToString;

    const LINK_TYPES: [LinkType; 8] = [
        LinkType::ETHERNET,
        LinkType::RAW,
        LinkType::SLL,
        LinkType::ERF,
        LinkType::IPOIB,
        LinkType::INFINIBAND,
        LinkType::SLL2,
        LinkType(147),
    ];

    #[test]
    fn link_types_without_infiniband_are_named() {
        for link_type in [LinkType::IPOIB, LinkType(147)] {
            let expected = Located::Other(NotInfiniband::LinkType(link_type));
            assert_eq!(locate(link_type, &[0; 64], 64), Ok(expected));
        }
        assert_eq!(NotInfiniband::LinkType(LinkType(147)).to_string(), "link type 147");
        assert_eq!(NotInfiniband::EtherType(0x806).to_string(), "ARP");
        assert_eq!(NotInfiniband::EtherType(0x1234).to_string(), "EtherType 0x1234");
    }

    #[test]
    fn a_cut_record_is_found_where_the_whole_one_is_or_not_at_all() {
        let ethernet = ETHERNET.iter().map(|&data| (LinkType::ETHERNET, data));
        let native = NATIVE.iter().map(|&data| (LinkType::INFINIBAND, data));
        let erf = ERF.iter().map(|&data| (LinkType::ERF, data));
        for (link_type, data) in ethernet.chain(native).chain(erf) {
            let original_bytes = data.len() as u32;
            let whole = locate(link_type, data, original_bytes).unwrap();
            let mut found_at = None;
            for there in 0..=data.len() {
                match locate(link_type, &data[..there], original_bytes) {
                    Ok(found) => {
                        assert_eq!(found, whole, "{there}");
                        found_at = found_at.or(Some(there));
                    }
                    Err(error) => {
                        let ErrorKind::Truncated { needed, available } = error.kind else { panic!("{there}: {error}") };
                        assert!(needed > available && found_at.is_none(), "{there}: {error}");
                        // A header behind options that are cut begins behind the end.
                        assert_eq!(error.offset.min(there) + available, there);
                    }
                }
            }
            // No byte of the InfiniBand payload is needed; of native and RoCEv1 packets the first header is.
            let Located::Infiniband(location) = whole else { panic!() };
            let header_bytes = match location.framed {
                Framed::Native => 8,
                Framed::RoceV1 => 40,
                Framed::RoceV2Ipv4 | Framed::RoceV2Ipv6 => 0,
            };
            assert_eq!(found_at, Some(location.start + header_bytes));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            kind in 0..LINK_TYPES.len(), data in proptest::collection::vec(any::<u8>(), 0..160), original_bytes: u32,
        ) {
            if let Ok(Located::Infiniband(found)) = locate(LINK_TYPES[kind], &data, original_bytes) {
                prop_assert!(found.start <= data.len() && found.network <= found.start && found.ib_bytes >= 16);
            }
        }

        #[test]
        fn no_change_of_a_packet_makes_it_panic(
            sample in 0..ETHERNET.len(), changes in proptest::collection::vec((0usize..90, any::<u8>()), 1..6), cut in 0usize..330,
        ) {
            let mut data = ETHERNET[sample].to_vec();
            for (at, value) in changes {
                if let Some(byte) = data.get_mut(at) {
                    *byte = value;
                }
            }
            data.truncate(cut);
            for link_type in LINK_TYPES {
                if let Ok(Located::Infiniband(found)) = locate(link_type, &data, cut as u32) {
                    let _ = crate::ib::Packet::parse_lax(&data, &found);
                    let _ = crate::ib::crc::verify_icrc(&data, &found);
                }
            }
        }
    }
}
