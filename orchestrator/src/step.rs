//! The steps of a plan, each with the commands or data to do it and to undo it. A step is written
//! to the journal before it is done.

use crate::capture::{self, CaptureLimits};
use crate::config::CaptureBackend;
use crate::guid;
use crate::text::printable;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A program with its arguments. No shell interprets them: every argument is quoted on the way to a
/// node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCommand {
    /// Node where the command runs; `None` for the orchestrator's machine.
    pub node: Option<String>,
    /// Absolute path of the program, and its arguments.
    pub argv: Vec<String>,
    /// Time limit in seconds.
    pub timeout_s: u32,
}

/// Expected content of a command's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// A line that contains this text. Its first and its last word or number must be whole there.
    Text(String),
    /// A line `name | 0x00000001`, as mstreg prints the fields of a register.
    Field {
        /// Name of the field.
        name: String,
        /// Value of the field.
        value: u64,
    },
}

/// A command that changes nothing and shows a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandCheck {
    /// The command.
    pub command: StepCommand,
    /// Expected content of its standard output; all of it must be there.
    pub expect: Vec<Expectation>,
}

impl CommandCheck {
    /// True if the command's standard output has all of the expected content.
    pub fn is_met(&self, stdout: &str) -> bool {
        self.expect.iter().all(|expect| expect.is_met(stdout))
    }

    /// Difference to the expected output, as a clause after the command.
    pub(crate) fn mismatch(&self, stdout: &str) -> String {
        match self.expect.iter().find(|expect| !expect.is_met(stdout)) {
            Some(Expectation::Field { name, value }) => match field(stdout, name) {
                Some(found) => format!("reports that {name} is {found}, not {value}"),
                None => format!("does not report {name}"),
            },
            Some(Expectation::Text(text)) if stdout.lines().any(|line| line.contains(text)) => format!(
                "prints {:?}, where {text:?} is only a part of longer words or numbers",
                printable(stdout.as_bytes())
            ),
            _ => format!("prints {:?}", printable(stdout.as_bytes())),
        }
    }
}

/// Value of a field in a table of mstreg.
fn field(stdout: &str, name: &str) -> Option<u64> {
    stdout.lines().find_map(|line| {
        let (field, found) = line.split_once('|')?;
        (field.trim() == name).then(|| u64::from_str_radix(found.trim().strip_prefix("0x")?, 16).ok())?
    })
}

impl Expectation {
    /// True if a command's standard output has the content.
    pub(crate) fn is_met(&self, stdout: &str) -> bool {
        match self {
            Self::Text(text) => stdout.lines().any(|line| contains_whole(line, text)),
            Self::Field { name, value } => field(stdout, name) == Some(*value),
        }
    }
}

/// True if a line contains the text, and no letter or digit continues a word or number at its start or
/// end: `to 5` is not in `to 55`.
fn contains_whole(line: &str, text: &str) -> bool {
    let [first, last] = [text.chars().next(), text.chars().next_back()];
    let is_inside = |a: Option<char>, b: Option<char>| [a, b].iter().all(|c| c.is_some_and(char::is_alphanumeric));
    // One occurrence may overlap the next one.
    line.char_indices().map(|(start, _)| start).chain([line.len()]).any(|start| {
        let (before, rest) = line.split_at(start);
        rest.strip_prefix(text).is_some_and(|after| {
            !is_inside(before.chars().next_back(), first) && !is_inside(last, after.chars().next())
        })
    })
}

/// Mirrors ports of a leaf switch to one sink on it. There is one step per leaf and sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorStep {
    /// GUID of the leaf switch.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Ports of the leaf that are mirrored.
    pub ports: Vec<u8>,
    /// Node that receives the mirrored packets.
    pub sink: String,
    /// Port of the leaf that leads to the sink.
    pub sink_port: u8,
    /// Port analyzer of the switch, if the backend uses one. Journals of version 0.1.0 have the
    /// British spelling; their runs can still be undone.
    #[serde(default, alias = "analyser", skip_serializing_if = "Option::is_none")]
    pub analyzer: Option<u8>,
    /// Commands that switch mirroring on: that of the analyzer, if there is one, then those of the
    /// ports at the same time. If one fails, the start fails.
    pub on: Vec<StepCommand>,
    /// Commands that switch mirroring off, in order. All of them run, even if one fails; they must
    /// succeed also if mirroring is off or only partly on.
    pub off: Vec<StepCommand>,
    /// Checks that must pass once mirroring is on.
    pub check: Vec<CommandCheck>,
    /// Checks that must pass once mirroring is off. They also run before it is switched on: if one
    /// fails, the port is mirrored already.
    pub check_off: Vec<CommandCheck>,
}

