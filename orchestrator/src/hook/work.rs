//! The work of a hook. It goes on when whoever started it is killed: a prolog is undone then, an epilog comes to its end.

use super::{Moment, Outcome};
use crate::config::Config;
use crate::follow;
use crate::job::Job;
use crate::log::{Level, Log};
use crate::remote::{Files, RemoteError, Ssh};
use crate::session;
use crate::undo::{self, Undone};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// How long before the hook's deadline work must end, so that there is time to say so.
const SPARE: Duration = Duration::from_millis(500);

/// Does what a hook is for, tells the hook by a byte on the standard output, and waits for its answer on the standard input.
pub fn work(moment: Moment, config: &Config, job: &Job) {
    let patience = Duration::from_secs(u64::from(config.run.deadline_s));
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", job.id));
    let runner = match Ssh::new(config) {
        Ok(runner) => runner,
        Err(error) => return tell(no_way(&error, &log)),
    };
    let deadline = Instant::now() + patience.saturating_sub(SPARE);
    match moment {
        Moment::Epilog => tell(epilog(config, job, &runner, &log, deadline)),
        Moment::Prolog => {
            let outcome = prolog(config, job, &runner, &log, deadline);
            tell(outcome);
            if outcome == Outcome::Well && is_abandoned() {
                log.say(Level::Warning, "the prolog was ended before it was done: what was begun is undone");
                epilog(config, job, &runner, &log, Instant::now() + patience);
            }
        }
    }
}

fn tell(outcome: Outcome) {
    // Nobody may listen any more.
    drop(io::stdout().write_all(&[outcome.byte()]).and_then(|()| io::stdout().flush()));
}

/// Slurm kills a prolog when its job is cancelled, and sometimes the epilog with it. The hook answers by a byte; it ends without one when it is killed.
fn is_abandoned() -> bool {
    !matches!(io::stdin().read(&mut [0]), Ok(1))
}

fn told(log: &Log, level: Level, text: &str, outcome: Outcome) -> Outcome {
    log.say(level, text);
    outcome
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
