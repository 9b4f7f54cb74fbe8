//! The sampling of a capture: its rate, and how many observation points sample each connection.
//!
//! Connections go in, with the rate that the user gives or the samples state, if any. A weight for
//! each connection comes out ([`SamplingOfConnections`]). The PSNs of requests are consecutive, so
//! the share of them that a random sample holds shows the rate, and how many ports were sampled:
//!
//! ```text
//! rate 1/N, one port     1/N of the PSNs
//! rate 1/N, both ports   2/N - 1/N² of the PSNs
//! ```
//! Invariant: a weight exists only if the PSNs do not contradict it. `docs/method.md` has the rules.

use super::coverage::{looks_sampled, reverse_connection};
use super::{IdentityEvidence, QueuePairPartners};
use crate::model::sampling::RateSource;
use crate::model::traffic::ConnectionTotals;
use crate::model::{ConnectionKey, Sampling, SamplingWeight, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Standard deviations between an observed share and an expected one that are no chance: fewer than
/// one in a million.
const BEYOND_CHANCE: f64 = 5.0;
/// Logarithm of the likelihood ratio that decides between one port and two: 400 to one.
const DECISIVE: f64 = 6.0;
/// Distances between PSNs that show whether the sample is random.
const MIN_STEPS: u64 = 60;
/// Share of the variance of a random sample's distances below which a sample is periodic.
const PERIODIC_SHARE: f64 = 0.2;
/// Expected packets observed at two ports whose absence shows that there is one port.
const EXPECTED_TWICE: f64 = 10.0;

/// A sampling rate that does not come from the PSNs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatedRate {
    /// An observation point takes one of this many packets.
    pub one_in: f64,
    /// Where the rate comes from.
    pub source: RateSource,
    /// The samples show that packets are taken at a regular distance.
    pub is_periodic: bool,
}

/// The sampling of a capture and of its connections.
#[derive(Clone, Debug, Default)]
pub struct SamplingOfConnections {
    /// The sampling; `None` if the capture is not sampled.
    pub sampling: Option<Sampling>,
    /// The weight of each connection's samples, in connection order; `None` where it is unknown.
    pub weights: Vec<Option<SamplingWeight>>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Request PSNs between the first and the last observed one.
#[derive(Clone, Copy, Debug, Default)]
struct PsnShare {
    /// Observed PSNs without the first one: the ends of the span were observed by definition.
    seen: f64,
    /// PSNs of the span without the first one.
    sent: f64,
    /// Observations of requests, and the PSNs among them.
    observations: f64,
    psns: f64,
}

impl PsnShare {
    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.sent += other.sent;
        self.observations += other.observations;
        self.psns += other.psns;
    }

    /// Logarithm of the likelihood of a random sample that takes this share of the packets.
    fn likelihood(&self, share: f64) -> f64 {
        self.seen * share.ln() + (self.sent - self.seen) * (1.0 - share).max(f64::MIN_POSITIVE).ln()
    }

    /// True if chance explains the difference from this share.
    fn agrees(&self, share: f64) -> bool {
        let deviation = (self.sent * share * (1.0 - share)).sqrt();
        (self.seen - self.sent * share).abs() <= BEYOND_CHANCE * deviation + 2.0
    }

    /// The share of the PSNs that was observed; `None` if there are too few.
    fn share(&self) -> Option<f64> {
        (self.seen >= MIN_STEPS as f64).then(|| self.seen / self.sent)
    }
}

/// Two ports in either order.
type PortPair = (Endpoint, Endpoint);

fn port_pair(key: &ConnectionKey) -> PortPair {
    (key.src.min(key.dst), key.src.max(key.dst))
}

/// Detects the sampling of a capture.
pub(super) fn detect(evidence: &IdentityEvidence<'_>, paired: &QueuePairPartners) -> SamplingOfConnections {
    let connections = evidence.connections;
    if evidence.sampled.is_none() && !looks_sampled(connections) {
        return SamplingOfConnections::default();
    }
    let mut shares: BTreeMap<PortPair, PsnShare> = BTreeMap::new();
    for own in connections {
        if let Some(share) = psn_share(own, connections, paired) {
            shares.entry(port_pair(&own.key)).or_default().add(&share);
        }
    }
    let mut all = PsnShare::default();
    shares.values().for_each(|share| all.add(share));
    let spread = Spread::of(connections, paired);
    let mut found = match evidence.sampled {
        Some(stated) => with_stated_rate(connections, &shares, &all, stated, &spread),
        None => with_inferred_rate(connections, &shares, &all, &spread),
    };
    found.notes.extend(found.sampling.filter(|sampling| sampling.is_periodic).map(|_| {
        "the packets were sampled at a regular distance, not at random: intervals are conservative, but a distance \
         that coincides with a pattern of the traffic may hide packets from every sample; sample at random"
            .to_owned()
    }));
    found
}

