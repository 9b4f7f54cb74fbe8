//! `ibscope collectives`: messages and bytes of each collective operation, or one row per
//! operation.

use super::common::arguments::SourceArgs;
use super::common::choices::{Format, GroupByArg};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::nccl_channels;
use crate::analysis::collectives::collectives;
use crate::analysis::instances::InstanceCollector;
use crate::render;
use clap::{Args, ValueEnum};
use ibscope_parsers::mpi::MpiOperation;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope collectives job.ibp
  ibscope collectives sink.pcap --view instances --format csv
  ibscope collectives sink.pcap --view channels";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct CollectivesArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Show pairs of endpoints or of ranks; csv and json have one row per pair
    #[arg(long, value_enum, default_value_t = GroupByArg::Rank)]
    pub(super) by: GroupByArg,
    /// View of the operations; `instances` and `channels` need captures
    #[arg(long, value_enum, default_value_t = CollectivesView::Sums)]
    pub(super) view: CollectivesView,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CollectivesView {
    /// Messages and bytes of each operation
    Sums,
    /// One row per operation: algorithm, times, and the rank that entered last
    Instances,
    /// Distribution of NCCL's data over channels and ports
    Channels,
}

/// Runs `ibscope collectives`.
pub(super) fn run(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    match args.view {
        CollectivesView::Sums => {}
        CollectivesView::Instances => return instances(args),
        CollectivesView::Channels => return nccl_channels::run(source),
    }
    input::check_no_window(&source.inputs, &source.reading, "collective operations")?;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, AnalysisNeeds::default())?;
    let table = collectives(&profile, args.by.into());
    output::results(|out| match source.format {
        Format::Table => out.write_all(render::collectives::table(&table, profile.mpi_read).as_bytes()),
        Format::Csv => render::collectives::csv(&table, out),
        Format::Json => render::collectives::json(&table, out),
    })?;
    if source.format == Format::Table
        && table.keys().any(|(operation, ..)| operation == MpiOperation::Nonblocking.name())
    {
        output::eprint_line(
            "note: the messages of nonblocking operations do not show which operation it is; --view instances detects it",
        );
    }
    input::ports_note(&profile, "messages between other ports are missing");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Runs `ibscope collectives --view instances`.
fn instances(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_captures("collectives --view instances", &source.inputs)?;
    let mut stream = input::messages_alone(&source.inputs, &source.reading, source.scope, false)?;
    let profile = stream.profile().clone();
    let mut collector = InstanceCollector::default();
    for row in stream.by_ref() {
        collector.add(&profile, &row?);
    }
    let found = collector.finish(&profile);
    output::results(|out| match source.format {
        Format::Table => {
            out.write_all(render::collective_instances::table(&found, profile.coverage.first_time_ns).as_bytes())
        }
        Format::Csv => render::collective_instances::csv(&found, out),
        Format::Json => render::collective_instances::json(&found, out),
    })?;
    if args.by == GroupByArg::Endpoint {
        output::eprint_line("note: --by does not change --view instances: each row is an operation of all its ranks");
    }
    output::notes(&render::collective_instances::notes(&found));
    input::ports_note(&profile, "messages between other ports are missing");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
