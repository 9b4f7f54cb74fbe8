//! The class of each connection: in all recorded runs, in mixtures of them, in captures that start
//! late or are truncated, and for protocols without a recorded run, whose traffic is constructed
//! from their specifications (`ibscope_samples::hard::protocols`).
//!
//! The truth of a recorded run is the program that it ran (`cmdline.txt`), never the analysis.

use crate::runs::{self, RecordedRun};
use crate::tools;
use crate::wire::{WireBuilder, WireQueuePair, profile, profile_of};
use ibscope::model::profile::ConnectionRow;
use ibscope::model::{ConnectionClass, ConnectionKey, Profile, TrafficKind};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::{Endpoint, Lid};
use ibscope_samples::Random;
use ibscope_samples::hard::protocols::{self, Conversation};
use ibscope_samples::hard::{Recording, combine, partial};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All runs of both sets.
fn recorded_runs() -> Vec<RecordedRun> {
    let second = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples/runs2");
    let folders = std::fs::read_dir(second).expect("samples/runs2").map(|entry| entry.expect("entry"));
    let mut names: Vec<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 22, "{names:?}");
    runs::all().into_iter().chain(names.iter().map(|name| runs::of_second_set(name))).collect()
}

/// The class of the data between two nodes, by the program of the run.
fn truth(run: &str, nodes: [u16; 2]) -> ConnectionClass {
    const PROGRAMS: [(&str, ConnectionClass); 9] = [
        ("perf-", ConnectionClass::Verbs),
        ("nccl", ConnectionClass::Nccl),
        ("nfsrdma", ConnectionClass::Nfs),
        ("nvmeof", ConnectionClass::NvmeOf),
        ("ompi", ConnectionClass::Mpi),
        ("mpich", ConnectionClass::Mpi),
        ("scorep-", ConnectionClass::Mpi),
        ("straggler-", ConnectionClass::Mpi),
        ("twojobs-", ConnectionClass::Mpi),
    ];
    if run == "mixed-mpi-plus-nfs" {
        // The NFS server is node 3; the ranks are on nodes 1 and 2.
        return if nodes.contains(&3) { ConnectionClass::Nfs } else { ConnectionClass::Mpi };
    }
    let program = PROGRAMS.into_iter().find(|(prefix, _)| run.starts_with(prefix));
    program.unwrap_or_else(|| panic!("{run}: add its program to the table")).1
}

/// The node of an endpoint: LID 16 + n, of the second rail 32 + n; 10.77.0.n and 10.78.0.n.
fn node(endpoint: Endpoint) -> u16 {
    match endpoint.lid() {
        Some(Lid(lid)) => lid % 16,
        None => endpoint.to_string().rsplit('.').next().and_then(|last| last.parse().ok()).expect("an IPv4 address"),
    }
}

fn expected(run: &str, row: &ConnectionRow) -> ConnectionClass {
    match row.kind {
        TrafficKind::Management => ConnectionClass::Management,
        TrafficKind::Data => truth(run, [node(row.src), node(row.dst)]),
        TrafficKind::Multicast => ConnectionClass::Unknown,
    }
}

fn describe(row: &ConnectionRow) -> String {
    let ConnectionRow { src, dst, dest_qp, traffic, .. } = row;
    format!("{src} -> {dst} qp {:#x}, {} packets: {}", dest_qp.value(), traffic.packets, row.class.name())
}

