//! Target `packet`: the bytes are choices for one packet with valid lengths and checksums and any
//! headers.

use crate::link;
use arbitrary::{Arbitrary, Result, Unstructured};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::{icrc, vcrc, verify_icrc, verify_vcrc};
use ibscope_parsers::ib::{Bth, CrcVerdict, Grh, ICRC_BYTES, Lrh, Opcode, Packet};
use ibscope_parsers::link::{LinkContent, Location, locate};
use ibscope_parsers::{Lid, Psn, Qpn};

/// Framing of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
pub enum FuzzEncapsulation {
    /// LRH first.
    Native,
    /// LRH and GRH.
    Global,
    /// LRH after an ERF header, as ibdump writes it.
    Erf,
    /// Ethernet, IPv4, UDP.
    RoceV2,
    /// Ethernet with a VLAN tag, IPv6, UDP.
    RoceV2Ipv6,
    /// Ethernet, GRH.
    RoceV1,
}

impl FuzzEncapsulation {
    /// Link type of a record of such packets.
    #[must_use]
    pub const fn link_type(self) -> LinkType {
        match self {
            Self::Native | Self::Global => LinkType::INFINIBAND,
            Self::Erf => LinkType::ERF,
            Self::RoceV2 | Self::RoceV2Ipv6 | Self::RoceV1 => LinkType::ETHERNET,
        }
    }
}

/// Contents of a packet after its network headers.
pub struct FuzzPacket<'a> {
    /// LIDs, or last bytes of the addresses.
    pub ends: (u8, u8),
    /// Base transport header; [`bytes`] sets the pad count.
    pub bth: Bth,
    /// Extension headers, with the length that the opcode requires.
    pub extension: &'a [u8],
    /// Payload without pad.
    pub payload: &'a [u8],
}

