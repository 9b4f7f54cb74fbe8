//! The prolog and epilog that Slurm calls for each job.
//!
//! A failed hook undoes its changes and logs the reason, but lets the job run unless
//! `run.fail_open` is false. A hook ends within `run.deadline_s`, before Slurm would kill it.
//!
//! A worker process does the work, in a process group of its own: when a job is canceled, Slurm
//! kills the hook with its whole process group.

mod admin_comment;
mod other_jobs;
mod work;

use crate::config::{Config, MirrorBackend};
use crate::job::{SlurmHook, SlurmJob};
use crate::log::{Level, Log};
use crate::remote::SshRunner;
use crate::status;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use work::work;

/// Warns in the log if other jobs run on the nodes of a job that is about to start. A thread asks Slurm, so
/// that the start does not wait for the answer.
pub fn warn_of_other_jobs(config: &Config, job: &SlurmJob) -> io::Result<thread::JoinHandle<()>> {
    let (config, job) = (config.clone(), job.clone());
    thread::Builder::new().spawn(move || {
        if let Some(text) = other_jobs::warning(&config, &job, &status::slurm_here(&config)) {
            let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", job.id));
            log.write(Level::Warning, &text);
        }
    })
}

/// Whether a hook runs before or after its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookStage {
    /// Before the job.
    Prolog,
    /// After the job.
    Epilog,
}

/// Outcome of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookOutcome {
    /// The job may go on.
    Succeeded,
    /// A step failed; `run.fail_open` decides whether the job starts.
    Failed,
}

impl HookOutcome {
    /// Byte that the worker sends to the hook.
    fn byte(self) -> u8 {
        match self {
            Self::Succeeded => b'w',
            Self::Failed => b'f',
        }
    }
}

/// Runs a hook, and returns by its deadline. `worker` is a program that calls [`work`] with the
/// same stage, configuration and job.
pub fn run(stage: HookStage, config: &Config, job: &SlurmJob, worker: Command) -> HookOutcome {
    let end = Instant::now() + Duration::from_secs(u64::from(config.run.deadline_s));
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", job.id));
    if let Some(reason) = skip_reason(stage, job) {
        log.write(Level::Info, &reason);
        return HookOutcome::Succeeded;
    }
    if stage == HookStage::Prolog && !config.selects(job) {
        if let Some(word) = config.mistyped_word(job) {
            let text =
                format!("not captured: the job has {word:?}, but a capture is requested with {:?}", config.run.word);
            refuse(config, job, &text, &log);
        }
        return HookOutcome::Succeeded;
    }
    if let Some(text) = node_hook_fault(stage, config, job) {
        // Exit status 1 would drain the node of every job.
        log.write(Level::Error, text);
        return HookOutcome::Succeeded;
    }
    if stage == HookStage::Prolog
        && let Some(text) = config.refusal(job)
    {
        refuse(config, job, &text, &log);
        return HookOutcome::Succeeded;
    }
    let (what, remedy) = match wait_for_worker(worker, end) {
        Ok(Some(outcome)) => return outcome,
        Ok(None) if stage == HookStage::Prolog => {
            (format!("not done after {} s (run.deadline_s): aborted", config.run.deadline_s), "the capture is undone")
        }
        Ok(None) => (
            format!("not done after {} s (run.deadline_s)", config.run.deadline_s),
            "the work continues in the background",
        ),
        Err(error) => (
            format!("the worker process of the hook failed: {error}"),
            "the epilog or `ibscope capture undo` undoes the capture",
        ),
    };
    log.write(Level::Error, &format!("{what}; {remedy}"));
    HookOutcome::Failed
}

/// Reports why a job is not captured, to the log and to the user.
fn refuse(config: &Config, job: &SlurmJob, text: &str, log: &Log) {
    log.write(Level::Warning, text);
    if let Ok(runner) = SshRunner::new(config) {
        admin_comment::set(config, &runner, job.id, text, log);
    }
}

/// Starts the worker and waits until `end` for its outcome; `None` if it has not come by then. The
/// byte in reply shows the worker that the hook received its outcome.
fn wait_for_worker(mut worker: Command, end: Instant) -> io::Result<Option<HookOutcome>> {
    let mut child = worker
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()?;
    let (Some(mut reply), Some(mut outcome_pipe)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("it has no pipes"));
    };
    let (send, receive) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let mut byte = [0];
        // The receiver is gone if the deadline has passed.
        let _ = send.send(outcome_pipe.read_exact(&mut byte).map(|()| byte[0]));
    })?;
    match receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        Ok(Ok(byte)) => {
            let outcome =
                if byte == HookOutcome::Succeeded.byte() { HookOutcome::Succeeded } else { HookOutcome::Failed };
            // A worker that does not read the reply has nothing to undo.
            let _ = reply.write_all(b"k");
            Ok(Some(outcome))
        }
        Ok(Err(_)) => Err(io::Error::other(format!("it ended without an outcome, {}", child.wait()?))),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("the thread that reads the worker's outcome ended"))
        }
    }
}

/// Reason why a hook of a node does not start a capture: each node has a state folder of its own, so
/// the hooks of two nodes could choose the same sink, or the same analyzer of a switch.
fn node_hook_fault(stage: HookStage, config: &Config, job: &SlurmJob) -> Option<&'static str> {
    let is_shared = config.mirror.backend != MirrorBackend::None;
    (stage == HookStage::Prolog && job.hook == Some(SlurmHook::PrologSlurmd) && is_shared).then_some(
        "not captured: as Prolog of the nodes, ibscope mirrors no ports, because nodes do not know which sinks the hooks of \
         others use; use PrologSlurmctld, or mirror.backend = \"none\"",
    )
}

/// Reason why this call does nothing. Slurm calls the hooks of slurmd on every node of a job; only
/// the job's first node does the work.
fn skip_reason(stage: HookStage, job: &SlurmJob) -> Option<String> {
    let matches = match job.hook? {
        SlurmHook::PrologSlurmctld | SlurmHook::PrologSlurmd => stage == HookStage::Prolog,
        SlurmHook::EpilogSlurmctld | SlurmHook::EpilogSlurmd => stage == HookStage::Epilog,
    };
    if !matches {
        return Some(format!(
            "ibscope's {stage:?} script was called as {:?}: nothing is done; check whether slurm.conf swaps the two scripts",
            job.hook?
        ));
    }
    let of_node = matches!(job.hook, Some(SlurmHook::PrologSlurmd | SlurmHook::EpilogSlurmd));
    let (here, first) = (job.hook_node.as_ref()?, job.nodes.first()?);
    (of_node && here != first).then(|| format!("nothing is done here: {first}, the job's first node, does the work"))
}
