//! Merge of profiles: partial profiles in, the profile of one analysis of all captures out.
//!
//! The inputs of all profiles are sorted by name, brought to the same bin widths and sample sizes,
//! and concluded like those of an analysis. Invariant: neither the order of the profiles nor
//! earlier merges change the result.
//!
//! Clocks are the exception, because an analysis corrects times while it decodes packets. The
//! inputs therefore store the packet samples by which clocks are compared, and the merge compares
//! them as an analysis of all captures would. If the inputs were corrected by the same clocks, the
//! merge goes on. Otherwise it fails with [`MergeError::UnalignedClocks`]: analyze the captures
//! again with the clocks in the error.

use super::align;
use super::bounds::MemoryBounds;
use super::conclude::conclude;
use super::parts::{self, InputExtras, InputPart, MergeClock, PartsError, PartsHeader};
use super::readout::{InputReadout, Readout};
use super::{AnalysisOptions, EndpointInfo, PipelineError, common_clocks, pool};
use crate::align::Alignment;
use crate::model::profile::{Input, RankRow};
use crate::model::{Clock, ConnectionShare, Coverage, Profile, count_of, ranges};
use crate::profile::{self, ProfileError};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Failure of a merge.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A profile cannot be read, or has no data for a merge.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The data of a profile for a merge are damaged.
    #[error("{}: the data for `merge` cannot be used: {why}; analyze the captures again with --partial", place.display())]
    InvalidParts {
        /// The profile.
        place: PathBuf,
        /// The reason.
        why: PartsError,
    },
    /// Two profiles were analyzed with different options.
    #[error("{} and {} were analyzed with different {what}; analyze both with the same options", first.display(), second.display())]
    DifferentSettings {
        /// First profile.
        first: PathBuf,
        /// Second profile.
        second: PathBuf,
        /// The option that differs.
        what: &'static str,
    },
    /// Two profiles contain the same capture.
    #[error("both {} and {} contain {capture}; give each capture once", first.display(), second.display())]
    DuplicateCapture {
        /// Name of the capture.
        capture: String,
        /// First profile.
        first: PathBuf,
        /// Second profile.
        second: PathBuf,
    },
    /// Some shares of a capture are missing.
    #[error(
        "{capture}: {} of its {of} shares are missing: {}; analyze them with --share NUMBER/{of}, then merge all shares",
        missing.len(), ranges(missing.iter().copied())
    )]
    MissingShares {
        /// Name of the capture.
        capture: String,
        /// Numbers of the missing shares.
        missing: Vec<u32>,
        /// The number of shares.
        of: u32,
    },
    /// Two profiles give an endpoint different names or leaf switches.
    #[error("endpoint {endpoint} is {one} in one profile and {other} in another; name it with --hosts")]
    ConflictingNames {
        /// The endpoint.
        endpoint: Endpoint,
        /// Text in one profile.
        one: String,
        /// Text in another profile.
        other: String,
    },
    /// Two profiles were analyzed with different rank maps.
    #[error("{} and {} were analyzed with different rank maps; give one for all with --rankmap", first.display(), second.display())]
    DifferentRankMaps {
        /// First profile.
        first: PathBuf,
        /// Second profile.
        second: PathBuf,
    },
    /// Captures need a clock correction that their profiles do not have.
    #[error(
        "the clocks of the captures differ: {} must be analyzed again with a clock correction",
        count_of(clocks.len() as u64, "capture")
    )]
    UnalignedClocks {
        /// By capture name: the clock that corrects it, and its uncertainty in nanoseconds.
        clocks: Vec<(String, Clock, u64)>,
    },
    /// The rest of the analysis failed.
    #[error(transparent)]
    Analysis(#[from] PipelineError),
}

