//! `ibscope crosscheck`: a profile or captures, and a trace -> their differences.

use super::common::arguments::{FigureArgs, InputArgs, ScopeArgs};
use super::common::choices::Format;
use super::common::files::{self, FigureFiles};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use super::common::parse::percent;
use super::common::repeated;
use super::common::usage::UsageError;
use crate::analysis::crosscheck::agrees;
use crate::analysis::instances::InstanceCollector;
use crate::crosscheck::cubex::{self, CubeProfile};
use crate::crosscheck::{self, AppTrace, Placement, SingleMessages};
use crate::model::Profile;
use crate::pipeline;
use crate::render::collective_instances as rendered_instances;
use crate::render::crosscheck as rendered;
use crate::render::figure;
use clap::{Args, ValueEnum};
use ibscope_orchestrator::quote::argv_text;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope crosscheck job.ibp scorep-run/traces.otf2
  ibscope crosscheck sink.pcap scorep-run/profile.cubex --format csv";

/// Arguments of `ibscope crosscheck`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct CrosscheckArgs {
    /// One profile (NAME.ibp), or captures and folders with captures
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Trace of the application: OTF2 archive (traces.otf2), Score-P profile (profile.cubex), or
    /// table `src,dst,messages,bytes`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: InputArgs,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    against: TraceComparisonArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Table to print as csv; json has all tables
    #[arg(long, value_enum, default_value_t = CrosscheckView::Pairs)]
    view: CrosscheckView,
    #[command(flatten)]
    figures: FigureArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CrosscheckView {
    /// Pairs of ranks, and collective operations between them
    Pairs,
    /// Unexplained differences, by tag
    Differences,
    /// Clocks of the ranks, compared with the clock of the capture
    Clocks,
    /// Times from the send call to the wire, as a histogram
    Delays,
    /// Calls of collective operations
    Calls,
    /// Single collective operations (captures only)
    Instances,
    /// One-sided operations
    OneSided,
    /// Messages on the wire from or to queue pairs whose rank is not identified
    Unidentified,
}

/// Options for the comparison of a trace with the wire.
#[derive(Debug, Args)]
pub(super) struct TraceComparisonArgs {
    /// Placement of the ranks: output of `mpirun --display-map`, a table `rank,host`, or a hostfile
    /// whose slots are filled in order [default: from the trace, or from the capture if the trace
    /// has none]
    #[arg(long, value_name = "FILE", requires = "trace")]
    placement: Option<PathBuf>,
    /// Accept differences of up to PERCENT of each pair's messages and bytes in the trace; with a
    /// Score-P profile (`crosscheck` only), of each rank's bytes per direction
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent, requires = "trace")]
    tolerance: f64,
    /// Compare collective operations only, for traces without point-to-point messages
    #[arg(long, requires = "trace")]
    collectives_only: bool,
}

/// A trace, where its ranks run, and how to compare it.
pub(super) struct CrosscheckRequest {
    input: TraceInput,
    placement: Option<Placement>,
    options: crosscheck::CrosscheckOptions,
}

impl TraceComparisonArgs {
    /// The placement file, which is read in addition to the trace.
    pub(super) fn files(&self) -> Option<&Path> {
        self.placement.as_deref()
    }

    /// The options as words of a command line.
    pub(super) fn words(&self) -> String {
        let Self { placement, tolerance, collectives_only } = self;
        let placement = placement.iter().flat_map(|file| ["--placement".to_owned(), repeated::path(file)]);
        let tolerance = (*tolerance > 0.0).then(|| ["--tolerance".to_owned(), tolerance.to_string()]);
        let only = collectives_only.then(|| "--collectives-only".to_owned());
        argv_text(&placement.chain(tolerance.into_iter().flatten()).chain(only).collect::<Vec<_>>())
    }

    /// Reads the trace and the placement of its ranks.
    pub(super) fn read(&self, trace: &Path) -> anyhow::Result<CrosscheckRequest> {
        let given = TraceInput::read(trace)?;
        let placement = self.placement.as_deref().map(|path| {
            let text = files::read(path)?;
            anyhow::Ok(Placement::parse(path, &text, &given.trace().all_ranks())?)
        });
        let options = crosscheck::CrosscheckOptions {
            tolerance_percent: self.tolerance,
            collectives_only: self.collectives_only,
        };
        Ok(CrosscheckRequest { placement: placement.transpose()?, input: given, options })
    }
}

impl CrosscheckRequest {
    /// True if the trace has pairs of ranks; false if it has sums by rank only.
    pub(super) const fn has_pairs(&self) -> bool {
        matches!(self.input, TraceInput::Trace(_))
    }

    fn has_one_sided(&self) -> bool {
        !self.input.trace().rma.is_empty()
    }

