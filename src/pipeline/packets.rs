//! Single decoded packets of captures, for `inspect`.

use super::{AnalysisOptions, PipelineError, decode_options, pool};
use crate::decode;
use crate::input::{self, Capture, SourceOptions};
use crate::model::{Coverage, InspectedPacket};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::path::PathBuf;

/// Calls `show` with packets in order of time: each input in file order, the inputs merged. `show` also
/// gets the time of the first record of all inputs, from which relative times count, and returns false
/// to stop. `inspect` returns the coverage, and a note for each input that ended early.
pub fn inspect(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    show: &mut dyn FnMut(&InspectedPacket, Option<i64>) -> bool,
) -> Result<(Coverage, Vec<String>), PipelineError> {
    let source =
        SourceOptions { max_decompressed_bytes: options.limits.max_decompressed_bytes, ..SourceOptions::default() };
    let captures = input::open(paths, &source)?;
    // `inspect` shows times as the files have them, so no clock is corrected.
    let decode = decode_options(&captures, options, Vec::new());
    let origin_ns = captures.iter().filter_map(Capture::first_time_ns).min();
    let pool = pool(options.threads)?;
    let mut streams: Vec<PacketStream> = captures.into_iter().map(PacketStream::new).collect();
    loop {
        for stream in &mut streams {
            stream.refill(&pool, &decode);
        }
        // At equal times, the input given first goes first.
        let earliest = streams.iter_mut().filter(|stream| !stream.ready.is_empty()).min_by_key(|s| s.time_ns());
        let Some(packet) = earliest.and_then(|stream| stream.ready.pop()) else { break };
        if !show(&packet, origin_ns) {
            break;
        }
    }
    let note = |stream: &PacketStream| {
        let note = stream.capture.ending().note?;
        Some(format!("{}: {note}", stream.capture.path().display()))
    };
    let notes = streams.iter().filter_map(note).collect();
    let mut coverage = Coverage::default();
    streams.iter().for_each(|stream| coverage.merge(&stream.coverage));
    Ok((coverage, notes))
}

/// One input, with the packets that are decoded and not yet shown.
struct PacketStream {
    capture: Capture,
    /// In reverse order: the next packet is the last of the list.
    ready: Vec<InspectedPacket>,
    ended: bool,
    coverage: Coverage,
}

impl PacketStream {
    fn new(capture: Capture) -> Self {
        Self { capture, ready: Vec::new(), ended: false, coverage: Coverage::default() }
    }

    fn time_ns(&self) -> Option<i64> {
        self.ready.last().and_then(|packet| packet.time_ns)
    }

    fn refill(&mut self, pool: &ThreadPool, options: &decode::DecodeOptions) {
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
