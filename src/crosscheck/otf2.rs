//! Reads an OTF2 archive with `otf2-print` of the OTF2 tools, as a child process.
//!
//! The OTF2 library applies mapping tables and clock offsets, reads all versions of the format and
//! merges the locations by time. Its text comes through a pipe and is summed line by line, so only
//! sums of the trace are kept. Printing the text takes longer than reading it.

use super::archive::{Archive, References};
use super::message_sums::MessageSums;
use super::trace::{AppTrace, CollectiveKey, StreamKey, TraceCommunicator, TraceStream, Tracer};
use crate::model::{count_either, count_of, printable};
use ibscope_parsers::tools::otf2_print::{self, Otf2Event, Otf2EventKind, Otf2Message};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Name of the program.
const PROGRAM: &str = "otf2-print";
/// Longest line: the definition of a communicator of millions of ranks.
const MAX_LINE_BYTES: u64 = 1 << 28;
/// Limit of the error output that is kept.
const MAX_COMPLAINT_BYTES: u64 = 1 << 16;

/// A trace, table or profile could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The OTF2 tools are not installed.
    #[error(
        "{PROGRAM}, which reads OTF2 archives, is not installed; install the OTF2 tools (Debian and Ubuntu: apt install otf2-tools)"
    )]
    NoTools,
    /// The program could not be started.
    #[error("{PROGRAM} cannot be run: {0}")]
    Run(io::Error),
    /// The file cannot be opened.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The anchor file does not exist, but other files of the archive do.
    #[error(
        "{}: does not exist, but {} does: the run was killed before its trace was complete, and OTF2 cannot read an incomplete trace; let the program run to \
         its end (MPI_Finalize)", path.display(), beside.display()
    )]
    NoAnchor {
        /// The anchor file.
        path: PathBuf,
        /// Another file or folder of the archive.
        beside: PathBuf,
    },
    /// The program failed.
    #[error("{}: {PROGRAM} cannot read this archive: {complaint}{}", path.display(), advice(complaint))]
    Refused {
        /// The anchor file.
        path: PathBuf,
        /// The error message of the program.
        complaint: String,
    },
    /// A line of the program could not be parsed.
    #[error("{}: cannot parse a line of {PROGRAM}: `{line}`; is it the {PROGRAM} of OTF2 3.0?", path.display())]
    Line {
        /// The anchor file.
        path: PathBuf,
        /// The line.
        line: String,
    },
    /// The archive refers to something that it does not define.
    #[error("{}: {what}; the archive is damaged or incomplete", path.display())]
    Undefined {
        /// The anchor file.
        path: PathBuf,
        /// The missing definition.
        what: String,
    },
    /// A Score-P profile could not be read.
    #[error("{}: this profile cannot be read: {what}; is it the profile.cubex of a run that ended normally?", path.display())]
    Cube {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        what: String,
    },
    /// A table could not be read.
    #[error("{}: line {line}: {what}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Description of the fault in the line.
        what: String,
    },
}

/// Advice on an error message of the program.
fn advice(complaint: &str) -> &'static str {
    if complaint.contains("does not exist") {
        "; a file of the archive is missing: copy the whole folder that contains the .otf2 file"
    } else if complaint.contains("file extension") {
        "; pass the anchor file of a trace, usually traces.otf2"
    } else if complaint.contains("Invalid or inconsistent") || complaint.contains("end of file") {
        "; a file of the archive is truncated or damaged: copy it again, or run the program again"
    } else if complaint.to_ascii_lowercase().contains("version") || complaint.contains("not supported") {
        "; it may need newer OTF2 tools"
    } else {
        ""
    }
}

/// Reads an archive. `path` is its anchor file (`traces.otf2`).
pub fn read(path: &Path) -> Result<AppTrace, TraceError> {
    check_anchor(path)?;
    run_otf2_print(path)
}

