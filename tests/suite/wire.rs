//! Captures of packets with any content, built by hand: native InfiniBand after a classic pcap
//! header.
//!
//! ```text
//! LRH 8 | BTH 12 | RETH 16, DETH 8, AETH 4, immediate 4 by opcode | payload, pad | ICRC 4 | VCRC 2
//! ```
//! [`WireQueuePair`] splits messages into packets like an adapter, [`WireBuilder`] writes them.

use crate::tools::walk;
use ibscope::analysis::GroupBy;
use ibscope::analysis::matrix::{Selection, matrix};
use ibscope::model::profile::ConnectionRow;
use ibscope::model::{InspectedPacket, Profile, TrafficKind};
use ibscope::pipeline::{AnalysisOptions, analyze, inspect};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::{icrc, vcrc, verify_vcrc};
use ibscope_parsers::ib::{Bth, CrcVerdict, ICRC_BYTES, Lrh, Opcode, VCRC_BYTES};
use ibscope_parsers::link::{Encapsulation, LinkContent, Location, TunnelKinds, locate};
use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};
use ibscope_samples::hard::Recording;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

/// The largest path MTU, as on most fabrics.
pub(crate) const MTU_BYTES: usize = 4096;
/// Default time of the first packet, and time between two packets.
const START_NS: i64 = 1_700_000_000_000_000_000;
const STEP_NS: i64 = 1000;

/// Opcodes of First, Middle, Last and Only packets (InfiniBand Architecture, table of opcodes;
/// service RC).
const SEND: [u8; 4] = [0x00, 0x01, 0x02, 0x04];
const SEND_IMMEDIATE: [u8; 4] = [0x00, 0x01, 0x03, 0x05];
const WRITE: [u8; 4] = [0x06, 0x07, 0x08, 0x0A];
const WRITE_IMMEDIATE: [u8; 4] = [0x06, 0x07, 0x09, 0x0B];
const READ_RESPONSE: [u8; 4] = [0x0D, 0x0E, 0x0F, 0x10];
const READ_REQUEST: u8 = 0x0C;
const ACKNOWLEDGE: u8 = 0x11;
/// Congestion notification.
const CONGESTION: u8 = 0x81;
/// UD SEND Only.
const DATAGRAM: u8 = 0x64;
/// AETH syndrome: ACK, without credits.
const SYNDROME_ACK: u32 = 0x1F;

/// A capture under construction, and its file: packets are written to disk one by one.
pub(crate) struct WireBuilder {
    out: BufWriter<File>,
    path: PathBuf,
    time_ns: i64,
    packets: u64,
    // Deletes the file.
    _folder: tempfile::TempDir,
}

impl WireBuilder {
    /// An empty capture: nanoseconds, link type 247.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("wire.pcap");
        let mut out = BufWriter::new(File::create(&path).expect("capture"));
        // Version 2.4, no time zone, no limit of length.
        for word in [0xA1B2_3C4D, 0x0004_0002, 0, 0, 0xFFFF, 247u32] {
            out.write_all(&word.to_le_bytes()).expect("written");
        }
        Self { out, path, time_ns: START_NS, packets: 0, _folder: folder }
    }

    /// Sets the time of the next packet; later packets follow at intervals of a microsecond.
    pub(crate) fn at(&mut self, time_ns: i64) -> &mut Self {
        self.time_ns = time_ns;
        self
    }

    /// Number of packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// The capture so far. It is deleted with `self`.
    pub(crate) fn file(&mut self) -> PathBuf {
        self.out.flush().expect("written");
        self.path.clone()
    }

    /// Writes one packet with valid lengths and checksums.
    fn packet(&mut self, src: u16, dst: u16, bth: &Bth, extension: &[u8], payload: &[u8]) {
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let ib_bytes = Lrh::LEN + Bth::LEN + extension.len() + payload.len() + pad + ICRC_BYTES;
        let lrh = Lrh {
            vl: 0,
            lver: 0,
            sl: 0,
            lnh: Lrh::LNH_LOCAL,
            dlid: Lid(dst),
            pkt_len: (ib_bytes / 4) as u16,
            slid: Lid(src),
        };
        let bth = Bth { pad_count: pad as u8, ..*bth };
        let mut bytes = [&lrh.to_bytes()[..], &bth.to_bytes(), extension, payload].concat();
        bytes.resize(ib_bytes, 0);
        let location = Location {
            encapsulation: Encapsulation::Native,
            start: 0,
            network: 0,
            ib_bytes,
            wire_bytes: (ib_bytes + VCRC_BYTES) as u32,
            src: Endpoint::from_lid(Lid(src)),
            dst: Endpoint::from_lid(Lid(dst)),
            tunnels: TunnelKinds::NONE,
        };
        let sum = icrc(Encapsulation::Native, &bytes, &location).expect("a whole packet");
        bytes[ib_bytes - ICRC_BYTES..].copy_from_slice(&sum.to_le_bytes());
        let sum = vcrc(&bytes);
        bytes.extend(sum.to_le_bytes());
        let seconds = self.time_ns.div_euclid(1_000_000_000) as u32;
        let nanoseconds = self.time_ns.rem_euclid(1_000_000_000) as u32;
        for word in [seconds, nanoseconds, bytes.len() as u32, bytes.len() as u32] {
            self.out.write_all(&word.to_le_bytes()).expect("written");
        }
        self.out.write_all(&bytes).expect("written");
        self.time_ns += STEP_NS;
        self.packets += 1;
    }
}

