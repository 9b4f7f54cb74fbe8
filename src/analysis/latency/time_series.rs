//! Time series of latencies: quantiles per bin, and medians by message size and message rate.
//!
//! In: the latency timeline of a profile, which contains the times of some intervals
//! ([`Interval::has_time_series`]) by their start. Out: one histogram per bin, or per cell of size
//! and rate. Quantiles are over all samples of a bin. They come from the coarse buckets of the
//! connections, so they are within 6.25 % of the true values.

use crate::analysis::AnalysisError;
use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::{ConnectionRow, LatencyBin};
use crate::model::{Histogram, Interval, Profile, TimingKey, TrafficKind};
use std::collections::BTreeMap;

/// Counts by coarse histogram bucket.
type CountsByBucket = BTreeMap<u16, u64>;

/// Latencies per time bin.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySeries {
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Histograms by bin; bins without a sample are omitted.
    pub bins: BTreeMap<BinKey, Histogram>,
}

/// The bin of a latency histogram. Keys sort by time last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BinKey {
    /// Name of the interval.
    pub interval: &'static str,
    /// Requester and responder; `None` for all pairs together.
    pub pair: Option<(Label, Label)>,
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
}

/// Latencies by message size and by the message rate of the connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    /// Width of the bins in which rates are measured, in nanoseconds.
    pub bin_ns: i64,
    /// Histograms by cell; cells without a sample are omitted.
    pub cells: BTreeMap<CellKey, Histogram>,
}

/// The cell of a latency histogram in a [`Surface`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// Name of the interval.
    pub interval: &'static str,
    /// Requester and responder; `None` for all pairs together.
    pub pair: Option<(Label, Label)>,
    /// Smallest length of the size class in bytes.
    pub from_bytes: u64,
    /// Smallest rate of the rate class in messages per second: 0, 1, 2, 4 ...
    pub from_rate: u64,
}

/// Selects and groups the latencies of a time series or surface.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencySeriesOptions {
    /// One series per pair of ranks or endpoints; `None` for all pairs together.
    pub by: Option<GroupBy>,
    /// The only interval to include; `None` for all.
    pub interval: Option<&'static str>,
    /// Width of the bins in nanoseconds; `None` for the width of the profile.
    pub bin_ns: Option<i64>,
}

impl LatencySeriesOptions {
    /// The selected rows, with their connection and timing key.
    fn rows<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> Result<impl Iterator<Item = (&'a LatencyBin, (u32, TimingKey), &'a ConnectionRow)>, AnalysisError> {
        let is_kept =
            |name: &str| Interval::ALL.iter().any(|interval| interval.has_time_series() && interval.name() == name);
        if let Some(name) = self.interval.filter(|name| !is_kept(name)) {
            return Err(AnalysisError::NotOverTime { interval: name });
        }
        let latencies: Vec<_> = profile.latencies.iter().map(|row| (row.connection, row.timing)).collect();
        let row = move |bin: &'a LatencyBin| {
            let (index, timing) = *latencies.get(bin.latency as usize)?;
            let connection = profile.connections.get(index as usize)?;
            let is_wanted = self.interval.is_none_or(|name| name == timing.interval.name());
            (is_wanted && connection.kind == TrafficKind::Data).then_some((bin, (index, timing), connection))
        };
        Ok(profile.latency_timeline.iter().filter_map(row))
    }

    fn pair(&self, labels: &EndpointLabels<'_>, connection: &ConnectionRow) -> Option<(Label, Label)> {
        self.by.map(|_| (labels.sender(connection), labels.receiver(connection)))
    }
}

