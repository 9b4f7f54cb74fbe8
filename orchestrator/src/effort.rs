//! What all work on a run needs: the configuration, the way to the nodes, and how long it may take.

use crate::config::Config;
use crate::folder::Ids;
use crate::journal::now_ns;
use crate::manifest::{CommandRun, Exchange};
use crate::remote::process::Node;
use crate::remote::{Files, Output, RemoteError};
use crate::step::{Check, Command, shown};
use crate::text::printable;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A question to a node that takes longer has failed.
const ANSWER: Duration = Duration::from_secs(10);

/// How often a node is asked for the time.
const QUESTIONS: usize = 3;
/// No more questions when it took so long.
const FOR_THE_TIME: Duration = Duration::from_millis(60);

/// Work until a deadline.
#[derive(Clone, Copy)]
pub(crate) struct Effort<'a> {
    /// How things are done.
    pub(crate) config: &'a Config,
    /// Where they are done.
    pub(crate) runner: &'a dyn Files,
    /// Until when.
    pub(crate) deadline: Instant,
    /// Where commands are noted down.
    pub(crate) ran: Option<&'a Mutex<Vec<CommandRun>>>,
}

/// Something that was not done, a clause for people.
pub(crate) type Refusal = String;

impl<'a> Effort<'a> {
    /// Time that is left, at most so much; refused where there is none.
    pub(crate) fn time(&self, most: Duration) -> Result<Duration, Refusal> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err("no time is left (run.deadline_s)".to_owned()) } else { Ok(left.min(most)) }
    }

    /// Nodes that are worked on at a time.
    pub(crate) fn width(&self) -> usize {
        self.config.ssh.parallel as usize
    }

    /// A node, for questions about its processes.
    pub(crate) fn node<'n>(&self, name: &'n str) -> Result<Node<'n>, Refusal>
    where
        'a: 'n,
    {
        self.place(Some(name))
    }

    /// A node, or where the orchestrator runs.
    pub(crate) fn place<'n>(&self, name: Option<&'n str>) -> Result<Node<'n>, Refusal>
    where
        'a: 'n,
    {
        Ok(Node { runner: self.runner, name, timeout: self.time(ANSWER)? })
    }

    /// Runs a command that must end well.
    pub(crate) fn command(&self, command: &Command) -> Result<Output, Refusal> {
        let timeout = self.time(Duration::from_secs(u64::from(command.timeout_s)))?;
        let (at_ns, began) = (now_ns(), Instant::now());
        let output = self.runner.run(command.node.as_deref(), &command.argv, timeout);
        let status = output.as_ref().ok().map(|output| output.status);
        let output = output.map_err(|error| error.to_string()).and_then(|output| {
            if output.is_success() {
                return Ok(output);
            }
            let said = printable(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
            let place = command.node.as_deref().unwrap_or("here");
            Err(format!("{place}: `{}` ended with status {}: {said}", shown(&command.argv), output.status))
        });
        let (node, argv) = (command.node.clone(), command.argv.clone());
        let took_ns = began.elapsed().as_nanos() as u64;
        self.note(CommandRun { node, argv, at_ns, took_ns, status, error: output.as_ref().err().cloned() });
        output
    }

    /// Notes a command down that was run.
    pub(crate) fn note(&self, run: CommandRun) {
        if let Some(ran) = self.ran {
            ran.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        }
    }

    /// Work of which the commands are noted down.
    pub(crate) fn noting<'b>(self, ran: &'b Mutex<Vec<CommandRun>>) -> Effort<'b>
    where
        'a: 'b,
    {
        Effort { ran: Some(ran), ..self }
    }

    /// Asks a node for the time, a few times where it answers soon: the quickest answer tells the most. A node that does not answer has no clock.
    pub(crate) fn clock(&self, node: &str) -> Vec<Exchange> {
        let (began, mut exchanges) = (Instant::now(), Vec::new());
        while exchanges.len() < QUESTIONS && (exchanges.is_empty() || began.elapsed() < FOR_THE_TIME) {
            let asked_ns = now_ns();
            let Some(said) = self.node(node).ok().and_then(|node| node.ask(&["/bin/date", "+%s%N"]).ok()) else {
                break;
            };
            let Ok(said_ns) = said.trim().parse() else { break };
            exchanges.push(Exchange { asked_ns, said_ns, answered_ns: now_ns() });
        }
        exchanges
    }

    /// Whether something is so.
    pub(crate) fn check(&self, check: &Check) -> Result<(), Refusal> {
        let output = self.command(&check.command)?;
        let said = String::from_utf8_lossy(&output.stdout);
        if check.holds(&said) {
            return Ok(());
        }
        let place = check.command.node.as_deref().unwrap_or("here");
        Err(format!("{place}: `{}` {}", shown(&check.command.argv), check.instead(&said)))
    }

    /// Runs a program where the orchestrator runs, for what it prints.
    pub(crate) fn here(&self, argv: &[&str]) -> Result<String, Refusal> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let output = self.command(&Command { node: None, argv, timeout_s: 10 })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whom files of the run belong to in the end, by the numbers that names have here.
    pub(crate) fn owner(&self) -> Result<Option<Ids>, Refusal> {
        let Some(owner) = &self.config.capture.owner else { return Ok(None) };
        let number = |text: &str| {
            let found = text.trim().parse().map_err(|_| format!("capture.owner: {owner} is unknown here: {text}"));
            found as Result<u32, Refusal>
        };
        let user = number(&self.here(&["/usr/bin/id", "-u", "--", &owner.user])?)?;
        let Some(group) = &owner.group else { return Ok(Some((user, None))) };
        let line = self.here(&["/usr/bin/getent", "group", group])?;
        Ok(Some((user, Some(number(line.split(':').nth(2).unwrap_or_default())?))))
    }

    /// Refuses a folder here with less than so many bytes free.
    pub(crate) fn room_here(&self, folder: &Path, bytes: u64) -> Result<(), Refusal> {
        room("here", folder, bytes, &self.here(&room_argv(&folder.to_string_lossy()))?)
    }

    /// The same on a node.
    pub(crate) fn room_on(&self, node: &str, folder: &Path, bytes: u64) -> Result<(), Refusal> {
        let said = self
            .node(node)?
            .ask(&room_argv(&folder.to_string_lossy()))
            .map_err(|error: RemoteError| error.to_string())?;
        room(node, folder, bytes, &said)
    }
}

