//! `ibscope storage`: commands of storage protocols by client and server.

use super::common::arguments::SourceArgs;
use super::common::choices::Format;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::analysis::storage::storage;
use crate::render::storage as rendered;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope storage sink.pcap
  ibscope storage job.ibp --view operations
  ibscope storage job.ibp --format csv > storage.csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct StorageArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Group the commands; json has all views
    #[arg(long, value_enum, default_value_t = StorageView::Pairs)]
    pub(super) view: StorageView,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StorageView {
    /// One row per class, client and server
    Pairs,
    /// Also by operation and status
    Operations,
    /// Also by size of the data, with times
    Sizes,
}

/// Runs `ibscope storage`.
pub(super) fn run(args: &StorageArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_no_window(&source.inputs, &source.reading, "storage commands")?;
    let needs = AnalysisNeeds { times: true, ..AnalysisNeeds::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    let found = storage(&profile);
    let has_table = found.is_some();
    let storage = found.unwrap_or_default();
    output::results(|out| match (source.format, args.view) {
        (Format::Table, _) if !has_table => out.write_all(rendered::NOT_ANALYZED.as_bytes()),
        (Format::Table, StorageView::Pairs) => out.write_all(rendered::table(&storage).as_bytes()),
        (Format::Table, StorageView::Operations) => out.write_all(rendered::operations(&storage).as_bytes()),
        (Format::Table, StorageView::Sizes) => out.write_all(rendered::sizes(&storage).as_bytes()),
        (Format::Csv, StorageView::Pairs) => rendered::csv(&storage, out),
        (Format::Csv, StorageView::Operations) => rendered::operations_csv(&storage, out),
        (Format::Csv, StorageView::Sizes) => rendered::sizes_csv(&storage, out),
        (Format::Json, _) => rendered::json(&storage, out),
    })?;
    output::notes(&storage.notes);
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