    /// Compares the trace with the wire.
    pub(super) fn check(&self, profile: &Profile, singles: &SingleMessages) -> anyhow::Result<crosscheck::Crosscheck> {
        let placement = self.placement.as_ref();
        Ok(match &self.input {
            TraceInput::Trace(trace) => crosscheck::crosscheck(trace, profile, singles, placement, &self.options)?,
            TraceInput::Sums(sums) => crosscheck::crosscheck_sums(sums, profile, placement, &self.options)?,
        })
    }
}

/// Exit code for a difference without an explanation.
pub(super) const EXIT_DIFFERENT: u8 = 4;

/// Runs `ibscope crosscheck`: compares the wire with a trace.
pub(super) fn run(args: &CrosscheckArgs) -> anyhow::Result<ExitCode> {
    input::check(&args.inputs)?;
    input::check_no_window(&args.inputs, &args.reading, "messages by communicator and tag")?;
    let mut files = input::files(&args.inputs, &args.reading);
    files.extend(args.against.files().into_iter().chain([args.trace.as_path()]));
    let figures = FigureFiles::open(&args.figures, &files)?;
    // The trace is read first, because most unreadable traces fail quickly.
    let request = args.against.read(&args.trace)?;
    if !request.has_pairs() && args.figures.are_wanted() {
        return Err(UsageError(
            "--svg, --png and --pdf draw pairs of ranks, but a Score-P profile has sums by rank only; give the OTF2 trace",
        )
        .into());
    }
    let (profile, singles) = read_wire(args, request.has_one_sided())?;
    let result = request.check(&profile, &singles)?;
    // Figures come before the text, so that a closed standard output does not prevent them.
    figures.finish(|| Ok(figure::crosscheck(&result)?))?;
    output::results(|out| match args.format {
        Format::Table => out.write_all(rendered::table(&result).as_bytes()),
        Format::Csv => match args.view {
            CrosscheckView::Pairs => rendered::csv(&result, out),
            CrosscheckView::Differences => rendered::differences_csv(&result, out),
            CrosscheckView::Clocks => rendered::clocks_csv(&result, out),
            CrosscheckView::Delays => rendered::delays_csv(&result, out),
            CrosscheckView::Calls => rendered::calls_csv(&result, out),
            CrosscheckView::Instances => rendered::operations_csv(&result, out),
            CrosscheckView::OneSided => rendered::one_sided_csv(&result, out),
            CrosscheckView::Unidentified => rendered::unidentified_csv(&result, out),
        },
        Format::Json => rendered::json(&result, out),
    })?;
    output::notes(&result.notes);
    if args.view == CrosscheckView::Instances && result.operations.is_none() {
        output::eprint_line(
            "note: single collective operations are not compared; give the captures, unsampled and complete",
        );
    }
    input::notes_beside_coverage(&args.inputs, &args.reading, &profile);
    if !agrees(&result) {
        return Ok(ExitCode::from(EXIT_DIFFERENT));
    }
    Ok(input::exit_code(&args.reading, &profile.coverage))
}

/// Reads a profile, or captures with all their messages.
fn read_wire(args: &CrosscheckArgs, with_rdma: bool) -> anyhow::Result<(Profile, SingleMessages)> {
    if args.inputs.iter().any(|path| pipeline::is_profile(path)) {
        return Ok((
            input::profile(&args.inputs, &args.reading, args.scope, AnalysisNeeds::default())?,
            SingleMessages::default(),
        ));
    }
    input::check_captures("crosscheck", &args.inputs)?;
    let mut options = input::options(&args.inputs, &args.reading)?;
    options.bin_ns = None;
    (options.measures.times, options.measures.sizes) = (false, false);
    let mut singles = SingleMessages::new(with_rdma);
    let mut collector = InstanceCollector::default();
    let mut stream = input::messages(&args.inputs, &options, args.scope, with_rdma)?;
    let profile = stream.profile().clone();
    for row in stream.by_ref() {
        let row = row?;
        singles.add(&row);
        collector.add(&profile, &row);
    }
    let found = collector.finish(&profile);
    output::notes(&rendered_instances::notes(&found));
    let singles = singles.sorted();
    Ok(match found.wire_operations() {
        Some(operations) => (profile, singles.with_operations(operations)),
        None => (profile, singles),
    })
}

/// The trace to compare with the wire.
enum TraceInput {
    Trace(Box<AppTrace>),
    Sums(Box<CubeProfile>),
}

impl TraceInput {
    /// Reads a table, a Score-P profile or an OTF2 archive.
    fn read(path: &Path) -> anyhow::Result<Self> {
        if files::starts_with(path, crosscheck::table::is_table) {
            return Ok(Self::Trace(Box::new(crosscheck::table::read(path, &files::read(path)?)?)));
        }
        if files::starts_with(path, cubex::is_archive) {
            return Ok(Self::Sums(Box::new(cubex::read(path)?)));
        }
        Ok(Self::Trace(Box::new(crosscheck::otf2::read(path)?)))
    }

    fn trace(&self) -> &AppTrace {
        match self {
            Self::Trace(trace) => trace,
            Self::Sums(sums) => &sums.trace,
        }
    }
}
