//! Rates of links, compared with a simple computation on the packets of recorded runs, and with
//! traffic whose rate is known by construction.

use crate::runs;
use crate::tools::{CsvRow, csv_rows, ibscope, result};
use crate::wire::{WireBuilder, WireQueuePair};
use ibscope_samples::hard::partial::keep;
use ibscope_samples::hard::{RecordedPacket, Recording};
use std::collections::{BTreeMap, BTreeSet};

const MS_NS: i64 = 1_000_000;
/// RC SEND Only of 4096 bytes: LRH 8, BTH 12, payload, ICRC 4, VCRC 2.
const PACKET_BYTES: i64 = 4122;
const START_NS: i64 = 1_700_000_000_000_000_000;

fn number(row: &CsvRow, column: &str) -> Option<f64> {
    (!row[column].is_empty()).then(|| row[column].parse().unwrap_or_else(|_| panic!("{column}: {row:?}")))
}

fn row<'a>(rows: &'a [CsvRow], endpoint: &str, direction: &str) -> &'a CsvRow {
    rows.iter().find(|row| row["endpoint"] == endpoint && row["direction"] == direction).expect("a link")
}

/// The highest sum of a window of `window_ns` that starts with any millisecond.
fn highest(bins: &BTreeMap<i64, u64>, window_ns: i64) -> u64 {
    bins.keys()
        .map(|start| bins.range(*start..*start + window_ns / MS_NS).map(|(_, bytes)| bytes).sum())
        .max()
        .expect("bins")
}

