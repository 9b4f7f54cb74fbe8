//! Profiles of parts of a fabric, or of a time -> the profile of all of it: what one analysis of all their captures would have given.
//!
//! The parts of all inputs are put in the order of their names, so that neither the order in which profiles are given nor how they were merged before
//! matters, brought to one level, and concluded as an analysis concludes them.
//!
//! Clocks are the one thing that an analysis needs before it reads: times are corrected as packets are decoded. So inputs keep the sample of
//! their packets by which clocks are found, and here they are held against each other as an analysis of all of them does. Where that gives the clocks by
//! which the inputs were corrected, or finds that they agree, all is well. Else nothing is merged ([`Mismatch::Clocks`]): the inputs have to be
//! analysed with the clocks that were found.

use super::align;
use super::bounds::Bounds;
use super::conclude::conclude;
use super::parts::{self, Broken, EndpointInfo, Found, Head, Part, Rest};
use super::readout::{InputReadout, Readout};
use super::{Error, Options, pool};
use crate::align::Aligned;
use crate::model::profile::{Input, RankRow};
use crate::model::{Clock, Profile};
use crate::profile::{self, ProfileError};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Profiles that cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// A profile cannot be read, or keeps no parts.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// What a profile keeps for a merge is not what was written.
    #[error("{}: what it keeps for `merge` cannot be used: {why}; analyse its captures again with --partial", place.display())]
    Broken {
        /// The profile.
        place: PathBuf,
        /// What is wrong.
        why: Broken,
    },
    /// They were not analysed alike.
    #[error("{} and {} were analysed with different {what}; analyse both alike", first.display(), second.display())]
    Unlike {
        /// A profile.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
        /// The option in which they differ.
        what: &'static str,
    },
    /// A capture is in two of them.
    #[error("{capture} is in {} and in {}; give each capture once", first.display(), second.display())]
    Twice {
        /// Name of the capture.
        capture: String,
        /// A profile.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
    },
    /// They say different things of an endpoint.
    #[error("endpoint {endpoint} is {one} in one profile and {other} in another; say with --hosts which it is")]
    Named {
        /// The endpoint.
        endpoint: Endpoint,
        /// What one says.
        one: String,
        /// What another one says.
        other: String,
    },
    /// They were analysed with different rank maps.
    #[error("{} and {} were analysed with different rank maps; give the one for all with --rankmap", first.display(), second.display())]
    Ranks {
        /// A profile.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
    },
    /// The times of captures have to be corrected first.
    #[error("the clocks of the captures differ: {} of them have to be analysed with a clock of their own", clocks.len())]
    Clocks {
        /// The clocks of the captures that are to be corrected, by name, and by how much they may be wrong, in nanoseconds.
        clocks: Vec<(String, Clock, u64)>,
    },
    /// The end of the analysis failed.
    #[error(transparent)]
    Analysis(#[from] Error),
}

/// Merges the profiles at these places. Of the options those count that tell what the user knows (names, rank map) and how many threads there are.
pub fn merge(places: &[PathBuf], options: &Options) -> Result<Profile, Mismatch> {
    let pool = pool(options.threads)?;
    pool.install(|| {
        let loaded = load(places)?;
        let Loaded { head, heads, parts } = loaded;
        let mut options = Options { keep_parts: true, ..options.clone() };
        head.settings.apply(&mut options);
        said(&heads, places, &mut options)?;
        rankmap(&heads, places, &mut options)?;
        join(parts, &options)
    })
}

struct Loaded {
    /// Of the first profile: the others have the same settings.
    head: Head,
    heads: Vec<Head>,
    /// In the order of their names.
    parts: Vec<Part>,
}

fn load(places: &[PathBuf]) -> Result<Loaded, Mismatch> {
    let mut heads: Vec<Head> = Vec::new();
    let mut parts: Vec<(usize, Part)> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let bytes = profile::read_parts(place)?;
        let (head, own) = parts::read(&bytes).map_err(|why| Mismatch::Broken { place: place.clone(), why })?;
        if let Some(what) = heads.first().and_then(|first| first.settings.difference(&head.settings)) {
            return Err(Mismatch::Unlike { first: places[0].clone(), second: place.clone(), what });
        }
        heads.push(head);
        parts.extend(own.into_iter().map(|part| (index, part)));
    }
    parts.sort_by(|(_, a), (_, b)| order(&a.input).cmp(&order(&b.input)));
    let is_same = |a: &Input, b: &Input| order(a) == order(b) && a.coverage.records > 0;
    let mut pairs = parts.iter().zip(parts.iter().skip(1));
    if let Some(((one, part), (other, _))) = pairs.find(|(a, b)| is_same(&a.1.input, &b.1.input)) {
        let (first, second) = (places[*one].clone(), places[*other].clone());
        return Err(Mismatch::Twice { capture: part.input.name.clone(), first, second });
    }
    let parts = parts.into_iter().map(|(_, part)| part).collect();
    heads.first().cloned().map(|head| Loaded { head, heads, parts }).ok_or_else(|| {
        let records = 0;
        Error::NoInfiniband { records, found: String::new(), advice: "give at least one profile" }.into()
    })
}

