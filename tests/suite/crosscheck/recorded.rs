//! Every recorded run with a trace.

use super::{archive, read, with_captures, with_profile};
use crate::recorded::every_way;
use crate::runs::{self, RecordedRun};
use crate::tools::in_parallel;
use ibscope::crosscheck::{Cause, Crosscheck, CrosscheckVerdict, Tracer};
use ibscope::pipeline::{AnalysisOptions, analyze};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn traced() -> Vec<RecordedRun> {
    let traced: Vec<RecordedRun> = runs::all().into_iter().filter(|run| archive(run).is_some()).collect();
    // 16 by eztrace, 7 by Score-P.
    assert_eq!(traced.len(), 23, "traced runs");
    traced.into_iter().chain([runs::of_second_set("ompi-rc-ft.S-2x2")]).collect()
}

/// Messages and bytes by pair.
type SumsByPair = BTreeMap<(u32, u32), (u64, u64)>;

fn assert_agrees(run: &RecordedRun, result: &Crosscheck, is_whole: bool) {
    let name = &run.name;
    let nodes = run.node_of_rank();
    let truth = run.truth("truth.csv").expect("truth");
    let in_trace: SumsByPair =
        result.pairs.iter().map(|pair| ((pair.src, pair.dst), (pair.trace.messages, pair.trace.bytes))).collect();
    let in_trace: SumsByPair = in_trace.into_iter().filter(|(_, sums)| sums.0 > 0).collect();
    assert_eq!(in_trace, truth.iter().map(|(pair, sums)| (*pair, *sums)).collect::<SumsByPair>(), "{name}: the trace");
    for pair in &result.pairs {
        let place = format!("{name}: rank {} to {}: {pair:?}", pair.src, pair.dst);
        assert_ne!(pair.verdict, CrosscheckVerdict::Unexplained, "{place}");
        let is_same_node = nodes[&pair.src] == nodes[&pair.dst];
        assert_eq!(pair.causes.contains(&Cause::SameNode), is_same_node, "{place}");
        if is_whole {
            assert!(!pair.causes.contains(&Cause::Lost) && !pair.causes.contains(&Cause::NotCaptured), "{place}");
        }
        assert!(!pair.causes.contains(&Cause::OutsideCapture), "{place}");
        assert_eq!(pair.excess(), (0, 0), "{place}");
        assert!(pair.differences.is_empty(), "{place}");
    }
    // The messages on the wire are known for all runs except those of Score-P on two nodes.
    if let Some(wire) = run.truth("wire.csv").filter(|_| is_whole) {
        let found = result.pairs.iter().map(|pair| ((pair.src, pair.dst), (pair.wire.messages, pair.wire.bytes)));
        let found: SumsByPair = found.filter(|(_, sums)| sums.0 > 0).collect();
        assert_eq!(found, wire, "{name}: the wire");
        // So are the tracer's own messages: the difference to the program's.
        for pair in &result.pairs {
            let [on_wire, own] =
                [&wire, &truth].map(|sums| sums.get(&(pair.src, pair.dst)).copied().unwrap_or_default());
            let expected =
                if nodes[&pair.src] == nodes[&pair.dst] { (0, 0) } else { (on_wire.0 - own.0, on_wire.1 - own.1) };
            assert_eq!((pair.tracer.messages, pair.tracer.bytes), expected, "{name}: {pair:?}");
        }
    }
}

#[test]
fn every_pair_is_equal_or_explained_for_every_way_of_capturing() {
    in_parallel(&traced(), |_, run| {
        let trace = read(&archive(run).expect("archive"));
        for paths in every_way(run) {
            let profile = analyze(&paths, &AnalysisOptions::default(), &|_| {}).expect("profile");
            let is_whole = paths.len() > 1 || paths[0] == run.sink() || run.nodes == 2;
            assert_agrees(run, &with_profile(&trace, &profile).expect("compared"), is_whole);
        }
    });
}

#[test]
fn captures_agree_with_profiles_and_show_times() {
    in_parallel(&traced(), |_, run| {
        let trace = read(&archive(run).expect("archive"));
        let result = with_captures(&trace, &run.every_node());
        assert_agrees(run, &result, true);
        let clocks = &result.clocks;
        // Runs of collectives only have no messages to match.
        let has_none = ["-coll-", "-ft."].iter().any(|name| run.name.contains(name));
        assert_eq!(clocks.ranks.is_empty(), has_none, "{}", run.name);
        let offsets: Vec<i64> = clocks.ranks.iter().map(|clock| clock.offset_ns).collect();
        let spread_ns = offsets.iter().max().unwrap_or(&0) - offsets.iter().min().unwrap_or(&0);
        if matches!(trace.tracer, Tracer::ScoreP(_)) {
            // Score-P corrected its clocks; compared with the programs' clocks they are right to
            // 0.6 ms here. The bounds are as wide as the delays.
            assert!(spread_ns < 5_000_000, "{}: {clocks:?}", run.name);
        }
        for clock in &clocks.ranks {
            assert!(!clock.is_uneven, "{}: {clock:?}", run.name);
        }
        if let Some(delays) = &clocks.send_to_wire {
            assert!(clocks.all_messages_matched, "{}", run.name);
            // Nothing is on the wire before it was sent.
            assert!(delays.min_ns >= -1 && delays.median_ns > 0, "{}: {delays:?}", run.name);
        }
    });
}

