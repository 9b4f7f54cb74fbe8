//! `ibscope crosscheck`.

use super::args::{Format, Reading};
use super::input::{self, Needs};
use super::{files, output};
use crate::crosscheck::{self, Placement, Trace};
use crate::report::crosscheck as report;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `ibscope crosscheck` takes.
#[derive(Debug, Args)]
pub(super) struct Crosscheck {
    /// One profile (NAME.ibp), or captures
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    inputs: Vec<PathBuf>,
    /// Trace of the application: an OTF2 archive (traces.otf2), or a table `src,dst,messages,bytes`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: Reading,
    /// Which rank runs where: output of `mpirun --display-map`, a table `rank,host`, or a hostfile whose slots are filled in order [default: as the
    /// trace says, or the capture]
    #[arg(long, value_name = "FILE")]
    placement: Option<PathBuf>,
    /// Differences up to this percentage of the trace's messages and bytes do not matter
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = super::args::percent)]
    tolerance: f64,
    /// Compare collective operations alone, where the trace has no point-to-point messages
    #[arg(long)]
    collectives_only: bool,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Exit code where something differs and nothing explains it.
const DIFFERS: u8 = 4;

/// Holds what the wire showed against a trace.
pub(super) fn run(args: &Crosscheck) -> anyhow::Result<ExitCode> {
    input::check(&args.inputs)?;
    input::whole(&args.inputs, &args.reading, "messages by communicator and tag")?;
    // The trace first: whether it can be read is known soon, as a rule.
    let trace = read_trace(&args.trace)?;
    let placement = args.placement.as_deref().map(|path| {
        let text = files::read(path)?;
        anyhow::Ok(Placement::parse(path, &text, &trace.all_ranks())?)
    });
    let placement = placement.transpose()?;
    let needs = Needs { health: true, ..Needs::default() };
    let profile = input::profile(&args.inputs, &args.reading, needs)?;
    let placement = placement.unwrap_or_else(|| Placement::of(&trace, &profile));
    let result = crosscheck::crosscheck(&trace, &profile, &placement, args.tolerance, args.collectives_only)?;
    output::results(|out| match args.format {
        Format::Table => out.write_all(report::table(&result).as_bytes()),
        Format::Csv => report::csv(&result, out),
        Format::Json => report::json(&result, out),
    })?;
    output::notes(&result.notes);
    input::notes(&args.inputs, &args.reading, &profile);
    if !report::agrees(&result) {
        return Ok(ExitCode::from(DIFFERS));
    }
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// Reads a trace, whatever it is.
fn read_trace(path: &Path) -> anyhow::Result<Trace> {
    let is_table = files::begins(path, crosscheck::table::is_table);
    if is_table {
        return Ok(crosscheck::table::read(path, &files::read(path)?)?);
    }
    Ok(crosscheck::otf2::read(path)?)
}