/// Merges the profiles at `places`. Only names, leaf switches, job ids, the rank map and `threads`
/// of the options apply.
pub fn merge(places: &[PathBuf], options: &AnalysisOptions) -> Result<Profile, MergeError> {
    let pool = pool(options.threads)?;
    pool.install(|| {
        let mut options = AnalysisOptions { keep_parts: true, ..options.clone() };
        let LoadedProfiles { heads, parts, streams } = load(places, &mut options)?;
        merge_endpoint_info(&heads, places, &mut options)?;
        rankmap(&heads, places, &mut options)?;
        join(parts, &streams, &options)
    })
}

struct LoadedProfiles {
    heads: Vec<PartsHeader>,
    /// Sorted by [`input_order`].
    parts: Vec<InputPart>,
    /// Positions in `parts`: those of each stream in the order of time.
    streams: Vec<Vec<usize>>,
}

/// An input of one of the profiles.
struct LoadedPart {
    /// Index of its profile.
    profile: usize,
    /// Its position in the inputs of the profile.
    position: usize,
    part: InputPart,
}

/// Loads all profiles, and sets the options to the settings that they have in common.
///
/// Profiles of a few packets each have narrow bins, and together may have many times the cells of one
/// analysis. The bounds therefore apply after each profile.
fn load(places: &[PathBuf], options: &mut AnalysisOptions) -> Result<LoadedProfiles, MergeError> {
    let mut heads: Vec<PartsHeader> = Vec::new();
    let mut parts: Vec<LoadedPart> = Vec::new();
    let mut bounds: Option<MemoryBounds> = None;
    for (profile, place) in places.iter().enumerate() {
        let bytes = profile::read_parts(place)?;
        let (head, own) = parts::read(&bytes).map_err(|why| MergeError::InvalidParts { place: place.clone(), why })?;
        if let Some(what) = heads.first().and_then(|first| first.settings.difference(&head.settings)) {
            return Err(MergeError::DifferentSettings { first: places[0].clone(), second: place.clone(), what });
        }
        let bounds = bounds.get_or_insert_with(|| {
            head.settings.apply(options);
            MemoryBounds::new(options)
        });
        heads.push(head);
        parts.extend((0..).zip(own).map(|(position, part)| LoadedPart { profile, position, part }));
        let shards = parts.iter_mut().flat_map(|own| &mut own.part.shards);
        bounds.level_roughly(&mut shards.map(|shard| &mut shard.sums).collect::<Vec<_>>());
    }
    parts.sort_by(|a, b| input_order(&a.part.input).cmp(&input_order(&b.part.input)));
    let parts = join_shares(parts, &heads, places)?;
    let is_same = |a: &Input, b: &Input| input_order(a) == input_order(b) && a.coverage.records > 0;
    let mut pairs = parts.iter().zip(parts.iter().skip(1));
    if let Some((one, other)) = pairs.find(|(a, b)| is_same(&a.part.input, &b.part.input)) {
        let (first, second) = (places[one.profile].clone(), places[other.profile].clone());
        return Err(MergeError::DuplicateCapture { capture: one.part.input.name.clone(), first, second });
    }
    if heads.is_empty() {
        let (records, found, advice) = (0, String::new(), "give at least one profile");
        return Err(PipelineError::NoInfiniband { records, found, advice }.into());
    }
    let streams = streams_of(&parts, &heads);
    Ok(LoadedProfiles { heads, parts: parts.into_iter().map(|own| own.part).collect(), streams })
}

/// The streams of all profiles by position in `parts`.
fn streams_of(parts: &[LoadedPart], heads: &[PartsHeader]) -> Vec<Vec<usize>> {
    let places = (0..).zip(parts).map(|(place, own)| ((own.profile, own.position), place));
    let places: BTreeMap<(usize, usize), usize> = places.collect();
    let profiles = (0..).zip(heads);
    let found = profiles.flat_map(|(profile, head)| head.streams.iter().map(move |stream| (profile, stream)));
    // The streams of a second share have no parts: those of the first share have its connections.
    let found = found.map(|(profile, stream)| -> Vec<usize> {
        stream.iter().filter_map(|position| places.get(&(profile, *position)).copied()).collect()
    });
    let mut streams: Vec<Vec<usize>> = found.filter(|stream| !stream.is_empty()).collect();
    streams.sort();
    streams
}

