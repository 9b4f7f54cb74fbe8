//! `ibscope report`.

use super::args::Reading;
use super::files::Output;
use super::input::{self, Needs};
use super::output;
use crate::pipeline;
use crate::report::html;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Report {
    /// One profile (NAME.ibp), or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// Write the page to this file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Writes all of a profile as one HTML file.
pub(super) fn run(args: &Report) -> anyhow::Result<ExitCode> {
    let Report { inputs, reading, output } = args;
    input::check(inputs)?;
    input::whole(inputs, reading, "health, sizes and latencies")?;
    let page = Output::open(Some(output), &input::files(inputs, reading))?;
    let needs = Needs {
        no_mpi: false,
        bin_ns: Some(pipeline::DEFAULT_BIN_NS),
        health: true,
        times: true,
        sizes: true,
        digests: true,
    };
    let profile = input::profile(inputs, reading, needs)?;
    let name = inputs[0].file_name().unwrap_or(inputs[0].as_os_str()).to_string_lossy();
    if let Some(page) = page {
        let mut text = Vec::new();
        html::page(&profile, &name, &mut text)?;
        page.finish(&text)?;
    }
    output::say(&format!("report written to {}; any browser opens it", output.display()));
    input::rankmap_notes(reading, &profile);
    Ok(input::exit_code(reading, &profile.coverage))
}
