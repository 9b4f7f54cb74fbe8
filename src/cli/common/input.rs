//! Arguments -> profile: from disk, or by analysing captures.

use super::arguments::{Reading, Scope};
use super::job_choice::JobChoice;
use super::manifest::Known;
use super::usage::UsageError;
use super::{files, output};
use crate::model::profile::JobRow;
use crate::model::{Coverage, Profile};
use crate::pipeline::{self, Moment, Options};
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Standard input can be read once.
pub(in crate::cli) fn check(inputs: &[PathBuf]) -> Result<(), UsageError> {
    let from_stdin = inputs.iter().filter(|path| path.as_os_str() == "-").count();
    if from_stdin > 1 {
        Err(UsageError("`-` is given more than once; standard input can be read once"))
    } else {
        Ok(())
    }
}

/// [`check`], for commands that read captures only.
pub(in crate::cli) fn check_captures(command: &str, inputs: &[PathBuf]) -> anyhow::Result<()> {
    check(inputs)?;
    if let Some(place) = inputs.iter().find(|path| pipeline::is_profile(path)) {
        bail!(
            "{}: is a profile, and `{command}` needs captures; matrix, timeline, ranks and collectives read profiles",
            place.display()
        );
    }
    if let Some(folder) = inputs.iter().find(|path| path.is_dir()) {
        bail!("{}: is a folder; `{command}` needs captures: give the files in it", folder.display());
    }
    Ok(())
}

/// Everything that a command reads.
pub(in crate::cli) fn files<'a>(inputs: &'a [PathBuf], reading: &'a Reading) -> Vec<&'a Path> {
    inputs.iter().chain(&reading.hosts).chain(&reading.rankmap).chain(&reading.manifest).map(PathBuf::as_path).collect()
}

/// The options that all reading commands share.
pub(in crate::cli) fn options(inputs: &[PathBuf], reading: &Reading) -> anyhow::Result<Options> {
    options_of(inputs, reading, inputs.len() > 1)
}

/// The same; `is_one_of_several` tells that clocks can be held against those of other captures, now or later.
pub(in crate::cli) fn options_of(
    inputs: &[PathBuf],
    reading: &Reading,
    is_one_of_several: bool,
) -> anyhow::Result<Options> {
    if let (Some(Moment::SinceStart(from)), Some(Moment::SinceStart(to)))
    | (Some(Moment::Absolute(from)), Some(Moment::Absolute(to))) = (reading.from, reading.to)
        && from >= to
    {
        return Err(UsageError("--from must lie before --to").into());
    }
    let known = Known::read(reading.manifest.as_deref())?;
    // What the user says himself goes first.
    let mut names = known.as_ref().map_or(Ok(BTreeMap::new()), Known::names)?;
    let leaves = known.as_ref().map(Known::leaves).unwrap_or_default();
    names.append(&mut files::hosts(reading.hosts.as_deref())?);
    Ok(Options {
        threads: reading.threads,
        max_connections: reading.max_connections,
        max_decompressed_bytes: reading.max_decompressed,
        from: reading.from,
        to: reading.to,
        rankmap: files::rankmap(reading.rankmap.as_deref())?,
        names,
        leaves,
        slurm_jobs: known.as_ref().map(Known::slurm_jobs).unwrap_or_default(),
        align: !reading.no_align,
        clocks: known
            .map_or(Ok(BTreeMap::new()), |known| known.clocks(inputs, !reading.no_align && is_one_of_several))?,
        ..Options::default()
    })
}

/// What a command needs of captures beyond their packets; a profile has it, or has it not.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub(in crate::cli) struct Needs {
    /// MPI messages are not looked for.
    pub(in crate::cli) no_mpi: bool,
    /// Width of the timeline bins; `None` where no timeline is needed.
    pub(in crate::cli) bin_ns: Option<i64>,
    /// What goes wrong is followed, and check sums are verified.
    pub(in crate::cli) health: bool,
    /// Times between packets are measured.
    pub(in crate::cli) times: bool,
    /// Sizes of packets and messages are kept.
    pub(in crate::cli) sizes: bool,
    /// Digests of the inputs are shown.
    pub(in crate::cli) digests: bool,
}

