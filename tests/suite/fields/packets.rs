//! Packets of every kind, assembled header by header, with all their checksums.

use super::length;
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::ib::crc::{icrc, vcrc};
use ibscope_parsers::link::{LinkContent, Location, locate};
use std::ops::Range;

/// Headers from the first byte of a record's data on, each with its content.
pub(super) type HeaderList = Vec<(&'static str, Vec<u8>)>;

/// Makes headers from pseudo-random numbers: no field is empty or has its usual value.
pub(super) struct PacketMaker<F: FnMut(usize) -> usize>(pub(super) F);

impl<F: FnMut(usize) -> usize> PacketMaker<F> {
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| 1 + (self.0)(255) as u8).collect()
    }

    /// A header of its fixed length with these bytes at these offsets.
    fn header(&mut self, name: &'static str, fixed: &[(usize, &[u8])]) -> (&'static str, Vec<u8>) {
        let mut bytes = self.bytes(length(name).expect("a header of fixed length"));
        for (at, value) in fixed {
            bytes[*at..at + value.len()].copy_from_slice(value);
        }
        (name, bytes)
    }

    fn lid(&mut self) -> [u8; 2] {
        (1 + (self.0)(0xBFFF) as u16).to_be_bytes()
    }

    fn gid(&mut self) -> Vec<u8> {
        [vec![0x20], self.bytes(15)].concat()
    }

    fn mac(&mut self) -> Vec<u8> {
        [vec![0x52], self.bytes(5)].concat()
    }

    /// A partition key that is not the default.
    fn p_key(&mut self) -> [u8; 2] {
        ((self.0)(2) as u16 * 0x8000 + 1 + (self.0)(0x7FFE) as u16).to_be_bytes()
    }

    fn ethernet(&mut self, kind: u16) -> (&'static str, Vec<u8>) {
        let (destination, source) = (self.mac(), self.mac());
        self.header("Ethernet", &[(0, &destination), (6, &source), (12, &kind.to_be_bytes())])
    }

    fn vlan(&mut self, kind: u16) -> (&'static str, Vec<u8>) {
        let id = 1 + (self.0)(0xFFE) as u16;
        self.header("VLAN", &[(0, &(0xB000 | id).to_be_bytes()), (2, &kind.to_be_bytes())])
    }

    fn mpls(&mut self, is_last: bool) -> (&'static str, Vec<u8>) {
        let label = 16 + (self.0)(0xF_FF00) as u32;
        self.header("MPLS", &[(0, &(label << 12 | 0xA00 | u32::from(is_last) << 8 | 9).to_be_bytes())])
    }

    /// The LRH of a packet of this many bytes with its ICRC. ERF allows no reserved bits in it.
    fn lrh(&mut self, lnh: u8, bytes: usize, has_reserved: bool) -> (&'static str, Vec<u8>) {
        let (source, destination) = (self.lid(), self.lid());
        let (bits, more) = if has_reserved { (0x0C, 0xF800) } else { (0, 0) };
        let length = (bytes as u16 / 4 + more).to_be_bytes();
        self.header("LRH", &[(0, &[0x20, 0x50 | bits | lnh]), (2, &destination), (4, &length), (6, &source)])
    }

    /// The prefix of a mirrored copy of this many bytes with its VCRC: an LRH, a raw header with
    /// the mark.
    fn mirror(&mut self, bytes: usize, has_reserved: bool) -> (&'static str, Vec<u8>) {
        let (_, lrh) = self.lrh(0, 16 + bytes - 2, has_reserved);
        self.header("Mirror", &[(0, &lrh), (10, &[0x11, 0x23])])
    }

    fn grh(&mut self, name: &'static str, next: u8, bytes: usize) -> (&'static str, Vec<u8>) {
        let (source, destination) = (self.gid(), self.gid());
        let fixed: [(usize, &[u8]); 5] =
            [(0, &[0x6D, 0xB7]), (4, &(bytes as u16).to_be_bytes()), (6, &[next]), (8, &source), (24, &destination)];
        self.header(name, &fixed)
    }

    /// The BTH, the headers of the opcode, and a payload with its pad.
    fn transport(&mut self, opcode: Opcode, payload: usize) -> HeaderList {
        let p_key = self.p_key();
        let pad = if opcode.has_payload() { payload.next_multiple_of(4) - payload } else { 0 };
        // Version 0; a queue pair that is not for management.
        let flags = 0xC0 | (pad as u8) << 4;
        let mut headers =
            vec![self.header("BTH", &[(0, &[opcode.0, flags]), (2, &p_key), (4, &[0xFF, 0x12, 0x34, 0x56, 0xFF])])];
        let extensions = [
            (opcode.has_rdeth(), "RDETH"),
            (opcode.has_deth(), "DETH"),
            (opcode.has_xrceth(), "XRCETH"),
            (opcode.has_feth(), "FETH"),
            (opcode.has_reth(), "RETH"),
            (opcode.has_atomic_eth(), "AtomicETH"),
            (opcode.has_aeth(), "AETH"),
            (opcode.has_atomic_ack(), "AtomicAckETH"),
            (opcode.has_immediate(), "ImmDt"),
            (opcode.has_invalidate(), "IETH"),
            (opcode == Opcode::CNP, "CNP"),
        ];
        headers.extend(extensions.iter().filter(|(is_there, _)| *is_there).map(|(_, name)| self.header(name, &[])));
        if opcode.has_payload() {
            headers.push(("Payload", self.bytes(payload)));
            headers.push(("Pad", self.bytes(pad)));
        }
        headers.push(("ICRC", vec![0; 4]));
        headers
    }

    /// A UD SEND to the management queue pair: a MAD of this class and attribute with this content.
    fn management(&mut self, class: u8, attribute: u16, content: HeaderList) -> HeaderList {
        let mut packet = self.transport(Opcode(0x64), 0);
        packet.retain(|(name, _)| matches!(*name, "BTH" | "DETH"));
        packet[0].1[5..8].copy_from_slice(&[0, 0, 1]);
        packet.push(self.header("MAD", &[(1, &[class]), (16, &attribute.to_be_bytes())]));
        packet.extend(content);
        packet.push(("ICRC", vec![0; 4]));
        assert_eq!(bytes(&packet), 12 + 8 + 256 + 4, "a MAD has 256 bytes");
        packet
    }

    /// One datagram of each kind.
    fn all_management(&mut self) -> Vec<HeaderList> {
        const BODY_BYTES: usize = 232;
        let mut packets = vec![{
            let data = self.bytes(BODY_BYTES);
            self.management(0x03, 0x35, vec![("MAD data", data)])
        }];
        let messages = [
            (0x11, "CM MRA"),
            (0x12, "CM REJ"),
            (0x13, "CM REP"),
            (0x14, "CM RTU"),
            (0x15, "CM DREQ"),
            (0x16, "CM DREP"),
            (0x17, "CM SIDR_REQ"),
            (0x18, "CM SIDR_REP"),
            (0x19, "CM LAP"),
            (0x1A, "CM APR"),
        ];
        for (attribute, name) in messages {
            let p_key = self.p_key();
            let message = match name {
                "CM SIDR_REQ" => self.header(name, &[(4, &p_key)]),
                _ => self.header(name, &[]),
            };
            let private = self.bytes(BODY_BYTES - message.1.len());
            packets.push(self.management(0x07, attribute, vec![message, ("CM private data", private)]));
        }
        // Port, endpoint and queue, job, rank: small numbers, followed by zeros.
        let peer = vec![0x12, 0x34, 5, 0, 0, 0, 1, 1, 0, 0x14, 0x4C, 3, 0, 0, 0];
        let nothing = |bytes| ("CM private data", vec![0; bytes]);
        let rep = self.header("CM REP", &[]);
        packets.push(self.management(0x07, 0x13, vec![rep, ("Open MPI peer", peer.clone()), nothing(181)]));
        for version in [0x40, 0x60, 0] {
            let (lids, gids) = ([(); 4].map(|()| self.lid()).concat(), [(); 4].map(|()| self.gid()).concat());
            let p_key = self.p_key();
            let fixed: [(usize, &[u8]); 5] =
                [(48, &p_key), (52, &lids[..4]), (56, &gids[..32]), (96, &lids[4..]), (100, &gids[32..])];
            let req = self.header("CM REQ", &fixed);
            let zeros = [0; 12];
            let (one, other) = ([10, 1, 2, 3], [127, 0, 1, 1]);
            let ipv4: [(usize, &[u8]); 5] = [(0, &[0, version]), (4, &zeros), (16, &one), (20, &zeros), (32, &other)];
            let content = match version {
                0x40 => {
                    let addresses = self.header("CM IP addresses", &ipv4);
                    vec![req, addresses, ("Open MPI peer", peer.clone()), nothing(41)]
                }
                0x60 => {
                    let gids = [self.gid(), self.gid()].concat();
                    let addresses = self.header("CM IP addresses", &[(0, &[0, version]), (4, &gids)]);
                    vec![req, addresses, ("CM private data", self.bytes(56))]
                }
                _ => vec![req, ("CM private data", self.bytes(92))],
            };
            packets.push(self.management(0x07, 0x10, content));
        }
        packets
    }

    fn native(&mut self, transport: HeaderList, is_global: bool, has_reserved: bool) -> HeaderList {
        let inner = bytes(&transport);
        let grh = is_global.then(|| self.grh("GRH", 0x1B, inner));
        let whole = 8 + inner + if is_global { 40 } else { 0 };
        let lrh = self.lrh(if is_global { 3 } else { 2 }, whole, has_reserved);
        [vec![lrh], grh.into_iter().collect(), transport, vec![("VCRC", vec![0; 2])]].concat()
    }

    /// UDP, preceded by IP.
    fn routed(&mut self, transport: HeaderList, is_ipv6: bool) -> HeaderList {
        let length = 8 + bytes(&transport);
        let udp = self.header("UDP", &[(2, &4791u16.to_be_bytes()), (4, &(length as u16).to_be_bytes())]);
        let ip = if is_ipv6 {
            self.grh("IPv6", 17, length)
        } else {
            let total = (20 + length as u16).to_be_bytes();
            let addresses = [vec![10], self.bytes(3), vec![127], self.bytes(3)].concat();
            // The reserved bit next to "don't fragment"; a fragment would not be read.
            self.header("IPv4", &[(0, &[0x45]), (2, &total), (6, &[0xC0, 0]), (9, &[17]), (12, &addresses)])
        };
        [vec![ip, udp], transport].concat()
    }

    /// All kinds of packets, by link type.
    pub(super) fn all(&mut self) -> Vec<(LinkType, HeaderList)> {
        let known = (0..=0xFF).map(Opcode).filter(|opcode| opcode.is_known());
        let mut transports: Vec<HeaderList> = known.map(|opcode| self.transport(opcode, 26)).collect();
        transports.extend(self.all_management());
        let mut packets = Vec::new();
        let trailer = |maker: &mut Self| ("Trailer", maker.bytes(7));
        for (index, transport) in transports.into_iter().enumerate() {
            let (is_global, is_ipv6) = (index % 2 == 1, index % 3 == 1);
            let native = self.native(transport.clone(), is_global, true);
            let mirror = self.mirror(bytes(&native), true);
            packets.push((LinkType::INFINIBAND, native.clone()));
            packets.push((LinkType::INFINIBAND, [vec![mirror], native, vec![trailer(self)]].concat()));
            let (kind, routed) = (if is_ipv6 { 0x86DD } else { 0x0800 }, self.routed(transport.clone(), is_ipv6));
            let frame = match index % 4 {
                0 => vec![self.ethernet(kind)],
                1 => vec![self.ethernet(0x88A8), self.vlan(0x8100), self.vlan(kind)],
                2 => vec![self.ethernet(0x8100), self.vlan(0x8847), self.mpls(false), self.mpls(true)],
                _ => vec![self.ethernet(0x8847), self.mpls(true)],
            };
            packets.push((LinkType::ETHERNET, [frame, routed.clone(), vec![trailer(self)]].concat()));
            let grh = self.grh("GRH", 0x1B, bytes(&transport));
            let frame = vec![self.ethernet(0x8100), self.vlan(0x8915), grh];
            packets.push((LinkType::ETHERNET, [frame, transport.clone(), vec![trailer(self)]].concat()));
            let mac = self.mac();
            let kind = (if is_ipv6 { 0x86DDu16 } else { 0x0800 }).to_be_bytes();
            let cooked = self.header("SLL", &[(4, &[0, 6]), (6, &mac), (14, &kind)]);
            packets.push((LinkType::SLL, [vec![cooked], routed.clone()].concat()));
            let tagged = [&0x8100u16.to_be_bytes(), &kind].map(|kind| u16::from_be_bytes(*kind));
            let cooked = self.header("SLL2", &[(0, &tagged[0].to_be_bytes()), (11, &[6]), (12, &mac)]);
            let tag = self.vlan(tagged[1]);
            packets.push((LinkType::SLL2, [vec![cooked, tag], routed.clone()].concat()));
            packets.push((LinkType::RAW, routed.clone()));
            // ERF of InfiniBand with extension headers, with a mirrored copy inside, and of
            // Ethernet.
            let native = self.native(transport.clone(), is_global, false);
            let whole = bytes(&native) as u16;
            let more = self.header("ERF extension", &[(0, &[0x83])]);
            let last = self.header("ERF extension", &[(0, &[0x03])]);
            let erf = self.header("ERF", &[(8, &[0x80 | 0x15]), (14, &whole.to_be_bytes())]);
            packets.push((LinkType::ERF, [vec![erf, more, last], native.clone()].concat()));
            let mirror = self.mirror(bytes(&native), false);
            let mirrored = [vec![mirror], native, vec![trailer(self)]].concat();
            let whole = bytes(&mirrored) as u16;
            let erf = self.header("ERF", &[(8, &[0x15]), (14, &whole.to_be_bytes())]);
            packets.push((LinkType::ERF, [vec![erf], mirrored].concat()));
            let frame = [vec![self.ethernet(u16::from_be_bytes(kind))], routed].concat();
            let whole = bytes(&frame) as u16;
            let erf = self.header("ERF", &[(8, &[2]), (14, &whole.to_be_bytes())]);
            let pad = self.header("ERF pad", &[]);
            packets.push((LinkType::ERF, [vec![erf, pad], frame].concat()));
        }
        for opcode in [0, 0x0101u16] {
            let (destination, source) = (self.mac(), self.mac());
            let fixed: [(usize, &[u8]); 4] =
                [(0, &destination), (6, &source), (12, &[0x88, 0x08]), (14, &opcode.to_be_bytes())];
            let pause = self.header("Pause frame", &fixed);
            packets.push((LinkType::ETHERNET, vec![pause, trailer(self)]));
        }
        packets
    }
}

