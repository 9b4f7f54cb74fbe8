//! Faults of connections, and packets that a capture missed, compared with the record of the runs,
//! a simple computation on raw frames, and packets built by hand.

use crate::runs::{self, RecordedRun, decompressed, is_roce};
use crate::tools::{HEADER_BYTES, ibscope, in_parallel, random, result, sample, walk};
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::analysis::health::health_series;
use ibscope::model::profile::RetransmissionSums;
use ibscope::model::{BinCongestion, Health, Profile, TrafficKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Path MTU of all recorded runs.
const MTU_BYTES: u32 = 4096;
const READ_REQUEST: u8 = 0x0C;
const ACKNOWLEDGE: u8 = 0x11;

/// The sums of a profile.
pub(crate) fn total(profile: &Profile) -> (Health, RetransmissionSums) {
    let mut health = Health::default();
    let mut retransmissions = RetransmissionSums::default();
    profile.health.iter().for_each(|row| health += row.health);
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    data.for_each(|connection| retransmissions += connection.retransmissions);
    (health, retransmissions)
}

fn health(paths: &[PathBuf]) -> Health {
    total(&profile(paths)).0
}

/// A RoCE packet of a reliable connection in a file, parsed by hand: Ethernet 14, IPv4 20, UDP 8,
/// BTH 12.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HealthPacket {
    record: usize,
    time_ns: i64,
    src: [u8; 4],
    dst: [u8; 4],
    dest_qp: u32,
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
    /// Number of PSNs that the packet takes.
    span: u32,
    pub(crate) syndrome: u8,
}

impl HealthPacket {
    fn is_request(&self) -> bool {
        matches!(self.opcode, 0x00..=0x0C | 0x13 | 0x14 | 0x16 | 0x17)
    }

    /// READ responses and the atomic acknowledgement.
    fn is_response(&self) -> bool {
        matches!(self.opcode, 0x0D..=0x10 | 0x12)
    }

    pub(crate) fn connection(&self) -> ([u8; 4], [u8; 4], u32) {
        (self.src, self.dst, self.dest_qp)
    }
}

/// The packets of reliable connections in a RoCE capture.
pub(crate) fn packets(file: &[u8]) -> Vec<HealthPacket> {
    let mut packets = Vec::new();
    for (record, raw) in walk(file).iter().enumerate() {
        let frame = raw.data(file);
        if !is_roce(frame) || frame[42] >> 5 != 0 {
            continue;
        }
        let bth = &frame[42..];
        let number = |at: usize| u32::from_be_bytes([0, bth[at], bth[at + 1], bth[at + 2]]);
        let span = match bth[0] {
            READ_REQUEST => u32::from_be_bytes(bth[24..28].try_into().expect("RETH")).div_ceil(MTU_BYTES).max(1),
            _ => 1,
        };
        packets.push(HealthPacket {
            record,
            time_ns: raw.time_ns,
            src: frame[26..30].try_into().expect("address"),
            dst: frame[30..34].try_into().expect("address"),
            dest_qp: number(5),
            opcode: bth[0],
            psn: number(9),
            span,
            syndrome: bth[12],
        });
    }
    packets
}

/// Steps from one PSN to another, forwards or backwards.
pub(crate) fn steps(from: u32, to: u32) -> i64 {
    i64::from((to.wrapping_sub(from) << 8).cast_signed() >> 8)
}

