//! The context of all work on a run: the configuration, access to the nodes, the deadline, and the
//! log of commands.

use crate::config::Config;
use crate::folder::OwnerIds;
use crate::journal::now_ns;
use crate::manifest::{ClockExchange, CommandRun};
use crate::quote::argv_text;
use crate::remote::process::RemoteNode;
use crate::remote::{CommandOutput, Files, RemoteError};
use crate::step::{CommandCheck, MirrorStep, StepCommand};
use crate::text::printable;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for a question to a node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Ports of a leaf that are changed at the same time through the ssh server of one node. sshd refuses
/// some of more than ten connections that log in at the same time (`MaxStartups`).
const MAX_SESSIONS: usize = 9;

/// Number of times that a node is asked for its time.
const MAX_CLOCK_EXCHANGES: usize = 3;
/// No further clock exchange starts after this time.
const CLOCK_BUDGET: Duration = Duration::from_millis(60);

/// Context of work that has a deadline.
#[derive(Clone, Copy)]
pub(crate) struct RunContext<'a> {
    /// Configuration.
    pub(crate) config: &'a Config,
    /// Access to the nodes.
    pub(crate) runner: &'a dyn Files,
    /// Time at which the work must be done.
    pub(crate) deadline: Instant,
    /// Log of the commands that were run, for the manifest.
    pub(crate) command_log: Option<&'a Mutex<Vec<CommandRun>>>,
}

/// Reason for a failure, as a clause of a message.
pub(crate) type FailureText = String;

impl<'a> RunContext<'a> {
    /// Time until the deadline, at most `most`. An error if the deadline has passed.
    pub(crate) fn remaining(&self, most: Duration) -> Result<Duration, FailureText> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err("the deadline has passed (run.deadline_s)".to_owned()) } else { Ok(left.min(most)) }
    }

    /// Number of nodes to work on at the same time.
    pub(crate) fn parallelism(&self) -> usize {
        self.config.ssh.parallel as usize
    }

    /// Number of ports of a leaf to work on at the same time.
    pub(crate) fn parallelism_of(&self, step: &MirrorStep) -> usize {
        let is_remote = step.on.iter().any(|command| command.node.is_some());
        if is_remote { self.parallelism().min(MAX_SESSIONS) } else { self.parallelism() }
    }

    /// A node, for commands on it.
    pub(crate) fn node<'n>(&self, name: &'n str) -> Result<RemoteNode<'n>, FailureText>
    where
        'a: 'n,
    {
        self.node_or_here(Some(name))
    }

    /// A node, or the machine of the orchestrator for `None`.
    pub(crate) fn node_or_here<'n>(&self, name: Option<&'n str>) -> Result<RemoteNode<'n>, FailureText>
    where
        'a: 'n,
    {
        Ok(RemoteNode { runner: self.runner, name, timeout: self.remaining(ANSWER_TIMEOUT)? })
    }

    /// Runs and logs a command. An exit status other than 0 is an error.
    pub(crate) fn command(&self, command: &StepCommand) -> Result<CommandOutput, FailureText> {
        let timeout = self.remaining(Duration::from_secs(u64::from(command.timeout_s)))?;
        let (at_ns, began) = (now_ns(), Instant::now());
        let output = self.runner.run(command.node.as_deref(), &command.argv, timeout);
        let status = output.as_ref().ok().map(|output| output.status);
        let output = output.map_err(|error| error.to_string()).and_then(|output| {
            if output.is_success() {
                return Ok(output);
            }
            let printed = printable(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
            let place = command.node.as_deref().unwrap_or("here");
            Err(format!("{place}: `{}` ended with status {}: {printed}", argv_text(&command.argv), output.status))
        });
        let (node, argv) = (command.node.clone(), command.argv.clone());
        let took_ns = began.elapsed().as_nanos() as u64;
        self.log_command(CommandRun { node, argv, at_ns, took_ns, status, error: output.as_ref().err().cloned() });
        output
    }

    /// Adds a command to the log.
    pub(crate) fn log_command(&self, run: CommandRun) {
        if let Some(ran) = self.command_log {
            ran.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        }
    }

    /// The same context with a log of commands.
    pub(crate) fn with_command_log<'b>(self, ran: &'b Mutex<Vec<CommandRun>>) -> RunContext<'b>
    where
        'a: 'b,
    {
        RunContext { command_log: Some(ran), ..self }
    }

    /// Asks a node for its time, up to three times if it responds quickly: a short round trip has
    /// the smallest uncertainty. A node that does not respond has no exchange.
    pub(crate) fn clock_exchanges(&self, node: &str) -> Vec<ClockExchange> {
        let (began, mut exchanges) = (Instant::now(), Vec::new());
        while exchanges.len() < MAX_CLOCK_EXCHANGES && (exchanges.is_empty() || began.elapsed() < CLOCK_BUDGET) {
            let asked_ns = now_ns();
            let Some(printed) = self.node(node).ok().and_then(|node| node.query(&["/bin/date", "+%s%N"]).ok()) else {
                break;
            };
            let Ok(said_ns) = printed.trim().parse() else { break };
            exchanges.push(ClockExchange { asked_ns, said_ns, answered_ns: now_ns() });
        }
        exchanges
    }

    /// Runs a check. An error if its output is not the expected one.
    pub(crate) fn check(&self, check: &CommandCheck) -> Result<(), FailureText> {
        let output = self.command(&check.command)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        if check.is_met(&printed) {
            return Ok(());
        }
        let place = check.command.node.as_deref().unwrap_or("here");
        Err(format!("{place}: `{}` {}", argv_text(&check.command.argv), check.mismatch(&printed)))
    }

    /// Runs a program on the machine of the orchestrator and returns its output.
    pub(crate) fn run_here(&self, argv: &[&str]) -> Result<String, FailureText> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let output = self.command(&StepCommand { node: None, argv, timeout_s: 10 })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// User and group that the run's files are given to, as numbers on this machine.
    pub(crate) fn owner(&self) -> Result<Option<OwnerIds>, FailureText> {
        let Some(owner) = &self.config.capture.owner else { return Ok(None) };
        let number = |text: &str| {
            let found = text
                .trim()
                .parse()
                .map_err(|_| format!("capture.owner: {owner} is not a user or group of this machine: {text}"));
            found as Result<u32, FailureText>
        };
        // The controller may not know the users of the nodes.
        if let (Ok(user), None) = (owner.user.parse(), &owner.group) {
            return Ok(Some((user, None)));
        }
        let user = number(&self.run_here(&["/usr/bin/id", "-u", "--", &owner.user])?)?;
        let Some(group) = &owner.group else { return Ok(Some((user, None))) };
        let line = self.run_here(&["/usr/bin/getent", "group", group])?;
        Ok(Some((user, Some(number(line.split(':').nth(2).unwrap_or_default())?))))
    }

    /// An error if a folder on this machine has less than `bytes` free.
    pub(crate) fn check_free_space_here(&self, folder: &Path, bytes: u64) -> Result<(), FailureText> {
        check_free_space("here", folder, bytes, &self.run_here(&free_space_argv(&folder.to_string_lossy()))?)
    }

    /// An error if a folder on a node has less than `bytes` free.
    pub(crate) fn check_free_space_on(&self, node: &str, folder: &Path, bytes: u64) -> Result<(), FailureText> {
        let printed = self
            .node(node)?
            .query(&free_space_argv(&folder.to_string_lossy()))
            .map_err(|error: RemoteError| error.to_string())?;
        check_free_space(node, folder, bytes, &printed)
    }
}

