//! `ibscope paths`: traffic classes, partitions and ECMP paths.

use super::common::arguments::{SourceArgs, WidthArgs};
use super::common::choices::Format;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::render::paths;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope paths job.ibp
  ibscope paths sink.pcap --by pair
  ibscope paths job.ibp --format json";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PathsArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Show one row per combination of SL, VL, P_Key, DSCP and PCP, or per pair of ports; json has
    /// both
    #[arg(long, value_enum, default_value_t = PathsBy::Qos)]
    pub(super) by: PathsBy,
    #[command(flatten)]
    pub(super) width: WidthArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PathsBy {
    /// Traffic classes and partitions
    Qos,
    /// Directed pairs of ports
    Pair,
}

/// Runs `ibscope paths`.
pub(super) fn run(args: &PathsArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_no_window(&source.inputs, &source.reading, "path fields")?;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, AnalysisNeeds::default())?;
    output::results(|out| match (source.format, args.by) {
        (Format::Table, PathsBy::Qos) => out.write_all(paths::table(&profile).as_bytes()),
        (Format::Table, PathsBy::Pair) => out.write_all(paths::pairs(&profile, args.width.columns()).as_bytes()),
        (Format::Csv, PathsBy::Qos) => paths::csv(&profile, out),
        (Format::Csv, PathsBy::Pair) => paths::pairs_csv(&profile, out),
        (Format::Json, _) => paths::json(&profile, out),
    })?;
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
