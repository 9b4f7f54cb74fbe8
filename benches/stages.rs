//! Throughput of the stages on generated captures: native InfiniBand and RoCEv2, small and big
//! packets.
//!
//! `walk`, `decode` and `decode-icrc` run on one thread and on bytes in memory. `analyze` measures
//! `ibscope analyze` from opening the file until printing, on a file in the page cache. `lean`
//! includes only what the communication matrix needs (no MPI, no ICRC, no timeline); `full` is the
//! default.
//!
//! Invariant: every stage sees all records, which an assertion checks.

use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use ibscope::decode::{self, decode};
use ibscope::model::{Batch, Packets};
use ibscope::pipeline::{self, analyze};
use ibscope_parsers::frame::{self, CaptureItem};
use ibscope_samples::{SampleFraming, SampleKind};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of each capture: larger than the CPU caches, but quick to generate.
const FILE_BYTES: u64 = 64 << 20;
/// Size of a batch, as in the pipeline.
const BATCH_BYTES: usize = 1 << 20;
/// Number of shards per batch, as in the pipeline.
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
        ("native-small", SampleFraming::Native, SampleKind::Small),
        ("native-big", SampleFraming::Native, SampleKind::Big),
        ("roce-small", SampleFraming::Roce, SampleKind::Small),
        ("roce-big", SampleFraming::Roce, SampleKind::Big),
    ];
    for (name, framing, kind) in captures {
        capture(&mut criterion, name, framing, kind);
    }
    criterion.final_summary();
}

/// Runs all stages on one capture of a mirror sink, which holds each packet twice.
fn capture(criterion: &mut Criterion, name: &str, framing: SampleFraming, kind: SampleKind) {
    let options = ibscope_samples::SampleOptions {
        framing,
        kind,
        bytes: FILE_BYTES,
        lids: 64,
        mirror: 2,
        seed: 1,
        ..ibscope_samples::SampleOptions::default()
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

/// Walks from record to record without decoding them.
fn walk_records(group: &mut BenchmarkGroup<'_, WallTime>, bytes: &[u8], records: u64) {
    group.bench_function("walk", |bencher| {
        bencher.iter(|| {
            let (mut framing, mut at) = frame::Framing::detect(bytes).expect("a capture");
            let mut walked = 0;
            while at < bytes.len() {
                let (item, length) = framing.next(&bytes[at..]).expect("a record");
                walked += u64::from(matches!(black_box(item), CaptureItem::Record(_)));
                at += length;
            }
            assert_eq!(walked, records);
        });
    });
}

/// Decodes batches to packet records, without and with the ICRC check.
fn decode_batches(group: &mut BenchmarkGroup<'_, WallTime>, bytes: &[u8], records: u64) {
    let mut batches = split(bytes);
    for (name, check_icrc) in [("decode", false), ("decode-icrc", true)] {
        let options = decode::DecodeOptions { check_icrc, ..decode::DecodeOptions::default() };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut decoded = 0;
                // `decode` returns the batch, so no iteration copies it.
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

/// Splits the capture into batches of whole records.
fn split(bytes: &[u8]) -> Vec<Batch> {
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

/// Runs the whole pipeline on a file, with one thread and with one thread per core.
fn analyze_file(group: &mut BenchmarkGroup<'_, WallTime>, path: &Path, records: u64) {
    let paths: Vec<PathBuf> = vec![path.to_owned()];
    let full = pipeline::AnalysisOptions::default();
    let measures = pipeline::AnalysisMeasures { mpi: false, icrc: false, ..full.measures };
    let lean = pipeline::AnalysisOptions { measures, bin_ns: None, ..full.clone() };
    for (name, options) in [("lean", lean), ("full", full)] {
        for (threads_name, threads) in [("one-thread", 1), ("all-threads", 0)] {
            let options = pipeline::AnalysisOptions { threads, ..options.clone() };
            group.bench_function(format!("analyze-{name}/{threads_name}"), |bencher| {
                // `iter_batched` drops the profile outside the measured time.
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
