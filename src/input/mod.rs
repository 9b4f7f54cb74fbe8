//! Reads capture files, pipes and standard input, and gives batches of whole records.
//!
//! [`open`] reads every input up to its first packet before any work starts, so that a wrong path
//! or file fails at once. A [`Feed`] then hands out the work in rounds. Plain pcap files are split
//! into segments that the workers read and split themselves, many at a time. All other inputs
//! (pipes, gzip, zstd, pcapng, growing files) are read, decompressed and split in order by reader
//! threads (`InputReaders`), which send their batches through a bounded channel.
//!
//! ```text
//! plain pcap file   |header|rec|rec|record|rec|rec|record|rec|record|rec|rec|...
//! Segment                  |<- segment 0 -->|<- segment 1 ->|<- segment 2 ...
//! SegmentBuffer            [ bytes 0         ]
//!                                           [ bytes 1        ]
//! SegmentRecords           |rec|rec|record|rec|
//!                                             |rec|record|rec|
//!
//! Feed::next         -> FeedTask: a Segment, a Capture to read in order, or a Batch of a reader
//! FeedTask::run      -> Vec<Batch> and a FeedReceipt; on any worker, in any order
//! Feed::accept       <- FeedReceipt, in the order of the tasks: do these batches count?
//! ```
//!
//! A segment consists of the records that start within it. Its worker searches for the first one
//! and reads on to the end of the last one. Invariant: the records of a segment count only if they
//! start exactly where the records before it ended. So the result is the same as from reading the
//! file in order; from a rejected segment on, its file is read in order.

mod capture;
mod feed;
mod fifo;
mod follow;
mod format;
mod read_files;
mod readers;
mod segment;
mod sflow;
mod source;
mod split_input;

pub use capture::{Capture, Ending};
pub use feed::{Feed, FeedReceipt, FeedTask};
pub use fifo::EndCondition;
pub use follow::Follower;
pub use sflow::{DatagramCounter, SflowListener};
pub use source::{Digests, SourceOptions};

use source::InputSource;
use std::path::{Path, PathBuf};

/// An input that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file could not be opened.
    #[error("{}: cannot be opened: {source}; check the path and its permissions", path.display())]
    Open {
        /// Path of the input.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file could not be read up to its first packet.
    #[error("{}: cannot be read: {source} (offset {offset_bytes}); {advice}", path.display())]
    Read {
        /// Path of the input.
        path: PathBuf,
        /// Offset of the failure in the decompressed file.
        offset_bytes: u64,
        /// Error of the operating system or the decompressor.
        source: std::io::Error,
        /// The next step for the user.
        advice: &'static str,
    },
    /// The socket could not be bound.
    #[error("cannot receive sFlow on {address}: {source}; give an address of this machine and a free UDP port")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file does not start like a capture.
    #[error(
        "{}: not a capture file (offset 0: {found}); ibscope reads pcap and pcapng, plain or compressed with gzip or \
         zstd. {advice}",
        path.display()
    )]
    NotACapture {
        /// Path of the input.
        path: PathBuf,
        /// The start of the file.
        found: String,
        /// The next step for the user.
        advice: &'static str,
    },
    /// The file ends before its first packet does.
    #[error(
        "{}: ends at offset {length_bytes}, before the first whole packet record ({missing}); was the capture started, and \
         was the file copied completely?",
        path.display()
    )]
    NoRecord {
        /// Path of the input.
        path: PathBuf,
        /// Length of the decompressed file.
        length_bytes: u64,
        /// The truncated part.
        missing: String,
    },
    /// The link type carries no InfiniBand headers.
    #[error("{}: link type {link_type} {why}", path.display())]
    LinkType {
        /// Path of the input.
        path: PathBuf,
        /// Name and number of the link type.
        link_type: String,
        /// The consequence, and the next step.
        why: &'static str,
    },
    /// A folder without captures.
    #[error("{}: no file in this folder is a capture{why}; give the folder that the capture is written to", path.display())]
    NoCapture {
        /// Path of the folder.
        path: PathBuf,
        /// The error of its first file, if it has one.
        why: String,
    },
    /// An invalid record before the first packet.
    #[error("{}: offset {offset_bytes}: {source}; the file is damaged or not a capture", path.display())]
    Corrupt {
        /// Path of the input.
        path: PathBuf,
        /// Offset of the record in the decompressed file.
        offset_bytes: u64,
        /// The error.
        source: ibscope_parsers::ParseError,
    },
}

/// Opens all inputs and reads each of them up to its first packet.
pub fn open(paths: &[PathBuf], options: &SourceOptions) -> Result<Vec<Capture>, InputError> {
    let open = |(index, path): (usize, &PathBuf)| {
        Capture::open(index as u32, path, InputSource::open(path, options)?, options)
    };
    paths.iter().enumerate().map(open).collect()
}

/// True if the file is a capture with a link type that ibscope can read and at least one packet
/// record.
///
/// # Errors
/// The file cannot be read, or its first record is invalid.
pub fn is_capture(path: &Path) -> Result<bool, InputError> {
    let options = SourceOptions::default();
    match Capture::open(0, path, InputSource::open(path, &options)?, &options) {
        Ok(_) => Ok(true),
        Err(InputError::NotACapture { .. } | InputError::NoRecord { .. } | InputError::LinkType { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Total length of the inputs that are regular files, for a progress bar.
#[must_use]
pub fn total_bytes(paths: &[PathBuf]) -> u64 {
    let length =
        |path: &PathBuf| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    paths.iter().filter_map(length).sum()
}

/// True if the path means standard input.
fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