/// Runs a capture program on a node, which writes the packets of a port into a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStep {
    /// Name of the node.
    pub node: String,
    /// Program and arguments. They include `file`, which no other command has, so it identifies the
    /// process.
    pub argv: Vec<String>,
    /// Path of the capture on the node. Its folder needs the configured free space.
    pub file: PathBuf,
    /// Path of the log on the node, with the program's standard output and standard error.
    pub log: PathBuf,
    /// Capture program, which determines how its log is read.
    pub backend: CaptureBackend,
    /// Limits at which the node stops the capture.
    #[serde(default, skip_serializing_if = "CaptureLimits::is_none")]
    pub limits: CaptureLimits,
    /// Number of files of the ring that the program writes into: `file` with a number appended. They are
    /// joined to `file` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_files: Option<u32>,
    /// True if `file` is an archive with a partial profile, which is written at the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_profile: bool,
}

impl CaptureStep {
    /// Paths of the capture on the node: its file, and all that exist until it is complete.
    pub(crate) fn packet_files(&self) -> Vec<String> {
        let file = self.file.to_string_lossy();
        let files = self.ring_files.unwrap_or(0);
        // As tcpdump names them: all numbers have the same width.
        let width = files.saturating_sub(1).to_string().len();
        let mut paths = vec![file.clone().into_owned()];
        paths.extend((0..files).map(|number| format!("{file}{number:0width$}")));
        paths.extend(self.ring_files.map(|_| format!("{file}.join")));
        paths
    }

    /// All paths of the capture and its log on the node.
    pub(crate) fn files(&self) -> Vec<String> {
        self.packet_files().into_iter().chain([self.log.to_string_lossy().into_owned()]).collect()
    }

    /// Folder of a relay, which a relay that was killed leaves; `None` if packets are stored.
    pub(crate) fn relay_folder(&self) -> Option<PathBuf> {
        self.is_profile.then(|| capture::relay_folder(&self.file))
    }

    /// Folder of the capture and its log on the node.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}

/// Writes the list of nodes that MPI may use, for mpirun, on the orchestrator's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostfileStep {
    /// Path of the file.
    pub path: PathBuf,
    /// Lines of the file, one node each.
    pub lines: Vec<String>,
}

impl HostfileStep {
    /// Content of the file.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum PlanStep {
    /// Mirrors ports.
    Mirror(MirrorStep),
    /// Runs a capture.
    Capture(CaptureStep),
    /// Writes a hostfile.
    Hostfile(HostfileStep),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> CommandCheck {
        let command = StepCommand { node: None, argv: vec!["/m".to_owned()], timeout_s: 1 };
        CommandCheck { command, expect: vec![Expectation::Text(text.to_owned())] }
    }

    #[test]
    fn an_expected_text_is_no_part_of_a_longer_number_or_word() {
        let check_on = check("port 1 mirrored to 5");
        for met in [
            "port 1 mirrored to 5",
            "a\nport 1 mirrored to 5 for job 7\n",
            "(port 1 mirrored to 5)",
            "port 1 mirrored to 55, port 1 mirrored to 5\n",
        ] {
            assert!(check_on.is_met(met), "{met}");
        }
        for other in [
            "port 1 mirrored to 55",
            "port 11 mirrored to 5",
            "1port 1 mirrored to 5",
            "port 1 mirrored to 5a",
            "port 1 mirrored to 5\u{661}",
            "port 1 mirrored to\n5",
            "",
        ] {
            assert!(!check_on.is_met(other), "{other}");
        }
        assert!(check("1>3").is_met("n1 1>3") && !check("1>3").is_met("11>3") && !check("1>3").is_met("1>33"));
        assert!(check("1>-").is_met("1>-") && !check("1>-").is_met("21>-"));
        assert!(check(": off").is_met("port 1: off") && !check(": off").is_met("port 1: offline"));
        // The first occurrence belongs to a longer number, and overlaps the second one.
        assert!(check("1 1").is_met("11 1 1"));
        assert_eq!(
            check_on.mismatch("port 1 mirrored to 55\n"),
            "prints \"port 1 mirrored to 55\", where \"port 1 mirrored to 5\" is only a part of longer words or numbers"
        );
        assert_eq!(check_on.mismatch("port 1 not mirrored\n"), "prints \"port 1 not mirrored\"");
    }
}
