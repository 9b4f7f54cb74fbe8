//! A capture of which others cut a part.

use super::{Capture, End};
use crate::input::source::Digester;
use ibscope_parsers::frame::Framing;
use ibscope_parsers::frame::boundary::Probe;
use std::fs::File;
use std::sync::Arc;

impl Capture {
    /// Where the next record starts in the (decompressed) file, and how many were before it.
    pub(in crate::input) const fn position(&self) -> (u64, u64) {
        (self.offset_bytes, self.records)
    }

    /// What it takes to cut the file at several places at once: a plain file whose records can be told by themselves.
    pub(in crate::input) fn divisible(&self) -> Option<(Arc<File>, Framing, Probe)> {
        Some((Arc::clone(self.source.plain_file()?), self.framing.clone(), self.probe?))
    }

    /// Where such a file ends, as far as is known.
    pub(in crate::input) fn length_bytes(&self) -> u64 {
        let read_bytes = self.offset_bytes + self.filled as u64;
        match (&self.end, self.source.plain_file()) {
            (End::Open, Some(file)) => file.metadata().map_or(read_bytes, |found| found.len()),
            _ => read_bytes,
        }
    }

    /// Bytes that its batches are about.
    pub(in crate::input) const fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Makes batches of another size.
    #[cfg(test)]
    pub(in crate::input) fn set_batch_bytes(&mut self, bytes: usize) {
        self.batch_bytes = bytes;
    }

    /// True where no batch follows.
    pub(in crate::input) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// True where the end was asked for.
    pub(in crate::input) fn is_stopped(&self) -> bool {
        self.options.is_stopped()
    }

    /// Leaves the digests to somebody else, who has to take the header, every batch and the rest. Gives those of no byte.
    pub(in crate::input) fn leave_digests(&mut self) -> Digester {
        self.source.leave_digests(&self.options)
    }

    /// What was read and is in no batch.
    pub(in crate::input) fn rest(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Goes on at this offset: the records before it were cut by somebody else.
    pub(in crate::input) fn pass(&mut self, to_bytes: u64, records: u64) {
        let passed_bytes = to_bytes - self.offset_bytes;
        if passed_bytes <= self.filled as u64 {
            self.buffer.copy_within(passed_bytes as usize..self.filled, 0);
            self.filled -= passed_bytes as usize;
        } else {
            if let Err(error) = self.source.pass(passed_bytes - self.filled as u64) {
                self.end = End::Failed(error);
            }
            self.filled = 0;
        }
        self.offset_bytes = to_bytes;
        self.records += records;
    }
}
