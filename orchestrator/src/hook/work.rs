//! The work of a hook, in a process that survives the hook. If the hook is killed, the work of a
//! prolog is undone, and an epilog continues to its end.

use super::{HookOutcome, HookStage, admin_comment};
use crate::analysis;
use crate::config::Config;
use crate::job::{SlurmHook, SlurmJob};
use crate::journal::{JournalError, RunPhase, State};
use crate::log::{Level, Log};
use crate::origin;
use crate::remote::{Files, RemoteError, SshRunner};
use crate::session;
use crate::status;
use crate::sweep;
use crate::text::plural;
use crate::undo::{self, UndoReport};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Time between the end of the work and the hook's deadline, for the report to the hook.
const REPORT_MARGIN: Duration = Duration::from_millis(500);

/// Does the work of a hook, reports the outcome as a byte on standard output, and waits for the
/// hook's reply on standard input.
pub fn work(stage: HookStage, config: &Config, job: &SlurmJob) {
    let time_limit = Duration::from_secs(u64::from(config.run.deadline_s));
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", job.id));
    let deadline = Instant::now() + time_limit.saturating_sub(REPORT_MARGIN);
    let log = &log;
    match stage {
        HookStage::Epilog => report_outcome(epilog(config, job, log, deadline)),
        HookStage::Prolog => {
            let runner = match SshRunner::new(config) {
                Ok(runner) => runner,
                Err(error) => return report_outcome(log_ssh_error(&error, log)),
            };
            let (outcome, comment) = prolog(config, job, &runner, log, deadline);
            report_outcome(outcome);
            if outcome == HookOutcome::Succeeded && is_abandoned() {
                log.write(Level::Warning, "the prolog ended before its work was done: the capture is undone");
                epilog(config, job, log, Instant::now() + time_limit);
            } else {
                // Slurm no longer waits for this process. It refuses comments on jobs that have ended,
                // so an epilog writes none.
                admin_comment::set(config, &runner, job.id, &comment, log);
            }
        }
    }
    sweep_in_background(config, job.id, log);
}

/// Undoes what earlier jobs left, once the hook no longer waits for this process; at most once a
/// minute for all hooks. The hook has just tried to undo its own job.
fn sweep_in_background(config: &Config, job_id: u32, log: &Log) {
    let state = State::open(&config.run.state_dir);
    if let Ok(Err(error)) = state.as_ref().map(origin::keep_program) {
        log.write(Level::Warning, &format!("no copy of the program was kept for a later undo: {error}"));
    }
    // Without a state folder, the sweep reports the fault.
    if state.as_ref().map_or(true, sweep::claim_hook_sweep) {
        // Each run's own log names its faults.
        if let Err(error) = sweep::sweep(&config.run.state_dir, Some(config), Some(job_id), sweep::RESTORE_INTERVAL) {
            log.write(Level::Warning, &format!("earlier runs were not swept: {error}"));
        }
        sweep::retain(config);
    }
    if let Err(what) = status::write_metrics(config) {
        log.write(Level::Warning, &what);
    }
}

fn report_outcome(outcome: HookOutcome) {
    // The hook may have ended already.
    drop(io::stdout().write_all(&[outcome.byte()]).and_then(|()| io::stdout().flush()));
}

/// True if the hook was killed: it sends a byte in reply, or closes the pipe when it dies. Slurm
/// kills a prolog when its job is canceled, and sometimes the epilog too.
fn is_abandoned() -> bool {
    !matches!(io::stdin().read(&mut [0]), Ok(1))
}

fn log_outcome(log: &Log, level: Level, text: &str, outcome: HookOutcome) -> HookOutcome {
    log.write(level, text);
    outcome
}

fn log_ssh_error(error: &RemoteError, log: &Log) -> HookOutcome {
    log_outcome(log, Level::Error, &error.to_string(), HookOutcome::Failed)
}

