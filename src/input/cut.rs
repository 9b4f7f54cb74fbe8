//! One input, cut into batches at record ends.

mod shared;

use super::source::{Digests, Excess, Source, SourceOptions};
use super::{InputError, format};
use crate::model::Batch;
use ibscope_parsers::frame::boundary::Probe;
use ibscope_parsers::frame::{Framing, Item};
use ibscope_parsers::{ErrorKind, ParseError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes that a batch holds, unless a single record is larger. One mebibyte keeps a batch within the second-level
/// cache of a core while it is decoded, and is some thousand small packets.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes that are read to find the first packet.
const HEAD_BYTES: usize = 64 << 10;

/// An opened input whose first packet has been seen.
pub struct Capture {
    path: PathBuf,
    input: u32,
    source: Source,
    framing: Framing,
    /// What stood before the first record or block.
    header: Vec<u8>,
    /// Bytes read and not yet cut; `buffer[..filled]` is valid.
    buffer: Vec<u8>,
    filled: usize,
    /// Offset of `buffer[0]` in the decompressed file.
    offset_bytes: u64,
    records: u64,
    first_time_ns: Option<i64>,
    /// Tells record starts in the midst of a classic file.
    probe: Option<Probe>,
    format: String,
    end: End,
    note: Option<String>,
    finished: bool,
    /// What is there is cut at once, however little it is: more may be long in coming.
    eager: bool,
    options: SourceOptions,
    /// The end was asked for before this input had one.
    interrupted: bool,
    /// [`BATCH_BYTES`], but for tests.
    batch_bytes: usize,
}

/// Whether a source has ended, and how.
enum End {
    /// There may be more.
    Open,
    /// At the end of its bytes.
    Clean,
    /// By an error of the system or the decompressor.
    Failed(io::Error),
}

impl End {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// What is known of an input when it has been read.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Length and digests of what was read.
    pub digests: Digests,
    /// Why it ended early, where it did: begins with `truncated_input`, `corrupt_input`, `read_error`, `limited_input` or `interrupted` and names
    /// the offset.
    pub note: Option<String>,
    /// The end was asked for before this input had one.
    pub interrupted: bool,
}

impl Capture {
    /// Reads the head of an input up to its first packet.
    pub(super) fn open(input: u32, path: &Path, source: Source, options: &SourceOptions) -> Result<Self, InputError> {
        Self::new(input, path, source, options.clone(), false)
    }

    /// The same input, at this place among those that are read together: its batches name it by that.
    #[must_use]
    pub fn at(self, place: usize) -> Self {
        Self { input: place as u32, ..self }
    }

    /// The same of an input that grows while it is read.
    pub(super) fn open_live(input: u32, path: &Path, source: Source) -> Result<Self, InputError> {
        Self::new(input, path, source, SourceOptions::default(), true)
    }

    fn new(input: u32, path: &Path, source: Source, options: SourceOptions, eager: bool) -> Result<Self, InputError> {
        let mut capture = Self {
            path: path.to_owned(),
            input,
            source,
            framing: Framing::detect(&EMPTY_PCAP).map_err(|source| corrupt(path, 0, source))?.0,
            header: Vec::new(),
            buffer: Vec::new(),
            filled: 0,
            offset_bytes: 0,
            records: 0,
            first_time_ns: None,
            probe: None,
            format: String::new(),
            end: End::Open,
            note: None,
            finished: false,
            eager,
            options,
            interrupted: false,
            batch_bytes: BATCH_BYTES,
        };
        capture.fill(HEAD_BYTES);
        capture.detect()?;
        capture.find_first_record()?;
        Ok(capture)
    }

    /// The path as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header of a classic file; empty for pcapng, whose header is a block.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Format, byte order, link types and compression in one line.
    #[must_use]
    pub fn format(&self) -> &str {
        &self.format
    }

    /// Time of the first packet, nanoseconds since the epoch; `None` where it has none.
    #[must_use]
    pub fn first_time_ns(&self) -> Option<i64> {
        self.first_time_ns
    }

    /// The next whole records. `spare` is an old buffer that may be used again.
    pub fn next_batch(&mut self, spare: Vec<u8>) -> Option<Batch> {
        if self.finished {
            return None;
        }
        // What has come through a pipe is there, and more will not come.
        if self.options.is_stopped() && is_file(&self.path) {
            self.interrupt();
            return None;
        }
        let framing = self.framing.clone();
        let first_record = self.records;
        let mut wanted = self.up_to_multiple(self.filled + 1);
        loop {
            self.fill(wanted);
            let (cut, stop) = self.walk();
            if cut == 0
                && let Some(ParseError { kind: ErrorKind::Truncated { needed, .. }, .. }) = stop
                && self.end.is_open()
            {
                // A record larger than the buffer; `Framing` bounds what it can ask for.
                wanted = self.up_to_multiple(needed);
                continue;
            }
            let at_end = !self.end.is_open() || stop.is_some_and(|error| !error.is_truncated());
            if at_end && !is_file(&self.path) && self.options.is_stopped() {
                // A pipe that is no longer read looks like one that has ended.
                self.offset_bytes += cut as u64;
                self.interrupt();
                self.offset_bytes -= cut as u64;
            } else if at_end && let Some(stop) = stop {
                self.note = Some(self.why(cut, &stop));
            } else if let End::Failed(error) = &self.end {
                // The decompressor failed exactly at a record end.
                self.note = Some(early_end(error, self.offset_bytes + self.filled as u64));
            }
            self.finished = at_end;
            if cut == 0 {
                return None;
            }
            let mut bytes = std::mem::replace(&mut self.buffer, spare);
            let rest = &bytes[cut..self.filled];
            // The spare keeps its length, so that what is read into it need not be zeroed first.
            if self.buffer.len() < rest.len() {
                self.buffer.resize(rest.len(), 0);
            }
            self.buffer[..rest.len()].copy_from_slice(rest);
            bytes.truncate(cut);
            let offset_bytes = self.offset_bytes;
            self.offset_bytes += cut as u64;
            self.filled -= cut;
            return Some(Batch { input: self.input, bytes, framing, first_record, offset_bytes });
        }
    }

    /// What was read, after the last batch.
    #[must_use]
    pub fn ending(&self) -> Ending {
        let mut digests = self.source.digests();
        // Its content may be longer than what is read of it.
        let is_limited = matches!(&self.end, End::Failed(error) if Excess::of(error).is_some());
        if self.interrupted || is_limited {
            // Of what was read ahead, which is neither the file nor what counts.
            digests.xxh3_128.clear();
            digests.sha256 = None;
        }
        Ending { digests, note: self.note.clone(), interrupted: self.interrupted }
    }

    /// How much has to be in the buffer for at least so many bytes. Reading ends at multiples of the size of a batch, so that how much was read
    /// of a file that cannot be read on does not depend on who has cut what was before.
    fn up_to_multiple(&self, least: usize) -> usize {
        let end_bytes = self.offset_bytes + least as u64;
        (end_bytes.next_multiple_of(self.batch_bytes as u64) - self.offset_bytes) as usize
    }

    /// Ends it where it is.
    fn interrupt(&mut self) {
        self.finished = true;
        self.interrupted = true;
        let read_bytes = self.source.digests().length_bytes;
        let of = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_file);
        let of = of.map(|file| format!(" ({read_bytes} of the {} bytes of the file were read)", file.len()));
        self.note = Some(format!(
            "interrupted: analysed up to offset {}{}; what follows does not count",
            self.offset_bytes,
            of.unwrap_or_default()
        ));
    }

    /// Reads until `wanted` bytes are there or the source ends; of one that grows, what it has.
    fn fill(&mut self, wanted: usize) {
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        while self.filled < wanted && self.end.is_open() {
            match self.source.read(&mut self.buffer[self.filled..wanted]) {
                Ok(0) => self.end = End::Clean,
                Ok(count) => {
                    self.filled += count;
                    if self.eager {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.end = End::Failed(error),
            }
        }
    }

    /// Walks the records in the buffer: the length of the whole ones, and why it stopped if not at the very end.
    fn walk(&mut self) -> (usize, Option<ParseError>) {
        let Self { framing, buffer, filled, records, .. } = self;
        framing.walk(&buffer[..*filled], |item| *records += u64::from(matches!(item, Item::Record(_))))
    }

    fn why(&self, cut: usize, stop: &ParseError) -> String {
        let offset_bytes = self.offset_bytes + cut as u64;
        match &self.end {
            End::Failed(error) if stop.is_truncated() => early_end(error, offset_bytes),
            _ if stop.is_truncated() => format!(
                "truncated_input: the file ends inside a record that starts at offset {offset_bytes}: {}",
                describe(stop)
            ),
            _ => format!(
                "corrupt_input: the record at offset {offset_bytes} cannot be ({}); what follows it was not read",
                describe(stop)
            ),
        }
    }

    fn detect(&mut self) -> Result<(), InputError> {
        while self.eager
            && self.end.is_open()
            && self.filled < HEAD_BYTES
            && Framing::detect(&self.buffer[..self.filled]).is_err_and(|error| error.is_truncated())
        {
            self.fill(HEAD_BYTES);
        }
        let head = &self.buffer[..self.filled];
        let (framing, header_bytes) = Framing::detect(head).map_err(|error| {
            if let End::Failed(source) = std::mem::replace(&mut self.end, End::Clean) {
                return unreadable(&self.path, self.filled as u64, source);
            }
            if error.is_truncated() {
                let missing = describe(&error);
                return InputError::NoRecord { path: self.path.clone(), length_bytes: self.filled as u64, missing };
            }
            let found = match head.first_chunk::<4>() {
                Some(magic) => {
                    format!("the file starts with {:02x} {:02x} {:02x} {:02x}", magic[0], magic[1], magic[2], magic[3])
                }
                None => "the file is shorter than a magic number".to_owned(),
            };
            InputError::NotACapture { path: self.path.clone(), found }
        })?;
        self.framing = framing;
        self.format = format::describe(head, &self.framing, self.source.compression);
        if let Framing::Pcap(_) = self.framing
            && let Some(interface) = self.framing.interfaces().first()
            && let Some(why) = format::unusable(interface.link_type)
        {
            let link_type = interface.link_type.to_string();
            return Err(InputError::LinkType { path: self.path.clone(), link_type, why });
        }
        self.header = head[..header_bytes].to_vec();
        self.buffer.copy_within(header_bytes..self.filled, 0);
        self.filled -= header_bytes;
        self.offset_bytes = header_bytes as u64;
        Ok(())
    }

    /// Looks ahead to the first packet, without cutting anything.
    fn find_first_record(&mut self) -> Result<(), InputError> {
        let mut wanted = HEAD_BYTES;
        loop {
            let mut framing = self.framing.clone();
            let mut at = 0;
            let stop = loop {
                match framing.next(&self.buffer[at..self.filled]) {
                    Ok((Item::Record(record), _)) => {
                        self.first_time_ns = record.time_ns;
                        self.probe = Probe::new(&framing, &record);
                        if let Framing::Pcapng(_) = framing {
                            self.format =
                                format::describe(&self.buffer[..self.filled], &framing, self.source.compression);
                        }
                        return Ok(());
                    }
                    Ok((_, length)) => at += length,
                    Err(stop) => break stop,
                }
            };
            // Blocks before the first packet (comments, name tables) are done with: what is kept does not grow with them.
            self.framing = framing;
            self.buffer.copy_within(at..self.filled, 0);
            self.filled -= at;
            self.offset_bytes += at as u64;
            let offset_bytes = self.offset_bytes;
            if !stop.is_truncated() {
                return Err(corrupt(&self.path, offset_bytes, stop));
            }
            match std::mem::replace(&mut self.end, End::Open) {
                End::Failed(source) => return Err(unreadable(&self.path, offset_bytes, source)),
                End::Clean => {
                    let length_bytes = self.offset_bytes + self.filled as u64;
                    let missing = if self.filled == 0 { "it holds no packet".to_owned() } else { describe(&stop) };
                    return Err(InputError::NoRecord { path: self.path.clone(), length_bytes, missing });
                }
                End::Open => {
                    wanted = match at {
                        0 if self.filled < wanted => wanted,
                        0 => self.filled * 2,
                        _ => HEAD_BYTES,
                    };
                    self.fill(wanted);
                }
            }
        }
    }
}

/// A valid header, to have a framing before the file has been looked at.
const EMPTY_PCAP: [u8; 24] =
    [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 247, 0, 0, 0];

fn corrupt(path: &Path, offset_bytes: u64, source: ParseError) -> InputError {
    InputError::Corrupt { path: path.to_owned(), offset_bytes, source }
}

fn unreadable(path: &Path, offset_bytes: u64, source: io::Error) -> InputError {
    let advice = match Excess::of(&source) {
        Some(Excess::Asked(_)) => "its first packet lies behind that: give more",
        Some(Excess::Expanded) => "there is no packet before that",
        None if source.kind() == io::ErrorKind::UnexpectedEof => {
            "the compressed file ends too early, before its first packet: copy it again"
        }
        None => "check the file and the disk that it lies on",
    };
    InputError::Read { path: path.to_owned(), offset_bytes, source, advice }
}

fn early_end(error: &io::Error, offset_bytes: u64) -> String {
    if let Some(excess) = Excess::of(error) {
        format!("limited_input: analysed up to offset {offset_bytes}: {excess}; what follows does not count")
    } else if error.kind() == io::ErrorKind::UnexpectedEof {
        format!("truncated_input: the compressed file ends too early, at offset {offset_bytes} of its content: {error}")
    } else {
        format!(
            "read_error: reading failed at offset {offset_bytes}: {error}; what follows was not read: check the disk that it lies on, and analyse it again"
        )
    }
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file())
}

/// The error without its position, which callers state in bytes of the file.
fn describe(error: &ParseError) -> String {
    match error.kind {
        ErrorKind::Truncated { needed, available } => {
            format!("{} needs {needed} bytes and {available} are there", error.layer)
        }
        ErrorKind::Invalid { field, value } => format!("{} with {field} {value:#x}", error.layer),
    }
}
