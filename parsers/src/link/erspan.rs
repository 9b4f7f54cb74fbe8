//! ERSPAN types II and III: the header between GRE and the mirrored frame.

use super::wire::{IpPacket, Step, take_at};
use crate::location::NotInfiniband;
use crate::tunnel::{MirrorHeader, MirrorSession, TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

/// Values of the version field.
const TYPE_II: u16 = 1;
const TYPE_III: u16 = 2;
/// Bytes of the header of type II, and of type III without its subheader.
const TYPE_II_BYTES: usize = 8;
const TYPE_III_BYTES: usize = 12;
const SUBHEADER_BYTES: usize = 8;
/// Frame types of type III.
const ETHERNET: u16 = 0;
const IP: u16 = 2;

/// Locates the packet after the ERSPAN header at `at`. `sequence` is the number in the GRE header.
///
/// ```text
/// II   version 4 | VLAN 12 | class 3 | encapsulation 2 | truncated 1 | session 10
///      reserved 12 | index 20
/// III  version 4 | VLAN 12 | class 3 | health 2 | truncated 1 | session 10
///      timestamp 32
///      security group 16 | P 1 | frame type 5 | hardware 6 | direction 1 | granularity 2 | O 1
///      subheader of the platform, 64 (if O)
/// ```
/// Sources: draft-foschiano-erspan-03, sections 4.2 and 4.3; tcpdump, `print-gre.c`
/// (`gre_print_erspan`). The version field determines the type; the protocol type in the GRE header
/// does not. Switches with Tofino chips send type III without a sequence number.
pub(super) fn locate(
    data: &[u8],
    at: usize,
    sequence: Option<u32>,
    ip: &IpPacket,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    let first = take_at::<4>(data, at, Layer::Erspan)?;
    let (start, second) = (u16::from_be_bytes([first[0], first[1]]), u16::from_be_bytes([first[2], first[3]]));
    let (version, vlan) = (start >> 12, start & 0xFFF);
    let kind = if version == TYPE_III { TunnelKind::ErspanIII } else { TunnelKind::ErspanII };
    let session = MirrorSession { kind, source: ip.src, session: u64::from(second & 0x3FF), engine: 0 };
    let is_truncated = second & 0x400 != 0;
    let header = MirrorHeader { session, sequence, vlan: Some(vlan), is_egress: None, is_truncated };
    match version {
        TYPE_II => {
            take_at::<TYPE_II_BYTES>(data, at, Layer::Erspan)?;
            path.add_mirror(header);
            Ok(Step::frame(at + TYPE_II_BYTES, kind, ip.extent(), path))
        }
        TYPE_III => type_iii(data, at, header, ip, path),
        other => Ok(Step::other(NotInfiniband::TunnelPayload(kind, other))),
    }
}

/// Locates the packet after the header of type III at `at`.
fn type_iii(
    data: &[u8],
    at: usize,
    mut header: MirrorHeader,
    ip: &IpPacket,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    let bytes = take_at::<TYPE_III_BYTES>(data, at, Layer::Erspan)?;
    let last = u16::from_be_bytes([bytes[10], bytes[11]]);
    header.session.engine = u32::from(last >> 4 & 0x3F);
    header.is_egress = Some(last & 8 != 0);
    path.add_mirror(header);
    let mut inner_at = at + TYPE_III_BYTES;
    if last & 1 != 0 {
        take_at::<SUBHEADER_BYTES>(data, inner_at, Layer::Erspan)?;
        inner_at += SUBHEADER_BYTES;
    }
    match last >> 10 & 0x1F {
        ETHERNET => Ok(Step::frame(inner_at, TunnelKind::ErspanIII, ip.extent(), path)),
        IP => Ok(Step::ip(inner_at, TunnelKind::ErspanIII, ip.extent(), path)),
        other => Ok(Step::other(NotInfiniband::TunnelPayload(TunnelKind::ErspanIII, other))),
    }
}

#[cfg(test)]
mod tests {
    use crate::ib::samples::{CNP, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::outer::{assert_tunnel, ipv4, ipv6, other, packet, read, switch};
    use crate::link::{MirrorHeader, MirrorSession, NotInfiniband, TunnelKind};
    use crate::{Layer, ParseError};
    use hex_literal::hex;
    use std::vec::Vec;

    /// draft-foschiano-erspan-03, section 4.2: number 7, VLAN 100, session 5, truncated.
    const II: [u8; 16] = hex!("1000 88be 00000007 1064 0405 00000003");
    /// Section 4.3: VLAN 100, session 5, hardware 2, egress, Ethernet.
    const III: [u8; 20] = hex!("1000 22eb 00000007 2064 0005 11223344 0000 0028");
    /// The same with a subheader of 8 bytes (O is 1).
    const III_SUBHEADER: [u8; 28] = hex!("1000 22eb 00000007 2064 0005 11223344 0000 0029 14000000 55667788");

    fn gre(header: &[u8], content: &[u8]) -> Vec<u8> {
        ipv4(47, &[header, content].concat())
    }

    #[test]
    fn frames_follow_the_header() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            for (header, kind) in [
                (&II[..], TunnelKind::ErspanII),
                (&III, TunnelKind::ErspanIII),
                (&III_SUBHEADER, TunnelKind::ErspanIII),
                // Without a number, as Tofino sends it.
                (&hex!("0000 22eb 2064 0005 11223344 0000 0028"), TunnelKind::ErspanIII),
            ] {
                assert_tunnel(&gre(header, frame), frame, kind);
                assert_tunnel(&ipv6(47, &[header, frame].concat()), frame, kind);
            }
        }
    }

    #[test]
    fn the_header_names_session_number_vlan_and_direction() {
        let of = |header: &[u8]| read(&gre(header, &CNP)).1.mirror().unwrap();
        let expected = MirrorHeader {
            session: MirrorSession { kind: TunnelKind::ErspanII, source: switch(), session: 5, engine: 0 },
            sequence: Some(7),
            vlan: Some(100),
            is_egress: None,
            is_truncated: true,
        };
        assert_eq!(of(&II), expected);
        let expected = MirrorHeader {
            session: MirrorSession { kind: TunnelKind::ErspanIII, engine: 2, ..expected.session },
            is_egress: Some(true),
            is_truncated: false,
            ..expected
        };
        assert_eq!((of(&III), of(&III_SUBHEADER)), (expected, expected));
        let mut ingress = III;
        ingress[19] &= !8;
        assert_eq!(of(&ingress).is_egress, Some(false));
    }

    /// Section 4.3: frame type 2 is an IP packet.
    #[test]
    fn frame_types() {
        let of = |kind: u8, content: &[u8]| {
            let mut header = III;
            header[18] = kind << 2;
            gre(&header, content)
        };
        for frame in [&CNP[..], &ROCE_V2_IPV6] {
            let (found, kind) = packet(&of(2, &frame[14..]));
            assert_eq!((found.wire_bytes as usize, kind), (frame.len(), Some(TunnelKind::ErspanIII)));
        }
        let unknown = other(&of(7, &CNP));
        assert_eq!((unknown, unknown.may_hold_roce()), (NotInfiniband::TunnelPayload(TunnelKind::ErspanIII, 7), true));
    }

    #[test]
    fn unknown_versions_and_truncated_headers() {
        let mut version = II;
        version[8] = 0x30;
        assert_eq!(other(&gre(&version, &CNP)), NotInfiniband::TunnelPayload(TunnelKind::ErspanII, 3));
        let cut = |header: &[u8], needed, available, at| {
            let expected = Err(ParseError::truncated(Layer::Erspan, needed, available).add_offset(at));
            assert_eq!(read(&gre(header, &[])).0, expected);
        };
        cut(&II[..15], 8, 7, 42);
        cut(&III[..19], 12, 11, 42);
        cut(&III_SUBHEADER[..27], 8, 7, 54);
    }
}
