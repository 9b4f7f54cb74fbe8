//! Puts Ethernet frames into tunnels, as switches and overlays do.
//!
//! In: a frame, or a recording of frames. Out: the same with outer headers. The layouts are written
//! here a second time, apart from the parsers, so that a mistake in one of both shows. Invariant:
//! the bytes of the frame do not change, except that tunnels for IP packets drop its Ethernet
//! header.

use ibscope_parsers::frame::LinkType;

use crate::hard::{RecordedPacket, Recording};

const ETHERNET_BYTES: usize = 14;
/// Sizes of port extender tags are those of the tag with its `EtherType`.
const VN_TAG: &[u8] = &[0x89, 0x26, 0x00, 0x01, 0x00, 0x02];
const E_TAG: &[u8] = &[0x89, 0x3F, 0x00, 0x00, 0x10, 0x02, 0x00, 0x00];

/// A layout of outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelFormat {
    /// GRE with an Ethernet frame.
    Gre,
    /// GRE with checksum, key and sequence number.
    GreWithOptions,
    /// GRE with a key: NVGRE.
    Nvgre,
    /// GRE with an IP packet.
    GreIp,
    /// GRE with a label stack and an IP packet.
    GreMpls,
    /// GRE in UDP with an Ethernet frame.
    GreInUdp,
    /// GRE in UDP with an IP packet and a sequence number.
    GreInUdpIp,
    /// ERSPAN type I.
    ErspanI,
    /// ERSPAN type I with 12 bytes before the frame.
    PrefixedErspanI,
    /// ERSPAN type II.
    ErspanII,
    /// ERSPAN type III.
    ErspanIII,
    /// ERSPAN type III with the subheader of the platform.
    ErspanIIIWithSubheader,
    /// ERSPAN type III with an IP packet.
    ErspanIIIIp,
    /// GRE with 22 bytes before the frame.
    MellanoxMirror,
    /// VXLAN.
    Vxlan,
    /// VXLAN to Linux's old port.
    LegacyVxlan,
    /// VXLAN-GPE with an Ethernet frame.
    VxlanGpe,
    /// VXLAN-GPE with an IP packet.
    VxlanGpeIp,
    /// VXLAN-GPE with a network service header.
    VxlanGpeNsh,
    /// Network service header in Ethernet.
    Nsh,
    /// GENEVE with an Ethernet frame.
    Geneve,
    /// GENEVE with options.
    GeneveWithOptions,
    /// GENEVE with an IP packet.
    GeneveIp,
    /// Label stack and IP packet in an IP packet.
    MplsInIp,
    /// Label stack and IP packet in UDP.
    MplsInUdp,
    /// Label stack and Ethernet frame.
    Pseudowire,
    /// Label stack, control word and Ethernet frame.
    PseudowireWithControlWord,
    /// IP packet in an IP packet.
    IpInIp,
    /// VN-tag.
    VnTag,
    /// E-tag.
    ETag,
}

/// All formats.
pub const TUNNEL_FORMATS: [TunnelFormat; 30] = [
    TunnelFormat::Gre,
    TunnelFormat::GreWithOptions,
    TunnelFormat::Nvgre,
    TunnelFormat::GreIp,
    TunnelFormat::GreMpls,
    TunnelFormat::GreInUdp,
    TunnelFormat::GreInUdpIp,
    TunnelFormat::ErspanI,
    TunnelFormat::PrefixedErspanI,
    TunnelFormat::ErspanII,
    TunnelFormat::ErspanIII,
    TunnelFormat::ErspanIIIWithSubheader,
    TunnelFormat::ErspanIIIIp,
    TunnelFormat::MellanoxMirror,
    TunnelFormat::Vxlan,
    TunnelFormat::LegacyVxlan,
    TunnelFormat::VxlanGpe,
    TunnelFormat::VxlanGpeIp,
    TunnelFormat::VxlanGpeNsh,
    TunnelFormat::Nsh,
    TunnelFormat::Geneve,
    TunnelFormat::GeneveWithOptions,
    TunnelFormat::GeneveIp,
    TunnelFormat::MplsInIp,
    TunnelFormat::MplsInUdp,
    TunnelFormat::Pseudowire,
    TunnelFormat::PseudowireWithControlWord,
    TunnelFormat::IpInIp,
    TunnelFormat::VnTag,
    TunnelFormat::ETag,
];

/// Ends and number of a tunnel's packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelPacket {
    /// The outer packet is IPv6.
    pub is_ipv6: bool,
    /// Last byte of the source address: the switch.
    pub switch: u8,
    /// Sequence number, in formats that have one.
    pub sequence: u32,
}

