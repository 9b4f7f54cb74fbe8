//! Recorded runs: healthy ones have no finding, and those with a known cause have this one.

use super::{findings, names};
use crate::runs;
use crate::tools::in_parallel;

/// Runs in which something was made to go wrong: the name, the finding and its subject.
const CAUSES: [(&str, &str, &str); 7] = [
    ("ompi-rc-loss1-ring2", "fabric_loss", "path 10.77.0.1 <-> 10.77.0.2"),
    ("straggler-rank2-20ms-4x1", "straggler", "job 1, rank 2"),
    ("straggler-rank1-5ms-4x1", "straggler", "job 1, rank 1"),
    ("straggler-rank3-5ms-2x2", "straggler", "job 1, rank 3"),
    ("cg-rank3-5ms-4x1", "straggler", "job 1, rank 3"),
    ("mpich4.2-cg-rank0-10ms-4x1", "straggler", "job 1, rank 0"),
    // Rank 2 is late; the wire shows only that the others wait for it.
    ("cg-rank2-5ms-2x2", "late_sender", "job 1, rank 2"),
];

/// True if nothing was made to go wrong in the run of this name.
pub(super) fn is_healthy(name: &str) -> bool {
    CAUSES.iter().all(|(run, ..)| *run != name)
}

/// With all ports, with the sink, and with each port alone, where nothing may be blamed on what
/// other ports did.
#[test]
fn healthy_runs_have_no_finding() {
    let runs = runs::of_all_sets();
    assert!(runs.len() > 70, "{}", runs.len());
    in_parallel(&runs, |_, run| {
        let cause = CAUSES.iter().find(|(name, ..)| *name == run.name);
        let every_port = run.every_node();
        let sink = Some(vec![run.sink()]).filter(|sink| sink[0].exists());
        let one_port = every_port.iter().map(|port| vec![port.clone()]);
        let sets: Vec<_> = std::iter::once(every_port.clone()).chain(sink).chain(one_port).collect();
        for captures in sets {
            let all = findings(&["--link", "1Gb/s"], &captures);
            let known: Vec<&str> = cause.iter().map(|(_, finding, _)| *finding).collect();
            assert!(names(&all).iter().all(|name| known.contains(name)), "{}: {captures:?}: {all:?}", run.name);
        }
    });
}

#[test]
fn the_cause_of_a_run_comes_first() {
    let runs = runs::of_all_sets();
    for (name, finding, subject) in CAUSES {
        let run = runs.iter().find(|run| run.name == name).expect("a recorded run");
        let all = findings(&[], &run.every_node());
        assert_eq!(names(&all), [finding], "{name}: {all:?}");
        assert_eq!(all[0]["subject"], subject, "{name}");
    }
}
