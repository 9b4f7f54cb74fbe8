//! `ibscope latency`: times between packets, as tables, series and figures.

use super::common::arguments::{FigureArgs, InputArgs, ScaleArgs, ScopeArgs, WidthArgs};
use super::common::choices::GroupByArg;
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::common::parse::bin_ns;
use super::common::usage::UsageError;
use crate::analysis::GroupBy;
use crate::analysis::latency::INTERVALS;
use crate::analysis::latency::{self as analysis, LatencyGrouping, LatencyKey, LatencySeriesOptions};
use crate::analysis::theoretical_minimum::{self, FabricPath};
use crate::model::link::Speed;
use crate::model::{Histogram, Interval, Profile};
use crate::pipeline;
use crate::render::latency::{self, Subject};
use crate::render::{self, figure};
use anyhow::bail;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope latency job.ibp --by rank
  ibscope latency job.ibp --view timeline --png latency.png
  ibscope latency job.ibp --link \"4x EDR\" --hops 3";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct LatencyArgs {
    /// One profile (NAME.ibp), or captures and folders with captures: pcap or pcapng, plain, gzip
    /// or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: InputArgs,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    /// Show each pair of endpoints or ranks separately [default: all together]
    #[arg(long, value_enum)]
    pub(super) by: Option<GroupByArg>,
    /// Combine all message sizes
    #[arg(long)]
    pub(super) all_sizes: bool,
    /// Show the share of samples above DURATION
    #[arg(long, value_name = "DURATION", default_value = "10us", value_parser = bin_ns)]
    pub(super) limit: i64,
    /// Compare with the theoretical minimum latency of a link: width and rate (`4x EDR`) or a data
    /// rate (`100Gb/s`)
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
    #[arg(long, value_enum, default_value_t = LatencyView::Histogram)]
    pub(super) view: LatencyView,
    /// Show this interval only [default: all; in figures `acknowledged`, or `last_response` if there is none]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(INTERVALS))]
    pub(super) interval: Option<String>,
    /// Width of the time bins (timeline, surface); for a profile, a multiple of the profile's bin
    /// width [default: 10ms, or the profile's bin width]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    #[command(flatten)]
    pub(super) width: WidthArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = LatencyFormat::Table)]
    pub(super) format: LatencyFormat,
    #[command(flatten)]
    pub(super) figures: FigureArgs,
    #[command(flatten)]
    pub(super) scale: ScaleArgs,
}

