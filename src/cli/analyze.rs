//! `ibscope analyze`.

use super::common::arguments::Reading;
use super::common::choices::Color;
use super::common::parse::{bin_ns, positive};
use super::common::{files, input, output};
use crate::pipeline;
use crate::render::text;
use crate::scratch::signals::{self, Stop};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope analyze sink.pcap -o job.ibp
  ibscope analyze node1.pcap node2.pcap --hosts hosts.csv -o job.ibp
  ibscope analyze --no-mpi --no-times - < sink.pcap";

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags that have nothing to do with each other")]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Analyze {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Write the profile to this folder, usually NAME.ibp; replaces an existing profile
    #[arg(short, long, value_name = "PROFILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    /// Width of the timeline bins
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = bin_ns)]
    pub(super) bin: i64,
    /// Keep at most N timeline cells of 48 bytes, and N/4 latency cells; widen the bins beyond that
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CELLS, value_parser = positive)]
    pub(super) max_cells: usize,
    /// Skip the detection of MPI messages: faster, but the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Skip latencies: faster, but `latency` has nothing to show
    #[arg(long)]
    pub(super) no_times: bool,
    /// Skip the ICRC check of the packets: faster
    #[arg(long)]
    pub(super) no_icrc: bool,
    /// Read headers only: no payload in the profile, and no MPI messages, ranks or connection setup
    #[arg(long)]
    pub(super) no_payload: bool,
    /// Add the SHA-256 of each input to the profile, beside its XXH3-128
    #[arg(long)]
    pub(super) sha256: bool,
    /// Write a partial profile for `merge`; a capture without InfiniBand packets is accepted
    #[arg(long, requires = "output", conflicts_with_all = ["from", "to"])]
    pub(super) partial: bool,
    /// Read the clocks of captures from a file that `merge --clocks` wrote
    #[arg(long, value_name = "FILE", requires = "partial")]
    pub(super) clocks: Option<PathBuf>,
    /// When to color tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

/// `ibscope analyze`. A signal ends it with what it has read so far.
pub(super) fn run(args: &Analyze) -> anyhow::Result<ExitCode> {
    run_until(args, Some(signals::stop()?))
}

/// The same; without a stop a signal ends the command itself, and then there is no profile.
pub(super) fn run_until(args: &Analyze, stop: Option<&Stop>) -> anyhow::Result<ExitCode> {
    input::check_captures("analyze", &args.inputs)?;
    let mut files = input::files(&args.inputs, &args.reading);
    files.extend(args.clocks.as_deref());
    let writer = args.output.as_deref().map(|place| pipeline::Writer::create(place, &files)).transpose()?;
    let mut options = input::options_of(&args.inputs, &args.reading, args.inputs.len() > 1 || args.partial)?;
    options.found_clocks = files::clocks(args.clocks.as_deref())?;
    options.keep_parts = args.partial;
    options.bin_ns = Some(args.bin);
    options.max_cells = args.max_cells;
    options.read_mpi = !args.no_mpi;
    options.read_times = !args.no_times;
    options.check_icrc = !args.no_icrc;
    options.read_payload = !args.no_payload;
    options.sha256 = args.sha256;
    options.stop = stop.map(|stop| Arc::clone(&stop.flag));
    let profile = match (input::analyze(&args.inputs, &options), stop) {
        (Err(error), Some(stop)) if matches!(error.downcast_ref(), Some(pipeline::Error::Interrupted)) => {
            output::say(&format!("ibscope: {error}"));
            return Ok(stop.exit_code());
        }
        (profile, _) => profile?,
    };
    let is_cut = profile.inputs.iter().any(|input| input.interrupted);
    if let Some(writer) = writer {
        writer.finish(&profile)?;
    }
    let style = output::style(args.color);
    output::results(|out| out.write_all(text::summary(&profile, &style).as_bytes()))?;
    if let Some(place) = &args.output {
        output::say(&format!("profile written to {}", place.display()));
    }
    input::rankmap_notes(&args.reading, &profile);
    match stop {
        Some(stop) if is_cut => {
            output::say(
                "ibscope: interrupted: the result is of what was read until then; the notes say how far that is",
            );
            Ok(stop.exit_code())
        }
        _ => Ok(input::exit_code(&args.reading, &profile.coverage)),
    }
}
