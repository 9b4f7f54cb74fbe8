//! Processes that outlive the connection that started them: captures on nodes. Started, found again, looked at, signalled.
//!
//! A process is known by its id together with its start time and the boot it belongs to, so that nobody else is signalled when ids come round again. Where it
//! is not known, because whoever started it was killed before it could write the id down, it is found by its arguments.

use super::local::HERE;
use super::{RemoteError, Runner, script};
use crate::step::CaptureStep;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The program's name in errors: all of this is done by `/bin/sh`.
const SHELL: &str = "/bin/sh";

/// A process on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// The boot.
    pub boot_id: String,
}

/// A signal that ends a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Signal {
    /// As Ctrl-C: the file is written to its end.
    Int,
    /// The same, for a program that is deaf to the first.
    Term,
    /// The end of the file is lost.
    Kill,
}

impl Signal {
    /// As `kill -s` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::Term => "TERM",
            Self::Kill => "KILL",
        }
    }
}

/// How a capture is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Its process runs.
    pub alive: bool,
    /// Size of its file, where there is one.
    pub bytes: Option<u64>,
    /// The end of what it has said.
    pub log: String,
}

/// What became of a launch that nobody saw the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It had not begun, and will not any more.
    Claimed,
    /// It had begun.
    Begun,
    /// The folder of the capture is not there, so it could not begin.
    Nowhere,
}

/// What was found of a capture's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// A launch is under way.
    pub launching: bool,
    /// The processes, in the order of `/proc`.
    pub processes: Vec<Process>,
    /// The boot that the node is in.
    pub boot_id: String,
}

/// A node of which processes are asked.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// Runs what asks.
    pub runner: &'a dyn Runner,
    /// Its name; none where the orchestrator runs.
    pub name: Option<&'a str>,
    /// A question that takes longer has failed.
    pub timeout: Duration,
}