/// Parses the output of `otf2-print` for the archive at `path`.
pub fn parse(path: &Path, text: impl Read) -> Result<AppTrace, TraceError> {
    let mut reading = ArchiveParser::Definitions(Box::default());
    lines(path, text, &mut |line| reading.line(path, line))?;
    reading.finish(path)
}

/// Reports a missing anchor file, with a clearer message than that of the OTF2 library.
fn check_anchor(path: &Path) -> Result<(), TraceError> {
    let Err(source) = std::fs::File::open(path) else { return Ok(()) };
    let beside = [path.with_extension("def"), path.with_extension("")].into_iter().find(|beside| beside.exists());
    Err(match beside {
        Some(beside) if source.kind() == io::ErrorKind::NotFound => {
            TraceError::NoAnchor { path: path.to_owned(), beside }
        }
        _ => TraceError::Io { path: path.to_owned(), source },
    })
}

/// Runs the program on the archive and parses its output. Fails if the program fails or prints an
/// error.
fn run_otf2_print(path: &Path) -> Result<AppTrace, TraceError> {
    let mut command = Command::new(PROGRAM);
    // Print everything: creator, definitions, events. A path may begin with a dash.
    command.args(["-A", "--"]).arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => TraceError::NoTools,
        _ => TraceError::Run(error),
    })?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(not_understood(path, "(no output)"));
    };
    let complaints = match thread::Builder::new().spawn(move || complaint(stderr)) {
        Ok(complaints) => complaints,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(TraceError::Run(error));
        }
    };
    let read = parse(path, stdout);
    if read.is_err() {
        // Stop the program: the rest of its output is not needed. If it printed an error, that
        // error is reported below instead of this one.
        let _ = child.kill();
    }
    let status = child.wait().map_err(TraceError::Run)?;
    let complaint = complaints.join().unwrap_or_default();
    // If the mapping file of a location is missing, the program prints an error but exits with
    // status 0. A program that was killed above has no exit code.
    let has_failed = !status.success() && (read.is_ok() || status.code().is_some());
    let failure = complaint.or_else(|| has_failed.then(|| format!("it ended with {status}")));
    match failure {
        Some(complaint) => Err(TraceError::Refused { path: path.to_owned(), complaint }),
        None => read,
    }
}

/// The first error message of the program.
fn complaint(stderr: impl Read) -> Option<String> {
    let text = error_output(stderr);
    let (_, complaint) = text.lines().find_map(|line| line.split_once("error: "))?;
    Some(printable(complaint))
}

/// The start of a program's error output. The rest is read as well, so that the program does not
/// block.
pub(crate) fn error_output(mut stderr: impl Read) -> String {
    let mut text = Vec::new();
    // If the output cannot be read, there is no message to report.
    let _ = stderr.by_ref().take(MAX_COMPLAINT_BYTES).read_to_end(&mut text);
    let _ = io::copy(&mut stderr, &mut io::sink());
    String::from_utf8_lossy(&text).into_owned()
}

fn lines(
    path: &Path,
    stdout: impl Read,
    take: &mut dyn FnMut(&str) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut stdout = BufReader::with_capacity(1 << 18, stdout);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        stdout.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes).map_err(TraceError::Run)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        if bytes.len() as u64 == MAX_LINE_BYTES {
            return Err(not_understood(path, line));
        }
        take(line)?;
    }
}

fn not_understood(path: &Path, line: &str) -> TraceError {
    /// Number of characters of a line that are shown.
    const SHOWN: usize = 120;
    TraceError::Line { path: path.to_owned(), line: printable(&line.chars().take(SHOWN).collect::<String>()) }
}

/// The parser of an archive. All definitions come before the events.
enum ArchiveParser {
    Definitions(Box<Archive>),
    Events(Box<TraceBuilder>),
}

