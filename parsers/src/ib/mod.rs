//! InfiniBand headers: parses headers, payload and checksums of a packet from its [`Location`].

mod bth;
pub mod cm;
pub mod crc;
mod ext;
mod grh;
mod lrh;
pub mod mad;
mod opcode;
#[cfg(test)]
pub(crate) mod samples;
mod vcrc;

pub use bth::Bth;
pub use cm::CmMessage;
pub use crc::CrcVerdict;
pub use ext::{Aeth, AethKind, AtomicEth, Deth, ExtHeaders, Feth, NakCode, Rdeth, Reth, Xrceth};
pub use grh::Grh;
pub use lrh::Lrh;
pub use mad::MadHeader;
pub use opcode::{Opcode, Operation, Service};

use crate::location::{Encapsulation, Location};
use crate::{Layer, ParseError};

/// Length of the ICRC in bytes.
pub const ICRC_BYTES: usize = 4;
/// Length of the VCRC in bytes.
pub const VCRC_BYTES: usize = 2;

/// One packet of the InfiniBand transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Local route header, on native InfiniBand.
    pub lrh: Option<Lrh>,
    /// Global route header of `RoCEv1` and of native packets that have one.
    pub grh: Option<Grh>,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: ExtHeaders,
    /// Captured part of the payload, without pad.
    pub payload: &'a [u8],
    /// Offset of the payload in the record's data, even if the record is truncated before it.
    pub payload_offset: usize,
    /// Original length of the payload in bytes, without pad and ICRC, even if the record is
    /// truncated.
    pub payload_bytes: usize,
    /// Invariant CRC. On the wire its bytes are `to_le_bytes()`.
    pub icrc: Option<u32>,
    /// Variant CRC of native packets, if the recorder kept it. On the wire its bytes are
    /// `to_le_bytes()`.
    pub vcrc: Option<u16>,
    /// Where the packet is truncated, or which of its lengths contradict each other; `None` for a
    /// whole packet. A packet recorded without VCRC counts as whole.
    pub error: Option<ParseError>,
}

impl<'a> Packet<'a> {
    /// Parses the packet that [`locate`](crate::link::locate) found in `data`, as far as it was
    /// captured.
    ///
    /// Bytes after the packet (Ethernet padding) are ignored. Error offsets count from the start of
    /// `data`.
    ///
    /// # Errors
    /// The BTH is truncated, or the GRH before it is truncated or invalid.
    #[inline]
    pub fn parse_lax(data: &'a [u8], loc: &Location) -> Result<Self, ParseError> {
        let captured = &data[..data.len().min(loc.end())];
        let mut at = loc.start;
        let mut lrh = None;
        let mut grh = None;
        if loc.encapsulation == Encapsulation::Native {
            let header = Lrh::parse(tail(captured, at)).map_err(|error| error.add_offset(at))?;
            at += Lrh::LEN;
            if header.lnh == Lrh::LNH_GLOBAL {
                grh = Some(grh_at(captured, at)?);
                at += Grh::LEN;
            }
            lrh = Some(header);
        } else if loc.encapsulation == Encapsulation::RoceV1 {
            grh = Some(grh_at(captured, at)?);
            at += Grh::LEN;
        }
        let bth_at = at;
        let bth = Bth::parse(tail(captured, at)).map_err(|error| error.add_offset(at))?;
        at += Bth::LEN;
        let (ext, ext_stop) = ExtHeaders::parse_lax(bth.opcode, tail(captured, at));
        let ext_at = at;
        let payload_offset = at + usize::from(bth.opcode.ext_bytes());

        let behind = payload_offset + usize::from(bth.pad_count) + ICRC_BYTES;
        let mut packet = Self {
            lrh,
            grh,
            bth,
            ext,
            payload: &[],
            payload_offset,
            payload_bytes: 0,
            icrc: None,
            vcrc: None,
            error: ext_stop.map(|error| error.add_offset(ext_at)),
        };
        let Some(payload_bytes) = loc.end().checked_sub(behind) else {
            // Headers, pad and ICRC are longer than the whole packet.
            packet.ext = ExtHeaders::default();
            packet.error = Some(ParseError::invalid(Layer::Bth, "OpCode", u64::from(bth.opcode.0)).add_offset(bth_at));
            return Ok(packet);
        };
        packet.payload_bytes = payload_bytes;
        let rest = tail(captured, payload_offset);
        packet.payload = rest.get(..payload_bytes).unwrap_or(rest);
        if packet.error.is_none() {
            packet.read_checks(data, loc, rest.len());
        }
        Ok(packet)
    }

