//! Latencies of the recorded runs, compared with their record and with an independent computation.

use crate::recorded::{every_way, is_mpi, profile};
use crate::runs;
use crate::tools::{ibscope, in_parallel, result};
use ibscope::analysis::GroupBy;
use ibscope::analysis::latency::{LatencyGrouping, LatencyKey, latencies};
use ibscope::model::{Histogram, Profile};
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{Recording, partial};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Histograms by interval, verb, sender and receiver, all sizes together; nodes by number.
pub(crate) fn by_pair(profile: &Profile) -> BTreeMap<(&'static str, &'static str, u8, u8), Histogram> {
    let node = |label: &str| match label.strip_prefix("10.77.0.") {
        Some(node) => node.parse().expect("node"),
        None => label.parse::<u8>().expect("LID") - 16,
    };
    let row = |(key, histogram): (LatencyKey, Histogram)| {
        let (src, dst) = key.pair.expect("pair");
        ((key.interval, key.verb, node(&src.to_string()), node(&dst.to_string())), histogram)
    };
    latencies(profile, LatencyGrouping { by: Some(GroupBy::Endpoint), sizes: false }).into_iter().map(row).collect()
}

fn samples(profile: &Profile, interval: &'static str, verb: &'static str) -> [u64; 2] {
    let found = by_pair(profile);
    [(1, 2), (2, 1)].map(|(src, dst)| found.get(&(interval, verb, src, dst)).map_or(0, Histogram::samples))
}

/// perftest reports its iterations: 500 ping-pongs, 500 READs, 200 atomics, 100 WRITEs with 10
/// SENDs for the setup.
#[test]
fn every_request_of_perftest_gives_one_sample() {
    type ExpectedSamples<'a> = &'a [(&'static str, &'static str, [u64; 2])];
    let cases: [(&str, ExpectedSamples<'_>); 7] = [
        ("perf-send-lat", &[("acknowledged", "SEND", [500, 500])]),
        ("perf-write-lat", &[("acknowledged", "WRITE", [500, 500])]),
        ("perf-cm-write-lat", &[("acknowledged", "WRITE", [100, 100]), ("acknowledged", "SEND", [10, 10])]),
        ("perf-read-lat", &[("first_response", "READ", [500, 0]), ("last_response", "READ", [500, 0])]),
        ("perf-atomic-lat", &[("last_response", "ATOMIC", [200, 0])]),
        ("perf-uc-write-lat", &[("acknowledged", "WRITE", [0, 0])]),
        ("perf-ud-send-lat", &[("acknowledged", "DATAGRAM", [0, 0])]),
    ];
    in_parallel(&cases, |_, (name, expected)| {
        for paths in every_way(&runs::named(name)) {
            let profile = profile(&paths);
            for (interval, verb, count) in *expected {
                assert_eq!(samples(&profile, interval, verb), *count, "{name}: {interval} {verb}: {paths:?}");
            }
        }
    });
}

/// A note names the services without acknowledgements; the intervals that exist are shown.
#[test]
fn services_without_acknowledgements_are_named() {
    for (name, service) in [("perf-uc-write-lat", "2 of UC"), ("perf-ud-send-lat", "2 of UD")] {
        let ran = ibscope(["latency".as_ref(), runs::named(name).node(1).as_os_str()]);
        let what = format!("note: connections without acknowledgements ({service}) have no response times");
        assert!(ran.stderr.contains(&what) && !ran.stdout.contains("acknowledged"), "{name}: {}", ran.stderr);
    }
    let ran = ibscope(["latency".as_ref(), runs::named("perf-send-lat").node(1).as_os_str()]);
    assert!(!ran.stderr.contains("without acknowledgements"), "{}", ran.stderr);
}

/// The numbers of runs/README.md at the port of node 1: request to response of `read_lat` 204 us on
/// average and 188 us in the median; half the median interval between SENDs of `send_lat` 423 us.
#[test]
fn the_numbers_of_the_record_are_found() {
    let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.05, "{found}, not {expected}");
    let read = by_pair(&profile(&[runs::named("perf-read-lat").node(1)]));
    let read = &read[&("last_response", "READ", 1, 2)];
    near(read.mean(), 204_000.0);
    near(read.quantile(0.5) as f64, 188_000.0);
    let send = by_pair(&profile(&[runs::named("perf-send-lat").node(1)]));
    near(send[&("interval", "SEND", 1, 2)].quantile(0.5) as f64 / 2.0, 423_000.0);
}

/// Every frame that leaves a node is delayed by 5 ms.
#[test]
fn added_delay_is_measured() {
    let [slow, fast] = ["ompi-rc-delay5ms-ring2", "ompi-rc-ring2"].map(runs::named);
    for node in [1, 2] {
        let [slow, fast] = [&slow, &fast].map(|run| by_pair(&profile(&[run.node(node)])));
        for (src, dst) in [(1, 2), (2, 1)] {
            let median =
                |times: &BTreeMap<_, Histogram>| times[&("acknowledged", "SEND", src, dst)].quantile(0.5) as f64;
            let added = median(&slow) - median(&fast);
            assert!((added / 5e6 - 1.0).abs() < 0.05, "{src} to {dst} at node {node}: {added} ns");
        }
    }
}

