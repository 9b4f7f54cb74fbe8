//! What Slurm's hooks do. A hook never keeps a job from running, unless the configuration wants it to: whatever goes wrong is undone, is told in the log, and
//! the hook ends well. It also ends in time: before Slurm would kill it.
//!
//! The work is done by a process of its own in a process group of its own, because Slurm kills the hook of a job that is cancelled, with all of its group.

mod work;

use crate::config::Config;
use crate::job::{Hook, Job};
use crate::log::{Level, Log};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use work::work;

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

impl Outcome {
    /// How the work tells it to the hook.
    fn byte(self) -> u8 {
        match self {
            Self::Well => b'w',
            Self::Failed => b'f',
        }
    }
}

/// Does what the hook is for, and is back by the deadline. `worker` is a program that calls [`work`] with the same moment, configuration and job.
pub fn run(moment: Moment, config: &Config, job: &Job, worker: Command) -> Outcome {
    let end = Instant::now() + Duration::from_secs(u64::from(config.run.deadline_s));
    let log = Log::open(config.run.log.as_deref(), config.run.syslog, &format!("job {}", job.id));
    if let Some(reason) = not_ours(moment, job) {
        log.say(Level::Info, &reason);
        return Outcome::Well;
    }
    if moment == Moment::Prolog && !config.selects(job) {
        return Outcome::Well;
    }
    let (what, remedy) = match attend(worker, end) {
        Ok(Some(outcome)) => return outcome,
        Ok(None) if moment == Moment::Prolog => (
            format!("not done after {} s (run.deadline_s): given up", config.run.deadline_s),
            "what was begun is undone",
        ),
        Ok(None) => (format!("not done after {} s (run.deadline_s)", config.run.deadline_s), "it goes on beside this"),
        Err(error) => (
            format!("ibscope itself has failed: {error}"),
            "the epilog or `ibscope capture undo` undoes what was begun",
        ),
    };
    log.say(Level::Error, &format!("{what}; {remedy}"));
    Outcome::Failed
}

/// Starts the worker and waits for its word until `end`; nothing where it has not come by then. The worker learns from the pipe that it reads whether this
/// process has heard it.
fn attend(mut worker: Command, end: Instant) -> io::Result<Option<Outcome>> {
    let mut child = worker
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()?;
    let (Some(mut answer), Some(mut said)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("the worker has no pipes"));
    };
    let (send, receive) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let mut byte = [0];
        // Nobody waits any more where the time is over.
        let _ = send.send(said.read_exact(&mut byte).map(|()| byte[0]));
    })?;
    match receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        Ok(Ok(byte)) => {
            let outcome = if byte == Outcome::Well.byte() { Outcome::Well } else { Outcome::Failed };
            // A worker that does not listen has nothing to undo.
            let _ = answer.write_all(b"k");
            Ok(Some(outcome))
        }
        Ok(Err(_)) => Err(io::Error::other(format!("the work ended without a word, {}", child.wait()?))),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(io::Error::other("nobody reads the worker's word")),
    }
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