/// One direction of a connected queue pair, or a queue pair for datagrams, in the sender's state.
#[derive(Clone, Debug)]
pub(crate) struct WireQueuePair {
    /// LID of the sender.
    pub(crate) src: u16,
    /// LID of the receiver.
    pub(crate) dst: u16,
    /// The receiver's queue pair.
    pub(crate) dest_qp: u32,
    /// PSN of the next request.
    pub(crate) psn: u32,
    /// Path MTU.
    pub(crate) mtu_bytes: usize,
    /// PSN of the last READ request.
    read_psn: u32,
    /// Completed requests: the MSN in the receiver's responses.
    completed: u32,
}

impl WireQueuePair {
    /// A queue whose first PSN is 0.
    pub(crate) fn new(src: u16, dst: u16, dest_qp: u32) -> Self {
        Self { src, dst, dest_qp, psn: 0, mtu_bytes: MTU_BYTES, read_psn: 0, completed: 0 }
    }

    /// The requester of an acknowledgement: the last request has this PSN, and so many are
    /// complete.
    pub(crate) fn completed_up_to(psn: u32, completed: u32) -> Self {
        Self { psn: psn + 1, completed, ..Self::new(0, 0, 0) }
    }

    /// Both directions between two queue pairs, given as LID and number.
    pub(crate) fn pair(one: (u16, u32), other: (u16, u32)) -> (Self, Self) {
        (Self::new(one.0, other.0, other.1), Self::new(other.0, one.0, one.1))
    }

    fn bth(&self, opcode: u8, psn: u32, ack_req: bool) -> Bth {
        Bth {
            opcode: Opcode(opcode),
            solicited: false,
            mig_req: true,
            pad_count: 0,
            tver: 0,
            pkey: 0xFFFF,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(self.dest_qp),
            ack_req,
            psn: Psn::new(psn),
        }
    }

    fn advance(&mut self, packets: u32) {
        self.psn = (self.psn + packets) & 0xFF_FFFF;
    }

    /// Writes a message in packets of the path MTU, with `first` in its first packet and `last` in
    /// its last.
    fn message(&mut self, wire: &mut WireBuilder, opcodes: [u8; 4], (first, last): (&[u8], &[u8]), payload: &[u8]) {
        let packets = payload.len().div_ceil(self.mtu_bytes).max(1);
        for index in 0..packets {
            let start = index * self.mtu_bytes;
            let part = &payload[start..payload.len().min(start + self.mtu_bytes)];
            let (begins, ends) = (index == 0, index + 1 == packets);
            let [first_opcode, middle, last_opcode, only] = opcodes;
            let opcode = match (begins, ends) {
                (true, true) => only,
                (true, false) => first_opcode,
                (false, false) => middle,
                (false, true) => last_opcode,
            };
            let extension = [if begins { first } else { &[] }, if ends { last } else { &[] }].concat();
            wire.packet(self.src, self.dst, &self.bth(opcode, self.psn, ends), &extension, part);
            self.advance(1);
        }
        self.completed += 1;
    }

