//! The verdict on a capture and its bounds, compared with the packets that the test deleted from
//! recorded runs, and with those that it lost between two ports.

use crate::health::{without, written};
use crate::runs::{self, decompressed, is_roce};
use crate::tools::{HEADER_BYTES, in_parallel, link_type, random, result, walk};
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::model::{Trust, TrustVerdict};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Link type of RoCE captures.
const ETHERNET: u16 = 1;

fn trust(paths: &[PathBuf]) -> Trust {
    profile(paths).trust
}

/// The InfiniBand packets of a capture: record number and bytes.
fn packets(file: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let is_ethernet = link_type(file) == ETHERNET;
    let records = walk(file);
    let data = records.iter().enumerate().map(|(record, raw)| (record, raw.data(file)));
    // The mirror copies of a packet differ in the ERF header, which has the time.
    let packet = |(record, data): (usize, &[u8])| {
        if is_ethernet { is_roce(data).then(|| (record, data.to_vec())) } else { Some((record, data[16..].to_vec())) }
    };
    data.filter_map(packet).collect()
}

/// How packets are deleted.
#[derive(Clone, Copy, Debug)]
enum Deletion {
    /// One packet.
    One,
    /// All copies of one packet.
    OneWithCopies,
    /// Packets at random, in percent.
    Random(usize),
    /// Packets at random with all copies, in percent.
    RandomWithCopies(usize),
    /// Consecutive records.
    Burst(usize),
}

const DELETIONS: [Deletion; 9] = [
    Deletion::One,
    Deletion::One,
    Deletion::OneWithCopies,
    Deletion::OneWithCopies,
    Deletion::Random(1),
    Deletion::Random(30),
    Deletion::RandomWithCopies(10),
    Deletion::Burst(5),
    Deletion::Burst(60),
];

/// The records to delete, and the number of packets whose records are all deleted.
fn deleted(packets: &[(usize, Vec<u8>)], deletion: Deletion, seed: u64) -> (BTreeSet<usize>, u64) {
    let mut random = random(seed);
    let mut records: BTreeMap<&[u8], BTreeSet<usize>> = BTreeMap::new();
    packets.iter().for_each(|(record, data)| _ = records.entry(data).or_default().insert(*record));
    let pick = random(packets.len());
    let gone: BTreeSet<usize> = match deletion {
        Deletion::One => BTreeSet::from([packets[pick].0]),
        Deletion::OneWithCopies => records[packets[pick].1.as_slice()].clone(),
        Deletion::Random(percent) => {
            packets.iter().map(|(record, _)| *record).filter(|_| random(100) < percent).collect()
        }
        Deletion::RandomWithCopies(percent) => {
            records.values().filter(|_| random(100) < percent).flatten().copied().collect()
        }
        Deletion::Burst(length) => packets.iter().skip(pick).take(length).map(|(record, _)| *record).collect(),
    };
    let lost = records.values().filter(|copies| copies.is_subset(&gone)).count() as u64;
    (gone, lost)
}

/// Checks a verdict against the number of deleted records and of packets without a record.
fn check(found: &Trust, (packets, records): (u64, u64), case: &str) {
    let lost = found.lost_by_capture_packets;
    assert!(lost.at_least <= records, "{case}: {records} records lost, {found:?}");
    let never = found.never_captured_packets;
    assert!(never.at_least <= packets, "{case}: {packets} lost, {found:?}");
    assert!(never.at_most.is_none_or(|most| packets <= most), "{case}: {packets} lost, {found:?}");
    assert!(lost.at_most.is_none_or(|most| records <= most), "{case}: {records} records lost, {found:?}");
    assert!(records == 0 || found.verdict != TrustVerdict::Complete, "{case}: {found:?}");
    assert_eq!(found.verdict == TrustVerdict::Incomplete, lost.at_least > 0 && found.verdict != TrustVerdict::Sampled);
}

