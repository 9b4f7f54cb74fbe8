//! A plain file that is cut by those who decode it: many stretches at a time, each of which counts only where it starts exactly where the one
//! before it has ended. So what comes out is what cutting it in order would give, whatever its bytes look like; and its end, its faults and what is
//! said of them come from [`Capture`], which goes on in order wherever a stretch cannot.

use super::chunk::Chunk;
use super::cut::{Capture, Ending};
use super::source::Digester;
use ibscope_parsers::frame::Framing;
use ibscope_parsers::frame::boundary::Probe;
use std::fs::File;
use std::sync::Arc;

/// Rounds that a file is read in order at most before stretches are tried again.
const MOST_PATIENCE: u32 = 64;

pub(super) struct Lane {
    /// `None` while somebody reads it in order.
    capture: Option<Capture>,
    file: Arc<File>,
    framing: Framing,
    probe: Probe,
    /// Of the header and the batches so far.
    digester: Digester,
    /// Stretches of the last round, and those that counted.
    given: usize,
    counted: usize,
    /// Rounds to be read in order, and how many that will be when stretches fail again: payload may look like records wherever one looks.
    in_order: u32,
    patience: u32,
}

/// What is to be done for a lane in a round.
pub(super) enum Task {
    /// To cut this.
    Chunk(Chunk),
    /// To read in order, a batch for each of these old buffers at most.
    InOrder(Box<Capture>, Vec<Vec<u8>>),
}

impl Lane {
    /// Gives the capture back where it cannot be cut so.
    pub(super) fn new(mut capture: Capture) -> Result<Self, Box<Capture>> {
        let Some((file, framing, probe)) = capture.divisible() else { return Err(Box::new(capture)) };
        let mut digester = capture.leave_digests();
        digester.update(capture.header());
        let capture = Some(capture);
        Ok(Self { capture, file, framing, probe, digester, given: 0, counted: 0, in_order: 0, patience: 1 })
    }

    /// What comes next: at most so many stretches, or one task that gives no more batches. Nothing where it has ended.
    pub(super) fn plan(&mut self, most: usize, spare: impl Fn() -> Vec<u8>) -> Vec<Task> {
        self.look_back();
        let Some(capture) = self.capture.as_ref().filter(|capture| !capture.is_finished()) else { return Vec::new() };
        let (at_bytes, _) = capture.position();
        let length_bytes = capture.length_bytes();
        let batch_bytes = capture.batch_bytes() as u64;
        let divide = self.in_order == 0 && !capture.is_stopped();
        let mut tasks = Vec::new();
        let mut start_bytes = at_bytes;
        while divide && tasks.len() < most {
            // Whatever the start, stretches end at multiples of their length. A first one that would be short is longer.
            let end_bytes = (start_bytes + batch_bytes / 2 + 1).next_multiple_of(batch_bytes);
            if end_bytes > length_bytes {
                break;
            }
            tasks.push(Task::Chunk(Chunk {
                file: Arc::clone(&self.file),
                framing: self.framing.clone(),
                probe: (start_bytes > at_bytes).then_some(self.probe),
                start_bytes,
                end_bytes,
                spare: spare(),
            }));
            start_bytes = end_bytes;
        }
        self.given = tasks.len();
        if tasks.is_empty() {
            self.in_order = self.in_order.saturating_sub(1);
            let left = length_bytes.saturating_sub(at_bytes) / batch_bytes + 1;
            let batches = usize::try_from(left).unwrap_or(most).min(most);
            let spares = (0..batches).map(|_| spare()).collect();
            tasks.extend(self.capture.take().map(|capture| Task::InOrder(Box::new(capture), spares)));
        }
        tasks
    }

    /// Draws the lesson of the last round: where most stretches were for nothing, the file is better read in order for a while.
    fn look_back(&mut self) {
        if self.counted * 2 < self.given {
            self.in_order = self.patience;
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        } else if self.given > 0 {
            self.patience = 1;
        }
        (self.given, self.counted) = (0, 0);
    }

    /// Whether these records start exactly where those before them have ended; if so, how many these were.
    pub(super) fn accept(&mut self, start_bytes: u64, length_bytes: u64, records: u64) -> Option<u64> {
        let capture = self.capture.as_mut()?;
        let (at_bytes, before) = capture.position();
        (start_bytes == at_bytes).then(|| {
            capture.pass(start_bytes + length_bytes, records);
            self.counted += 1;
            before
        })
    }

    /// Takes back what was read in order.
    pub(super) fn resume(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Takes the bytes of a batch into the digests, each once and in order.
    pub(super) fn digest(&mut self, bytes: &[u8]) {
        self.digester.update(bytes);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.capture.as_ref().is_some_and(Capture::is_finished)
    }

    /// How it ended; every batch has been digested.
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
