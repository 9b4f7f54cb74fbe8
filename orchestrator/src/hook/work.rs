//! The work of a hook, in a process that survives the hook. If the hook is killed, the work of a
//! prolog is undone, and an epilog continues to its end.

use super::{HookOutcome, HookStage};
use crate::analysis;
use crate::config::Config;
use crate::job::SlurmJob;
use crate::journal::State;
use crate::log::{Level, Log};
use crate::origin;
use crate::remote::{Files, RemoteError, SshRunner};
use crate::session;
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
    let runner = match SshRunner::new(config) {
        Ok(runner) => runner,
        Err(error) => return report_outcome(log_ssh_error(&error, &log)),
    };
    let deadline = Instant::now() + time_limit.saturating_sub(REPORT_MARGIN);
    let log = &log;
    match stage {
        HookStage::Epilog => report_outcome(epilog(config, job, &runner, log, deadline)),
        HookStage::Prolog => {
            let outcome = prolog(config, job, &runner, log, deadline);
            report_outcome(outcome);
            if outcome == HookOutcome::Succeeded && is_abandoned() {
                log.write(Level::Warning, "the prolog ended before its work was done: the capture is undone");
                epilog(config, job, &runner, log, Instant::now() + time_limit);
            }
        }
    }
    sweep_in_background(config, log);
}

/// Undoes what earlier jobs left, once the hook no longer waits for this process.
fn sweep_in_background(config: &Config, log: &Log) {
    let kept = State::open(&config.run.state_dir).map(|state| origin::keep_program(&state));
    if let Ok(Err(error)) = kept {
        log.write(Level::Warning, &format!("no copy of the program was kept for a later undo: {error}"));
    }
    // Each run's own log names its faults.
    if let Err(error) = sweep::sweep(&config.run.state_dir, Some(config)) {
        log.write(Level::Warning, &format!("earlier runs were not swept: {error}"));
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

fn prolog(config: &Config, job: &SlurmJob, runner: &dyn Files, log: &Log, deadline: Instant) -> HookOutcome {
    let began = Instant::now();
    match session::begin(config, job, runner, deadline) {
        Ok(begun) => {
            for undone in &begun.undone_runs {
                log.write(Level::Warning, "an earlier run with this job id had not ended, and was undone first");
                log_undo(undone, log);
            }
            begun.plan.warnings.iter().for_each(|warning| log.write(Level::Warning, warning));
            let started = &begun.summary;
            let text = format!(
                "capturing: {}, {} mirrored; started in {:.1} s, including {:.1} s to locate the nodes",
                plural(started.captures, "capture"),
                plural(started.ports, "port"),
                began.elapsed().as_secs_f64(),
                began.elapsed().saturating_sub(started.duration).as_secs_f64()
            );
            log_outcome(log, Level::Info, &text, HookOutcome::Succeeded)
        }
        Err(error) => log_outcome(log, Level::Error, &error.to_string(), HookOutcome::Failed),
    }
}

/// Undoes the capture of the job, whether or not the job requests one now: its comment may have
/// changed.
fn epilog(config: &Config, job: &SlurmJob, runner: &dyn Files, log: &Log, deadline: Instant) -> HookOutcome {
    let undone = match undo::job(config, job.id, runner, deadline) {
        Ok(undone) => undone,
        Err(error) => return log_outcome(log, Level::Error, &error.to_string(), HookOutcome::Failed),
    };
    for undone in &undone {
        log_undo(undone, log);
        analysis::start_and_log(config, undone, runner, log);
    }
    if undone.iter().all(|undone| undone.left.is_empty()) { HookOutcome::Succeeded } else { HookOutcome::Failed }
}

pub(crate) fn log_undo(undone: &UndoReport, log: &Log) {
    for capture in &undone.captures {
        let file = capture.fetched.as_ref().map_or(&capture.file, |fetched| &fetched.file);
        let packets = capture.ended.as_ref().and_then(|ended| ended.counted);
        let packets =
            packets.map_or("an unknown number of packets".to_owned(), |counted| plural(counted.packets, "packet"));
        log.write(Level::Info, &format!("{}: {packets} in {}", capture.node, file.display()));
        if capture.ended.as_ref().is_some_and(|ended| ended.counted.is_none() && ended.remarks.is_empty()) {
            let text = format!(
                "{}: the capture program printed no packet count at its end; check its file, and whether the disk is full",
                capture.node
            );
            log.write(Level::Warning, &text);
        }
        for remark in capture.ended.iter().flat_map(|ended| &ended.remarks) {
            log.write(Level::Warning, &format!("{}: {remark}", capture.node));
        }
    }
    if undone.left.is_empty() {
        let manifest =
            undone.manifest.as_ref().map_or(String::new(), |manifest| format!("; manifest {}", manifest.display()));
        log.write(Level::Info, &format!("undone{manifest}"));
    }
    for left in &undone.left {
        log.write(
            Level::Error,
            &format!("not undone: {left}; `ibscope capture undo --job {}` tries again", undone.job_id),
        );
    }
}
