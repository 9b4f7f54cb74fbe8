//! `ibscope inspect`.

use super::common::arguments::Reading;
use super::common::choices::Format;
use super::common::{input, output};
use crate::pipeline;
use crate::render::packets::{Form, Lines};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope inspect sink.pcap --from 1.5 --to 1.6
  ibscope inspect sink.pcap --format csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Inspect {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    /// Output format; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// `ibscope inspect`.
pub(super) fn run(args: &Inspect) -> anyhow::Result<ExitCode> {
    input::check_captures("inspect", &args.inputs)?;
    let options = input::options(&args.inputs, &args.reading)?;
    let form = Form::from(args.format);
    let mut shown = Ok(Default::default());
    output::results(|out| {
        let mut lines = Lines::begin(form, &options.names, out)?;
        let mut written = Ok(());
        shown = pipeline::inspect(&args.inputs, &options, &mut |packet| {
            written = lines.packet(packet);
            written.is_ok()
        });
        written
    })?;
    let (coverage, notes) = shown?;
    if let Some(note) = input::empty_window_of_packets(&args.reading, &coverage) {
        output::say(note);
    }
    output::notes(&notes);
    Ok(input::exit_code(&args.reading, &coverage))
}
