//! Rates, sizes and what was sent again over time, in the recorded runs, against a slow look at their packets.

use crate::runs::{self, is_roce};
use crate::wire::profile;
use ibscope::model::profile::Repeated;
use ibscope::model::{Kind, Profile};
use std::collections::{BTreeMap, BTreeSet};

/// Path MTU of all recorded runs.
const MTU_BYTES: u32 = 4096;

/// A RoCE packet read by hand: Ethernet 14, IPv4 20, UDP 8, BTH 12, extension headers.
struct Packet {
    time_ns: i64,
    /// Sender, receiver, the receiver's queue pair, the sender's where it is a datagram.
    connection: ([u8; 4], [u8; 4], u32, u32),
    opcode: u8,
    psn: u32,
    wire_bytes: u64,
    frame: Vec<u8>,
}

impl Packet {
    /// Request 0, response 1, acknowledgement 2.
    fn turn(&self) -> u8 {
        match self.opcode & 0x1F {
            0x0D..=0x10 | 0x12 => 1,
            0x11 => 2,
            _ => 0,
        }
    }

    /// PSNs that it takes: of a READ request, those of its response, whose length stands in the RETH.
    fn span(&self) -> u32 {
        let length = || u32::from_be_bytes(self.frame[66..70].try_into().expect("four bytes"));
        if self.opcode == 0x0C { length().div_ceil(MTU_BYTES).max(1) } else { 1 }
    }
}

/// The packets between queue pairs of applications at the port of a node, in file order.
fn packets(run: &runs::Run, node: u8) -> Vec<Packet> {
    let records = runs::timed_records(&run.node(node)).into_iter().filter(|(_, frame)| is_roce(frame));
    let packet = |(time_ns, frame): (u64, Vec<u8>)| {
        let number = |at: usize| u32::from_be_bytes([0, frame[at], frame[at + 1], frame[at + 2]]);
        let opcode = frame[42];
        let datagram_qp = if opcode >> 5 == 3 { number(59) } else { 0 };
        let ends = [26, 30].map(|at| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("address"));
        Packet {
            time_ns: time_ns as i64,
            connection: (ends[0], ends[1], number(47), datagram_qp),
            opcode,
            psn: number(51),
            wire_bytes: frame.len() as u64,
            frame,
        }
    };
    records.map(packet).filter(|packet| packet.connection.2 > 1).collect()
}

/// The packets that were not sent before, and those that were.
fn apart(packets: Vec<Packet>) -> (Vec<Packet>, Vec<Packet>) {
    let mut seen = BTreeSet::new();
    packets.into_iter().partition(|packet| {
        let key = |psn| (packet.connection, packet.turn(), psn);
        let is_new = !seen.contains(&key(packet.psn));
        seen.extend((0..packet.span()).map(|more| key((packet.psn + more) & 0xFF_FFFF)));
        is_new
    })
}

fn data(profile: &Profile) -> impl Iterator<Item = (u32, &ibscope::model::profile::ConnectionRow)> {
    (0..).zip(&profile.connections).filter(|(_, row)| row.kind == Kind::Data)
}

#[test]
fn what_was_sent_again_is_in_the_bin_of_its_time() {
    for name in ["ompi-rc-loss1-ring2", "perf-read-lat", "ompi-rc-ring2"] {
        let run = runs::named(name);
        for node in [1, 2] {
            let found = profile(&[run.node(node)]);
            let mut bins: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for row in found.timeline.iter().filter(|row| row.repeated != Repeated::default()) {
                let bin = bins.entry(row.time_ns).or_default();
                *bin = (bin.0 + row.repeated.packets, bin.1 + row.repeated.wire_bytes);
            }
            let mut expected: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for packet in apart(packets(&run, node)).1 {
                let bin = expected.entry(packet.time_ns.div_euclid(found.bin_ns) * found.bin_ns).or_default();
                *bin = (bin.0 + 1, bin.1 + packet.wire_bytes);
            }
            assert_eq!(bins, expected, "{name}, node {node}");
            assert_eq!(bins.is_empty(), name == "ompi-rc-ring2", "{name}, node {node}");
        }
    }
}

#[test]
fn repeats_over_time_add_up_to_those_of_the_connection() {
    for run in runs::all() {
        for paths in [run.every_node(), vec![run.sink()]] {
            let found = profile(&paths);
            for (index, row) in data(&found) {
                let mut sum = Repeated::default();
                found.timeline.iter().filter(|bin| bin.connection == index).for_each(|bin| sum += bin.repeated);
                let repeats = row.repeats;
                let packets = repeats.request_packets + repeats.response_packets + repeats.acknowledge_packets;
                assert_eq!((sum.packets, sum.wire_bytes), (packets, repeats.wire_bytes), "{}: {paths:?}", run.name);
            }
        }
    }
}
