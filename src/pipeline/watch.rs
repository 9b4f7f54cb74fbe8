//! Analysis of a growing capture: periodic sums while it grows, a profile at the end.
//!
//! Invariant: the profile equals that of an analysis of the finished capture.

use super::analysis::{self, Analysis};
use super::{AnalysisOptions, PipelineError, decode_options, pool};
use crate::decode::DecodedBatch;
use crate::flow::Depth;
use crate::input::{DatagramCounter, EndCondition, Feed, Follower, SflowListener, SourceOptions};
use crate::model::live::DatagramCounts;
use crate::model::{LiveSums, Profile, count_of};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum time that packets wait for a fuller batch before they are counted.
const BATCH_TIMEOUT: Duration = Duration::from_millis(50);
/// `show` takes at most the time divided by this number.
const TIME_SHARE_DIVISOR: u32 = 10;

/// An input that grows.
pub enum WatchedInput {
    /// A file, a folder, a FIFO or standard input.
    Place(PathBuf),
    /// A socket that receives sFlow.
    Sflow(SflowListener),
}

/// Follows an input until its end or until it is stopped. Calls `show` with the sums so far every
/// `interval`. Returns the profile, or `None` if `watch` was stopped before the first packet.
pub fn watch(
    watched: WatchedInput,
    options: &AnalysisOptions,
    patience: &EndCondition,
    interval: Duration,
    show: &(dyn Fn(LiveSums) + Sync),
) -> Result<Option<Profile>, PipelineError> {
    let source = SourceOptions { xxh3: true, ..SourceOptions::default() };
    let (place, counter, follower) = match watched {
        WatchedInput::Place(place) => {
            let follower = Follower::open(&place, &source, patience)?;
            (place, None, follower)
        }
        WatchedInput::Sflow(listener) => {
            let (place, counter) = (PathBuf::from(listener.name()), listener.counter());
            (place, Some(counter), Follower::listen(listener, &source, patience)?)
        }
    };
    let Some(follower) = follower else { return Ok(None) };
    let mut inputs = vec![analysis::input(&place, follower.format())];
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
                show(LiveSums { sflow: counter.as_ref().map(DatagramCounter::counts), ..analysis.live() });
                due = start + interval.max(start.elapsed() * TIME_SHARE_DIVISOR);
            }
        }
    });
    let mut notes: Vec<String> = counter.iter().map(|counter| datagram_note(&counter.counts())).collect();
    for (input, ending) in inputs.iter_mut().zip(feed.finish()) {
        input.length_bytes = ending.digests.length_bytes;
        input.xxh3_128 = ending.digests.xxh3_128;
        notes.extend(ending.note.map(|note| format!("{}: {note}", input.name)));
    }
    pool.install(|| analysis.finish(inputs, notes, Vec::new(), options)).map(|finished| Some(finished.profile))
}

/// The note on the datagrams of an sFlow socket.
fn datagram_note(counts: &DatagramCounts) -> String {
    let DatagramCounts { datagrams, other_datagrams, lost_datagrams, unnumbered_datagrams } = *counts;
    let mut note = format!(
        "{} received, {} lost between the agents and ibscope, by their sequence numbers",
        count_of(datagrams, "datagram"),
        count_of(lost_datagrams, "datagram")
    );
    if other_datagrams > 0 {
        note = format!("{note}; {} not sFlow version 5", count_of(other_datagrams, "datagram"));
    }
    if unnumbered_datagrams > 0 {
        let of = count_of(unnumbered_datagrams, "datagram");
        note = format!("{note}; {of} from agents beyond the limit: lost datagrams of these agents are not detected");
    }
    note
}
