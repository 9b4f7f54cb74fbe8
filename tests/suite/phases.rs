//! Phases of recorded runs compared with the sends that their programs recorded, change points
//! between two runs, and patterns of generated and recorded traffic.

use crate::joined::{self, off_ns};
use crate::recorded::profile;
use crate::runs;
use crate::tools::{ibscope, in_parallel, result};
use ibscope::analysis::GroupBy;
use ibscope::analysis::phases::{self, PatternName, Phases};
use ibscope::model::Profile;
use ibscope::model::profile::TimelineRow;
use ibscope_samples::{SampleFraming, SampleKind, TrafficPattern};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

fn phases(profile: &Profile) -> Phases {
    phases::phases(profile, &phases::PhaseOptions::default())
}

#[test]
fn the_main_loop_is_found_within_a_window() {
    let runs = joined::runs_with_sends();
    in_parallel(&runs, |_, (run, bounds)| {
        let found = phases(&profile(&[run.sink()]));
        for (what, time_ns) in ["first", "last"].into_iter().zip(bounds) {
            let off = off_ns(&found, *time_ns) as f64 / found.window_ns as f64;
            assert!(off <= 1.0, "{}: the {what} send is {off:.2} windows from the nearest bound", run.name);
        }
        // Not by a change point everywhere: between the two there is none, or few in the random
        // traffic of `mixed` and between the pauses of a lossy run.
        let [first, last] = bounds.map(|ns| ns);
        let inside = found
            .phases
            .iter()
            .filter(|phase| phase.from_ns > first + found.window_ns && phase.from_ns < last - found.window_ns);
        let most = match run.name.as_str() {
            name if name.contains("mixed") => 3,
            "ompi-rc-loss1-ring2" => 1,
            _ => 0,
        };
        assert!(inside.count() <= most, "{}: {:?}", run.name, found.phases.len());
    });
}

/// `make soak` runs all pairs.
#[test]
fn the_change_between_two_runs_is_found_within_a_window() {
    let pairs = [
        ["ompi-openib-notrace-mixed-4x1", "scorep-ompi-rc-halo-4x1"],
        ["scorep-ompi-rc-halo-4x1", "ompi-rc-notrace-mixed-4x1"],
        ["ompi-openib-bt.S-4x1", "ompi-openib-notrace-mixed-4x1"],
        ["ompi-rc-ring2", "ompi-openib-ring2"],
        ["ompi-openib-ring2", "mpich-rc-ring2"],
        ["ompi-rc-halo-2x2", "ompi-rc-mw-2x2"],
        ["ompi-rc-coll-2x2", "ompi-openib-mixed-2x2"],
        ["scorep-ompi-rc-comm-4x1", "scorep-ompi-rc-coll-4x1"],
        // Rings before and after one that takes twenty times as long, and rings whose ends resemble
        // others' starts.
        ["ompi-rc-loss1-ring2", "ompi-rc-ring2"],
        ["ompi-openib-ring2", "ompi-rc-loss1-ring2"],
        ["scorep-ompi-rc-ring-2x1", "ompi-openib-ring2"],
        ["mpich-rc-ring2", "ompi-ud-ring2"],
        // The pause is a fifth of a window; the second run starts slowly with little traffic, or
        // the first one ends like that.
        ["ompi-rc-halo-2x2", "ompi-rc-loss1-ring2"],
        ["scorep-ompi-rc-halo-4x1", "ompi-openib-bt.S-4x1"],
        ["scorep-ompi-rc-ring-2x1", "ompi-ud-ring2"],
    ];
    let pairs = pairs.map(|pair| pair.map(str::to_owned));
    assert_eq!(joined::missed(&pairs), Vec::<String>::new());
}

/// The pattern of generated traffic, as one phase.
fn pattern_of(pattern: TrafficPattern, lids: u16, mirror: u8) -> phases::PhasePattern {
    let bytes = if pattern == TrafficPattern::AllToAll { 2_500 * u64::from(lids).pow(2) } else { 1 << 20 };
    let options = ibscope_samples::SampleOptions {
        framing: SampleFraming::Native,
        kind: SampleKind::Small,
        bytes: bytes * u64::from(mirror),
        lids,
        mirror,
        pattern: Some(pattern),
        seed: 11,
        ..ibscope_samples::SampleOptions::default()
    };
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("generated.pcap");
    ibscope_samples::generate(&options, &mut std::fs::File::create(&path).expect("file")).expect("generate");
    let found = phases(&profile(&[path]));
    assert_eq!((found.by, found.phases.len()), (GroupBy::Endpoint, 1), "{pattern:?} {lids}");
    found.phases[0].pattern
}

