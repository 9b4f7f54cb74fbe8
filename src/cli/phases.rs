//! `ibscope phases`.

use super::args::{Format, Phases, PhasesView};
use super::files::Outputs;
use super::input::{self, Needs};
use super::output;
use crate::pipeline;
use crate::report::phases::{self, Options};
use crate::report::{By, ReportError, figure};
use std::process::ExitCode;

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
        return Err(ReportError::NoTimeline.into());
    }
    let phases = phases::phases(&profile, &Options { by: args.by.map(By::from), window_ns: args.window });
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
