//! Renderings of a profile's numbers: terminal, csv, JSON, figures, pages, traces. In: what [`crate::analysis`] computes. Out: text and drawings.
//! Each module writes in its own form and adds nothing.

pub mod collectives;
mod columns;
pub mod compare;
mod coverage;
pub mod crosscheck;
pub mod csv;
pub mod figure;
pub mod health;
pub mod html;
pub mod json;
pub mod latency;
pub mod live;
pub mod matrix_note;
pub mod messages;
pub mod packets;
pub mod phases;
pub mod ranks;
pub mod rates;
mod scale;
pub mod summary;
pub mod text;
pub mod theoretical_minimum;
pub mod trace;
mod units;

use crate::analysis::AnalysisError;

/// What stands in the place of a table that MPI messages would fill.
const NOT_LOOKED_FOR: &str = "MPI messages were not looked for: the profile was written by `analyze --no-mpi`\n";

/// A rendering that is not possible.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The profile has no such numbers.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// There are no times to draw.
    #[error(
        "there is no time to draw{}: {}; `ibscope latency` without a figure shows what there is",
        interval.map(|name| format!(" of the interval `{name}`")).unwrap_or_default(),
        latency::takes(*interval)
    )]
    EmptyTimes {
        /// Name of the interval, where one is meant.
        interval: Option<&'static str>,
    },
    /// Nobody looked for times.
    #[error("{}", latency::NOT_MEASURED)]
    NotMeasured,
    /// No packet was sent again.
    #[error("no packet was sent again, so there are no retransmissions to draw; `ibscope timeline` draws the traffic")]
    NoRetransmissions,
    /// There is nothing to draw.
    #[error("there is no traffic to draw")]
    Empty,
    /// The figure could not be drawn.
    #[error("the figure cannot be drawn: {0}")]
    Figure(String),
}
