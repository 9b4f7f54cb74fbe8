//! Parses the options of `analyze` that every task gets.

use crate::cli::analyze::AnalyzeArgs;
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;

/// The options of `analyze` that follow `--`.
#[derive(Debug, Parser)]
#[command(name = "analyze")]
struct AnalyzeOptions {
    #[command(flatten)]
    analyze: AnalyzeArgs,
}

/// The arguments of the analysis of one capture.
pub(super) fn parse_options(capture: &Path, place: &Path, options: &[String]) -> Result<AnalyzeArgs, clap::Error> {
    let fixed = ["analyze".into(), capture.into(), OsString::from("-o"), place.into(), "--partial".into()];
    AnalyzeOptions::try_parse_from(fixed.into_iter().chain(options.iter().map(OsString::from)))
        .map(|typed| typed.analyze)
}
