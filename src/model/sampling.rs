//! Estimates from a sampled capture: the total number of packets, bytes and messages, from those
//! that the mirror sampled.
//!
//! In: sums of the sampled packets and the sampling rate. Out: estimates with 95 % intervals.
//! Invariant: estimates never replace counts, and there are none without a known rate or with too
//! few samples. `docs/method.md` derives the interval.

use super::column::{ColumnUnit, column_values};
use super::sampling_points::SamplingPoints;
use super::table::Table;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Samples that an estimate needs.
pub const MIN_SAMPLES: u64 = 30;
/// An estimate of bytes needs samples whose squared sizes add up to this many times the squared
/// size of the largest packet of the capture. Below this sum, the total may contain such packets
/// although, by chance, no sample does.
const MIN_LARGEST: f64 = 1.5;
/// 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;
/// Periodic sampling: `Z` is multiplied by this factor, and then the lower end of the interval is
/// divided by it and the upper end multiplied, because the period may coincide with a pattern in the
/// traffic.
const PERIODIC_FACTOR: f64 = 2.0;

/// Source of the sampling rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateSource {
    /// The user gave it: `--sampled`.
    Given,
    /// The samples state it: sFlow or psample.
    Stated,
    /// Inferred from the gaps between PSNs.
    Inferred,
}

impl RateSource {
    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Stated => "stated",
            Self::Inferred => "inferred",
        }
    }
}

/// The sampling of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// An observation point takes one of this many packets; `None` if the rate is not known, so
    /// that there are no estimates.
    pub one_in: Option<f64>,
    /// Source of the rate.
    pub source: RateSource,
    /// Squared relative standard error of an inferred rate, or of a stated rate if sources lost different
    /// shares of their samples; else 0.
    pub rate_variance: f64,
    /// Packets are taken at a regular distance instead of at random.
    pub is_periodic: bool,
    /// Typical wire and payload bytes of the largest packets of the capture.
    pub largest_bytes: (f64, f64),
}

/// Sums of the sampled packets of a connection: every observation counts, also at a second port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledSums {
    /// Observed packets.
    pub packets: u64,
    /// The number of these with payload.
    pub payload_packets: u64,
    /// Their wire bytes.
    pub wire_bytes: u64,
    /// Sum of the squared wire bytes of each packet.
    pub wire_squares: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
    /// Sum of the squared payload bytes of each packet.
    pub payload_squares: u64,
    /// Observed first packets of transport messages.
    pub messages: u64,
    /// MPI messages whose start was sampled and whose length is not known.
    pub open_mpi_messages: u64,
}

column_values! {
    SampledSums {
        packets: "sampled_packets", Count, "packets in a sampled capture, each observation counted; null where the capture is not sampled";
        payload_packets: "sampled_payload_packets", Count, "the number of these with payload";
        wire_bytes: "sampled_wire_bytes", Bytes, "wire bytes of the sampled packets";
        wire_squares: "sampled_wire_squares", Number, "sum of the squared wire bytes of each sampled packet";
        payload_bytes: "sampled_payload_bytes", Bytes, "payload of the sampled packets";
        payload_squares: "sampled_payload_squares", Number, "sum of the squared payload bytes of each sampled packet";
        messages: "sampled_messages", Count, "transport messages whose first packet was sampled, each observation counted";
        open_mpi_messages: "sampled_open_mpi_messages", Count, "MPI messages whose start was sampled and whose length is not known";
    }
}

impl AddAssign for SampledSums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.payload_packets += other.payload_packets;
        self.wire_bytes += other.wire_bytes;
        self.wire_squares = self.wire_squares.saturating_add(other.wire_squares);
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
        self.payload_squares = self.payload_squares.saturating_add(other.payload_squares);
        self.messages += other.messages;
        self.open_mpi_messages += other.open_mpi_messages;
    }
}

/// Number of transmissions of a connection that one observation represents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingWeight {
    /// An observation point takes one of this many packets.
    pub one_in: f64,
    /// The observation points.
    pub points: SamplingPoints,
}

impl SamplingWeight {
    /// If the number of points is not known, the weight with one point.
    const fn with_one_point(self) -> Option<Self> {
        match self.points {
            SamplingPoints::UpTo(_) => Some(Self { points: SamplingPoints::Independent(1), ..self }),
            SamplingPoints::PerObservation | SamplingPoints::Independent(_) | SamplingPoints::TwoTogether => None,
        }
    }