/// The commands that were noted down so far.
pub(crate) fn taken(ran: &Mutex<Vec<CommandRun>>) -> Vec<CommandRun> {
    std::mem::take(&mut ran.lock().unwrap_or_else(PoisonError::into_inner))
}

fn room_argv(folder: &str) -> [&str; 6] {
    ["/usr/bin/stat", "-f", "-c", "%a %S", "--", folder]
}

/// Reads free blocks and their size.
fn room(place: &str, folder: &Path, bytes: u64, said: &str) -> Result<(), Refusal> {
    let mut numbers = said.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(blocks)), Some(Ok(block_bytes))) = (numbers.next(), numbers.next()) else {
        return Err(format!("{place}: the free space of {} cannot be told: {said:?}", folder.display()));
    };
    let free = blocks.saturating_mul(block_bytes);
    if free < bytes {
        return Err(format!("{place}: {} has {free} bytes free and needs {bytes}; make room there", folder.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_free_blocks_times_their_size() {
        let folder = Path::new("/c");
        assert_eq!(room("n1", folder, 4096 * 10, "10 4096\n"), Ok(()));
        let refused = room("n1", folder, 4096 * 10 + 1, "10 4096\n").unwrap_err();
        assert_eq!(refused, "n1: /c has 40960 bytes free and needs 40961; make room there");
        for nonsense in ["", "10", "a b", "10 -1"] {
            assert!(room("n1", folder, 1, nonsense).is_err(), "{nonsense}");
        }
    }
}
