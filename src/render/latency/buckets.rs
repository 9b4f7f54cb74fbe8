//! The buckets of histograms, one by one: which time was measured how often.

use super::labels::{LABELS, key_csv, key_job, labelled_rows};
use super::units::time;
use crate::analysis::latency::Key;
use crate::model::Histogram;
use crate::render::units::group;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Rows of all histograms that people are shown; csv has all.
const MOST_ROWS: usize = 200;

/// A row of labels, the middle of a bucket in nanoseconds, and how many times are in it, for each bucket that is not empty.
pub fn bucket_csv(latencies: &BTreeMap<Key, Histogram>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{LABELS},ns,count,job")?;
    for (key, times) in latencies {
        let (labels, job) = (key_csv(key), key_job(key));
        for (ns, count) in times.values() {
            writeln!(out, "{labels},{ns},{count},{job}")?;
        }
    }
    Ok(())
}

/// The same for people, with what share is no longer than the time; without rows, what is said of `nothing`.
#[must_use]
pub fn bucket_table(latencies: &BTreeMap<Key, Histogram>, nothing: &str) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let rows = latencies.iter().flat_map(|(key, times)| {
        let all = times.samples().max(1) as f64;
        times.values().scan(0, move |up_to, (ns, count)| {
            *up_to += count;
            let share = format!("{:.1} %", *up_to as f64 * 100.0 / all);
            Some((key, vec![time(ns as f64), group(count), share]))
        })
    });
    let count = latencies.values().map(|times| times.values().count()).sum::<usize>();
    let has_pairs = latencies.keys().any(|key| key.pair.is_some());
    let table = labelled_rows(has_pairs, &["time", "samples", "up to here"], rows.take(MOST_ROWS));
    let more = match count.saturating_sub(MOST_ROWS) {
        0 => String::new(),
        more => format!("... and {} more: csv and json have all\n", group(more as u64)),
    };
    format!("{table}\n{more}")
}