/// Joins the shares of each capture into one part. `parts` are sorted by [`input_order`]. Fails if
/// shares of a capture are missing, or do not belong together.
fn join_shares(
    parts: Vec<LoadedPart>,
    heads: &[PartsHeader],
    places: &[PathBuf],
) -> Result<Vec<LoadedPart>, MergeError> {
    let mut joined: Vec<LoadedPart> = Vec::with_capacity(parts.len());
    let mut parts = parts.into_iter().peekable();
    let names = |profile: usize| heads[profile].inputs.iter().map(|input| &input.name);
    while let Some(LoadedPart { profile, position, part: mut whole }) = parts.next() {
        if let Some(share) = whole.input.share.take() {
            let mut held = vec![share.number];
            let is_same = |input: &Input, own: &Input| input_order(input) == input_order(own);
            while let Some(next) = parts.next_if(|next| is_same(&next.part.input, &whole.input)) {
                let LoadedPart { profile: other, part, .. } = next;
                let own = part.input.share.filter(|own| own.of != share.of || !held.contains(&own.number));
                let (first, second) = (places[profile].clone(), places[other].clone());
                let Some(own) = own else {
                    return Err(MergeError::DuplicateCapture { capture: part.input.name, first, second });
                };
                let differs = [
                    (own.of != share.of, "--share"),
                    // Files of one stream have their connections at its first file.
                    (!names(profile).eq(names(other)), "captures"),
                    (heads[profile].streams != heads[other].streams, "--streams"),
                    (part.rest.clock != whole.rest.clock, "clocks"),
                ];
                if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
                    return Err(MergeError::DifferentSettings { first, second, what });
                }
                held.push(own.number);
                add_share(&mut whole, part, own);
            }
            let missing: Vec<u32> = (1..=share.of).filter(|number| !held.contains(number)).collect();
            if !missing.is_empty() {
                return Err(MergeError::MissingShares { capture: whole.input.name, missing, of: share.of });
            }
        }
        joined.push(LoadedPart { profile, position, part: whole });
    }
    Ok(joined)
}

/// Adds a share of a capture to others. Every share has read the whole capture, so they differ in their
/// shards only.
fn add_share(whole: &mut InputPart, part: InputPart, share: ConnectionShare) {
    let shards = whole.shards.iter_mut().zip(part.shards).enumerate();
    shards.filter(|(shard, _)| share.has_shard(*shard)).for_each(|(_, (own, of_share))| *own = of_share);
}

/// Identity of an input, and the sort order of inputs in a merged profile.
fn input_order(input: &Input) -> impl Ord + use<'_> {
    (&input.name, &input.xxh3_128, input.length_bytes)
}

/// Merges the endpoint names, leaf switches and job ids of the profiles into the options, which
/// take precedence.
fn merge_endpoint_info(
    heads: &[PartsHeader],
    places: &[PathBuf],
    options: &mut AnalysisOptions,
) -> Result<(), MergeError> {
    let endpoints = &mut options.endpoints;
    let own = [endpoints.names.clone(), endpoints.leaves.clone()];
    let mut slurm_jobs: BTreeMap<Endpoint, BTreeSet<String>> = BTreeMap::new();
    for (head, place) in heads.iter().zip(places) {
        let info = head.endpoint_info().map_err(|why| MergeError::InvalidParts { place: place.clone(), why })?;
        let EndpointInfo { names, leaves, port_rates, slurm_jobs: ids } = info;
        // The lower of two rates is safe: no saturated link is reported as free.
        for (endpoint, rate) in port_rates {
            let own = endpoints.port_rates.entry(endpoint).or_insert(rate);
            *own = rate.min(*own);
        }
        ids.into_iter().for_each(|(endpoint, id)| _ = slurm_jobs.entry(endpoint).or_default().insert(id));
        let into = [&mut endpoints.names, &mut endpoints.leaves];
        for ((into, own), texts) in into.into_iter().zip(&own).zip([names, leaves]) {
            for (endpoint, text) in texts {
                let before = into.entry(endpoint).or_insert_with(|| text.clone());
                if *before != text && !own.contains_key(&endpoint) {
                    return Err(MergeError::ConflictingNames { endpoint, one: before.clone(), other: text });
                }
            }
        }
    }
    // A port with several Slurm jobs has no single id, and no profile shows which job is which.
    let single = slurm_jobs.into_iter().filter(|(_, ids)| ids.len() == 1);
    endpoints.slurm_jobs.extend(single.flat_map(|(endpoint, ids)| ids.into_iter().map(move |id| (endpoint, id))));
    Ok(())
}

