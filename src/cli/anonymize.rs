//! `ibscope anonymize`: captures -> captures that can be shared.

use super::common::files::{self, OutputFile};
use super::common::parse::threads;
use super::common::usage::UsageError;
use super::common::{input, output};
use crate::anonymize::{AnonymizeKey, AnonymizeTally, Anonymizer, ConnectionStacks};
use crate::model::{Profile, count_either, count_of};
use crate::pipeline::{AnalysisMeasures, AnalysisOptions, ClockOptions, DigestChoice};
use crate::render::units::group;
use anyhow::{Context as _, bail};
use clap::Args;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::LibraryStack;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Record kinds that a summary line lists by name.
const MAX_NAMED: usize = 8;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope anonymize sink.pcap -o shared.pcap.zst
  ibscope anonymize node1.pcap node2.pcap --names names.csv -o shared";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct AnonymizeArgs {
    /// Captures, or folders with captures: pcap or pcapng, plain, gzip or zstd; regular files only,
    /// because each is read twice
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Write to this file, or to files of the same names in this folder; compress if the name ends
    /// in .gz or .zst
    #[arg(short, long, value_name = "FILE|FOLDER")]
    output: PathBuf,
    /// Derive the new addresses from TEXT, so that several runs give the same addresses [default:
    /// random]
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Write the new endpoints, with the old ones as names, to FILE: csv `endpoint,name`, as
    /// `--hosts` reads it; readable by the owner only
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Use N worker threads for the analysis [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    threads: usize,
}

/// Runs `ibscope anonymize`: writes captures without payload and with new addresses.
pub(super) fn run(args: &AnonymizeArgs) -> anyhow::Result<ExitCode> {
    input::check_captures("anonymize", &args.inputs)?;
    if let Some(stream) = args.inputs.iter().find(|path| path.as_os_str() == "-" || is_stream(path)) {
        bail!(
            "{}: is not a regular file, and anonymize reads captures twice; save it to a file first",
            stream.display()
        );
    }
    let places = places(args)?;
    let read: Vec<&Path> = args.inputs.iter().map(PathBuf::as_path).collect();
    let outputs =
        places.iter().map(|place| OutputFile::open(Some(place), &read)).collect::<anyhow::Result<Vec<_>>>()?;
    let names = OutputFile::open_secret(args.names.as_ref(), &read)?;
    if let Some(names) = &names
        && outputs.iter().flatten().any(|output| output.is_same_as(names))
    {
        return Err(UsageError("--names and --output name the same file; give each its own").into());
    }
    let key = match &args.key {
        Some(text) => AnonymizeKey::of(text),
        None => AnonymizeKey::random().context("/dev/urandom: cannot be read; give --key")?,
    };
    let profile = analyze(args)?;
    let mut anonymizer = Anonymizer::new(&key, connection_stacks(&profile));
    let mut code = ExitCode::SUCCESS;
    for ((path, place), file) in args.inputs.iter().zip(&places).zip(outputs.into_iter().flatten()) {
        let mut tally = AnonymizeTally::default();
        file.finish_with(|file| {
            tally = write_anonymized(&mut anonymizer, path, place, file)?;
            Ok(())
        })?;
        summary_lines(path, place, &tally).iter().for_each(|line| output::eprint_line(line));
        if tally.ended_early.is_some() {
            code = ExitCode::FAILURE;
        }
    }
    if let Some(file) = names {
        if code != ExitCode::SUCCESS {
            // A user who cleans up after a failed run may overlook a file with the real names.
            output::eprint_line(&format!(
                "note: {}: not written, because a capture could not be read to its end",
                file.place().display()
            ));
            return Ok(code);
        }
        let ends: BTreeSet<Endpoint> = profile.connections.iter().flat_map(|row| [row.src, row.dst]).collect();
        let mut text = "endpoint,name\n".to_owned();
        // The format is that of `--hosts`: the new endpoints, with the old ones as names.
        for end in ends {
            text.push_str(
                &[anonymizer.endpoint(end).to_string(), ",".to_owned(), end.to_string(), "\n".to_owned()].concat(),
            );
        }
        file.finish(text.as_bytes())?;
    }
    Ok(code)
}

fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// The output file of each capture.
fn places(args: &AnonymizeArgs) -> anyhow::Result<Vec<PathBuf>> {
    let ends_as_folder = args.output.as_os_str().as_encoded_bytes().ends_with(b"/");
    if args.inputs.len() == 1 && !args.output.is_dir() && !ends_as_folder {
        return Ok(vec![args.output.clone()]);
    }
    fs::create_dir_all(&args.output).with_context(|| format!("{}: cannot be created", args.output.display()))?;
    let mut taken = BTreeSet::new();
    let place = |path: &PathBuf| {
        let name = path.file_name().with_context(|| format!("{}: is not a file name", path.display()))?;
        if !taken.insert(name.to_owned()) {
            bail!("{}: another capture has the same file name; write them to separate folders", path.display());
        }
        Ok(args.output.join(name))
    };
    args.inputs.iter().map(place).collect()
}

