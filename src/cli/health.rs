//! `ibscope health`.

use super::args::{Format, Health, HealthBy};
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
    let speed = args.link.as_ref();
    output::results(|out| match (source.format, args.by) {
        (Format::Table, HealthBy::Connection) => out.write_all(health::table(&profile, speed).as_bytes()),
        (Format::Table, HealthBy::Link) => out.write_all(health::links_table(&profile).as_bytes()),
        (Format::Csv, HealthBy::Connection) => health::csv(&profile, out),
        (Format::Csv, HealthBy::Link) => health::links_csv(&profile, out),
        (Format::Json, _) => health::json(&profile, speed, out),
    })?;
    output::notes(&profile.notes);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
