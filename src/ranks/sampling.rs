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

use super::IdentityEvidence;
use super::coverage::looks_sampled;
use crate::model::sampling::{EstimateQuality, RateSource};
use crate::model::traffic::ConnectionTotals;
use crate::model::{Continuity, Sampling, SamplingWeight, TrafficKind, count_of};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Standard deviations between an observed and an expected share that chance cannot explain: the
/// probability is below one in a million.
const BEYOND_CHANCE: f64 = 5.0;
/// Logarithm of the likelihood ratio that decides between one port and two: 400 to one.
const DECISIVE: f64 = 6.0;
/// Samples are not random if the number of packets observed at two ports is this many standard
/// deviations below the expected number. A wrong conclusion only makes intervals wider.
const BEYOND_COMMON: f64 = 4.0;
/// Number of PSNs, or of distances between them, that a decision on the sample needs.
const MIN_STEPS: u64 = 60;
/// Share of the variance of a random sample's distances below which a sample is periodic.
const PERIODIC_SHARE: f64 = 0.2;
/// Number of packets, and share of them that appear twice, from which all packets count as
/// appearing twice.
const MIN_TWICE: f64 = 8.0;
const TWICE_SHARE: f64 = 0.6;
/// Number of packets expected at two ports from which far fewer observed ones show that there is
/// one port.
const EXPECTED_TWICE: f64 = 10.0;

/// A sampling rate that does not come from the PSNs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatedRate {
    /// An observation point takes one of this many packets; `None` if the samples have several
    /// rates.
    pub one_in: Option<f64>,
    /// Source of the rate.
    pub source: RateSource,
    /// The sampler takes packets at a regular distance.
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

/// PSNs between the first and the last observed one of the connections between two ports.
#[derive(Clone, Copy, Debug, Default)]
struct PsnShare {
    /// Observed PSNs without the first one of each connection: the ends of the span were observed
    /// by definition.
    seen: f64,
    /// PSNs of the spans without the first ones.
    sent: f64,
    /// Packets with PSNs, and the number of them whose PSN was observed before.
    psns: f64,
    repeated: f64,
    /// The most READs among the requests: a READ takes the PSNs of its responses, so that `seen` and
    /// `sent` count its first PSN twice.
    most_reads: f64,
    /// There are READs or their responses.
    has_responses: bool,
}

impl PsnShare {
    fn of(own: &ConnectionTotals) -> Self {
        let continuity = &own.continuity;
        let Continuity { request_packets, response_packets, expected_responses, .. } = *continuity;
        let mut share = Self {
            psns: (request_packets + response_packets) as f64,
            repeated: (continuity.requests_again + continuity.responses_again) as f64,
            has_responses: response_packets + expected_responses > 0,
            ..Self::default()
        };
        // Datagrams have one sequence for all destinations.
        if !continuity.uncertain && !continuity.restarted && !own.key.is_datagram() {
            share.seen = (request_packets.saturating_sub(1) + response_packets) as f64;
            let span = request_packets + continuity.missing_requests + expected_responses;
            share.sent = span.saturating_sub(1) as f64;
            share.most_reads = request_packets.min(expected_responses) as f64;
        }
        share
    }

    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.sent += other.sent;
        self.psns += other.psns;
        self.repeated += other.repeated;
        self.most_reads += other.most_reads;
        self.has_responses |= other.has_responses;
    }

    /// Logarithm of the likelihood of a random sample that takes this share of the packets.
    fn likelihood(&self, share: f64) -> f64 {
        self.seen * share.ln() + (self.sent - self.seen).max(0.0) * (1.0 - share).max(f64::MIN_POSITIVE).ln()
    }

    /// True if chance explains the difference from this share, for some number of READs.
    fn agrees(&self, share: f64) -> bool {
        let excess = |own: &Self| {
            let tolerance = BEYOND_CHANCE * (own.sent * share * (1.0 - share)).sqrt() + 2.0;
            (own.seen - own.sent * share, tolerance)
        };
        let ((most, above), (least, below)) = (excess(self), excess(&self.with_most_reads()));
        most >= -above && least <= below
    }

    /// The share if as many requests as possible are READs.
    fn with_most_reads(&self) -> Self {
        let seen = (self.seen - self.most_reads).max(0.0);
        Self { seen, sent: (self.sent - self.most_reads).max(seen), ..*self }
    }

    /// The share of the PSNs that was observed; `None` if there are too few.
    fn share(&self) -> Option<f64> {
        (self.seen >= MIN_STEPS as f64).then(|| self.seen / self.sent)
    }

    /// True if packets appear twice. Two ports that sample independently hold at most a third of
    /// their packets both.
    fn comes_twice(&self) -> bool {
        self.psns >= MIN_TWICE && self.repeated > TWICE_SHARE * self.psns
    }

    /// True if the PSNs are those of two ports, and too few packets were taken at both: two random
    /// samples have one packet in `2 N - 1` in common.
    fn is_exclusive(&self, one_in: f64) -> bool {
        let expected = self.psns / (2.0 * one_in - 1.0);
        let is_rare = self.repeated < expected - BEYOND_COMMON * expected.sqrt();
        is_rare && (self.ports(one_in) == Some(2) || !self.comes_twice() && self.ports_by_share(one_in) == Some(2))
    }

    /// The number of ports whose share the PSNs have, for any number of READs.
    fn ports_by_share(&self, one_in: f64) -> Option<u32> {
        let likely = |own: &Self| {
            let ratio = own.likelihood(share_of(one_in, 2)) - own.likelihood(share_of(one_in, 1));
            (ratio.abs() >= DECISIVE).then_some(if ratio > 0.0 { 2 } else { 1 })
        };
        likely(self).filter(|ports| likely(&self.with_most_reads()) == Some(*ports))
    }

    /// The number of ports that take one of `one_in` packets each; `None` if the PSNs do not show
    /// it. Two ports also take the same packet now and then.
    fn ports(&self, one_in: f64) -> Option<u32> {
        if self.comes_twice() {
            return Some(SamplingWeight::TWO_TOGETHER);
        }
        let twice = self.psns / one_in / 2.0;
        let by_repetition = match self.repeated {
            _ if twice < EXPECTED_TWICE => None,
            repeated if repeated < twice / 4.0 => Some(1),
            repeated if repeated > twice / 2.0 => Some(2),
            _ => None,
        };
        match (self.ports_by_share(one_in).filter(|ports| self.agrees(share_of(one_in, *ports))), by_repetition) {
            // Periodic samplers may take only one of two adjacent copies.
            (Some(2) | None, Some(1)) => None,
            // A library that retransmits without a loss looks like a second port.
            (Some(share), Some(repetition)) if share != repetition && self.has_responses => None,
            (Some(share), _) => Some(share),
            (None, repetition) => repetition,
        }
    }
}

