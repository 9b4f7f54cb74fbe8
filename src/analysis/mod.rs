//! Computes the numbers that outputs show.
//!
//! In: a [`Profile`], or a cross-check. Out: plain values. This module neither formats nor draws,
//! and never uses [`crate::render`].

pub mod chakra_trace;
pub(crate) mod classes;
pub mod cluster_order;
pub mod collective_instances;
pub mod collectives;
pub mod compare;
pub(crate) mod coverage;
pub mod crosscheck;
pub mod diagnose;
mod endpoint_label;
pub mod fabric_map;
#[cfg(test)]
pub(crate) mod fixture;
mod group_insides;
pub mod health;
pub mod instances;
pub mod latency;
pub(crate) mod libraries;
pub mod link_rates;
pub mod live;
pub mod matrix;
pub mod nccl_collectives;
pub(crate) mod observed_ports;
pub mod paths;
pub mod phases;
mod port_groups;
pub mod port_rates;
pub mod rank_events;
pub mod rank_schedule;
pub mod rates;
pub(crate) mod round_numbers;
mod sliding_sums;
pub mod storage;
pub mod storage_timeline;
pub mod theoretical_minimum;
pub mod timeline;
pub(crate) mod totals;
pub mod waits;

pub(crate) use endpoint_label::EndpointLabels;
pub use endpoint_label::{GroupBy, Jobs, Label};
pub use group_insides::GroupInside;
pub use port_groups::PortGroup;

use crate::model::{Profile, duration};

/// The origin of relative times in nanoseconds since the epoch: the first packet of the captures,
/// as for `--from` and `--to`, or the first bin if no packet has a time.
pub(crate) fn origin_ns(profile: &Profile, first_bin_ns: Option<i64>) -> i64 {
    profile.coverage.first_time_ns.or(first_bin_ns).unwrap_or_default()
}

/// Time of the last packet of the captures in nanoseconds since the epoch; `None` if it is not known.
pub(crate) const fn captured_until_ns(profile: &Profile) -> Option<i64> {
    profile.coverage.last_time_ns
}

/// Reasons why the profile cannot provide the requested numbers.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The requested bin width is no multiple of the profile's bin width.
    #[error(
        "bins of {} cannot be built from the profile's bins of {}: choose a multiple of that width, or analyze the captures again with --bin",
        duration(*wanted_ns),
        duration(*profile_ns)
    )]
    Bins {
        /// Requested width.
        wanted_ns: i64,
        /// Width in the profile.
        profile_ns: i64,
    },
    /// The profile has no timeline.
    #[error("this profile has no timeline; analyze the captures again")]
    NoTimeline,
    /// A sample does not show which packets were retransmitted.
    #[error("the retransmissions of a sampled capture are {}", health::UNKNOWN_IN_SAMPLES)]
    Sampled,
    /// The output would exceed the limit of rows.
    #[error("{rows} rows (bins times pairs) exceed the limit of {most}: choose wider bins with --bin")]
    TooManyBins {
        /// Number of rows that would be written.
        rows: i128,
        /// The limit.
        most: i128,
    },
    /// The profile was written without latencies over time.
    #[error("this profile has no latencies over time; analyze the captures again, without --no-times")]
    NoTimes,
    /// The profile has no time series of this interval.
    #[error(
        "the profile has no time series of `{interval}`: choose acknowledged, last_response or storage_command, or another view"
    )]
    NotOverTime {
        /// Name of the interval.
        interval: &'static str,
    },
}
