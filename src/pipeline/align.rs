//! Alignment of the captures' clocks before the analysis.
//!
//! Captures and known clocks go in; corrections, packet samples and the order of files come out.
//! The alignment reads the captures in a separate pass, because the drift of a clock shows only
//! over a whole capture. An input that can be read only once is not aligned.

use super::parts::InputExtras;
use super::readout::Readout;
use super::seam::{FirstRecords, Seam, Seams};
use super::{AnalysisOptions, PipelineError, for_each_batch, streams};
use crate::align::{self, Alignment, KnownClock, LookAlikes, PacketSample, SampleCandidate, Transit};
use crate::decode;
use crate::input::{self, Feed, SourceOptions};
use crate::model::profile::Input;
use crate::model::{
    Batch, ClockRow, ConnectionKey, ConnectionTotals, Interval, Packets, Recorder, TimingKey, count_either, count_of,
};
use rayon::ThreadPool;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of pairs of inputs that notes name.
const MAX_NOTES: usize = 8;
/// If the next file of a capture starts later, no message is under way between them.
const SEAM_NS: i64 = 1_000_000_000;
/// Reference name in the profile for a clock that the user gave.
const CLOCK_FROM_MANIFEST: &str = "manifest";

/// Transit times of one connection.
pub(super) type Transits = (ConnectionKey, BTreeMap<TimingKey, Recorder>);

/// Inputs to read for a packet sample: the regular files, if there are several, because their
/// packets show which of them form one stream. With `keep_parts`, a single file is read too if it is
/// beside other inputs or has a known clock, and clocks are aligned: a later merge needs its sample in
/// uncorrected time.
fn readable(paths: &[PathBuf], options: &AnalysisOptions) -> Vec<usize> {
    let found: Vec<usize> = (0..paths.len()).filter(|index| is_file(&paths[*index])).collect();
    let has_clock = |index: &usize| options.clocks.of(&paths[*index]).is_some();
    let is_for_merge = options.keep_parts && options.clocks.align && (paths.len() > 1 || found.iter().any(has_clock));
    if found.len() > 1 || is_for_merge { found } else { Vec::new() }
}

/// True if the analysis draws the sample of a single input: its times need no correction, so no
/// separate pass reads it.
pub(super) fn samples_during_analysis(paths: &[PathBuf], options: &AnalysisOptions) -> bool {
    let is_alone = paths.len() == 1 && paths.iter().all(|path| is_file(path) && options.clocks.of(path).is_none());
    options.keep_parts && options.clocks.align && is_alone
}

/// True for a regular file, which can be read twice.
pub(super) fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file())
}

/// By input: true if it can be read only once and its clock is unknown.
pub(super) fn pipes(paths: &[PathBuf], options: &AnalysisOptions) -> Vec<bool> {
    paths.iter().map(|path| !is_file(path) && options.clocks.of(path).is_none()).collect()
}

/// Bytes that [`align()`] reads.
pub(super) fn bytes_to_read(paths: &[PathBuf], options: &AnalysisOptions) -> u64 {
    readable(paths, options).iter().map(|index| input::total_bytes(&paths[*index..=*index])).sum()
}

/// Result of the first pass over the inputs.
pub(super) struct FirstPass {
    pub(super) aligned: Alignment,
    /// The packet samples, if `keep_parts` is set.
    pub(super) samples: Vec<Option<PacketSample>>,
    /// Inputs that are tracked as one stream, each stream in the order of time.
    pub(super) streams: Vec<Vec<usize>>,
    /// By input: offset of its first record that the file before it in the stream does not have.
    pub(super) new_from_bytes: Vec<u64>,
    /// By input: a time at or before its first record, nanoseconds since the epoch, if it may
    /// hold packets of the previous file, mixed with others.
    pub(super) repeated_from_ns: Vec<Option<i64>>,
    /// Streams, by their first input, that may be files of several ports: files repeat packets of others,
    /// and their times do not show whether these are the same records.
    pub(super) doubtful_streams: Vec<usize>,
}

