//! Time series of latencies, latencies by size and rate, and time series of retransmissions,
//! congestion and NAKs of the recorded runs.

use crate::latency::reference_times;
use crate::recorded::{every_way, profile};
use crate::runs;
use crate::tools::{ibscope, in_parallel, result};
use ibscope::analysis::health::{HealthSums, health_series};
use ibscope::analysis::latency::{LatencySeriesOptions, surface, time_series};
use ibscope::analysis::{GroupBy, Label};
use ibscope::model::{BinCongestion, Health, Histogram};
use std::collections::BTreeMap;
use std::path::Path;

const BIN_NS: u64 = 10_000_000;

fn node(label: &Label) -> u8 {
    label.to_string().rsplit('.').next().expect("address").parse().expect("node")
}

fn quantile(sorted: &[u64], share: f64) -> u64 {
    sorted[(share * sorted.len() as f64).ceil() as usize - 1]
}

/// Samples, and quantiles to a sixteenth.
fn assert_like(found: &Histogram, mut slow: Vec<u64>, place: &str) {
    slow.sort_unstable();
    assert_eq!(found.samples(), slow.len() as u64, "{place}");
    for share in [0.1, 0.5, 0.9, 0.99] {
        let (found, exact) = (found.quantile(share), quantile(&slow, share));
        assert!(found.abs_diff(exact) * 16 <= exact, "{place}: {share}: {found}, not {exact}");
    }
}

/// Two tables that are filled independently: for any capture, every latency that ends with a
/// response is in one bin.
#[test]
fn bins_add_up_to_the_latencies() {
    in_parallel(&runs::all(), |_, run| {
        for paths in every_way(run) {
            let profile = profile(&paths);
            let mut sums = vec![0; profile.latencies.len()];
            for bin in &profile.latency_timeline {
                sums[bin.latency as usize] += u64::from(bin.count);
                assert_eq!(bin.time_ns % profile.latency_bin_ns, 0, "{paths:?}");
            }
            for (row, sum) in profile.latencies.iter().zip(&sums) {
                let name = row.timing.interval.name();
                let is_kept = ["acknowledged", "last_response"].contains(&name);
                assert_eq!(*sum, if is_kept { row.histogram.samples() } else { 0 }, "{paths:?}: {name}");
            }
            let places = || profile.latency_timeline.iter().map(|bin| (bin.time_ns, bin.latency, bin.bucket));
            assert!(places().zip(places().skip(1)).all(|(a, b)| a < b), "{paths:?}: sorted, each once");
        }
    });
}

#[test]
fn percentiles_and_surfaces_match_a_simple_computation() {
    for name in ["perf-send-lat", "perf-write-lat"] {
        let run = runs::named(name);
        let look = reference_times(&run);
        let profile = profile(&[run.node(1)]);
        let wanted = LatencySeriesOptions { by: Some(GroupBy::Endpoint), interval: Some("acknowledged"), bin_ns: None };

        let mut slow: BTreeMap<(u8, u64), Vec<u64>> = BTreeMap::new();
        for (asker, from_ns, ns) in &look.acknowledgements {
            slow.entry((*asker, from_ns / BIN_NS)).or_default().push(*ns);
        }
        let found = time_series(&profile, &wanted).expect("over time");
        assert!(slow.len() > 10 && found.bins.len() == slow.len(), "{name}: {} and {}", found.bins.len(), slow.len());
        for (key, times) in &found.bins {
            let (src, _) = key.pair.as_ref().expect("pair");
            let bin = (node(src), key.time_ns.cast_unsigned() / BIN_NS);
            assert_like(times, slow.remove(&bin).expect("bin"), &format!("{name}: {bin:?}"));
        }

        // The rate of a request is the number of messages that its node sent in the same bin.
        let sent = |src: u8, bin: u64| {
            let own = look.sent.iter().filter(|(sender, time_ns)| (*sender, time_ns / BIN_NS) == (src, bin));
            own.count() as u64 * (1_000_000_000 / BIN_NS)
        };
        let mut slow: BTreeMap<(u8, u64), Vec<u64>> = BTreeMap::new();
        for (asker, from_ns, ns) in &look.acknowledgements {
            let rate = sent(*asker, from_ns / BIN_NS);
            slow.entry((*asker, 1 << rate.ilog2())).or_default().push(*ns);
        }
        let found = surface(&profile, &wanted).expect("surface");
        assert!(slow.len() > 2 && found.cells.len() == slow.len(), "{name}");
        for (key, times) in &found.cells {
            let (src, _) = key.pair.as_ref().expect("pair");
            let cell = (node(src), key.from_rate);
            assert_like(times, slow.remove(&cell).expect("cell"), &format!("{name}: {cell:?}"));
        }
    }
}

