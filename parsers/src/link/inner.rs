//! Finds an Ethernet frame in a tunnel whose header does not show where it begins.

use super::wire::{E_TAG, IPV4, IPV6, MPLS, MPLS_MULTICAST, NSH, VLAN_TAGS, VN_TAG, take_at};
use crate::{Layer, ParseError};

/// The first of the offsets at which an Ethernet frame with a known protocol begins.
///
/// The version of an IP packet must agree with the `EtherType`, so other bytes rarely count as a
/// frame.
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
    while VLAN_TAGS.contains(&kind) {
        let tag = take_at::<4>(data, network, layer)?;
        kind = u16::from_be_bytes([tag[2], tag[3]]);
        network += tag.len();
    }
    match kind {
        IPV4 => Ok(matches!(take_at::<1>(data, network, layer)?[0], 0x45..=0x4F)),
        // The GRH of RoCEv1 begins as an IPv6 header does.
        IPV6 | 0x8915 => Ok(take_at::<1>(data, network, layer)?[0] >> 4 == 6),
        // ARP, flow control, LLDP, MPLS, port extenders, NSH.
        0x0806 | 0x8808 | 0x88CC | MPLS | MPLS_MULTICAST | VN_TAG | E_TAG | NSH => Ok(true),
        _ => Ok(false),
    }
}