    /// Transmissions per observation, and the share of the observations' variance that sampling
    /// adds: 1 minus the probability to take a packet.
    fn per_observation(self) -> (f64, f64) {
        match self.points {
            // With two ports, each takes half of the observations.
            SamplingPoints::PerObservation => (self.one_in, 1.0 - 0.5 / self.one_in),
            // Half as many samples, of twice the weight.
            SamplingPoints::TwoTogether => (self.one_in / 2.0, 2.0 - 2.0 / self.one_in),
            SamplingPoints::Independent(points) | SamplingPoints::UpTo(points) => {
                (self.one_in / f64::from(points), 1.0 - 1.0 / self.one_in)
            }
        }
    }

    /// The same for transmissions that were observed at least once.
    fn per_transmission(self) -> (f64, f64) {
        let points = match self.points {
            SamplingPoints::PerObservation | SamplingPoints::TwoTogether => 1,
            SamplingPoints::Independent(points) | SamplingPoints::UpTo(points) => points,
        };
        let missed = (1.0 - 1.0 / self.one_in).powi(points.cast_signed());
        (1.0 / (1.0 - missed), missed)
    }
}

/// The samples of a connection, with their weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledConnection {
    /// The sums.
    pub sums: SampledSums,
    /// The weight; `None` if the rate, or the number of observation points, is not known.
    pub weight: Option<SamplingWeight>,
    /// The parameters that all estimates of the capture share.
    pub quality: EstimateQuality,
}

/// An estimated sum over all packets. Sums of several connections can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimator {
    /// Samples that contribute to the sum.
    samples: u64,
    /// The estimate: each sample times its weight.
    estimate: f64,
    /// Sum of the squares of these products, and the least that an estimate needs.
    squares: f64,
    min_squares: f64,
    /// Variance of the estimate.
    variance: f64,
    /// Part of the sum that was certainly transmitted.
    counted: f64,
    /// Estimate of a part that may belong to the sum or not.
    doubtful: f64,
    /// The largest possible weight of a sample in relation to the one that it has here; 0 for 1.
    weight_ratio: f64,
    /// Some samples have no weight.
    is_unknown: bool,
}

// No value is NaN: weights are finite and positive.
impl Eq for Estimator {}

/// The result of an [`Estimator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// The rate is not known.
    Unknown,
    /// There are fewer samples than an estimate needs.
    TooFew,
    /// The estimate.
    Known(EstimatedValue),
}

impl Estimate {
    /// The estimate, if there is one.
    #[must_use]
    pub const fn known(self) -> Option<EstimatedValue> {
        match self {
            Self::Known(value) => Some(value),
            Self::TooFew | Self::Unknown => None,
        }
    }
}

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimatedValue {
    /// The estimate.
    pub estimate: u64,
    /// Lower end of the interval.
    pub low: u64,
    /// Upper end of the interval.
    pub high: u64,
}

impl Estimator {
    /// Adds `samples` with this sum and sum of squares. `ports` observation points may each hold
    /// the same packets.
    fn add(&mut self, samples: u64, sum: f64, squares: f64, (weight, unseen): (f64, f64), ports: u32) {
        self.samples += samples;
        self.estimate += weight * sum;
        self.squares += weight * weight * squares;
        self.variance += weight * weight * unseen * squares;
        self.counted += sum / f64::from(ports);
    }

    /// Widens the interval to that of samples of this size.
    fn widen(&mut self, (weight, unseen): (f64, f64), size: f64) {
        self.variance = self.variance.max(weight * unseen * size * self.estimate);
    }

