//! A stretch of a plain file, cut by whoever decodes it.
//!
//! Each finds its first record by itself, by what records look like, and ends with the first one that reaches its end. Whether that is where
//! records start in truth is known when the stretch before it has been cut: [`Feed`](super::Feed) checks it.

use ibscope_parsers::ErrorKind;
use ibscope_parsers::frame::boundary::Probe;
use ibscope_parsers::frame::{Framing, Item};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Bytes that are searched for the first record before more are read: some records of 4 KiB. What stands before it is moved out of the way, so this
/// should be little.
const SEARCHED_BYTES: usize = 32 << 10;

/// Where to read and cut.
pub(super) struct Chunk {
    pub(super) file: Arc<File>,
    pub(super) framing: Framing,
    /// Finds the first record; `None` where one starts at the first byte.
    pub(super) probe: Option<Probe>,
    /// Records that start between these offsets belong to it.
    pub(super) start_bytes: u64,
    pub(super) end_bytes: u64,
    /// An old buffer that may be used again.
    pub(super) spare: Vec<u8>,
}

/// Whole records, and where they stand.
pub(super) struct Cut {
    pub(super) bytes: Vec<u8>,
    pub(super) start_bytes: u64,
    pub(super) records: u64,
}

impl Chunk {
    /// Reads it and cuts it at records. Whatever stands in the way of that - no record is found, or it cannot be, or the file cannot be read or
    /// ends - is left to who reads the file in order; then only the buffer is given back.
    pub(super) fn cut(self) -> Result<Cut, Vec<u8>> {
        let Self { file, mut framing, probe, mut start_bytes, end_bytes, spare } = self;
        let mut wanted = (end_bytes - start_bytes) as usize;
        let mut stretch = Stretch { file, start_bytes, bytes: spare, filled: 0 };
        if let Some(probe) = probe {
            let Some(found) = stretch.find(&probe, wanted) else { return Err(stretch.bytes) };
            stretch.drop_first(found);
            start_bytes += found as u64;
            wanted -= found;
        }
        let (mut cut, mut records) = (0, 0);
        while cut < wanted {
            if stretch.fill(wanted).is_err() {
                return Err(stretch.bytes);
            }
            let count = |item: &Item<'_>| records += u64::from(matches!(item, Item::Record(_)));
            let (walked, stop) = framing.walk(&stretch.bytes[cut..stretch.filled], count);
            cut += walked;
            match stop.map(|stop| stop.kind) {
                None => {}
                // The last record goes on behind the end: it alone is read on.
                Some(ErrorKind::Truncated { needed, .. }) => wanted = cut + needed,
                Some(ErrorKind::Invalid { .. }) => return Err(stretch.bytes),
            }
        }
        let mut bytes = stretch.bytes;
        bytes.truncate(cut);
        Ok(Cut { bytes, start_bytes, records })
    }
}

/// What has been read of it: `bytes[..filled]`.
struct Stretch {
    file: Arc<File>,
    start_bytes: u64,
    bytes: Vec<u8>,
    filled: usize,
}

impl Stretch {
    /// Reads on until so many bytes are there.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        while self.filled < wanted {
            match self.file.read_at(&mut self.bytes[self.filled..wanted], self.start_bytes + self.filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where the first record starts among so many bytes.
    fn find(&mut self, probe: &Probe, most: usize) -> Option<usize> {
        let mut searched = SEARCHED_BYTES.min(most);
        loop {
            self.fill(searched).ok()?;
            match probe.find(&self.bytes[..self.filled]) {
                None if searched < most => searched = searched.saturating_mul(4).min(most),
                found => return found,
            }
        }
    }

    fn drop_first(&mut self, bytes: usize) {
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
        self.start_bytes += bytes as u64;
    }
}