impl ArchiveParser {
    fn line(&mut self, path: &Path, line: &str) -> Result<(), TraceError> {
        match self {
            Self::Definitions(archive) => {
                if line.starts_with("=== Events") {
                    *self = Self::Events(Box::new(TraceBuilder::new(archive, path)?));
                } else if let Some(creator) = otf2_print::creator(line) {
                    archive.creator = printable(creator);
                } else if let Some(definition) =
                    otf2_print::definition(line).map_err(|otf2_print::MalformedLine| not_understood(path, line))?
                {
                    archive.add(definition);
                }
                Ok(())
            }
            Self::Events(adding) => {
                let event = otf2_print::event(line).map_err(|otf2_print::MalformedLine| not_understood(path, line))?;
                event.map_or(Ok(()), |event| adding.event(path, &event))
            }
        }
    }

    fn finish(self, path: &Path) -> Result<AppTrace, TraceError> {
        match self {
            Self::Events(adding) => Ok(adding.finish()),
            Self::Definitions(_) => Err(not_understood(path, "(no events)")),
        }
    }
}

/// Builds a trace from events.
struct TraceBuilder {
    trace: AppTrace,
    references: References,
    ticks_per_second: u64,
    offset: u64,
    /// Number of events of each location.
    event_counts: BTreeMap<u64, u64>,
    flushes: u64,
    /// Number of messages and operations at locations that belong to no rank.
    without_rank: u64,
}

impl TraceBuilder {
    fn new(archive: &Archive, path: &Path) -> Result<Self, TraceError> {
        let undefined = |what: &str| TraceError::Undefined { path: path.to_owned(), what: what.to_owned() };
        let (ticks_per_second, offset) =
            archive.clock.filter(|(ticks, _)| *ticks > 0).ok_or_else(|| undefined("no clock is defined"))?;
        let (ranks, communicators, references) = archive.resolve();
        let trace = AppTrace {
            name: path.display().to_string(),
            tracer: archive.tracer(),
            ranks,
            communicators,
            own: archive.own_messages(),
            ..AppTrace::default()
        };
        Ok(Self {
            trace,
            references,
            ticks_per_second,
            offset,
            event_counts: BTreeMap::new(),
            flushes: 0,
            without_rank: 0,
        })
    }

