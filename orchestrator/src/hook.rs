//! What Slurm's hooks do. A hook never keeps a job from running, unless the configuration wants it to: whatever goes wrong is undone, is told in the log, and
//! the hook ends well. It also ends in time: before Slurm would kill it.

use crate::config::Config;
use crate::follow;
use crate::job::{Hook, Job};
use crate::log::{Level, Log};
use crate::remote::{Files, RemoteError, Ssh};
use crate::session;
use crate::undo::{self, Undone};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Before or after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before it.
    Prolog,
    /// After it.
    Epilog,
}

/// What a hook came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job may go on.
    Well,
    /// Something failed; what follows from that is up to `run.fail_open`.
    Failed,
}

/// How long before the deadline work must end, so that there is time to say so.
const SPARE: Duration = Duration::from_millis(500);

/// Does what the hook is for, and is back by the deadline.
pub fn run(moment: Moment, config: Config, job: Job) -> Outcome {
    let end = Instant::now() + Duration::from_secs(u64::from(config.run.deadline_s));
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", job.id));
    if let Some(reason) = not_ours(moment, &job) {
        return told(&log, Level::Info, &reason, Outcome::Well);
    }
    if moment == Moment::Prolog && !config.selects(&job) {
        return Outcome::Well;
    }
    let (send, receive) = mpsc::channel();
    let deadline = end.checked_sub(SPARE).unwrap_or(end);
    let seconds = config.run.deadline_s;
    // In a thread of its own, so that nothing that hangs or panics is in the way of the answer.
    let worker = thread::Builder::new().spawn({
        let log = log.clone();
        move || {
            let outcome = work(moment, &config, &job, &log, deadline);
            // Nobody waits any more where the time is over.
            let _ = send.send(outcome);
        }
    });
    if let Err(error) = worker {
        return told(&log, Level::Error, &format!("no thread: {error}"), Outcome::Failed);
    }
    match receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let text = format!(
                "not done after {seconds} s (run.deadline_s): given up; the epilog or `ibscope capture undo` undoes what was begun"
            );
            told(&log, Level::Error, &text, Outcome::Failed)
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let text = "ibscope itself has failed; the epilog or `ibscope capture undo` undoes what was begun";
            told(&log, Level::Error, text, Outcome::Failed)
        }
    }
}

fn told(log: &Log, level: Level, text: &str, outcome: Outcome) -> Outcome {
    log.say(level, text);
    outcome
}

/// Why somebody else does the work. The hooks of a node run on every node of the job: one does it for all.
fn not_ours(moment: Moment, job: &Job) -> Option<String> {
    let matches = match job.hook? {
        Hook::PrologSlurmctld | Hook::PrologSlurmd => moment == Moment::Prolog,
        Hook::EpilogSlurmctld | Hook::EpilogSlurmd => moment == Moment::Epilog,
    };
    if !matches {
        return Some(format!(
            "{moment:?} was called as {:?}: nothing done; check the two scripts in slurm.conf",
            job.hook?
        ));
    }
    let of_node = matches!(job.hook, Some(Hook::PrologSlurmd | Hook::EpilogSlurmd));
    let (here, first) = (job.hook_node.as_ref()?, job.nodes.first()?);
    (of_node && here != first).then(|| format!("left to {first}, the job's first node"))
}

fn work(moment: Moment, config: &Config, job: &Job, log: &Log, deadline: Instant) -> Outcome {
    let runner = match Ssh::new(config) {
        Ok(runner) => runner,
        Err(error) => return no_way(&error, log),
    };
    match moment {
        Moment::Prolog => prolog(config, job, &runner, log, deadline),
        Moment::Epilog => epilog(config, job, &runner, log, deadline),
    }
}

fn no_way(error: &RemoteError, log: &Log) -> Outcome {
    told(log, Level::Error, &error.to_string(), Outcome::Failed)
}

fn prolog(config: &Config, job: &Job, runner: &dyn Files, log: &Log, deadline: Instant) -> Outcome {
    let began = Instant::now();
    match session::begin(config, job, runner, deadline) {
        Ok(begun) => {
            for undone in &begun.earlier {
                log.say(Level::Warning, "an earlier run under this id had not ended: undone first");
                say_undone(undone, log);
            }
            begun.plan.warnings.iter().for_each(|warning| log.say(Level::Warning, warning));
            let started = &begun.started;
            let text = format!(
                "capturing: {} captures, {} ports mirrored, after {:.1} s, {:.1} s of them for finding the nodes",
                started.captures,
                started.ports,
                began.elapsed().as_secs_f64(),
                began.elapsed().saturating_sub(started.took).as_secs_f64()
            );
            told(log, Level::Info, &text, Outcome::Well)
        }
        Err(error) => told(log, Level::Error, &error.to_string(), Outcome::Failed),
    }
}

/// Undoes what was begun for the job, whether or not the job asked for it: its comment may have changed.
fn epilog(config: &Config, job: &Job, runner: &dyn Files, log: &Log, deadline: Instant) -> Outcome {
    let undone = match undo::job(config, job.id, runner, deadline) {
        Ok(undone) => undone,
        Err(error) => return told(log, Level::Error, &error.to_string(), Outcome::Failed),
    };
    for undone in &undone {
        say_undone(undone, log);
        match follow::follow(config, undone, runner) {
            Ok(None) => {}
            Ok(Some(text)) => log.say(Level::Info, &text),
            Err(error) => log.say(Level::Error, &format!("the captures are not analysed: {error}")),
        }
    }
    if undone.iter().all(|undone| undone.left.is_empty()) { Outcome::Well } else { Outcome::Failed }
}

fn say_undone(undone: &Undone, log: &Log) {
    for capture in &undone.captures {
        let file = capture.fetched.as_ref().map_or(&capture.file, |fetched| &fetched.file);
        let packets = capture.ended.as_ref().and_then(|ended| ended.counted);
        let packets =
            packets.map_or("an unknown number of packets".to_owned(), |counted| format!("{} packets", counted.packets));
        log.say(Level::Info, &format!("{}: {packets} in {}", capture.node, file.display()));
        if capture.ended.as_ref().is_some_and(|ended| ended.counted.is_none() && ended.remarks.is_empty()) {
            let text = format!(
                "{}: the capture told nothing at its end: look at its file, and whether the disk is full",
                capture.node
            );
            log.say(Level::Warning, &text);
        }
        for remark in capture.ended.iter().flat_map(|ended| &ended.remarks) {
            log.say(Level::Warning, &format!("{}: {remark}", capture.node));
        }
    }
    if undone.left.is_empty() {
        let manifest =
            undone.manifest.as_ref().map_or(String::new(), |manifest| format!("; manifest {}", manifest.display()));
        log.say(Level::Info, &format!("undone{manifest}"));
    }
    for left in &undone.left {
        log.say(Level::Error, &format!("left: {left}; `ibscope capture undo --job {}` tries again", undone.job_id));
    }
}
