//! A plain pcap file that workers split, many segments at a time. A segment counts only if it
//! starts exactly where the one before it ended, so the result equals that of reading in order, for
//! any bytes. End, errors and notes of the file come from [`Capture`], which reads in order
//! wherever a segment fails.

use super::capture::{Capture, Ending};
use super::segment::Segment;
use super::source::Digester;
use ibscope_parsers::frame::Framing;
use ibscope_parsers::frame::boundary::Probe;
use std::fs::File;
use std::sync::Arc;

/// Maximum number of rounds in order before segments are tried again.
const MAX_BACKOFF_ROUNDS: u32 = 64;

pub(super) struct SplitInput {
    /// `None` while a worker reads it in order.
    capture: Option<Capture>,
    file: Arc<File>,
    framing: Framing,
    probe: Probe,
    /// Digests of the header and the batches so far.
    digester: Digester,
    /// Segments of the last round, and those that were accepted.
    segments_given: usize,
    segments_accepted: usize,
    /// Rounds left to read in order, and the number of such rounds after the next failure: payload
    /// may look like records everywhere.
    in_order_rounds: u32,
    backoff_rounds: u32,
}

/// A task of a round for one input.
pub(super) enum SplitTask {
    /// Read this segment.
    Segment(Segment),
    /// Read in order: at most one batch for each of these used buffers.
    InOrder(Box<Capture>, Vec<Vec<u8>>),
}

impl SplitInput {
    /// Returns the capture if its file cannot be split.
    pub(super) fn new(mut capture: Capture) -> Result<Self, Box<Capture>> {
        let Some((file, framing, probe)) = capture.split_source() else { return Err(Box::new(capture)) };
        let mut digester = capture.leave_digests();
        digester.update(capture.header());
        let capture = Some(capture);
        Ok(Self {
            capture,
            file,
            framing,
            probe,
            digester,
            segments_given: 0,
            segments_accepted: 0,
            in_order_rounds: 0,
            backoff_rounds: 1,
        })
    }

    /// The tasks of the next round: at most `most` segments, or one task in order for at most as
    /// many batches. Empty at the end of the file.
    pub(super) fn plan(&mut self, most: usize, take_buffer: impl Fn() -> Vec<u8>) -> Vec<SplitTask> {
        self.update_backoff();
        let Some(capture) = self.capture.as_ref().filter(|capture| !capture.is_finished()) else { return Vec::new() };
        let (at_bytes, _) = capture.position();
        let length_bytes = capture.length_bytes();
        let batch_bytes = capture.batch_bytes() as u64;
        let divide = self.in_order_rounds == 0 && !capture.is_stopped();
        let mut tasks = Vec::new();
        let mut start_bytes = at_bytes;
        while divide && tasks.len() < most {
            // Segments end at multiples of the batch size, wherever they start. A short first one
            // is merged with the next.
            let end_bytes = (start_bytes + batch_bytes / 2 + 1).next_multiple_of(batch_bytes);
            if end_bytes > length_bytes {
                break;
            }
            tasks.push(SplitTask::Segment(Segment {
                file: Arc::clone(&self.file),
                framing: self.framing.clone(),
                probe: (start_bytes > at_bytes).then_some(self.probe),
                start_bytes,
                end_bytes,
                buffer: take_buffer(),
            }));
            start_bytes = end_bytes;
        }
        self.segments_given = tasks.len();
        if tasks.is_empty() {
            self.in_order_rounds = self.in_order_rounds.saturating_sub(1);
            let left = length_bytes.saturating_sub(at_bytes) / batch_bytes + 1;
            let batches = usize::try_from(left).unwrap_or(most).min(most);
            let used_buffers = (0..batches).map(|_| take_buffer()).collect();
            tasks.extend(self.capture.take().map(|capture| SplitTask::InOrder(Box::new(capture), used_buffers)));
        }
        tasks
    }

    /// After a round in which most segments failed, the file is read in order for some rounds.
    fn update_backoff(&mut self) {
        if self.segments_accepted * 2 < self.segments_given {
            self.in_order_rounds = self.backoff_rounds;
            self.backoff_rounds = (self.backoff_rounds * 2).min(MAX_BACKOFF_ROUNDS);
        } else if self.segments_given > 0 {
            self.backoff_rounds = 1;
        }
        (self.segments_given, self.segments_accepted) = (0, 0);
    }

    /// Accepts records if they start exactly where the records before them ended. Returns the
    /// number of records before them.
    pub(super) fn accept(&mut self, start_bytes: u64, length_bytes: u64, records: u64) -> Option<u64> {
        let capture = self.capture.as_mut()?;
        let (at_bytes, before) = capture.position();
        (start_bytes == at_bytes).then(|| {
            capture.skip_to(start_bytes + length_bytes, records);
            self.segments_accepted += 1;
            before
        })
    }

    /// Takes the capture back after reading in order.
    pub(super) fn resume(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Adds the bytes of a batch to the digests. Every batch is added once, in order.
    pub(super) fn digest(&mut self, bytes: &[u8]) {
        self.digester.update(bytes);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.capture.as_ref().is_some_and(Capture::is_finished)
    }

    /// The ending, once every batch was added to the digests.
    pub(super) fn ending(mut self) -> Ending {
        let Some(capture) = self.capture else { return Ending::default() };
        let mut ending = capture.ending();
        if !ending.interrupted {
            self.digester.update(capture.rest());
            ending.digests = self.digester.digests(ending.digests.length_bytes);
        }
        ending
    }
}
