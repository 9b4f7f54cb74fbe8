//! Captures -> their clocks, before the analysis proper: it takes a reading of its own, as a clock's rate shows over the whole of a capture only.

use super::{Error, Options, cut};
use crate::align::{self, Aligned, Given, Sights, Transit};
use crate::decode;
use crate::input::{self, Feed, SourceOptions};
use crate::model::profile::Input;
use crate::model::traffic::ConnectionTotals;
use crate::model::{Batch, ClockRow, ConnectionKey, Interval, Packets, Recorder, TimingKey};
use rayon::ThreadPool;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Pairs of inputs that a note names at most.
const MAX_NOTES: usize = 8;
/// Stands for an input in the profile where the clock was given.
const GIVEN: &str = "manifest";

/// Transit times of one connection by what they are of.
pub(super) type Transits = (ConnectionKey, BTreeMap<TimingKey, Recorder>);

/// Inputs that are read for a sample of their packets: those whose clocks are to be found and those that they can be held against, or the way of packets
/// between them. Only what can be read twice. A single input is read for those that may be merged with it, where its times are to be corrected.
fn readable(paths: &[PathBuf], options: &Options) -> Vec<usize> {
    let found: Vec<usize> = (0..paths.len()).filter(|index| is_file(&paths[*index])).collect();
    let has_clock = |index: &usize| options.clock(&paths[*index]).is_some();
    let reads = if options.keep_parts {
        paths.len() > 1 || found.iter().any(has_clock)
    } else {
        found.len() > 1 && (options.read_times || !found.iter().all(has_clock))
    };
    if options.align && reads { found } else { Vec::new() }
}

/// True where the sample of a single input is drawn while it is analysed: its times are not corrected then.
pub(super) fn drawn_meanwhile(paths: &[PathBuf], options: &Options) -> bool {
    let is_alone = paths.len() == 1 && paths.iter().all(|path| is_file(path) && options.clock(path).is_none());
    options.keep_parts && options.align && is_alone
}

/// True for what can be read twice.
pub(super) fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file())
}

/// By input: it can be read once only, and nothing is known of its clock.
pub(super) fn streams(paths: &[PathBuf], options: &Options) -> Vec<bool> {
    paths.iter().map(|path| !is_file(path) && options.clock(path).is_none()).collect()
}

/// What [`align()`] reads.
pub(super) fn bytes_to_read(paths: &[PathBuf], options: &Options) -> u64 {
    readable(paths, options).iter().map(|index| input::total_bytes(&paths[*index..=*index])).sum()
}

/// What a first reading of the inputs shows.
pub(super) struct Read {
    pub(super) aligned: Aligned,
    /// The samples by which clocks are found, where they are kept.
    pub(super) sights: Vec<Option<Sights>>,
    /// Inputs that are tracked as one, each in the order of time.
    pub(super) streams: Vec<Vec<usize>>,
    /// Where each input begins that is known to be followed or to follow, nanoseconds since the epoch.
    pub(super) starts_ns: Vec<Option<i64>>,
}

/// The clocks of all inputs, and the samples that tell them, where these are kept. Nothing is read where there is one input, or where that is not wanted.
pub(super) fn align(
    paths: &[PathBuf],
    options: &Options,
    pool: &ThreadPool,
    source: &SourceOptions,
    report: &(dyn Fn() + Sync),
) -> Result<Read, Error> {
    let read = readable(paths, options);
    let mut sights: Vec<Option<Sights>> = paths.iter().map(|_| None).collect();
    for (index, drawn) in read.iter().zip(sample(paths, &read, pool, source, report)?) {
        sights[*index] = Some(drawn);
    }
    // Parts that a merge joins stay apart: each is tracked by itself.
    let streams = if options.keep_parts {
        (0..paths.len()).map(|input| vec![input]).collect()
    } else {
        align::chains(&sights.iter().map(Option::as_ref).collect::<Vec<_>>())
    };
    let starts_ns = sights.iter().map(|sights| sights.as_ref().and_then(Sights::starts_ns)).collect();
    let kept = if options.keep_parts { sights.clone() } else { paths.iter().map(|_| None).collect() };
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let given: Vec<Option<Given>> = paths.iter().map(|path| options.clock(path)).collect();
    Ok(Read { aligned: hold(&names, sights, &given, options), sights: kept, streams, starts_ns })
}