/// Two ports in either order.
type PortPair = (Endpoint, Endpoint);

/// Detects the sampling of a capture.
pub(super) fn detect(evidence: &IdentityEvidence<'_>) -> SamplingOfConnections {
    let connections = evidence.connections;
    if evidence.sampled.is_none() && (evidence.has_unread_frames || !looks_sampled(connections)) {
        return SamplingOfConnections::default();
    }
    let mut shares: BTreeMap<PortPair, PsnShare> = BTreeMap::new();
    for own in connections.iter().filter(|own| own.key.kind == TrafficKind::Data) {
        shares.entry(own.key.port_pair()).or_default().add(&PsnShare::of(own));
    }
    let spread = Spread::of(connections);
    let mut found = match evidence.sampled {
        Some(StatedRate { one_in: Some(one_in), source, is_periodic }) => {
            with_stated_rate(connections, &shares, (one_in, source), is_periodic || spread.is_periodic())
        }
        Some(StatedRate { one_in: None, source, .. }) => {
            let is_periodic = spread.is_periodic();
            let sampling =
                Sampling { one_in: None, source, rate_variance: 0.0, is_periodic, largest_bytes: (0.0, 0.0) };
            let weights = vec![None; connections.len()];
            SamplingOfConnections { sampling: Some(sampling), weights, notes: Vec::new() }
        }
        None => with_inferred_rate(connections, &shares, &spread),
    };
    found.sampling.iter_mut().for_each(|sampling| sampling.largest_bytes = largest_bytes(connections));
    found.notes.extend(found.sampling.filter(|sampling| sampling.is_periodic).map(|_| {
        "the packets were sampled at a regular distance, not at random: intervals are conservative, but a distance \
         that coincides with a pattern of the traffic may hide packets from every sample; sample at random"
            .to_owned()
    }));
    found
}

/// Wire and payload bytes of the largest packets: the largest mean size of a connection's packets,
/// weighted by their sizes.
fn largest_bytes(connections: &[Box<ConnectionTotals>]) -> (f64, f64) {
    let data = connections.iter().filter(|own| own.key.kind == TrafficKind::Data);
    let mut quality = EstimateQuality::default();
    data.for_each(|own| quality.extend(&own.sampled));
    quality.largest_bytes()
}

/// Whether the distances between PSNs are those of a random sample.
struct Spread {
    /// Sum over the connections: distances, and their squares relative to the mean distance.
    steps: f64,
    relative_variance: f64,
    /// The distances of a connection are far too regular.
    is_regular: bool,
}

