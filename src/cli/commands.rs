//! One function per command.

use super::args::{Analyze, ByArg, Format, Inspect, Matrix, Ranks, Timeline, TrafficArg};
use super::files::Output;
use super::{input, output};
use crate::pipeline;
use crate::report::By;
use crate::report::matrix::{Selection, Unit};
use crate::report::{csv, figure, json, matrix, packets, ranks, text, timeline};
use std::process::ExitCode;

/// `ibscope analyze`.
pub(super) fn analyze(args: &Analyze) -> anyhow::Result<ExitCode> {
    let writer = args.output.as_deref().map(pipeline::Writer::create).transpose()?;
    let mut options = input::options(&args.reading)?;
    options.bin_ns = Some(args.bin);
    options.read_mpi = !args.no_mpi;
    options.check_icrc = !args.no_icrc;
    options.sha256 = args.sha256;
    let profile = input::analyze(&args.inputs, &options)?;
    if let Some(writer) = writer {
        writer.finish(&profile)?;
    }
    let style = output::style(args.color);
    output::results(|out| out.write_all(text::summary(&profile, &style).as_bytes()))?;
    if let Some(place) = &args.output {
        output::say(&format!("profile written to {}", place.display()));
    }
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// `ibscope inspect`.
pub(super) fn inspect(args: &Inspect) -> anyhow::Result<ExitCode> {
    let options = input::options(&args.reading)?;
    let form = match args.format {
        Format::Table => packets::Form::Table,
        Format::Csv => packets::Form::Csv,
        Format::Json => packets::Form::Json,
    };
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
    output::notes(&notes);
    Ok(input::exit_code(&args.reading, &coverage))
}

/// `ibscope matrix`.
pub(super) fn matrix(args: &Matrix) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    let (svg, png) = (Output::open(args.drawing.svg.as_ref())?, Output::open(args.drawing.png.as_ref())?);
    // A window over a profile is cut out of its timeline; captures are read for the window, so they need none.
    let profile = input::profile(source, None)?;
    let matrix = matrix::matrix(&profile, args.by.into(), selection(args.by, args.traffic));
    let unit = args.unit.map_or(default_unit(args.by), Unit::from);
    // Before the text: its reader may go away, and the figures are wanted all the same.
    if let Some(svg) = svg {
        svg.finish(figure::matrix_svg(&matrix, unit)?.as_bytes())?;
    }
    if let Some(png) = png {
        png.finish(&figure::matrix_png(&matrix, unit)?)?;
    }
    output::results(|out| match source.format {
        Format::Table => {
            out.write_all(text::matrix_table(&matrix, unit, &output::style(args.drawing.color)).as_bytes())
        }
        Format::Csv => csv::matrix_csv(&matrix, out),
        Format::Json => json::matrix_json(&matrix, out),
    })?;
    output::notes(&profile.notes);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// `ibscope timeline`.
pub(super) fn timeline(args: &Timeline) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    let (svg, png) = (Output::open(args.drawing.svg.as_ref())?, Output::open(args.drawing.png.as_ref())?);
    let profile = input::profile(source, Some(args.bin.unwrap_or(pipeline::DEFAULT_BIN_NS)))?;
    // Captures were read with these bins, or with wider ones where there would have been too many.
    let bin_ns = args.bin.filter(|_| pipeline::is_profile(&source.inputs[0]));
    let timeline = timeline::timeline(&profile, args.by.into(), selection(args.by, args.traffic), bin_ns)?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    if let Some(svg) = svg {
        svg.finish(figure::timeline_svg(&timeline)?.as_bytes())?;
    }
    if let Some(png) = png {
        png.finish(&figure::timeline_png(&timeline)?)?;
    }
    output::results(|out| match source.format {
        Format::Table => out.write_all(text::timeline_table(&timeline, &output::style(args.drawing.color)).as_bytes()),
        Format::Csv => csv::timeline_csv(&timeline, out),
        Format::Json => json::timeline_json(&timeline, out),
    })?;
    output::notes(&profile.notes);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

/// `ibscope ranks`.
pub(super) fn ranks(args: &Ranks) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    let profile = input::profile(source, None)?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(ranks::ranks_table(&profile).as_bytes()),
        Format::Csv => ranks::ranks_csv(&profile, out),
        Format::Json => ranks::ranks_json(&profile, out),
    })?;
    output::notes(&profile.notes);
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