/// Aligns the clocks of all inputs. Reads nothing if [`readable`] selects no input.
pub(super) fn align(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    pool: &ThreadPool,
    source: &SourceOptions,
    report: &(dyn Fn() + Sync),
) -> Result<FirstPass, PipelineError> {
    let read = readable(paths, options);
    let mut samples: Vec<Option<PacketSample>> = paths.iter().map(|_| None).collect();
    let mut spans_ns: Vec<Option<(i64, i64)>> = vec![None; paths.len()];
    let mut seams = Seams::new(paths, without_digests(source));
    for (index, own) in read.iter().zip(sample(paths, &read, pool, source, report)?) {
        (samples[*index], spans_ns[*index]) = (Some(own.packets), own.span_ns);
        seams.has_copies |= samples[*index].as_ref().is_some_and(PacketSample::has_copies);
        seams.first_records.extend(own.first_records.iter().map(|other| (*index, read[*other])));
    }
    let mut failed = None;
    let repeats = |one, other| match seams.between(one, other) {
        Ok(seam) => matches!(seam, Seam::NewFrom(_)),
        Err(error) => {
            failed.get_or_insert(error);
            false
        }
    };
    let streams = streams::group(paths, &samples, &spans_ns, repeats, &options.streams);
    failed.map_or(Ok(()), Err)?;
    let (mut new_from_bytes, mut repeated_from_ns) = (vec![0; paths.len()], vec![None; paths.len()]);
    for [earlier, later] in streams.iter().flat_map(|stream| stream.array_windows()) {
        if let Seam::NewFrom(offset_bytes) = seams.between(*earlier, *later)? {
            new_from_bytes[*later] = offset_bytes;
            continue;
        }
        let pair = samples[*earlier].as_ref().zip(samples[*later].as_ref());
        let repeated = pair.filter(|(earlier, later)| earlier.overlaps(later));
        repeated_from_ns[*later] = repeated.and_then(|(_, later)| later.starts_ns());
    }
    let repeats_earlier = |input: &usize| new_from_bytes[*input] > 0 || repeated_from_ns[*input].is_some();
    let is_doubtful = |stream: &&Vec<usize>| {
        // A short file may have no packet, or one at a whole millisecond.
        let mut are_coarse = stream.iter().filter_map(|input| samples[*input].as_ref()?.has_coarse_clock());
        stream.iter().any(repeats_earlier)
            && are_coarse.all(|is_coarse| is_coarse)
            && stream.iter().any(|input| !options.streams.contains_key(&paths[*input]))
    };
    let doubtful_streams = streams.iter().filter(is_doubtful).map(|stream| stream[0]).collect();
    let is_kept = options.keep_parts && options.clocks.align;
    let kept = if is_kept { samples.clone() } else { paths.iter().map(|_| None).collect() };
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let given: Vec<Option<KnownClock>> = paths.iter().map(|path| options.clocks.of(path)).collect();
    let aligned = compare_clocks(&names, samples, &streams, &given, options);
    Ok(FirstPass { aligned, samples: kept, streams, new_from_bytes, repeated_from_ns, doubtful_streams })
}

/// Note on the first input of a stream that may be files of several ports.
const DOUBTFUL_STREAM: &str = "it and the files that follow it hold packets of one another and have times in milliseconds, \
    so they may be files of several ports: some packets may count twice, and the coverage of their pairs is unknown; state \
    the files of each capture with --streams";

