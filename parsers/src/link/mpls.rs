//! MPLS: label stacks in Ethernet, IP and UDP, and the pseudowires after them.

use super::inner;
use super::wire::{FrameExtent, IpPacket, MPLS, Step, take_at};
use crate::location::NotInfiniband;
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

/// Bytes of the control word of a pseudowire.
const CONTROL_WORD_BYTES: usize = 4;

/// Locates the packet after the MPLS label stack at `at`; `kind` is the stack's `EtherType`.
///
/// ```text
/// label 20 | traffic class 3 | bottom of stack 1 | TTL 8
/// ```
/// Source: RFC 3032, section 2.1. Labels do not name the next protocol. The first nibble after the
/// stack is 4 or 6 for IP packets and 0 for the control word of a pseudowire (RFC 4385, section 3;
/// RFC 4928), whose frame may also follow without a control word (RFC 4448, section 4.6).
pub(super) fn locate(
    data: &[u8],
    (kind, at): (u16, usize),
    wire: FrameExtent,
    path: &mut TunnelPath,
) -> Result<Step, ParseError> {
    let end = after_labels(data, at)?;
    // In a tunnel without an Ethernet header, the labels belong to the tunnel.
    let wire = if path.depth() > 0 && wire.is_packet_at(at) { wire.inner_packet(end) } else { wire };
    let [first] = *take_at::<1>(data, end, Layer::Mpls)?;
    let frame_at = match first >> 4 {
        4 if is_ipv4(data, end)? => return Ok(Step::Ip { at: end, extent: wire }),
        6 if is_ipv6(data, end, wire)? => return Ok(Step::Ip { at: end, extent: wire }),
        0 => inner::first_frame(data, &[end + CONTROL_WORD_BYTES, end], Layer::Mpls)?,
        _ => inner::first_frame(data, &[end], Layer::Mpls)?,
    };
    match frame_at {
        Some(frame_at) => Ok(Step::frame(frame_at, TunnelKind::Pseudowire, wire, path)),
        None if matches!(first >> 4, 4 | 6) => Ok(Step::Ip { at: end, extent: wire }),
        None => Ok(Step::other(NotInfiniband::EtherType(kind))),
    }
}

/// Offset of the first byte after the label stack at `at`.
fn after_labels(data: &[u8], at: usize) -> Result<usize, ParseError> {
    let mut end = at;
    loop {
        let label = take_at::<4>(data, end, Layer::Mpls)?;
        end += label.len();
        if label[2] & 1 == 1 {
            return Ok(end);
        }
    }
}

/// True if a label stack at `at` is followed by an IP packet or by a known Ethernet frame.
pub(super) fn is_plausible(data: &[u8], at: usize, wire: FrameExtent) -> Result<bool, ParseError> {
    let end = after_labels(data, at)?;
    let [first] = *take_at::<1>(data, end, Layer::Mpls)?;
    let is_packet = match first >> 4 {
        4 => has_ipv4_checksum(data, end)?,
        6 => is_ipv6(data, end, wire)?,
        _ => false,
    };
    Ok(is_packet || inner::first_frame(data, &[end, end + CONTROL_WORD_BYTES], Layer::Mpls)?.is_some())
}

/// Locates the packet after the label stack in an IP packet.
///
/// Source: RFC 4023, section 3.
pub(super) const fn in_ip(ip: &IpPacket, path: &mut TunnelPath) -> Step {
    Step::by_type((MPLS, ip.transport), TunnelKind::MplsInIp, ip.extent(), path)
}

/// Locates the packet after the label stack at `at` in a UDP datagram.
///
/// Source: RFC 7510, section 3.
pub(super) const fn in_udp(at: usize, ip: &IpPacket, path: &mut TunnelPath) -> Step {
    Step::by_type((MPLS, at), TunnelKind::MplsInUdp, ip.extent(), path)
}

/// True if the bytes at `at` are an IPv6 header of a packet that fits into the frame and whose next
/// header is a usual one.
pub(super) fn is_ipv6(data: &[u8], at: usize, wire: FrameExtent) -> Result<bool, ParseError> {
    let header = take_at::<8>(data, at, Layer::Mpls)?;
    let bytes = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    Ok(at + bytes <= wire.end() && matches!(header[6], 0 | 4 | 6 | 17 | 41 | 43 | 44 | 47 | 58 | 60 | 137))
}

