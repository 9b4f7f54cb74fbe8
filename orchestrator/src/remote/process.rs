//! Processes on nodes that outlive the connection that started them: starts captures, finds them,
//! shows their status, and signals them.
//!
//! A process is identified by its id, its start time and the boot of the node, so that a reused id
//! never gets a signal. If the process that started a capture was killed before it recorded the id,
//! the capture is found by its arguments.

use super::local::HERE;
use super::{CommandOutput, RemoteError, Runner, script};
use crate::capture::CaptureLimit;
use crate::step::CaptureStep;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Program name in errors, because `/bin/sh` runs all scripts.
const SHELL: &str = "/bin/sh";

/// A process on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteProcess {
    /// Process id.
    pub pid: u32,
    /// Start time, in clock ticks since the boot.
    pub start_ticks: u64,
    /// Id of the boot.
    pub boot_id: String,
}

/// A signal that ends a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Signal {
    /// Like Ctrl-C: the program completes its file.
    Int,
    /// The same, for a program that ignores SIGINT.
    Term,
    /// The end of the file is lost.
    Kill,
}

impl Signal {
    /// Name of the signal for `kill -s`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::Term => "TERM",
            Self::Kill => "KILL",
        }
    }
}

/// Status of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureStatus {
    /// True if its process runs.
    pub alive: bool,
    /// Size of its file, if the file exists.
    pub bytes: Option<u64>,
    /// Number of files of its ring.
    pub ring_files: u32,
    /// End of its log.
    pub log: String,
}

/// Result of canceling a launch whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchCancellation {
    /// The launch had not begun, and can no longer begin.
    Canceled,
    /// The launch had begun.
    AlreadyStarted,
    /// The folder of the capture does not exist, so the launch could not begin.
    NoFolder,
}

/// Processes of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureProcesses {
    /// True if a launch is in progress.
    pub launching: bool,
    /// Processes of the capture, in the order of `/proc`.
    pub processes: Vec<RemoteProcess>,
    /// Id of the node's current boot.
    pub boot_id: String,
}

/// A node whose processes are inspected.
#[derive(Clone, Copy)]
pub struct RemoteNode<'a> {
    /// Access to the node.
    pub runner: &'a dyn Runner,
    /// Name of the node; `None` for the orchestrator's machine.
    pub name: Option<&'a str>,
    /// Time limit of each call.
    pub timeout: Duration,
}

