//! UDP: the port that means `RoCEv2`, and the true length of the packet.

use super::wire::{Network, SHORTEST_TRANSPORT_BYTES, take_at};
use crate::location::{Located, Location, NotInfiniband};
use crate::{Layer, ParseError};

/// The destination port of `RoCEv2`. The source port says nothing: congestion notifications of real adapters use 0.
const ROCE_V2_PORT: u16 = 4791;
const HEADER_BYTES: usize = 8;

/// The UDP datagram of `ip`.
#[inline]
pub(super) fn locate(data: &[u8], ip: Network) -> Result<Located, ParseError> {
    let header = take_at::<HEADER_BYTES>(data, ip.transport, Layer::Udp)?;
    let port = u16::from_be_bytes([header[2], header[3]]);
    if port != ROCE_V2_PORT {
        return Ok(Located::Other(NotInfiniband::UdpPort(port)));
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // Longer than the IP packet that carries it, or too short for the smallest RoCE packet: neither can be sent.
    if length < HEADER_BYTES + SHORTEST_TRANSPORT_BYTES || ip.transport + length > ip.at + ip.bytes {
        return Err(ParseError::invalid(Layer::Udp, "length", length as u64).add_offset(ip.transport));
    }
    Ok(Located::Infiniband(Location {
        framed: ip.framed,
        start: ip.transport + HEADER_BYTES,
        network: ip.at,
        ib_bytes: length - HEADER_BYTES,
        wire_bytes: ip.wire.bytes(ip.at, ip.bytes),
        src: ip.src,
        dst: ip.dst,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LinkType;
    use crate::ib::samples::CNP;
    use crate::link::locate;

    /// The congestion notification with another 16-bit field at `at`.
    fn changed(at: usize, value: u16) -> Result<Located, ParseError> {
        let mut frame = CNP;
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        locate(LinkType::ETHERNET, &frame, frame.len() as u32)
    }

    #[test]
    fn the_destination_port_alone_decides() {
        // The recorded packet has source port 0.
        for source in [0, 49152, 4791] {
            assert!(matches!(changed(34, source), Ok(Located::Infiniband(_))));
        }
        assert_eq!(changed(36, 4790), Ok(Located::Other(NotInfiniband::UdpPort(4790))));
        assert_eq!(changed(36, 53), Ok(Located::Other(NotInfiniband::UdpPort(53))));
    }

    #[test]
    fn the_length_lies_between_the_shortest_packet_and_the_ip_packet() {
        let invalid = |value| Err(ParseError::invalid(Layer::Udp, "length", value).add_offset(34));
        // 8 + 12 + 4 at least; IPv4 holds 60 - 20.
        for (length, ib_bytes) in [(24, 16), (39, 31), (40, 32)] {
            assert!(matches!(changed(38, length), Ok(Located::Infiniband(found)) if found.ib_bytes == ib_bytes));
        }
        assert_eq!(changed(38, 23), invalid(23));
        assert_eq!(changed(38, 0), invalid(0));
        assert_eq!(changed(38, 41), invalid(41));
    }
}