#[test]
fn generated_patterns_are_named() {
    let expected = [
        (TrafficPattern::Ring, PatternName::Ring, false),
        (TrafficPattern::Halo2d, PatternName::Halo2d, true),
        (TrafficPattern::Halo3d, PatternName::Halo3d, true),
        (TrafficPattern::AllToAll, PatternName::AllToAll, true),
        (TrafficPattern::MasterWorker, PatternName::MasterWorker, true),
        (TrafficPattern::Tree, PatternName::Tree, true),
        (TrafficPattern::Random, PatternName::Irregular, false),
    ];
    let cases: Vec<_> = expected.iter().flat_map(|case| [16, 64].map(|lids| (case, lids))).collect();
    in_parallel(&cases, |_, ((pattern, name, symmetric), lids)| {
        let found = pattern_of(*pattern, *lids, 2);
        assert_eq!((found.name, found.symmetric), (*name, *symmetric), "{pattern:?} {lids} {found:?}");
        assert!((0.3..=1.0).contains(&found.confidence), "{pattern:?} {lids} {found:?}");
    });
}

/// Without mirror copies the capture may be of one port, which may show only the star or tree
/// around it.
#[test]
fn one_port_does_not_show_a_star() {
    for (pattern, name) in [
        (TrafficPattern::MasterWorker, PatternName::Unknown),
        (TrafficPattern::Tree, PatternName::Unknown),
        (TrafficPattern::Ring, PatternName::Ring),
    ] {
        assert_eq!(pattern_of(pattern, 16, 1).name, name, "{pattern:?}");
    }
}

/// At most four ranks: whatever the programs do (rings of two, 2 by 2 grids, a master with three
/// workers, collectives, random pairs, BT: see `samples/runs/README.md`), two active ranks are a
/// pair, and more may be anything.
#[test]
fn recorded_runs_have_no_wrong_name() {
    in_parallel(&runs::all(), |_, run| {
        for paths in [vec![run.sink()], run.every_node(), vec![run.node(1)]] {
            let profile = profile(&paths);
            for by in [GroupBy::Rank, GroupBy::Endpoint] {
                let found = phases::phases(&profile, &phases::PhaseOptions { by: Some(by), window_ns: None });
                for phase in &found.phases {
                    let name = phase.pattern.name;
                    assert!(
                        [PatternName::Pair, PatternName::Unknown].contains(&name),
                        "{} {paths:?} {by:?}: {:?}",
                        run.name,
                        phase.pattern
                    );
                    // Each rank has one partner.
                    let cells = phase.matrix.rows().filter(|(_, _, cell)| cell.payload_bytes > 0);
                    let partners: BTreeSet<(String, String)> =
                        cells.map(|(src, dst, _)| (src.min(dst).to_string(), src.max(dst).to_string())).collect();
                    assert!(name != PatternName::Pair || partners.len() <= 2, "{} {by:?} {partners:?}", run.name);
                }
                if run.nodes == 2 && by == GroupBy::Endpoint && !run.name.starts_with("perf-atomic") {
                    assert!(found.phases.iter().all(|phase| phase.pattern.name == PatternName::Pair), "{}", run.name);
                }
            }
        }
    });
}

/// A phase has the timeline's traffic between its bounds, the matrices are equal, and nearly all
/// traffic is in some phase.
#[test]
fn phases_contain_the_traffic_between_their_bounds() {
    for run in ["ompi-openib-bt.S-4x1", "scorep-ompi-rc-coll-4x1", "perf-read-lat", "perf-atomic-lat"] {
        let profile = profile(&[runs::named(run).sink()]);
        let found = phases(&profile);
        let is_data =
            |row: &&TimelineRow| profile.connections[row.connection as usize].kind == ibscope::model::TrafficKind::Data;
        let sums = |rows: &mut dyn Iterator<Item = &TimelineRow>| {
            rows.fold([0, 0, 0], |[messages, payload, packets], row| {
                [messages + row.traffic.messages, payload + row.traffic.payload_bytes, packets + row.traffic.packets]
            })
        };
        let mut inside = [0; 3];
        for phase in &found.phases {
            // The first phase starts at the first packet, within the first bin.
            let within = |row: &&TimelineRow| row.time_ns + profile.bin_ns > phase.from_ns && row.time_ns < phase.to_ns;
            let expected = sums(&mut profile.timeline.iter().filter(is_data).filter(within));
            assert_eq!([phase.traffic.messages, phase.traffic.payload_bytes, phase.traffic.packets], expected, "{run}");
            assert_eq!([phase.matrix.total().payload_bytes, phase.matrix.total().packets], expected[1..], "{run}");
            inside.iter_mut().zip(expected).for_each(|(sum, value)| *sum += value);
        }
        let [_, payload, packets] = sums(&mut profile.timeline.iter().filter(is_data));
        // Only acknowledgements are outside.
        assert!(inside[1] == payload && inside[2] * 100 >= packets * 95, "{run} {inside:?} {packets}");
        assert!(found.phases.windows(2).all(|two| two[0].to_ns <= two[1].from_ns), "{run}");
    }
}

