//! `ibscope phases`.

use super::common::arguments::{Figures, Source};
use super::common::choices::{ByArg, Format};
use super::common::files::Outputs;
use super::common::input::{self, Needs};
use super::common::output;
use super::common::parse::bin_ns;
use crate::analysis::AnalysisError;
use crate::analysis::By;
use crate::analysis::phases::{Options, phases};
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
pub(super) struct Phases {
    #[command(flatten)]
    pub(super) source: Source,
    /// Find phases by rank or by endpoint [default: rank, or endpoint if most of the traffic has no ranks]
    #[arg(long, value_enum)]
    pub(super) by: Option<ByArg>,
    /// Shortest phase: width of the windows that are compared [default: at most 64 windows]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) window: Option<i64>,
    /// Table that csv has; json has all
    #[arg(long, value_enum, default_value_t = PhasesView::Phases)]
    pub(super) view: PhasesView,
    #[command(flatten)]
    pub(super) figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PhasesView {
    /// A row for each phase
    Phases,
    /// The matrix of each phase
    Matrices,
    /// The collective operations that were seen in each phase
    Collectives,
}

/// Shows the job's time cut where the communication pattern changes.
pub(super) fn run(args: &Phases) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let figures = Outputs::open(&args.figures, &input::files(&source.inputs, &source.reading))?;
    // Captures are read in bins that windows of the width asked for can be made of.
    let bin_ns = args.window.map_or(pipeline::DEFAULT_BIN_NS, |window_ns| window_ns.min(pipeline::DEFAULT_BIN_NS));
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        Needs { bin_ns: Some(bin_ns), ..Needs::default() },
    )?;
    if profile.bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline.into());
    }
    let phases = phases(&profile, &Options { by: args.by.map(By::from), window_ns: args.window });
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::phases(&phases)?))?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(phases::table(&phases).as_bytes()),
        Format::Csv => match args.view {
            PhasesView::Phases => phases::csv(&phases, out),
            PhasesView::Matrices => phases::matrices_csv(&phases, out),
            PhasesView::Collectives => phases::collectives_csv(&phases, out),
        },
        Format::Json => phases::json(&phases, out),
    })?;
    output::notes(&phases::notes(&phases, args.window));
    input::notes_on_times(&profile);
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
