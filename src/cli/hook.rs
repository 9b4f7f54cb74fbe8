//! `ibscope hook`: runs as prolog or epilog of Slurm, and installs itself there.

use super::common::output;
use clap::{Args, Subcommand};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::hook::{self, HookOutcome, HookStage};
use ibscope_orchestrator::install::{FindingLevel, Installation};
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::log::{Level, Log};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Default path of the configuration.
pub(super) const CONFIG: &str = "/etc/ibscope/capture.toml";

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope hook install
  ibscope hook install --write";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(super) enum HookCommand {
    /// Start the capture of the job that is about to start; for `PrologSlurmctld` or `Prolog`
    #[command(after_long_help = "Examples:
  ibscope hook prolog
  ibscope hook prolog --config /etc/ibscope/test.toml")]
    Prolog(HookArgs),
    /// Stop the capture of the job that has ended; for `EpilogSlurmctld` or `Epilog`
    #[command(after_long_help = "Examples:
  ibscope hook epilog
  ibscope hook epilog --config /etc/ibscope/test.toml")]
    Epilog(HookArgs),
    /// Show the scripts and the lines of slurm.conf for the hooks, and check the installation
    #[command(after_long_help = "Examples:
  ibscope hook install
  ibscope hook install --write
  ibscope hook install --slurm-conf /etc/slurm-llnl/slurm.conf")]
    Install(InstallArgs),
}

#[derive(Debug, Args)]
pub(super) struct HookArgs {
    /// Configuration of the site
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Do the work of the hook (internal: the hook starts itself with this option)
    #[arg(long, hide = true)]
    work: bool,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Configuration of the site
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Configuration of Slurm
    #[arg(long, value_name = "FILE", default_value = "/etc/slurm/slurm.conf")]
    slurm_conf: PathBuf,
    /// Folder of the two scripts that Slurm runs
    #[arg(long, value_name = "FOLDER", default_value = "/etc/ibscope")]
    scripts: PathBuf,
    /// Write the two scripts; do not change slurm.conf
    #[arg(long)]
    write: bool,
}

pub(super) fn run(command: &HookCommand) -> anyhow::Result<ExitCode> {
    match command {
        HookCommand::Prolog(args) => Ok(run_hook(HookStage::Prolog, args)),
        HookCommand::Epilog(args) => Ok(run_hook(HookStage::Epilog, args)),
        HookCommand::Install(args) => install(args),
    }
}

/// Runs a hook. An unreadable configuration never keeps a job from running. A failed capture does
/// so only if `run.fail_open` is false.
fn run_hook(stage: HookStage, args: &HookArgs) -> ExitCode {
    let vars =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let config = Config::read_trusted(&args.config);
    let (file, syslog) = config.as_ref().map_or((None, true), |config| (config.run.log.clone(), config.run.syslog));
    let refused = |text: &str| {
        Log::open(file.as_deref(), syslog, "hook").write(Level::Error, text);
        output::eprint_line(&format!("ibscope: {text}"));
        HookOutcome::Failed
    };
    let fail_open = config.as_ref().map_or(true, |config| config.run.fail_open);
    let outcome = match (config, SlurmJob::from_environment(vars)) {
        (Ok(config), Ok(job)) if args.work => {
            hook::work(stage, &config, &job);
            HookOutcome::Succeeded
        }
        (Ok(config), Ok(job)) => match worker(stage, args) {
            Ok(worker) => hook::run(stage, &config, &job, worker),
            Err(error) => refused(&format!("the path of the ibscope program is unknown: {error}")),
        },
        (Err(error), _) => refused(&error.to_string()),
        (_, Err(error)) => refused(&error.to_string()),
    };
    // A failed epilog must not drain the node: the log lists the remaining work, which a later undo
    // can do.
    let is_success = outcome == HookOutcome::Succeeded || fail_open || stage == HookStage::Epilog;
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A command that starts this program again with `--work`.
fn worker(stage: HookStage, args: &HookArgs) -> std::io::Result<Command> {
    let mut worker = Command::new(std::env::current_exe()?);
    let name = match stage {
        HookStage::Prolog => "prolog",
        HookStage::Epilog => "epilog",
    };
    worker.args(["hook", name, "--work", "--config"]).arg(std::path::absolute(&args.config)?);
    Ok(worker)
}

fn install(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let config = Config::read(&args.config)?;
    let program = std::env::current_exe()?;
    let inspect = || Installation::inspect(&args.config, &config, &args.slurm_conf, &program, &args.scripts);
    let mut installation = inspect()?;
    if args.write {
        installation.write()?;
        installation = inspect()?;
    }
    output::results(|out| out.write_all(text(&installation).as_bytes()))?;
    Ok(if installation.has_no_fault() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(installation: &Installation) -> String {
    let mut text = String::from("For slurm.conf:\n\n");
    for line in &installation.lines {
        _ = writeln!(text, "    {line}");
    }
    for script in &installation.scripts {
        _ = write!(text, "\n{}:\n\n", script.path.display());
        for line in script.text.lines() {
            _ = writeln!(text, "    {line}");
        }
    }
    text.push('\n');
    for finding in &installation.findings {
        let verdict = match finding.verdict {
            FindingLevel::Fine => "fine",
            FindingLevel::ToDo => "to do",
            FindingLevel::Wrong => "WRONG",
        };
        _ = writeln!(text, "{verdict:<6} {}", finding.text);
    }
    text
}
