//! What a tunnel carries: an Ethernet frame or a packet, and where a frame begins if the tunnel's
//! header does not show it.

use super::wire::{FrameExtent, take_at};
use super::{ethernet, ip};
use crate::location::{LinkContent, NotInfiniband};
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

/// `EtherType` of a bridged Ethernet frame (RFC 1701, "Transparent Ethernet Bridging").
const BRIDGED: u16 = 0x6558;
/// `EtherType`s of packets in a tunnel: IPv4, IPv6, MPLS, NSH.
const PACKETS: [u16; 5] = [0x0800, 0x86DD, 0x8847, 0x8848, ethernet::NSH];

/// Locates the packet of the Ethernet frame at `at` in a tunnel of this kind.
pub(super) fn frame(
    data: &[u8],
    at: usize,
    kind: TunnelKind,
    outer: FrameExtent,
    path: &mut TunnelPath,
) -> Result<LinkContent, ParseError> {
    if !path.enter(kind) {
        return Ok(LinkContent::Other(NotInfiniband::TooDeep));
    }
    ethernet::locate(data, at, outer.inner_frame(at), path)
}

/// Locates the packet of the IP packet at `at` in a tunnel of this kind.
pub(super) fn ip_packet(
    data: &[u8],
    at: usize,
    kind: TunnelKind,
    outer: FrameExtent,
    path: &mut TunnelPath,
) -> Result<LinkContent, ParseError> {
    if !path.enter(kind) {
        return Ok(LinkContent::Other(NotInfiniband::TooDeep));
    }
    ip::by_version(data, at, outer.inner_packet(at), path)
}

/// Locates the packet in a tunnel of this kind, whose header names the content at `at` by the
/// `EtherType` `protocol`.
pub(super) fn by_type(
    data: &[u8],
    (protocol, at): (u16, usize),
    kind: TunnelKind,
    outer: FrameExtent,
    path: &mut TunnelPath,
) -> Result<LinkContent, ParseError> {
    if protocol == BRIDGED {
        return frame(data, at, kind, outer, path);
    }
    if !path.enter(kind) {
        return Ok(LinkContent::Other(NotInfiniband::TooDeep));
    }
    if PACKETS.contains(&protocol) {
        return ethernet::by_type(data, protocol, at, outer.inner_packet(at), path);
    }
    Ok(LinkContent::Other(NotInfiniband::TunnelPayload(kind, protocol)))
}

/// The first of the offsets at which an Ethernet frame with a known protocol begins.
///
/// For tunnels whose header does not show the length of what precedes the frame. The version of an
/// IP packet must agree with the `EtherType`, so other bytes are rarely taken for a frame.
pub(super) fn first_frame(data: &[u8], offsets: &[usize], layer: Layer) -> Result<Option<usize>, ParseError> {
    for at in offsets {
        if is_frame(data, *at, layer)? {
            return Ok(Some(*at));
        }
    }
    Ok(None)
}

fn is_frame(data: &[u8], at: usize, layer: Layer) -> Result<bool, ParseError> {
    let header = take_at::<14>(data, at, layer)?;
    let mut kind = u16::from_be_bytes([header[12], header[13]]);
    let mut network = at + header.len();
    while ethernet::VLAN_TAGS.contains(&kind) {
        let tag = take_at::<4>(data, network, layer)?;
        kind = u16::from_be_bytes([tag[2], tag[3]]);
        network += tag.len();
    }
    match kind {
        0x0800 => Ok(matches!(take_at::<1>(data, network, layer)?[0], 0x45..=0x4F)),
        // The GRH of RoCEv1 begins as an IPv6 header does.
        0x86DD | 0x8915 => Ok(take_at::<1>(data, network, layer)?[0] >> 4 == 6),
        // ARP, flow control, LLDP, MPLS, port extenders, NSH.
        0x0806 | 0x8808 | 0x88CC | 0x8847 | 0x8848 | ethernet::VN_TAG | ethernet::E_TAG | ethernet::NSH => Ok(true),
        _ => Ok(false),
    }
}
