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

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags that have nothing to do with each other")]
pub(super) struct Analyze {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Write the profile to this folder, usually NAME.ibp; a profile that is there is replaced
    #[arg(short, long, value_name = "PROFILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    /// Width of the timeline's bins
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = bin_ns)]
    pub(super) bin: i64,
    /// Cells of the timeline that are kept at most, 48 bytes each: where there would be more, its bins are made wider. Of the latencies over time, a quarter as many
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CELLS, value_parser = positive)]
    pub(super) max_cells: usize,
    /// Do not look for MPI messages: faster, and the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Do not measure the times between packets: faster, and `latency` has nothing to show
    #[arg(long)]
    pub(super) no_times: bool,
    /// Do not verify the ICRC of the packets: faster
    #[arg(long)]
    pub(super) no_icrc: bool,
    /// Look at headers alone and keep nothing taken out of payload: no MPI messages, ranks or connection set-up
    #[arg(long)]
    pub(super) no_payload: bool,
    /// Note the SHA-256 of each input in the profile, beside its XXH3-128
    #[arg(long)]
    pub(super) sha256: bool,
    /// Keep in the profile what `merge` needs to join it with others; a capture without InfiniBand is no error then
    #[arg(long, requires = "output", conflicts_with_all = ["from", "to"])]
    pub(super) partial: bool,
    /// Clocks of captures that `merge --clocks` has written
    #[arg(long, value_name = "FILE", requires = "partial")]
    pub(super) clocks: Option<PathBuf>,
    /// When to colour tables
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
