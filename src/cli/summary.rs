//! `ibscope summary`: a profile in a few lines.

use super::common::arguments::SourceArgs;
use super::common::choices::{Color, Format};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::pipeline;
use crate::render::{summary, text};
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope summary job.ibp
  ibscope summary job.ibp --format json";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct SummaryArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// When to color the output
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

/// Runs `ibscope summary`: traffic, rates, ranks and health.
pub(super) fn run(args: &SummaryArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_no_window(&source.inputs, &source.reading, "health")?;
    let bin_ns = Some(pipeline::DEFAULT_BIN_NS);
    let needs = AnalysisNeeds { bin_ns, health: true, times: true, sizes: true, ..AnalysisNeeds::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(text::summary(&profile, &output::style(args.color)).as_bytes()),
        Format::Csv => summary::csv(&profile, out),
        Format::Json => summary::json(&profile, out),
    })?;
    input::table_notes(&source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
