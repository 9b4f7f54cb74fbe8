//! `latency --link`: measured latencies and the theoretical minimum of a link, compared with
//! numbers that were calculated by hand.

use crate::runs;
use crate::tools::{ibscope, result};
use crate::wire::{WireBuilder, WireQueuePair};
use std::collections::BTreeMap;
use std::path::PathBuf;

const START_NS: i64 = 1_700_000_000_000_000_000;

/// The rows of a csv by interval, verb and size.
fn rows(arguments: &[&str], path: &PathBuf) -> BTreeMap<(String, String, String), BTreeMap<String, String>> {
    let text = result(&[&["latency", "--format", "csv"], arguments].concat(), std::slice::from_ref(path));
    let mut lines = text.lines();
    let header: Vec<String> = lines.next().expect("header").split(',').map(str::to_owned).collect();
    let row = |line: &str| {
        let row: BTreeMap<String, String> = header.iter().cloned().zip(line.split(',').map(str::to_owned)).collect();
        ((row["interval"].clone(), row["verb"].clone(), row["from_bytes"].clone()), row)
    };
    lines.map(row).collect()
}

/// 50 SENDs of 64 bytes and 50 READs of 8 KiB. Native, nanoseconds.
fn exchange() -> WireBuilder {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    for number in 0..50 {
        let start_ns = START_NS + number * 100_000;
        there.send(wire.at(start_ns), &[7; 64]);
        back.ack(wire.at(start_ns + 2000), &there);
        there.read(wire.at(start_ns + 50_000), 0x1000, 9, 8192);
        // Two packets, a microsecond apart.
        back.read_response(wire.at(start_ns + 53_000), &there, &[5; 8192]);
    }
    wire
}

#[test]
fn measured_latencies_have_a_theoretical_minimum() {
    let mut wire = exchange();
    let path = wire.file();
    let found = rows(&["--link", "4x EDR", "--hops", "3", "--switch-ns", "100"], &path);
    let expect = |interval: &str, verb: &str, size: &str, theoretical_minimum_ns: f64, median_ns: f64| {
        let row = &found[&(interval.to_owned(), verb.to_owned(), size.to_owned())];
        let number = |column: &str| row[column].parse::<f64>().expect("number");
        assert!((number("theoretical_minimum_ns") - theoretical_minimum_ns).abs() < 0.06, "{interval}: {row:?}");
        // Three digits of a histogram.
        assert!((number("median_ns") / median_ns - 1.0).abs() < 1e-3, "{interval}: {row:?}");
        assert!(
            (number("median_over_minimum") - number("median_ns") / theoretical_minimum_ns).abs() < 2e-3,
            "{interval}: {row:?}"
        );
        assert_eq!((number("samples"), number("error_ns"), number("standard_deviation_ns")), (50.0, 1.0, 0.0));
    };
    // 100 Gbit/s: 0.08 ns per byte; 6 x 100 ns for both directions. ACK: 8 + 12 + 4 + 4 + 2 = 30
    // bytes.
    expect("acknowledged", "SEND", "64", 30.0 * 0.08 + 600.0, 2000.0);
    // A response of 4096 bytes: 30 + 4096; two of them.
    expect("first_response", "READ", "8192", 4126.0 * 0.08 + 600.0, 3000.0);
    expect("last_response", "READ", "8192", 2.0 * 4126.0 * 0.08 + 600.0, 4000.0);
    // Half the rate; no switch with --hops 0.
    let slower = rows(&["--link", "2x EDR", "--hops", "0"], &path);
    let floor: f64 = slower[&("acknowledged".to_owned(), "SEND".to_owned(), "64".to_owned())]["theoretical_minimum_ns"]
        .parse()
        .expect("number");
    assert!((floor - 30.0 * 0.16).abs() < 0.06, "{floor}");
    // The same from a profile as from the capture, in every format.
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("profile.ibp");
    result(&["analyze", "-o", place.to_str().expect("path")], std::slice::from_ref(&path));
    for format in ["table", "csv", "json"] {
        let arguments = ["latency", "--link", "100Gb/s", "--by", "endpoint", "--format", format];
        let of_capture = result(&arguments, std::slice::from_ref(&path));
        assert_eq!(result(&arguments, std::slice::from_ref(&place)), of_capture, "{format}");
        assert!(of_capture.contains("acknowledged"), "{of_capture}");
    }
}

#[test]
fn equal_timestamps_are_reported() {
    let mut wire = exchange();
    let (mut there, _) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    there.psn = 0x1000;
    for _ in 0..5 {
        there.send(wire.at(START_NS + 10_000_000), &[7; 1000]);
    }
    let path = wire.file();
    let json: serde_json::Value = serde_json::from_str(&result(
        &["latency", "--link", "100Gb/s", "--format", "json"],
        std::slice::from_ref(&path),
    ))
    .expect("JSON");
    // Four packets of 8 + 12 + 1000 + 4 + 2 bytes behind the first: 4104 bytes, 328.32 ns.
    let timestamps = &json["timestamps"];
    for (name, value) in [
        ("clock_ns", 1),
        ("records", 255),
        ("same_time", 4),
        ("same_time_longest_run", 5),
        ("same_time_longest_run_bytes", 4104),
    ] {
        assert_eq!(timestamps[name].as_u64(), Some(value), "{name}");
    }
    assert_eq!(json["latencies"][0]["error_ns"].as_f64(), Some(328.3));
    let table = result(&["latency", "--link", "100Gb/s"], std::slice::from_ref(&path));
    for text in ["+- 328 ns", "1.6 % of the records", "the clock ticks every 1 ns"] {
        assert!(table.contains(text), "{text}: {table}");
    }
}

/// The re-framed captures of the sinks have microseconds, those of the ports nanoseconds.
#[test]
fn the_clock_has_the_resolution_of_the_format() {
    let run = runs::named("perf-read-lat");
    for (path, clock_ns) in [(run.sink(), 1000), (run.node(1), 1)] {
        let coverage = crate::wire::profile(std::slice::from_ref(&path)).coverage;
        assert_eq!(coverage.clock_ns, clock_ns);
        let times: Vec<i64> = crate::tools::walk(&runs::decompressed(&path)).iter().map(|raw| raw.time_ns).collect();
        let same = times.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        let most = times.chunk_by(|one, other| one == other).map(<[i64]>::len).max().expect("records") as u64;
        assert_eq!((coverage.same_time, coverage.same_time_longest_run), (same, most));
        // Soft-RoCE is far above the theoretical minimum everywhere; transit times are shorter than
        // the resolution of the sink's clock.
        for (key, row) in rows(&["--link", "100Gb/s"], &path).into_iter().filter(|(key, _)| key.0 != "transit") {
            let ratio = row["median_over_minimum"].parse::<f64>().expect("number");
            assert!(ratio > 1.0, "{key:?}: {ratio}");
        }
    }
}

#[test]
fn invalid_link_speeds_are_errors() {
    let path = runs::named("perf-read-lat").node(1);
    let path = path.to_str().expect("path");
    for (arguments, text) in [
        (&["--link", "fast"][..], "4x EDR"),
        (&["--link", "100GB/s"], "4x EDR"),
        (&["--hops", "2"], "--link"),
        (&["--link", "4x EDR", "--mtu", "1500"], "4096"),
        (&["--link", "4x EDR", "--all-sizes"], "--all-sizes"),
        (&["--link", "4x EDR", "--format", "collie"], "collie"),
    ] {
        let refused = ibscope([&["latency", path], arguments].concat());
        assert_eq!(refused.code, 2, "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(text), "{arguments:?}: {}", refused.stderr);
    }
}
