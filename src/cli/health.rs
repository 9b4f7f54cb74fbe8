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
    let is_over_time = args.by == HealthBy::Time;
    let bin_ns = (figures.are_wanted() || is_over_time).then_some(pipeline::DEFAULT_BIN_NS);
    let needs = Needs { health: true, bin_ns, ..Needs::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::retransmissions(&health::retransmissions(&profile)?)?))?;
    let speed = args.link.as_ref();
    let repeats = is_over_time.then(|| health::retransmissions(&profile)).transpose()?;
    output::results(|out| match (source.format, args.by) {
        (format, HealthBy::Time) => repeats.iter().try_for_each(|repeats| match format {
            Format::Table => out.write_all(health::over_time_table(repeats).as_bytes()),
            Format::Csv => health::over_time_csv(repeats, out),
            Format::Json => health::over_time_json(repeats, out),
        }),
        (Format::Table, HealthBy::Connection) => out.write_all(health::table(&profile, speed).as_bytes()),
        (Format::Table, HealthBy::Link) => out.write_all(health::links_table(&profile).as_bytes()),
        (Format::Csv, HealthBy::Connection) => health::csv(&profile, out),
        (Format::Csv, HealthBy::Link) => health::links_csv(&profile, out),
        (Format::Table, HealthBy::Pause) => out.write_all(health::pauses_table(&profile.coverage, speed).as_bytes()),
        (Format::Csv, HealthBy::Pause) => health::pauses_csv(&profile.coverage, speed, out),
        (Format::Json, _) => health::json(&profile, speed, out),
    })?;
    output::notes(&profile.notes);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
