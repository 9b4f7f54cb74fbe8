//! `ibscope phases`: splits the time of a job at change points of its communication pattern.

use super::common::arguments::{FigureArgs, SourceArgs, WidthArgs};
use super::common::choices::{Format, GroupByArg};
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::common::parse::bin_ns;
use crate::analysis::AnalysisError;
use crate::analysis::GroupBy;
use crate::analysis::phases::{PhaseOptions, phases};
use crate::pipeline;
use crate::render::{figure, phases};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope phases job.ibp
  ibscope phases job.ibp --by rank --window 50ms --svg phases.svg";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PhasesArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Find phases by rank or by endpoint [default: rank, or endpoint if most of the traffic has no
    /// ranks]
    #[arg(long, value_enum)]
    pub(super) by: Option<GroupByArg>,
    /// Width of the time windows that are compared; phases start at least this far apart [default: a
    /// round width that gives at most 64 windows]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) window: Option<i64>,
    /// Table to print as csv; json has all tables
    #[arg(long, value_enum, default_value_t = PhasesView::Phases)]
    pub(super) view: PhasesView,
    #[command(flatten)]
    pub(super) width: WidthArgs,
    #[command(flatten)]
    pub(super) figures: FigureArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PhasesView {
    /// One row per phase
    Phases,
    /// The matrix of each phase
    Matrices,
    /// The collective operations in each phase
    Collectives,
}

/// Runs `ibscope phases`.
pub(super) fn run(args: &PhasesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let figures = FigureFiles::open(&args.figures, &input::files(&source.inputs, &source.reading))?;
    // Captures are read in bins no wider than the window.
    let bin_ns = args.window.map_or(pipeline::DEFAULT_BIN_NS, |window_ns| window_ns.min(pipeline::DEFAULT_BIN_NS));
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        AnalysisNeeds { bin_ns: Some(bin_ns), ..AnalysisNeeds::default() },
    )?;
    if profile.bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline.into());
    }
    let phases = phases(&profile, &PhaseOptions { by: args.by.map(GroupBy::from), window_ns: args.window });
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| Ok(figure::phases(&phases)?))?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(phases::table(&phases, args.width.columns()).as_bytes()),
        Format::Csv => match args.view {
            PhasesView::Phases => phases::csv(&phases, out),
            PhasesView::Matrices => phases::matrices_csv(&phases, out),
            PhasesView::Collectives => phases::collectives_csv(&phases, out),
        },
        Format::Json => phases::json(&phases, out),
    })?;
    output::notes(&phases::notes(&phases, args.window));
    input::notes_on_times(&profile);
    input::ports_note(&profile, "messages between other ports are missing");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