/// What tells inputs apart, and the order in which they stand in a merged profile.
fn order(input: &Input) -> impl Ord + use<'_> {
    (&input.name, &input.xxh3_128, input.length_bytes)
}

/// Puts together what the profiles say of endpoints; what the options say already goes before.
fn said(heads: &[Head], places: &[PathBuf], options: &mut Options) -> Result<(), Mismatch> {
    let own = [options.names.clone(), options.leaves.clone()];
    let mut slurm_jobs: BTreeMap<Endpoint, BTreeSet<String>> = BTreeMap::new();
    for (head, place) in heads.iter().zip(places) {
        let said = head.said().map_err(|why| Mismatch::Broken { place: place.clone(), why })?;
        let EndpointInfo { names, leaves, slurm_jobs: ids } = said;
        ids.into_iter().for_each(|(endpoint, id)| _ = slurm_jobs.entry(endpoint).or_default().insert(id));
        let into = [&mut options.names, &mut options.leaves];
        for ((into, own), said) in into.into_iter().zip(&own).zip([names, leaves]) {
            for (endpoint, text) in said {
                let before = into.entry(endpoint).or_insert_with(|| text.clone());
                if *before != text && !own.contains_key(&endpoint) {
                    return Err(Mismatch::Named { endpoint, one: before.clone(), other: text });
                }
            }
        }
    }
    // A port may have run several jobs, of which each profile saw one: which of them a job here is, none of the profiles says.
    let single = slurm_jobs.into_iter().filter(|(_, ids)| ids.len() == 1);
    options.slurm_jobs.extend(single.flat_map(|(endpoint, ids)| ids.into_iter().map(move |id| (endpoint, id))));
    Ok(())
}

/// The rank map of all profiles, unless the options have one.
fn rankmap(heads: &[Head], places: &[PathBuf], options: &mut Options) -> Result<(), Mismatch> {
    if options.rankmap.is_some() {
        return Ok(());
    }
    let rankmap = |head: &Head| -> Option<Vec<RankRow>> { head.rankmap.clone() };
    let first = heads.first().and_then(rankmap);
    if let Some(other) = heads.iter().position(|head| head.rankmap != first) {
        return Err(Mismatch::Ranks { first: places[0].clone(), second: places[other].clone() });
    }
    options.rankmap = first;
    Ok(())
}

fn join(parts: Vec<Part>, options: &Options) -> Result<Profile, Mismatch> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut rests: Vec<Rest> = Vec::new();
    let mut readouts: Vec<InputReadout> = Vec::new();
    for Part { input, rest, shards } in parts {
        let times_ns = input.coverage.first_time_ns.zip(input.coverage.last_time_ns);
        readouts.push(InputReadout { coverage: input.coverage.clone(), times_ns, shards });
        inputs.push(input);
        rests.push(rest);
    }
    parts::level(&mut rests);
    let aligned = clocks(&inputs, &rests, options)?;
    for (input, row) in inputs.iter_mut().zip(&aligned.rows) {
        input.clock.clone_from(row);
    }
    let streams: Vec<bool> = rests.iter().map(|rest| rest.is_stream && rest.clock.is_none()).collect();
    let mut notes = align::notes(&inputs, &aligned, &streams, options);
    for (input, rest) in inputs.iter().zip(&rests) {
        notes.extend(rest.note.iter().map(|note| format!("{}: {note}", input.name)));
    }
    let mut readout = Readout { inputs: readouts, bounds: Bounds::new(options) };
    readout.level();
    let written = parts::write(&Head::new(&inputs, options), &rests, &readout)?;
    drop(rests);
    let transits = align::transits(aligned, options, (i64::MIN, i64::MAX));
    let mut profile = conclude(readout, inputs, notes, transits, options)?.profile;
    profile.parts = Some(written);
    Ok(profile)
}

