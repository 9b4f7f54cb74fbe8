//! Latencies of a page: quantiles and histograms over all pairs and of the pairs with most samples,
//! and percentiles over time.
//!
//! Durations are in nanoseconds.

use super::exports::sender_grouping;
use crate::analysis::Label;
use crate::analysis::latency::{self, LatencyGrouping, LatencyKey, LatencySeriesOptions, RoundBars};
use crate::model::{Histogram, Profile};
use crate::render::latency::key_json;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum number of pairs with separate latencies, per interval and verb.
const MAX_PAIRS: usize = 32;
/// Maximum number of bins of percentiles over time; more would be narrower than a pixel.
const MAX_BINS: i128 = 600;

/// Returns the latency part of the document.
pub(super) fn document(profile: &Profile, origin_ns: i64) -> Value {
    let of = |sizes| latency::latencies(profile, LatencyGrouping { by: None, sizes });
    let (by_size, whole) = (of(true), of(false));
    // Quantiles over all sizes cannot be computed from the quantiles of each size.
    let rows = by_size.iter().chain(&whole).filter(|(key, _)| !key.verb.is_empty() || key.from_bytes.is_none());
    json!({
        "rows": rows.map(row).collect::<Vec<_>>(),
        "pairs": pairs(profile),
        "over_time": over_time(profile, origin_ns),
    })
}

/// One histogram: its key and its quantiles; if it combines all sizes, also the bars of the figure.
fn row((key, times): (&LatencyKey, &Histogram)) -> Map<String, Value> {
    let bars = key.from_bytes.is_none().then(|| RoundBars::new(times));
    let mut row = key_json(key);
    let values = [
        ("samples", json!(times.samples())),
        ("min_ns", json!(times.min())),
        ("p10_ns", json!(times.quantile(0.1))),
        ("median_ns", json!(times.quantile(0.5))),
        ("p90_ns", json!(times.quantile(0.9))),
        ("p99_ns", json!(times.quantile(0.99))),
        ("max_ns", json!(times.max())),
        ("bars", json!(bars.map(|RoundBars { edges_ns, counts }| json!({ "edges_ns": edges_ns, "counts": counts })))),
    ];
    row.extend(values.map(|(name, value)| (name.to_owned(), value)));
    row
}

/// Histograms by pair, of ranks if any rank is known: per interval and verb the pairs with most
/// samples.
fn pairs(profile: &Profile) -> Vec<Map<String, Value>> {
    let by = sender_grouping(profile);
    let all = latency::latencies(profile, LatencyGrouping { by: Some(by), sizes: false });
    let mut own: Vec<(&LatencyKey, &Histogram)> = all.iter().collect();
    own.sort_by_key(|(key, times)| (key.interval, key.verb, std::cmp::Reverse(times.samples())));
    let groups = own.chunk_by(|(key, _), (other, _)| (key.interval, key.verb) == (other.interval, other.verb));
    let most = groups.flat_map(|group| group.iter().take(MAX_PAIRS));
    let named = |&(key, times): &(&LatencyKey, &Histogram)| {
        let mut row = row((key, times));
        row.insert("names".to_owned(), json!(key.pair.as_ref().map(pair_names)));
        row
    };
    most.map(named).collect()
}

/// The names of sender and receiver, or one name for the traffic of no job.
fn pair_names((src, dst): &(Label, Label)) -> Vec<String> {
    if src.is_no_job() && dst.is_no_job() { vec!["traffic of no job".to_owned()] } else { vec![src.name(), dst.name()] }
}

/// Percentiles over time by interval, with the numbers of `latency --view timeline`: start of the
/// bin from the first packet, samples, and four quantiles.
fn over_time(profile: &Profile, origin_ns: i64) -> Value {
    let times = || profile.latency_timeline.iter().map(|bin| i128::from(bin.time_ns));
    let span_ns = times().max().zip(times().min()).map_or(0, |(last, first)| last - first);
    let own_ns = i128::from(profile.latency_bin_ns.max(1));
    // Aligning wider bins may add one bin before the first.
    let together = span_ns / (own_ns * (MAX_BINS - 1)) + 1;
    let bin_ns = i64::try_from(own_ns * together).ok();
    let Ok(times) = latency::time_series(profile, &LatencySeriesOptions { bin_ns, ..LatencySeriesOptions::default() })
    else {
        return Value::Null;
    };
    let mut intervals: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (key, times) in &times.bins {
        let of = |share| times.quantile(share);
        let from_ns = key.time_ns.saturating_sub(origin_ns);
        let bin = json!([from_ns, times.samples(), of(0.1), of(0.5), of(0.9), of(0.99)]);
        intervals.entry(key.interval).or_default().push(bin);
    }
    json!({ "bin_ns": times.bin_ns, "profile_bin_ns": profile.latency_bin_ns, "intervals": intervals })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Interval;

    #[test]
    fn traffic_of_no_job_has_one_name() {
        assert_eq!(pair_names(&(Label::NoJob, Label::NoJob)), ["traffic of no job"]);
        assert_eq!(pair_names(&(Label::only(0), Label::only(1))), ["0", "1"]);
    }

    #[test]
    fn every_interval_has_words_on_the_page() {
        let script = include_str!("latency.js");
        let words =
            script.split_once("const INTERVALS = {").and_then(|(_, rest)| rest.split_once("};")).map(|(it, _)| it);
        let words = words.expect("the words");
        for interval in Interval::ALL {
            assert!(words.contains(&format!(" {}: \"", interval.name())), "{}", interval.name());
        }
    }
}