/// A simple computation of the go-back-N episodes in a capture at one port: their number, the
/// retransmitted requests, and the time they cost.
fn episodes(packets: &[HealthPacket]) -> (u64, u64, i64) {
    let mut by_connection: BTreeMap<_, Vec<HealthPacket>> = BTreeMap::new();
    for packet in packets.iter().filter(|packet| packet.is_request()) {
        by_connection.entry(packet.connection()).or_default().push(*packet);
    }
    let (mut count, mut retransmitted, mut cost_ns) = (0, 0, 0);
    for sent in by_connection.values() {
        let covers = |packet: &HealthPacket, psn: u32| (0..i64::from(packet.span)).contains(&steps(packet.psn, psn));
        // Whether a packet is not above all packets before it, and whether it takes a PSN that was
        // taken before.
        let steps_back =
            |at: usize| sent[..at].iter().any(|before| steps(sent[at].psn, before.psn) + i64::from(before.span) > 0);
        let is_retransmission = |at: usize| sent[..at].iter().any(|before| covers(before, sent[at].psn));
        let mut at = 0;
        while at < sent.len() {
            if !steps_back(at) {
                at += 1;
                continue;
            }
            let begin = at;
            at += 1;
            while at < sent.len() && steps_back(at) && steps(sent[at - 1].psn, sent[at].psn) > 0 {
                at += 1;
            }
            let again = (begin..at).filter(|&at| is_retransmission(at)).count() as u64;
            if again > 0 {
                count += 1;
                retransmitted += again;
                let psn = sent[begin].psn;
                let first = sent[..begin].iter().find(|before| covers(before, psn));
                let later = || {
                    sent[..begin]
                        .iter()
                        .filter(|before| steps(psn, before.psn) > 0)
                        .min_by_key(|before| steps(psn, before.psn))
                };
                cost_ns += sent[begin].time_ns - first.or_else(later).expect("a first transmission").time_ns;
            }
        }
    }
    (count, retransmitted, cost_ns)
}

/// Every set of captures of a run that shows all of it, with a name.
fn ways(run: &RecordedRun) -> Vec<(&'static str, Vec<PathBuf>)> {
    let mut ways = vec![("sink", vec![run.sink()]), ("every node", run.every_node())];
    if run.nodes == 2 {
        ways.extend([("node 1", vec![run.node(1)]), ("node 2", vec![run.node(2)])]);
    }
    ways
}

#[test]
fn health_matches_the_recorded_runs_at_every_observation_point() {
    in_parallel(&runs::all(), |_, run: &RecordedRun| {
        // From the record of the runs, counted independently.
        let (requests, restarted, responses, acks) = match run.name.as_str() {
            "ompi-rc-loss1-ring2" => (47, 16, Some(565), Some(3)),
            "perf-send-lat" => (8, 0, None, None),
            "perf-write-lat" => (3, 0, None, None),
            "perf-read-lat" | "ompi-rc-halo-2x2" => (1, 0, None, None),
            _ => (0, 0, Some(0), Some(0)),
        };
        let slow = (run.nodes == 2).then(|| packets(&decompressed(&run.node(1))));
        let mut first = None;
        for (place, paths) in ways(run) {
            let case = format!("{}, {place}", run.name);
            let (health, retransmissions) = total(&profile(&paths));
            assert_eq!(retransmissions.request_packets, requests + restarted, "{case}");
            assert_eq!(health.episode_packets, requests + restarted, "{case}");
            assert_eq!(
                retransmissions.response_packets,
                responses.unwrap_or(retransmissions.response_packets),
                "{case}"
            );
            assert_eq!(
                retransmissions.acknowledge_packets,
                acks.unwrap_or(retransmissions.acknowledge_packets),
                "{case}"
            );
            assert_eq!((health.lost(), health.lost_at_least, health.lost_at_most), (0, 0, 0), "{case}");
            assert_eq!(
                (health.unobserved_psns, health.missing_in_other_inputs, health.single_observation_packets),
                (0, 0, 0),
                "{case}"
            );
            if let Some(packets) = &slow {
                let (count, again, cost_ns) = episodes(packets);
                assert_eq!(
                    (health.episodes, health.episodes_timed, health.episode_packets),
                    (count, count, again),
                    "{case}"
                );
                // The ports observe each packet at other times (at most 0.1 ms apart on average),
                // the sink in microseconds.
                let tolerance_ns = if place == "node 1" { 0 } else { count as i64 * 100_000 };
                assert!(
                    (health.episode_ns.cast_signed() - cost_ns).abs() <= tolerance_ns,
                    "{case}: {health:?}, {cost_ns} ns"
                );
                let nak = |packet: &&HealthPacket| packet.opcode == ACKNOWLEDGE && packet.syndrome >> 5 == 3;
                let naks: Vec<_> = packets.iter().filter(nak).collect();
                assert_eq!(health.naks(), naks.len() as u64, "{case}");
                assert_eq!(
                    health.nak_sequence,
                    naks.iter().filter(|nak| nak.syndrome == 0x60).count() as u64,
                    "{case}"
                );
                let refused = packets.iter().filter(|packet| packet.opcode == ACKNOWLEDGE && packet.syndrome >> 5 == 1);
                assert_eq!(health.rnr_naks, refused.count() as u64, "{case}");
                let acks = packets.iter().filter(|packet| packet.opcode == ACKNOWLEDGE).count() as u64;
                assert_eq!(health.acknowledge_packets, acks, "{case}");
            }
            if run.name == "ompi-rc-loss1-ring2" {
                assert_eq!(health.nak_sequence, 9, "{case}");
            }
            // Only the times depend on the observation point, and on whether both copies or one
            // were captured.
            let timeless = Health { episode_ns: 0, longest_episode_ns: 0, ..health };
            assert_eq!(*first.get_or_insert(timeless), timeless, "{case}");
        }
    });
}

