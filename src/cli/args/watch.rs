//! What can be typed behind `ibscope watch`.

use super::{Color, Reading, bin_ns, percent, positive, threads};
use crate::pipeline;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct Watch {
    /// A capture that grows, the folder that a capture rotates through, a FIFO, or `-` for standard input
    #[arg(value_name = "FILE|FIFO|DIR")]
    pub(in crate::cli) place: PathBuf,
    /// How often the screen, or a line without a terminal, is renewed
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = bin_ns)]
    pub(in crate::cli) interval: i64,
    /// Read what is there now (of a FIFO, until its writer ends), and print the totals alone
    #[arg(long)]
    pub(in crate::cli) once: bool,
    /// Print lines on a terminal too
    #[arg(long, conflicts_with = "once")]
    pub(in crate::cli) lines: bool,
    /// At the end, write the profile to this folder, usually NAME.ibp; a profile that is there is replaced
    #[arg(short, long, value_name = "PROFILE")]
    pub(in crate::cli) output: Option<PathBuf>,
    /// Width of the profile's bins
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = bin_ns)]
    pub(in crate::cli) bin: i64,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(in crate::cli) threads: usize,
    /// Names of endpoints: csv `endpoint,name`, for example `17,node1`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) hosts: Option<PathBuf>,
    /// Ranks of endpoints, instead of those learnt from the traffic: csv `rank,endpoint[,qpn]`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) rankmap: Option<PathBuf>,
    /// Manifest of the run: names of endpoints
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) manifest: Option<PathBuf>,
    /// Exit with code 3 if less than this percentage of the records could be decoded
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(in crate::cli) min_coverage: f64,
    /// Directed connections that are followed at most
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CONNECTIONS, value_parser = positive)]
    pub(in crate::cli) max_connections: usize,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(in crate::cli) color: Color,
}

impl Watch {
    /// The options that all reading commands share, of one input as a whole.
    pub(in crate::cli) fn reading(&self) -> Reading {
        Reading {
            threads: self.threads,
            hosts: self.hosts.clone(),
            rankmap: self.rankmap.clone(),
            manifest: self.manifest.clone(),
            min_coverage: self.min_coverage,
            max_connections: self.max_connections,
            max_decompressed: None,
            from: None,
            to: None,
            no_align: true,
        }
    }
}
