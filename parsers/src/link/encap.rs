//! Headers before a native packet: the ERF header and the header of a mirror copy.

use super::walk;
use super::wire::{FrameExtent, SHORTEST_TRANSPORT_BYTES, take_at};
use crate::error::take;
use crate::field::Endpoint;
use crate::frame::erf::ErfHeader;
use crate::ib::{Grh, Lrh, VCRC_BYTES};
use crate::location::{Encapsulation, LinkContent, Location, NotInfiniband};
use crate::tunnel::{TunnelKinds, TunnelPath};
use crate::{Layer, ParseError};

/// Bytes 10 and 11 of the outer packet of a mirror copy: the `EtherType` of its raw header.
/// ibdump's `--decap` tests the same bytes.
const MIRROR_MAGIC: [u8; 2] = [0x11, 0x23];
/// Bytes of a mirror copy before the inner LRH.
const MIRROR_BYTES: usize = 16;

/// Locates the packet of a record that begins with an ERF header.
pub(super) fn erf(data: &[u8], original_bytes: usize, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    let header = ErfHeader::parse(data)?;
    let at = header.header_bytes;
    let wire = FrameExtent::frame(at, original_bytes);
    match header.record_type {
        ErfHeader::TYPE_ETHERNET => walk::frame(data, wire, path),
        ErfHeader::TYPE_INFINIBAND => infiniband_record(data, usize::from(header.wlen), wire, path),
        other => Ok(LinkContent::Other(NotInfiniband::ErfType(other))),
    }
}

/// Locates the packet of an ERF record of type 21.
///
/// ibdump also uses this type when it records a RoCE port (`--erf 1`). An LRH is accepted if its
/// length equals the record's; otherwise the record is tried as an Ethernet frame.
fn infiniband_record(
    data: &[u8],
    wire_length: usize,
    wire: FrameExtent,
    path: &mut TunnelPath,
) -> Result<LinkContent, ParseError> {
    let at = wire.start();
    let content = data.get(at..).unwrap_or_default();
    let lrh_bytes = take::<{ Lrh::LEN }>(content, Layer::Lrh).map_err(|error| error.add_offset(at))?;
    let packet_bytes = plausible_lrh_bytes(*lrh_bytes);
    if packet_bytes.is_some_and(|bytes| bytes == wire_length || bytes + VCRC_BYTES == wire_length) {
        return native(data, at);
    }
    match walk::frame(data, wire, path) {
        Ok(LinkContent::Infiniband(location)) => Ok(LinkContent::Infiniband(location)),
        // Some recorders include padding or their own checksums in the length, so accept an LRH
        // whose packet is shorter.
        _ if packet_bytes.is_some_and(|bytes| bytes <= wire_length) => native(data, at),
        other => other,
    }
}

/// Bytes from LRH through ICRC; `None` if version or reserved bits are not those of an LRH.
fn plausible_lrh_bytes(bytes: [u8; Lrh::LEN]) -> Option<usize> {
    let reserved = (bytes[0] & 0x0F) | (bytes[1] & 0x0C) | (bytes[4] & 0xF8);
    (reserved == 0).then(|| usize::from(u16::from_be_bytes([bytes[4], bytes[5]])) * 4)
}

/// Locates a native packet whose LRH begins at `at`, or the packet inside a mirror copy.
#[inline]
pub(super) fn native(data: &[u8], at: usize) -> Result<LinkContent, ParseError> {
    let outer = lrh_at(data, at)?;
    if outer.lnh >= 2 {
        return packet(&outer, at);
    }
    if outer.lnh == 0 && data.get(at + 10..at + 12) == Some(&MIRROR_MAGIC) {
        let inner_at = at + MIRROR_BYTES;
        let inner = lrh_at(data, inner_at).map_err(|error| match error.layer {
            Layer::Lrh if error.is_truncated() => ParseError { layer: Layer::Mirror, ..error },
            _ => error,
        })?;
        if inner.lnh >= 2 {
            return packet(&inner, inner_at);
        }
    }
    Ok(LinkContent::Other(NotInfiniband::RawPacket))
}

fn lrh_at(data: &[u8], at: usize) -> Result<Lrh, ParseError> {
    let lrh = Lrh::parse(take_at::<{ Lrh::LEN }>(data, at, Layer::Lrh)?)?;
    if lrh.lver != 0 {
        return Err(ParseError::invalid(Layer::Lrh, "LVer", u64::from(lrh.lver)).add_offset(at));
    }
    Ok(lrh)
}