    /// Adds the samples of other connections.
    pub fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.estimate += other.estimate;
        self.squares += other.squares;
        self.min_squares = self.min_squares.max(other.min_squares);
        self.variance += other.variance;
        self.counted += other.counted;
        self.doubtful += other.doubtful;
        self.weight_ratio = self.weight_ratio.max(other.weight_ratio);
        self.is_unknown |= other.is_unknown;
    }

    /// The estimate with its interval.
    #[must_use]
    pub fn result(&self, quality: EstimateQuality) -> Estimate {
        if self.is_unknown {
            return Estimate::Unknown;
        }
        if self.samples < MIN_SAMPLES || self.squares < self.min_squares {
            return Estimate::TooFew;
        }
        let (low, _) = self.interval(self.estimate, 1.0, quality);
        let (_, high) = self.interval(self.estimate + self.doubtful, self.weight_ratio.max(1.0), quality);
        let estimate = self.estimate + self.doubtful / 2.0;
        Estimate::Known(EstimatedValue {
            estimate: estimate.round() as u64,
            low: low.max(self.counted).min(estimate).floor() as u64,
            high: high.max(estimate).ceil() as u64,
        })
    }

    /// The 95 % score interval around `estimate`: all values from which the estimate is at most `Z`
    /// standard deviations away. The variance is proportional to the value, and to the weights of the
    /// samples, which are `weight_ratio` times as large.
    fn interval(&self, estimate: f64, weight_ratio: f64, quality: EstimateQuality) -> (f64, f64) {
        let variance = weight_ratio * self.variance + quality.rate_variance * estimate * estimate;
        let (z, factor) = if quality.is_periodic { (PERIODIC_FACTOR * Z, PERIODIC_FACTOR) } else { (Z, 1.0) };
        let per_unit = variance / self.estimate;
        let center = estimate + z * z * per_unit / 2.0;
        let half = z * (estimate * per_unit + z * z * per_unit * per_unit / 4.0).sqrt();
        ((center - half) / factor, (center + half) * factor)
    }
}

/// The parameters that all estimates of a capture share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimateQuality {
    rate_variance: f64,
    is_periodic: bool,
    largest_bytes: (f64, f64),
}

// No value is NaN.
impl Eq for EstimateQuality {}

impl EstimateQuality {
    /// Includes the packets of another connection: the size of the largest packets is the largest
    /// mean size of a connection's packets, weighted by their sizes.
    pub fn extend(&mut self, sums: &SampledSums) {
        let mean = |squares: u64, sum: u64| if sum > 0 { squares as f64 / sum as f64 } else { 0.0 };
        let (wire, payload) = self.largest_bytes;
        self.largest_bytes = (
            mean(sums.wire_squares, sums.wire_bytes).max(wire),
            mean(sums.payload_squares, sums.payload_bytes).max(payload),
        );
    }

    /// Wire and payload bytes of the largest packets.
    #[must_use]
    pub const fn largest_bytes(&self) -> (f64, f64) {
        self.largest_bytes
    }
}

/// The N of a rate 1/N: without a fraction if it is almost whole.
pub(crate) fn rate_text(one_in: f64) -> String {
    let from_whole = (one_in - one_in.round()).abs();
    match one_in {
        _ if from_whole < 0.005 || one_in > 1.95 && from_whole < 0.05 => format!("{one_in:.0}"),
        ..2.0 => format!("{one_in:.2}"),
        _ => format!("{one_in:.1}"),
    }
}

impl Sampling {
    /// The variance of a rate that differs between sources by at most this factor: the interval is wide
    /// enough for the errors of sampling at either end.
    #[must_use]
    pub fn variance_of_ratio(ratio: f64) -> f64 {
        // Without errors of sampling, the ends of the interval are the estimate divided by and times a
        // factor f with f + 1/f = 2 + Z² V, so √f - 1/√f = Z √V. Errors need room beyond the ratio.
        let difference = 2.0 * (ratio.sqrt() - 1.0 / ratio.sqrt());
        (difference / Z).powi(2)
    }

    /// True if the numbers are possible. A profile from a file may be damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.one_in.is_none_or(|one_in| one_in.is_finite() && one_in >= 1.0)
            && self.rate_variance.is_finite()
            && self.rate_variance >= 0.0
            && [self.largest_bytes.0, self.largest_bytes.1].iter().all(|bytes| bytes.is_finite() && *bytes >= 0.0)
    }

    /// One sentence for outputs of counts: `sampled 1 in 10 (given); counts are of the sample, times are biased`.
    #[must_use]
    pub fn describe(&self) -> String {
        let rate = match self.one_in {
            Some(one_in) => format!("1 in {} ({})", rate_text(one_in), self.source.name()),
            None => "at an unknown rate".to_owned(),
        };
        format!("sampled {rate}; counts are of the sample, times are biased")
    }

    /// The parameters that all estimates of the capture share.
    #[must_use]
    pub const fn quality(&self) -> EstimateQuality {
        let Self { rate_variance, is_periodic, largest_bytes, .. } = *self;
        EstimateQuality { rate_variance, is_periodic, largest_bytes }
    }
}

