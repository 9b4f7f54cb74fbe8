//! Linux cooked captures: the pseudo header that replaces the Ethernet header on the "any" device.

use super::walk;
use super::wire::{FrameExtent, take_at};
use crate::location::LinkContent;
use crate::tunnel::TunnelPath;
use crate::{Layer, ParseError};

/// Version 1: 16 bytes, with the protocol last.
pub(super) fn v1(data: &[u8], original_bytes: usize, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    let header = take_at::<16>(data, 0, Layer::Sll)?;
    cooked(data, [header[14], header[15]], FrameExtent::headless(header.len(), original_bytes), path)
}

/// Version 2: 20 bytes, with the protocol first.
pub(super) fn v2(data: &[u8], original_bytes: usize, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    let header = take_at::<20>(data, 0, Layer::Sll)?;
    cooked(data, [header[0], header[1]], FrameExtent::headless(header.len(), original_bytes), path)
}

/// Locates the packet after the pseudo header, where `wire` starts.
fn cooked(data: &[u8], protocol: [u8; 2], wire: FrameExtent, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    walk::packet(data, u16::from_be_bytes(protocol), wire, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::{CNP, ROCE_V1};
    use crate::link::{Encapsulation, NotInfiniband, locate};
    use hex_literal::hex;

    /// Packet type 0, Ethernet, an address of 6 bytes padded to 8. The protocol follows.
    const V1: [u8; 14] = hex!("0000 0001 0006 0200000000010000");
    /// The same header in version 2, where the protocol precedes these fields.
    const V2: [u8; 18] = hex!("0000 00000002 0001 00 06 0200000000010000");

    #[test]
    fn the_protocol_leads_on() {
        // Start at the frame's EtherType.
        for (frame, framed) in [(&CNP[..], Encapsulation::RoceV2Ipv4), (&ROCE_V1, Encapsulation::RoceV1)] {
            let v1 = [&V1, &frame[12..]].concat();
            let v2 = [&frame[12..14], &V2, &frame[14..]].concat();
            for (link_type, data, header_bytes) in [(LinkType::SLL, v1, 16), (LinkType::SLL2, v2, 20)] {
                let Ok(LinkContent::Infiniband(found)) = locate(link_type, &data, data.len() as u32) else { panic!() };
                assert_eq!((found.encapsulation, found.network), (framed, header_bytes));
                // The expected length is that of the frame as sent, although the record holds
                // another header.
                assert_eq!(found.wire_bytes as usize, frame.len());
            }
        }
    }

    #[test]
    fn tags_and_padding_behind_the_header() {
        let data = [&V1, &hex!("8100 0001")[..], &CNP[12..], &[0; 5]].concat();
        let Ok(LinkContent::Infiniband(found)) = locate(LinkType::SLL, &data, data.len() as u32) else { panic!() };
        assert_eq!((found.network, found.start, found.wire_bytes), (20, 48, 78));
    }

    #[test]
    fn other_protocols_and_truncated_headers() {
        let arp = [&V1, &hex!("0806")[..]].concat();
        let expected = Ok(LinkContent::Other(NotInfiniband::EtherType(0x0806)));
        assert_eq!(locate(LinkType::SLL, &arp, 44), expected);
        assert_eq!(locate(LinkType::SLL, &arp[..15], 44), Err(ParseError::truncated(Layer::Sll, 16, 15)));
        assert_eq!(locate(LinkType::SLL2, &[0; 19], 44), Err(ParseError::truncated(Layer::Sll, 20, 19)));
    }
}
