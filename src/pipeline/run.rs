//! Runs an analysis from the paths of captures to the profile.
//!
//! [`run`] aligns clocks, reads all inputs (`analysis`), reads those that overlap in time once more
//! (`union`), and makes the profile (`conclude`).

use super::align::{self, FirstPass};
use super::analysis::{self, Analysis, BATCHES_PER_THREAD, Reading};
use super::conclude::{AnalysisResult, conclude};
use super::parts::{self, InputExtras, PartsHeader};
use super::{AnalysisOptions, PipelineError, common_clocks, decode_options, merge, pool, union};
use crate::align::PacketSample;
use crate::decode::DecodeOptions;
use crate::flow::Depth;
use crate::input::{self, Capture, Ending, SourceOptions};
use crate::model::Profile;
use crate::model::profile::Input;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Analyzes captures. Calls `progress` with the number of bytes read so far, now and then.
pub fn analyze(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Profile, PipelineError> {
    let depth = if options.measures.mpi { Depth::Envelopes } else { Depth::Packets };
    run(paths, options, depth, progress).map(|finished| finished.profile)
}

/// Analyzes captures to a depth.
pub(super) fn run(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<AnalysisResult, PipelineError> {
    let bytes_read = Arc::new(AtomicU64::new(0));
    let source = SourceOptions {
        xxh3: options.digests.xxh3,
        sha256: options.digests.sha256,
        bytes_read: Arc::clone(&bytes_read),
        stop: options.stop.clone(),
        max_decompressed_bytes: options.limits.max_decompressed_bytes,
    };
    let captures = match input::open(paths, &source) {
        Err(_) if source.is_stopped() => return Err(PipelineError::Interrupted),
        opened => opened?,
    };
    let pool = pool(options.threads)?;
    let batches_per_round = pool.current_num_threads() * BATCHES_PER_THREAD;
    let report = || progress(bytes_read.load(Ordering::Relaxed));
    let FirstPass { aligned, samples, streams, new_from_bytes, repeated_from_ns, doubtful_streams } =
        match align::align(paths, options, &pool, &source, &report) {
            // Packets from pipes cannot be read again, so an interrupted analysis keeps them.
            _ if source.is_stopped() && paths.iter().any(|path| align::is_file(path)) => {
                return Err(PipelineError::Interrupted);
            }
            aligned => aligned?,
        };
    let decode = DecodeOptions { new_from_bytes, ..decode_options(&captures, options, aligned.clocks.clone()) };
    let window_ns = (decode.from_ns, decode.to_ns);
    let mut inputs: Vec<Input> =
        captures.iter().map(|capture| Input { share: options.share, ..describe(capture) }).collect();
    for (input, row) in inputs.iter_mut().zip(&aligned.rows) {
        input.clock.clone_from(row);
    }
    let mut analysis = Analysis::new((inputs.len(), streams.len()), options, depth);
    analysis.sample = align::samples_during_analysis(paths, options).then(|| PacketSample::new(1));
    let look_alikes = aligned.look_alikes.clone();
    let reading = Reading {
        streams: &streams,
        repeated_from_ns: &repeated_from_ns,
        decode: &decode,
        look_alikes: &look_alikes,
        batches_per_round,
    };
    let endings = reading.run(captures, &mut analysis, &pool, &report)?;
    let mut notes = align::notes(&inputs, &aligned, &align::pipes(paths, options), options);
    let input_notes: Vec<Option<String>> = (0..)
        .zip(&endings)
        .map(|(input, ending)| align::input_note(ending.note.as_deref(), doubtful_streams.contains(&input)))
        .collect();
    for ((input, ending), note) in inputs.iter_mut().zip(&endings).zip(&input_notes) {
        add_ending(input, ending);
        notes.extend(note.iter().map(|note| format!("{}: {note}", input.name)));
    }
    let own_sample = analysis.sample.take();
    pool.install(|| {
        let mut readout = analysis.end();
        readout.overlay(&look_alikes);
        let unions = union::read(paths, options, (&reading, depth), &readout, &source)?;
        readout.add_unions(unions);
        readout.doubt(&doubtful_streams);
        let parts = options.keep_parts.then(|| {
            readout.level(streams.len());
            let origins = paths.iter().zip(&aligned.clocks).zip(samples).zip(input_notes);
            let extras = origins.map(|(((path, clock), sample), note)| InputExtras {
                note,
                clock: *clock,
                known_clock: options.clocks.supplied.get(path).copied(),
                merge_clock: merge::merge_clock(path, options),
                is_pipe: !align::is_file(path),
                // A single input is not read twice; the analysis drew its sample.
                sample: sample.or_else(|| own_sample.clone()),
            });
            let mut extras: Vec<InputExtras> = extras.collect();
            parts::level(&mut extras);
            notes.extend(align::seam_notes(&inputs, &extras, &readout, &streams));
            parts::write(&PartsHeader::new(&inputs, &streams, options), &extras, &readout)
        });
        let clocks = common_clocks::clocks_of(&inputs, &aligned, &streams, options);
        let transits = align::transits(aligned, options, window_ns);
        let is_interrupted = inputs.iter().any(|input| input.interrupted);
        let mut finished = match conclude(readout, inputs, (notes, &clocks), transits, options) {
            Err(PipelineError::NoInfiniband { .. }) if is_interrupted => return Err(PipelineError::Interrupted),
            finished => finished?,
        };
        finished.profile.parts = parts.transpose()?;
        Ok(finished)
    })
}

/// Adds the results that are known only after the last byte of an input.
fn add_ending(input: &mut Input, ending: &Ending) {
    input.length_bytes = ending.digests.length_bytes;
    input.xxh3_128.clone_from(&ending.digests.xxh3_128);
    input.sha256.clone_from(&ending.digests.sha256);
    input.interrupted = ending.interrupted;
    input.ends_early = ending.note.is_some();
}

fn describe(capture: &Capture) -> Input {
    analysis::input(capture.path(), capture.format())
}
