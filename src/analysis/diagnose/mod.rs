//! Findings: problems of the fabric, the jobs or the capture, with their numbers.
//!
//! In: a profile, and the waits of its jobs if captures were read. Out: findings, most severe
//! first, and the checks that could not be made. `docs/diagnose.md` states the rule of each
//! finding. Invariant: no finding is raised that capture loss or sampling could simulate.

mod health;
mod jobs;
mod links;
mod paths;
mod rails;
mod rendezvous;
mod round_trips;
mod small_messages;
mod storage;
#[cfg(test)]
mod tests;

use super::observed_ports::sees_all_ports;
use super::waits::JobWaits;
use crate::model::link::Speed;
use crate::model::profile::{ConnectionRow, HealthRow, Profile};
use crate::model::trust::TrustVerdict;
use crate::model::{TrafficKind, count_of};
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of findings. At equal severity and confidence, causes come before their consequences:
/// findings sort in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Packets were lost on a path, and retransmitted.
    FabricLoss,
    /// A receiver had no receive buffer for a message.
    ReceiverNotReady,
    /// Many senders fill the link of one receiver.
    Incast,
    /// A link carries nearly its capacity.
    SaturatedLink,
    /// A rail of a rank carries nearly nothing.
    IdleRail,
    /// All queue pairs of two ports send from one UDP source port.
    SingleSourcePort,
    /// Packets travel in different traffic classes or partitions than others.
    TrafficClass,
    /// Switches or receivers report congestion.
    Congestion,
    /// Storage traffic slows a job at the same port.
    StorageInterference,
    /// One rank begins most iterations late.
    Straggler,
    /// Several ranks compute longer than the others.
    Imbalance,
    /// Most waiting is for the messages of one rank.
    LateSender,
    /// Messages wait at one rank, which asks for their data late.
    LateReceiver,
    /// Messages wait at most ranks between the ready-to-send and the data.
    RendezvousStall,
    /// A port sends small messages at a rate that costs much of the time of its processes.
    SmallMessages,
    /// Packets are missing in the captures, or were sampled.
    CaptureIncomplete,
}

impl FindingKind {
    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FabricLoss => "fabric_loss",
            Self::ReceiverNotReady => "receiver_not_ready",
            Self::Incast => "incast",
            Self::SaturatedLink => "saturated_link",
            Self::IdleRail => "idle_rail",
            Self::SingleSourcePort => "single_source_port",
            Self::TrafficClass => "traffic_class",
            Self::Congestion => "congestion",
            Self::StorageInterference => "storage_interference",
            Self::Straggler => "straggler",
            Self::Imbalance => "imbalance",
            Self::LateSender => "late_sender",
            Self::LateReceiver => "late_receiver",
            Self::RendezvousStall => "rendezvous_stall",
            Self::SmallMessages => "small_messages",
            Self::CaptureIncomplete => "capture_incomplete",
        }
    }

    /// True for findings on the time that ranks need between their messages.
    const fn is_of_ranks(self) -> bool {
        matches!(self, Self::Straggler | Self::Imbalance | Self::LateSender)
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingSeverity {
    /// Worth knowing.
    Info,
    /// Costs time, or may soon.
    Warning,
    /// Costs much time, or makes results wrong.
    Critical,
}

impl FindingSeverity {
    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// `Critical` if the condition holds, otherwise `Warning`.
    const fn critical_if(is_critical: bool) -> Self {
        if is_critical { Self::Critical } else { Self::Warning }
    }
}

/// Confidence in the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingConfidence {
    /// Other causes are possible.
    Low,
    /// Other causes are unlikely.
    Medium,
    /// The packets show the cause itself.
    High,
}

impl FindingConfidence {
    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagnosisFinding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Severity.
    pub severity: FindingSeverity,
    /// Confidence in the cause.
    pub confidence: FindingConfidence,
    /// The port, path, rank or capture that it is about.
    pub subject: String,
    /// One sentence.
    pub sentence: String,
    /// The numbers of the finding, by name; names end with their unit.
    pub numbers: Vec<(&'static str, f64)>,
    /// The command that shows it, without the program and the inputs.
    pub evidence: &'static str,
    /// Recommended action.
    pub advice: &'static str,
}

/// The findings, and the checks that were not made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The findings, most severe first.
    pub findings: Vec<DiagnosisFinding>,
    /// The checks that were not made, each with the reason, as one phrase.
    pub unchecked: Vec<String>,
}

