//! UDP: recognizes `RoCEv2` and tunnels by their ports, and takes the packet's original length from
//! the header.

use super::wire::{IpPacket, SHORTEST_TRANSPORT_BYTES, Step, take_at};
use super::{gre, mpls, vxlan};
use crate::location::{LinkContent, Location, NotInfiniband};
use crate::sampled::SFLOW_PORT;
use crate::tunnel::TunnelPath;
use crate::{Layer, ParseError};

/// Destination port of `RoCEv2`. The source port is arbitrary: real adapters send congestion
/// notifications from port 0.
const ROCE_V2_PORT: u16 = 4791;
const VXLAN_PORT: u16 = 4789;
const LEGACY_VXLAN_PORT: u16 = 8472;
const VXLAN_GPE_PORT: u16 = 4790;
const GENEVE_PORT: u16 = 6081;
const GRE_PORT: u16 = 4754;
const MPLS_PORT: u16 = 6635;
/// Ports of the tunnels that are removed.
const TUNNEL_PORTS: [u16; 7] =
    [VXLAN_PORT, LEGACY_VXLAN_PORT, VXLAN_GPE_PORT, GENEVE_PORT, GRE_PORT, MPLS_PORT, SFLOW_PORT];
const HEADER_BYTES: usize = 8;

/// Locates the packet in the UDP datagram of `ip`.
#[inline]
pub(super) fn locate(data: &[u8], ip: &IpPacket, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<HEADER_BYTES>(data, ip.transport, Layer::Udp)?;
    let port = u16::from_be_bytes([header[2], header[3]]);
    let at = ip.transport + HEADER_BYTES;
    if ip.is_fragment && (port == ROCE_V2_PORT || TUNNEL_PORTS.contains(&port)) {
        return Ok(Step::other(NotInfiniband::Fragment));
    }
    match port {
        ROCE_V2_PORT => roce_v2(u16::from_be_bytes([header[4], header[5]]), at, ip, path),
        VXLAN_PORT => vxlan::locate(data, at, ip, path),
        LEGACY_VXLAN_PORT => vxlan::legacy(data, (port, at), ip, path),
        VXLAN_GPE_PORT => vxlan::generic(data, at, ip, path),
        GENEVE_PORT => vxlan::geneve(data, at, ip, path),
        GRE_PORT => gre::in_udp(data, (port, at), ip, path),
        MPLS_PORT => Ok(mpls::in_udp(at, ip, path)),
        SFLOW_PORT => {
            // The datagram holds any number of frames, so the walk ends here.
            path.set_samples(at, ip.extent().end());
            Ok(Step::other(NotInfiniband::UdpPort(port)))
        }
        other => Ok(Step::other(NotInfiniband::UdpPort(other))),
    }
}

/// Locates the packet at `start`, after a UDP header with this length.
fn roce_v2(length: u16, start: usize, ip: &IpPacket, path: &TunnelPath) -> Result<Step, ParseError> {
    let length = usize::from(length);
    // Invalid: longer than the IP packet that carries the datagram, or shorter than the smallest
    // RoCE packet.
    if length < HEADER_BYTES + SHORTEST_TRANSPORT_BYTES || ip.transport + length > ip.at + ip.bytes {
        return Err(ParseError::invalid(Layer::Udp, "length", length as u64).add_offset(ip.transport));
    }
    Ok(Step::Content(LinkContent::Infiniband(Location {
        encapsulation: ip.encapsulation,
        start,
        network: ip.at,
        ib_bytes: length - HEADER_BYTES,
        wire_bytes: ip.wire.bytes(ip.at, ip.bytes),
        src: ip.src,
        dst: ip.dst,
        tunnels: path.kinds(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::CNP;
    use crate::link::locate;

    /// The congestion notification with the 16-bit field at `at` replaced.
    fn changed(at: usize, value: u16) -> Result<LinkContent, ParseError> {
        let mut frame = CNP;
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        locate(LinkType::ETHERNET, &frame, frame.len() as u32)
    }

    #[test]
    fn the_destination_port_alone_decides() {
        // The recorded packet has source port 0.
        for source in [0, 49152, 4791] {
            assert!(matches!(changed(34, source), Ok(LinkContent::Infiniband(_))));
        }
        assert_eq!(changed(36, 4792), Ok(LinkContent::Other(NotInfiniband::UdpPort(4792))));
        assert_eq!(changed(36, 53), Ok(LinkContent::Other(NotInfiniband::UdpPort(53))));
    }

    #[test]
    fn the_length_lies_between_the_shortest_packet_and_the_ip_packet() {
        let invalid = |value| Err(ParseError::invalid(Layer::Udp, "length", value).add_offset(34));
        // At least 8 + 12 + 4; the IPv4 packet has room for 60 - 20.
        for (length, ib_bytes) in [(24, 16), (39, 31), (40, 32)] {
            assert!(matches!(changed(38, length), Ok(LinkContent::Infiniband(found)) if found.ib_bytes == ib_bytes));
        }
        assert_eq!(changed(38, 23), invalid(23));
        assert_eq!(changed(38, 0), invalid(0));
        assert_eq!(changed(38, 41), invalid(41));
    }
}
