//! Outer headers for the tests: Ethernet with IPv4, IPv6 and UDP around any content.

use super::{LinkContent, Location, NotInfiniband, TunnelKind, TunnelPath, locate_in_tunnels};
use crate::ParseError;
use crate::field::Endpoint;
use crate::frame::LinkType;
use alloc::vec::Vec;
use hex_literal::hex;

/// Ethernet frame from the switch 192.0.2.1 to the collector 192.0.2.2 with this IP protocol.
pub(super) fn ipv4(protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = hex!("020000000002 020000000001 0800 4500 0000 0000 4000 4000 0000 c0000201 c0000202").to_vec();
    frame[16..18].copy_from_slice(&(20 + content.len() as u16).to_be_bytes());
    frame[23] = protocol;
    frame.extend(content);
    frame
}

/// The same over IPv6, from host 1 to host 2 of the documentation prefix.
pub(super) fn ipv6(protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = hex!(
        "020000000002 020000000001 86dd 60000000 0000 00 40
         20010db8000000000000000000000001 20010db8000000000000000000000002"
    )
    .to_vec();
    frame[18..20].copy_from_slice(&(content.len() as u16).to_be_bytes());
    frame[20] = protocol;
    frame.extend(content);
    frame
}

/// UDP datagram to this port.
pub(super) fn udp(port: u16, content: &[u8]) -> Vec<u8> {
    let mut datagram = hex!("c000 0000 0000 0000").to_vec();
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram[4..6].copy_from_slice(&(8 + content.len() as u16).to_be_bytes());
    datagram.extend(content);
    datagram
}

/// The source address of [`ipv4`].
pub(super) fn switch() -> Endpoint {
    Endpoint::from_ipv4([192, 0, 2, 1])
}

/// The content of an Ethernet frame and its tunnels.
pub(super) fn read(frame: &[u8]) -> (Result<LinkContent, ParseError>, TunnelPath) {
    let mut path = TunnelPath::default();
    let found = locate_in_tunnels(LinkType::ETHERNET, frame, frame.len() as u32, &mut path);
    (found, path)
}

/// The packet of an Ethernet frame, and the kind of its outermost tunnel.
pub(super) fn packet(frame: &[u8]) -> (Location, Option<TunnelKind>) {
    match read(frame) {
        (Ok(LinkContent::Infiniband(location)), path) => (location, path.outermost()),
        other => panic!("{other:?}"),
    }
}

/// Content of an Ethernet frame that is no InfiniBand packet.
pub(super) fn other(frame: &[u8]) -> NotInfiniband {
    match read(frame).0 {
        Ok(LinkContent::Other(what)) => what,
        other => panic!("{other:?}"),
    }
}

/// Asserts that `frame`, which ends with `inner`, yields the packet of `inner` in this tunnel, also
/// with bytes after it and truncated after the inner headers.
pub(super) fn assert_tunnel(frame: &[u8], inner: &[u8], kind: TunnelKind) {
    let (plain, none) = packet(inner);
    assert_eq!(none, None);
    let skipped = frame.len() - inner.len();
    let expected = Location {
        start: plain.start + skipped,
        network: plain.network + skipped,
        tunnels: plain.tunnels.with(kind),
        ..plain
    };
    let whole = read(frame);
    assert_eq!(whole.0, Ok(LinkContent::Infiniband(expected)));
    assert_eq!((whole.1.outermost(), whole.1.depth()), (Some(kind), 1));
    let padded = [frame, &[0xA5; 16]].concat();
    assert_eq!(packet(&padded).0, expected);
    for there in 0..frame.len() {
        let mut path = TunnelPath::default();
        match locate_in_tunnels(LinkType::ETHERNET, &frame[..there], frame.len() as u32, &mut path) {
            Ok(found) => assert_eq!((Ok(found), path), whole, "{there}"),
            Err(error) => assert!(error.is_truncated() && error.offset <= frame.len(), "{there}: {error}"),
        }
    }
}