    /// Like [`Packet::parse_lax`], but accepts whole packets only.
    ///
    /// # Errors
    /// The errors of [`Packet::parse_lax`], and the one in [`Packet::error`].
    pub fn parse_strict(data: &'a [u8], loc: &Location) -> Result<Self, ParseError> {
        let packet = Self::parse_lax(data, loc)?;
        packet.error.map_or(Ok(packet), Err)
    }

    /// Reads ICRC and VCRC, or sets `error` if the capture ends before them. `rest_bytes` were
    /// captured from the payload's first byte through the ICRC.
    #[inline]
    fn read_checks(&mut self, data: &[u8], loc: &Location, rest_bytes: usize) {
        let padded_bytes = self.payload_bytes + usize::from(self.bth.pad_count);
        let icrc_at = self.payload_offset + padded_bytes;
        if let Some(bytes) = tail(data, icrc_at).first_chunk() {
            self.icrc = Some(u32::from_le_bytes(*bytes));
        } else {
            let (layer, at, needed) = if rest_bytes < padded_bytes {
                (Layer::Payload, self.payload_offset, padded_bytes)
            } else {
                (Layer::Icrc, icrc_at, ICRC_BYTES)
            };
            let available = data.len().saturating_sub(at);
            self.error = Some(ParseError::truncated(layer, needed, available).add_offset(at));
            return;
        }
        if loc.encapsulation == Encapsulation::Native {
            let behind = tail(data, loc.end());
            if let Some(bytes) = behind.first_chunk() {
                self.vcrc = Some(u16::from_le_bytes(*bytes));
            } else if !behind.is_empty() {
                let error = ParseError::truncated(Layer::Vcrc, VCRC_BYTES, behind.len());
                self.error = Some(error.add_offset(loc.end()));
            }
        }
    }
}

/// `data` from `at` on; empty if `data` ends earlier.
#[inline]
fn tail(data: &[u8], at: usize) -> &[u8] {
    data.get(at..).unwrap_or_default()
}

fn grh_at(data: &[u8], at: usize) -> Result<Grh, ParseError> {
    let grh = Grh::parse(tail(data, at)).map_err(|error| error.add_offset(at))?;
    if grh.next_header != Grh::NEXT_HEADER_IBA {
        return Err(ParseError::invalid(Layer::Grh, "NxtHdr", u64::from(grh.next_header)).add_offset(at));
    }
    Ok(grh)
}

