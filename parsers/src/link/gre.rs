//! GRE in IP and in UDP: Ethernet frames (gretap, NVGRE), packets, and the mirrors of switches.

use super::wire::{BRIDGED, FrameExtent, IPV4, IPV6, IpPacket, MPLS, MPLS_MULTICAST, NSH, Step, take_at};
use super::{erspan, inner, mpls};
use crate::location::NotInfiniband;
use crate::tunnel::{MirrorHeader, MirrorSession, TunnelKind, TunnelPath};
use crate::{ErrorKind, Layer, ParseError};

/// Protocols of mirrors.
const ERSPAN: u16 = 0x88BE;
const ERSPAN_III: u16 = 0x22EB;
const MELLANOX: u16 = 0x8949;
/// Bytes before the frame of Mellanox Spectrum switches; their meaning is not published.
const MELLANOX_BYTES: usize = 22;

const CHECKSUM: u8 = 0x80;
const ROUTING: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;

/// A GRE header.
struct GreHeader {
    key: Option<u32>,
    sequence: Option<u32>,
    /// Offset of the first byte after it.
    end: usize,
}

impl GreHeader {
    /// The session that numbers the frame.
    fn mirror(&self, ip: &IpPacket) -> MirrorHeader {
        MirrorHeader {
            session: MirrorSession {
                kind: TunnelKind::Gre,
                source: ip.src,
                session: self.key.unwrap_or(0).into(),
                engine: 0,
            },
            sequence: self.sequence,
            vlan: None,
            is_egress: None,
            is_truncated: false,
        }
    }
}

/// Locates the packet in the GRE packet of `ip`.
///
/// ```text
/// C 1 | R 1 | K 1 | S 1 | reserved 9 | version 3 | protocol 16   (bits)
/// checksum 2, reserved 2 (if C) | key 4 (if K) | sequence number 4 (if S)   (bytes)
/// ```
/// Sources: RFC 2784, section 2; RFC 2890, section 2. NVGRE is GRE with a key and Ethernet frames
/// (RFC 7637, section 3.2). Version 1 is PPTP (RFC 2637), which carries PPP.
pub(super) fn locate(data: &[u8], ip: &IpPacket, path: &mut TunnelPath) -> Result<Step, ParseError> {
    packet_of(data, (TunnelKind::Gre, ip.transport), ip, path)
}

/// Locates the packet in the GRE packet at `at` in the datagram to UDP port `port`.
///
/// Any program may use the port, so the GRE header must be possible, and a known frame or packet
/// must follow it. Source: RFC 8086, section 3. Port 4755 is encrypted (section 5).
pub(super) fn in_udp(
    data: &[u8],
    (port, at): (u16, usize),
    ip: &IpPacket,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    let end = ip.extent().end();
    // Bytes after the datagram belong to no header.
    let own = data.get(..end).unwrap_or(data);
    let mut tunnel = *path;
    let step = take_at::<4>(own, at, Layer::Gre).and_then(|base| {
        // RFC 2784, section 2.3 and RFC 2890, section 2: reserved bits are 0.
        if base[0] & !(CHECKSUM | KEY | SEQUENCE) != 0 || base[1] != 0 {
            return Ok(None);
        }
        let step = packet_of(own, (TunnelKind::GreInUdp, at), ip, &mut tunnel)?;
        Ok(is_plausible(own, &step)?.then_some(step))
    });
    match step {
        Ok(Some(step)) => {
            *path = tunnel;
            Ok(step)
        }
        Err(error) => match error.kind {
            // Not a header that the capture truncated, but a datagram too short for it.
            ErrorKind::Truncated { needed, .. } if error.offset.saturating_add(needed) <= end => Err(error),
            _ => Ok(Step::other(NotInfiniband::UdpPort(port))),
        },
        Ok(None) => Ok(Step::other(NotInfiniband::UdpPort(port))),
    }
}

