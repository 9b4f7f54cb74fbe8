//! Two connected queue pairs and the packets between them.

use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::{icrc, vcrc};
use ibscope_parsers::ib::{Bth, ICRC_BYTES, Lrh, Opcode, VCRC_BYTES};
use ibscope_parsers::link::{Encapsulation, Location, TunnelKinds};
use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

use super::super::rewrite::QueuePairAddress;
use super::super::{RecordedPacket, Recording};

/// The largest path MTU.
const MTU_BYTES: usize = 4096;
const ERF_BYTES: usize = 16;
const ERF_TYPE_INFINIBAND: u8 = 21;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ROCE_PORT: u16 = 4791;
/// Time between two packets of a message in nanoseconds.
const PACKET_NS: u64 = 500;
/// Time from the last packet of a message to its acknowledgement in nanoseconds.
const ANSWER_NS: u64 = 3000;
/// AETH: ACK without credits.
const SYNDROME_ACK: u8 = 0x1F;
const PSN_MASK: u32 = 0xFF_FFFF;

/// Opcodes of First, Middle, Last and Only packets, service RC.
const SEND: [u8; 4] = [0x00, 0x01, 0x02, 0x04];
const WRITE: [u8; 4] = [0x06, 0x07, 0x08, 0x0A];
const READ_RESPONSE: [u8; 4] = [0x0D, 0x0E, 0x0F, 0x10];
const READ_REQUEST: u8 = 0x0C;
const ACKNOWLEDGE: u8 = 0x11;
const DATAGRAM: u8 = 0x64;

/// An end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelSide {
    /// The initiator, client or first process.
    Client,
    /// The target, server or second process.
    Server,
}

impl ChannelSide {
    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A reliable connection, or two queue pairs for datagrams, with the packets sent so far.
#[derive(Clone, Debug)]
pub struct Channel {
    traffic: Recording,
    ends: [QueuePairAddress; 2],
    psns: [u32; 2],
    completed: [u32; 2],
    /// Time of the next packet.
    pub time_ns: u64,
}

impl Channel {
    /// Creates a channel between two queue pairs; `psns` are the first PSNs of their requests.
    #[must_use]
    pub fn new(
        link_type: LinkType,
        client: QueuePairAddress,
        server: QueuePairAddress,
        psns: [u32; 2],
        time_ns: u64,
    ) -> Self {
        let traffic = Recording { link_type, nanoseconds: link_type != LinkType::ERF, records: Vec::new() };
        let psns = psns.map(|psn| psn & PSN_MASK);
        Self { traffic, ends: [client, server], psns, completed: [0; 2], time_ns }
    }

    /// Returns the packets.
    #[must_use]
    pub fn finish(self) -> Recording {
        self.traffic
    }

    /// Sends a SEND, which is acknowledged.
    pub fn send(&mut self, from: ChannelSide, payload: &[u8]) {
        self.message(from, SEND, &[], payload);
        self.acknowledge(from);
    }

    /// Sends an RDMA WRITE to an address of the other side, which is acknowledged.
    pub fn write(&mut self, from: ChannelSide, (address, key): (u64, u32), payload: &[u8]) {
        self.message(from, WRITE, &reth(address, key, payload.len()), payload);
        self.acknowledge(from);
    }

    /// Sends an RDMA READ of an address of the other side, which responds with `payload`.
    pub fn read(&mut self, from: ChannelSide, (address, key): (u64, u32), payload: &[u8]) {
        let first = self.psns[from as usize];
        self.packet(from, READ_REQUEST, first, true, &reth(address, key, payload.len()), &[]);
        self.time_ns += ANSWER_NS;
        self.completed[from as usize] += 1;
        let packets = payload.chunks(MTU_BYTES).len().max(1);
        for index in 0..packets {
            let part = chunk(payload, index);
            let (opcode, is_middle) = position(READ_RESPONSE, index, packets);
            let aeth = self.aeth(from);
            let extension = if is_middle { &[][..] } else { &aeth[..] };
            self.packet(from.other(), opcode, first + index as u32, false, extension, part);
        }
        self.psns[from as usize] = (first + packets as u32) & PSN_MASK;
    }

    /// Sends a datagram.
    pub fn datagram(&mut self, from: ChannelSide, q_key: u32, payload: &[u8]) {
        let psn = self.psns[from as usize];
        let deth = [q_key.to_be_bytes(), self.ends[from as usize].1.to_be_bytes()].concat();
        self.packet(from, DATAGRAM, psn, false, &deth, payload);
        self.psns[from as usize] = (psn + 1) & PSN_MASK;
    }

    fn message(&mut self, from: ChannelSide, opcodes: [u8; 4], first_extension: &[u8], payload: &[u8]) {
        let first = self.psns[from as usize];
        let packets = payload.chunks(MTU_BYTES).len().max(1);
        for index in 0..packets {
            let (opcode, _) = position(opcodes, index, packets);
            let extension = if index == 0 { first_extension } else { &[] };
            let is_last = index + 1 == packets;
            self.packet(from, opcode, first + index as u32, is_last, extension, chunk(payload, index));
        }
        self.psns[from as usize] = (first + packets as u32) & PSN_MASK;
    }

    /// The other side acknowledges the last request.
    fn acknowledge(&mut self, from: ChannelSide) {
        self.completed[from as usize] += 1;
        self.time_ns += ANSWER_NS;
        let (psn, aeth) = (self.psns[from as usize].wrapping_sub(1), self.aeth(from));
        self.packet(from.other(), ACKNOWLEDGE, psn, false, &aeth, &[]);
    }

