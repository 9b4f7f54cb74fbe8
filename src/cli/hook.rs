//! `ibscope hook`: runs as prolog or epilog of Slurm, and installs itself there.

use super::common::output;
use super::undo_report::undone_text;
use clap::{Args, Subcommand};
use ibscope_orchestrator::analysis;
use ibscope_orchestrator::config::{Config, ConfigError};
use ibscope_orchestrator::hook::{self, HookOutcome, HookStage};
use ibscope_orchestrator::install::{FindingLevel, Installation};
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::journal::State;
use ibscope_orchestrator::log::{Level, Log};
use ibscope_orchestrator::status;
use ibscope_orchestrator::sweep::{self, SweepOutcome, SweptRun};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::JoinHandle;
use std::time::Duration;

/// Default path of the configuration.
pub(super) const CONFIG: &str = "/etc/ibscope/capture.toml";

/// Default folder of the journals, as of `run.state_dir`.
const STATE_DIR: &str = "/var/lib/ibscope";

/// Longest time that the worker of a hook stays for merges in the background.
const LONGEST_MERGE: Duration = Duration::from_hours(2);
/// While a sweeper waits for a merge, it looks for runs to undo once in this time.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope hook install
  ibscope hook install --write
  ibscope hook sweep";

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
    /// Undo the captures that no live job owns; for a systemd timer, and after a boot
    ///
    /// Each run is undone with the program and the configuration that its journal records. If a run
    /// cannot be undone, the sweeper retries after 30 s, and then after longer intervals. The exit
    /// code is 1 if a run is not undone.
    #[command(after_long_help = "Examples:
  ibscope hook sweep
  ibscope hook sweep --state-dir /var/lib/ibscope")]
    Sweep(SweepArgs),
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
    /// Folder of the journals, for an epilog that cannot read the configuration
    #[arg(long, value_name = "FOLDER", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// Do the work of the hook (internal: the hook starts itself with this option)
    #[arg(long, hide = true)]
    work: bool,
}

#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// Configuration of the site, for runs whose journal has none
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Folder of the journals, besides `run.state_dir` of the configuration
    #[arg(long, value_name = "FOLDER", default_value = STATE_DIR)]
    state_dir: PathBuf,
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
        HookCommand::Sweep(args) => Ok(run_sweep(args)),
        HookCommand::Install(args) => install(args),
    }
}

