//! Ethernet: skips VLAN tags, tags of port extenders and MPLS labels up to the network header.

use super::wire::{
    E_TAG, FrameExtent, IPV4, IPV6, MPLS, MPLS_MULTICAST, NSH, SHORTEST_TRANSPORT_BYTES, Step, VN_TAG, take_at,
};
use super::{ip, mpls, nsh};
use crate::field::Endpoint;
use crate::ib::Grh;
use crate::location::{Encapsulation, LinkContent, Location, NotInfiniband};
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

const ROCE_V1: u16 = 0x8915;

/// Reads the Ethernet header of the frame that fills `wire`.
#[inline]
pub(super) fn read(data: &[u8], wire: FrameExtent, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let at = wire.start();
    let header = take_at::<14>(data, at, Layer::Ethernet)?;
    path.frame(at);
    by_type(data, u16::from_be_bytes([header[12], header[13]]), at + 14, wire, path)
}

/// Locates the packet at `at`, whose protocol is `EtherType` `kind`.
#[inline]
pub(super) fn by_type(
    data: &[u8],
    mut kind: u16,
    mut at: usize,
    mut wire: FrameExtent,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    loop {
        match kind {
            IPV4 => return ip::v4(data, at, wire, path),
            IPV6 => return ip::v6(data, at, wire, path),
            ROCE_V1 => return roce_v1(data, at, wire, path),
            0x8100 | 0x88A8 | 0x9100 => {
                let tag = take_at::<4>(data, at, Layer::Vlan)?;
                path.vlan_tag([tag[0], tag[1]]);
                kind = u16::from_be_bytes([tag[2], tag[3]]);
                at += 4;
            }
            MPLS | MPLS_MULTICAST => return mpls::locate(data, (kind, at), wire, path),
            VN_TAG | E_TAG => {
                let (next, tag_bytes) = port_extender_tag(data, kind, at)?;
                if !path.enter(if kind == VN_TAG { TunnelKind::VnTag } else { TunnelKind::ETag }) {
                    return Ok(Step::other(NotInfiniband::TooDeep));
                }
                kind = next;
                at += tag_bytes;
                wire = wire.without_tag(tag_bytes);
            }
            NSH => return nsh::locate(data, at, wire, path),
            other => return Ok(Step::other(NotInfiniband::EtherType(other))),
        }
    }
}

/// The `EtherType` after the tag of a port extender, and the length of tag and `EtherType`.
///
/// ```text
/// VN-tag  direction 1 | pointer 1 | destination 14 | looped 1 | reserved 1 | version 2 | source 12
/// E-tag   priority 3 | DE 1 | ingress E-CID 12 | reserved 2 | group 2 | E-CID 12 | extensions 16
/// ```
/// Sources: Wireshark, `packet-vntag.c`; IEEE 802.1BR-2012, clause 7.5, and Wireshark,
/// `packet-ieee8021q.c`. A port extender adds the tag on the link to its switch, so the tag is not
/// part of the frame that ports send.
fn port_extender_tag(data: &[u8], kind: u16, at: usize) -> Result<(u16, usize), ParseError> {
    if kind == VN_TAG {
        let tag = take_at::<6>(data, at, Layer::PortExtender)?;
        return Ok((u16::from_be_bytes([tag[4], tag[5]]), tag.len()));
    }
    let tag = take_at::<8>(data, at, Layer::PortExtender)?;
    Ok((u16::from_be_bytes([tag[6], tag[7]]), tag.len()))
}

/// Locates the `RoCEv1` packet whose GRH is at `at`. Padding may follow it, so the original length
/// comes from the GRH's `PayLen`.
fn roce_v1(data: &[u8], at: usize, wire: FrameExtent, path: &TunnelPath) -> Result<Step, ParseError> {
    let bytes = take_at::<{ Grh::LEN }>(data, at, Layer::Grh)?;
    let grh = Grh::parse(bytes).map_err(|error| error.add_offset(at))?;
    if grh.next_header != Grh::NEXT_HEADER_IBA {
        return Ok(Step::other(NotInfiniband::IpProtocol(grh.next_header)));
    }
    let behind = usize::from(grh.pay_len);
    if behind < SHORTEST_TRANSPORT_BYTES {
        return Err(ParseError::invalid(Layer::Grh, "PayLen", u64::from(grh.pay_len)).add_offset(at));
    }
    let ib_bytes = Grh::LEN + behind;
    Ok(Step::Content(LinkContent::Infiniband(Location {
        encapsulation: Encapsulation::RoceV1,
        start: at,
        network: at,
        ib_bytes,
        wire_bytes: wire.bytes(at, ib_bytes),
        src: Endpoint::from_gid(grh.sgid),
        dst: Endpoint::from_gid(grh.dgid),
        tunnels: path.kinds(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::{CNP, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::locate;
    use crate::tunnel::{TunnelKind, TunnelKinds};
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
            wire_bytes: 78,
            src: Endpoint::from_gid(hex!("fe80000000000000 0002c90300a1b2c3")),
            dst: Endpoint::from_gid(hex!("fe80000000000000 0002c90300d4e5f6")),
            tunnels: TunnelKinds::NONE,
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

    /// A VN-tag has 6 bytes with its `EtherType`, an E-tag 8. The frame has its length without
    /// them.
    #[test]
    fn tags_of_port_extenders_are_removed() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            for (tag, kind) in
                [(&hex!("8926 00010002")[..], TunnelKind::VnTag), (&hex!("893f 000010020000"), TunnelKind::ETag)]
            {
                let (plain, whole) = (located(frame), located(&tagged(frame, tag)));
                let expected = Location {
                    start: plain.start + tag.len(),
                    network: plain.network + tag.len(),
                    tunnels: TunnelKinds::NONE.with(kind),
                    ..plain
                };
                assert_eq!(whole, expected);
                // A VLAN tag inside is part of the frame.
                let both = located(&tagged(frame, &[tag, &hex!("8100 0001")].concat()));
                assert_eq!(both.wire_bytes, plain.wire_bytes + 4);
                assert!(ethernet(&tagged(frame, tag)[..17]).is_err_and(|error| error.layer == Layer::PortExtender));
            }
        }
        let endless = tagged(&CNP, &hex!("8926 00000000").repeat(9));
        assert_eq!(ethernet(&endless), Ok(LinkContent::Other(NotInfiniband::TooDeep)));
    }

    /// Hardware timestamps and checksums after the packet do not count, the padding of a short
    /// frame does if it is there.
    #[test]
    fn only_padding_counts_behind_the_packet() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            for trailer in [4, 8, 12, 16, 20] {
                let long = [frame, &std::vec![0xA5; trailer]].concat();
                assert_eq!(located(&long).wire_bytes as usize, frame.len(), "{trailer}");
            }
        }
        // A SEND Only without payload: 14 + 20 + 8 + 12 + 4 bytes.
        let mut short = CNP[..58].to_vec();
        short[16..18].copy_from_slice(&[0, 44]);
        short[38..40].copy_from_slice(&[0, 24]);
        for (padding, expected) in [(0, 58), (1, 59), (2, 60), (6, 60), (18, 60)] {
            assert_eq!(located(&[&short[..], &std::vec![0; padding]].concat()).wire_bytes, expected, "{padding}");
        }
        // A mirror that truncates: the record does not know the original length.
        assert_eq!(located(&CNP[..64]).wire_bytes, 74);
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
