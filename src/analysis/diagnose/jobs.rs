//! Findings on the ranks of a job, from its iterations.

use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::analysis::waits::{Iterations, JobWaits, NoIterations, RankTimes};
use crate::model::JobRank;
use crate::model::nodes::Nodes;
use std::collections::BTreeMap;

/// The iterations are the main loop of a job if they have at least this share of its messages.
const MAIN_LOOP: f64 = 0.5;
/// Delay of a straggler as a share of the period.
const LEAST_DELAY: f64 = 0.1;
const CRITICAL_DELAY: f64 = 0.25;
/// Largest share of stragglers among the ranks. If more ranks are late and their work is uneven, the
/// finding is an imbalance.
const MOST_STRAGGLERS: f64 = 0.25;
/// Fewest ranks for which "most of the others" has a meaning.
const FEWEST_RANKS: usize = 4;
/// By how much the time of the busiest rank exceeds the mean, as a share of the period.
const LEAST_IMBALANCE: f64 = 0.15;
const CRITICAL_IMBALANCE: f64 = 0.3;
/// Share of a rank's time for which it is not clear whether it computes or waits.
const MOST_UNCLEAR: f64 = 0.2;
/// Share of all waiting that is for one rank, and share of its own time that this rank waits.
const MAIN_WAIT: f64 = 0.6;
const MOST_OWN_WAIT: f64 = 0.2;
/// Waiting for one rank as a share of the time of all ranks.
const LEAST_WAIT: f64 = 0.3;

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let Some(waits) = input.waits else {
        if input.profile.jobs.is_empty() {
            return;
        }
        diagnosis.unchecked.push(
            "stragglers and imbalance, because a profile does not hold individual messages; pass the captures"
                .to_owned(),
        );
        return;
    };
    if input.is_sampled() || input.is_incomplete() {
        return;
    }
    if !input.sees_all_ports() {
        // Without the messages of some ranks, a rank that waits for them seems to compute.
        diagnosis
            .unchecked
            .push("stragglers and imbalance, because the captures do not show the traffic of all ports".to_owned());
        return;
    }
    let nodes = Nodes::of(input.profile);
    let (one_way, lossy) = (input.jobs_that_miss_directions(), input.jobs_that_miss_requests());
    for job in waits.iter().filter(|job| !input.is_part(job.job)) {
        if one_way.contains(&job.job) {
            let why = "only one direction of some of its connections was captured";
            diagnosis.unchecked.push(format!("stragglers and imbalance of job {}, because {why}", job.job));
            continue;
        }
        if lossy.contains(&job.job) {
            let why = "the captures miss requests of some of its connections";
            diagnosis.unchecked.push(format!("stragglers and imbalance of job {}, because {why}", job.job));
            continue;
        }
        let main_loop = job.iterations.as_ref().ok().filter(|own| is_main_loop(own));
        let Some(iterations) = main_loop else {
            let why = match job.iterations {
                Err(reason @ (NoIterations::ClocksUnknown | NoIterations::CopiesLate | NoIterations::EdgesUnclear)) => {
                    reason.because()
                }
                _ => "no iterations with most of its messages were found".to_owned(),
            };
            diagnosis.unchecked.push(format!("stragglers and imbalance of job {}, because {why}", job.job));
            continue;
        };
        let late = stragglers(job, iterations);
        let is_imbalance = late.len() > 1 && late.len() as f64 > MOST_STRAGGLERS * iterations.ranks.len() as f64;
        match imbalance(job, iterations, &nodes) {
            Some(found) if is_imbalance => diagnosis.findings.push(found),
            found if late.is_empty() => diagnosis.findings.extend(late_sender(job, iterations).or(found)),
            _ => diagnosis.findings.extend(late),
        }
    }
}

/// True if the iterations are the main loop of the job.
fn is_main_loop(iterations: &Iterations) -> bool {
    iterations.messages as f64 >= MAIN_LOOP * iterations.of_messages as f64
}

/// Ranks that begin most iterations late.
fn stragglers(job: &JobWaits, iterations: &Iterations) -> Vec<DiagnosisFinding> {
    let period_ns = iterations.period_ns.max(1) as f64;
    let late = iterations.stragglers.iter().filter(|own| own.delay_ns as f64 >= LEAST_DELAY * period_ns);
    late.map(|own| {
        let share = own.delay_ns as f64 / period_ns;
        let others: Vec<String> = own.or_ranks.iter().map(u32::to_string).collect();
        let or = if others.is_empty() { String::new() } else { format!(" (or rank {} of its node)", others.join(", ")) };
        DiagnosisFinding {
            kind: FindingKind::Straggler,
            severity: FindingSeverity::critical_if(share >= CRITICAL_DELAY),
            confidence: if others.is_empty() { FindingConfidence::High } else { FindingConfidence::Medium },
            subject: format!("job {}, rank {}", job.job, own.rank),
            sentence: format!(
                "Rank {}{or} begins most iterations later than the others, because it needs more time of its own.",
                own.rank
            ),
            numbers: vec![
                ("delay_ns", own.delay_ns as f64),
                ("delay_low_ns", own.delay_low_ns as f64),
                ("period_ns", iterations.period_ns as f64),
                ("share_of_period", share),
            ],
            evidence: "waits",
            advice: "Check the node of this rank: clock rate, other processes, memory errors, and its part of the work.",
        }
    })
    .collect()
}

