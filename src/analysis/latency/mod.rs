//! Times between packets, by pair, interval, verb and size class. What the intervals are is drawn at [`crate::model::Interval`].
//!
//! Histograms of connections are added up, so a quantile of a pair is that of all its samples, whatever files and connections they came
//! from; it is exact to three significant digits, and minimum, maximum, mean and standard deviation are exact.

mod shape;
mod time_series;

pub(crate) use shape::Shape;
pub use time_series::{BinKey, CellKey, LatencySeries, Surface, Wanted, surface, time_series};

use super::endpoint_label::{By, EndpointLabels, Label};
use crate::model::profile::CmRow;
use crate::model::{Histogram, Interval, Kind, Profile, Recorder, TimingKey};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

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
pub(crate) const SET_UP: &str = "set_up";
pub(crate) const TEAR_DOWN: &str = "tear_down";

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
    let who = EndpointLabels::new(profile, apart.by.unwrap_or(By::Endpoint));
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
