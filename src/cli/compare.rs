//! `ibscope compare`: two profiles -> their differences; more profiles -> the variation over the runs.

use super::common::arguments::FigureArgs;
use super::common::choices::{Format, GroupByArg};
use super::common::files::FigureFiles;
use super::common::job_choice::JobChoice;
use super::common::parse::job;
use super::common::usage::UsageError;
use super::common::{input, output};
use crate::analysis::GroupBy;
use crate::analysis::compare::{compare, compare_runs};
use crate::model::Profile;
use crate::pipeline;
use crate::render;
use crate::render::compare::several::{self, letter};
use crate::render::figure;
use anyhow::{Context as _, bail};
use clap::Args;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope compare before.ibp after.ibp
  ibscope compare before.ibp after.ibp --by rank --format json
  ibscope compare run1.ibp run2.ibp run3.ibp run4.ibp --png runs.png";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// Reference profile (NAME.ibp)
    #[arg(value_name = "A.ibp")]
    pub(super) a: PathBuf,
    /// Profile to compare with the reference
    #[arg(value_name = "B.ibp")]
    pub(super) b: PathBuf,
    /// Profiles of more runs: show the variation over all runs, and the runs that deviate
    #[arg(value_name = "C.ibp")]
    pub(super) more: Vec<PathBuf>,
    /// Compare pairs of ranks or of endpoints [default: rank if all profiles have ranks,
    /// otherwise endpoint]
    #[arg(long, value_enum)]
    pub(super) by: Option<GroupByArg>,
    /// Compare job N of all profiles, or job N of A with job M of B (and so on); required if a profile
    /// has several jobs, except with --by endpoint, which compares all jobs by default
    #[arg(long, value_name = "N[,M]", default_value = "all", hide_default_value = true, value_parser = jobs)]
    pub(super) job: JobsOfRuns,
    /// Treat inferred ranks, which no message names, as unknown
    #[arg(long)]
    pub(super) strict: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) figures: FigureArgs,
}

/// A job of all profiles, or one of each.
#[derive(Clone, Debug)]
pub(super) struct JobsOfRuns(Vec<JobChoice>);

impl JobsOfRuns {
    /// The job of each of `runs` profiles.
    fn of(&self, runs: usize) -> Result<Vec<JobChoice>, UsageError> {
        match self.0.as_slice() {
            [job] => Ok(vec![*job; runs]),
            jobs if jobs.len() == runs => Ok(jobs.to_vec()),
            _ => Err(UsageError("--job needs one job number for all profiles, or one for each")),
        }
    }
}

/// Parses `N` or `N,M,...`: a job of all profiles, or one of each.
fn jobs(text: &str) -> Result<JobsOfRuns, String> {
    let jobs: Result<Vec<JobChoice>, String> = text.split(',').map(|own| job(own.trim())).collect();
    let expected = "expected one job number (1), one for each profile (1,2), or `all`";
    jobs.map(JobsOfRuns).map_err(|_| expected.to_owned())
}

/// Runs `ibscope compare`.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let places: Vec<&PathBuf> = [&args.a, &args.b].into_iter().chain(&args.more).collect();
    let jobs = args.job.of(places.len())?;
    if args.figures.are_wanted() && args.more.is_empty() {
        return Err(UsageError("figures show three or more runs; `ibscope report --compare` draws two").into());
    }
    let inputs: Vec<&Path> = places.iter().map(|place| place.as_path()).collect();
    let figures = FigureFiles::open(&args.figures, &inputs)?;
    let mut profiles = places.iter().map(|place| load(place)).collect::<anyhow::Result<Vec<Profile>>>()?;
    let mut names: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    for ((profile, name), job) in profiles.iter_mut().zip(&mut names).zip(jobs) {
        if args.strict {
            profile.drop_inferred_ranks();
        }
        if let JobChoice::Only(job) = job {
            profile.keep_job(job).with_context(|| name.clone())?;
            *name = format!("{name}, job {job}");
        }
    }
    let by = args.by.map(GroupBy::from);
    if by != Some(GroupBy::Endpoint) {
        for profile in &profiles {
            input::one_job(profile, "each side of a comparison by rank")?;
        }
    }
    if let [a, b] = profiles.as_slice() {
        let [a_name, b_name] = [0, 1].map(|side| names[side].clone());
        let comparison = compare([a, b], [a_name, b_name], by)?;
        output::results(|out| match args.format {
            Format::Table => out.write_all(render::compare::table(&comparison).as_bytes()),
            Format::Csv => render::compare::csv(&comparison, out),
            Format::Json => render::compare::json(&comparison, out),
        })?;
    } else {
        let all: Vec<&Profile> = profiles.iter().collect();
        let comparison = compare_runs(&all, names, by)?;
        // Figures come before the text, so that a closed standard output does not prevent them.
        figures.finish(|| Ok(figure::runs(&comparison)?))?;
        output::results(|out| match args.format {
            Format::Table => out.write_all(several::table(&comparison).as_bytes()),
            Format::Csv => several::csv(&comparison, out),
            Format::Json => several::json(&comparison, out),
        })?;
    }
    for (run, (place, profile)) in places.iter().zip(&profiles).enumerate() {
        let doubt = || render::compare::doubt(profile);
        let verdict = || doubt().map(|doubt| format!("{doubt}, so its counts may differ by chance"));
        let note = input::pointer(place, profile).or_else(verdict);
        output::notes(note.map(|note| format!("{}: {note}", letter(run))).as_slice());
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a profile; fails for a capture.
pub(super) fn load(place: &Path) -> anyhow::Result<Profile> {
    if place.is_file() {
        bail!("{}: is not a profile; `ibscope analyze -o NAME.ibp` makes one from captures", place.display());
    }
    Ok(pipeline::load(place)?)
}
