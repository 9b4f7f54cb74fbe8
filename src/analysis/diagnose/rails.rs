//! Findings on rails: a rank that uses fewer ports than the other ranks of its job, or hardly uses
//! one of them.

use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::model::profile::ConnectionRow;
use crate::model::{ConnectionClass, JobRank, Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// A rail is idle if it carries less than this share of an even part of its rank's bytes.
const IDLE_SHARE: f64 = 0.05;
/// Rails of other ranks are in use from this share of an even part on.
const USED_SHARE: f64 = 0.5;
/// Share of the ranks of a job whose rails are all in use: the job is configured for them.
const MOST_RANKS: f64 = 0.5;
/// Bytes below which the traffic of a rank does not show how it uses its rails.
const LEAST_BYTES: u64 = 1 << 16;

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let profile = input.profile;
    // A port that was not captured shows only a part of its traffic.
    if !input.sees_all_ports() || input.is_sampled() {
        return;
    }
    // A rail whose queue pairs have no rank may seem to be idle.
    if has_unclaimed_traffic(profile) {
        return;
    }
    let ranks = bytes_by_rank(profile);
    let jobs: BTreeSet<u32> = ranks.keys().map(|rank| rank.job).collect();
    for job in jobs.into_iter().filter(|job| !input.is_part(*job)) {
        let own: BTreeMap<u32, &BTreeMap<Endpoint, u64>> = ranks
            .iter()
            .filter(|(rank, ports)| rank.job == job && ports.values().sum::<u64>() >= LEAST_BYTES)
            .map(|(rank, ports)| (rank.rank, ports))
            .collect();
        diagnosis.findings.extend(idle(profile, &own));
    }
}

/// Wire bytes from and to each port of each rank whose ports are no other rank's.
fn bytes_by_rank(profile: &Profile) -> BTreeMap<JobRank, BTreeMap<Endpoint, u64>> {
    let mut owners: BTreeMap<Endpoint, BTreeSet<JobRank>> = BTreeMap::new();
    for row in &profile.ranks {
        if let Ok(endpoint) = row.endpoint.parse() {
            owners.entry(endpoint).or_default().insert(JobRank { job: row.job, rank: row.rank });
        }
    }
    let mut ranks: BTreeMap<JobRank, BTreeMap<Endpoint, u64>> = BTreeMap::new();
    for (endpoint, own) in &owners {
        for rank in own {
            ranks.entry(*rank).or_default().insert(*endpoint, 0);
        }
    }
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data && row.job.is_some()) {
        for endpoint in [row.src, row.dst] {
            for rank in owners.get(&endpoint).into_iter().flatten().filter(|rank| Some(rank.job) == row.job) {
                let bytes = ranks.get_mut(rank).and_then(|ports| ports.get_mut(&endpoint));
                bytes.into_iter().for_each(|bytes| *bytes = bytes.saturating_add(row.traffic.wire_bytes));
            }
        }
    }
    ranks
}

/// True if queue pairs that no job and no known protocol claims carry data.
fn has_unclaimed_traffic(profile: &Profile) -> bool {
    let is_unclaimed = |row: &&ConnectionRow| {
        let may_be_of_job = matches!(row.class, ConnectionClass::Unknown | ConnectionClass::Mpi | ConnectionClass::Ucx);
        row.kind == TrafficKind::Data && row.job.is_none() && may_be_of_job
    };
    profile.connections.iter().filter(is_unclaimed).map(|row| row.traffic.payload_bytes).sum::<u64>() >= LEAST_BYTES
}

/// The ranks whose rails are idle, where most ranks of the job use as many rails as any.
fn idle(profile: &Profile, ranks: &BTreeMap<u32, &BTreeMap<Endpoint, u64>>) -> Option<DiagnosisFinding> {
    let rails = ranks.values().map(|ports| ports.len()).max().filter(|rails| *rails > 1)?;
    let even = |ports: &BTreeMap<Endpoint, u64>| ports.values().sum::<u64>() as f64 / rails as f64;
    let uses = |ports: &BTreeMap<Endpoint, u64>, share: f64| {
        ports.values().filter(|bytes| **bytes as f64 >= share * even(ports)).count()
    };
    let all_used = ranks.values().filter(|ports| uses(ports, USED_SHARE) == rails).count();
    let idle: Vec<(u32, &BTreeMap<Endpoint, u64>)> = ranks
        .iter()
        .filter(|(_, ports)| uses(ports, IDLE_SHARE) < rails)
        .map(|(rank, ports)| (*rank, *ports))
        .collect();
    let (first, ports) = *idle.first()?;
    if (all_used as f64) < MOST_RANKS * ranks.len() as f64 {
        return None;
    }
    let least = ports.iter().filter(|_| ports.len() == rails).min_by_key(|(_, bytes)| **bytes);
    let place = least.map_or_else(String::new, |(endpoint, _)| format!(", port {}", profile.name_of(*endpoint)));
    let more = if idle.len() > 1 { format!(" and {} more", idle.len() - 1) } else { String::new() };
    let busiest = ports.values().copied().max().unwrap_or_default();
    Some(DiagnosisFinding {
        kind: FindingKind::IdleRail,
        severity: FindingSeverity::Warning,
        confidence: if ports.len() == rails { FindingConfidence::High } else { FindingConfidence::Medium },
        subject: format!("rank {first}{place}{more}"),
        sentence: format!(
            "Most ranks of the job use {rails} rails evenly, but a rail of this rank carries nearly nothing."
        ),
        numbers: vec![
            ("rails", rails as f64),
            ("ranks_with_idle_rail", idle.len() as f64),
            ("idle_rail_bytes", least.map_or(0.0, |(_, bytes)| *bytes as f64)),
            ("busiest_rail_bytes", busiest as f64),
        ],
        evidence: "rates --by link",
        advice: "Check the state of the port (ibstat) and the device list of the library on this node.",
    })
}
