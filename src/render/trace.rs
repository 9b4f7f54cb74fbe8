//! Messages as trace events (JSON), which Perfetto and other viewers open: one process per rank, messages as slices, and a flow from
//! each sender's slice to its receiver's. Of a profile, which keeps sums: the rate at which each rank sent, as counters.
//!
//! The format is that of Chrome's "Trace Event Format". Its times are microseconds, which viewers read as floating point numbers, so they are told
//! from the first packet, with three digits of nanoseconds. Slices of one track must not overlap: messages that do go to tracks of their own.

use super::RenderError;
use super::messages::times;
use super::units::{bytes, utc};
use crate::analysis::matrix::Selection;
use crate::analysis::timeline::timeline;
use crate::analysis::{By, Label};
use crate::model::{JobRank, MessageRow, Profile};
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The process of rank 0 of the first job; the others follow in their order, job by job. Viewers show the number beside the name, take 0 for the idle process, and a track of the
/// same number for the main one.
const FIRST_PID: u64 = 10_000;
/// Behind all ranks of one job that there may be.
const FIRST_ENDPOINT_PID: u64 = 1 << 25;

/// Events of a message: a slice at each end, and both ends of the flow.
const EVENTS_OF_A_MESSAGE: u64 = 4;

/// What has a process in the trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Process {
    Rank(JobRank),
    /// Its rank is not known.
    Endpoint(Endpoint),
}

/// Which end of its messages a track shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Sends,
    Receives,
}

/// A track of slices that do not overlap.
struct Lane {
    tid: u64,
    /// Up to where it is taken, in nanoseconds since the epoch.
    until_ns: i64,
}

/// What was written, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Messages, or values of counters.
    pub shown: u64,
    /// Messages beyond the most events that were wanted.
    pub beyond: u64,
    /// Messages of which no packet has a time.
    pub without_time: u64,
}

/// A trace that is written as it comes.
pub struct Trace<'a> {
    out: &'a mut dyn Write,
    profile: &'a Profile,
    origin_ns: i64,
    most: u64,
    events: u64,
    written: Written,
    /// The process of rank 0 of each job.
    pids: BTreeMap<u32, u64>,
    first_endpoint_pid: u64,
    processes: BTreeMap<Process, u64>,
    lanes: BTreeMap<(Process, End), Vec<Lane>>,
    threads: u64,
}

