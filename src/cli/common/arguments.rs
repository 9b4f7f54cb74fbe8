//! Groups of arguments that several commands share.

use super::choices::{Color, Format, TrafficArg, TrafficGroupArg, selection};
use super::job_choice::JobChoice;
use super::output::terminal_width;
use super::parse::{ScaleEnd, bytes, job, moment, p_key, percent, positive, sampling_rate, scale_end, threads};
use super::usage::UsageError;
use crate::analysis::GroupBy;
use crate::analysis::matrix::Selection;
use crate::model::Profile;
use crate::model::paths::PathFilter;
use crate::pipeline::{self, TimePoint};
use anyhow::bail;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Options of all commands that read captures or profiles.
#[derive(Debug, Args)]
pub(in crate::cli) struct InputArgs {
    /// Use N worker threads [default: one per core]
    #[arg(help_heading = "Input options", long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(in crate::cli) threads: usize,
    /// Read names of endpoints: csv `endpoint,name`, for example `17,node1`
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) hosts: Option<PathBuf>,
    /// Read all ranks from FILE instead of from the messages: csv `rank,endpoint[,qpn]`
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) rankmap: Option<PathBuf>,
    /// Start of the time window: seconds from the first packet, or RFC 3339 [default: first packet]
    #[arg(help_heading = "Input options", long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(in crate::cli) from: Option<TimePoint>,
    /// End of the time window, exclusive: seconds from the first packet, or RFC 3339 [default:
    /// after the last packet]
    #[arg(help_heading = "Input options", long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(in crate::cli) to: Option<TimePoint>,
    /// Read the manifest of a captured run: names of endpoints, and clocks. Clocks with an
    /// uncertainty of 100 µs or more are ignored if common packets can align the captures
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) manifest: Option<PathBuf>,
    /// Do not align the clocks of several captures by their common packets
    #[arg(help_heading = "Input options", long)]
    pub(in crate::cli) no_align: bool,
    /// Read the files of each rotated capture from FILE: csv `file,stream`
    /// [default: detected from the packets]
    #[arg(help_heading = "Input options", long, value_name = "FILE")]
    pub(in crate::cli) streams: Option<PathBuf>,
    /// Estimate totals from a sample: the mirror passed one of N packets of each port, at random
    #[arg(help_heading = "Input options", long, value_name = "1/N", value_parser = sampling_rate)]
    pub(in crate::cli) sampled: Option<u32>,
    /// Track at most N directed connections per capture; count the packets of others in the totals
    /// only
    #[arg(help_heading = "Input options", long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CONNECTIONS, value_parser = positive)]
    pub(in crate::cli) max_connections: usize,
    /// Decompress at most SIZE of each compressed capture, for example 512MiB or 4GiB [default:
    /// all]
    #[arg(help_heading = "Input options", long, value_name = "SIZE", value_parser = bytes)]
    pub(in crate::cli) max_decompressed: Option<u64>,
    /// Exit with code 3 if less than PERCENT % of the records could be decoded; known frames other
    /// than InfiniBand count as decoded
    #[arg(help_heading = "Input options", long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(in crate::cli) min_coverage: f64,
}

/// Options of commands that show ranks.
#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct ScopeArgs {
    /// Show job N only; `ibscope ranks` lists the jobs [default: all]
    #[arg(help_heading = "Rank options", long, value_name = "N", default_value = "all", hide_default_value = true, value_parser = job)]
    pub(in crate::cli) job: JobChoice,
    /// Treat inferred ranks, which no message names, as unknown
    #[arg(help_heading = "Rank options", long)]
    pub(in crate::cli) strict: bool,
}

/// Input and output format of commands that show a profile.
#[derive(Debug, Args)]
pub(in crate::cli) struct SourceArgs {
    /// One profile (NAME.ibp), or captures and folders with captures: pcap or pcapng, plain, gzip
    /// or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(in crate::cli) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) reading: InputArgs,
    #[command(flatten)]
    pub(in crate::cli) scope: ScopeArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(in crate::cli) format: Format,
}

