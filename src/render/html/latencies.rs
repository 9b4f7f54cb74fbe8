//! Times between packets, in a page: quantiles and histograms of all pairs and of those with most samples, and percentiles over time.

use crate::analysis::By;
use crate::analysis::latency::{self, Apart, Key, Wanted};
use crate::model::{Histogram, Profile, histogram};
use crate::render::latency::key_json;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Pairs whose times are shown by themselves, for each interval and verb.
const MOST_PAIRS: usize = 32;
/// Bins of percentiles over time: more are no pixels.
const MOST_BINS: i128 = 600;

/// Everything about times.
pub(super) fn document(profile: &Profile, origin_ns: i64) -> Value {
    let of = |sizes| latency::latencies(profile, Apart { by: None, sizes });
    let (by_size, whole) = (of(true), of(false));
    // Quantiles of all sizes together cannot be had from those of each.
    let rows = by_size.iter().chain(&whole).filter(|(key, _)| !key.verb.is_empty() || key.from_bytes.is_none());
    json!({
        "rows": rows.map(row).collect::<Vec<_>>(),
        "pairs": pairs(profile),
        "clock_ns": profile.coverage.clock_ns,
        "over_time": over_time(profile, origin_ns),
    })
}

/// What one histogram is of, its quantiles, and how many there are in buckets of an eighth of a power of two.
fn row((key, times): (&Key, &Histogram)) -> Map<String, Value> {
    let mut buckets: BTreeMap<u16, u64> = BTreeMap::new();
    for (value, count) in times.values() {
        *buckets.entry(histogram::coarse_bucket(value)).or_default() += count;
    }
    let mut row = key_json(key);
    let values = [
        ("samples", json!(times.samples())),
        ("min_ns", json!(times.min())),
        ("p10_ns", json!(times.quantile(0.1))),
        ("median_ns", json!(times.quantile(0.5))),
        ("p90_ns", json!(times.quantile(0.9))),
        ("p99_ns", json!(times.quantile(0.99))),
        ("max_ns", json!(times.max())),
        ("buckets", json!(buckets.into_iter().collect::<Vec<_>>())),
    ];
    row.extend(values.map(|(name, value)| (name.to_owned(), value)));
    row
}

/// The same by pair, of ranks where some are known: of each interval and verb those with most samples.
fn pairs(profile: &Profile) -> Vec<Map<String, Value>> {
    let by = if profile.ranks.is_empty() { By::Endpoint } else { By::Rank };
    let all = latency::latencies(profile, Apart { by: Some(by), sizes: false });
    let mut own: Vec<(&Key, &Histogram)> = all.iter().collect();
    own.sort_by_key(|(key, times)| (key.interval, key.verb, std::cmp::Reverse(times.samples())));
    let groups = own.chunk_by(|(key, _), (other, _)| (key.interval, key.verb) == (other.interval, other.verb));
    let most = groups.flat_map(|group| group.iter().take(MOST_PAIRS));
    let named = |&(key, times): &(&Key, &Histogram)| {
        let mut row = row((key, times));
        let names = key.pair.as_ref().map(|(src, dst)| [src.name(), dst.name()]);
        row.insert("names".to_owned(), json!(names));
        row
    };
    most.map(named).collect()
}

/// Percentiles over time by interval, as `latency --view timeline` has them: start of the bin from the first packet, samples, and four quantiles.
fn over_time(profile: &Profile, origin_ns: i64) -> Value {
    let times = || profile.latency_timeline.iter().map(|bin| i128::from(bin.time_ns));
    let span_ns = times().max().zip(times().min()).map_or(0, |(last, first)| last - first);
    let own_ns = i128::from(profile.latency_bin_ns.max(1));
    // One bin more may begin before the first.
    let together = span_ns / (own_ns * (MOST_BINS - 1)) + 1;
    let bin_ns = i64::try_from(own_ns * together).ok();
    let Ok(times) = latency::time_series(profile, &Wanted { bin_ns, ..Wanted::default() }) else { return Value::Null };
    let mut intervals: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (key, times) in &times.bins {
        let of = |share| times.quantile(share);
        let from_ns = key.time_ns.saturating_sub(origin_ns);
        let bin = json!([from_ns, times.samples(), of(0.1), of(0.5), of(0.9), of(0.99)]);
        intervals.entry(key.interval).or_default().push(bin);
    }
    json!({ "bin_ns": times.bin_ns, "profile_bin_ns": profile.latency_bin_ns, "intervals": intervals })
}
