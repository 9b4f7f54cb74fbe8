//! NCCL connections as its sources make them (`net_ib.cc`, `net_ib/p2p.cc`), in any combination of
//! devices and queue pairs.
//!
//! A connection of `n` queue pairs uses the devices of each side in turn. Receive number i is
//! posted through the receiver's device i mod devices. Its message uses all queue pairs, or, in
//! turn, as many as the side with more devices has.

use super::{RankCells, by_node, compare, noise};
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::model::ConnectionClass;
use std::collections::VecDeque;

/// Addresses of the elements and lengths in a sender's memory, and of the receiver's buffers.
const RING: u64 = 0x7F76_9445_BA80;
const LENGTHS: u64 = 0x7F76_9443_7000;
const BUFFERS: u64 = 0x7F25_E99B_D000;
/// Receives that are posted ahead of the data.
const AHEAD: u64 = 8;
const BUFFER_BYTES: u64 = 1 << 20;
/// Memory keys of a connection's buffers and of its ring, by device.
const BUFFER_KEY: u32 = 0x1700;
const RING_KEY: u32 = 0x2900;

/// Behavior of a release.
#[derive(Clone, Copy)]
struct ModelRelease {
    /// Bytes of an element; offsets of keys, number of elements, tag and index.
    element: (usize, usize, usize, usize, usize),
    /// The size has 8 bytes instead of 4.
    wide_size: bool,
    /// Minimum of a share, and its granularity.
    share: (u64, u64),
    writes_lengths: bool,
    immediate: ModelImmediate,
}

#[derive(Clone, Copy, PartialEq)]
enum ModelImmediate {
    Little,
    Big,
    Number,
}

const NCCL_2_12: ModelRelease = ModelRelease {
    element: (32, 12, 16, 20, 24),
    wide_size: false,
    share: (8, 1),
    writes_lengths: false,
    immediate: ModelImmediate::Little,
};
const NCCL_2_18: ModelRelease = ModelRelease { share: (0, 128), ..NCCL_2_12 };
const NCCL_2_20: ModelRelease = ModelRelease { element: (64, 12, 20, 24, 32), writes_lengths: true, ..NCCL_2_18 };
const NCCL_2_27: ModelRelease = ModelRelease { element: (64, 16, 32, 36, 40), wide_size: true, ..NCCL_2_20 };
const NCCL_2_29: ModelRelease = ModelRelease { immediate: ModelImmediate::Big, ..NCCL_2_27 };
const NCCL_2_30: ModelRelease = ModelRelease { element: (64, 16, 48, 52, 56), ..NCCL_2_29 };
const BY_NUMBER: ModelRelease = ModelRelease { immediate: ModelImmediate::Number, ..NCCL_2_30 };

/// How connections are made.
#[derive(Clone, Copy)]
struct Setting {
    release: ModelRelease,
    /// Number of devices of the sender and of the receiver.
    devices: (usize, usize),
    /// `NCCL_IB_QPS_PER_CONNECTION`
    queue_pairs: usize,
    /// `NCCL_IB_SPLIT_DATA_ON_QPS`, or a release that always splits.
    splits: bool,
    /// Longer messages are written first, and completed by an empty WRITE with immediate data
    /// (adaptive routing).
    threshold: u64,
}

const PLAIN: Setting =
    Setting { release: NCCL_2_27, devices: (1, 1), queue_pairs: 1, splits: false, threshold: u64::MAX };

/// One WRITE.
struct Post {
    receive: u64,
    address: u64,
    key: u32,
    bytes: Vec<u8>,
    immediate: Option<u32>,
}

/// One connection, from the sending to the receiving process.
struct ModelConnection {
    setting: Setting,
    /// Rank of the sender.
    rank: u32,
    /// By queue pair: the direction of the data, and the opposite one.
    queues: Vec<(WireQueuePair, WireQueuePair)>,
    /// WRITEs that are still to come, by queue pair.
    posted: Vec<VecDeque<Post>>,
    /// Lengths of the messages of each receive.
    messages: Vec<Vec<u64>>,
    /// Offsets of addresses and keys.
    memory: (u64, u32),
    receives: u64,
    sent: u64,
}

/// The port of a process of the model: node from 0, rail.
fn lid(node: u16, rail: usize) -> u16 {
    16 * (rail as u16 + 1) + node + 1
}