impl Node<'_> {
    /// Runs one of the scripts; its standard output when it ended well.
    fn script(&self, text: &str, arguments: &[&str], extra: Duration) -> Result<String, RemoteError> {
        let argv: Vec<String> =
            [SHELL, "-c", text, "sh"].iter().chain(arguments).map(|&word| word.to_owned()).collect();
        let output = self.runner.run(self.name, &argv, self.timeout + extra)?;
        if !output.is_success() {
            let said = crate::text::printable(&output.stderr);
            return Err(self.failed(format!(
                "status {}{}{said}",
                output.status,
                if said.is_empty() { "" } else { ": " }
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn failed(&self, what: String) -> RemoteError {
        RemoteError::Command { node: self.name.unwrap_or(HERE).to_owned(), command: SHELL.to_owned(), what }
    }

    /// Starts a capture on its own, away from the connection; its process. That does not mean that it captures: see [`Node::look`].
    pub fn launch(&self, step: &CaptureStep) -> Result<Process, RemoteError> {
        let log = text(&step.log);
        let mut arguments = vec![script::SUPERVISE, script::BECOME, log.as_str()];
        arguments.extend(step.argv.iter().map(String::as_str));
        let said = self.script(script::LAUNCH, &arguments, Duration::ZERO).map_err(|error| match error {
            RemoteError::Command { what, .. } if what.starts_with("status 90") => self.failed(format!(
                "the log {log} cannot be created: {what}; its folder must be there, and no earlier run may have left it"
            )),
            other => other,
        })?;
        let (boot_id, stat) = said.trim_end().split_once(' ').unwrap_or_default();
        let (pid, start_ticks) =
            of_stat(stat).ok_or_else(|| self.failed(format!("the process of {} could not be told", step.argv[0])))?;
        Ok(Process { pid, start_ticks, boot_id: boot_id.to_owned() })
    }

    /// Calls a launch off that may or may not have begun.
    pub fn claim(&self, log: &Path) -> Result<Claim, RemoteError> {
        match self.script(script::CLAIM, &[&text(log)], Duration::ZERO)?.trim_end() {
            "claimed" => Ok(Claim::Claimed),
            "started" => Ok(Claim::Begun),
            "nowhere" => Ok(Claim::Nowhere),
            other => Err(self.failed(format!("unexpected answer {other:?}"))),
        }
    }

    /// How a capture is doing.
    pub fn look(&self, step: &CaptureStep, process: &Process) -> Result<Sight, RemoteError> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        let said = self.script(script::LOOK, &[&pid, &start, &text(&step.file), &text(&step.log)], Duration::ZERO)?;
        let (first, log) = said.split_once('\n').unwrap_or((&said, ""));
        let (alive, size) = first.split_once(' ').unwrap_or_default();
        Ok(Sight { alive: alive == "alive", bytes: size.parse().ok(), log: log.to_owned() })
    }

    /// Whether a process runs; a zombie does not.
    pub fn is_alive(&self, process: &Process) -> Result<bool, RemoteError> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        Ok(self.script(script::LOOK, &[&pid, &start, "", ""], Duration::ZERO)?.starts_with("alive"))
    }

    /// Signals a process and waits for its end; whether it came. One that is gone already is not signalled, nor is another one of the same id.
    pub fn signal(&self, process: &Process, signal: Signal, wait: Duration) -> Result<bool, RemoteError> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        let turns = (wait.as_millis() / 50).max(1).to_string();
        // The turns take a little longer than what they wait.
        let said = self.script(script::SIGNAL, &[&pid, &start, signal.name(), &turns], wait * 2)?;
        Ok(said.trim_end() == "gone")
    }

    /// Looks for a capture's processes by their arguments.
    pub fn find(&self, step: &CaptureStep) -> Result<Found, RemoteError> {
        Ok(found(&self.script(script::FIND, &["-e", &text(&step.file)], Duration::ZERO)?, step))
    }

    /// Whether one of these commands is still under way: who started it may be gone.
    pub(crate) fn is_running(&self, commands: &[&[String]]) -> Result<bool, RemoteError> {
        let tokens = commands.iter().filter_map(|argv| argv.last()).flat_map(|argument| ["-e", argument.as_str()]);
        let said = self.script(script::FIND, &tokens.collect::<Vec<_>>(), Duration::ZERO)?;
        let finds = |arguments: &[&str]| arguments.iter().any(|argument| argument.starts_with(script::FINDS));
        let (listed, _) = listed(&said);
        // What runs it is as good as the command itself: it comes before it.
        Ok(listed.iter().any(|(_, arguments)| !finds(arguments) && commands.iter().any(|argv| is_of(arguments, argv))))
    }

    /// Runs a program for what it prints.
    pub(crate) fn ask(&self, argv: &[&str]) -> Result<String, RemoteError> {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        let output = self.runner.run(self.name, &argv, self.timeout)?;
        if !output.is_success() {
            let what = format!("status {}: {}", output.status, crate::text::printable(&output.stderr));
            return Err(RemoteError::Command {
                node: self.name.unwrap_or(HERE).to_owned(),
                command: argv[0].clone(),
                what,
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Who asks, and who owns a folder and those above it: see [`script::FOLDER`].
    pub(crate) fn folders(&self, folder: &Path) -> Result<String, RemoteError> {
        self.script(script::FOLDER, &[&text(folder)], Duration::ZERO)
    }

    /// Makes a folder for the user who asks.
    pub(crate) fn make_folder(&self, folder: &Path) -> Result<(), RemoteError> {
        self.script(script::MAKE, &[&text(folder)], Duration::ZERO).map(drop)
    }

    /// SHA-256 of the first bytes of a file, in hex.
    pub(crate) fn hash(&self, file: &Path, bytes: u64) -> Result<String, RemoteError> {
        let said = self.script(script::HASH, &[&text(file), &bytes.to_string()], Duration::ZERO)?;
        Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

/// Exit status of a capture, which its supervisor adds to the log.
pub fn exit_status(log: &str) -> Option<i32> {
    log.lines().rev().find_map(|line| line.strip_prefix(script::EXIT_STATUS))?.trim().parse().ok()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Process id and start time of a line of `/proc/PID/stat`. The program's name stands in brackets and may hold any character.
fn of_stat(line: &str) -> Option<(u32, u64)> {
    let pid = line.split(' ').next()?.parse().ok()?;
    let fields = line.rsplit_once(") ")?.1;
    Some((pid, fields.split(' ').nth(19)?.parse().ok()?))
}

/// Reads what [`script::FIND`] prints: processes with their arguments, and the boot.
fn listed(said: &str) -> (Vec<(Process, Vec<&str>)>, &str) {
    let (listed, boot_id) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim_end()));
    let mut processes: Vec<(Process, Vec<&str>)> = Vec::new();
    for line in listed.lines() {
        if let (Some(argument), Some((_, arguments))) = (line.strip_prefix('A'), processes.last_mut()) {
            arguments.push(argument);
            continue;
        }
        let mut fields = line.split(' ').skip(1);
        if let (Some(Ok(pid)), Some(Ok(start_ticks))) = (fields.next().map(str::parse), fields.next().map(str::parse)) {
            processes.push((Process { pid, start_ticks, boot_id: boot_id.to_owned() }, Vec::new()));
        }
    }
    (processes, boot_id)
}

/// The capture's processes among those that are listed.
fn found(said: &str, step: &CaptureStep) -> Found {
    let (listed, boot_id) = listed(said);
    let mut found = Found { boot_id: boot_id.to_owned(), ..Found::default() };
    for (process, arguments) in listed {
        let begins = |how: &str| arguments.iter().any(|argument| argument.starts_with(how));
        if begins(script::LAUNCHES) {
            found.launching = true;
        } else if !begins(script::OURS) && is_of(&arguments, &step.argv) {
            found.processes.push(process);
        }
    }
    found
}

/// Whether a process with these arguments is one of the command's: they end as the command does. Its first word may have changed, or have others before it,
/// where the program is a script or starts another one. Somebody who only reads the capture's file has other arguments.
fn is_of(arguments: &[&str], argv: &[String]) -> bool {
    let tail = if argv.len() > 1 { &argv[1..] } else { argv };
    arguments.len() >= argv.len() && arguments[arguments.len() - tail.len()..].iter().eq(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CaptureBackend;
    use std::path::PathBuf;

    fn step() -> CaptureStep {
        CaptureStep {
            node: "n1".to_owned(),
            argv: ["/usr/bin/ibdump", "-d", "mlx5_0", "-w", "/c/7.pcap"].map(str::to_owned).to_vec(),
            file: PathBuf::from("/c/7.pcap"),
            log: PathBuf::from("/c/7.log"),
            backend: CaptureBackend::Ibdump,
        }
    }

    #[test]
    fn a_name_in_stat_may_hold_brackets_and_spaces() {
        let line = "812 (a) S 1 (b) S 1 812 812 0 -1 4194304 90 0 0 0 0 0 0 0 20 0 1 0 4711 2461696 200";
        assert_eq!(of_stat(line), Some((812, 4711)));
        for broken in
            ["", "812", "812 (a", "812 (a) S 1 2", "x (a) S 1 812 812 0 -1 4194304 90 0 0 0 0 0 0 0 20 0 1 0 4711 9"]
        {
            assert_eq!(of_stat(broken), None, "{broken}");
        }
    }

    /// Who reads the file, and our own scripts, are no captures; a script in place of the program is.
    #[test]
    fn processes_are_told_by_their_arguments() {
        let said = "P 1 10 S\nA/bin/sh\nA-c\nA: ibscope-launch; read\nAsh\nA/usr/bin/ibdump\nA-d\nAmlx5_0\nA-w\nA/c/7.pcap\n\
             P 2 20 S\nAtail\nA-f\nA/c/7.pcap\nP 3 30 S\nAtcpdump\nA-r\nA/c/7.pcap\n\
             P 4 40 R\nA/usr/bin/ibdump\nA-d\nAmlx5_0\nA-w\nA/c/7.pcap\nP 5 50 S\nA/bin/sh\nA/usr/bin/ibdump\nA-d\nAmlx5_0\nA-w\nA/c/7.pcap\n\
             P 6 60 S\nA/bin/sh\nA-c\nA: ibscope-find; x\nAsh\nA/c/7.pcap\nboot-1\n";
        let found = found(said, &step());
        assert!(found.launching);
        let ids: Vec<(u32, u64)> = found.processes.iter().map(|process| (process.pid, process.start_ticks)).collect();
        assert_eq!(ids, [(4, 40), (5, 50)]);
        assert!(found.boot_id == "boot-1" && found.processes.iter().all(|process| process.boot_id == "boot-1"));
        assert_eq!(super::found("boot-1\n", &step()), Found { boot_id: "boot-1".to_owned(), ..Found::default() });
    }

    #[test]
    fn the_last_exit_status_counts() {
        assert_eq!(exit_status("a\nibscope: exit status 3\n"), Some(3));
        assert_eq!(exit_status("ibscope: exit status 3\nb\n\nibscope: exit status 0\n"), Some(0));
        assert_eq!(exit_status("Captured: 3 packets\n"), None);
    }
}
