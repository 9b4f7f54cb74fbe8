//! IPv4 and IPv6 up to the UDP header, or to the tunnel in the IP packet.

use super::wire::{FrameExtent, IpPacket, Step, take_at};
use super::{gre, mpls, udp};
use crate::field::Endpoint;
use crate::location::{Encapsulation, NotInfiniband};
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

pub(super) const UDP: u8 = 17;
const GRE: u8 = 47;
/// IPv4 and IPv6 packets in an IP packet (RFC 2003, RFC 2473, RFC 4213).
const IPV4: u8 = 4;
const IPV6: u8 = 41;
/// MPLS label stack in an IP packet (RFC 4023, section 3).
const MPLS: u8 = 137;

/// Locates the packet of the IP packet at `at`; its first nibble selects the version.
pub(super) fn by_version(data: &[u8], at: usize, wire: FrameExtent, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let [first] = take_at::<1>(data, at, Layer::Ipv4)?;
    if first >> 4 == 6 { v6(data, at, wire, path) } else { v4(data, at, wire, path) }
}

/// Locates the packet of the IPv4 packet at `at`.
#[inline]
pub(super) fn v4(data: &[u8], at: usize, wire: FrameExtent, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<20>(data, at, Layer::Ipv4)?;
    let invalid = |field, value: u16| Err(ParseError::invalid(Layer::Ipv4, field, u64::from(value)).add_offset(at));
    let [version_ihl, ..] = *header;
    if version_ihl >> 4 != 4 {
        return invalid("version", u16::from(version_ihl >> 4));
    }
    let header_bytes = usize::from(version_ihl & 0xF) * 4;
    if header_bytes < header.len() {
        return invalid("IHL", u16::from(version_ihl & 0xF));
    }
    if !is_known(header[9]) {
        return Ok(Step::other(NotInfiniband::IpProtocol(header[9])));
    }
    // The "more fragments" flag or a fragment offset.
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3FFF;
    if fragment & 0x1FFF != 0 {
        return Ok(Step::other(NotInfiniband::Fragment));
    }
    let total = u16::from_be_bytes([header[2], header[3]]);
    if usize::from(total) < header_bytes {
        return invalid("total length", total);
    }
    let &[.., s0, s1, s2, s3, d0, d1, d2, d3] = header;
    let packet = IpPacket {
        encapsulation: Encapsulation::RoceV2Ipv4,
        at,
        bytes: usize::from(total),
        transport: at + header_bytes,
        src: Endpoint::from_ipv4([s0, s1, s2, s3]),
        dst: Endpoint::from_ipv4([d0, d1, d2, d3]),
        is_fragment: fragment != 0,
        wire,
    };
    transport(data, header[9], &packet, path)
}

/// Locates the packet of the IPv6 packet at `at`. Hop-by-hop options, routing headers and
/// destination options are skipped.
pub(super) fn v6(data: &[u8], at: usize, wire: FrameExtent, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<40>(data, at, Layer::Ipv6)?;
    if header[0] >> 4 != 6 {
        return Err(ParseError::invalid(Layer::Ipv6, "version", u64::from(header[0] >> 4)).add_offset(at));
    }
    let mut next = header[6];
    let mut offset = at + header.len();
    let mut is_fragment = false;
    loop {
        match next {
            // Hop-by-hop options, routing header, destination options: next header, then the length
            // in units of 8 bytes minus one.
            0 | 43 | 60 => {
                let option = take_at::<2>(data, offset, Layer::Ipv6)?;
                next = option[0];
                offset += (usize::from(option[1]) + 1) * 8;
            }
            // Fragment header: next header, reserved, offset 13, reserved 2, more fragments 1.
            44 => {
                let fragment = take_at::<8>(data, offset, Layer::Ipv6)?;
                next = fragment[0];
                offset += fragment.len();
                is_fragment = true;
                if u16::from_be_bytes([fragment[2], fragment[3]]) >> 3 != 0 {
                    let may_hold_roce = is_known(next) || matches!(next, 43 | 60);
                    return Ok(Step::other(if may_hold_roce {
                        NotInfiniband::Fragment
                    } else {
                        NotInfiniband::IpProtocol(next)
                    }));
                }
            }
            known if is_known(known) => break,
            other => return Ok(Step::other(NotInfiniband::IpProtocol(other))),
        }
    }
    let bytes = header.len() + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut src = [0; 16];
    src.copy_from_slice(&header[8..24]);
    let mut dst = [0; 16];
    dst.copy_from_slice(&header[24..40]);
    let packet = IpPacket {
        encapsulation: Encapsulation::RoceV2Ipv6,
        at,
        bytes,
        transport: offset,
        src: Endpoint::from_gid(src),
        dst: Endpoint::from_gid(dst),
        is_fragment,
        wire,
    };
    transport(data, next, &packet, path)
}

