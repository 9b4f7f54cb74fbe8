//! `ibscope latency`.

use super::common::arguments::{Figures, Reading, Scope};
use super::common::choices::ByArg;
use super::common::files::Outputs;
use super::common::input::{self, Needs};
use super::common::output;
use super::common::parse::bin_ns;
use super::common::usage::UsageError;
use crate::analysis::By;
use crate::analysis::latency::INTERVALS;
use crate::analysis::latency::{self as analysis, Apart, Key, Wanted};
use crate::analysis::theoretical_minimum::{self, Path};
use crate::model::link::Speed;
use crate::model::{Histogram, Profile};
use crate::pipeline;
use crate::render::latency::{self, Subject};
use crate::render::{self, figure};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope latency job.ibp --by rank
  ibscope latency job.ibp --view timeline --png latency.png
  ibscope latency job.ibp --link \"4x EDR\" --hops 3";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Latency {
    /// One profile (NAME.ibp) or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    #[command(flatten)]
    pub(super) scope: Scope,
    /// Show each pair of endpoints or ranks separately [default: all together]
    #[arg(long, value_enum)]
    pub(super) by: Option<ByArg>,
    /// Combine all message sizes
    #[arg(long)]
    pub(super) all_sizes: bool,
    /// Show the share of samples above DURATION
    #[arg(long, value_name = "DURATION", default_value = "10us", value_parser = bin_ns)]
    pub(super) limit: i64,
    /// Compare with the theoretical minimum latency of a link: width and rate (`4x EDR`) or a data rate (`100Gb/s`)
    #[arg(long, value_name = "SPEED", conflicts_with = "all_sizes")]
    pub(super) link: Option<Speed>,
    /// Number of switches between two ports
    #[arg(long, value_name = "N", default_value_t = 1, requires = "link")]
    pub(super) hops: u32,
    /// Latency of a switch in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 90, requires = "link")]
    pub(super) switch_ns: u32,
    /// Path MTU in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4096, requires = "link", value_parser = mtu)]
    pub(super) mtu: u32,
    /// View of the result and of the figures
    #[arg(long, value_enum, default_value_t = View::Histogram)]
    pub(super) view: View,
    /// Show this interval only [default: all; in figures acknowledged, or else `last_response`]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(INTERVALS))]
    pub(super) interval: Option<String>,
    /// Width of the time bins (timeline, surface); for a profile, a multiple of its own [default: 10ms, or that of the profile]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = LatencyFormat::Table)]
    pub(super) format: LatencyFormat,
    #[command(flatten)]
    pub(super) figures: Figures,
}