/// A capture without some of its records.
pub(crate) fn without(file: &[u8], deleted: &BTreeSet<usize>) -> Vec<u8> {
    let mut kept = file[..HEADER_BYTES].to_vec();
    let records = walk(file);
    let stay = records.iter().enumerate().filter(|(record, _)| !deleted.contains(record));
    stay.for_each(|(_, raw)| kept.extend(&file[raw.place.clone()]));
    kept
}

/// A random twentieth of the RoCE packets; management stays.
fn a_twentieth(file: &[u8], seed: u64) -> BTreeSet<usize> {
    let mut random = random(seed);
    let records = walk(file);
    let data = records.iter().enumerate().filter(|(_, raw)| {
        let frame = raw.data(file);
        is_roce(frame) && !matches!(frame[47..50], [0, 0, 0 | 1])
    });
    data.map(|(record, _)| record).filter(|_| random(20) == 0).collect()
}

pub(crate) fn written(folder: &Path, file: &[u8]) -> PathBuf {
    let path = folder.join("cut.pcap");
    std::fs::write(&path, file).expect("written");
    path
}

/// Runs to delete packets from: READs of many packets together with SENDs, WRITEs, two processes
/// per node, READs only.
const DELETED_FROM: [&str; 5] =
    ["ompi-rc-ring2", "ompi-openib-put-ring2", "ompi-rc-mixed-2x2", "perf-read-lat", "perf-atomic-lat"];

#[test]
fn losses_are_exact_if_another_input_has_the_packets() {
    in_parallel(&DELETED_FROM, |index, name| {
        let run = runs::named(name);
        for node in [1, 2] {
            let file = decompressed(&run.node(node));
            let deleted = a_twentieth(&file, 100 * index as u64 + u64::from(node));
            assert!(deleted.len() >= 15, "{name}: {}", deleted.len());
            let folder = tempfile::tempdir().expect("folder");
            let cut = written(folder.path(), &without(&file, &deleted));
            let other = run.node(3 - node);
            for paths in [vec![cut.clone(), other.clone()], vec![other, cut.clone()]] {
                let found = profile(&paths);
                let (health, retransmissions) = total(&found);
                let missing: Vec<u64> = found.inputs.iter().map(|input| input.coverage.missing_packets).collect();
                let expected =
                    paths.iter().map(|path| if *path == cut { deleted.len() as u64 } else { 0 }).collect::<Vec<_>>();
                assert_eq!(missing, expected, "{name}, node {node}");
                assert_eq!(health.missing_in_other_inputs, deleted.len() as u64, "{name}, node {node}");
                // The complete input counts.
                assert_eq!(health.lost() + health.unobserved_psns, 0, "{name}, node {node}");
                assert_eq!(retransmissions, total(&profile(&run.every_node())).1, "{name}, node {node}");
            }
        }
    });
}

