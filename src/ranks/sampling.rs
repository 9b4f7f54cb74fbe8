//! The sampling of a capture: its rate, and how many observation points sample each connection.
//!
//! Connections go in, with the rate that the user gives or the samples state, if any. A weight for
//! each connection comes out ([`SamplingOfConnections`]). The PSNs of requests are consecutive, so
//! the share of them that a random sample holds shows the rate, and how many ports were sampled:
//!
//! ```text
//! rate 1/N, one port     1/N of the PSNs
//! rate 1/N, both ports   2/N - 1/N² of the PSNs
//! rate 1/N, k points     1 - (1 - 1/N)^k of the PSNs
//! ```
//! READs take the PSNs of their responses. If the requests of the first or of the last READs are not in the
//! sample, their responses lie outside the span of the sampled requests:
//!
//! ```text
//! PSNs          0 ..... 255  256  257 ..... 512  513   514 ..... 769
//! packets       responses    SEND responses      SEND  responses
//! sampled         x   x  x    x     x  x   x      x     x   x   x
//! judged                      |------ span ------|
//! ```
//! sFlow may sample at more than two points of a path; its sources show at how many at most. Invariant: a
//! weight exists only if the PSNs do not contradict it. `docs/method.md` has the rules.

use super::IdentityEvidence;
use super::coverage::looks_sampled;
use crate::model::sampling::{EstimateQuality, RateSource, rate_text};
use crate::model::{
    ConnectionTotals, Continuity, SampleSources, Sampling, SamplingPoints, SamplingWeight, TrafficKind, count_either,
    count_of,
};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Standard deviations between an observed and an expected share that chance cannot explain: the
/// probability is below one in a million.
const BEYOND_CHANCE: f64 = 5.0;
/// Logarithm of the likelihood ratio that decides between numbers of points: 400 to one.
const DECISIVE: f64 = 6.0;
/// Samples are not random if the number of packets observed at two ports is this many standard
/// deviations below the expected number. A wrong conclusion only makes intervals wider.
const BEYOND_COMMON: f64 = 4.0;
/// Number of PSNs, or of distances between them, that a decision on the sample needs.
const MIN_STEPS: u64 = 60;
/// Number of sampled READs that show how many responses a READ has.
const MIN_READS: u64 = 30;
/// Negative logarithm of a probability that counts as zero: one in a million.
const IMPOSSIBLE: f64 = 14.0;
/// Ratio between the observed and the expected number of packets that were sampled at both ports from which
/// the rate is wrong: retransmissions raise the number as well.
const MOST_TWICE_RATIO: f64 = 3.0;
/// Share of the variance of a random sample's distances below which a sample is periodic.
const PERIODIC_SHARE: f64 = 0.2;
/// Number of packets, and share of them that appear twice, from which all packets count as
/// appearing twice.
const MIN_TWICE: f64 = 8.0;
const TWICE_SHARE: f64 = 0.6;
/// Number of packets expected at two ports from which far fewer observed ones show that there is
/// one port.
const EXPECTED_TWICE: f64 = 10.0;
/// Ratio between the rates of a source and of all sources from which there are no estimates.
const LARGEST_RATE_RATIO: f64 = 1.2;

/// A sampling rate that does not come from the PSNs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatedRate<'a> {
    /// An observation point takes one of this many packets; `None` if the samples have several
    /// rates.
    pub one_in: Option<f64>,
    /// Source of the rate.
    pub source: RateSource,
    /// The sampler takes packets at a regular distance.
    pub is_periodic: bool,
    /// The sources of the samples.
    pub sources: &'a SampleSources,
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
    /// Responses in `seen`, and the ends of the spans of requests that some of them may lie outside of.
    responses: f64,
    ends: f64,
    /// Responses of a READ; infinite if not known.
    responses_per_read: f64,
    /// READs were sampled before the path MTU was known: `sent` lacks missing requests whose responses were
    /// sampled.
    has_guesses: bool,
}

