//! VXLAN, its generic protocol extension, and GENEVE: overlays in UDP.

use super::inner;
use super::wire::{FrameExtent, IPV4, IPV6, IpPacket, MPLS, NSH, Step, take_at};
use crate::location::NotInfiniband;
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

/// Flag of VXLAN: the network identifier is valid.
const HAS_IDENTIFIER: u8 = 0x08;
/// Flag of VXLAN-GPE: the header names the next protocol.
const HAS_PROTOCOL: u8 = 0x04;
const HEADER_BYTES: usize = 8;

/// Locates the packet in the VXLAN packet at `at`.
///
/// ```text
/// flags 8 | reserved 24 | network identifier 24 | reserved 8 | Ethernet frame
/// ```
/// Source: RFC 7348, section 5.
pub(super) fn locate(data: &[u8], at: usize, ip: &IpPacket, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<HEADER_BYTES>(data, at, Layer::Vxlan)?;
    if header[0] & HAS_IDENTIFIER == 0 {
        return Err(ParseError::invalid(Layer::Vxlan, "flags", u64::from(header[0])).add_offset(at));
    }
    Ok(Step::frame(at + HEADER_BYTES, TunnelKind::Vxlan, ip.extent(), path))
}

/// Locates the packet in the datagram to UDP port 8472 at `at`: VXLAN in Linux's default before
/// the port 4789 was assigned (`drivers/net/vxlan`, module parameter `udp_port`), or another
/// protocol, so a known frame must follow.
pub(super) fn legacy(
    data: &[u8],
    (port, at): (u16, usize),
    ip: &IpPacket,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    let header = take_at::<HEADER_BYTES>(data, at, Layer::Vxlan)?;
    let frame_at = at + HEADER_BYTES;
    if header[0] & HAS_IDENTIFIER == 0 || inner::first_frame(data, &[frame_at], Layer::Vxlan)?.is_none() {
        return Ok(Step::other(NotInfiniband::UdpPort(port)));
    }
    Ok(Step::frame(frame_at, TunnelKind::Vxlan, ip.extent(), path))
}

/// Locates the packet in the VXLAN-GPE packet at `at`.
///
/// ```text
/// flags 8 | reserved 16 | next protocol 8 | network identifier 24 | reserved 8
/// ```
/// Sources: draft-ietf-nvo3-vxlan-gpe-12, section 3; tcpdump, `print-vxlan-gpe.c`. Without the
/// P flag an Ethernet frame follows, as in VXLAN.
pub(super) fn generic(data: &[u8], at: usize, ip: &IpPacket, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<HEADER_BYTES>(data, at, Layer::Vxlan)?;
    let protocol = if header[0] & HAS_PROTOCOL == 0 { 3 } else { header[3] };
    Ok(next_protocol((protocol, at + HEADER_BYTES), TunnelKind::VxlanGpe, ip.extent(), path))
}

/// Locates the packet in a tunnel of this kind, whose header names the content at `at` by its
/// number in the registry of VXLAN-GPE and NSH (RFC 8300, section 2.2).
pub(super) fn next_protocol(
    (protocol, at): (u8, usize),
    kind: TunnelKind,
    outer: FrameExtent,
    path: &mut TunnelPath,
) -> Step {
    let protocol = match protocol {
        1 => IPV4,
        2 => IPV6,
        3 => return Step::frame(at, kind, outer, path),
        4 => NSH,
        5 => MPLS,
        other => return Step::other(NotInfiniband::TunnelPayload(kind, u16::from(other))),
    };
    Step::by_type((protocol, at), kind, outer, path)
}

/// Locates the packet in the GENEVE packet at `at`.
///
/// ```text
/// version 2 | options length 6 (in units of 4 bytes) | flags 8 | protocol 16
/// network identifier 24 | reserved 8 | options
/// ```
/// Source: RFC 8926, section 3.4.
pub(super) fn geneve(data: &[u8], at: usize, ip: &IpPacket, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<HEADER_BYTES>(data, at, Layer::Geneve)?;
    let version = header[0] >> 6;
    if version != 0 {
        return Err(ParseError::invalid(Layer::Geneve, "version", u64::from(version)).add_offset(at));
    }
    let inner_at = at + HEADER_BYTES + usize::from(header[0] & 0x3F) * 4;
    let protocol = u16::from_be_bytes([header[2], header[3]]);
    Ok(Step::by_type((protocol, inner_at), TunnelKind::Geneve, ip.extent(), path))
}

