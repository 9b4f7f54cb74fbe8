//! `ibscope matrix`: bytes, packets or messages of each pair.

use super::common::arguments::{CountingArgs, DrawingArgs, GraphArgs, PathArgs, ScaleArgs, SourceArgs};
use super::common::choices::{Format, UnitArg, class_parser};
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::graph_files::GraphFiles;
use crate::analysis::GroupBy;
use crate::analysis::matrix::{TrafficUnit, matrix};
use crate::model::paths::{FilteredPaths, PathFilter};
use crate::model::{ClassSelection, Profile, TrafficKind, count_of};
use crate::render::{figure, matrix as rendered, matrix_note, text};
use clap::Args;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope matrix job.ibp --by rank --traffic collective --svg matrix.svg
  ibscope matrix job.ibp --by node --class storage --dscp 26
  ibscope matrix sink.pcap --by rank --scotch ranks.grf --graphml ranks.graphml";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct MatrixArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) drawing: DrawingArgs,
    #[command(flatten)]
    pub(super) graphs: GraphArgs,
    #[command(flatten)]
    pub(super) counting: CountingArgs,
    #[command(flatten)]
    pub(super) paths: PathArgs,
    /// Show only connections of this class; `storage` is all of nvmeof, nfs, iser, srp, smb and
    /// lustre
    #[arg(long, value_name = "NAME", value_parser = class_parser())]
    pub(super) class: Option<ClassSelection>,
    /// Unit of the table, figures and graphs; csv, json and GraphML have all units [default: mpi-bytes with --by
    /// rank, otherwise payload-bytes]
    #[arg(long, value_enum)]
    pub(super) unit: Option<UnitArg>,
    #[command(flatten)]
    pub(super) scale: ScaleArgs,
}

/// Runs `ibscope matrix`.
pub(super) fn run(args: &MatrixArgs) -> anyhow::Result<ExitCode> {
    let (source, counting) = (&args.source, args.counting);
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = FigureFiles::open(&args.drawing.figures, &files)?;
    let most = args.scale.number(&args.drawing.figures)?;
    let graphs = GraphFiles::open(&args.graphs, &files)?;
    // A window of a profile is selected from its timeline. Captures are read for the window only,
    // so they need no timeline.
    let mut profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        AnalysisNeeds { no_mpi: counting.no_mpi, ..AnalysisNeeds::default() },
    )?;
    let mut notes = filter(&mut profile, &PathFilter::from(&args.paths));
    notes.extend(args.class.and_then(|classes| keep_classes(&mut profile, classes)));
    let (by, selection) = counting.of(&profile)?;
    let matrix = matrix(&profile, by, selection);
    let unit = args.unit.map_or(default_unit(by), TrafficUnit::from);
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| Ok(figure::matrix(&matrix, unit, most)?))?;
    notes.extend(graphs.finish(&profile, &matrix, unit)?);
    output::results(|out| match source.format {
        Format::Table => {
            out.write_all(text::matrix_table(&matrix, unit, &output::style(args.drawing.color)).as_bytes())
        }
        Format::Csv => rendered::matrix_csv(&matrix, out),
        Format::Json => rendered::matrix_json(&matrix, out),
    })?;
    output::notes(&notes);
    output::notes(matrix_note::note(&profile, matrix.by, matrix.selection).as_slice());
    input::notes_beside_coverage(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Keeps the connections that the filter accepts. Returns the notes on them.
fn filter(profile: &mut Profile, filter: &PathFilter) -> Vec<String> {
    if filter.accepts_all() {
        return Vec::new();
    }
    let has_paths = profile.connections.iter().any(|row| !row.paths.is_empty());
    let left = profile.keep_paths(filter);
    let note = match left {
        _ if !has_paths => {
            "the profile has no path fields (SL, VL, P_Key, DSCP, PCP), so no connection is shown; analyze the captures again"
                .to_owned()
        }
        FilteredPaths { connections: 0, .. } => {
            "no packet has these values; `ibscope paths` lists the values of all packets".to_owned()
        }
        FilteredPaths { mixed_connections: 0, .. } => return Vec::new(),
        FilteredPaths { mixed_connections, other_packets, .. } => format!(
            "{} also sent {} with other values, which are included",
            count_of(mixed_connections, "connection"),
            count_of(other_packets, "packet")
        ),
    };
    vec![note]
}

/// Keeps the connections of the classes. Returns a note if there are none.
fn keep_classes(profile: &mut Profile, classes: ClassSelection) -> Option<String> {
    let read = profile.mpi_read;
    profile.keep_classes(classes);
    let has_data = profile.connections.iter().any(|row| row.kind == TrafficKind::Data);
    let name = classes.name();
    (!has_data).then(|| {
        if read {
            format!("no connection has the class {name}; `ibscope rates --by class` shows the classes of all traffic")
        } else {
            format!("no connection has the class {name}: classes follow from the messages, which were not read")
        }
    })
}

const fn default_unit(by: GroupBy) -> TrafficUnit {
    if by.is_of_ports() { TrafficUnit::PayloadBytes } else { TrafficUnit::MpiBytes }
}
