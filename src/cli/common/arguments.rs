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
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(in crate::cli) threads: usize,
    /// Names of endpoints: csv `endpoint,name`, for example `17,node1`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) hosts: Option<PathBuf>,
    /// Ranks of endpoints, instead of those learnt from the traffic: csv `rank,endpoint[,qpn]`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) rankmap: Option<PathBuf>,
    /// Start of the time that counts: seconds from the first packet, or RFC 3339
    #[arg(long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(in crate::cli) from: Option<Moment>,
    /// End of the time that counts, itself not included: seconds from the first packet, or RFC 3339
    #[arg(long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(in crate::cli) to: Option<Moment>,
    /// Manifest of the run: names of endpoints, and clocks of captures where it knows them to 100 us
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) manifest: Option<PathBuf>,
    /// Leave the clocks of several captures as they are [default: held against each other by the packets that two captures hold]
    #[arg(long)]
    pub(in crate::cli) no_align: bool,
    /// Track at most N directed connections per capture; count the packets of others in the totals only
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CONNECTIONS, value_parser = positive)]
    pub(in crate::cli) max_connections: usize,
    /// Content of each compressed capture that is read at most (512MiB, 4GiB); what follows does not count [default: all]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(in crate::cli) max_decompressed: Option<u64>,
    /// Exit with code 3 if less than this percentage of the records could be decoded
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(in crate::cli) min_coverage: f64,
}

/// Which ranks the commands that show them take into account.
#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct Scope {
    /// Show job N alone; `ibscope ranks` lists the jobs [default: all]
    #[arg(long, value_name = "N", default_value = "all", hide_default_value = true, value_parser = job)]
    pub(in crate::cli) job: JobChoice,
    /// Leave out inferred ranks: their queue pairs are unassigned
    #[arg(long)]
    pub(in crate::cli) strict: bool,
}

/// What the commands that show a profile read.
#[derive(Debug, Args)]
pub(in crate::cli) struct Source {
    /// One profile (NAME.ibp), or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(in crate::cli) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) reading: Reading,
    #[command(flatten)]
    pub(in crate::cli) scope: Scope,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(in crate::cli) format: Format,
}

/// How the commands that draw show it.
#[derive(Debug, Args)]
pub(in crate::cli) struct Drawing {
    /// When to colour tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(in crate::cli) color: Color,
    #[command(flatten)]
    pub(in crate::cli) figures: Figures,
}

/// Where figures go.
#[derive(Debug, Args)]
pub(in crate::cli) struct Figures {
    /// Draw the figure as SVG
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) svg: Option<PathBuf>,
    /// Draw the figure as PNG
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) png: Option<PathBuf>,
}