fn bytes(packet: &HeaderList) -> usize {
    packet.iter().map(|(_, content)| content.len()).sum()
}

pub(super) fn location(link_type: LinkType, data: &[u8]) -> Option<Location> {
    match locate(link_type, data, data.len() as u32) {
        Ok(LinkContent::Infiniband(location)) => Some(location),
        Ok(LinkContent::Other(_)) => None,
        Err(error) => panic!("{error}: {data:02x?}"),
    }
}

/// The byte range of each header.
pub(super) fn places(packet: &HeaderList) -> Vec<(&'static str, Range<usize>)> {
    let mut at = 0;
    let mut place = |content: &[u8]| {
        at += content.len();
        at - content.len()..at
    };
    packet.iter().map(|(name, content)| (*name, place(content))).collect()
}

/// The ones' complement sum of 16-bit words: all ones if a checksum among them is right.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)));
    let mut sum: u64 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// The sum over a UDP datagram and its IP pseudo-header.
pub(super) fn udp_sum(data: &[u8], places: &[(&'static str, Range<usize>)]) -> u16 {
    let at = |wanted: &str| places.iter().find(|(name, _)| *name == wanted).map(|(_, place)| place.clone());
    let udp = at("UDP").expect("UDP");
    let end = at("ICRC").expect("ICRC").end;
    let addresses = match (at("IPv4"), at("IPv6")) {
        (Some(ip), _) => &data[ip.start + 12..ip.start + 20],
        (_, ip) => &data[ip.expect("IP").start + 8..udp.start],
    };
    let length = (end - udp.start) as u16;
    sum(&[addresses, &length.to_be_bytes(), &[0, 17], &data[udp.start..end]].concat())
}

/// The packet's bytes with all its checksums, right or wrong.
pub(super) fn summed(link_type: LinkType, packet: &HeaderList, are_right: bool) -> Vec<u8> {
    let mut data: Vec<u8> = packet.iter().flat_map(|(_, content)| content.clone()).collect();
    let places = places(packet);
    let Some(location) = location(link_type, &data) else { return data };
    let wrong = |sum: u16| if are_right { sum } else { sum ^ 0x0F0F };
    // Inner sums first: the UDP sum covers the ICRC, and the ICRC does not cover the sums.
    for wanted in ["IPv4", "ICRC", "VCRC", "UDP"] {
        for (_, place) in places.iter().filter(|(name, _)| *name == wanted) {
            match wanted {
                "IPv4" => {
                    data[place.start + 10..place.start + 12].fill(0);
                    let sum = wrong(!sum(&data[place.clone()]));
                    data[place.start + 10..place.start + 12].copy_from_slice(&sum.to_be_bytes());
                }
                "UDP" => {
                    data[place.start + 6..place.start + 8].fill(0);
                    let sum = wrong(!udp_sum(&data, &places));
                    data[place.start + 6..place.start + 8].copy_from_slice(&sum.to_be_bytes());
                }
                "ICRC" => {
                    let sum = icrc(location.encapsulation, &data, &location).expect("whole");
                    let sum = if are_right { sum } else { sum ^ 0x0F0F };
                    data[place.clone()].copy_from_slice(&sum.to_le_bytes());
                }
                _ => {
                    let sum = wrong(vcrc(&data[location.start..place.start]));
                    data[place.clone()].copy_from_slice(&sum.to_le_bytes());
                }
            }
        }
    }
    data
}
