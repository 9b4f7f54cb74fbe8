//! `ibscope matrix`.

use super::common::arguments::{Drawing, Source};
use super::common::choices::{ByArg, Format, TrafficArg, UnitArg, selection};
use super::common::files::Outputs;
use super::common::input::{self, Needs};
use super::common::output;
use crate::analysis::By;
use crate::analysis::matrix::{Unit, matrix};
use crate::render::{csv, figure, json, matrix_note, text};
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope matrix job.ibp --by rank
  ibscope matrix job.ibp --by rank --traffic collective --svg matrix.svg
  ibscope matrix sink.pcap --no-mpi --format csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Matrix {
    #[command(flatten)]
    pub(super) source: Source,
    #[command(flatten)]
    pub(super) drawing: Drawing,
    /// Skip the detection of MPI messages (captures only): faster, but the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Show pairs of endpoints or of ranks
    #[arg(long, value_enum, default_value_t = ByArg::Endpoint)]
    pub(super) by: ByArg,
    /// Count these MPI messages [default: p2p by rank, all by endpoint]
    #[arg(long, value_enum)]
    pub(super) traffic: Option<TrafficArg>,
    /// Unit of the table and the figures; csv and json have all [default: MPI bytes by rank, payload by endpoint]
    #[arg(long, value_enum)]
    pub(super) unit: Option<UnitArg>,
}

/// `ibscope matrix`.
pub(super) fn run(args: &Matrix) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = Outputs::open(&args.drawing.figures, &files)?;
    // A window over a profile is cut out of its timeline; captures are read for the window, so they need none.
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        Needs { no_mpi: args.no_mpi, ..Needs::default() },
    )?;
    let matrix = matrix(&profile, args.by.into(), selection(args.by, args.traffic));
    let unit = args.unit.map_or(default_unit(args.by), Unit::from);
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::matrix(&matrix, unit)?))?;
    output::results(|out| match source.format {
        Format::Table => {
            out.write_all(text::matrix_table(&matrix, unit, &output::style(args.drawing.color)).as_bytes())
        }
        Format::Csv => csv::matrix_csv(&matrix, out),
        Format::Json => json::matrix_json(&matrix, out),
    })?;
    output::notes(matrix_note::note(&profile, matrix.by, matrix.selection).as_slice());
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

fn default_unit(by: ByArg) -> Unit {
    match By::from(by) {
        By::Endpoint => Unit::PayloadBytes,
        By::Rank => Unit::MpiBytes,
    }
}
