//! Hands out the work on all inputs: batches of reader threads, and segments of plain files.

use super::capture::{Capture, Ending};
use super::follow::Follower;
use super::readers::InputReaders;
use super::segment::SegmentRecords;
use super::split_input::{SplitInput, SplitTask};
use crate::model::Batch;
use ibscope_parsers::frame::Framing;
use std::io;
use std::time::Duration;

/// All inputs of an analysis. In each round, [`Self::next`] gives tasks, workers run them
/// ([`FeedTask::run`]), and [`Self::accept`] then decides for each task, in their order, whether its
/// batches count.
pub struct Feed {
    /// Inputs that are read in order: pipes, compressed files, pcapng, and growing inputs.
    readers: InputReaders,
    /// Indices of these inputs.
    read_inputs: Vec<usize>,
    /// The other inputs by index, until they end.
    split_inputs: Vec<Option<SplitInput>>,
    endings: Vec<Ending>,
}

/// Work for one worker.
pub struct FeedTask(FeedWork);

enum FeedWork {
    Batch(Batch),
    /// A task of the input with this index.
    Task(usize, SplitTask),
}

/// Result of a task, for [`Feed::accept`].
pub struct FeedReceipt(FeedOutcome);

enum FeedOutcome {
    Done,
    Segment {
        input: usize,
        start_bytes: u64,
        length_bytes: u64,
        records: u64,
    },
    /// No records were found.
    Failed {
        buffer: Vec<u8>,
    },
    InOrder {
        input: usize,
        capture: Box<Capture>,
    },
}

impl Feed {
    /// Starts reading. At most `queued` batches of reader threads wait to be taken.
    pub fn start(captures: Vec<Capture>, queued: usize) -> io::Result<Self> {
        let (mut split_inputs, mut read, mut in_order) = (Vec::new(), Vec::new(), Vec::new());
        for (input, capture) in captures.into_iter().enumerate() {
            match SplitInput::new(capture) {
                Ok(split_input) => split_inputs.push(Some(split_input)),
                Err(capture) => {
                    split_inputs.push(None);
                    read.push(input);
                    in_order.push(*capture);
                }
            }
        }
        let endings = vec![Ending::default(); split_inputs.len()];
        Ok(Self { readers: InputReaders::start(in_order, queued)?, read_inputs: read, split_inputs, endings })
    }

    /// Starts reading an input that grows.
    pub fn follow(follower: Follower, queued: usize) -> io::Result<Self> {
        Ok(Self {
            readers: InputReaders::start(vec![follower], queued)?,
            read_inputs: vec![0],
            split_inputs: vec![None],
            endings: vec![Ending::default()],
        })
    }

    /// The tasks of the next round, at most `most`. Empty when all inputs have ended.
    #[must_use]
    pub fn next(&mut self, most: usize) -> Vec<FeedTask> {
        let is_open = |split_input: &Option<SplitInput>| {
            split_input.as_ref().is_some_and(|split_input| !split_input.is_finished())
        };
        if !self.split_inputs.iter().any(is_open) {
            return feed_tasks(self.readers.next(most));
        }
        let mut tasks = feed_tasks(self.readers.ready(most / 2));
        let mut left = most - tasks.len();
        for (input, split_input) in self.split_inputs.iter_mut().enumerate() {
            let Some(split_input) = split_input.as_mut().filter(|_| left > 0) else { continue };
            for task in split_input.plan(left, || self.readers.buffer()) {
                left -= if let SplitTask::InOrder(_, used_buffers) = &task { used_buffers.len() } else { 1 };
                tasks.push(FeedTask(FeedWork::Task(input, task)));
            }
        }
        tasks
    }

    /// The tasks of an input that grows: empty if none is ready within `patience`, `None` when it
    /// has ended.
    #[must_use]
    pub fn next_within(&self, most: usize, patience: Duration) -> Option<Vec<FeedTask>> {
        self.readers.next_within(most, patience).map(feed_tasks)
    }