/// Takes the common rank map of all profiles, unless the options have one.
fn rankmap(heads: &[PartsHeader], places: &[PathBuf], options: &mut AnalysisOptions) -> Result<(), MergeError> {
    if options.rankmap.is_some() {
        return Ok(());
    }
    let rankmap = |head: &PartsHeader| -> Option<Vec<RankRow>> { head.rankmap.clone() };
    let first = heads.first().and_then(rankmap);
    if let Some(other) = heads.iter().position(|head| head.rankmap != first) {
        return Err(MergeError::DifferentRankMaps { first: places[0].clone(), second: places[other].clone() });
    }
    options.rankmap = first;
    Ok(())
}

fn join(parts: Vec<InputPart>, streams: &[Vec<usize>], options: &AnalysisOptions) -> Result<Profile, MergeError> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut rests: Vec<InputExtras> = Vec::new();
    let mut readouts: Vec<InputReadout> = Vec::new();
    for InputPart { input, rest, shards } in parts {
        readouts.push(InputReadout { coverage: input.coverage.clone(), times_ns: None, shards });
        inputs.push(input);
        rests.push(rest);
    }
    for stream in streams {
        let mut whole = Coverage::default();
        stream.iter().for_each(|input| whole.merge(&inputs[*input].coverage));
        readouts[stream[0]].times_ns = whole.first_time_ns.zip(whole.last_time_ns);
    }
    parts::level(&mut rests);
    let aligned = clocks(&inputs, &rests, streams, options)?;
    for (input, row) in inputs.iter_mut().zip(&aligned.rows) {
        input.clock.clone_from(row);
    }
    let pipes: Vec<bool> = rests.iter().map(|rest| rest.is_pipe && rest.clock.is_none()).collect();
    let mut notes = align::notes(&inputs, &aligned, &pipes, options);
    for (input, rest) in inputs.iter().zip(&rests) {
        notes.extend(rest.note.iter().map(|note| format!("{}: {note}", input.name)));
    }
    let mut readout = Readout { inputs: readouts, unions: Vec::new(), bounds: MemoryBounds::new(options) };
    readout.overlay(&aligned.look_alikes);
    readout.level(streams.len());
    notes.extend(align::seam_notes(&inputs, &rests, &readout, streams));
    let written = parts::write(&PartsHeader::new(&inputs, streams, options), &rests, &readout)?;
    drop(rests);
    let clocks = common_clocks::clocks_of(&inputs, &aligned, streams, options);
    let transits = align::transits(aligned, options, (i64::MIN, i64::MAX));
    let mut profile = conclude(readout, inputs, (notes, &clocks), transits, options)?.profile;
    profile.parts = Some(written);
    Ok(profile)
}

