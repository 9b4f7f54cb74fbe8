//! `ibscope slurm-analyze`: writes the plan and the two job scripts, and submits them.

use super::options::parse_options;
use super::plan::{self, SlurmPlan};
use super::rotation;
use crate::cli::common::output;
use crate::cli::common::usage::UsageError;
use crate::model::{ConnectionShare, count_of};
use anyhow::{Context as _, bail};
use clap::Args;
use ibscope_orchestrator::config::NOT_CAPTURED;
use ibscope_orchestrator::quote;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope slurm-analyze /captures/4711 -o job.ibp --submit
  ibscope slurm-analyze --manifest manifest.json -o job.ibp --sbatch=--partition=ib";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct SlurmAnalyzeArgs {
    /// Captures, or folders of captures; the files of a rotated capture share a task, if their names are
    /// those of tcpdump -C, tcpdump -G or dumpcap -b
    #[arg(required_unless_present = "manifest", value_name = "CAPTURE|FOLDER")]
    captures: Vec<PathBuf>,
    /// Analyze the captures of this manifest, and pass it to each task
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Write the profile to this folder, usually NAME.ibp; scripts and partial profiles go to
    /// NAME.ibp.slurm
    #[arg(short, long, value_name = "PROFILE")]
    output: PathBuf,
    /// Submit the jobs [default: write the scripts, and show the commands that submit them]
    #[arg(long)]
    submit: bool,
    /// Merge the available partial profiles if some are missing, and note this in the profile
    #[arg(long)]
    allow_missing: bool,
    /// Divide the connections of each capture among N tasks. Each task reads the whole capture, but
    /// tracks only its share, so it needs less time and memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(ConnectionShare::MAX)))]
    shares: u32,
    /// Run at most N tasks at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// Pass an option to sbatch for both jobs, for example --sbatch=--partition=ib; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Options of `analyze` for each capture, for example -- --bin 1ms --hosts hosts.csv
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Longest job array that Slurm accepts by default (`MaxArraySize`).
const USUAL_ARRAY: usize = 1001;

