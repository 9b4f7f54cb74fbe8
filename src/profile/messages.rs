//! The table of individual messages: one Parquet file, written one row group at a time.

use super::{ProfileError, encode, threads};
use crate::model::message_table::{ConnectedMessage, messages_table};
use crate::model::{MessageRow, Profile};
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::{DataFrame, ParquetWriter, PolarsResult};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Writer of messages to an open file.
pub struct MessageWriter {
    /// For errors.
    path: PathBuf,
    writer: BatchedWriter<File>,
    waiting: Vec<MessageRow>,
}

impl MessageWriter {
    /// Starts the table in `file`; errors show `path`.
    pub fn begin(path: &Path, file: File, profile: &Profile) -> Result<Self, ProfileError> {
        threads::start()?;
        let path = path.to_owned();
        let empty = frame(&[], profile);
        let writer = empty
            .and_then(|empty| ParquetWriter::new(file).with_compression(encode::compression()).batched(empty.schema()));
        match writer {
            Ok(writer) => Ok(Self { path, writer, waiting: Vec::new() }),
            Err(source) => Err(ProfileError::Table { path, action: "written", source }),
        }
    }

    /// Adds a message.
    pub fn push(&mut self, row: MessageRow, profile: &Profile) -> Result<(), ProfileError> {
        self.waiting.push(row);
        if self.waiting.len() < encode::GROUP { Ok(()) } else { self.flush(profile) }
    }

    /// Writes the remaining messages, and the end of the file.
    pub fn finish(mut self, profile: &Profile) -> Result<(), ProfileError> {
        if !self.waiting.is_empty() {
            self.flush(profile)?;
        }
        let path = self.path;
        self.writer.finish().map_err(|source| ProfileError::Table { path, action: "written", source })?;
        Ok(())
    }

    fn flush(&mut self, profile: &Profile) -> Result<(), ProfileError> {
        let written = frame(&self.waiting, profile).and_then(|table| self.writer.write_batch(&table));
        self.waiting.clear();
        written.map_err(|source| ProfileError::Table { path: self.path.clone(), action: "written", source })
    }
}

/// Converts messages to a polars table. Skips messages whose connection the profile does not have;
/// a consistent profile has none.
pub(super) fn frame(rows: &[MessageRow], profile: &Profile) -> PolarsResult<DataFrame> {
    let rows: Vec<_> = rows.iter().filter_map(|row| ConnectedMessage::of(row, profile)).collect();
    encode::frame(&messages_table(), &rows)
}
