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
    /// There is nothing to draw.
    #[error("there is no traffic to draw")]
    Empty,
    /// The figure could not be drawn.
    #[error("the figure cannot be drawn: {0}")]
    Figure(String),
}