fn of_json(arguments: &[&str], path: &Path) -> serde_json::Value {
    serde_json::from_str(&result(&[&["phases", "--format", "json"], arguments].concat(), &[path])).expect("json")
}

/// Csv and table compared with JSON, and the matrix of each phase with the output of `matrix` for
/// the same window of the profile.
#[test]
fn every_format_has_the_numbers_of_matrix() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("run.ibp");
    let sink = runs::named("ompi-openib-bt.S-4x1").sink();
    assert_eq!(ibscope([OsStr::new("analyze"), sink.as_os_str(), OsStr::new("-o"), place.as_os_str()]).code, 0);
    let json = of_json(&[], &place);
    let phases = json["phases"].as_array().expect("phases");
    let csv = result(&["phases", "--format", "csv"], &[&place]);
    let table = result(&["phases"], &[&place]);
    assert_eq!((csv.lines().count(), json["by"].as_str()), (phases.len() + 1, Some("rank")));
    let names: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
    let origin_ns = json["origin_ns"].as_i64().expect("origin");
    for (number, (row, phase)) in (1..).zip(csv.lines().skip(1).zip(phases)) {
        let fields: Vec<&str> = row.split(',').collect();
        for name in
            ["from_ns", "to_ns", "messages", "mpi_bytes", "payload_bytes", "wire_bytes", "packets", "p2p_messages"]
        {
            let field = fields[names.iter().position(|other| *other == name).expect("column")];
            assert_eq!(phase[name].to_string(), field, "{name}");
        }
        let pattern = phase["pattern"].as_str().expect("name");
        assert!(fields.contains(&pattern));
        let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{number} "))).expect("line");
        assert!(line.contains(pattern), "{line}");

        let seconds = |name: &str| {
            let ns = (phase[name].as_i64().expect("time") - origin_ns).max(0);
            format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
        };
        let (from, to) = (seconds("from_ns"), seconds("to_ns"));
        let window = ["matrix", "--by", "rank", "--traffic", "all", "--format", "csv", "--from", &from, "--to", &to];
        // The matrix has the coverage and the class after these columns.
        let without_coverage = |row: &str| row.rsplitn(3, ',').nth(2).expect("columns").to_owned();
        let expected: BTreeSet<String> = result(&window, &[&place]).lines().skip(1).map(without_coverage).collect();
        let cells = json["matrices"].as_array().expect("matrices").iter();
        let cells = cells.filter(|cell| cell["phase"] == number).map(|cell| {
            let values = ["src", "dst", "messages", "mpi_bytes", "payload_bytes", "wire_bytes", "packets", "job"];
            values.map(|name| cell[name].to_string().trim_matches('"').to_owned()).join(",")
        });
        assert_eq!(cells.collect::<BTreeSet<String>>(), expected, "{from} to {to}");
    }
}

#[test]
fn windows_have_the_requested_width_or_a_note_says_why_not() {
    let sink = runs::named("ompi-rc-ring2").sink();
    // Windows of captures have the requested width.
    assert_eq!(of_json(&["--window", "4ms"], &sink)["window_ns"], 4_000_000);
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("run.ibp");
    assert_eq!(ibscope([OsStr::new("analyze"), sink.as_os_str(), OsStr::new("-o"), place.as_os_str()]).code, 0);
    // Windows of a profile are whole bins of 10 ms, and at most 512: 1.05 s in 100 ns are too many
    // even for a capture.
    let run = |path: &Path, window: &str| ibscope(["phases", "--window", window, path.to_str().expect("path")]);
    let ran = run(&place, "25ms");
    assert!(ran.code == 0 && ran.stderr.contains("windows are 30 ms wide instead of 25 ms"), "{}", ran.stderr);
    assert!(!run(&place, "50ms").stderr.contains("windows are"));
    let ran = run(&sink, "100us");
    assert!(ran.code == 0 && ran.stderr.contains("at most 512"), "{}", ran.stderr);
}
