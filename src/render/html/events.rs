//! Retransmissions, congestion and NAKs of the page over time, in bins of the profile's senders.

use super::senders::{start_of, widened};
use crate::analysis::health::{HealthSums, PauseTimes, health_series};
use crate::model::Profile;
use crate::model::pause_series::PauseBin;
use crate::render::health::{CONGESTION_NAMES, pauses_without_bin};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of bins; more are merged by twos.
const MAX_BINS: i64 = 1200;

/// The packets by kind and bin, all senders together; `null` if there are none, and if their times are
/// not known. A row has the number of the bin, the retransmitted packets, and one count for each of the
/// other kinds.
pub(super) fn document(profile: &Profile, origin_ns: i64) -> Value {
    let Ok(series) = health_series(profile) else { return Value::Null };
    let Some((start_ns, end_ns)) = series.span_ns() else { return Value::Null };
    let last_ns = end_ns.saturating_sub(series.bin_ns);
    let bin_ns = widened(series.bin_ns, last_ns.saturating_sub(start_ns), MAX_BINS);
    let first_ns = start_of(start_ns, bin_ns);
    let mut sums: BTreeMap<i64, HealthSums> = BTreeMap::new();
    for (time_ns, own) in series.of_all_senders().into_iter().filter(|(_, own)| own.events() > 0) {
        *sums.entry(time_ns.saturating_sub(first_ns) / bin_ns).or_default() += own;
    }
    if sums.is_empty() {
        return Value::Null;
    }
    let row = |(bin, own): (&i64, &HealthSums)| {
        let counts = std::iter::once(own.retransmitted_packets).chain(own.congestion.values());
        std::iter::once(Value::from(*bin)).chain(counts.map(Value::from)).collect::<Vec<_>>()
    };
    let names: Vec<&str> = std::iter::once("retransmitted").chain(CONGESTION_NAMES).collect();
    json!({
        "bin_ns": bin_ns,
        "first_ns": first_ns.saturating_sub(origin_ns),
        "bins": last_ns.saturating_sub(first_ns) / bin_ns + 1,
        "names": names,
        "has_congestion": series.has_congestion,
        "rows": sums.iter().map(row).collect::<Vec<_>>(),
    })
}

/// Pause and PFC frames over time, in bins of their own; `null` if there are none. A row has the start
/// of the bin, frames, requests for a pause, requests to resume and quanta.
pub(super) fn pauses(profile: &Profile, origin_ns: i64) -> Value {
    let times = PauseTimes::of(profile);
    if times.frames == 0 {
        return Value::Null;
    }
    let row = |(time_ns, sums): &(i64, PauseBin)| {
        (time_ns.saturating_sub(origin_ns), sums.frames, sums.pauses, sums.resumes, sums.quanta)
    };
    json!({
        "bin_ns": times.bin_ns,
        "rows": times.bins.iter().map(row).collect::<Vec<_>>(),
        "without_bin": pauses_without_bin(&times),
    })
}