#[test]
fn deleted_packets_are_capture_loss_and_not_retransmissions() {
    in_parallel(&DELETED_FROM, |index, name| {
        let run = runs::named(name);
        for seed in 0..4 {
            let file = decompressed(&run.node(1));
            let deleted = a_twentieth(&file, 1000 * index as u64 + seed);
            let (mut all, mut certain) = (0, 0);
            let packets = packets(&file);
            let gone = |packet: &HealthPacket| deleted.contains(&packet.record);
            let kept = |packet: &&HealthPacket| !gone(packet);
            for packet in packets.iter().filter(|packet| gone(packet)) {
                // Packets that the network lost as well were retransmitted, and are in the file
                // twice.
                let again = |other: &&HealthPacket| {
                    (other.connection(), other.opcode, other.psn) == (packet.connection(), packet.opcode, packet.psn)
                };
                if packets.iter().filter(again).any(|other| kept(&other)) {
                    continue;
                }
                if !(packet.is_request() || packet.is_response()) {
                    continue;
                }
                all += 1;
                // A deleted request counts between others of its connection; a deleted response if
                // its request was kept. Both need responses to later PSNs.
                let own = |other: &&HealthPacket| {
                    other.connection() == packet.connection() && other.is_request() && kept(other)
                };
                let reverse = |other: &&HealthPacket| (other.src, other.dst) == (packet.dst, packet.src) && kept(other);
                let (bounded, answered) = if packet.is_request() {
                    let before = packets.iter().filter(own).any(|other| steps(other.psn, packet.psn) > 0);
                    let after = packets.iter().filter(own).any(|other| steps(packet.psn, other.psn) > 0);
                    let answers = packets.iter().filter(reverse).filter(|other| !other.is_request());
                    (before && after, answers.filter(|other| steps(packet.psn, other.psn) > 0).count() > 0)
                } else {
                    let asks = |other: &&HealthPacket| {
                        reverse(other)
                            && other.is_request()
                            && (0..i64::from(other.span)).contains(&steps(other.psn, packet.psn))
                    };
                    let later = |other: &&HealthPacket| {
                        other.connection() == packet.connection()
                            && !other.is_request()
                            && kept(other)
                            && steps(packet.psn, other.psn) > 0
                    };
                    (packets.iter().any(|other| asks(&other)), packets.iter().any(|other| later(&other)))
                };
                certain += u64::from(bounded && answered);
            }
            let folder = tempfile::tempdir().expect("folder");
            let (health, retransmissions) = total(&profile(&[written(folder.path(), &without(&file, &deleted))]));
            let case = format!("{name}, {seed}: {all} deleted, {certain} between others; {health:?}");
            assert!(all >= 8, "{case}");
            assert!(health.lost_at_least <= all && certain <= health.lost_at_most, "{case}");
            assert!(health.lost_at_least <= health.lost() && health.lost() <= health.lost_at_most, "{case}");
            // The estimate is close to the truth: no invented losses, and all provable ones.
            // Responses whose READ was deleted too are not certain.
            assert!(health.lost() <= all && certain <= health.lost() + certain / 20, "{case}");
            let before = total(&profile(&[run.node(1)])).1;
            assert!(retransmissions.request_packets <= before.request_packets, "{case}");
            assert!(retransmissions.response_packets <= before.response_packets, "{case}");
            assert!(health.episode_packets <= before.request_packets, "{case}");
            assert_eq!(health.missing_in_other_inputs + health.single_observation_packets, 0, "{case}");
        }
    });
}

#[test]
fn a_sink_with_missing_copies_has_no_loss() {
    let run = runs::named("ompi-rc-ring2");
    let file = decompressed(&run.sink());
    let mut random = random(7);
    let whole = health(&[run.sink()]);
    // At most one of each pair of copies: at even records, the first copy of its packet.
    let mut seen = BTreeSet::new();
    let mut deleted = BTreeSet::new();
    for (record, raw) in walk(&file).iter().enumerate() {
        // LRH and BTH after ERF 16; management stays.
        let data = raw.data(&file);
        let is_management = matches!(data[29..32], [0, 0, 0 | 1]);
        if seen.insert(data[16..36].to_vec()) && !is_management && random(20) == 0 {
            deleted.insert(record);
        }
    }
    assert!(deleted.len() > 20);
    let folder = tempfile::tempdir().expect("folder");
    let found = health(&[written(folder.path(), &without(&file, &deleted))]);
    assert_eq!(found.single_observation_packets, deleted.len() as u64);
    assert_eq!(Health { single_observation_packets: 0, ..found }, Health { late_packets: found.late_packets, ..whole });
}

