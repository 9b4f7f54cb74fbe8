//! Reads profiles, or analyzes captures, according to the arguments of a command.
//!
//! In: paths, reading options and the needs of the command. Out: a [`Profile`] or a stream of
//! messages, notes on standard error, and the exit code. Invariant: notes never go to standard
//! output.

use super::arguments::{InputArgs, ScopeArgs};
use super::job_choice::JobChoice;
use super::manifest::ManifestFile;
use super::usage::UsageError;
use super::{files, output};
use crate::analysis::coverage::States;
use crate::analysis::observed_ports::{PORTS_MAY_BE_MISSING, may_miss_ports};
use crate::model::profile::JobRow;
use crate::model::{Coverage, Profile, count_of, printable};
use crate::pipeline::{
    self, AnalysisLimits, AnalysisMeasures, AnalysisOptions, AnalysisWindow, ClockOptions, EndpointInfo,
    FolderContents, TimePoint,
};
use crate::render;
use crate::render::units::{seconds_since, utc};
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Checks that `-` is given at most once.
pub(in crate::cli) fn check(inputs: &[PathBuf]) -> Result<(), UsageError> {
    let from_stdin = inputs.iter().filter(|path| path.as_os_str() == "-").count();
    if from_stdin > 1 {
        Err(UsageError("`-` is given more than once; standard input can be read only once"))
    } else {
        Ok(())
    }
}

/// [`check`], for commands that read captures only.
pub(in crate::cli) fn check_captures(command: &str, inputs: &[PathBuf]) -> anyhow::Result<()> {
    check(inputs)?;
    if let Some(place) = inputs.iter().find(|path| pipeline::is_profile(path)) {
        bail!(
            "{}: is a profile, but `{command}` reads captures only; `matrix`, `latency` and other commands read profiles",
            place.display()
        );
    }
    // A damaged profile: `replace_folders` left no other folder.
    if let Some(folder) = inputs.iter().find(|path| path.is_dir()) {
        pipeline::load(folder)?;
    }
    Ok(())
}

/// Names of skipped files in a note.
const MAX_SKIPPED: usize = 4;

/// Replaces each folder with its captures, and prints a note that lists the skipped files.
/// Profiles stay.
pub(in crate::cli) fn replace_folders(inputs: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let mut files = Vec::with_capacity(inputs.len());
    for path in inputs.drain(..) {
        if !path.is_dir() || pipeline::has_profile_document(&path) {
            files.push(path);
            continue;
        }
        let FolderContents { captures, skipped } = pipeline::captures_in(&path)?;
        let mut note =
            format!("note: {}: {} in this folder", path.display(), count_of(captures.len() as u64, "capture"));
        if !skipped.is_empty() {
            let names = skipped.iter().take(MAX_SKIPPED).map(|name| printable(&name.to_string_lossy()));
            let more = skipped.len().checked_sub(MAX_SKIPPED).filter(|more| *more > 0);
            let names: Vec<String> = names.chain(more.map(|more| format!("{more} more"))).collect();
            note = format!("{note}; skipped (not a capture, or without packets): {}", names.join(", "));
        }
        output::eprint_line(&note);
        files.extend(captures);
    }
    *inputs = files;
    Ok(())
}

/// All files that a command reads.
pub(in crate::cli) fn files<'a>(inputs: &'a [PathBuf], reading: &'a InputArgs) -> Vec<&'a Path> {
    inputs
        .iter()
        .chain(&reading.hosts)
        .chain(&reading.rankmap)
        .chain(&reading.manifest)
        .chain(&reading.streams)
        .map(PathBuf::as_path)
        .collect()
}

/// Fails if a time window ends before it starts.
fn check_order(from: Option<TimePoint>, to: Option<TimePoint>) -> anyhow::Result<()> {
    let texts = match (from, to) {
        (Some(TimePoint::SinceStart(from)), Some(TimePoint::SinceStart(to))) if from >= to => {
            [from, to].map(|ns| seconds_since(0, ns))
        }
        (Some(TimePoint::Absolute(from)), Some(TimePoint::Absolute(to))) if from >= to => [from, to].map(utc),
        _ => return Ok(()),
    };
    let [from, to] = texts;
    let error = anyhow::Error::from(UsageError("--from must be before --to; swap the two, or leave out one"));
    Err(error.context(format!("--from {from} --to {to}")))
}

