//! Findings on hand-made profiles, for problems that no capture of the other tests has.

use super::*;
use crate::analysis::fixture;
use crate::analysis::waits::{Iterations, PairWaits, RankTimes};
use crate::model::histogram::coarse_bucket;
use crate::model::profile::{Input, LatencyBin, LatencyRow, TimelineRow, Traffic};
use crate::model::{ConnectionClass, Histogram, Interval, SizeClass, TimingKey, Verb};

const MS: i64 = 1_000_000;

/// An input with both ports of all packets.
fn sink() -> Input {
    Input {
        name: "sink.pcap".to_owned(),
        length_bytes: 1,
        xxh3_128: String::new(),
        sha256: None,
        format: String::new(),
        pairs_observed_once: 0,
        pairs_observed_twice: 1,
        clock: None,
        interrupted: false,
        ends_early: false,
        share: None,
        coverage: crate::model::Coverage::default(),
    }
}

fn names(diagnosis: &Diagnosis) -> Vec<&'static str> {
    diagnosis.findings.iter().map(|finding| finding.kind.name()).collect()
}

/// A job whose ranks compute for these times in each of 20 iterations of 10 ms, and wait for the
/// busiest one.
fn iterations(own_ms: &[i64]) -> Vec<JobWaits> {
    let ranks: Vec<RankTimes> = (0..)
        .zip(own_ms)
        .map(|(rank, own_ms)| RankTimes {
            rank,
            before_send_ns: (20 * own_ms * MS).unsigned_abs(),
            wait_ns: (20 * (10 - own_ms) * MS).unsigned_abs(),
            unclear_ns: 0,
            times_last: Some(0),
        })
        .collect();
    let next = |rank: u32| (rank + 1) % own_ms.len() as u32;
    let waits = ranks.iter().map(|own| PairWaits {
        waiting_rank: own.rank,
        for_rank: next(own.rank),
        times: 20,
        wait_ns: own.wait_ns,
        of_ns: 200 * MS.unsigned_abs(),
    });
    let iterations = Iterations {
        count: 20,
        whole: 20,
        messages: 100,
        of_messages: 110,
        period_ns: 10 * MS.unsigned_abs(),
        jitter_ns: 0,
        waits: waits.collect(),
        compared: ranks.len(),
        ranks,
        stragglers: Vec::new(),
    };
    vec![JobWaits { job: 1, ranks_seen: own_ms.len(), iterations: Ok(iterations) }]
}

fn of_jobs(own_ms: &[i64]) -> Diagnosis {
    let ranks = (0..own_ms.len()).map(|rank| fixture::rank(1, rank as u32, rank as u16 + 1, None)).collect();
    let profile = Profile { inputs: vec![sink()], ranks, ..Profile::default() };
    diagnose(&profile, Some(&iterations(own_ms)), None, false)
}

/// Half of the ranks compute 8 ms, the others 2 ms: 3 ms above the mean of 5 ms.
#[test]
fn uneven_work_is_an_imbalance_and_nothing_of_the_network() {
    let found = of_jobs(&[8, 8, 8, 2, 2, 2]);
    assert_eq!(names(&found), ["imbalance"]);
    assert_eq!(found.findings[0].subject, "job 1, ranks 0, 1, 2");
    assert_eq!(found.findings[0].severity, FindingSeverity::Critical);
    assert_eq!(names(&of_jobs(&[6, 5, 5, 6, 5, 5])), [""; 0]);
    // Two ranks say nothing about most ranks.
    assert_eq!(names(&of_jobs(&[9, 1])), [""; 0]);
}

/// Four ranks on two rails each, with 80 to 120 units on each but the second rail of rank 3, which has
/// `last`.
fn rails(last: u64, seed: u64) -> Diagnosis {
    let mut profile = Profile { inputs: vec![sink()], jobs: vec![fixture::job(1, 4, None)], ..Profile::default() };
    // A linear congruential generator (Knuth).
    let step = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let mut numbers = std::iter::successors(Some(step(seed)), |state| Some(step(*state))).map(|state| state >> 33);
    for (rank, rail) in (0..4).flat_map(|rank| [(rank, 0), (rank, 1)]) {
        let lid = 1 + rank as u16 + 10 * rail;
        profile.ranks.push(fixture::rank(1, rank, lid, None));
        let unit = if (rank, rail) == (3, 1) { last } else { 80 + numbers.next().unwrap_or_default() % 41 };
        // To a peer outside the job, so that the bytes of each port are its own.
        profile.connections.push(fixture::connection(Some(1), (lid, 7), (99, 8), unit));
    }
    diagnose(&profile, None, None, false)
}