/// Latencies at the port of node 1, from a simple computation.
pub(crate) struct ReferenceTimes {
    /// Requesting node, time, and time to the ACK in nanoseconds.
    pub(crate) acknowledgements: Vec<(u8, u64, u64)>,
    /// Sending node and time of each message.
    pub(crate) sent: Vec<(u8, u64)>,
}

/// SENDs and WRITEs of one packet on RC, and for those that request one, the first ACK at or after
/// the PSN, in file order.
pub(crate) fn reference_times(run: &runs::RecordedRun) -> ReferenceTimes {
    const SEND_ONLY: [u8; 2] = [0x04, 0x05];
    const WRITE_ONLY: u8 = 0x0A;
    let mut waiting: Vec<(u8, u32, u64)> = Vec::new();
    let mut look = ReferenceTimes { acknowledgements: Vec::new(), sent: Vec::new() };
    let mut seen = std::collections::BTreeSet::new();
    for (time_ns, frame) in runs::timed_records(&run.node(1)).iter().filter(|(_, frame)| runs::is_roce(frame)) {
        // Ethernet 14, IPv4 20, UDP 8, BTH: opcode @0, destination queue pair @5, AckReq in @8, PSN
        // @9; AETH syndrome @12.
        let (src, bth) = (frame[29], &frame[42..]);
        let psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
        let is_request = SEND_ONLY.contains(&bth[0]) || bth[0] == WRITE_ONLY;
        if is_request && bth[5..8] > [0, 0, 1][..] && seen.insert((src, psn)) {
            look.sent.push((src, *time_ns));
            if bth[8] & 0x80 != 0 {
                waiting.push((src, psn, *time_ns));
            }
        } else if bth[0] == 0x11 && bth[12] & 0x60 == 0 {
            waiting.retain(|&(asker, asked, from_ns)| {
                let is_covered = asker != src && psn.wrapping_sub(asked) & 0xFF_FFFF < 1 << 23;
                if is_covered {
                    look.acknowledgements.push((asker, from_ns, time_ns - from_ns));
                }
                !is_covered
            });
        }
    }
    look
}

/// A capture that misses half of the ACKs, and one request of each node, has times for the requests whose
/// ACK it holds only, none longer than in the whole capture. In a ping-pong, each request has an ACK of its
/// own.
#[test]
fn a_missing_ack_gives_no_longer_time() {
    let run = runs::named("perf-send-lat");
    let recording = Recording::read(&run.node(1)).expect("recording");
    let mut acks = 0;
    let mut kept = BTreeSet::new();
    let mut requests: BTreeMap<_, BTreeSet<Vec<u8>>> = BTreeMap::new();
    let half = partial::keep(&recording, |_, record| {
        let Some(frame) = PacketFrame::read(recording.link_type, record) else { return true };
        let psn = record.data[frame.bth_at + 9..][..3].to_vec();
        if !frame.opcode.is_ack() {
            let sent = requests.entry(frame.src).or_default();
            sent.insert(psn);
            return sent.len() != 2;
        }
        acks += 1;
        let is_kept = acks % 4 < 2;
        // The second request of the other node is left out.
        let number = requests.get(&frame.dst).map_or(0, BTreeSet::len);
        if is_kept && number != 2 {
            kept.insert((frame.src, psn));
        }
        is_kept
    });
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("node1.pcap");
    half.write(&path).expect("written");
    let found = by_pair(&profile(&[path]));
    let reference = reference_times(&run);
    let mut samples = 0;
    for (src, dst) in [(1, 2), (2, 1)] {
        let own = &found[&("acknowledged", "SEND", src, dst)];
        let times = reference.acknowledgements.iter().filter(|(asker, ..)| *asker == src);
        assert!(Some(own.max()) <= times.map(|(.., ns)| *ns).max(), "{src} to {dst}: {} ns", own.max());
        samples += own.samples();
    }
    assert_eq!(samples, kept.len() as u64);
    assert!(samples > 400, "{samples} of 1000 requests");
}

#[test]
fn samples_and_latencies_match_a_simple_computation() {
    for (name, verb) in [("perf-send-lat", "SEND"), ("perf-write-lat", "WRITE")] {
        let run = runs::named(name);
        let look = reference_times(&run);
        let found = by_pair(&profile(&[run.node(1)]));
        for (src, dst) in [(1, 2), (2, 1)] {
            let found = &found[&("acknowledged", verb, src, dst)];
            let own = look.acknowledgements.iter().filter(|(asker, ..)| *asker == src);
            let mut slow: Vec<u64> = own.map(|(.., ns)| *ns).collect();
            slow.sort_unstable();
            assert_eq!(found.samples(), slow.len() as u64, "{name}: {src} to {dst}");
            assert_eq!((found.min(), found.max()), (slow[0], slow[slow.len() - 1]), "{name}: {src} to {dst}");
            let mean = slow.iter().sum::<u64>() as f64 / slow.len() as f64;
            assert!((found.mean() - mean).abs() < 1.0, "{name}: {src} to {dst}");
            for share in [0.1, 0.5, 0.9, 0.99] {
                let exact = slow[(share * slow.len() as f64).ceil() as usize - 1];
                assert!(found.quantile(share).abs_diff(exact) * 1000 <= exact, "{name}: {src} to {dst}, {share}");
            }
        }
    }
}