/// Input of the findings.
pub(crate) struct DiagnosisInput<'a> {
    profile: &'a Profile,
    /// The waits of the jobs; `None` for a profile, which has no single messages.
    waits: Option<&'a [JobWaits]>,
    speed: Option<&'a Speed>,
    /// The profile holds one of several jobs only.
    is_selected: bool,
}

impl DiagnosisInput<'_> {
    /// True if packets are known to be missing in the captures.
    fn is_incomplete(&self) -> bool {
        self.profile.trust.verdict == TrustVerdict::Incomplete
    }

    /// True if the captures probably hold all traffic of the ports in them.
    fn sees_all_ports(&self) -> bool {
        sees_all_ports(self.profile)
    }

    const fn is_sampled(&self) -> bool {
        self.profile.sampling.is_some()
    }

    /// True if the job may be a part of a larger job. Then its ranks seem to wait or compute while
    /// they exchange messages that count for the other part.
    fn is_part(&self, job: u32) -> bool {
        self.profile.jobs.iter().any(|row| row.job == job && row.may_be_part)
    }

    /// Jobs with a connection of which only one direction was captured. Then all messages of the other
    /// direction are missing, and a rank that waits for them seems to compute.
    fn jobs_that_miss_directions(&self) -> BTreeSet<u32> {
        self.one_way_connections().filter_map(|row| row.job).collect()
    }

    /// Jobs with a connection whose requests are missing in the capture, although its receiver acknowledged
    /// them. A rank that waits for their messages seems to compute.
    fn jobs_that_miss_requests(&self) -> BTreeSet<u32> {
        let health = self.profile.health.iter().filter(|row| row.health.lost_requests > 0);
        let connection = |row: HealthRow| self.profile.connections.get(row.connection as usize)?.job;
        health.filter_map(connection).collect()
    }

    /// Connections of which only one direction was captured.
    fn one_way_connections(&self) -> impl Iterator<Item = &ConnectionRow> {
        let connected = || {
            let rows = self.profile.connections.iter();
            rows.filter(|row| row.kind == TrafficKind::Data && !row.key().is_datagram())
        };
        let receivers: BTreeSet<(Endpoint, Qpn)> = connected().map(|row| (row.dst, row.dest_qp)).collect();
        // Two unknown partners between the same ports may be each other's.
        let mut unpaired: BTreeMap<(Endpoint, Endpoint), usize> = BTreeMap::new();
        for row in connected().filter(|row| row.src_qp.is_none()) {
            *unpaired.entry((row.src, row.dst)).or_default() += 1;
        }
        let is_alone = move |row: &&ConnectionRow| {
            let unpaired = |src, dst| unpaired.get(&(src, dst)).copied().unwrap_or(0);
            match row.src_qp {
                Some(qpn) => !receivers.contains(&(row.src, qpn)),
                None => unpaired(row.src, row.dst) > unpaired(row.dst, row.src),
            }
        };
        connected().filter(is_alone)
    }
}

/// Finds the problems. `waits` are those of the jobs if captures were read, `speed` is that of the
/// links if it is known, and `is_selected` states that the profile holds one of several jobs only.
#[must_use]
pub fn diagnose(profile: &Profile, waits: Option<&[JobWaits]>, speed: Option<&Speed>, is_selected: bool) -> Diagnosis {
    let input = DiagnosisInput { profile, waits, speed, is_selected };
    let mut diagnosis = Diagnosis::default();
    capture(&input, &mut diagnosis);
    directions(&input, &mut diagnosis);
    unacknowledged(&input, &mut diagnosis);
    health::find(&input, &mut diagnosis);
    links::find(&input, &mut diagnosis);
    paths::find(&input, &mut diagnosis);
    parts(&input, &mut diagnosis);
    rails::find(&input, &mut diagnosis);
    storage::find(&input, &mut diagnosis);
    jobs::find(&input, &mut diagnosis);
    rendezvous::find(&input, &mut diagnosis);
    small_messages::find(&input, &mut diagnosis);
    // Stable, so findings of one kind keep their order.
    diagnosis
        .findings
        .sort_by(|a, b| (b.severity, b.confidence).cmp(&(a.severity, a.confidence)).then_with(|| a.kind.cmp(&b.kind)));
    diagnosis
}

/// Lists the checks that are impossible without packets, or without those of the opposite direction.
fn directions(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    if input.profile.connections.is_empty() {
        diagnosis.unchecked.push("anything, because there is no InfiniBand packet".to_owned());
    } else if input.one_way_connections().next().is_some() {
        diagnosis.unchecked.push(
            "losses, retransmissions and response times of some connections, because only one of their directions was captured"
                .to_owned(),
        );
    }
}

