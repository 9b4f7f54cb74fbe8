//! Arguments of `ibscope phases`.

use super::{ByArg, Figures, Source, bin_ns};
use clap::{Args, ValueEnum};

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
    /// What csv holds; json holds everything
    #[arg(long, value_enum, default_value_t = PhasesView::Phases)]
    pub(in crate::cli) view: PhasesView,
    #[command(flatten)]
    pub(in crate::cli) figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum PhasesView {
    /// A row for each phase
    Phases,
    /// The matrix of each phase
    Matrices,
    /// The collective operations that were seen in each phase
    Collectives,
}
