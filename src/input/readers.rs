//! Threads that read inputs side by side.

use super::{Capture, Ending};
use crate::model::Batch;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Inputs that are read at the same time. Each needs a buffer and the window of its decompressor.
const MAX_READERS: usize = 16;

/// Reads all inputs and hands out their batches: each input's in order, the inputs' as they come.
pub struct Readers {
    batches: Option<Receiver<Batch>>,
    spares: Sender<Vec<u8>>,
    threads: Vec<JoinHandle<()>>,
    endings: Arc<Mutex<Vec<Ending>>>,
}

impl Readers {
    /// Starts reading. At most `queued` batches wait to be taken.
    #[must_use]
    pub fn start(captures: Vec<Capture>, queued: usize) -> Self {
        let count = captures.len();
        let (send, batches) = bounded(queued);
        let (spares, take_spare) = bounded::<Vec<u8>>(queued * 4);
        let endings = Arc::new(Mutex::new(vec![Ending::default(); count]));
        // Taken from the back: the first input is read first.
        let waiting = Arc::new(Mutex::new(captures.into_iter().enumerate().rev().collect::<Vec<_>>()));
        let threads = (0..count.min(MAX_READERS))
            .map(|_| {
                let (send, take_spare) = (send.clone(), take_spare.clone());
                let (waiting, endings) = (Arc::clone(&waiting), Arc::clone(&endings));
                std::thread::spawn(move || {
                    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    while let Some((index, mut capture)) = next() {
                        while let Some(batch) = capture.next_batch(take_spare.try_recv().unwrap_or_default()) {
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
        Self { batches: Some(batches), spares, threads, endings }
    }

    /// The next batches: waits for one and takes up to `most` of those that are ready. Empty when all inputs have ended.
    #[must_use]
    pub fn next(&self, most: usize) -> Vec<Batch> {
        let Some(batches) = &self.batches else { return Vec::new() };
        let first = batches.recv().ok();
        first.into_iter().chain(std::iter::from_fn(|| batches.try_recv().ok())).take(most).collect()
    }

    /// Gives the buffer of a used batch back.
    pub fn recycle(&self, bytes: Vec<u8>) {
        // A full channel means that there are spares enough.
        let _ = self.spares.try_send(bytes);
    }

    /// Waits for the threads and says how each input ended, in the order given.
    #[must_use]
    pub fn finish(mut self) -> Vec<Ending> {
        // Without a receiver the readers stop, also where not everything was taken.
        self.batches = None;
        for thread in self.threads.drain(..) {
            // A reader that panicked leaves an empty ending, and its panic message stands on the terminal.
            let _ = thread.join();
        }
        std::mem::take(&mut self.endings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
