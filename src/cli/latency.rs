//! `ibscope latency`.

use super::args::{Latency, LatencyFormat};
use super::input::{self, Needs, UsageError};
use super::output;
use crate::report::floor::{self, Path};
use crate::report::{By, latency};
use std::process::ExitCode;

/// Shows times between packets.
pub(super) fn run(args: &Latency) -> anyhow::Result<ExitCode> {
    input::whole(&args.inputs, &args.reading, "latencies")?;
    if args.link.is_some() && args.format == LatencyFormat::Collie {
        return Err(UsageError("--format collie has no line for floors; --link goes with table, csv and json").into());
    }
    let profile = input::profile(&args.inputs, &args.reading, Needs { times: true, ..Needs::default() })?;
    let table = latency::latencies(&profile, latency::Apart { by: args.by.map(By::from), sizes: !args.all_sizes });
    // The parser takes positive durations only.
    let limit_ns = args.limit.unsigned_abs();
    if let Some(speed) = args.link.clone() {
        let path = Path {
            speed,
            hops: args.hops,
            switch_ns: args.switch_ns,
            mtu_bytes: args.mtu,
            header_bytes: floor::header_bytes(&profile),
            clocks_ns: floor::clocks_ns(&profile),
        };
        output::results(|out| match args.format {
            LatencyFormat::Table => out.write_all(floor::table(&table, &path, &profile.coverage).as_bytes()),
            LatencyFormat::Csv => floor::csv(&table, &path, &profile.coverage, out),
            LatencyFormat::Json | LatencyFormat::Collie => floor::json(&table, &path, &profile.coverage, out),
        })?;
        input::notes(&args.inputs, &args.reading, &profile);
        return Ok(input::exit_code(&args.reading, &profile.coverage));
    }
    output::results(|out| match args.format {
        LatencyFormat::Table => out.write_all(latency::table(&table, limit_ns).as_bytes()),
        LatencyFormat::Csv => latency::csv(&table, limit_ns, out),
        LatencyFormat::Json => latency::json(&table, limit_ns, out),
        LatencyFormat::Collie => latency::collie(&profile, out),
    })?;
    input::notes(&args.inputs, &args.reading, &profile);
    Ok(input::exit_code(&args.reading, &profile.coverage))
}
