//! `ibscope compare`.

use super::args::{Compare, Format, JobChoice};
use super::{input, output};
use crate::model::Profile;
use crate::pipeline;
use crate::report::{By, compare};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::ExitCode;

/// Shows two profiles side by side.
pub(super) fn run(args: &Compare) -> anyhow::Result<ExitCode> {
    let (mut a, mut b) = (load(&args.a)?, load(&args.b)?);
    let mut names = [&args.a, &args.b].map(|place| place.display().to_string());
    if args.strict {
        a.leave_out_inferred();
        b.leave_out_inferred();
    }
    for ((profile, name), job) in [&mut a, &mut b].into_iter().zip(&mut names).zip(args.job) {
        if let JobChoice::Only(job) = job {
            profile.only_job(job).with_context(|| name.clone())?;
            *name = format!("{name}, job {job}");
        }
    }
    let by = args.by.map(By::from);
    if by != Some(By::Endpoint) {
        for profile in [&a, &b] {
            input::one_job(profile, "each side of a comparison by rank")?;
        }
    }
    let comparison = compare::compare([&a, &b], names, by)?;
    output::results(|out| match args.format {
        Format::Table => out.write_all(compare::table(&comparison).as_bytes()),
        Format::Csv => compare::csv(&comparison, out),
        Format::Json => compare::json(&comparison, out),
    })?;
    for (which, profile) in [("A", &a), ("B", &b)] {
        let notes: Vec<String> = profile.notes.iter().map(|note| format!("{which}: {note}")).collect();
        output::notes(&notes);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a profile, which must be one.
pub(super) fn load(place: &Path) -> anyhow::Result<Profile> {
    if place.is_file() {
        bail!("{}: is no profile; `ibscope analyze -o NAME.ibp` makes one of captures", place.display());
    }
    Ok(pipeline::load(place)?)
}