impl ModelConnection {
    fn new(
        setting: Setting,
        (src, dst): (u16, u16),
        first_qp: u32,
        messages: Vec<Vec<u64>>,
        memory: (u64, u32),
    ) -> Self {
        let (senders, receivers) = setting.devices;
        let count = setting.queue_pairs * senders.max(receivers);
        let queue = |number: usize| {
            let qpn = first_qp + number as u32;
            WireQueuePair::pair((lid(src, number % senders), qpn), (lid(dst, number % receivers), qpn + 0x40))
        };
        Self {
            setting,
            rank: src.into(),
            queues: (0..count).map(queue).collect(),
            posted: (0..count).map(|_| VecDeque::new()).collect(),
            messages,
            memory,
            receives: 0,
            sent: 0,
        }
    }

    fn buffer(&self, receive: u64, at: usize) -> u64 {
        let several = self.messages[receive as usize].len() > 1;
        let room = if several { BUFFER_BYTES / 8 } else { BUFFER_BYTES };
        BUFFERS + self.memory.0 + receive % AHEAD * BUFFER_BYTES + at as u64 * room
    }

    /// Posts the next receive.
    fn post_receive(&mut self, wire: &mut WireBuilder) {
        let (release, receive) = (self.setting.release, self.receives);
        let (bytes, keys, count, tag, index) = release.element;
        let elements = self.messages[receive as usize].len();
        let mut payload = Vec::new();
        for at in 0..elements {
            let mut element = vec![0; bytes];
            let mut put = |at: usize, value: &[u8]| element[at..at + value.len()].copy_from_slice(value);
            put(0, &self.buffer(receive, at).to_le_bytes());
            let room = if elements > 1 { BUFFER_BYTES / 8 } else { BUFFER_BYTES };
            put(8, &room.to_le_bytes()[..if release.wide_size { 8 } else { 4 }]);
            for device in 0..self.setting.devices.1 {
                put(keys + 4 * device, &self.key(device).to_le_bytes());
            }
            put(count, &(elements as u32).to_le_bytes());
            put(tag, &self.rank.to_le_bytes());
            put(index, &(receive + 1).to_le_bytes());
            payload.extend(element);
        }
        let address = RING + self.memory.0 + receive % 256 * 8 * bytes as u64;
        let (there, back) = &mut self.queues[receive as usize % self.setting.devices.1];
        back.write(wire, address, RING_KEY, &payload);
        there.ack(wire, back);
        self.receives += 1;
    }

    fn key(&self, device: usize) -> u32 {
        BUFFER_KEY + self.memory.1 + 0x100 * device as u32
    }

    /// Posts the WRITEs of the next message.
    fn post_message(&mut self) {
        let (release, receive) = (self.setting.release, self.sent);
        let sizes = self.messages[receive as usize].clone();
        let (senders, receivers) = self.setting.devices;
        let count = if self.setting.splits { self.queues.len() } else { senders.max(receivers) };
        let immediate = match release.immediate {
            ModelImmediate::Number => receive as u32,
            _ if sizes.len() > 1 && !release.writes_lengths => 0x0700_0000,
            ModelImmediate::Little if sizes.len() > 1 => 0,
            ModelImmediate::Little => (sizes[0] as u32).swap_bytes(),
            ModelImmediate::Big => sizes[0] as u32,
        };
        let mut offsets = vec![0; sizes.len()];
        for number in 0..count {
            let path = (receive as usize * count + number) % self.queues.len();
            let key = self.key(path % receivers);
            for (at, size) in sizes.iter().enumerate() {
                let (smallest, multiple) = release.share;
                let share = size.div_ceil(count as u64).next_multiple_of(multiple).max(smallest);
                let bytes = if count > 1 { share.min(size - offsets[at]) } else { *size };
                let post = Post {
                    receive,
                    address: self.buffer(receive, at) + offsets[at],
                    key,
                    bytes: vec![0xA5; bytes as usize],
                    immediate: (sizes.len() == 1 && sizes[0] <= self.setting.threshold).then_some(immediate),
                };
                self.posted[path].push_back(post);
                offsets[at] += bytes;
            }
            if sizes.len() > 1 || sizes[0] > self.setting.threshold {
                let lengths: Vec<u8> = sizes.iter().flat_map(|size| (*size as u32).to_le_bytes()).collect();
                let several = sizes.len() > 1 && release.writes_lengths;
                self.posted[path].push_back(Post {
                    receive,
                    address: if several { LENGTHS + self.memory.0 + receive % 256 * 32 } else { 0 },
                    key: if several { RING_KEY } else { 0 },
                    bytes: if several { lengths } else { Vec::new() },
                    immediate: Some(immediate),
                });
            }
        }
        self.sent += 1;
    }