#[test]
fn naks_and_congestion_count_in_their_direction() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    for _ in 0..20 {
        there.send(&mut wire, b"request");
        back.send(&mut wire, b"request");
        there.ack(&mut wire, &back);
        back.ack(&mut wire, &there);
    }
    // InfiniBand Architecture, tables 45 and 46: NAK codes 0 to 4, 5 is reserved; RNR timers of
    // code 1, 12 and 0 are 0.01, 0.64 and 655.36 ms.
    for (count, syndrome) in (1..).zip(0x60..=0x65) {
        for _ in 0..count {
            back.refuse(&mut wire, there.psn, syndrome);
        }
    }
    back.refuse(&mut wire, there.psn, 0x20 | 0x01);
    back.refuse(&mut wire, there.psn, 0x20 | 0x0C);
    there.refuse(&mut wire, back.psn, 0x20);
    for _ in 0..7 {
        back.notify(&mut wire);
    }
    for (fecn, becn) in [(true, false), (true, true), (true, false), (false, false)] {
        there.send_marked(&mut wire, b"request", (fecn, becn));
    }
    let found = profile(&[wire.file()]);
    let of = |src: u16, service: u8| -> Health {
        let row = |row: &ibscope::model::profile::HealthRow| {
            let connection = &found.connections[row.connection as usize];
            connection.src.to_string() == src.to_string() && connection.service == service
        };
        found.health.iter().find(row).expect("a row").health
    };
    let (forth, answers, notified) = (of(3, 0), of(4, 0), of(4, 4));
    let naks = [
        answers.nak_sequence,
        answers.nak_invalid_request,
        answers.nak_remote_access,
        answers.nak_remote_operational,
        answers.nak_invalid_rd,
        answers.nak_reserved,
    ];
    assert_eq!(naks, [1, 2, 3, 4, 5, 6]);
    assert_eq!((answers.rnr_naks, answers.longest_rnr_timer_ns), (2, 640_000));
    assert_eq!((forth.naks(), forth.rnr_naks, forth.longest_rnr_timer_ns), (0, 1, 655_360_000));
    assert_eq!((forth.fecn_packets, forth.becn_packets, answers.fecn_packets), (3, 1, 0));
    assert_eq!((notified.cnp_packets, notified.becn_packets, found.health.len()), (7, 0, 3));
    assert_eq!((forth.request_packets, forth.acknowledge_packets), (24, 21));
    assert_eq!(total(&found).0.lost() + total(&found).0.unobserved_psns, 0);
    let table = result(&["health"], &[wire.file()]);
    for text in ["RNR NAKs", "receive buffers", "remote access error", "congestion notifications", "655.360 ms"] {
        assert!(table.contains(text), "{text}: {table}");
    }
}

#[test]
fn a_missing_read_request_is_one_packet() {
    let mut wire = WireBuilder::new();
    let mut lost = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    there.mtu_bytes = 1024;
    back.mtu_bytes = 1024;
    let mut exchange = |wire: &mut WireBuilder, request: bool, lost: &mut WireBuilder| {
        there.send(wire, b"request");
        back.ack(wire, &there);
        there.read(if request { wire } else { lost }, 0x1000, 9, 8 * 1024);
        back.read_response(wire, &there, &[5; 8 * 1024]);
    };
    // 8 PSNs each. The first comes before any packet shows the path MTU.
    for number in 0..300 {
        exchange(&mut wire, number % 3 != 1, &mut lost);
    }
    let found = health(&[wire.file()]);
    // One READ in three; the very last request is captured.
    assert_eq!((found.lost_requests, found.lost_responses, found.unobserved_psns), (lost.packets(), 0, 0));
    assert_eq!((found.lost_at_least, found.lost_at_most), (100, 100));
}