/// The options that all reading commands share.
pub(in crate::cli) fn options(inputs: &[PathBuf], reading: &InputArgs) -> anyhow::Result<AnalysisOptions> {
    options_of(inputs, reading, inputs.len() > 1)
}

/// Like [`options`]; `is_one_of_several` is true if the clock can be compared with other captures,
/// now or when profiles are merged.
pub(in crate::cli) fn options_of(
    inputs: &[PathBuf],
    reading: &InputArgs,
    is_one_of_several: bool,
) -> anyhow::Result<AnalysisOptions> {
    check_order(reading.from, reading.to)?;
    let manifest = ManifestFile::read(reading.manifest.as_deref())?;
    // Names in --hosts override those of the manifest.
    let mut endpoints = manifest.as_ref().map_or(Ok(EndpointInfo::default()), ManifestFile::endpoint_info)?;
    endpoints.names.append(&mut files::hosts(reading.hosts.as_deref())?);
    Ok(AnalysisOptions {
        threads: reading.threads,
        limits: AnalysisLimits {
            max_connections: reading.max_connections,
            max_decompressed_bytes: reading.max_decompressed,
            ..AnalysisLimits::default()
        },
        window: AnalysisWindow { from: reading.from, to: reading.to },
        rankmap: files::rankmap(reading.rankmap.as_deref())?,
        streams: files::streams(reading.streams.as_deref(), inputs)?,
        sampled: reading.sampled,
        endpoints,
        clocks: ClockOptions {
            align: !reading.no_align,
            supplied: manifest.map_or(Ok(BTreeMap::new()), |manifest| {
                manifest.clocks(inputs, !reading.no_align && is_one_of_several)
            })?,
            ..ClockOptions::default()
        },
        ..AnalysisOptions::default()
    })
}

/// Results that a command needs from an analysis of captures, in addition to packet counts. A
/// profile already has them, or does not have them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub(in crate::cli) struct AnalysisNeeds {
    /// Skip the detection of MPI messages.
    pub(in crate::cli) no_mpi: bool,
    /// Width of the timeline bins; `None` for no timeline.
    pub(in crate::cli) bin_ns: Option<i64>,
    /// Health, and the ICRC check.
    pub(in crate::cli) health: bool,
    /// Times between packets.
    pub(in crate::cli) times: bool,
    /// Sizes of packets and messages.
    pub(in crate::cli) sizes: bool,
    /// Digests of the inputs.
    pub(in crate::cli) digests: bool,
}

/// Reads a profile, or analyzes captures without writing one.
pub(in crate::cli) fn profile(
    inputs: &[PathBuf],
    reading: &InputArgs,
    scope: ScopeArgs,
    needs: AnalysisNeeds,
) -> anyhow::Result<Profile> {
    let mut profile = whole_profile(inputs, reading, needs)?;
    if scope.strict {
        profile.drop_inferred_ranks();
    }
    if let JobChoice::Only(job) = scope.job {
        profile.keep_job(job)?;
    }
    Ok(profile)
}

/// Fails if the profile has several jobs. `what` names the second thing to compare, which belongs
/// to one job.
pub(in crate::cli) fn one_job(profile: &Profile, what: &str) -> anyhow::Result<()> {
    if profile.jobs.len() > 1 {
        let jobs: Vec<String> = profile.jobs.iter().map(JobRow::describe).collect();
        bail!("{what} must be one job, but there are {}: {}; choose one with --job N", jobs.len(), jobs.join("; "));
    }
    Ok(())
}