/// Compares the time of each send by the node's own clock, within 0.3 ms of the capture's, with the
/// same send in the trace: the median of the differences is the offset of the trace's clock. (The
/// recorder of the sends is loaded with the first send, so it records that one late.)
#[test]
fn clocks_match_the_times_that_programs_recorded() {
    for name in ["ompi-rc-ring2", "ompi-rc-mixed-2x2", "ompi-openib-ring2", "mpich-rc-ring2", "scorep-ompi-rc-ring-2x1"]
    {
        let run = runs::named(name);
        let path = archive(&run).expect("archive");
        let result = with_captures(&read(&path), &run.every_node());
        let in_trace = sends_ns(&path);
        let mut noted: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for (time_ns, src, ..) in super::noted_sends(&run) {
            noted.entry(src).or_default().push(time_ns);
        }
        assert_eq!(result.clocks.ranks.len(), noted.len(), "{name}");
        for clock in &result.clocks.ranks {
            let (noted, traced) = (&noted[&clock.rank], &in_trace[&clock.rank]);
            assert_eq!(noted.len(), traced.len(), "{name}");
            let mut offsets: Vec<i64> = noted.iter().zip(traced).map(|(noted, traced)| noted - traced).collect();
            offsets.sort_unstable();
            let wrong_ns = (offsets[offsets.len() / 2] - clock.offset_ns).abs();
            let most_ns = clock.uncertainty_ns.expect("both sides") as i64 + 1_000_000;
            assert!(wrong_ns < most_ns, "{name}: rank {}: {wrong_ns} ns off, {clock:?}", clock.rank);
        }
    }
}

/// Sends of each rank in order, in nanoseconds from the archive's first event, from the text of the
/// archive.
fn sends_ns(path: &std::path::Path) -> BTreeMap<u32, Vec<i64>> {
    let output = std::process::Command::new("otf2-print").arg("-A").arg(path).output().expect("otf2-print");
    let text = String::from_utf8(output.stdout).expect("text");
    let clock = text.lines().find(|line| line.starts_with("CLOCK_PROPERTIES")).expect("clock");
    let after = |name: &str| {
        let rest = clock.split_once(name).expect("name").1;
        rest.split([',', ' ']).next().expect("value").parse::<i128>().expect("number")
    };
    let (ticks, offset) = (after("Ticks per Seconds: "), after("Global Offset: "));
    let locations: BTreeMap<&str, u32> = text
        .lines()
        .filter(|line| line.starts_with("LOCATION "))
        .map(|line| {
            let id = line.split_whitespace().nth(1).expect("id");
            let group = line.split_once("Group: \"").expect("group").1;
            let digits = group.trim_start_matches("MPI Rank ").trim_start_matches("P#");
            (id, digits.split('"').next().expect("rank").parse().expect("rank"))
        })
        .collect();
    let mut sends: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("MPI_SEND ") || line.starts_with("MPI_ISEND ")) {
        let mut words = line.split_whitespace().skip(1);
        let rank = locations[words.next().expect("location")];
        let time: i128 = words.next().expect("time").parse().expect("number");
        sends.entry(rank).or_default().push(((time - offset) * 1_000_000_000 / ticks) as i64);
    }
    sends
}

/// Ten all-to-alls, broadcasts, allreduces and barriers of four ranks on two or four nodes
/// (samples/runs: `coll`).
#[test]
fn collectives_promise_the_bytes_that_programs_requested() {
    for name in ["ompi-rc-coll-2x2", "scorep-ompi-openib-coll-2x2", "scorep-ompi-rc-coll-4x1"] {
        let run = runs::named(name);
        let nodes = run.node_of_rank();
        let trace = read(&archive(&run).expect("archive"));
        let profile = analyze(&run.every_node(), &AnalysisOptions::default(), &|_| {}).expect("profile");
        let result = with_profile(&trace, &profile).expect("compared");
        let between: BTreeSet<(u32, u32)> = nodes
            .keys()
            .flat_map(|src| nodes.keys().map(move |dst| (*src, *dst)))
            .filter(|(src, dst)| nodes[src] != nodes[dst])
            .collect();
        let of =
            |operation: &str, value: fn(&ibscope::crosscheck::CollectivePair) -> u64| -> BTreeMap<(u32, u32), u64> {
                let rows = result.collectives.iter().filter(|row| row.operation == operation);
                rows.map(|row| ((row.src, row.dst), value(row))).filter(|(_, value)| *value > 0).collect()
            };
        let each = |bytes: u64| -> BTreeMap<(u32, u32), u64> { between.iter().map(|pair| (*pair, bytes)).collect() };
        // 4096 bytes for each other rank, ten times; Open MPI sends them directly.
        assert_eq!(of("alltoall", |row| row.expected_bytes), each(40_960), "{name}");
        assert_eq!(of("alltoall", |row| row.wire_bytes), each(40_960), "{name}");
        // 2048 bytes, ten times; the algorithm decides how they travel.
        assert_eq!(of("allreduce", |row| row.expected_bytes), each(20_480), "{name}");
        // 32768 bytes; the root rotates: 0, 1, 2, 3, 0, 1, 2, 3, 0, 1.
        let expected = between.iter().map(|(src, dst)| ((*src, *dst), 32_768 * if *src < 2 { 3 } else { 2 })).collect();
        assert_eq!(of("bcast", |row| row.expected_bytes), expected, "{name}");
        assert_eq!(of("barrier", |row| row.expected_bytes), BTreeMap::new(), "{name}");
        assert_eq!(of("barrier", |row| row.wire_bytes), BTreeMap::new(), "{name}");
        assert!(!of("barrier", |row| row.wire_messages).is_empty(), "{name}");
    }
}
