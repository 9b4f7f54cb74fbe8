//! `ibscope summary`.

use super::args::{Format, Summary};
use super::input::{self, Needs};
use super::output;
use crate::pipeline;
use crate::report::{summary, text};
use std::process::ExitCode;

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
