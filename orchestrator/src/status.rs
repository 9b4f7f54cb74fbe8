//! Lists the runs that are not closed, with their state as their journals record it.

use crate::config::Config;
use crate::journal::{JournalError, RunPhase, State, StepProgress, StoredJournal};
use crate::remote::Runner;
use crate::step::PlanStep;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// State of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    /// Job id.
    pub job_id: u32,
    /// User of the job, if Slurm passed it.
    pub user: Option<String>,
    /// Progress of the run; `None` if the journal cannot be read.
    pub phase: Option<RunPhase>,
    /// True if a process works on the run at the moment.
    pub busy: bool,
    /// Captures that run, or may run.
    pub captures: usize,
    /// Switch ports that are mirrored, or may be.
    pub ports: usize,
    /// Failed steps, work that is left, and faults of the journal; one sentence each.
    pub problems: Vec<String>,
    /// Path of the journal.
    pub journal: PathBuf,
}

/// Runs that are not closed, the oldest first; of one job or of all jobs.
pub fn runs(config: &Config, job_id: Option<u32>) -> Result<Vec<RunStatus>, JournalError> {
    if !config.run.state_dir.exists() {
        return Ok(Vec::new());
    }
    let state = State::open(&config.run.state_dir)?;
    let kept = state.journals()?.into_iter().filter(|kept| job_id.is_none_or(|job_id| kept.job_id == job_id));
    Ok(kept.map(|kept| run(&state, kept)).collect())
}

fn run(state: &State, kept: StoredJournal) -> RunStatus {
    let busy = state.lock_job(kept.job_id, Instant::now()).is_err();
    let phase = kept.phase();
    let mut run = RunStatus {
        job_id: kept.job_id,
        user: None,
        phase,
        busy,
        captures: 0,
        ports: 0,
        problems: Vec::new(),
        journal: kept.path,
    };
    match kept.record {
        Err(error) => run.problems.push(error.to_string()),
        Ok(record) => {
            for (step, progress) in record.plan.steps.iter().zip(&record.progress) {
                match step {
                    _ if matches!(progress, StepProgress::Planned | StepProgress::Undone(_)) => {}
                    PlanStep::Capture(_) => run.captures += 1,
                    PlanStep::Mirror(step) => run.ports += step.ports.len(),
                    PlanStep::Hostfile(_) => {}
                }
            }
            run.problems.extend(record.failed.into_values());
            run.problems.extend(record.left);
            run.user = record.plan.job.user;
        }
    }
    run
}

/// Time limit of Slurm's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A job as Slurm reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// The job waits, runs, or waits for its epilog.
    Live,
    /// The job has ended.
    Ended,
    /// Slurm does not know the job.
    Unknown,
    /// Slurm does not answer.
    NoAnswer,
}

/// States of jobs that have not ended. A completing job waits for its epilog.
const LIVE_STATES: [&str; 6] = ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"];

/// Asks Slurm for the state of a job.
pub fn job_state(config: &Config, runner: &dyn Runner, job_id: u32) -> JobState {
    let squeue = config.tools.sbatch.parent().unwrap_or(Path::new("/usr/bin")).join("squeue");
    let argv =
        [&squeue.to_string_lossy(), "--noheader", "--format=%T", "--jobs", &job_id.to_string()].map(str::to_owned);
    let Ok(output) = runner.run(None, &argv, ANSWER_TIMEOUT) else { return JobState::NoAnswer };
    if !output.is_success() {
        let is_unknown = String::from_utf8_lossy(&output.stderr).contains("Invalid job id");
        return if is_unknown { JobState::Unknown } else { JobState::NoAnswer };
    }
    // A job that is not listed has ended.
    let printed = String::from_utf8_lossy(&output.stdout);
    let is_live = printed.lines().any(|state| LIVE_STATES.contains(&state.trim()));
    if is_live { JobState::Live } else { JobState::Ended }
}

/// True if Slurm reports the job as ended or does not know it. If Slurm does not answer, the job
/// counts as running.
pub fn has_ended(config: &Config, runner: &dyn Runner, job_id: u32) -> bool {
    matches!(job_state(config, runner, job_id), JobState::Ended | JobState::Unknown)
}
