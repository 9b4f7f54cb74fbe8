//! `ibscope crosscheck`.

use super::args::{Figures, Format, Reading};
use super::files::Outputs;
use super::input::{self, Needs, UsageError};
use super::{files, output};
use crate::crosscheck::cubex::{self, CubeProfile};
use crate::crosscheck::{self, Placement, Singles, Trace};
use crate::model::Profile;
use crate::pipeline;
use crate::report::crosscheck as report;
use crate::report::figure;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `ibscope crosscheck` takes.
#[derive(Debug, Args)]
pub(super) struct Crosscheck {
    /// One profile (NAME.ibp), or captures
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    inputs: Vec<PathBuf>,
    /// Trace of the application: an OTF2 archive (traces.otf2), a profile of Score-P (profile.cubex), or a table `src,dst,messages,bytes`
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
    #[command(flatten)]
    figures: Figures,
}

/// Exit code where something differs and nothing explains it.
const DIFFERS: u8 = 4;

/// Holds what the wire showed against a trace.
pub(super) fn run(args: &Crosscheck) -> anyhow::Result<ExitCode> {
    input::check(&args.inputs)?;
    input::whole(&args.inputs, &args.reading, "messages by communicator and tag")?;
    let mut files = input::files(&args.inputs, &args.reading);
    files.extend(args.placement.iter().map(PathBuf::as_path).chain([args.trace.as_path()]));
    let figures = Outputs::open(&args.figures, &files)?;
    // The trace first: whether it can be read is known soon, as a rule.
    let given = Given::read(&args.trace)?;
    if matches!(given, Given::Sums(_)) && (args.figures.svg.is_some() || args.figures.png.is_some()) {
        return Err(UsageError(
            "--svg and --png draw pairs of ranks, which a profile of sums does not have; give the trace for them",
        )
        .into());
    }
    let trace = given.trace();
    let placement = args.placement.as_deref().map(|path| {
        let text = files::read(path)?;
        anyhow::Ok(Placement::parse(path, &text, &trace.all_ranks())?)
    });
    let placement = placement.transpose()?;
    let (profile, singles) = read_wire(args, !trace.rma.is_empty())?;
    let placement = placement.unwrap_or_else(|| Placement::of(trace, &profile));
    let options = crosscheck::Options { tolerance_percent: args.tolerance, collectives_only: args.collectives_only };
    let result = match &given {
        Given::Trace(trace) => crosscheck::crosscheck(trace, &profile, &singles, &placement, &options)?,
        Given::Sums(sums) => crosscheck::crosscheck_sums(sums, &profile, &placement, &options)?,
    };
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::crosscheck(&result)?))?;
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

/// Reads a profile, or captures with all messages.
fn read_wire(args: &Crosscheck, with_rdma: bool) -> anyhow::Result<(Profile, Singles)> {
    if args.inputs.iter().any(|path| pipeline::is_profile(path)) {
        return Ok((input::profile(&args.inputs, &args.reading, Needs::default())?, Singles::default()));
    }
    input::check_captures("crosscheck", &args.inputs)?;
    let mut options = input::options(&args.inputs, &args.reading)?;
    options.bin_ns = None;
    (options.read_times, options.read_sizes) = (false, false);
    let mut singles = Singles::new(with_rdma);
    let mut stream = input::messages(&args.inputs, &options, with_rdma)?;
    for row in stream.by_ref() {
        singles.add(&row?);
    }
    Ok((stream.profile().clone(), singles.sorted()))
}

/// What the wire is held against.
enum Given {
    Trace(Box<Trace>),
    Sums(Box<CubeProfile>),
}

impl Given {
    /// Reads it, whatever it is.
    fn read(path: &Path) -> anyhow::Result<Self> {
        if files::begins(path, crosscheck::table::is_table) {
            return Ok(Self::Trace(Box::new(crosscheck::table::read(path, &files::read(path)?)?)));
        }
        if files::begins(path, cubex::is_archive) {
            return Ok(Self::Sums(Box::new(cubex::read(path)?)));
        }
        Ok(Self::Trace(Box::new(crosscheck::otf2::read(path)?)))
    }

    fn trace(&self) -> &Trace {
        match self {
            Self::Trace(trace) => trace,
            Self::Sums(sums) => &sums.trace,
        }
    }
}
