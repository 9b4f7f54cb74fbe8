//! Path fields (SL, VL, P_Key, DSCP, ECN, PCP, UDP source port) compared with tshark, and the
//! findings on traffic classes, order of packets and message sequence numbers.

use crate::health::total;
use crate::runs;
use crate::tools::{random, result};
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::model::{Health, Profile};
use ibscope::pipeline::{self, ProfileWriter};
use ibscope_parsers::PathFields;
use ibscope_samples::hard::{RecordedPacket, Recording};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FIELDS: [&str; 13] = [
    "ip.src",
    "ip.dst",
    "infiniband.lrh.slid",
    "infiniband.lrh.dlid",
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.lrh.sl",
    "infiniband.lrh.vl",
    "infiniband.bth.p_key",
    "ip.dsfield.dscp",
    "ip.dsfield.ecn",
    "vlan.priority",
    "udp.srcport",
];

/// Offsets in an Ethernet frame with IPv4 without options.
const TYPE_OF_SERVICE: usize = 15;
const UDP: usize = 34;
const BTH: usize = 42;
const ACKNOWLEDGE: u8 = 0x11;

/// Sender, receiver, service and queue pair, then the values of a packet.
type Combination = (String, String, u32, u32, [Option<u32>; 7]);

/// The packets by combination, as tshark reads them.
fn by_tshark(path: &Path) -> BTreeMap<Combination, u64> {
    let mut command = Command::new("tshark");
    let heuristics = ["-o", "infiniband.try_heuristic_first:FALSE", "--disable-protocol", "rpcordma"];
    command.arg("-n").args(heuristics).args(["-Y", "infiniband.bth", "-T", "fields", "-E", "occurrence=f", "-r"]);
    let output = command.arg(path).args(FIELDS.iter().flat_map(|field| ["-e", field])).output();
    let output = output.unwrap_or_else(|error| panic!("tshark cannot be started ({error}): apt-get install tshark"));
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let mut combinations = BTreeMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let end = |ip: usize, lid: usize| if fields[ip].is_empty() { fields[lid] } else { fields[ip] }.to_owned();
        let value = |field: usize| number(fields[field]);
        let values = std::array::from_fn(|at| value(6 + at));
        let service = value(4).expect("opcode") >> 5;
        *combinations.entry((end(0, 2), end(1, 3), service, value(5).expect("queue pair"), values)).or_default() += 1;
    }
    combinations
}

/// The packets by combination in a profile.
fn by_profile(profile: &Profile) -> BTreeMap<Combination, u64> {
    let mut combinations = BTreeMap::new();
    for row in &profile.connections {
        let (src, dst) = (row.src.to_string(), row.dst.to_string());
        assert_eq!(row.paths.iter().map(|path| path.packets).sum::<u64>(), row.traffic.packets, "{src} -> {dst}");
        assert_eq!(row.paths.iter().map(|path| path.wire_bytes).sum::<u64>(), row.traffic.wire_bytes, "{src} -> {dst}");
        let again: u64 = row.paths.iter().map(|path| path.retransmitted_packets).sum();
        assert_eq!(again, row.retransmissions.packets(), "{src} -> {dst}");
        for path in &row.paths {
            let of = path.fields;
            let values = [
                of.sl().map(u32::from),
                of.vl().map(u32::from),
                of.p_key().map(u32::from),
                of.dscp().map(u32::from),
                of.ecn().map(u32::from),
                of.priority().map(u32::from),
                of.port().map(u32::from),
            ];
            let key = (src.clone(), dst.clone(), row.service.into(), row.dest_qp.value(), values);
            *combinations.entry(key).or_default() += path.packets;
        }
    }
    combinations
}

fn recording(path: &Path) -> Recording {
    Recording::read(path).expect("a recording")
}

/// A capture file in a folder of its own.
fn written(recording: &Recording) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("changed.pcap");
    recording.write(&path).expect("written");
    (folder, path)
}

/// The recording with each RoCE frame changed.
fn changed(recording: &Recording, mut change: impl FnMut(usize, &mut Vec<u8>)) -> Recording {
    let record = |(index, record): (usize, &RecordedPacket)| {
        let mut data = record.data.to_vec();
        if runs::is_roce(&data) {
            change(index, &mut data);
        }
        let longer = data.len() as u32 - record.data.len() as u32;
        RecordedPacket { data: data.into(), original_bytes: record.original_bytes + longer, ..record.clone() }
    };
    recording.with(recording.records.iter().enumerate().map(record).collect())
}

