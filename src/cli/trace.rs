//! `ibscope trace`.

use super::common::arguments::{Reading, Scope};
use super::common::files::{self, Output};
use super::common::input::{self, Needs};
use super::common::output;
use crate::model::Profile;
use crate::pipeline::{self, MessageStream};
use crate::render::trace::{self, Written};
use clap::Args;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope trace sink.pcap -o trace.json
  ibscope trace job.ibp -o rates.json";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Trace {
    /// Captures, for their messages, or one profile (NAME.ibp), for the rates of its timeline
    #[arg(required = true, value_name = "CAPTURE|PROFILE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    #[command(flatten)]
    pub(super) scope: Scope,
    /// Write to FILE [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Write at most N events, four per message; viewers open some millions
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub(super) max_events: u64,
    /// Include transport messages outside MPI messages: one-sided operations, credits, storage
    #[arg(long)]
    pub(super) transport: bool,
}

/// What the trace is made of.
enum Source {
    Messages(Box<MessageStream>),
    Timeline,
}

/// Writes messages, or the rates of a profile, as trace events.
pub(super) fn run(args: &Trace) -> anyhow::Result<ExitCode> {
    input::check(&args.inputs)?;
    // As with other commands, `-` is standard output.
    let place = args.output.as_ref().filter(|place| place.as_os_str() != "-");
    let file = Output::open_private(place, &input::files(&args.inputs, &args.reading))?;
    let (profile, source) = source(args)?;
    let written = match file {
        None => {
            let mut written = Ok(Written::default());
            output::results(|out| {
                written = write(args, &profile, source, out);
                Ok(())
            })?;
            written?
        }
        Some(file) => {
            let place = file.place().to_owned();
            let mut written = Written::default();
            file.finish_with(|file| {
                let mut out = BufWriter::with_capacity(1 << 16, file);
                written = write(args, &profile, source, &mut out)?;
                out.flush().map_err(|error| files::unwritten(&place, &error))
            })?;
            let what = if pipeline::is_profile(&args.inputs[0]) { "values of counters" } else { "messages" };
            output::say(&format!("{} {what} written to {}", written.shown, place.display()));
            written
        }
    };
    notes(args, &profile, written);
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

fn source(args: &Trace) -> anyhow::Result<(Profile, Source)> {
    if args.inputs.iter().any(|place| pipeline::is_profile(place)) {
        return Ok((input::profile(&args.inputs, &args.reading, args.scope, Needs::default())?, Source::Timeline));
    }
    input::check_captures("trace", &args.inputs)?;
    let stream = input::messages_alone(&args.inputs, &args.reading, args.scope, args.transport)?;
    // The profile says what a message's connection is, while the stream goes on.
    Ok((stream.profile().clone(), Source::Messages(Box::new(stream))))
}

fn write(args: &Trace, profile: &Profile, source: Source, out: &mut dyn Write) -> anyhow::Result<Written> {
    let failed = |error: io::Error| match &args.output {
        Some(place) if error.kind() != io::ErrorKind::BrokenPipe => files::unwritten(place, &error),
        _ => error.into(),
    };
    let mut events = trace::Trace::begin(profile, args.max_events, out).map_err(failed)?;
    match source {
        Source::Timeline => events.counters()?.map_err(failed)?,
        Source::Messages(stream) => {
            for row in *stream {
                events.message(&row?).map_err(failed)?;
            }
        }
    }
    events.finish().map_err(failed)
}

fn notes(args: &Trace, profile: &Profile, written: Written) {
    let Written { shown, beyond, without_time } = written;
    if pipeline::is_profile(&args.inputs[0]) {
        output::say(
            "note: a profile keeps no single messages, so the trace has the rate of each sender alone; give the captures for messages",
        );
    }
    if beyond > 0 {
        output::say(&format!(
            "note: {beyond} of {} are left out, to keep within --max-events {}: choose more, or a part of the time with --from and --to",
            shown + beyond + without_time,
            args.max_events
        ));
    }
    if without_time > 0 {
        output::say(&format!("note: {without_time} messages have no time and are left out"));
    }
    input::notes(&args.inputs, &args.reading, profile);
}