/// The big-endian number at `at`. Callers pass offsets inside the array.
#[inline]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    tail(bytes, at).first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// The big-endian number at `at`. Callers pass offsets inside the array.
#[inline]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    tail(bytes, at).first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The big-endian number at `at`. Callers pass offsets inside the array.
#[inline]
fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    tail(bytes, at).first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::samples::{
        CM_REQ, CNP, ERF, ERF_READ_REQUEST, ETHERNET, NATIVE, NATIVE_GLOBAL, ROCE_V1, ROCE_V2_IPV4_OPTIONS,
        ROCE_V2_IPV6, UC_SEND,
    };
    use super::*;
    use crate::ErrorKind;
    use crate::field::{Endpoint, Lid, Psn, Qpn};
    use crate::frame::LinkType;
    use crate::link::{LinkContent, TunnelKinds, locate};
    use hex_literal::hex;
    use proptest::prelude::*;

    fn located(link_type: LinkType, data: &[u8]) -> Location {
        match locate(link_type, data, data.len() as u32) {
            Ok(LinkContent::Infiniband(location)) => location,
            other => panic!("{other:?}"),
        }
    }

    fn whole(link_type: LinkType, data: &[u8]) -> Packet<'_> {
        Packet::parse_strict(data, &located(link_type, data)).unwrap()
    }

    /// Every sample with its link type.
    fn samples() -> impl Iterator<Item = (LinkType, &'static [u8])> {
        let ethernet = ETHERNET.map(|data| (LinkType::ETHERNET, data));
        let native = NATIVE.map(|data| (LinkType::INFINIBAND, data));
        ethernet.into_iter().chain(native).chain(ERF.map(|data| (LinkType::ERF, data)))
    }

    #[test]
    fn a_congestion_notification_has_no_payload() {
        let packet = whole(LinkType::ETHERNET, &CNP);
        assert!(packet.bth.becn && packet.bth.opcode == Opcode::CNP);
        assert_eq!((packet.lrh, packet.grh, packet.ext), (None, None, ExtHeaders::default()));
        assert_eq!((packet.payload, packet.payload_offset, packet.payload_bytes), (&[][..], 70, 0));
        assert_eq!((packet.icrc, packet.vcrc), (Some(0x2A00_FD82), None));
    }

    #[test]
    fn pad_is_no_payload() {
        let packet = whole(LinkType::ETHERNET, &UC_SEND);
        assert_eq!(packet.payload, b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P");
        assert_eq!((packet.payload_offset, packet.payload_bytes), (54, 18));
        let packet = whole(LinkType::ETHERNET, &ROCE_V1);
        assert_eq!((packet.payload, packet.payload_bytes), (&hex!("deadbeef01")[..], 5));
        assert_eq!(packet.grh.unwrap().pay_len, 24);
        let packet = whole(LinkType::ETHERNET, &ROCE_V2_IPV6);
        assert_eq!((packet.payload, packet.ext.imm), (&hex!("01020304050607")[..], Some(0xCAFE_BABE)));
    }

    #[test]
    fn native_packets_have_their_route_headers() {
        let packet = whole(LinkType::INFINIBAND, &NATIVE_GLOBAL);
        assert_eq!(packet.lrh.unwrap().dlid, Lid(0xC001));
        assert_eq!(packet.grh.unwrap().flow_label, 0xA_BCDE);
        assert_eq!(packet.ext.deth, Some(Deth { q_key: 0x0B1B, src_qp: Qpn::new(0x49) }));
        assert_eq!((packet.payload, packet.payload_offset), (&hex!("0800000045000000")[..], 68));
        // Wire bytes b6 9a 2d b0 and 9b af.
        assert_eq!((packet.icrc, packet.vcrc), (Some(0xB02D_9AB6), Some(0xAF9B)));
        let packet = whole(LinkType::ERF, &ERF_READ_REQUEST);
        let reth = Reth { va: 0x0000_5577_99EB_2100, r_key: 0x31D3, dma_len: 0x0FF0 };
        assert_eq!((packet.ext.reth, packet.bth.psn, packet.payload_bytes), (Some(reth), Psn::new(0x2E), 0));
        assert_eq!((packet.icrc, packet.vcrc), (Some(0x0204_F91D), Some(0x0648)));
    }

    #[test]
    fn headers_behind_options_are_found() {
        let packet = whole(LinkType::ETHERNET, &ROCE_V2_IPV4_OPTIONS);
        let reth = Reth { va: 0x7F11_2233_4400, r_key: 0x89AB_CDEF, dma_len: 4 };
        assert_eq!((packet.ext.reth, packet.payload), (Some(reth), &b"ping"[..]));
    }

    #[test]
    fn bytes_behind_the_packet_change_nothing() {
        for (link_type, data) in samples().filter(|&(link_type, _)| link_type == LinkType::ETHERNET) {
            let padded = [data, &[0x5A; 9]].concat();
            assert_eq!(whole(link_type, &padded), whole(link_type, data));
        }
    }

    #[test]
    fn a_truncated_packet_yields_the_captured_part() {
        for (link_type, data) in samples() {
            let loc = located(link_type, data);
            let full = whole(link_type, data);
            let bth_end = full.payload_offset - usize::from(full.bth.opcode.ext_bytes());
            for there in 0..=data.len() {
                let cut = &data[..there];
                let packet = match Packet::parse_lax(cut, &loc) {
                    Ok(packet) => packet,
                    Err(error) => {
                        assert!(there < bth_end && error.is_truncated(), "{there}: {error}");
                        continue;
                    }
                };
                assert!(there >= bth_end);
                assert_eq!((packet.lrh, packet.grh, packet.bth), (full.lrh, full.grh, full.bth));
                assert_eq!((packet.payload_offset, packet.payload_bytes), (full.payload_offset, full.payload_bytes));
                let captured = there.saturating_sub(full.payload_offset).min(full.payload_bytes);
                assert_eq!(packet.payload, &full.payload[..captured]);
                assert_eq!(packet.icrc, full.icrc.filter(|_| there >= loc.end()));
                assert_eq!(packet.vcrc, full.vcrc.filter(|_| there >= loc.end() + VCRC_BYTES));
                assert_eq!(packet.ext == full.ext, there >= full.payload_offset || full.ext == ExtHeaders::default());
                // A native packet without any byte of its VCRC is whole.
                let complete = there == loc.end() || there == data.len();
                assert_eq!(packet.error.is_none(), complete, "{there}");
                assert_eq!(Packet::parse_strict(cut, &loc).is_ok(), complete);
                let Some(stop) = packet.error else { continue };
                let ErrorKind::Truncated { needed, available } = stop.kind else { panic!("{stop}") };
                assert_eq!(stop.offset + available, there);
                assert!(needed > available);
                let layer = match there {
                    _ if there < full.payload_offset => Layer::ExtHeader,
                    _ if there < loc.end() - ICRC_BYTES => Layer::Payload,
                    _ if there < loc.end() => Layer::Icrc,
                    _ => Layer::Vcrc,
                };
                assert_eq!(stop.layer, layer, "{there}");
            }
        }
    }

    #[test]
    fn contradicting_lengths_stop_the_parse() {
        // A UDP length of 8 + 12 + 4 leaves no room for the DETH and the MAD of a UD SEND.
        let mut data = CM_REQ;
        data[38..40].copy_from_slice(&24u16.to_be_bytes());
        let packet = Packet::parse_lax(&data, &located(LinkType::ETHERNET, &data)).unwrap();
        assert_eq!((packet.payload_bytes, packet.payload.len(), packet.icrc), (0, 0, None));
        assert_eq!(packet.error, Some(ParseError::invalid(Layer::Bth, "OpCode", 0x64).add_offset(42)));
    }

    #[test]
    fn a_grh_with_another_next_header_is_an_error() {
        let mut data = NATIVE_GLOBAL;
        data[8 + 6] = 58;
        let loc = located(LinkType::INFINIBAND, &data);
        let error = ParseError::invalid(Layer::Grh, "NxtHdr", 58).add_offset(8);
        assert_eq!(Packet::parse_lax(&data, &loc), Err(error));
    }

    fn any_encapsulation() -> impl Strategy<Value = Encapsulation> {
        prop_oneof![
            Just(Encapsulation::Native),
            Just(Encapsulation::RoceV1),
            Just(Encapsulation::RoceV2Ipv4),
            Just(Encapsulation::RoceV2Ipv6)
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_and_no_location_make_it_panic(
            encapsulation in any_encapsulation(),
            data in proptest::collection::vec(any::<u8>(), 0..200),
            start in prop_oneof![0usize..220, Just(usize::MAX)],
            network in prop_oneof![0usize..220, Just(usize::MAX)],
            ib_bytes in prop_oneof![0usize..220, Just(usize::MAX)],
        ) {
            let nobody = Endpoint::from_lid(Lid(0));
            let tunnels = TunnelKinds::NONE;
            let loc = Location { encapsulation, start, network, ib_bytes, wire_bytes: 0, src: nobody, dst: nobody, tunnels };
            if let Ok(packet) = Packet::parse_lax(&data, &loc) {
                prop_assert!(packet.payload.len() <= packet.payload_bytes);
            }
            let _ = crc::verify_icrc(&data, &loc);
            let _ = crc::verify_vcrc(&data, &loc);
            let _ = CmMessage::parse(&data);
        }
    }
}