    /// Nanoseconds since the first timestamp of the archive.
    fn time_ns(&self, ticks: u64) -> i64 {
        let ns = (i128::from(ticks) - i128::from(self.offset)) * 1_000_000_000 / i128::from(self.ticks_per_second);
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    fn event(&mut self, path: &Path, event: &Otf2Event) -> Result<(), TraceError> {
        self.trace.events += 1;
        *self.event_counts.entry(event.location).or_default() += 1;
        let time_ns = self.time_ns(event.time);
        let times = self.trace.times_ns.get_or_insert((time_ns, time_ns));
        *times = (times.0.min(time_ns), times.1.max(time_ns));
        match event.what {
            Otf2EventKind::Other => return Ok(()),
            Otf2EventKind::Flush => {
                self.flushes += 1;
                return Ok(());
            }
            Otf2EventKind::Send(_)
            | Otf2EventKind::Receive(_)
            | Otf2EventKind::CollectiveBegin { .. }
            | Otf2EventKind::Collective { .. }
            | Otf2EventKind::Rma { .. } => {}
        }
        let Some(&rank) = self.references.ranks.get(&event.location) else {
            self.without_rank += 1;
            return Ok(());
        };
        match event.what {
            Otf2EventKind::Send(message) => {
                let (communicator, peer) = self.peer(path, rank, &message)?;
                let tag = Some(message.tag.cast_signed());
                let key = StreamKey { src: rank, dst: peer, communicator, tag };
                self.trace.sends.add(key, stream(message.bytes, time_ns));
            }
            Otf2EventKind::Receive(message) => {
                let (communicator, peer) = self.peer(path, rank, &message)?;
                let tag = Some(message.tag.cast_signed());
                let key = StreamKey { src: peer, dst: rank, communicator, tag };
                self.trace.receives.add(key, stream(message.bytes, time_ns));
            }
            Otf2EventKind::CollectiveBegin { request } => self.trace.calls.begin(event.location, request, time_ns),
            Otf2EventKind::Collective { operation, communicator, root, sent, received, request } => {
                let communicator = self.communicator(path, communicator)?;
                self.trace.calls.end((event.location, request), (operation, communicator, rank), time_ns);
                let root = match root {
                    Some(root) => Some(self.member(path, communicator, rank, root)?),
                    None => None,
                };
                let key = CollectiveKey { operation, communicator, root, rank };
                let sums = self.trace.collectives.entry(key).or_default();
                sums.calls += 1;
                sums.sent = sums.sent.saturating_add(sent);
                sums.received = sums.received.saturating_add(received);
            }
            Otf2EventKind::Rma { window, remote, sent, received } => {
                let communicator = self.references.windows.get(&window).copied();
                let communicator =
                    communicator.ok_or_else(|| undefined(path, format!("window {window} is not defined")))?;
                let remote = self.member(path, communicator, rank, remote)?;
                for (pair, bytes) in [((rank, remote), sent), ((remote, rank), received)] {
                    if bytes > 0 {
                        *self.trace.rma.entry(pair).or_default() += MessageSums { messages: 1, bytes };
                    }
                }
            }
            Otf2EventKind::Flush | Otf2EventKind::Other => {}
        }
        Ok(())
    }

    fn communicator(&self, path: &Path, reference: u64) -> Result<u32, TraceError> {
        let index = self.references.communicators.get(&reference).copied();
        index.ok_or_else(|| undefined(path, format!("communicator {reference} is not defined")))
    }

    /// World rank of a member, or of the peer of a message.
    fn member(&self, path: &Path, communicator: u32, rank: u32, place: u32) -> Result<u32, TraceError> {
        let found = self.trace.communicators.get(communicator as usize);
        let member = found.and_then(|communicator| communicator.peer(rank, place)).filter(|rank| *rank != u32::MAX);
        member.ok_or_else(|| {
            let name = found.map(TraceCommunicator::label).unwrap_or_default();
            undefined(path, format!("communicator {} has no rank {place}", printable(&name)))
        })
    }

    fn peer(&self, path: &Path, rank: u32, message: &Otf2Message) -> Result<(u32, u32), TraceError> {
        let communicator = self.communicator(path, message.communicator)?;
        Ok((communicator, self.member(path, communicator, rank, message.peer)?))
    }

    fn finish(self) -> AppTrace {
        let mut trace = self.trace;
        let short =
            |(location, expected): &(&u64, &u64)| self.event_counts.get(location).copied().unwrap_or(0) < **expected;
        // eztrace writes meaningless numbers of events.
        let missing = self.references.events.iter().filter(short).count();
        if missing > 0 && trace.tracer != Tracer::Eztrace {
            trace.notes.push(format!(
                "{} fewer events than defined: the trace is incomplete",
                count_either(missing as u64, "location of the trace has", "locations of the trace have")
            ));
        }
        if self.flushes > 0 {
            trace.notes.push(format!(
                "the tracer flushed its buffers {} during the run, which delayed the program",
                count_of(self.flushes, "time")
            ));
        }
        if self.without_rank > 0 {
            trace.notes.push(format!(
                "not counted: {} at locations that belong to no rank",
                count_of(self.without_rank, "communication event")
            ));
        }
        if trace.calls.skipped() > 0 {
            trace.notes.push(format!(
                "not compared one by one: {} beyond the limit",
                count_of(trace.calls.skipped(), "call of collective operations")
            ));
        }
        if trace.sends.is_folded() {
            trace.notes.push(
                "the trace uses too many tags to distinguish them: messages are compared by pair of ranks".to_owned(),
            );
        }
        trace
    }
}

fn undefined(path: &Path, what: String) -> TraceError {
    TraceError::Undefined { path: path.to_owned(), what }
}

fn stream(bytes: u64, time_ns: i64) -> TraceStream {
    TraceStream { sums: MessageSums { messages: 1, bytes }, times_ns: Some((time_ns, time_ns)) }
}