/// Runs with SENDs, READs, WRITEs, atomics, connection management, retransmissions, real loss, two
/// processes per node, several rails.
const FIRST_SET: [&str; 10] = [
    "ompi-openib-ring2",
    "ompi-openib-put-ring2",
    "ompi-ofi-ring2",
    "ompi-rc-ring2",
    "ompi-rc-loss1-ring2",
    "ompi-rc-mixed-2x2",
    "perf-atomic-lat",
    "perf-cm-write-lat",
    "perf-read-lat",
    "ompi-ud-ring2",
];
/// NAKs in `ompi-rc-loss1-ring2` by an independent count, each of a request that did not arrive.
const LOSS1_NAKS: u64 = 9;
const SECOND_SET: [&str; 3] = ["nccl-ring-qps2split-2x1", "nfsrdma-dd-2", "ompi5-ucx-rc-rma-2x1"];

fn captures() -> Vec<PathBuf> {
    let first = FIRST_SET.iter().map(|name| runs::named(name));
    let runs = first.chain(SECOND_SET.iter().map(|name| runs::of_second_set(name)));
    runs.flat_map(|run| [run.node(1), run.sink()]).collect()
}

#[test]
fn deleted_packets_are_within_the_bounds() {
    in_parallel(&captures(), |index, path| {
        let file = decompressed(path);
        let packets = packets(&file);
        for (number, deletion) in DELETIONS.into_iter().enumerate() {
            let (gone, lost) = deleted(&packets, deletion, (index * 100 + number) as u64);
            let folder = tempfile::tempdir().expect("folder");
            let found = trust(&[written(folder.path(), &without(&file, &gone))]);
            let case = format!("{}, {deletion:?}, {number}", path.display());
            check(&found, (lost, gone.len() as u64), &case);
            let on_fabric = found.lost_on_fabric_packets.at_least;
            assert!(on_fabric <= if case.contains("loss1") { LOSS1_NAKS } else { 0 }, "{case}: {found:?}");
            // Of so many, some were acknowledged.
            if matches!(deletion, Deletion::RandomWithCopies(_)) && found.reliable_connections > 0 {
                assert!(found.lost_by_capture_packets.at_least > 0, "{case}: {found:?}");
            }
        }
    });
}

/// The losses of this run happened before the first of the two observation points.
#[test]
fn captures_that_hold_the_same_packets_show_no_loss_between_them() {
    let ports = runs::named("ompi-rc-loss1-ring2").every_node();
    let held = |path: &PathBuf| {
        let mut frames: Vec<Vec<u8>> = packets(&decompressed(path)).into_iter().map(|(_, frame)| frame).collect();
        frames.sort_unstable();
        frames
    };
    assert!(held(&ports[0]) == held(&ports[1]));
    let found = trust(&ports);
    assert_eq!(found.lost_on_fabric_packets.at_least, 0, "{found:?}");
}

/// Runs of reliable connections alone, without a retransmission.
const COMPLETE: [&str; 4] = ["ompi-openib-ring2", "ompi-openib-mixed-2x2", "perf-atomic-lat", "perf-cm-write-lat"];

#[test]
fn whole_captures_are_complete_or_unknown() {
    let first = runs::all();
    in_parallel(&first, |_, run| {
        let is_complete = COMPLETE.contains(&run.name.as_str());
        for (path, is_sink) in [(run.node(1), false), (run.sink(), true)] {
            let found = trust(std::slice::from_ref(&path));
            let case = format!("{}: {found:?}", path.display());
            assert_eq!(found.lost_by_capture_packets.at_least + found.lost_on_fabric_packets.at_least, 0, "{case}");
            assert!(!is_complete || found.verdict == TrustVerdict::Complete, "{case}");
            if found.verdict == TrustVerdict::Complete {
                assert_eq!(found.lost_by_capture_packets.at_most, Some(0), "{case}");
                // One port does not show the packets that were lost on the way to it.
                assert_eq!(found.lost_on_fabric_packets.at_most, is_sink.then_some(0), "{case}");
            }
        }
    });
}

/// Packets between two ports, some of which were lost between the ports.
struct LossyTraffic {
    file: Vec<u8>,
    lost: BTreeSet<usize>,
    /// Lost requests that the receiver reported with a NAK.
    reported_by_nak: u64,
}

/// LID of the first port.
const FIRST_LID: u16 = 3;
/// Time from port to port: less than the time between two packets.
const TRANSIT_NS: u32 = 300;

