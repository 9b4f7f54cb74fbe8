//! The progress of a growing capture as OpenMetrics text, for Prometheus.
//!
//! In: the sums at successive updates, and the profile at the end. Out: one text per update.
//! Invariants: a counter never decreases, and the number of ports and pairs is bounded.

use crate::analysis::classes::class_shares;
use crate::analysis::live::{LiveEnds, LiveOrder, LiveProgress, LiveRows};
use crate::model::live::LivePair;
use crate::model::profile::Traffic;
use crate::model::{Coverage, Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicU64;

/// Ports with counters of their own; the traffic of others is in the totals only.
pub const MAX_PORTS: usize = 4096;
/// Pairs with counters of their own: pairs that were among the busiest of an update.
pub const MAX_PAIRS: usize = 256;
/// Pairs per update that get counters, as long as there is room.
const BUSIEST_PAIRS: usize = 16;

/// The counters of some traffic, without `ibscope_`, unit and `_total`.
struct TrafficCounters {
    help: &'static str,
    packets: &'static str,
    wire_bytes: &'static str,
    messages: &'static str,
    retransmitted_packets: &'static str,
}

/// The counters whose names start with `$prefix`.
macro_rules! traffic_counters {
    ($prefix:literal, $help:literal) => {
        TrafficCounters {
            help: $help,
            packets: concat!($prefix, "packets"),
            wire_bytes: concat!($prefix, "wire"),
            messages: concat!($prefix, "messages"),
            retransmitted_packets: concat!($prefix, "retransmitted_packets"),
        }
    };
}

const OF_ALL: TrafficCounters = traffic_counters!("", "All data connections");
const OF_LINKS: TrafficCounters = traffic_counters!("link_", "Traffic of a port by direction");
const OF_PAIRS: TrafficCounters = traffic_counters!("pair_", "Traffic of pairs that were among the busiest");
const OF_JOBS: TrafficCounters = traffic_counters!("job_", "Traffic of a job, known at the end of the capture");
const OF_CLASSES: TrafficCounters = traffic_counters!("class_", "Traffic of a class, known at the end of the capture");

/// Labels of a metric.
type Labels = Vec<(String, String)>;
/// A counter by labels.
type CounterFamily = Family<Labels, Counter>;

/// The metrics of a growing capture.
#[derive(Debug, Default)]
pub struct LiveMetrics {
    ports: BTreeSet<Endpoint>,
    pairs: BTreeSet<(Endpoint, Endpoint)>,
    /// The highest value of each counter so far. Sums may shrink, because packets are detected as
    /// mirror copies later than they are counted, and Prometheus takes a smaller counter for a
    /// restart.
    highest: BTreeMap<(&'static str, Labels), u64>,
}

impl LiveMetrics {
    /// The text after an update.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn update(&mut self, progress: &LiveProgress) -> Result<String, fmt::Error> {
        let live = &progress.live;
        self.add_pairs(
            progress.rows(LiveRows::Pairs, LiveOrder::Rate, BUSIEST_PAIRS).0.into_iter().map(|row| row.ends),
        );
        self.page(progress, (&live.coverage, live.connections), &live.pairs).finish()
    }

    /// The metrics of these sums, with the counters of all traffic, of ports and of pairs.
    fn page(
        &mut self,
        progress: &LiveProgress,
        (coverage, connections): (&Coverage, u64),
        pairs: &[LivePair],
    ) -> MetricsPage<'_> {
        let unlisted = self.add_ports(pairs.iter().flat_map(|pair| [pair.src, pair.dst]));
        let mut page = MetricsPage::new(&mut self.highest);
        page.gauge("unlisted_ports", "Ports beyond the limit: their traffic is in the totals only", unlisted as f64);
        page.coverage(coverage);
        page.gauge("connections", "Directed connections that carry data", connections as f64);
        if let Some(one_in) = progress.one_in() {
            page.gauge("sampled_one_in", "The mirror passed one of this many packets; counters count those", one_in);
        }
        let mut total = (Traffic::default(), 0);
        for pair in pairs {
            total.0 += pair.traffic;
            total.1 += pair.retransmissions.packets();
        }
        page.traffic(&OF_ALL, &[(Labels::new(), total.0, total.1)]);
        page.traffic(&OF_LINKS, &links(progress, pairs, &self.ports));
        let own = |pair: &LivePair| {
            let labels = [("src", progress.name(pair.src)), ("dst", progress.name(pair.dst))];
            (owned(labels), pair.traffic, pair.retransmissions.packets())
        };
        let shown = pairs.iter().filter(|pair| self.pairs.contains(&(pair.src, pair.dst)));
        page.traffic(&OF_PAIRS, &shown.map(own).collect::<Vec<_>>());
        page
    }

    /// Gives ports counters of their own, as long as there is room. Returns the number of the others.
    fn add_ports(&mut self, ports: impl Iterator<Item = Endpoint>) -> usize {
        let mut unlisted = BTreeSet::new();
        for port in ports {
            if self.ports.len() < MAX_PORTS {
                self.ports.insert(port);
            } else if !self.ports.contains(&port) {
                unlisted.insert(port);
            }
        }
        unlisted.len()
    }

    /// Gives pairs counters of their own, as long as there is room.
    fn add_pairs(&mut self, rows: impl Iterator<Item = LiveEnds>) {
        for ends in rows {
            if let LiveEnds::Pair(src, dst) = ends
                && self.pairs.len() < MAX_PAIRS
            {
                self.pairs.insert((src, dst));
            }
        }
    }

    /// The text at the end: the counters of the profile, which also has classes and jobs.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn finish(&mut self, progress: &LiveProgress, profile: &Profile) -> Result<String, fmt::Error> {
        let data = || profile.connections.iter().filter(|row| row.kind == TrafficKind::Data);
        let mut pairs: BTreeMap<(Endpoint, Endpoint), LivePair> = BTreeMap::new();
        let mut jobs: BTreeMap<u32, (Traffic, u64)> = BTreeMap::new();
        for row in data() {
            let pair = pairs.entry((row.src, row.dst)).or_insert_with(|| LivePair::new(row.src, row.dst));
            pair.traffic += row.traffic;
            pair.retransmissions += row.retransmissions;
            if let Some(job) = row.job {
                let sums = jobs.entry(job).or_default();
                sums.0 += row.traffic;
                sums.1 += row.retransmissions.packets();
            }
        }
        let pairs: Vec<LivePair> = pairs.into_values().collect();
        // The profile may have pairs that no update had.
        let mut busiest: Vec<&LivePair> = pairs.iter().collect();
        busiest.sort_by_key(|pair| std::cmp::Reverse(pair.traffic.wire_bytes));
        self.add_pairs(busiest.into_iter().take(BUSIEST_PAIRS).map(|pair| LiveEnds::Pair(pair.src, pair.dst)));
        let mut page = self.page(progress, (&profile.coverage, data().count() as u64), &pairs);
        let of_job =
            |(job, (traffic, packets)): (u32, (Traffic, u64))| (owned([("job", job.to_string())]), traffic, packets);
        page.traffic(&OF_JOBS, &jobs.into_iter().map(of_job).collect::<Vec<_>>());
        let classes: Vec<_> = class_shares(profile)
            .into_iter()
            .map(|(class, share)| (owned([("class", class.name().to_owned())]), share.traffic, 0))
            .collect();
        page.packets_and_bytes(&OF_CLASSES, &classes);
        page.finish()
    }
}

