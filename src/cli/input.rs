//! Arguments -> profile: from disk, or by analysing captures.

use super::args::{Reading, Source};
use super::{files, output};
use crate::model::{Coverage, Profile};
use crate::pipeline::{self, Moment, Options};
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(&'static str);

/// The options that all reading commands share.
pub(super) fn options(reading: &Reading) -> anyhow::Result<Options> {
    if let (Some(Moment::SinceStart(from)), Some(Moment::SinceStart(to)))
    | (Some(Moment::Absolute(from)), Some(Moment::Absolute(to))) = (reading.from, reading.to)
        && from >= to
    {
        return Err(UsageError("--from must lie before --to").into());
    }
    Ok(Options {
        threads: reading.threads,
        from: reading.from,
        to: reading.to,
        rankmap: files::rankmap(reading.rankmap.as_deref())?,
        names: files::hosts(reading.hosts.as_deref())?,
        ..Options::default()
    })
}

/// Reads a profile, or makes one of captures without keeping it. `bin_ns` is the width of the timeline's bins, `None` where
/// no timeline is needed.
pub(super) fn profile(source: &Source, bin_ns: Option<i64>) -> anyhow::Result<Profile> {
    profile_with(source, bin_ns, false)
}

/// The same; `check_icrc` says whether the check sums of captures are verified.
pub(super) fn profile_with(source: &Source, bin_ns: Option<i64>, check_icrc: bool) -> anyhow::Result<Profile> {
    let mut options = options(&source.reading)?;
    if let Some(place) = source.inputs.iter().find(|path| pipeline::is_profile(path)) {
        if source.inputs.len() > 1 {
            bail!("{}: a profile is shown alone; give one profile or any number of captures", place.display());
        }
        let mut profile = pipeline::load(place)?;
        pipeline::adapt(&mut profile, &options)?;
        return Ok(profile);
    }
    if let Some(folder) = source.inputs.iter().find(|path| path.is_dir()) {
        bail!(
            "{}: is a folder and no profile; give captures, or a profile that `ibscope analyze -o` wrote",
            folder.display()
        );
    }
    options.read_mpi = !source.no_mpi;
    options.check_icrc = check_icrc;
    options.bin_ns = bin_ns;
    analyze(&source.inputs, &options)
}

/// Analyses captures, with a progress bar on a terminal.
pub(super) fn analyze(paths: &[PathBuf], options: &Options) -> anyhow::Result<Profile> {
    Ok(with_progress(paths, |progress| pipeline::analyze(paths, options, progress))?)
}

/// Reads the messages of captures, with a progress bar on a terminal.
pub(super) fn messages(
    paths: &[PathBuf],
    options: &Options,
    with_transport: bool,
) -> anyhow::Result<pipeline::MessageStream> {
    Ok(with_progress(paths, |progress| pipeline::messages(paths, options, with_transport, progress))?)
}

fn with_progress<T>(paths: &[PathBuf], work: impl FnOnce(&(dyn Fn(u64) + Sync)) -> T) -> T {
    let bar = ProgressBar::new(pipeline::total_bytes(paths));
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

/// The exit code that the coverage asks for.
pub(super) fn exit_code(reading: &Reading, coverage: &Coverage) -> ExitCode {
    let decoded = coverage.decoded_percent();
    if decoded >= reading.min_coverage {
        return ExitCode::SUCCESS;
    }
    output::say(&format!(
        "ibscope: {decoded:.2} % of the records were decoded, less than the {} % that --min-coverage asks for",
        reading.min_coverage
    ));
    ExitCode::from(3)
}
