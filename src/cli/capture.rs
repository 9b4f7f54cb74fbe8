//! `ibscope capture`: by hand what the hooks do by themselves, and a look at what they have done.

use super::common::output;
use super::common::usage::UsageError;
use clap::{Args, Subcommand, ValueEnum};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::job::{Job, MOST_NODES};
use ibscope_orchestrator::journal::Phase;
use ibscope_orchestrator::remote::Ssh;
use ibscope_orchestrator::selftest::{self, Row};
use ibscope_orchestrator::session;
use ibscope_orchestrator::status::{self, Run};
use ibscope_orchestrator::undo::{self, Undone};
use ibscope_parsers::tools::hostlist;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope capture selftest
  ibscope capture plan --job 4711 --nodelist n[001-004]
  ibscope capture undo --all-stale";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(super) enum Capture {
    /// Show the plan for a job; change nothing
    Plan(OfJob),
    /// Start the capture of a job
    Start(OfJob),
    /// Stop the capture of a job: undo mirroring, stop and fetch the captures, write the manifest
    Stop(Stop),
    /// Show the runs of a job that are not undone
    Status(Status),
    /// Show all runs that are not undone
    List(List),
    /// Undo the changes for a job, or for all jobs whose hooks were interrupted
    Undo(Undo),
    /// Check everything that a capture needs: configuration, ssh, programs, folders, fabric
    Selftest(Selftest),
}

/// Where the configuration is, and the form of the result.
#[derive(Debug, Args)]
pub(super) struct Site {
    /// Configuration of the site
    #[arg(long, value_name = "FILE", default_value = super::hook::CONFIG)]
    config: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Form::Table)]
    format: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Table,
    /// JSON
    Json,
}

#[derive(Debug, Args)]
pub(super) struct OfJob {
    #[command(flatten)]
    site: Site,
    /// Slurm job id [default: id of the job in which this runs]
    #[arg(long, value_name = "ID", requires = "nodelist", value_parser = clap::value_parser!(u32).range(1..))]
    job: Option<u32>,
    /// Nodes of the job in Slurm's notation, for example n[001-004]
    #[arg(long, value_name = "LIST", requires = "job", allow_hyphen_values = true)]
    nodelist: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Stop {
    #[command(flatten)]
    site: Site,
    /// Slurm job id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    job: u32,
}

#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    site: Site,
    /// Slurm job id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    job: u32,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    site: Site,
}

#[derive(Debug, Args)]
pub(super) struct Undo {
    #[command(flatten)]
    site: Site,
    /// Slurm job id
    #[arg(long, value_name = "ID", required_unless_present = "all_stale", conflicts_with = "all_stale", value_parser = clap::value_parser!(u32).range(1..))]
    job: Option<u32>,
    /// Undo all runs that no process works on and whose start or end was interrupted
    #[arg(long)]
    all_stale: bool,
}

#[derive(Debug, Args)]
pub(super) struct Selftest {
    #[command(flatten)]
    site: Site,
    /// Also check these nodes, in Slurm's notation [default: the sinks of the configuration]
    #[arg(long, value_name = "LIST")]
    nodelist: Option<String>,
}

pub(super) fn run(command: &Capture) -> anyhow::Result<ExitCode> {
    match command {
        Capture::Plan(args) => plan(args),
        Capture::Start(args) => start(args),
        Capture::Stop(args) => stop(&args.site, args.job),
        Capture::Status(args) => list(&args.site, Some(args.job)),
        Capture::List(args) => list(&args.site, None),
        Capture::Undo(args) => match args.job {
            Some(job) => stop(&args.site, job),
            None => stale(&args.site),
        },
        Capture::Selftest(args) => selftest(args),
    }
}

/// Shows a result in the form that was asked for.
fn show(site: &Site, value: &impl Serialize, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    let text = match site.format {
        Form::Table => table(),
        Form::Json => serde_json::to_string_pretty(value)? + "\n",
    };
    Ok(output::results(|out| out.write_all(text.as_bytes()))?)
}

fn job(args: &OfJob) -> anyhow::Result<Job> {
    if let (Some(id), Some(nodelist)) = (args.job, &args.nodelist) {
        return Ok(Job::named(id, nodelist)?);
    }
    let vars =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    if std::env::var_os("SLURM_JOB_ID").is_none() {
        return Err(UsageError(
            "this is no Slurm job: give --job ID and --nodelist LIST (`squeue -j ID -h -o %N` prints it)",
        )
        .into());
    }
    Ok(Job::from_environment(vars)?)
}

