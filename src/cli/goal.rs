//! `ibscope goal`: the messages of captures as a GOAL schedule.

use super::common::arguments::CaptureArgs;
use super::common::files::{self, OutputFile};
use super::common::{input, output};
use super::job_messages::{JobCapture, MoreData, in_time, note_left_out, sorted};
use crate::analysis::rank_events::{RankMessage, RankMessages};
use crate::analysis::rank_schedule::{RankOperation, RankOperationKind, RankSchedule};
use crate::model::count_of;
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
    let mut messages = RankMessages::with_collectives();
    let by_time = in_time(stream, scratch.path(), |row| messages.message(row)).with_context(cannot_write)?;
    let mut plan = messages.finish(&profile, job, &[]);
    // GOAL has no communicators: messages of one sender, receiver and tag are one stream.
    let by_time = by_time.map(|message| message.map(|message| RankMessage { communicator: 0, ..message }));
    let mut computed_ns = 0_u64;
    let operations = RankSchedule::new(plan.events(by_time)).inspect(|operation| {
        if let Some(own) = operation.as_ref().ok().filter(|own| own.kind == RankOperationKind::Compute) {
            computed_ns = computed_ns.saturating_add(own.duration_ns());
        }
    });
    let by_rank = |a: &RankOperation, b: &RankOperation| (a.rank, a.number).cmp(&(b.rank, b.number));
    let operations = sorted(operations, scratch.path(), by_rank).with_context(cannot_write)?;
    if let Some(file) = file {
        file.finish_with(|file| {
            let mut out = BufWriter::with_capacity(1 << 16, file);
            let written = goal::write(plan.ranks, operations, &mut out).and_then(|()| out.flush());
            written.map_err(|error: io::Error| files::write_error(place, &error))
        })?;
    }
    output::eprint_line(&format!(
        "{} of {} with {} of computation between them written to {}",
        count_of(plan.messages, "message"),
        count_of(u64::from(plan.ranks), "rank"),
        seconds(computed_ns),
        place.display()
    ));
    note_left_out(plan.left_out);
    input::notes(&args.captures.inputs, &args.captures.reading, &profile);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}

/// A time in seconds with milliseconds.
fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
