//! Phases of recorded runs against the sends that their programs noted, of two runs one after the other, and patterns of generated and recorded traffic.

use crate::recorded::profile;
use crate::runs::{self, Run, decompressed};
use crate::tools::in_parallel;
use ibscope::model::Profile;
use ibscope::pipeline::{Options, analyze};
use ibscope::report::By;
use ibscope::report::phases::{self, Name, Phases};
use ibscope_samples::{Framing, Kind, Pattern};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn phases(profile: &Profile) -> Phases {
    phases::phases(profile, &phases::Options::default())
}

/// Times of the first and the last send from one node to another, as the program noted them. In one run the tracer's own sends were noted too.
fn main_loop(run: &Run) -> Option<[i64; 2]> {
    let nodes = run.node_of_rank();
    let mut times = Vec::new();
    for rank in nodes.keys() {
        let path = run.folder.join(format!("sends/sends.{rank}.csv.zst"));
        let text = path.exists().then(|| String::from_utf8(decompressed(&path)).expect("text"))?;
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let node = |rank: &str| nodes[&rank.parse::<u32>().expect("rank")];
            let is_tracer = run.name == "ompi-openib-bt.S-4x1" && ["17", "18"].contains(&fields[3]);
            if node(fields[1]) != node(fields[2]) && !is_tracer {
                times.push(fields[0].parse::<i64>().expect("time"));
            }
        }
    }
    Some([*times.iter().min()?, *times.iter().max()?])
}

/// How far a moment is from the nearest start or end of a phase.
fn off_ns(phases: &Phases, time_ns: i64) -> i64 {
    let bounds = phases.phases.iter().flat_map(|phase| [phase.from_ns, phase.to_ns]);
    bounds.map(|bound| (bound - time_ns).abs()).min().expect("phases")
}

#[test]
fn the_main_loop_is_found_within_a_window() {
    let runs: Vec<(Run, [i64; 2])> =
        runs::all().into_iter().filter_map(|run| main_loop(&run).map(|bounds| (run, bounds))).collect();
    assert_eq!(runs.len(), 22);
    in_parallel(&runs, |_, (run, bounds)| {
        let found = phases(&profile(&[run.sink()]));
        for (what, time_ns) in ["first", "last"].into_iter().zip(bounds) {
            // Score-P's own point-to-point messages follow the last send after 40 ms and look like more of these random ones.
            if (run.name.as_str(), what) == ("scorep-ompi-rc-mixed-2x2", "last") {
                continue;
            }
            let off = off_ns(&found, *time_ns) as f64 / found.window_ns as f64;
            assert!(off <= 1.0, "{}: the {what} send is {off:.2} windows from the nearest bound", run.name);
        }
        // Not by cutting everywhere: between the two there are few cuts, in most runs none.
        let [first, last] = bounds.map(|ns| ns);
        let inside = found
            .phases
            .iter()
            .filter(|phase| phase.from_ns > first + found.window_ns && phase.from_ns < last - found.window_ns);
        let most = if run.name.contains("mixed") { 2 } else { 0 };
        assert!(inside.count() <= most, "{}: {:?}", run.name, found.phases.len());
    });
}

/// A capture of two sinks, the second 100 ms after the end of the first. Also the moments between which nothing was sent.
fn one_after_the_other(runs: [&str; 2], folder: &Path) -> (PathBuf, [i64; 2]) {
    let [first, mut second] = runs.map(|name| decompressed(&runs::named(name).sink()));
    let word = |file: &[u8], at: usize| i64::from(u32::from_le_bytes(file[at..at + 4].try_into().expect("word")));
    let records = |file: &[u8]| {
        let mut records = Vec::new();
        let mut at = 24;
        while at < file.len() {
            records.push((at, word(file, at) * 1_000_000 + word(file, at + 4)));
            at += 16 + word(file, at + 8) as usize;
        }
        records
    };
    let end_us = records(&first).iter().map(|(_, us)| *us).max().expect("records");
    let (start_us, at_us) = (end_us + 100_000, records(&second));
    let shift_us = start_us - at_us.iter().map(|(_, us)| *us).min().expect("records");
    for (at, us) in at_us {
        let us = us + shift_us;
        second[at..at + 4].copy_from_slice(&((us / 1_000_000) as u32).to_le_bytes());
        second[at + 4..at + 8].copy_from_slice(&((us % 1_000_000) as u32).to_le_bytes());
    }
    let mut both = first;
    both.extend_from_slice(&second[24..]);
    let path = folder.join(format!("{}.{}.pcap", runs[0], runs[1]));
    std::fs::write(&path, both).expect("write");
    (path, [end_us * 1000, start_us * 1000])
}

