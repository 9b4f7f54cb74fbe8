//! Finds the first InfiniBand byte of a capture record.
//!
//! In: link type, captured bytes and original length of a record. Out: a [`Location`] in byte
//! offsets of the record. The module walks link layer, tags, IP, UDP and tunnels once and reads
//! only the bytes that decide. Invariant: a record truncated after those bytes gets the same
//! location as the whole one, with the original lengths from the headers.

mod encap;
mod erspan;
mod ethernet;
mod gre;
mod inner;
mod ip;
mod mpls;
mod nsh;
#[cfg(test)]
mod outer;
mod sll;
mod udp;
mod vxlan;
mod walk;
mod wire;

pub use crate::location::{Encapsulation, LinkContent, Location, NotInfiniband};
pub use crate::tunnel::{MAX_DEPTH, MirrorHeader, MirrorSession, TunnelKind, TunnelKinds, TunnelPath};

use crate::ParseError;
use crate::frame::LinkType;
use wire::FrameExtent;

/// Finds the InfiniBand packet of a record.
///
/// `data` holds the captured bytes; `original_bytes` is the record's length before truncation. Both
/// include the ERF header, if any.
///
/// # Errors
/// A header is truncated before it identifies the protocol, or holds an invalid value.
#[inline]
pub fn locate(link_type: LinkType, data: &[u8], original_bytes: u32) -> Result<LinkContent, ParseError> {
    locate_in_tunnels(link_type, data, original_bytes, &mut TunnelPath::default())
}

/// Finds the InfiniBand packet of a record as [`locate`] does. Adds the tunnels around the packet
/// to `path`, also those around another protocol and before an error.
///
/// # Errors
/// As [`locate`].
#[inline]
pub fn locate_in_tunnels(
    link_type: LinkType,
    data: &[u8],
    original_bytes: u32,
    path: &mut TunnelPath,
) -> Result<LinkContent, ParseError> {
    let end = original_bytes as usize;
    match link_type {
        LinkType::ETHERNET => walk::frame(data, FrameExtent::frame(0, end), path),
        LinkType::ERF => encap::erf(data, end, path),
        LinkType::INFINIBAND => encap::native(data, 0),
        LinkType::SLL => sll::v1(data, end, path),
        LinkType::SLL2 => sll::v2(data, end, path),
        LinkType::RAW => walk::ip_packet(data, FrameExtent::headless(0, end), path),
        other => Ok(LinkContent::Other(NotInfiniband::LinkType(other))),
    }
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
            let expected = LinkContent::Other(NotInfiniband::LinkType(link_type));
            assert_eq!(locate(link_type, &[0; 64], 64), Ok(expected));
        }
        assert_eq!(NotInfiniband::LinkType(LinkType(147)).to_string(), "link type 147");
        assert_eq!(NotInfiniband::EtherType(0x806).to_string(), "ARP");
        assert_eq!(NotInfiniband::EtherType(0x1234).to_string(), "EtherType 0x1234");
    }

    #[test]
    fn a_truncated_record_has_the_location_of_the_whole_one_or_none() {
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
                        // IPv4 options and IPv6 extension headers may place the next header past
                        // the end.
                        assert_eq!(error.offset.min(there) + available, there);
                    }
                }
            }
            // No payload byte is needed; native and RoCEv1 packets need their first header.
            let LinkContent::Infiniband(location) = whole else { panic!() };
            let header_bytes = match location.encapsulation {
                Encapsulation::Native => 8,
                Encapsulation::RoceV1 => 40,
                Encapsulation::RoceV2Ipv4 | Encapsulation::RoceV2Ipv6 => 0,
            };
            assert_eq!(found_at, Some(location.start + header_bytes));
        }
    }

    /// A VXLAN packet without its Ethernet header: in cooked and raw IP records.
    #[test]
    fn tunnels_in_records_without_an_ethernet_header() {
        use crate::ib::samples::CNP;
        let header = [8, 0, 0, 0, 0, 0, 7, 0];
        let frame = outer::ipv4(17, &outer::udp(4789, &[&header[..], &CNP].concat()));
        let cooked = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &frame[12..]].concat();
        let plain = outer::packet(&CNP).0;
        for (link_type, data) in [(LinkType::RAW, &frame[14..]), (LinkType::SLL, &cooked)] {
            let mut path = TunnelPath::default();
            let found = locate_in_tunnels(link_type, data, data.len() as u32, &mut path);
            let shift = data.len() - CNP.len();
            let expected = Location {
                start: plain.start + shift,
                network: plain.network + shift,
                tunnels: TunnelKinds::NONE.with(TunnelKind::Vxlan),
                ..plain
            };
            assert_eq!(found, Ok(LinkContent::Infiniband(expected)));
            assert_eq!((path.outermost(), path.frame_at()), (Some(TunnelKind::Vxlan), shift));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            kind in 0..LINK_TYPES.len(), data in proptest::collection::vec(any::<u8>(), 0..160), original_bytes: u32,
        ) {
            if let Ok(LinkContent::Infiniband(found)) = locate(LINK_TYPES[kind], &data, original_bytes) {
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
                if let Ok(LinkContent::Infiniband(found)) = locate(link_type, &data, cut as u32) {
                    let _ = crate::ib::Packet::parse_lax(&data, &found);
                    let _ = crate::ib::crc::verify_icrc(&data, &found);
                }
            }
        }
    }
}