impl LatencyArgs {
    /// The interval of `--interval`.
    pub(super) fn interval(&self) -> Option<&'static str> {
        let wanted = self.interval.as_deref()?;
        INTERVALS.into_iter().find(|name| *name == wanted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LatencyView {
    /// Distribution of the times; the table shows minimum, maximum and quantiles
    Histogram,
    /// Buckets of the histograms: how often each time was measured
    Buckets,
    /// Median by message size, and the interval that holds 80 % of the samples
    Sizes,
    /// Median by message size and by the rate of the connection at that time
    Surface,
    /// Percentiles over time
    Timeline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LatencyFormat {
    /// Human-readable text
    Table,
    /// Comma-separated values
    Csv,
    /// JSON, with the buckets of the histograms
    Json,
    /// Seven `key: value` lines for scripts, over all requests and their responses
    Collie,
}

/// Path MTUs that InfiniBand defines, in bytes.
const MTUS_BYTES: [u32; 5] = [256, 512, 1024, 2048, 4096];

fn mtu(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|bytes| MTUS_BYTES.contains(bytes));
    bytes.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".to_owned())
}

/// Runs `ibscope latency`.
pub(super) fn run(args: &LatencyArgs) -> anyhow::Result<ExitCode> {
    let is_over_time = matches!(args.view, LatencyView::Surface | LatencyView::Timeline);
    if args.format == LatencyFormat::Collie && (is_over_time || args.interval.is_some()) {
        return Err(UsageError("--format collie prints seven fixed lines; omit --view and --interval").into());
    }
    if args.link.is_some()
        && (args.format == LatencyFormat::Collie || is_over_time || args.view == LatencyView::Buckets)
    {
        return Err(UsageError("--link works with --view histogram or sizes only, and not with --format collie").into());
    }
    let most_ns = args.scale.time_ns(&args.figures)?;
    if args.scale.is_chosen() && matches!(args.view, LatencyView::Histogram | LatencyView::Buckets) {
        return Err(UsageError("--vmax works with --view sizes, surface or timeline").into());
    }
    if args.view != LatencyView::Timeline {
        input::check_no_window(&args.inputs, &args.reading, "latencies")?;
    }
    let figures = FigureFiles::open(&args.figures, &input::files(&args.inputs, &args.reading))?;
    let bin_ns = is_over_time.then(|| args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS));
    let profile = input::profile(
        &args.inputs,
        &args.reading,
        args.scope,
        AnalysisNeeds { times: true, bin_ns, ..AnalysisNeeds::default() },
    )?;
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| draw(args, &profile, most_ns))?;
    let wanted = LatencySeriesOptions {
        by: args.by.map(GroupBy::from),
        interval: args.interval(),
        bin_ns: profile_bin_ns(args),
    };
    let nothing = latency::empty_message(&profile, args.interval());
    let mut is_empty = false;
    let width = args.width.columns();
    // The parser takes positive durations only.
    let limit_ns = args.limit.unsigned_abs();
    match args.view {
        LatencyView::Histogram | LatencyView::Buckets | LatencyView::Sizes => {
            let mut table = analysis::latencies(&profile, LatencyGrouping { by: wanted.by, sizes: !args.all_sizes });
            table.retain(|key, _| wanted.interval.is_none_or(|name| name == key.interval));
            if let Some(speed) = args.link.clone() {
                return with_minimum(args, &profile, &table, (speed, &nothing));
            }
            is_empty = table.is_empty();
            output::results(|out| match args.format {
                LatencyFormat::Table if args.view == LatencyView::Buckets => {
                    out.write_all(latency::bucket_table(&table, &nothing).as_bytes())
                }
                LatencyFormat::Csv if args.view == LatencyView::Buckets => latency::bucket_csv(&table, out),
                LatencyFormat::Table => {
                    out.write_all(latency::table(&table, limit_ns, &nothing, width).as_bytes())?;
                    // Bars of the interval that figures show.
                    match Subject::of(&table, wanted.interval, profile.times_read) {
                        Ok(subject) if args.view == LatencyView::Histogram => {
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
        LatencyView::Surface => {
            let surface = analysis::surface(&profile, &wanted)?;
            output::results(|out| match args.format {
                LatencyFormat::Csv => latency::surface_csv(&surface, out),
                LatencyFormat::Json => latency::surface_json(&surface, out),
                LatencyFormat::Table | LatencyFormat::Collie => {
                    out.write_all(latency::surface_table(&surface, &nothing, width).as_bytes())
                }
            })?;
        }
        LatencyView::Timeline => {
            let times = analysis::time_series(&profile, &wanted)?;
            output::results(|out| match args.format {
                LatencyFormat::Csv => latency::time_series_csv(&times, out),
                LatencyFormat::Json => latency::time_series_json(&times, out),
                LatencyFormat::Table | LatencyFormat::Collie => {
                    out.write_all(latency::time_series_table(&times, &nothing, width).as_bytes())
                }
            })?;
        }
    }
    notes(args, &profile, is_empty);
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// Prints the notes on times. An empty table states its reason itself.
fn notes(args: &LatencyArgs, profile: &Profile, is_empty: bool) {
    if !(profile.times_read || is_empty && args.format == LatencyFormat::Table) {
        output::eprint_line(&format!("note: {}", latency::NOT_MEASURED));
    }
    input::notes_on_times(profile);
    output::notes(&latency::notes(profile));
    input::notes(&args.inputs, &args.reading, profile);
}

/// Draws the figure of all pairs together.
fn draw(args: &LatencyArgs, profile: &Profile, most_ns: Option<u64>) -> anyhow::Result<figure::Drawing> {
    let mut latencies = analysis::latencies(profile, LatencyGrouping { by: None, sizes: true });
    if matches!(args.view, LatencyView::Surface | LatencyView::Timeline) && args.interval.is_none() {
        retain_series(&mut latencies)?;
    }
    let subject = Subject::of(&latencies, args.interval(), profile.times_read)?;
    let wanted = LatencySeriesOptions { by: None, interval: Some(subject.interval), bin_ns: profile_bin_ns(args) };
    Ok(match args.view {
        LatencyView::Histogram | LatencyView::Buckets => figure::latency_histogram(&subject, &latencies)?,
        LatencyView::Sizes => figure::latency_sizes(&subject, &latencies, most_ns)?,
        LatencyView::Surface => figure::latency_surface(&subject, &analysis::surface(profile, &wanted)?, most_ns)?,
        LatencyView::Timeline => {
            figure::latency_over_time(&subject, &analysis::time_series(profile, &wanted)?, most_ns)?
        }
    })
}

/// Keeps the times of the intervals that have a time series. Fails if only others were measured.
fn retain_series(latencies: &mut BTreeMap<LatencyKey, Histogram>) -> anyhow::Result<()> {
    let series: BTreeSet<&str> =
        Interval::ALL.into_iter().filter(|interval| interval.has_time_series()).map(Interval::name).collect();
    let measured: BTreeSet<&str> = latencies.keys().map(|key| key.interval).collect();
    if !measured.is_empty() && measured.is_disjoint(&series) {
        let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
        bail!(
            "the profile has no time series of the times that were measured ({}): only {} have one; draw --view histogram or sizes",
            list(measured),
            list(series)
        );
    }
    latencies.retain(|key, _| series.contains(key.interval));
    Ok(())
}

/// The bin width for a profile. Captures are already read with `--bin`, or with wider bins if there
/// were too many.
fn profile_bin_ns(args: &LatencyArgs) -> Option<i64> {
    args.bin.filter(|_| pipeline::is_profile(&args.inputs[0]))
}

/// Shows the latencies compared with the theoretical minimum.
fn with_minimum(
    args: &LatencyArgs,
    profile: &Profile,
    table: &BTreeMap<LatencyKey, Histogram>,
    (speed, nothing): (Speed, &str),
) -> anyhow::Result<ExitCode> {
    let path = FabricPath {
        speed,
        hops: args.hops,
        switch_ns: args.switch_ns,
        mtu_bytes: args.mtu,
        header_bytes: theoretical_minimum::header_bytes(profile),
        clocks_ns: theoretical_minimum::clocks_ns(profile),
    };
    output::results(|out| match args.format {
        LatencyFormat::Table => {
            let width = args.width.columns();
            let text = render::theoretical_minimum::table(table, &path, &profile.coverage, nothing, width);
            out.write_all(text.as_bytes())
        }
        LatencyFormat::Csv => render::theoretical_minimum::csv(table, &path, &profile.coverage, out),
        LatencyFormat::Json | LatencyFormat::Collie => {
            render::theoretical_minimum::json(table, &path, &profile.coverage, out)
        }
    })?;
    notes(args, profile, table.is_empty());
    Ok(input::exit_code(&args.reading, &profile.coverage))
}
