//! A capture that grows -> what it shows now and then, and its profile at the end: the same analysis as that of captures that do not grow.

use super::analysis::{self, Analysis};
use super::{Error, Options, decode_options, pool};
use crate::decode::Decoded;
use crate::flow::Depth;
use crate::input::{Feed, Follower, Patience, SourceOptions};
use crate::model::{Live, Profile};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long packets may wait for more of them before they are counted.
const WAIT: Duration = Duration::from_millis(50);
/// A look at the sums takes no more than this part of the time.
const SHARE: u32 = 10;

/// Follows a file, a folder, a FIFO or standard input until its end, or until it is told to stop. `show` is told the sums so far every
/// `interval`. Gives the profile, or nothing where there was no packet before it was told to stop.
pub fn watch(
    place: &Path,
    options: &Options,
    patience: &Patience,
    interval: Duration,
    show: &(dyn Fn(Live) + Sync),
) -> Result<Option<Profile>, Error> {
    let Some(follower) = Follower::open(place, &SourceOptions { xxh3: true, ..SourceOptions::default() }, patience)?
    else {
        return Ok(None);
    };
    let mut inputs = vec![analysis::input(place, follower.format())];
    let pool = pool(options.threads)?;
    let batches_per_round = pool.current_num_threads() * analysis::BATCHES_PER_THREAD;
    let decode = decode_options(&[], options, Vec::new());
    let mut feed = Feed::follow(follower, batches_per_round).map_err(Error::Threads)?;
    let depth = if options.read_mpi { Depth::Envelopes } else { Depth::Packets };
    let mut analysis = Analysis::new(inputs.len(), options, depth);
    pool.install(|| {
        let mut decoded: Vec<Decoded> = Vec::new();
        let mut due = Instant::now() + interval;
        loop {
            let pieces = match feed.next_within(batches_per_round, WAIT) {
                None if decoded.is_empty() => break,
                pieces => pieces.unwrap_or_default(),
            };
            analysis.step(pieces, &mut decoded, &decode, &mut feed);
            let start = Instant::now();
            if start >= due {
                show(analysis.live());
                due = start + interval.max(start.elapsed() * SHARE);
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
