//! What can be typed behind `ibscope compare`.

use super::{ByArg, Format};
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
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(in crate::cli) format: Format,
}
