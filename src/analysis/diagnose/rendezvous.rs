//! Findings on the rendezvous of a job: messages whose ready-to-send waits for the receiver.
//!
//! The transport of the receiver acknowledges a ready-to-send when it arrives. The receiver's
//! process requests the data, by a READ or a clear-to-send, as soon as it has posted the receive
//! and runs the library. The message waits between the two. Eager messages have no such time: the
//! receiver's port accepts their data before the process receives them.

use super::round_trips::RoundTrips;
use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::model::{Histogram, Interval, JobRank, RankIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Fewest rendezvous to a receiver that is compared.
const FEWEST_MESSAGES: u64 = 20;
/// A ready-to-send waits if the data follow it later than this many round trips of the transport.
const LEAST_ROUND_TRIPS: f64 = 10.0;
/// Waits as a share of the time of the senders: the least of a finding, and of a critical one.
const LEAST_SHARE: f64 = 0.15;
const CRITICAL_SHARE: f64 = 0.3;
/// Largest share of late receivers. If more receivers are late, the finding is a stall.
const MOST_LATE: f64 = 0.5;
/// Maximum number of receivers that a subject names.
const LISTED: usize = 4;

/// The rendezvous to one rank.
#[derive(Default)]
struct Receives {
    times: Histogram,
    /// Sum of the times beyond a round trip of the transport.
    wait_ns: f64,
    /// Sum of the times of the data: a receiver that takes the data of others is not late.
    data_ns: f64,
    /// Median round trip of the transport, of the slowest path.
    round_trip_ns: u64,
    senders: BTreeSet<u32>,
}

impl Receives {
    /// Share of the time of the senders in which one of their messages waits.
    fn share(&self, job_ns: f64) -> f64 {
        let per_sender_ns = self.wait_ns / self.senders.len().max(1) as f64 - self.data_ns;
        (per_sender_ns / job_ns).clamp(0.0, 1.0)
    }

    fn is_late(&self, job_ns: f64) -> bool {
        self.times.samples() >= FEWEST_MESSAGES
            && self.times.quantile(0.5) as f64 >= LEAST_ROUND_TRIPS * self.round_trip_ns as f64
            && self.share(job_ns) >= LEAST_SHARE
    }
}

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let profile = input.profile;
    if input.is_sampled() || input.is_incomplete() || profile.jobs.is_empty() {
        return;
    }
    let round_trips = RoundTrips::of(profile);
    let ranks = RankIndex::of(profile);
    let mut without_round_trip = false;
    let mut receivers: BTreeMap<JobRank, Receives> = BTreeMap::new();
    for row in &profile.latencies {
        let interval = row.timing.interval;
        if !matches!(interval, Interval::RendezvousRequest | Interval::RendezvousData) {
            continue;
        }
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        let own = ranks.connection(connection);
        let (Some(job), Some(src), Some(dst)) = (own.job, own.src, own.dst) else { continue };
        let Some(round_trip_ns) = round_trips.median_ns(connection) else {
            without_round_trip = true;
            continue;
        };
        let receives = receivers.entry(JobRank { job, rank: dst }).or_default();
        if interval == Interval::RendezvousData {
            receives.data_ns += row.histogram.mean() * row.histogram.samples() as f64;
            continue;
        }
        let waits = row.histogram.values().map(|(ns, count)| ns.saturating_sub(round_trip_ns) as f64 * count as f64);
        receives.wait_ns += waits.sum::<f64>();
        receives.times.merge(&row.histogram);
        receives.round_trip_ns = receives.round_trip_ns.max(round_trip_ns);
        receives.senders.insert(src);
    }
    if without_round_trip {
        let why = "some packets have no acknowledgement, so their round trip is not known";
        diagnosis.unchecked.push(format!("late receivers of some connections, because {why}"));
    }
    for job in profile.jobs.iter().filter(|job| !job.may_be_part) {
        // A rank that computes longer also receives later, and another finding names this cause.
        let prefix = format!("job {},", job.job);
        let is_explained =
            diagnosis.findings.iter().any(|own| own.kind.is_of_ranks() && own.subject.starts_with(&prefix));
        if !is_explained {
            let job_ns = job.last_time_ns.saturating_sub(job.first_time_ns).max(1) as f64;
            let own = receivers.iter().filter(|(rank, _)| rank.job == job.job).map(|(rank, own)| (rank.rank, own));
            diagnosis.findings.extend(finding(job.job, job_ns, &own.collect()));
        }
    }
}

/// Late receivers of a job, or a stall of the protocol if most of its receivers are late.
fn finding(job: u32, job_ns: f64, receivers: &BTreeMap<u32, &Receives>) -> Option<DiagnosisFinding> {
    let mut late: Vec<(u32, &Receives)> =
        receivers.iter().filter(|(_, own)| own.is_late(job_ns)).map(|(rank, own)| (*rank, *own)).collect();
    late.sort_by(|a, b| b.1.share(job_ns).total_cmp(&a.1.share(job_ns)));
    let (_, worst) = *late.first()?;
    let is_stall = late.len() > 1 && late.len() as f64 > MOST_LATE * receivers.len() as f64;
    let times = late.iter().fold(Histogram::default(), |mut all, (_, own)| {
        all.merge(&own.times);
        all
    });
    let share = worst.share(job_ns);
    let numbers = vec![
        ("share_of_senders_time", share),
        ("median_wait_ns", times.quantile(0.5) as f64),
        ("round_trip_ns", worst.round_trip_ns as f64),
        ("messages", times.samples() as f64),
        ("late_receivers", late.len() as f64),
        ("receivers", receivers.len() as f64),
    ];
    let base = |kind, subject: String, sentence: &str, advice| DiagnosisFinding {
        kind,
        severity: FindingSeverity::critical_if(share >= CRITICAL_SHARE),
        confidence: FindingConfidence::Medium,
        subject,
        sentence: sentence.to_owned(),
        numbers: numbers.clone(),
        evidence: "latency --by rank",
        advice,
    };
    if is_stall {
        return Some(base(
            FindingKind::RendezvousStall,
            format!("job {job}"),
            "Large messages arrive, but most receivers request their data much later than the network needs.",
            "Let the library progress while ranks compute (a progress thread, MPI_Test), post receives earlier, or raise the limit of eager messages.",
        ));
    }
    let names: Vec<String> = late.iter().take(LISTED).map(|(rank, _)| rank.to_string()).collect();
    let more = late.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let ranks = if late.len() == 1 { "rank" } else { "ranks" };
    Some(base(
        FindingKind::LateReceiver,
        format!("job {job}, {ranks} {}{more}", names.join(", ")),
        "Large messages to this rank arrive, but it requests their data much later than the network needs.",
        "Post the receives earlier on this rank, or let it call MPI more often while it computes.",
    ))
}
