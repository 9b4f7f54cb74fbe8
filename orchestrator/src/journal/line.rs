//! The lines of a journal: an entry as JSON, a tab, and a checksum over this entry and all entries
//! before it.
//!
//! A changed line does not match its checksum, nor does a line whose predecessors are missing.
//! Journals of earlier versions have no checksums and are continued without them.

use super::JournalEntry;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};

/// Checksum over the entries so far.
#[derive(Clone)]
pub(super) struct ChecksumChain {
    entries: Sha256,
    /// False in a journal of an earlier version.
    has_sums: bool,
}

impl ChecksumChain {
    /// For a new journal.
    pub(super) fn new() -> Self {
        Self { entries: Sha256::new(), has_sums: true }
    }

    /// For an existing journal with this first line.
    pub(super) fn of(line: &[u8]) -> Self {
        Self { has_sums: line.contains(&b'\t'), ..Self::new() }
    }

    /// The entry of a line without its line end; `None` if the checksum does not match.
    pub(super) fn entry<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        if !self.has_sums {
            return Some(line);
        }
        let (json, sum) = line.split_at(line.iter().rposition(|&byte| byte == b'\t')?);
        self.entries.update(json);
        (sum.get(1..) == Some(self.sum().as_bytes())).then_some(json)
    }

    /// First 64 bits of the SHA-256, enough against damage by chance.
    fn sum(&self) -> String {
        let sum: [u8; 32] = self.entries.clone().finalize().into();
        let (first, _) = sum.split_at(8);
        format!("{:016x}", first.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    /// Appends an entry and syncs it. One write per line: an incomplete line can only be the last
    /// one.
    pub(super) fn append(&mut self, file: &mut File, entry: &JournalEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry).map_err(io::Error::other)?;
        let mut next = self.clone();
        if next.has_sums {
            next.entries.update(&line);
            line.push(b'\t');
            line.extend(next.sum().bytes());
        }
        line.push(b'\n');
        file.write_all(&line)?;
        *self = next;
        file.sync_data()
    }
}
