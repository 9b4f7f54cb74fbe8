//! Nodes that a job released while it is captured: a smaller job (`scontrol update NumNodes`), or a job
//! that continues without a failed node. Slurm gives them to other jobs.
//!
//! The sweeper ends the mirroring of their ports, if the commands of the plan can do this port by port.
//! Otherwise it stays until the end of the run. In both cases the log and the manifest say so. The steps
//! stay in the journal, so that the end of the run undoes them again, and no other run uses these ports.

use crate::config::Config;
use crate::context::{self, FailureText, RunContext};
use crate::guid;
use crate::journal::{Journal, JournalEntry, RunPhase, RunRecord, State, StepProgress, StoredJournal, now_ns};
use crate::log::{Level, Log};
use crate::manifest::CommandRun;
use crate::remote::SshRunner;
use crate::step::{MirrorStep, PlanStep};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time limit for all commands.
const TIME_LIMIT: Duration = Duration::from_mins(5);
/// End of each note.
const CONSEQUENCE: &str = "has the packets of other jobs on it, which may belong to other users; see \"Jobs that release nodes\" in \
                           privacy.md";

/// Ends the mirroring of the ports of nodes that a running job has released, and notes it in the journal
/// and the log. If another process works on the job, the next sweep does this.
pub(super) fn free(config: &Config, state: &State, stored: &StoredJournal, nodes: &[String]) {
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", stored.job_id));
    let Ok(lock) = state.lock_job(stored.job_id, Instant::now()) else { return };
    let runner = match SshRunner::new(config) {
        Ok(runner) => runner,
        Err(error) => return log.write(Level::Error, &error.to_string()),
    };
    let Ok(journal) = state.reopen(&stored.path, lock) else { return };
    if journal.record().phase == RunPhase::Running {
        let deadline = Instant::now() + TIME_LIMIT;
        let context = RunContext { config, runner: &runner, deadline, command_log: None };
        note(&journal, nodes, &log, |step, port| {
            let ran = Mutex::default();
            let ended = end_mirror(context.with_command_log(&ran), step, port);
            (ended, context::take_commands(&ran))
        });
    }
}

/// Notes at the end of a run which nodes its job has released, unless a sweep did.
pub(crate) fn note_at_end(journal: &Journal, nodes: &[String], log: &Log) {
    note(journal, nodes, log, |_, _| (Err("no sweep noticed it".to_owned()), Vec::new()));
}

/// Writes what is new about the steps that concern released nodes. `end` ends the mirroring of a port,
/// and returns the commands that it ran.
fn note(
    journal: &Journal,
    nodes: &[String],
    log: &Log,
    end: impl Fn(&MirrorStep, u8) -> (Result<(), FailureText>, Vec<CommandRun>),
) {
    let record = journal.record();
    for (place, (step, progress)) in record.plan.steps.iter().zip(&record.progress).enumerate() {
        if !matches!(progress, StepProgress::Started | StepProgress::Done(_)) {
            continue;
        }
        let known = record.failed.get(&place).map_or("", String::as_str);
        let (mut notes, mut reasons, mut ran) = (Vec::new(), Vec::new(), Vec::new());
        match step {
            PlanStep::Mirror(step) => {
                for (node, port) in ports_of(&record, step, nodes) {
                    let [ended, left] = texts(step, node, port);
                    if known.contains(&ended) {
                        notes.push(ended);
                        continue;
                    }
                    let (result, mut commands) = end(step, port);
                    ran.append(&mut commands);
                    notes.push(if result.is_ok() { ended } else { left });
                    reasons.extend(result.err());
                }
            }
            PlanStep::Capture(step) if nodes.contains(&step.node) => notes.push(format!(
                "{}: the job released this node, and the capture there goes on until the end of the run: it {CONSEQUENCE}",
                step.node
            )),
            PlanStep::Capture(_) | PlanStep::Hostfile(_) => {}
        }
        let what = notes.join("; ");
        if what.is_empty() || what == known {
            continue;
        }
        let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        log.write(Level::Warning, &format!("{what}{why}"));
        if let Err(error) = journal.write(&JournalEntry::Failed { at_ns: now_ns(), step: place, what, ran }) {
            log.write(Level::Warning, &format!("the manifest will not have this warning: {error}"));
        }
    }
}

/// The mirrored ports of released nodes in a step: node and port.
fn ports_of<'a>(
    record: &'a RunRecord,
    step: &'a MirrorStep,
    nodes: &'a [String],
) -> impl Iterator<Item = (&'a str, u8)> {
    let is_mirrored = |port: u8, leaf: u64| leaf == step.leaf_guid && step.ports.contains(&port);
    let released = record.plan.compute.iter().filter(|port| nodes.contains(&port.node));
    released
        .filter(move |port| is_mirrored(port.leaf_port, port.leaf_guid))
        .map(|port| (port.node.as_str(), port.leaf_port))
}

/// The note on a port whose mirroring was ended, and the one on a port that stays mirrored.
fn texts(step: &MirrorStep, node: &str, port: u8) -> [String; 2] {
    let (leaf, sink) = (guid::text(step.leaf_guid), &step.sink);
    [
        format!(
            "{node}: the job released this node; until the sweeper ended the mirroring of port {port} of leaf {leaf}, the \
             capture on {sink} {CONSEQUENCE}"
        ),
        format!(
            "{node}: the job released this node, and port {port} of leaf {leaf} stays mirrored until the end of the run: the \
             capture on {sink} {CONSEQUENCE}"
        ),
    ]
}

/// Ends the mirroring of one port of a step, and checks it where the step can.
fn end_mirror(context: RunContext<'_>, step: &MirrorStep, port: u8) -> Result<(), FailureText> {
    let commands = of_port(&step.off, step, port).ok_or("a command of [mirror.command] ends several ports together")?;
    commands.iter().try_for_each(|command| context.command(command).map(drop))?;
    of_port(&step.check_off, step, port).unwrap_or_default().iter().try_for_each(|check| context.check(check))
}

/// The commands of a step, or its checks, that concern one port only. They are in the order of the ports,
/// with the same number for each port, and that of the analyzer is the last one. `None` if a command
/// concerns several ports.
fn of_port<'a, T>(commands: &'a [T], step: &MirrorStep, port: u8) -> Option<&'a [T]> {
    let place = step.ports.iter().position(|&mirrored| mirrored == port)?;
    let count = commands.len().checked_sub(usize::from(step.analyzer.is_some()))?;
    let per_port = (count > 0 && count.is_multiple_of(step.ports.len())).then(|| count / step.ports.len())?;
    commands.get(place * per_port..(place + 1) * per_port)
}