/// The connections with another class than the run's program: one line each.
fn wrong(run: &str, profile: &Profile) -> Vec<String> {
    assert!(!profile.connections.is_empty(), "{run}");
    let wrong = profile.connections.iter().filter(|row| row.class != expected(run, row));
    wrong.map(|row| format!("{run}: {}, not {}", describe(row), expected(run, row).name())).collect()
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn each_connection_of_a_recorded_run_has_the_class_of_its_program() {
    let mut found = Vec::new();
    for run in recorded_runs() {
        let sink = run.sink();
        if sink.exists() {
            found.extend(wrong(&run.name, &profile(&[sink])));
        }
        found.extend(wrong(&run.name, &profile(&run.every_node())));
    }
    assert_none(&found);
}

fn sink(name: &str) -> Recording {
    Recording::read(&runs::of_any_set(name).sink()).expect("capture")
}

/// The classes of a profile by connection.
fn classes(profile: &Profile) -> BTreeMap<ConnectionKey, ConnectionClass> {
    profile.connections.iter().map(|row| (row.key(), row.class)).collect()
}

/// Merges two runs at the packet level, at the same time. Queue pairs of the same numbers at the
/// same ports would become one connection, so the second run is left out if it has any.
fn wrong_in_mixture(names: [&str; 2]) -> Vec<String> {
    const START_NS: u64 = 1_700_000_000_000_000_000;
    let recordings = names.map(|name| combine::start_at(&[sink(name)], START_NS).remove(0));
    let alone = recordings.each_ref().map(|recording| classes(&profile_of(recording)));
    let is_data = |class: &ConnectionClass| *class != ConnectionClass::Management;
    let shared = alone[0].iter().any(|(key, class)| is_data(class) && alone[1].contains_key(key));
    if shared {
        return Vec::new();
    }
    let together = profile_of(&combine::merge(&recordings));
    let run_of = |row: &ConnectionRow| if alone[0].contains_key(&row.key()) { names[0] } else { names[1] };
    let is_wrong = |row: &&ConnectionRow| {
        let right = expected(run_of(row), row);
        // Beside a job, alike messages prove nothing: the connection may be one of its rails.
        row.class != right && !(right == ConnectionClass::Verbs && row.class == ConnectionClass::Unknown)
    };
    let wrong = together.connections.iter().filter(is_wrong);
    wrong.map(|row| format!("{names:?}: {}, not {}", describe(row), expected(run_of(row), row).name())).collect()
}

#[test]
fn classes_in_mixtures_of_runs_are_those_of_each_run() {
    let mut found = Vec::new();
    let beside = ["nfsrdma-dd-2", "nvmeof-dd-2", "nccl-ring-qps2split-2x1"];
    let jobs = [
        "ompi-rc-mixed-2x2",
        "mpich-rc-ring2",
        "ompi-openib-mixed-2x2",
        "ompi-ofi-ring2",
        "ompi-ud-ring2",
        "ompi5-ucx-rc-rma-2x1",
        "twojobs-mixed-halo-2x1",
        "perf-read-lat",
    ];
    for one in beside {
        jobs.iter().for_each(|job| found.extend(wrong_in_mixture([one, job])));
    }
    found.extend(wrong_in_mixture(["nfsrdma-dd-2", "nccl-ring-qps2split-2x1"]));
    found.extend(wrong_in_mixture(["ompi-rc-ring2", "perf-cm-write-lat"]));
    assert_none(&found);
}

/// Without connection management: the messages show `NVMe` over Fabrics and NFS, and a capture that
/// starts in the middle shows the same class or none.
#[test]
fn late_captures_have_the_right_class_or_none() {
    for name in ["nfsrdma-dd-2", "nvmeof-dd-2", "nccl-ring-2x1", "ompi-rc-ring2", "ompi-openib-ring2", "perf-write-lat"]
    {
        let whole = sink(name);
        let count = whole.records.len();
        for (start, end) in [(0.3, 1.0), (0.5, 1.0), (0.7, 1.0), (0.2, 0.6), (0.9, 1.0)] {
            let at = |part: f64| (count as f64 * part) as usize;
            let profile = profile_of(&partial::window(&whole, at(start)..at(end)));
            let case = format!("{name}, {start} to {end}");
            let right = |row: &&ConnectionRow| row.class == expected(name, row);
            let is_unknown = |row: &&ConnectionRow| row.class == ConnectionClass::Unknown;
            let mut wrong = profile.connections.iter().filter(|row| !right(row) && !is_unknown(row));
            assert!(wrong.next().is_none(), "{case}: {:?}", wrong.map(describe).collect::<Vec<_>>());
            let busiest = profile.connections.iter().max_by_key(|row| row.traffic.payload_bytes).expect("traffic");
            // The last tenth has too few messages: of the NVMe run, two commands.
            let must_be_known = !name.starts_with("ompi-openib") && start < 0.9;
            assert!(!must_be_known || right(&busiest), "{case}: {}", describe(busiest));
        }
    }
}

#[test]
fn truncated_captures_have_the_right_class_or_none() {
    for name in ["nfsrdma-dd-2", "nvmeof-dd-2", "nccl-ring-2x1", "ompi-rc-ring2", "perf-send-lat"] {
        let whole = sink(name);
        for snap_bytes in [48, 60, 64, 80, 96, 128, 160, 256] {
            let profile = profile_of(&partial::truncate(&whole, snap_bytes));
            for row in profile.connections.iter().filter(|row| row.class != ConnectionClass::Unknown) {
                assert_eq!(row.class, expected(name, row), "{name}, {snap_bytes} bytes: {}", describe(row));
            }
        }
    }
}

/// Constructed traffic: the protocols of `hard::protocols`, each between four pairs of ports,
/// without connection management. Tags of the program over UCX might be MPICH's, so its class is
/// unknown.
#[test]
fn constructed_protocols_have_their_class() {
    let expected = |name: &str| match name {
        "srp" => ConnectionClass::Srp,
        "iser" => ConnectionClass::Iser,
        "smb-direct" => ConnectionClass::Smb,
        "ipoib-datagram" | "ipoib-connected" => ConnectionClass::Ipoib,
        "o2iblnd" => ConnectionClass::Lustre,
        "ucx-tags" => ConnectionClass::Unknown,
        other => panic!("{other}: which class?"),
    };
    let job = sink("ompi-rc-ring2");
    let (start_ns, end_ns) = job.span_ns();
    for (seed, (name, protocol)) in (1..).zip(protocols::ALL) {
        let mut random = Random::new(seed);
        let mut parts = vec![job.empty_like()];
        for connection in 0..4u16 {
            let end = |side: u16| {
                let endpoint = Endpoint::from_lid(Lid(17 + (connection + side) % 4));
                (endpoint, u32::from(0x4000 + 2 * connection + side))
            };
            let talk = Conversation {
                client: end(0),
                server: end(1),
                start_ns: start_ns + u64::from(connection) * 1000,
                step_ns: (end_ns - start_ns) / 100,
                operations: 40,
            };
            parts.push(protocols::mirrored(&protocol(&talk, LinkType::ERF, &mut random)));
        }
        for (case, beside) in [("alone", None), ("beside a job", Some(job.clone()))] {
            let all: Vec<Recording> = parts.iter().cloned().chain(beside).collect();
            let profile = profile_of(&combine::merge(&all));
            let ours = profile.connections.iter().filter(|row| row.dest_qp.value() >= 0x4000);
            assert_eq!(ours.clone().count(), 8, "{name}, {case}");
            ours.for_each(|row| assert_eq!(row.class, expected(name), "{name}, {case}: {}", describe(row)));
            let theirs = profile.connections.iter().filter(|row| row.dest_qp.value() < 0x4000);
            theirs.for_each(|row| assert_eq!(row.class, ConnectionClass::Mpi, "{name}, {case}: {}", describe(row)));
        }
    }
}

/// Constructed: UCX messages whose tags give the sender many ranks in every layout.
#[test]
fn tags_that_no_mpi_library_sends_are_ucx_without_mpi() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((0x101, 0x811), (0x102, 0x922));
    let tag = |number: u64| {
        // Request ids in the upper half, and a hash below: no field of a layout stays constant.
        let tag = number << 32 | number.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF;
        [&[2][..], &tag.to_le_bytes(), &[0x8B; 40]].concat()
    };
    for number in 0..60 {
        there.send(&mut wire, &tag(3 * number + 100));
        back.ack(&mut wire, &there);
        back.send(&mut wire, &tag(5 * number + 2000));
        there.ack(&mut wire, &back);
    }
    let profile = profile(&[wire.file()]);
    assert_eq!(profile.connections.len(), 2);
    for row in &profile.connections {
        assert_eq!(row.class, ConnectionClass::Ucx, "{}", describe(row));
    }
}

