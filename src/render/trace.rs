//! Messages as JSON trace events for Perfetto and other viewers.
//!
//! In: messages and the collective operations that they form, or a profile. Out: Chrome's "Trace
//! Event Format", one process per rank. Each message is a slice at its sender, a slice at its
//! receiver, and a flow between the two. Each collective operation is a slice of each rank, from the
//! first to the last packet that the rank sent or received in it. A profile has no individual
//! messages, so it becomes counters: the rate at which each rank sent.
//!
//! The format's times are microseconds, which viewers parse as floating-point numbers. They are
//! written relative to the first packet, with three decimal places, so that nanoseconds survive.
//! Slices of one track must not overlap, so overlapping messages go to separate tracks.

use super::RenderError;
use super::collective_instances::algorithm;
use super::units::{bytes, utc};
use crate::analysis::collective_instances::CollectiveInstance;
use crate::analysis::matrix::Selection;
use crate::analysis::timeline::sender_timeline;
use crate::analysis::{GroupBy, Label};
use crate::model::message_table::times;
use crate::model::{JobRank, MessageRow, Profile};
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The process id of rank 0 of the first job; the other ranks follow in order, job by job. It is
/// large because viewers treat process 0 as idle, and a track whose number equals the process id as
/// the main thread.
const FIRST_PID: u64 = 10_000;
/// The first process id of endpoints, above all ranks that a single job may have.
const FIRST_ENDPOINT_PID: u64 = 1 << 25;

/// Events per message: a slice at each end, and both ends of the flow.
const EVENTS_OF_A_MESSAGE: u64 = 4;

/// Slices of single packets get this duration, because viewers do not draw slices without one.
const SHORTEST_SLICE_NS: i64 = 1;

/// The owner of a process in the trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TraceProcess {
    Rank(JobRank),
    /// An endpoint whose rank is not known.
    Endpoint(Endpoint),
}

/// The slices that a track shows: collective operations, or one end of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LaneContent {
    Collectives,
    Sends,
    Receives,
}

/// A track of slices that do not overlap.
struct TraceLane {
    tid: u64,
    /// End of the last slice, in nanoseconds since the epoch.
    until_ns: i64,
}

/// Counts of written and skipped messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Messages or counter values that were written.
    pub shown: u64,
    /// Messages or counter values beyond the event limit.
    pub over_limit: u64,
    /// Messages without a timestamp.
    pub without_time: u64,
    /// Collective operations that were written.
    pub operations: u64,
    /// Collective operations beyond the event limit.
    pub operations_over_limit: u64,
}

/// Writes a trace as a stream.
pub struct TraceWriter<'a> {
    out: &'a mut dyn Write,
    profile: &'a Profile,
    origin_ns: i64,
    most: u64,
    events: u64,
    counts: TraceCounts,
    /// The process id of rank 0 of each job.
    pids: BTreeMap<u32, u64>,
    first_endpoint_pid: u64,
    processes: BTreeMap<TraceProcess, u64>,
    lanes: BTreeMap<(TraceProcess, LaneContent), Vec<TraceLane>>,
    threads: u64,
}

