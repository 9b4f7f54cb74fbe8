//! Access to a capture whose file workers split.

use super::{Capture, SourceEnd};
use crate::input::source::Digester;
use ibscope_parsers::frame::Framing;
use ibscope_parsers::frame::boundary::Probe;
use std::fs::File;
use std::sync::Arc;

impl Capture {
    /// Offset of the next record in the (decompressed) file, and the number of records before it.
    pub(in crate::input) const fn position(&self) -> (u64, u64) {
        (self.offset_bytes, self.records)
    }

    /// Data that workers need to split the file; `None` if it is not a plain file, or if its record
    /// starts cannot be found.
    pub(in crate::input) fn split_source(&self) -> Option<(Arc<File>, Framing, Probe)> {
        Some((Arc::clone(self.source.plain_file()?), self.framing.clone(), self.probe?))
    }

    /// Length of such a file, as far as known.
    pub(in crate::input) fn length_bytes(&self) -> u64 {
        let read_bytes = self.offset_bytes + self.filled as u64;
        match (&self.end, self.source.plain_file()) {
            (SourceEnd::Open, Some(file)) => file.metadata().map_or(read_bytes, |found| found.len()),
            _ => read_bytes,
        }
    }

    /// Size of a batch in bytes.
    pub(in crate::input) const fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Sets the size of a batch.
    #[cfg(test)]
    pub(in crate::input) fn set_batch_bytes(&mut self, bytes: usize) {
        self.batch_bytes = bytes;
    }

    /// True if no batch follows.
    pub(in crate::input) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// True if the caller has stopped reading.
    pub(in crate::input) fn is_stopped(&self) -> bool {
        self.options.is_stopped()
    }

    /// Stops updating the digests and returns empty ones to the caller, who has to add the header,
    /// every batch and the rest.
    pub(in crate::input) fn leave_digests(&mut self) -> Digester {
        self.source.leave_digests(&self.options)
    }

    /// Bytes that were read and are in no batch.
    pub(in crate::input) fn rest(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Continues at this offset, after `records` more records that workers split off.
    pub(in crate::input) fn skip_to(&mut self, to_bytes: u64, records: u64) {
        let passed_bytes = to_bytes - self.offset_bytes;
        if passed_bytes <= self.filled as u64 {
            self.buffer.copy_within(passed_bytes as usize..self.filled, 0);
            self.filled -= passed_bytes as usize;
        } else {
            if let Err(error) = self.source.skip(passed_bytes - self.filled as u64) {
                self.end = SourceEnd::Failed(error);
            }
            self.filled = 0;
        }
        self.offset_bytes = to_bytes;
        self.records += records;
    }
}