pub(in crate::cli) fn run(args: &SlurmAnalyzeArgs) -> anyhow::Result<ExitCode> {
    let mut options = args.options.clone();
    let mut captures = plan::captures(&args.captures)?;
    if let Some(manifest) = &args.manifest {
        captures.extend(plan::captures_of(manifest)?);
        options.extend(["--manifest".to_owned(), plan::text(manifest)?]);
    }
    captures.sort();
    captures.dedup();
    if captures.is_empty() {
        bail!("no captures found; give captures, or folders that contain captures");
    }
    let one = match parse_options(&captures[..1], &args.output, &options) {
        Ok(one) => one,
        Err(error) => {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            output::eprint_line(&format!("ibscope: invalid options of `analyze` after `--`: {text}"));
            return Ok(ExitCode::from(2));
        }
    };
    if one.inputs.len() > 1 || one.clocks.is_some() {
        return Err(UsageError(
            "only options may follow `--`: put captures before it, and omit --clocks, because the merge finds the clocks",
        )
        .into());
    }
    if one.share.is_some() {
        return Err(UsageError("give --shares N before `--`, instead of --share").into());
    }
    if one.reading.streams.is_some() {
        return Err(UsageError(
            "--streams does not apply: the names of the captures show which of them one task reads as the files of one \
             capture; for others, run `analyze --partial --streams` and `merge`",
        )
        .into());
    }
    let program = std::env::current_exe().context("the path of the ibscope program is unknown")?;
    let files = captures.len();
    let plan = SlurmPlan::new(rotation::group(captures), &args.output, options, args.shares)?;
    let folder = plan.write()?;
    let tasks = plan.captures.len() * plan.shares as usize;
    let scripts = Scripts { folder: &folder, program: &plan::text(&program)?, args, tasks };
    let (analyze, merge) = scripts.write()?;
    if tasks > USUAL_ARRAY {
        output::eprint_line(&format!(
            "note: {tasks} tasks; Slurm accepts arrays of up to {USUAL_ARRAY}, unless MaxArraySize in slurm.conf is larger"
        ));
    }
    let shares = if plan.shares > 1 { format!(", {} shares each", plan.shares) } else { String::new() };
    let rotated = if plan.captures.len() < files { format!(" in {files} files") } else { String::new() };
    output::eprint_line(&format!(
        "{}{rotated}{shares}; scripts, partial profiles and logs are in {}",
        count_of(plan.captures.len() as u64, "capture"),
        folder.display()
    ));
    if !args.submit {
        let [analyze, merge] = [&analyze, &merge].map(|path| path.display().to_string());
        output::results(|out| {
            writeln!(out, "id=$(sbatch --parsable {})", quote::quote(&analyze))?;
            writeln!(out, "sbatch --dependency=afterany:\"${{id%%;*}}\" {}", quote::quote(&merge))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let array = submit(&[], &analyze)?;
    // `afterany`, because the merge itself reports missing profiles. With `afterok` it would wait
    // forever if a task fails.
    let merge = submit(&[format!("--dependency=afterany:{array}")], &merge)?;
    output::results(|out| writeln!(out, "{array}\n{merge}"))?;
    output::eprint_line(&format!(
        "array job {array} analyzes the captures, then job {merge} merges their profiles to {}",
        args.output.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Submits a job and returns its id.
fn submit(options: &[String], script: &Path) -> anyhow::Result<u32> {
    let answer = Command::new("sbatch")
        .arg("--parsable")
        .args(options)
        .arg(script)
        .stdin(Stdio::null())
        .output()
        .context("sbatch cannot be run; is this a submit host?")?;
    let printed = String::from_utf8_lossy(&answer.stdout).into_owned();
    // `ID`, or `ID;CLUSTER`.
    let id = printed.trim().split(';').next().and_then(|id| id.parse().ok()).filter(|_| answer.status.success());
    id.ok_or_else(|| {
        let why = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
        anyhow::anyhow!("{}: sbatch rejected it: {why}; --sbatch adds options to the script", script.display())
    })
}

struct Scripts<'a> {
    folder: &'a Path,
    program: &'a str,
    args: &'a SlurmAnalyzeArgs,
    tasks: usize,
}

impl Scripts<'_> {
    /// Writes both scripts.
    fn write(&self) -> anyhow::Result<(PathBuf, PathBuf)> {
        let limit = self.args.at_once.map(|most| format!("%{most}")).unwrap_or_default();
        let array = [format!("--array=0-{}{limit}", self.tasks - 1), "--requeue".to_owned()];
        let folder = plan::text(self.folder)?;
        let task = format!("slurm-task {} \"$SLURM_ARRAY_TASK_ID\"", quote::quote(&folder));
        let allow = if self.args.allow_missing { " --allow-missing" } else { "" };
        let merge = format!("slurm-merge{allow} {}", quote::quote(&folder));
        Ok((self.script("analyze", &array, "analyze-%a", &task)?, self.script("merge", &[], "merge", &merge)?))
    }

    fn script(&self, name: &str, own: &[String], log: &str, command: &str) -> anyhow::Result<PathBuf> {
        let here = plan::text(&std::env::current_dir().context("the current folder is unknown")?)?;
        let folder = plan::text(self.folder)?;
        let fixed = [
            format!("--job-name=ibscope-{name}"),
            format!("--chdir=\"{here}\""),
            // A site that captures all jobs must not capture this one.
            format!("--comment={NOT_CAPTURED}"),
            // The next run overwrites the log.
            format!("--output=\"{folder}/{log}.log\""),
        ];
        let options = fixed.iter().chain(own).chain(&self.args.sbatch);
        let lines: String = options.flat_map(|option| ["#SBATCH ", option.as_str(), "\n"]).collect();
        let text = format!("#!/bin/sh\n{lines}exec {} {command}\n", quote::quote(self.program));
        let place = self.folder.join(format!("{name}.sbatch"));
        fs::write(&place, text).with_context(|| format!("{}: cannot be written", place.display()))?;
        Ok(place)
    }
}