    fn write(&mut self, wire: &mut WireBuilder, path: usize) {
        let Some(Post { address, key, bytes, immediate, .. }) = self.posted[path].pop_front() else { return };
        let (there, back) = &mut self.queues[path];
        match immediate {
            Some(word) => there.write_immediate(wire, address, key, &bytes, word),
            None => there.write(wire, address, key, &bytes),
        }
        back.ack(wire, there);
    }

    /// Number of messages whose data arrived; their buffers are reused.
    fn completed(&self) -> u64 {
        self.posted.iter().filter_map(|posts| Some(posts.front()?.receive)).min().unwrap_or(self.sent)
    }

    /// Does one thing or nothing; `choice` selects it.
    fn step(&mut self, wire: &mut WireBuilder, choice: u64) {
        let paths = self.queues.len() as u64;
        match choice % (paths + 2) {
            0 if self.receives < self.messages.len() as u64 && self.receives < self.completed() + AHEAD => {
                self.post_receive(wire);
            }
            1 if self.sent < self.receives => self.post_message(),
            0 | 1 => {}
            path => self.write(wire, path as usize - 2),
        }
    }

    fn is_done(&self) -> bool {
        self.completed() == self.messages.len() as u64
    }
}

/// Lengths of individual messages, some empty, and of grouped ones on request.
fn messages(count: usize, with_groups: bool) -> Vec<Vec<u64>> {
    const SIZES: [u64; 9] = [8, 1000, 4096, 8193, 0, 65536, 129, 30_000, 100];
    let single = |number: usize| vec![SIZES[number % SIZES.len()] + (number / SIZES.len()) as u64];
    let grouped = |number: usize| vec![100 + number as u64, 2000, 30_000, 0];
    (0..count).map(|number| if with_groups && number % 7 == 6 { grouped(number) } else { single(number) }).collect()
}

/// Runs the connections at the same time; returns the capture and the sent messages.
fn run(mut connections: Vec<ModelConnection>, seed: u64) -> (WireBuilder, RankCells) {
    let mut wire = WireBuilder::new();
    let mut truth = RankCells::new();
    for step in 0.. {
        let open: Vec<usize> = (0..connections.len()).filter(|at| !connections[*at].is_done()).collect();
        let Some(at) = open.get(noise(seed, step) as usize % open.len().max(1)) else { break };
        connections[*at].step(&mut wire, noise(seed + 1, step));
    }
    for connection in connections {
        let (there, _) = &connection.queues[0];
        let pair = (u32::from(there.src % 16), u32::from(there.dst % 16));
        let cell: &mut (u64, u64) = truth.entry(pair).or_default();
        for size in connection.messages.iter().flatten() {
            *cell = (cell.0 + 1, cell.1 + size);
        }
    }
    (wire, truth)
}

/// Two processes that send to each other, with different memory keys and addresses.
fn both_ways(setting: Setting, with_groups: bool) -> Vec<ModelConnection> {
    let connection = |(number, pair): (usize, (u16, u16))| {
        let memory = (number as u64 * 0x1_0000_0000, number as u32 * 0x10);
        ModelConnection::new(setting, pair, 0x100 * (number as u32 + 1), messages(60, with_groups), memory)
    };
    [(0, 1), (1, 0)].into_iter().enumerate().map(connection).collect()
}

fn check(case: &str, connections: Vec<ModelConnection>, seed: u64) {
    let (mut wire, truth) = run(connections, seed);
    let profile = profile(&[wire.file()]);
    let found = by_node(&profile, super::node);
    assert!(compare(&found, &truth, case), "{case}: {found:?}, truth {truth:?}, {:?}", profile.notes);
    assert_eq!(profile.coverage.mpi_incomplete, 0, "{case}");
}

#[test]
fn messages_over_several_queue_pairs_of_one_port() {
    for (name, release) in [
        ("2.12", NCCL_2_12),
        ("2.18", NCCL_2_18),
        ("2.20", NCCL_2_20),
        ("2.27", NCCL_2_27),
        ("2.29", NCCL_2_29),
        ("2.30", NCCL_2_30),
        ("by number", BY_NUMBER),
    ] {
        for (queue_pairs, splits) in [(1, false), (2, true), (2, false), (4, true), (4, false), (3, true)] {
            for threshold in [u64::MAX, 8192] {
                let setting = Setting { release, queue_pairs, splits, threshold, ..PLAIN };
                let case = format!("{name}, {queue_pairs} queue pairs, splits: {splits}, threshold {threshold}");
                check(&case, both_ways(setting, true), queue_pairs as u64);
            }
        }
    }
}