impl RemoteNode<'_> {
    /// Runs a script and returns its standard output. An exit status other than 0 is an error.
    fn script(&self, text: &str, arguments: &[&str], extra: Duration) -> Result<String, RemoteError> {
        let argv: Vec<String> =
            [SHELL, "-c", text, "sh"].iter().chain(arguments).map(|&word| word.to_owned()).collect();
        let output = self.runner.run(self.name, &argv, self.timeout + extra)?;
        self.succeeded(SHELL, &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn succeeded(&self, command: &str, output: &CommandOutput) -> Result<(), RemoteError> {
        if output.is_success() {
            return Ok(());
        }
        Err(RemoteError::Status {
            node: self.name.unwrap_or(HERE).to_owned(),
            command: command.to_owned(),
            status: output.status,
            printed: crate::text::printable(&output.stderr),
        })
    }

    fn failed(&self, what: String) -> RemoteError {
        RemoteError::Command { node: self.name.unwrap_or(HERE).to_owned(), command: SHELL.to_owned(), what }
    }

    /// Starts a capture that outlives the connection, and returns its process. The capture may not
    /// be ready yet: see [`RemoteNode::capture_status`]. After any error other than
    /// [`RemoteError::Status`] the node may still start it.
    pub fn launch(&self, step: &CaptureStep) -> Result<RemoteProcess, RemoteError> {
        let log = text(&step.log);
        let file = text(&step.file);
        let [max_bytes, max_s] = [step.limits.max_bytes, step.limits.max_s].map(|limit| limit.unwrap_or(0).to_string());
        let mut arguments = vec![script::SUPERVISE, script::EXEC_PROGRAM, log.as_str()];
        arguments.extend([script::WATCH, &file, &max_bytes, &max_s]);
        arguments.extend(step.argv.iter().map(String::as_str));
        let printed = self.script(script::LAUNCH, &arguments, Duration::ZERO).map_err(|error| match error {
            RemoteError::Status { node, command, status: script::NO_LOG, printed } => RemoteError::Status {
                node,
                command,
                status: script::NO_LOG,
                printed: format!(
                    "the log {log} cannot be created: {printed}; its folder must exist, and no log of an earlier run may be there"
                ),
            },
            other => other,
        })?;
        let (boot_id, stat) = printed.trim_end().split_once(' ').unwrap_or_default();
        let (pid, start_ticks) =
            parse_stat(stat).ok_or_else(|| self.failed(format!("the process id of {} is unknown", step.argv[0])))?;
        Ok(RemoteProcess { pid, start_ticks, boot_id: boot_id.to_owned() })
    }

    /// Cancels a launch that has not started the program. A program that has started is not
    /// stopped: see [`LaunchCancellation::AlreadyStarted`].
    pub fn cancel_launch(&self, log: &Path) -> Result<LaunchCancellation, RemoteError> {
        match self.script(script::CANCEL_LAUNCH, &[&text(log)], Duration::ZERO)?.trim_end() {
            "claimed" => Ok(LaunchCancellation::Canceled),
            "started" => Ok(LaunchCancellation::AlreadyStarted),
            "nowhere" => Ok(LaunchCancellation::NoFolder),
            other => Err(self.failed(format!("unexpected answer {other:?}"))),
        }
    }

    /// Status of a capture.
    pub fn capture_status(&self, step: &CaptureStep, process: &RemoteProcess) -> Result<CaptureStatus, RemoteError> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        let printed =
            self.script(script::STATUS, &[&pid, &start, &text(&step.file), &text(&step.log)], Duration::ZERO)?;
        let (first, log) = printed.split_once('\n').unwrap_or((&printed, ""));
        let words: Vec<&str> = first.split(' ').collect();
        let &[word, size, files] = &words[..] else { return Err(self.failed(format!("unexpected answer {first:?}"))) };
        let ring_files = files.parse().unwrap_or(0);
        Ok(CaptureStatus {
            alive: self.is_alive_word(word)?,
            bytes: size.parse().ok(),
            ring_files,
            log: log.to_owned(),
        })
    }

    /// True if a process runs. A zombie counts as ended.
    pub fn is_alive(&self, process: &RemoteProcess) -> Result<bool, RemoteError> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        let printed = self.script(script::STATUS, &[&pid, &start, "", ""], Duration::ZERO)?;
        self.is_alive_word(printed.split(' ').next().unwrap_or_default())
    }

    /// Signals a process and waits for its end. True if it ended. A process that ended before is
    /// not signaled, nor is another process with the same id.
    pub fn signal(&self, process: &RemoteProcess, signal: Signal, wait: Duration) -> Result<bool, RemoteError> {
        let (pid, start) = (process.pid.to_string(), process.start_ticks.to_string());
        let polls = (wait.as_millis() / 50).max(1).to_string();
        // Each poll takes a little longer than its pause.
        let printed = self.script(script::SIGNAL, &[&pid, &start, signal.name(), &polls], wait * 2)?;
        Ok(!self.is_alive_word(printed.trim_end())?)
    }

    /// What a script prints of a process. A process whose state is unknown does not count as gone.
    fn is_alive_word(&self, word: &str) -> Result<bool, RemoteError> {
        match word {
            "alive" => Ok(true),
            "gone" => Ok(false),
            other => Err(self.failed(format!("unexpected answer {other:?}"))),
        }
    }

    /// Finds the processes of a capture by their arguments.
    pub fn find_capture(&self, step: &CaptureStep) -> Result<CaptureProcesses, RemoteError> {
        let found = capture_processes(&self.script(script::FIND, &["-e", &text(&step.file)], Duration::ZERO)?, step);
        // The id of the boot is the end of each answer.
        if found.boot_id.is_empty() {
            Err(self.failed("the list of its processes is empty".to_owned()))
        } else {
            Ok(found)
        }
    }

    /// True if one of these commands is still running, even if the process that started it is gone.
    pub(crate) fn is_running(&self, commands: &[&[String]]) -> Result<bool, RemoteError> {
        let tokens = commands.iter().filter_map(|argv| argv.last()).flat_map(|argument| ["-e", argument.as_str()]);
        let printed = self.script(script::FIND, &tokens.collect::<Vec<_>>(), Duration::ZERO)?;
        if printed.is_empty() {
            return Err(self.failed("the list of its processes is empty".to_owned()));
        }
        let finds = |arguments: &[&str]| arguments.iter().any(|argument| argument.starts_with(script::FIND_PREFIX));
        let (listed, _) = parse_processes(&printed);
        // The script that runs a command counts as the command, because it starts the command.
        Ok(listed
            .iter()
            .any(|(_, arguments)| !finds(arguments) && commands.iter().any(|argv| matches_argv(arguments, argv))))
    }

    /// Runs a program and returns its standard output.
    pub(crate) fn query(&self, argv: &[&str]) -> Result<String, RemoteError> {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        let output = self.runner.run(self.name, &argv, self.timeout)?;
        self.succeeded(&argv[0], &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The current user on the node, and the owners of a folder and its parents: see
    /// [`script::STAT_FOLDERS`].
    pub(crate) fn stat_folders(&self, folder: &Path) -> Result<String, RemoteError> {
        self.script(script::STAT_FOLDERS, &[&text(folder)], Duration::ZERO)
    }

    /// Creates a folder for the current user on the node.
    pub(crate) fn make_folder(&self, folder: &Path) -> Result<(), RemoteError> {
        self.script(script::MAKE_FOLDER, &[&text(folder)], Duration::ZERO).map(drop)
    }

    /// Captures in a folder: see [`script::LIST_CAPTURES`].
    pub(crate) fn list_captures(&self, folder: &Path) -> Result<String, RemoteError> {
        self.script(script::LIST_CAPTURES, &[&text(folder)], Duration::ZERO)
    }

    /// Joins the files of a ring: see [`script::JOIN`].
    pub(crate) fn join(&self, file: &Path, ring_files: u32) -> Result<(), RemoteError> {
        self.script(script::JOIN, &[&text(file), &ring_files.to_string()], Duration::ZERO).map(drop)
    }

    /// SHA-256 of the first bytes of a file, in hex.
    pub(crate) fn hash(&self, file: &Path, bytes: u64) -> Result<String, RemoteError> {
        let printed = self.script(script::HASH, &[&text(file), &bytes.to_string()], Duration::ZERO)?;
        Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

/// Exit status of a capture, which its supervisor appends to the log.
pub fn exit_status(log: &str) -> Option<i32> {
    log.lines().rev().find_map(|line| line.strip_prefix(script::EXIT_STATUS))?.trim().parse().ok()
}

/// The limit at which a capture was stopped, which its watcher appends to the log.
pub fn reached_limit(log: &str) -> Option<CaptureLimit> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix(script::STOPPED))?;
    let key = line.split(' ').next()?;
    [CaptureLimit::MaxBytes, CaptureLimit::MaxS].into_iter().find(|limit| limit.key() == key)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Process id and start time from a line of `/proc/PID/stat`. The program name is in parentheses
/// and may contain any character.
pub(super) fn parse_stat(line: &str) -> Option<(u32, u64)> {
    let pid = line.split(' ').next()?.parse().ok()?;
    let fields = line.rsplit_once(") ")?.1;
    Some((pid, fields.split(' ').nth(19)?.parse().ok()?))
}

/// Parses the output of [`script::FIND`]: processes with their arguments, and the boot id.
fn parse_processes(printed: &str) -> (Vec<(RemoteProcess, Vec<&str>)>, &str) {
    let (listed, boot_id) = printed.trim_end().rsplit_once('\n').unwrap_or(("", printed.trim_end()));
    let mut processes: Vec<(RemoteProcess, Vec<&str>)> = Vec::new();
    for line in listed.lines() {
        if let (Some(argument), Some((_, arguments))) = (line.strip_prefix('A'), processes.last_mut()) {
            arguments.push(argument);
            continue;
        }
        let mut fields = line.split(' ').skip(1);
        if let (Some(Ok(pid)), Some(Ok(start_ticks))) = (fields.next().map(str::parse), fields.next().map(str::parse)) {
            processes.push((RemoteProcess { pid, start_ticks, boot_id: boot_id.to_owned() }, Vec::new()));
        }
    }
    (processes, boot_id)
}

/// The capture's processes among the listed ones.
fn capture_processes(printed: &str, step: &CaptureStep) -> CaptureProcesses {
    let (listed, boot_id) = parse_processes(printed);
    let mut found = CaptureProcesses { boot_id: boot_id.to_owned(), ..CaptureProcesses::default() };
    for (process, arguments) in listed {
        let begins = |how: &str| arguments.iter().any(|argument| argument.starts_with(how));
        if begins(script::LAUNCH_PREFIX) {
            found.launching = true;
        } else if !begins(script::SCRIPT_PREFIX) && matches_argv(&arguments, &step.argv) {
            found.processes.push(process);
        }
    }
    found
}

/// True if a process with these arguments belongs to the command. The command's arguments, without
/// the program, must be the last arguments of the process. The arguments before them may differ: a
/// script, for example, runs as its interpreter with the script's path. A program that only reads
/// the capture file has other arguments.
fn matches_argv(arguments: &[&str], argv: &[String]) -> bool {
    let tail = if argv.len() > 1 { &argv[1..] } else { argv };
    arguments.len() >= argv.len() && arguments[arguments.len() - tail.len()..].iter().eq(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::CaptureLimits;
    use crate::config::CaptureBackend;
    use std::path::PathBuf;

    fn step() -> CaptureStep {
        CaptureStep {
            node: "n1".to_owned(),
            argv: ["/usr/bin/ibdump", "-d", "mlx5_0", "-w", "/c/7.pcap"].map(str::to_owned).to_vec(),
            file: PathBuf::from("/c/7.pcap"),
            log: PathBuf::from("/c/7.log"),
            backend: CaptureBackend::Ibdump,
            limits: CaptureLimits::default(),
            ring_files: None,
            is_profile: false,
        }
    }

    #[test]
    fn a_program_name_in_stat_may_contain_parentheses_and_spaces() {
        let line = "812 (a) S 1 (b) S 1 812 812 0 -1 4194304 90 0 0 0 0 0 0 0 20 0 1 0 4711 2461696 200";
        assert_eq!(parse_stat(line), Some((812, 4711)));
        for broken in
            ["", "812", "812 (a", "812 (a) S 1 2", "x (a) S 1 812 812 0 -1 4194304 90 0 0 0 0 0 0 0 20 0 1 0 4711 9"]
        {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
    }

    /// Programs that only read the file are not captures, nor are ibscope's own scripts. A script
    /// that replaces the capture program is a capture.
    #[test]
    fn processes_are_identified_by_their_arguments() {
        let printed = "P 1 10 S\nA/bin/sh\nA-c\nA: ibscope-launch; read\nAsh\nA/usr/bin/ibdump\nA-d\nAmlx5_0\nA-w\nA/c/7.pcap\n\
             P 2 20 S\nAtail\nA-f\nA/c/7.pcap\nP 3 30 S\nAtcpdump\nA-r\nA/c/7.pcap\n\
             P 4 40 R\nA/usr/bin/ibdump\nA-d\nAmlx5_0\nA-w\nA/c/7.pcap\nP 5 50 S\nA/bin/sh\nA/usr/bin/ibdump\nA-d\nAmlx5_0\nA-w\nA/c/7.pcap\n\
             P 6 60 S\nA/bin/sh\nA-c\nA: ibscope-find; x\nAsh\nA/c/7.pcap\nboot-1\n";
        let found = capture_processes(printed, &step());
        assert!(found.launching);
        let ids: Vec<(u32, u64)> = found.processes.iter().map(|process| (process.pid, process.start_ticks)).collect();
        assert_eq!(ids, [(4, 40), (5, 50)]);
        assert!(found.boot_id == "boot-1" && found.processes.iter().all(|process| process.boot_id == "boot-1"));
        assert_eq!(
            super::capture_processes("boot-1\n", &step()),
            CaptureProcesses { boot_id: "boot-1".to_owned(), ..CaptureProcesses::default() }
        );
    }

    #[test]
    fn the_log_names_the_limit_that_was_reached() {
        assert_eq!(reached_limit("a\nibscope: stopped at max_s 3\n\nb\n"), Some(CaptureLimit::MaxS));
        assert_eq!(reached_limit("ibscope: stopped at max_bytes 4096\n"), Some(CaptureLimit::MaxBytes));
        for log in ["", "max_s 3\n", "ibscope: stopped at nothing\n", "ibscope: exit status 0\n"] {
            assert_eq!(reached_limit(log), None, "{log}");
        }
    }

    #[test]
    fn the_last_exit_status_counts() {
        assert_eq!(exit_status("a\nibscope: exit status 3\n"), Some(3));
        assert_eq!(exit_status("ibscope: exit status 3\nb\n\nibscope: exit status 0\n"), Some(0));
        assert_eq!(exit_status("Captured: 3 packets\n"), None);
    }
}
