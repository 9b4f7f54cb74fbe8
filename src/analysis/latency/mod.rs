//! Times between packets, by pair, interval, verb and size class. [`crate::model::Interval`] has a
//! drawing of the intervals.
//!
//! Histograms of connections are added up, so a quantile of a pair is the quantile of all its
//! samples from all files and connections. Quantiles are exact to three significant digits;
//! minimum, maximum, mean and standard deviation are exact.

mod shape;
mod time_series;

pub(crate) use shape::{BarHistogram, RoundBars};
pub use time_series::{BinKey, CellKey, LatencySeries, LatencySeriesOptions, Surface, surface, time_series};

use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::CmRow;
use crate::model::{Histogram, Interval, Profile, Recorder, TimingKey, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Default limit above which the share of samples is reported: 10 us.
pub const DEFAULT_LIMIT_NS: u64 = 10_000;

/// Names of all intervals.
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

/// The times that a histogram contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyKey {
    /// Name of the interval.
    pub interval: &'static str,
    /// Name of the verb; empty for connection set-up and tear-down.
    pub verb: &'static str,
    /// Smallest length of the size class in bytes; `None` for all sizes together, and for
    /// connection set-up and tear-down.
    pub from_bytes: Option<u64>,
    /// Requester and responder; `None` for all pairs together.
    pub pair: Option<(Label, Label)>,
}

/// The times that get separate histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyGrouping {
    /// One histogram per pair of ranks or endpoints; `None` for all pairs together.
    pub by: Option<GroupBy>,
    /// One histogram per size class.
    pub sizes: bool,
}

/// The histograms of a profile, in nanoseconds.
#[must_use]
pub fn latencies(profile: &Profile, grouping: LatencyGrouping) -> BTreeMap<LatencyKey, Histogram> {
    let labels = EndpointLabels::new(profile, grouping.by.unwrap_or(GroupBy::Endpoint));
    let mut table: BTreeMap<LatencyKey, Histogram> = BTreeMap::new();
    for row in &profile.latencies {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == TrafficKind::Data) else { continue };
        let TimingKey { interval, verb, size } = row.timing;
        let key = LatencyKey {
            interval: interval.name(),
            verb: verb.name(),
            from_bytes: grouping.sizes.then(|| size.from_bytes()),
            pair: grouping.by.map(|_| (labels.sender(connection), labels.receiver(connection))),
        };
        table.entry(key).or_default().merge(&row.histogram);
    }
    for ((interval, src, dst), histogram) in connections(&profile.cm) {
        let pair = grouping.by.map(|_| (labels.port(src), labels.port(dst)));
        table.entry(LatencyKey { interval, verb: "", from_bytes: None, pair }).or_default().merge(&histogram);
    }
    table
}

/// Set-up (REQ to RTU) and tear-down (DREQ to DREP) times of connections, by the endpoint that
/// sends the REQ or DREQ and its peer.
fn connections(cm: &[CmRow]) -> BTreeMap<(&'static str, Endpoint, Endpoint), Histogram> {
    let mut started: BTreeMap<(&str, Endpoint, Endpoint, u32), i64> = BTreeMap::new();
    let mut table: BTreeMap<(&'static str, Endpoint, Endpoint), Recorder> = BTreeMap::new();
    for row in cm {
        let (src, dst, id) = (row.src, row.dst, row.local_comm_id);
        let ended = match row.message.as_str() {
            "REQ" | "DREQ" => {
                // The time starts with the first transmission.
                started.entry((if row.message == "REQ" { "REQ" } else { "DREQ" }, src, dst, id)).or_insert(row.time_ns);
                continue;
            }
            // The sender of the REQ sends the RTU; the receiver of the DREQ sends the DREP.
            "RTU" => started.remove(&("REQ", src, dst, id)).map(|from_ns| (SET_UP, src, dst, from_ns)),
            "DREP" => {
                let from_ns = row.remote_comm_id.and_then(|id| started.remove(&("DREQ", dst, src, id)));
                from_ns.map(|from_ns| (TEAR_DOWN, dst, src, from_ns))
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