/// Builds the latency histograms per time bin. Fails if the profile has no latency timeline, or
/// none in this bin width or for this interval.
pub fn time_series(profile: &Profile, wanted: &LatencySeriesOptions) -> Result<LatencySeries, AnalysisError> {
    let profile_ns = profile.latency_bin_ns;
    if profile_ns <= 0 {
        return Err(AnalysisError::NoTimes);
    }
    let bin_ns = wanted.bin_ns.unwrap_or(profile_ns);
    if bin_ns % profile_ns != 0 {
        return Err(AnalysisError::Bins { wanted_ns: bin_ns, profile_ns });
    }
    let labels = EndpointLabels::new(profile, wanted.by.unwrap_or(GroupBy::Endpoint));
    let mut counts: BTreeMap<BinKey, CountsByBucket> = BTreeMap::new();
    for (bin, (_, timing), connection) in wanted.rows(profile)? {
        let key = BinKey {
            interval: timing.interval.name(),
            pair: wanted.pair(&labels, connection),
            time_ns: bin.time_ns.div_euclid(bin_ns).saturating_mul(bin_ns),
        };
        *counts.entry(key).or_default().entry(bin.bucket).or_default() += u64::from(bin.count);
    }
    let origin_ns = crate::analysis::origin_ns(profile, counts.keys().map(|key| key.time_ns).min());
    Ok(LatencySeries { bin_ns, origin_ns, bins: histograms(counts) })
}

/// Builds the latency histograms by size and rate. The rate is the number of messages that the
/// connection started in the bin, answered or not.
pub fn surface(profile: &Profile, wanted: &LatencySeriesOptions) -> Result<Surface, AnalysisError> {
    let (times_ns, traffic_ns) = (profile.latency_bin_ns, profile.bin_ns);
    if times_ns <= 0 || traffic_ns <= 0 {
        return Err(AnalysisError::NoTimes);
    }
    // Both timelines start with the same bin width, and each doubles its width on its own.
    let least_ns = times_ns.max(traffic_ns);
    let bin_ns = wanted.bin_ns.unwrap_or(least_ns);
    if bin_ns % times_ns != 0 || bin_ns % traffic_ns != 0 {
        return Err(AnalysisError::Bins { wanted_ns: bin_ns, profile_ns: least_ns });
    }
    let mut messages: BTreeMap<(u32, i64), u64> = BTreeMap::new();
    for row in &profile.timeline {
        *messages.entry((row.connection, row.time_ns.div_euclid(bin_ns))).or_default() += row.traffic.messages;
    }
    let labels = EndpointLabels::new(profile, wanted.by.unwrap_or(GroupBy::Endpoint));
    let mut counts: BTreeMap<CellKey, CountsByBucket> = BTreeMap::new();
    for (bin, (index, timing), connection) in wanted.rows(profile)? {
        let sent = messages.get(&(index, bin.time_ns.div_euclid(bin_ns))).copied().unwrap_or_default();
        let key = CellKey {
            interval: timing.interval.name(),
            pair: wanted.pair(&labels, connection),
            from_bytes: timing.size.from_bytes(),
            from_rate: rate_class(sent, bin_ns),
        };
        *counts.entry(key).or_default().entry(bin.bucket).or_default() += u64::from(bin.count);
    }
    Ok(Surface { bin_ns, cells: histograms(counts) })
}

/// The smallest rate of the class of `messages` per bin. A class reaches from one power of two to
/// the next; the lowest class is below 1 per second.
fn rate_class(messages: u64, bin_ns: i64) -> u64 {
    let per_second = u128::from(messages) * 1_000_000_000 / u128::from(bin_ns.unsigned_abs()).max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX).checked_ilog2().map_or(0, |power| 1 << power)
}

fn histograms<K: Ord>(counts: BTreeMap<K, CountsByBucket>) -> BTreeMap<K, Histogram> {
    counts.into_iter().map(|(key, counts)| (key, Histogram::of_coarse(&counts))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_classed_by_powers_of_two() {
        // In bins of 10 ms: n messages are 100 n per second.
        let class = |messages| rate_class(messages, 10_000_000);
        assert_eq!([class(0), class(1), class(2), class(3), class(41)], [0, 64, 128, 256, 4096]);
        // One message per hour, and one per second.
        assert_eq!([rate_class(1, 3_600_000_000_000), rate_class(1, 1_000_000_000)], [0, 1]);
        assert_eq!(rate_class(u64::MAX, 1), 1 << 63);
    }
}
