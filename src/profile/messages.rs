//! The table of single messages, written as they come: one Parquet file, a row group at a time.

use super::{ProfileError, tables};
use crate::model::{MessageRow, Profile};
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::ParquetWriter;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Writes messages to a file that is open.
pub struct MessageWriter {
    /// For errors.
    path: PathBuf,
    writer: BatchedWriter<File>,
    waiting: Vec<MessageRow>,
}

impl MessageWriter {
    /// Begins the table in `file`; `path` is what errors call it.
    pub fn begin(path: &Path, file: File, profile: &Profile) -> Result<Self, ProfileError> {
        tables::start_threads()?;
        let path = path.to_owned();
        let empty = tables::messages(&[], profile);
        let writer = empty
            .and_then(|empty| ParquetWriter::new(file).with_compression(tables::COMPRESSION).batched(empty.schema()));
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

    /// Writes what is left, and the end of the file.
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