/// Reads a profile, or makes one of captures without keeping it.
pub(in crate::cli) fn profile(
    inputs: &[PathBuf],
    reading: &Reading,
    scope: Scope,
    needs: Needs,
) -> anyhow::Result<Profile> {
    let mut profile = whole_profile(inputs, reading, needs)?;
    if scope.strict {
        profile.leave_out_inferred();
    }
    if let JobChoice::Only(job) = scope.job {
        profile.only_job(job)?;
    }
    Ok(profile)
}

/// What comparisons of single processes take: one job. `what` is what belongs to one job as well.
pub(in crate::cli) fn one_job(profile: &Profile, what: &str) -> anyhow::Result<()> {
    if profile.jobs.len() > 1 {
        let jobs: Vec<String> = profile.jobs.iter().map(JobRow::describe).collect();
        bail!("{what} belongs to one job, and there are {}: {}; choose one with --job N", jobs.len(), jobs.join("; "));
    }
    Ok(())
}

/// A profile with all of its jobs.
fn whole_profile(inputs: &[PathBuf], reading: &Reading, needs: Needs) -> anyhow::Result<Profile> {
    check(inputs)?;
    let mut options = options(inputs, reading)?;
    if let Some(place) = inputs.iter().find(|path| pipeline::is_profile(path)) {
        if inputs.len() > 1 {
            bail!("{}: a profile is shown alone; give one profile or any number of captures", place.display());
        }
        let mut profile = pipeline::load(place)?;
        pipeline::adapt(&mut profile, &options)?;
        if needs.no_mpi {
            output::say("note: --no-mpi has no effect on a profile: `analyze` has looked already, or not");
        }
        for (is_given, option) in [(reading.no_align, "--no-align"), (reading.manifest.is_some(), "--manifest")] {
            if is_given {
                output::say(&format!(
                    "note: {option} has no effect on a profile: `analyze` has held the clocks against each other; give {option} to it"
                ));
            }
        }
        return Ok(profile);
    }
    if let Some(folder) = inputs.iter().find(|path| path.is_dir()) {
        // One that is broken says why.
        if pipeline::was_profile(folder) {
            pipeline::load(folder)?;
        }
        bail!(
            "{}: is a folder and no profile; give captures, or a profile that `ibscope analyze -o` wrote",
            folder.display()
        );
    }
    options.read_mpi = !needs.no_mpi;
    options.read_times = needs.times;
    options.read_sizes = needs.sizes;
    options.read_health = needs.health;
    options.check_icrc = needs.health;
    options.bin_ns = needs.bin_ns;
    options.xxh3 = needs.digests;
    analyze(inputs, &options)
}

/// Refuses to cut a window out of what a profile keeps as a whole.
pub(in crate::cli) fn whole(inputs: &[PathBuf], reading: &Reading, what: &str) -> anyhow::Result<()> {
    match inputs.first() {
        Some(place) if (reading.from.is_some() || reading.to.is_some()) && pipeline::is_profile(place) => bail!(
            "{}: a profile keeps {what} as a whole, without time; give the captures to look at a part",
            place.display()
        ),
        _ => Ok(()),
    }
}

/// Analyses captures, with a progress bar on a terminal.
pub(in crate::cli) fn analyze(paths: &[PathBuf], options: &Options) -> anyhow::Result<Profile> {
    Ok(with_progress(paths, options, |progress| pipeline::analyze(paths, options, progress))?)
}

/// Reads the messages of captures for themselves alone.
pub(in crate::cli) fn messages_alone(
    paths: &[PathBuf],
    reading: &Reading,
    scope: Scope,
    with_transport: bool,
) -> anyhow::Result<pipeline::MessageStream> {
    let mut options = options(paths, reading)?;
    options.bin_ns = None;
    options.check_icrc = false;
    (options.read_times, options.read_sizes, options.read_health) = (false, false, false);
    messages(paths, &options, scope, with_transport)
}

/// Reads the messages of captures, with a progress bar on a terminal.
pub(in crate::cli) fn messages(
    paths: &[PathBuf],
    options: &Options,
    scope: Scope,
    with_transport: bool,
) -> anyhow::Result<pipeline::MessageStream> {
    let mut stream =
        with_progress(paths, options, |progress| pipeline::messages(paths, options, with_transport, progress))?;
    if scope.strict {
        stream.leave_out_inferred();
    }
    if let JobChoice::Only(job) = scope.job {
        stream.only_job(job)?;
    }
    Ok(stream)
}

