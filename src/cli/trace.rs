//! `ibscope trace`: messages and collective operations, or the rates of a profile, as trace events
//! for a viewer.

use super::common::arguments::{InputArgs, ScopeArgs};
use super::common::files::{self, OutputFile};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::job_messages::note_uncertain;
use crate::analysis::collective_instances::UncertainOperations;
use crate::analysis::instances::{InstanceCollector, InstanceList};
use crate::model::{Profile, count_either, count_of};
use crate::pipeline::{self, MessageIter};
use crate::render::collective_instances;
use crate::render::trace::{self, TraceCounts};
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
pub(super) struct TraceArgs {
    /// Captures, to write their messages and collective operations; or one profile (NAME.ibp), to
    /// write the rates of its timeline
    #[arg(required = true, value_name = "CAPTURE|PROFILE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: InputArgs,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    /// Write to FILE [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Write at most N events, four per message, then one per collective operation and rank; most
    /// viewers can open only a few million
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub(super) max_events: u64,
    /// Include transport messages that belong to no MPI message: one-sided operations, credits,
    /// storage
    #[arg(long)]
    pub(super) transport: bool,
}

/// The source of the trace events.
enum EventSource {
    Messages(Box<MessageIter>),
    Timeline,
}

/// The collective operations, and counts of those that the trace does not have.
type TracedInstances = (InstanceList, UncertainOperations);

/// Runs `ibscope trace`.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    input::check(&args.inputs)?;
    // `-` is standard output, as in other commands.
    let place = args.output.as_ref().filter(|place| place.as_os_str() != "-");
    let file = OutputFile::open_private(place, &input::files(&args.inputs, &args.reading))?;
    let (profile, source) = source(args)?;
    let (written, (instances, uncertain)) = match file {
        None => {
            let mut written = Ok(Default::default());
            output::results(|out| {
                written = write(args, &profile, source, out);
                Ok(())
            })?;
            written?
        }
        Some(file) => {
            let place = file.place().to_owned();
            let mut written = <(TraceCounts, TracedInstances)>::default();
            file.finish_with(|file| {
                let mut out = BufWriter::with_capacity(1 << 16, file);
                written = write(args, &profile, source, &mut out)?;
                out.flush().map_err(|error| files::write_error(&place, &error))
            })?;
            let TraceCounts { shown, operations, .. } = written.0;
            let what = if pipeline::is_profile(&args.inputs[0]) {
                format!("{shown} counter values")
            } else {
                format!("{} and {}", count_of(shown, "message"), count_of(operations, "collective operation"))
            };
            output::eprint_line(&format!("{what} written to {}", place.display()));
            written
        }
    };
    notes(args, &profile, written, (&instances, uncertain));
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

fn source(args: &TraceArgs) -> anyhow::Result<(Profile, EventSource)> {
    if args.inputs.iter().any(|place| pipeline::is_profile(place)) {
        return Ok((
            input::profile(&args.inputs, &args.reading, args.scope, AnalysisNeeds::default())?,
            EventSource::Timeline,
        ));
    }
    input::check_captures("trace", &args.inputs)?;
    let stream = input::messages_alone(&args.inputs, &args.reading, args.scope, args.transport)?;
    // The profile resolves the connection of a message while the stream is read.
    Ok((stream.profile().clone(), EventSource::Messages(Box::new(stream))))
}

fn write(
    args: &TraceArgs,
    profile: &Profile,
    source: EventSource,
    out: &mut dyn Write,
) -> anyhow::Result<(TraceCounts, TracedInstances)> {
    let failed = |error: io::Error| match &args.output {
        Some(place) if error.kind() != io::ErrorKind::BrokenPipe => files::write_error(place, &error),
        _ => error.into(),
    };
    let (mut instances, mut uncertain) = TracedInstances::default();
    let mut events = trace::TraceWriter::begin(profile, args.max_events, out).map_err(failed)?;
    match source {
        EventSource::Timeline => events.counters()?.map_err(failed)?,
        EventSource::Messages(stream) => {
            let mut collector = InstanceCollector::default();
            for row in *stream {
                let row = row?;
                events.message(&row).map_err(failed)?;
                collector.add(profile, &row);
            }
            instances = collector.finish(profile);
            for own in instances.instances.iter().filter(|own| uncertain.keep(own)) {
                events.operation(own).map_err(failed)?;
            }
        }
    }
    Ok((events.finish().map_err(failed)?, (instances, uncertain)))
}

fn notes(
    args: &TraceArgs,
    profile: &Profile,
    written: TraceCounts,
    (instances, uncertain): (&InstanceList, UncertainOperations),
) {
    let TraceCounts { shown, over_limit: beyond, without_time, operations, operations_over_limit } = written;
    if pipeline::is_profile(&args.inputs[0]) {
        output::eprint_line(
            "note: a profile has no individual messages, so the trace has only the rate of each sender; give the captures for messages and collective operations",
        );
    }
    let is_empty = shown + beyond + without_time == 0;
    if is_empty && !args.transport && !pipeline::is_profile(&args.inputs[0]) {
        output::eprint_line(
            "note: the captures hold no MPI messages, so the trace is empty; --transport shows transport messages",
        );
    }
    if beyond > 0 {
        output::eprint_line(&format!(
            "note: {beyond} of {} are left out by --max-events {}; raise the limit, or select a time window with --from and --to",
            shown + beyond + without_time,
            args.max_events
        ));
    }
    if operations_over_limit > 0 {
        output::eprint_line(&format!(
            "note: {operations_over_limit} of {} are left out by --max-events {}, because messages have priority",
            count_of(operations + operations_over_limit, "collective operation"),
            args.max_events
        ));
    }
    if let Some(reason) = instances.unknown_because {
        output::eprint_line(&format!("note: the trace has no collective operations: {reason}"));
    }
    note_uncertain(uncertain);
    output::notes(&collective_instances::notes(instances));
    if without_time > 0 {
        let messages = count_either(
            without_time,
            "message has no timestamp and is left out",
            "messages have no timestamp and are left out",
        );
        output::eprint_line(&format!("note: {messages}"));
    }
    let is_profile = pipeline::is_profile(&args.inputs[0]);
    let missing = if is_profile { "traffic between other ports is" } else { "messages between other ports are" };
    input::ports_note(profile, &format!("{missing} missing"));
    input::notes(&args.inputs, &args.reading, profile);
}