/// The profile with all of its jobs.
fn whole_profile(inputs: &[PathBuf], reading: &InputArgs, needs: AnalysisNeeds) -> anyhow::Result<Profile> {
    check(inputs)?;
    let mut options = options(inputs, reading)?;
    if let Some(place) = inputs.iter().find(|path| pipeline::is_profile(path)) {
        if inputs.len() > 1 {
            bail!("{}: a profile is shown alone; give one profile or any number of captures", place.display());
        }
        let mut profile = pipeline::load(place)?;
        pipeline::adapt(&mut profile, &options)?;
        if needs.no_mpi {
            output::eprint_line("note: --no-mpi has no effect on a profile; give it to `analyze`");
        }
        for (is_given, option) in [
            (reading.no_align, "--no-align"),
            (reading.manifest.is_some(), "--manifest"),
            (reading.streams.is_some(), "--streams"),
            (reading.sampled.is_some(), "--sampled"),
        ] {
            if is_given {
                output::eprint_line(&format!(
                    "note: {option} has no effect on a profile, because `analyze` has combined the captures; give {option} to `analyze`"
                ));
            }
        }
        return Ok(profile);
    }
    // A damaged profile fails here, with the reason: `replace_folders` left no other folder.
    if let Some(folder) = inputs.iter().find(|path| path.is_dir()) {
        pipeline::load(folder)?;
    }
    add_needs(&mut options, needs);
    analyze(inputs, &options)
}

fn add_needs(options: &mut AnalysisOptions, needs: AnalysisNeeds) {
    options.measures = AnalysisMeasures {
        mpi: !needs.no_mpi,
        times: needs.times,
        sizes: needs.sizes,
        health: needs.health,
        // A damaged packet may have a wrong header, so the coverage of its pair needs the check too.
        icrc: needs.health || !needs.no_mpi,
        ..options.measures
    };
    options.bin_ns = needs.bin_ns;
    options.digests.xxh3 = needs.digests;
}

/// Analyzes captures for a profile and its messages.
pub(in crate::cli) fn profile_and_messages(
    inputs: &[PathBuf],
    reading: &InputArgs,
    scope: ScopeArgs,
    needs: AnalysisNeeds,
) -> anyhow::Result<pipeline::MessageIter> {
    let mut options = options(inputs, reading)?;
    add_needs(&mut options, needs);
    messages(inputs, &options, scope, false)
}

/// Fails if a time window is given for tables of a profile that have no times.
pub(in crate::cli) fn check_no_window(inputs: &[PathBuf], reading: &InputArgs, what: &str) -> anyhow::Result<()> {
    match inputs.first() {
        Some(place) if (reading.from.is_some() || reading.to.is_some()) && pipeline::is_profile(place) => bail!(
            "{}: a profile has {what} for its whole time only; give the captures to analyze a time window",
            place.display()
        ),
        _ => Ok(()),
    }
}

/// Analyzes captures, with a progress bar on a terminal.
pub(in crate::cli) fn analyze(paths: &[PathBuf], options: &AnalysisOptions) -> anyhow::Result<Profile> {
    Ok(with_progress(paths, options, |progress| pipeline::analyze(paths, options, progress))?)
}

/// Reads the messages of captures, and skips sizes and health. Times show whether the times of messages
/// at different ports can be compared.
pub(in crate::cli) fn messages_alone(
    paths: &[PathBuf],
    reading: &InputArgs,
    scope: ScopeArgs,
    with_transport: bool,
) -> anyhow::Result<pipeline::MessageIter> {
    messages(paths, &message_options(paths, reading)?, scope, with_transport)
}

/// Options for reading messages alone, without a timeline.
pub(in crate::cli) fn message_options(paths: &[PathBuf], reading: &InputArgs) -> anyhow::Result<AnalysisOptions> {
    let mut options = options(paths, reading)?;
    options.bin_ns = None;
    options.measures = AnalysisMeasures { sizes: false, health: false, icrc: false, ..options.measures };
    Ok(options)
}

/// Reads the messages of captures, with a progress bar on a terminal.
pub(in crate::cli) fn messages(
    paths: &[PathBuf],
    options: &AnalysisOptions,
    scope: ScopeArgs,
    with_transport: bool,
) -> anyhow::Result<pipeline::MessageIter> {
    let mut stream =
        with_progress(paths, options, |progress| pipeline::messages(paths, options, with_transport, progress))?;
    if scope.strict {
        stream.drop_inferred_ranks();
    }
    if let JobChoice::Only(job) = scope.job {
        stream.keep_job(job)?;
    }
    Ok(stream)
}