/// The bytes of a packet, with lengths, ICRC and VCRC.
#[must_use]
pub fn bytes(frame: FuzzEncapsulation, content: &FuzzPacket<'_>) -> Vec<u8> {
    let FuzzPacket { ends: (src, dst), bth, extension, payload } = content;
    let pad = payload.len().next_multiple_of(4) - payload.len();
    let bth = Bth { pad_count: pad as u8, ..*bth };
    let transport = [&bth.to_bytes()[..], extension, payload, &[0; 3][..pad], &[0; ICRC_BYTES]].concat();
    let mut packet = headers(frame, (*src, *dst), transport.len());
    packet.extend(transport);
    let Some(location) = find_infiniband(frame, &packet) else { return packet };
    if let Some(sum) = icrc(location.encapsulation, &packet, &location) {
        let at = location.end() - ICRC_BYTES;
        packet[at..at + ICRC_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
    if matches!(frame, FuzzEncapsulation::Native | FuzzEncapsulation::Global | FuzzEncapsulation::Erf) {
        packet.extend(vcrc(&packet[location.start..]).to_le_bytes());
    }
    packet
}

fn find_infiniband(frame: FuzzEncapsulation, packet: &[u8]) -> Option<Location> {
    match locate(frame.link_type(), packet, packet.len() as u32) {
        Ok(LinkContent::Infiniband(location)) => Some(location),
        _ => None,
    }
}

/// The headers before the BTH.
fn headers(frame: FuzzEncapsulation, (src, dst): (u8, u8), transport_bytes: usize) -> Vec<u8> {
    let address = |last: u8| [0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let lrh = |lnh, behind: usize| {
        let pkt_len = ((Lrh::LEN + behind) / 4) as u16;
        Lrh { vl: 0, lver: 0, sl: 0, lnh, dlid: Lid(u16::from(dst)), pkt_len, slid: Lid(u16::from(src)) }.to_bytes()
    };
    let grh = Grh {
        traffic_class: 0,
        flow_label: 0,
        pay_len: transport_bytes as u16,
        next_header: Grh::NEXT_HEADER_IBA,
        hop_limit: 64,
        sgid: address(src),
        dgid: address(dst),
    };
    let ethernet = |kind: &[u8]| [&[2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src], kind].concat();
    let udp = |length: usize| [&[0xC0, 0, 0x12, 0xB7][..], &(length as u16 + 8).to_be_bytes(), &[0, 0]].concat();
    match frame {
        FuzzEncapsulation::Native => lrh(Lrh::LNH_LOCAL, transport_bytes).to_vec(),
        FuzzEncapsulation::Global => [&lrh(Lrh::LNH_GLOBAL, Grh::LEN + transport_bytes)[..], &grh.to_bytes()].concat(),
        FuzzEncapsulation::Erf => {
            let wire_bytes = (Lrh::LEN + transport_bytes + 2) as u16;
            let lengths = [(16 + wire_bytes).to_be_bytes(), [0, 0], wire_bytes.to_be_bytes()].concat();
            // Type 21, no extension headers.
            [&[0; 8][..], &[21, 4], &lengths, &lrh(Lrh::LNH_LOCAL, transport_bytes)].concat()
        }
        FuzzEncapsulation::RoceV2 => {
            let total = (28 + transport_bytes) as u16;
            let ip =
                [&[0x45, 2][..], &total.to_be_bytes(), &[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]];
            [ethernet(&[8, 0]), ip.concat(), udp(transport_bytes)].concat()
        }
        FuzzEncapsulation::RoceV2Ipv6 => {
            let length = (8 + transport_bytes) as u16;
            let ip = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[17, 64], &address(src), &address(dst)].concat();
            [ethernet(&[0x81, 0, 0, 5, 0x86, 0xDD]), ip, udp(transport_bytes)].concat()
        }
        FuzzEncapsulation::RoceV1 => [ethernet(&[0x89, 0x15]), grh.to_bytes().to_vec()].concat(),
    }
}

/// Builds any packet, which must parse as built and have valid checksums; then parses it with some
/// bytes changed and truncated.
///
/// # Panics
/// If the parsed packet differs or a checksum is invalid.
pub fn run(bytes: &[u8]) {
    let _ = arbitrary_packet(&mut Unstructured::new(bytes));
}

fn arbitrary_packet(input: &mut Unstructured<'_>) -> Result<()> {
    let frame = FuzzEncapsulation::arbitrary(input)?;
    let [opcode, flags, src, dst, cut] = input.arbitrary()?;
    let (pkey, dest_qp, psn): (u16, u32, u32) = input.arbitrary()?;
    let opcode = Opcode(opcode);
    let bth = Bth {
        opcode,
        solicited: flags & 1 > 0,
        mig_req: flags & 2 > 0,
        pad_count: 0,
        tver: 0,
        pkey,
        fecn: flags & 4 > 0,
        becn: flags & 8 > 0,
        dest_qp: Qpn::new(dest_qp),
        ack_req: flags & 16 > 0,
        psn: Psn::new(psn),
    };
    assert_eq!(Bth::parse(&bth.to_bytes()), Ok(bth));
    let extension = input.bytes(usize::from(opcode.ext_bytes()))?;
    let changes: [(u8, u8); 3] = input.arbitrary()?;
    let payload = input.bytes(input.len().min(4096))?;
    let mut packet = self::bytes(frame, &FuzzPacket { ends: (src, dst), bth, extension, payload });
    if let Some(location) = find_infiniband(frame, &packet) {
        let read = Packet::parse_strict(&packet, &location).expect("a whole packet");
        assert_eq!(read.bth, Bth { pad_count: read.bth.pad_count, ..bth });
        assert_eq!((read.payload, read.payload_bytes), (payload, payload.len()));
        assert_eq!(verify_icrc(&packet, &location), CrcVerdict::Ok);
        assert!(matches!(verify_vcrc(&packet, &location), CrcVerdict::Ok | CrcVerdict::None));
    }
    link::record(frame.link_type(), &packet, packet.len() as u32);
    for (at, value) in changes {
        if let Some(byte) = packet.get_mut(usize::from(at)) {
            *byte ^= value;
        }
    }
    link::record(frame.link_type(), &packet, packet.len() as u32);
    let there = packet.len() * usize::from(cut) / 255;
    link::record(frame.link_type(), &packet[..there], packet.len() as u32);
    Ok(())
}
