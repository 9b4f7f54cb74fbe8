//! `ibscope health`: retransmissions, NAKs, congestion and loss.

use super::common::arguments::{FigureArgs, SourceArgs, WidthArgs};
use super::common::choices::Format;
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::analysis::health::{PauseTimes, health_series};
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
pub(super) struct HealthArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Show one row per connection, link, time bin or pause sender; json has all of these together,
    /// except the time bins of senders
    #[arg(long, value_enum, default_value_t = HealthBy::Connection)]
    pub(super) by: HealthBy,
    /// Link speed, for the times of pauses and the load of the sink's link: width and rate (`4x EDR`)
    /// or a data rate (`100Gb/s`)
    #[arg(long, value_name = "SPEED")]
    pub(super) link: Option<Speed>,
    #[command(flatten)]
    pub(super) width: WidthArgs,
    #[command(flatten)]
    pub(super) figures: FigureArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum HealthBy {
    /// Directed connections between queue pairs
    Connection,
    /// Links between a port and its switch, each direction separately
    Link,
    /// Time bins: retransmissions, packets with ECN-CE, FECN or BECN, congestion notifications and NAKs by sender, and pause
    /// frames
    Time,
    /// Senders of pause and PFC frames (RoCE), and the classes that they pause
    Pause,
    /// Time bins with pause and PFC frames (RoCE); most mirrors do not forward these frames
    PauseTime,
}

/// Runs `ibscope health`.
pub(super) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_no_window(&source.inputs, &source.reading, "health")?;
    let figures = FigureFiles::open(&args.figures, &input::files(&source.inputs, &source.reading))?;
    let is_over_time = args.by == HealthBy::Time;
    // The verdict states when records are missing, so it needs a timeline.
    let bin_ns = Some(pipeline::DEFAULT_BIN_NS);
    let needs = AnalysisNeeds { health: true, bin_ns, ..AnalysisNeeds::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| Ok(figure::health(&health_series(&profile)?)?))?;
    let speed = args.link.as_ref();
    let series = is_over_time.then(|| health_series(&profile)).transpose()?;
    output::results(|out| match (source.format, args.by) {
        (format, HealthBy::Time) => series.iter().try_for_each(|series| match format {
            Format::Table => out.write_all(health::time_series_table(series, speed, args.width.columns()).as_bytes()),
            Format::Csv => health::time_series_csv(series, out),
            Format::Json => health::time_series_json(series, speed, out),
        }),
        (Format::Table, HealthBy::Connection) => out.write_all(health::table(&profile, speed).as_bytes()),
        (Format::Table, HealthBy::Link) => {
            out.write_all(health::links_table(&profile, args.width.columns()).as_bytes())
        }
        (Format::Csv, HealthBy::Connection) => health::csv(&profile, out),
        (Format::Csv, HealthBy::Link) => health::links_csv(&profile, out),
        (Format::Table, HealthBy::Pause) => out.write_all(health::pauses_table(&profile.coverage, speed).as_bytes()),
        (Format::Csv, HealthBy::Pause) => health::pauses_csv(&profile.coverage, speed, out),
        (Format::Table, HealthBy::PauseTime) => {
            out.write_all(health::pause_times_table(&PauseTimes::of(&profile), speed).as_bytes())
        }
        (Format::Csv, HealthBy::PauseTime) => health::pause_times_csv(&PauseTimes::of(&profile), speed, out),
        (Format::Json, _) => health::json(&profile, speed, out),
    })?;
    input::analysis_notes(&source.inputs, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