/// Runs a hook. An unreadable configuration never keeps a job from running. A failed capture does
/// so only if `run.fail_open` is false.
fn run_hook(stage: HookStage, args: &HookArgs) -> ExitCode {
    let job = SlurmJob::from_own_environment();
    let config = config_of_hook(stage, args, job.as_ref().ok());
    let (file, syslog) = config.as_ref().map_or((None, true), |config| (config.run.log.clone(), config.run.syslog));
    let refused = |text: &str| {
        Log::open(file.as_deref(), syslog, "hook").write(Level::Error, text);
        output::eprint_line(&format!("ibscope: {text}"));
        HookOutcome::Failed
    };
    let fail_open = config.as_ref().map_or(true, |config| config.run.fail_open);
    let outcome = match (config, job) {
        (Ok(config), Ok(job)) if args.work => {
            // No job waits for these two: the worker reports the outcome of its work before.
            let warning = (stage == HookStage::Prolog).then(|| hook::warn_of_other_jobs(&config, &job));
            hook::work(stage, &config, &job);
            drop(warning.and_then(Result::ok).map(JoinHandle::join));
            analysis::wait_for_merges(LONGEST_MERGE);
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

/// The configuration of a hook. If it cannot be read, an epilog uses the one in the run's journal. If
/// `run.state_dir` was changed during the job, an epilog undoes the run in the folder of `--state-dir`.
fn config_of_hook(stage: HookStage, args: &HookArgs, job: Option<&SlurmJob>) -> Result<Config, ConfigError> {
    let job = job.filter(|_| stage == HookStage::Epilog);
    let error = match Config::read_trusted(&args.config) {
        Ok(config) => {
            let job = job.filter(|job| !has_run(&config.run.state_dir, job.id) && has_run(&args.state_dir, job.id));
            return Ok(match job {
                Some(job) => config_for_folder(config, args, job.id),
                None => config,
            });
        }
        Err(error) => error,
    };
    let own = job.and_then(|job| Some((job.id, sweep::config_of_job(&args.state_dir, job.id)?)));
    let Some((id, own)) = own else { return Err(error) };
    if !args.work {
        let log = Log::open(own.run.log.as_deref(), own.run.syslog, &format!("job {id}"));
        log.write(Level::Error, &format!("{error}; the capture is undone with the configuration that began it"));
    }
    Ok(own)
}

/// True if a state folder has a run of the job that is not closed.
fn has_run(folder: &Path, job_id: u32) -> bool {
    // Opening a folder that is missing would create it.
    let journals = || State::open(folder)?.journals();
    folder.exists() && journals().is_ok_and(|stored| stored.iter().any(|stored| stored.job_id == job_id))
}

/// The configuration for a run in the folder of `--state-dir`.
fn config_for_folder(mut config: Config, args: &HookArgs, job_id: u32) -> Config {
    if !args.work {
        let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {job_id}"));
        let text = format!(
            "run.state_dir is {}, but the run of this job is in {} (--state-dir of the hook), and is undone there",
            config.run.state_dir.display(),
            args.state_dir.display()
        );
        log.write(Level::Warning, &text);
    }
    config.run.state_dir.clone_from(&args.state_dir);
    // Retention and metrics need the open runs of the current folder. The hooks of other jobs and the sweeper
    // care for them.
    config.run.metrics = None;
    (config.capture.keep_days, config.capture.disk_limit_bytes) = (None, None);
    (config.collect.keep_days, config.collect.disk_limit_bytes) = (None, None);
    config
}

/// Sweeps the state folders. The exit code shows whether a run is not undone.
fn run_sweep(args: &SweepArgs) -> ExitCode {
    let current = Config::read_trusted(&args.config);
    let mut folders = vec![args.state_dir.clone()];
    folders.extend(current.as_ref().ok().map(|config| config.run.state_dir.clone()));
    folders.dedup();
    let (mut text, mut is_well) = (String::new(), true);
    for folder in &folders {
        match sweep::sweep(folder, current.as_ref().ok(), None, sweep::RESTORE_INTERVAL) {
            Ok(runs) => {
                is_well &= !runs.iter().any(SweptRun::is_left);
                text.extend(runs.iter().map(swept_text));
            }
            Err(error) => {
                is_well = false;
                output::eprint_line(&format!("ibscope: {error}"));
            }
        }
    }
    for what in current.as_ref().ok().map(sweep::retain).unwrap_or_default() {
        is_well = false;
        output::eprint_line(&format!("ibscope: {what}"));
    }
    if let Some(Err(what)) = current.as_ref().ok().map(status::write_metrics) {
        is_well = false;
        output::eprint_line(&format!("ibscope: {what}"));
    }
    // Without runs the configuration is not needed.
    if let Some(error) = current.as_ref().err().filter(|_| !text.is_empty()) {
        output::eprint_line(&format!("ibscope: {error}; runs are undone with their own configurations"));
    }
    if text.is_empty() && is_well {
        text.push_str("nothing to undo\n");
    }
    // Standard output may be closed; the exit code still counts.
    let _ = output::results(|out| out.write_all(text.as_bytes()));
    // The end of this process would end its merges. Meanwhile, other runs may have to be undone.
    while !analysis::wait_for_merges(LOOK_INTERVAL) {
        for folder in &folders {
            // Each run's own log names its faults, and the next sweep reports what is left.
            let _ = sweep::sweep(folder, current.as_ref().ok(), None, sweep::RESTORE_INTERVAL);
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn swept_text(run: &SweptRun) -> String {
    let job = run.job_id;
    match &run.outcome {
        SweepOutcome::Undone(report) => undone_text(report),
        SweepOutcome::InUse => format!("job {job}: running\n"),
        SweepOutcome::Busy => format!("job {job}: another process works on it\n"),
        SweepOutcome::UndoneByOtherVersion { program } => format!("job {job}: undone by {}\n", program.display()),
        SweepOutcome::Waiting { left, next_s } => {
            let mut text = format!("job {job}: NOT everything is undone; next attempt in {next_s} s:\n");
            for what in left {
                _ = writeln!(text, "  - {what}");
            }
            text
        }
        SweepOutcome::Failed { what } => format!("job {job}: NOT undone: {what}\n"),
    }
}

/// A command that starts this program again with `--work`.
fn worker(stage: HookStage, args: &HookArgs) -> std::io::Result<Command> {
    let mut worker = Command::new(std::env::current_exe()?);
    let name = match stage {
        HookStage::Prolog => "prolog",
        HookStage::Epilog => "epilog",
    };
    worker.args(["hook", name, "--work", "--config"]).arg(std::path::absolute(&args.config)?);
    worker.arg("--state-dir").arg(std::path::absolute(&args.state_dir)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The journal of a job in a state folder. Its name is enough.
    fn begin_run(folder: &Path, job_id: u32) {
        drop(State::open(folder).expect("a state folder"));
        fs::write(folder.join(format!("job-{job_id}-1.journal")), "").expect("journal");
    }

    #[test]
    fn an_epilog_finds_its_run_in_the_folder_of_before() {
        let home = tempfile::tempdir().expect("folder");
        let [old, new] = ["old", "new"].map(|name| home.path().join(name));
        let config = home.path().join("capture.toml");
        let log = home.path().join("log");
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n\
             directory = \"/c\"\nkeep_days = 1\n[collect]\ndirectory = \"/r\"\nkeep_days = 2\n\
             [run]\nsyslog = false\nlog = {log:?}\nstate_dir = {new:?}\n"
        );
        fs::write(&config, text).expect("configuration");
        let of = |stage, state_dir: &Path, job_id| {
            let args = HookArgs { config: config.clone(), state_dir: state_dir.to_owned(), work: false };
            let job = SlurmJob::from_nodelist(job_id, "n1").expect("job");
            config_of_hook(stage, &args, Some(&job)).expect("configuration")
        };
        begin_run(&old, 7);
        let found = of(HookStage::Epilog, &old, 7);
        assert_eq!(found.run.state_dir, old);
        // The runs that are open in the current folder are unknown there, so nothing is deleted.
        assert_eq!((found.capture.keep_days, found.collect.keep_days), (None, None));
        let logged = fs::read_to_string(&log).expect("log");
        assert!(logged.contains("job 7: warning: run.state_dir is ") && logged.contains("undone there"), "{logged}");
        // Another job, another hook, and a folder that does not exist.
        for (stage, folder, job_id) in [
            (HookStage::Epilog, old.as_path(), 8),
            (HookStage::Prolog, &old, 7),
            (HookStage::Epilog, &home.path().join("none"), 7),
        ] {
            let found = of(stage, folder, job_id);
            assert_eq!((found.run.state_dir, found.collect.keep_days), (new.clone(), Some(2)));
        }
        assert!(!new.exists() && !home.path().join("none").exists(), "nothing is created");
        // The job has a run in both folders: the sweeper undoes the one of before.
        begin_run(&new, 7);
        assert_eq!(of(HookStage::Epilog, &old, 7).run.state_dir, new);
    }
}