/// Holds inputs of these names against each other, as far as there are samples of them. `given` are the clocks that are known.
pub(super) fn hold(
    names: &[String],
    sights: Vec<Option<Sights>>,
    given: &[Option<Given>],
    options: &Options,
) -> Aligned {
    let inputs = sights.len();
    let mut aligned = Aligned { clocks: vec![None; inputs], rows: vec![None; inputs], ..Aligned::default() };
    let (read, sights): (Vec<usize>, Vec<Sights>) =
        sights.into_iter().enumerate().filter_map(|(index, sights)| Some((index, sights?))).unzip();
    let asks = options.read_times || read.iter().any(|index| given[*index].is_none());
    if options.align && read.len() > 1 && asks {
        let own_names: Vec<String> = read.iter().map(|index| names[*index].clone()).collect();
        let own_given: Vec<Option<Given>> = read.iter().map(|index| given[*index]).collect();
        let found = align::align(sights, &own_names, &own_given, GIVEN);
        aligned.transits = found.transits;
        aligned.unclear = found.unclear.iter().map(|(a, b, why)| (read[*a], read[*b], *why)).collect();
        for ((index, clock), row) in read.iter().zip(found.clocks).zip(found.rows) {
            (aligned.clocks[*index], aligned.rows[*index]) = (clock, row);
        }
    }
    for (index, given) in given.iter().enumerate() {
        let Some((clock, uncertainty_ns)) = given else { continue };
        aligned.clocks[index] = Some(*clock);
        aligned.rows[index] = Some(ClockRow {
            reference: GIVEN.to_owned(),
            compared_with: GIVEN.to_owned(),
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

/// Reads these inputs for a sample of their packets.
fn sample(
    paths: &[PathBuf],
    read: &[usize],
    pool: &ThreadPool,
    source: &SourceOptions,
    report: &(dyn Fn() + Sync),
) -> Result<Vec<Sights>, Error> {
    if read.is_empty() {
        return Ok(Vec::new());
    }
    let own: Vec<PathBuf> = read.iter().map(|index| paths[*index].clone()).collect();
    let source = SourceOptions { xxh3: false, sha256: false, ..source.clone() };
    let batches_per_round = pool.current_num_threads() * 2;
    let mut feed = Feed::start(input::open(&own, &source)?, batches_per_round).map_err(Error::Threads)?;
    let mut sights: Vec<Sights> = own.iter().map(|_| Sights::new(own.len())).collect();
    let decode = decode::Options { check_icrc: false, payload: false, ..decode::Options::default() };
    pool.install(|| {
        loop {
            let pieces = feed.next(batches_per_round);
            if pieces.is_empty() {
                break;
            }
            let draw = |batch: Batch| {
                let decoded = decode::decode(batch, &decode, vec![Packets::default()]);
                let drawn = sights[decoded.batch.input as usize].draw(decoded.shards.iter().flat_map(Packets::iter));
                (decoded.batch, drawn)
            };
            for (mut piece, receipt) in cut(pieces, draw) {
                let counts = feed.settle(receipt, piece.iter_mut().map(|(batch, _)| batch));
                for (batch, drawn) in piece {
                    if counts {
                        sights[batch.input as usize].add(drawn);
                    }
                    feed.recycle(batch.bytes);
                }
            }
            report();
        }
    });
    // How each ended is told by the analysis, which reads it again.
    let _ = feed.finish();
    Ok(sights)
}

/// What a person has to know of the clocks. `streams` are those inputs that can be read once only and of whose clocks nothing is known.
pub(super) fn notes(inputs: &[Input], aligned: &Aligned, streams: &[bool], options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    if options.align && inputs.len() > 1 {
        for (stream, _) in inputs.iter().zip(streams).filter(|(_, is_stream)| **is_stream) {
            notes.push(format!(
                "{}: can be read once only, so its clock is left as it is; save it to a file first if it differs",
                stream.name
            ));
        }
    }
    for (input, row) in inputs.iter().zip(&aligned.rows) {
        let Some(row) = row.as_ref().filter(|row| row.offset_ns != 0 || row.drift_ppm != 0.0) else { continue };
        let ahead = if row.offset_ns < 0 { "behind" } else { "ahead of" };
        let runs = if row.drift_ppm < 0.0 { "slower" } else { "faster" };
        let basis = match row.common_packets {
            0 => String::new(),
            common => format!(", from {common} packets that it shares with {}", row.compared_with),
        };
        let uneven = if row.is_even { "" } else { "; it does not run evenly" };
        notes.push(format!(
            "{}: its clock is {} {ahead} the one of {} and runs {:.2} ppm {runs}; its times are corrected, to within {}{basis}{uneven}",
            input.name,
            time(row.offset_ns.unsigned_abs()),
            row.reference,
            row.drift_ppm.abs(),
            time(row.uncertainty_ns),
        ));
    }
    for (first, second, why) in aligned.unclear.iter().take(MAX_NOTES) {
        if let (Some(first), Some(second)) = (inputs.get(*first), inputs.get(*second)) {
            notes.push(format!(
                "the clocks of {} and {} cannot be held against each other: {why}",
                first.name, second.name
            ));
        }
    }
    if let Some(more) = aligned.unclear.len().checked_sub(MAX_NOTES).filter(|more| *more > 0) {
        notes.push(format!("the clocks of {more} more pairs of inputs cannot be held against each other"));
    }
    notes
}

/// A time for people, exact enough to be used.
fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        _ => format!("{:.6} s", ns as f64 / 1e9),
    }
}

/// Transit times within a window, by connection.
pub(super) fn transits(aligned: Aligned, options: &Options, window_ns: (i64, i64)) -> Vec<Transits> {
    let mut table: BTreeMap<ConnectionKey, BTreeMap<TimingKey, Recorder>> = BTreeMap::new();
    let counts = |transit: &Transit| options.read_times && (window_ns.0..window_ns.1).contains(&transit.time_ns);
    for transit in aligned.transits.into_iter().filter(counts) {
        let Transit { connection, verb, size, ns, .. } = transit;
        let key = TimingKey { interval: Interval::Transit, verb, size };
        table.entry(connection).or_default().entry(key).or_default().record(ns);
    }
    table.into_iter().collect()
}

/// Adds transit times to the connections of which no input shows both ports by itself.
pub(super) fn add(connections: &mut [Box<ConnectionTotals>], transits: Vec<Transits>) {
    for (key, timings) in transits {
        let Ok(at) = connections.binary_search_by_key(&key, |connection| connection.key) else { continue };
        let connection = &mut connections[at];
        if connection.timings.iter().all(|((_, timing), _)| timing.interval != Interval::Transit) {
            for (timing, recorder) in timings {
                *connection.timings.or_default((None, timing)) = recorder;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_inputs_beyond_those_that_are_named_are_counted() {
        let input = |number: usize| Input {
            name: format!("node{number}.pcap"),
            length_bytes: 0,
            xxh3_128: String::new(),
            sha256: None,
            format: String::new(),
            pairs_seen_once: 0,
            pairs_seen_twice: 0,
            clock: None,
            interrupted: false,
            coverage: crate::model::Coverage::default(),
        };
        for (unclear, more) in [(MAX_NOTES, None), (MAX_NOTES + 1, Some("the clocks of 1 more pairs"))] {
            let inputs: Vec<Input> = (0..=unclear).map(input).collect();
            let unclear = (1..=unclear).map(|second| (0, second, "why")).collect();
            let notes = notes(&inputs, &Aligned { unclear, ..Aligned::default() }, &[], &Options::default());
            assert_eq!(notes.len(), MAX_NOTES + usize::from(more.is_some()));
            let is_named = |(at, note): (usize, &String)| note.contains(&format!("node{}.pcap", at + 1));
            assert!(notes.iter().take(MAX_NOTES).enumerate().all(is_named), "{notes:?}");
            assert!(more.is_none_or(|more| notes[MAX_NOTES].starts_with(more)), "{notes:?}");
        }
    }
}
