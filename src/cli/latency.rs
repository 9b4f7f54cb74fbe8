//! `ibscope latency`.

use super::args::{Latency, LatencyFormat};
use super::input::{self, Needs};
use super::output;
use crate::report::{By, latency};
use std::process::ExitCode;

/// Shows times between packets.
pub(super) fn run(args: &Latency) -> anyhow::Result<ExitCode> {
    input::whole(&args.inputs, &args.reading, "latencies")?;
    let profile = input::profile(&args.inputs, &args.reading, Needs { times: true, ..Needs::default() })?;
    let table = latency::latencies(&profile, latency::Apart { by: args.by.map(By::from), sizes: !args.all_sizes });
    // The parser takes positive durations only.
    let limit_ns = args.limit.unsigned_abs();
    output::results(|out| match args.format {
        LatencyFormat::Table => out.write_all(latency::table(&table, limit_ns).as_bytes()),
        LatencyFormat::Csv => latency::csv(&table, limit_ns, out),
        LatencyFormat::Json => latency::json(&table, limit_ns, out),
        LatencyFormat::Collie => latency::collie(&profile, out),
    })?;
    input::notes(&args.inputs, &args.reading, &profile);
    Ok(input::exit_code(&args.reading, &profile.coverage))
}
