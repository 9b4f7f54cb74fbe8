//! `ibscope collectives`.

use super::common::arguments::Source;
use super::common::choices::{ByArg, Format};
use super::common::input::{self, Needs};
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
pub(super) struct Collectives {
    #[command(flatten)]
    pub(super) source: Source,
    /// Show pairs of endpoints or of ranks; csv and json have one row per pair
    #[arg(long, value_enum, default_value_t = ByArg::Rank)]
    pub(super) by: ByArg,
}

/// `ibscope collectives`.
pub(super) fn run(args: &Collectives) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::whole(&source.inputs, &source.reading, "collective operations")?;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, Needs::default())?;
    let table = collectives(&profile, args.by.into());
    output::results(|out| match source.format {
        Format::Table => out.write_all(render::collectives::table(&table, profile.mpi_read).as_bytes()),
        Format::Csv => render::collectives::csv(&table, out),
        Format::Json => render::collectives::json(&table, out),
    })?;
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
