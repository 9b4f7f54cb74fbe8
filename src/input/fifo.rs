//! Waiting for data: FIFOs and standard input, and the condition that ends the wait.

use super::is_stdin;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause between two checks for new data.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Bytes per read of a FIFO (a pipe holds 64 KiB), and reads that may be queued.
const CHUNK_BYTES: usize = 64 << 10;

const CHUNKS: usize = 16;

/// Condition that ends a growing input.
#[derive(Clone, Debug, Default)]
pub struct EndCondition {
    /// Set by the caller to end the input at the current position.
    pub stop: Arc<AtomicBool>,
    /// End at the current end of a file; a FIFO is still read to its end.
    pub until_now: bool,
}

impl EndCondition {
    /// True if the caller has ended the input.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Reads a FIFO on its own thread, which may block forever without blocking its user.
pub(super) struct FifoReader {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    end_condition: EndCondition,
}

impl FifoReader {
    pub(super) fn new(place: PathBuf, patience: EndCondition) -> Self {
        let (send, chunks) = bounded(CHUNKS);
        let refused = send.clone();
        let read = move || {
            let opened: io::Result<Box<dyn Read>> = if is_stdin(&place) {
                Ok(Box::new(io::stdin()))
            } else {
                File::open(&place).map(|file| Box::new(file) as Box<dyn Read>)
            };
            let mut raw = match opened {
                Ok(raw) => raw,
                Err(error) => return drop(send.send(Err(error))),
            };
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = match raw.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(count) => {
                        chunk.truncate(count);
                        Ok(chunk)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = read.is_err();
                if send.send(read).is_err() || is_last {
                    return;
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(read) {
            let error = io::Error::other(format!("cannot start a reader thread: {error}"));
            // The channel has room: it is empty.
            let _ = refused.send(Err(error));
        }
        Self { chunks, chunk: io::Cursor::default(), end_condition: patience }
    }
}

impl Read for FifoReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Ends even if more data may come.
        while !self.end_condition.is_over() {
            let count = self.chunk.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            match self.chunks.recv_timeout(PAUSE) {
                Ok(chunk) => self.chunk = io::Cursor::new(chunk?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(0)
    }
}