/// The time series of retransmissions, congestion and NAKs adds up to the totals of `health`.
#[test]
fn retransmissions_and_congestion_add_up() {
    let (mut most, mut naks) = (0, 0);
    for run in runs::all() {
        for paths in [vec![run.sink()], run.every_node()] {
            let profile = profile(&paths);
            let found = health_series(&profile).expect("timeline");
            let mut sums = HealthSums::default();
            found.bins.iter().for_each(|bin| sums += bin.sums);
            let data =
                || profile.connections.iter().filter(|connection| connection.kind == ibscope::model::TrafficKind::Data);
            let retransmissions: u64 = data().map(|connection| connection.retransmissions.packets()).sum();
            assert_eq!(sums.retransmitted_packets, retransmissions, "{}", run.name);
            let packets: u64 = data().map(|connection| connection.traffic.packets).sum();
            assert_eq!(sums.packets, packets, "{}", run.name);
            let mut total = Health::default();
            profile.health.iter().for_each(|row| total += row.health);
            let expected = BinCongestion {
                ecn_ce_packets: total.ecn_ce_packets,
                fecn_packets: total.fecn_packets,
                becn_packets: total.becn_packets,
                cnp_packets: total.cnp_packets,
                naks: total.naks(),
                rnr_naks: total.rnr_naks,
            };
            assert_eq!(sums.congestion, expected, "{}: {paths:?}", run.name);
            most = most.max(retransmissions);
            naks = naks.max(expected.naks);
        }
    }
    assert!(most > 100 && naks > 0, "a run with losses: {most}, {naks}");
}

fn written(arguments: &[&str], figure: &Path, input: &Path) -> crate::tools::ProgramResult {
    let ends = ["--svg", figure.to_str().expect("path"), input.to_str().expect("path")];
    ibscope(arguments.iter().copied().chain(ends))
}

/// The same from a profile as from the capture, in every format, and in figures.
#[test]
fn views_of_a_profile_equal_those_of_the_capture() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("profile.ibp");
    let capture = runs::named("ompi-rc-mixed-2x2").node(1);
    result(&["analyze", "-o", place.to_str().expect("path")], &[&capture]);
    for view in ["timeline", "surface"] {
        for format in ["table", "csv", "json"] {
            let arguments = ["latency", "--view", view, "--format", format, "--by", "rank"];
            assert_eq!(result(&arguments, &[&place]), result(&arguments, &[&capture]), "{arguments:?}");
        }
        let csv = result(&["latency", "--view", view, "--format", "csv"], &[&place]);
        let samples = |line: &str| line.rsplit(',').nth(5).expect("samples").parse::<u64>().expect("number");
        let sum: u64 = csv.lines().skip(1).map(samples).sum();
        let whole = result(&["latency", "--format", "collie"], &[&place]);
        assert!(whole.starts_with(&format!("latency_samples: {sum}\n")), "{view}: {sum}");
    }
    // Wider bins contain the same samples; narrower bins are not possible.
    let wide = result(&["latency", "--view", "timeline", "--bin", "1h", "--all-sizes", "--format", "csv"], &[&place]);
    assert!((2..=5).contains(&wide.lines().count()), "{wide}");
    let ran = ibscope(["latency", "--view", "timeline", "--bin", "3ms", place.to_str().expect("path")]);
    assert!(ran.code == 1 && ran.stderr.contains("choose a multiple"), "{}", ran.stderr);

    for view in ["histogram", "sizes", "surface", "timeline"] {
        let figures = [&place, &capture].map(|input| {
            let figure = folder.path().join("figure.svg");
            let ran = written(&["latency", "--view", view], &figure, input);
            assert_eq!(ran.code, 0, "{view}: {}", ran.stderr);
            std::fs::read_to_string(figure).expect("figure")
        });
        assert_eq!(figures[0], figures[1], "{view}");
        assert!(figures[0].contains("Request to acknowledgement (SEND, WRITE)"), "{view}");
    }
}

#[test]
fn figures_that_cannot_be_drawn_give_the_reason() {
    let folder = tempfile::tempdir().expect("folder");
    let figure = folder.path().join("figure.svg");
    let (lossless, datagrams) = (runs::named("ompi-rc-ring2").node(1), runs::named("perf-ud-send-lat").node(1));
    let refused: [(&[&str], &Path, &str); 3] = [
        (&["latency", "--interval", "acknowledged"], &datagrams, "no times to draw of the interval `acknowledged`"),
        (&["latency", "--view", "timeline"], &datagrams, "the profile has no time series of"),
        (&["latency", "--view", "surface", "--interval", "transit"], &lossless, "the profile has no time series of"),
    ];
    for (arguments, input, why) in refused {
        let ran = written(arguments, &figure, input);
        assert!(ran.code == 1 && ran.stderr.contains(why), "{arguments:?}: {}", ran.stderr);
        assert!(!figure.exists() && ran.stdout.is_empty(), "{arguments:?}");
    }
    let ran = ibscope(["latency", "--view", "timeline", "--format", "collie", lossless.to_str().expect("path")]);
    assert!(ran.code == 2 && ran.stderr.contains("collie"), "{}", ran.stderr);
    let lossy = runs::named("ompi-rc-loss1-ring2").node(1);
    for (input, title) in [(lossy, "Retransmitted packets by sending rank"), (lossless, "No packet was retransmitted")]
    {
        let ran = written(&["health"], &figure, &input);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(std::fs::read_to_string(&figure).expect("figure").contains(title), "{title}");
    }
}
