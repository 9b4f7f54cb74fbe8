//! One input, split into batches at record boundaries.

mod shared;

use super::source::{Digests, InputSource, ReadLimit, SourceOptions};
use super::{InputError, format};
use crate::model::Batch;
use ibscope_parsers::frame::boundary::Probe;
use ibscope_parsers::frame::{CaptureItem, Framing};
use ibscope_parsers::{ErrorKind, ParseError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Size of a batch in bytes, unless a single record is larger. One mebibyte stays in the
/// second-level cache of a core during decoding, and holds some thousand small packets.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes that are first read to find the first packet.
const HEAD_BYTES: usize = 64 << 10;

/// An opened input that has at least one packet.
pub struct Capture {
    path: PathBuf,
    input: u32,
    source: InputSource,
    framing: Framing,
    /// Bytes before the first record or block.
    header: Vec<u8>,
    /// Bytes that are in no batch yet; `buffer[..filled]` is valid.
    buffer: Vec<u8>,
    filled: usize,
    /// Offset of `buffer[0]` in the decompressed file.
    offset_bytes: u64,
    records: u64,
    first_time_ns: Option<i64>,
    /// Finds record starts in the middle of a classic pcap file.
    probe: Option<Probe>,
    format: String,
    end: SourceEnd,
    note: Option<String>,
    finished: bool,
    /// Emits batches of the available bytes, because more data may take long to arrive.
    emits_at_once: bool,
    options: SourceOptions,
    /// Reading was stopped before the end of the input.
    interrupted: bool,
    /// [`BATCH_BYTES`], except in tests.
    batch_bytes: usize,
}

/// State of the source.
enum SourceEnd {
    /// More data may follow.
    Open,
    /// It ended without an error.
    Clean,
    /// It ended with an error of the operating system or the decompressor.
    Failed(io::Error),
}

impl SourceEnd {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// The end of an input.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Length and digests of the bytes read.
    pub digests: Digests,
    /// Reason why it ended early: starts with `truncated_input`, `corrupt_input`, `read_error`,
    /// `limited_input` or `interrupted` and gives the offset. `None` if it did not.
    pub note: Option<String>,
    /// Reading was stopped before the end of the input.
    pub interrupted: bool,
}

impl Capture {
    /// Opens an input and reads it up to its first packet.
    pub(super) fn open(
        input: u32,
        path: &Path,
        source: InputSource,
        options: &SourceOptions,
    ) -> Result<Self, InputError> {
        Self::new(input, path, source, options.clone(), false)
    }

    /// The same input with another index, which its batches carry.
    #[must_use]
    pub fn at(self, index: usize) -> Self {
        Self { input: index as u32, ..self }
    }

    /// Opens an input that grows while it is read.
    pub(super) fn open_live(input: u32, path: &Path, source: InputSource) -> Result<Self, InputError> {
        Self::new(input, path, source, SourceOptions::default(), true)
    }

    fn new(
        input: u32,
        path: &Path,
        source: InputSource,
        options: SourceOptions,
        eager: bool,
    ) -> Result<Self, InputError> {
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
            end: SourceEnd::Open,
            note: None,
            finished: false,
            emits_at_once: eager,
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

    /// Time of the first packet in nanoseconds since the epoch, if it has one.
    #[must_use]
    pub fn first_time_ns(&self) -> Option<i64> {
        self.first_time_ns
    }

    /// The next whole records; `None` at the end. `used_buffer` is reused.
    pub fn next_batch(&mut self, used_buffer: Vec<u8>) -> Option<Batch> {
        if self.finished {
            return None;
        }
        // A stop request ends the reading of a file at once. Data that was already read from a pipe
        // cannot be read again, so it is analyzed first.
        if self.options.is_stopped() && is_file(&self.path) {
            self.interrupt();
            return None;
        }
        let framing = self.framing.clone();
        let first_record = self.records;
        let mut wanted = self.up_to_multiple(self.filled + 1);
        loop {
            self.fill(wanted);
            let (whole_bytes, stop) = self.walk();
            if whole_bytes == 0
                && let Some(ParseError { kind: ErrorKind::Truncated { needed, .. }, .. }) = stop
                && self.end.is_open()
            {
                // A record larger than the buffer; `Framing` limits the size that it accepts.
                wanted = self.up_to_multiple(needed);
                continue;
            }
            let at_end = !self.end.is_open() || stop.is_some_and(|error| !error.is_truncated());
            if at_end && !is_file(&self.path) && self.options.is_stopped() {
                // A stopped pipe looks like one that has ended.
                self.offset_bytes += whole_bytes as u64;
                self.interrupt();
                self.offset_bytes -= whole_bytes as u64;
            } else if at_end && let Some(stop) = stop {
                self.note = Some(self.stop_note(whole_bytes, &stop));
            } else if let SourceEnd::Failed(error) = &self.end {
                // The decompressor failed exactly at a record boundary.
                self.note = Some(early_end(error, self.offset_bytes + self.filled as u64));
            }
            self.finished = at_end;
            if whole_bytes == 0 {
                return None;
            }
            let mut bytes = std::mem::replace(&mut self.buffer, used_buffer);
            let rest = &bytes[whole_bytes..self.filled];
            // Keep the length of the used buffer, so that it is not filled with zeros before each
            // read.
            if self.buffer.len() < rest.len() {
                self.buffer.resize(rest.len(), 0);
            }
            self.buffer[..rest.len()].copy_from_slice(rest);
            bytes.truncate(whole_bytes);
            let offset_bytes = self.offset_bytes;
            self.offset_bytes += whole_bytes as u64;
            self.filled -= whole_bytes;
            return Some(Batch { input: self.input, bytes, framing, first_record, offset_bytes });
        }
    }

    /// Length, digests and note, after the last batch.
    #[must_use]
    pub fn ending(&self) -> Ending {
        let mut digests = self.source.digests();
        // The content may be longer than the part that was read.
        let is_limited = matches!(&self.end, SourceEnd::Failed(error) if ReadLimit::of(error).is_some());
        if self.interrupted || is_limited {
            // They include bytes that were read ahead, so they describe neither the file nor the
            // analyzed part.
            digests.xxh3_128.clear();
            digests.sha256 = None;
        }
        Ending { digests, note: self.note.clone(), interrupted: self.interrupted }
    }

    /// Buffer length for at least `least` bytes. Reads end at multiples of the batch size, so the
    /// number of bytes read from a damaged file is the same whether the earlier bytes were read in
    /// order or in segments.
    fn up_to_multiple(&self, least: usize) -> usize {
        let end_bytes = self.offset_bytes + least as u64;
        (end_bytes.next_multiple_of(self.batch_bytes as u64) - self.offset_bytes) as usize
    }

    /// Ends the input at the current position.
    fn interrupt(&mut self) {
        self.finished = true;
        self.interrupted = true;
        let read_bytes = self.source.digests().length_bytes;
        let of = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_file);
        let of = of.map(|file| format!(" ({read_bytes} of the {} bytes of the file were read)", file.len()));
        self.note = Some(format!(
            "interrupted: analyzed up to offset {}{}; the rest does not count",
            self.offset_bytes,
            of.unwrap_or_default()
        ));
    }

    /// Reads until `wanted` bytes are buffered or the source ends; a growing source is read once.
    fn fill(&mut self, wanted: usize) {
        if self.buffer.is_empty() {
            // The system hands out pages of zeros.
            self.buffer = vec![0; wanted];
        } else if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        while self.filled < wanted && self.end.is_open() {
            match self.source.read(&mut self.buffer[self.filled..wanted]) {
                Ok(0) => self.end = SourceEnd::Clean,
                Ok(count) => {
                    self.filled += count;
                    if self.emits_at_once {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.end = SourceEnd::Failed(error),
            }
        }
    }

    /// Walks the buffered records. Returns the length of the whole ones, and the error that stopped
    /// the walk.
    fn walk(&mut self) -> (usize, Option<ParseError>) {
        let Self { framing, buffer, filled, records, .. } = self;
        framing.walk(&buffer[..*filled], |item| *records += u64::from(matches!(item, CaptureItem::Record(_))))
    }

    fn stop_note(&self, whole_bytes: usize, stop: &ParseError) -> String {
        let offset_bytes = self.offset_bytes + whole_bytes as u64;
        match &self.end {
            SourceEnd::Failed(error) if stop.is_truncated() => early_end(error, offset_bytes),
            _ if stop.is_truncated() => format!(
                "truncated_input: the file ends inside the record at offset {offset_bytes} ({}); this record is missing",
                describe(stop)
            ),
            _ => format!(
                "corrupt_input: the record at offset {offset_bytes} is invalid ({}); the rest of the file was not read",
                describe(stop)
            ),
        }
    }

    fn detect(&mut self) -> Result<(), InputError> {
        while self.emits_at_once
            && self.end.is_open()
            && self.filled < HEAD_BYTES
            && Framing::detect(&self.buffer[..self.filled]).is_err_and(|error| error.is_truncated())
        {
            self.fill(HEAD_BYTES);
        }
        let head = &self.buffer[..self.filled];
        let (framing, header_bytes) = Framing::detect(head).map_err(|error| {
            if let SourceEnd::Failed(source) = std::mem::replace(&mut self.end, SourceEnd::Clean) {
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
            InputError::NotACapture { path: self.path.clone(), found, advice: format::advice(head) }
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

    /// Reads ahead to the first packet; no bytes are put into a batch.
    fn find_first_record(&mut self) -> Result<(), InputError> {
        let mut wanted = HEAD_BYTES;
        loop {
            let mut framing = self.framing.clone();
            let mut at = 0;
            let stop = loop {
                match framing.next(&self.buffer[at..self.filled]) {
                    Ok((CaptureItem::Record(record), _)) => {
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
            // Drop the blocks before the first packet (comments, name tables), so that the buffer
            // does not grow with them.
            self.framing = framing;
            self.buffer.copy_within(at..self.filled, 0);
            self.filled -= at;
            self.offset_bytes += at as u64;
            let offset_bytes = self.offset_bytes;
            if !stop.is_truncated() {
                return Err(corrupt(&self.path, offset_bytes, stop));
            }
            match std::mem::replace(&mut self.end, SourceEnd::Open) {
                SourceEnd::Failed(source) => return Err(unreadable(&self.path, offset_bytes, source)),
                SourceEnd::Clean => {
                    let length_bytes = self.offset_bytes + self.filled as u64;
                    let missing = if self.filled == 0 { "it holds no packet".to_owned() } else { describe(&stop) };
                    return Err(InputError::NoRecord { path: self.path.clone(), length_bytes, missing });
                }
                SourceEnd::Open => {
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

/// A valid header, to have a framing before the file is read.
const EMPTY_PCAP: [u8; 24] =
    [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 247, 0, 0, 0];

fn corrupt(path: &Path, offset_bytes: u64, source: ParseError) -> InputError {
    InputError::Corrupt { path: path.to_owned(), offset_bytes, source }
}

fn unreadable(path: &Path, offset_bytes: u64, source: io::Error) -> InputError {
    let advice = match ReadLimit::of(&source) {
        Some(ReadLimit::UserLimit(_)) => "the first packet lies beyond this limit: raise it",
        Some(ReadLimit::Ratio) => "the content before this offset has no packet: check that the file is a capture",
        None if source.kind() == io::ErrorKind::UnexpectedEof => {
            "the compressed file is truncated before its first packet: copy it again"
        }
        None => "check the file and its disk",
    };
    InputError::Read { path: path.to_owned(), offset_bytes, source, advice }
}

fn early_end(error: &io::Error, offset_bytes: u64) -> String {
    if let Some(limit) = ReadLimit::of(error) {
        format!("limited_input: analyzed up to offset {offset_bytes}: {limit}; the rest does not count")
    } else if error.kind() == io::ErrorKind::UnexpectedEof {
        format!(
            "truncated_input: the compressed file is truncated ({error}); its records from offset {offset_bytes} on are missing"
        )
    } else {
        format!(
            "read_error: reading failed at offset {offset_bytes}: {error}; the rest was not read: check the disk and analyze the file again"
        )
    }
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file())
}

/// The error without its position, which callers give as an offset in the file.
fn describe(error: &ParseError) -> String {
    match error.kind {
        ErrorKind::Truncated { needed, available } => {
            format!("{} needs {needed} bytes, {available} are present", error.layer)
        }
        ErrorKind::Invalid { field, value } => format!("{} with {field} {value:#x}", error.layer),
    }
}
