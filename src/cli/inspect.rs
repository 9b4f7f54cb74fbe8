//! `ibscope inspect`: packets, one per line.

use super::common::arguments::{InputArgs, WidthArgs};
use super::common::choices::Format;
use super::common::{input, output};
use crate::pipeline;
use crate::render::packets::{LineFormat, PacketLines};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope inspect sink.pcap --from 1.5 --to 1.6
  ibscope inspect sink.pcap --format csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct InspectArgs {
    /// Captures, or folders with captures: pcap or pcapng, plain, gzip or zstd; `-` for standard
    /// input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: InputArgs,
    /// Output format; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) width: WidthArgs,
}

/// Runs `ibscope inspect`.
pub(super) fn run(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    input::check_captures("inspect", &args.inputs)?;
    let options = input::options(&args.inputs, &args.reading)?;
    let form = LineFormat::from(args.format);
    let mut shown = Ok(Default::default());
    output::results(|out| {
        let mut lines = PacketLines::begin(form, &options.endpoints.names, args.width.columns(), out)?;
        let mut written = Ok(());
        shown = pipeline::inspect(&args.inputs, &options, &mut |packet, origin_ns| {
            written = lines.packet(packet, origin_ns);
            written.is_ok()
        });
        written.and_then(|()| lines.finish())
    })?;
    let (coverage, notes) = shown?;
    if let Some(note) = input::empty_window_of_packets(&args.reading, &coverage) {
        output::eprint_line(note);
    }
    output::notes(&notes);
    Ok(input::exit_code(&args.reading, &coverage))
}