/// True if the bytes at `at` are an IPv4 header with a correct checksum.
pub(super) fn has_ipv4_checksum(data: &[u8], at: usize) -> Result<bool, ParseError> {
    let [first] = *take_at::<1>(data, at, Layer::Ipv4)?;
    if !matches!(first, 0x45..=0x4F) {
        return Ok(false);
    }
    let mut sum = 0;
    for word in 0..usize::from(first & 0xF) * 2 {
        sum += u32::from(u16::from_be_bytes(*take_at::<2>(data, at + word * 2, Layer::Ipv4)?));
    }
    Ok((sum & 0xFFFF) + (sum >> 16) == 0xFFFF)
}

/// True if the bytes at `at` are an IPv4 header with a correct checksum. The destination address of
/// a frame without a control word may begin with the same nibble.
fn is_ipv4(data: &[u8], at: usize) -> Result<bool, ParseError> {
    let header = take_at::<20>(data, at, Layer::Mpls)?;
    if header[0] == 0x45 {
        return has_ipv4_checksum(data, at);
    }
    // An IP header with options, unless an Ethernet frame with a known protocol begins at `at`.
    Ok(header[0] > 0x45 && inner::first_frame(data, &[at], Layer::Mpls)?.is_none())
}

#[cfg(test)]
mod tests {
    use crate::ib::samples::{CNP, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::outer::{assert_tunnel, ipv4, ipv6, other, packet, udp};
    use crate::link::{NotInfiniband, TunnelKind};
    use hex_literal::hex;
    use std::vec::Vec;

    const ETHERNET: [u8; 14] = hex!("020000000002 020000000001 8847");
    const LABELS: [u8; 8] = hex!("00010040 00020140");

    /// RFC 4448, section 4: with a control word, and without one.
    #[test]
    fn frames_of_a_pseudowire_are_found() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            for control in [&hex!("00000000")[..], &hex!("00001234"), &[]] {
                // Without a control word, the destination address may begin with any nibble. Tested
                // are those of IP, that of a control word, and another one.
                for first in [0x02, 0x45, 0x60, 0xE4] {
                    let mut frame = frame.to_vec();
                    frame[0] = first;
                    assert_tunnel(&[&ETHERNET, &LABELS[..], control, &frame].concat(), &frame, TunnelKind::Pseudowire);
                }
            }
        }
        // ARP is known; a frame with another `EtherType` cannot be distinguished from other
        // content.
        let mut arp = [2; 60];
        arp[12..14].copy_from_slice(&hex!("0806"));
        assert_eq!(other(&[&ETHERNET, &LABELS[..], &arp].concat()), NotInfiniband::EtherType(0x0806));
        arp[12] = 9;
        assert_eq!(other(&[&ETHERNET, &LABELS[..], &arp].concat()), NotInfiniband::EtherType(0x8847));
    }

    /// RFC 7510, section 3: the label stack follows UDP; RFC 4023, section 3: IP protocol 137. The
    /// labels are part of the tunnel.
    #[test]
    fn labels_in_udp_and_in_ip() {
        for frame in [&CNP[..], &ROCE_V2_IPV6] {
            let (plain, _) = packet(frame);
            let labelled = [&LABELS, &frame[14..]].concat();
            let bridged = [&LABELS[..], &[0; 4], frame].concat();
            for (tunnel, network, of) in [
                (TunnelKind::MplsInUdp, 50, (|content| ipv4(17, &udp(6635, content))) as fn(&[u8]) -> Vec<u8>),
                (TunnelKind::MplsInIp, 42, |content| ipv4(137, content)),
                (TunnelKind::MplsInIp, 62, |content| ipv6(137, content)),
            ] {
                let (found, kind) = packet(&of(&labelled));
                assert_eq!((kind, found.network, found.wire_bytes), (Some(tunnel), network, plain.wire_bytes));
                let wire = packet(&of(&bridged));
                assert_eq!((wire.1, wire.0.wire_bytes), (Some(tunnel), plain.wire_bytes));
                assert!(wire.0.tunnels.contains(TunnelKind::Pseudowire));
            }
        }
    }
}
