//! The table of individual messages: one Parquet file, written one row group at a time.

use super::{ProfileError, tables};
use crate::model::{MessageRow, Profile};
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::ParquetWriter;
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
        tables::start_threads()?;
        let path = path.to_owned();
        let empty = tables::messages(&[], profile);
        let writer = empty
            .and_then(|empty| ParquetWriter::new(file).with_compression(tables::compression()).batched(empty.schema()));
        match writer {
            Ok(writer) => Ok(Self { path, writer, waiting: Vec::new() }),
            Err(source) => Err(ProfileError::Table { path, action: "written", source }),
        }
    }

    /// Adds a message.
    pub fn push(&mut self, row: MessageRow, profile: &Profile) -> Result<(), ProfileError> {
        self.waiting.push(row);
        if self.waiting.len() < tables::GROUP { Ok(()) } else { self.flush(profile) }
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
        let written = tables::messages(&self.waiting, profile).and_then(|table| self.writer.write_batch(&table));
        self.waiting.clear();
        written.map_err(|source| ProfileError::Table { path: self.path.clone(), action: "written", source })
    }
}
