//! What can be typed behind `ibscope latency`.

use super::{ByArg, Figures, Reading, Scope, bin_ns};
use crate::model::link::Speed;
use crate::report::latency::INTERVALS;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct Latency {
    /// One profile (NAME.ibp), or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(in crate::cli) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) reading: Reading,
    #[command(flatten)]
    pub(in crate::cli) scope: Scope,
    /// Keep pairs of these apart [default: all together]
    #[arg(long, value_enum)]
    pub(in crate::cli) by: Option<ByArg>,
    /// Put all message sizes together
    #[arg(long)]
    pub(in crate::cli) all_sizes: bool,
    /// Tell the share of samples above this
    #[arg(long, value_name = "DURATION", default_value = "10us", value_parser = bin_ns)]
    pub(in crate::cli) limit: i64,
    /// Hold what was measured against the least that a link of this speed takes: width and rate (`4x EDR`) or a data rate (`100Gb/s`)
    #[arg(long, value_name = "SPEED", conflicts_with = "all_sizes")]
    pub(in crate::cli) link: Option<Speed>,
    /// Switches between two ports
    #[arg(long, value_name = "N", default_value_t = 1, requires = "link")]
    pub(in crate::cli) hops: u32,
    /// Time that a packet takes through a switch, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 90, requires = "link")]
    pub(in crate::cli) switch_ns: u32,
    /// Path MTU in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4096, requires = "link", value_parser = mtu)]
    pub(in crate::cli) mtu: u32,
    /// What the result and the figures show
    #[arg(long, value_enum, default_value_t = View::Histogram)]
    pub(in crate::cli) view: View,
    /// Show this interval only [default: all of them; figures show acknowledged, or else `last_response`]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(INTERVALS))]
    pub(in crate::cli) interval: Option<String>,
    /// Width of the bins of time (timeline and surface); of a profile, a multiple of its own [default: 10ms, or the profile's]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(in crate::cli) bin: Option<i64>,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = LatencyFormat::Table)]
    pub(in crate::cli) format: LatencyFormat,
    #[command(flatten)]
    pub(in crate::cli) figures: Figures,
}

impl Latency {
    /// The name of the interval that is wanted alone.
    pub(in crate::cli) fn interval(&self) -> Option<&'static str> {
        let wanted = self.interval.as_deref()?;
        INTERVALS.into_iter().find(|name| *name == wanted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum View {
    /// How often which time was measured; as text, extremes and quantiles
    Histogram,
    /// The buckets of the histograms: which time was measured how often
    Buckets,
    /// The same by message size, as median and the interval that holds 80 % of the samples
    Sizes,
    /// The median by message size and by the rate of the connection at that time
    Surface,
    /// Percentiles over time
    Timeline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LatencyFormat {
    /// For people
    Table,
    /// Comma-separated values
    Csv,
    /// JSON, with the buckets of the histograms
    Json,
    /// `latency_samples: N` and six more lines, over all requests and their answers
    Collie,
}

/// Those that InfiniBand defines.
const MTUS_BYTES: [u32; 5] = [256, 512, 1024, 2048, 4096];

fn mtu(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|bytes| MTUS_BYTES.contains(bytes));
    bytes.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".to_owned())
}