/// The share of a connection's counted sums that belongs to a part of it, such as a time bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledShare {
    /// Share of the packets, from 0 to 1.
    pub packets: f64,
    /// Share of the wire bytes.
    pub wire_bytes: f64,
    /// Share of the payload bytes.
    pub payload_bytes: f64,
    /// Share of the transport messages.
    pub messages: f64,
}

/// Estimators of all sums of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairEstimators {
    /// Messages of the selection.
    pub messages: Estimator,
    /// Payload bytes.
    pub payload_bytes: Estimator,
    /// Wire bytes.
    pub wire_bytes: Estimator,
    /// Packets.
    pub packets: Estimator,
    /// The parameters that all estimates of the capture share.
    pub quality: EstimateQuality,
}

impl PairEstimators {
    /// Samples without a weight.
    #[must_use]
    pub fn unknown(quality: EstimateQuality) -> Self {
        let unknown = Estimator { is_unknown: true, ..Estimator::default() };
        Self { messages: unknown, payload_bytes: unknown, wire_bytes: unknown, packets: unknown, quality }
    }

    /// The estimators of a connection, with its transport messages.
    #[must_use]
    pub fn of(connection: &SampledConnection) -> Self {
        let SampledConnection { sums, weight, quality } = *connection;
        let Some(weight) = weight else { return Self::unknown(quality) };
        let by_observation = weight.per_observation();
        let per_sample = if weight.points == SamplingPoints::TwoTogether { 2 } else { 1 };
        let of = |observations: u64, sum: u64, squares: u64, largest: f64| {
            let samples = observations / per_sample;
            let min_squares = MIN_LARGEST * (by_observation.0 * largest).powi(2) * per_sample as f64;
            let mut estimator = Estimator { min_squares, ..Estimator::default() };
            estimator.add(samples, sum as f64, squares as f64, by_observation, weight.points.most());
            if let Some(one) = weight.with_one_point() {
                estimator.doubtful = (one.per_observation().0 - by_observation.0) * sum as f64;
                estimator.weight_ratio = one.per_observation().0 / by_observation.0;
            }
            estimator
        };
        // Acknowledgements alone are all of one size.
        let largest_wire_bytes = if sums.payload_packets > 0 { quality.largest_bytes.0 } else { 0.0 };
        Self {
            messages: of(sums.messages, sums.messages, sums.messages, 0.0),
            payload_bytes: of(sums.payload_packets, sums.payload_bytes, sums.payload_squares, quality.largest_bytes.1),
            wire_bytes: of(sums.packets, sums.wire_bytes, sums.wire_squares, largest_wire_bytes),
            packets: of(sums.packets, sums.packets, sums.packets, 0.0),
            quality,
        }
    }

    /// The estimators of a part of a connection. Its observations are the same share of all
    /// observations as its counted sums are of all counted sums. The sizes of its packets are not
    /// known, so all bytes count as those of the largest packets of the capture: the interval is at
    /// least as wide as that of the real sizes.
    #[must_use]
    pub fn of_part(connection: &SampledConnection, share: &SampledShare) -> Self {
        let part = |sum: u64, share: f64| (sum as f64 * share).round() as u64;
        let all = &connection.sums;
        let sums = SampledSums {
            packets: part(all.packets, share.packets),
            payload_packets: part(all.payload_packets, share.payload_bytes.min(share.packets)),
            wire_bytes: part(all.wire_bytes, share.wire_bytes),
            wire_squares: part(all.wire_squares, share.wire_bytes),
            payload_bytes: part(all.payload_bytes, share.payload_bytes),
            payload_squares: part(all.payload_squares, share.payload_bytes),
            messages: part(all.messages, share.messages),
            open_mpi_messages: 0,
        };
        let mut own = Self::of(&SampledConnection { sums, ..*connection });
        if let Some(weight) = connection.weight {
            let (wire_bytes, payload_bytes) = connection.quality.largest_bytes;
            let largest_wire_bytes = if all.payload_packets > 0 { wire_bytes } else { 0.0 };
            own.wire_bytes.widen(weight.per_observation(), largest_wire_bytes);
            own.payload_bytes.widen(weight.per_observation(), payload_bytes);
        }
        own
    }

