//! Inputs -> what the workers of a pool are to do in a round: batches that reader threads have cut, and stretches of plain files to cut.

use super::chunk::Cut;
use super::cut::{Capture, Ending};
use super::follow::Follower;
use super::lane::{Lane, Task};
use super::readers::Readers;
use crate::model::Batch;
use ibscope_parsers::frame::Framing;
use std::io;
use std::time::Duration;

/// All inputs of an analysis. In each round, [`Self::next`] gives pieces, each of which is cut by whoever takes it ([`Piece::cut`]), and then
/// [`Self::settle`] is told of each in the same order whether it counts.
pub struct Feed {
    /// Those that have to be read in order: pipes, packed files, pcapng, and what grows.
    readers: Readers,
    /// Which inputs these are.
    read: Vec<usize>,
    /// By input: the others, until they have ended.
    lanes: Vec<Option<Lane>>,
    endings: Vec<Ending>,
}

/// What one worker does.
pub struct Piece(Work);

enum Work {
    Done(Batch),
    /// Of this input.
    Task(usize, Task),
}

/// What has become of a piece.
pub struct Receipt(Outcome);

enum Outcome {
    Done,
    Stretch {
        input: usize,
        start_bytes: u64,
        length_bytes: u64,
        records: u64,
    },
    /// Nothing was cut of it.
    Failed {
        spare: Vec<u8>,
    },
    InOrder {
        input: usize,
        capture: Box<Capture>,
    },
}

impl Feed {
    /// Starts reading. At most `queued` batches of inputs that are read by threads of their own wait to be taken.
    pub fn start(captures: Vec<Capture>, queued: usize) -> io::Result<Self> {
        let (mut lanes, mut read, mut in_order) = (Vec::new(), Vec::new(), Vec::new());
        for (input, capture) in captures.into_iter().enumerate() {
            match Lane::new(capture) {
                Ok(lane) => lanes.push(Some(lane)),
                Err(capture) => {
                    lanes.push(None);
                    read.push(input);
                    in_order.push(*capture);
                }
            }
        }
        let endings = vec![Ending::default(); lanes.len()];
        Ok(Self { readers: Readers::start(in_order, queued)?, read, lanes, endings })
    }

    /// Starts reading an input that grows.
    pub fn follow(follower: Follower, queued: usize) -> io::Result<Self> {
        Ok(Self {
            readers: Readers::start(vec![follower], queued)?,
            read: vec![0],
            lanes: vec![None],
            endings: vec![Ending::default()],
        })
    }

    /// At most so many pieces. Empty when all inputs have ended.
    #[must_use]
    pub fn next(&mut self, most: usize) -> Vec<Piece> {
        let is_open = |lane: &Option<Lane>| lane.as_ref().is_some_and(|lane| !lane.is_finished());
        if !self.lanes.iter().any(is_open) {
            return pieces(self.readers.next(most));
        }
        let mut pieces = pieces(self.readers.ready(most / 2));
        let mut left = most - pieces.len();
        for (input, lane) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = lane.as_mut().filter(|_| left > 0) else { continue };
            for task in lane.plan(left, || self.readers.spare()) {
                left -= if let Task::InOrder(_, spares) = &task { spares.len() } else { 1 };
                pieces.push(Piece(Work::Task(input, task)));
            }
        }
        pieces
    }

    /// The same of an input that grows, but empty also where nothing is ready within this time; `None` when it has ended.
    #[must_use]
    pub fn next_within(&self, most: usize, patience: Duration) -> Option<Vec<Piece>> {
        self.readers.next_within(most, patience).map(pieces)
    }

    /// Whether the batches of a piece count; those that do not are to be thrown away. To be asked in the order of the pieces.
    pub fn settle<'a>(&mut self, receipt: Receipt, batches: impl Iterator<Item = &'a mut Batch>) -> bool {
        match receipt.0 {
            Outcome::Done => true,
            Outcome::Failed { spare } => {
                self.readers.recycle(spare);
                false
            }
            Outcome::InOrder { input, capture } => {
                if let Some(lane) = self.lane(input) {
                    lane.resume(*capture);
                }
                true
            }
            Outcome::Stretch { input, start_bytes, length_bytes, records } => {
                let before = self.lane(input).and_then(|lane| lane.accept(start_bytes, length_bytes, records));
                before.is_some_and(|before| {
                    batches.for_each(|batch| batch.first_record = before);
                    true
                })
            }
        }
    }

    /// Takes batches that count into the digests of their inputs: those of each round, before those of the next are told here.
    pub fn digest<'a>(&mut self, batches: impl Iterator<Item = &'a Batch>) {
        for batch in batches {
            if let Some(lane) = self.lane(batch.input as usize) {
                lane.digest(&batch.bytes);
            }
        }
        self.end(Lane::is_finished);
    }

    /// Gives the buffer of a used batch back.
    pub fn recycle(&self, bytes: Vec<u8>) {
        self.readers.recycle(bytes);
    }

    /// Says how each input ended, in the order given.
    #[must_use]
    pub fn finish(mut self) -> Vec<Ending> {
        self.end(|_| true);
        for (input, ending) in self.read.into_iter().zip(self.readers.finish()) {
            self.endings[input] = ending;
        }
        self.endings
    }

    fn lane(&mut self, input: usize) -> Option<&mut Lane> {
        self.lanes.get_mut(input)?.as_mut()
    }

    /// Lets go of these lanes.
    fn end(&mut self, which: impl Fn(&Lane) -> bool) {
        for (lane, ending) in self.lanes.iter_mut().zip(&mut self.endings) {
            if let Some(lane) = lane.take_if(|lane| which(lane)) {
                *ending = lane.ending();
            }
        }
    }
}

fn pieces(batches: Vec<Batch>) -> Vec<Piece> {
    batches.into_iter().map(|batch| Piece(Work::Done(batch))).collect()
}

impl Piece {
    /// Reads and cuts it, where that has not been done.
    #[must_use]
    pub fn cut(self) -> (Vec<Batch>, Receipt) {
        let (batches, outcome) = match self.0 {
            Work::Done(batch) => (vec![batch], Outcome::Done),
            Work::Task(input, Task::InOrder(mut capture, spares)) => {
                let batches = spares.into_iter().map_while(|spare| capture.next_batch(spare)).collect();
                (batches, Outcome::InOrder { input, capture })
            }
            Work::Task(input, Task::Chunk(chunk)) => {
                let framing = chunk.framing.clone();
                match chunk.cut() {
                    Ok(cut) => stretch(input, framing, cut),
                    Err(spare) => (Vec::new(), Outcome::Failed { spare }),
                }
            }
        };
        (batches, Receipt(outcome))
    }
}

fn stretch(input: usize, framing: Framing, cut: Cut) -> (Vec<Batch>, Outcome) {
    let Cut { bytes, start_bytes, records } = cut;
    let outcome = Outcome::Stretch { input, start_bytes, length_bytes: bytes.len() as u64, records };
    // How many records are before it is known when it is settled.
    let batch = Batch { input: input as u32, bytes, framing, first_record: 0, offset_bytes: start_bytes };
    (vec![batch], outcome)
}

#[cfg(test)]
mod tests;