/// The recorded values of RoCE captures at one port, and of native ones with each packet twice.
#[test]
fn path_fields_agree_with_tshark_on_recorded_runs() {
    for run in runs::VARIED.map(runs::named) {
        for (path, observations) in [(run.node(1), 1), (run.sink(), 2)] {
            let (_folder, plain) = written(&recording(&path));
            let mut expected = by_tshark(&plain);
            assert!(!expected.is_empty(), "{}", path.display());
            for count in expected.values_mut() {
                *count /= observations;
            }
            assert_eq!(by_profile(&profile(&[plain])), expected, "{}", path.display());
        }
    }
}

/// Every field takes several values on each connection, and frames with and without VLAN tags are
/// mixed, so that both decoders take part.
#[test]
fn changed_path_fields_agree_with_tshark() {
    for run in runs::VARIED.map(runs::named) {
        let mut number = random(25);
        let varied = changed(&recording(&run.node(1)), |_, frame| {
            let queue_pair = frame[BTH + 7];
            let class = [queue_pair << 3, queue_pair << 3 | 3, 0x68][number(3)];
            frame[TYPE_OF_SERVICE] = class;
            frame[UDP..UDP + 2].copy_from_slice(&(0xC000 | u16::from(queue_pair)).to_be_bytes());
            frame[BTH + 2..BTH + 4].copy_from_slice(&(0x7F00 | u16::from(queue_pair & 3)).to_be_bytes());
            if number(2) == 0 {
                frame.splice(12..12, [0x81, 0x00, (queue_pair & 7) << 5, 7]);
            }
        });
        let (_folder, path) = written(&varied);
        assert_eq!(by_profile(&profile(std::slice::from_ref(&path))), by_tshark(&path), "{}", run.name);
    }
}

/// A profile on disk has the same path fields, and `merge` of partial profiles too.
#[test]
fn path_fields_survive_the_profile() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let varied = changed(&recording(&run.node(1)), |index, frame| {
        frame[UDP..UDP + 2].copy_from_slice(&(0xC000 + (index % 40) as u16).to_be_bytes());
        frame[TYPE_OF_SERVICE] = [0x68, 0x6B][index % 2];
    });
    let (folder, path) = written(&varied);
    let analyzed = profile(&[path]);
    let place = folder.path().join("job.ibp");
    ProfileWriter::create(&place, &[]).expect("place").finish(&analyzed).expect("written");
    let loaded = pipeline::load(&place).expect("a profile");
    let paths = |profile: &Profile| profile.connections.iter().map(|row| row.paths.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&loaded), paths(&analyzed));
    // More ports than are listed.
    let further = |path: &ibscope::model::PathSums| path.fields.has_further_ports();
    assert!(analyzed.connections.iter().any(|row| row.paths.iter().any(further)));
    let marked = |path: &&ibscope::model::PathSums| path.fields.ecn() == Some(PathFields::ECN_CE);
    for row in &analyzed.connections {
        let ce: u64 = row.paths.iter().filter(marked).map(|path| path.packets).sum();
        assert_eq!(row.paths.iter().map(|path| path.ecn_ce_packets).sum::<u64>(), ce);
    }
}

/// The document of `paths --format json`.
fn paths_document(path: &Path) -> Value {
    serde_json::from_str(&result(&["paths", "--no-align", "--format", "json"], &[path])).expect("JSON")
}

/// Name and connections of each finding.
fn path_findings(document: &Value) -> Vec<(String, u64)> {
    let all = document["findings"].as_array().expect("findings");
    all.iter()
        .map(|one| (one["finding"].as_str().expect("name").to_owned(), one["connections"].as_u64().expect("count")))
        .collect()
}

/// A run with one queue pair per port is healthy; each change is one finding.
#[test]
fn each_problem_of_a_path_is_one_finding() {
    let run = runs::named("ompi-rc-ring2");
    let healthy = recording(&run.node(1));
    let found = |recording: &Recording| {
        let (_folder, path) = written(recording);
        path_findings(&paths_document(&path))
    };
    assert_eq!(found(&healthy), []);
    // The nodes send DSCP 26; 34 from the first node only.
    let one_way = changed(&healthy, |_, frame| {
        if frame[26..30] == [10, 77, 0, 1] {
            frame[TYPE_OF_SERVICE] = 34 << 2;
        }
    });
    let names: Vec<String> = found(&one_way).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["class_in_one_direction"]);
    // Another partition for 1 packet in 50, once as a limited member of the usual one.
    for (p_key, expected) in [(0x8001u16, 2), (0x7FFF, 0)] {
        let keyed = changed(&healthy, |index, frame| {
            if index % 50 == 0 {
                frame[BTH + 2..BTH + 4].copy_from_slice(&p_key.to_be_bytes());
            }
        });
        let found = found(&keyed);
        assert_eq!(found.iter().filter(|(name, _)| name == "unexpected_p_key").count(), expected, "{found:?}");
    }
    // Four queue pairs in each direction, all from one port; then each from its own.
    let run = runs::named("ompi-rc-mixed-2x2");
    let from = |port: fn(u8) -> u16| {
        changed(&recording(&run.node(1)), |_, frame| {
            let port = port(frame[BTH + 7]);
            frame[UDP..UDP + 2].copy_from_slice(&port.to_be_bytes());
        })
    };
    let one = ("one_source_port".to_owned(), 4);
    assert_eq!(found(&from(|_| 49152)), [one.clone(), one]);
    assert_eq!(found(&from(|queue_pair| 49152 + u16::from(queue_pair))), []);
}