#[test]
fn messages_over_several_ports() {
    for (name, release) in [("2.20", NCCL_2_20), ("2.27", NCCL_2_27), ("2.30", NCCL_2_30)] {
        for devices in [(2, 2), (1, 2), (2, 1)] {
            for (queue_pairs, splits) in [(1, false), (2, true), (2, false), (4, false)] {
                for threshold in [u64::MAX, 8192] {
                    let setting = Setting { release, devices, queue_pairs, splits, threshold };
                    let case = format!(
                        "{name}, {devices:?} devices, {queue_pairs} queue pairs, splits: {splits}, threshold {threshold}"
                    );
                    check(&case, both_ways(setting, true), queue_pairs as u64);
                }
            }
        }
    }
}

/// A ring of nodes with several rails. `memory` returns the offsets of addresses and keys, by node
/// of the receiver and number of the connection.
fn ring(
    setting: Setting,
    nodes: u16,
    connections: usize,
    memory: impl Fn(u16, usize) -> (u64, u32),
) -> Vec<ModelConnection> {
    let mut all = Vec::new();
    for src in 0..nodes {
        let dst = (src + 1) % nodes;
        for number in 0..connections {
            let first_qp = 0x100 * (u32::from(src) * connections as u32 + number as u32 + 1);
            all.push(ModelConnection::new(setting, (src, dst), first_qp, messages(60, true), memory(dst, number)));
        }
    }
    all
}

const RAILS: Setting = Setting { release: NCCL_2_30, devices: (2, 2), ..PLAIN };

/// Several connections between the same ports, each with its own memory, like those of several
/// processes.
#[test]
fn several_connections_between_two_ports() {
    for setting in
        [PLAIN, Setting { queue_pairs: 2, splits: true, ..PLAIN }, RAILS, Setting { queue_pairs: 2, ..RAILS }]
    {
        // GPUs have the same addresses in all processes of a node; their keys differ.
        check("the same addresses", ring(setting, 2, 4, |_, number| (0, number as u32 * 0x10)), 3);
        // Channels of one process.
        check("the same region", ring(setting, 2, 4, |_, number| (number as u64 * 0x100_0000, 0)), 4);
    }
}

/// Nodes with identical memory: the rails of a connection are indistinguishable from those of
/// others, and the result is the same.
#[test]
fn nodes_with_the_same_addresses_and_keys() {
    for nodes in [2, 3, 4] {
        for queue_pairs in [1, 2] {
            let setting = Setting { queue_pairs, ..RAILS };
            check("twins", ring(setting, nodes, 1, |_, _| (0, 0)), nodes.into());
        }
    }
}

/// Numbers instead of lengths, over two ports: each port shows only a part of each message, so none
/// can be counted, and all are missing.
#[test]
fn messages_over_several_ports_that_state_no_length() {
    let setting = Setting { release: BY_NUMBER, ..RAILS };
    let (mut wire, truth) = run(both_ways(setting, false), 1);
    let profile = profile(&[wire.file()]);
    assert_eq!(by_node(&profile, super::node), RankCells::new());
    assert_eq!(profile.coverage.mpi_incomplete, truth.values().map(|cell| cell.0).sum::<u64>());
}

/// A tree of three nodes, like that of an `AllReduce` of one chunk: each connection posts two
/// receives and sends one message.
#[test]
fn connections_of_one_message() {
    for (name, release) in [("2.18", NCCL_2_18), ("2.20", NCCL_2_20), ("2.27", NCCL_2_27), ("2.30", NCCL_2_30)] {
        for bytes in [8u64, 1000, 65536] {
            let case = format!("{name}, {bytes} bytes");
            let mut wire = WireBuilder::new();
            let mut truth = RankCells::new();
            for (number, (src, dst)) in [(1, 0), (2, 0), (0, 1), (0, 2)].into_iter().enumerate() {
                let memory = (number as u64 * 0x1_0000_0000, number as u32 * 0x10);
                let setting = Setting { release, ..PLAIN };
                let first_qp = 0x100 * (number as u32 + 1);
                let mut connection = ModelConnection::new(setting, (src, dst), first_qp, vec![vec![bytes]; 2], memory);
                connection.post_receive(&mut wire);
                connection.post_receive(&mut wire);
                connection.post_message();
                connection.write(&mut wire, 0);
                truth.insert((u32::from(src) + 1, u32::from(dst) + 1), (1, bytes));
            }
            let profile = profile(&[wire.file()]);
            assert_eq!(by_node(&profile, super::node), truth, "{case}: {:?}", profile.notes);
            let classes: Vec<ConnectionClass> = profile.connections.iter().map(|row| row.class).collect();
            assert_eq!(classes, [ConnectionClass::Nccl; 8], "{case}");
        }
    }
}

