//! Options of `analyze` that every task is given.

use crate::cli::analyze::Analyze;
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;

/// The options of `analyze` as they are typed.
#[derive(Debug, Parser)]
#[command(name = "analyze")]
struct Typed {
    #[command(flatten)]
    analyze: Analyze,
}

/// The arguments of the analysis of one part.
pub(super) fn typed(capture: &Path, place: &Path, options: &[String]) -> Result<Analyze, clap::Error> {
    let fixed = ["analyze".into(), capture.into(), OsString::from("-o"), place.into(), "--partial".into()];
    Typed::try_parse_from(fixed.into_iter().chain(options.iter().map(OsString::from))).map(|typed| typed.analyze)
}