/// `matrix` with a filter shows the connections with these values.
#[test]
fn matrix_filters_by_path_fields() {
    let run = runs::named("ompi-rc-ring2");
    let marked = changed(&recording(&run.node(1)), |_, frame| {
        if frame[26..30] == [10, 77, 0, 1] {
            frame[TYPE_OF_SERVICE] = 34 << 2;
        }
    });
    let (_folder, path) = written(&marked);
    let rows = |filter: &[&str]| {
        let arguments = [&["matrix", "--format", "csv"], filter].concat();
        result(&arguments, &[&path])
            .lines()
            .skip(1)
            .map(|row| row.split(',').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&[]), ["10.77.0.1", "10.77.0.2"]);
    assert_eq!(rows(&["--dscp", "34"]), ["10.77.0.1"]);
    assert_eq!(rows(&["--dscp", "26,34"]), ["10.77.0.1", "10.77.0.2"]);
    assert_eq!(rows(&["--dscp", "34", "--pkey", "0x7fff"]), ["10.77.0.1"]);
    assert_eq!(rows(&["--pkey", "0x8001"]), Vec::<String>::new());
    // No LRH and no tag on this link.
    assert_eq!(rows(&["--sl", "0"]), Vec::<String>::new());
    assert_eq!(rows(&["--pcp", "0"]), Vec::<String>::new());
}

fn health_of(recording: &Recording) -> Health {
    let (_folder, path) = written(recording);
    total(&profile(&[path])).0
}

/// Requests of one connection that are delayed by some requests: no loss, and the distance is that
/// of the delay.
#[test]
fn delayed_packets_are_reordered_by_their_distance() {
    let run = runs::named("ompi-rc-ring2");
    let healthy = recording(&run.node(2));
    assert_eq!(health_of(&healthy).reordered_packets, 0);
    let is_write = |record: &RecordedPacket| {
        runs::is_roce(&record.data) && record.data[26..30] == [10, 77, 0, 1] && matches!(record.data[BTH], 0x06..=0x0A)
            || runs::is_roce(&record.data) && record.data[26..30] == [10, 77, 0, 1] && record.data[BTH] == 0x0E
    };
    for distance in [1, 3, 10] {
        // READ responses and WRITEs come in trains; a train has consecutive PSNs.
        let mut moved = healthy.records.clone();
        let places: Vec<usize> = (0..moved.len()).filter(|at| is_write(&moved[*at])).collect();
        let psn = |record: &RecordedPacket| u32::from_be_bytes([0, record.data[51], record.data[52], record.data[53]]);
        let is_train = |train: &&[usize]| {
            let steps = train.windows(2).all(|pair| psn(&moved[pair[1]]) == psn(&moved[pair[0]]) + 1);
            let same =
                train.iter().all(|at| moved[*at].data[BTH + 5..BTH + 8] == moved[train[0]].data[BTH + 5..BTH + 8]);
            steps && same && train.len() == distance + 2
        };
        let train: Vec<usize> = places.windows(distance + 2).find(is_train).expect("a train").to_vec();
        // The first packet of the train comes after `distance` others, and one more follows.
        let first = moved[train[0]].data.clone();
        let first_bytes = moved[train[0]].original_bytes;
        for index in 0..distance {
            let next = moved[train[index + 1]].clone();
            moved[train[index]].data = next.data;
            moved[train[index]].original_bytes = next.original_bytes;
        }
        moved[train[distance]].data = first;
        moved[train[distance]].original_bytes = first_bytes;
        let health = health_of(&healthy.with(moved));
        let order = (health.reordered_packets, health.reorder_distance_psns, health.longest_reorder_distance_psns);
        assert_eq!(order, (1, distance as u64, distance as u64), "{distance}");
        assert_eq!((health.late_packets, health.lost(), health.unobserved_psns), (1, 0, 0));
    }
}

