//! `ibscope storage`: commands of storage protocols by client and server.

use super::common::arguments::{FigureArgs, SourceArgs};
use super::common::choices::Format;
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::common::parse::bin_ns;
use super::common::usage::UsageError;
use crate::analysis::storage::{Storage, storage};
use crate::analysis::storage_timeline::storage_timeline;
use crate::pipeline;
use crate::render::{figure, storage as rendered, storage_timeline as timeline};
use anyhow::bail;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope storage sink.pcap
  ibscope storage job.ibp --view timeline --bin 100ms --png storage.png
  ibscope storage job.ibp --format csv > storage.csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct StorageArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// View of the commands; json has all views except `timeline`, which must be selected
    #[arg(long, value_enum, default_value_t = StorageView::Pairs)]
    pub(super) view: StorageView,
    /// Width of the bins of `--view timeline`; for a profile, a multiple of the profile's bin width
    /// [default: 10ms, or the profile's bin width]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// Figures of `--view timeline`
    #[command(flatten)]
    pub(super) figures: FigureArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StorageView {
    /// One row per class, client and server
    Pairs,
    /// One row per class, client, server, operation and status
    Operations,
    /// One row per class, client, server and size of the data, with times
    Sizes,
    /// Over time, beside the MPI and NCCL traffic of the client
    Timeline,
}

/// Runs `ibscope storage`.
pub(super) fn run(args: &StorageArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    let is_over_time = args.view == StorageView::Timeline;
    if !is_over_time && (args.bin.is_some() || args.figures.are_wanted()) {
        return Err(UsageError("--bin, --svg, --png and --pdf require --view timeline").into());
    }
    input::check_no_window(&source.inputs, &source.reading, "storage commands")?;
    let figures = FigureFiles::open(&args.figures, &input::files(&source.inputs, &source.reading))?;
    let bin_ns = is_over_time.then(|| args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS));
    let needs = AnalysisNeeds { times: true, bin_ns, ..AnalysisNeeds::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    let found = storage(&profile);
    let has_table = found.is_some();
    let storage = found.unwrap_or_else(Storage::not_analyzed);
    // Captures were read with these bins, or with wider ones if there were too many.
    let bin_ns = args.bin.filter(|_| pipeline::is_profile(&source.inputs[0]));
    let over_time = is_over_time.then(|| storage_timeline(&profile, &storage, bin_ns)).transpose()?;
    if let Some(over_time) = &over_time {
        if figures.are_wanted() && has_table && storage.pairs.is_empty() {
            bail!("there are no storage commands to draw; `ibscope timeline` draws all traffic");
        }
        figures.finish(|| Ok(figure::storage_timeline(over_time)?))?;
    }
    output::results(|out| match (source.format, args.view, &over_time) {
        (Format::Json, ..) => rendered::json(&storage, over_time.as_ref().map(timeline::timeline_value), out),
        (Format::Table, ..) if !has_table => out.write_all(rendered::NOT_ANALYZED.as_bytes()),
        (Format::Table, _, Some(over_time)) => out.write_all(timeline::timeline_text(&storage, over_time).as_bytes()),
        (Format::Csv, _, Some(over_time)) => timeline::timeline_csv(over_time, out),
        (Format::Table, StorageView::Operations, _) => out.write_all(rendered::operations(&storage).as_bytes()),
        (Format::Table, StorageView::Sizes, _) => out.write_all(rendered::sizes(&storage).as_bytes()),
        (Format::Table, ..) => out.write_all(rendered::table(&storage).as_bytes()),
        (Format::Csv, StorageView::Operations, _) => rendered::operations_csv(&storage, out),
        (Format::Csv, StorageView::Sizes, _) => rendered::sizes_csv(&storage, out),
        (Format::Csv, ..) => rendered::csv(&storage, out),
    })?;
    output::notes(&storage.notes);
    if is_over_time {
        input::notes_on_times(&profile);
    }
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
