//! `ibscope otf2`: the messages and collective operations of captures as an OTF2 archive.

use super::common::arguments::CaptureArgs;
use super::common::{files, input, output};
use super::job_messages::{JobCapture, SortedItems, in_time, note_left_out};
use crate::analysis::instances::{InstanceCollector, InstanceList};
use crate::analysis::rank_events::{EventPlan, RankMessage, RankMessages};
use crate::crosscheck::otf2::error_output;
use crate::model::{Profile, count_of};
use crate::pipeline::MessageStream;
use crate::render::collective_instances;
use crate::render::otf2::{WRITER, definitions, record};
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
  ibscope otf2 node*.pcap --hosts hosts.csv --job 2 -o trace";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Otf2Args {
    #[command(flatten)]
    pub(super) captures: CaptureArgs,
    /// Write the archive to this folder, which must not exist; its anchor file is traces.otf2
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Write the archive with this Python, which needs the module `otf2` (package python3-otf2)
    /// [default: /usr/bin/python3 if it exists, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub(super) python: Option<PathBuf>,
}

/// Runs `ibscope otf2`.
pub(super) fn run(args: &Otf2Args) -> anyhow::Result<ExitCode> {
    let JobCapture { profile, job, stream } = JobCapture::read("otf2", "an archive", &args.captures)?;
    let place = files::new_folder(&args.output)?;
    let cannot_write = || format!("{}: cannot be written", args.output.display());
    let archive = Scratch::folder(&place).with_context(cannot_write)?;
    let (messages, instances, mut plan) =
        collected(&profile, job, stream, archive.path()).with_context(cannot_write)?;
    let python = args.python.as_deref().unwrap_or_else(|| {
        let system = Path::new(SYSTEM_PYTHON);
        if system.exists() { system } else { Path::new("python3") }
    });
    let writer = ArchiveWriter::start(python, archive.path())?;
    let definitions = definitions(&profile, job, &plan);
    writer.write(&definitions, plan.events(messages).map(|event| event.map(|event| record(&event))))?;
    archive.commit(|archive| fs::rename(archive, &place)).with_context(cannot_write)?;
    let operations = instances.instances.len() as u64 - plan.left_out.operations;
    output::eprint_line(&format!(
        "{} and {} written to {}",
        count_of(plan.messages, "message"),
        count_of(operations, "collective operation"),
        args.output.join("traces.otf2").display()
    ));
    notes(args, &profile, &plan, &instances);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}

/// The messages of the job by the time of their first packet, its operations, and the plan of all
/// events. Messages wait in files in the folder `scratch`.
fn collected(
    profile: &Profile,
    job: u32,
    stream: MessageStream,
    scratch: &Path,
) -> anyhow::Result<(SortedItems<RankMessage>, InstanceList, EventPlan)> {
    let mut collector = InstanceCollector::default();
    let mut messages = RankMessages::default();
    let sorted = in_time(stream, scratch, |row| {
        collector.add(profile, row);
        messages.message(row)
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

fn notes(args: &Otf2Args, profile: &Profile, plan: &EventPlan, instances: &InstanceList) {
    note_left_out(plan.left_out);
    if let Some(reason) = instances.unknown_because {
        output::eprint_line(&format!("note: the archive has no collective operations: {reason}"));
    }
    output::notes(&collective_instances::notes(instances));
    input::notes(&args.captures.inputs, &args.captures.reading, profile);
}
