//! `ibscope ranks`: the rank of each queue pair, with the evidence.

use super::common::arguments::{SourceArgs, WidthArgs};
use super::common::choices::Format;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::render::ranks;
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope ranks job.ibp
  ibscope ranks job.ibp --format csv > ranks.csv
  ibscope matrix sink.pcap --by rank --rankmap ranks.csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct RanksArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) width: WidthArgs,
}

/// Runs `ibscope ranks`.
pub(super) fn run(args: &RanksArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, AnalysisNeeds::default())?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(ranks::ranks_table(&profile, args.width.columns()).as_bytes()),
        Format::Csv => ranks::ranks_csv(&profile, out),
        Format::Json => ranks::ranks_json(&profile, out),
    })?;
    input::notes_beside_coverage(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
