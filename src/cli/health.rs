//! `ibscope health`.

use super::args::{Format, Health, HealthBy};
use super::files::Outputs;
use super::input::{self, Needs};
use super::output;
use crate::pipeline;
use crate::report::{figure, health};
use std::process::ExitCode;

/// Shows what goes wrong.
pub(super) fn run(args: &Health) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::whole(&source.inputs, &source.reading, "health")?;
    let figures = Outputs::open(&args.figures, &input::files(&source.inputs, &source.reading))?;
    let bin_ns = figures.are_wanted().then_some(pipeline::DEFAULT_BIN_NS);
    let needs = Needs { health: true, bin_ns, ..Needs::default() };
    let profile = input::profile(&source.inputs, &source.reading, needs)?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::retransmissions(&health::retransmissions(&profile)?)?))?;
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
