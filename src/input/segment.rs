//! A segment of a plain pcap file, read and split by a worker.
//!
//! A worker searches for the first plausible record header of its segment, and reads to the end of
//! the last record that starts in the segment. [`Feed`](super::Feed) checks this start as soon as
//! the previous segment is done.

use ibscope_parsers::ErrorKind;
use ibscope_parsers::frame::boundary::Probe;
use ibscope_parsers::frame::{CaptureItem, Framing};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Bytes that are searched for the first record before more are read: several records of 4 KiB.
/// Bytes before the first record have to be moved away later, so this should be small.
const SEARCHED_BYTES: usize = 32 << 10;

/// Room for the part of the last record that lies beyond the segment: one packet with its headers.
const LAST_RECORD_BYTES: usize = 8 << 10;

/// A segment to read.
pub(super) struct Segment {
    pub(super) file: Arc<File>,
    pub(super) framing: Framing,
    /// Finds the first record; `None` if a record starts at the first byte.
    pub(super) probe: Option<Probe>,
    /// Records that start between these offsets belong to the segment.
    pub(super) start_bytes: u64,
    pub(super) end_bytes: u64,
    /// A used buffer.
    pub(super) buffer: Vec<u8>,
}

/// Whole records, and their position in the file.
pub(super) struct SegmentRecords {
    pub(super) bytes: Vec<u8>,
    pub(super) start_bytes: u64,
    pub(super) records: u64,
}

impl Segment {
    /// Reads the segment and splits off its records. If no record is found, a record is invalid, or
    /// the file ends or fails, only the buffer is returned: reading in order then finds the same
    /// problem.
    pub(super) fn read_records(self) -> Result<SegmentRecords, Vec<u8>> {
        let Self { file, mut framing, probe, mut start_bytes, end_bytes, buffer: used_buffer } = self;
        let mut wanted = (end_bytes - start_bytes) as usize;
        // A new buffer gets its whole size at once: the system hands out pages of zeros.
        let bytes = if used_buffer.is_empty() { vec![0; wanted + LAST_RECORD_BYTES] } else { used_buffer };
        let mut segment = SegmentBuffer { file, start_bytes, bytes, filled: 0 };
        if let Some(probe) = probe {
            let Some(found) = segment.find(&probe, wanted) else { return Err(segment.bytes) };
            segment.drop_first(found);
            start_bytes += found as u64;
            wanted -= found;
        }
        let (mut whole_bytes, mut records) = (0, 0);
        while whole_bytes < wanted {
            if segment.fill(wanted).is_err() {
                return Err(segment.bytes);
            }
            let count = |item: &CaptureItem<'_>| records += u64::from(matches!(item, CaptureItem::Record(_)));
            let (walked, stop) = framing.walk(&segment.bytes[whole_bytes..segment.filled], count);
            whole_bytes += walked;
            match stop.map(|stop| stop.kind) {
                None => {}
                // The last record ends beyond the segment: read to its end.
                Some(ErrorKind::Truncated { needed, .. }) => wanted = whole_bytes + needed,
                Some(ErrorKind::Invalid { .. }) => return Err(segment.bytes),
            }
        }
        let mut bytes = segment.bytes;
        bytes.truncate(whole_bytes);
        Ok(SegmentRecords { bytes, start_bytes, records })
    }
}

/// The bytes of a segment read so far: `bytes[..filled]`.
struct SegmentBuffer {
    file: Arc<File>,
    start_bytes: u64,
    bytes: Vec<u8>,
    filled: usize,
}

impl SegmentBuffer {
    /// Reads until `wanted` bytes are there.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        while self.filled < wanted {
            match self.file.read_at(&mut self.bytes[self.filled..wanted], self.start_bytes + self.filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Start of the first record within the first `most` bytes.
    fn find(&mut self, probe: &Probe, most: usize) -> Option<usize> {
        let mut searched = SEARCHED_BYTES.min(most);
        loop {
            self.fill(searched).ok()?;
            match probe.find(&self.bytes[..self.filled]) {
                None if searched < most => searched = searched.saturating_mul(4).min(most),
                found => return found,
            }
        }
    }

    fn drop_first(&mut self, bytes: usize) {
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
        self.start_bytes += bytes as u64;
    }
}
