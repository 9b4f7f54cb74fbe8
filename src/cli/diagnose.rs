//! `ibscope diagnose`: ranked findings with evidence and advice.

use super::common::arguments::SourceArgs;
use super::common::choices::Format;
use super::common::input::{self, AnalysisNeeds};
use super::common::job_choice::JobChoice;
use super::common::output;
use crate::analysis::diagnose::{Diagnosis, diagnose};
use crate::analysis::link_rates::LINK_BIN_NS;
use crate::analysis::waits::WaitAnalysis;
use crate::model::Profile;
use crate::model::link::Speed;
use crate::pipeline;
use crate::render;
use crate::render::text::{self, Style};
use clap::Args;
use ibscope_orchestrator::quote::argv_text;
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope diagnose sink.pcap
  ibscope diagnose node1.pcap node2.pcap --link \"4x EDR\"
  ibscope diagnose job.ibp --format json";

/// Inputs that the evidence repeats; more are left out.
const REPEATED_INPUTS: usize = 4;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct DiagnoseArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Speed of the links, to find saturated links: width and rate (`4x EDR`) or a data rate
    /// (`100Gb/s`)
    #[arg(long, value_name = "SPEED")]
    pub(super) link: Option<Speed>,
}

/// Runs `ibscope diagnose`.
pub(super) fn run(args: &DiagnoseArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let (profile, diagnosis) =
        if pipeline::is_profile(&source.inputs[0]) { of_profile(args)? } else { of_captures(args)? };
    let inputs = repeated(&source.inputs);
    output::results(|out| match source.format {
        Format::Table => out.write_all(render::diagnose::text(&diagnosis, &inputs).as_bytes()),
        Format::Csv => render::diagnose::csv(&diagnosis, &inputs, out),
        Format::Json => render::diagnose::json(&diagnosis, &inputs, out),
    })?;
    output::notes(&render::diagnose::notes(&diagnosis));
    input::notes_beside_coverage(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

fn of_profile(args: &DiagnoseArgs) -> anyhow::Result<(Profile, Diagnosis)> {
    let source = &args.source;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, AnalysisNeeds::default())?;
    let diagnosis = diagnose(&profile, None, args.link.as_ref(), is_selected(args));
    Ok((profile, diagnosis))
}

/// Reads the captures once, for the profile and for single messages.
fn of_captures(args: &DiagnoseArgs) -> anyhow::Result<(Profile, Diagnosis)> {
    let source = &args.source;
    let needs = AnalysisNeeds { health: true, times: true, bin_ns: Some(LINK_BIN_NS), ..AnalysisNeeds::default() };
    let mut stream = input::profile_and_messages(&source.inputs, &source.reading, source.scope, needs)?;
    let mut analysis = WaitAnalysis::default();
    for row in stream.by_ref() {
        analysis.push(&row?);
    }
    let profile = stream.profile().clone();
    let waits = analysis.finish(&profile);
    let diagnosis = diagnose(&profile, Some(&waits), args.link.as_ref(), is_selected(args));
    Ok((profile, diagnosis))
}

const fn is_selected(args: &DiagnoseArgs) -> bool {
    matches!(args.source.scope.job, JobChoice::Only(_))
}

/// The summary of a profile with its first findings; `inputs` are those to give to `diagnose`.
pub(super) fn summary_with_findings(profile: &Profile, style: &Style, inputs: &[PathBuf]) -> String {
    let findings = diagnose(profile, None, None, false);
    text::summary(profile, style) + &render::diagnose::top(&findings, &repeated(inputs))
}

/// The inputs as words of a command line; `...` replaces those beyond the first.
fn repeated(inputs: &[PathBuf]) -> String {
    let words = inputs.iter().take(REPEATED_INPUTS).map(|path| path.to_string_lossy().into_owned());
    let more = (inputs.len() > REPEATED_INPUTS).then(|| "...".to_owned());
    argv_text(&words.chain(more).collect::<Vec<_>>())
}
