//! The progress of a growing capture as OpenMetrics text, for Prometheus.
//!
//! In: the sums at successive updates, and the profile at the end. Out: one text per update.
//! Invariants: a counter never decreases, except once at the end; ports of one name have one counter;
//! and the number of ports and pairs is bounded.

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
    /// Names of the ports with counters of their own.
    ports: BTreeSet<String>,
    /// Names of the ports of the pairs with counters of their own.
    pairs: BTreeSet<(String, String)>,
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
        let busiest = progress.rows(LiveRows::Pairs, LiveOrder::Rate, BUSIEST_PAIRS).0;
        self.add_pairs(progress, busiest.into_iter().map(|row| row.ends));
        self.page(progress, (&live.coverage, live.connections), &live.pairs).finish()
    }

    /// The metrics of these sums, with the counters of all traffic, of ports and of pairs.
    fn page(
        &mut self,
        progress: &LiveProgress,
        (coverage, connections): (&Coverage, u64),
        pairs: &[LivePair],
    ) -> MetricsPage<'_> {
        let ports: BTreeSet<Endpoint> = pairs.iter().flat_map(|pair| [pair.src, pair.dst]).collect();
        let names: BTreeMap<Endpoint, String> = ports.into_iter().map(|port| (port, progress.name(port))).collect();
        let unlisted = self.add_ports(names.values());
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
        page.traffic(&OF_LINKS, &links(&names, pairs, &self.ports));
        let listed: BTreeSet<(&str, &str)> = self.pairs.iter().map(|(src, dst)| (src.as_str(), dst.as_str())).collect();
        let row = |pair: &LivePair| {
            let (src, dst) = (names.get(&pair.src)?, names.get(&pair.dst)?);
            let labels = || owned([("src", src.clone()), ("dst", dst.clone())]);
            let is_listed = listed.contains(&(src.as_str(), dst.as_str()));
            is_listed.then(|| (labels(), pair.traffic, pair.retransmissions.packets()))
        };
        page.traffic(&OF_PAIRS, &pairs.iter().filter_map(row).collect::<Vec<_>>());
        page
    }

    /// Gives ports counters of their own, as long as there is room. `names` has the name of each
    /// port. Returns the number of the others.
    fn add_ports<'a>(&mut self, names: impl Iterator<Item = &'a String>) -> usize {
        let mut unlisted = 0;
        for name in names {
            if self.ports.len() < MAX_PORTS {
                self.ports.insert(name.clone());
            } else if !self.ports.contains(name) {
                unlisted += 1;
            }
        }
        unlisted
    }

    /// Gives pairs counters of their own, as long as there is room.
    fn add_pairs(&mut self, progress: &LiveProgress, rows: impl Iterator<Item = LiveEnds>) {
        for ends in rows {
            if let LiveEnds::Pair(src, dst) = ends
                && self.pairs.len() < MAX_PAIRS
            {
                self.pairs.insert((progress.name(src), progress.name(dst)));
            }
        }
    }

    /// The text at the end: the counters of the profile, which also has classes and jobs. They are
    /// those of `analyze`, so they may be less than those of the last update.
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
        let busiest = busiest.into_iter().take(BUSIEST_PAIRS);
        self.add_pairs(progress, busiest.map(|pair| LiveEnds::Pair(pair.src, pair.dst)));
        // The final numbers are better than the highest ones. No number follows them, so Prometheus
        // takes a smaller counter for a restart once at most.
        self.highest.clear();
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