/// True if the bytes after a tunnel are what its header says.
fn is_plausible(data: &[u8], step: &Step) -> Result<bool, ParseError> {
    let is_frame = |at| inner::first_frame(data, &[at], Layer::Gre).map(|found| found.is_some());
    let is_v6 = |at, extent: FrameExtent| {
        Ok(take_at::<1>(data, at, Layer::Gre)?[0] >> 4 == 6 && mpls::is_ipv6(data, at, extent)?)
    };
    match *step {
        Step::Frame(extent) => is_frame(extent.start()),
        Step::Packet { kind: MPLS | MPLS_MULTICAST, at, extent } => mpls::is_plausible(data, at, extent),
        Step::Packet { kind: IPV4, at, .. } => mpls::has_ipv4_checksum(data, at),
        Step::Packet { kind: IPV6, at, extent } => is_v6(at, extent),
        // The version and the reserved bits of a network service header are 0.
        Step::Packet { at, .. } => Ok(take_at::<1>(data, at, Layer::Gre)?[0] >> 4 == 0),
        Step::Ip { at, extent } => Ok(is_v6(at, extent)? || mpls::has_ipv4_checksum(data, at)?),
        Step::Content(_) => Ok(false),
    }
}

/// Locates the packet in the GRE packet at `start`, in a tunnel of this kind.
fn packet_of(
    data: &[u8],
    (kind, start): (TunnelKind, usize),
    ip: &IpPacket,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    let base = take_at::<4>(data, start, Layer::Gre)?;
    let [flags, version, ..] = *base;
    let protocol = u16::from_be_bytes([base[2], base[3]]);
    if version & 7 != 0 {
        return Ok(Step::other(NotInfiniband::GreProtocol(protocol)));
    }
    if flags & ROUTING != 0 {
        // RFC 2784, section 2.3.1: a receiver must discard such packets, unless it implements the
        // routing of RFC 1701.
        return Err(ParseError::invalid(Layer::Gre, "routing", 1).add_offset(start));
    }
    let header = optional_fields(data, start + base.len(), flags)?;
    let (at, extent) = (header.end, ip.extent());
    match protocol {
        ERSPAN if header.sequence.is_none() => {
            let at = after_prefix(data, [at, at + 12, at + MELLANOX_BYTES])?;
            Ok(Step::frame(at, TunnelKind::ErspanI, extent, path))
        }
        ERSPAN | ERSPAN_III => erspan::locate(data, at, header.sequence, ip, path),
        MELLANOX => {
            let at = after_prefix(data, [at + MELLANOX_BYTES, at, at + 12])?;
            Ok(Step::frame(at, TunnelKind::MellanoxMirror, extent, path))
        }
        BRIDGED | IPV4 | IPV6 | MPLS | MPLS_MULTICAST | NSH => {
            if header.sequence.is_some() {
                path.add_mirror(header.mirror(ip));
            }
            Ok(Step::by_type((protocol, at), kind, extent, path))
        }
        other => Ok(Step::other(NotInfiniband::GreProtocol(other))),
    }
}

/// Reads the optional fields, which begin at `at`.
fn optional_fields(data: &[u8], mut at: usize, flags: u8) -> Result<GreHeader, ParseError> {
    let mut word = |flag| -> Result<Option<u32>, ParseError> {
        if flags & flag == 0 {
            return Ok(None);
        }
        let bytes = take_at::<4>(data, at, Layer::Gre)?;
        at += bytes.len();
        Ok(Some(u32::from_be_bytes(*bytes)))
    };
    word(CHECKSUM)?;
    let key = word(KEY)?;
    let sequence = word(SEQUENCE)?;
    Ok(GreHeader { key, sequence, end: at })
}