/// A rank that most others wait for, and that hardly waits itself.
fn late_sender(job: &JobWaits, iterations: &Iterations) -> Option<DiagnosisFinding> {
    if iterations.ranks.len() < FEWEST_RANKS {
        return None;
    }
    let mut by_rank: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for pair in &iterations.waits {
        let own = by_rank.entry(pair.for_rank).or_default();
        *own = (own.0.saturating_add(pair.wait_ns), own.1 + 1);
    }
    let waiting: u64 = by_rank.values().map(|(wait_ns, _)| wait_ns).sum();
    let (rank, (wait_ns, waiting_ranks)) = by_rank.into_iter().max_by_key(|(_, (wait_ns, _))| *wait_ns)?;
    let all: u64 = iterations.ranks.iter().map(whole_ns).sum();
    let own = iterations.ranks.iter().find(|own| own.rank == rank)?;
    let own_wait = own.wait_ns as f64 / whole_ns(own).max(1) as f64;
    let is_found = wait_ns as f64 >= MAIN_WAIT * waiting as f64
        && wait_ns as f64 >= LEAST_WAIT * all as f64
        && 2 * waiting_ranks >= iterations.ranks.len()
        && own_wait <= MOST_OWN_WAIT
        && own.unclear_ns as f64 <= MOST_UNCLEAR * whole_ns(own) as f64;
    is_found.then(|| DiagnosisFinding {
        kind: FindingKind::LateSender,
        severity: FindingSeverity::Warning,
        confidence: FindingConfidence::Medium,
        subject: format!("job {}, rank {rank}", job.job),
        sentence: format!("Most waiting in the job is for messages of rank {rank}, which hardly waits itself."),
        numbers: vec![
            ("wait_ns", wait_ns as f64),
            ("share_of_all_waits", wait_ns as f64 / waiting.max(1) as f64),
            ("waiting_ranks", waiting_ranks as f64),
        ],
        evidence: "waits",
        advice: "Check why this rank sends late: more work than the others, or a slow node.",
    })
}

const fn whole_ns(own: &RankTimes) -> u64 {
    own.before_send_ns.saturating_add(own.wait_ns).saturating_add(own.unclear_ns)
}

/// Ranks that compute longer than the others, where no single rank does.
fn imbalance(job: &JobWaits, iterations: &Iterations, nodes: &Nodes) -> Option<DiagnosisFinding> {
    let ranks = &iterations.ranks;
    let is_clear = |own: &RankTimes| own.unclear_ns as f64 <= MOST_UNCLEAR * whole_ns(own) as f64;
    // Inside a node, ranks wait for each other without a message on the wire.
    let shares_node = ranks.iter().enumerate().any(|(index, one)| {
        ranks[..index].iter().any(|other| {
            let of = |rank| JobRank { job: job.job, rank };
            nodes.are_shared(of(one.rank), of(other.rank))
        })
    });
    if ranks.len() < FEWEST_RANKS || shares_node || !ranks.iter().all(is_clear) {
        return None;
    }
    let iterations_ns = iterations.period_ns as f64 * iterations.count.max(1) as f64;
    let own = || ranks.iter().map(|own| own.before_send_ns as f64);
    let mean = own().sum::<f64>() / ranks.len() as f64;
    let most = own().fold(0.0, f64::max);
    let share = (most - mean) / iterations_ns.max(1.0);
    let busy: Vec<String> = ranks
        .iter()
        .filter(|own| own.before_send_ns as f64 >= f64::midpoint(mean, most))
        .map(|own| own.rank.to_string())
        .collect();
    (share >= LEAST_IMBALANCE && busy.len() > 1).then(|| DiagnosisFinding {
        kind: FindingKind::Imbalance,
        severity: FindingSeverity::critical_if(share >= CRITICAL_IMBALANCE),
        confidence: FindingConfidence::Medium,
        subject: format!("job {}, ranks {}", job.job, listed(&busy)),
        sentence: "These ranks need more time of their own in each iteration; the others wait for them.".to_owned(),
        numbers: vec![
            ("longest_own_ns", most),
            ("mean_own_ns", mean),
            ("excess_share_of_time", share),
            ("ranks", busy.len() as f64),
        ],
        evidence: "waits",
        advice: "The application distributes its work unevenly: the network is not the cause.",
    })
}

/// The first names of a list.
fn listed(names: &[String]) -> String {
    const LISTED: usize = 8;
    let more = names.len().saturating_sub(LISTED);
    let first = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}
