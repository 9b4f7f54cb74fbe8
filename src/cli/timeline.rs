//! `ibscope timeline`.

use super::common::arguments::{Drawing, Source};
use super::common::choices::{ByArg, Format, TrafficArg, selection};
use super::common::files::Outputs;
use super::common::input::{self, Needs};
use super::common::output;
use super::common::parse::bin_ns;
use crate::analysis::timeline::timeline;
use crate::pipeline;
use crate::render::{csv, figure, json, matrix_note, text};
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope timeline job.ibp --bin 100ms
  ibscope timeline job.ibp --by rank --png timeline.png";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Timeline {
    #[command(flatten)]
    pub(super) source: Source,
    #[command(flatten)]
    pub(super) drawing: Drawing,
    /// Skip the detection of MPI messages (captures only): faster, but the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Width of the bins; for a profile, a multiple of its own [default: 10ms, or that of the profile]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// Show pairs of endpoints or of ranks
    #[arg(long, value_enum, default_value_t = ByArg::Endpoint)]
    pub(super) by: ByArg,
    /// Count these MPI messages [default: p2p by rank, all by endpoint]
    #[arg(long, value_enum)]
    pub(super) traffic: Option<TrafficArg>,
}

/// `ibscope timeline`.
pub(super) fn run(args: &Timeline) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = Outputs::open(&args.drawing.figures, &files)?;
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        Needs { no_mpi: args.no_mpi, bin_ns: Some(args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS)), ..Needs::default() },
    )?;
    // Captures were read with these bins, or with wider ones where there would have been too many.
    let bin_ns = args.bin.filter(|_| pipeline::is_profile(&source.inputs[0]));
    let timeline = timeline(&profile, args.by.into(), selection(args.by, args.traffic), bin_ns)?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::timeline(&timeline)?))?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(text::timeline_table(&timeline, &output::style(args.drawing.color)).as_bytes()),
        Format::Csv => csv::timeline_csv(&timeline, out),
        Format::Json => json::timeline_json(&timeline, out),
    })?;
    output::notes(matrix_note::note(&profile, timeline.by, timeline.selection).as_slice());
    input::notes_on_times(&profile);
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
