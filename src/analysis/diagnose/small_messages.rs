//! Finding on storms of small messages: a process sends many small messages to one peer within one
//! round trip, although one message could carry them all.

use super::round_trips::RoundTrips;
use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::model::profile::{ConnectionRow, Traffic};
use crate::model::{ConnectionClass, Profile, TrafficKind};
use std::collections::BTreeMap;

/// Largest mean size of the messages in a bin.
const MOST_BYTES: u64 = 256;
/// Fewest messages that one connection sends within a round trip.
const LEAST_PER_ROUND_TRIP: f64 = 8.0;
/// Share of the time with such bins: the least of a finding, and of a critical one.
const LEAST_SHARE: f64 = 0.1;
const CRITICAL_SHARE: f64 = 0.5;
/// Fewest bins and messages, so that a single burst is no finding.
const FEWEST_BINS: u64 = 10;
const FEWEST_MESSAGES: u64 = 1000;
/// Wider bins do not show for which share of the time messages are sent.
const WIDEST_BIN_NS: i64 = 100_000_000;

/// The bins of a connection with too many messages.
#[derive(Clone, Copy, Default)]
struct SmallMessageBins {
    bins: u64,
    messages: u64,
    bytes: u64,
}

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let profile = input.profile;
    if input.is_sampled() || !(1..=WIDEST_BIN_NS).contains(&profile.bin_ns) || !profile.times_read {
        diagnosis.unchecked.push("small messages, because rates and round trips are not known".to_owned());
        return;
    }
    let storms = storms(profile);
    let length_ns = length_ns(profile) as f64;
    let share = |storm: &SmallMessageBins| (storm.bins as f64 * profile.bin_ns as f64 / length_ns).min(1.0);
    let is_found = |storm: &SmallMessageBins| {
        storm.bins >= FEWEST_BINS && storm.messages >= FEWEST_MESSAGES && share(storm) >= LEAST_SHARE
    };
    let mut found: Vec<(u32, SmallMessageBins)> = storms.into_iter().filter(|(_, storm)| is_found(storm)).collect();
    found.sort_by_key(|(connection, storm)| (std::cmp::Reverse(storm.messages), *connection));
    let Some((first, worst)) = found.first().copied() else { return };
    let connection = &profile.connections[first as usize];
    let path = format!("path {} -> {}", profile.name_of(connection.src), profile.name_of(connection.dst));
    let more = if found.len() > 1 { format!(" and {} more connections", found.len() - 1) } else { String::new() };
    diagnosis.findings.push(DiagnosisFinding {
        kind: FindingKind::SmallMessages,
        severity: FindingSeverity::critical_if(share(&worst) >= CRITICAL_SHARE),
        confidence: FindingConfidence::Medium,
        subject: format!("{path}{more}"),
        sentence: "Many small messages follow each other to the same receiver within a round trip.".to_owned(),
        numbers: vec![
            ("messages", worst.messages as f64),
            ("messages_per_s", worst.messages as f64 * 1e9 / (worst.bins as f64 * profile.bin_ns as f64)),
            ("mean_bytes", worst.bytes as f64 / worst.messages.max(1) as f64),
            ("share_of_time", share(&worst)),
            ("connections", found.len() as f64),
        ],
        evidence: "rates --by rank",
        advice: "Combine messages to the same receiver: pack them, use derived datatypes, or buffer in the application.",
    });
}

/// The bins with too many messages, by index of the connection.
fn storms(profile: &Profile) -> BTreeMap<u32, SmallMessageBins> {
    // Most connections of a large capture have few messages, so no round trip is needed.
    let has_many = |connection: &ConnectionRow| {
        may_combine(connection) && messages(connection, &connection.traffic).0 >= FEWEST_MESSAGES
    };
    if !profile.connections.iter().any(has_many) {
        return BTreeMap::new();
    }
    let round_trips = RoundTrips::of(profile);
    let limit = |connection: &ConnectionRow| {
        let round_trip_ns = round_trips.median_ns(connection).filter(|_| has_many(connection))?;
        // A round trip may be longer than a bin.
        Some(LEAST_PER_ROUND_TRIP * (profile.bin_ns as f64 / round_trip_ns as f64).max(1.0))
    };
    let limits: Vec<Option<f64>> = profile.connections.iter().map(limit).collect();
    let mut storms: BTreeMap<u32, SmallMessageBins> = BTreeMap::new();
    for row in &profile.timeline {
        let Some(limit) = limits.get(row.connection as usize).copied().flatten() else { continue };
        let (messages, bytes) = messages(&profile.connections[row.connection as usize], &row.traffic);
        if messages as f64 >= limit && bytes <= MOST_BYTES * messages {
            let storm = storms.entry(row.connection).or_default();
            storm.bins += 1;
            storm.messages += messages;
            storm.bytes += bytes;
        }
    }
    storms
}

/// Commands of storage and the protocol of NCCL are small by design.
const fn may_combine(connection: &ConnectionRow) -> bool {
    matches!(connection.kind, TrafficKind::Data)
        && !connection.class.is_storage()
        && !matches!(connection.class, ConnectionClass::Nccl)
}

/// Messages and their bytes. Those of a job are MPI messages: the library's own ones, such as the
/// responses of a rendezvous, are small too.
const fn messages(connection: &ConnectionRow, traffic: &Traffic) -> (u64, u64) {
    if connection.job.is_some() {
        let messages = traffic.p2p_messages.saturating_add(traffic.collective_messages);
        return (messages, traffic.p2p_mpi_bytes.saturating_add(traffic.collective_mpi_bytes));
    }
    (traffic.messages, traffic.payload_bytes)
}

/// Time from the first to the last packet of all connections, at least a bin.
fn length_ns(profile: &Profile) -> i64 {
    // A connection without any timestamp has its last time before its first.
    let timed = profile.connections.iter().filter(|row| row.first_time_ns <= row.last_time_ns);
    let ends = timed.map(|row| (row.first_time_ns, row.last_time_ns));
    let all = ends.reduce(|all, own| (all.0.min(own.0), all.1.max(own.1)));
    all.map_or(0, |(first, last)| last.saturating_sub(first)).max(profile.bin_ns)
}
