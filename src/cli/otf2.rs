//! `ibscope otf2`: the messages, one-sided and collective operations of captures, and the rates of
//! ports, as an OTF2 archive.

use super::common::arguments::CaptureArgs;
use super::common::job_choice::JobChoice;
use super::common::{files, input, output};
use super::job_messages::{JobCapture, MoreData, SortedItems, in_time, note_left_out};
use crate::analysis::instances::{InstanceCollector, InstanceList};
use crate::analysis::link_rates::LINK_BIN_NS;
use crate::analysis::port_rates::{PortRates, port_rates};
use crate::analysis::rank_events::{EventPlan, RankMessage, RankMessages};
use crate::crosscheck::otf2::error_output;
use crate::model::{Profile, count_of};
use crate::pipeline::MessageIter;
use crate::render::collective_instances;
use crate::render::otf2::{WRITER, definitions, rates_record, record};
use crate::scratch::Scratch;
use anyhow::{Context as _, bail};
use clap::Args;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The Python of the distribution, whose packages have the OTF2 module; the first `python3` of the
/// search path is often another one.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope otf2 sink.pcap -o trace
  ibscope otf2 sink.pcap --requests -o trace
  ibscope otf2 node*.pcap --hosts hosts.csv --job 2 -o trace";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Otf2Args {
    #[command(flatten)]
    pub(super) captures: CaptureArgs,
    /// Write the archive to this folder, which must not exist; its anchor file is traces.otf2
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Write each message as a pair of requests (`MPI_ISEND` to `MPI_ISEND_COMPLETE`,
    /// `MPI_IRECV_REQUEST` to `MPI_IRECV`) from its first to its last packet, instead of `MPI_SEND` and
    /// `MPI_RECV`. The wire does not show which calls the program made
    #[arg(long)]
    pub(super) requests: bool,
    /// Write the archive with this Python, which needs the module `otf2` (package python3-otf2)
    /// [default: /usr/bin/python3 if it exists, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub(super) python: Option<PathBuf>,
}

/// Runs `ibscope otf2`.
pub(super) fn run(args: &Otf2Args) -> anyhow::Result<ExitCode> {
    let JobCapture { profile, job, stream } = JobCapture::read(
        "otf2",
        "an archive",
        &args.captures,
        MoreData { transport: true, bin_ns: Some(LINK_BIN_NS) },
    )?;
    let rates = port_rates(&profile, job, matches!(args.captures.scope.job, JobChoice::Only(_)))?;
    let place = files::new_folder(&args.output)?;
    let cannot_write = || format!("{}: cannot be written", args.output.display());
    let archive = Scratch::folder(&place).with_context(cannot_write)?;
    let (messages, instances, mut plan) =
        collected(&profile, job, stream, archive.path()).with_context(cannot_write)?;
    plan.with_requests = args.requests;
    let python = args.python.as_deref().unwrap_or_else(|| {
        let system = Path::new(SYSTEM_PYTHON);
        if system.exists() { system } else { Path::new("python3") }
    });
    let writer = ArchiveWriter::start(python, archive.path())?;
    let definitions = definitions(&profile, job, &plan, &rates);
    let events = plan.events(messages).map(|event| event.map(|event| record(&event, args.requests)));
    writer.write(&definitions, events.chain(rates.samples.iter().map(|sample| Ok(rates_record(sample)))))?;
    archive.commit(|archive| fs::rename(archive, &place)).with_context(cannot_write)?;
    output::eprint_line(&format!(
        "{}, {} and {} written to {}",
        count_of(plan.messages, "message"),
        count_of(plan.one_sided, "one-sided operation"),
        count_of(plan.operations, "collective operation"),
        args.output.join("traces.otf2").display()
    ));
    notes(args, &profile, &plan, &instances, &rates);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}

/// The messages and one-sided operations of the job by the time of their first packet, its collective
/// operations, and the plan of all events. Messages wait in files in the folder `scratch`.
fn collected(
    profile: &Profile,
    job: u32,
    stream: MessageIter,
    scratch: &Path,
) -> anyhow::Result<(SortedItems<RankMessage>, InstanceList, EventPlan)> {
    let mut collector = InstanceCollector::default();
    let mut messages = RankMessages::default();
    let sorted = in_time(stream, scratch, |row| {
        collector.add(profile, row);
        messages.message(row).or_else(|| messages.one_sided(profile, row))
    })?;
    let instances = collector.finish(profile);
    let plan = messages.finish(profile, job, &instances.instances);
    Ok((sorted, instances, plan))
}

/// Python, which writes the archive.
struct ArchiveWriter {
    child: Child,
}

impl ArchiveWriter {
    fn start(python: &Path, archive: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(python);
        command.arg("-c").arg(WRITER).arg(archive).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| {
            format!("{}: cannot be run; --python names a Python with the module otf2", python.display())
        })?;
        Ok(Self { child })
    }

    /// Passes the definitions and the records to Python, and waits for its end.
    fn write(
        mut self,
        definitions: &str,
        records: impl Iterator<Item = io::Result<impl AsRef<[u8]>>>,
    ) -> anyhow::Result<()> {
        let stderr = self.child.stderr.take();
        let complaint = std::thread::spawn(move || stderr.map(error_output).unwrap_or_default());
        let written = self.pass(definitions, records);
        let status = self.child.wait().context("Python cannot be waited for")?;
        let complaint = complaint.join().unwrap_or_default();
        if !status.success() {
            let reason = complaint.lines().next_back().unwrap_or("no message").trim();
            bail!("the OTF2 archive cannot be written: {reason}");
        }
        written.context("the OTF2 archive cannot be written")
    }

    fn pass(
        &mut self,
        definitions: &str,
        records: impl Iterator<Item = io::Result<impl AsRef<[u8]>>>,
    ) -> io::Result<()> {
        let Some(stdin) = self.child.stdin.take() else { return Ok(()) };
        let mut out = BufWriter::with_capacity(1 << 16, stdin);
        writeln!(out, "{definitions}")?;
        for record in records {
            out.write_all(record?.as_ref())?;
        }
        out.flush()
    }
}

fn notes(args: &Otf2Args, profile: &Profile, plan: &EventPlan, instances: &InstanceList, rates: &PortRates) {
    note_left_out(plan.left_out);
    if let Some(bound) = rates.lower_bound {
        output::eprint_line(&format!("note: the link rates are lower bounds, because {}", bound.because()));
    }
    if let Some(reason) = instances.unknown_because {
        output::eprint_line(&format!("note: the archive has no collective operations: {reason}"));
    }
    output::notes(&collective_instances::notes(instances));
    input::ports_note(profile, "messages and operations between other ports, and their part of the rates, are missing");
    input::notes(&args.captures.inputs, &args.captures.reading, profile);
}
