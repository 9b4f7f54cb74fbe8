//! Times between packets, by pair, interval, verb and size class. What the intervals are is drawn at [`crate::model::Interval`].
//!
//! Histograms of connections are added up, so a quantile of a pair is that of all its samples, whatever files and connections they came
//! from; it is exact to three significant digits, and minimum, maximum, mean and standard deviation are exact.

mod buckets;
mod labels;
mod over_time;
mod shape;

pub use buckets::{bucket_csv, bucket_table};
pub(super) use labels::{LABELS, labelled};
pub use over_time::{BinKey, CellKey, OverTime, Surface, Wanted, over_time, surface};
pub(super) use shape::Shape;
pub use shape::bars;

use super::ReportError;
use super::units::group;
use super::who::{By, Label, Who};
use crate::model::profile::CmRow;
use crate::model::{Histogram, Interval, Kind, Profile, Recorder, TimingKey};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::{Opcode, Service};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Limit above which the share of samples is told unless another is asked for: 10 us.
pub const DEFAULT_LIMIT_NS: u64 = 10_000;

/// Names of all intervals that there may be.
pub const INTERVALS: [&str; Interval::ALL.len() + 2] = {
    let mut names = [SET_UP; Interval::ALL.len() + 2];
    let mut at = 0;
    while at < Interval::ALL.len() {
        names[at] = Interval::ALL[at].name();
        at += 1;
    }
    names[at + 1] = TEAR_DOWN;
    names
};
/// What is said of a profile without times.
pub const NOT_MEASURED: &str = "times were not measured: the profile was written with `analyze --no-times` or `--no-mpi`; analyse the captures again \
                                without it, or give them to `latency`";
const SET_UP: &str = "set_up";
const TEAR_DOWN: &str = "tear_down";

/// What one histogram is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Name of the interval.
    pub interval: &'static str,
    /// Name of the verb; empty for connections as a whole.
    pub verb: &'static str,
    /// Smallest length of the size class in bytes; `None` for all sizes together, and for connections as a whole.
    pub from_bytes: Option<u64>,
    /// Who asks; `None` for all pairs together.
    pub pair: Option<(Label, Label)>,
}

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name of the interval.
    pub interval: &'static str,
    /// Names of the verbs that were measured, where the interval is one of verbs.
    pub verbs: Vec<&'static str>,
}

impl Subject {
    /// What a figure of some histograms is of: of the interval that was asked for, or else of the one that tells most, how long requests wait for
    /// their answer, or else any. Where times were not measured (`times_read`), connections alone have some.
    pub fn of(
        latencies: &BTreeMap<Key, Histogram>,
        wanted: Option<&'static str>,
        times_read: bool,
    ) -> Result<Self, ReportError> {
        let is_wanted = |key: &Key| wanted.is_none_or(|name| name == key.interval);
        if !times_read && !latencies.keys().any(is_wanted) {
            return Err(ReportError::NotMeasured);
        }
        let names = || latencies.keys().map(|key| key.interval);
        let mut answers = Interval::ALL.into_iter().filter(|interval| interval.is_answer()).map(Interval::name);
        let told = || answers.find(|answer| names().any(|name| name == *answer)).or_else(|| names().next());
        let Some(interval) = wanted.or_else(told) else {
            return Err(ReportError::EmptyTimes { interval: None });
        };
        let own = latencies.keys().filter(|key| key.interval == interval && !key.verb.is_empty());
        let mut verbs: Vec<&'static str> = own.map(|key| key.verb).collect();
        verbs.dedup();
        Ok(Self { interval, verbs })
    }

    /// The error where there is nothing of it.
    pub(super) fn nothing(&self) -> ReportError {
        ReportError::EmptyTimes { interval: Some(self.interval) }
    }
}

/// What is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Pairs of ranks or endpoints.
    pub by: Option<By>,
    /// Size classes.
    pub sizes: bool,
}

/// The histograms of a profile, in nanoseconds.
#[must_use]
pub fn latencies(profile: &Profile, apart: Apart) -> BTreeMap<Key, Histogram> {
    let who = Who::new(profile, apart.by.unwrap_or(By::Endpoint));
    let mut table: BTreeMap<Key, Histogram> = BTreeMap::new();
    for row in &profile.latencies {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == Kind::Data) else { continue };
        let TimingKey { interval, verb, size } = row.timing;
        let key = Key {
            interval: interval.name(),
            verb: verb.name(),
            from_bytes: apart.sizes.then(|| size.from_bytes()),
            pair: apart.by.map(|_| (who.sender(connection), who.receiver(connection))),
        };
        table.entry(key).or_default().merge(&row.histogram);
    }
    for ((interval, src, dst), histogram) in connections(&profile.cm) {
        let pair = apart.by.map(|_| (who.port(src), who.port(dst)));
        table.entry(Key { interval, verb: "", from_bytes: None, pair }).or_default().merge(&histogram);
    }
    table
}

