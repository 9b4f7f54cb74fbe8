//! `ibscope merge`.

use super::{Color, percent, threads};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct Merge {
    /// Profiles that `analyze --partial` or `merge` wrote
    #[arg(required = true, value_name = "PROFILE")]
    pub(in crate::cli) profiles: Vec<PathBuf>,
    /// Write the profile of all to this folder, usually NAME.ibp; a profile that is there is replaced
    #[arg(short, long, value_name = "PROFILE")]
    pub(in crate::cli) output: PathBuf,
    /// Where clocks differ: write them to this file, for `analyze --clocks`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) clocks: Option<PathBuf>,
    /// Names of endpoints, beside those that the profiles have: csv `endpoint,name`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) hosts: Option<PathBuf>,
    /// Ranks of endpoints, instead of those learnt from the traffic: csv `rank,endpoint[,qpn]`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) rankmap: Option<PathBuf>,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(in crate::cli) threads: usize,
    /// Exit with code 3 if less than this percentage of the records could be decoded
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(in crate::cli) min_coverage: f64,
    /// When to colour the summary
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(in crate::cli) color: Color,
}

impl Merge {
    /// What a job merges.
    pub(in crate::cli) const fn of(profiles: Vec<PathBuf>, output: PathBuf, clocks: PathBuf) -> Self {
        let (hosts, rankmap, threads, min_coverage) = (None, None, 0, 0.0);
        Self { profiles, output, clocks: Some(clocks), hosts, rankmap, threads, min_coverage, color: Color::Never }
    }
}