impl PsnShare {
    fn of(own: &ConnectionTotals) -> Self {
        let continuity = &own.continuity;
        let Continuity { request_packets, response_packets, expected_responses, .. } = *continuity;
        let mut share = Self {
            psns: (request_packets + response_packets) as f64,
            repeated: (continuity.requests_again + continuity.responses_again) as f64,
            has_responses: response_packets + expected_responses > 0,
            has_guesses: continuity.guessed_reads,
            ..Self::default()
        };
        // Datagrams have one sequence for all destinations.
        if !continuity.uncertain && !continuity.restarted && !own.key.is_datagram() {
            share.seen = (request_packets.saturating_sub(1) + response_packets) as f64;
            let span = request_packets + continuity.missing_requests + expected_responses;
            share.sent = span.saturating_sub(1) as f64;
            share.most_reads = request_packets.min(expected_responses) as f64;
            share.responses = response_packets as f64;
            share.ends = if response_packets > 0 { 2.0 } else { 0.0 };
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
        self.has_guesses |= other.has_guesses;
        self.responses += other.responses;
        self.ends += other.ends;
        self.responses_per_read = self.responses_per_read.max(other.responses_per_read);
    }

    /// The shares of the PSNs between all pairs of ports.
    fn of_pairs(connections: &[Box<ConnectionTotals>]) -> BTreeMap<PortPair, Self> {
        let responses_per_read = responses_per_read(connections);
        let mut shares: BTreeMap<PortPair, Self> = BTreeMap::new();
        for own in connections.iter().filter(|own| own.key.kind == TrafficKind::Data) {
            let share = Self { responses_per_read, ..Self::of(own) };
            shares.entry(own.key.port_pair()).or_default().add(&share);
        }
        shares
    }

    /// Logarithm of the likelihood of a random sample that takes this share of the packets.
    fn likelihood(&self, share: f64) -> f64 {
        self.seen * share.ln() + (self.sent - self.seen).max(0.0) * (1.0 - share).max(f64::MIN_POSITIVE).ln()
    }

    /// The most responses outside the spans of the sampled requests. The number of requests before the first
    /// sampled one is geometric, and so is the number after the last: if all of them are READs, about as many
    /// of their responses are sampled at each end as a READ has, with an exponential distribution. This is the
    /// bound on a sum of such numbers, for any rate.
    fn most_outside(&self) -> f64 {
        let reads = self.ends + (2.0 * IMPOSSIBLE * self.ends).sqrt() + IMPOSSIBLE;
        if self.responses > 0.0 { self.responses.min(self.responses_per_read * reads) } else { 0.0 }
    }

    /// True if chance, and rates of single sources that differ by this ratio, explain the difference from
    /// this share, for some number of READs and of responses outside the spans.
    fn agrees(&self, share: f64, rate_ratio: f64) -> bool {
        let excess = |own: &Self| {
            let expected = own.sent * share;
            let tolerance = BEYOND_CHANCE * (expected * (1.0 - share)).sqrt() + 2.0 + expected * (rate_ratio - 1.0);
            (own.seen - expected, tolerance)
        };
        let ((most, above), (least, below)) = (excess(self), excess(&self.with_fewest_seen()));
        most >= -above && least <= below
    }

    /// The share if as many requests as possible are READs, and as many responses as possible lie outside
    /// the spans.
    fn with_fewest_seen(&self) -> Self {
        let span = (self.sent - self.most_reads).max(0.0);
        // Without a span, all responses lie outside.
        let seen = if span > 0.0 { (self.seen - self.most_reads - self.most_outside()).max(0.0) } else { 0.0 };
        let unlisted = if self.has_guesses && span > 0.0 { self.responses } else { 0.0 };
        Self { seen, sent: (span + unlisted).max(seen), ..*self }
    }

    /// The least and the largest share of the PSNs that may have been observed, in percent.
    fn percents(&self) -> [String; 2] {
        let percent = |own: &Self| percent(own.seen.min(own.sent) / own.sent.max(1.0));
        [percent(&self.with_fewest_seen()), percent(self)]
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
        let has_two = || self.points(one_in, 2, 1.0) == Some(SamplingPoints::Independent(2));
        is_rare && (has_two() || !self.comes_twice() && self.points_by_share(one_in, 2) == Some(2))
    }

    /// The number of packets that two ports take both, and true if the PSNs were observed again far more often.
    fn is_too_often_twice(&self, one_in: f64) -> (f64, bool) {
        let expected = self.psns / (2.0 * one_in - 1.0);
        let by_chance = expected + BEYOND_CHANCE * expected.sqrt() + 2.0;
        let has_enough = self.psns >= MIN_STEPS as f64 && !self.comes_twice();
        (expected, has_enough && self.repeated > by_chance.max(MOST_TWICE_RATIO * expected))
    }

    /// The number of points, at most `most`, whose share the PSNs have, for any number of READs and of
    /// responses outside the spans.
    fn points_by_share(&self, one_in: f64, most: u32) -> Option<u32> {
        let likely = |own: &Self| {
            let of = |points| own.likelihood(share_of(one_in, points));
            let best = (1..=most).max_by(|a, b| of(*a).total_cmp(&of(*b)))?;
            let is_clear = |points: u32| points == best || of(best) - of(points) >= DECISIVE;
            (1..=most).all(is_clear).then_some(best)
        };
        likely(self).filter(|points| likely(&self.with_fewest_seen()) == Some(*points))
    }

    /// True if no other number of points is more likely, for some number of READs and of responses outside the
    /// spans.
    fn may_have(&self, one_in: f64, points: u32, most: u32) -> bool {
        let best = |own: &Self| {
            let of = |points| own.likelihood(share_of(one_in, points));
            let largest = (1..=most).map(of).fold(f64::NEG_INFINITY, f64::max);
            let mut likeliest = (1..=most).filter(|points| of(*points) >= largest);
            let first = likeliest.next();
            first.map(|first| (first, likeliest.next_back().unwrap_or(first)))
        };
        // More observed PSNs are those of more points.
        let ends = best(&self.with_fewest_seen()).zip(best(self));
        ends.is_some_and(|((first, _), (_, last))| (first..=last).contains(&points))
    }

    /// The points that take one of `one_in` packets each, at most `most`; `None` if the PSNs do not show
    /// it. Several points also take the same packet now and then.
    fn points(&self, one_in: f64, most: u32, rate_ratio: f64) -> Option<SamplingPoints> {
        if most <= 2 && self.comes_twice() {
            return Some(SamplingPoints::TwoTogether);
        }
        let twice = self.psns / one_in / 2.0;
        // Two stands for any number above one.
        let by_repetition = match self.repeated {
            _ if twice < EXPECTED_TWICE => None,
            repeated if repeated < twice / 4.0 => Some(1),
            repeated if repeated > twice / 2.0 => Some(2),
            _ => None,
        };
        let by_share = self.points_by_share(one_in, most);
        let by_share = by_share.filter(|points| self.agrees(share_of(one_in, *points), rate_ratio));
        let points = match (by_share, by_repetition) {
            // Periodic samplers may take only one of two adjacent copies.
            (Some(2..) | None, Some(1)) => None,
            // A library that retransmits without a loss looks like a second port.
            (Some(share), Some(repetition)) if share.min(2) != repetition && self.has_responses => None,
            (Some(share), _) => Some(share),
            (None, repetition) => repetition.filter(|_| most <= 2),
        };
        points.map(SamplingPoints::Independent)
    }
}

/// The points that sample the packets between two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairPoints {
    Estimated(SamplingPoints),
    /// One to so many, and there are no estimates.
    Undecided(u32),
}