/// What is to be said of requests that no time is shown of: those of services without acknowledgements.
#[must_use]
pub fn notes(profile: &Profile) -> Vec<String> {
    let unreliable = |service: Service| {
        let own = profile.connections.iter().filter(|connection| connection.kind == Kind::Data);
        let count = own.filter(|connection| Opcode(connection.service << 5).service() == service).count();
        (count > 0).then(|| format!("{} of {}", group(count as u64), service.name()))
    };
    let found: Vec<String> = [Service::Uc, Service::Ud].into_iter().filter_map(unreliable).collect();
    if found.is_empty() {
        return Vec::new();
    }
    vec![format!("connections without acknowledgements ({}) have no times from request to answer", found.join(", "))]
}

/// Set-up (REQ to RTU) and tear-down (DREQ to DREP) of connections, by who begins it and with whom.
fn connections(cm: &[CmRow]) -> BTreeMap<(&'static str, Endpoint, Endpoint), Histogram> {
    let mut begun: BTreeMap<(&str, Endpoint, Endpoint, u32), i64> = BTreeMap::new();
    let mut table: BTreeMap<(&'static str, Endpoint, Endpoint), Recorder> = BTreeMap::new();
    for row in cm {
        let (src, dst, id) = (row.src, row.dst, row.local_comm_id);
        let ended = match row.message.as_str() {
            "REQ" | "DREQ" => {
                // Sent again, it counts from the first time.
                begun.entry((if row.message == "REQ" { "REQ" } else { "DREQ" }, src, dst, id)).or_insert(row.time_ns);
                continue;
            }
            // The one who asked confirms the connection, the other one its end.
            "RTU" => begun.remove(&("REQ", src, dst, id)).map(|from_ns| (SET_UP, src, dst, from_ns)),
            "DREP" => {
                let asked = row.remote_comm_id.and_then(|id| begun.remove(&("DREQ", dst, src, id)));
                asked.map(|from_ns| (TEAR_DOWN, dst, src, from_ns))
            }
            _ => None,
        };
        if let Some((interval, src, dst, from_ns)) = ended {
            let ns = u64::try_from(row.time_ns.saturating_sub(from_ns)).unwrap_or(0);
            table.entry((interval, src, dst)).or_default().record(ns);
        }
    }
    table.into_iter().map(|(key, recorder)| (key, recorder.finish())).collect()
}

/// A time for people: three digits and a unit.
pub(super) fn time(ns: f64) -> String {
    if ns == 0.0 {
        return "0".to_owned();
    }
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = if value >= 100.0 { 0 } else { usize::from(value >= 10.0).abs_diff(2) };
    format!("{value:.decimals$} {unit}")
}

/// A class of sizes, from its smallest.
pub(super) fn size(from_bytes: Option<u64>) -> String {
    match from_bytes {
        None => "-".to_owned(),
        Some(from) if from < 2 => format!("{from} B"),
        Some(from) => format!("{}-{} B", from, from * 2 - 1),
    }
}

/// What a capture must hold for times of an interval, or for any.
#[must_use]
pub fn takes(interval: Option<&str>) -> &'static str {
    let known = Interval::ALL.into_iter().find(|known| Some(known.name()) == interval);
    match (known, interval) {
        (Some(Interval::Message), _) => {
            "no message of several packets is in the capture from its first to its last packet"
        }
        (Some(Interval::Interval), _) => "no connection carries two messages in the capture",
        (Some(Interval::Transit), _) => {
            "packets must be seen at both ports: by a sink that both are mirrored to, or in the captures of both, given together without --no-align"
        }
        (Some(Interval::RendezvousRequest | Interval::RendezvousData | Interval::RendezvousCompletion), _) => {
            "an MPI library must be recognised, and messages that are long enough for a rendezvous must be in the capture with both directions"
        }
        (Some(Interval::MpiMessage), _) => {
            "an MPI library must be recognised, and its messages must be seen at both ports: by a sink that both are mirrored to, or in the captures \
             of both, given together"
        }
        (None, Some(SET_UP)) => "no connection was set up by connection management messages while the capture ran",
        (None, Some(TEAR_DOWN)) => {
            "no connection was torn down by connection management messages while the capture ran"
        }
        (Some(Interval::Acknowledged | Interval::FirstResponse | Interval::LastResponse) | None, _) => {
            "acknowledgements and responses belong to the reliable services, and both directions must be in the capture"
        }
    }
}