/// OpenMetrics text in the text format of Prometheus before it, which promtool and the text file
/// collector of node_exporter read: counters are described by the name of their series, units and the end
/// are missing.
#[must_use]
pub fn prometheus_text(open_metrics: &str) -> String {
    let counters: BTreeSet<&str> =
        open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let described = ["# HELP ", "# TYPE "].iter().find_map(|kind| {
            let (name, rest) = line.strip_prefix(kind)?.split_once(' ')?;
            counters.contains(name).then(|| format!("{kind}{name}_total {rest}"))
        });
        if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.push_str(described.as_deref().unwrap_or(line));
            text.push('\n');
        }
    }
    text
}

fn owned<const N: usize>(labels: [(&str, String); N]) -> Labels {
    labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The traffic that each port sent and received.
fn links(progress: &LiveProgress, pairs: &[LivePair], ports: &BTreeSet<Endpoint>) -> Vec<(Labels, Traffic, u64)> {
    let mut links: BTreeMap<(Endpoint, &str), (Traffic, u64)> = BTreeMap::new();
    for pair in pairs {
        for end in [(pair.src, "sent"), (pair.dst, "received")] {
            if ports.contains(&end.0) {
                let sums = links.entry(end).or_default();
                sums.0 += pair.traffic;
                sums.1 += pair.retransmissions.packets();
            }
        }
    }
    let row = |((port, direction), (traffic, retransmitted)): ((Endpoint, &str), (Traffic, u64))| {
        let labels = [("port", progress.name(port)), ("direction", direction.to_owned())];
        (owned(labels), traffic, retransmitted)
    };
    links.into_iter().map(row).collect()
}

/// The metrics of one update.
struct MetricsPage<'a> {
    registry: Registry,
    highest: &'a mut BTreeMap<(&'static str, Labels), u64>,
}

