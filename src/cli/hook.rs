//! `ibscope hook`: what Slurm runs, and how that is installed.

use super::common::output;
use clap::{Args, Subcommand};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::hook::{self, Moment, Outcome};
use ibscope_orchestrator::install::{Installation, Verdict};
use ibscope_orchestrator::job::Job;
use ibscope_orchestrator::log::{Level, Log};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Where the configuration is looked for.
pub(super) const CONFIG: &str = "/etc/ibscope/capture.toml";

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope hook install
  ibscope hook install --write";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(super) enum Hook {
    /// Start the capture of the job that is about to start; for `PrologSlurmctld` or Prolog
    Prolog(OfSlurm),
    /// Stop the capture of the job that has ended; for `EpilogSlurmctld` or Epilog
    Epilog(OfSlurm),
    /// Show the scripts and the lines of slurm.conf for the hooks, and check the installation
    Install(Install),
}

#[derive(Debug, Args)]
pub(super) struct OfSlurm {
    /// Configuration of the site
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Do the work of the hook (internal: the hook starts itself with it)
    #[arg(long, hide = true)]
    work: bool,
}

#[derive(Debug, Args)]
pub(super) struct Install {
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

pub(super) fn run(command: &Hook) -> anyhow::Result<ExitCode> {
    match command {
        Hook::Prolog(args) => Ok(of_slurm(Moment::Prolog, args)),
        Hook::Epilog(args) => Ok(of_slurm(Moment::Epilog, args)),
        Hook::Install(args) => install(args),
    }
}

/// A job is not kept from running because a capture of it cannot be made, nor because the configuration cannot be read.
fn of_slurm(moment: Moment, args: &OfSlurm) -> ExitCode {
    let vars =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let config = Config::read_trusted(&args.config);
    let (file, syslog) = config.as_ref().map_or((None, true), |config| (config.run.log.clone(), config.run.syslog));
    let refused = |text: &str| {
        Log::open(file.as_deref(), syslog, "hook").say(Level::Error, text);
        output::say(&format!("ibscope: {text}"));
        Outcome::Failed
    };
    let fail_open = config.as_ref().map_or(true, |config| config.run.fail_open);
    let outcome = match (config, Job::from_environment(vars)) {
        (Ok(config), Ok(job)) if args.work => {
            hook::work(moment, &config, &job);
            Outcome::Well
        }
        (Ok(config), Ok(job)) => match worker(moment, args) {
            Ok(worker) => hook::run(moment, &config, &job, worker),
            Err(error) => refused(&format!("ibscope does not find itself: {error}")),
        },
        (Err(error), _) => refused(&error.to_string()),
        (_, Err(error)) => refused(&error.to_string()),
    };
    // What an epilog could not undo is no reason to take the node out of service: it stands in the log, and can be undone later.
    let well = outcome == Outcome::Well || fail_open || moment == Moment::Epilog;
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This program again, for the work.
fn worker(moment: Moment, args: &OfSlurm) -> std::io::Result<Command> {
    let mut worker = Command::new(std::env::current_exe()?);
    let name = match moment {
        Moment::Prolog => "prolog",
        Moment::Epilog => "epilog",
    };
    worker.args(["hook", name, "--work", "--config"]).arg(std::path::absolute(&args.config)?);
    Ok(worker)
}

fn install(args: &Install) -> anyhow::Result<ExitCode> {
    let config = Config::read(&args.config)?;
    let program = std::env::current_exe()?;
    let inspect = || Installation::inspect(&args.config, &config, &args.slurm_conf, &program, &args.scripts);
    let mut installation = inspect()?;
    if args.write {
        installation.write()?;
        installation = inspect()?;
    }
    output::results(|out| out.write_all(text(&installation).as_bytes()))?;
    Ok(if installation.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
            Verdict::Fine => "fine",
            Verdict::ToDo => "to do",
            Verdict::Wrong => "WRONG",
        };
        _ = writeln!(text, "{verdict:<6} {}", finding.text);
    }
    text
}
