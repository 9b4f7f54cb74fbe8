//! Analysis of a growing capture: periodic sums while it grows, a profile at the end.
//!
//! Invariant: the profile equals that of an analysis of the finished capture.

use super::analysis::{self, Analysis};
use super::{AnalysisOptions, PipelineError, decode_options, pool};
use crate::decode::DecodedBatch;
use crate::flow::Depth;
use crate::input::{EndCondition, Feed, Follower, SourceOptions};
use crate::model::{LiveSums, Profile};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long packets may wait for a fuller batch before they are counted.
const BATCH_TIMEOUT: Duration = Duration::from_millis(50);
/// Showing the sums takes at most one part in this many of the time.
const TIME_SHARE_DIVISOR: u32 = 10;

/// Follows a file, a folder, a FIFO or standard input until its end or until it is stopped. Calls
/// `show` with the sums so far every `interval`. Returns the profile, or `None` if `watch` was
/// stopped before the first packet.
pub fn watch(
    place: &Path,
    options: &AnalysisOptions,
    patience: &EndCondition,
    interval: Duration,
    show: &(dyn Fn(LiveSums) + Sync),
) -> Result<Option<Profile>, PipelineError> {
    let Some(follower) = Follower::open(place, &SourceOptions { xxh3: true, ..SourceOptions::default() }, patience)?
    else {
        return Ok(None);
    };
    let mut inputs = vec![analysis::input(place, follower.format())];
    let pool = pool(options.threads)?;
    let batches_per_round = pool.current_num_threads() * analysis::BATCHES_PER_THREAD;
    let decode = decode_options(&[], options, Vec::new());
    let mut feed = Feed::follow(follower, batches_per_round).map_err(PipelineError::Threads)?;
    let depth = if options.measures.mpi { Depth::Envelopes } else { Depth::Packets };
    let mut analysis = Analysis::new((inputs.len(), inputs.len()), options, depth);
    pool.install(|| {
        let mut decoded: Vec<DecodedBatch> = Vec::new();
        let mut due = Instant::now() + interval;
        loop {
            let pieces = match feed.next_within(batches_per_round, BATCH_TIMEOUT) {
                None if decoded.is_empty() => break,
                pieces => pieces.unwrap_or_default(),
            };
            analysis.step(pieces, &mut decoded, &decode, &mut feed);
            let start = Instant::now();
            if start >= due {
                show(analysis.live());
                due = start + interval.max(start.elapsed() * TIME_SHARE_DIVISOR);
            }
        }
    });
    let mut notes = Vec::new();
    for (input, ending) in inputs.iter_mut().zip(feed.finish()) {
        input.length_bytes = ending.digests.length_bytes;
        input.xxh3_128 = ending.digests.xxh3_128;
        notes.extend(ending.note.map(|note| format!("{}: {note}", input.name)));
    }
    pool.install(|| analysis.finish(inputs, notes, Vec::new(), options)).map(|finished| Some(finished.profile))
}
