//! Traces of applications compared with the wire: recorded traces by Score-P and eztrace, and
//! constructed ones for cases without a recorded run.

mod archives;
mod constructed;
mod eztrace;
mod hostile;
mod lossy;
mod operations;
mod profiles;
mod recorded;
mod unidentified;
mod volume;

use crate::runs::RecordedRun;
use ibscope::analysis::instances::InstanceCollector;
use ibscope::crosscheck::{self, AppTrace, Crosscheck, CrosscheckError, CrosscheckOptions, SingleMessages, otf2};
use ibscope::model::Profile;
use ibscope::pipeline;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The trace archive of a recorded run.
fn archive(run: &RecordedRun) -> Option<PathBuf> {
    ["trace/traces.otf2", "trace/eztrace_log.otf2"]
        .map(|name| run.folder.join(name))
        .into_iter()
        .find(|path| path.exists())
}

pub(crate) fn read(path: &Path) -> AppTrace {
    otf2::read(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with a profile only.
fn with_profile(trace: &AppTrace, profile: &Profile) -> Result<Crosscheck, CrosscheckError> {
    crosscheck::crosscheck(trace, profile, &SingleMessages::default(), None, &CrosscheckOptions::default())
}

/// Compares with captures, which show every single message.
pub(crate) fn with_captures(trace: &AppTrace, captures: &[PathBuf]) -> Crosscheck {
    let options = pipeline::AnalysisOptions { bin_ns: None, ..pipeline::AnalysisOptions::default() };
    let with_rdma = !trace.rma.is_empty();
    let mut stream = pipeline::messages(captures, &options, with_rdma, &|_| {}).expect("messages");
    let mut singles = SingleMessages::new(with_rdma);
    let profile = stream.profile().clone();
    let mut collector = InstanceCollector::default();
    stream.by_ref().map(|row| row.expect("row")).for_each(|row| {
        singles.add(&row);
        collector.add(&profile, &row);
    });
    let operations = collector.finish(&profile).wire_operations().expect("operations");
    let singles = singles.sorted().with_operations(operations);
    crosscheck::crosscheck(trace, &profile, &singles, None, &CrosscheckOptions::default()).expect("compared")
}

/// A send that the program itself recorded: time, sender, receiver, tag, bytes.
pub(crate) type RecordedSend = (i64, u32, u32, i32, u64);

/// Every send of a recorded run, as the program recorded it.
fn noted_sends(run: &RecordedRun) -> Vec<RecordedSend> {
    let mut sends = Vec::new();
    for rank in run.node_of_rank().keys() {
        let text = crate::runs::decompressed(&run.folder.join(format!("sends/sends.{rank}.csv.zst")));
        for line in String::from_utf8(text).expect("text").lines().skip(1) {
            let fields: Vec<i64> = line.split(',').take(5).map(|field| field.parse().expect("number")).collect();
            let [time, src, dst, tag, bytes] = fields[..] else { panic!("{line}") };
            sends.push((time, src as u32, dst as u32, tag as i32, bytes as u64));
        }
    }
    sends
}

/// A description of an archive for `tests/otf2/write.py`.
pub(crate) struct Description {
    pub(crate) ranks: Vec<Value>,
    pub(crate) communicators: Vec<Value>,
    pub(crate) creator: &'static str,
    events: Vec<Value>,
}

impl Description {
    /// Ranks with this many threads, each on a node of its own, and `MPI_COMM_WORLD`.
    pub(crate) fn new(ranks: u32, threads: u32) -> Self {
        let rank = |rank: u32| json!({ "host": format!("node{}", rank + 1), "threads": threads });
        let world = json!({ "name": "MPI_COMM_WORLD", "members": (0..ranks).collect::<Vec<u32>>() });
        Self { ranks: (0..ranks).map(rank).collect(), communicators: vec![world], creator: "", events: Vec::new() }
    }

    /// Adds sends over `MPI_COMM_WORLD`; the threads of each rank send in turn.
    pub(crate) fn sends(&mut self, sends: &[RecordedSend]) {
        let threads = self.ranks[0]["threads"].as_u64().expect("threads");
        for (index, (time_ns, src, dst, tag, bytes)) in (0_u64..).zip(sends) {
            self.events.push(json!([src, index % threads, "send", time_ns, dst, 0, tag, bytes]));
        }
    }

    /// Writes the archive; returns its anchor file.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otf2/write.py");
        // The system's Python, for which Debian has the OTF2 module.
        let mut python = Command::new("/usr/bin/python3");
        let place = folder.join("archive");
        python.arg(script).arg(&place).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = python.spawn().expect("python3; `make deps` installs it");
        let Self { ranks, communicators, creator, events } = self;
        let text =
            json!({ "ranks": ranks, "communicators": communicators, "creator": creator, "events": events }).to_string();
        child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "`make deps` installs python3-otf2: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        place.join("traces.otf2")
    }
}
