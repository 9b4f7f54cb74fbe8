//! Paths, `-` and FIFOs -> batches of whole records.
//!
//! [`open`] looks at every input before any work starts, so a wrong path or a wrong file fails at once. [`Feed`] then gives what is to be
//! done in rounds: plain pcap files are read and cut by those who decode them, many stretches at a time; everything else is read, decompressed and
//! cut by threads of its own, which hand batches over a bounded channel.

mod chunk;
mod cut;
mod feed;
mod follow;
mod format;
mod lane;
mod piped;
mod readers;
mod source;

pub use cut::{Capture, Ending};
pub use feed::{Feed, Piece, Receipt};
pub use follow::Follower;
pub use piped::Patience;
pub use source::{Digests, SourceOptions};

use source::Source;
use std::path::{Path, PathBuf};

/// An input that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file could not be opened.
    #[error("{}: cannot be opened: {source}; check the path and who may read it", path.display())]
    Open {
        /// The input.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file could not be read up to its first packet.
    #[error("{}: cannot be read: {source} (offset {offset_bytes}); {advice}", path.display())]
    Read {
        /// The input.
        path: PathBuf,
        /// Bytes of the decompressed file before the failure.
        offset_bytes: u64,
        /// What the system or the decompressor said.
        source: std::io::Error,
        /// The next step.
        advice: &'static str,
    },
    /// It does not start like a capture.
    #[error(
        "{}: not a capture file (offset 0: {found}); ibscope reads pcap and pcapng, plain or compressed with gzip or \
         zstd. Captures in other formats can be converted: editcap -F pcapng IN OUT",
        path.display()
    )]
    NotACapture {
        /// The input.
        path: PathBuf,
        /// What stands there instead.
        found: String,
    },
    /// It ends before its first packet does.
    #[error(
        "{}: ends at offset {length_bytes}, before the first whole packet record ({missing}); was the capture started and \
         was the file copied whole?",
        path.display()
    )]
    NoRecord {
        /// The input.
        path: PathBuf,
        /// Its length, decompressed.
        length_bytes: u64,
        /// What is cut short.
        missing: String,
    },
    /// Its packets are of a kind that holds no InfiniBand headers.
    #[error("{}: link type {link_type} {why}", path.display())]
    LinkType {
        /// The input.
        path: PathBuf,
        /// Name and number.
        link_type: String,
        /// What that means, and what to do.
        why: &'static str,
    },
    /// A folder without captures.
    #[error("{}: no file in this folder is a capture{why}; give the folder that the capture is written to", path.display())]
    NoCapture {
        /// The folder.
        path: PathBuf,
        /// What is wrong with the first of its files, where there is one.
        why: String,
    },
    /// A record that cannot be, before the first packet.
    #[error("{}: offset {offset_bytes}: {source}; the file is damaged or not a capture", path.display())]
    Corrupt {
        /// The input.
        path: PathBuf,
        /// Offset of the record in the decompressed file.
        offset_bytes: u64,
        /// What is wrong with it.
        source: ibscope_parsers::ParseError,
    },
}

/// Opens all inputs and reads each up to its first packet.
pub fn open(paths: &[PathBuf], options: &SourceOptions) -> Result<Vec<Capture>, InputError> {
    let open =
        |(index, path): (usize, &PathBuf)| Capture::open(index as u32, path, Source::open(path, options)?, options);
    paths.iter().enumerate().map(open).collect()
}

/// Bytes of those inputs that are regular files: what a progress bar can count to.
#[must_use]
pub fn total_bytes(paths: &[PathBuf]) -> u64 {
    let length =
        |path: &PathBuf| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    paths.iter().filter_map(length).sum()
}

/// True for standard input.
fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
