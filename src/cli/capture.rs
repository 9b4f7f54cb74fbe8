//! `ibscope capture`: starts and stops captures by hand, as the hooks do for each job, and shows
//! their state.

use super::common::output;
use super::common::usage::UsageError;
use super::undo_report::undone_text;
use crate::model::count_either;
use clap::{Args, Subcommand, ValueEnum};
use ibscope_orchestrator::analysis::start_analysis;
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::job::{MAX_NODES, SlurmJob};
use ibscope_orchestrator::remote::{SshRunner, helper};
use ibscope_orchestrator::selftest::{self, CheckResult};
use ibscope_orchestrator::session;
use ibscope_orchestrator::status::{self, RunStatus};
use ibscope_orchestrator::undo::{self, UndoReport};
use ibscope_parsers::tools::hostlist;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope capture selftest
  ibscope capture plan --job 4711 --nodelist n[001-004]
  ibscope capture undo --all-stale";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(super) enum CaptureCommand {
    /// Show the plan for a job; change nothing
    #[command(after_long_help = "Examples:
  ibscope capture plan --job 4711 --nodelist n[001-004]
  ibscope capture plan --job 4711 --nodelist n[001-004] --format json")]
    Plan(JobArgs),
    /// Start the capture of a job
    #[command(after_long_help = "Examples:
  ibscope capture start
  ibscope capture start --job 4711 --nodelist n[001-004]")]
    Start(JobArgs),
    /// Stop the capture of a job: undo mirroring, stop and fetch the captures, write the manifest
    #[command(after_long_help = "Examples:
  ibscope capture stop --job 4711
  ibscope capture stop --job 4711 --config test.toml")]
    Stop(StopArgs),
    /// Show the capture runs of a job whose changes are not yet undone
    ///
    /// The exit code is 1 if a run should be undone but is not.
    #[command(after_long_help = "Examples:
  ibscope capture status --job 4711
  ibscope capture status --job 4711 --format json")]
    Status(StatusArgs),
    /// Show all capture runs whose changes are not yet undone
    ///
    /// The exit code is 1 if a run should be undone but is not.
    #[command(after_long_help = "Examples:
  ibscope capture list
  ibscope capture list --format json")]
    List(ListArgs),
    /// Undo the changes for a job, or for all stale runs
    #[command(after_long_help = "Examples:
  ibscope capture undo --job 4711
  ibscope capture undo --all-stale")]
    Undo(UndoArgs),
    /// Run a capture program and analyze its packets while they arrive (internal: for profile-only
    /// captures)
    #[command(hide = true)]
    Relay(super::relay::RelayArgs),
    /// Do one of the fixed actions on a sink that need root (internal: called with sudo)
    #[command(hide = true)]
    Helper(HelperArgs),
    /// Check everything that a capture needs: configuration, ssh, programs, folders, fabric
    #[command(after_long_help = "Examples:
  ibscope capture selftest
  ibscope capture selftest --nodelist n[001-004]")]
    Selftest(SelftestArgs),
}

/// Path of the configuration, and format of the result.
#[derive(Debug, Args)]
pub(super) struct SiteArgs {
    /// Configuration of the site
    #[arg(long, value_name = "FILE", default_value = super::hook::CONFIG)]
    config: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = CaptureFormat::Table)]
    format: CaptureFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CaptureFormat {
    /// Human-readable text
    Table,
    /// JSON
    Json,
}

#[derive(Debug, Args)]
pub(super) struct JobArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Slurm job id [default: the job in which the command runs]
    #[arg(long, value_name = "ID", requires = "nodelist", value_parser = clap::value_parser!(u32).range(1..))]
    job: Option<u32>,
    /// Nodes of the job in Slurm's notation, for example n[001-004]
    #[arg(long, value_name = "LIST", requires = "job", allow_hyphen_values = true)]
    nodelist: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct StopArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Slurm job id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    job: u32,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Slurm job id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    job: u32,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    site: SiteArgs,
}

