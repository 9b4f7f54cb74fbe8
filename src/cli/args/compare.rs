//! What can be typed behind `ibscope compare`.

use super::{ByArg, Format, JobChoice, job};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct Compare {
    /// The profile (NAME.ibp) that the other one is held against
    #[arg(value_name = "A.ibp")]
    pub(in crate::cli) a: PathBuf,
    /// The other profile
    #[arg(value_name = "B.ibp")]
    pub(in crate::cli) b: PathBuf,
    /// What pairs are of [default: ranks where both know some, else endpoints]
    #[arg(long, value_enum)]
    pub(in crate::cli) by: Option<ByArg>,
    /// Compare job N of both profiles, or job N of A with job M of B [default: all; several need --by endpoint]
    #[arg(long, value_name = "N[,M]", default_value = "all", hide_default_value = true, value_parser = jobs)]
    pub(in crate::cli) job: [JobChoice; 2],
    /// Leave out inferred ranks: their queue pairs are unassigned
    #[arg(long)]
    pub(in crate::cli) strict: bool,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(in crate::cli) format: Format,
}

/// A job of both, or one of each.
fn jobs(text: &str) -> Result<[JobChoice; 2], String> {
    let (a, b) = text.split_once(',').unwrap_or((text, text));
    match (job(a.trim()), job(b.trim())) {
        (Ok(a), Ok(b)) => Ok([a, b]),
        _ => Err("expected the number of a job, that of one in A and of one in B (1,2), or `all`".to_owned()),
    }
}