/// A header of RDS (Linux `net/rds/rds.h`): sequence and acknowledgement u64, length u32, ports u16,
/// flags, credits, 4 zeros, checksum u16, 16 bytes of extensions; all big-endian. The checksum is the
/// Internet checksum (RFC 1071) of the 48 bytes.
fn rds(sequence: u64, length_bytes: u32) -> Vec<u8> {
    let mut header = sequence.to_be_bytes().to_vec();
    header.extend((sequence / 2).to_be_bytes());
    header.extend(length_bytes.to_be_bytes());
    header.extend([0x10, 0x01, 0x20, 0x02, 0x02, 1, 0, 0, 0, 0, 0, 0]);
    header.extend([0; 16]);
    let words: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let folded = (words & 0xFFFF) + (words >> 16);
    let checksum = !(((folded & 0xFFFF) + (folded >> 16)) as u16);
    header[30..32].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Constructed from `net/rds/ib_send.c`: each side sends a message in fragments of 4096 bytes, each
/// with the header of the message.
#[test]
fn constructed_rds_has_its_class() {
    for is_damaged in [false, true] {
        let mut wire = WireBuilder::new();
        let (mut there, mut back) = WireQueuePair::pair((0x101, 0x811), (0x102, 0x922));
        for number in 1..=30u64 {
            let length_bytes = 500 + 300 * number as u32;
            for (at, data_bytes) in (0..length_bytes).step_by(4096).map(|at| (at, (length_bytes - at).min(4096))) {
                let mut message = rds(3 * number + u64::from(at / 4096), length_bytes);
                message.extend(vec![0x5A; data_bytes as usize]);
                // One wrong bit of the sequence number.
                message[6] ^= u8::from(is_damaged);
                there.send(&mut wire, &message);
                back.ack(&mut wire, &there);
            }
            back.send(&mut wire, &rds(number, 0));
            there.ack(&mut wire, &back);
        }
        let profile = profile(&[wire.file()]);
        assert_eq!(profile.connections.len(), 2);
        let expected = if is_damaged { ConnectionClass::Unknown } else { ConnectionClass::Rds };
        for row in profile.connections.iter().filter(|row| !is_damaged || row.traffic.payload_bytes > 10_000) {
            assert_eq!(row.class, expected, "{}", describe(row));
        }
    }
}

/// A tagged message over `verbs;ofi_rxm` without completion data, constructed from libfabric's
/// `ofi_proto.h` and `rxm.h`.
pub(crate) fn libfabric_message(tag: u64, message_id: u64) -> Vec<u8> {
    // Version 4, eager; connection 7; the id of the message; version 3, tagged.
    let mut message = vec![4, 0, 0, 0, 0, 0, 0, 0];
    [7, message_id, 0].iter().for_each(|word: &u64| message.extend(word.to_le_bytes()));
    message.extend([3, 0, 1, 0, 0, 0, 0, 0]);
    [200, 0, tag].iter().for_each(|word: &u64| message.extend(word.to_le_bytes()));
    message.extend([0x8B; 200]);
    message
}

/// Constructed: tagged messages of a program without MPI. Its tags give a sender many ranks in every
/// layout of an MPI library.
#[test]
fn tags_that_no_mpi_library_sends_are_libfabric_without_mpi() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((0x101, 0x811), (0x102, 0x922));
    let message = |number: u64, message_id: u64| {
        libfabric_message(number << 32 | number.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF, message_id)
    };
    for number in 0..60 {
        there.send(&mut wire, &message(3 * number + 100, number));
        back.ack(&mut wire, &there);
        back.send(&mut wire, &message(2 * number + 50, number));
        there.ack(&mut wire, &back);
    }
    let profile = profile(&[wire.file()]);
    assert_eq!(profile.connections.len(), 2);
    for row in &profile.connections {
        assert_eq!(row.class, ConnectionClass::Libfabric, "{}", describe(row));
    }
}