#[derive(Debug, Args)]
pub(super) struct UndoArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Slurm job id
    #[arg(long, value_name = "ID", required_unless_present = "all_stale", conflicts_with = "all_stale", value_parser = clap::value_parser!(u32).range(1..))]
    job: Option<u32>,
    /// Undo all stale runs: runs that no process works on, and whose job has ended or whose start or
    /// stop was interrupted
    #[arg(long)]
    all_stale: bool,
}

#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Check these nodes too, in Slurm's notation [default: only the sinks of the configuration]
    #[arg(long, value_name = "LIST")]
    nodelist: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct HelperArgs {
    /// The action and its arguments
    #[arg(value_name = "REQUEST", allow_hyphen_values = true)]
    request: String,
}

pub(super) fn run(command: &CaptureCommand) -> anyhow::Result<ExitCode> {
    match command {
        CaptureCommand::Plan(args) => plan(args),
        CaptureCommand::Start(args) => start(args),
        CaptureCommand::Stop(args) => stop(&args.site, args.job),
        CaptureCommand::Status(args) => list(&args.site, Some(args.job)),
        CaptureCommand::List(args) => list(&args.site, None),
        CaptureCommand::Undo(args) => match args.job {
            Some(job) => stop(&args.site, job),
            None => stale(&args.site),
        },
        CaptureCommand::Relay(args) => super::relay::run(args),
        CaptureCommand::Helper(args) => {
            let answer = helper::run(&args.request, Path::new(helper::RULES))?;
            output::results(|out| out.write_all(answer.as_bytes()))?;
            Ok(ExitCode::SUCCESS)
        }
        CaptureCommand::Selftest(args) => selftest(args),
    }
}

/// Prints a result in the format of `--format`.
fn show(site: &SiteArgs, value: &impl Serialize, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    let text = match site.format {
        CaptureFormat::Table => table(),
        CaptureFormat::Json => serde_json::to_string_pretty(value)? + "\n",
    };
    Ok(output::results(|out| out.write_all(text.as_bytes()))?)
}

fn job(args: &JobArgs) -> anyhow::Result<SlurmJob> {
    if let (Some(id), Some(nodelist)) = (args.job, &args.nodelist) {
        return Ok(SlurmJob::from_nodelist(id, nodelist)?);
    }
    if std::env::var_os("SLURM_JOB_ID").is_none() {
        return Err(UsageError(
            "not in a Slurm job: give --job ID and --nodelist LIST (`squeue -j ID -h -o %N` prints it)",
        )
        .into());
    }
    Ok(SlurmJob::from_own_environment()?)
}

