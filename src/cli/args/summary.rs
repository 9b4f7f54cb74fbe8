//! What can be typed behind `ibscope summary`.

use super::{Color, Source};
use clap::Args;

#[derive(Debug, Args)]
pub(in crate::cli) struct Summary {
    #[command(flatten)]
    pub(in crate::cli) source: Source,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(in crate::cli) color: Color,
}