/// Ethernet 14, IPv4 with its length at 16, source at 26 and destination at 30.
#[test]
fn bins_and_peaks_match_a_simple_computation() {
    for name in ["ompi-openib-mixed-2x2", "scorep-ompi-rc-comm-4x1", "ompi-openib-bt.S-4x1"] {
        let run = runs::named(name);
        // By address and direction: wire bytes by millisecond.
        let mut expected: BTreeMap<(String, &str), BTreeMap<i64, u64>> = BTreeMap::new();
        let mut span = (i64::MAX, i64::MIN);
        let mut has_other_frames = false;
        for node in 1..=run.nodes {
            for (time_ns, frame) in runs::timed_records(&run.node(node)) {
                if !runs::is_roce(&frame) {
                    has_other_frames = true;
                    continue;
                }
                let time_ns = time_ns as i64;
                span = (span.0.min(time_ns), span.1.max(time_ns));
                let bytes = 14 + u64::from(u16::from_be_bytes([frame[16], frame[17]]));
                let address =
                    |at: usize| format!("{}.{}.{}.{}", frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
                // Each packet is in the files of two ports; count it in that of its sender.
                if frame[29] != node {
                    continue;
                }
                for end in [(address(26), "from"), (address(30), "to")] {
                    *expected.entry(end).or_default().entry(time_ns.div_euclid(MS_NS)).or_default() += bytes;
                }
            }
        }
        let rows = csv_rows(&result(&["rates", "--by", "link", "--format", "csv"], &run.every_node()));
        assert_eq!(rows.len(), expected.len(), "{name}");
        let mut checked = 0;
        for ((endpoint, direction), bins) in &expected {
            let found = row(&rows, endpoint, direction);
            let total: u64 = bins.values().sum();
            assert_eq!(number(found, "wire_bytes"), Some(total as f64), "{name} {endpoint} {direction}");
            for (column, window_ns) in [("peak_10ms_bytes_per_s", 10 * MS_NS), ("peak_100ms_bytes_per_s", 100 * MS_NS)]
            {
                // Which port's timestamp counts differs by the transit time, at most 3 ms here.
                let found = number(found, column).expect("a peak") * window_ns as f64 / 1e9;
                let [low, high] = [window_ns - 6 * MS_NS, window_ns + 6 * MS_NS].map(|ns| highest(bins, ns) as f64);
                assert!((low..=high).contains(&found), "{name} {endpoint} {direction} {column}: {low} {found} {high}");
                checked += 1;
            }
            assert_eq!(found["capacity_source"], "at_least");
            // Each packet is in the captures of both of its ports. The capture of one run begins within
            // its job.
            let expected = match (name, has_other_frames) {
                ("ompi-openib-bt.S-4x1", _) => ("at_least", "the captures do not show whether packets are missing"),
                (_, true) => ("at_least", "frames that are not InfiniBand share the links and do not count"),
                (_, false) => ("exact", ""),
            };
            assert_eq!((found["bound"].as_str(), found["because"].as_str()), expected, "{name}");
            assert_eq!([&found["mean_utilization"], &found["busy_share"]], ["", ""]);
        }
        assert!(checked >= 4);
    }
}

/// Traffic from `senders` to LID 1: for 200 ms, each sends one packet of 4122 bytes per `step_ns`,
/// alternately with a pause of 200 ms, in both observations of a sink.
fn incast(senders: u16, step_ns: i64) -> WireBuilder {
    let mut wire = WireBuilder::new();
    let mut queues: Vec<_> = (0..senders)
        .map(|sender| WireQueuePair::pair((2 + sender, 0x20 + u32::from(sender)), (1, 0x10 + u32::from(sender))))
        .collect();
    let payload = vec![7; 4096];
    // A sink has each packet at its sender's and at its receiver's port.
    let exchange = |wire: &mut WireBuilder, (request, response): &mut (WireQueuePair, WireQueuePair), at_ns: i64| {
        let before = request.clone();
        request.send(wire.at(at_ns), &payload);
        *request = before;
        request.send(wire.at(at_ns + 100), &payload);
        response.ack(wire.at(at_ns + 200), request);
        response.ack(wire.at(at_ns + 300), request);
    };
    for step in 0..(200 * MS_NS / step_ns) {
        for (index, queue) in queues.iter_mut().enumerate() {
            exchange(&mut wire, queue, START_NS + step * step_ns + index as i64 * (step_ns / i64::from(senders)));
        }
    }
    // One packet 200 ms after the burst: the traffic lasts 400 ms.
    exchange(&mut wire, &mut queues[0], START_NS + 400 * MS_NS);
    wire
}

#[test]
fn utilization_follows_from_the_rate_of_the_packets() {
    // Four senders, each one packet per 80 us: 4122 bytes per 20 us are 206.1 MB/s or 1.6488 Gbit/s.
    let mut wire = incast(4, 80_000);
    let paths = [wire.file()];
    let rows = csv_rows(&result(&["rates", "--by", "link", "--link", "1.7Gb/s", "--format", "csv"], &paths));
    let to = row(&rows, "1", "to");
    let rate = PACKET_BYTES as f64 / 20e-6;
    for column in ["peak_1ms_bytes_per_s", "peak_10ms_bytes_per_s", "peak_100ms_bytes_per_s"] {
        let found = number(to, column).expect("a peak");
        assert!((found / rate - 1.0).abs() < 0.001, "{column}: {found}, not {rate}");
    }
    let utilization = number(to, "peak_10ms_utilization").expect("utilization");
    assert!((utilization - 1.6488 / 1.7).abs() < 0.001, "{utilization}");
    // Half of 400 ms, to a bin.
    let busy = number(to, "busy_share").expect("share");
    assert!((busy - 0.5).abs() < 0.01, "{busy}");
    assert_eq!(number(to, "senders_at_once"), Some(4.0));
    assert_eq!((to["bound"].as_str(), to["because"].as_str()), ("exact", ""));
    let from = row(&rows, "3", "from");
    let own = number(from, "peak_10ms_bytes_per_s").expect("a peak");
    assert!((own / rate - 0.25).abs() < 0.001, "{own}");
    assert_eq!((number(from, "busy_share"), from["senders_at_once"].as_str()), (Some(0.0), ""));
    let mean = number(to, "mean_bytes_per_s").expect("mean");
    assert!((mean - rate / 2.0).abs() < 0.01 * rate, "{mean}");
}

/// Bins that are wider than a window show no peak over it.
#[test]
fn wide_bins_show_no_short_peaks() {
    let mut wire = incast(2, 80_000);
    let paths = [wire.file()];
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("wide.ibp");
    let place = place.to_str().expect("path");
    let of = |bin: &str| {
        result(&["analyze", "--bin", bin, "-o", place], &paths);
        let ran = ibscope(["rates", "--by", "link", "--link", "10G", "--format", "csv", place]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let rows = csv_rows(&ran.stdout);
        let to = row(&rows, "1", "to").clone();
        let known: Vec<bool> =
            ["peak_1ms_utilization", "peak_10ms_utilization", "peak_100ms_utilization", "busy_share"]
                .map(|column| !to[column].is_empty())
                .to_vec();
        (known, ran.stderr)
    };
    assert_eq!(of("1ms").0, [true, true, true, true]);
    let (known, notes) = of("10ms");
    assert_eq!(known, [false, true, true, true]);
    assert!(notes.contains("peaks over 1 ms are unknown, because the bins are 10 ms wide"), "{notes}");
    // 64 ms is no divisor of 100 ms.
    assert_eq!(of("64ms").0, [false, false, false, true]);
    assert_eq!(of("200ms").0, [false, false, false, false]);
}

/// A capture of one port cannot show all traffic of the other ports.
#[test]
fn traffic_observed_at_one_port_is_a_lower_bound() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let bounds = |paths: &[std::path::PathBuf]| -> BTreeSet<String> {
        csv_rows(&result(&["rates", "--by", "link", "--format", "csv"], paths))
            .into_iter()
            .map(|row| row["bound"].clone())
            .collect()
    };
    assert_eq!(bounds(&[run.node(1)]), BTreeSet::from(["at_least".to_owned()]));
    assert_eq!(bounds(&[run.sink()]), BTreeSet::from(["exact".to_owned()]));
}

/// Without other frames, the captures of both ports show as much as the sink. Without the first tenth of
/// the records of one port, they show some packets at one port only.
#[test]
fn captures_of_both_ports_are_exact() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let write = |node: u8, first: usize| {
        let path = folder.path().join(format!("node{node}-{first}.pcap"));
        let whole = Recording::read(&run.node(node)).expect("capture");
        let count = whole.records.len();
        let is_roce = |record: &RecordedPacket| runs::is_roce(&record.data);
        keep(&whole, |index, record| index * 10 >= first * count && is_roce(record)).write(&path).expect("written");
        path
    };
    let found = |paths: &[std::path::PathBuf]| {
        let rows = csv_rows(&result(&["rates", "--by", "link", "--format", "csv"], paths));
        assert_eq!(rows.len(), 4);
        rows.into_iter().map(|row| (row["bound"].clone(), row["because"].clone())).collect::<BTreeSet<_>>()
    };
    assert_eq!(found(&[write(1, 0), write(2, 0)]), BTreeSet::from([("exact".to_owned(), String::new())]));
    let late = found(&[write(1, 0), write(2, 1)]);
    assert!(late.iter().all(|(bound, _)| bound == "at_least"), "{late:?}");
}