/// Start of the frame of a mirror: the first of these offsets that has a frame, otherwise the first
/// one.
///
/// ERSPAN type I and the protocol 0x8949 have no field that shows what precedes the frame. Mellanox
/// Spectrum switches send 22 bytes, and some switches with other chips 12 bytes. Source: the
/// `SONiC` project, `sonic-swss/orchagent/mirrororch.cpp` (`greType`) and
/// `sonic-mgmt/tests/everflow/everflow_test_utilities.py` (`copy_and_pad`,
/// `mirror_session_info`).
fn after_prefix(data: &[u8], offsets: [usize; 3]) -> Result<usize, ParseError> {
    let found = inner::first_frame(data, &offsets, Layer::Mirror)?;
    let [first, ..] = offsets;
    Ok(found.unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use crate::frame::LinkType;
    use crate::ib::samples::{CNP, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::outer::{assert_tunnel, ipv4, ipv6, other, packet, read, switch, udp};
    use crate::link::{LinkContent, NotInfiniband, TunnelKind, TunnelPath, locate_in_tunnels};
    use crate::{Layer, ParseError};
    use hex_literal::hex;
    use std::vec::Vec;

    fn gre(header: &[u8], content: &[u8]) -> Vec<u8> {
        ipv4(47, &[header, content].concat())
    }

    /// RFC 2784, section 2, and RFC 2890, section 2: each optional field takes 4 bytes.
    #[test]
    fn ethernet_frames_follow_the_optional_fields() {
        for header in [
            &hex!("0000 6558")[..],
            &hex!("8000 6558 abcd0000"),
            // RFC 7637, section 3.2 (NVGRE): virtual subnet 0x123456, flow 0x78.
            &hex!("2000 6558 12345678"),
            &hex!("1000 6558 00000001"),
            &hex!("b000 6558 abcd0000 0000002a 00000001"),
        ] {
            for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
                assert_tunnel(&gre(header, frame), frame, TunnelKind::Gre);
                assert_tunnel(&ipv6(47, &[header, frame].concat()), frame, TunnelKind::Gre);
            }
        }
        let (_, path) = read(&gre(&hex!("3000 6558 0000002a 00000007"), &CNP));
        let mirror = path.mirror().unwrap();
        assert_eq!((mirror.session.source, mirror.session.session, mirror.sequence), (switch(), 42, Some(7)));
        assert_eq!(read(&gre(&hex!("2000 6558 0000002a"), &CNP)).1.mirror(), None);
    }

    /// RFC 2784, section 2.4: the protocol of an IP packet is its `EtherType`.
    #[test]
    fn ip_packets_get_an_ethernet_header() {
        for (protocol, frame) in [(hex!("0800"), &CNP[..]), (hex!("86dd"), &ROCE_V2_IPV6)] {
            let (plain, _) = packet(frame);
            let (found, kind) = packet(&gre(&[&[0, 0], &protocol[..]].concat(), &frame[14..]));
            assert_eq!(kind, Some(TunnelKind::Gre));
            assert_eq!((found.network, found.start), (38, plain.start + 24));
            assert_eq!((found.wire_bytes, found.src, found.ib_bytes), (plain.wire_bytes, plain.src, plain.ib_bytes));
            // A label is part of the tunnel.
            let labelled = gre(&hex!("0000 8847 00010140"), &frame[14..]);
            assert_eq!(packet(&labelled).0.wire_bytes, plain.wire_bytes);
        }
    }

    /// draft-foschiano-erspan-03, section 4.1: no header but GRE's.
    #[test]
    fn erspan_type_i_has_no_header() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            assert_tunnel(&gre(&hex!("0000 88be"), frame), frame, TunnelKind::ErspanI);
        }
        assert_eq!(read(&gre(&hex!("0000 88be"), &CNP)).1.mirror(), None);
    }

    /// `SONiC`, `everflow_test_utilities.py`, `copy_and_pad`: 22 bytes before the frame with protocol
    /// 0x8949, 12 bytes on other switches.
    #[test]
    fn bytes_before_the_frame_of_a_mirror_are_skipped() {
        let prefixes = [&[0; 22][..], &[0; 12], &[0x5A; 22], &[0x5A; 12], &[]];
        for prefix in prefixes {
            for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
                let content = [prefix, frame].concat();
                assert_tunnel(&gre(&hex!("0000 8949"), &content), frame, TunnelKind::MellanoxMirror);
                assert_tunnel(&gre(&hex!("0000 88be"), &content), frame, TunnelKind::ErspanI);
            }
        }
        // Of an unknown frame the first bytes count: 802.3 with a length.
        let mut bridge = [2; 60];
        bridge[12..14].copy_from_slice(&[0, 0x26]);
        assert_eq!(other(&gre(&hex!("0000 88be"), &bridge)), NotInfiniband::EtherType(0x26));
        let prefixed = [&[0; 22][..], &bridge].concat();
        assert_eq!(other(&gre(&hex!("0000 8949"), &prefixed)), NotInfiniband::EtherType(0x26));
    }

    /// RFC 8086, section 3: the GRE header follows UDP, with the same content as in IP.
    #[test]
    fn gre_in_udp() {
        let datagram = |header: &[u8], content: &[u8]| ipv4(17, &udp(4754, &[header, content].concat()));
        for header in
            [&hex!("0000 6558")[..], &hex!("2000 6558 12345678"), &hex!("b000 6558 abcd0000 0000002a 00000001")]
        {
            for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
                assert_tunnel(&datagram(header, frame), frame, TunnelKind::GreInUdp);
                let over_ipv6 = ipv6(17, &udp(4754, &[header, frame].concat()));
                assert_tunnel(&over_ipv6, frame, TunnelKind::GreInUdp);
            }
        }
        // The source is an IP packet with a correct checksum, as a sender makes it.
        for (protocol, frame) in [(&hex!("0000 0800")[..], &CNP[..]), (&hex!("0000 86dd"), &ROCE_V2_IPV6)] {
            let (plain, _) = packet(frame);
            let (found, kind) = packet(&datagram(protocol, &frame[14..]));
            assert_eq!((kind, found.network), (Some(TunnelKind::GreInUdp), 46));
            assert_eq!((found.wire_bytes, found.src), (plain.wire_bytes, plain.src));
            let labelled = datagram(&hex!("0000 8847 00010140"), &frame[14..]);
            assert_eq!(packet(&labelled).1, Some(TunnelKind::GreInUdp));
        }
        // Mirrors keep their kind.
        assert_tunnel(&datagram(&hex!("0000 88be"), &CNP), &CNP, TunnelKind::ErspanI);
    }

    /// Any program may send to port 4754: text, zeros, numbers, short datagrams, and bytes that
    /// look like a GRE header alone are not a tunnel, also if the capture truncates them.
    #[test]
    fn other_datagrams_to_the_port_of_gre_are_not_read() {
        let expected = NotInfiniband::UdpPort(4754);
        let mut wrong_checksum = CNP[14..].to_vec();
        wrong_checksum[10] ^= 1;
        let zeros = [0; 64];
        for content in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"",
            b"a",
            &zeros,
            &hex!("0000 6558"),
            &hex!("0000 6558 00000000 00000000"),
            &[&hex!("0000 6558")[..], &[0x5A; 60]].concat(),
            &[&hex!("0000 0800")[..], &[0x5A; 60]].concat(),
            &[&hex!("0000 0800")[..], &wrong_checksum].concat(),
            &[&hex!("0000 86dd")[..], &CNP[14..]].concat(),
            &[&hex!("0000 8847 00010140")[..], &[0x5A; 60]].concat(),
            &[&hex!("0000 8847")[..], &[0; 64]].concat(),
            // Reserved bits, routing, and the version of PPTP.
            &[&hex!("0800 6558")[..], &CNP].concat(),
            &[&hex!("0008 6558")[..], &CNP].concat(),
            &[&hex!("4000 6558")[..], &CNP].concat(),
            &[&hex!("0001 6558")[..], &CNP].concat(),
        ] {
            let frame = ipv4(17, &udp(4754, content));
            assert_eq!(other(&frame), expected, "{content:x?}");
            assert!(read(&frame).1.outermost().is_none());
            // Padding of the outer frame is not content.
            assert_eq!(other(&[&frame[..], &CNP].concat()), expected, "{content:x?}");
            for there in 42..frame.len() {
                let mut path = TunnelPath::default();
                match locate_in_tunnels(LinkType::ETHERNET, &frame[..there], frame.len() as u32, &mut path) {
                    Ok(found) => assert_eq!(found, LinkContent::Other(expected), "{content:x?} at {there}"),
                    Err(error) => assert!(error.is_truncated(), "{content:x?} at {there}: {error}"),
                }
            }
        }
    }

    #[test]
    fn other_protocols_and_versions_are_named() {
        assert_eq!(other(&gre(&hex!("0000 6559"), &CNP)), NotInfiniband::GreProtocol(0x6559));
        // PPTP (RFC 2637), a keepalive, and a Web cache's traffic hold no frame.
        for (header, protocol) in
            [(&hex!("3001 880b")[..], 0x880B), (&hex!("0000 0000"), 0), (&hex!("0000 883e"), 0x883E)]
        {
            let found = other(&gre(header, &CNP));
            assert_eq!((found, found.may_hold_roce()), (NotInfiniband::GreProtocol(protocol), false));
        }
        assert!(NotInfiniband::GreProtocol(0x6559).may_hold_roce());
        let routing = Err(ParseError::invalid(Layer::Gre, "routing", 1).add_offset(34));
        assert_eq!(read(&gre(&hex!("4000 6558"), &CNP)).0, routing);
        let cut = Err(ParseError::truncated(Layer::Gre, 4, 3).add_offset(38));
        assert_eq!(read(&gre(&hex!("2000 6558 000000"), &[])).0, cut);
    }
}