#[test]
fn ecn_marks_pauses_and_damage_of_ethernet_frames_are_counted() {
    let run = runs::named("ompi-rc-ring2");
    let mut file = decompressed(&run.node(1));
    let records = walk(&file);
    let roce: Vec<usize> = (0..records.len())
        .filter(|&record| {
            let frame = records[record].data(&file);
            is_roce(frame) && frame[42] >> 5 == 0
        })
        .collect();
    // The ICRC covers the payload, and not the TOS. 02 is "capable", 03 "experienced".
    for (index, &record) in roce.iter().enumerate() {
        let frame = records[record].place.start + 16;
        match index % 10 {
            1 => file[frame + 15] |= 3,
            2 => file[frame + 15] = file[frame + 15] & !3 | 2,
            3 => file[records[record].place.end - 5] ^= 0x40,
            _ => {}
        }
    }
    let first = &file[HEADER_BYTES..HEADER_BYTES + 8].to_vec();
    for (sender, opcode, count) in [(1u8, 0x0101u16, 3), (2, 0x0101, 1), (2, 0x0001, 2)] {
        let mut frame = [0x01, 0x80, 0xC2, 0, 0, 0x01, 0x02, 0, 0, 0, 0, sender, 0x88, 0x08].to_vec();
        frame.extend(opcode.to_be_bytes());
        frame.resize(60, 0);
        for _ in 0..count {
            file.extend(first);
            file.extend([60u32, 60].iter().flat_map(|length| length.to_le_bytes()));
            file.extend(&frame);
        }
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), &file);
    let found = profile(&[path]);
    let health = total(&found).0;
    let every_tenth = |from: usize| roce.iter().skip(from).step_by(10).count() as u64;
    assert_eq!((health.ecn_ce_packets, health.icrc_bad_packets), (every_tenth(1), every_tenth(3)));
    assert_eq!(found.coverage.icrc_bad, every_tenth(3));
    let pauses: Vec<(&str, u64)> =
        found.coverage.pause_frames.iter().map(|(sender, count)| (sender.as_str(), *count)).collect();
    assert_eq!(pauses, [("02:00:00:00:00:01 PFC", 3), ("02:00:00:00:00:02 PFC", 1), ("02:00:00:00:00:02 pause", 2)]);
    assert_eq!(found.coverage.other_frames["Ethernet flow control"], 6);
}

/// A burst of ECN marks in the frames of a lossy run, and the NAKs of that run: each is in the bin of
/// its frame.
#[test]
fn marks_and_naks_are_in_the_bins_of_their_frames() {
    let run = runs::named("ompi-rc-loss1-ring2");
    let mut file = decompressed(&run.node(1));
    let sent = packets(&file);
    let mut expected: BTreeMap<i64, BinCongestion> = BTreeMap::new();
    let bin_ns = ibscope::pipeline::DEFAULT_BIN_NS;
    let bin_of = |time_ns: i64| time_ns.div_euclid(bin_ns) * bin_ns;
    let records = walk(&file);
    for packet in &sent[sent.len() / 3..sent.len() / 2] {
        file[records[packet.record].place.start + 16 + 15] |= 3;
        expected.entry(bin_of(packet.time_ns)).or_default().ecn_ce_packets += 1;
    }
    // InfiniBand Architecture, table 45: bits 6 and 5 of the syndrome are 11 in a NAK.
    for packet in sent.iter().filter(|packet| packet.opcode == ACKNOWLEDGE && packet.syndrome >> 5 == 3) {
        expected.entry(bin_of(packet.time_ns)).or_default().naks += 1;
    }
    let all = |of: fn(&BinCongestion) -> u64| expected.values().map(of).sum::<u64>();
    assert!(all(|own| own.naks) > 0 && all(|own| own.ecn_ce_packets) > 500 && expected.len() > 2);
    let folder = tempfile::tempdir().expect("folder");
    let path = written(folder.path(), &file);
    let found = health_series(&profile(std::slice::from_ref(&path))).expect("a time series");
    assert_eq!(found.bin_ns, bin_ns);
    let bins = found.of_all_senders().into_iter().map(|(time_ns, sums)| (time_ns, sums.congestion));
    assert_eq!(bins.filter(|(_, own)| own.packets() > 0).collect::<BTreeMap<_, _>>(), expected);
    // The same numbers in csv, and columns for them in the table.
    let csv = result(&["health", "--by", "time", "--format", "csv"], &[&path]);
    let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
    let column = header.iter().position(|name| *name == "ecn_ce_packets").expect("column");
    let marks =
        csv.lines().skip(1).map(|line| line.split(',').nth(column).expect("cell").parse::<u64>().expect("count"));
    assert_eq!(marks.sum::<u64>(), all(|own| own.ecn_ce_packets));
    let table = result(&["health", "--by", "time"], &[&path]);
    assert!(table.contains("ECN CE") && table.contains("NAKs"), "{table}");
}