/// The traffic that each listed name of a port sent and received.
fn links(
    names: &BTreeMap<Endpoint, String>,
    pairs: &[LivePair],
    listed: &BTreeSet<String>,
) -> Vec<(Labels, Traffic, u64)> {
    let mut links: BTreeMap<(&str, &str), (Traffic, u64)> = BTreeMap::new();
    for pair in pairs {
        for (port, direction) in [(pair.src, "sent"), (pair.dst, "received")] {
            if let Some(name) = names.get(&port).filter(|name| listed.contains(*name)) {
                let sums = links.entry((name, direction)).or_default();
                sums.0 += pair.traffic;
                sums.1 += pair.retransmissions.packets();
            }
        }
    }
    let row = |((port, direction), (traffic, retransmitted)): ((&str, &str), (Traffic, u64))| {
        (owned([("port", port.to_owned()), ("direction", direction.to_owned())]), traffic, retransmitted)
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
        // Several rows may have the same labels: ports of one name. Their sum is the counter, so the
        // highest value is that of the sum.
        let mut sums: BTreeMap<Labels, u64> = BTreeMap::new();
        for (labels, value) in values {
            *sums.entry(labels).or_default() += value;
        }
        for (labels, value) in sums {
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
    use crate::analysis::fixture::connection;
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

    /// Two ports of node1 send to node2: the counters of the name are those of the sum, and the highest
    /// sum stays.
    #[test]
    fn ports_of_one_name_have_one_counter() {
        let [first, second, third] = ["17", "18", "19"].map(|port| port.parse::<Endpoint>().unwrap());
        let names = [(first, "node1"), (second, "node2"), (third, "node1")];
        let names = names.map(|(port, name)| (port, name.to_owned())).into();
        let mut progress = LiveProgress::new(names, None);
        let mut metrics = LiveMetrics::default();
        // The second sums are smaller, although the third port sent more.
        for ([own, other], expected) in [([1000, 500], 1500), ([600, 700], 1500), ([1100, 700], 1800)] {
            let mut sums = live(1_000_000_000, [own, 200]);
            sums.pairs.push(LivePair {
                src: third,
                traffic: Traffic { wire_bytes: other, ..Traffic::default() },
                ..sums.pairs[0]
            });
            progress.update(sums, SECOND);
            let text = metrics.update(&progress).unwrap();
            for (series, expected) in [
                ("link_wire_bytes_total{port=\"node1\",direction=\"sent\"} ", expected),
                ("link_wire_bytes_total{port=\"node2\",direction=\"received\"} ", expected),
                ("link_wire_bytes_total{port=\"node1\",direction=\"received\"} ", 200),
                ("pair_wire_bytes_total{src=\"node1\",dst=\"node2\"} ", expected),
                ("pair_wire_bytes_total{src=\"node2\",dst=\"node1\"} ", 200),
            ] {
                assert_eq!(value(&text, &format!("ibscope_{series}")), expected, "{series}{text}");
            }
        }
    }

    /// A pair that is listed has the traffic of all ports of its names, also of ports that were never
    /// among the busiest.
    #[test]
    fn a_listed_pair_has_the_traffic_of_all_ports_of_its_names() {
        let ports = BUSIEST_PAIRS as u64 + 1;
        let port = |number: u64| number.to_string().parse::<Endpoint>().unwrap();
        let receiver = port(1);
        let names = (2..2 + ports).map(|number| (port(number), "node2".to_owned())).collect();
        let mut progress = LiveProgress::new(names, None);
        let mut sums = live(1_000_000_000, [0, 0]);
        let pair = |number: u64| LivePair {
            traffic: Traffic { packets: number, ..Traffic::default() },
            ..LivePair::new(port(number), receiver)
        };
        sums.pairs = (2..2 + ports).map(pair).collect();
        progress.update(sums, SECOND);
        let text = LiveMetrics::default().update(&progress).unwrap();
        let series = "ibscope_pair_packets_total{src=\"node2\",dst=\"1\"} ";
        assert_eq!(value(&text, series), (2..2 + ports).sum::<u64>(), "{text}");
        assert_eq!(text.matches("ibscope_pair_packets_total{").count(), 1, "{text}");
    }

    /// Packets that live sums take for retransmissions turn out to be mirror copies at the end.
    #[test]
    fn the_counters_at_the_end_are_those_of_the_profile() {
        let mut progress = LiveProgress::default();
        let mut metrics = LiveMetrics::default();
        let mut sums = live(1_000_000_000, [7000, 100]);
        sums.pairs[0].retransmissions.request_packets = 3;
        sums.coverage.records = 80;
        progress.update(sums, SECOND);
        let text = metrics.update(&progress).unwrap();
        assert_eq!(value(&text, "ibscope_retransmitted_packets_total "), 3, "{text}");
        let mut profile = Profile { connections: vec![connection(None, (17, 1), (18, 2), 1)], ..Profile::default() };
        profile.coverage.records = 90;
        let text = metrics.finish(&progress, &profile).unwrap();
        // One unit of `traffic`: 10 packets with 4000 bytes.
        for (series, expected) in [
            ("records_total ", 90),
            ("packets_total ", 10),
            ("wire_bytes_total ", 4000),
            ("retransmitted_packets_total ", 0),
            ("link_wire_bytes_total{port=\"17\",direction=\"sent\"} ", 4000),
            ("pair_wire_bytes_total{src=\"17\",dst=\"18\"} ", 4000),
            ("pair_retransmitted_packets_total{src=\"17\",dst=\"18\"} ", 0),
        ] {
            assert_eq!(value(&text, &format!("ibscope_{series}")), expected, "{series}{text}");
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
