//! Renderings of a profile: terminal, csv, JSON, figures. Reads a profile, never a capture.
//!
//! [`matrix`](mod@matrix) and [`timeline`](mod@timeline) give the numbers; the other modules write them, each in its own
//! form, and add nothing.

pub mod collectives;
mod columns;
pub mod compare;
mod coverage;
pub mod crosscheck;
pub mod csv;
pub mod figure;
#[cfg(test)]
mod fixture;
pub mod floor;
pub mod health;
pub mod html;
pub mod json;
pub mod latency;
pub mod live;
pub mod matrix;
pub mod messages;
pub mod packets;
pub mod phases;
pub mod ranks;
pub mod rates;
mod scale;
pub mod summary;
pub mod text;
pub mod timeline;
mod totals;
pub mod trace;
mod units;
mod who;

pub use who::{By, Jobs, Label};

use crate::model::{Profile, duration};

/// The moment from which times are told, in nanoseconds since the epoch: the first packet of the captures, as for `--from` and `--to`; where
/// none has a time, the first bin.
fn origin_ns(profile: &Profile, first_bin_ns: Option<i64>) -> i64 {
    profile.coverage.first_time_ns.or(first_bin_ns).unwrap_or_default()
}

/// What stands in the place of a table that MPI messages would fill.
const NOT_LOOKED_FOR: &str = "MPI messages were not looked for: the profile was written by `analyze --no-mpi`\n";

/// A rendering that is not possible.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Bins of this width cannot be added up from those of the profile.
    #[error(
        "bins of {} cannot be made of the profile's bins of {}: choose a multiple of that, or analyse the captures again with --bin",
        duration(*wanted_ns),
        duration(*profile_ns)
    )]
    Bins {
        /// Width asked for.
        wanted_ns: i64,
        /// Width in the profile.
        profile_ns: i64,
    },
    /// There is no timeline.
    #[error("this profile has no timeline; analyse the captures again")]
    NoTimeline,
    /// Nobody can want so many rows.
    #[error("{rows} rows of bins and pairs are more than the {most} that are written: choose wider bins with --bin")]
    TooManyBins {
        /// Rows that there would be.
        rows: i128,
        /// Most that are written.
        most: i128,
    },
    /// Times were not kept over time.
    #[error("this profile has no latencies over time; analyse the captures again, without --no-times")]
    NoTimes,
    /// This interval is not kept over time.
    #[error("`{interval}` is not kept over time: choose acknowledged or last_response, or another view")]
    NotOverTime {
        /// Its name.
        interval: &'static str,
    },
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
