//! `ibscope completions` and `ibscope manual`: shell completions and manual pages, generated from
//! the command line in `command`.

use super::common::{files, output};
use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  ibscope completions bash > /etc/bash_completion.d/ibscope
  ibscope completions zsh > ~/.zfunc/_ibscope")]
pub(super) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  ibscope manual ~/.local/share/man/man1
  ibscope manual /usr/local/share/man/man1")]
pub(super) struct ManualArgs {
    /// Folder for the pages, for example ~/.local/share/man/man1; replaces existing pages
    #[arg(value_name = "FOLDER")]
    pub(super) folder: PathBuf,
}

const NAME: &str = env!("CARGO_PKG_NAME");

/// Sections that clap does not know, common to all pages. They match the exit codes in `cli`.
const COMMON: &str = r#".SH "EXIT STATUS"
.TP
0
complete
.TP
1
failed: standard error shows the reason and what to do
.TP
2
the command line is invalid
.TP
3
a result was written, but less than \fB\-\-min\-coverage\fR percent of the records could be decoded
.TP
4
\fBcrosscheck\fR, or \fBreport \-\-trace\fR, found an unexplained difference
.TP
129, 130, 143
ended early by SIGHUP, SIGINT or SIGTERM: the result covers the packets read until then (\fBwatch\fR exits with 0)
.SH ENVIRONMENT
.TP
NO_COLOR
set and not empty: no colors, unless \fB\-\-color always\fR is given
"#;

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs, mut cli: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, NAME, &mut script);
    output::results(|out| out.write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `ibscope.1`, and a page per command, to a folder.
pub(super) fn manual(args: &ManualArgs, mut cli: clap::Command) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&args.folder).map_err(|error| files::write_error(&args.folder, &error))?;
    cli.build();
    let mut pages = 0;
    write(&cli, &args.folder, &mut pages)?;
    output::eprint_line(&format!("{pages} pages written to {}", args.folder.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(command: &clap::Command, folder: &Path, pages: &mut usize) -> anyhow::Result<()> {
    // `build` gives subcommands their full names for usage lines. Names of pages have dashes
    // instead of spaces.
    let name = command.get_bin_name().unwrap_or(NAME).replace(' ', "-");
    let titled = command.clone().display_name(name.clone());
    let man = Man::new(titled)
        .title(name.clone())
        .manual("ibscope")
        .source(format!("{NAME} {}", env!("CARGO_PKG_VERSION")))
        .date("");
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend_from_slice(COMMON.as_bytes());
    let place = folder.join(format!("{name}.1"));
    fs::write(&place, page).map_err(|error| files::write_error(&place, &error))?;
    *pages += 1;
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    commands.into_iter().try_for_each(|command| write(command, folder, pages))
}
