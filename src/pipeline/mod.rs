//! The wiring: inputs -> decode -> flow -> reduce -> ranks -> [`Profile`](crate::model::Profile).
//!
//! ```text
//! reader threads            rayon pool, in rounds                                   at the end
//! input -> batches  ==>  round n+1: cut and decode       (parallel by batch)        settle copies and inputs
//!                        round n:   flow + reduce        (parallel by input, shard) believe stacks, learn ranks
//! ```
//! Plain files have no reader: whoever decodes a stretch of one reads and cuts it.
//! Both endpoints of a pair come to the same shard, so flows need no lock, and what a shard computes depends only on the
//! order of the packets in their file: neither the number of threads nor where batches were cut changes a result.
//! Memory is bounded by the batches of two rounds and by the state of connections.

mod adapt;
mod admission;
mod align;
mod analysis;
mod bounds;
mod conclude;
mod fill;
mod left_out;
mod merge;
mod messages;
mod packets;
mod parts;
mod readout;
mod seam;
mod spares;
mod spill;
mod watch;

pub use crate::profile::{DatasetWriter, MessageWriter, Writer, is_profile, read as load, was_profile};
pub use crate::ranks::hosts::parse as parse_hosts;
pub use crate::ranks::rankmap::parse as parse_rankmap;
pub use adapt::adapt;
pub use analysis::analyze;
pub use merge::{Mismatch, clocks_csv, merge, parse_clocks};
pub use messages::{MessageStream, messages};
pub use packets::inspect;
pub use watch::watch;

pub use crate::input::Patience;

use crate::decode;
use crate::input::{self, Capture, Piece, Receipt};
use crate::model::profile::RankRow;
use crate::model::{Batch, Clock};
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Width of the timeline's bins unless another is asked for: 10 ms.
pub const DEFAULT_BIN_NS: i64 = 10_000_000;

/// Cells of the timeline (connection x bin x kind, 48 bytes each: 24 MiB) before its bins become twice as wide. The latency
/// time series keep a quarter as many cells (connection x bin x kind x bucket, 16 bytes each).
pub const DEFAULT_MAX_CELLS: usize = 1 << 19;

/// Directed connections that are tracked per input. That many take some GiB.
pub const DEFAULT_MAX_CONNECTIONS: usize = 1 << 20;

/// What to analyse and how.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub struct Options {
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Width of the timeline's bins in nanoseconds; `None` for no timeline.
    pub bin_ns: Option<i64>,
    /// Cells of the timeline that are kept at most; of the latencies over time, a quarter as many.
    pub max_cells: usize,
    /// Directed connections of each input that are followed at most. Packets of others are counted in the coverage alone.
    pub max_connections: usize,
    /// Bytes of the content of each compressed input that are read at most.
    pub max_decompressed_bytes: Option<u64>,
    /// Look for MPI envelopes.
    pub read_mpi: bool,
    /// Measure the times between packets; takes `read_mpi`, which tells what answers what.
    pub read_times: bool,
    /// Keep the sizes of packets and messages; those of messages take `read_mpi`, which puts them together.
    pub read_sizes: bool,
    /// Follow what goes wrong, per connection.
    pub read_health: bool,
    /// Verify the ICRC of every packet that was captured whole.
    pub check_icrc: bool,
    /// Look into payload at all: without, there are no MPI messages, ranks nor connection management messages.
    pub read_payload: bool,
    /// Compute XXH3-128 of the inputs, which a profile keeps.
    pub xxh3: bool,
    /// Compute SHA-256 beside it.
    pub sha256: bool,
    /// Start of the time that counts.
    pub from: Option<Moment>,
    /// End of the time that counts, itself not included.
    pub to: Option<Moment>,
    /// The user's rank map, which goes before what is learnt.
    pub rankmap: Option<Vec<RankRow>>,
    /// Names of endpoints.
    pub names: BTreeMap<Endpoint, String>,
    /// Leaf switches of endpoints, by name.
    pub leaves: BTreeMap<Endpoint, String>,
    /// Slurm's job ids of the endpoints that ran them.
    pub slurm_jobs: BTreeMap<Endpoint, String>,
    /// Hold the clocks of several captures against each other and correct them.
    pub align: bool,
    /// Clocks of captures that are known beforehand, by path: what corrects them, and by how much that may be wrong, in nanoseconds.
    pub clocks: BTreeMap<PathBuf, (Clock, u64)>,
    /// The same of clocks that [`merge`] has found and that it will find again: it holds the captures against each other as if nothing were known. Captures
    /// that are not among them need no correction.
    pub found_clocks: Option<BTreeMap<PathBuf, (Clock, u64)>>,
    /// Keep what [`merge`] needs. Takes the whole of the captures: no window.
    pub keep_parts: bool,
    /// Set from outside: ends the analysis early, with what was read until then. `None` where that is not wanted.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Options {
    /// True where a part of the captures' time is analyzed.
    fn is_window(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// The clock of a capture, where it is known beforehand.
    fn clock(&self, path: &Path) -> Option<(Clock, u64)> {
        self.clocks.get(path).or_else(|| self.found_clocks.as_ref()?.get(path)).copied()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 0,
            bin_ns: Some(DEFAULT_BIN_NS),
            max_cells: DEFAULT_MAX_CELLS,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_decompressed_bytes: None,
            read_mpi: true,
            read_times: true,
            read_sizes: true,
            read_health: true,
            check_icrc: true,
            read_payload: true,
            xxh3: true,
            sha256: false,
            from: None,
            to: None,
            rankmap: None,
            names: BTreeMap::new(),
            leaves: BTreeMap::new(),
            slurm_jobs: BTreeMap::new(),
            align: true,
            clocks: BTreeMap::new(),
            found_clocks: None,
            keep_parts: false,
            stop: None,
        }
    }
}