/// Takes the commands out of the log.
pub(crate) fn take_commands(ran: &Mutex<Vec<CommandRun>>) -> Vec<CommandRun> {
    std::mem::take(&mut ran.lock().unwrap_or_else(PoisonError::into_inner))
}

fn free_space_argv(folder: &str) -> [&str; 6] {
    ["/usr/bin/stat", "-f", "-c", "%a %S", "--", folder]
}

/// Parses free blocks and block size, as `stat -f` prints them.
fn check_free_space(place: &str, folder: &Path, bytes: u64, printed: &str) -> Result<(), FailureText> {
    let mut numbers = printed.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(blocks)), Some(Ok(block_bytes))) = (numbers.next(), numbers.next()) else {
        return Err(format!("{place}: the free space of {} is unknown: stat printed {printed:?}", folder.display()));
    };
    let free = blocks.saturating_mul(block_bytes);
    if free < bytes {
        return Err(format!(
            "{place}: {} has {free} bytes free and needs {bytes}; free some space there",
            folder.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_free_blocks_times_block_size() {
        let folder = Path::new("/c");
        assert_eq!(check_free_space("n1", folder, 4096 * 10, "10 4096\n"), Ok(()));
        let refused = check_free_space("n1", folder, 4096 * 10 + 1, "10 4096\n").unwrap_err();
        assert_eq!(refused, "n1: /c has 40960 bytes free and needs 40961; free some space there");
        for nonsense in ["", "10", "a b", "10 -1"] {
            assert!(check_free_space("n1", folder, 1, nonsense).is_err(), "{nonsense}");
        }
    }
}