#[test]
fn a_rail_that_others_use_is_idle() {
    // An even part of rank 3 has 40 to 61 units, and a rail below 5 % of it is idle.
    for (last, is_idle) in [(100, false), (60, false), (10, false), (2, true), (1, true), (0, true)] {
        for seed in 1..=20 {
            let found = rails(last, seed);
            assert_eq!(names(&found), if is_idle { vec!["idle_rail"] } else { vec![] }, "{last}, seed {seed}");
            assert!(found.findings.iter().all(|finding| finding.subject == "rank 3, port 14"), "{:?}", found.findings);
        }
    }
}

/// A rank that is seen at one port only, where all others are at two.
#[test]
fn a_missing_rail_is_idle() {
    let mut profile = Profile { inputs: vec![sink()], jobs: vec![fixture::job(1, 4, None)], ..Profile::default() };
    for (rank, rail) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)] {
        let lid = 1 + rank as u16 + 10 * rail;
        profile.ranks.push(fixture::rank(1, rank, lid, None));
        profile.connections.push(fixture::connection(Some(1), (lid, 7), (99, 8), 100));
    }
    assert_eq!(names(&diagnose(&profile, None, None, false)), ["idle_rail"]);
    // A capture of some ports does not show the traffic of the others.
    profile.connections.iter_mut().for_each(|connection| connection.is_at_both_ports = Some(false));
    assert_eq!(names(&diagnose(&profile, None, None, false)), [""; 0]);
}

/// A job at a port with storage: storage moves data in every second of 20 bins, and requests of the
/// job take `busy_ns` in these bins and 10 us in the others.
fn with_storage(busy_ns: u64) -> Diagnosis {
    let mut storage = fixture::connection(None, (1, 7), (3, 8), 100);
    storage.class = ConnectionClass::NvmeOf;
    let mut job = fixture::connection(Some(1), (1, 9), (2, 10), 100);
    job.class = ConnectionClass::Mpi;
    let mut profile = Profile {
        inputs: vec![sink()],
        bin_ns: 10 * MS,
        latency_bin_ns: 10 * MS,
        connections: vec![job, storage],
        ..Profile::default()
    };
    let timing = TimingKey { interval: Interval::Acknowledged, verb: Verb::Send, size: SizeClass::of(100) };
    profile.latencies.push(&LatencyRow { connection: 0, timing, histogram: Histogram::default() });
    for bin in 0..20 {
        let time_ns = bin * 10 * MS;
        let traffic = Traffic { wire_bytes: 10_000, ..Traffic::default() };
        let row = |connection| TimelineRow { time_ns, connection, traffic, ..TimelineRow::default() };
        profile.timeline.push(row(0));
        let has_storage = bin % 2 == 0;
        if has_storage {
            profile.timeline.push(row(1));
        }
        let bucket = coarse_bucket(if has_storage { busy_ns } else { 10_000 });
        profile.latency_timeline.push(LatencyBin { time_ns, latency: 0, bucket, count: 20 });
    }
    diagnose(&profile, None, None, false)
}

#[test]
fn storage_that_slows_a_job_is_found() {
    for (busy_ns, expected) in [
        (10_000, None),
        (15_000, None),
        (30_000, Some(FindingSeverity::Warning)),
        (90_000, Some(FindingSeverity::Critical)),
    ] {
        let found = with_storage(busy_ns);
        let own: Vec<_> = found.findings.iter().map(|finding| (finding.kind, finding.severity)).collect();
        let expected: Vec<_> =
            expected.into_iter().map(|severity| (FindingKind::StorageInterference, severity)).collect();
        assert_eq!(own, expected, "{busy_ns}");
        assert!(found.findings.iter().all(|finding| finding.subject == "port 1"));
    }
}

/// The order of the findings: severity, then confidence, then the cause before its consequence.
#[test]
fn findings_are_ranked() {
    assert!(FindingSeverity::Critical > FindingSeverity::Warning && FindingSeverity::Warning > FindingSeverity::Info);
    assert!(FindingConfidence::High > FindingConfidence::Medium && FindingConfidence::Medium > FindingConfidence::Low);
    assert!(FindingKind::FabricLoss < FindingKind::Straggler);
}
