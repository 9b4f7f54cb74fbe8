//! `ibscope merge`: partial profiles -> the profile of all captures.

use super::common::archives;
use super::common::choices::Color;
use super::common::files::{self, OutputFile};
use super::common::manifest::ManifestFile;
use super::common::parse::{percent, threads};
use super::common::{input, output};
use super::diagnose::summary_with_findings;
use crate::model::Clock;
use crate::pipeline::{self, AnalysisOptions, EndpointInfo, MergeError};
use anyhow::anyhow;
use clap::Args;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope merge sink1.ibp sink2.ibp -o job.ibp
  ibscope merge part-*.ibp --clocks clocks.csv -o job.ibp";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct MergeArgs {
    /// Profiles that `analyze --partial` or `merge` wrote, also as archives NAME.ibp.tar
    #[arg(required = true, value_name = "PROFILE")]
    pub(super) profiles: Vec<PathBuf>,
    /// Write the merged profile to this folder, usually NAME.ibp; replaces an existing profile
    #[arg(short, long, value_name = "PROFILE")]
    pub(super) output: PathBuf,
    /// If the clocks of the captures differ, write corrections to this file, for `analyze --clocks`
    #[arg(long, value_name = "FILE")]
    pub(super) clocks: Option<PathBuf>,
    /// Read more names of endpoints: csv `endpoint,name`
    #[arg(long, value_name = "FILE")]
    pub(super) hosts: Option<PathBuf>,
    /// Read the manifest of a captured run: names of endpoints, and notes on missing packets
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Read all ranks from FILE instead of from the messages: csv `rank,endpoint[,qpn]`
    #[arg(long, value_name = "FILE")]
    pub(super) rankmap: Option<PathBuf>,
    /// Use N worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(super) threads: usize,
    /// Exit with code 3 if less than PERCENT % of the records could be decoded; known frames other
    /// than InfiniBand count as decoded
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(super) min_coverage: f64,
    /// When to color the summary
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

impl MergeArgs {
    /// The arguments of a `slurm-merge` job.
    pub(super) const fn of(profiles: Vec<PathBuf>, output: PathBuf, clocks: PathBuf) -> Self {
        let (hosts, manifest, rankmap, threads, min_coverage) = (None, None, None, 0, 0.0);
        Self {
            profiles,
            output,
            clocks: Some(clocks),
            hosts,
            manifest,
            rankmap,
            threads,
            min_coverage,
            color: Color::Never,
        }
    }
}

pub(super) fn run(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    run_with(args, &[], "")
}

/// Like [`run`]. `notes` are added to the profile; `again` is the next step if clocks must be
/// corrected.
pub(super) fn run_with(args: &MergeArgs, notes: &[String], again: &str) -> anyhow::Result<ExitCode> {
    let files = args.profiles.iter().chain(&args.hosts).chain(&args.manifest).chain(&args.rankmap);
    let files: Vec<&Path> = files.map(AsRef::as_ref).collect();
    let writer = pipeline::ProfileWriter::create(&args.output, &files)?;
    let known = ManifestFile::read(args.manifest.as_deref())?;
    // Names in --hosts override those of the manifest.
    let mut endpoints = known.as_ref().map_or(Ok(EndpointInfo::default()), ManifestFile::endpoint_info)?;
    endpoints.names.append(&mut files::hosts(args.hosts.as_deref())?);
    let options = AnalysisOptions {
        threads: args.threads,
        endpoints,
        rankmap: files::rankmap(args.rankmap.as_deref())?,
        ..AnalysisOptions::default()
    };
    let unpacked = archives::unpack(&args.profiles)?;
    let mut profile = match pipeline::merge(unpacked.paths(), &options) {
        Err(MergeError::UnalignedClocks { clocks }) => return Err(explained(&clocks, args, &files, again)?),
        merged => merged?,
    };
    profile.notes.extend(notes.iter().cloned());
    known.iter().for_each(|manifest| manifest.note_missing_packets(&mut profile));
    writer.finish(&profile)?;
    let style = output::style(args.color);
    let summary = summary_with_findings(&profile, &style, std::slice::from_ref(&args.output));
    output::results(|out| out.write_all(summary.as_bytes()))?;
    output::eprint_line(&format!("profile written to {}", args.output.display()));
    if args.rankmap.is_some() {
        output::notes(&files::rankmap_notes(&profile.ranks, &profile));
    }
    Ok(input::exit_code_for(args.min_coverage, &profile.coverage))
}

/// Writes the clocks that must be corrected to `--clocks`, and returns the error with the next
/// step.
fn explained(
    clocks: &[(String, Clock, u64)],
    args: &MergeArgs,
    read: &[&Path],
    again: &str,
) -> anyhow::Result<anyhow::Error> {
    let differ = match clocks.len() {
        1 => {
            "the clock of 1 capture differs from the others; this capture must be analyzed again with a corrected clock"
                .to_owned()
        }
        count => format!(
            "the clocks of {count} captures differ from the others; these captures must be analyzed again with corrected clocks"
        ),
    };
    let what = format!("packets show that {differ}");
    let Some(file) = OutputFile::open(args.clocks.as_ref(), read)? else {
        return Ok(anyhow!("{what}; give --clocks FILE to this command, which writes these clocks to FILE"));
    };
    let place = file.place().display().to_string();
    file.finish(pipeline::clocks_csv(clocks).as_bytes())?;
    let by_hand = format!("analyze all captures again with `analyze --partial --clocks {place}`, then merge");
    let again = if again.is_empty() { by_hand.as_str() } else { again };
    Ok(anyhow!("{what}; the corrections are now in {place}: {again}"))
}
