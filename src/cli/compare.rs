//! `ibscope compare`.

use super::args::{Compare, Format};
use super::output;
use crate::model::Profile;
use crate::pipeline;
use crate::report::{By, compare};
use anyhow::bail;
use std::path::Path;
use std::process::ExitCode;

/// Shows two profiles side by side.
pub(super) fn run(args: &Compare) -> anyhow::Result<ExitCode> {
    let (a, b) = (load(&args.a)?, load(&args.b)?);
    let names = [&args.a, &args.b].map(|place| place.display().to_string());
    let comparison = compare::compare([&a, &b], names, args.by.map(By::from))?;
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