    /// SEND.
    pub(crate) fn send(&mut self, wire: &mut WireBuilder, payload: &[u8]) {
        self.message(wire, SEND, (&[], &[]), payload);
    }

    /// SEND with Immediate; the word is in network byte order.
    pub(crate) fn send_immediate(&mut self, wire: &mut WireBuilder, payload: &[u8], immediate: u32) {
        self.message(wire, SEND_IMMEDIATE, (&[], &immediate.to_be_bytes()), payload);
    }

    /// RDMA WRITE to an address.
    pub(crate) fn write(&mut self, wire: &mut WireBuilder, va: u64, r_key: u32, payload: &[u8]) {
        self.message(wire, WRITE, (&reth(va, r_key, payload.len()), &[]), payload);
    }

    /// RDMA WRITE with Immediate.
    pub(crate) fn write_immediate(
        &mut self,
        wire: &mut WireBuilder,
        va: u64,
        r_key: u32,
        payload: &[u8],
        immediate: u32,
    ) {
        let reth = reth(va, r_key, payload.len());
        self.message(wire, WRITE_IMMEDIATE, (&reth, &immediate.to_be_bytes()), payload);
    }

    /// RDMA READ request: takes as many PSNs as its response has packets.
    pub(crate) fn read(&mut self, wire: &mut WireBuilder, va: u64, r_key: u32, length_bytes: usize) {
        self.read_psn = self.psn;
        wire.packet(self.src, self.dst, &self.bth(READ_REQUEST, self.psn, true), &reth(va, r_key, length_bytes), &[]);
        self.advance(length_bytes.div_ceil(self.mtu_bytes).max(1) as u32);
        self.completed += 1;
    }

    /// The response to the last READ request of the opposite direction.
    pub(crate) fn read_response(&mut self, wire: &mut WireBuilder, request: &Self, data: &[u8]) {
        let packets = data.len().div_ceil(self.mtu_bytes).max(1);
        let aeth = (SYNDROME_ACK << 24 | request.completed & 0xFF_FFFF).to_be_bytes();
        for index in 0..packets {
            let start = index * self.mtu_bytes;
            let part = &data[start..data.len().min(start + self.mtu_bytes)];
            let [first, middle, last, only] = READ_RESPONSE;
            let (opcode, aeth) = match (index == 0, index + 1 == packets) {
                (true, true) => (only, &aeth[..]),
                (true, false) => (first, &aeth[..]),
                (false, false) => (middle, &[][..]),
                (false, true) => (last, &aeth[..]),
            };
            let psn = (request.read_psn + index as u32) & 0xFF_FFFF;
            wire.packet(self.src, self.dst, &self.bth(opcode, psn, false), aeth, part);
        }
    }

    /// Acknowledges all requests of the opposite direction.
    pub(crate) fn ack(&mut self, wire: &mut WireBuilder, request: &Self) {
        let psn = request.psn.wrapping_sub(1) & 0xFF_FFFF;
        let aeth = (SYNDROME_ACK << 24 | request.completed & 0xFF_FFFF).to_be_bytes();
        wire.packet(self.src, self.dst, &self.bth(ACKNOWLEDGE, psn, false), &aeth, &[]);
    }

    /// A SEND of one packet with congestion bits in its BTH.
    pub(crate) fn send_marked(&mut self, wire: &mut WireBuilder, payload: &[u8], (fecn, becn): (bool, bool)) {
        let bth = Bth { fecn, becn, ..self.bth(SEND[3], self.psn, true) };
        wire.packet(self.src, self.dst, &bth, &[], payload);
        self.advance(1);
        self.completed += 1;
    }

    /// An ACK packet with any syndrome: a NAK or RNR NAK has the PSN of the missing or rejected
    /// request.
    pub(crate) fn refuse(&self, wire: &mut WireBuilder, psn: u32, syndrome: u8) {
        let aeth = [syndrome, 0, 0, 0];
        wire.packet(self.src, self.dst, &self.bth(ACKNOWLEDGE, psn, false), &aeth, &[]);
    }

