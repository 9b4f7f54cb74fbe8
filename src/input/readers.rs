//! Threads that read inputs in order, several inputs at a time.

use super::{Capture, Ending, Follower};
use crate::model::Batch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Inputs that are read at the same time. Each needs a buffer and the window of its decompressor.
const MAX_READERS: usize = 16;

/// A source of batches.
pub(super) trait BatchSource {
    /// The next whole records; `None` at the end. `used_buffer` is reused.
    fn next_batch(&mut self, used_buffer: Vec<u8>) -> Option<Batch>;

    /// Length, digests and note, after the last batch.
    fn ending(&self) -> Ending;
}

impl BatchSource for Capture {
    fn next_batch(&mut self, used_buffer: Vec<u8>) -> Option<Batch> {
        Self::next_batch(self, used_buffer)
    }

    fn ending(&self) -> Ending {
        Self::ending(self)
    }
}

impl BatchSource for Follower {
    fn next_batch(&mut self, used_buffer: Vec<u8>) -> Option<Batch> {
        Self::next_batch(self, used_buffer)
    }

    fn ending(&self) -> Ending {
        Self::ending(self)
    }
}

/// The ending of an input whose reader panicked after it gave the batches up to this offset. The message
/// of the panic is on the terminal.
fn panicked(offset_bytes: u64) -> Ending {
    let note = format!(
        "read_error: reading failed at offset {offset_bytes}: the thread that reads this input panicked, which is a defect of \
         ibscope; the rest was not read: report the message of the panic"
    );
    Ending { note: Some(note), ..Ending::default() }
}

/// Reads all inputs and gives their batches: in order for each input, as they come between inputs.
pub(super) struct InputReaders {
    batches: Option<Receiver<Batch>>,
    buffer_sender: Sender<Vec<u8>>,
    buffer_receiver: Receiver<Vec<u8>>,
    threads: Vec<JoinHandle<()>>,
    endings: Arc<Mutex<Vec<Ending>>>,
}

