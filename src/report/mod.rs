//! Renderings of a profile: terminal, csv, JSON, figures. Reads a profile, never a capture.
//!
//! [`matrix`](mod@matrix) and [`timeline`](mod@timeline) give the numbers; the other modules write them, each in its own
//! form, and add nothing.

pub mod collectives;
pub mod csv;
pub mod figure;
pub mod floor;
pub mod health;
pub mod json;
pub mod latency;
pub mod matrix;
pub mod messages;
pub mod packets;
pub mod ranks;
pub mod rates;
pub mod text;
pub mod timeline;
mod units;
mod who;

pub use who::{By, Label};

/// What stands in the place of a table that MPI messages would fill.
const NOT_LOOKED_FOR: &str = "MPI messages were not looked for: the profile was written by `analyze --no-mpi`\n";

/// A rendering that is not possible.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Bins of this width cannot be added up from those of the profile.
    #[error(
        "bins of {wanted_ns} ns cannot be made of the profile's bins of {profile_ns} ns: choose a multiple of that, or \
         analyse the captures again with --bin"
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
        "there is no time to draw{of}: acknowledgements and responses belong to the reliable services, and both directions must be in the \
         capture; `ibscope latency` without a figure shows what there is"
    )]
    EmptyTimes {
        /// ` of the interval NAME`, where one is meant.
        of: String,
    },
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