/// The run with 1 % loss has late packets, which are no reordering.
#[test]
fn a_loss_is_no_reordering() {
    let run = runs::named("ompi-rc-loss1-ring2");
    for path in [run.node(1), run.node(2), run.sink()] {
        let health = total(&profile(&[path])).0;
        assert!(health.late_packets > 0 && health.episodes > 0);
        assert_eq!((health.reordered_packets, health.wrong_msn_packets, health.reused_psn_packets), (0, 0, 0));
    }
}

/// Every recorded run keeps to the protocol.
#[test]
fn recorded_runs_have_no_wrong_numbers() {
    for run in runs::all() {
        for path in run.every_node().into_iter().chain([run.sink()]) {
            let health = total(&profile(&[path])).0;
            let numbers = [
                health.reordered_packets,
                health.reused_psn_packets,
                health.wrong_msn_packets,
                health.stalled_transmissions,
            ];
            assert_eq!(numbers, [0; 4], "{}", run.name);
        }
    }
}

/// One ACK in the middle with another MSN, and ACKs whose MSN never rises.
#[test]
fn wrong_message_numbers_are_counted() {
    let run = runs::named("ompi-rc-ring2");
    let healthy = recording(&run.node(1));
    let is_ack = |frame: &[u8]| frame[BTH] == ACKNOWLEDGE && frame[26..30] == [10, 77, 0, 1];
    let acks = healthy.records.iter().filter(|record| runs::is_roce(&record.data) && is_ack(&record.data)).count();
    assert!(acks > 50, "{acks}");
    for (offset, expected) in [(-1000i32, 1), (1000, 1), (0, 0)] {
        let mut seen = 0;
        let wrong = changed(&healthy, |_, frame| {
            if is_ack(frame) {
                seen += 1;
                if seen == acks / 2 {
                    let msn = u32::from_be_bytes([0, frame[55], frame[56], frame[57]]).wrapping_add_signed(offset);
                    frame[55..58].copy_from_slice(&msn.to_be_bytes()[1..]);
                }
            }
        });
        assert_eq!(health_of(&wrong).wrong_msn_packets, expected, "{offset}");
    }
    let stuck = changed(&healthy, |_, frame| {
        let has_aeth = matches!(frame[BTH], ACKNOWLEDGE | 0x0D | 0x0F | 0x10);
        if has_aeth && frame[26..30] == [10, 77, 0, 1] {
            frame[55..58].copy_from_slice(&[0, 0, 7]);
        }
    });
    assert!(health_of(&stuck).wrong_msn_packets > 0);
}

/// A sender that does not skip the PSNs of a READ's responses.
#[test]
fn psns_of_a_read_that_are_used_again_are_counted() {
    for reuses in [false, true] {
        let mut wire = WireBuilder::new();
        let (mut one, mut other) = WireQueuePair::pair((1, 16), (2, 17));
        // Two packets show the path MTU.
        one.write(&mut wire, 0, 1, &[0; 8192]);
        other.ack(&mut wire, &one);
        one.read(&mut wire, 0, 1, 4 * 4096);
        other.read_response(&mut wire, &one, &[0; 4 * 4096]);
        if reuses {
            one.psn -= 3;
        }
        for _ in 0..5 {
            one.send(&mut wire, &[0; 64]);
            other.ack(&mut wire, &one);
        }
        let health = total(&profile(&[wire.file()])).0;
        assert_eq!(health.reused_psn_packets, if reuses { 3 } else { 0 });
    }
}

/// A receiver that is gone: the sender tries eight times.
#[test]
fn a_request_that_is_never_acknowledged_makes_no_progress() {
    for (transmissions, expected) in [(1, 0), (3, 0), (8, 8)] {
        for recovers in [false, true] {
            let mut wire = WireBuilder::new();
            let (mut one, mut other) = WireQueuePair::pair((1, 16), (2, 17));
            for _ in 0..10 {
                one.send(&mut wire, &[0; 64]);
                other.ack(&mut wire, &one);
            }
            let psn = one.psn;
            for _ in 0..transmissions {
                one.psn = psn;
                one.send(&mut wire, &[0; 64]);
                one.send(&mut wire, &[0; 64]);
            }
            if recovers {
                other.ack(&mut wire, &one);
            }
            let health = total(&profile(&[wire.file()])).0;
            let case = format!("{transmissions}, {recovers}");
            assert_eq!(health.stalled_transmissions, if recovers { 0 } else { expected }, "{case}");
        }
    }
}
