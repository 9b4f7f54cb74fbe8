//! Ethernet: skips VLAN tags and MPLS labels up to the network header.

use super::ip;
use super::wire::{FrameLength, SHORTEST_TRANSPORT_BYTES, take_at};
use crate::field::Endpoint;
use crate::ib::Grh;
use crate::location::{Encapsulation, LinkContent, Location, NotInfiniband};
use crate::{Layer, ParseError};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const ROCE_V1: u16 = 0x8915;

/// Locates the packet of the Ethernet frame that begins at `at`.
#[inline]
pub(super) fn locate(data: &[u8], at: usize, wire: FrameLength) -> Result<LinkContent, ParseError> {
    let header = take_at::<14>(data, at, Layer::Ethernet)?;
    by_type(data, u16::from_be_bytes([header[12], header[13]]), at + 14, wire)
}

/// Locates the packet at `at`, whose protocol is `EtherType` `kind`.
#[inline]
pub(super) fn by_type(data: &[u8], mut kind: u16, mut at: usize, wire: FrameLength) -> Result<LinkContent, ParseError> {
    loop {
        match kind {
            IPV4 => return ip::v4(data, at, wire),
            IPV6 => return ip::v6(data, at, wire),
            ROCE_V1 => return roce_v1(data, at, wire),
            // 802.1Q, 802.1ad, and the older `EtherType` of stacked tags.
            0x8100 | 0x88A8 | 0x9100 => {
                let tag = take_at::<4>(data, at, Layer::Vlan)?;
                kind = u16::from_be_bytes([tag[2], tag[3]]);
                at += 4;
            }
            0x8847 | 0x8848 => return mpls(data, kind, at, wire),
            other => return Ok(LinkContent::Other(NotInfiniband::EtherType(other))),
        }
    }
}

/// Skips the MPLS label stack at `at`. Labels do not name the next protocol, so the first nibble
/// after the stack selects the IP version.
fn mpls(data: &[u8], kind: u16, mut at: usize, wire: FrameLength) -> Result<LinkContent, ParseError> {
    loop {
        let label = take_at::<4>(data, at, Layer::Mpls)?;
        at += 4;
        if label[2] & 1 == 1 {
            break;
        }
    }
    let [first] = take_at::<1>(data, at, Layer::Mpls)?;
    match first >> 4 {
        4 => ip::v4(data, at, wire),
        6 => ip::v6(data, at, wire),
        _ => Ok(LinkContent::Other(NotInfiniband::EtherType(kind))),
    }
}

