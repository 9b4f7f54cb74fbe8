//! Output: terminal text, csv, JSON, figures, HTML pages and trace files.
//!
//! In: the results of [`crate::analysis`]. Out: text and drawings. Rendering computes no new
//! results; it only formats them.

pub mod chakra;
pub mod collective_instances;
pub mod collectives;
mod columns;
pub mod compare;
pub(crate) mod coverage;
pub mod crosscheck;
pub mod diagnose;
pub mod fabric_map;
pub mod figure;
pub mod goal;
pub mod graph;
pub mod health;
pub mod html;
pub mod latency;
pub mod live;
pub mod matrix;
pub mod matrix_note;
pub mod messages;
pub mod metrics;
pub mod nccl_channels;
pub mod otf2;
pub mod packets;
pub mod paths;
pub mod phases;
pub mod ranks;
pub mod rates;
mod scale;
pub mod storage;
pub mod storage_timeline;
pub mod summary;
mod table;
pub mod text;
pub mod theoretical_minimum;
pub mod trace;
pub(crate) mod trust;
pub(crate) mod units;
pub mod waits;

use crate::analysis::AnalysisError;
use crate::model::column::TableDescription;
use crate::model::message_table::messages_table;

/// Printed instead of a table of MPI results for a profile without MPI analysis.
const NOT_ANALYZED: &str = "MPI messages were not analyzed: the profile was written by `analyze --no-mpi`\n";

/// The column descriptions of every csv output, each under the command that writes it.
#[must_use]
pub fn column_tables() -> Vec<TableDescription> {
    vec![
        matrix::matrix_table().describe(),
        matrix::timeline_table().describe(),
        messages_table().describe(),
        packets::packets_table().describe(),
        summary::facts_table().describe(),
        ranks::rank_map_table().describe(),
        collectives::pairs_table().describe(),
        waits::pairs_table().describe(),
        fabric_map::links_table().describe(),
        collective_instances::instances_table().describe(),
        nccl_channels::shares_table().describe(),
        storage::pairs_table().describe(),
        storage::operations_table().describe(),
        storage::sizes_table().describe(),
        storage_timeline::described_table().describe(),
        diagnose::findings_table().describe(),
        paths::classes_table().describe(),
        paths::pairs_table().describe(),
        rates::bins_table().describe(),
        rates::peaks_table().describe(),
        rates::sizes_table(rates::SizeHeadings::default()).describe(),
        rates::links_table().describe(),
        rates::link_bins_table().describe(),
        phases::phases_table().describe(),
        phases::matrices_table().describe(),
        phases::operations_table().describe(),
        latency::latencies_table(0, false).describe(),
        latency::buckets_table(false).describe(),
        latency::columns_of_surface(false).describe(),
        latency::columns_of_time_series(false).describe(),
        theoretical_minimum::columns(false).describe(),
        health::connections_table().describe(),
        health::columns_of_links().describe(),
        health::columns_of_time_series().describe(),
        health::columns_of_pauses().describe(),
        health::columns_of_pause_times().describe(),
        compare::columns_of_comparison("").describe(),
        compare::several::columns_of_runs().describe(),
        crosscheck::columns_of_pairs().describe(),
        crosscheck::unidentified_table().describe(),
        crosscheck::differences_table().describe(),
        crosscheck::clocks_table().describe(),
        crosscheck::delays_table().describe(),
        crosscheck::calls_table().describe(),
        crosscheck::operations_table().describe(),
        crosscheck::one_sided_table().describe(),
        crosscheck::columns_of_sums().describe(),
    ]
}

/// The reasons why an output cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The analysis failed.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// There are no times to draw.
    #[error(
        "no times to draw{}: {}; `ibscope latency` without a figure lists the times that were measured",
        interval.map(|name| format!(" of the interval `{name}`")).unwrap_or_default(),
        latency::requirements(*interval)
    )]
    EmptyTimes {
        /// Name of the interval, if one was selected.
        interval: Option<&'static str>,
    },
    /// The analysis did not measure times.
    #[error("{}", latency::NOT_MEASURED)]
    NotMeasured,
    /// There is traffic, but none of the unit.
    #[error(
        "there are no {unit} to draw: no message of an MPI library was detected, or none of this kind; draw the traffic with --unit wire-bytes"
    )]
    NoneOfUnit {
        /// Name of the unit.
        unit: &'static str,
    },
    /// The captures hold no traffic to draw.
    #[error("there is no traffic to draw")]
    Empty,
    /// The figure could not be drawn.
    #[error("the figure cannot be drawn: {0}")]
    Figure(String),
}
