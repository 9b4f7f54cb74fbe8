//! `ibscope latency`.

use super::args::{Latency, LatencyFormat, View};
use super::files::Outputs;
use super::input::{self, Needs, UsageError};
use super::output;
use crate::model::link::Speed;
use crate::model::{Histogram, Profile};
use crate::pipeline;
use crate::report::floor::{self, Path};
use crate::report::latency::{self, Apart, Key, Subject, Wanted};
use crate::report::{By, figure};
use std::collections::BTreeMap;
use std::process::ExitCode;

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
            let mut table = latency::latencies(&profile, Apart { by: wanted.by, sizes: !args.all_sizes });
            table.retain(|key, _| wanted.interval.is_none_or(|name| name == key.interval));
            if let Some(speed) = args.link.clone() {
                return with_floors(args, &profile, &table, (speed, &nothing));
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
            let surface = latency::surface(&profile, &wanted)?;
            output::results(|out| match args.format {
                LatencyFormat::Csv => surface.csv(out),
                LatencyFormat::Json => surface.json(out),
                LatencyFormat::Table | LatencyFormat::Collie => out.write_all(surface.table(&nothing).as_bytes()),
            })?;
        }
        View::Timeline => {
            let times = latency::over_time(&profile, &wanted)?;
            output::results(|out| match args.format {
                LatencyFormat::Csv => times.csv(out),
                LatencyFormat::Json => times.json(out),
                LatencyFormat::Table | LatencyFormat::Collie => out.write_all(times.table(&nothing).as_bytes()),
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
    let latencies = latency::latencies(profile, Apart { by: None, sizes: true });
    let subject = Subject::of(&latencies, args.interval(), profile.times_read)?;
    let wanted = Wanted { by: None, interval: Some(subject.interval), bin_ns: profile_bin_ns(args) };
    Ok(match args.view {
        View::Histogram | View::Buckets => figure::latency_histogram(&subject, &latencies)?,
        View::Sizes => figure::latency_sizes(&subject, &latencies)?,
        View::Surface => figure::latency_surface(&subject, &latency::surface(profile, &wanted)?)?,
        View::Timeline => figure::latency_over_time(&subject, &latency::over_time(profile, &wanted)?)?,
    })
}

/// Captures were read with the bins that were asked for, or with wider ones where there would have been too many.
fn profile_bin_ns(args: &Latency) -> Option<i64> {
    args.bin.filter(|_| pipeline::is_profile(&args.inputs[0]))
}

/// Shows what was measured against the least that the links allow.
fn with_floors(
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
        header_bytes: floor::header_bytes(profile),
        clocks_ns: floor::clocks_ns(profile),
    };
    output::results(|out| match args.format {
        LatencyFormat::Table => out.write_all(floor::table(table, &path, &profile.coverage, nothing).as_bytes()),
        LatencyFormat::Csv => floor::csv(table, &path, &profile.coverage, out),
        LatencyFormat::Json | LatencyFormat::Collie => floor::json(table, &path, &profile.coverage, out),
    })?;
    notes(args, profile, table.is_empty());
    Ok(input::exit_code(&args.reading, &profile.coverage))
}