/// What precedes the tunnel's own header.
#[derive(Clone, Copy)]
enum OuterProtocol {
    /// Ethernet with this `EtherType`.
    Ethernet(u16),
    /// IP with this protocol.
    Ip(u8),
    /// UDP to this port.
    Udp(u16),
}

/// What a tunnel carries of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TunnelContent {
    Frame,
    /// IP packet of the version that is asked for, without the Ethernet header.
    Packet,
}

impl TunnelFormat {
    /// The name in outputs of ibscope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gre | Self::GreWithOptions | Self::Nvgre | Self::GreIp | Self::GreMpls => "GRE",
            Self::GreInUdp | Self::GreInUdpIp => "GRE in UDP",
            Self::ErspanI | Self::PrefixedErspanI => "ERSPAN I",
            Self::ErspanII => "ERSPAN II",
            Self::ErspanIII | Self::ErspanIIIWithSubheader | Self::ErspanIIIIp => "ERSPAN III",
            Self::MellanoxMirror => "Mellanox mirror",
            Self::Vxlan | Self::LegacyVxlan => "VXLAN",
            Self::VxlanGpe | Self::VxlanGpeIp | Self::VxlanGpeNsh => "VXLAN-GPE",
            Self::Nsh => "NSH",
            Self::Geneve | Self::GeneveWithOptions | Self::GeneveIp => "GENEVE",
            Self::MplsInIp => "MPLS in IP",
            Self::MplsInUdp => "MPLS in UDP",
            Self::Pseudowire | Self::PseudowireWithControlWord => "pseudowire",
            Self::IpInIp => "IP in IP",
            Self::VnTag => "VN-tag",
            Self::ETag => "E-tag",
        }
    }

    /// The frame in the tunnel, and its new original length. `original_bytes` is the length of the
    /// frame before truncation. `None` if the frame holds no IP packet and the tunnel needs one.
    #[must_use]
    pub fn wrap(self, frame: &[u8], original_bytes: u32, packet: TunnelPacket) -> Option<(Vec<u8>, u32)> {
        let kind = frame.get(12..14)?;
        if let Some(tag) = self.tag() {
            let bytes = [&frame[..12], tag, &frame[12..]].concat();
            return Some((bytes, original_bytes + tag.len() as u32));
        }
        let is_v6 = match kind {
            [0x08, 0x00] => Some(false),
            [0x86, 0xDD] => Some(true),
            _ => None,
        };
        let (protocol, header, content) = self.header(packet.sequence, is_v6.unwrap_or(false));
        let skipped = match content {
            TunnelContent::Frame => 0,
            TunnelContent::Packet => is_v6.map(|_| ETHERNET_BYTES)?,
        };
        let content_bytes = header.len() + original_bytes as usize - skipped;
        let mut bytes = outer(protocol, content_bytes, packet);
        let added = (bytes.len() + header.len()) as u32;
        bytes.extend(header);
        bytes.extend(&frame[skipped..]);
        Some((bytes, original_bytes + added - skipped as u32))
    }

    const fn tag(self) -> Option<&'static [u8]> {
        match self {
            Self::VnTag => Some(VN_TAG),
            Self::ETag => Some(E_TAG),
            _ => None,
        }
    }

    /// The tunnel's own header, what precedes it and what follows.
    fn header(self, sequence: u32, is_v6: bool) -> (OuterProtocol, Vec<u8>, TunnelContent) {
        use OuterProtocol::{Ethernet, Ip, Udp};
        use TunnelContent::{Frame, Packet};
        let number = sequence.to_be_bytes();
        let kind: [u8; 2] = if is_v6 { [0x86, 0xDD] } else { [0x08, 0x00] };
        let next = if is_v6 { 2 } else { 1 };
        let iii = |last: u8, frame_type: u8| {
            [&[0x10, 0, 0x22, 0xEB], &number, &[0x20, 0x64, 0, 5, 1, 2, 3, 4, 0, 0, frame_type << 2, last][..]].concat()
        };
        match self {
            Self::Gre => (Ip(47), vec![0, 0, 0x65, 0x58], Frame),
            Self::GreWithOptions => {
                (Ip(47), [&[0xB0, 0, 0x65, 0x58, 0xAB, 0xCD, 0, 0, 0, 0, 0, 9][..], &number].concat(), Frame)
            }
            Self::Nvgre => (Ip(47), vec![0x20, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0x78], Frame),
            Self::GreIp => (Ip(47), [&[0, 0], &kind[..]].concat(), Packet),
            Self::GreMpls => (Ip(47), vec![0, 0, 0x88, 0x47, 0, 1, 1, 64], Packet),
            Self::GreInUdp => (Udp(4754), vec![0, 0, 0x65, 0x58], Frame),
            Self::GreInUdpIp => (Udp(4754), [&[0x10, 0], &kind[..], &number].concat(), Packet),
            Self::ErspanI => (Ip(47), vec![0, 0, 0x88, 0xBE], Frame),
            Self::PrefixedErspanI => (Ip(47), [&[0, 0, 0x88, 0xBE][..], &[0; 12]].concat(), Frame),
            Self::ErspanII => {
                (Ip(47), [&[0x10, 0, 0x88, 0xBE], &number, &[0x10, 0x64, 0, 5, 0, 0, 0, 3][..]].concat(), Frame)
            }
            Self::ErspanIII => (Ip(47), iii(0, 0), Frame),
            Self::ErspanIIIWithSubheader => (Ip(47), [&iii(1, 0)[..], &[0x14, 0, 0, 0, 5, 6, 7, 8]].concat(), Frame),
            Self::ErspanIIIIp => (Ip(47), iii(0, 2), Packet),
            Self::MellanoxMirror => (Ip(47), [&[0, 0, 0x89, 0x49][..], &[0; 22]].concat(), Frame),
            Self::Vxlan => (Udp(4789), vec![8, 0, 0, 0, 0, 0, 7, 0], Frame),
            Self::LegacyVxlan => (Udp(8472), vec![8, 0, 0, 0, 0, 0, 7, 0], Frame),
            Self::VxlanGpe => (Udp(4790), vec![0x0C, 0, 0, 3, 0, 0, 7, 0], Frame),
            Self::VxlanGpeIp => (Udp(4790), vec![0x0C, 0, 0, next, 0, 0, 7, 0], Packet),
            Self::VxlanGpeNsh => (Udp(4790), vec![0x0C, 0, 0, 4, 0, 0, 7, 0, 0x0F, 0xC2, 2, 3, 0, 0, 1, 255], Frame),
            Self::Nsh => (Ethernet(0x894F), vec![0x0F, 0xC2, 2, 3, 0, 0, 1, 255], Frame),
            Self::Geneve => (Udp(6081), vec![0, 0, 0x65, 0x58, 0, 0, 7, 0], Frame),
            Self::GeneveWithOptions => {
                (Udp(6081), vec![2, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 0x80, 1, 0, 0, 0, 0], Frame)
            }
            Self::GeneveIp => (Udp(6081), [&[0, 0], &kind[..], &[0, 0, 7, 0]].concat(), Packet),
            Self::MplsInIp => (Ip(137), vec![0, 1, 0, 64, 0, 2, 1, 64], Packet),
            Self::MplsInUdp => (Udp(6635), vec![0, 1, 0, 64, 0, 2, 1, 64], Packet),
            Self::Pseudowire => (Ethernet(0x8847), vec![0, 1, 0, 64, 0, 2, 1, 64], Frame),
            Self::PseudowireWithControlWord => {
                (Ethernet(0x8847), vec![0, 1, 0, 64, 0, 2, 1, 64, 0, 0, 0x12, 0x34], Frame)
            }
            Self::IpInIp => (Ip(if is_v6 { 41 } else { 4 }), Vec::new(), Packet),
            Self::VnTag | Self::ETag => (Ethernet(0), Vec::new(), Frame),
        }
    }
}

