//! Reading an OTF2 archive by the `otf2-print` of the OTF2 tools, as a child process.
//!
//! The library of OTF2 applies mapping tables and clock offsets, knows all versions of the format and merges the locations by time; its text comes
//! through a pipe and is added up line by line, so nothing of the trace is kept but sums. Its own speed is the limit: reading its text takes less
//! time than it takes to print it.

use super::archive::{Archive, References};
use super::message_sums::Sums;
use super::trace::{CollectiveKey, Communicator, Stream, StreamKey, Trace, Tracer};
use crate::model::printable;
use ibscope_parsers::tools::otf2_print::{self, Event, Message, What};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// The program.
const PROGRAM: &str = "otf2-print";
/// Longest line: the definition of a communicator of millions of ranks.
const MAX_LINE_BYTES: u64 = 1 << 28;
/// What is kept of what the program says of errors.
const MAX_COMPLAINT_BYTES: u64 = 1 << 16;

/// A trace that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The OTF2 tools are missing.
    #[error(
        "{PROGRAM} is not there, which reads OTF2 archives; install the OTF2 tools (Debian and Ubuntu: apt install otf2-tools)"
    )]
    NoTools,
    /// It could not be run.
    #[error("{PROGRAM} cannot be run: {0}")]
    Run(io::Error),
    /// The file is not there.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The anchor file is not there, but other files of an archive are.
    #[error(
        "{}: is not there, though {} is: the run was killed before its trace was complete, and OTF2 cannot read what there is of it; run it again to \
         its end (MPI_Finalize)", path.display(), beside.display()
    )]
    NoAnchor {
        /// The anchor file.
        path: PathBuf,
        /// What else of it there is.
        beside: PathBuf,
    },
    /// The program refused.
    #[error("{}: {PROGRAM} cannot read this archive: {complaint}{}", path.display(), advice(complaint))]
    Refused {
        /// The anchor file.
        path: PathBuf,
        /// What it said.
        complaint: String,
    },
    /// Its text could not be read.
    #[error("{}: a line of {PROGRAM} was not understood: `{line}`; is it of OTF2 3.0?", path.display())]
    Line {
        /// The anchor file.
        path: PathBuf,
        /// The line.
        line: String,
    },
    /// The archive refers to what it does not define.
    #[error("{}: {what}; the archive is damaged or incomplete", path.display())]
    Undefined {
        /// The anchor file.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// A profile of Score-P could not be read.
    #[error("{}: this profile cannot be read: {what}; is it the profile.cubex of a run that ended by itself?", path.display())]
    Cube {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A table could not be read.
    #[error("{}: line {line}: {what}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// What may help, by what the program complained of.
fn advice(complaint: &str) -> &'static str {
    if complaint.contains("does not exist") {
        "; a file of the archive is missing: copy the whole folder, with everything beside the .otf2 file"
    } else if complaint.contains("Invalid or inconsistent") || complaint.contains("end of file") {
        "; a file of it is cut off or damaged: copy it again, or run the program again"
    } else if complaint.to_ascii_lowercase().contains("version") || complaint.contains("not supported") {
        "; it may need newer OTF2 tools"
    } else {
        ""
    }
}

/// Reads an archive. `path` is its anchor file (`traces.otf2`).
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    look(path)?;
    print(path)
}

/// Reads what `otf2-print` says of the archive at this path.
pub fn parse(path: &Path, text: impl Read) -> Result<Trace, TraceError> {
    let mut reading = Reading::Definitions(Box::default());
    lines(path, text, &mut |line| reading.line(path, line))?;
    reading.finish(path)
}

/// Says what is missing before the OTF2 library does in its own words.
fn look(path: &Path) -> Result<(), TraceError> {
    let Err(source) = std::fs::File::open(path) else { return Ok(()) };
    let beside = [path.with_extension("def"), path.with_extension("")].into_iter().find(|beside| beside.exists());
    Err(match beside {
        Some(beside) if source.kind() == io::ErrorKind::NotFound => {
            TraceError::NoAnchor { path: path.to_owned(), beside }
        }
        _ => TraceError::Io { path: path.to_owned(), source },
    })
}

