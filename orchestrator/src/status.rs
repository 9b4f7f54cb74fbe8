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

/// True if Slurm reports the job as ended or does not know it. If Slurm does not answer, the job
/// counts as running.
pub fn has_ended(config: &Config, runner: &dyn Runner, job_id: u32) -> bool {
    let squeue = config.tools.sbatch.parent().unwrap_or(Path::new("/usr/bin")).join("squeue");
    let argv =
        [&squeue.to_string_lossy(), "--noheader", "--format=%T", "--jobs", &job_id.to_string()].map(str::to_owned);
    let Ok(output) = runner.run(None, &argv, ANSWER_TIMEOUT) else { return false };
    if !output.is_success() {
        return String::from_utf8_lossy(&output.stderr).contains("Invalid job id");
    }
    // A job that is not listed has ended. A completing job waits for its epilog.
    let printed = String::from_utf8_lossy(&output.stdout);
    printed
        .lines()
        .map(str::trim)
        .all(|state| !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"].contains(&state))
}
