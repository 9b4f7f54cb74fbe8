//! `ibscope report`: a profile -> one HTML page.

use super::common::arguments::{InputArgs, ScopeArgs};
use super::common::files::OutputFile;
use super::common::input::{self, AnalysisNeeds};
use super::common::job_choice::JobChoice;
use super::common::output;
use super::common::repeated;
use super::compare;
use super::crosscheck::{EXIT_DIFFERENT, TraceComparisonArgs};
use crate::analysis::crosscheck::agrees;
use crate::analysis::diagnose::diagnose;
use crate::analysis::instances::{InstanceCollector, InstanceList};
use crate::analysis::waits::{JobWaits, WaitAnalysis};
use crate::crosscheck::SingleMessages;
use crate::model::Profile;
use crate::pipeline;
use crate::render::html::{Page, ReportComparison, ReportSource};
use anyhow::bail;
use clap::Args;
use ibscope_orchestrator::quote::argv_text;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope report job.ibp -o report.html
  ibscope report before.ibp --compare after.ibp -o report.html";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct ReportArgs {
    /// One profile (NAME.ibp), or captures and folders with captures: pcap or pcapng, plain, gzip
    /// or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    reading: InputArgs,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Write the page to FILE
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Add a comparison with the profile of another run
    #[arg(long, value_name = "OTHER.ibp")]
    compare: Option<PathBuf>,
    /// Add the cross-check with a trace: OTF2 archive (traces.otf2) or table
    /// `src,dst,messages,bytes`
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    against: TraceComparisonArgs,
}

/// Runs `ibscope report`.
pub(super) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let ReportArgs { inputs, reading, output, compare, trace, against, .. } = args;
    input::check(inputs)?;
    input::check_no_window(inputs, reading, "health, sizes and latencies")?;
    let mut files = input::files(inputs, reading);
    files.extend(compare.iter().chain(trace).map(PathBuf::as_path).chain(against.files()));
    let page = OutputFile::open(Some(output), &files)?;
    // The smaller files are read first, so that unreadable ones fail early.
    let other = compare.as_deref().map(compare::load).transpose()?;
    let request = trace.as_deref().map(|trace| against.read(trace)).transpose()?;
    if let (Some(trace), Some(request)) = (trace, &request)
        && !request.has_pairs()
    {
        bail!(
            "{}: a Score-P profile has sums by rank only; give the OTF2 trace, or use `ibscope crosscheck`",
            trace.display()
        );
    }
    let needs = AnalysisNeeds {
        no_mpi: false,
        bin_ns: Some(pipeline::DEFAULT_BIN_NS),
        health: true,
        times: true,
        sizes: true,
        digests: true,
    };
    let ReportData { profile, instances, waits } = read(args, needs)?;
    if let Some(other) = &other {
        input::one_job(&profile, "each side of a comparison")?;
        input::one_job(other, "the other side of a comparison")?;
    }
    let name = file_name(&inputs[0]);
    let compared = other
        .as_ref()
        .map(|other| ReportComparison::new([&profile, other], names(&inputs[0], compare.as_deref())))
        .transpose()?;
    let crosscheck = request.map(|request| request.check(&profile, &SingleMessages::default())).transpose()?;
    if let Some(page) = page {
        let diagnosis = diagnose(&profile, waits.as_deref(), None, matches!(args.scope.job, JobChoice::Only(_)));
        let mut text = Vec::new();
        let source = ReportSource {
            compared: compare.as_deref().map(|other| argv_text(&[repeated::path(other)])),
            trace: trace.as_deref().map(|trace| [argv_text(&[repeated::path(trace)]), against.words()]),
            ..repeated::source(inputs, reading, args.scope)
        };
        let shown = Page {
            source: &source,
            comparison: compared.as_ref(),
            crosscheck: crosscheck.as_ref(),
            instances: instances.as_ref(),
            diagnosis: Some(&diagnosis),
            ..Page::of(&profile, &name)
        };
        shown.write(&mut text)?;
        page.finish(&text)?;
    }
    output::eprint_line(&format!("report written to {}; any browser opens it", output.display()));
    input::table_notes(reading, &profile);
    if crosscheck.is_some_and(|crosscheck| !agrees(&crosscheck)) {
        output::eprint_line("note: the wire and the trace differ; the page shows where");
        return Ok(ExitCode::from(EXIT_DIFFERENT));
    }
    Ok(input::exit_code(reading, &profile.coverage))
}

/// Most collective messages that the page divides into operations; it shows the first operations.
const MAX_MESSAGES: usize = 1 << 20;

/// A profile; if captures were read, also single collective operations and the waits of the jobs.
struct ReportData {
    profile: Profile,
    instances: Option<InstanceList>,
    waits: Option<Vec<JobWaits>>,
}

/// Reads a profile, or analyzes captures.
fn read(args: &ReportArgs, needs: AnalysisNeeds) -> anyhow::Result<ReportData> {
    let ReportArgs { inputs, reading, scope, .. } = args;
    if inputs.iter().any(|place| pipeline::is_profile(place)) {
        let profile = input::profile(inputs, reading, *scope, needs)?;
        return Ok(ReportData { profile, instances: None, waits: None });
    }
    input::check_captures("report", inputs)?;
    let mut stream = input::profile_and_messages(inputs, reading, *scope, needs)?;
    let profile = stream.profile().clone();
    let mut collector = InstanceCollector::with_limit(MAX_MESSAGES);
    let mut analysis = WaitAnalysis::default();
    for row in stream.by_ref() {
        let row = row?;
        collector.add(&profile, &row);
        analysis.push(&row);
    }
    let instances = collector.finish(&profile);
    let waits = analysis.finish(&profile);
    Ok(ReportData { profile, instances: Some(instances), waits: Some(waits) })
}

/// Names of two runs: the file names, or the paths if both files have the same name.
fn names(a: &Path, b: Option<&Path>) -> [String; 2] {
    let both = [a, b.unwrap_or(a)];
    let names = both.map(|path| file_name(path).into_owned());
    if names[0] == names[1] { both.map(|path| path.display().to_string()) } else { names }
}

/// The last part of a path, for display.
fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}
