//! `ibscope goal`: the messages of captures as a GOAL schedule.

use super::common::arguments::CaptureArgs;
use super::common::files::{self, OutputFile};
use super::common::input;
use super::job_messages::{JobCapture, MoreData};
use super::rank_operations::{all_messages, by_rank};
use crate::render::goal;
use crate::scratch::{self, Scratch};
use anyhow::Context as _;
use clap::Args;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope goal sink.pcap -o job.goal
  ibscope goal node*.pcap --hosts hosts.csv --job 2 -o job.goal";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct GoalArgs {
    #[command(flatten)]
    pub(super) captures: CaptureArgs,
    /// Write the schedule to FILE
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
}

/// Runs `ibscope goal`.
pub(super) fn run(args: &GoalArgs) -> anyhow::Result<ExitCode> {
    let place = &args.output;
    let cannot_write = || format!("{}: cannot be written", place.display());
    let JobCapture { profile, job, stream } =
        JobCapture::read("goal", "a schedule", &args.captures, MoreData::default())?;
    let file = OutputFile::open_private(Some(place), &input::files(&args.captures.inputs, &args.captures.reading))?;
    let scratch = Scratch::folder(&scratch::resolve(place).with_context(cannot_write)?).with_context(cannot_write)?;
    let (messages, mut plan) = all_messages(&profile, job, stream, scratch.path()).with_context(cannot_write)?;
    let (operations, sums) = by_rank(messages, &mut plan, scratch.path()).with_context(cannot_write)?;
    if let Some(file) = file {
        file.finish_with(|file| {
            let mut out = BufWriter::with_capacity(1 << 16, file);
            let written = goal::write(plan.ranks, operations, &mut out).and_then(|()| out.flush());
            written.map_err(|error: io::Error| files::write_error(place, &error))
        })?;
    }
    sums.report(&plan, "", place);
    input::ports_note(&profile, "messages between other ports are missing, and their time counts as computation");
    input::notes(&args.captures.inputs, &args.captures.reading, &profile);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}
