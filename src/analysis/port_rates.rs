//! Wire rates of the ports of a job's ranks over time, as samples of a trace.
//!
//! In: a profile with a timeline. Out: the ports, and a sample wherever a rate of a port changes.
//! Invariant: the samples of a port are in order of time, and each holds until the next one; the
//! last ones are 0.

use super::AnalysisError;
use super::endpoint_label::Label;
use super::health::LinkDirection;
use super::link_rates::{LinkRates, LowerBound, link_rates};
use crate::model::Profile;
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// A port of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeteredPort {
    /// Its name, or its address.
    pub name: String,
    /// The lowest rank that uses it.
    pub rank: u32,
}

/// Rates of a port from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSample {
    /// Nanoseconds since the epoch: the start of a bin.
    pub time_ns: i64,
    /// Index of the port.
    pub port: u32,
    /// Wire bytes per second from the port.
    pub sent_bytes_per_s: u64,
    /// Wire bytes per second to the port.
    pub received_bytes_per_s: u64,
}

/// The rates of the ports of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRates {
    /// The ports, in the order of their addresses.
    pub ports: Vec<MeteredPort>,
    /// Width of the bins in nanoseconds.
    pub bin_ns: i64,
    /// The samples, by port and time.
    pub samples: Vec<PortSample>,
    /// The strongest reason why a rate may be too low; `None` if all are exact.
    pub lower_bound: Option<LowerBound>,
}

/// Computes the rates of the ports of a job's ranks: those of all traffic in the profile.
/// `is_selected` states that the profile holds one of several jobs only. The profile is not
/// that of a sampled capture, whose rates are estimates. Fails if it has no timeline.
pub fn port_rates(profile: &Profile, job: u32, is_selected: bool) -> Result<PortRates, AnalysisError> {
    let rates = link_rates(profile, None, is_selected, None)?;
    let mut ranks: BTreeMap<Endpoint, u32> = BTreeMap::new();
    for row in profile.ranks.iter().filter(|row| row.job == job) {
        let Ok(endpoint) = row.endpoint.parse() else { continue };
        ranks.entry(endpoint).and_modify(|rank| *rank = row.rank.min(*rank)).or_insert(row.rank);
    }
    let mut found = PortRates { bin_ns: rates.bin_ns, ..PortRates::default() };
    for (port, (endpoint, rank)) in (0..).zip(ranks) {
        found.ports.push(MeteredPort { name: profile.name_of(endpoint), rank });
        let (bins, lower_bound) = bins_of(&rates, endpoint);
        found.lower_bound = found.lower_bound.max(lower_bound);
        found.samples.extend(changes(&bins, &rates, port));
    }
    Ok(found)
}

/// Rates from and to a port, in bytes per second, by the start of the bin.
type PortBins = BTreeMap<i64, [u64; 2]>;

fn bins_of(rates: &LinkRates, endpoint: Endpoint) -> (PortBins, Option<LowerBound>) {
    let mut bins = PortBins::new();
    let mut lower_bound = None;
    let of_port = |port: &Label| matches!(port, Label::Endpoint(own, _) if *own == endpoint);
    for link in rates.links.iter().filter(|link| of_port(&link.port)) {
        lower_bound = lower_bound.max(link.lower_bound);
        for bin in &link.bins {
            let [sent, received] = bins.entry(bin.time_ns).or_default();
            let rate = match link.direction {
                LinkDirection::From => sent,
                LinkDirection::To => received,
            };
            *rate = rates.rate(bin).round() as u64;
        }
    }
    (bins, lower_bound)
}

/// The samples of a port: the start of each bin with another rate than the one before.
fn changes(bins: &PortBins, rates: &LinkRates, port: u32) -> Vec<PortSample> {
    let mut samples = Vec::new();
    let mut last = [0, 0];
    let mut change = |time_ns, [sent_bytes_per_s, received_bytes_per_s]: [u64; 2]| {
        if last != [sent_bytes_per_s, received_bytes_per_s] {
            samples.push(PortSample { time_ns, port, sent_bytes_per_s, received_bytes_per_s });
            last = [sent_bytes_per_s, received_bytes_per_s];
        }
    };
    let mut starts = bins.keys().skip(1);
    for (time_ns, own) in bins {
        change(*time_ns, *own);
        let end_ns = time_ns.saturating_add(rates.bin_ns);
        if starts.next().is_none_or(|next_ns| *next_ns > end_ns) {
            change(end_ns, [0, 0]);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture;
    use crate::model::profile::TimelineRow;

    /// In bins of 1 ms: 4000 bytes from LID 9 to 10 at 0 and 1 ms, 4000 from LID 11 to 9 at 1 ms, and
    /// 8000 from LID 9 to 10 at 5 ms. LID 11 has no rank.
    fn profile() -> Profile {
        let row = |time_ms: i64, connection, unit| TimelineRow {
            time_ns: time_ms * 1_000_000,
            connection,
            traffic: fixture::traffic(unit),
            ..TimelineRow::default()
        };
        Profile {
            bin_ns: 1_000_000,
            connections: vec![
                fixture::connection(Some(1), (9, 10), (10, 9), 4),
                fixture::connection(None, (11, 30), (9, 31), 1),
            ],
            ranks: vec![
                fixture::rank(1, 2, 9, Some(12)),
                fixture::rank(1, 0, 9, Some(10)),
                fixture::rank(1, 1, 10, Some(9)),
                fixture::rank(2, 0, 11, Some(30)),
            ],
            timeline: vec![row(0, 0, 1), row(1, 0, 1), row(1, 1, 1), row(5, 0, 2)],
            ..Profile::default()
        }
    }

    #[test]
    fn samples_are_at_the_changes_of_a_rate() {
        let rates = port_rates(&profile(), 1, false).expect("a timeline");
        let ports: Vec<(&str, u32)> = rates.ports.iter().map(|port| (port.name.as_str(), port.rank)).collect();
        assert_eq!(ports, [("9", 0), ("10", 1)]);
        let sample = |(time_ms, port, sent, received): (i64, u32, u64, u64)| PortSample {
            time_ns: time_ms * 1_000_000,
            port,
            sent_bytes_per_s: sent * 1_000_000,
            received_bytes_per_s: received * 1_000_000,
        };
        // 4000 bytes in 1 ms are 4 million bytes per second.
        let expected = [
            (0, 0, 4, 0),
            (1, 0, 4, 4),
            (2, 0, 0, 0),
            (5, 0, 8, 0),
            (6, 0, 0, 0),
            (0, 1, 0, 4),
            (2, 1, 0, 0),
            (5, 1, 0, 8),
            (6, 1, 0, 0),
        ];
        assert_eq!(rates.samples, expected.map(sample));
        assert_eq!(rates.lower_bound, None);
        let of_one_job = port_rates(&profile(), 1, true).expect("a timeline");
        assert_eq!(of_one_job.lower_bound, Some(LowerBound::LeftOut));
        assert!(port_rates(&Profile { bin_ns: 0, ..profile() }, 1, false).is_err(), "no timeline");
    }
}
