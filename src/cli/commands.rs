//! One function per command.

use super::args::{Analyze, ByArg, Collectives, Format, Inspect, Matrix, Ranks, Timeline, TrafficArg};
use super::files::Outputs;
use super::input::Needs;
use super::{files, input, output};
use crate::pipeline;
use crate::report::By;
use crate::report::matrix::{Selection, Unit};
use crate::report::packets::Form;
use crate::report::{collectives, csv, figure, json, matrix, packets, ranks, text, timeline};
use crate::scratch::signals::{self, Stop};
use std::process::ExitCode;
use std::sync::Arc;

/// `ibscope analyze`. A signal ends it with what it has read so far.
pub(super) fn analyze(args: &Analyze) -> anyhow::Result<ExitCode> {
    analyze_until(args, Some(signals::stop()?))
}

/// The same; without a stop a signal ends the command itself, and then there is no profile.
pub(super) fn analyze_until(args: &Analyze, stop: Option<&Stop>) -> anyhow::Result<ExitCode> {
    input::check_captures("analyze", &args.inputs)?;
    let mut files = input::files(&args.inputs, &args.reading);
    files.extend(args.clocks.as_deref());
    let writer = args.output.as_deref().map(|place| pipeline::Writer::create(place, &files)).transpose()?;
    let mut options = input::options_of(&args.inputs, &args.reading, args.inputs.len() > 1 || args.partial)?;
    options.found_clocks = files::clocks(args.clocks.as_deref())?;
    options.keep_parts = args.partial;
    options.bin_ns = Some(args.bin);
    options.max_cells = args.max_cells;
    options.read_mpi = !args.no_mpi;
    options.read_times = !args.no_times;
    options.check_icrc = !args.no_icrc;
    options.read_payload = !args.no_payload;
    options.sha256 = args.sha256;
    options.stop = stop.map(|stop| Arc::clone(&stop.flag));
    let profile = match (input::analyze(&args.inputs, &options), stop) {
        (Err(error), Some(stop)) if matches!(error.downcast_ref(), Some(pipeline::Error::Interrupted)) => {
            output::say(&format!("ibscope: {error}"));
            return Ok(stop.exit_code());
        }
        (profile, _) => profile?,
    };
    let is_cut = profile.inputs.iter().any(|input| input.interrupted);
    if let Some(writer) = writer {
        writer.finish(&profile)?;
    }
    let style = output::style(args.color);
    output::results(|out| out.write_all(text::summary(&profile, &style).as_bytes()))?;
    if let Some(place) = &args.output {
        output::say(&format!("profile written to {}", place.display()));
    }
    input::rankmap_notes(&args.reading, &profile);
    match stop {
        Some(stop) if is_cut => {
            output::say(
                "ibscope: interrupted: the result is of what was read until then; the notes say how far that is",
            );
            Ok(stop.exit_code())
        }
        _ => Ok(input::exit_code(&args.reading, &profile.coverage)),
    }
}

/// `ibscope inspect`.
pub(super) fn inspect(args: &Inspect) -> anyhow::Result<ExitCode> {
    input::check_captures("inspect", &args.inputs)?;
    let options = input::options(&args.inputs, &args.reading)?;
    let form = Form::from(args.format);
    let mut shown = Ok(Default::default());
    output::results(|out| {
        let mut lines = packets::Lines::begin(form, &options.names, out)?;
        let mut written = Ok(());
        shown = pipeline::inspect(&args.inputs, &options, &mut |packet| {
            written = lines.packet(packet);
            written.is_ok()
        });
        written
    })?;
    let (coverage, notes) = shown?;
    if let Some(note) = input::empty_window_of_packets(&args.reading, &coverage) {
        output::say(note);
    }
    output::notes(&notes);
    Ok(input::exit_code(&args.reading, &coverage))
}

/// `ibscope matrix`.
pub(super) fn matrix(args: &Matrix) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = Outputs::open(&args.drawing.figures, &files)?;
    // A window over a profile is cut out of its timeline; captures are read for the window, so they need none.
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        Needs { no_mpi: args.no_mpi, ..Needs::default() },
    )?;
    let matrix = matrix::matrix(&profile, args.by.into(), selection(args.by, args.traffic));
    let unit = args.unit.map_or(default_unit(args.by), Unit::from);
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::matrix(&matrix, unit)?))?;
    output::results(|out| match source.format {
        Format::Table => {
            out.write_all(text::matrix_table(&matrix, unit, &output::style(args.drawing.color)).as_bytes())
        }
        Format::Csv => csv::matrix_csv(&matrix, out),
        Format::Json => json::matrix_json(&matrix, out),
    })?;
    output::notes(matrix::note(&profile, matrix.by, matrix.selection).as_slice());
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// `ibscope timeline`.
pub(super) fn timeline(args: &Timeline) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let files = input::files(&source.inputs, &source.reading);
    let figures = Outputs::open(&args.drawing.figures, &files)?;
    let profile = input::profile(
        &source.inputs,
        &source.reading,
        source.scope,
        Needs { no_mpi: args.no_mpi, bin_ns: Some(args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS)), ..Needs::default() },
    )?;
    // Captures were read with these bins, or with wider ones where there would have been too many.
    let bin_ns = args.bin.filter(|_| pipeline::is_profile(&source.inputs[0]));
    let timeline = timeline::timeline(&profile, args.by.into(), selection(args.by, args.traffic), bin_ns)?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::timeline(&timeline)?))?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(text::timeline_table(&timeline, &output::style(args.drawing.color)).as_bytes()),
        Format::Csv => csv::timeline_csv(&timeline, out),
        Format::Json => json::timeline_json(&timeline, out),
    })?;
    output::notes(matrix::note(&profile, timeline.by, timeline.selection).as_slice());
    input::notes_on_times(&profile);
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// `ibscope ranks`.
pub(super) fn ranks(args: &Ranks) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, Needs::default())?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(ranks::ranks_table(&profile).as_bytes()),
        Format::Csv => ranks::ranks_csv(&profile, out),
        Format::Json => ranks::ranks_json(&profile, out),
    })?;
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// `ibscope collectives`.
pub(super) fn collectives(args: &Collectives) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::whole(&source.inputs, &source.reading, "collective operations")?;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, Needs::default())?;
    let table = collectives::collectives(&profile, args.by.into());
    output::results(|out| match source.format {
        Format::Table => out.write_all(collectives::table(&table, profile.mpi_read).as_bytes()),
        Format::Csv => collectives::csv(&table, out),
        Format::Json => collectives::json(&table, out),
    })?;
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

fn selection(by: ByArg, traffic: Option<TrafficArg>) -> Selection {
    let default = match By::from(by) {
        By::Endpoint => Selection::All,
        By::Rank => Selection::P2p,
    };
    traffic.map_or(default, Selection::from)
}

fn default_unit(by: ByArg) -> Unit {
    match By::from(by) {
        By::Endpoint => Unit::PayloadBytes,
        By::Rank => Unit::MpiBytes,
    }
}
