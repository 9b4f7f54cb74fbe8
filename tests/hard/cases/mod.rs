//! The classes of cases. A class makes a scene from random numbers that belong to its name and the
//! number of the case.

mod jobs;
mod names;
mod partial;
mod split;
mod storage;

use crate::library::Library;
use crate::scene::Scene;
use ibscope_samples::Random;

/// Cases of one kind.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    /// Cases of a test run, and of `make soak`.
    pub(crate) few: usize,
    pub(crate) all: usize,
    /// The invariants do not hold yet: failures are reported and fail no test.
    pub(crate) is_open: bool,
    build: Build,
}

/// Makes a scene from random numbers and the number of the case.
type Build = fn(&Library, &mut Random, usize) -> Scene;

impl Class {
    /// A class whose invariants hold.
    const fn new(name: &'static str, all: usize, build: Build) -> Self {
        Self { name, few: 3, all, is_open: false, build }
    }

    /// A class whose invariants do not hold yet.
    const fn open(name: &'static str, all: usize, build: Build) -> Self {
        Self { is_open: true, ..Self::new(name, all, build) }
    }

    /// The case of this number.
    pub(crate) fn scene(&self, library: &Library, number: usize) -> Scene {
        // FNV-1a of the name.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        let seed = self.name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
        (self.build)(library, &mut Random::new(seed ^ (number as u64) << 32), number)
    }
}

/// All classes.
pub(crate) const ALL: &[Class] = &[
    Class::new("complete", 120, partial::complete),
    Class::open("late-start", 2000, partial::late_start),
    Class::open("early-end", 2000, partial::early_end),
    Class::open("window", 2000, partial::window),
    Class::open("prefix", 2000, partial::prefix),
    Class::new("one-port", 200, partial::one_port),
    Class::open("one-port-window", 500, partial::one_port_window),
    Class::new("thin-periodic-together", 600, partial::thin_periodic_together),
    Class::new("thin-periodic-records", 600, partial::thin_periodic_records),
    Class::new("thin-random-together", 600, partial::thin_random_together),
    Class::open("thin-random-records", 600, partial::thin_random_records),
    Class::open("thin-window", 300, partial::thin_window),
    Class::new("loss-at-the-sink", 600, partial::loss),
    Class::open("ud-loss", 400, partial::ud_loss),
    Class::open("snap-length", 800, partial::snap_length),
    Class::open("rotation", 1000, split::rotation),
    Class::open("rotation-overlap", 800, split::overlap),
    Class::open("rotation-disorder", 800, split::disorder),
    Class::new("rotation-lossy", 400, split::lossy),
    Class::new("sinks", 800, split::sinks),
    Class::new("sinks-far-clocks", 400, split::far_clocks),
    Class::new("sinks-one-lossy", 600, split::one_lossy),
    Class::new("ports-concatenated", 200, split::concatenated),
    Class::new("ports-delayed", 300, split::delayed),
    Class::new("fabric-loss", 300, split::fabric_loss),
    Class::new("renumbered", 300, names::renumbered),
    Class::new("nodes-permuted", 300, names::permuted),
    Class::open("second-rail", 500, names::second_rail),
    Class::open("lmc-2", 500, names::lmc),
    Class::open("names-window", 600, names::in_a_window),
    Class::open("jobs-on-other-nodes", 500, jobs::other_nodes),
    Class::open("jobs-on-same-nodes", 500, jobs::same_nodes),
    Class::new("job-beside-its-copy", 300, jobs::copies),
    Class::new("jobs-in-sequence", 500, jobs::sequence),
    Class::open("jobs-in-a-queue", 400, jobs::queue),
    Class::open("jobs-anywhere", 500, jobs::anywhere),
    Class::new("mpich-beside-open-mpi", 500, jobs::two_libraries),
    Class::open("same-run-twice", 200, jobs::twice),
    Class::open("jobs-of-nccl", 200, jobs::of_nccl),
    Class::open("jobs-window", 500, jobs::in_a_window),
    Class::open("storage-constructed", 1000, storage::constructed),
    Class::new("storage-recorded", 300, storage::recorded),
    Class::new("storage-alone", 140, storage::alone),
    Class::open("storage-window", 500, storage::in_a_window),
];

/// The class of this name.
pub(crate) fn class(name: &str) -> &'static Class {
    ALL.iter().find(|class| class.name == name).expect("a class")
}