/// `matrix --class` counts the connections of a class only, `storage` is all storage.
#[test]
fn the_matrix_of_a_class_has_only_its_pairs() {
    let run = runs::of_second_set("mixed-mpi-plus-nfs");
    let sink = run.sink();
    let rows = |class: Option<&str>| {
        let mut args = vec!["matrix", "--format", "csv"];
        args.extend(class.into_iter().flat_map(|class| ["--class", class]));
        let output = tools::result(&args, std::slice::from_ref(&sink));
        let pair = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            (format!("{} {}", fields[0], fields[1]), fields[4].parse::<u64>().expect("payload bytes"))
        };
        output.lines().skip(1).map(pair).collect::<BTreeMap<String, u64>>()
    };
    let all = rows(None);
    let pairs = |of: &BTreeMap<String, u64>| of.keys().cloned().collect::<Vec<_>>();
    let (mpi, nfs, storage, none) = (rows(Some("mpi")), rows(Some("nfs")), rows(Some("storage")), rows(Some("iser")));
    assert_eq!(pairs(&mpi), ["17 18", "18 17"]);
    assert_eq!(pairs(&nfs), ["17 19", "19 17"]);
    assert_eq!((&storage, none.len()), (&nfs, 0));
    let sum = |of: &BTreeMap<String, u64>| of.values().sum::<u64>();
    assert_eq!(sum(&all), sum(&mpi) + sum(&nfs));
}

