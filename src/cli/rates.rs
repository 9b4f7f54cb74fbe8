//! `ibscope rates`.

use super::common::arguments::{Figures, Source};
use super::common::choices::{ByArg, Format};
use super::common::files::Outputs;
use super::common::input::{self, Needs};
use super::common::output;
use super::common::parse::bin_ns;
use crate::analysis::By;
use crate::analysis::rates::{DEFAULT_WINDOW_NS, rates};
use crate::pipeline;
use crate::render::{self, figure};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope rates job.ibp
  ibscope rates job.ibp --by rank --window 50ms
  ibscope rates job.ibp --view sizes --format csv";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Rates {
    #[command(flatten)]
    pub(super) source: Source,
    /// Show each pair of endpoints or ranks separately [default: all together]
    #[arg(long, value_enum)]
    pub(super) by: Option<ByArg>,
    /// Width of the bins; those of a profile are shared out where it is no multiple of theirs [default: 10ms, or the profile's, or
    /// wider where they would be more than a million]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// Table that csv has; json has all
    #[arg(long, value_enum, default_value_t = RatesView::Bins)]
    pub(super) view: RatesView,
    /// Length of the window of the peak rate [default: 100ms, or the whole time if shorter]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) window: Option<i64>,
    #[command(flatten)]
    pub(super) figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RatesView {
    /// Sums and rates over time
    Bins,
    /// Sums, means and peaks
    Peaks,
    /// How large messages and packets are
    Sizes,
}

/// A window that is this many times the common divisor of window and bins, or more, is found in steps of a bin: finer bins would be too many.
const FINEST: i64 = 64;

/// Shows rates over time, their peaks, and distributions of sizes.
pub(super) fn run(args: &Rates) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = Outputs::open(&args.figures, &files)?;
    let is_profile = pipeline::is_profile(&source.inputs[0]);
    let needs = Needs { bin_ns: Some(fine_ns(args)), sizes: true, ..Needs::default() };
    let profile = input::profile(&source.inputs, &source.reading, source.scope, needs)?;
    let bin_ns = args.bin.or((!is_profile).then_some(pipeline::DEFAULT_BIN_NS));
    let window_ns = args.window.unwrap_or(DEFAULT_WINDOW_NS);
    let mut rates = rates(&profile, args.by.map(By::from), bin_ns, window_ns)?;
    let unasked_bin_ns = args.bin.is_none().then_some(rates.bin_ns);
    if unasked_bin_ns.is_some() {
        rates = rates.widened();
    }
    if source.format != Format::Table {
        rates.check_rows()?;
    }
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::rates(&rates)?))?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(render::rates::table(&rates, is_profile).as_bytes()),
        Format::Csv => match args.view {
            RatesView::Bins => render::rates::csv(&rates, out),
            RatesView::Peaks => render::rates::peaks_csv(&rates, out),
            RatesView::Sizes => render::rates::sizes_csv(&rates, out),
        },
        Format::Json => render::rates::json(&rates, out),
    })?;
    output::notes(&render::rates::notes(&rates, args.window, unasked_bin_ns));
    input::notes_on_times(&profile);
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Bins in which captures are read: those asked for, or narrower ones that fit both them and the window.
fn fine_ns(args: &Rates) -> i64 {
    let bin_ns = args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS);
    let window_ns = args.window.unwrap_or(DEFAULT_WINDOW_NS);
    let (mut fine_ns, mut rest_ns) = (bin_ns, window_ns);
    while rest_ns != 0 {
        (fine_ns, rest_ns) = (rest_ns, fine_ns % rest_ns);
    }
    if bin_ns.min(window_ns) / fine_ns < FINEST { fine_ns } else { bin_ns }
}