/// Sends requests one after the other. Some requests are lost, with and without a NAK, and some
/// ACKs.
fn lossy_traffic(seed: u64, losses_percent: usize) -> LossyTraffic {
    let mut random = random(seed);
    let mut wire = WireBuilder::new();
    let (mut there, back) = WireQueuePair::pair((FIRST_LID, 0x11), (4, 0x22));
    let (mut lost, mut reported_by_nak) = (BTreeSet::new(), 0);
    for _ in 0..300 {
        let psn = there.psn;
        let outcome = if random(100) < losses_percent { random(3) } else { 3 };
        if outcome < 2 {
            lost.insert(wire.packets() as usize);
        }
        there.send(&mut wire, b"request");
        if outcome == 0 {
            // The next request arrives, and the receiver's NAK names the one before.
            there.send(&mut wire, b"request");
            back.refuse(&mut wire, psn, 0x60);
            reported_by_nak += 1;
            there.psn = psn;
            there.send(&mut wire, b"request");
        }
        if outcome == 1 {
            there.psn = psn;
        }
        if outcome < 2 {
            there.send(&mut wire, b"request");
        }
        if outcome == 2 {
            lost.insert(wire.packets() as usize);
            ack(&back, &mut wire, &there);
            there.psn = psn;
            there.send(&mut wire, b"request");
        }
        ack(&back, &mut wire, &there);
    }
    let file = std::fs::read(wire.file()).expect("capture");
    LossyTraffic { file, lost, reported_by_nak }
}

fn ack(back: &WireQueuePair, wire: &mut WireBuilder, there: &WireQueuePair) {
    back.clone().ack(wire, there);
}

impl LossyTraffic {
    /// The records of one port: the packets that it sends, and those that reach it.
    fn at(&self, is_first: bool) -> Vec<u8> {
        self.records(|record, sends| match sends == is_first {
            true => &[0],
            false if self.lost.contains(&record) => &[],
            false => &[TRANSIT_NS],
        })
    }

    /// The records of a sink that observes both ports.
    fn at_both(&self) -> Vec<u8> {
        self.records(|record, _| if self.lost.contains(&record) { &[0] } else { &[0, TRANSIT_NS] })
    }

    /// The observed records, each as often as `delays_ns` returns entries for the number of the
    /// record and whether the first port sends it.
    fn records(&self, delays_ns: impl Fn(usize, bool) -> &'static [u32]) -> Vec<u8> {
        let mut file = self.file[..HEADER_BYTES].to_vec();
        for (record, raw) in walk(&self.file).iter().enumerate() {
            // LRH: source LID at 6.
            let data = raw.data(&self.file);
            let is_sent_by_first = u16::from_be_bytes([data[6], data[7]]) == FIRST_LID;
            for delay_ns in delays_ns(record, is_sent_by_first) {
                let mut bytes = self.file[raw.place.clone()].to_vec();
                let time_ns = u32::from_le_bytes(bytes[4..8].try_into().expect("nanoseconds")) + delay_ns;
                bytes[4..8].copy_from_slice(&time_ns.to_le_bytes());
                file.extend(bytes);
            }
        }
        file
    }
}

#[test]
fn packets_that_one_port_sent_and_the_other_asked_for_are_lost_on_the_fabric() {
    let seeds: Vec<u64> = (0..16).collect();
    in_parallel(&seeds, |_, seed| {
        let traffic = lossy_traffic(*seed, 5);
        let folder = tempfile::tempdir().expect("folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            path
        };
        let [first, second] = [file("1.pcap", &traffic.at(true)), file("2.pcap", &traffic.at(false))];
        let both = file("both.pcap", &traffic.at_both());
        let all = traffic.lost.len() as u64;
        assert!(traffic.reported_by_nak > 0 && traffic.reported_by_nak < all, "{seed}");
        for paths in [vec![both.clone()], vec![first.clone(), second.clone()], vec![second.clone(), first.clone()]] {
            let found = trust(&paths);
            let case = format!("{seed}, {paths:?}: {found:?}");
            let on_fabric = found.lost_on_fabric_packets;
            assert!((traffic.reported_by_nak..=all).contains(&on_fabric.at_least), "{case}");
            assert!(on_fabric.at_most.is_some_and(|most| all <= most), "{all}, {case}");
            assert_eq!(found.lost_by_capture_packets.at_least, 0, "{case}");
            assert_eq!(found.verdict, TrustVerdict::Unknown, "{case}");
        }
        // One port alone proves nothing about the fabric.
        assert_eq!(trust(std::slice::from_ref(&first)).lost_on_fabric_packets.at_least, 0, "{seed}");
        deletions_beside_loss(&traffic, folder.path(), *seed);
    });
}