/// The note on an input, if any: on its end, and on its stream if that is doubtful.
pub(super) fn input_note(ending: Option<&str>, is_doubtful: bool) -> Option<String> {
    let parts: Vec<&str> = ending.into_iter().chain(is_doubtful.then_some(DOUBTFUL_STREAM)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Joins the samples of each stream in that of its first input.
fn join_streams(mut samples: Vec<Option<PacketSample>>, streams: &[Vec<usize>]) -> Vec<Option<PacketSample>> {
    for (first, others) in streams.iter().filter_map(|stream| stream.split_first()) {
        for input in others {
            let later = samples[*input].take();
            samples[*first] = match (samples[*first].take(), later) {
                (Some(own), Some(later)) => Some(own.followed_by(&later)),
                (own, later) => own.or(later),
            };
        }
    }
    samples
}

/// Compares the clocks of the streams that have samples. `given` are the known clocks of the inputs.
pub(super) fn compare_clocks(
    names: &[String],
    samples: Vec<Option<PacketSample>>,
    streams: &[Vec<usize>],
    given: &[Option<KnownClock>],
    options: &AnalysisOptions,
) -> Alignment {
    let mut aligned = compare_samples(names, join_streams(samples, streams), given, options);
    // The files of a stream have one clock.
    for (first, others) in streams.iter().filter_map(|stream| stream.split_first()) {
        for input in others {
            aligned.clocks[*input] = aligned.clocks[*input].or(aligned.clocks[*first]);
            aligned.rows[*input] = aligned.rows[*input].take().or_else(|| aligned.rows[*first].clone());
        }
    }
    aligned
}

/// Compares the clocks of the samples.
fn compare_samples(
    names: &[String],
    samples: Vec<Option<PacketSample>>,
    given: &[Option<KnownClock>],
    options: &AnalysisOptions,
) -> Alignment {
    let inputs = samples.len();
    let mut aligned = Alignment { clocks: vec![None; inputs], rows: vec![None; inputs], ..Alignment::default() };
    let (read, samples): (Vec<usize>, Vec<PacketSample>) =
        samples.into_iter().enumerate().filter_map(|(index, samples)| Some((index, samples?))).unzip();
    let asks = options.measures.times || read.iter().any(|index| given[*index].is_none());
    if options.clocks.align && read.len() > 1 && asks {
        let own_names: Vec<String> = read.iter().map(|index| names[*index].clone()).collect();
        let own_given: Vec<Option<KnownClock>> = read.iter().map(|index| given[*index]).collect();
        let found = align::align(samples, &own_names, &own_given, CLOCK_FROM_MANIFEST);
        aligned.transits = found.transits;
        let own =
            |LookAlikes { inputs: (a, b), apart_ns }: LookAlikes| LookAlikes { inputs: (read[a], read[b]), apart_ns };
        aligned.look_alikes = found.look_alikes.into_iter().map(own).collect();
        aligned.unclear = found.unclear.iter().map(|(a, b, why)| (read[*a], read[*b], *why)).collect();
        for ((index, clock), row) in read.iter().zip(found.clocks).zip(found.rows) {
            (aligned.clocks[*index], aligned.rows[*index]) = (clock, row);
        }
    }
    for (index, given) in given.iter().enumerate() {
        let Some((clock, uncertainty_ns)) = given else { continue };
        aligned.clocks[index] = Some(*clock);
        aligned.rows[index] = Some(ClockRow {
            reference: CLOCK_FROM_MANIFEST.to_owned(),
            compared_with: CLOCK_FROM_MANIFEST.to_owned(),
            at_ns: clock.own_ns,
            offset_ns: clock.own_ns.saturating_sub(clock.reference_ns),
            drift_ppm: clock.drift_ppm(),
            uncertainty_ns: *uncertainty_ns,
            is_even: true,
            common_packets: 0,
        });
    }
    aligned
}

pub(super) fn without_digests(source: &SourceOptions) -> SourceOptions {
    SourceOptions { xxh3: false, sha256: false, ..source.clone() }
}

/// An input as the first pass read it.
struct SampledInput {
    packets: PacketSample,
    /// Smallest and largest time of any record, nanoseconds since the epoch.
    span_ns: Option<(i64, i64)>,
    /// The inputs whose first record this one holds, including itself.
    first_records: BTreeSet<usize>,
}

impl SampledInput {
    /// Adds a batch: candidates for the sample, the times of its records, and the inputs whose
    /// first record it holds.
    fn add(&mut self, candidates: Vec<SampleCandidate>, span_ns: Option<(i64, i64)>, first_records: Vec<usize>) {
        self.packets.add(candidates);
        let both = self.span_ns.zip(span_ns).map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
        self.span_ns = both.or(self.span_ns).or(span_ns);
        self.first_records.extend(first_records);
    }
}

/// Draws a packet sample from each of these inputs.
fn sample(
    paths: &[PathBuf],
    read: &[usize],
    pool: &ThreadPool,
    source: &SourceOptions,
    report: &(dyn Fn() + Sync),
) -> Result<Vec<SampledInput>, PipelineError> {
    if read.is_empty() {
        return Ok(Vec::new());
    }
    let own: Vec<PathBuf> = read.iter().map(|index| paths[*index].clone()).collect();
    let source = without_digests(source);
    let first_records = FirstRecords::read(&own, &source)?;
    let batches_per_round = pool.current_num_threads() * 2;
    let mut feed = Feed::start(input::open(&own, &source)?, batches_per_round).map_err(PipelineError::Threads)?;
    let empty =
        |_| SampledInput { packets: PacketSample::new(own.len()), span_ns: None, first_records: BTreeSet::new() };
    let mut samples: Vec<SampledInput> = own.iter().map(empty).collect();
    let decode = decode::DecodeOptions { check_icrc: false, payload: false, ..decode::DecodeOptions::default() };
    pool.install(|| {
        loop {
            let tasks = feed.next(batches_per_round);
            if tasks.is_empty() {
                break;
            }
            let decode_and_sample = |batch: Batch| {
                let decoded = decode::decode(batch, &decode, vec![Packets::default()]);
                let input = decoded.batch.input as usize;
                let candidates = samples[input].packets.candidates(decoded.shards.iter().flat_map(Packets::iter));
                let counts = &decoded.counts.counts;
                let span_ns = counts.first_time_ns.zip(counts.last_time_ns);
                let held = first_records.in_batch(&decoded.batch, span_ns);
                (decoded.batch, (candidates, span_ns, held))
            };
            for (mut batches, receipt) in for_each_batch(tasks, decode_and_sample) {
                let counts = feed.accept(receipt, batches.iter_mut().map(|(batch, _)| batch));
                for (batch, (candidates, span_ns, held)) in batches {
                    if counts {
                        samples[batch.input as usize].add(candidates, span_ns, held);
                    }
                    feed.recycle(batch.bytes);
                }
            }
            report();
        }
    });
    // The analysis reads each input again and reports how it ended.
    let _ = feed.finish();
    Ok(samples)
}

/// Notes on clocks. `pipes` flags the inputs that can be read only once and whose clock is unknown.
pub(super) fn notes(inputs: &[Input], aligned: &Alignment, pipes: &[bool], options: &AnalysisOptions) -> Vec<String> {
    let mut notes = Vec::new();
    if options.clocks.align && inputs.len() > 1 {
        for (pipe, _) in inputs.iter().zip(pipes).filter(|(_, is_pipe)| **is_pipe) {
            notes.push(format!(
                "{}: can be read only once, so its clock is not compared or corrected; save it to a file first if its clock differs",
                pipe.name
            ));
        }
    }
    for (input, row) in inputs.iter().zip(&aligned.rows) {
        let Some(row) = row.as_ref().filter(|row| row.offset_ns != 0 || row.drift_ppm != 0.0) else { continue };
        let ahead = if row.offset_ns < 0 { "behind" } else { "ahead of" };
        let runs = if row.drift_ppm < 0.0 { "slower" } else { "faster" };
        let basis = match row.common_packets {
            0 => String::new(),
            common => {
                let packets = count_either(common, "packet that is", "packets that are");
                format!(", from {packets} also in {}", row.compared_with)
            }
        };
        let uneven = if row.is_even { "" } else { "; its rate varies" };
        notes.push(format!(
            "{}: its clock is {} {ahead} that of {} and runs {:.2} ppm {runs}; its times are corrected to within {}{basis}{uneven}",
            input.name,
            describe_time(row.offset_ns.unsigned_abs()),
            row.reference,
            row.drift_ppm.abs(),
            describe_time(row.uncertainty_ns),
        ));
    }
    for LookAlikes { inputs: (first, second), apart_ns } in aligned.look_alikes.iter().take(MAX_NOTES) {
        if let (Some(first), Some(second)) = (inputs.get(*first), inputs.get(*second)) {
            notes.push(format!(
                "{} and {} hold the same packets, about {} apart, and no constant offset and drift of a clock explains \
                 their times: either a clock was set or runs unevenly, or two runs used the same queue pairs and PSNs; \
                 these packets count once; if there were two runs, analyze them separately",
                first.name,
                second.name,
                describe_time(apart_ns.unsigned_abs()),
            ));
        }
    }
    for (first, second, why) in aligned.unclear.iter().take(MAX_NOTES) {
        if let (Some(first), Some(second)) = (inputs.get(*first), inputs.get(*second)) {
            notes.push(format!("the clocks of {} and {} cannot be compared: {why}", first.name, second.name));
        }
    }
    if let Some(more) = aligned.unclear.len().checked_sub(MAX_NOTES).filter(|more| *more > 0) {
        notes.push(format!("the clocks of {} of inputs cannot be compared", count_of(more as u64, "more pair")));
    }
    notes
}

/// Notes on consecutive files of one capture that are not in one stream because they were analyzed
/// separately.
pub(super) fn seam_notes(
    inputs: &[Input],
    extras: &[InputExtras],
    readout: &Readout,
    streams: &[Vec<usize>],
) -> Vec<String> {
    let joined = join_streams(extras.iter().map(|extra| extra.sample.clone()).collect(), streams);
    let samples: Vec<Option<&PacketSample>> = joined.iter().map(Option::as_ref).collect();
    // The first input of a stream has the times of the whole stream, as it has the joined samples.
    let spans_ns: Vec<_> = readout.inputs.iter().map(|input| input.times_ns).collect();
    let name = |input: usize| inputs.get(input).map_or("", |input| input.name.as_str());
    let is_near = |[earlier, later]: &[usize; 2]| {
        let times_ns = spans_ns[*earlier].zip(spans_ns[*later]);
        times_ns.is_some_and(|((_, end_ns), (start_ns, _))| start_ns.saturating_sub(end_ns) <= SEAM_NS)
    };
    let mut notes = Vec::new();
    for stream in align::chains(&samples, &spans_ns, |_, _| false) {
        let seams: Vec<&[usize; 2]> = stream.array_windows().filter(|pair| is_near(pair)).collect();
        if let (Some([earlier, _]), Some([_, later])) = (seams.first(), seams.last()) {
            let files = seams.len() as u64 + 1;
            notes.push(format!(
                "{} to {} ({}) look like one capture in parts, but were analyzed separately: packets and messages at the \
                 end of a file may count twice, or as missing; analyze them in one call, or join them first",
                name(*earlier),
                name(*later),
                count_of(files, "file"),
            ));
        }
    }
    let more = notes.len().saturating_sub(MAX_NOTES);
    notes.truncate(MAX_NOTES);
    if more > 0 {
        notes.push(format!("{} in parts, analyzed separately", count_of(more as u64, "more capture")));
    }
    notes
}

/// Formats a duration with enough digits to correct a clock by it.
fn describe_time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.3} µs", ns as f64 / 1e3),
        _ => format!("{:.6} s", ns as f64 / 1e9),
    }
}