    /// A congestion notification: 16 reserved bytes after the BTH.
    pub(crate) fn notify(&self, wire: &mut WireBuilder) {
        let bth = Bth { becn: true, ..self.bth(CONGESTION, 0, false) };
        wire.packet(self.src, self.dst, &bth, &[0; 16], &[]);
    }

    /// A datagram: one packet, for any path MTU.
    pub(crate) fn datagram(&mut self, wire: &mut WireBuilder, q_key: u32, src_qp: u32, payload: &[u8]) {
        let deth = [q_key.to_be_bytes(), src_qp.to_be_bytes()].concat();
        wire.packet(self.src, self.dst, &self.bth(DATAGRAM, self.psn, false), &deth, payload);
        self.advance(1);
    }
}

fn reth(va: u64, r_key: u32, length_bytes: usize) -> Vec<u8> {
    [&va.to_be_bytes()[..], &r_key.to_be_bytes(), &(length_bytes as u32).to_be_bytes()].concat()
}

/// The profile of captures, with default options.
pub(crate) fn profile(paths: &[PathBuf]) -> Profile {
    analyze(paths, &AnalysisOptions::default(), &|_| {}).unwrap_or_else(|error| panic!("{paths:?}: {error}"))
}

/// The profile of a recording, which is written to a capture file.
pub(crate) fn profile_of(recording: &Recording) -> Profile {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("capture.pcap");
    recording.write(&path).expect("written");
    profile(&[path])
}

/// The connections that carry data.
pub(crate) fn data_connections(profile: &Profile) -> impl Iterator<Item = &ConnectionRow> {
    profile.connections.iter().filter(|row| row.kind == TrafficKind::Data)
}

/// Messages and MPI bytes by sender and receiver.
pub(crate) type EndpointCells = BTreeMap<(String, String), (u64, u64)>;

/// MPI messages and bytes by rank pair, without pairs that have no messages.
pub(crate) fn by_rank(profile: &Profile, selection: Selection) -> EndpointCells {
    let matrix = matrix(profile, GroupBy::Rank, selection);
    let rows = matrix.rows().filter(|(_, _, cell)| cell.messages > 0);
    rows.map(|(src, dst, cell)| ((src.to_string(), dst.to_string()), (cell.messages, cell.mpi_bytes.unwrap_or(0))))
        .collect()
}

/// Every packet of the captures, in order of time.
pub(crate) fn inspected(paths: &[PathBuf]) -> Vec<InspectedPacket> {
    let mut packets = Vec::new();
    let mut keep = |packet: &InspectedPacket, _: Option<i64>| {
        packets.push(*packet);
        true
    };
    inspect(paths, &AnalysisOptions::default(), &mut keep).unwrap_or_else(|error| panic!("{paths:?}: {error}"));
    packets
}

/// Opcode, PSN and payload bytes of each packet.
fn shapes(packets: &[InspectedPacket]) -> Vec<(u8, u32, usize)> {
    packets.iter().map(|packet| (packet.opcode.0, packet.psn.value(), packet.payload_bytes)).collect()
}

