//! `ibscope collectives`: messages and bytes of each collective operation, or each operation by
//! itself.

use super::common::arguments::SourceArgs;
use super::common::choices::{Format, GroupByArg};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::nccl_channels::{self, NcclLeftOut};
use crate::analysis::collective_instances::{CollectiveCollector, MAX_MESSAGES, clock_bound_ns};
use crate::analysis::collectives::collectives;
use crate::analysis::nccl_collectives::{MAX_TRANSFERS, NcclCollector};
use crate::model::{ConnectionClass, count_of};
use crate::render;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope collectives job.ibp
  ibscope collectives job.ibp --by endpoint --format csv
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
    /// Show the sums of each operation, or what the messages show one by one (captures only)
    #[arg(long, value_enum, default_value_t = CollectivesView::Sums)]
    pub(super) view: CollectivesView,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CollectivesView {
    /// Messages and bytes of each operation
    Sums,
    /// A row for each operation: its algorithm, times, and the rank that entered last
    Instances,
    /// How NCCL divides its data over channels and over ports
    Channels,
}

/// Runs `ibscope collectives`.
pub(super) fn run(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    match args.view {
        CollectivesView::Sums => {}
        CollectivesView::Instances => return instances(args),
        CollectivesView::Channels => return nccl_channels::run(source, nccl_left_out),
    }
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

/// Runs `ibscope collectives --view instances`.
fn instances(args: &CollectivesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check_captures("collectives --view instances", &source.inputs)?;
    let mut stream = input::messages_alone(&source.inputs, &source.reading, source.scope, false)?;
    let profile = stream.profile().clone();
    let mut collector = CollectiveCollector::default();
    let mut nccl_collector = NcclCollector::default();
    for row in stream.by_ref() {
        let row = row?;
        let connection = profile.connections.get(row.connection as usize);
        if connection.is_some_and(|connection| connection.class == ConnectionClass::Nccl) {
            nccl_collector.add(&row);
        } else {
            collector.add(&row);
        }
    }
    let mut found = collector.finish(&profile);
    let bound_ns = clock_bound_ns(&profile);
    let of_nccl = nccl_collector.finish(bound_ns);
    found.instances.extend(of_nccl.instances.iter().map(|own| own.instance(bound_ns)));
    found.instances.sort_by_key(|own| (own.job, own.start_ns));
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
    left_out(found.without_ranks, "collective message", "their ranks are unknown");
    nccl_left_out(NcclLeftOut { left_out: of_nccl.left_out, beyond_bound: of_nccl.beyond_bound });
    left_out(
        found.beyond_bound,
        "collective message",
        &format!("more than {MAX_MESSAGES} collective messages; {NARROWER}"),
    );
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Advice where there are too many messages.
const NARROWER: &str = "choose a window with --from and --to";

/// Notes messages of NCCL that belong to no row.
fn nccl_left_out(NcclLeftOut { left_out: incomplete, beyond_bound }: NcclLeftOut) {
    left_out(incomplete, "NCCL message", "the capture does not have all their packets, or not their receive");
    left_out(beyond_bound, "NCCL message", &format!("more than {MAX_TRANSFERS} NCCL messages; {NARROWER}"));
}

/// Notes messages that belong to no row.
fn left_out(count: u64, noun: &str, why: &str) {
    if count > 0 {
        output::eprint_line(&format!("note: {} left out: {why}", count_of(count, noun)));
    }
}
