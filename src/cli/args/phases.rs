//! Arguments of `ibscope phases`.

use super::{ByArg, Figures, Source, bin_ns};
use clap::Args;

#[derive(Debug, Args)]
pub(in crate::cli) struct Phases {
    #[command(flatten)]
    pub(in crate::cli) source: Source,
    /// What patterns and matrices are of [default: ranks, or endpoints where most of the traffic has none]
    #[arg(long, value_enum)]
    pub(in crate::cli) by: Option<ByArg>,
    /// Width of the windows that are compared: phases begin at least so far apart [default: a round width that makes at most 64 of them]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(in crate::cli) window: Option<i64>,
    #[command(flatten)]
    pub(in crate::cli) figures: Figures,
}