/// Has the program print the archive and reads that. Fails where the program fails or complains.
fn print(path: &Path) -> Result<Trace, TraceError> {
    let mut command = Command::new(PROGRAM);
    // Everything: what wrote it, definitions, events. A path may begin with a dash.
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
        // It has been read enough of. An error of its own, if there is one, goes first below.
        let _ = child.kill();
    }
    let status = child.wait().map_err(TraceError::Run)?;
    let complaint = complaints.join().unwrap_or_default();
    // A file with the mapping of a location may be missing, and the program goes on without it and ends well. One that was killed here has no code.
    let has_failed = !status.success() && (read.is_ok() || status.code().is_some());
    let refused = complaint.or_else(|| has_failed.then(|| format!("it ended with {status}")));
    match refused {
        Some(complaint) => Err(TraceError::Refused { path: path.to_owned(), complaint }),
        None => read,
    }
}

/// The first error among what the program says; the rest of its text is read, so that it does not wait.
fn complaint(mut stderr: impl Read) -> Option<String> {
    let mut text = Vec::new();
    // What cannot be read says nothing.
    let _ = stderr.by_ref().take(MAX_COMPLAINT_BYTES).read_to_end(&mut text);
    let _ = io::copy(&mut stderr, &mut io::sink());
    let text = String::from_utf8_lossy(&text);
    let (_, complaint) = text.lines().find_map(|line| line.split_once("error: "))?;
    Some(printable(complaint))
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
    /// Characters of a line that are shown.
    const SHOWN: usize = 120;
    TraceError::Line { path: path.to_owned(), line: printable(&line.chars().take(SHOWN).collect::<String>()) }
}

/// An archive in two parts: the definitions come first.
enum Reading {
    Definitions(Box<Archive>),
    Events(Box<Adding>),
}

impl Reading {
    fn line(&mut self, path: &Path, line: &str) -> Result<(), TraceError> {
        match self {
            Self::Definitions(archive) => {
                if line.starts_with("=== Events") {
                    *self = Self::Events(Box::new(Adding::new(archive, path)?));
                } else if let Some(creator) = otf2_print::creator(line) {
                    archive.creator = printable(creator);
                } else if let Some(definition) =
                    otf2_print::definition(line).map_err(|otf2_print::Malformed| not_understood(path, line))?
                {
                    archive.add(definition);
                }
                Ok(())
            }
            Self::Events(adding) => {
                let event = otf2_print::event(line).map_err(|otf2_print::Malformed| not_understood(path, line))?;
                event.map_or(Ok(()), |event| adding.event(path, &event))
            }
        }
    }

    fn finish(self, path: &Path) -> Result<Trace, TraceError> {
        match self {
            Self::Events(adding) => Ok(adding.finish()),
            Self::Definitions(_) => Err(not_understood(path, "(no events)")),
        }
    }
}

/// Events being added up.
struct Adding {
    trace: Trace,
    references: References,
    ticks_per_second: u64,
    offset: u64,
    /// Events of each location.
    counted: BTreeMap<u64, u64>,
    flushes: u64,
    /// Messages and operations of locations that belong to no rank.
    without_rank: u64,
}

impl Adding {
    fn new(archive: &Archive, path: &Path) -> Result<Self, TraceError> {
        let undefined = |what: &str| TraceError::Undefined { path: path.to_owned(), what: what.to_owned() };
        let (ticks_per_second, offset) =
            archive.clock.filter(|(ticks, _)| *ticks > 0).ok_or_else(|| undefined("it defines no clock"))?;
        let (ranks, communicators, references) = archive.resolve();
        let trace = Trace {
            name: path.display().to_string(),
            tracer: archive.tracer(),
            ranks,
            communicators,
            own: archive.own_messages(),
            ..Trace::default()
        };
        Ok(Self { trace, references, ticks_per_second, offset, counted: BTreeMap::new(), flushes: 0, without_rank: 0 })
    }