/// Locates the transport packet with this LRH.
fn packet(lrh: &Lrh, at: usize) -> Result<LinkContent, ParseError> {
    let ib_bytes = usize::from(lrh.pkt_len) * 4;
    let grh_bytes = if lrh.lnh == Lrh::LNH_GLOBAL { Grh::LEN } else { 0 };
    if ib_bytes < Lrh::LEN + grh_bytes + SHORTEST_TRANSPORT_BYTES {
        return Err(ParseError::invalid(Layer::Lrh, "PktLen", u64::from(lrh.pkt_len)).add_offset(at));
    }
    Ok(LinkContent::Infiniband(Location {
        encapsulation: Encapsulation::Native,
        start: at,
        network: at,
        ib_bytes,
        wire_bytes: (ib_bytes + VCRC_BYTES) as u32,
        src: Endpoint::from_lid(lrh.slid),
        dst: Endpoint::from_lid(lrh.dlid),
        tunnels: TunnelKinds::NONE,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Lid;
    use crate::frame::LinkType;
    use crate::ib::samples::{CNP, ERF_READ_REQUEST, NATIVE_ACK, NATIVE_GLOBAL, ROCE_V1, ROCE_V2_IPV6};
    use crate::link::locate;
    use hex_literal::hex;
    use std::vec::Vec;

    fn record(link_type: LinkType, data: &[u8]) -> Result<LinkContent, ParseError> {
        locate(link_type, data, data.len() as u32)
    }

    fn located(link_type: LinkType, data: &[u8]) -> Location {
        match record(link_type, data) {
            Ok(LinkContent::Infiniband(location)) => location,
            other => panic!("{other:?}"),
        }
    }

    /// An ERF record with this type, these extension headers and this length on the wire.
    fn erf_record(kind: u8, extensions: &[u8], wire_length: usize, content: &[u8]) -> Vec<u8> {
        let more = if extensions.is_empty() { 0 } else { 0x80 };
        let mut data = [&[0; 8][..], &[kind | more, 4, 0, 0, 0, 0]].concat();
        data.extend((wire_length as u16).to_be_bytes());
        [&data, extensions, content].concat()
    }

    #[test]
    fn native_packets_have_the_length_of_their_lrh() {
        let expected = Location {
            encapsulation: Encapsulation::Native,
            start: 0,
            network: 0,
            ib_bytes: 28,
            wire_bytes: 30,
            src: Endpoint::from_lid(Lid(0x11)),
            dst: Endpoint::from_lid(Lid(0x12)),
            tunnels: TunnelKinds::NONE,
        };
        assert_eq!(located(LinkType::INFINIBAND, &NATIVE_ACK), expected);
        let expected = Location { ib_bytes: 80, wire_bytes: 82, dst: Endpoint::from_lid(Lid(0xC001)), ..expected };
        assert_eq!(located(LinkType::INFINIBAND, &NATIVE_GLOBAL), expected);
    }

    #[test]
    fn impossible_lrhs_are_errors() {
        let with = |at: usize, value: u8| {
            let mut data = NATIVE_GLOBAL;
            data[at] = value;
            record(LinkType::INFINIBAND, &data)
        };
        assert_eq!(with(0, 0x11), Err(ParseError::invalid(Layer::Lrh, "LVer", 1)));
        // LRH, GRH, BTH and ICRC are 16 words; without the GRH, 6.
        assert_eq!(with(5, 15), Err(ParseError::invalid(Layer::Lrh, "PktLen", 15)));
        assert!(matches!(with(5, 16), Ok(LinkContent::Infiniband(Location { ib_bytes: 64, .. }))));
        let mut local = NATIVE_ACK;
        local[5] = 5;
        assert_eq!(record(LinkType::INFINIBAND, &local), Err(ParseError::invalid(Layer::Lrh, "PktLen", 5)));
    }

    #[test]
    fn raw_packets_are_named() {
        for lnh in [0, 1] {
            let mut data = NATIVE_ACK;
            data[1] = lnh;
            assert_eq!(record(LinkType::INFINIBAND, &data), Ok(LinkContent::Other(NotInfiniband::RawPacket)));
        }
    }

    #[test]
    fn erf_headers_are_skipped() {
        let expected = Location {
            encapsulation: Encapsulation::Native,
            start: 16,
            network: 16,
            ib_bytes: 40,
            wire_bytes: 42,
            src: Endpoint::from_lid(Lid(0x12)),
            dst: Endpoint::from_lid(Lid(0x11)),
            tunnels: TunnelKinds::NONE,
        };
        assert_eq!(located(LinkType::ERF, &ERF_READ_REQUEST), expected);
        // One extension header, then two: bit 7 of the first byte marks a further one.
        for extensions in [&hex!("0300000000000000")[..], &hex!("8300000000000000 0300000000000000")] {
            let data = erf_record(21, extensions, 42, &ERF_READ_REQUEST[16..]);
            let start = 16 + extensions.len();
            assert_eq!(located(LinkType::ERF, &data), Location { start, network: start, ..expected });
        }
    }

    #[test]
    fn the_length_on_the_wire_may_leave_the_vcrc_out_or_hold_padding() {
        for wire_length in [28, 30, 32] {
            let data = erf_record(21, &[], wire_length, &NATIVE_ACK);
            assert_eq!(located(LinkType::ERF, &data).wire_bytes, 30, "{wire_length}");
        }
    }

    #[test]
    fn ethernet_in_erf_is_found_in_both_types() {
        for frame in [&CNP[..], &ROCE_V1, &ROCE_V2_IPV6] {
            let plain = located(LinkType::ETHERNET, frame);
            for (data, skipped) in [
                (erf_record(21, &[], frame.len(), frame), 16),
                (erf_record(21, &[3; 8], frame.len(), frame), 24),
                (erf_record(2, &[0, 0], frame.len(), frame), 18),
            ] {
                let mut data = data;
                if skipped == 18 {
                    // The two bytes before the frame are padding, not an extension header.
                    data[8] &= 0x7F;
                }
                let expected = Location { start: plain.start + skipped, network: plain.network + skipped, ..plain };
                assert_eq!(located(LinkType::ERF, &data), expected);
            }
            let tagged = [&frame[..12], &hex!("8100 0001"), &frame[12..]].concat();
            let found = located(LinkType::ERF, &erf_record(21, &[], tagged.len(), &tagged));
            assert_eq!((found.start, found.wire_bytes as usize), (plain.start + 20, tagged.len()));
        }
        let mut arp = [0x02; 60];
        arp[12..14].copy_from_slice(&hex!("0806"));
        let expected = Ok(LinkContent::Other(NotInfiniband::EtherType(0x0806)));
        assert_eq!(record(LinkType::ERF, &erf_record(21, &[], 60, &arp)), expected);
    }

    #[test]
    fn other_erf_types_are_named() {
        for kind in [22, 24, 25, 27, 28, 29, 48] {
            let data = erf_record(kind, &[], 30, &NATIVE_ACK);
            assert_eq!(record(LinkType::ERF, &data), Ok(LinkContent::Other(NotInfiniband::ErfType(kind))));
        }
        let cut = erf_record(21, &[], 30, &NATIVE_ACK[..7]);
        assert_eq!(record(LinkType::ERF, &cut), Err(ParseError::truncated(Layer::Lrh, 8, 7).add_offset(16)));
    }

    /// Outer LRH (LNH 0), raw header with the magic number, 4 bytes of prefix, the packet, and the
    /// outer VCRC.
    fn mirrored(packet: &[u8]) -> Vec<u8> {
        let words = (16 + packet.len()).div_ceil(4) as u8;
        let outer = [0x00, 0x00, 0x00, 0x21, 0x00, words, 0x00, 0x22, 0x00, 0x00, 0x11, 0x23, 0, 0, 0, 0];
        [&outer[..], packet, &[0, 0]].concat()
    }

    #[test]
    fn a_mirror_copy_yields_the_inner_packet() {
        let plain = located(LinkType::INFINIBAND, &NATIVE_ACK);
        let data = mirrored(&NATIVE_ACK);
        let expected = Location { start: 16, network: 16, ..plain };
        assert_eq!(located(LinkType::INFINIBAND, &data), expected);
        let expected = Location { start: 32, network: 32, ..plain };
        assert_eq!(located(LinkType::ERF, &erf_record(21, &[], data.len(), &data)), expected);
        let mut other = data.clone();
        other[11] = 0x24;
        assert_eq!(record(LinkType::INFINIBAND, &other), Ok(LinkContent::Other(NotInfiniband::RawPacket)));
        let cut = Err(ParseError::truncated(Layer::Mirror, 8, 7).add_offset(16));
        assert_eq!(record(LinkType::INFINIBAND, &data[..23]), cut);
    }
}
