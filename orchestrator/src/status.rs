//! How the runs are that have not come to their end, as their journals tell.

use crate::config::Config;
use crate::journal::{JournalError, Kept, Phase, Progress, State};
use crate::remote::Runner;
use crate::step::Step;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The job.
    pub job_id: u32,
    /// Its user, where Slurm told.
    pub user: Option<String>,
    /// How far it is; none where the journal cannot be read.
    pub phase: Option<Phase>,
    /// Somebody works on it at the moment.
    pub busy: bool,
    /// Captures that run, or may run.
    pub captures: usize,
    /// Switch ports that are mirrored, or may be.
    pub ports: usize,
    /// Failed steps, what was left, what is wrong with the journal: a sentence each.
    pub problems: Vec<String>,
    /// The journal.
    pub journal: PathBuf,
}

/// Runs that are not closed, the oldest first; of one job, or of all.
pub fn runs(config: &Config, job_id: Option<u32>) -> Result<Vec<Run>, JournalError> {
    if !config.run.state_dir.exists() {
        return Ok(Vec::new());
    }
    let state = State::open(&config.run.state_dir)?;
    let kept = state.journals()?.into_iter().filter(|kept| job_id.is_none_or(|job_id| kept.job_id == job_id));
    Ok(kept.map(|kept| run(&state, kept)).collect())
}

fn run(state: &State, kept: Kept) -> Run {
    let busy = state.lock_job(kept.job_id, Instant::now()).is_err();
    let phase = kept.phase();
    let mut run = Run {
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
                    _ if matches!(progress, Progress::Planned | Progress::Undone(_)) => {}
                    Step::Capture(_) => run.captures += 1,
                    Step::Mirror(step) => run.ports += step.ports.len(),
                    Step::Hostfile(_) => {}
                }
            }
            run.problems.extend(record.failed.into_values());
            run.problems.extend(record.left);
            run.user = record.plan.job.user;
        }
    }
    run
}

/// Slurm has to answer by then.
const ANSWER: Duration = Duration::from_secs(10);

/// Whether Slurm knows the job as ended, or not at all. While Slurm does not answer, a job counts as running.
pub fn has_ended(config: &Config, runner: &dyn Runner, job_id: u32) -> bool {
    let squeue = config.tools.sbatch.parent().unwrap_or(Path::new("/usr/bin")).join("squeue");
    let argv =
        [&squeue.to_string_lossy(), "--noheader", "--format=%T", "--jobs", &job_id.to_string()].map(str::to_owned);
    let Ok(output) = runner.run(None, &argv, ANSWER) else { return false };
    if !output.is_success() {
        return String::from_utf8_lossy(&output.stderr).contains("Invalid job id");
    }
    // A job that is not listed has ended. One that is completing waits for its epilog.
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines()
        .map(str::trim)
        .all(|state| !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"].contains(&state))
}
