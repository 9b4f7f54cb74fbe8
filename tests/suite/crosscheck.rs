//! Traces of the applications held against the wire: recorded ones by Score-P and eztrace, and constructed ones for what no recorded run has.

mod archives;
mod constructed;
mod eztrace;
mod hostile;
mod lossy;
mod profiles;
mod recorded;
mod unidentified;
mod volume;

use crate::runs::Run;
use ibscope::crosscheck::{self, Crosscheck, CrosscheckError, Options, Singles, Trace, otf2};
use ibscope::model::Profile;
use ibscope::pipeline;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The archive of a recorded run.
fn archive(run: &Run) -> Option<PathBuf> {
    ["trace/traces.otf2", "trace/eztrace_log.otf2"]
        .map(|name| run.folder.join(name))
        .into_iter()
        .find(|path| path.exists())
}

fn read(path: &Path) -> Trace {
    otf2::read(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with a profile alone.
fn with_profile(trace: &Trace, profile: &Profile) -> Result<Crosscheck, CrosscheckError> {
    crosscheck::crosscheck(trace, profile, &Singles::default(), None, &Options::default())
}

/// Compares with captures, of which all messages are known.
fn with_captures(trace: &Trace, captures: &[PathBuf]) -> Crosscheck {
    let options = pipeline::Options { bin_ns: None, ..pipeline::Options::default() };
    let with_rdma = !trace.rma.is_empty();
    let mut stream = pipeline::messages(captures, &options, with_rdma, &|_| {}).expect("messages");
    let mut singles = Singles::new(with_rdma);
    stream.by_ref().for_each(|row| singles.add(&row.expect("row")));
    let profile = stream.profile();
    crosscheck::crosscheck(trace, profile, &singles.sorted(), None, &Options::default()).expect("compared")
}

/// A send that a program noted itself: time, sender, receiver, tag, bytes.
pub(crate) type Noted = (i64, u32, u32, i32, u64);

/// Every send of a recorded run, as its program noted it.
fn noted(run: &Run) -> Vec<Noted> {
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

    /// Sends over `MPI_COMM_WORLD`, of each rank by its threads in turn.
    pub(crate) fn sends(&mut self, sends: &[Noted]) {
        let threads = self.ranks[0]["threads"].as_u64().expect("threads");
        for (index, (time_ns, src, dst, tag, bytes)) in (0_u64..).zip(sends) {
            self.events.push(json!([src, index % threads, "send", time_ns, dst, 0, tag, bytes]));
        }
    }

    /// Writes the archive; its anchor file.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otf2/write.py");
        // The system's own, for which Debian has the OTF2 module.
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