/// The rates of the classes add up to those of all data.
#[test]
fn rates_of_the_classes_add_up() {
    let run = runs::of_second_set("mixed-mpi-plus-nfs");
    let args = ["rates", "--by", "class", "--format", "csv", "--view", "peaks"];
    let text = tools::result(&args, &[run.sink()]);
    let header: Vec<&str> = text.lines().next().expect("header").split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name).expect("column");
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let key = (fields[column("class")].to_owned(), fields[column("value")].to_owned());
        sums.insert(key, fields[column("sum")].parse().expect("sum"));
    }
    for value in ["wire_bytes", "payload_bytes", "packets", "messages"] {
        let of = |class: &str| sums[&(class.to_owned(), value.to_owned())];
        assert_eq!(of("mpi;nfs"), of("mpi") + of("nfs"), "{value}");
    }
}

/// Constructed: address resolution of IP over InfiniBand goes to a multicast group (RFC 4391).
#[test]
fn multicast_of_ip_over_infiniband_has_its_class() {
    let arp = [&[0x08, 0x06, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1][..], &[0x80; 48]].concat();
    let mut wire = WireBuilder::new();
    let mut group = WireQueuePair::new(0x101, 0xC001, 0xFF_FFFF);
    (0..5).for_each(|_| group.datagram(&mut wire, 0x0B1B, 0x48, &arp));
    let profile = profile(&[wire.file()]);
    let classes: Vec<_> = profile.connections.iter().map(|row| (row.kind, row.class)).collect();
    assert_eq!(classes, [(TrafficKind::Multicast, ConnectionClass::Ipoib)]);
}

/// The legend of the stacked timeline names each class with traffic.
#[test]
fn the_timeline_stacks_classes() {
    let folder = tempfile::tempdir().expect("folder");
    let svg = folder.path().join("classes.svg");
    let args = ["timeline", "--stack", "class", "--svg", svg.to_str().expect("path")];
    tools::result(&args, &[runs::of_second_set("mixed-mpi-plus-nfs").sink()]);
    let drawn = std::fs::read_to_string(svg).expect("figure");
    let texts: Vec<&str> = drawn.lines().map(str::trim).filter(|line| ["mpi", "nfs"].contains(line)).collect();
    assert_eq!(texts, ["mpi", "nfs"]);
}