/// True for the protocols that carry RoCE or a tunnel.
const fn is_known(protocol: u8) -> bool {
    matches!(protocol, UDP | GRE | IPV4 | IPV6 | MPLS)
}

/// Locates the packet in an IP packet of this protocol. Tunnels in fragments are not read: the
/// frame in them is not whole.
fn transport(data: &[u8], protocol: u8, packet: &IpPacket, path: &mut TunnelPath) -> Result<Step, ParseError> {
    match protocol {
        UDP => udp::locate(data, packet, path),
        _ if packet.is_fragment => Ok(Step::other(NotInfiniband::Fragment)),
        GRE => gre::locate(data, packet, path),
        MPLS => Ok(mpls::in_ip(packet, path)),
        _ => Ok(Step::ip(packet.transport, TunnelKind::IpInIp, packet.extent(), path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::{CNP, ROCE_V2_IPV4_OPTIONS, ROCE_V2_IPV6, ROCE_V2_IPV6_EXTENSIONS};
    use crate::link::{LinkContent, Location, locate, outer};
    use crate::tunnel::{TunnelKind, TunnelKinds};
    use hex_literal::hex;

    /// `frame` with the bytes at `at` replaced.
    fn changed(frame: &[u8], at: usize, bytes: &[u8]) -> Result<LinkContent, ParseError> {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        locate(LinkType::ETHERNET, &frame, frame.len() as u32)
    }

    fn located(frame: &[u8]) -> Location {
        match locate(LinkType::ETHERNET, frame, frame.len() as u32) {
            Ok(LinkContent::Infiniband(location)) => location,
            other => panic!("{other:?}"),
        }
    }

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    #[test]
    fn the_addresses_are_the_ends() {
        let expected = Location {
            encapsulation: Encapsulation::RoceV2Ipv4,
            start: 42,
            network: 14,
            ib_bytes: 32,
            wire_bytes: 74,
            src: endpoint("10.0.17.1"),
            dst: endpoint("10.0.18.1"),
            tunnels: TunnelKinds::NONE,
        };
        assert_eq!(located(&CNP), expected);
        let expected = Location {
            encapsulation: Encapsulation::RoceV2Ipv6,
            start: 62,
            network: 14,
            ib_bytes: 28,
            wire_bytes: 90,
            src: endpoint("2001:db8::1"),
            dst: endpoint("2001:db8::2"),
            tunnels: TunnelKinds::NONE,
        };
        assert_eq!(located(&ROCE_V2_IPV6), expected);
    }

    #[test]
    fn options_are_skipped() {
        let location = located(&ROCE_V2_IPV4_OPTIONS);
        assert_eq!((location.network, location.start, location.ib_bytes), (14, 50, 12 + 16 + 4 + 4));
        let location = located(&ROCE_V2_IPV6_EXTENSIONS);
        assert_eq!((location.network, location.start, location.ib_bytes), (14, 62 + 24, 28));
    }

    #[test]
    fn fragments_are_not_read() {
        let fragment = Ok(LinkContent::Other(NotInfiniband::Fragment));
        // "More fragments", then an offset; "don't fragment" alone is how RoCE is sent.
        assert_eq!(changed(&CNP, 20, &hex!("2000")), fragment);
        assert_eq!(
            changed(&CNP, 20, &hex!("2000"))
                .map(|found| matches!(found, LinkContent::Other(what) if what.may_hold_roce())),
            Ok(true)
        );
        assert_eq!(changed(&CNP, 20, &hex!("0001")), fragment);
        assert_eq!(changed(&CNP, 20, &hex!("0000")), Ok(LinkContent::Infiniband(located(&CNP))));
        // IPv6: a fragment header before UDP, of the first fragment and of a later one.
        let ipv6 = |header: [u8; 8]| {
            let mut frame = [&ROCE_V2_IPV6[..54], &header, &ROCE_V2_IPV6[54..]].concat();
            frame[20] = 44;
            locate(LinkType::ETHERNET, &frame, frame.len() as u32)
        };
        assert_eq!(ipv6(hex!("1100 0001 00000007")), fragment);
        assert_eq!(ipv6(hex!("1100 0008 00000007")), fragment);
        assert_eq!(ipv6(hex!("2f00 0008 00000007")), fragment);
        // TCP is no RoCE, and neither is the first fragment of a datagram to another port.
        assert_eq!(ipv6(hex!("0600 0008 00000007")), Ok(LinkContent::Other(NotInfiniband::IpProtocol(6))));
        let other = changed(&[&CNP[..36], &[0, 53], &CNP[38..]].concat(), 20, &hex!("2000"));
        assert_eq!(other, Ok(LinkContent::Other(NotInfiniband::UdpPort(53))));
    }

    #[test]
    fn other_protocols_are_named() {
        for protocol in [6, 58] {
            let expected = Ok(LinkContent::Other(NotInfiniband::IpProtocol(protocol)));
            assert_eq!(changed(&CNP, 23, &[protocol]), expected);
            assert_eq!(changed(&ROCE_V2_IPV6, 20, &[protocol]), expected);
        }
    }

    #[test]
    fn impossible_headers_are_errors() {
        let ipv4 = |field, value| Err(ParseError::invalid(Layer::Ipv4, field, value).add_offset(14));
        assert_eq!(changed(&CNP, 14, &[0x65]), ipv4("version", 6));
        assert_eq!(changed(&CNP, 14, &[0x44]), ipv4("IHL", 4));
        assert_eq!(changed(&CNP, 16, &hex!("0013")), ipv4("total length", 19));
        let ipv6 = Err(ParseError::invalid(Layer::Ipv6, "version", 4).add_offset(14));
        assert_eq!(changed(&ROCE_V2_IPV6, 14, &[0x45]), ipv6);
        // An options header of 2048 bytes ends past the record.
        let beyond = Err(ParseError::truncated(Layer::Udp, 8, 0).add_offset(54 + 2048));
        assert_eq!(changed(&ROCE_V2_IPV6_EXTENSIONS, 54, &[17, 255]), beyond);
    }

    /// RFC 2003, RFC 2473 and RFC 4213: any version in any version.
    #[test]
    fn ip_packets_in_ip_packets() {
        for (inner, frame) in [(4, &CNP[..]), (41, &ROCE_V2_IPV6)] {
            let plain = located(frame);
            for (outer, header_bytes) in
                [(outer::ipv4(inner, &frame[14..]), 20), (outer::ipv6(inner, &frame[14..]), 40)]
            {
                let expected = Location {
                    start: plain.start + header_bytes,
                    network: plain.network + header_bytes,
                    tunnels: TunnelKinds::NONE.with(TunnelKind::IpInIp),
                    ..plain
                };
                assert_eq!(located(&outer), expected);
            }
        }
        // A fragment of a tunnel may hold RoCE.
        let mut cut = outer::ipv4(4, &CNP[14..]);
        cut[20] = 0x20;
        assert_eq!(changed(&cut, 0, &[]), Ok(LinkContent::Other(NotInfiniband::Fragment)));
    }

    #[test]
    fn raw_ip_is_identified_by_its_version() {
        for frame in [&CNP[..], &ROCE_V2_IPV6] {
            let plain = located(frame);
            let expected = Location { start: plain.start - 14, network: 0, ..plain };
            let raw = locate(LinkType::RAW, &frame[14..], frame.len() as u32 - 14);
            assert_eq!(raw, Ok(LinkContent::Infiniband(expected)));
        }
        let version = Err(ParseError::invalid(Layer::Ipv4, "version", 5));
        assert_eq!(locate(LinkType::RAW, &[0x50; 40], 40), version);
        assert_eq!(locate(LinkType::RAW, &[], 40), Err(ParseError::truncated(Layer::Ipv4, 1, 0)));
    }
}