/// Locates the `RoCEv1` packet whose GRH is at `at`. Ethernet padding may follow it, so the
/// original length comes from the GRH's `PayLen`.
fn roce_v1(data: &[u8], at: usize, wire: FrameLength) -> Result<LinkContent, ParseError> {
    let bytes = take_at::<{ Grh::LEN }>(data, at, Layer::Grh)?;
    let grh = Grh::parse(bytes).map_err(|error| error.add_offset(at))?;
    if grh.next_header != Grh::NEXT_HEADER_IBA {
        return Ok(LinkContent::Other(NotInfiniband::IpProtocol(grh.next_header)));
    }
    let behind = usize::from(grh.pay_len);
    if behind < SHORTEST_TRANSPORT_BYTES {
        return Err(ParseError::invalid(Layer::Grh, "PayLen", u64::from(grh.pay_len)).add_offset(at));
    }
    let ib_bytes = Grh::LEN + behind;
    Ok(LinkContent::Infiniband(Location {
        encapsulation: Encapsulation::RoceV1,
        start: at,
        network: at,
        ib_bytes,
        wire_bytes: wire.bytes(at, ib_bytes),
        src: Endpoint::from_gid(grh.sgid),
        dst: Endpoint::from_gid(grh.dgid),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::{CNP, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::locate;
    use hex_literal::hex;
    use std::vec::Vec;

    fn ethernet(data: &[u8]) -> Result<LinkContent, ParseError> {
        locate(LinkType::ETHERNET, data, data.len() as u32)
    }

    fn located(data: &[u8]) -> Location {
        match ethernet(data) {
            Ok(LinkContent::Infiniband(location)) => location,
            other => panic!("{other:?}"),
        }
    }

    /// `frame` with `bytes` between its addresses and its `EtherType`.
    fn tagged(frame: &[u8], bytes: &[u8]) -> Vec<u8> {
        [&frame[..12], bytes, &frame[12..]].concat()
    }

    /// `frame` with its `EtherType` replaced by MPLS and this label stack.
    fn labeled(frame: &[u8], kind: [u8; 2], stack: &[u8]) -> Vec<u8> {
        [&frame[..12], &kind, stack, &frame[14..]].concat()
    }

    #[test]
    fn a_frame_of_roce_v1_has_the_length_of_its_grh() {
        let padded = [&ROCE_V1[..], &[0; 6]].concat();
        let expected = Location {
            encapsulation: Encapsulation::RoceV1,
            start: 14,
            network: 14,
            ib_bytes: 64,
            wire_bytes: 84,
            src: Endpoint::from_gid(hex!("fe80000000000000 0002c90300a1b2c3")),
            dst: Endpoint::from_gid(hex!("fe80000000000000 0002c90300d4e5f6")),
        };
        assert_eq!(located(&padded), expected);
    }

    #[test]
    fn a_grh_must_be_one() {
        let with = |at: usize, value: u8| {
            let mut frame = ROCE_V1;
            frame[at] = value;
            ethernet(&frame)
        };
        assert_eq!(with(20, 58), Ok(LinkContent::Other(NotInfiniband::IpProtocol(58))));
        assert_eq!(with(14, 0x45), Err(ParseError::invalid(Layer::Grh, "IPVer", 4).add_offset(14)));
        // The minimum is 12 bytes of BTH and 4 of ICRC.
        assert_eq!(with(19, 15), Err(ParseError::invalid(Layer::Grh, "PayLen", 15).add_offset(14)));
        assert!(matches!(with(19, 16), Ok(LinkContent::Infiniband(Location { ib_bytes: 56, .. }))));
    }

    #[test]
    fn tags_are_skipped() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            let plain = located(frame);
            for tags in [
                &hex!("8100 6064")[..],
                &hex!("88a8 0064 8100 6001"),
                &hex!("9100 0064 8100 6001"),
                &hex!("88a8 0001 88a8 0002 8100 0003"),
            ] {
                let expected = Location {
                    start: plain.start + tags.len(),
                    network: plain.network + tags.len(),
                    wire_bytes: plain.wire_bytes + tags.len() as u32,
                    ..plain
                };
                assert_eq!(located(&tagged(frame, tags)), expected);
            }
        }
        assert_eq!(
            ethernet(&tagged(&CNP, &hex!("8100 0001 0806 0000"))),
            Ok(LinkContent::Other(NotInfiniband::EtherType(0x0806)))
        );
    }

    #[test]
    fn labels_are_skipped() {
        for frame in [&CNP[..], &ROCE_V2_IPV6] {
            let plain = located(frame);
            for (kind, stack) in
                [([0x88, 0x47], &hex!("0001 01 40")[..]), ([0x88, 0x48], &hex!("0001 00 40 0002 01 40"))]
            {
                let expected = Location {
                    start: plain.start + stack.len(),
                    network: plain.network + stack.len(),
                    wire_bytes: plain.wire_bytes + stack.len() as u32,
                    ..plain
                };
                assert_eq!(located(&labeled(frame, kind, stack)), expected);
            }
        }
        // A pseudowire: the stack is not followed by an IP packet.
        let wire = labeled(&CNP, [0x88, 0x47], &hex!("0001 01 40 00000000"));
        assert_eq!(ethernet(&wire), Ok(LinkContent::Other(NotInfiniband::EtherType(0x8847))));
        // A stack without a last label.
        let endless = labeled(&[0; 14], [0x88, 0x47], &hex!("0001 00 40 0001 00 40"));
        assert_eq!(ethernet(&endless), Err(ParseError::truncated(Layer::Mpls, 4, 0).add_offset(22)));
    }

    #[test]
    fn other_frames_are_named() {
        let of = |kind: u16| {
            let mut frame = [0; 60];
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            ethernet(&frame)
        };
        // ARP, and the length of an 802.3 frame.
        for kind in [0x0806, 0x0026] {
            assert_eq!(of(kind), Ok(LinkContent::Other(NotInfiniband::EtherType(kind))));
        }
        assert_eq!(ethernet(&[0; 13]), Err(ParseError::truncated(Layer::Ethernet, 14, 13)));
    }
}
