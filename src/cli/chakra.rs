//! `ibscope chakra`: the messages or collective operations of captures as Chakra execution traces.

use super::common::arguments::CaptureArgs;
use super::common::{files, input};
use super::job_messages::{JobCapture, MoreData, in_time};
use super::rank_operations::{PlannedMessages, all_messages, by_rank};
use crate::analysis::chakra_trace::{ChakraNode, ChakraNodes, collectives_unknown_because};
use crate::analysis::instances::InstanceCollector;
use crate::analysis::rank_events::{EventPlan, RankMessages};
use crate::model::{ConnectionClass, Profile, count_of};
use crate::pipeline::MessageIter;
use crate::render::chakra;
use crate::scratch::Scratch;
use anyhow::{Context as _, bail};
use clap::Args;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope chakra sink.pcap -o chakra
  ibscope chakra node*.pcap --hosts hosts.csv --job 2 --collectives -o chakra";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct ChakraArgs {
    #[command(flatten)]
    pub(super) captures: CaptureArgs,
    /// Write one trace per rank (trace.N.et) to this folder, which must not exist
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Write a node per collective operation instead of its messages; fails if one is unknown
    #[arg(long)]
    pub(super) collectives: bool,
}

/// Runs `ibscope chakra`.
pub(super) fn run(args: &ChakraArgs) -> anyhow::Result<ExitCode> {
    let JobCapture { profile, job, stream } =
        JobCapture::read("chakra", "a trace", &args.captures, MoreData::default())?;
    let place = files::new_folder(&args.output)?;
    let cannot_write = || format!("{}: cannot be written", args.output.display());
    let folder = Scratch::folder(&place).with_context(cannot_write)?;
    let source = if args.collectives { with_operations } else { all_messages };
    let (messages, mut plan) = source(&profile, job, stream, folder.path())?;
    let (operations, sums) = by_rank(messages, &mut plan, folder.path()).with_context(cannot_write)?;
    let nodes = ChakraNodes::new(operations, sums.origin_ns);
    write_traces(&plan, nodes, folder.path()).with_context(cannot_write)?;
    folder.commit(|folder| fs::rename(folder, &place)).with_context(cannot_write)?;
    // Each rank of a communicator has a node for the operation.
    let more = if args.collectives {
        format!(" and {} of collective operations", count_of(sums.collectives, "node"))
    } else {
        String::new()
    };
    sums.report(&plan, &more, &args.output.join("trace.*.et"));
    input::ports_note(&profile, "messages between other ports are missing, and their time counts as computation");
    input::notes(&args.captures.inputs, &args.captures.reading, &profile);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}

/// The point-to-point messages of MPI, and all collective operations. Messages of NCCL belong to
/// operations.
fn with_operations(
    profile: &Profile,
    job: u32,
    stream: MessageIter,
    scratch: &Path,
) -> anyhow::Result<PlannedMessages> {
    let mut collector = InstanceCollector::default();
    let mut messages = RankMessages::default();
    let by_time = in_time(stream, scratch, |row| {
        collector.add(profile, row);
        let connection = profile.connections.get(row.connection as usize);
        let is_nccl = connection.is_some_and(|connection| connection.class == ConnectionClass::Nccl);
        if is_nccl { None } else { messages.message(row) }
    })?;
    let list = collector.finish(profile);
    if let Some(reason) = collectives_unknown_because(&list, job) {
        bail!(
            "the collective operations are unknown, because {reason}; without --collectives, the traces have the \
             messages instead"
        );
    }
    Ok((by_time, messages.finish(profile, job, &list.instances)))
}

/// Writes a file for each rank into the folder.
fn write_traces(
    plan: &EventPlan,
    nodes: impl Iterator<Item = io::Result<ChakraNode>>,
    folder: &Path,
) -> io::Result<()> {
    let mut nodes = nodes.peekable();
    for rank in 0..plan.ranks {
        let mut out = BufWriter::with_capacity(1 << 16, File::create_new(folder.join(format!("trace.{rank}.et")))?);
        chakra::write(plan, rank, &mut nodes, &mut out)?;
        out.flush()?;
    }
    nodes.next().map_or(Ok(()), |rest| rest.and(Err(io::Error::other("a message has a rank beyond those of its job"))))
}
