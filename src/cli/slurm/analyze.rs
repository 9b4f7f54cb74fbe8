//! `ibscope slurm-analyze`: the plan and the two job scripts.

use super::options::typed;
use super::plan::{self, Plan};
use crate::cli::common::output;
use crate::cli::common::usage::UsageError;
use anyhow::{Context as _, bail};
use clap::Args;
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
pub(in crate::cli) struct SlurmAnalyze {
    /// Captures, or folders of captures
    #[arg(required_unless_present = "manifest", value_name = "CAPTURE|FOLDER")]
    captures: Vec<PathBuf>,
    /// Analyze the captures of this manifest, and pass it to each task
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Write the profile to this folder, usually NAME.ibp; scripts and partial profiles go to NAME.ibp.slurm
    #[arg(short, long, value_name = "PROFILE")]
    output: PathBuf,
    /// Submit the jobs [default: write the scripts, and show the commands that submit them]
    #[arg(long)]
    submit: bool,
    /// Merge the available partial profiles if some are missing, and note this in the profile
    #[arg(long)]
    allow_missing: bool,
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

/// Longest array of jobs that Slurm takes unless its `MaxArraySize` says more.
const USUAL_ARRAY: usize = 1001;

pub(in crate::cli) fn run(args: &SlurmAnalyze) -> anyhow::Result<ExitCode> {
    let mut options = args.options.clone();
    let mut captures = plan::captures(&args.captures)?;
    if let Some(manifest) = &args.manifest {
        captures.extend(plan::captures_of(manifest)?);
        options.extend(["--manifest".to_owned(), plan::text(manifest)?]);
    }
    captures.sort();
    captures.dedup();
    if captures.is_empty() {
        bail!("no capture among what was given; give captures, or folders that hold some");
    }
    let one = match typed(&captures[0], &args.output, &options) {
        Ok(one) => one,
        Err(error) => {
            let said = error.to_string();
            let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            output::say(&format!("ibscope: behind `--` stand options of analyze: {said}"));
            return Ok(ExitCode::from(2));
        }
    };
    if one.inputs.len() > 1 || one.clocks.is_some() {
        return Err(UsageError(
            "behind `--` stand options alone; captures in front of it, clocks are found by the merge",
        )
        .into());
    }
    let program = std::env::current_exe().context("the path of this program cannot be told")?;
    let plan = Plan::new(captures, &args.output, options)?;
    let folder = plan.write()?;
    let scripts = Scripts { folder: &folder, program: &plan::text(&program)?, args, tasks: plan.captures.len() };
    let (analyze, merge) = scripts.write()?;
    if plan.captures.len() > USUAL_ARRAY {
        output::say(&format!(
            "note: {} tasks; Slurm takes arrays of up to {USUAL_ARRAY} unless MaxArraySize in slurm.conf says more",
            plan.captures.len()
        ));
    }
    output::say(&format!("{} captures; jobs, parts and logs are in {}", plan.captures.len(), folder.display()));
    if !args.submit {
        let [analyze, merge] = [&analyze, &merge].map(|path| path.display().to_string());
        output::results(|out| {
            writeln!(out, "id=$(sbatch --parsable {})", quote::quote(&analyze))?;
            writeln!(out, "sbatch --dependency=afterany:\"${{id%%;*}}\" {}", quote::quote(&merge))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let array = submit(&[], &analyze)?;
    // After all of them, whatever became of them: the merge tells what lacks. After `afterok` it would wait for ever where one has failed.
    let merge = submit(&[format!("--dependency=afterany:{array}")], &merge)?;
    output::results(|out| writeln!(out, "{array}\n{merge}"))?;
    output::say(&format!(
        "array job {array} analyses, job {merge} merges to {} when it has ended",
        args.output.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Submits a job and gives its id.
fn submit(options: &[String], script: &Path) -> anyhow::Result<u32> {
    let answer = Command::new("sbatch")
        .arg("--parsable")
        .args(options)
        .arg(script)
        .stdin(Stdio::null())
        .output()
        .context("sbatch cannot be run; is this a machine from which jobs are submitted?")?;
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    // `ID`, or `ID;CLUSTER`.
    let id = said.trim().split(';').next().and_then(|id| id.parse().ok()).filter(|_| answer.status.success());
    id.ok_or_else(|| {
        let why = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
        anyhow::anyhow!("{}: sbatch did not take it: {why}; --sbatch adds options to it", script.display())
    })
}

struct Scripts<'a> {
    folder: &'a Path,
    program: &'a str,
    args: &'a SlurmAnalyze,
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
        let here = plan::text(&std::env::current_dir().context("the folder in which this runs cannot be told")?)?;
        let folder = plan::text(self.folder)?;
        let fixed = [
            format!("--job-name=ibscope-{name}"),
            format!("--chdir=\"{here}\""),
            // The log of the last time is kept no longer than until the next.
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