/// The recording with each frame in the tunnel that `choose` gives for its number, if any. Sequence
/// numbers count the frames of each switch.
///
/// # Panics
/// If the recording has no Ethernet frames.
#[must_use]
pub fn wrapped(
    recording: &Recording,
    mut choose: impl FnMut(usize, &RecordedPacket) -> Option<(TunnelFormat, TunnelPacket)>,
) -> Recording {
    assert_eq!(recording.link_type, LinkType::ETHERNET);
    let mut numbers = [0u32; 256];
    let mut record = |(index, record): (usize, &RecordedPacket)| {
        let (format, packet) = choose(index, record)?;
        let number = &mut numbers[usize::from(packet.switch)];
        let packet = TunnelPacket { sequence: *number, ..packet };
        let (data, original_bytes) = format.wrap(&record.data, record.original_bytes, packet)?;
        *number = number.wrapping_add(1);
        Some(RecordedPacket { time_ns: record.time_ns, original_bytes, data: data.into() })
    };
    let records = recording.records.iter().enumerate();
    recording.with(records.map(|each| record(each).unwrap_or_else(|| each.1.clone())).collect())
}

/// The frames as samples of one interface, in sFlow datagrams of `per_datagram` samples, every third
/// one with counters and every other sample expanded. The samples state the rate `1/one_in`.
#[must_use]
pub fn in_sflow(recording: &Recording, one_in: u32, per_datagram: usize) -> Recording {
    let mut sequence = 0;
    let mut datagram = |(number, frames): (usize, &[RecordedPacket])| {
        let has_counters = number % 3 == 0;
        let mut data = words(&[5, 1, 0xC000_0201, 0, number as u32, 1000]);
        data.extend(words(&[frames.len() as u32 + u32::from(has_counters)]));
        if has_counters {
            data.extend(words(&[2, 12, number as u32, 9, 0]));
        }
        for frame in frames {
            sequence += 1;
            let header_bytes = frame.data.len() as u32;
            let padded = header_bytes.next_multiple_of(4);
            let mut record = words(&[1, 16 + padded, 1, frame.original_bytes + 4, 4, header_bytes]);
            record.extend_from_slice(&frame.data);
            record.resize(24 + padded as usize, 0);
            let pool = sequence * one_in;
            let (format, sample) = if sequence % 2 == 0 {
                (3, words(&[sequence, 0, 9, one_in, pool, 0, 0, 9, 0, 10, 1]))
            } else {
                (1, words(&[sequence, 9, one_in, pool, 0, 9, 10, 1]))
            };
            data.extend(words(&[format, (sample.len() + record.len()) as u32]));
            data.extend(sample);
            data.extend(record);
        }
        let packet = TunnelPacket { switch: 1, ..TunnelPacket::default() };
        let mut bytes = outer(OuterProtocol::Udp(6343), data.len(), packet);
        bytes.extend(data);
        let original_bytes = bytes.len() as u32;
        RecordedPacket { time_ns: frames[0].time_ns, original_bytes, data: bytes.into() }
    };
    recording.with(recording.records.chunks(per_datagram).enumerate().map(&mut datagram).collect())
}