#[test]
fn written_packets_are_read_back() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    there.psn = 0xFF_FFFE;
    there.mtu_bytes = 1024;
    back.mtu_bytes = 1024;
    there.send(&mut wire, &[1; 3000]);
    back.ack(&mut wire, &there);
    there.send(&mut wire, &[]);
    there.send_immediate(&mut wire, &[2; 1025], 7);
    there.send_immediate(&mut wire, &[2; 5], 7);
    there.write(&mut wire, 0x1000, 9, &[3; 2049]);
    there.write(&mut wire, 0x1000, 9, &[3; 1024]);
    there.write_immediate(&mut wire, 0x1000, 9, &[4; 1030], 8);
    there.write_immediate(&mut wire, 0x1000, 9, &[], 8);
    there.read(&mut wire, 0x2000, 9, 2500);
    back.read_response(&mut wire, &there, &[5; 2500]);
    there.read(&mut wire, 0x2000, 9, 1);
    back.read_response(&mut wire, &there, &[5]);
    back.datagram(&mut wire, 0x1234_5678, 0x33, &[6; 2001]);
    let packets = inspected(&[wire.file()]);
    let expected = [
        // 3000 = 1024 + 1024 + 952; PSNs have 24 bits.
        (0x00, 0xFF_FFFE, 1024),
        (0x01, 0xFF_FFFF, 1024),
        (0x02, 0, 952),
        (0x11, 0, 0),
        (0x04, 1, 0),
        (0x00, 2, 1024),
        (0x03, 3, 1),
        (0x05, 4, 5),
        (0x06, 5, 1024),
        (0x07, 6, 1024),
        (0x08, 7, 1),
        (0x0A, 8, 1024),
        (0x06, 9, 1024),
        (0x09, 10, 6),
        (0x0B, 11, 0),
        // The READ takes the PSNs 12 to 14.
        (0x0C, 12, 0),
        (0x0D, 12, 1024),
        (0x0E, 13, 1024),
        (0x0F, 14, 452),
        (0x0C, 15, 0),
        (0x10, 15, 1),
        (0x64, 0, 2001),
    ];
    assert_eq!(shapes(&packets), expected);
    assert_eq!(packets.len() as u64, wire.packets());
    for (index, packet) in packets.iter().enumerate() {
        assert_eq!(packet.icrc, CrcVerdict::Ok, "packet {index}");
        assert_eq!(packet.time_ns, Some(START_NS + index as i64 * STEP_NS));
        let answers = matches!(packet.opcode.0, 0x0D..=0x11 | 0x64);
        let (src, dst, dest_qp) = if answers { (4, 3, 0x11) } else { (3, 4, 0x22) };
        let ends = (packet.src.lid(), packet.dst.lid(), packet.dest_qp.value());
        assert_eq!(ends, (Some(Lid(src)), Some(Lid(dst)), dest_qp), "packet {index}");
    }
    let file = std::fs::read(wire.file()).expect("capture");
    for record in walk(&file) {
        let located = locate(LinkType::INFINIBAND, record.data(&file), record.original_bytes);
        let Ok(LinkContent::Infiniband(location)) = located else { panic!("{located:?}") };
        assert_eq!(verify_vcrc(record.data(&file), &location), CrcVerdict::Ok);
    }
    // LRH 8, BTH 12, 952 of payload, ICRC 4, VCRC 2; DETH 8 and 3 of pad around 2001.
    assert_eq!(packets[2].wire_bytes, 8 + 12 + 952 + 4 + 2);
    assert_eq!(packets[21].wire_bytes, 8 + 12 + 8 + 2001 + 3 + 4 + 2);
}

#[test]
fn messages_and_bytes_are_counted_once_each() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    for _ in 0..10 {
        there.send(&mut wire, &[0x5A; 5000]);
        back.ack(&mut wire, &there);
        there.read(&mut wire, 0x2000, 9, 9000);
        back.read_response(&mut wire, &there, &[5; 9000]);
    }
    wire.at(START_NS + 1_000_000_000);
    there.write(&mut wire, 0x1000, 9, &[3; 100]);
    let path = wire.file();
    let profile = profile(&[path]);
    let matrix = matrix(&profile, GroupBy::Endpoint, Selection::All);
    let cells: Vec<_> = matrix.rows().map(|(_, _, cell)| (cell.messages, cell.payload_bytes, cell.packets)).collect();
    // There: 10 SENDs of 2 packets, 10 READ requests, 1 WRITE. Back: 10 ACKs, 10 responses of 3
    // packets.
    assert_eq!(cells, [(21, 10 * 5000 + 100, 31), (0, 10 * 9000, 40)]);
    let paired: Vec<_> = profile.connections.iter().map(|row| row.src_qp.map(Qpn::value)).collect();
    assert_eq!(paired, [Some(0x11), Some(0x22)]);
    assert_eq!(profile.coverage.icrc_ok, wire.packets());
    let last = profile.connections[0].last_time_ns;
    assert_eq!(last, START_NS + 1_000_000_000);
    assert_eq!(by_rank(&profile, Selection::All), EndpointCells::new());
}
