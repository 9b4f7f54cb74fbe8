//! What can be typed behind `ibscope completions` and `ibscope manual`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct Completions {
    /// The shell that is to complete
    #[arg(value_enum)]
    pub(in crate::cli) shell: Shell,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Manual {
    /// Folder for the pages, for example ~/.local/share/man/man1; pages that are there are replaced
    #[arg(value_name = "FOLDER")]
    pub(in crate::cli) folder: PathBuf,
}
