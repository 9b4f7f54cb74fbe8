//! `ibscope analyze`: captures -> a profile and its summary.

use super::common::arguments::InputArgs;
use super::common::choices::Color;
use super::common::manifest::ManifestFile;
use super::common::parse::{bin_ns, positive};
use super::common::{files, input, output};
use super::diagnose::summary_with_findings;
use crate::model::{ConnectionShare, count_of};
use crate::pipeline::{self, AnalysisMeasures};
use crate::render::text;
use crate::scratch::signals::{self, StopSignal};
use clap::Args;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope analyze sink.pcap -o job.ibp
  ibscope analyze node1.pcap node2.pcap --hosts hosts.csv -o job.ibp
  ibscope analyze --no-mpi captures/";

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent flags")]
#[command(after_long_help = EXAMPLES)]
pub(super) struct AnalyzeArgs {
    /// Captures, or folders with captures: pcap or pcapng, plain, gzip or zstd; `-` for standard
    /// input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Write the profile to this folder, usually NAME.ibp; replaces an existing profile
    #[arg(short, long, value_name = "PROFILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reading: InputArgs,
    /// Width of the timeline bins
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = bin_ns)]
    pub(super) bin: i64,
    /// Keep at most N timeline rows (96 bytes each) and N/4 latency cells; widen the bins if more are
    /// needed
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CELLS, value_parser = positive)]
    pub(super) max_cells: usize,
    /// Skip the detection of MPI messages: faster, but the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Skip latencies: faster, but `latency` shows nothing
    #[arg(long)]
    pub(super) no_times: bool,
    /// Skip the ICRC check of the packets: faster
    #[arg(long)]
    pub(super) no_icrc: bool,
    /// Read headers only: without the payload, the profile has no MPI messages, ranks or connection
    /// setup
    #[arg(long)]
    pub(super) no_payload: bool,
    /// Add the SHA-256 of each input to the profile, in addition to its XXH3-128
    #[arg(long)]
    pub(super) sha256: bool,
    /// Write a partial profile for `merge`; accept a capture without InfiniBand packets
    #[arg(long, requires = "output", conflicts_with_all = ["from", "to"])]
    pub(super) partial: bool,
    /// Analyze share K of N of the connections only, for example 3/16, so that N tasks analyze the same
    /// captures together; `merge` needs all shares
    #[arg(long, value_name = "K/N", requires = "partial")]
    pub(super) share: Option<ConnectionShare>,
    /// Read clock corrections from a file that `merge --clocks` wrote
    #[arg(long, value_name = "FILE", requires = "partial")]
    pub(super) clocks: Option<PathBuf>,
    /// When to color tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

/// Runs `ibscope analyze`. A signal ends the analysis early; the result covers the records so far.
pub(super) fn run(args: &AnalyzeArgs) -> anyhow::Result<ExitCode> {
    run_until(args, Some(signals::stop()?))
}

/// Like [`run`]. Without `stop`, a signal ends the process, and no profile is written.
pub(super) fn run_until(args: &AnalyzeArgs, stop: Option<&StopSignal>) -> anyhow::Result<ExitCode> {
    input::check_captures("analyze", &args.inputs)?;
    let mut files = input::files(&args.inputs, &args.reading);
    files.extend(args.clocks.as_deref());
    let writer = args.output.as_deref().map(|place| pipeline::ProfileWriter::create(place, &files)).transpose()?;
    let mut options = input::options_of(&args.inputs, &args.reading, args.inputs.len() > 1 || args.partial)?;
    options.clocks.from_merge = files::clocks(args.clocks.as_deref())?;
    options.keep_parts = args.partial;
    options.share = args.share;
    options.bin_ns = Some(args.bin);
    options.limits.max_cells = args.max_cells;
    options.measures = AnalysisMeasures {
        mpi: !args.no_mpi,
        times: !args.no_times,
        icrc: !args.no_icrc,
        payload: !args.no_payload,
        ..options.measures
    };
    options.digests.sha256 = args.sha256;
    options.stop = stop.map(|stop| Arc::clone(&stop.flag));
    let mut profile = match (input::analyze(&args.inputs, &options), stop) {
        (Err(error), Some(stop)) if matches!(error.downcast_ref(), Some(pipeline::PipelineError::Interrupted)) => {
            output::eprint_line(&format!("ibscope: {error}"));
            return Ok(stop.exit_code());
        }
        (profile, _) => profile?,
    };
    let known = ManifestFile::read(args.reading.manifest.as_deref())?;
    known.iter().for_each(|manifest| manifest.note_missing_packets(&mut profile));
    let is_cut = profile.inputs.iter().any(|input| input.interrupted);
    let style = output::style(args.color);
    let summary = || match args.share {
        // The profile has no tables.
        Some(share) => format!(
            "share {share}: {} read; `ibscope merge` makes the profile from all shares\n",
            count_of(profile.coverage.records, "record")
        ),
        // A part of a capture shows neither all ports nor all packets.
        None if args.partial => text::summary(&profile, &style),
        None => summary_with_findings(&profile, &style, &args.inputs),
    };
    let summary = match writer {
        // Either takes seconds if there are many connections. If no thread can be started, the summary
        // comes after the profile.
        Some(writer) => thread::scope(|scope| {
            let beside = thread::Builder::new().spawn_scoped(scope, summary);
            writer.finish(&profile)?;
            anyhow::Ok(
                beside.map_or_else(|_| summary(), |beside| beside.join().unwrap_or_else(|panic| resume_unwind(panic))),
            )
        })?,
        None => summary(),
    };
    output::results(|out| out.write_all(summary.as_bytes()))?;
    if let Some(place) = &args.output {
        output::eprint_line(&format!("profile written to {}", place.display()));
    }
    input::table_notes(&args.reading, &profile);
    match stop {
        Some(stop) if is_cut => {
            output::eprint_line(
                "ibscope: interrupted: the result covers only the records read so far; the notes show how many",
            );
            Ok(stop.exit_code())
        }
        _ => Ok(input::exit_code(&args.reading, &profile.coverage)),
    }
}
