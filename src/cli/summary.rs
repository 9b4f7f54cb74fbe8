//! `ibscope summary`.

use super::common::arguments::Source;
use super::common::choices::{Color, Format};
use super::common::input::{self, Needs};
use super::common::output;
use crate::pipeline;
use crate::render::{summary, text};
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope summary job.ibp
  ibscope summary job.ibp --format json";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Summary {
    #[command(flatten)]
    pub(super) source: Source,
    /// When to color the output
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

/// Shows what a person reads in ten seconds: who, how much, how fast, what went wrong.
pub(super) fn run(args: &Summary) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::whole(&source.inputs, &source.reading, "health")?;
    let bin_ns = Some(pipeline::DEFAULT_BIN_NS);
    let needs = Needs { bin_ns, health: true, times: true, sizes: true, ..Needs::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(text::summary(&profile, &output::style(args.color)).as_bytes()),
        Format::Csv => summary::csv(&profile, out),
        Format::Json => summary::json(&profile, out),
    })?;
    input::rankmap_notes(&source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
