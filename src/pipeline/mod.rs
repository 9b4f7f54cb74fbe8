//! The stages connected: captures in, [`Profile`](crate::model::Profile) out.
//!
//! ```text
//! reader threads      rayon pool, in rounds                            at the end
//! input -> batches -> round n+1: split and decode (by batch)           combine inputs
//!                     round n:   flow and reduce (by input and shard)  drop mirror copies
//!                                                                      detect libraries and ranks
//! ```
//! Plain files have no reader thread: the worker that decodes a segment of the file also reads it.
//! Memory is bounded by the batches of two rounds and by the state of the connections.
//!
//! Invariant: both directions of a pair of endpoints go to the same shard, and a shard sees their
//! packets in file order. Flows therefore need no lock, and neither the number of threads nor the
//! batch boundaries change a result.

mod adapt;
mod admission;
mod align;
mod analysis;
mod bounds;
mod buffer_pool;
mod common_clocks;
mod conclude;
mod file_overlap;
mod fill;
mod folder;
mod input_losses;
mod left_out;
mod merge;
mod messages;
mod notes;
mod options;
mod packets;
mod parts;
mod readout;
mod run;
mod seam;
mod series;
mod spill;
mod stated_rate;
mod streams;
mod union;
mod watch;

pub use crate::profile::{DatasetWriter, MessageWriter, ProfileWriter, has_profile_document, is_profile, read as load};
pub use crate::ranks::hosts::parse as parse_hosts;
pub use crate::ranks::rankmap::parse as parse_rankmap;
pub use adapt::{WINDOW_NOTE, adapt};
pub use folder::{FolderContents, captures_in};
pub use merge::{MergeError, clocks_csv, merge, parse_clocks};
pub use messages::{MessageIter, messages};
pub use options::{
    AnalysisLimits, AnalysisMeasures, AnalysisOptions, AnalysisWindow, ClockOptions, DEFAULT_BIN_NS, DEFAULT_MAX_CELLS,
    DEFAULT_MAX_CONNECTIONS, DigestChoice, EndpointInfo, TimePoint,
};
pub use packets::inspect;
pub use run::analyze;
pub use streams::{StreamsError, parse_streams};
pub use watch::{WatchedInput, watch};

pub use crate::input::{EndCondition, SflowListener};

use crate::decode;
use crate::input::{self, Capture, FeedReceipt, FeedTask};
use crate::model::{Batch, Clock};
use rayon::prelude::*;
use std::path::PathBuf;

/// Failure of an analysis.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// An input cannot be used.
    #[error(transparent)]
    Input(#[from] input::InputError),
    /// The worker threads cannot be started.
    #[error(
        "cannot start the worker threads: {0}; give a smaller number to --threads, or raise the limit on processes (`ulimit -u`)"
    )]
    Threads(std::io::Error),
    /// The analysis was stopped before it counted a packet.
    #[error("interrupted before any InfiniBand packet was counted; nothing was written")]
    Interrupted,
    /// The temporary file for messages cannot be written or read.
    #[error("cannot store messages in a temporary file: {0}; set TMPDIR to a folder with more room")]
    Spill(std::io::Error),
    /// The data for `merge` cannot be serialized.
    #[error("cannot serialize the data for `merge`: {0}; analyze without --partial")]
    Parts(String),
    /// The profile has no timeline, so it cannot be limited to a window.
    #[error("this profile has no timeline, so --from and --to cannot be applied to it; give the captures instead")]
    NoTimeline,
    /// The inputs contain no InfiniBand packet.
    #[error("no InfiniBand packet among {records} records ({found}); {advice}")]
    NoInfiniband {
        /// Number of records.
        records: u64,
        /// Kinds of the records, with their counts.
        found: String,
        /// Next step for the user.
        advice: &'static str,
    },
}

/// Bytes to read from the inputs that are regular files: the total of a progress bar.
#[must_use]
pub fn bytes_to_read(paths: &[PathBuf], options: &AnalysisOptions) -> u64 {
    input::total_bytes(paths) + align::bytes_to_read(paths, options)
}

fn decode_options(
    captures: &[Capture],
    options: &AnalysisOptions,
    clocks: Vec<Option<Clock>>,
) -> decode::DecodeOptions {
    let first_time_ns = |(index, capture): (usize, &Capture)| {
        let time_ns = capture.first_time_ns()?;
        Some(clocks.get(index).copied().flatten().map_or(time_ns, |clock| clock.corrected_ns(time_ns)))
    };
    let start_ns = captures.iter().enumerate().filter_map(first_time_ns).min().unwrap_or(0);
    let (from_ns, to_ns) = options.window.bounds_ns(start_ns);
    let AnalysisMeasures { icrc: check_icrc, payload, .. } = options.measures;
    decode::DecodeOptions { check_icrc, payload, from_ns, to_ns, clocks, new_from_bytes: Vec::new() }
}

fn pool(threads: usize) -> Result<rayon::ThreadPool, PipelineError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| PipelineError::Threads(std::io::Error::other(error)))
}

/// Runs the tasks and calls `each` with every batch, on all threads of the pool.
fn for_each_batch<T: Send>(tasks: Vec<FeedTask>, each: impl Fn(Batch) -> T + Sync) -> Vec<(Vec<T>, FeedReceipt)> {
    let one = |task: FeedTask| {
        let (batches, receipt) = task.run();
        (batches.into_par_iter().map(&each).collect(), receipt)
    };
    tasks.into_par_iter().map(one).collect()
}