/// Transit times within a window, by connection.
pub(super) fn transits(aligned: Alignment, options: &AnalysisOptions, window_ns: (i64, i64)) -> Vec<Transits> {
    let mut table: BTreeMap<ConnectionKey, BTreeMap<TimingKey, Recorder>> = BTreeMap::new();
    let counts = |transit: &Transit| options.measures.times && (window_ns.0..window_ns.1).contains(&transit.time_ns);
    for transit in aligned.transits.into_iter().filter(counts) {
        let Transit { connection, verb, size, ns, .. } = transit;
        let key = TimingKey { interval: Interval::Transit, verb, size };
        table.entry(connection).or_default().entry(key).or_default().record(ns);
    }
    table.into_iter().collect()
}

/// Adds transit times to connections for which no single input observed both ports.
pub(super) fn add_transits(connections: &mut [Box<ConnectionTotals>], transits: Vec<Transits>) {
    for (key, timings) in transits {
        let Ok(at) = connections.binary_search_by_key(&key, |connection| connection.key) else { continue };
        let connection = &mut connections[at];
        if connection.latencies.iter().all(|((_, timing), _)| timing.interval != Interval::Transit) {
            for (timing, recorder) in timings {
                *connection.latencies.or_default((None, timing)) = recorder;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_inputs_beyond_the_named_ones_are_counted() {
        let input = |number: usize| Input {
            name: format!("node{number}.pcap"),
            length_bytes: 0,
            xxh3_128: String::new(),
            sha256: None,
            format: String::new(),
            pairs_observed_once: 0,
            pairs_observed_twice: 0,
            clock: None,
            interrupted: false,
            ends_early: false,
            share: None,
            coverage: crate::model::Coverage::default(),
        };
        for (unclear, more) in [(MAX_NOTES, None), (MAX_NOTES + 1, Some("the clocks of 1 more pair of inputs"))] {
            let inputs: Vec<Input> = (0..=unclear).map(input).collect();
            let unclear = (1..=unclear).map(|second| (0, second, "why")).collect();
            let notes =
                notes(&inputs, &Alignment { unclear, ..Alignment::default() }, &[], &AnalysisOptions::default());
            assert_eq!(notes.len(), MAX_NOTES + usize::from(more.is_some()));
            let is_named = |(at, note): (usize, &String)| note.contains(&format!("node{}.pcap", at + 1));
            assert!(notes.iter().take(MAX_NOTES).enumerate().all(is_named), "{notes:?}");
            assert!(more.is_none_or(|more| notes[MAX_NOTES].starts_with(more)), "{notes:?}");
        }
    }
}
