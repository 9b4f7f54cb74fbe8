//! `ibscope messages`: individual messages as lines, as one Parquet file, or as part of a dataset.

use super::common::arguments::{CaptureArgs, WidthArgs};
use super::common::choices::Format;
use super::common::files::{self, OutputFile};
use super::common::usage::UsageError;
use super::common::{input, output};
use super::dataset::DatasetArgs;
use crate::model::{MessageRow, Profile, count_of};
use crate::pipeline::{DatasetWriter, MessageWriter};
use crate::render::messages::MessageLines;
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
pub(super) struct MessagesArgs {
    #[command(flatten)]
    pub(super) captures: CaptureArgs,
    /// Include transport messages that belong to no MPI message: one-sided operations, credits,
    /// storage
    #[arg(long)]
    pub(super) transport: bool,
    /// Output format; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) width: WidthArgs,
    /// Write the messages to FILE as a Parquet table, instead of to standard output
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(super) parquet: Option<PathBuf>,
    #[command(flatten)]
    pub(super) dataset: DatasetArgs,
}

/// Runs `ibscope messages`.
pub(super) fn run(args: &MessagesArgs) -> anyhow::Result<ExitCode> {
    if args.parquet.as_ref().is_some_and(|place| place.as_os_str() == "-") {
        return Err(UsageError("standard output cannot hold a Parquet table; give a file to --parquet").into());
    }
    if args.dataset.repeats_a_key() {
        return Err(UsageError("--partition has a key twice; give each key one value").into());
    }
    input::check_captures("messages", &args.captures.inputs)?;
    let table =
        OutputFile::open_private(args.parquet.as_ref(), &input::files(&args.captures.inputs, &args.captures.reading))?;
    let folder = args.dataset.place();
    let dataset = folder.as_deref().map(|folder| DatasetWriter::create(folder, args.dataset.file_rows)).transpose()?;
    let mut stream =
        input::messages_alone(&args.captures.inputs, &args.captures.reading, args.captures.scope, args.transport)?;
    // The profile resolves the connection of a message while the stream is read.
    let profile = stream.profile().clone();
    let (mut count, mut incomplete) = (0u64, 0u64);
    let counted = stream.by_ref().inspect(|row| {
        let row = row.as_ref().ok();
        count += u64::from(row.is_some());
        incomplete += u64::from(row.is_some_and(|row| !row.raw.complete));
    });
    let written = if let Some(dataset) = dataset {
        let (place, files) = part(dataset, folder.as_deref().unwrap_or(Path::new("")), counted, &profile)?;
        Some(format!("{} ({})", place.display(), count_of(files as u64, "file")))
    } else if let Some(table) = table {
        let place = table.place().to_owned();
        table.finish_with(|file| {
            let failed = |error| files::write_error(&place, &error);
            let mut writer = MessageWriter::begin(&place, file, &profile).map_err(failed)?;
            for row in counted {
                writer.push(row?, &profile).map_err(failed)?;
            }
            writer.finish(&profile).map_err(failed)
        })?;
        Some(place.display().to_string())
    } else {
        output::results(|out| {
            let mut lines = MessageLines::begin(args.format.into(), &profile, args.width.columns(), out)?;
            for row in counted {
                lines.message(&row?, &profile)?;
            }
            lines.finish()
        })?;
        None
    };
    if let Some(place) = written {
        output::eprint_line(&format!("{} written to {place}", count_of(count, "message")));
    }
    input::table_notes(&args.captures.reading, &profile);
    if let Some(note) = input::empty_window(&args.captures.reading, &profile, false) {
        output::eprint_line(&note);
    } else if count == 0 && !args.transport {
        let why = if input::detects_no_library(&args.captures.reading, &profile) { input::SHORT_WINDOW } else { "" };
        let and = if why.is_empty() { "" } else { "; " };
        output::eprint_line(&format!(
            "note: no MPI message was detected; --transport lists the transport messages{and}{why}"
        ));
    }
    if incomplete > 0 {
        output::eprint_line(&format!(
            "note: {incomplete} of {count} messages are incomplete: some of their packets are not in the capture"
        ));
    }
    input::ports_note(&profile, "messages between other ports are missing");
    input::coverage_note(&profile);
    output::notes(&profile.notes);
    Ok(input::exit_code(&args.captures.reading, &profile.coverage))
}

/// Writes the messages to their partition of the dataset. Returns its folder and the number of
/// files.
fn part(
    mut dataset: DatasetWriter,
    folder: &Path,
    rows: impl Iterator<Item = io::Result<MessageRow>>,
    profile: &Profile,
) -> anyhow::Result<(PathBuf, usize)> {
    let failed = |error| files::write_error(folder, &error);
    for row in rows {
        dataset.push(row?, profile).map_err(failed)?;
    }
    dataset.finish(profile).map_err(failed)
}
