//! Phases of recorded runs against the sends that their programs noted, of two runs one after the other, and patterns of generated and recorded traffic.

use crate::joined::{self, off_ns};
use crate::recorded::profile;
use crate::runs;
use crate::tools::{ibscope, in_parallel, result};
use ibscope::analysis::By;
use ibscope::analysis::phases::{self, Name, Phases};
use ibscope::model::Profile;
use ibscope::model::profile::TimelineRow;
use ibscope_samples::{Framing, Kind, Pattern};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

fn phases(profile: &Profile) -> Phases {
    phases::phases(profile, &phases::Options::default())
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
        // Not by cutting everywhere: between the two there is none, or few in the random traffic of `mixed` and between the pauses of a lossy run.
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

/// All pairs there are: `make soak`.
#[test]
fn two_runs_are_told_apart_within_a_window() {
    let pairs = [
        ["ompi-openib-notrace-mixed-4x1", "scorep-ompi-rc-halo-4x1"],
        ["scorep-ompi-rc-halo-4x1", "ompi-rc-notrace-mixed-4x1"],
        ["ompi-openib-bt.S-4x1", "ompi-openib-notrace-mixed-4x1"],
        ["ompi-rc-ring2", "ompi-openib-ring2"],
        ["ompi-openib-ring2", "mpich-rc-ring2"],
        ["ompi-rc-halo-2x2", "ompi-rc-mw-2x2"],
        ["ompi-rc-coll-2x2", "ompi-openib-mixed-2x2"],
        ["scorep-ompi-rc-comm-4x1", "scorep-ompi-rc-coll-4x1"],
        // Rings before and after one that takes twenty times as long, and rings that end as others begin.
        ["ompi-rc-loss1-ring2", "ompi-rc-ring2"],
        ["ompi-openib-ring2", "ompi-rc-loss1-ring2"],
        ["scorep-ompi-rc-ring-2x1", "ompi-openib-ring2"],
        ["mpich-rc-ring2", "ompi-ud-ring2"],
        // The pause is a fifth of a window, the second begins with little and slowly, the first ends so.
        ["ompi-rc-halo-2x2", "ompi-rc-loss1-ring2"],
        ["scorep-ompi-rc-halo-4x1", "ompi-openib-bt.S-4x1"],
        ["scorep-ompi-rc-ring-2x1", "ompi-ud-ring2"],
    ];
    let pairs = pairs.map(|pair| pair.map(str::to_owned));
    assert_eq!(joined::missed(&pairs), Vec::<String>::new());
}

/// The pattern of generated traffic, as one phase.
fn pattern_of(pattern: Pattern, lids: u16, mirror: u8) -> phases::Pattern {
    let bytes = if pattern == Pattern::AllToAll { 2_500 * u64::from(lids).pow(2) } else { 1 << 20 };
    let options = ibscope_samples::Options {
        framing: Framing::Native,
        kind: Kind::Small,
        bytes: bytes * u64::from(mirror),
        lids,
        mirror,
        pattern: Some(pattern),
        seed: 11,
        ..ibscope_samples::Options::default()
    };
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("generated.pcap");
    ibscope_samples::generate(&options, &mut std::fs::File::create(&path).expect("file")).expect("generate");
    let found = phases(&profile(&[path]));
    assert_eq!((found.by, found.phases.len()), (By::Endpoint, 1), "{pattern:?} {lids}");
    found.phases[0].pattern
}

#[test]
fn generated_patterns_are_named() {
    let expected = [
        (Pattern::Ring, Name::Ring, false),
        (Pattern::Halo2d, Name::Halo2d, true),
        (Pattern::Halo3d, Name::Halo3d, true),
        (Pattern::AllToAll, Name::AllToAll, true),
        (Pattern::MasterWorker, Name::MasterWorker, true),
        (Pattern::Tree, Name::Tree, true),
        (Pattern::Random, Name::Irregular, false),
    ];
    let cases: Vec<_> = expected.iter().flat_map(|case| [16, 64].map(|lids| (case, lids))).collect();
    in_parallel(&cases, |_, ((pattern, name, symmetric), lids)| {
        let found = pattern_of(*pattern, *lids, 2);
        assert_eq!((found.name, found.symmetric), (*name, *symmetric), "{pattern:?} {lids} {found:?}");
        assert!((0.3..=1.0).contains(&found.confidence), "{pattern:?} {lids} {found:?}");
    });
}

/// What stands once may have been captured at one port, and then a star or a tree may be all that this one sees.
#[test]
fn one_port_does_not_tell_a_star_from_what_it_cannot_see() {
    for (pattern, name) in
        [(Pattern::MasterWorker, Name::Unknown), (Pattern::Tree, Name::Unknown), (Pattern::Ring, Name::Ring)]
    {
        assert_eq!(pattern_of(pattern, 16, 1).name, name, "{pattern:?}");
    }
}

/// Four ranks at most, so whatever the programs do (rings of two, 2 by 2 grids, a master with three workers, collectives, random pairs, BT: see
/// `samples/runs/README.md`), two that talk are a pair and more than that may be anything.
#[test]
fn recorded_runs_have_no_wrong_name() {
    in_parallel(&runs::all(), |_, run| {
        for paths in [vec![run.sink()], run.every_node(), vec![run.node(1)]] {
            let profile = profile(&paths);
            for by in [By::Rank, By::Endpoint] {
                let found = phases::phases(&profile, &phases::Options { by: Some(by), window_ns: None });
                for phase in &found.phases {
                    let name = phase.pattern.name;
                    assert!(
                        [Name::Pair, Name::Unknown].contains(&name),
                        "{} {paths:?} {by:?}: {:?}",
                        run.name,
                        phase.pattern
                    );
                    // Each has one partner.
                    let cells = phase.matrix.rows().filter(|(_, _, cell)| cell.payload_bytes > 0);
                    let partners: BTreeSet<(String, String)> =
                        cells.map(|(src, dst, _)| (src.min(dst).to_string(), src.max(dst).to_string())).collect();
                    assert!(name != Name::Pair || partners.len() <= 2, "{} {by:?} {partners:?}", run.name);
                }
                if run.nodes == 2 && by == By::Endpoint && !run.name.starts_with("perf-atomic") {
                    assert!(found.phases.iter().all(|phase| phase.pattern.name == Name::Pair), "{}", run.name);
                }
            }
        }
    });
}

/// Phases hold what the profile's timeline holds between their bounds, their matrices the same, and nearly everything lies in some phase.
#[test]
fn phases_hold_what_lies_in_them() {
    for run in ["ompi-openib-bt.S-4x1", "scorep-ompi-rc-coll-4x1", "perf-read-lat", "perf-atomic-lat"] {
        let profile = profile(&[runs::named(run).sink()]);
        let found = phases(&profile);
        let is_data =
            |row: &&TimelineRow| profile.connections[row.connection as usize].kind == ibscope::model::Kind::Data;
        let sums = |rows: &mut dyn Iterator<Item = &TimelineRow>| {
            rows.fold([0, 0, 0], |[messages, payload, packets], row| {
                [messages + row.traffic.messages, payload + row.traffic.payload_bytes, packets + row.traffic.packets]
            })
        };
        let mut inside = [0; 3];
        for phase in &found.phases {
            let within = |row: &&TimelineRow| (phase.from_ns..phase.to_ns).contains(&row.time_ns);
            let expected = sums(&mut profile.timeline.iter().filter(is_data).filter(within));
            assert_eq!([phase.traffic.messages, phase.traffic.payload_bytes, phase.traffic.packets], expected, "{run}");
            assert_eq!([phase.matrix.total().payload_bytes, phase.matrix.total().packets], expected[1..], "{run}");
            inside.iter_mut().zip(expected).for_each(|(sum, value)| *sum += value);
        }
        let [_, payload, packets] = sums(&mut profile.timeline.iter().filter(is_data));
        // What lies outside are acknowledgements.
        assert!(inside[1] == payload && inside[2] * 100 >= packets * 95, "{run} {inside:?} {packets}");
        assert!(found.phases.windows(2).all(|two| two[0].to_ns <= two[1].from_ns), "{run}");
    }
}

fn of_json(arguments: &[&str], path: &Path) -> serde_json::Value {
    serde_json::from_str(&result(&[&["phases", "--format", "json"], arguments].concat(), &[path])).expect("json")
}

/// Csv and table against json, and the matrix of each phase against that which `matrix` cuts out of the same profile.
#[test]
fn every_form_says_the_same_and_matrix_too() {
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
        let pattern = phase["pattern"]["name"].as_str().expect("name");
        assert!(fields.contains(&pattern));
        let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{number} "))).expect("line");
        assert!(line.contains(pattern), "{line}");

        let seconds = |name: &str| {
            let ns = (phase[name].as_i64().expect("time") - origin_ns).max(0);
            format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
        };
        let (from, to) = (seconds("from_ns"), seconds("to_ns"));
        let window = ["matrix", "--by", "rank", "--traffic", "all", "--format", "csv", "--from", &from, "--to", &to];
        // The matrix has coverage behind these columns.
        let without_coverage = |row: &str| row.rsplit_once(',').expect("columns").0.to_owned();
        let expected: BTreeSet<String> = result(&window, &[&place]).lines().skip(1).map(without_coverage).collect();
        let cells = phase["cells"].as_array().expect("cells").iter().map(|cell| {
            let values = ["src", "dst", "messages", "mpi_bytes", "payload_bytes", "wire_bytes", "packets", "job"];
            values.map(|name| cell[name].to_string().trim_matches('"').to_owned()).join(",")
        });
        assert_eq!(cells.collect::<BTreeSet<String>>(), expected, "{from} to {to}");
    }
}

#[test]
fn windows_are_as_wide_as_asked_for_or_a_note_says_why_not() {
    let sink = runs::named("ompi-rc-ring2").sink();
    // Windows of captures are as asked for.
    assert_eq!(of_json(&["--window", "4ms"], &sink)["window_ns"], 4_000_000);
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("run.ibp");
    assert_eq!(ibscope([OsStr::new("analyze"), sink.as_os_str(), OsStr::new("-o"), place.as_os_str()]).code, 0);
    // Those of a profile are whole bins of 10 ms, and at most 512: 1.05 s in 100 ns are too many even for a capture.
    let run = |path: &Path, window: &str| ibscope(["phases", "--window", window, path.to_str().expect("path")]);
    let ran = run(&place, "25ms");
    assert!(ran.code == 0 && ran.stderr.contains("windows are 30 ms wide, not 25 ms"), "{}", ran.stderr);
    assert!(!run(&place, "50ms").stderr.contains("windows are"));
    let ran = run(&sink, "100us");
    assert!(ran.code == 0 && ran.stderr.contains("at most 512"), "{}", ran.stderr);
}
