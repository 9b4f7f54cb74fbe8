//! Starts the capture of a job: finds its nodes in the fabric, plans the capture, and does the
//! steps of the plan.

use crate::config::Config;
use crate::fabric::{self, Fabric, FabricError, Inventory};
use crate::job::SlurmJob;
use crate::journal::{JournalError, State};
use crate::plan::{self, CapturePlan, PlanContext, PlanError};
use crate::remote::Files;
use crate::run::{self, JobClaim, PlanClaim, RunError, StartSummary};
use crate::timestamp::now_s;
use crate::undo::UndoReport;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

/// Reason why a capture does not run.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The nodes cannot be found in the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// There is no plan for the job.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Other runs used the sinks for as long as the job could wait.
    #[error("{error}; waited {waited_s:.1} s for them (sinks.wait_s)")]
    Busy {
        /// Time in seconds.
        waited_s: f64,
        /// Reason why there was no plan at the end.
        error: PlanError,
    },
    /// There is no plan, and sinks were skipped, which may be the reason.
    #[error("{error}; {}", skipped.join("; "))]
    Skipped {
        /// Reason why there is no plan.
        error: Box<SessionError>,
        /// The skipped sinks, one sentence each.
        skipped: Vec<String>,
    },
    /// The state folder cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Steps of the plan failed, and are undone.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A capture that was started.
#[derive(Debug)]
pub struct SessionStart {
    /// Plan of the capture.
    pub plan: CapturePlan,
    /// Summary of the start.
    pub summary: StartSummary,
    /// Reports of earlier runs of the job, which were undone first.
    pub undone_runs: Vec<UndoReport>,
}

/// Plans the capture of a job. Explores the fabric, but starts nothing.
pub fn preview(config: &Config, job: &SlurmJob, runner: &dyn Files) -> Result<CapturePlan, SessionError> {
    let (fabric, without) = explore(config, job, runner)?;
    let (mut others, mut problems) = (Vec::new(), Vec::new());
    if config.run.state_dir.exists() {
        for kept in State::open(&config.run.state_dir)?.journals()?.into_iter().filter(|kept| kept.job_id != job.id) {
            match kept.record {
                Ok(record) => others.extend(record.occupying_steps().cloned()),
                Err(error) => problems.push(error.to_string()),
            }
        }
    }
    let planned = plan::plan(config, job, &fabric, &PlanContext { started_s: now_s(), others });
    let mut plan = planned.map_err(|error| with_skipped(error.into(), &without))?;
    plan.warnings.extend(without.into_iter().chain(problems));
    Ok(plan)
}

/// Time that is left for the start after a wait for sinks.
const START_RESERVE: Duration = Duration::from_secs(10);
/// A shorter wait is not worth a warning.
const SHOWN_WAIT: Duration = Duration::from_millis(500);
/// Pause between two attempts to find a free sink.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Finds the job's nodes and the sinks in the fabric, with the help of the stored inventory. Sinks with
/// a fault are skipped with a warning each, because other sinks may have none.
fn explore(config: &Config, job: &SlurmJob, runner: &dyn Files) -> Result<(Fabric, Vec<String>), FabricError> {
    let of_job: BTreeSet<&String> = job.nodes.iter().collect();
    let (nodes, sinks): (Vec<String>, Vec<String>) =
        plan::nodes_needed(config, job).into_iter().partition(|node| of_job.contains(node));
    let before = Inventory::read(&config.run.state_dir);
    let mut inventory = before.clone();
    let (fabric, faults) = fabric::discover_with_sinks(config, &nodes, &sinks, &mut inventory, runner)?;
    if inventory != before {
        // An inventory that is not written only costs time in the next run.
        let _ = inventory.write(&config.run.state_dir);
    }
    Ok((fabric, faults.into_iter().map(|fault| format!("a sink is skipped: {fault}")).collect()))
}

/// Adds the skipped sinks to the reason why there is no plan.
fn with_skipped(error: SessionError, skipped: &[String]) -> SessionError {
    match error {
        SessionError::Plan(_) | SessionError::Busy { .. } if !skipped.is_empty() => {
            SessionError::Skipped { error: Box::new(error), skipped: skipped.to_vec() }
        }
        error => error,
    }
}

/// Starts the capture of a job. Earlier runs with the same job id are undone first. If the start
/// fails, all changes are undone.
pub fn begin(
    config: &Config,
    job: &SlurmJob,
    runner: &dyn Files,
    deadline: Instant,
) -> Result<SessionStart, SessionError> {
    let mut claim = run::claim_job(config, job.id, runner, deadline)?;
    let earlier = std::mem::take(&mut claim.undone_runs);
    // Explore the fabric before the lock on planning is taken, so that jobs that start at the same
    // time wait only while another one chooses sinks.
    let (fabric, without) = explore(config, job, runner)?;
    let claimed = claim_sinks(config, job, &fabric, claim, deadline);
    let (mut plan, plan_claim) = claimed.map_err(|error| with_skipped(error, &without))?;
    plan.warnings.extend(without.into_iter().chain(plan_claim.others().1.iter().cloned()));
    let journal = plan_claim.open(plan.clone(), config)?;
    let started = run::start(config, runner, journal, deadline)?;
    Ok(SessionStart { plan, summary: started, undone_runs: earlier })
}

/// Plans under the lock on planning. As long as `sinks.wait_s` permits, waits for sinks that other
/// runs use. The claim holds the lock, so that nobody else chooses the same sinks.
fn claim_sinks(
    config: &Config,
    job: &SlurmJob,
    fabric: &Fabric,
    mut claim: JobClaim,
    deadline: Instant,
) -> Result<(CapturePlan, PlanClaim), SessionError> {
    let began = Instant::now();
    let latest = began + Duration::from_secs(u64::from(config.sinks.wait_s));
    let latest = latest.min(deadline.checked_sub(START_RESERVE).unwrap_or(began));
    // Leaves with a sink if there were no other runs.
    let free = plan::plan(config, job, fabric, &PlanContext { started_s: now_s(), others: Vec::new() })?;
    let leaves = |plan: &CapturePlan| plan.sinks.iter().map(|sink| sink.leaf_guid).collect::<BTreeSet<u64>>().len();
    loop {
        let plan_claim = claim.lock_plan(deadline)?;
        let context = PlanContext { started_s: now_s(), others: plan_claim.others().0.to_vec() };
        let planned = plan::plan(config, job, fabric, &context);
        let is_short = planned.as_ref().map_or(true, |plan| leaves(plan) < leaves(&free));
        let waited_s = began.elapsed().as_secs_f64();
        if !is_short || Instant::now() >= latest {
            let waited = waited_s >= SHOWN_WAIT.as_secs_f64();
            let mut plan =
                planned.map_err(|error| if waited { SessionError::Busy { waited_s, error } } else { error.into() })?;
            if waited {
                plan.warnings.push(format!("waited {waited_s:.1} s for sinks of other runs (sinks.wait_s)"));
            }
            return Ok((plan, plan_claim));
        }
        claim = plan_claim.release();
        thread::sleep(POLL_INTERVAL);
    }
}
