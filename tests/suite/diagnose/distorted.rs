//! Recorded and generated captures that are distorted: by losses of the capture, which must blame
//! nothing else, and by a source port that all queue pairs share.

use super::{findings, names};
use crate::runs;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{Recording, partial};
use ibscope_samples::{Random, SampleFraming, SampleOptions, generate};
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
        let changed = healthy.records.iter().map(|record| {
            let mut record = record.clone();
            if let Some(frame) = PacketFrame::read(healthy.link_type, &record) {
                let mut data = record.data.to_vec();
                data[SOURCE_PORT_AT..SOURCE_PORT_AT + 2].copy_from_slice(&49_152_u16.to_be_bytes());
                frame.seal(&mut data);
                record.data = data.into();
            }
            record
        });
        let all = findings(&[], &write(&folder, &healthy.with(changed.collect())));
        assert_eq!(names(&all), ["single_source_port"], "seed {seed}: {all:?}");
    }
}
