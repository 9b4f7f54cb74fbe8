//! `ibscope crosscheck`.

use super::common::arguments::{Figures, Reading, Scope};
use super::common::choices::Format;
use super::common::files::{self, Outputs};
use super::common::input::{self, Needs};
use super::common::output;
use super::common::parse::percent;
use super::common::usage::UsageError;
use crate::analysis::crosscheck::agrees;
use crate::crosscheck::cubex::{self, CubeProfile};
use crate::crosscheck::{self, Placement, Singles, Trace};
use crate::model::Profile;
use crate::pipeline;
use crate::render::crosscheck as rendered;
use crate::render::figure;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope crosscheck job.ibp scorep-run/traces.otf2
  ibscope crosscheck sink.pcap scorep-run/profile.cubex --format csv";

/// What `ibscope crosscheck` takes.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Crosscheck {
    /// One profile (NAME.ibp) or captures
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    inputs: Vec<PathBuf>,
    /// Trace of the application: OTF2 archive (traces.otf2), Score-P profile (profile.cubex), or table `src,dst,messages,bytes`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    against: Against,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Table that csv has; json has all
    #[arg(long, value_enum, default_value_t = View::Pairs)]
    view: View,
    #[command(flatten)]
    figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum View {
    /// Pairs of ranks, and collective operations between them
    Pairs,
    /// What differs without a reason, by tag
    Differences,
    /// Clocks of the ranks against that of the capture
    Clocks,
    /// How long a send call takes to the wire, in classes
    Delays,
    /// Calls of collective operations
    Calls,
    /// One-sided operations
    OneSided,
    /// Messages on the wire of queue pairs whose rank is not identified
    Unidentified,
}

/// How a trace is held against the wire.
#[derive(Debug, Args)]
pub(super) struct Against {
    /// Which rank runs where: output of `mpirun --display-map`, a table `rank,host`, or a hostfile whose slots are filled in order [default: as the
    /// trace says, or the capture]
    #[arg(long, value_name = "FILE", requires = "trace")]
    placement: Option<PathBuf>,
    /// Accept differences of up to PERCENT of the messages and bytes of the trace
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent, requires = "trace")]
    tolerance: f64,
    /// Compare collective operations only, for traces without point-to-point messages
    #[arg(long, requires = "trace")]
    collectives_only: bool,
}

/// A trace that was read, and what is to be done with it.
pub(super) struct Asked {
    given: Given,
    placement: Option<Placement>,
    options: crosscheck::Options,
}

impl Against {
    /// The files that are read beside the trace.
    pub(super) fn files(&self) -> Option<&Path> {
        self.placement.as_deref()
    }

    /// Reads a trace, and what says where its ranks run.
    pub(super) fn read(&self, trace: &Path) -> anyhow::Result<Asked> {
        let given = Given::read(trace)?;
        let placement = self.placement.as_deref().map(|path| {
            let text = files::read(path)?;
            anyhow::Ok(Placement::parse(path, &text, &given.trace().all_ranks())?)
        });
        let options =
            crosscheck::Options { tolerance_percent: self.tolerance, collectives_only: self.collectives_only };
        Ok(Asked { placement: placement.transpose()?, given, options })
    }
}

impl Asked {
    /// False for sums by rank alone.
    pub(super) const fn has_pairs(&self) -> bool {
        matches!(self.given, Given::Trace(_))
    }

    fn has_one_sided(&self) -> bool {
        !self.given.trace().rma.is_empty()
    }

    /// Holds it against the wire.
    pub(super) fn check(&self, profile: &Profile, singles: &Singles) -> anyhow::Result<crosscheck::Crosscheck> {
        let placement = self.placement.as_ref();
        Ok(match &self.given {
            Given::Trace(trace) => crosscheck::crosscheck(trace, profile, singles, placement, &self.options)?,
            Given::Sums(sums) => crosscheck::crosscheck_sums(sums, profile, placement, &self.options)?,
        })
    }
}

/// Exit code where something differs and nothing explains it.
pub(super) const DIFFERS: u8 = 4;

/// Holds what the wire showed against a trace.
pub(super) fn run(args: &Crosscheck) -> anyhow::Result<ExitCode> {
    input::check(&args.inputs)?;
    input::whole(&args.inputs, &args.reading, "messages by communicator and tag")?;
    let mut files = input::files(&args.inputs, &args.reading);
    files.extend(args.against.files().into_iter().chain([args.trace.as_path()]));
    let figures = Outputs::open(&args.figures, &files)?;
    // The trace first: whether it can be read is known soon, as a rule.
    let asked = args.against.read(&args.trace)?;
    if !asked.has_pairs() && (args.figures.svg.is_some() || args.figures.png.is_some()) {
        return Err(UsageError(
            "--svg and --png draw pairs of ranks, which a profile of sums does not have; give the trace for them",
        )
        .into());
    }
    let (profile, singles) = read_wire(args, asked.has_one_sided())?;
    let result = asked.check(&profile, &singles)?;
    // Before the text: its reader may go away, and the figures are wanted all the same.
    figures.finish(|| Ok(figure::crosscheck(&result)?))?;
    output::results(|out| match args.format {
        Format::Table => out.write_all(rendered::table(&result).as_bytes()),
        Format::Csv => match args.view {
            View::Pairs => rendered::csv(&result, out),
            View::Differences => rendered::differences_csv(&result, out),
            View::Clocks => rendered::clocks_csv(&result, out),
            View::Delays => rendered::delays_csv(&result, out),
            View::Calls => rendered::calls_csv(&result, out),
            View::OneSided => rendered::one_sided_csv(&result, out),
            View::Unidentified => rendered::unidentified_csv(&result, out),
        },
        Format::Json => rendered::json(&result, out),
    })?;
    output::notes(&result.notes);
    input::notes(&args.inputs, &args.reading, &profile);
    if !agrees(&result) {
        return Ok(ExitCode::from(DIFFERS));
    }
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// Reads a profile, or captures with all messages.
fn read_wire(args: &Crosscheck, with_rdma: bool) -> anyhow::Result<(Profile, Singles)> {
    if args.inputs.iter().any(|path| pipeline::is_profile(path)) {
        return Ok((input::profile(&args.inputs, &args.reading, args.scope, Needs::default())?, Singles::default()));
    }
    input::check_captures("crosscheck", &args.inputs)?;
    let mut options = input::options(&args.inputs, &args.reading)?;
    options.bin_ns = None;
    (options.read_times, options.read_sizes) = (false, false);
    let mut singles = Singles::new(with_rdma);
    let mut stream = input::messages(&args.inputs, &options, args.scope, with_rdma)?;
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
