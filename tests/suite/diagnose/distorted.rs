//! Recorded and generated captures that are distorted: by losses of the capture, which must blame
//! nothing else, and by a source port that all queue pairs share.

use super::{findings, names};
use crate::runs;
use ibscope_parsers::ib::Service;
use ibscope_samples::hard::frame::{PacketFrame, change_packets};
use ibscope_samples::hard::{RecordedPacket, Recording, partial};
use ibscope_samples::{Random, SampleFraming, SampleOptions, generate};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Healthy runs of different libraries and services.
const HEALTHY: [&str; 4] = ["ompi-rc-mixed-2x2", "ompi-openib-bt.S-4x1", "straggler-none-4x1", "nvmeof-dd-2"];

fn write(folder: &tempfile::TempDir, recording: &Recording) -> [PathBuf; 1] {
    let path = folder.path().join("distorted.pcap");
    recording.write(&path).expect("written");
    [path]
}

/// A mirror that drops 1 or 10 % of its records, in bursts or not, and a capture that begins late
/// and ends early.
#[test]
fn a_loss_of_the_capture_blames_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    for name in HEALTHY {
        let whole = Recording::read(&runs::of_any_set(name).sink()).expect("capture");
        let count = whole.records.len();
        for (seed, (per_mille, burst)) in (1..).zip([(10, 1), (100, 1), (10, 20), (100, 20)]) {
            let lossy = partial::lose(&whole, per_mille, burst, &mut Random::new(seed));
            let all = findings(&["--link", "1Gb/s"], &write(&folder, &lossy));
            assert_eq!(names(&all), ["capture_incomplete"], "{name}: {per_mille} per mille: {all:?}");
        }
        let middle = partial::window(&whole, count / 4..3 * count / 4);
        let all = findings(&["--link", "1Gb/s"], &write(&folder, &middle));
        assert!(all.is_empty(), "{name}: {all:?}");
    }
}

/// A run without a late rank, and without one direction of one connection: the rank that waits for
/// its messages is not late either.
#[test]
fn a_missing_direction_blames_no_rank() {
    let folder = tempfile::tempdir().expect("folder");
    let inputs = runs::of_third_set("cg-none-4x1").every_node();
    let nodes: Vec<Recording> = inputs.iter().map(|path| Recording::read(path).expect("capture")).collect();
    let direction = |file: &Recording, record: &RecordedPacket| {
        let frame = PacketFrame::read(file.link_type, record)?;
        (frame.opcode.service() == Service::Rc).then_some((frame.src, frame.dst, frame.dest_qp))
    };
    let of_file = |file: &Recording| file.records.iter().filter_map(|record| direction(file, record)).collect();
    let directions: BTreeSet<_> = nodes.iter().flat_map(|file| -> Vec<_> { of_file(file) }).collect();
    assert!(directions.len() >= 8, "a ring of four ranks has eight directions");
    let paths: Vec<PathBuf> = (0..nodes.len()).map(|node| folder.path().join(format!("{node}.pcap"))).collect();
    for missing in directions {
        for (node, path) in nodes.iter().zip(&paths) {
            let kept = partial::keep(node, |_, record| direction(node, record) != Some(missing));
            kept.write(path).expect("written");
        }
        let all = findings(&[], &paths);
        assert!(names(&all).iter().all(|name| *name == "capture_incomplete"), "{missing:?}: {all:?}");
    }
}

/// Offset of the UDP source port: Ethernet 14, IPv4 20.
const SOURCE_PORT_AT: usize = 34;

#[test]
fn one_source_port_for_all_queue_pairs_is_found() {
    let folder = tempfile::tempdir().expect("folder");
    for seed in 1..=5 {
        let options = SampleOptions {
            framing: SampleFraming::Roce,
            bytes: 1_000_000,
            lids: 6,
            mirror: 2,
            qps: 6,
            seed,
            ..SampleOptions::default()
        };
        let path = folder.path().join("generated.pcap");
        generate(&options, &mut std::fs::File::create(&path).expect("file")).expect("generated");
        assert_eq!(names(&findings(&[], std::slice::from_ref(&path))), [""; 0], "seed {seed}");
        let healthy = Recording::read(&path).expect("capture");
        let changed = change_packets(&healthy, |_, frame, data| {
            data[SOURCE_PORT_AT..SOURCE_PORT_AT + 2].copy_from_slice(&49_152_u16.to_be_bytes());
            frame.seal(data);
        });
        let all = findings(&[], &write(&folder, &changed));
        assert_eq!(names(&all), ["single_source_port"], "seed {seed}: {all:?}");
    }
}
