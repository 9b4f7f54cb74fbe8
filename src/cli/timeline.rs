//! `ibscope timeline`: traffic over time.

use super::common::arguments::{CountingArgs, DrawingArgs, ScaleArgs, SourceArgs};
use super::common::choices::Format;
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::common::parse::bin_ns;
use crate::analysis::timeline::{class_timeline, sender_timeline, timeline};
use crate::pipeline;
use crate::render::{figure, matrix as rendered, matrix_note, text};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope timeline job.ibp --bin 100ms
  ibscope timeline job.ibp --by rank --png timeline.png
  ibscope timeline job.ibp --stack class --svg classes.svg";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct TimelineArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) drawing: DrawingArgs,
    #[command(flatten)]
    pub(super) counting: CountingArgs,
    /// Width of the bins; for a profile, a multiple of the profile's bin width [default: 10ms, or
    /// the profile's bin width]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// Rows of csv and json
    #[arg(long, value_enum, default_value_t = TimelineView::Pairs)]
    pub(super) view: TimelineView,
    /// Parts that the figure stacks
    #[arg(help_heading = "Figure options", long, value_enum, default_value_t = StackArg::Sender)]
    pub(super) stack: StackArg,
    #[command(flatten)]
    pub(super) scale: ScaleArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TimelineView {
    /// Pairs of sender and receiver
    Pairs,
    /// Senders, each with all its receivers; their bins are narrower than those of many pairs
    Senders,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StackArg {
    /// Senders
    Sender,
    /// Classes of connections: `mpi`, `nccl`, `nfs` ...
    Class,
}

/// Runs `ibscope timeline`.
pub(super) fn run(args: &TimelineArgs) -> anyhow::Result<ExitCode> {
    let (source, counting) = (&args.source, args.counting);
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = FigureFiles::open(&args.drawing.figures, &files)?;
    let most = args.scale.number(&args.drawing.figures)?;
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        AnalysisNeeds {
            no_mpi: counting.no_mpi,
            bin_ns: Some(args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS)),
            ..AnalysisNeeds::default()
        },
    )?;
    // Captures were read with these bins, or with wider ones if there were too many.
    let bin_ns = args.bin.filter(|_| pipeline::is_profile(&source.inputs[0]));
    let (by, selected) = counting.of(&profile)?;
    let senders = sender_timeline(&profile, by, selected, bin_ns)?;
    // The table and the figures show no pairs, whose bins may be wider.
    let has_pairs = source.format != Format::Table && args.view == TimelineView::Pairs;
    let pairs = has_pairs.then(|| timeline(&profile, by, selected, bin_ns)).transpose()?;
    let shown = pairs.as_ref().unwrap_or(&senders);
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| {
        Ok(match args.stack {
            StackArg::Sender => figure::timeline(&senders, most)?,
            StackArg::Class => figure::class_timeline(&class_timeline(&profile, &senders), most)?,
        })
    })?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(text::timeline_table(shown, &output::style(args.drawing.color)).as_bytes()),
        Format::Csv => rendered::timeline_csv(shown, out),
        Format::Json => rendered::timeline_json(shown, out),
    })?;
    output::notes(matrix_note::note(&profile, by, selected).as_slice());
    input::notes_on_times(&profile);
    input::ports_note(&profile, "traffic between other ports is missing");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