fn with_progress<T>(paths: &[PathBuf], options: &Options, work: impl FnOnce(&(dyn Fn(u64) + Sync)) -> T) -> T {
    let bar = ProgressBar::new(pipeline::bytes_to_read(paths, options));
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left") {
        bar.set_style(style);
    }
    let result = work(&|bytes| {
        // Standard input has no known length: the bar grows with it.
        if bar.length().is_some_and(|length| length < bytes) {
            bar.set_length(bytes);
        }
        bar.set_position(bytes);
    });
    bar.finish_and_clear();
    result
}

/// Says what is to be said of a result: of the rank map, of the window of time, of the captures.
pub(in crate::cli) fn notes(inputs: &[PathBuf], reading: &Reading, profile: &Profile) {
    rankmap_notes(reading, profile);
    let is_profile = pipeline::is_profile(&inputs[0]);
    if let Some(note) = empty_window(reading, profile, is_profile) {
        output::say(note);
    } else if !is_profile && is_unrecognised(reading, profile) {
        output::say(&format!("note: no MPI library was recognised in this window; {SHORT_WINDOW}"));
    }
    output::notes(&profile.notes);
}

/// Says what is missing where things are shown by time.
pub(in crate::cli) fn notes_on_times(profile: &Profile) {
    if profile.coverage.without_time > 0 {
        output::say(&format!(
            "note: {} of {} records have no time (pcapng simple packets): they count in the matrix, and not here",
            profile.coverage.without_time, profile.coverage.records
        ));
    }
}

/// Says where a rank map fits badly.
pub(in crate::cli) fn rankmap_notes(reading: &Reading, profile: &Profile) {
    if reading.rankmap.is_some() {
        output::notes(&files::rankmap_notes(&profile.ranks, profile));
    }
}

/// What helps where a window of captures is too short to recognise a library in it.
pub(in crate::cli) const SHORT_WINDOW: &str = "a short window may not hold enough messages to recognise a library: analyse the whole \
                                       capture with `analyze -o` and then cut it with `matrix`, `timeline` or `rates` --from and --to";

/// The note on a window of time without any packet.
pub(in crate::cli) fn empty_window(reading: &Reading, profile: &Profile, is_profile: bool) -> Option<&'static str> {
    let is_empty = profile.connections.iter().all(|connection| connection.traffic.packets == 0);
    let has_others = !is_profile && profile.coverage.records > profile.coverage.outside_window;
    (has_window(reading) && is_empty).then_some(if has_others {
        NO_INFINIBAND
    } else {
        "note: no packet in this window"
    })
}

/// The same for `inspect`, which does not count what lies outside.
pub(in crate::cli) fn empty_window_of_packets(reading: &Reading, coverage: &Coverage) -> Option<&'static str> {
    (has_window(reading) && coverage.infiniband == 0).then_some(NO_INFINIBAND)
}

const NO_INFINIBAND: &str = "note: no InfiniBand packet in this window";

/// True where MPI messages were looked for in a window and no library was recognised.
pub(in crate::cli) fn is_unrecognised(reading: &Reading, profile: &Profile) -> bool {
    has_window(reading) && profile.mpi_read && profile.connections.iter().all(|connection| connection.stack.is_none())
}

fn has_window(reading: &Reading) -> bool {
    reading.from.is_some() || reading.to.is_some()
}

/// The exit code that the coverage asks for.
pub(in crate::cli) fn exit_code(reading: &Reading, coverage: &Coverage) -> ExitCode {
    exit_code_for(reading.min_coverage, coverage)
}

/// The same where so many percent of the records are asked for.
pub(in crate::cli) fn exit_code_for(min_coverage: f64, coverage: &Coverage) -> ExitCode {
    let decoded = coverage.decoded_percent();
    if decoded >= min_coverage {
        return ExitCode::SUCCESS;
    }
    output::say(&format!(
        "ibscope: {decoded:.2} % of the records were decoded, less than the {min_coverage} % that --min-coverage asks for"
    ));
    ExitCode::from(3)
}
