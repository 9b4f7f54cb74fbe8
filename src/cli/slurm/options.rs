//! Parses the options of `analyze` that every task gets.

use crate::cli::analyze::AnalyzeArgs;
use clap::Parser;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The options of `analyze` that follow `--`.
#[derive(Debug, Parser)]
#[command(name = "analyze")]
struct AnalyzeOptions {
    #[command(flatten)]
    analyze: AnalyzeArgs,
}

/// The arguments of the analysis of the files of one capture.
pub(super) fn parse_options(files: &[PathBuf], place: &Path, options: &[String]) -> Result<AnalyzeArgs, clap::Error> {
    let fixed = ["-o".into(), place.into(), OsString::from("--partial")];
    let words = ["analyze".into()].into_iter().chain(files.iter().map(OsString::from)).chain(fixed);
    AnalyzeOptions::try_parse_from(words.chain(options.iter().map(OsString::from))).map(|typed| typed.analyze)
}
