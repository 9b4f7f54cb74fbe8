//! `ibscope health`.

use super::common::arguments::{Figures, Source};
use super::common::choices::Format;
use super::common::files::Outputs;
use super::common::input::{self, Needs};
use super::common::output;
use crate::analysis::health::retransmissions;
use crate::model::link::Speed;
use crate::pipeline;
use crate::render::{figure, health};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope health job.ibp
  ibscope health job.ibp --by link
  ibscope health job.ibp --by time --png health.png";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Health {
    #[command(flatten)]
    pub(super) source: Source,
    /// One row per connection, link, pause sender or time bin; json has the first three together
    #[arg(long, value_enum, default_value_t = HealthBy::Connection)]
    pub(super) by: HealthBy,
    /// Link speed, for the duration of pauses: width and rate (`4x EDR`) or a data rate (`100Gb/s`)
    #[arg(long, value_name = "SPEED")]
    pub(super) link: Option<Speed>,
    #[command(flatten)]
    pub(super) figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum HealthBy {
    /// Directed connections between queue pairs
    Connection,
    /// Links between a port and its switch, each direction for itself
    Link,
    /// Bins of time: what was sent again, by sender
    Time,
    /// Senders of pause and PFC frames (RoCE), and the classes that they pause
    Pause,
}

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
    figures.finish(|| Ok(figure::retransmissions(&retransmissions(&profile)?)?))?;
    let speed = args.link.as_ref();
    let repeats = is_over_time.then(|| retransmissions(&profile)).transpose()?;
    output::results(|out| match (source.format, args.by) {
        (format, HealthBy::Time) => repeats.iter().try_for_each(|repeats| match format {
            Format::Table => out.write_all(health::time_series_table(repeats).as_bytes()),
            Format::Csv => health::time_series_csv(repeats, out),
            Format::Json => health::time_series_json(repeats, out),
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
