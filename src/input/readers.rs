//! Threads that read inputs in order, several inputs at a time.

use super::{Capture, Ending, Follower};
use crate::model::Batch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
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
                        while let Some(batch) = capture.next_batch(take_buffer.try_recv().unwrap_or_default()) {
                            if send.send(batch).is_err() {
                                return;
                            }
                        }
                        if let Some(ending) = endings.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
                            *ending = capture.ending();
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
            // A reader that panicked leaves an empty ending; its message is on the terminal.
            let _ = thread.join();
        }
        std::mem::take(&mut self.endings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
