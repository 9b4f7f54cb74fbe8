//! `ibscope waits`: the iterations of a job, its stragglers, and the waits between its ranks.

use super::common::arguments::CaptureArgs;
use super::common::choices::Format;
use super::common::{input, output};
use crate::analysis::waits::WaitAnalysis;
use crate::render;
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope waits sink.pcap
  ibscope waits sink.pcap --from 10 --to 20
  ibscope waits node1.pcap node2.pcap --job 1 --format csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct WaitsArgs {
    #[command(flatten)]
    pub(super) captures: CaptureArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// Runs `ibscope waits`.
pub(super) fn run(args: &WaitsArgs) -> anyhow::Result<ExitCode> {
    input::check_captures("waits", &args.captures.inputs)?;
    let mut stream = input::messages_alone(&args.captures.inputs, &args.captures.reading, args.captures.scope, false)?;
    let mut analysis = WaitAnalysis::default();
    for row in stream.by_ref() {
        analysis.push(&row?);
    }
    let profile = stream.profile();
    let jobs = analysis.finish(profile);
    output::results(|out| match args.format {
        Format::Table => out.write_all(render::waits::text(&jobs).as_bytes()),
        Format::Csv => render::waits::csv(&jobs, out),
        Format::Json => render::waits::json(&jobs, out),
    })?;
    input::table_notes(&args.captures.reading, profile);
    input::coverage_note(profile);
    output::notes(&profile.notes);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}