/// Input of commands that read individual messages, which a profile does not have.
#[derive(Debug, Args)]
pub(in crate::cli) struct CaptureArgs {
    /// Captures, or folders with captures: pcap or pcapng, plain, gzip or zstd; `-` for standard
    /// input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(in crate::cli) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) reading: InputArgs,
    #[command(flatten)]
    pub(in crate::cli) scope: ScopeArgs,
}

/// Options of `matrix` and `timeline`: the pairs they show and the messages they count.
#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct CountingArgs {
    /// Skip the detection of MPI messages (captures only): faster, but the MPI columns stay empty
    #[arg(long)]
    pub(in crate::cli) no_mpi: bool,
    /// Count by endpoint, rank, node or leaf switch; csv and JSON have one row per pair (and bin)
    #[arg(long, value_enum, default_value_t = TrafficGroupArg::Endpoint)]
    pub(in crate::cli) by: TrafficGroupArg,
    /// MPI messages to count [default: p2p with --by rank, otherwise all]
    #[arg(long, value_enum)]
    pub(in crate::cli) traffic: Option<TrafficArg>,
}

impl CountingArgs {
    /// The rows of the matrix or the senders of the timeline, and the messages that they count.
    /// Fails by leaf switch if no leaf switch is known.
    pub(in crate::cli) fn of(self, profile: &Profile) -> anyhow::Result<(GroupBy, Selection)> {
        let by = GroupBy::from(self.by);
        if by == GroupBy::Leaf && profile.leaves.is_empty() {
            bail!("the leaf switches of the ports are unknown; analyze the captures with --manifest, which names them");
        }
        Ok((by, selection(by, self.traffic)))
    }
}

/// Options of `matrix` that choose connections by the path fields of their packets.
#[derive(Clone, Debug, Args)]
pub(in crate::cli) struct PathArgs {
    /// Show only connections with these service levels (native InfiniBand): `--sl 3` or `--sl 3,4`
    #[arg(help_heading = "Path options", long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(..16))]
    pub(in crate::cli) sl: Vec<u8>,
    /// Show only connections with these virtual lanes (native InfiniBand)
    #[arg(help_heading = "Path options", long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(..16))]
    pub(in crate::cli) vl: Vec<u8>,
    /// Show only connections with these partition keys, decimal or hexadecimal; full and limited
    /// members are one partition
    #[arg(help_heading = "Path options", long, value_name = "KEY", value_delimiter = ',', value_parser = p_key)]
    pub(in crate::cli) pkey: Vec<u16>,
    /// Show only connections with these DSCP values (RoCE)
    #[arg(help_heading = "Path options", long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(..64))]
    pub(in crate::cli) dscp: Vec<u8>,
    /// Show only connections with these priorities in their VLAN tags
    #[arg(help_heading = "Path options", long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(..8))]
    pub(in crate::cli) pcp: Vec<u8>,
}

impl From<&PathArgs> for PathFilter {
    fn from(args: &PathArgs) -> Self {
        let PathArgs { sl, vl, pkey, dscp, pcp } = args.clone();
        Self { sl, vl, p_key: pkey, dscp, pcp }
    }
}

/// Options of commands that print tables and draw figures.
#[derive(Debug, Args)]
pub(in crate::cli) struct DrawingArgs {
    /// When to color tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(in crate::cli) color: Color,
    #[command(flatten)]
    pub(in crate::cli) figures: FigureArgs,
}

/// Files for the matrix as a graph.
#[derive(Debug, Args)]
pub(in crate::cli) struct GraphArgs {
    /// Write the matrix as a directed graph in GraphML into FILE, with all units
    #[arg(help_heading = "Graph options", long, value_name = "FILE")]
    pub(in crate::cli) graphml: Option<PathBuf>,
    /// Write the matrix as a directed graph in DOT (Graphviz) into FILE, in the unit of the table
    #[arg(help_heading = "Graph options", long, value_name = "FILE")]
    pub(in crate::cli) dot: Option<PathBuf>,
    /// Write the ranks of one job as a source graph of Scotch into FILE; edges have the sums of both
    /// directions
    #[arg(help_heading = "Graph options", long, value_name = "FILE")]
    pub(in crate::cli) scotch: Option<PathBuf>,
    /// Write the ranks of one job as a dense matrix into FILE, for TreeMatch and LibTopoMap: a line
    /// per sender
    #[arg(help_heading = "Graph options", long, value_name = "FILE")]
    pub(in crate::cli) dense: Option<PathBuf>,
}