/// The capture loses packets too: both bounds hold.
fn deletions_beside_loss(traffic: &LossyTraffic, folder: &Path, seed: u64) {
    let sink = traffic.at_both();
    let packets: Vec<(usize, Vec<u8>)> =
        walk(&sink).iter().enumerate().map(|(record, raw)| (record, raw.data(&sink).to_vec())).collect();
    for (number, deletion) in DELETIONS.into_iter().enumerate() {
        let (gone, lost) = deleted(&packets, deletion, seed * 100 + number as u64);
        let found = trust(&[written(folder, &without(&sink, &gone))]);
        let case = format!("{seed}, {deletion:?}");
        check(&found, (lost, gone.len() as u64), &case);
        let on_fabric = found.lost_on_fabric_packets.at_least;
        assert!(on_fabric <= traffic.lost.len() as u64, "{case}: {found:?}");
    }
}

#[test]
fn outputs_show_the_verdict() {
    let run = runs::named("perf-cm-write-lat");
    let json: serde_json::Value =
        serde_json::from_str(&result(&["health", "--format", "json"], &[run.sink()])).expect("JSON");
    let expected = serde_json::json!({
        "verdict": "complete", "lost_on_fabric_packets": [0, 0], "lost_by_capture_packets": [0, 0],
        "never_captured_packets": [0, 0],
        "reliable_connections": 4, "proven_connections": 4, "reasons": [],
    });
    assert_eq!(json["trust"], expected);
    let sentence = "complete: every packet of 4 reliable connections was captured";
    for command in ["health", "analyze"] {
        let shown = result(&[command], &[run.sink()]);
        assert!(shown.contains(sentence), "{command}: {shown}");
    }
}

/// 60 packets in a row are deleted at one of two ports: the verdict names the capture, their number
/// and their time, to the width of a bin and the time between the ports.
#[test]
fn the_verdict_names_the_input_that_lost_packets_and_when() {
    const BIN_NS: i64 = 10_000_000;
    for name in ["ompi-openib-mixed-2x2", "ompi-rc-ring2"] {
        let run = runs::named(name);
        let file = decompressed(&run.node(2));
        let records = walk(&file);
        let is_management = |data: &[u8]| matches!(data[47..50], [0, 0, 0 | 1]);
        let data = packets(&file).into_iter().filter(|(_, data)| !is_management(data));
        let gone: BTreeSet<usize> = data.map(|(record, _)| record).skip(200).take(60).collect();
        let times = gone.iter().map(|record| records[*record].time_ns);
        let (first, last) = (times.clone().min().expect("packets"), times.max().expect("packets"));
        let other = walk(&decompressed(&run.node(1)));
        let origin_ns = records[0].time_ns.min(other[0].time_ns);
        let folder = tempfile::tempdir().expect("folder");
        let cut = written(folder.path(), &without(&file, &gone));
        let found = trust(&[run.node(1), cut.clone()]);
        let [loss] = &found.input_losses[..] else { panic!("{name}: {found:?}") };
        assert_eq!((loss.input.as_str(), loss.missing_records), (cut.to_str().expect("UTF-8"), 60), "{name}");
        let times = loss.times.expect("times");
        let near = |found: i64, expected: i64| (found - (expected - origin_ns)).abs() <= 2 * BIN_NS;
        assert!(near(times.from_ns, first) && near(times.to_ns, last), "{name}: {loss:?}, {first} to {last}");
        assert!(times.to_ns - times.from_ns >= last - first - BIN_NS, "{name}: {loss:?}");
        assert_eq!((times.worst_from_ns, times.worst_records), (times.from_ns, 60), "{name}");
        for command in ["analyze", "health"] {
            let shown = result(&[command], &[run.node(1), cut.clone()]);
            assert!(shown.contains("misses 60 records that other records show, from "), "{command}: {shown}");
        }
        assert_eq!(trust(&run.every_node()).input_losses, [], "{name}");
    }
}
