//! Findings on ECMP paths, traffic classes and partitions.

use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::analysis::GroupBy;
use crate::analysis::paths::{PathFinding, PathProblem, findings};
use crate::analysis::rates::{DEFAULT_WINDOW_NS, WIRE_BYTES, rates};
use crate::model::{Profile, TrafficKind};
use std::collections::BTreeSet;

/// Ports from which on traffic can take several paths that matter.
const FEWEST_PORTS: usize = 3;
/// With fewer ports: a rate in bytes per second, 1 Gbit/s, below which one path is surely enough.
const LEAST_RATE: f64 = 1e9 / 8.0;

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    let all = findings(input.profile);
    let of = |is_own: fn(&PathProblem) -> bool| all.iter().filter(move |finding| is_own(&finding.problem));
    let one_port = || of(|problem| matches!(problem, PathProblem::OneSourcePort { .. }));
    if one_port().next().is_some() && matters(input.profile) {
        diagnosis.findings.extend(summed(one_port(), |pairs, first| DiagnosisFinding {
            kind: FindingKind::SingleSourcePort,
            sentence: "All queue pairs from one port to another send from one UDP source port, so ECMP puts all of their packets on one path.".to_owned(),
            evidence: "paths --by pair",
            advice: "Check the flow label setting of the adapters, so that each queue pair gets a source port of its own.",
            ..base(pairs, first)
        }));
    }
    let classes = of(|problem| matches!(problem, PathProblem::OneDirection { .. }));
    diagnosis.findings.extend(summed(classes, |pairs, first| DiagnosisFinding {
        sentence: "The two directions of connections travel in different traffic classes.".to_owned(),
        advice: "Set the same service level, DSCP or priority at both ends.",
        ..base(pairs, first)
    }));
    let partitions = of(|problem| matches!(problem, PathProblem::UnexpectedPartition { .. }));
    diagnosis.findings.extend(summed(partitions, |pairs, first| DiagnosisFinding {
        sentence: "Connections use a partition other than that of nearly all packets.".to_owned(),
        severity: FindingSeverity::Info,
        advice: "Check the partition key of these processes.",
        ..base(pairs, first)
    }));
}

/// True if the choice of the path can matter: several ports, or a high rate.
fn matters(profile: &Profile) -> bool {
    let data = profile.connections.iter().filter(|row| row.kind == TrafficKind::Data);
    let ports: BTreeSet<_> = data.flat_map(|row| [row.src, row.dst]).collect();
    if ports.len() >= FEWEST_PORTS {
        return true;
    }
    rates(profile, Some(GroupBy::Endpoint), None, DEFAULT_WINDOW_NS)
        .is_ok_and(|rates| rates.pairs.values().any(|pair| rates.peak(pair.peaks[WIRE_BYTES]) >= LEAST_RATE))
}

/// One finding for all pairs with the problem; the pair with the most packets is named.
fn summed<'a>(
    found: impl Iterator<Item = &'a PathFinding>,
    finding: impl Fn(&[&PathFinding], &PathFinding) -> DiagnosisFinding,
) -> Option<DiagnosisFinding> {
    let pairs: Vec<&PathFinding> = found.collect();
    let first = *pairs.iter().max_by_key(|pair| pair.packets)?;
    Some(finding(&pairs, first))
}

fn base(pairs: &[&PathFinding], first: &PathFinding) -> DiagnosisFinding {
    let more = match pairs.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    DiagnosisFinding {
        kind: FindingKind::TrafficClass,
        severity: FindingSeverity::Warning,
        confidence: FindingConfidence::High,
        subject: format!("path {} -> {}{more}", first.src.name(), first.dst.name()),
        sentence: String::new(),
        numbers: vec![
            ("paths", pairs.len() as f64),
            ("connections", pairs.iter().map(|pair| pair.connections).sum::<u64>() as f64),
            ("packets", pairs.iter().map(|pair| pair.packets).sum::<u64>() as f64),
        ],
        evidence: "paths",
        advice: "",
    }
}