/// Analyzes the captures, to find the payload that is an envelope. A capture without InfiniBand
/// packets has none.
fn analyze(args: &AnonymizeArgs) -> anyhow::Result<Profile> {
    let options = AnalysisOptions {
        threads: args.threads,
        bin_ns: None,
        measures: AnalysisMeasures {
            times: false,
            sizes: false,
            health: false,
            icrc: false,
            ..AnalysisMeasures::default()
        },
        digests: DigestChoice { xxh3: false, sha256: false },
        clocks: ClockOptions { align: false, ..ClockOptions::default() },
        ..AnalysisOptions::default()
    };
    input::analyze(&args.inputs, &options)
}

/// The parts of the analysis that the anonymizer needs.
fn connection_stacks(profile: &Profile) -> ConnectionStacks {
    let mut known = ConnectionStacks::default();
    for row in &profile.connections {
        known.queue_pairs.entry(row.dst).or_default().insert(row.dest_qp);
        known.queue_pairs.entry(row.src).or_default().extend(row.src_qp);
        let stack = |name: &String| LibraryStack::ALL.into_iter().find(|stack| name.ends_with(stack.name()));
        if let Some(stack) = row.stack.as_ref().and_then(stack) {
            known.stacks.insert(row.key(), stack);
            for ends in [(row.src, row.dst), (row.dst, row.src)] {
                known.between.entry(ends).or_default().insert(stack);
            }
        }
    }
    known
}

fn write_anonymized(
    anonymizer: &mut Anonymizer,
    path: &Path,
    place: &Path,
    file: fs::File,
) -> anyhow::Result<AnonymizeTally> {
    let failed = |error: io::Error| files::write_error(place, &error);
    let ending = place.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending {
        "zst" => {
            let mut out = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(failed)?;
            let tally = anonymizer.file(path, place, &mut out)?;
            out.finish().map_err(failed)?;
            Ok(tally)
        }
        "gz" => {
            let mut out = flate2::write::GzEncoder::new(file, flate2::Compression::default());
            let tally = anonymizer.file(path, place, &mut out)?;
            out.finish().map_err(failed)?;
            Ok(tally)
        }
        _ => {
            let mut out = BufWriter::with_capacity(1 << 20, file);
            let tally = anonymizer.file(path, place, &mut out)?;
            out.flush().map_err(failed)?;
            Ok(tally)
        }
    }
}

/// Summary lines: how many records of a capture were written, dropped or cleared.
fn summary_lines(path: &Path, place: &Path, tally: &AnonymizeTally) -> Vec<String> {
    let dropped: u64 = tally.dropped.values().sum();
    let mut lines = vec![format!(
        "{}: {} of {} records written to {}",
        path.display(),
        group(tally.records - dropped),
        group(tally.records),
        place.display()
    )];
    let mut note = |text: String| lines.push(format!("note: {}: {text}", path.display()));
    if dropped > 0 {
        note(format!(
            "dropped {} without an InfiniBand packet that ibscope understands: {}",
            count_of(dropped, "record"),
            kinds(&tally.dropped)
        ));
    }
    if tally.cleared_management > 0 {
        note(format!(
            "{} reduced to the header",
            count_either(tally.cleared_management, "management datagram was", "management datagrams were")
        ));
    }
    if tally.cleared_envelopes > 0 {
        note(format!(
            "{} several envelopes; those after the first packet were cleared, so their MPI messages will not be counted",
            count_either(
                tally.cleared_envelopes,
                "message of several packets holds",
                "messages of several packets hold"
            )
        ));
    }
    if tally.dropped_blocks > 0 {
        note(format!("dropped {} without a packet (comments, names, keys)", count_of(tally.dropped_blocks, "block")));
    }
    if let Some(why) = &tally.ended_early {
        note(why.clone());
    }
    lines
}

fn kinds(dropped: &BTreeMap<String, u64>) -> String {
    let mut kinds: Vec<(&String, &u64)> = dropped.iter().collect();
    kinds.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), *what));
    let more = kinds.len().saturating_sub(MAX_NAMED);
    let mut named: Vec<String> =
        kinds.iter().take(MAX_NAMED).map(|(what, count)| format!("{count} x {what}")).collect();
    if more > 0 {
        named.push(count_of(more as u64, "other kind"));
    }
    named.join(", ")
}
