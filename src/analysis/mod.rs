//! Numbers from a profile: what outputs show, and nothing of how they show it. In: a [`Profile`], in one case a cross-check.
//! Out: plain values. Nothing here formats or draws, and nothing names [`crate::render`].

pub mod collectives;
pub mod compare;
pub(crate) mod coverage;
pub mod crosscheck;
mod endpoint_label;
#[cfg(test)]
pub(crate) mod fixture;
pub mod health;
pub mod latency;
pub(crate) mod libraries;
pub mod live;
pub mod matrix;
pub mod phases;
pub mod rates;
pub(crate) mod round_numbers;
pub mod theoretical_minimum;
pub mod timeline;
pub(crate) mod totals;

pub(crate) use endpoint_label::EndpointLabels;
pub use endpoint_label::{By, Jobs, Label};

use crate::model::{Profile, duration};

/// The moment from which times are told, in nanoseconds since the epoch: the first packet of the captures, as for `--from` and `--to`; where
/// none has a time, the first bin.
pub(crate) fn origin_ns(profile: &Profile, first_bin_ns: Option<i64>) -> i64 {
    profile.coverage.first_time_ns.or(first_bin_ns).unwrap_or_default()
}

/// Numbers that the profile cannot give.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
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
}