impl<'a> TraceWriter<'a> {
    /// Writes the start of the document. The writer writes at most `most` events.
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
            counts: TraceCounts::default(),
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
            self.counts.without_time += 1;
            return Ok(());
        };
        if self.events.saturating_add(EVENTS_OF_A_MESSAGE) > self.most {
            self.counts.over_limit += 1;
            return Ok(());
        }
        let last = last.max(first.saturating_add(SHORTEST_SLICE_NS));
        let process = |rank: Option<u32>, endpoint| match row.job.zip(rank) {
            Some((job, rank)) => TraceProcess::Rank(JobRank { job, rank }),
            None => TraceProcess::Endpoint(endpoint),
        };
        let ends = [
            (process(row.src_rank, connection.src), LaneContent::Sends),
            (process(row.dst_rank, connection.dst), LaneContent::Receives),
        ];
        let names = [&ends[0].0, &ends[1].0].map(|process| self.name(process));
        let id = self.counts.shown;
        let identity = row.identity();
        let args = json!({
            "from": names[0], "to": names[1], "bytes": row.raw.length_bytes, "protocol": row.protocol(),
            "verb": row.raw.transfer_verb.lowercase_name(), "tag": identity.map(|identity| identity.tag),
            "context": identity.map(|identity| identity.context), "packets": row.raw.packets,
            "wire_bytes": row.raw.wire_bytes, "psn": row.raw.psn, "complete": row.raw.complete,
        });
        let operation = row.operation().unwrap_or_else(|| row.raw.transfer_verb.lowercase_name());
        let length = row.raw.length_bytes.map_or_else(String::new, |length| format!(" {}", bytes(length)));
        for (end, process) in [("s", &ends[0]), ("f", &ends[1])] {
            let (pid, tid) = self.lane(process, (first, last))?;
            let (ts, duration) = (self.micros(first), micros(last - first));
            let name = Value::String(format!("{operation}{length}"));
            self.event(format_args!(
                "{{\"ph\":\"X\",\"name\":{name},\"cat\":\"message\",\"ts\":{ts},\"dur\":{duration},\"pid\":{pid},\"tid\":{tid},\"args\":{args}}}"
            ))?;
            // The arrow must end inside the receiver's slice.
            let (ts, binds) =
                if end == "f" { (self.micros(last - SHORTEST_SLICE_NS), ",\"bp\":\"e\"") } else { (ts, "") };
            self.event(format_args!(
                "{{\"ph\":\"{end}\",\"id\":{id},\"name\":\"message\",\"cat\":\"message\",\"ts\":{ts},\"pid\":{pid},\"tid\":{tid}{binds}}}"
            ))?;
            self.events += EVENTS_OF_A_MESSAGE / 2;
        }
        self.counts.shown += 1;
        Ok(())
    }

    /// Writes a collective operation: a slice for each rank that the wire shows.
    pub fn operation(&mut self, own: &CollectiveInstance) -> io::Result<()> {
        let slices = own.activity.len() as u64;
        if self.events.saturating_add(slices) > self.most {
            self.counts.operations_over_limit += 1;
            return Ok(());
        }
        let args = json!({
            "communicator": own.communicator, "instance": own.number, "algorithm": algorithm(own),
            "confidence": own.confidence.name(), "ranks": own.ranks, "bytes": own.bytes,
            "duration_ns": own.duration_ns(), "last_rank": own.last_rank, "skew_ns": own.skew_ns,
        });
        let name = Value::String(own.operation.name().to_owned());
        for rank in &own.activity {
            let process = TraceProcess::Rank(JobRank { job: own.job, rank: rank.rank });
            let times_ns = (rank.start_ns, rank.end_ns.max(rank.start_ns.saturating_add(SHORTEST_SLICE_NS)));
            let (pid, tid) = self.lane(&(process, LaneContent::Collectives), times_ns)?;
            let (ts, duration) = (self.micros(times_ns.0), micros(times_ns.1 - times_ns.0));
            self.event(format_args!(
                "{{\"ph\":\"X\",\"name\":{name},\"cat\":\"collective\",\"ts\":{ts},\"dur\":{duration},\"pid\":{pid},\"tid\":{tid},\"args\":{args}}}"
            ))?;
        }
        self.events += slices;
        self.counts.operations += 1;
        Ok(())
    }

    /// Writes the send rate of each rank as counters, from the profile's timeline.
    pub fn counters(&mut self) -> Result<io::Result<()>, RenderError> {
        let profile = self.profile;
        let timeline = sender_timeline(profile, GroupBy::Rank, Selection::All, None)?;
        let by =
            if timeline.bins.iter().any(|bin| bin.src.rank().is_some()) { GroupBy::Rank } else { GroupBy::Endpoint };
        let timeline = sender_timeline(profile, by, Selection::All, None)?;
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
            self.counts.over_limit += 1;
            return Ok(());
        }
        let process = match src {
            Label::Rank(rank, _) => TraceProcess::Rank(*rank),
            Label::Endpoint(endpoint, _) => TraceProcess::Endpoint(*endpoint),
            // The label denotes several endpoints, so it has no process.
            Label::Unknown(..) | Label::NoJob | Label::Group(..) => return Ok(()),
        };
        let pid = self.process(&process)?;
        let ts = self.micros(time_ns.max(self.origin_ns));
        let args = json!({ "wire bytes/s": wire_bytes_per_s });
        self.event(format_args!(
            "{{\"ph\":\"C\",\"name\":\"sent\",\"cat\":\"traffic\",\"ts\":{ts},\"pid\":{pid},\"tid\":0,\"args\":{args}}}"
        ))?;
        self.events += 1;
        self.counts.shown += 1;
        Ok(())
    }

    /// Writes the end of the document.
    pub fn finish(self) -> io::Result<TraceCounts> {
        writeln!(self.out, "\n]}}")?;
        Ok(self.counts)
    }

    fn event(&mut self, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        // The metadata of the process and track is always written before, so a comma is needed.
        write!(self.out, ",\n{event}")
    }

    fn name(&self, process: &TraceProcess) -> String {
        match process {
            TraceProcess::Rank(JobRank { rank, .. }) if self.profile.jobs.len() < 2 => format!("rank {rank}"),
            TraceProcess::Rank(JobRank { job, rank }) => format!("job {job} rank {rank}"),
            TraceProcess::Endpoint(endpoint) => self.profile.name_of(*endpoint),
        }
    }

    /// The id of a process. Writes the name of a new process.
    fn process(&mut self, process: &TraceProcess) -> io::Result<u64> {
        if let Some(pid) = self.processes.get(process) {
            return Ok(*pid);
        }
        let pid = match process {
            TraceProcess::Rank(JobRank { job, rank }) => {
                self.pids.get(job).copied().unwrap_or(FIRST_PID) + u64::from(*rank)
            }
            TraceProcess::Endpoint(_) => self.first_endpoint_pid + self.processes.len() as u64,
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

    /// Process id and track id of a track that is free from `first` to `last`. Adds a track if none
    /// is free.
    fn lane(&mut self, of: &(TraceProcess, LaneContent), (first, last): (i64, i64)) -> io::Result<(u64, u64)> {
        let pid = self.process(&of.0)?;
        let lanes = self.lanes.entry(of.clone()).or_default();
        // Best fit: the free track that ended last, so that fewer tracks are needed.
        let free = lanes.iter_mut().filter(|lane| lane.until_ns < first).max_by_key(|lane| lane.until_ns);
        if let Some(lane) = free {
            lane.until_ns = last;
            return Ok((pid, lane.tid));
        }
        self.threads += 1;
        let tid = self.threads;
        lanes.push(TraceLane { tid, until_ns: last });
        let (what, order) = match of.1 {
            LaneContent::Collectives => ("collectives", 0),
            LaneContent::Sends => ("sends", 1_000_000),
            LaneContent::Receives => ("receives", 2_000_000),
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

/// The process id of rank 0 of each job, and the first id for endpoints.
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

/// Formats nanoseconds as microseconds, exactly.
fn micros(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
}
