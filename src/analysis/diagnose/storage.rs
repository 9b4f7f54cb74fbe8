//! Finding on storage traffic that slows a job at the same port: the times from the requests of the
//! job to their acknowledgements or responses are longer while storage moves data.

use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::model::{ConnectionClass, Histogram, Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Storage is active in a bin with at least this share of the bytes of its busiest bin.
const ACTIVE_SHARE: f64 = 0.1;
/// Bins with and without active storage.
const FEWEST_BINS: usize = 5;
/// Times of one connection, verb and size in either kind of bins.
const FEWEST_TIMES: u64 = 10;
/// Times that are compared in all.
const FEWEST_TIMES_IN_ALL: u64 = 50;
/// Factor by which times are longer while storage is active.
const LEAST_FACTOR: f64 = 2.0;
const CRITICAL_FACTOR: f64 = 5.0;

/// Bytes of storage by port and bin.
type StorageBytes = BTreeMap<Endpoint, BTreeMap<i64, u64>>;
/// Bins with traffic of jobs by port.
type JobBins = BTreeMap<Endpoint, BTreeSet<i64>>;
/// Times by bucket, in bins with active storage and without.
type SplitTimes = [BTreeMap<u16, u64>; 2];

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let profile = input.profile;
    let is_storage = |class: ConnectionClass| class.is_storage();
    if !profile.connections.iter().any(|row| is_storage(row.class)) {
        return;
    }
    if input.is_sampled() || profile.bin_ns <= 0 || profile.latency_bin_ns <= 0 {
        diagnosis.unchecked.push("storage interference, because there is no time series of the latencies".to_owned());
        return;
    }
    let bin_ns = profile.bin_ns.max(profile.latency_bin_ns);
    let (storage, job) = bytes_by_port(profile, bin_ns);
    let findings = storage.iter().filter_map(|(endpoint, bins)| {
        let busiest = bins.values().copied().max()?;
        let active: BTreeSet<i64> = bins
            .iter()
            .filter(|(_, bytes)| **bytes as f64 >= ACTIVE_SHARE * busiest as f64)
            .map(|(time_ns, _)| *time_ns)
            .collect();
        let quiet = job.get(endpoint)?.difference(&active).count();
        if active.len() < FEWEST_BINS || quiet < FEWEST_BINS {
            return None;
        }
        finding(profile, *endpoint, &active, bin_ns)
    });
    let worst = findings.max_by(|a, b| a.numbers[0].1.total_cmp(&b.numbers[0].1));
    diagnosis.findings.extend(worst);
}

/// Of each port: the bytes of storage by bin, and the bins with traffic of jobs.
fn bytes_by_port(profile: &Profile, bin_ns: i64) -> (StorageBytes, JobBins) {
    let (mut storage, mut job) = (StorageBytes::new(), JobBins::new());
    for row in &profile.timeline {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        let time_ns = row.time_ns.div_euclid(bin_ns).saturating_mul(bin_ns);
        for endpoint in [connection.src, connection.dst] {
            if connection.class.is_storage() {
                *storage.entry(endpoint).or_default().entry(time_ns).or_default() += row.traffic.wire_bytes;
            } else if is_job(connection.class) {
                job.entry(endpoint).or_default().insert(time_ns);
            }
        }
    }
    (storage, job)
}

const fn is_job(class: ConnectionClass) -> bool {
    matches!(class, ConnectionClass::Mpi | ConnectionClass::Nccl)
}

/// Compares the times of the job's requests at a port.
fn finding(profile: &Profile, endpoint: Endpoint, active: &BTreeSet<i64>, bin_ns: i64) -> Option<DiagnosisFinding> {
    let own: Vec<bool> = profile
        .latencies
        .iter()
        .map(|row| {
            let connection = profile.connections.get(row.connection as usize);
            row.timing.interval.is_response_time()
                && connection.is_some_and(|row| {
                    row.kind == TrafficKind::Data && is_job(row.class) && [row.src, row.dst].contains(&endpoint)
                })
        })
        .collect();
    // By connection, verb and size, so that a different mix of messages changes nothing.
    let mut times: BTreeMap<u32, SplitTimes> = BTreeMap::new();
    for bin in profile.latency_timeline.iter().filter(|bin| own.get(bin.latency as usize) == Some(&true)) {
        let is_active = active.contains(&bin.time_ns.div_euclid(bin_ns).saturating_mul(bin_ns));
        let split = times.entry(bin.latency).or_default();
        *split[usize::from(is_active)].entry(bin.bucket).or_default() += u64::from(bin.count);
    }
    let mut factors: Vec<(f64, u64)> = times.values().filter_map(factor).collect();
    factors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: u64 = factors.iter().map(|(_, samples)| samples).sum();
    if all < FEWEST_TIMES_IN_ALL {
        return None;
    }
    let mut below = 0;
    let (typical, _) = factors.into_iter().find(|(_, samples)| {
        below += samples;
        2 * below >= all
    })?;
    (typical >= LEAST_FACTOR).then(|| DiagnosisFinding {
        kind: FindingKind::StorageInterference,
        severity: FindingSeverity::critical_if(typical >= CRITICAL_FACTOR),
        confidence: FindingConfidence::Medium,
        subject: format!("port {}", profile.name_of(endpoint)),
        sentence: "The requests of a job take longer to be acknowledged while storage moves data at the same port."
            .to_owned(),
        numbers: vec![
            ("latency_factor", typical),
            ("times", all as f64),
            ("bins_with_storage", active.len() as f64),
            ("bin_ns", bin_ns as f64),
        ],
        evidence: "storage --view timeline",
        advice: "Put storage into a traffic class of its own, limit its rate, or move it to another port.",
    })
}

/// The median with active storage divided by the median without, and the smaller number of times.
fn factor([quiet, active]: &SplitTimes) -> Option<(f64, u64)> {
    let [quiet, active] = [quiet, active].map(Histogram::of_coarse);
    let samples = quiet.samples().min(active.samples());
    let without = quiet.quantile(0.5);
    (samples >= FEWEST_TIMES && without > 0).then(|| (active.quantile(0.5) as f64 / without as f64, samples))
}