    /// Nanoseconds from the archive's first moment.
    fn time_ns(&self, ticks: u64) -> i64 {
        let ns = (i128::from(ticks) - i128::from(self.offset)) * 1_000_000_000 / i128::from(self.ticks_per_second);
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    fn event(&mut self, path: &Path, event: &Event) -> Result<(), TraceError> {
        self.trace.events += 1;
        *self.counted.entry(event.location).or_default() += 1;
        let time_ns = self.time_ns(event.time);
        let times = self.trace.times_ns.get_or_insert((time_ns, time_ns));
        *times = (times.0.min(time_ns), times.1.max(time_ns));
        match event.what {
            What::Other => return Ok(()),
            What::Flush => {
                self.flushes += 1;
                return Ok(());
            }
            What::Send(_) | What::Receive(_) | What::Collective { .. } | What::Rma { .. } => {}
        }
        let Some(&rank) = self.references.ranks.get(&event.location) else {
            self.without_rank += 1;
            return Ok(());
        };
        match event.what {
            What::Send(message) => {
                let (communicator, peer) = self.peer(path, rank, &message)?;
                let tag = Some(message.tag.cast_signed());
                let key = StreamKey { src: rank, dst: peer, communicator, tag };
                self.trace.sends.add(key, stream(message.bytes, time_ns));
            }
            What::Receive(message) => {
                let (communicator, peer) = self.peer(path, rank, &message)?;
                let tag = Some(message.tag.cast_signed());
                let key = StreamKey { src: peer, dst: rank, communicator, tag };
                self.trace.receives.add(key, stream(message.bytes, time_ns));
            }
            What::Collective { operation, communicator, root, sent, received } => {
                let communicator = self.communicator(path, communicator)?;
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
            What::Rma { window, remote, sent, received } => {
                let communicator = self.references.windows.get(&window).copied();
                let communicator =
                    communicator.ok_or_else(|| undefined(path, format!("window {window} is not defined")))?;
                let remote = self.member(path, communicator, rank, remote)?;
                for (pair, bytes) in [((rank, remote), sent), ((remote, rank), received)] {
                    if bytes > 0 {
                        *self.trace.rma.entry(pair).or_default() += Sums { messages: 1, bytes };
                    }
                }
            }
            What::Flush | What::Other => {}
        }
        Ok(())
    }

    fn communicator(&self, path: &Path, reference: u64) -> Result<u32, TraceError> {
        let index = self.references.communicators.get(&reference).copied();
        index.ok_or_else(|| undefined(path, format!("communicator {reference} is not defined")))
    }

    /// World rank of a member, or of the other side of a message.
    fn member(&self, path: &Path, communicator: u32, rank: u32, place: u32) -> Result<u32, TraceError> {
        let found = self.trace.communicators.get(communicator as usize);
        let member = found.and_then(|communicator| communicator.peer(rank, place)).filter(|rank| *rank != u32::MAX);
        member.ok_or_else(|| {
            let name = found.map(Communicator::label).unwrap_or_default();
            undefined(path, format!("communicator {} has no rank {place}", printable(&name)))
        })
    }

    fn peer(&self, path: &Path, rank: u32, message: &Message) -> Result<(u32, u32), TraceError> {
        let communicator = self.communicator(path, message.communicator)?;
        Ok((communicator, self.member(path, communicator, rank, message.peer)?))
    }

    fn finish(self) -> Trace {
        let mut trace = self.trace;
        let short = |(location, expected): &(&u64, &u64)| self.counted.get(location).copied().unwrap_or(0) < **expected;
        // eztrace writes a number there that says nothing.
        let missing = self.references.events.iter().filter(short).count();
        if missing > 0 && trace.tracer != Tracer::Eztrace {
            trace.notes.push(format!(
                "{missing} locations of the trace have fewer events than its definitions say: it is incomplete"
            ));
        }
        if self.flushes > 0 {
            trace.notes.push(format!(
                "the tracer wrote out its buffers {} times during the run, which delayed it",
                self.flushes
            ));
        }
        if self.without_rank > 0 {
            trace.notes.push(format!(
                "{} communication events are at locations that belong to no rank and do not count",
                self.without_rank
            ));
        }
        if trace.sends.is_folded() {
            trace.notes.push(
                "the trace uses too many tags to keep them apart: messages are compared by pair of ranks".to_owned(),
            );
        }
        trace
    }
}

fn undefined(path: &Path, what: String) -> TraceError {
    TraceError::Undefined { path: path.to_owned(), what }
}

fn stream(bytes: u64, time_ns: i64) -> Stream {
    Stream { sums: Sums { messages: 1, bytes }, times_ns: Some((time_ns, time_ns)) }
}