/// Starts the capture. Returns a text for the user too.
fn prolog(config: &Config, job: &SlurmJob, runner: &dyn Files, log: &Log, deadline: Instant) -> (HookOutcome, String) {
    let began = Instant::now();
    match session::begin(config, job, runner, deadline) {
        Ok(begun) => {
            for undone in &begun.undone_runs {
                log.write(Level::Warning, "an earlier run with this job id had not ended, and was undone first");
                undone.log(log);
            }
            begun.plan.warnings.iter().for_each(|warning| log.write(Level::Warning, warning));
            let started = &begun.summary;
            let captured = format!(
                "capturing: {}, {} mirrored",
                plural(started.captures, "capture"),
                plural(started.ports, "port")
            );
            let text = format!(
                "{captured}; started in {:.1} s, including {:.1} s to locate the nodes",
                began.elapsed().as_secs_f64(),
                began.elapsed().saturating_sub(started.duration).as_secs_f64()
            );
            let outcome = log_outcome(log, Level::Info, &text, HookOutcome::Succeeded);
            let result = config.collect.directory.join(begun.plan.run_name());
            (outcome, format!("{captured}; result in {}", result.display()))
        }
        Err(error) => {
            let text = error.to_string();
            let reason = text.strip_prefix(&format!("job {}: ", job.id)).unwrap_or(&text);
            let reason = reason.strip_prefix("not captured: ").unwrap_or(reason);
            (log_outcome(log, Level::Error, &text, HookOutcome::Failed), format!("not captured: {reason}"))
        }
    }
}

/// Undoes the capture of the job, whether or not the job requests one now: its comment may have
/// changed. The configuration may have changed as well: if the current one does not undo everything,
/// the one that began the capture follows.
fn epilog(config: &Config, job: &SlurmJob, log: &Log, deadline: Instant) -> HookOutcome {
    // After an error, the attempt to undo the runs meets the same fault, and reports it.
    if let Ok(Some(later)) = compare_with_runs(config, job, log, deadline) {
        let text = format!(
            "nothing is undone: this epilog is that of start {} of the job, which comes late: the capture belongs to start \
             {}, and the epilog of that start undoes it, or else the sweeper",
            job.restart_count.saturating_add(1),
            later.saturating_add(1)
        );
        return log_outcome(log, Level::Warning, &text, HookOutcome::Succeeded);
    }
    let own = sweep::config_of_job(&config.run.state_dir, job.id).filter(|own| own.source.text != config.source.text);
    let outcome = undo(config, job, log, deadline);
    match own {
        Some(own) if outcome == HookOutcome::Failed => {
            log.write(
                Level::Warning,
                "the configuration changed during the job; the one that began the capture follows",
            );
            undo(&own, job, log, deadline)
        }
        _ => outcome,
    }
}

/// Compares the job of an epilog with its runs. Returns the restart count of a run that a later start of
/// the job began. Notes which nodes the job has released since its capture began.
fn compare_with_runs(
    config: &Config,
    job: &SlurmJob,
    log: &Log,
    deadline: Instant,
) -> Result<Option<u32>, JournalError> {
    let state = State::open(&config.run.state_dir)?;
    // A prolog of a later start may be at work.
    let mut lock = state.lock_job(job.id, deadline)?;
    for stored in state.journals()?.into_iter().filter(|stored| stored.job_id == job.id) {
        let Ok(record) = stored.record else { continue };
        let counts = record.plan.job.known_restarts().zip(job.known_restarts());
        if let Some((of_run, _)) = counts.filter(|(of_run, of_epilog)| of_run > of_epilog) {
            return Ok(Some(of_run));
        }
        let released =
            if record.phase == RunPhase::Running { nodes_released(&record.plan.job, job) } else { Vec::new() };
        if !released.is_empty() {
            let journal = state.reopen(&stored.path, lock)?;
            sweep::note_at_end(&journal, &released, log);
            lock = journal.into_lock();
        }
    }
    Ok(None)
}

/// Nodes of a prolog of slurmctld that are missing in the epilog of slurmctld, whose list is the current one.
fn nodes_released(before: &SlurmJob, now: &SlurmJob) -> Vec<String> {
    let is_of_job = before.hook == Some(SlurmHook::PrologSlurmctld) && now.hook == Some(SlurmHook::EpilogSlurmctld);
    if is_of_job { status::released(&before.nodes, &now.nodes) } else { Vec::new() }
}

fn undo(config: &Config, job: &SlurmJob, log: &Log, deadline: Instant) -> HookOutcome {
    let runner = match SshRunner::new(config) {
        Ok(runner) => runner,
        Err(error) => return log_ssh_error(&error, log),
    };
    let undone = match undo::job(config, job.id, &runner, deadline) {
        Ok(undone) => undone,
        Err(error) => return log_outcome(log, Level::Error, &error.to_string(), HookOutcome::Failed),
    };
    for undone in &undone {
        undone.log(log);
        analysis::start_and_log(config, undone, &runner, log);
    }
    if undone.iter().any(UndoReport::has_failed) { HookOutcome::Failed } else { HookOutcome::Succeeded }
}
