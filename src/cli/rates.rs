//! `ibscope rates`: rates, peak rates and sizes.

use super::common::arguments::{FigureArgs, ScaleArgs, SourceArgs, WidthArgs};
use super::common::choices::Format;
use super::common::files::FigureFiles;
use super::common::input::{self, AnalysisNeeds};
use super::common::job_choice::JobChoice;
use super::common::output;
use super::common::parse::bin_ns;
use super::common::usage::UsageError;
use crate::analysis::GroupBy;
use crate::analysis::link_rates::{LINK_BIN_NS, link_rates};
use crate::analysis::rates::{DEFAULT_WINDOW_NS, RateGrouping, grouped_rates};
use crate::model::link::Speed;
use crate::pipeline;
use crate::render::{self, figure};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope rates job.ibp --by class
  ibscope rates job.ibp --by rank --window 50ms
  ibscope rates sink.pcap --by link --link \"4x EDR\" --png links.png";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct RatesArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Show each pair of endpoints or ranks, each class, or each port and direction separately
    /// [default: all together]
    #[arg(long, value_enum)]
    pub(super) by: Option<RateGroupingArg>,
    /// Speed of the links, for their utilization (`--by link`): width and rate (`4x EDR`) or a data
    /// rate (`100Gb/s`)
    #[arg(long, value_name = "SPEED")]
    pub(super) link: Option<Speed>,
    /// Width of the bins [default: 10ms, 1ms for `--by link`, or the profile's]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// Table to print as csv; json has all tables [default: bins, or peaks for `--by link`]
    #[arg(long, value_enum)]
    pub(super) view: Option<RatesView>,
    /// Length of the peak window [default: 100ms, or the whole time if shorter]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) window: Option<i64>,
    #[command(flatten)]
    pub(super) width: WidthArgs,
    #[command(flatten)]
    pub(super) figures: FigureArgs,
    #[command(flatten)]
    pub(super) scale: ScaleArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RateGroupingArg {
    /// Ports: LID, GID or IP address
    Endpoint,
    /// MPI ranks
    Rank,
    /// Classes of connections: `mpi`, `nccl`, `nfs` ...
    Class,
    /// Links between a port and its switch, each direction separately
    Link,
}

impl RateGroupingArg {
    /// The grouping of pairs and classes; `None` for links.
    const fn grouping(self) -> Option<RateGrouping> {
        match self {
            Self::Endpoint => Some(RateGrouping::Pairs(GroupBy::Endpoint)),
            Self::Rank => Some(RateGrouping::Pairs(GroupBy::Rank)),
            Self::Class => Some(RateGrouping::Class),
            Self::Link => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RatesView {
    /// Sums and rates per time bin
    Bins,
    /// Sums, means and peaks
    Peaks,
    /// Sizes of messages and packets
    Sizes,
}

/// Steps in which the peak window moves by its own length: the peak is exact to 1 % of a steady
/// rate, regardless of the width of the shown bins.
const WINDOW_STEPS: i64 = 100;
/// Bins for reading captures are less than this many times narrower than both the shown bins and the
/// steps of the window, because finer ones would be too many.
const FINEST: i64 = 64;

/// Runs `ibscope rates`.
pub(super) fn run(args: &RatesArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = FigureFiles::open(&args.figures, &files)?;
    if args.by == Some(RateGroupingArg::Link) {
        return run_links(args, figures);
    }
    if args.link.is_some() {
        return Err(UsageError("--link needs --by link").into());
    }
    if args.by.is_some() && args.figures.are_wanted() {
        return Err(UsageError(
            "figures of rates show all traffic together, or each link (--by link); leave out --by, or draw with `ibscope timeline --by rank` or `--stack class`",
        )
        .into());
    }
    let most = args.scale.number(&args.figures)?;
    let is_profile = pipeline::is_profile(&source.inputs[0]);
    let window_ns = args.window.unwrap_or(DEFAULT_WINDOW_NS);
    let fine_ns = fine_ns(args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS), (window_ns / WINDOW_STEPS).max(1));
    let needs = AnalysisNeeds { bin_ns: Some(fine_ns), sizes: true, ..AnalysisNeeds::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    let bin_ns = args.bin.or((!is_profile).then_some(pipeline::DEFAULT_BIN_NS));
    let mut rates = grouped_rates(&profile, args.by.and_then(RateGroupingArg::grouping), bin_ns, window_ns)?;
    let default_bin_ns = args.bin.is_none().then_some(rates.bin_ns);
    if default_bin_ns.is_some() {
        rates = rates.widened();
    }
    if source.format != Format::Table {
        rates.check_rows()?;
    }
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| Ok(figure::rates(&rates, most)?))?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(render::rates::table(&rates, is_profile, args.width.columns()).as_bytes()),
        Format::Csv => match args.view.unwrap_or(RatesView::Bins) {
            RatesView::Bins => render::rates::csv(&rates, out),
            RatesView::Peaks => render::rates::peaks_csv(&rates, out),
            RatesView::Sizes => render::rates::sizes_csv(&rates, out),
        },
        Format::Json => render::rates::json(&rates, out),
    })?;
    output::notes(&render::rates::notes(&rates, args.window, default_bin_ns));
    input::notes_on_times(&profile);
    input::ports_note(&profile, "traffic between other ports is missing");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Runs `ibscope rates --by link`.
fn run_links(args: &RatesArgs, figures: FigureFiles) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    if args.window.is_some() {
        return Err(UsageError("--by link has windows of 1, 10 and 100 ms; leave out --window").into());
    }
    if args.scale.is_chosen() {
        return Err(UsageError("the scale of --by link ends at the capacity of --link; leave out --vmax").into());
    }
    if args.view == Some(RatesView::Sizes) {
        return Err(UsageError("--by link has no sizes; choose --view bins or peaks").into());
    }
    let fine_ns = args.bin.map_or(LINK_BIN_NS, |bin_ns| fine_ns(bin_ns, LINK_BIN_NS));
    let needs = AnalysisNeeds { bin_ns: Some(fine_ns), ..AnalysisNeeds::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    let rates = link_rates(&profile, args.link.as_ref(), matches!(source.scope.job, JobChoice::Only(_)), args.bin)?;
    figures.finish(|| Ok(figure::link_rates(&rates)?))?;
    output::results(|out| match (source.format, args.view) {
        (Format::Table, _) => out.write_all(render::rates::links_text(&rates, args.width.columns()).as_bytes()),
        (Format::Csv, Some(RatesView::Bins)) => render::rates::link_bins_csv(&rates, out),
        (Format::Csv, _) => render::rates::links_csv(&rates, out),
        (Format::Json, _) => render::rates::links_json(&rates, out),
    })?;
    output::notes(&render::rates::link_notes(&rates));
    input::notes_on_times(&profile);
    input::ports_note(&profile, "traffic between other ports is missing");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Bin width for reading captures: the greatest common divisor of the bins and the steps of the peak
/// window, or the smaller of the two if the divisor is too small.
fn fine_ns(bin_ns: i64, step_ns: i64) -> i64 {
    let (mut fine_ns, mut rest_ns) = (bin_ns, step_ns);
    while rest_ns != 0 {
        (fine_ns, rest_ns) = (rest_ns, fine_ns % rest_ns);
    }
    let least_ns = bin_ns.min(step_ns);
    if least_ns / fine_ns < FINEST { fine_ns } else { least_ns }
}