/// A point of time as the user gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds after the first packet of all inputs.
    SinceStart(i64),
    /// Nanoseconds since the epoch.
    Absolute(i64),
}

impl Moment {
    /// Nanoseconds since the epoch, where the first packet is at `start_ns`.
    #[must_use]
    pub const fn absolute_ns(self, start_ns: i64) -> i64 {
        match self {
            Self::SinceStart(ns) => start_ns.saturating_add(ns),
            Self::Absolute(ns) => ns,
        }
    }
}

/// An analysis that gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An input could not be used.
    #[error(transparent)]
    Input(#[from] input::InputError),
    /// The threads that read and decode could not be started.
    #[error(
        "cannot start the worker threads: {0}; give a smaller number to --threads, or raise the limit on processes (`ulimit -u`)"
    )]
    Threads(std::io::Error),
    /// It was told to stop before anything was counted.
    #[error("interrupted before any InfiniBand packet was counted; nothing was written")]
    Interrupted,
    /// Messages could not be put aside.
    #[error("single messages cannot be put aside in a temporary file: {0}; set TMPDIR to a folder with more room")]
    Spill(std::io::Error),
    /// What `merge` needs could not be written down.
    #[error("what `merge` needs cannot be put together: {0}; analyse without --partial")]
    Parts(String),
    /// The profile was written without a timeline, so no window can be cut out of it.
    #[error("this profile has no timeline, so --from and --to cannot be applied to it; give the captures instead")]
    NoTimeline,
    /// Nothing of what was read is InfiniBand.
    #[error("no InfiniBand packet among {records} records ({found}); {advice}")]
    NoInfiniband {
        /// Records read.
        records: u64,
        /// What they are instead.
        found: String,
        /// The next step.
        advice: &'static str,
    },
}

/// Bytes that will be read of those inputs that are regular files: what a progress bar can count to.
#[must_use]
pub fn bytes_to_read(paths: &[PathBuf], options: &Options) -> u64 {
    input::total_bytes(paths) + align::bytes_to_read(paths, options)
}

fn decode_options(captures: &[Capture], options: &Options, clocks: Vec<Option<Clock>>) -> decode::Options {
    let first_time_ns = |(index, capture): (usize, &Capture)| {
        let time_ns = capture.first_time_ns()?;
        Some(clocks.get(index).copied().flatten().map_or(time_ns, |clock| clock.corrected_ns(time_ns)))
    };
    let start_ns = captures.iter().enumerate().filter_map(first_time_ns).min().unwrap_or(0);
    decode::Options {
        check_icrc: options.check_icrc,
        payload: options.read_payload,
        from_ns: options.from.map_or(i64::MIN, |moment| moment.absolute_ns(start_ns)),
        to_ns: options.to.map_or(i64::MAX, |moment| moment.absolute_ns(start_ns)),
        clocks,
    }
}

fn pool(threads: usize) -> Result<rayon::ThreadPool, Error> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| Error::Threads(std::io::Error::other(error)))
}

/// Cuts pieces of the inputs and does something with each of their batches, by all threads of the pool.
fn cut<T: Send>(pieces: Vec<Piece>, each: impl Fn(Batch) -> T + Sync) -> Vec<(Vec<T>, Receipt)> {
    let one = |piece: Piece| {
        let (batches, receipt) = piece.cut();
        (batches.into_par_iter().map(&each).collect(), receipt)
    };
    pieces.into_par_iter().map(one).collect()
}