/// The clocks of all inputs, if they are those by which these were analysed.
fn clocks(inputs: &[Input], rests: &[Rest], options: &Options) -> Result<Aligned, Mismatch> {
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let hold = |given: &dyn Fn(&Rest) -> Option<(Clock, u64)>| {
        let given: Vec<_> = rests.iter().map(given).collect();
        align::hold(&names, rests.iter().map(|rest| rest.sights.clone()).collect(), &given, options)
    };
    // A clock that corrects nothing is none.
    let corrects = |clock: Option<Clock>| clock.filter(|clock| *clock != Clock::default());
    let differs = |aligned: &Aligned| {
        aligned.clocks.iter().zip(rests).any(|(clock, rest)| corrects(*clock) != corrects(rest.clock))
    };
    let aligned = hold(&|rest| rest.given);
    if !differs(&aligned) {
        return Ok(aligned);
    }
    // Some of those whose clocks were found together: without the others packets may tell them otherwise.
    let set = rests.iter().find_map(|rest| Some(rest.found?.set));
    let known = |rest: &Rest| {
        let found = rest.found.filter(|found| Some(found.set) == set);
        rest.given.or(found.map(|found| (found.clock, found.uncertainty_ns)))
    };
    if rests.iter().all(|rest| known(rest).is_some()) {
        let as_found = hold(&known);
        if !differs(&as_found) {
            return Ok(as_found);
        }
    }
    let found = names.into_iter().zip(&aligned.clocks).zip(&aligned.rows).zip(rests);
    let clocks = found.filter_map(|(((name, clock), row), rest)| {
        let clock = corrects(*clock).filter(|_| rest.given.is_none())?;
        Some((name, clock, row.as_ref().map_or(0, |row| row.uncertainty_ns)))
    });
    Err(Mismatch::Clocks { clocks: clocks.collect() })
}

/// The clock that a merge has found for a capture, if it was asked for some.
pub(super) fn found(path: &Path, options: &Options) -> Option<Found> {
    let clocks = options.found_clocks.as_ref().filter(|_| !options.clocks.contains_key(path))?;
    let all: Vec<_> = clocks.iter().map(|(path, (clock, ns))| (path.display().to_string(), *clock, *ns)).collect();
    let (clock, uncertainty_ns) = clocks.get(path).copied().unwrap_or_default();
    Some(Found { clock, uncertainty_ns, set: xxh3_64(clocks_csv(&all).as_bytes()) })
}

/// The header of a file of clocks.
const CLOCKS: &str = "capture,own_ns,reference_ns,gain,uncertainty_ns";

/// Clocks as a file that [`parse_clocks`] reads.
#[must_use]
pub fn clocks_csv(clocks: &[(String, Clock, u64)]) -> String {
    let row = |(name, clock, uncertainty_ns): &(String, Clock, u64)| {
        let Clock { own_ns, reference_ns, gain } = clock;
        format!("{name},{own_ns},{reference_ns},{gain:e},{uncertainty_ns}\n")
    };
    std::iter::once(format!("{CLOCKS}\n")).chain(clocks.iter().map(row)).collect()
}

/// Clocks by the path of their capture. The error names the line.
pub fn parse_clocks(text: &str) -> Result<BTreeMap<PathBuf, (Clock, u64)>, String> {
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some(CLOCKS) {
        return Err(format!("line 1: expected the header `{CLOCKS}`"));
    }
    let mut clocks = BTreeMap::new();
    for (line, number) in lines.zip(2..).filter(|(line, _)| !line.trim().is_empty()) {
        let row = || {
            // A name may hold commas.
            let mut fields = line.rsplitn(5, ',');
            let uncertainty_ns = fields.next()?.trim().parse().ok()?;
            let gain: f64 = fields.next()?.parse().ok().filter(|gain: &f64| gain.abs() <= 1e-2)?;
            let reference_ns = fields.next()?.parse().ok()?;
            let own_ns = fields.next()?.parse().ok()?;
            Some((fields.next()?, (Clock { own_ns, reference_ns, gain }, uncertainty_ns)))
        };
        let (name, clock) = row().ok_or_else(|| format!("line {number}: is no clock as `merge --clocks` writes it"))?;
        if clocks.insert(Path::new(name).to_owned(), clock).is_some() {
            return Err(format!("line {number}: {name} stands there already"));
        }
    }
    Ok(clocks)
}