/// What stands in the place of a table without rows, where this interval is wanted alone or all are.
#[must_use]
pub fn nothing(profile: &Profile, interval: Option<&str>) -> String {
    match interval {
        _ if !profile.times_read => format!("{NOT_MEASURED}\n"),
        None => format!("no time could be measured: {}\n", takes(None)),
        Some(name) => format!("no time of the interval `{name}` could be measured: {}\n", takes(interval)),
    }
}

/// A table for people; without rows, what is said of `nothing`.
#[must_use]
pub fn table(latencies: &BTreeMap<Key, Histogram>, limit_ns: u64, nothing: &str) -> String {
    if latencies.is_empty() {
        return nothing.to_owned();
    }
    let above = format!("> {}", time(limit_ns as f64));
    let header = ["samples", "min", "median", "mean", "p90", "p99", "max", "deviation", above.as_str()];
    let row = |_: &Key, times: &Histogram| {
        let of = |ns: u64| time(ns as f64);
        let share = times.above(limit_ns) as f64 * 100.0 / times.samples().max(1) as f64;
        vec![
            group(times.samples()),
            of(times.min()),
            of(times.quantile(0.5)),
            time(times.mean()),
            of(times.quantile(0.9)),
            of(times.quantile(0.99)),
            of(times.max()),
            time(times.standard_deviation()),
            format!("{share:.1} %"),
        ]
    };
    format!("{}\n", labelled(latencies, &header, row))
}

/// Names and values of a histogram, in the order of the csv.
fn values(times: &Histogram, limit_ns: u64) -> [(&'static str, f64); 11] {
    let quantile = |share| times.quantile(share) as f64;
    [
        ("samples", times.samples() as f64),
        ("min_ns", times.min() as f64),
        ("mean_ns", times.mean()),
        ("p10_ns", quantile(0.1)),
        ("median_ns", quantile(0.5)),
        ("p90_ns", quantile(0.9)),
        ("p95_ns", quantile(0.95)),
        ("p99_ns", quantile(0.99)),
        ("max_ns", times.max() as f64),
        ("standard_deviation_ns", times.standard_deviation()),
        ("above_limit", times.above(limit_ns) as f64),
    ]
}

/// A row of labels and values for each histogram.
pub fn csv(latencies: &BTreeMap<Key, Histogram>, limit_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let names = values(&Histogram::default(), limit_ns).map(|(name, _)| name).join(",");
    writeln!(out, "{LABELS},{names},job")?;
    for (key, times) in latencies {
        let values = values(times, limit_ns).map(|(_, value)| number(value)).join(",");
        writeln!(out, "{},{values},{}", key.csv(), key.job())?;
    }
    Ok(())
}

/// Whole numbers as such, others to a tenth of a nanosecond.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// One object with the rows of the csv, and the buckets of each as pairs of nanoseconds and count.
pub fn json(latencies: &BTreeMap<Key, Histogram>, limit_ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let row = |(key, times): (&Key, &Histogram)| {
        let mut object = key.json();
        object.insert("buckets".to_owned(), json!(times.values().collect::<Vec<_>>()));
        object.extend(values(times, limit_ns).map(|(name, value)| (name.to_owned(), json!(value))));
        object
    };
    let rows: Vec<_> = latencies.iter().map(row).collect();
    let document = json!({ "schema": "ibscope latency", "version": 1, "limit_ns": limit_ns, "latencies": rows });
    writeln!(out, "{document:#}")
}

/// `key: value` lines of all requests and their answers together, in the words of scripts that read that form: SEND and WRITE to their
/// acknowledgement, READ and atomics to the end of their response.
pub fn collie(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut times = Histogram::default();
    for row in &profile.latencies {
        if row.timing.interval.is_answer() {
            times.merge(&row.histogram);
        }
    }
    writeln!(out, "latency_samples: {}", times.samples())?;
    writeln!(out, "latency_min_ns: {}", times.min())?;
    writeln!(out, "latency_avg_ns: {:.0}", times.mean())?;
    for (name, share) in [("median", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        writeln!(out, "latency_{name}_ns: {}", times.quantile(share))?;
    }
    writeln!(out, "latency_max_ns: {}", times.max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SizeClass;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in
            [(0.0, "0"), (7.0, "7.00 ns"), (423_000.0, "423 us"), (1_500_000.0, "1.50 ms"), (12.34e9, "12.3 s")]
        {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn size_classes_end_before_the_next_begins() {
        let text = |bytes| size(Some(SizeClass::of(bytes).from_bytes()));
        assert_eq!(
            [text(0), text(1), text(2), text(3), text(64), text(127)],
            ["0 B", "1 B", "2-3 B", "2-3 B", "64-127 B", "64-127 B"]
        );
    }
}