fn with_progress<T>(paths: &[PathBuf], options: &AnalysisOptions, work: impl FnOnce(&(dyn Fn(u64) + Sync)) -> T) -> T {
    let bar = ProgressBar::new(pipeline::bytes_to_read(paths, options));
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    {
        bar.set_style(style);
    }
    let result = work(&|bytes| {
        // Standard input has no known length, so the bar grows with it.
        if bar.length().is_some_and(|length| length < bytes) {
            bar.set_length(bytes);
        }
        bar.set_position(bytes);
    });
    bar.finish_and_clear();
    result
}

/// Prints the notes on a result: about the rank map, the time window, the captures, and the pairs that
/// miss packets.
pub(in crate::cli) fn notes(inputs: &[PathBuf], reading: &InputArgs, profile: &Profile) {
    notes_beside_coverage(inputs, reading, profile);
    coverage_note(profile);
}

/// Prints a note if the capture misses packets or messages of some pairs.
pub(in crate::cli) fn coverage_note(profile: &Profile) {
    output::notes(render::coverage::note(&States::of_endpoints(profile)).as_slice());
}

/// Prints a note if the captures may not show all ports, with the consequence for the result.
pub(in crate::cli) fn ports_note(profile: &Profile, consequence: &str) {
    if may_miss_ports(profile) {
        output::eprint_line(&format!("note: {PORTS_MAY_BE_MISSING}: {consequence}"));
    }
}

/// Like [`notes`], for a result that shows the coverage of each pair.
pub(in crate::cli) fn notes_beside_coverage(inputs: &[PathBuf], reading: &InputArgs, profile: &Profile) {
    table_notes(reading, profile);
    let is_profile = pipeline::is_profile(&inputs[0]);
    if let Some(note) = empty_window(reading, profile, is_profile) {
        output::eprint_line(&note);
    } else if !is_profile && detects_no_library(reading, profile) {
        output::eprint_line(&format!("note: no MPI library was detected in this window; {SHORT_WINDOW}"));
    }
    analysis_notes(inputs, profile);
}

/// Prints the notes of the analysis: all of them for captures, which the command has analyzed. A
/// profile has them since its analysis, so one line points to them.
pub(in crate::cli) fn analysis_notes(inputs: &[PathBuf], profile: &Profile) {
    match inputs.first().filter(|place| pipeline::is_profile(place)) {
        Some(place) => {
            if let Some(sampling) = profile.sampling {
                output::notes(&[sampling.describe()]);
            }
            output::notes(&profile.notes.iter().filter(|note| is_of_command(note)).cloned().collect::<Vec<_>>());
            output::notes(pointer(place, profile).as_slice());
        }
        None => output::notes(&profile.notes),
    }
}

/// True for a note on the options of the command, which the profile does not have.
fn is_of_command(note: &str) -> bool {
    note.starts_with(pipeline::WINDOW_NOTE)
}

/// The line that points to the notes in a profile, with the verdict on the capture if packets are
/// or may be missing.
pub(in crate::cli) fn pointer(place: &Path, profile: &Profile) -> Option<String> {
    let count = profile.notes.iter().filter(|note| !is_of_command(note)).count() as u64;
    let missing = render::trust::doubt(&profile.trust).map(|doubt| format!("{doubt}; ")).unwrap_or_default();
    (count > 0).then(|| {
        format!("{missing}`ibscope summary {}` shows {} on these numbers", place.display(), count_of(count, "note"))
    })
}

/// A step back that is worth a note: timestamps of different ports, or of different queues of an adapter,
/// differ by less.
const SHORTEST_BACKWARDS_NS: i64 = 10_000;