impl<'a> MetricsPage<'a> {
    fn new(highest: &'a mut BTreeMap<(&'static str, Labels), u64>) -> Self {
        Self { registry: Registry::with_prefix("ibscope"), highest }
    }

    fn coverage(&mut self, coverage: &Coverage) {
        for (name, help, value) in [
            ("records", "Records of the capture", coverage.records),
            ("undecoded_records", "Records that could not be decoded", coverage.failed()),
            ("interface_dropped_packets", "Packets that the capturing interface dropped", coverage.interface_drops),
            ("mirror_lost_frames", "Frames lost between mirror and capture", coverage.lost_mirrored_frames()),
            ("untracked_packets", "Packets of connections beyond --max-connections", coverage.untracked_packets),
        ] {
            self.counter(name, help, None, vec![(Labels::new(), value)]);
        }
        if let Some(last_ns) = coverage.last_time_ns {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(last_ns as f64 / 1e9);
            let help = "Time of the last record, since 1970";
            self.registry.register_with_unit("last_record_timestamp", help, Unit::Seconds, gauge);
        }
    }

    /// All four counters.
    fn traffic(&mut self, of: &TrafficCounters, rows: &[(Labels, Traffic, u64)]) {
        self.packets_and_bytes(of, rows);
        let messages = rows.iter().map(|(labels, traffic, _)| (labels.clone(), traffic.messages)).collect();
        self.counter(of.messages, &format!("{}: transport messages", of.help), None, messages);
        let retransmitted = rows.iter().map(|(labels, _, packets)| (labels.clone(), *packets)).collect();
        self.counter(of.retransmitted_packets, &format!("{}: retransmitted packets", of.help), None, retransmitted);
    }

    fn packets_and_bytes(&mut self, of: &TrafficCounters, rows: &[(Labels, Traffic, u64)]) {
        let packets = rows.iter().map(|(labels, traffic, _)| (labels.clone(), traffic.packets)).collect();
        self.counter(of.packets, &format!("{}: packets", of.help), None, packets);
        let bytes = rows.iter().map(|(labels, traffic, _)| (labels.clone(), traffic.wire_bytes)).collect();
        self.counter(of.wire_bytes, &format!("{}: bytes on the wire", of.help), Some(Unit::Bytes), bytes);
    }

    fn counter(&mut self, name: &'static str, help: &str, unit: Option<Unit>, values: Vec<(Labels, u64)>) {
        let family = CounterFamily::default();
        for (labels, value) in values {
            let highest = self.highest.entry((name, labels.clone())).or_default();
            *highest = value.max(*highest);
            family.get_or_create(&labels).inc_by(*highest);
        }
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family),
            None => self.registry.register(name, help, family),
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        self.registry.register(name, help, gauge);
    }

    fn finish(self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::live::tests::live;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn value(text: &str, series: &str) -> u64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{series}: {text}"));
        line.trim().parse::<f64>().expect("number") as u64
    }

    /// Sums shrink when packets turn out to be mirror copies; the counters stay.
    #[test]
    fn counters_never_decrease() {
        let mut progress = LiveProgress::default();
        let mut metrics = LiveMetrics::default();
        for (sums, expected) in [([1000, 500], 1500), ([600, 500], 1500), ([1200, 500], 1700)] {
            progress.update(live(1_000_000_000, sums), SECOND);
            let text = metrics.update(&progress).unwrap();
            assert_eq!(value(&text, "ibscope_wire_bytes_total "), expected, "{text}");
            assert!(text.ends_with("# EOF\n"), "{text}");
        }
        let text = metrics.update(&progress).unwrap();
        for (port, direction, expected) in [(17, "sent", 1200), (18, "sent", 500), (17, "received", 500)] {
            let series = format!("ibscope_link_wire_bytes_total{{port=\"{port}\",direction=\"{direction}\"}} ");
            assert_eq!(value(&text, &series), expected, "{text}");
        }
    }

    #[test]
    fn text_of_prometheus_describes_counters_by_series() {
        let open_metrics = "# HELP a_b Bytes.\n# TYPE a_b counter\n# UNIT a_b b\na_b_total 1\n\
             # HELP c Count.\n# TYPE c gauge\nc 2\n# EOF\n";
        let expected = "# HELP a_b_total Bytes.\n# TYPE a_b_total counter\na_b_total 1\n\
             # HELP c Count.\n# TYPE c gauge\nc 2\n";
        assert_eq!(prometheus_text(open_metrics), expected);
    }

    /// Ports and pairs beyond the bounds count in the totals only, and the number of these ports is a
    /// metric.
    #[test]
    fn series_are_bounded() {
        let mut progress = LiveProgress::default();
        let mut metrics = LiveMetrics::default();
        let mut sums = live(1_000_000_000, [100, 100]);
        let pair = sums.pairs[0];
        // One receiver, and as many senders as there is room for, and one more.
        let senders = |ports: usize| {
            let lid =
                |lid: usize| LivePair { src: lid.to_string().parse().unwrap(), dst: "1".parse().unwrap(), ..pair };
            (2..=ports).map(lid).collect::<Vec<_>>()
        };
        for (ports, unlisted) in [(MAX_PORTS, 0), (MAX_PORTS + 1, 1)] {
            sums.pairs = senders(ports);
            progress.update(sums.clone(), SECOND);
            assert_eq!(value(&metrics.update(&progress).unwrap(), "ibscope_unlisted_ports "), unlisted);
        }
        for _ in 0..2 * MAX_PAIRS / BUSIEST_PAIRS {
            progress.update(sums.clone(), SECOND);
            sums.pairs.rotate_left(BUSIEST_PAIRS);
            let text = metrics.update(&progress).unwrap();
            assert!(text.matches("ibscope_pair_packets_total{").count() <= MAX_PAIRS);
            assert_eq!(value(&text, "ibscope_wire_bytes_total "), 100 * MAX_PORTS as u64);
        }
        assert_eq!(metrics.pairs.len(), MAX_PAIRS);
    }
}