    /// Replaces the transport messages by MPI messages: `counted` of them belong to the selection.
    /// The messages of unknown length (`open_mpi_messages`) all belong to it if `has_all_open`; else
    /// any of them may.
    pub fn set_mpi_messages(&mut self, connection: &SampledConnection, counted: u64, has_all_open: bool) {
        let SampledConnection { sums, weight, .. } = *connection;
        self.messages = Estimator::default();
        let Some(weight) = weight else {
            self.messages.is_unknown = counted + sums.open_mpi_messages > 0;
            return;
        };
        let (certain, doubtful) =
            if has_all_open { (counted + sums.open_mpi_messages, 0) } else { (counted, sums.open_mpi_messages) };
        let by_transmission = weight.per_transmission();
        self.messages.add(certain, certain as f64, certain as f64, by_transmission, 1);
        let most = weight.with_one_point().map_or(by_transmission.0, |one| one.per_transmission().0);
        self.messages.weight_ratio = most / by_transmission.0;
        self.messages.doubtful = doubtful as f64 * most + certain as f64 * (most - by_transmission.0);
    }

    /// Adds the samples of other connections.
    pub fn merge(&mut self, other: &Self) {
        self.messages.merge(&other.messages);
        self.payload_bytes.merge(&other.payload_bytes);
        self.wire_bytes.merge(&other.wire_bytes);
        self.packets.merge(&other.packets);
        self.quality = other.quality;
    }
}

/// A sum of a pair that is estimated.
#[derive(Clone, Copy, Debug)]
pub struct EstimatedSum {
    /// Names of the columns: the estimate, and the lower and the upper end of its interval.
    names: [&'static str; 3],
    /// Unit of these columns.
    pub unit: ColumnUnit,
    of: fn(&PairEstimators) -> &Estimator,
}

impl EstimatedSum {
    /// Messages of the selection.
    pub const MESSAGES: Self = Self {
        names: ["messages_estimate", "messages_low", "messages_high"],
        unit: ColumnUnit::Count,
        of: |pair| &pair.messages,
    };
    /// Payload bytes.
    pub const PAYLOAD_BYTES: Self = Self {
        names: ["payload_bytes_estimate", "payload_bytes_low", "payload_bytes_high"],
        unit: ColumnUnit::Bytes,
        of: |pair| &pair.payload_bytes,
    };
    /// Wire bytes.
    pub const WIRE_BYTES: Self = Self {
        names: ["wire_bytes_estimate", "wire_bytes_low", "wire_bytes_high"],
        unit: ColumnUnit::Bytes,
        of: |pair| &pair.wire_bytes,
    };
    /// Packets.
    pub const PACKETS: Self = Self {
        names: ["packets_estimate", "packets_low", "packets_high"],
        unit: ColumnUnit::Count,
        of: |pair| &pair.packets,
    };

    /// All of them, in the order of the columns.
    pub const ALL: [Self; 4] = [Self::MESSAGES, Self::PAYLOAD_BYTES, Self::WIRE_BYTES, Self::PACKETS];

    /// Names of the columns: the estimate, and the lower and the upper end of its interval.
    #[must_use]
    pub const fn names(self) -> [&'static str; 3] {
        self.names
    }

    /// Name of the column with the estimate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names[0]
    }

    /// The estimate for a pair.
    #[must_use]
    pub fn estimate(self, pair: &PairEstimators) -> Estimate {
        (self.of)(pair).result(pair.quality)
    }

