//! `ibscope anonymize`.

use super::common::files::{self, Output};
use super::common::parse::threads;
use super::common::usage::UsageError;
use super::common::{input, output};
use crate::anonymize::{Anonymizer, Key, Known, Tally};
use crate::model::Profile;
use crate::pipeline::Options;
use anyhow::{Context as _, bail};
use clap::Args;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Form;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Kinds of records that a line names.
const MOST_NAMED: usize = 8;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope anonymize sink.pcap -o shared.pcap.zst
  ibscope anonymize node1.pcap node2.pcap --names names.csv -o shared";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Anonymize {
    /// Captures: pcap or pcapng, plain, gzip or zstd; regular files only, because each is read twice
    #[arg(required = true, value_name = "CAPTURE")]
    inputs: Vec<PathBuf>,
    /// Write to this file, or to this folder under the same names; compress if the name ends in .gz or .zst
    #[arg(short, long, value_name = "FILE|FOLDER")]
    output: PathBuf,
    /// Derive the new addresses from TEXT, so that several runs give the same ones [default: random]
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Write the old and new endpoints: csv `endpoint,name`, readable by the owner only
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Use N worker threads for the analysis [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    threads: usize,
}

/// Writes captures that tell nothing of people and places.
pub(super) fn run(args: &Anonymize) -> anyhow::Result<ExitCode> {
    input::check_captures("anonymize", &args.inputs)?;
    if let Some(stream) = args.inputs.iter().find(|path| path.as_os_str() == "-" || is_stream(path)) {
        bail!("{}: can be read once only, and anonymize reads twice: save it to a file first", stream.display());
    }
    let places = places(args)?;
    let read: Vec<&Path> = args.inputs.iter().map(PathBuf::as_path).collect();
    let outputs = places.iter().map(|place| Output::open(Some(place), &read)).collect::<anyhow::Result<Vec<_>>>()?;
    let names = Output::open_secret(args.names.as_ref(), &read)?;
    if let Some(names) = &names
        && outputs.iter().flatten().any(|output| output.is_same_as(names))
    {
        return Err(UsageError("--names and --output name the same file; give each its own").into());
    }
    let key = match &args.key {
        Some(text) => Key::of(text),
        None => Key::random().context("/dev/urandom: cannot be read; give --key")?,
    };
    let profile = analyzed(args)?;
    let mut anonymizer = Anonymizer::new(&key, known(&profile));
    let mut code = ExitCode::SUCCESS;
    for ((path, place), file) in args.inputs.iter().zip(&places).zip(outputs.into_iter().flatten()) {
        let mut tally = Tally::default();
        file.finish_with(|file| {
            tally = written(&mut anonymizer, path, place, file)?;
            Ok(())
        })?;
        said(path, place, &tally).iter().for_each(|line| output::say(line));
        if tally.ended_early.is_some() {
            code = ExitCode::FAILURE;
        }
    }
    if let Some(file) = names {
        if code != ExitCode::SUCCESS {
            // Whoever cleans up after a failed run looks at its results, not for who is who.
            output::say(&format!("note: {}: not written, as not all captures could be read", file.place().display()));
            return Ok(code);
        }
        let ends: BTreeSet<Endpoint> = profile.connections.iter().flat_map(|row| [row.src, row.dst]).collect();
        let mut text = "endpoint,name\n".to_owned();
        // As a hosts file for the result: its endpoints, named as they were.
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

/// Where each result goes.
fn places(args: &Anonymize) -> anyhow::Result<Vec<PathBuf>> {
    let ends_as_folder = args.output.as_os_str().as_encoded_bytes().ends_with(b"/");
    if args.inputs.len() == 1 && !args.output.is_dir() && !ends_as_folder {
        return Ok(vec![args.output.clone()]);
    }
    fs::create_dir_all(&args.output).with_context(|| format!("{}: cannot be created", args.output.display()))?;
    let mut taken = BTreeSet::new();
    let place = |path: &PathBuf| {
        let name = path.file_name().with_context(|| format!("{}: it is no name of a file", path.display()))?;
        if !taken.insert(name.to_owned()) {
            bail!("{}: another capture has this name too; anonymize them into folders of their own", path.display());
        }
        Ok(args.output.join(name))
    };
    args.inputs.iter().map(place).collect()
}

/// The analysis that tells which payload is envelopes. A capture without InfiniBand has none.
fn analyzed(args: &Anonymize) -> anyhow::Result<Profile> {
    let options = Options {
        threads: args.threads,
        bin_ns: None,
        read_times: false,
        read_sizes: false,
        read_health: false,
        check_icrc: false,
        xxh3: false,
        align: false,
        ..Options::default()
    };
    input::analyze(&args.inputs, &options)
}

/// What the analysis has found out that matters here.
fn known(profile: &Profile) -> Known {
    let mut known = Known::default();
    for row in &profile.connections {
        known.queue_pairs.entry(row.dst).or_default().insert(row.dest_qp);
        known.queue_pairs.entry(row.src).or_default().extend(row.src_qp);
        let form = |stack: &String| Form::ALL.into_iter().find(|form| stack.ends_with(form.name()));
        if let Some(form) = row.stack.as_ref().and_then(form) {
            known.forms.insert(row.key(), form);
            for ends in [(row.src, row.dst), (row.dst, row.src)] {
                known.between.entry(ends).or_default().insert(form);
            }
        }
    }
    known
}

fn written(anonymizer: &mut Anonymizer, path: &Path, place: &Path, file: fs::File) -> anyhow::Result<Tally> {
    let failed = |error: io::Error| files::unwritten(place, &error);
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

/// What became of a capture, in lines.
fn said(path: &Path, place: &Path, tally: &Tally) -> Vec<String> {
    let dropped: u64 = tally.dropped.values().sum();
    let mut lines = vec![format!(
        "{}: {} of {} records written to {}",
        path.display(),
        tally.records - dropped,
        tally.records,
        place.display()
    )];
    let mut note = |text: String| lines.push(format!("note: {}: {text}", path.display()));
    if dropped > 0 {
        note(format!(
            "{dropped} records hold no InfiniBand packet that is understood, and were dropped: {}",
            kinds(&tally.dropped)
        ));
    }
    if tally.cleared_management > 0 {
        note(format!("of {} management datagrams only the header stayed", tally.cleared_management));
    }
    if tally.cut_envelopes > 0 {
        note(format!(
            "{} messages of several packets hold several envelopes, of which those behind the first packet were cleared: they will not be counted",
            tally.cut_envelopes
        ));
    }
    if tally.dropped_blocks > 0 {
        note(format!("{} blocks that hold no packet (comments, names, keys) were dropped", tally.dropped_blocks));
    }
    if let Some(why) = &tally.ended_early {
        note(why.clone());
    }
    lines
}

fn kinds(dropped: &BTreeMap<String, u64>) -> String {
    let mut kinds: Vec<(&String, &u64)> = dropped.iter().collect();
    kinds.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), *what));
    let more = kinds.len().saturating_sub(MOST_NAMED);
    let mut named: Vec<String> =
        kinds.iter().take(MOST_NAMED).map(|(what, count)| format!("{count} x {what}")).collect();
    if more > 0 {
        named.push(format!("{more} other kinds"));
    }
    named.join(", ")
}