/// The frames as samples of a group, in netlink messages of psample with the rate `1/one_in`.
#[must_use]
pub fn in_psample(recording: &Recording, one_in: u32) -> Recording {
    let attribute = |kind: u16, value: &[u8]| {
        let length = 4 + value.len() as u16;
        let mut bytes = [&length.to_le_bytes()[..], &kind.to_le_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let message = |(sequence, frame): (usize, &RecordedPacket)| {
        let numbers = [(2, frame.original_bytes), (3, 1), (4, sequence as u32), (5, one_in)];
        let mut body = vec![0, 1, 0, 0];
        body.extend(attribute(0, &7u16.to_le_bytes()));
        numbers.iter().for_each(|(kind, number)| body.extend(attribute(*kind, &number.to_le_bytes())));
        body.extend(attribute(6, &frame.data));
        let mut bytes = vec![0, 0, 3, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16];
        bytes.extend((16 + body.len() as u32).to_le_bytes());
        bytes.extend([0x1F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(body);
        RecordedPacket { time_ns: frame.time_ns, original_bytes: bytes.len() as u32, data: bytes.into() }
    };
    let records = recording.records.iter().enumerate().map(message).collect();
    Recording { link_type: LinkType::NETLINK, ..recording.with(records) }
}

/// 32-bit numbers in network byte order.
fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Ethernet, IP and UDP headers before `content_bytes` bytes.
fn outer(protocol: OuterProtocol, content_bytes: usize, packet: TunnelPacket) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 0xFE, 2, 0, 0, 0, 0, packet.switch];
    let (protocol, udp) = match protocol {
        OuterProtocol::Ethernet(kind) => {
            bytes.extend(kind.to_be_bytes());
            return bytes;
        }
        OuterProtocol::Ip(protocol) => (protocol, None),
        OuterProtocol::Udp(port) => (17, Some(port)),
    };
    let udp_bytes = if udp.is_some() { 8 } else { 0 };
    let payload_bytes = (content_bytes + udp_bytes) as u16;
    if packet.is_ipv6 {
        bytes.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
        bytes.extend(payload_bytes.to_be_bytes());
        bytes.extend([protocol, 64]);
        for host in [packet.switch, 0xFE] {
            bytes.extend([0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
    } else {
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((payload_bytes + 20).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, packet.switch, 192, 0, 2, 0xFE]);
        crate::hard::frame::seal_ipv4_header(&mut bytes, ETHERNET_BYTES);
    }
    if let Some(port) = udp {
        bytes.extend([0xC0, 0]);
        bytes.extend(port.to_be_bytes());
        bytes.extend(payload_bytes.to_be_bytes());
        bytes.extend([0, 0]);
    }
    bytes
}
