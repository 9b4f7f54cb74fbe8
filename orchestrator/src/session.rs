//! From a job to a capture that runs: its nodes are found in the fabric, a plan is made, and the plan is done.

use crate::config::Config;
use crate::fabric::{self, Fabric, FabricError, Inventory};
use crate::job::Job;
use crate::journal::{JournalError, State};
use crate::plan::{self, Plan, PlanError, Situation};
use crate::remote::{Files, parallel};
use crate::run::{self, RunError, Started};
use crate::undo::Undone;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// Why a capture does not run.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The nodes could not be found in the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// There is no plan for them.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The state folder does not do.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The plan could not be done, and is undone.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A capture that runs.
#[derive(Debug)]
pub struct Begun {
    /// What was done.
    pub plan: Plan,
    /// How it went.
    pub started: Started,
    /// What earlier runs of the job had left, and was undone before.
    pub earlier: Vec<Undone>,
}

/// What would be done for a job. Looks at the fabric and changes nothing.
pub fn preview(config: &Config, job: &Job, runner: &dyn Files) -> Result<Plan, SessionError> {
    let (fabric, without) = explore(config, job, runner)?;
    let (mut others, mut problems) = (Vec::new(), Vec::new());
    if config.run.state_dir.exists() {
        for kept in State::open(&config.run.state_dir)?.journals()?.into_iter().filter(|kept| kept.job_id != job.id) {
            match kept.record {
                Ok(record) => others.extend(record.taken().cloned()),
                Err(error) => problems.push(error.to_string()),
            }
        }
    }
    let mut plan = plan::plan(config, job, &fabric, &Situation { started_s: now_s(), others })?;
    plan.warnings.extend(without.into_iter().chain(problems));
    Ok(plan)
}

/// A sink has to answer by then.
const ANSWER: Duration = Duration::from_secs(5);

/// The fabric as the job's nodes and the sinks see it. Sinks that do not answer are left out, with a sentence each: others may be there.
fn explore(config: &Config, job: &Job, runner: &dyn Files) -> Result<(Fabric, Vec<String>), FabricError> {
    let mut nodes = plan::nodes_needed(config, job);
    let error = match discover(config, &nodes, runner) {
        Ok(fabric) => return Ok((fabric, Vec::new())),
        Err(error) => error,
    };
    let sinks: Vec<String> = nodes.iter().filter(|node| !job.nodes.contains(node)).cloned().collect();
    let ibstat = [config.tools.ibstat.to_string_lossy().into_owned()];
    let faults = parallel(&sinks, config.ssh.parallel as usize, |sink| match runner.run(Some(sink), &ibstat, ANSWER) {
        Ok(output) if output.is_success() => None,
        Ok(output) => Some(format!("{sink}: ibstat ended with status {}", output.status)),
        Err(error) => Some(error.to_string()),
    });
    let silent: BTreeMap<String, String> =
        sinks.into_iter().zip(faults).filter_map(|(sink, fault)| Some((sink, fault?))).collect();
    if silent.is_empty() {
        return Err(error);
    }
    nodes.retain(|node| !silent.contains_key(node));
    let fabric = discover(config, &nodes, runner)?;
    Ok((fabric, silent.into_values().map(|fault| format!("a sink is left out: {fault}")).collect()))
}

/// Finds the nodes, with what is known of them from before.
fn discover(config: &Config, nodes: &[String], runner: &dyn Files) -> Result<Fabric, FabricError> {
    let before = Inventory::read(&config.run.state_dir);
    let mut inventory = before.clone();
    let fabric = fabric::discover(config, nodes, &mut inventory, runner)?;
    if inventory != before {
        // Whatever keeps it from being written costs time only, the next time.
        let _ = inventory.write(&config.run.state_dir);
    }
    Ok(fabric)
}

/// Starts the capture of a job. What an earlier run of the same id has left is undone first; when the start fails all of it is undone.
pub fn begin(config: &Config, job: &Job, runner: &dyn Files, deadline: Instant) -> Result<Begun, SessionError> {
    let mut claim = run::claim(config, job.id, runner, deadline)?;
    let earlier = std::mem::take(&mut claim.earlier);
    // The fabric is looked at before it is this job's turn to choose: jobs that start together wait for each other's choice only.
    let (fabric, without) = explore(config, job, runner)?;
    let turn = claim.turn(deadline)?;
    let (others, problems) = turn.others();
    let mut plan = plan::plan(config, job, &fabric, &Situation { started_s: now_s(), others: others.to_vec() })?;
    plan.warnings.extend(without.into_iter().chain(problems.iter().cloned()));
    let journal = turn.open(plan.clone())?;
    let started = run::start(config, runner, journal, deadline)?;
    Ok(Begun { plan, started, earlier })
}

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}