impl Spread {
    fn of(connections: &[Box<ConnectionTotals>]) -> Self {
        let mut spread = Self { steps: 0.0, relative_variance: 0.0, is_regular: false };
        for own in connections {
            let Continuity { psn_steps: steps, uncertain, restarted, expected_responses, .. } = &own.continuity;
            // A READ that is not sampled is a gap of many PSNs.
            if steps.steps < MIN_STEPS || *uncertain || *restarted || *expected_responses > 0 {
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
    let ports = if ports == SamplingWeight::TWO_TOGETHER { 1 } else { ports };
    1.0 - (1.0 - 1.0 / one_in).powi(ports.cast_signed())
}

fn with_stated_rate(
    connections: &[Box<ConnectionTotals>],
    shares: &BTreeMap<PortPair, PsnShare>,
    (one_in, source): (f64, RateSource),
    is_periodic: bool,
) -> SamplingOfConnections {
    let is_exclusive = shares.values().any(|share| share.is_exclusive(one_in));
    let is_periodic = is_periodic || is_exclusive;
    let ports: BTreeMap<PortPair, u32> =
        shares.iter().filter_map(|(pair, share)| Some((*pair, share.ports(one_in)?))).collect();
    let common = ports.values().min().filter(|least| ports.values().max() == Some(least)).copied();
    let ports_of = |pair: &PortPair| ports.get(pair).copied().or(common);
    let agrees = |(pair, share): (&PortPair, &PsnShare)| match ports_of(pair) {
        // Periodic sampling may favor or miss a connection.
        _ if is_periodic => true,
        Some(ports) => share.agrees(share_of(one_in, ports)),
        None => share.agrees(share_of(one_in, 1)) || share.agrees(share_of(one_in, 2)),
    };
    let wrong = shares.iter().filter(|share| !agrees(*share)).count();
    let weight = |own: &ConnectionTotals| {
        let ports = ports_of(&own.key.port_pair()).unwrap_or(SamplingWeight::ONE_OR_TWO);
        (wrong == 0).then_some(SamplingWeight { one_in, ports })
    };
    let weights: Vec<Option<SamplingWeight>> = connections.iter().map(|own| weight(own)).collect();
    let doubtful = weights.iter().flatten().filter(|weight| weight.ports == SamplingWeight::ONE_OR_TWO).count();
    let mut notes = Vec::new();
    if wrong > 0 {
        let mut all = PsnShare::default();
        shares.values().for_each(|share| all.add(share));
        notes.push(format!(
            "no estimates: the capture holds {:.3} % of the PSNs, but a sample of one packet in {one_in}, \
             at one port or at both, would hold another share ({wrong} of {} pairs of ports differ); check the rate, or whether the \
             mirror lost packets",
            100.0 * all.seen / all.sent,
            shares.len()
        ));
    }
    if doubtful > 0 {
        notes.push(format!(
            "{}: there are too few PSNs to infer whether one of the two ports is sampled or both; the intervals cover both cases",
            count_of(doubtful as u64, "connection")
        ));
    }
    let known = (wrong == 0).then_some(one_in);
    let sampling = Sampling { one_in: known, source, rate_variance: 0.0, is_periodic, largest_bytes: (0.0, 0.0) };
    SamplingOfConnections { sampling: Some(sampling), weights, notes }
}

fn with_inferred_rate(
    connections: &[Box<ConnectionTotals>],
    shares: &BTreeMap<PortPair, PsnShare>,
    spread: &Spread,
) -> SamplingOfConnections {
    let is_periodic = spread.is_periodic();
    let sampling = |one_in, rate_variance| Sampling {
        one_in,
        source: RateSource::Inferred,
        rate_variance,
        is_periodic,
        largest_bytes: (0.0, 0.0),
    };
    let unknown = |reason: &str| SamplingOfConnections {
        sampling: Some(sampling(None, 0.0)),
        weights: vec![None; connections.len()],
        notes: vec![format!(
            "the capture looks sampled, but {reason}, so there are no estimates; give the rate with --sampled 1/N"
        )],
    };
    let exact = || shares.values().filter(|share| !share.has_responses && share.sent > 0.0);
    let mut all = PsnShare::default();
    exact().for_each(|share| all.add(share));
    let Some(share) = all.share() else { return unknown("there are too few PSNs to infer the rate") };
    if spread.is_bursty() {
        return unknown("packets are missing in bursts, as with an overloaded mirror");
    }
    if !is_periodic && !shares.values().all(|own| own.agrees(share)) {
        return unknown("pairs of ports miss different shares of their PSNs");
    }
    // Observations per transmission, with those at a second port.
    let per_transmission = if all.comes_twice() { share } else { share * (all.psns + all.repeated) / all.psns };
    let one_in = 1.0 / per_transmission;
    let twice = all.psns * share / 4.0;
    let is_one_port = twice >= EXPECTED_TWICE && all.repeated < twice / 2.0;
    let ports = match all.comes_twice() {
        true => SamplingWeight::TWO_TOGETHER,
        false if is_one_port => 1,
        false => SamplingWeight::PER_OBSERVATION,
    };
    let rate_variance = (1.0 - share) / all.seen;
    let note = format!(
        "the capture looks sampled: the gaps between PSNs show one packet in {one_in:.1} (± {:.1} %), an inferred \
         rate; if the rate is known, give it with --sampled 1/N",
        200.0 * rate_variance.sqrt()
    );
    SamplingOfConnections {
        sampling: Some(sampling(Some(one_in), rate_variance)),
        weights: vec![Some(SamplingWeight { one_in, ports }); connections.len()],
        notes: vec![note],
    }
}