/// One message between two nodes, like a broadcast: the receiver has no rank, because nobody sends
/// to it.
#[test]
fn one_message_one_way() {
    let mut wire = WireBuilder::new();
    let mut connection = ModelConnection::new(PLAIN, (3, 1), 0x100, vec![vec![4096]; 2], (0, 0));
    connection.post_receive(&mut wire);
    connection.post_receive(&mut wire);
    connection.post_message();
    connection.write(&mut wire, 0);
    let profile = profile(&[wire.file()]);
    assert_eq!(by_node(&profile, super::node), RankCells::from([((4, 2), (1, 4096))]));
    let ranks: Vec<_> = profile.ranks.iter().map(|row| (row.rank, row.endpoint.as_str())).collect();
    assert_eq!(ranks, [(3, "20")]);
}

/// Elements whose data do not match: another key, an address outside of the buffers, or a length
/// that is not that of the WRITE. Nothing may count as NCCL.
#[test]
fn data_that_fill_no_element_are_no_messages() {
    type Change = fn(&mut Post);
    let changes: [(&str, Change); 3] = [
        ("key", |post| post.key += 1),
        ("address", |post| post.address += 64 * BUFFER_BYTES),
        ("length", |post| post.immediate = Some(0x0123_4567)),
    ];
    for (case, change) in changes {
        let mut wire = WireBuilder::new();
        for (number, pair) in [(0, 1), (1, 0)].into_iter().enumerate() {
            let memory = (number as u64 * 0x1_0000_0000, number as u32 * 0x10);
            let first_qp = 0x100 * (number as u32 + 1);
            let mut connection = ModelConnection::new(PLAIN, pair, first_qp, vec![vec![4096]; 2], memory);
            connection.post_receive(&mut wire);
            connection.post_receive(&mut wire);
            connection.post_message();
            connection.posted[0].iter_mut().for_each(change);
            connection.write(&mut wire, 0);
        }
        let profile = profile(&[wire.file()]);
        assert_eq!(by_node(&profile, super::node), RankCells::new(), "{case}");
        let of_nccl = profile.connections.iter().filter(|row| row.class == ConnectionClass::Nccl);
        assert_eq!(of_nccl.count(), 0, "{case}");
    }
}

/// Captures of the model that start late or have gaps.
#[test]
fn captures_with_gaps() {
    let folder = tempfile::tempdir().expect("folder");
    let settings = [
        Setting { queue_pairs: 2, splits: true, ..PLAIN },
        Setting { release: NCCL_2_18, queue_pairs: 4, ..PLAIN },
        Setting { release: NCCL_2_12, queue_pairs: 3, splits: true, threshold: 8192, ..PLAIN },
        Setting { release: BY_NUMBER, queue_pairs: 2, splits: true, ..PLAIN },
        RAILS,
        Setting { queue_pairs: 2, threshold: 8192, ..RAILS },
        Setting { devices: (1, 2), ..RAILS },
    ];
    for (number, setting) in settings.into_iter().enumerate() {
        let (mut wire, truth) = run(ring(setting, 2, 3, |dst, number| (u64::from(dst) << 32, number as u32 * 0x10)), 9);
        let whole = wire.file();
        let check = |case: &str, keeps: &dyn Fn(usize, usize) -> bool| {
            let case = format!("setting {number}, {case}");
            let copy = super::with_records(folder.path(), &whole, keeps);
            let profile = profile(&[copy]);
            let found = by_node(&profile, super::node);
            let is_whole = compare(&found, &truth, &case);
            (found.values().map(|cell| cell.0).sum::<u64>(), is_whole || profile.coverage.mpi_incomplete > 0, case)
        };
        for part in 1..8 {
            check(&format!("from {part}/8 on"), &|record, records| record * 8 >= part * records);
            check(&format!("until {part}/8"), &|record, records| record * 8 < part * records);
        }
        for (one_in, seed) in [(2, 1), (3, 2), (5, 3), (10, 4), (50, 5)] {
            check(&format!("1 in {one_in}"), &|record, _| noise(seed, record).is_multiple_of(one_in));
            check(&format!("without 1 in {one_in}"), &|record, _| !noise(seed, record).is_multiple_of(one_in));
        }
    }
}
