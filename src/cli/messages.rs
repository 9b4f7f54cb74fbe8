//! `ibscope messages`: single messages as lines, as one Parquet file, or as a part of a dataset.

use super::common::arguments::{Reading, Scope};
use super::common::choices::Format;
use super::common::files::{self, Output};
use super::common::usage::UsageError;
use super::common::{input, output};
use super::dataset::Dataset;
use crate::model::{MessageRow, Profile};
use crate::pipeline::{DatasetWriter, MessageWriter};
use crate::render::messages::Lines;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope messages sink.pcap --format csv
  ibscope messages sink.pcap --from 1.5 --to 1.6 --transport
  ibscope messages sink.pcap --parquet messages.parquet";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Messages {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    #[command(flatten)]
    pub(super) scope: Scope,
    /// Include transport messages outside MPI messages: one-sided operations, credits, storage
    #[arg(long)]
    pub(super) transport: bool,
    /// Output format; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Write the messages to FILE as a Parquet table, instead of standard output
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(super) parquet: Option<PathBuf>,
    #[command(flatten)]
    pub(super) dataset: Dataset,
}

/// `ibscope messages`.
pub(super) fn run(args: &Messages) -> anyhow::Result<ExitCode> {
    if args.parquet.as_ref().is_some_and(|place| place.as_os_str() == "-") {
        return Err(UsageError("standard output cannot hold a Parquet table; give a file to --parquet").into());
    }
    if args.dataset.repeats_a_key() {
        return Err(UsageError("--partition has a key twice; give each column one value").into());
    }
    input::check_captures("messages", &args.inputs)?;
    let table = Output::open_private(args.parquet.as_ref(), &input::files(&args.inputs, &args.reading))?;
    let folder = args.dataset.place();
    let dataset = folder.as_deref().map(|folder| DatasetWriter::create(folder, args.dataset.file_rows)).transpose()?;
    let mut stream = input::messages_alone(&args.inputs, &args.reading, args.scope, args.transport)?;
    // The profile says what a message's connection is, while the stream goes on.
    let profile = stream.profile().clone();
    let (mut count, mut incomplete) = (0u64, 0u64);
    let counted = stream.by_ref().inspect(|row| {
        let row = row.as_ref().ok();
        count += u64::from(row.is_some());
        incomplete += u64::from(row.is_some_and(|row| !row.raw.complete));
    });
    let written = if let Some(dataset) = dataset {
        let (place, files) = part(dataset, folder.as_deref().unwrap_or(Path::new("")), counted, &profile)?;
        let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
        Some(format!("{} ({files})", place.display()))
    } else if let Some(table) = table {
        let place = table.place().to_owned();
        table.finish_with(|file| {
            let failed = |error| files::unwritten(&place, &error);
            let mut writer = MessageWriter::begin(&place, file, &profile).map_err(failed)?;
            for row in counted {
                writer.push(row?, &profile).map_err(failed)?;
            }
            writer.finish(&profile).map_err(failed)
        })?;
        Some(place.display().to_string())
    } else {
        output::results(|out| {
            let mut lines = Lines::begin(args.format.into(), &profile, out)?;
            for row in counted {
                lines.message(&row?, &profile)?;
            }
            Ok(())
        })?;
        None
    };
    if let Some(place) = written {
        output::say(&format!("{count} messages written to {place}"));
    }
    input::rankmap_notes(&args.reading, &profile);
    if let Some(note) = input::empty_window(&args.reading, &profile, false) {
        output::say(note);
    } else if count == 0 && !args.transport {
        let why = if input::is_unrecognised(&args.reading, &profile) { input::SHORT_WINDOW } else { "" };
        let and = if why.is_empty() { "" } else { "; " };
        output::say(&format!(
            "note: no MPI message was recognised; --transport lists the messages of the transport{and}{why}"
        ));
    }
    if incomplete > 0 {
        output::say(&format!(
            "note: {incomplete} of {count} messages are incomplete: not all of their packets are in the capture"
        ));
    }
    output::notes(&profile.notes);
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// Writes the messages to their place in a dataset; gives the place and the number of files.
fn part(
    mut dataset: DatasetWriter,
    folder: &Path,
    rows: impl Iterator<Item = io::Result<MessageRow>>,
    profile: &Profile,
) -> anyhow::Result<(PathBuf, usize)> {
    let failed = |error| files::unwritten(folder, &error);
    for row in rows {
        dataset.push(row?, profile).map_err(failed)?;
    }
    dataset.finish(profile).map_err(failed)
}
