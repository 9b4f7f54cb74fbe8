//! `ibscope collectives`: messages and bytes of each collective operation.

use super::common::arguments::SourceArgs;
use super::common::choices::{Format, GroupByArg};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::analysis::collectives::collectives;
use crate::render;
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope collectives job.ibp
  ibscope collectives job.ibp --by endpoint --format csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct CollectivesArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Show pairs of endpoints or of ranks; csv and json have one row per pair
    #[arg(long, value_enum, default_value_t = GroupByArg::Rank)]
    pub(super) by: GroupByArg,
}

/// Runs `ibscope collectives`.
pub(super) fn run(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_no_window(&source.inputs, &source.reading, "collective operations")?;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, AnalysisNeeds::default())?;
    let table = collectives(&profile, args.by.into());
    output::results(|out| match source.format {
        Format::Table => out.write_all(render::collectives::table(&table, profile.mpi_read).as_bytes()),
        Format::Csv => render::collectives::csv(&table, out),
        Format::Json => render::collectives::json(&table, out),
    })?;
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
