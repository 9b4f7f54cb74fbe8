//! Groups of arguments that several commands share.

use super::choices::{Color, Format};
use super::job_choice::JobChoice;
use super::parse::{bytes, job, moment, percent, positive, threads};
use crate::pipeline::{self, Moment};
use clap::Args;
use std::path::PathBuf;

/// Options of every command that reads.
#[derive(Debug, Args)]
pub(in crate::cli) struct Reading {
    /// Use N worker threads [default: one per core]
    #[arg(help_heading = "Input options", long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(in crate::cli) threads: usize,
    /// Read names of endpoints: csv `endpoint,name`, for example `17,node1`
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) hosts: Option<PathBuf>,
    /// Read the ranks of endpoints, instead of inferring them: csv `rank,endpoint[,qpn]`
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) rankmap: Option<PathBuf>,
    /// Start of the time window: seconds from the first packet, or RFC 3339 [default: first packet]
    #[arg(help_heading = "Input options", long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(in crate::cli) from: Option<Moment>,
    /// End of the time window, exclusive: seconds from the first packet, or RFC 3339 [default: last packet]
    #[arg(help_heading = "Input options", long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(in crate::cli) to: Option<Moment>,
    /// Read the manifest of a captured run: names of endpoints, and clocks known to 100 µs or better
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) manifest: Option<PathBuf>,
    /// Do not align the clocks of several captures by the packets that two of them hold
    #[arg(help_heading = "Input options", long)]
    pub(in crate::cli) no_align: bool,
    /// Track at most N directed connections per capture; count the packets of others in the totals only
    #[arg(help_heading = "Input options", long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CONNECTIONS, value_parser = positive)]
    pub(in crate::cli) max_connections: usize,
    /// Read at most SIZE (512MiB, 4GiB) of the content of each compressed capture [default: all]
    #[arg(help_heading = "Input options", long, value_name = "SIZE", value_parser = bytes)]
    pub(in crate::cli) max_decompressed: Option<u64>,
    /// Exit with code 3 if fewer than PERCENT of the records are decoded
    #[arg(help_heading = "Input options", long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(in crate::cli) min_coverage: f64,
}

/// Which ranks the commands that show them take into account.
#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct Scope {
    /// Show job N only; `ibscope ranks` lists the jobs [default: all]
    #[arg(help_heading = "Rank options", long, value_name = "N", default_value = "all", hide_default_value = true, value_parser = job)]
    pub(in crate::cli) job: JobChoice,
    /// Treat inferred ranks as unknown
    #[arg(help_heading = "Rank options", long)]
    pub(in crate::cli) strict: bool,
}

/// What the commands that show a profile read.
#[derive(Debug, Args)]
pub(in crate::cli) struct Source {
    /// One profile (NAME.ibp) or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(in crate::cli) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) reading: Reading,
    #[command(flatten)]
    pub(in crate::cli) scope: Scope,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(in crate::cli) format: Format,
}

/// How the commands that draw show it.
#[derive(Debug, Args)]
pub(in crate::cli) struct Drawing {
    /// When to color tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(in crate::cli) color: Color,
    #[command(flatten)]
    pub(in crate::cli) figures: Figures,
}

/// Where figures go.
#[derive(Debug, Args)]
pub(in crate::cli) struct Figures {
    /// Draw the figure as SVG into FILE
    #[arg(help_heading = "Figure options", long, value_name = "FILE")]
    pub(in crate::cli) svg: Option<PathBuf>,
    /// Draw the figure as PNG into FILE
    #[arg(help_heading = "Figure options", long, value_name = "FILE")]
    pub(in crate::cli) png: Option<PathBuf>,
}
