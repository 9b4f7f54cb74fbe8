//! Packets one by one, for `inspect`.

use super::{Error, Options, decode_options, pool};
use crate::decode;
use crate::input::{self, Capture, SourceOptions};
use crate::model::{Coverage, InspectedPacket};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::path::PathBuf;

/// Hands packets to `show` in the order of time: each input in its own order, the inputs merged. `show` ends the work by
/// returning false. Gives back what was read, and a note for each input that ended early.
pub fn inspect(
    paths: &[PathBuf],
    options: &Options,
    show: &mut dyn FnMut(&InspectedPacket) -> bool,
) -> Result<(Coverage, Vec<String>), Error> {
    let source = SourceOptions { max_decompressed_bytes: options.max_decompressed_bytes, ..SourceOptions::default() };
    let captures = input::open(paths, &source)?;
    // As they stand in the files.
    let decode = decode_options(&captures, options, Vec::new());
    let pool = pool(options.threads)?;
    let mut streams: Vec<Stream> = captures.into_iter().map(Stream::new).collect();
    loop {
        for stream in &mut streams {
            stream.refill(&pool, &decode);
        }
        // Of equal times the input given first goes first.
        let earliest = streams.iter_mut().filter(|stream| !stream.ready.is_empty()).min_by_key(|s| s.time_ns());
        let Some(packet) = earliest.and_then(|stream| stream.ready.pop()) else { break };
        if !show(&packet) {
            break;
        }
    }
    let note = |stream: &Stream| {
        let note = stream.capture.ending().note?;
        Some(format!("{}: {note}", stream.capture.path().display()))
    };
    let notes = streams.iter().filter_map(note).collect();
    let mut coverage = Coverage::default();
    streams.iter().for_each(|stream| coverage.merge(&stream.coverage));
    Ok((coverage, notes))
}

/// One input, with the packets that are decoded and not yet shown.
struct Stream {
    capture: Capture,
    /// The next packet is the last of the list.
    ready: Vec<InspectedPacket>,
    ended: bool,
    coverage: Coverage,
}

impl Stream {
    fn new(capture: Capture) -> Self {
        Self { capture, ready: Vec::new(), ended: false, coverage: Coverage::default() }
    }

    fn time_ns(&self) -> Option<i64> {
        self.ready.last().and_then(|packet| packet.time_ns)
    }

    fn refill(&mut self, pool: &ThreadPool, options: &decode::Options) {
        while self.ready.is_empty() && !self.ended {
            let batches: Vec<_> = std::iter::from_fn(|| self.capture.next_batch(Vec::new()))
                .take(pool.current_num_threads() * 2)
                .collect();
            self.ended = batches.is_empty();
            let inspected: Vec<_> =
                pool.install(|| batches.par_iter().map(|batch| decode::inspect(batch, options)).collect());
            for (packets, coverage) in inspected {
                self.ready.extend(packets);
                self.coverage.merge(&coverage);
            }
            self.ready.reverse();
        }
    }
}