impl PairPoints {
    /// The numbers of points of which the PSNs may have the share.
    const fn numbers(self) -> RangeInclusive<u32> {
        match self {
            Self::Estimated(points) => points.distinct(),
            Self::Undecided(points) => 1..=points,
        }
    }

    const fn weight(self, one_in: f64) -> Option<SamplingWeight> {
        match self {
            Self::Estimated(points) => Some(SamplingWeight { one_in, points }),
            Self::Undecided(_) => None,
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
    let shares = PsnShare::of_pairs(connections);
    let spread = Spread::of(connections);
    let mut found = match evidence.sampled {
        Some(rate) => {
            let rate = StatedRate { is_periodic: rate.is_periodic || spread.is_periodic(), ..rate };
            let ratio = if rate.source == RateSource::Stated { rate.sources.rate_ratio() } else { 1.0 };
            match rate.one_in {
                Some(one_in) if ratio <= LARGEST_RATE_RATIO => {
                    with_stated_rate(connections, &shares, &rate, (one_in, ratio))
                }
                one_in => without_rate(connections, &rate, one_in.map(|_| different_losses(rate.sources))),
            }
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

/// The responses that a READ has: the largest mean of a connection. Infinite if the sample has too few READs.
fn responses_per_read(connections: &[Box<ConnectionTotals>]) -> f64 {
    let (mut reads, mut largest) = (0, 0.0_f64);
    for own in connections {
        let own_reads = own.health.whole().data_requests;
        if own_reads > 0 {
            reads += own_reads;
            largest = largest.max(own.continuity.expected_responses as f64 / own_reads as f64);
        }
    }
    if reads < MIN_READS { f64::INFINITY } else { largest }
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

/// The share of the PSNs that is observed if each of `points` points takes one packet of `one_in`.
fn share_of(one_in: f64, points: u32) -> f64 {
    1.0 - (1.0 - 1.0 / one_in).powi(points.cast_signed())
}

/// A sampled capture without one rate: there are no estimates.
fn without_rate(
    connections: &[Box<ConnectionTotals>],
    rate: &StatedRate<'_>,
    note: Option<String>,
) -> SamplingOfConnections {
    let StatedRate { source, is_periodic, .. } = *rate;
    let sampling = Sampling { one_in: None, source, rate_variance: 0.0, is_periodic, largest_bytes: (0.0, 0.0) };
    let weights = vec![None; connections.len()];
    SamplingOfConnections { sampling: Some(sampling), weights, notes: note.into_iter().collect() }
}

/// The note on sources that lost different shares of their samples.
fn different_losses(sources: &SampleSources) -> String {
    let percent = |ppm: u32| f64::from(ppm) / 10_000.0;
    let (least, most) = sources.lost_ppm.unwrap_or_default();
    format!(
        "no estimates: a source lost, or its agent dropped, at least {:.1} % of its samples, and another one at most {:.1} %, so \
         there is no common rate; lower the rate of the agents that drop samples",
        percent(most),
        percent(least)
    )
}

/// What the sources of sFlow show about the points of a pair of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PairSources {
    /// There are no sources, or only one, which may be a whole switch.
    Unstated,
    /// At most so many points, as of all pairs: the sources of this pair were not kept.
    Unknown(u32),
    /// At least so many points by its sources, and at most so many, as of all pairs: too few samples to
    /// know all its sources.
    TooFew(u32, u32),
    /// At most so many points; the direction with fewer of them, and the one with more.
    AtMost(u32, u32),
}

impl PairSources {
    /// True if a pair with so many samples and points has a sample of each: a further point of the same
    /// rate would have one too.
    fn are_all_known(points: u32, samples: u64) -> bool {
        let points = f64::from(points);
        (points + 1.0).ln() + samples as f64 * (points / (points + 1.0)).ln() < -DECISIVE
    }

    /// The points of all pairs of ports.
    fn of_pairs(connections: &[Box<ConnectionTotals>], sources: &SampleSources) -> BTreeMap<PortPair, Self> {
        let most = sources.most_points().max(2);
        let start = if sources.sources > 1 { Self::Unknown(most) } else { Self::Unstated };
        let mut pairs: BTreeMap<PortPair, Self> = connections.iter().map(|own| (own.key.port_pair(), start)).collect();
        if start == Self::Unstated {
            return pairs;
        }
        let mut samples: BTreeMap<(Endpoint, Endpoint), u64> = BTreeMap::new();
        for own in connections {
            *samples.entry((own.key.src, own.key.dst)).or_default() += own.sampled.packets;
        }
        for ((src, dst), samples) in samples {
            let pair = pairs.get_mut(&(src.min(dst), src.max(dst)));
            let (Some(points), Some(pair)) = (sources.points(src, dst), pair) else { continue };
            *pair = match (*pair, Self::are_all_known(points, samples)) {
                (Self::AtMost(fewer, more), true) => Self::AtMost(fewer.min(points), more.max(points)),
                (_, true) => Self::AtMost(points, points),
                (Self::TooFew(least, _), false) => Self::TooFew(least.max(points), most),
                (Self::Unknown(_) | Self::Unstated, false) => Self::TooFew(points, most),
                (own @ Self::AtMost(..), false) => own,
            };
        }
        pairs
    }

    /// The most points that the pair may have.
    fn most(self) -> u32 {
        let most = match self {
            Self::Unstated => 2,
            Self::Unknown(most) | Self::TooFew(_, most) | Self::AtMost(_, most) => most,
        };
        most.min(SamplingPoints::MOST)
    }

    /// The points of a pair with these PSNs, if they are decided.
    fn decide(self, share: &PsnShare, (one_in, ratio): (f64, f64)) -> Option<SamplingPoints> {
        match self {
            Self::AtMost(1, 1) => Some(SamplingPoints::Independent(1)),
            Self::AtMost(fewer, _) => {
                share.points(one_in, self.most(), ratio).filter(|found| *found.distinct().end() <= fewer)
            }
            Self::Unstated | Self::Unknown(_) | Self::TooFew(..) => share.points(one_in, self.most(), ratio),
        }
    }

    /// The sources of the pairs whose number of points a pair with these sources has, if all these agree.
    /// `known` are the sources of all pairs that have enough samples.
    fn alike(self, known: &BTreeSet<Self>) -> Option<Self> {
        match self {
            Self::Unstated | Self::AtMost(..) => Some(self),
            Self::Unknown(_) => None,
            Self::TooFew(least, _) => {
                let only = known.first().copied().filter(|_| known.len() == 1)?;
                (least <= only.most()).then_some(only)
            }
        }
    }

    /// The points of a pair whose PSNs do not show them. The interval of a pair with few samples covers
    /// all numbers: the pair matters little to the sums that include it.
    fn undecided(self) -> PairPoints {
        match self {
            Self::Unknown(most @ 3..) | Self::AtMost(_, most @ 3..) => PairPoints::Undecided(most),
            _ => PairPoints::Estimated(SamplingPoints::up_to(self.most())),
        }
    }
}

/// The points of all pairs of ports. Pairs that are not decided have the points of the others with the
/// same sources if all these agree.
fn points_of_pairs(
    sources: &BTreeMap<PortPair, PairSources>,
    shares: &BTreeMap<PortPair, PsnShare>,
    rate: (f64, f64),
) -> BTreeMap<PortPair, PairPoints> {
    let decide = |(pair, share): (&PortPair, &PsnShare)| {
        let own = sources.get(pair)?;
        Some((*pair, (*own, own.decide(share, rate)?)))
    };
    let decided: BTreeMap<PortPair, (PairSources, SamplingPoints)> = shares.iter().filter_map(decide).collect();
    let kinds: BTreeSet<PairSources> = sources.values().copied().collect();
    let known: BTreeSet<PairSources> =
        kinds.iter().copied().filter(|own| matches!(own, PairSources::AtMost(..))).collect();
    let common = |of: PairSources| {
        let alike = of.alike(&known)?;
        let mut points = decided.values().filter(|(other, _)| *other == alike).map(|(_, points)| *points);
        let first = points.next()?;
        points.all(|other| other == first).then_some(first)
    };
    let commons: BTreeMap<PairSources, Option<SamplingPoints>> = kinds.iter().map(|own| (*own, common(*own))).collect();
    let points = |(pair, own): (&PortPair, &PairSources)| {
        let share = shares.get(pair).copied().unwrap_or_default();
        let is_possible = |points: &SamplingPoints| share.may_have(rate.0, *points.distinct().end(), own.most());
        let inherited = || commons.get(own).copied().flatten().filter(is_possible);
        let found = decided.get(pair).map(|(_, points)| *points).or_else(inherited);
        (*pair, found.map_or_else(|| own.undecided(), PairPoints::Estimated))
    };
    sources.iter().map(points).collect()
}

fn with_stated_rate(
    connections: &[Box<ConnectionTotals>],
    shares: &BTreeMap<PortPair, PsnShare>,
    rate: &StatedRate<'_>,
    (one_in, ratio): (f64, f64),
) -> SamplingOfConnections {
    let is_exclusive = shares.values().any(|share| share.is_exclusive(one_in));
    let is_periodic = rate.is_periodic || is_exclusive;
    let sources = PairSources::of_pairs(connections, rate.sources);
    let points = points_of_pairs(&sources, shares, (one_in, ratio));
    // Periodic sampling may favor or miss a connection.
    let contradiction = || contradiction(shares, &sources, &points, (one_in, ratio));
    let wrong = if is_periodic { None } else { contradiction() };
    let known = wrong.is_none().then_some(one_in);
    let weight = |own: &ConnectionTotals| points.get(&own.key.port_pair())?.weight(known?);
    let weights: Vec<Option<SamplingWeight>> = connections.iter().map(|own| weight(own)).collect();
    let notes = wrong.map_or_else(|| undecided_notes(connections, &points), |note| vec![note]);
    let rate_variance = Sampling::variance_of_ratio(ratio);
    let sampling =
        Sampling { one_in: known, source: rate.source, rate_variance, is_periodic, largest_bytes: (0.0, 0.0) };
    SamplingOfConnections { sampling: Some(sampling), weights, notes }
}

/// The note if the PSNs contradict the rate.
fn contradiction(
    shares: &BTreeMap<PortPair, PsnShare>,
    sources: &BTreeMap<PortPair, PairSources>,
    points: &BTreeMap<PortPair, PairPoints>,
    (one_in, ratio): (f64, f64),
) -> Option<String> {
    let agrees = |(pair, share): (&PortPair, &PsnShare)| {
        let agrees = |points: u32| share.agrees(share_of(one_in, points), ratio);
        points.get(pair).is_none_or(|own| own.numbers().any(agrees))
    };
    let wrong: Vec<&PsnShare> = shares.iter().filter(|share| !agrees(*share)).map(|(_, share)| share).collect();
    let sum = |of: &mut dyn Iterator<Item = &PsnShare>| {
        let mut sum = PsnShare::default();
        of.for_each(|share| sum.add(share));
        sum
    };
    let share = |points: u32| percent(share_of(one_in, points));
    let rate = rate_text(one_in);
    if wrong.is_empty() {
        // The shares of pairs with many responses show little.
        let has_two = |pair: &PortPair| sources.get(pair).is_none_or(|own| own.most() <= 2);
        let of_reads = shares.iter().filter(|(pair, share)| share.has_responses && has_two(pair));
        let all = sum(&mut of_reads.map(|(_, share)| share));
        let (expected, is_wrong) = all.is_too_often_twice(one_in);
        return is_wrong.then(|| {
            format!(
                "no estimates: {:.0} of {:.0} packets of connections with READs are in the sample again, but a sample of 1 in {rate} \
                 at both ports holds about {expected:.0} of them twice; check the rate",
                all.repeated, all.psns
            )
        });
    }
    let [least, most] = sum(&mut wrong.iter().copied()).percents();
    let held = if least == most { least } else { format!("{least} to {most}") };
    let expected = match sources.values().map(|own| own.most()).max().unwrap_or(2) {
        0..=2 => format!("{} % (one port) or {} % (both ports)", share(1), share(2)),
        points => format!("{} % (one point) to {} % ({points} points)", share(1), share(points)),
    };
    Some(format!(
        "no estimates: the capture holds {held} % of the PSNs, but a sample of 1 in {rate} holds {expected} of them ({} of {} \
         differ); check the rate, or whether the mirror lost packets",
        wrong.len(),
        count_either(shares.len() as u64, "pair of ports", "pairs of ports")
    ))
}

/// A share in percent, with enough digits to compare small ones.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        1.0.. => format!("{percent:.1}"),
        0.01.. => format!("{percent:.3}"),
        _ => format!("{percent:.5}"),
    }
}

/// Notes on connections whose number of sampling points is not known.
fn undecided_notes(connections: &[Box<ConnectionTotals>], points: &BTreeMap<PortPair, PairPoints>) -> Vec<String> {
    let (mut of_two, mut of_more, mut without) = (0, (0, 0), (0, 0));
    for own in connections {
        match points.get(&own.key.port_pair()) {
            Some(PairPoints::Estimated(SamplingPoints::UpTo(2))) => of_two += 1,
            Some(PairPoints::Estimated(SamplingPoints::UpTo(most))) => of_more = (of_more.0 + 1, of_more.1.max(*most)),
            Some(PairPoints::Undecided(most)) => without = (without.0 + 1, without.1.max(*most)),
            Some(PairPoints::Estimated(_)) | None => {}
        }
    }
    let mut notes = Vec::new();
    if of_two > 0 {
        notes.push(format!(
            "{}: there are too few PSNs to infer whether one of the two ports is sampled or both; the intervals cover both cases",
            count_of(of_two, "connection")
        ));
    }
    if of_more.0 > 0 {
        notes.push(format!(
            "{}: there are too few samples to infer at how many points of the path each packet is sampled; the intervals cover \
             one to {} points",
            count_of(of_more.0, "connection"),
            of_more.1
        ));
    }
    if without.0 > 0 {
        notes.push(format!(
            "no estimates for {}: sFlow samples their packets at up to {} points, and their PSNs do not show at how many points \
             each packet is sampled; sample each path at one point, such as the ports of the hosts",
            count_of(without.0, "connection"),
            without.1
        ));
    }
    notes
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
    if !is_periodic && !shares.values().all(|own| own.agrees(share, 1.0)) {
        return unknown("pairs of ports miss different shares of their PSNs");
    }
    // Observations per transmission, with those at a second port.
    let per_transmission = if all.comes_twice() { share } else { share * (all.psns + all.repeated) / all.psns };
    let one_in = 1.0 / per_transmission;
    let twice = all.psns * share / 4.0;
    let is_one_port = twice >= EXPECTED_TWICE && all.repeated < twice / 2.0;
    let points = match all.comes_twice() {
        true => SamplingPoints::TwoTogether,
        false if is_one_port => SamplingPoints::Independent(1),
        false => SamplingPoints::PerObservation,
    };
    let rate_variance = (1.0 - share) / all.seen;
    let note = format!(
        "the capture looks sampled: the gaps between PSNs show one packet in {one_in:.1} (± {:.1} %), an inferred \
         rate; if the rate is known, give it with --sampled 1/N",
        200.0 * rate_variance.sqrt()
    );
    SamplingOfConnections {
        sampling: Some(sampling(Some(one_in), rate_variance)),
        weights: vec![Some(SamplingWeight { one_in, points }); connections.len()],
        notes: vec![note],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PairPoints::{Estimated, Undecided};
    use PairSources::{AtMost, TooFew, Unknown, Unstated};
    use SamplingPoints::{Independent, UpTo};

    const ONE_IN: f64 = 40.0;

    /// The PSNs of a pair that sends `sent` packets past so many points.
    fn psns(sent: f64, points: u32) -> PsnShare {
        let seen = (sent * share_of(ONE_IN, points)).round();
        let observations = sent / ONE_IN * f64::from(points);
        PsnShare { seen, sent, psns: seen, repeated: (observations - seen).max(0.0).round(), ..PsnShare::default() }
    }

    /// The points of pairs, given by their sources, packets and real numbers of points.
    fn points(pairs: &[(PairSources, f64, u32)]) -> Vec<PairPoints> {
        let key = |place: usize| {
            let [a, b] = [1, 2].map(|last| Endpoint::from_ipv4([10, 0, place as u8, last]));
            (a, b)
        };
        let sources = pairs.iter().enumerate().map(|(place, pair)| (key(place), pair.0)).collect();
        let shares = pairs.iter().enumerate().map(|(place, pair)| (key(place), psns(pair.1, pair.2))).collect();
        points_of_pairs(&sources, &shares, (ONE_IN, 1.0)).into_values().collect()
    }

    #[test]
    fn the_psns_decide_among_the_points_that_the_sources_allow() {
        let all = [(AtMost(3, 3), 1e5, 3), (AtMost(4, 4), 1e5, 3), (AtMost(2, 2), 1e5, 1), (AtMost(1, 1), 400.0, 1)];
        assert_eq!(points(&all), [3, 3, 1, 1].map(Independent).map(Estimated));
        // More points than a direction has sources.
        assert_eq!(points(&[(AtMost(1, 3), 1e5, 3)]), [Undecided(3)]);
        // Without sources, there are at most two.
        assert_eq!(points(&[(Unstated, 1e5, 1), (Unstated, 1e5, 2)]), [1, 2].map(Independent).map(Estimated));
    }

    #[test]
    fn undecided_pairs_have_the_points_of_pairs_with_the_same_sources_only() {
        let few = 400.0;
        let one_point = (AtMost(1, 1), 1e5, 1);
        assert_eq!(points(&[one_point, (AtMost(3, 3), few, 3)])[1], Undecided(3));
        assert_eq!(points(&[one_point, (AtMost(2, 2), few, 2)])[1], Estimated(UpTo(2)));
        assert_eq!(points(&[one_point, (AtMost(3, 3), 1e5, 3), (AtMost(3, 3), few, 3)])[2], Estimated(Independent(3)));
        // The others differ.
        let differ = [(AtMost(3, 3), 1e5, 3), (AtMost(3, 3), 1e5, 2), (AtMost(3, 3), few, 3)];
        assert_eq!(points(&differ)[2], Undecided(3));
        // Pairs with few samples.
        assert_eq!(points(&[one_point, (TooFew(1, 3), few, 1)])[1], Estimated(Independent(1)));
        assert_eq!(points(&[one_point, (TooFew(2, 3), few, 2)])[1], Estimated(UpTo(3)));
        assert_eq!(points(&[one_point, (AtMost(3, 3), 1e5, 3), (TooFew(1, 3), few, 1)])[2], Estimated(UpTo(3)));
        assert_eq!(points(&[one_point, (Unknown(3), few, 1)])[1], Undecided(3));
    }

    /// One of ten packets of one port: between two sampled SENDs are 411 PSNs, and READs before and after them
    /// have 60 of the 100 sampled responses.
    #[test]
    fn responses_outside_the_sampled_requests_are_no_contradiction() {
        let share = PsnShare {
            seen: 101.0,
            sent: 410.0,
            psns: 102.0,
            has_responses: true,
            responses: 100.0,
            ends: 2.0,
            responses_per_read: f64::INFINITY,
            ..PsnShare::default()
        };
        assert!(share.agrees(0.1, 1.0) && !share.agrees(0.5, 1.0));
        // The sampled READs have up to 256 responses, or one: then few lie outside.
        assert!(PsnShare { responses_per_read: 256.0, ..share }.agrees(0.1, 1.0));
        let short = PsnShare { responses_per_read: 1.0, ..share };
        assert!(!short.agrees(0.1, 1.0) && short.agrees(0.2, 1.0));
        assert_eq!(share.points(10.0, 2, 1.0), None);
        assert!([1, 2, 3].iter().all(|points| share.may_have(10.0, *points, 3)));
        // One direction only: there is no span.
        assert!(PsnShare { sent: 0.0, seen: 100.0, ..short }.agrees(0.1, 1.0));
        // Requests whose PSNs sampled responses explain.
        assert!(PsnShare { has_guesses: true, ..short }.agrees(0.19, 1.0));
        assert_eq!(share.percents(), ["0.244", "24.6"]);
    }

    /// Two ports at 1/10 take one of 19 packets both.
    #[test]
    fn packets_of_two_ports_contradict_a_lower_rate() {
        let share = PsnShare { psns: 1900.0, repeated: 100.0, ..PsnShare::default() };
        for (one_in, is_wrong) in [(5.0, false), (10.0, false), (20.0, false), (50.0, true), (100.0, true)] {
            assert_eq!(share.is_too_often_twice(one_in).1, is_wrong, "{one_in}");
        }
        // Sampled before the mirror copies, or too few packets.
        assert!(!PsnShare { repeated: 1900.0, ..share }.is_too_often_twice(100.0).1);
        assert!(!PsnShare { psns: 50.0, repeated: 20.0, ..share }.is_too_often_twice(100.0).1);
    }

    #[test]
    fn small_shares_have_more_digits() {
        assert_eq!(
            [1.0, 0.1, 0.0199, 0.01, 0.000_5, 0.000_001_5].map(percent),
            ["100.0", "10.0", "2.0", "1.0", "0.050", "0.00015"]
        );
    }

    #[test]
    fn sources_are_known_from_enough_samples_on() {
        for (points, samples) in [(1, 10), (2, 18), (3, 26)] {
            assert!(PairSources::are_all_known(points, samples) && !PairSources::are_all_known(points, samples - 1));
        }
    }
}