#[test]
fn two_runs_are_told_apart_within_a_window() {
    let folder = tempfile::tempdir().expect("folder");
    let pairs = [
        ["ompi-openib-notrace-mixed-4x1", "scorep-ompi-rc-halo-4x1"],
        ["scorep-ompi-rc-halo-4x1", "ompi-rc-notrace-mixed-4x1"],
        ["ompi-openib-bt.S-4x1", "ompi-openib-notrace-mixed-4x1"],
        ["ompi-rc-ring2", "ompi-openib-ring2"],
        ["ompi-openib-ring2", "mpich-rc-ring2"],
        ["ompi-rc-halo-2x2", "ompi-rc-mw-2x2"],
        ["ompi-rc-coll-2x2", "ompi-openib-mixed-2x2"],
        ["scorep-ompi-rc-comm-4x1", "scorep-ompi-rc-coll-4x1"],
    ];
    in_parallel(&pairs, |_, runs| {
        let (path, pause_ns) = one_after_the_other(*runs, folder.path());
        let found = phases(&profile(&[path]));
        let off = pause_ns.map(|ns| off_ns(&found, ns)).into_iter().min().expect("two") as f64 / found.window_ns as f64;
        assert!(off <= 1.0, "{runs:?}: {off:.2} windows of {} ns", found.window_ns);
    });
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
    };
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("generated.pcap");
    ibscope_samples::generate(&options, &mut std::fs::File::create(&path).expect("file")).expect("generate");
    let profile =
        analyze(&[path], &Options { bin_ns: Some(1_000_000), ..Options::default() }, &|_| {}).expect("analysis");
    let found = phases(&profile);
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

/// Names that are right for some phase of a run: what the program does, what the library does in its collectives and at the start and end, and what
/// the tracer sends. Two that talk are a pair, whatever they run.
fn right(run: &Run) -> BTreeSet<Name> {
    let program = run.name.split('-').find(|part| ["halo", "mixed", "mw", "coll", "comm", "bt.S"].contains(part));
    let names: &[Name] = match program {
        // A grid of 2 by 2 is a circle of four as well, so no name of its own is right either; at random; BT's own scheme; a bit of everything.
        Some("halo") => &[Name::Halo2d],
        Some("mw") => &[Name::MasterWorker],
        Some("coll") => &[Name::AllToAll],
        Some("mixed" | "comm" | "bt.S") => &[],
        Some(other) => panic!("{other}"),
        // Rings of two, and perftest.
        None => &[],
    };
    names.iter().copied().chain([Name::Pair, Name::Unknown]).collect()
}

#[test]
fn recorded_runs_have_no_wrong_name() {
    in_parallel(&runs::all(), |_, run| {
        for paths in [vec![run.sink()], run.every_node(), vec![run.node(1)]] {
            let profile = profile(&paths);
            for by in [By::Rank, By::Endpoint] {
                let found = phases::phases(&profile, &phases::Options { by: Some(by), window_ns: None });
                for phase in &found.phases {
                    let (name, who) = (phase.pattern.name, phase.matrix.labels.len());
                    assert!(right(run).contains(&name), "{} {paths:?} {by:?}: {:?} {phase:?}", run.name, phase.pattern);
                    assert!(name != Name::Pair || who <= 4, "{}", run.name);
                }
                // One rank on each of two nodes: nothing else can be.
                if run.nodes == 2 && by == By::Endpoint && paths.len() > 1 {
                    assert!(found.phases.iter().all(|phase| phase.pattern.name == Name::Pair), "{}", run.name);
                }
            }
        }
    });
}

/// Phases add up to what the profile holds, and their matrices to their sums.
#[test]
fn phases_lose_nothing() {
    for run in ["ompi-openib-bt.S-4x1", "scorep-ompi-rc-coll-4x1", "perf-read-lat"] {
        let profile = profile(&[runs::named(run).sink()]);
        let found = phases(&profile);
        let data = || profile.connections.iter().filter(|connection| connection.kind == ibscope::model::Kind::Data);
        let sum = |value: fn(&ibscope::model::profile::Traffic) -> u64| -> u64 {
            data().map(|row| value(&row.traffic)).sum()
        };
        let payload: u64 = found.phases.iter().map(|phase| phase.traffic.payload_bytes).sum();
        let messages: u64 = found.phases.iter().map(|phase| phase.traffic.messages).sum();
        assert_eq!(
            (payload, messages),
            (sum(|traffic| traffic.payload_bytes), sum(|traffic| traffic.messages)),
            "{run}"
        );
        for phase in &found.phases {
            assert_eq!(phase.matrix.total().packets, phase.traffic.packets, "{run}");
        }
        assert!(found.phases.windows(2).all(|two| two[0].to_ns <= two[1].from_ns), "{run}");
    }
}