impl Latency {
    /// The name of the interval that is wanted alone.
    pub(super) fn interval(&self) -> Option<&'static str> {
        let wanted = self.interval.as_deref()?;
        INTERVALS.into_iter().find(|name| *name == wanted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum View {
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
pub(super) enum LatencyFormat {
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

/// Shows times between packets.
pub(super) fn run(args: &Latency) -> anyhow::Result<ExitCode> {
    let is_over_time = matches!(args.view, View::Surface | View::Timeline);
    if args.format == LatencyFormat::Collie && (is_over_time || args.interval.is_some()) {
        return Err(UsageError("--format collie has its seven lines only; leave out --view and --interval").into());
    }
    if args.link.is_some() && (args.format == LatencyFormat::Collie || is_over_time || args.view == View::Buckets) {
        return Err(UsageError("--link goes with --view histogram or sizes, and not with --format collie").into());
    }
    if args.view != View::Timeline {
        input::whole(&args.inputs, &args.reading, "latencies")?;
    }
    let figures = Outputs::open(&args.figures, &input::files(&args.inputs, &args.reading))?;
    let bin_ns = is_over_time.then(|| args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS));
    let profile =
        input::profile(&args.inputs, &args.reading, args.scope, Needs { times: true, bin_ns, ..Needs::default() })?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| draw(args, &profile))?;
    let wanted = Wanted { by: args.by.map(By::from), interval: args.interval(), bin_ns: profile_bin_ns(args) };
    let nothing = latency::nothing(&profile, args.interval());
    let mut is_empty = false;
    // The parser takes positive durations only.
    let limit_ns = args.limit.unsigned_abs();
    match args.view {
        View::Histogram | View::Buckets | View::Sizes => {
            let mut table = analysis::latencies(&profile, Apart { by: wanted.by, sizes: !args.all_sizes });
            table.retain(|key, _| wanted.interval.is_none_or(|name| name == key.interval));
            if let Some(speed) = args.link.clone() {
                return with_minimum(args, &profile, &table, (speed, &nothing));
            }
            is_empty = table.is_empty();
            output::results(|out| match args.format {
                LatencyFormat::Table if args.view == View::Buckets => {
                    out.write_all(latency::bucket_table(&table, &nothing).as_bytes())
                }
                LatencyFormat::Csv if args.view == View::Buckets => latency::bucket_csv(&table, out),
                LatencyFormat::Table => {
                    out.write_all(latency::table(&table, limit_ns, &nothing).as_bytes())?;
                    // Of the interval that figures show.
                    match Subject::of(&table, wanted.interval, profile.times_read) {
                        Ok(subject) if args.view == View::Histogram => {
                            write!(out, "\n{}", latency::bars(&table, subject.interval))
                        }
                        _ => Ok(()),
                    }
                }
                LatencyFormat::Csv => latency::csv(&table, limit_ns, out),
                LatencyFormat::Json => latency::json(&table, limit_ns, out),
                LatencyFormat::Collie => latency::collie(&profile, out),
            })?;
        }
        View::Surface => {
            let surface = analysis::surface(&profile, &wanted)?;
            output::results(|out| match args.format {
                LatencyFormat::Csv => latency::surface_csv(&surface, out),
                LatencyFormat::Json => latency::surface_json(&surface, out),
                LatencyFormat::Table | LatencyFormat::Collie => {
                    out.write_all(latency::surface_table(&surface, &nothing).as_bytes())
                }
            })?;
        }
        View::Timeline => {
            let times = analysis::time_series(&profile, &wanted)?;
            output::results(|out| match args.format {
                LatencyFormat::Csv => latency::time_series_csv(&times, out),
                LatencyFormat::Json => latency::time_series_json(&times, out),
                LatencyFormat::Table | LatencyFormat::Collie => {
                    out.write_all(latency::time_series_table(&times, &nothing).as_bytes())
                }
            })?;
        }
    }
    notes(args, &profile, is_empty);
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// What is to be said of the times; a table that is empty has said why.
fn notes(args: &Latency, profile: &Profile, is_empty: bool) {
    if !(profile.times_read || is_empty && args.format == LatencyFormat::Table) {
        output::say(&format!("note: {}", latency::NOT_MEASURED));
    }
    input::notes_on_times(profile);
    if profile.coverage.time_backwards > 0 {
        output::say(&format!(
            "note: times run backwards {} times from one record to the next: what was measured across such a step reads 0",
            profile.coverage.time_backwards
        ));
    }
    output::notes(&latency::notes(profile));
    input::notes(&args.inputs, &args.reading, profile);
}

/// The figure, of all pairs together.
fn draw(args: &Latency, profile: &Profile) -> anyhow::Result<figure::Drawing> {
    let latencies = analysis::latencies(profile, Apart { by: None, sizes: true });
    let subject = Subject::of(&latencies, args.interval(), profile.times_read)?;
    let wanted = Wanted { by: None, interval: Some(subject.interval), bin_ns: profile_bin_ns(args) };
    Ok(match args.view {
        View::Histogram | View::Buckets => figure::latency_histogram(&subject, &latencies)?,
        View::Sizes => figure::latency_sizes(&subject, &latencies)?,
        View::Surface => figure::latency_surface(&subject, &analysis::surface(profile, &wanted)?)?,
        View::Timeline => figure::latency_over_time(&subject, &analysis::time_series(profile, &wanted)?)?,
    })
}

/// Captures were read with the bins that were asked for, or with wider ones where there would have been too many.
fn profile_bin_ns(args: &Latency) -> Option<i64> {
    args.bin.filter(|_| pipeline::is_profile(&args.inputs[0]))
}

/// Shows what was measured against the least that the links allow.
fn with_minimum(
    args: &Latency,
    profile: &Profile,
    table: &BTreeMap<Key, Histogram>,
    (speed, nothing): (Speed, &str),
) -> anyhow::Result<ExitCode> {
    let path = Path {
        speed,
        hops: args.hops,
        switch_ns: args.switch_ns,
        mtu_bytes: args.mtu,
        header_bytes: theoretical_minimum::header_bytes(profile),
        clocks_ns: theoretical_minimum::clocks_ns(profile),
    };
    output::results(|out| match args.format {
        LatencyFormat::Table => {
            out.write_all(render::theoretical_minimum::table(table, &path, &profile.coverage, nothing).as_bytes())
        }
        LatencyFormat::Csv => render::theoretical_minimum::csv(table, &path, &profile.coverage, out),
        LatencyFormat::Json | LatencyFormat::Collie => {
            render::theoretical_minimum::json(table, &path, &profile.coverage, out)
        }
    })?;
    notes(args, profile, table.is_empty());
    Ok(input::exit_code(&args.reading, &profile.coverage))
}
