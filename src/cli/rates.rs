//! `ibscope rates`.

use super::args::{Format, Rates, RatesView};
use super::files::Outputs;
use super::input::{self, Needs};
use super::output;
use crate::pipeline;
use crate::report::{By, figure, rates};
use std::process::ExitCode;

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
    let window_ns = args.window.unwrap_or(rates::DEFAULT_WINDOW_NS);
    let mut rates = rates::rates(&profile, args.by.map(By::from), bin_ns, window_ns)?;
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
        Format::Table => out.write_all(rates::table(&rates, is_profile).as_bytes()),
        Format::Csv => match args.view {
            RatesView::Bins => rates::csv(&rates, out),
            RatesView::Peaks => rates::peaks_csv(&rates, out),
            RatesView::Sizes => rates::sizes_csv(&rates, out),
        },
        Format::Json => rates::json(&rates, out),
    })?;
    output::notes(&rates::notes(&rates, args.window, unasked_bin_ns));
    input::notes_on_times(&profile);
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// Bins in which captures are read: those asked for, or narrower ones that fit both them and the window.
fn fine_ns(args: &Rates) -> i64 {
    let bin_ns = args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS);
    let window_ns = args.window.unwrap_or(rates::DEFAULT_WINDOW_NS);
    let (mut fine_ns, mut rest_ns) = (bin_ns, window_ns);
    while rest_ns != 0 {
        (fine_ns, rest_ns) = (rest_ns, fine_ns % rest_ns);
    }
    if bin_ns.min(window_ns) / fine_ns < FINEST { fine_ns } else { bin_ns }
}
