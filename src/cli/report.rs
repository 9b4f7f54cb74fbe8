//! `ibscope report`.

use super::common::arguments::{Reading, Scope};
use super::common::files::Output;
use super::common::input::{self, Needs};
use super::common::output;
use super::compare;
use super::crosscheck::{Against, DIFFERS};
use crate::analysis::crosscheck::agrees;
use crate::crosscheck::Singles;
use crate::pipeline;
use crate::render::html::{Compared, Page};
use anyhow::bail;
use clap::Args;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope report job.ibp -o report.html
  ibscope report before.ibp --compare after.ibp -o report.html";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Report {
    /// One profile (NAME.ibp) or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    scope: Scope,
    /// Write the page to FILE
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Add a comparison with the profile of another run
    #[arg(long, value_name = "OTHER.ibp")]
    compare: Option<PathBuf>,
    /// Add the cross-check with a trace: OTF2 archive (traces.otf2) or table `src,dst,messages,bytes`
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    against: Against,
}

/// Writes all of a profile as one HTML file.
pub(super) fn run(args: &Report) -> anyhow::Result<ExitCode> {
    let Report { inputs, reading, scope, output, compare, trace, against } = args;
    input::check(inputs)?;
    input::whole(inputs, reading, "health, sizes and latencies")?;
    let mut files = input::files(inputs, reading);
    files.extend(compare.iter().chain(trace).map(PathBuf::as_path).chain(against.files()));
    let page = Output::open(Some(output), &files)?;
    // What is read soon goes first: whether it can be.
    let other = compare.as_deref().map(compare::load).transpose()?;
    let asked = trace.as_deref().map(|trace| against.read(trace)).transpose()?;
    if let (Some(trace), Some(asked)) = (trace, &asked)
        && !asked.has_pairs()
    {
        bail!(
            "{}: a profile of Score-P has sums by rank alone; give the trace, or use `ibscope crosscheck`",
            trace.display()
        );
    }
    let needs = Needs {
        no_mpi: false,
        bin_ns: Some(pipeline::DEFAULT_BIN_NS),
        health: true,
        times: true,
        sizes: true,
        digests: true,
    };
    let profile = input::profile(inputs, reading, *scope, needs)?;
    if let Some(other) = &other {
        input::one_job(&profile, "each side of a comparison")?;
        input::one_job(other, "the other side of a comparison")?;
    }
    let name = file_name(&inputs[0]);
    let compared = other
        .as_ref()
        .map(|other| Compared::new([&profile, other], names(&inputs[0], compare.as_deref())))
        .transpose()?;
    let crosscheck = asked.map(|asked| asked.check(&profile, &Singles::default())).transpose()?;
    if let Some(page) = page {
        let mut text = Vec::new();
        let shown = Page { compared: compared.as_ref(), crosscheck: crosscheck.as_ref(), ..Page::of(&profile, &name) };
        shown.write(&mut text)?;
        page.finish(&text)?;
    }
    output::say(&format!("report written to {}; any browser opens it", output.display()));
    input::rankmap_notes(reading, &profile);
    if crosscheck.is_some_and(|crosscheck| !agrees(&crosscheck)) {
        output::say("note: the wire and the trace differ; the page says where");
        return Ok(ExitCode::from(DIFFERS));
    }
    Ok(input::exit_code(reading, &profile.coverage))
}

/// What two runs are called: by their files, or, where these have one name, by their paths.
fn names(a: &Path, b: Option<&Path>) -> [String; 2] {
    let both = [a, b.unwrap_or(a)];
    let names = both.map(|path| file_name(path).into_owned());
    if names[0] == names[1] { both.map(|path| path.display().to_string()) } else { names }
}

/// The last part of a path, as people read it.
fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}