#[cfg(test)]
mod tests {
    use crate::ib::samples::{CNP, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::outer::{assert_tunnel, ipv4, ipv6, other, packet, read, udp};
    use crate::link::{MAX_DEPTH, NotInfiniband, TunnelKind};
    use crate::{Layer, ParseError};
    use hex_literal::hex;
    use std::vec::Vec;

    const FRAMES: [&[u8]; 3] = [&CNP, &ROCE_V1, &ROCE_V2_IPV6];

    fn datagram(port: u16, header: &[u8], content: &[u8]) -> Vec<u8> {
        ipv4(17, &udp(port, &[header, content].concat()))
    }

    /// RFC 7348, section 5: flag I, network 0x123456.
    const VXLAN: [u8; 8] = hex!("08000000 12345600");

    #[test]
    fn vxlan() {
        for frame in FRAMES {
            for port in [4789, 8472] {
                assert_tunnel(&datagram(port, &VXLAN, frame), frame, TunnelKind::Vxlan);
                assert_tunnel(&ipv6(17, &udp(port, &[&VXLAN, frame].concat())), frame, TunnelKind::Vxlan);
            }
        }
        let flags = Err(ParseError::invalid(Layer::Vxlan, "flags", 0).add_offset(42));
        assert_eq!(read(&datagram(4789, &[0; 8], &CNP)).0, flags);
        // Another protocol on the old port.
        assert_eq!(other(&datagram(8472, &[0; 8], &CNP)), NotInfiniband::UdpPort(8472));
        assert_eq!(other(&datagram(8472, &VXLAN, &[0; 60])), NotInfiniband::UdpPort(8472));
    }

    /// draft-ietf-nvo3-vxlan-gpe-12, section 3: flags I and P, next protocol.
    #[test]
    fn vxlan_gpe() {
        let of = |protocol: u8, content: &[u8]| datagram(4790, &[0x0C, 0, 0, protocol, 0x12, 0x34, 0x56, 0], content);
        for frame in FRAMES {
            assert_tunnel(&of(3, frame), frame, TunnelKind::VxlanGpe);
            assert_tunnel(&datagram(4790, &VXLAN, frame), frame, TunnelKind::VxlanGpe);
        }
        for (protocol, frame) in [(1, &CNP[..]), (2, &ROCE_V2_IPV6)] {
            assert_eq!(packet(&of(protocol, &frame[14..])).0.wire_bytes as usize, frame.len());
        }
        assert_eq!(other(&of(9, &CNP)), NotInfiniband::TunnelPayload(TunnelKind::VxlanGpe, 9));
    }

    /// RFC 8300, section 2.2: length 2 and 6 words (metadata types 2 and 1), next protocol
    /// Ethernet.
    #[test]
    fn nsh() {
        let gpe = hex!("0c000004 12345600");
        let short = hex!("0fc2 02 03 000001 ff");
        let long = hex!("0fc6 01 03 000001 ff 00000000000000000000000000000000");
        for frame in FRAMES {
            for header in [&short[..], &long] {
                let whole = datagram(4790, &gpe, &[header, frame].concat());
                let (found, kind) = packet(&whole);
                assert_eq!((found.wire_bytes as usize, kind), (frame.len(), Some(TunnelKind::VxlanGpe)));
                assert!(found.tunnels.contains(TunnelKind::Nsh));
                // Directly in Ethernet: `EtherType` 0x894F.
                let direct = [&hex!("020000000002 020000000001 894f")[..], header, frame].concat();
                assert_tunnel(&direct, frame, TunnelKind::Nsh);
            }
        }
        let invalid = |header: &[u8], field, value| {
            let expected = Err(ParseError::invalid(Layer::Nsh, field, value).add_offset(50));
            assert_eq!(read(&datagram(4790, &gpe, header)).0, expected);
        };
        invalid(&hex!("4fc2 02 03 000001 ff"), "version", 1);
        invalid(&hex!("0fc1 02 03 000001 ff"), "length", 1);
    }

    /// RFC 8926, section 3.4: no options, and 8 bytes of options.
    #[test]
    fn geneve() {
        for frame in FRAMES {
            for header in [&hex!("0000 6558 12345600")[..], &hex!("0240 6558 12345600 0102800100000000")] {
                assert_tunnel(&datagram(6081, header, frame), frame, TunnelKind::Geneve);
            }
        }
        for (header, frame) in [(hex!("0000 0800 12345600"), &CNP[..]), (hex!("0000 86dd 12345600"), &ROCE_V2_IPV6)] {
            assert_eq!(packet(&datagram(6081, &header, &frame[14..])).0.wire_bytes as usize, frame.len());
        }
        let unknown = other(&datagram(6081, &hex!("0000 880b 12345600"), &CNP));
        assert_eq!(unknown, NotInfiniband::TunnelPayload(TunnelKind::Geneve, 0x880B));
        let version = Err(ParseError::invalid(Layer::Geneve, "version", 1).add_offset(42));
        assert_eq!(read(&datagram(6081, &hex!("4000 6558 12345600"), &CNP)).0, version);
    }

    #[test]
    fn tunnels_nest_up_to_the_bound() {
        let mut frame = CNP.to_vec();
        for depth in 1..=MAX_DEPTH + 2 {
            frame = datagram(4789, &VXLAN, &frame);
            if depth <= MAX_DEPTH {
                assert_eq!(packet(&frame).0.wire_bytes as usize, CNP.len(), "{depth}");
            } else {
                let found = other(&frame);
                assert_eq!((found, found.may_hold_roce()), (NotInfiniband::TooDeep, true), "{depth}");
            }
        }
    }
}