/// Option of commands with tables that may be wider than a terminal.
#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct WidthArgs {
    /// Show all columns, even if the table is wider than the terminal
    #[arg(long)]
    wide: bool,
}

impl WidthArgs {
    /// Maximum width of tables, in columns; `None` without a maximum.
    pub(in crate::cli) fn columns(self) -> Option<usize> {
        terminal_width().filter(|_| !self.wide)
    }
}

/// Files for figures.
#[derive(Debug, Args)]
pub(in crate::cli) struct FigureArgs {
    /// Draw the figure as SVG into FILE
    #[arg(help_heading = "Figure options", long, value_name = "FILE")]
    pub(in crate::cli) svg: Option<PathBuf>,
    /// Draw the figure as PNG into FILE
    #[arg(help_heading = "Figure options", long, value_name = "FILE")]
    pub(in crate::cli) png: Option<PathBuf>,
    /// Draw the figure as PDF into FILE
    #[arg(help_heading = "Figure options", long, value_name = "FILE")]
    pub(in crate::cli) pdf: Option<PathBuf>,
    /// Write TEXT above the figure, for example the name of the run
    #[arg(help_heading = "Figure options", long, value_name = "TEXT")]
    pub(in crate::cli) title: Option<String>,
}

impl FigureArgs {
    /// The files of the figure, one per format.
    pub(in crate::cli) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.svg, &self.png, &self.pdf].into_iter().flatten()
    }

    /// True if a figure is requested.
    pub(in crate::cli) fn are_wanted(&self) -> bool {
        self.files().next().is_some()
    }

    /// Fails if two formats have the same file, or if there is a title without a figure.
    pub(in crate::cli) fn check(&self) -> Result<(), UsageError> {
        if self.files().collect::<BTreeSet<_>>().len() < self.files().count() {
            return Err(UsageError("two of --svg, --png and --pdf name the same file; give each its own"));
        }
        if self.title.is_some() && !self.are_wanted() {
            return Err(UsageError("--title needs a figure; add --svg FILE, --png FILE or --pdf FILE"));
        }
        Ok(())
    }
}

/// Option of commands with figures that users compare between runs.
#[derive(Clone, Copy, Debug, Args)]
pub(in crate::cli) struct ScaleArgs {
    /// Set the scale of the figure to 0..VALUE (linear) and mark larger values: a number, `64MiB`, or `50us`
    #[arg(help_heading = "Figure options", long, value_name = "VALUE", value_parser = scale_end)]
    vmax: Option<ScaleEnd>,
}

impl ScaleArgs {
    /// The end of a scale of counts, bytes or bytes per second.
    pub(in crate::cli) fn number(self, figures: &FigureArgs) -> Result<Option<u64>, UsageError> {
        match self.end(figures)? {
            Some(ScaleEnd::Nanoseconds(_)) => {
                Err(UsageError("--vmax needs a number or a size here, for example 64MiB"))
            }
            Some(ScaleEnd::Number(number)) => Ok(Some(number)),
            None => Ok(None),
        }
    }

    /// The end of a scale of times, in nanoseconds.
    pub(in crate::cli) fn time_ns(self, figures: &FigureArgs) -> Result<Option<u64>, UsageError> {
        match self.end(figures)? {
            Some(ScaleEnd::Number(_)) => Err(UsageError("--vmax needs a time here, for example 50us")),
            Some(ScaleEnd::Nanoseconds(ns)) => Ok(Some(ns)),
            None => Ok(None),
        }
    }

    /// True if the scale has an end that the user chose.
    pub(in crate::cli) const fn is_chosen(self) -> bool {
        self.vmax.is_some()
    }

    fn end(self, figures: &FigureArgs) -> Result<Option<ScaleEnd>, UsageError> {
        if self.is_chosen() && !figures.are_wanted() {
            return Err(UsageError("--vmax needs a figure; add --svg FILE, --png FILE or --pdf FILE"));
        }
        Ok(self.vmax)
    }
}
