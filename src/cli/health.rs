//! `ibscope health`.

use super::args::{Format, Health};
use super::input::{self, Needs};
use super::output;
use crate::report::health;
use std::process::ExitCode;

/// Shows what goes wrong.
pub(super) fn run(args: &Health) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::whole(&source.inputs, &source.reading, "health")?;
    let needs = Needs { health: true, ..Needs::default() };
    let profile = input::profile(&source.inputs, &source.reading, needs)?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(health::table(&profile).as_bytes()),
        Format::Csv => health::csv(&profile, out),
        Format::Json => health::json(&profile, out),
    })?;
    output::notes(&profile.notes);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
