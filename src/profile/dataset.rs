//! Individual messages as a part of a dataset: a folder that many calls on many machines write side
//! by side and that readers of Parquet treat as one table.
//!
//! ```text
//! DATASET/KEY=VALUE/.../capture=NAME-SUM/messages-00000.parquet
//!                                        messages-00001.parquet
//! ```
//!
//! `KEY=VALUE` is the Hive layout: readers show the folders as columns, and skip folders that a
//! query excludes. The last folder has the name of the captures and a hash of their digests.
//! Different captures therefore get different folders, and the same captures replace their own.
//! Files are written to a scratch folder that readers ignore, and renamed at the end.

use super::{MessageWriter, ProfileError, io_error, messages};
use crate::model::{MessageRow, Profile};
use crate::scratch::Scratch;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Key of the captures' folder, `capture=...`.
const CAPTURE: &str = "capture";
/// Maximum of characters of a capture name in the folder name.
const MAX_CHARACTERS: usize = 80;

/// Writer of the messages of some captures.
pub struct DatasetWriter {
    /// The dataset folder, with the keys that the user gave.
    folder: PathBuf,
    scratch: Scratch,
    file_rows: u64,
    /// The current file, and its number of rows.
    open: Option<(MessageWriter, u64)>,
    /// Number of files, including the current one.
    files: usize,
}

impl DatasetWriter {
    /// Names that no key may have: those of the columns, and `capture`.
    #[must_use]
    pub fn reserved_names() -> Vec<String> {
        let table = messages::frame(&[], &Profile::default());
        let columns = table.iter().flat_map(|table| table.get_column_names()).map(ToString::to_string);
        columns.chain([CAPTURE.to_owned()]).collect()
    }

    /// Prepares `folder`, the dataset folder with its keys. A file gets at most `file_rows`
    /// messages.
    pub fn create(folder: &Path, file_rows: u64) -> Result<Self, ProfileError> {
        fs::create_dir_all(folder).map_err(io_error(folder, "cannot be created"))?;
        // Readers of datasets skip names that begin with a dot.
        let scratch = Scratch::folder(&folder.join(".messages")).map_err(io_error(folder, "cannot be written to"))?;
        Ok(Self { folder: folder.to_owned(), scratch, file_rows: file_rows.max(1), open: None, files: 0 })
    }

    /// Adds a message.
    pub fn push(&mut self, row: MessageRow, profile: &Profile) -> Result<(), ProfileError> {
        if let Some((writer, _)) = self.open.take_if(|(_, rows)| *rows >= self.file_rows) {
            writer.finish(profile)?;
        }
        let (mut writer, rows) = match self.open.take() {
            Some(open) => open,
            None => (self.begin(profile)?, 0),
        };
        writer.push(row, profile)?;
        self.open = Some((writer, rows + 1));
        Ok(())
    }

    /// Puts the files in place, and removes those of an earlier call for the same captures. Returns
    /// the folder and the number of files: at least one, so that the table has its columns without
    /// messages.
    pub fn finish(mut self, profile: &Profile) -> Result<(PathBuf, usize), ProfileError> {
        let writer = match self.open.take() {
            Some((writer, _)) => writer,
            None => self.begin(profile)?,
        };
        writer.finish(profile)?;
        let place = self.folder.join(folder_name(profile));
        fs::create_dir_all(&place).map_err(io_error(&place, "cannot be created"))?;
        let files = self.files;
        self.scratch.commit(|scratch| put_in_place(scratch, &place, files))?;
        Ok((place, files))
    }

    fn begin(&mut self, profile: &Profile) -> Result<MessageWriter, ProfileError> {
        let path = scratch_file(self.scratch.path(), self.files);
        self.files += 1;
        // Tags and sizes of individual messages are for the owner only, as in a profile.
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(io_error(&path, "cannot be created"))?;
        MessageWriter::begin(&path, file, profile)
    }
}

/// Path of a file in the scratch folder.
fn scratch_file(scratch: &Path, file: usize) -> PathBuf {
    scratch.join(format!("{file}.part"))
}

/// Renames `files` files into place, and removes surplus files of an earlier call.
fn put_in_place(scratch: &Path, place: &Path, files: usize) -> Result<(), ProfileError> {
    for file in 0..files {
        let target = place.join(file_name(file));
        fs::rename(scratch_file(scratch, file), &target)
            .map_err(io_error(&target, "cannot be renamed to its final name"))?;
    }
    // Only files with such names: others are not ours.
    for entry in fs::read_dir(place).map_err(io_error(place, "cannot be read"))? {
        let entry = entry.map_err(io_error(place, "cannot be read"))?;
        let number = entry.file_name().to_str().and_then(file_number);
        if number.is_some_and(|number| number >= files) {
            fs::remove_file(entry.path()).map_err(io_error(&entry.path(), "cannot be removed"))?;
        }
    }
    Ok(())
}

/// Name of the captures' folder: the name of the first capture, the number of others, and a hash
/// that distinguishes captures of the same name.
fn folder_name(profile: &Profile) -> String {
    let first = profile.inputs.first().map_or("none", |input| input.name.as_str());
    let of_file = first.rsplit('/').next().unwrap_or(first).chars().take(MAX_CHARACTERS);
    let plain: String =
        of_file.map(|one| if one.is_ascii_alphanumeric() || "._-".contains(one) { one } else { '_' }).collect();
    let more = match profile.inputs.len() {
        0 | 1 => String::new(),
        count => format!("-and-{}", count - 1),
    };
    let sums: Vec<u8> = profile.inputs.iter().flat_map(|input| input.xxh3_128.bytes()).collect();
    format!("{CAPTURE}={plain}{more}-{:016x}", xxhash_rust::xxh3::xxh3_64(&sums))
}

fn file_name(number: usize) -> String {
    format!("messages-{number:05}.parquet")
}

fn file_number(name: &str) -> Option<usize> {
    let number = name.strip_prefix("messages-")?.strip_suffix(".parquet")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}