/// The share of a connection's PSNs that was observed; `None` without usable PSNs. A READ takes the
/// PSNs of its responses, so connections with READs show no share.
fn psn_share(
    own: &ConnectionTotals,
    connections: &[Box<ConnectionTotals>],
    paired: &QueuePairPartners,
) -> Option<PsnShare> {
    let continuity = &own.continuity;
    let is_numbered = own.key.kind == TrafficKind::Data && !own.key.is_datagram();
    let has_reads = continuity.expected_responses > 0
        || reverse_connection(connections, &own.key, paired).is_some_and(|back| back.continuity.response_packets > 0);
    let is_usable = is_numbered && !has_reads && !continuity.uncertain && !continuity.restarted;
    let psns = continuity.request_packets;
    let share = PsnShare {
        seen: psns.saturating_sub(1) as f64,
        sent: (psns + continuity.missing_requests).saturating_sub(1) as f64,
        observations: (psns + continuity.repeated_requests) as f64,
        psns: psns as f64,
    };
    (is_usable && psns > 0).then_some(share)
}

/// Whether the distances between PSNs are those of a random sample.
struct Spread {
    /// Sum over the connections: distances, and their squares relative to the mean distance.
    steps: f64,
    relative_variance: f64,
    /// A connection has far too equal distances.
    is_regular: bool,
}

impl Spread {
    fn of(connections: &[Box<ConnectionTotals>], paired: &QueuePairPartners) -> Self {
        let mut spread = Self { steps: 0.0, relative_variance: 0.0, is_regular: false };
        for own in connections.iter().filter(|own| psn_share(own, connections, paired).is_some()) {
            let steps = &own.continuity.psn_steps;
            if steps.steps < MIN_STEPS {
                continue;
            }
            let mean = steps.sum as f64 / steps.steps as f64;
            let relative = (steps.squares as f64 / steps.steps as f64) / (mean * mean) - 1.0;
            spread.is_regular |= mean > 1.0 && relative < PERIODIC_SHARE * (1.0 - 1.0 / mean);
            spread.steps += steps.steps as f64;
            // A random sample has geometric distances, of relative variance 1 - 1 / mean.
            spread.relative_variance += steps.steps as f64 * (relative + 1.0 / mean - 1.0);
        }
        spread
    }

    /// The excess of the relative variance over that of a random sample, in standard errors.
    fn excess(&self) -> f64 {
        // The relative variance of an exponential distribution has a standard error of 2 / sqrt(n).
        if self.steps > 0.0 { self.relative_variance / self.steps.sqrt() / 2.0 } else { 0.0 }
    }

    fn is_periodic(&self) -> bool {
        self.is_regular || self.excess() < -BEYOND_CHANCE
    }

    fn is_bursty(&self) -> bool {
        self.excess() > BEYOND_CHANCE
    }
}

/// The share of the PSNs that is observed if each of `ports` ports takes one packet of `one_in`.
fn share_of(one_in: f64, ports: u32) -> f64 {
    1.0 - (1.0 - 1.0 / one_in).powi(ports.cast_signed())
}