impl InputReaders {
    /// Starts reading. At most `queued` batches wait to be taken.
    pub(super) fn start(captures: Vec<impl BatchSource + Send + 'static>, queued: usize) -> io::Result<Self> {
        let count = captures.len();
        let (send, batches) = bounded(queued);
        let (buffer_sender, take_buffer) = bounded::<Vec<u8>>(queued * 4);
        let endings = Arc::new(Mutex::new(vec![Ending::default(); count]));
        // Inputs are taken from the end of the list: the first input is read first.
        let waiting = Arc::new(Mutex::new(captures.into_iter().enumerate().rev().collect::<Vec<_>>()));
        let threads: io::Result<Vec<JoinHandle<()>>> = (0..count.min(MAX_READERS))
            .map(|_| {
                let (send, take_buffer) = (send.clone(), take_buffer.clone());
                let (waiting, endings) = (Arc::clone(&waiting), Arc::clone(&endings));
                std::thread::Builder::new().spawn(move || {
                    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    while let Some((index, mut capture)) = next() {
                        let mut offset_bytes = 0;
                        let mut read = || {
                            while let Some(batch) = capture.next_batch(take_buffer.try_recv().unwrap_or_default()) {
                                offset_bytes += batch.bytes.len() as u64;
                                if send.send(batch).is_err() {
                                    return None;
                                }
                            }
                            Some(capture.ending())
                        };
                        // After a panic, this thread reads the other inputs.
                        let ended = catch_unwind(AssertUnwindSafe(&mut read));
                        let Some(ending) = ended.unwrap_or_else(|_| Some(panicked(offset_bytes))) else { return };
                        if let Some(place) = endings.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
                            *place = ending;
                        }
                    }
                })
            })
            .collect();
        Ok(Self { batches: Some(batches), buffer_sender, buffer_receiver: take_buffer, threads: threads?, endings })
    }

    /// The next batches: waits for one and takes up to `most` of those that are ready. Empty when
    /// all inputs have ended.
    #[must_use]
    pub(super) fn next(&self, most: usize) -> Vec<Batch> {
        let first = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        self.and_ready(first, most)
    }

    /// The next batches: empty if none is ready within `patience`, `None` when all inputs have
    /// ended.
    #[must_use]
    pub(super) fn next_within(&self, most: usize, patience: Duration) -> Option<Vec<Batch>> {
        match self.batches.as_ref()?.recv_timeout(patience) {
            Ok(first) => Some(self.and_ready(Some(first), most)),
            Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Up to `most` of the batches that are ready.
    #[must_use]
    pub(super) fn ready(&self, most: usize) -> Vec<Batch> {
        self.and_ready(None, most)
    }

    fn and_ready(&self, first: Option<Batch>, most: usize) -> Vec<Batch> {
        let ready = || self.batches.as_ref().and_then(|batches| batches.try_recv().ok());
        first.into_iter().chain(std::iter::from_fn(ready)).take(most).collect()
    }

    /// Takes back the buffer of a used batch.
    pub(super) fn recycle(&self, bytes: Vec<u8>) {
        // A full channel means that there are enough used buffers.
        let _ = self.buffer_sender.try_send(bytes);
    }

    /// A used buffer, or a new one.
    #[must_use]
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffer_receiver.try_recv().unwrap_or_default()
    }

    /// Waits for the threads. Returns the endings of all inputs, in the order given to
    /// [`Self::start`].
    #[must_use]
    pub(super) fn finish(mut self) -> Vec<Ending> {
        // Without a receiver the readers stop, even if batches are left.
        self.batches = None;
        for thread in self.threads.drain(..) {
            // A reader that panicked has noted this in the ending of its input.
            let _ = thread.join();
        }
        std::mem::take(&mut self.endings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::frame::Framing;

    /// Header of a classic pcap: little-endian, microseconds, Ethernet.
    const PCAP_HEADER: [u8; 24] =
        [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 1, 0, 0, 0];

    /// An input with this many batches of 10 bytes, which panics at its end if it has an odd number.
    struct OddInput(u32, u32);

    impl BatchSource for OddInput {
        fn next_batch(&mut self, _: Vec<u8>) -> Option<Batch> {
            let Self(input, left) = self;
            assert!(*left > 0 || input.is_multiple_of(2), "a reader that panics");
            *left = left.checked_sub(1)?;
            let (framing, _) = Framing::detect(&PCAP_HEADER).expect("a pcap header");
            Some(Batch { input: *input, bytes: vec![0; 10], framing, first_record: 0, offset_bytes: 0 })
        }

        fn ending(&self) -> Ending {
            Ending { note: Some(format!("the end of {}", self.0)), ..Ending::default() }
        }
    }

    /// More inputs panic than there are threads.
    #[test]
    fn an_input_whose_reader_panics_has_a_read_error_and_the_others_are_read() {
        let count = 5 * MAX_READERS as u32;
        let inputs: Vec<OddInput> = (0..count).map(|input| OddInput(input, input % 3)).collect();
        let readers = InputReaders::start(inputs, 4).unwrap();
        let mut batches = vec![0; count as usize];
        loop {
            let next = readers.next(4);
            if next.is_empty() {
                break;
            }
            next.iter().for_each(|batch| batches[batch.input as usize] += 1);
        }
        assert!((0..count).zip(&batches).all(|(input, read)| *read == input % 3), "{batches:?}");
        for (input, ending) in (0..).zip(readers.finish()) {
            let note = ending.note.unwrap_or_default();
            if input % 2 == 0 {
                assert_eq!(note, format!("the end of {input}"));
            } else {
                let start = format!("read_error: reading failed at offset {}: the thread", 10 * (input % 3));
                assert!(note.starts_with(&start), "{note}");
            }
        }
    }
}