/// Prints the notes on timestamps: records without one, and steps back.
pub(in crate::cli) fn notes_on_times(profile: &Profile) {
    if profile.coverage.without_time > 0 {
        output::eprint_line(&format!(
            "note: {} of {} records have no timestamp (pcapng simple packets); they count in the matrix, but not here",
            profile.coverage.without_time, profile.coverage.records
        ));
    }
    let coverage = &profile.coverage;
    if coverage.longest_backwards_ns >= SHORTEST_BACKWARDS_NS {
        output::eprint_line(&format!(
            "note: timestamps step backwards {} between records, by up to {}; times measured across such a step are too \
             short by as much, or 0, and rates around it are too high",
            count_of(coverage.time_backwards, "time"),
            coverage.longest_backwards()
        ));
    }
}

/// Prints notes on a rank map, or on names of ports, that look wrong.
pub(in crate::cli) fn table_notes(reading: &InputArgs, profile: &Profile) {
    if reading.rankmap.is_some() {
        output::notes(&files::rankmap_notes(&profile.ranks, profile));
    }
    let mut ports = profile.connections.iter().flat_map(|row| [row.src, row.dst]).peekable();
    if let Some(hosts) = &reading.hosts
        && ports.peek().is_some()
        && !ports.any(|port| profile.names.contains_key(&port))
    {
        output::notes(&[format!("{}: none of its ports is in the traffic, so no port has a name", hosts.display())]);
    }
}

/// Advice for a time window that is too short to detect a library.
pub(in crate::cli) const SHORT_WINDOW: &str = "a short window may not hold enough messages to detect a library: analyze the whole \
                                       capture with `analyze -o`, then select the window with --from and --to of `matrix`, `timeline` or `rates`";

/// The note on a time window without packets.
pub(in crate::cli) fn empty_window(reading: &InputArgs, profile: &Profile, is_profile: bool) -> Option<String> {
    if !has_window(reading) || profile.connections.iter().any(|connection| connection.traffic.packets > 0) {
        return None;
    }
    if !is_profile && profile.coverage.records > profile.coverage.outside_window {
        return Some(NO_INFINIBAND.to_owned());
    }
    let span_ns = profile.coverage.first_time_ns.zip(profile.coverage.last_time_ns);
    let captured = span_ns.map(|(first_ns, last_ns)| {
        let whose = if is_profile { "the profile" } else { "the capture" };
        // In the unit of --from and --to.
        let seconds = last_ns.saturating_sub(first_ns) as f64 / 1e9;
        format!("; {whose} ends {seconds:.6} s after its first record")
    });
    Some(format!("note: no packet in this window{}", captured.unwrap_or_default()))
}

/// Like [`empty_window`], for `inspect`, which does not count packets outside the window.
pub(in crate::cli) fn empty_window_of_packets(reading: &InputArgs, coverage: &Coverage) -> Option<&'static str> {
    (has_window(reading) && coverage.infiniband == 0).then_some(NO_INFINIBAND)
}

const NO_INFINIBAND: &str = "note: no InfiniBand packet in this window";

/// True if MPI messages were analyzed in a time window and no library was detected.
pub(in crate::cli) fn detects_no_library(reading: &InputArgs, profile: &Profile) -> bool {
    has_window(reading) && profile.mpi_read && profile.connections.iter().all(|connection| connection.stack.is_none())
}

fn has_window(reading: &InputArgs) -> bool {
    reading.from.is_some() || reading.to.is_some()
}

/// The exit code by `--min-coverage`.
pub(in crate::cli) fn exit_code(reading: &InputArgs, coverage: &Coverage) -> ExitCode {
    exit_code_for(reading.min_coverage, coverage)
}

/// Like [`exit_code`], for a given percentage.
pub(in crate::cli) fn exit_code_for(min_coverage: f64, coverage: &Coverage) -> ExitCode {
    let decoded = coverage.decoded_percent();
    if decoded >= min_coverage {
        return ExitCode::SUCCESS;
    }
    output::eprint_line(&format!(
        "ibscope: {decoded:.2} % of the records were decoded, less than the {min_coverage} % that --min-coverage requires"
    ));
    ExitCode::from(3)
}