impl<'a> Trace<'a> {
    /// Writes the beginning. No more events than `most` are written.
    pub fn begin(profile: &'a Profile, most: u64, out: &'a mut dyn Write) -> io::Result<Self> {
        let origin_ns = crate::analysis::origin_ns(profile, profile.timeline.first().map(|row| row.time_ns));
        let other = json!({
            "schema": "ibscope trace", "version": 1, "start": utc(origin_ns), "start_ns": origin_ns,
            "time": "microseconds from start",
        });
        let (pids, first_endpoint_pid) = pids(profile);
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":[")?;
        Ok(Self {
            out,
            profile,
            origin_ns,
            most,
            events: 0,
            written: Written::default(),
            pids,
            first_endpoint_pid,
            processes: BTreeMap::new(),
            lanes: BTreeMap::new(),
            threads: 0,
        })
    }

    /// Writes a message: both ends and the flow between them.
    pub fn message(&mut self, row: &MessageRow) -> io::Result<()> {
        let Some(connection) = self.profile.connections.get(row.connection as usize) else { return Ok(()) };
        let (Some(first), Some(last)) = times(row) else {
            self.written.without_time += 1;
            return Ok(());
        };
        if self.events.saturating_add(EVENTS_OF_A_MESSAGE) > self.most {
            self.written.beyond += 1;
            return Ok(());
        }
        let last = last.max(first);
        let process = |rank: Option<u32>, endpoint| match row.job.zip(rank) {
            Some((job, rank)) => Process::Rank(JobRank { job, rank }),
            None => Process::Endpoint(endpoint),
        };
        let ends = [
            (process(row.src_rank, connection.src), End::Sends),
            (process(row.dst_rank, connection.dst), End::Receives),
        ];
        let names = [&ends[0].0, &ends[1].0].map(|process| self.name(process));
        let id = self.written.shown;
        let identity = row.identity();
        let args = json!({
            "from": names[0], "to": names[1], "bytes": row.raw.length_bytes, "protocol": row.protocol(),
            "moved_by": row.raw.moved.name(), "tag": identity.map(|identity| identity.tag),
            "context": identity.map(|identity| identity.context), "packets": row.raw.packets,
            "wire_bytes": row.raw.wire_bytes, "psn": row.raw.psn, "complete": row.raw.complete,
        });
        let operation = row.operation().unwrap_or_else(|| row.raw.moved.name());
        let length = row.raw.length_bytes.map_or_else(String::new, |length| format!(" {}", bytes(length)));
        for (end, process) in [("s", &ends[0]), ("f", &ends[1])] {
            let (pid, tid) = self.lane(process, (first, last))?;
            let (ts, duration) = (self.micros(first), micros(last - first));
            let name = Value::String(format!("{operation}{length}"));
            self.event(format_args!(
                "{{\"ph\":\"X\",\"name\":{name},\"cat\":\"message\",\"ts\":{ts},\"dur\":{duration},\"pid\":{pid},\"tid\":{tid},\"args\":{args}}}"
            ))?;
            // The arrow ends within the slice that it points to.
            let (ts, binds) = if end == "f" { (self.micros((last - 1).max(first)), ",\"bp\":\"e\"") } else { (ts, "") };
            self.event(format_args!(
                "{{\"ph\":\"{end}\",\"id\":{id},\"name\":\"message\",\"cat\":\"message\",\"ts\":{ts},\"pid\":{pid},\"tid\":{tid}{binds}}}"
            ))?;
            self.events += EVENTS_OF_A_MESSAGE / 2;
        }
        self.written.shown += 1;
        Ok(())
    }

    /// Writes how fast each rank sent, from the profile's timeline.
    pub fn counters(&mut self) -> Result<io::Result<()>, RenderError> {
        let profile = self.profile;
        let timeline = timeline(profile, By::Rank, Selection::All, None)?;
        let by = if timeline.bins.iter().any(|bin| bin.src.rank().is_some()) { By::Rank } else { By::Endpoint };
        let timeline = self::timeline(profile, by, Selection::All, None)?;
        let mut sent: BTreeMap<(Label, i64), u64> = BTreeMap::new();
        for bin in timeline.bins {
            *sent.entry((bin.src, bin.time_ns)).or_default() += bin.cell.wire_bytes;
        }
        let width_ns = timeline.bin_ns;
        let mut rows = sent.into_iter().peekable();
        Ok((|| {
            while let Some(((src, time_ns), wire_bytes)) = rows.next() {
                let end_ns = time_ns.saturating_add(width_ns);
                self.counter(&src, time_ns, wire_bytes as f64 * 1e9 / width_ns as f64)?;
                // Bins without traffic are not in the timeline.
                if rows.peek().is_none_or(|((next, next_ns), _)| *next != src || *next_ns != end_ns) {
                    self.counter(&src, end_ns, 0.0)?;
                }
            }
            Ok(())
        })())
    }

    fn counter(&mut self, src: &Label, time_ns: i64, wire_bytes_per_s: f64) -> io::Result<()> {
        if self.events >= self.most {
            self.written.beyond += 1;
            return Ok(());
        }
        let process = match src {
            Label::Rank(rank, _) => Process::Rank(*rank),
            Label::Endpoint(endpoint, _) => Process::Endpoint(*endpoint),
            // Several endpoints, which nothing tells apart here.
            Label::Unknown(..) | Label::NoJob => return Ok(()),
        };
        let pid = self.process(&process)?;
        let ts = self.micros(time_ns.max(self.origin_ns));
        let args = json!({ "wire bytes/s": wire_bytes_per_s });
        self.event(format_args!(
            "{{\"ph\":\"C\",\"name\":\"sent\",\"cat\":\"traffic\",\"ts\":{ts},\"pid\":{pid},\"tid\":0,\"args\":{args}}}"
        ))?;
        self.events += 1;
        self.written.shown += 1;
        Ok(())
    }

    /// Writes the end.
    pub fn finish(self) -> io::Result<Written> {
        writeln!(self.out, "\n]}}")?;
        Ok(self.written)
    }

    fn event(&mut self, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        // The names of its process and track stand before it.
        write!(self.out, ",\n{event}")
    }

    fn name(&self, process: &Process) -> String {
        match process {
            Process::Rank(JobRank { rank, .. }) if self.profile.jobs.len() < 2 => format!("rank {rank}"),
            Process::Rank(JobRank { job, rank }) => format!("job {job} rank {rank}"),
            Process::Endpoint(endpoint) => {
                self.profile.names.get(endpoint).cloned().unwrap_or_else(|| endpoint.to_string())
            }
        }
    }

    /// The number of a process. Its name is written when it is met.
    fn process(&mut self, process: &Process) -> io::Result<u64> {
        if let Some(pid) = self.processes.get(process) {
            return Ok(*pid);
        }
        let pid = match process {
            Process::Rank(JobRank { job, rank }) => self.pids.get(job).copied().unwrap_or(FIRST_PID) + u64::from(*rank),
            Process::Endpoint(_) => self.first_endpoint_pid + self.processes.len() as u64,
        };
        let is_first = self.processes.is_empty();
        self.processes.insert(process.clone(), pid);
        let args = json!({ "name": self.name(process) });
        let comma = if is_first { "" } else { "," };
        write!(self.out, "{comma}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{args}}}")?;
        write!(
            self.out,
            ",\n{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{pid},\"args\":{{\"sort_index\":{pid}}}}}"
        )?;
        Ok(pid)
    }

    /// A track of the process that is free from the first to the last of these moments.
    fn lane(&mut self, of: &(Process, End), (first, last): (i64, i64)) -> io::Result<(u64, u64)> {
        let pid = self.process(&of.0)?;
        let lanes = self.lanes.entry(of.clone()).or_default();
        // The fullest of those that are free, so that few are needed.
        let free = lanes.iter_mut().filter(|lane| lane.until_ns < first).max_by_key(|lane| lane.until_ns);
        if let Some(lane) = free {
            lane.until_ns = last;
            return Ok((pid, lane.tid));
        }
        self.threads += 1;
        let tid = self.threads;
        lanes.push(Lane { tid, until_ns: last });
        let (what, order) = match of.1 {
            End::Sends => ("sends", 0),
            End::Receives => ("receives", 1_000_000),
        };
        let count = lanes.len();
        let args = json!({ "name": if count == 1 { what.to_owned() } else { format!("{what} {count}") } });
        write!(
            self.out,
            ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\"args\":{args}}},\n\
             {{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"sort_index\":{}}}}}",
            order + count
        )?;
        Ok((pid, tid))
    }

    fn micros(&self, time_ns: i64) -> String {
        micros(time_ns.saturating_sub(self.origin_ns))
    }
}

/// The process of rank 0 of each job, and the first one behind all ranks.
fn pids(profile: &Profile) -> (BTreeMap<u32, u64>, u64) {
    let mut largest: BTreeMap<u32, u32> = BTreeMap::new();
    for row in &profile.ranks {
        let largest = largest.entry(row.job).or_default();
        *largest = row.rank.max(*largest);
    }
    let mut next = FIRST_PID;
    let mut pids = BTreeMap::new();
    for (job, largest) in largest {
        pids.insert(job, next);
        next += u64::from(largest) + 1;
    }
    (pids, next.max(FIRST_ENDPOINT_PID))
}

/// Nanoseconds as microseconds, exactly.
fn micros(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
}