    /// Whether the batches of a task count; otherwise the caller drops them. Call it in the order
    /// of the tasks.
    pub fn accept<'a>(&mut self, receipt: FeedReceipt, batches: impl Iterator<Item = &'a mut Batch>) -> bool {
        match receipt.0 {
            FeedOutcome::Done => true,
            FeedOutcome::Failed { buffer: used_buffer } => {
                self.readers.recycle(used_buffer);
                false
            }
            FeedOutcome::InOrder { input, capture } => {
                if let Some(split_input) = self.split_input(input) {
                    split_input.resume(*capture);
                }
                true
            }
            FeedOutcome::Segment { input, start_bytes, length_bytes, records } => {
                let before = self
                    .split_input(input)
                    .and_then(|split_input| split_input.accept(start_bytes, length_bytes, records));
                before.is_some_and(|before| {
                    batches.for_each(|batch| batch.first_record = before);
                    true
                })
            }
        }
    }

    /// Adds accepted batches to the digests of their inputs, round by round, and ends the inputs
    /// that are finished.
    pub fn digest<'a>(&mut self, batches: impl Iterator<Item = &'a Batch>) {
        for batch in batches {
            if let Some(split_input) = self.split_input(batch.input as usize) {
                split_input.digest(&batch.bytes);
            }
        }
        self.end_split_inputs(SplitInput::is_finished);
    }

    /// Takes back the buffer of a used batch.
    pub fn recycle(&self, bytes: Vec<u8>) {
        self.readers.recycle(bytes);
    }

    /// Endings of all inputs, in the order given to [`Self::start`].
    #[must_use]
    pub fn finish(mut self) -> Vec<Ending> {
        self.end_split_inputs(|_| true);
        for (input, ending) in self.read_inputs.into_iter().zip(self.readers.finish()) {
            self.endings[input] = ending;
        }
        self.endings
    }

    fn split_input(&mut self, input: usize) -> Option<&mut SplitInput> {
        self.split_inputs.get_mut(input)?.as_mut()
    }

    /// Ends the split inputs that `which` selects.
    fn end_split_inputs(&mut self, which: impl Fn(&SplitInput) -> bool) {
        for (split_input, ending) in self.split_inputs.iter_mut().zip(&mut self.endings) {
            if let Some(split_input) = split_input.take_if(|split_input| which(split_input)) {
                *ending = split_input.ending();
            }
        }
    }
}

fn feed_tasks(batches: Vec<Batch>) -> Vec<FeedTask> {
    batches.into_iter().map(|batch| FeedTask(FeedWork::Batch(batch))).collect()
}

impl FeedTask {
    /// Reads and splits the segment, or reads in order; a batch of a reader thread is returned
    /// unchanged.
    #[must_use]
    pub fn run(self) -> (Vec<Batch>, FeedReceipt) {
        let (batches, outcome) = match self.0 {
            FeedWork::Batch(batch) => (vec![batch], FeedOutcome::Done),
            FeedWork::Task(input, SplitTask::InOrder(mut capture, used_buffers)) => {
                let batches =
                    used_buffers.into_iter().map_while(|used_buffer| capture.next_batch(used_buffer)).collect();
                (batches, FeedOutcome::InOrder { input, capture })
            }
            FeedWork::Task(input, SplitTask::Segment(segment)) => {
                let framing = segment.framing.clone();
                match segment.read_records() {
                    Ok(records) => segment_batch(input, framing, records),
                    Err(used_buffer) => (Vec::new(), FeedOutcome::Failed { buffer: used_buffer }),
                }
            }
        };
        (batches, FeedReceipt(outcome))
    }
}

fn segment_batch(input: usize, framing: Framing, segment: SegmentRecords) -> (Vec<Batch>, FeedOutcome) {
    let SegmentRecords { bytes, start_bytes, records } = segment;
    let outcome = FeedOutcome::Segment { input, start_bytes, length_bytes: bytes.len() as u64, records };
    // `Feed::accept` fills in the number of records that precede the batch.
    let batch = Batch { input: input as u32, bytes, framing, first_record: 0, offset_bytes: start_bytes };
    (vec![batch], outcome)
}

#[cfg(test)]
mod tests;
