//! Findings on the rates of links: a full link, and many senders that fill it.

use super::{Diagnosis, DiagnosisFinding, DiagnosisInput, FindingConfidence, FindingKind, FindingSeverity};
use crate::analysis::health::LinkDirection;
use crate::analysis::link_rates::{BUSY_SHARE, LinkRates, LinkSeries, link_rates};

/// Share of the time with at least 90 % of the capacity: short bursts at the full rate are normal.
const LEAST_BUSY: f64 = 0.1;
const CRITICAL_BUSY: f64 = 0.5;
/// Busy bins, so that one burst is no finding.
const FEWEST_BUSY_BINS: usize = 10;
/// Ports that send at once in most busy bins of an incast.
const FEWEST_SENDERS: u32 = 4;
/// Share of the links to ports that are full in an incast; if more are, all ports receive much, as
/// in an exchange of all with all.
const MOST_FULL_LINKS: f64 = 0.25;
/// Links that a subject names.
const LISTED: usize = 3;

pub(super) fn find(input: &DiagnosisInput<'_>, diagnosis: &mut Diagnosis) {
    if input.is_sampled() {
        diagnosis.unchecked.push("saturated links and incast, because the captures are sampled".to_owned());
        return;
    }
    let Ok(rates) = link_rates(input.profile, input.speed, input.is_selected, None) else {
        diagnosis.unchecked.push("saturated links and incast, because the profile has no timeline".to_owned());
        return;
    };
    let unknown = rates.links.iter().filter(|link| link.capacity.known().is_none()).count();
    if unknown > 0 {
        let which = if unknown < rates.links.len() { "the speed of some links" } else { "the speed of the links" };
        let why = format!("saturated links and incast, because {which} is not known (--link)");
        diagnosis.unchecked.push(why);
    }
    if unknown == rates.links.len() {
        return;
    }
    if rates.links.iter().all(|link| link.busy.is_none()) {
        diagnosis.unchecked.push("saturated links and incast, because the bins are wider than 100 ms".to_owned());
        return;
    }
    let full: Vec<&LinkSeries> = rates.links.iter().filter(|link| is_full(&rates, link)).collect();
    let receivers = rates.links.iter().filter(|link| link.direction == LinkDirection::To).count();
    let full_receivers = full.iter().filter(|link| link.direction == LinkDirection::To).count();
    let is_local = full_receivers as f64 <= (MOST_FULL_LINKS * receivers as f64).max(1.0);
    let (incast, saturated): (Vec<&LinkSeries>, Vec<&LinkSeries>) =
        full.into_iter().partition(|link| is_local && is_incast(&rates, link));
    // The sender of an incast fills no link, so any other full link is a problem of its own.
    for (kind, links) in [(FindingKind::Incast, incast), (FindingKind::SaturatedLink, saturated)] {
        diagnosis.findings.extend(finding(&rates, kind, links));
    }
}

/// The bins of a link with at least 90 % of the capacity.
fn busy_senders(rates: &LinkRates, link: &LinkSeries) -> Vec<u32> {
    let is_busy = |bin: &&_| link.share(rates.rate(bin)).is_some_and(|share| share >= BUSY_SHARE);
    link.bins.iter().filter(is_busy).map(|bin| bin.senders).collect()
}

fn is_full(rates: &LinkRates, link: &LinkSeries) -> bool {
    link.busy.is_some_and(|busy| busy >= LEAST_BUSY) && busy_senders(rates, link).len() >= FEWEST_BUSY_BINS
}

/// The number of ports that send to the port in most of its busy bins.
fn typical_senders(rates: &LinkRates, link: &LinkSeries) -> u32 {
    let mut senders = busy_senders(rates, link);
    senders.sort_unstable();
    senders.get(senders.len() / 2).copied().unwrap_or_default()
}

fn is_incast(rates: &LinkRates, link: &LinkSeries) -> bool {
    link.direction == LinkDirection::To && typical_senders(rates, link) >= FEWEST_SENDERS
}

/// One finding for all of these links, the busiest first: a stream fills the links of both ends.
fn finding(rates: &LinkRates, kind: FindingKind, mut links: Vec<&LinkSeries>) -> Option<DiagnosisFinding> {
    let busy = |link: &LinkSeries| link.busy.unwrap_or_default();
    let is_from = |link: &LinkSeries| link.direction == LinkDirection::From;
    links.sort_by(|a, b| busy(b).total_cmp(&busy(a)).then_with(|| is_from(a).cmp(&is_from(b))));
    let first = *links.first()?;
    let names =
        links.iter().take(LISTED).map(|link| format!("link {} port {}", link.direction.name(), link.port.name()));
    let mut subject = names.collect::<Vec<_>>().join(", ");
    if links.len() > LISTED {
        subject = format!("{subject} and {} more", links.len() - LISTED);
    }
    let mean = first.mean.and_then(|mean| first.share(mean)).unwrap_or_default();
    let mut numbers = vec![
        ("links", links.len() as f64),
        ("busy_share", busy(first)),
        ("mean_utilization", mean),
        ("bin_ns", rates.bin_ns as f64),
    ];
    if first.direction == LinkDirection::To {
        numbers.push(("senders_at_once", f64::from(typical_senders(rates, first))));
    }
    let (sentence, advice) = if kind == FindingKind::Incast {
        (
            "Many ports send to this port at once and fill its link.",
            "Spread the receivers, for example with another algorithm of the collective operation, or limit the senders.",
        )
    } else {
        (
            "The link carries at least 90 % of its capacity for much of the time.",
            "Move ranks or storage away from this port, or use more rails.",
        )
    };
    Some(DiagnosisFinding {
        kind,
        severity: FindingSeverity::critical_if(busy(first) >= CRITICAL_BUSY),
        confidence: FindingConfidence::High,
        subject,
        sentence: sentence.to_owned(),
        numbers,
        evidence: "rates --by link",
        advice,
    })
}
