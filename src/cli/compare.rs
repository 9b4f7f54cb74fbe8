//! `ibscope compare`: two profiles -> their differences.

use super::common::choices::{Format, GroupByArg};
use super::common::job_choice::JobChoice;
use super::common::parse::job;
use super::common::{input, output};
use crate::analysis::GroupBy;
use crate::analysis::compare::compare;
use crate::model::Profile;
use crate::pipeline;
use crate::render;
use anyhow::{Context as _, bail};
use clap::Args;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope compare before.ibp after.ibp
  ibscope compare before.ibp after.ibp --by rank --format json";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// Reference profile (NAME.ibp)
    #[arg(value_name = "A.ibp")]
    pub(super) a: PathBuf,
    /// Profile to compare with the reference
    #[arg(value_name = "B.ibp")]
    pub(super) b: PathBuf,
    /// Compare pairs of ranks or of endpoints [default: ranks if both profiles have ranks]
    #[arg(long, value_enum)]
    pub(super) by: Option<GroupByArg>,
    /// Compare job N of both profiles, or job N of A with job M of B; required if a profile has
    /// several jobs, except with --by endpoint, which compares all jobs by default
    #[arg(long, value_name = "N[,M]", default_value = "all", hide_default_value = true, value_parser = jobs)]
    pub(super) job: [JobChoice; 2],
    /// Treat ranks that no message names, and that ibscope only inferred, as unknown
    #[arg(long)]
    pub(super) strict: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// Parses `N` or `N,M`: a job of both profiles, or one of each.
fn jobs(text: &str) -> Result<[JobChoice; 2], String> {
    let (a, b) = text.split_once(',').unwrap_or((text, text));
    match (job(a.trim()), job(b.trim())) {
        (Ok(a), Ok(b)) => Ok([a, b]),
        _ => Err("expected one job number (1), one for A and one for B (1,2), or `all`".to_owned()),
    }
}

/// Runs `ibscope compare`.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (mut a, mut b) = (load(&args.a)?, load(&args.b)?);
    let mut names = [&args.a, &args.b].map(|place| place.display().to_string());
    if args.strict {
        a.drop_inferred_ranks();
        b.drop_inferred_ranks();
    }
    for ((profile, name), job) in [&mut a, &mut b].into_iter().zip(&mut names).zip(args.job) {
        if let JobChoice::Only(job) = job {
            profile.keep_job(job).with_context(|| name.clone())?;
            *name = format!("{name}, job {job}");
        }
    }
    let by = args.by.map(GroupBy::from);
    if by != Some(GroupBy::Endpoint) {
        for profile in [&a, &b] {
            input::one_job(profile, "each side of a comparison by rank")?;
        }
    }
    let comparison = compare([&a, &b], names, by)?;
    output::results(|out| match args.format {
        Format::Table => out.write_all(render::compare::table(&comparison).as_bytes()),
        Format::Csv => render::compare::csv(&comparison, out),
        Format::Json => render::compare::json(&comparison, out),
    })?;
    for (which, place, profile) in [("A", &args.a, &a), ("B", &args.b, &b)] {
        let notes = input::pointer(place, profile).map(|note| format!("{which}: {note}"));
        output::notes(notes.as_slice());
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