fn with_stated_rate(
    connections: &[Box<ConnectionTotals>],
    shares: &BTreeMap<PortPair, PsnShare>,
    all: &PsnShare,
    stated: StatedRate,
    spread: &Spread,
) -> SamplingOfConnections {
    let StatedRate { one_in, source, is_periodic } = stated;
    let is_periodic = is_periodic || spread.is_periodic();
    let mut notes = Vec::new();
    let ports_of = |share: &PsnShare| {
        let ratio = share.likelihood(share_of(one_in, 2)) - share.likelihood(share_of(one_in, 1));
        (ratio.abs() >= DECISIVE).then_some(if ratio > 0.0 { 2 } else { 1 })
    };
    let decided: BTreeMap<PortPair, u32> =
        shares.iter().filter_map(|(pair, share)| Some((*pair, ports_of(share)?))).collect();
    let common = decided.values().min().filter(|least| decided.values().max() == Some(least)).copied();
    let common = if decided.is_empty() { Some(ports_of(all).unwrap_or(1)) } else { common };
    let agrees = |pair: &PortPair, share: &PsnShare| match decided.get(pair).copied().or(common) {
        Some(ports) => share.agrees(share_of(one_in, ports)),
        None => true,
    };
    // Regular sampling may favor or miss a connection.
    let wrong = shares.iter().filter(|(pair, share)| !is_periodic && !agrees(pair, share)).count();
    if wrong > 0 {
        let percent = 100.0 * all.seen / all.sent;
        notes.push(format!(
            "no estimates: the capture holds {percent:.3} % of the PSNs, which is not what one packet in {one_in} at \
             one port or at both would leave ({wrong} of {} pairs of ports differ); check --sampled, or whether the \
             mirror lost packets",
            shares.len()
        ));
    } else if decided.is_empty() && ports_of(all).is_none() {
        notes.push(
            "estimates assume that one port of each pair is sampled, because too few PSNs show whether both are; if \
             both are sampled, all estimates are twice too large"
                .to_owned(),
        );
    }
    let weight = |own: &ConnectionTotals| {
        let ports = decided.get(&port_pair(&own.key)).copied().or(common)?;
        (wrong == 0).then_some(SamplingWeight { one_in, ports })
    };
    let weights: Vec<Option<SamplingWeight>> = connections.iter().map(|own| weight(own)).collect();
    let unclear = weights.iter().filter(|weight| weight.is_none()).count();
    if wrong == 0 && unclear > 0 {
        notes.push(format!(
            "{unclear} connections have no estimate: some pairs of ports are sampled at both ports, and too few PSNs \
             show whether theirs is"
        ));
    }
    let known = (wrong == 0).then_some(one_in);
    let sampling = Sampling { one_in: known, source, rate_variance: 0.0, is_periodic };
    SamplingOfConnections { sampling: Some(sampling), weights, notes }
}

fn with_inferred_rate(
    connections: &[Box<ConnectionTotals>],
    shares: &BTreeMap<PortPair, PsnShare>,
    all: &PsnShare,
    spread: &Spread,
) -> SamplingOfConnections {
    let is_periodic = spread.is_periodic();
    let unknown = |reason: &str| SamplingOfConnections {
        sampling: Some(Sampling { one_in: None, source: RateSource::Inferred, rate_variance: 0.0, is_periodic }),
        weights: vec![None; connections.len()],
        notes: vec![format!(
            "the capture looks sampled, but {reason}, so there are no estimates; give the rate with --sampled 1/N"
        )],
    };
    let Some(share) = all.share() else { return unknown("too few PSNs show the rate") };
    if spread.is_bursty() {
        return unknown("packets are missing in bursts, as behind an overloaded mirror");
    }
    let agree = |one: f64| shares.values().all(|own| own.agrees(one) || own.agrees(2.0 * one - one * one));
    // Ports sampled once and twice: the share of the former.
    let lowest = shares.values().filter_map(PsnShare::share).fold(share, f64::min);
    let mut low = PsnShare::default();
    shares.values().filter(|own| own.share().is_some_and(|own| own < 1.4 * lowest)).for_each(|own| low.add(own));
    let is_uniform = shares.values().all(|own| own.agrees(share));
    let (one_in, rate_variance, is_mixed) = if is_uniform || is_periodic {
        // Observations per transmission, with those at a second port.
        let per_transmission = share * all.observations / all.psns;
        (1.0 / per_transmission, (1.0 - share) / all.seen, false)
    } else if let Some(one) = low.share().filter(|one| agree(*one)) {
        (1.0 / one, (1.0 - one) / low.seen, true)
    } else {
        return unknown("connections miss different shares of their PSNs");
    };
    let twice = all.psns * share / 4.0;
    let is_one_port = twice >= EXPECTED_TWICE && all.observations - all.psns < twice / 2.0;
    let weight = |own: &ConnectionTotals| {
        let ports = match shares.get(&port_pair(&own.key)) {
            _ if !is_mixed => u32::from(is_one_port),
            Some(own) => {
                let ratio = own.likelihood(share_of(one_in, 2)) - own.likelihood(share_of(one_in, 1));
                if ratio.abs() < DECISIVE {
                    return None;
                }
                if ratio > 0.0 { 2 } else { 1 }
            }
            None => return None,
        };
        Some(SamplingWeight { one_in, ports })
    };
    let weights = connections.iter().map(|own| weight(own)).collect();
    let sampling =
        Sampling { one_in: Some(one_in), source: RateSource::Inferred, rate_variance, is_periodic };
    let error = 100.0 * 2.0 * rate_variance.sqrt();
    let note = format!(
        "the capture looks sampled: the gaps between PSNs show one packet in {one_in:.1} (± {error:.1} %), an inferred \
         rate; if the rate is known, give it with --sampled 1/N"
    );
    SamplingOfConnections { sampling: Some(sampling), weights, notes: vec![note] }
}
