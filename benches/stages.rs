//! Throughput of the stages on generated captures: native InfiniBand and RoCEv2, small and big packets.
//!
//! `walk`, `decode` and `decode-icrc` run on one thread and on bytes that are in memory; `analyze` is everything that
//! `ibscope analyze` does between opening the file and printing, on a file that the system has cached. Lean is what the
//! communication matrix needs (no MPI, no ICRC, no timeline), full is the default.

use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use ibscope::decode::{self, decode};
use ibscope::model::{Batch, Packets};
use ibscope::pipeline::{self, analyze};
use ibscope_parsers::frame::{self, Item};
use ibscope_samples::{Framing, Kind};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of each capture: beyond the caches, and still quick to generate.
const FILE_BYTES: u64 = 64 << 20;
/// Size of a batch, as the pipeline cuts them.
const BATCH_BYTES: usize = 1 << 20;
/// Parts that a batch is dealt to, as in the pipeline.
const SHARDS: usize = 32;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(10)
        // The tables are the result; drawing them would need a system font.
        .without_plots()
        .configure_from_args();
    let captures = [
        ("native-small", Framing::Native, Kind::Small),
        ("native-big", Framing::Native, Kind::Big),
        ("roce-small", Framing::Roce, Kind::Small),
        ("roce-big", Framing::Roce, Kind::Big),
    ];
    for (name, framing, kind) in captures {
        capture(&mut criterion, name, framing, kind);
    }
    criterion.final_summary();
}

/// All stages on one capture, recorded at a mirror sink: each packet twice.
fn capture(criterion: &mut Criterion, name: &str, framing: Framing, kind: Kind) {
    let options = ibscope_samples::Options {
        framing,
        kind,
        bytes: FILE_BYTES,
        lids: 64,
        mirror: 2,
        seed: 1,
        ..ibscope_samples::Options::default()
    };
    let mut bytes = Vec::new();
    let totals = ibscope_samples::generate(&options, &mut bytes).expect("generate");
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("capture.pcap");
    std::fs::write(&path, &bytes).expect("write");

    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::ElementsAndBytes { elements: totals.records, bytes: totals.file_bytes });
    walk_records(&mut group, &bytes, totals.records);
    decode_batches(&mut group, &bytes, totals.records);
    drop(bytes);
    analyze_file(&mut group, &path, totals.records);
    group.finish();
}

/// From record to record, without a look at what is in them.
fn walk_records(group: &mut BenchmarkGroup<'_, WallTime>, bytes: &[u8], records: u64) {
    group.bench_function("walk", |bencher| {
        bencher.iter(|| {
            let (mut framing, mut at) = frame::Framing::detect(bytes).expect("a capture");
            let mut walked = 0;
            while at < bytes.len() {
                let (item, length) = framing.next(&bytes[at..]).expect("a record");
                walked += u64::from(matches!(black_box(item), Item::Record(_)));
                at += length;
            }
            assert_eq!(walked, records);
        });
    });
}

/// Batches to packet records, without and with the ICRC.
fn decode_batches(group: &mut BenchmarkGroup<'_, WallTime>, bytes: &[u8], records: u64) {
    let mut batches = cut(bytes);
    for (name, check_icrc) in [("decode", false), ("decode-icrc", true)] {
        let options = decode::Options { check_icrc, ..decode::Options::default() };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut decoded = 0;
                // The batch comes back with its packets, so that no iteration copies it.
                for slot in &mut batches {
                    let empty = Batch { bytes: Vec::new(), framing: slot.framing.clone(), ..*slot };
                    let result = decode(std::mem::replace(slot, empty), &options, vec![Packets::default(); SHARDS]);
                    decoded +=
                        black_box(&result.shards).iter().map(|packets| packets.records.len()).sum::<usize>() as u64;
                    *slot = result.batch;
                }
                assert_eq!(decoded, records);
            });
        });
    }
}

/// The capture's records in batches of whole ones.
fn cut(bytes: &[u8]) -> Vec<Batch> {
    let (mut framing, mut start) = frame::Framing::detect(bytes).expect("a capture");
    let mut batches = Vec::new();
    let (mut first_record, mut records) = (0, 0);
    let mut end = start;
    while start < bytes.len() {
        let before = framing.clone();
        while end < bytes.len() && end - start < BATCH_BYTES {
            let (_, length) = framing.next(&bytes[end..]).expect("a record");
            records += 1;
            end += length;
        }
        batches.push(Batch {
            input: 0,
            bytes: bytes[start..end].to_vec(),
            framing: before,
            first_record,
            offset_bytes: start as u64,
        });
        (start, first_record) = (end, records);
    }
    batches
}

/// The whole pipeline on a file, with one thread and with one per core.
fn analyze_file(group: &mut BenchmarkGroup<'_, WallTime>, path: &Path, records: u64) {
    let paths: Vec<PathBuf> = vec![path.to_owned()];
    let full = pipeline::Options::default();
    let lean = pipeline::Options { read_mpi: false, check_icrc: false, bin_ns: None, ..full.clone() };
    for (name, options) in [("lean", lean), ("full", full)] {
        for (threads_name, threads) in [("one-thread", 1), ("all-threads", 0)] {
            let options = pipeline::Options { threads, ..options.clone() };
            group.bench_function(format!("analyze-{name}/{threads_name}"), |bencher| {
                // The profile is dropped outside the time that counts.
                bencher.iter_batched(
                    || (),
                    |()| {
                        let profile = analyze(&paths, &options, &|_| {}).expect("analysis");
                        assert_eq!(profile.coverage.infiniband, records);
                        profile
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
}