/// Lists losses that may be those of the fabric or of the capture: the input that misses the packets
/// does not show whether they were acknowledged.
fn unacknowledged(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    if input.is_sampled() || input.is_incomplete() || input.one_way_connections().next().is_some() {
        return;
    }
    let missing = input.profile.health.iter().map(|row| row.health.unobserved_psns).filter(|psns| *psns > 0);
    let (connections, psns) = missing.fold((0, 0_u64), |(rows, sum), psns| (rows + 1, sum.saturating_add(psns)));
    if psns >= FEWEST_LOST {
        diagnosis.unchecked.push(format!(
            "losses of {}, because the capture holds neither their packets with {} nor the responses to them",
            count_of(connections, "connection"),
            count_of(psns, "PSN")
        ));
    }
}

/// Names the jobs whose ranks and rails cannot be compared, because they may be parts of one job.
fn parts(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    for job in input.profile.jobs.iter().filter(|job| job.may_be_part) {
        diagnosis.unchecked.push(format!(
            "idle rails, stragglers, imbalance and late receivers of job {}, because it may be a part of a job on several ports",
            job.job
        ));
    }
}

/// Missing records, as a share of the packets, from which the numbers of a capture are too wrong to
/// use.
const CRITICAL_CAPTURE_LOSS: f64 = 0.01;
/// Missing records: a capture that begins or ends in the middle of traffic may have one of the two
/// observations of a packet.
const FEWEST_LOST: u64 = 3;

/// Whether the capture can be trusted.
fn capture(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let profile = input.profile;
    let trust = &profile.trust;
    let coverage = &profile.coverage;
    let finding = |severity, sentence: String, numbers| DiagnosisFinding {
        kind: FindingKind::CaptureIncomplete,
        severity,
        confidence: FindingConfidence::High,
        subject: "capture".to_owned(),
        sentence,
        numbers,
        evidence: "summary",
        advice: "Check the drop counters of the capturing program and of the mirror, and capture fewer ports per sink.",
    };
    if let Some(sampling) = &profile.sampling {
        let numbers = sampling.one_in.map(|one_in| ("one_in_packets", one_in)).into_iter().collect();
        let sentence = format!("{}: losses, waits and peaks are unknown.", sampling.describe());
        diagnosis.findings.push(DiagnosisFinding {
            advice: "Mirror all packets of a few ports to find losses, waits and peaks.",
            ..finding(FindingSeverity::Info, sentence, numbers)
        });
        return;
    }
    let lost =
        trust.lost_by_capture_packets.at_least.max(coverage.interface_drops).max(coverage.lost_mirrored_frames());
    let undecoded = coverage.failed() as f64 / coverage.records.max(1) as f64;
    let ends_early = profile.inputs.iter().filter(|input| input.ends_early).count();
    if lost >= FEWEST_LOST {
        let share = lost as f64 / (coverage.infiniband + lost) as f64;
        let numbers = vec![("lost_packets_at_least", lost as f64), ("lost_share_at_least", share)];
        let sentence = "The captures miss packets: counts are lower bounds, and findings that missing packets could simulate are left out.";
        let severity = FindingSeverity::critical_if(share >= CRITICAL_CAPTURE_LOSS);
        diagnosis.findings.push(finding(severity, sentence.to_owned(), numbers));
        diagnosis.unchecked.push("loss on the fabric and stragglers, because the captures miss packets".to_owned());
    }
    if undecoded >= CRITICAL_CAPTURE_LOSS {
        let numbers = vec![("undecoded_records", coverage.failed() as f64), ("undecoded_share", undecoded)];
        let sentence = "Some records could not be decoded, so no number includes their traffic.".to_owned();
        diagnosis.findings.push(DiagnosisFinding {
            advice: "`ibscope inspect` shows the records; check the link type and the snap length.",
            ..finding(FindingSeverity::Warning, sentence, numbers)
        });
    }
    if ends_early > 0 {
        let numbers = vec![("truncated_inputs", ends_early as f64)];
        let sentence = "A capture file was not read to its end: it is truncated or damaged.".to_owned();
        diagnosis.findings.push(DiagnosisFinding {
            advice: "Stop the capturing program with SIGINT, and copy the file after it ended.",
            ..finding(FindingSeverity::Warning, sentence, numbers)
        });
    }
}