fn plan(args: &OfJob) -> anyhow::Result<ExitCode> {
    let (config, job) = (Config::read(&args.site.config)?, job(args)?);
    let plan = session::preview(&config, &job, &Ssh::new(&config)?)?;
    show(&args.site, &plan, || plan.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn deadline(config: &Config) -> Instant {
    Instant::now() + Duration::from_secs(u64::from(config.run.deadline_s))
}

fn start(args: &OfJob) -> anyhow::Result<ExitCode> {
    let (config, job) = (Config::read(&args.site.config)?, job(args)?);
    let begun = session::begin(&config, &job, &Ssh::new(&config)?, deadline(&config))?;
    for undone in &begun.earlier {
        output::say(&format!("note: a run of job {} that had not ended was undone first", undone.job_id));
    }
    output::notes(&begun.plan.warnings);
    show(&args.site, &begun.plan, || {
        format!(
            "job {}: {} captures run, {} ports are mirrored; started in {:.1} s\n`ibscope capture stop --job {}` ends it\n",
            job.id,
            begun.started.captures,
            begun.started.ports,
            begun.started.took.as_secs_f64(),
            job.id
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn stop(site: &Site, job: u32) -> anyhow::Result<ExitCode> {
    let config = Config::read(&site.config)?;
    let undone = undo::at_leisure(&config, job, &Ssh::new(&config)?, deadline(&config))?;
    show(site, &undone, || match undone[..] {
        [] => format!("job {job}: nothing to undo\n"),
        _ => undone.iter().map(undone_text).collect(),
    })?;
    Ok(code(undone.iter().all(|undone| undone.left.is_empty())))
}

fn stale(site: &Site) -> anyhow::Result<ExitCode> {
    let config = Config::read(&site.config)?;
    let runner = Ssh::new(&config)?;
    let all = undo::stale(&config, &runner, deadline(&config), |job| status::has_ended(&config, &runner, job))?;
    let (mut undone, mut is_well) = (Vec::new(), true);
    for one in all {
        match one {
            Ok(one) => {
                is_well &= one.left.is_empty();
                undone.push(one);
            }
            Err(error) => {
                is_well = false;
                output::say(&format!("ibscope: {error}"));
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

fn undone_text(undone: &Undone) -> String {
    let mut text = String::new();
    let job = undone.job_id;
    for capture in &undone.captures {
        let file = capture.fetched.as_ref().map_or(&capture.file, |fetched| &fetched.file);
        let counted = capture.ended.as_ref().and_then(|ended| ended.counted);
        let packets =
            counted.map_or("an unknown number of packets".to_owned(), |counted| format!("{} packets", counted.packets));
        _ = writeln!(text, "job {job}: {}: {packets} in {}", capture.node, file.display());
        for remark in capture.ended.iter().flat_map(|ended| &ended.remarks) {
            _ = writeln!(text, "job {job}: {}: {remark}", capture.node);
        }
    }
    if let Some(manifest) = &undone.manifest {
        _ = writeln!(text, "job {job}: manifest {}", manifest.display());
    }
    _ = match (undone.left.is_empty(), undone.is_restored) {
        (true, _) => writeln!(text, "job {job}: undone"),
        (false, true) => writeln!(text, "job {job}: nothing is mirrored and nothing runs any more, but:"),
        (false, false) => writeln!(text, "job {job}: NOT all undone:"),
    };
    for left in &undone.left {
        _ = writeln!(text, "  - {left}");
    }
    text
}

fn list(site: &Site, job: Option<u32>) -> anyhow::Result<ExitCode> {
    let config = Config::read(&site.config)?;
    let runs = status::runs(&config, job)?;
    show(site, &runs, || match (runs.is_empty(), job) {
        (true, None) => "no runs\n".to_owned(),
        (true, Some(job)) => format!("job {job}: no run\n"),
        (false, _) => runs_text(&runs),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn runs_text(runs: &[Run]) -> String {
    let mut text = format!("{:>10} {:<12} {:<10} {:>8} {:>14}\n", "job", "user", "state", "captures", "mirrored ports");
    for run in runs {
        let phase = match run.phase {
            None => "unreadable",
            Some(Phase::Starting) if run.busy => "starting",
            Some(Phase::Starting) => "cut off",
            Some(Phase::Running) => "running",
            Some(Phase::Undoing) if run.busy => "undoing",
            Some(Phase::Undoing) => "left",
            Some(Phase::Closed) => "closed",
        };
        let user = run.user.as_deref().unwrap_or("-");
        _ = writeln!(text, "{:>10} {user:<12} {phase:<10} {:>8} {:>14}", run.job_id, run.captures, run.ports);
        for problem in &run.problems {
            _ = writeln!(text, "{:>10} - {problem}", "");
        }
    }
    text
}

fn selftest(args: &Selftest) -> anyhow::Result<ExitCode> {
    let config = Config::read(&args.site.config)?;
    let nodes = args.nodelist.as_deref().map_or(Ok(Vec::new()), |list| hostlist::expand(list, MOST_NODES))?;
    let rows = selftest::run(&config, &nodes, &Ssh::new(&config)?);
    show(&args.site, &rows, || rows_text(&rows))?;
    Ok(code(rows.iter().all(|row| row.fault.is_none())))
}

fn rows_text(rows: &[Row]) -> String {
    let mut text = String::new();
    for Row { place, what, fault } in rows {
        _ = match fault {
            None => writeln!(text, "fine   {place}: {what}"),
            Some(fault) => writeln!(text, "FAULT  {place}: {what}: {fault}"),
        };
    }
    text
}
