//! Options for a dataset of messages.

use crate::pipeline::DatasetWriter;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Default number of messages per file, some 100 MB.
const FILE_ROWS: u64 = 4_000_000;

#[derive(Debug, Args)]
pub(super) struct DatasetArgs {
    /// Instead of printing the messages, add them to a Parquet dataset in this folder; several calls
    /// may share the folder
    #[arg(id = "dataset", long, value_name = "FOLDER", conflicts_with_all = ["format", "parquet"])]
    pub(super) folder: Option<PathBuf>,
    /// Dataset column and value of these messages, such as `slurm_job=4711`; repeatable, in the
    /// same order in each call
    #[arg(long, value_name = "KEY=VALUE", requires = "dataset", value_parser = partition)]
    pub(super) partition: Vec<(String, String)>,
    /// Write at most N messages per file of the dataset
    #[arg(long, value_name = "N", requires = "dataset", default_value_t = FILE_ROWS, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) file_rows: u64,
}

impl DatasetArgs {
    /// The folder of this partition, if a dataset was requested.
    pub(super) fn place(&self) -> Option<PathBuf> {
        let keys = self.partition.iter().map(|(key, value)| format!("{key}={value}"));
        self.folder.as_ref().map(|folder| folder.join(keys.collect::<PathBuf>()))
    }

    /// True if a key is given twice.
    pub(super) fn repeats_a_key(&self) -> bool {
        let keys: BTreeSet<&str> = self.partition.iter().map(|(key, _)| key.as_str()).collect();
        keys.len() < self.partition.len()
    }
}

/// Parses `KEY=VALUE`. Both become folder names without escapes, because readers interpret `%` and
/// `/`.
fn partition(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as slurm_job=4711")?;
    let is_key = key.starts_with(|one: char| one.is_ascii_lowercase())
        && key.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_');
    if !is_key {
        return Err("the key must be lower case letters, digits and `_`, starting with a letter".to_owned());
    }
    if value.is_empty() || !value.chars().all(|one| one.is_ascii_alphanumeric() || "._-".contains(one)) {
        return Err("the value must be letters, digits, `.`, `_` and `-`".to_owned());
    }
    if DatasetWriter::reserved_names().iter().any(|name| name == key) {
        return Err(format!("messages have a column `{key}` already; choose another key"));
    }
    Ok((key.to_owned(), value.to_owned()))
}