    /// AETH with the number of completed messages of this side.
    fn aeth(&self, from: ChannelSide) -> [u8; 4] {
        let [_, msn @ ..] = self.completed[from as usize].to_be_bytes();
        [SYNDROME_ACK, msn[0], msn[1], msn[2]]
    }

    fn packet(&mut self, from: ChannelSide, opcode: u8, psn: u32, ack_req: bool, extension: &[u8], payload: &[u8]) {
        let (src, dst) = (self.ends[from as usize], self.ends[from.other() as usize]);
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let bth = Bth {
            opcode: Opcode(opcode),
            solicited: false,
            mig_req: true,
            pad_count: pad as u8,
            tver: 0,
            pkey: 0xFFFF,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(dst.1),
            ack_req,
            psn: Psn::new(psn & PSN_MASK),
        };
        let mut transport = [&bth.to_bytes()[..], extension, payload].concat();
        transport.resize(transport.len() + pad + ICRC_BYTES, 0);
        let data = if self.traffic.link_type == LinkType::ERF {
            native(src.0, dst.0, &transport)
        } else {
            roce(src.0, dst.0, &transport)
        };
        let record = RecordedPacket { time_ns: self.time_ns, original_bytes: data.len() as u32, data: data.into() };
        // Write the time into the ERF header.
        self.traffic.records.push(record.at(self.traffic.link_type, self.time_ns));
        self.time_ns += PACKET_NS;
    }
}

fn chunk(payload: &[u8], index: usize) -> &[u8] {
    payload.chunks(MTU_BYTES).nth(index).unwrap_or_default()
}

/// Opcode of a packet of a message, and whether it is a middle packet.
fn position([first, middle, last, only]: [u8; 4], index: usize, packets: usize) -> (u8, bool) {
    match index {
        0 if packets == 1 => (only, false),
        0 => (first, false),
        _ if index + 1 == packets => (last, false),
        _ => (middle, true),
    }
}

fn reth(address: u64, key: u32, bytes: usize) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &(bytes as u32).to_be_bytes()].concat()
}

/// ERF header, LRH, transport packet, VCRC.
fn native(src: Endpoint, dst: Endpoint, transport: &[u8]) -> Vec<u8> {
    let lid = |endpoint: Endpoint| endpoint.lid().unwrap_or(Lid(1));
    let ib_bytes = Lrh::LEN + transport.len();
    let lrh = Lrh {
        vl: 0,
        lver: 0,
        sl: 0,
        lnh: Lrh::LNH_LOCAL,
        dlid: lid(dst),
        pkt_len: (ib_bytes / 4) as u16,
        slid: lid(src),
    };
    let wire_bytes = (ib_bytes + VCRC_BYTES) as u16;
    let mut data = vec![0; 8];
    data.extend([ERF_TYPE_INFINIBAND, 4]);
    data.extend((wire_bytes + ERF_BYTES as u16).to_be_bytes());
    data.extend([0; 2]);
    data.extend(wire_bytes.to_be_bytes());
    data.extend(lrh.to_bytes());
    data.extend(transport);
    let location = Location {
        encapsulation: Encapsulation::Native,
        start: ERF_BYTES,
        network: ERF_BYTES,
        ib_bytes,
        wire_bytes: u32::from(wire_bytes),
        src,
        dst,
        tunnels: TunnelKinds::NONE,
    };
    seal(&mut data, &location);
    let sum = vcrc(&data[ERF_BYTES..]);
    data.extend(sum.to_le_bytes());
    data
}

/// Ethernet, IPv4, UDP, transport packet.
fn roce(src: Endpoint, dst: Endpoint, transport: &[u8]) -> Vec<u8> {
    let address = |endpoint: Endpoint| (endpoint.low_bits() as u32).to_be_bytes();
    let mac = |endpoint: Endpoint| [&[0x52, 0x54][..], &address(endpoint)].concat();
    let mut data = [mac(dst), mac(src), vec![0x08, 0x00]].concat();
    let udp_bytes = (UDP_BYTES + transport.len()) as u16;
    // Don't fragment, TTL 64, UDP.
    data.extend([0x45, 0]);
    data.extend((IPV4_BYTES as u16 + udp_bytes).to_be_bytes());
    data.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    data.extend(address(src));
    data.extend(address(dst));
    data.extend(0xC000u16.to_be_bytes());
    data.extend(ROCE_PORT.to_be_bytes());
    data.extend(udp_bytes.to_be_bytes());
    data.extend([0; 2]);
    data.extend(transport);
    let location = Location {
        encapsulation: Encapsulation::RoceV2Ipv4,
        start: ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES,
        network: ETHERNET_BYTES,
        ib_bytes: transport.len(),
        wire_bytes: data.len() as u32,
        src,
        dst,
        tunnels: TunnelKinds::NONE,
    };
    super::super::frame::seal_ipv4(&mut data, ETHERNET_BYTES);
    seal(&mut data, &location);
    data
}

fn seal(data: &mut [u8], location: &Location) {
    if let Some(sum) = icrc(location.encapsulation, data, location) {
        let end = location.end();
        data[end - ICRC_BYTES..end].copy_from_slice(&sum.to_le_bytes());
    }
}
