//! The classes of cases. A class creates a scene from random numbers that depend only on its name
//! and the number of the case.

mod devices;
mod jobs;
mod names;
mod partial;
mod split;
mod storage;

use crate::library::Library;
use crate::scene::Scene;
use ibscope_samples::Random;

/// A class of cases.
pub(crate) struct CaseClass {
    pub(crate) name: &'static str,
    /// Number of cases in a test run, and in `make soak`.
    pub(crate) few: usize,
    pub(crate) all: usize,
    /// The invariants do not hold yet: failures are reported, but do not fail the test.
    pub(crate) is_open: bool,
    build: Build,
}

/// Creates a scene from random numbers and the number of the case.
type Build = fn(&Library, &mut Random, usize) -> Scene;

impl CaseClass {
    /// A class whose invariants hold.
    const fn new(name: &'static str, all: usize, build: Build) -> Self {
        Self { name, few: 3, all, is_open: false, build }
    }

    /// A class whose invariants do not hold yet.
    const fn open(name: &'static str, all: usize, build: Build) -> Self {
        Self { is_open: true, ..Self::new(name, all, build) }
    }

    /// The scene of the case with this number.
    pub(crate) fn scene(&self, library: &Library, number: usize) -> Scene {
        // FNV-1a of the name.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        let seed = self.name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
        (self.build)(library, &mut Random::new(seed ^ (number as u64) << 32), number)
    }
}

/// All classes.
pub(crate) const ALL: &[CaseClass] = &[
    CaseClass::new("complete", 120, partial::complete),
    CaseClass::new("late-start", 2000, partial::late_start),
    CaseClass::new("early-end", 2000, partial::early_end),
    CaseClass::new("window", 2000, partial::window),
    CaseClass::new("prefix", 2000, partial::prefix),
    CaseClass::new("one-port", 200, partial::one_port),
    CaseClass::new("one-port-window", 500, partial::one_port_window),
    CaseClass::new("thin-periodic-together", 600, partial::thin_periodic_together),
    CaseClass::new("thin-periodic-records", 600, partial::thin_periodic_records),
    CaseClass::new("thin-random-together", 600, partial::thin_random_together),
    CaseClass::new("thin-random-records", 600, partial::thin_random_records),
    CaseClass::new("thin-window", 300, partial::thin_window),
    CaseClass::new("loss-at-the-sink", 600, partial::loss),
    CaseClass::new("ud-loss", 400, partial::ud_loss),
    CaseClass::new("snap-length", 800, partial::snap_length),
    CaseClass::new("connections-missing", 600, partial::connections_missing),
    CaseClass::new("frames-by-size", 400, partial::frames_by_size),
    CaseClass::new("rotation", 1000, split::rotation),
    CaseClass::new("rotation-overlap", 800, split::overlap),
    CaseClass::new("rotation-disorder", 800, split::disorder),
    CaseClass::new("rotation-lossy", 400, split::lossy),
    CaseClass::new("sinks", 800, split::sinks),
    CaseClass::new("sinks-far-clocks", 400, split::far_clocks),
    CaseClass::new("sinks-one-lossy", 600, split::one_lossy),
    CaseClass::new("split-by-connection", 400, split::connections),
    CaseClass::new("split-one-file-missing", 400, split::connections_missing),
    CaseClass::new("ports-concatenated", 200, split::concatenated),
    CaseClass::new("ports-delayed", 300, split::delayed),
    CaseClass::new("clocks-of-microseconds", 600, split::microseconds),
    CaseClass::new("clocks-of-milliseconds", 600, split::milliseconds),
    CaseClass::open("damaged-packets", 600, devices::damaged),
    CaseClass::open("masked-payload", 400, devices::masked),
    CaseClass::open("late-copies", 400, devices::late_copies),
    CaseClass::new("several-distortions", 2000, split::several_distortions),
    CaseClass::new("fabric-loss", 300, split::fabric_loss),
    CaseClass::new("renumbered", 300, names::renumbered),
    CaseClass::new("nodes-permuted", 300, names::permuted),
    CaseClass::open("second-rail", 500, names::second_rail),
    CaseClass::open("lmc-2", 500, names::lmc),
    CaseClass::new("names-window", 600, names::in_a_window),
    CaseClass::new("jobs-on-other-nodes", 500, jobs::other_nodes),
    CaseClass::new("jobs-on-same-nodes", 500, jobs::same_nodes),
    CaseClass::new("job-beside-its-copy", 300, jobs::copies),
    CaseClass::new("jobs-in-sequence", 500, jobs::sequence),
    CaseClass::new("jobs-in-a-queue", 400, jobs::queue),
    CaseClass::new("queue-pairs-reused", 300, jobs::queue_pairs_reused),
    CaseClass::new("jobs-anywhere", 500, jobs::anywhere),
    CaseClass::new("mpich-beside-open-mpi", 500, jobs::two_libraries),
    CaseClass::new("same-run-twice", 200, jobs::twice),
    CaseClass::new("jobs-of-nccl", 200, jobs::of_nccl),
    CaseClass::new("jobs-window", 500, jobs::in_a_window),
    CaseClass::new("storage-constructed", 1000, storage::constructed),
    CaseClass::new("storage-recorded", 300, storage::recorded),
    CaseClass::new("storage-alone", 140, storage::alone),
    CaseClass::new("storage-window", 500, storage::in_a_window),
];

/// The class of this name.
pub(crate) fn class(name: &str) -> &'static CaseClass {
    ALL.iter().find(|class| class.name == name).expect("a class")
}