/// At the sink every packet appears twice. Responses are measured where the requester's port
/// observes them, as in a capture at that port, to the microseconds of the sink's clock. Each
/// packet has a transit time.
#[test]
fn a_sink_shows_latencies_at_the_requesters_port() {
    for run in runs::all().iter().filter(|run| run.nodes == 2 && !run.name.contains("loss")) {
        let sink = by_pair(&profile(&[run.sink()]));
        for node in [1u8, 2] {
            let port = by_pair(&profile(&[run.node(node)]));
            for (key, at_port) in port.iter().filter(|((_, _, src, _), _)| *src == node) {
                if !["acknowledged", "first_response", "last_response"].contains(&key.0) {
                    continue;
                }
                let at_sink = sink.get(key).unwrap_or_else(|| panic!("{}: {key:?}", run.name));
                let place = format!("{}: {key:?}: {} and {} ns", run.name, at_sink.mean(), at_port.mean());
                assert_eq!(at_sink.samples(), at_port.samples(), "{place}");
                assert!((at_sink.mean() - at_port.mean()).abs() < 2000.0, "{place}");
            }
        }
        if is_mpi(run) {
            assert!(sink.keys().any(|key| key.0 == "transit"), "{}", run.name);
        }
        let port = by_pair(&profile(&[run.node(1)]));
        assert!(port.keys().all(|key| key.0 != "transit"), "{}: a port shows each packet once", run.name);
    }
}

#[test]
fn every_format_has_the_same_numbers() {
    let path: PathBuf = runs::named("perf-read-lat").node(1);
    let collie = result(&["latency", "--format", "collie"], &[&path]);
    let collie: BTreeMap<&str, u64> = collie
        .lines()
        .map(|line| line.split_once(": ").expect("key: value"))
        .map(|(key, value)| (key, value.parse().expect("number")))
        .collect();
    let names = ["samples", "min_ns", "avg_ns", "median_ns", "p95_ns", "p99_ns", "max_ns"];
    assert_eq!(
        collie.keys().copied().collect::<std::collections::BTreeSet<_>>(),
        names.map(|name| format!("latency_{name}")).iter().map(String::as_str).collect()
    );
    let csv = result(&["latency", "--all-sizes", "--format", "csv"], &[&path]);
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let row = lines.find(|line| line.starts_with("last_response,READ")).expect("row");
    let row: BTreeMap<&str, &str> = header.iter().copied().zip(row.split(',')).collect();
    for (name, column) in
        [("samples", "samples"), ("median_ns", "median_ns"), ("p99_ns", "p99_ns"), ("max_ns", "max_ns")]
    {
        assert_eq!(collie[format!("latency_{name}").as_str()].to_string(), row[column], "{name}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&result(&["latency", "--format", "json"], &[&path])).expect("json");
    let rows = json["latencies"].as_array().expect("rows");
    let read = rows.iter().find(|row| row["interval"] == "last_response").expect("row");
    let counts = read["buckets"].as_array().expect("buckets").iter().map(|bucket| bucket[1].as_u64().expect("count"));
    assert_eq!(counts.sum::<u64>(), collie["latency_samples"]);
    // The same from a profile and from the capture.
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("profile.ibp");
    result(&["analyze", "-o", place.to_str().expect("path")], &[&path]);
    for arguments in
        [&["latency"][..], &["latency", "--by", "endpoint", "--format", "json"], &["latency", "--format", "collie"]]
    {
        assert_eq!(result(arguments, &[&place]), result(arguments, &[&path]), "{arguments:?}");
    }
}

/// Everything in the table can be selected alone and is equal then; MPI messages and their phases
/// too.
#[test]
fn each_interval_can_be_shown_alone() {
    let paths = [runs::named("ompi-rc-ring2").sink()];
    let csv = |arguments: &[&str]| result(&[&["latency", "--format", "csv"], arguments].concat(), &paths);
    let all = csv(&[]);
    let names: std::collections::BTreeSet<&str> =
        all.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert!(names.contains("mpi_message") && names.contains("acknowledged"), "{names:?}");
    for name in names {
        let is_shown = |line: &&str| line.starts_with(&format!("{name},")) || line.starts_with("interval,verb");
        let own: Vec<&str> = all.lines().filter(is_shown).collect();
        assert_eq!(csv(&["--interval", name]).lines().collect::<Vec<_>>(), own, "{name}");
    }
}