/// Aligns the clocks of all inputs. Fails if the inputs were analyzed with other clocks.
fn clocks(
    inputs: &[Input],
    rests: &[InputExtras],
    streams: &[Vec<usize>],
    options: &AnalysisOptions,
) -> Result<Alignment, MergeError> {
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let compare_with = |given: &dyn Fn(&InputExtras) -> Option<(Clock, u64)>| {
        let given: Vec<_> = rests.iter().map(given).collect();
        align::compare_clocks(&names, rests.iter().map(|rest| rest.sample.clone()).collect(), streams, &given, options)
    };
    // The default clock corrects nothing, so it equals no clock.
    let corrects = |clock: Option<Clock>| clock.filter(|clock| *clock != Clock::default());
    let differs = |aligned: &Alignment| {
        aligned.clocks.iter().zip(rests).any(|(clock, rest)| corrects(*clock) != corrects(rest.clock))
    };
    let aligned = compare_with(&|rest| rest.known_clock);
    if !differs(&aligned) {
        return Ok(aligned);
    }
    // These may be some of the inputs whose clocks one merge found together: without the other inputs,
    // their packets may give other clocks.
    let set = rests.iter().find_map(|rest| Some(rest.merge_clock?.set));
    let known = |rest: &InputExtras| {
        let found = rest.merge_clock.filter(|found| Some(found.set) == set);
        rest.known_clock.or(found.map(|found| (found.clock, found.uncertainty_ns)))
    };
    if rests.iter().all(|rest| known(rest).is_some()) {
        let as_found = compare_with(&known);
        if !differs(&as_found) {
            return Ok(as_found);
        }
    }
    let found = names.into_iter().zip(&aligned.clocks).zip(&aligned.rows).zip(rests);
    let clocks = found.filter_map(|(((name, clock), row), rest)| {
        let clock = corrects(*clock).filter(|_| rest.known_clock.is_none())?;
        Some((name, clock, row.as_ref().map_or(0, |row| row.uncertainty_ns)))
    });
    Err(MergeError::UnalignedClocks { clocks: clocks.collect() })
}

/// The clock that an earlier merge found for a capture, if the options have any of these.
pub(super) fn merge_clock(path: &Path, options: &AnalysisOptions) -> Option<MergeClock> {
    let clocks = options.clocks.from_merge.as_ref().filter(|_| !options.clocks.supplied.contains_key(path))?;
    let all: Vec<_> = clocks.iter().map(|(path, (clock, ns))| (path.display().to_string(), *clock, *ns)).collect();
    let (clock, uncertainty_ns) = clocks.get(path).copied().unwrap_or_default();
    Some(MergeClock { clock, uncertainty_ns, set: xxh3_64(clocks_csv(&all).as_bytes()) })
}

/// Header line of a clock file.
const CLOCKS: &str = "capture,own_ns,reference_ns,gain,uncertainty_ns";

/// Writes clocks as a file that [`parse_clocks`] reads.
#[must_use]
pub fn clocks_csv(clocks: &[(String, Clock, u64)]) -> String {
    let row = |(name, clock, uncertainty_ns): &(String, Clock, u64)| {
        let Clock { own_ns, reference_ns, gain } = clock;
        format!("{name},{own_ns},{reference_ns},{gain:e},{uncertainty_ns}\n")
    };
    std::iter::once(format!("{CLOCKS}\n")).chain(clocks.iter().map(row)).collect()
}

/// Reads clocks by capture path. Errors name the line.
pub fn parse_clocks(text: &str) -> Result<BTreeMap<PathBuf, (Clock, u64)>, String> {
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some(CLOCKS) {
        return Err(format!("line 1: expected the header `{CLOCKS}`"));
    }
    let mut clocks = BTreeMap::new();
    for (line, number) in lines.zip(2..).filter(|(line, _)| !line.trim().is_empty()) {
        let row = || {
            // The name may contain commas.
            let mut fields = line.rsplitn(5, ',');
            let uncertainty_ns = fields.next()?.trim().parse().ok()?;
            let gain: f64 = fields.next()?.parse().ok().filter(|gain: &f64| gain.abs() <= 1e-2)?;
            let reference_ns = fields.next()?.parse().ok()?;
            let own_ns = fields.next()?.parse().ok()?;
            Some((fields.next()?, (Clock { own_ns, reference_ns, gain }, uncertainty_ns)))
        };
        let (name, clock) = row().ok_or_else(|| format!("line {number}: not a clock as `merge --clocks` writes it"))?;
        if clocks.insert(Path::new(name).to_owned(), clock).is_some() {
            return Err(format!("line {number}: duplicate capture {name}"));
        }
    }
    Ok(clocks)
}
