//! What can be typed behind `ibscope trace`.

use super::{Reading, Scope};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct Trace {
    /// Captures, for their messages, or one profile (NAME.ibp), for the rates of its timeline
    #[arg(required = true, value_name = "CAPTURE|PROFILE")]
    pub(in crate::cli) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) reading: Reading,
    #[command(flatten)]
    pub(in crate::cli) scope: Scope,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(in crate::cli) output: Option<PathBuf>,
    /// Write this many events at most, four of them per message; viewers hold some millions
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub(in crate::cli) max_events: u64,
    /// Also transport messages that belong to no MPI message: one-sided operations, credits, storage ...
    #[arg(long)]
    pub(in crate::cli) transport: bool,
}
