//! What may be waited for: a FIFO or standard input, and when the wait is over.

use super::is_stdin;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait before a look at what has grown.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Bytes that a FIFO gives at a time, and how many of these may wait: those of a pipe are 64 KiB.
const CHUNK_BYTES: usize = 64 << 10;

const CHUNKS: usize = 16;

/// When to end.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// Set from outside: what was read is the end.
    pub stop: Arc<AtomicBool>,
    /// What is there at the start is all that is wanted; a FIFO is read to its end all the same.
    pub until_now: bool,
}

impl Patience {
    /// True where nothing more is wanted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What comes from a FIFO. It is read by a thread of its own, which may wait for ever: whoever waits for it need not.
pub(super) struct Piped {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    patience: Patience,
}

impl Piped {
    pub(super) fn new(place: PathBuf, patience: Patience) -> Self {
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
            let error = io::Error::other(format!("its thread cannot be started: {error}"));
            // The channel has room: nothing else was sent.
            let _ = refused.send(Err(error));
        }
        Self { chunks, chunk: io::Cursor::default(), patience }
    }
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // However much more may come.
        while !self.patience.is_over() {
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