#[test]
fn a_profile_shows_the_health_of_its_captures() {
    let run = runs::named("ompi-rc-loss1-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("loss.ibp");
    result(&["analyze", "-o", place.to_str().expect("path")], &[run.node(1)]);
    for format in ["table", "csv", "json"] {
        let arguments = ["health", "--format", format];
        let captures = result(&arguments, &[run.node(1)]);
        assert_eq!(result(&arguments, &[&place]), captures, "{format}");
        assert!(captures.contains("episodes"), "{captures}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&result(&["health", "--format", "json"], &[&place])).expect("JSON");
    let csv = result(&["health", "--format", "csv"], &[&place]);
    let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
    // The totals are the sums of the columns.
    for name in ["retransmitted_request_packets", "retransmitted_response_packets", "nak_sequence", "episodes"] {
        let column = header.iter().position(|column| *column == name).expect("column");
        let sum: u64 = csv
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(column).expect("cell").parse::<u64>().expect("number"))
            .sum();
        assert_eq!(json["total"][name].as_u64(), Some(sum), "{name}");
        assert!(sum > 0, "{name}");
    }
    let refused = crate::tools::ibscope(["health", "--from", "1", place.to_str().expect("path")]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("a profile has health for its whole time only"), "{}", refused.stderr);
}

/// The highest rate with mirror copies, on a link of twice this rate and of this rate.
#[test]
fn the_mirrored_rate_is_compared_with_the_link() {
    let whole = ibscope(
        ["rates", "--format", "json", "--window", "100ms"]
            .map(Path::new)
            .into_iter()
            .chain([&*sample("ucx-rc-ring2-loss1")]),
    );
    assert_eq!(whole.code, 0, "{}", whole.stderr);
    let rates: serde_json::Value = serde_json::from_str(&whole.stdout).expect("JSON");
    let peaks = rates["total"]["peaks"].as_array().expect("peaks");
    let wire = peaks.iter().find(|row| row["value"] == "wire_bytes").expect("a row");
    let summary =
        ibscope([Path::new("summary"), Path::new("--format"), Path::new("json"), &sample("ucx-rc-ring2-loss1")]);
    let summary: serde_json::Value = serde_json::from_str(&summary.stdout).expect("JSON");
    let [copies, packets] = ["mirror_copies", "packets"].map(|name| summary["facts"][name].as_f64().expect("a count"));
    assert!(copies > 0.0);
    let expected = wire["peak_per_s"].as_f64().expect("a rate") * (1.0 + copies / packets);
    for (gbit_per_s, is_full) in [(expected * 8e-9 * 2.0, false), (expected * 8e-9, true)] {
        let speed = format!("{gbit_per_s:.9}Gb/s");
        let run = |format: &str| {
            let words = ["health", "--link", &speed, "--format", format].map(Path::new);
            let ran = ibscope(words.into_iter().chain([&*sample("ucx-rc-ring2-loss1")]));
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            ran.stdout
        };
        let document: serde_json::Value = serde_json::from_str(&run("json")).expect("JSON");
        let percent = document["mirror"]["link_percent"].as_f64().expect("a share");
        assert!((percent - if is_full { 100.0 } else { 50.0 }).abs() < 0.1, "{percent}");
        assert_eq!(document["mirror"]["is_full"], is_full);
        assert_eq!(run("table").contains("mirror fewer ports"), is_full);
    }
}