fn plan(args: &JobArgs) -> anyhow::Result<ExitCode> {
    let (config, job) = (Config::read(&args.site.config)?, job(args)?);
    let plan = session::preview(&config, &job, &SshRunner::new(&config)?)?;
    show(&args.site, &plan, || plan.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn deadline(config: &Config) -> Instant {
    Instant::now() + Duration::from_secs(u64::from(config.run.deadline_s))
}

fn start(args: &JobArgs) -> anyhow::Result<ExitCode> {
    let (config, job) = (Config::read(&args.site.config)?, job(args)?);
    let begun = session::begin(&config, &job, &SshRunner::new(&config)?, deadline(&config))?;
    for undone in &begun.undone_runs {
        output::eprint_line(&format!("note: an unfinished run of job {} was undone first", undone.job_id));
    }
    output::notes(&begun.plan.warnings);
    show(&args.site, &begun.plan, || {
        format!(
            "job {}: {} running, {} mirrored; started in {:.1} s\n`ibscope capture stop --job {}` stops the run\n",
            job.id,
            count_either(begun.summary.captures as u64, "capture is", "captures are"),
            count_either(begun.summary.ports as u64, "port is", "ports are"),
            begun.summary.duration.as_secs_f64(),
            job.id
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn stop(site: &SiteArgs, job: u32) -> anyhow::Result<ExitCode> {
    let config = Config::read(&site.config)?;
    let runner = SshRunner::new(&config)?;
    let undone = undo::job_without_deadline(&config, job, &runner, deadline(&config))?;
    undone.iter().for_each(|undone| analyze(&config, undone, &runner));
    show(site, &undone, || match undone[..] {
        [] => format!("job {job}: nothing to undo\n"),
        _ => undone.iter().map(undone_text).collect(),
    })?;
    Ok(code(undone.iter().all(|undone| undone.left.is_empty())))
}

/// Starts the analysis of a run that is undone, as an epilog does.
fn analyze(config: &Config, undone: &UndoReport, runner: &SshRunner) {
    match start_analysis(config, undone, runner) {
        Ok(text) => output::notes(&text.into_iter().collect::<Vec<_>>()),
        Err(error) => output::eprint_line(&format!("ibscope: the captures are not analyzed: {error}")),
    }
}

fn stale(site: &SiteArgs) -> anyhow::Result<ExitCode> {
    let config = Config::read(&site.config)?;
    let runner = SshRunner::new(&config)?;
    let all = undo::stale(&config, &runner, deadline(&config), |job| status::has_ended(&config, &runner, job))?;
    let (mut undone, mut is_well) = (Vec::new(), true);
    for one in all {
        match one {
            Ok(one) => {
                analyze(&config, &one, &runner);
                is_well &= one.left.is_empty();
                undone.push(one);
            }
            Err(error) => {
                is_well = false;
                output::eprint_line(&format!("ibscope: {error}"));
            }
        }
    }
    show(site, &undone, || match undone[..] {
        [] => "nothing to undo\n".to_owned(),
        _ => undone.iter().map(undone_text).collect(),
    })?;
    Ok(code(is_well))
}

fn code(is_well: bool) -> ExitCode {
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list(site: &SiteArgs, job: Option<u32>) -> anyhow::Result<ExitCode> {
    let config = Config::read(&site.config)?;
    let runs = status::runs(&config, job)?;
    show(site, &runs, || match (runs.is_empty(), job) {
        (true, None) => "no runs\n".to_owned(),
        (true, Some(job)) => format!("job {job}: no run\n"),
        (false, _) => runs_text(&runs),
    })?;
    Ok(code(!runs.iter().any(RunStatus::is_left)))
}

fn runs_text(runs: &[RunStatus]) -> String {
    let mut text = format!("{:>10} {:<12} {:<10} {:>8} {:>14}\n", "job", "user", "state", "captures", "mirrored ports");
    for run in runs {
        let user = run.user.as_deref().unwrap_or("-");
        _ = writeln!(text, "{:>10} {user:<12} {:<10} {:>8} {:>14}", run.job_id, run.state(), run.captures, run.ports);
        for problem in &run.problems {
            _ = writeln!(text, "{:>10} - {problem}", "");
        }
    }
    text
}

fn selftest(args: &SelftestArgs) -> anyhow::Result<ExitCode> {
    let config = Config::read(&args.site.config)?;
    let nodes = args.nodelist.as_deref().map_or(Ok(Vec::new()), |list| hostlist::expand(list, MAX_NODES))?;
    let rows = selftest::run(&config, &nodes, &SshRunner::new(&config)?);
    show(&args.site, &rows, || rows_text(&rows))?;
    Ok(code(rows.iter().all(|row| row.fault.is_none())))
}

fn rows_text(rows: &[CheckResult]) -> String {
    let mut text = String::new();
    for CheckResult { place, what, fault } in rows {
        _ = match fault {
            None => writeln!(text, "fine   {place}: {what}"),
            Some(fault) => writeln!(text, "FAULT  {place}: {what}: {fault}"),
        };
    }
    text
}