    /// Adds the columns with the ends of the interval.
    pub(crate) fn interval<R>(
        self,
        table: Table<R>,
        value: impl Fn(&R) -> Option<EstimatedValue> + Copy + 'static,
    ) -> Table<R> {
        let [_, low, high] = self.names;
        table
            .column(low, self.unit, "lower end of the 95 % interval", move |row| value(row).map(|value| value.low))
            .column(high, self.unit, "upper end of the 95 % interval", move |row| value(row).map(|value| value.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SamplingPoints::Independent;

    fn known(packets: u64, weight: SamplingWeight) -> EstimatedValue {
        let sums = SampledSums { packets, ..SampledSums::default() };
        let connection = SampledConnection { sums, weight: Some(weight), quality: EstimateQuality::default() };
        let estimators = PairEstimators::of(&connection);
        match estimators.packets.result(estimators.quality) {
            Estimate::Known(value) => value,
            other => panic!("{other:?}"),
        }
    }

    /// The ends of the interval solve `|n - T p| = z sqrt(T p (1 - p))`.
    #[test]
    fn the_ends_of_the_interval_are_z_standard_deviations_away() {
        for (samples, one_in) in [(30, 2.0), (30, 1000.0), (400, 10.0), (100_000, 100.0)] {
            let EstimatedValue { estimate, low, high } =
                known(samples, SamplingWeight { one_in, points: Independent(1) });
            assert_eq!(estimate, (samples as f64 * one_in) as u64);
            let p = 1.0 / one_in;
            let distance = |end: f64| (samples as f64 - end * p).abs() / (end * p * (1.0 - p)).sqrt();
            // The ends are whole numbers, rounded away from the estimate.
            for (end, inward) in [(low as f64, 1.0), (high as f64, -1.0)] {
                let between = (distance(end + inward), distance(end));
                assert!(between.0 < Z + 1e-3 && Z - 1e-3 < between.1, "{samples} {one_in} {between:?}");
            }
        }
    }

    #[test]
    fn two_observation_points_see_twice_as_much() {
        let one = known(500, SamplingWeight { one_in: 10.0, points: Independent(1) });
        let two = known(1000, SamplingWeight { one_in: 10.0, points: Independent(2) });
        assert_eq!((one.estimate, two.estimate), (5000, 5000));
        assert!(two.high - two.low < one.high - one.low);
    }

    #[test]
    fn rates_have_a_fraction_unless_they_are_almost_whole() {
        let half = f64::from(u16::MAX) / 32_768.0;
        let texts = [half, 4.0, 3.333, 4.02, 1.04, 1.0, 1.25, 1000.0].map(rate_text);
        assert_eq!(texts, ["2", "4", "3.3", "4", "1.04", "1", "1.25", "1000"]);
    }

    /// Three points take three times as many samples. If the number is not known, the interval holds the
    /// totals of one, two and three points.
    #[test]
    fn three_points_and_unknown_numbers_of_points() {
        let of = |points| known(900, SamplingWeight { one_in: 10.0, points });
        let three = of(Independent(3));
        assert_eq!((three.estimate, of(Independent(1)).estimate), (3000, 9000));
        let unclear = of(SamplingPoints::UpTo(3));
        assert_eq!((unclear.low, unclear.estimate, unclear.high), (three.low, 6000, of(Independent(1)).high));
    }

    #[test]
    fn too_few_samples_and_unknown_rates_have_no_estimate() {
        let result = |packets, weight| {
            let sums = SampledSums { packets, wire_bytes: packets * 100, ..SampledSums::default() };
            let estimators =
                PairEstimators::of(&SampledConnection { sums, weight, quality: EstimateQuality::default() });
            estimators.packets.result(estimators.quality)
        };
        let weight = Some(SamplingWeight { one_in: 10.0, points: Independent(1) });
        assert_eq!(result(MIN_SAMPLES - 1, weight), Estimate::TooFew);
        assert!(matches!(result(MIN_SAMPLES, weight), Estimate::Known(_)));
        assert_eq!(result(1000, None), Estimate::Unknown);
        assert_eq!(result(0, None), Estimate::Unknown);
    }

    /// Small packets only, while other connections of the capture send large ones: the total may
    /// contain large packets that no sample has.
    #[test]
    fn bytes_need_samples_that_outweigh_the_largest_packets() {
        let of = |large: u64| {
            let sums = SampledSums {
                packets: 100 + large,
                payload_packets: 100 + large,
                wire_bytes: 100 * 90 + large * 4154,
                wire_squares: 100 * 90 * 90 + large * 4154 * 4154,
                ..SampledSums::default()
            };
            let weight = Some(SamplingWeight { one_in: 10.0, points: Independent(1) });
            let quality = EstimateQuality { largest_bytes: (4154.0, 4096.0), ..EstimateQuality::default() };
            PairEstimators::of(&SampledConnection { sums, weight, quality })
        };
        for (large, is_known) in [(0, false), (1, false), (2, true)] {
            let estimators = of(large);
            let wire_bytes = estimators.wire_bytes.result(estimators.quality);
            assert_eq!(matches!(wire_bytes, Estimate::Known(_)), is_known, "{large}");
            assert!(matches!(estimators.packets.result(estimators.quality), Estimate::Known(_)));
        }
    }
}
