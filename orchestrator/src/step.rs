//! What is done for a capture, one step at a time, each with what undoes it. Steps stand in the journal before they are done.

use crate::config::CaptureBackend;
use crate::guid;
use crate::quote;
use crate::text::printable;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A program with its arguments. No shell has a say in it: what carries it to a node quotes every argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Where it runs; `None` where the orchestrator runs.
    pub node: Option<String>,
    /// The program, by its absolute path, and its arguments.
    pub argv: Vec<String>,
    /// It has failed when it takes longer, in seconds.
    pub timeout_s: u32,
}

/// Arguments as one would type them: for reading alone. Control characters are escaped, so that it stays one line.
pub(crate) fn shown(argv: &[String]) -> String {
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.,:=+@%".contains(&byte))
    };
    let shown = |text: &String| match text {
        text if plain(text) => text.clone(),
        text if text.contains(char::is_control) => format!("{text:?}"),
        text => quote::quote(text),
    };
    argv.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// What the output of a command must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// A line that holds this text.
    Text(String),
    /// A line `name | 0x00000001`, as mstreg prints the fields of a register.
    Field {
        /// Name of the field.
        name: String,
        /// Its value.
        value: u64,
    },
}

/// A command that changes nothing and tells whether something is so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The command.
    pub command: Command,
    /// All that its standard output must hold.
    pub expect: Vec<Expect>,
}

impl Check {
    /// Whether the command's standard output says that it is so.
    pub fn holds(&self, stdout: &str) -> bool {
        self.expect.iter().all(|expect| expect.stands_in(stdout))
    }

    /// What it says instead, a clause in a few words.
    pub(crate) fn instead(&self, stdout: &str) -> String {
        match self.expect.iter().find(|expect| !expect.stands_in(stdout)) {
            Some(Expect::Field { name, value }) => match field(stdout, name) {
                Some(found) => format!("says that {name} is {found}, not {value}"),
                None => format!("does not tell {name}"),
            },
            _ => format!("says {:?}", printable(stdout.as_bytes())),
        }
    }
}

/// Value of a field in a table of mstreg's.
fn field(stdout: &str, name: &str) -> Option<u64> {
    stdout.lines().find_map(|line| {
        let (field, found) = line.split_once('|')?;
        (field.trim() == name).then(|| u64::from_str_radix(found.trim().strip_prefix("0x")?, 16).ok())?
    })
}

impl Expect {
    fn stands_in(&self, stdout: &str) -> bool {
        match self {
            Self::Text(text) => stdout.lines().any(|line| line.contains(text)),
            Self::Field { name, value } => field(stdout, name) == Some(*value),
        }
    }
}

/// Traffic of some ports of a leaf switch is copied to one sink on it. One step per leaf and sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorStep {
    /// GUID of the leaf switch.
    #[serde(with = "guid")]
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Ports of the leaf whose traffic is copied.
    pub ports: Vec<u8>,
    /// The node that the copies go to.
    pub sink: String,
    /// Port of the leaf that they leave by.
    pub sink_port: u8,
    /// The switch's port analyser that is used, where the backend has to choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyser: Option<u8>,
    /// Switch it on, in this order. One that fails ends the start.
    pub on: Vec<Command>,
    /// Switch it off, in this order. Right also where it is not on, or is in part: all are run, whatever one says.
    pub off: Vec<Command>,
    /// What holds once it is on.
    pub check: Vec<Check>,
    /// What holds once it is off again; also before it is switched on, else somebody else uses the port.
    pub check_off: Vec<Check>,
}

/// A program on a node writes what comes to a port into a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStep {
    /// The node.
    pub node: String,
    /// The program and its arguments. `file` is among them, and is in no other command: it tells the process.
    pub argv: Vec<String>,
    /// The capture on the node. Its folder must be there, with room for what is configured.
    pub file: PathBuf,
    /// What the program says, standard output and standard error, on the node.
    pub log: PathBuf,
    /// How it says that it is ready, is stopped and tells its count.
    pub backend: CaptureBackend,
}

impl CaptureStep {
    /// The folder on the node that the capture and its log are in.
    pub(crate) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}

/// The nodes that MPI may use, for mpirun: written where the orchestrator runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostfileStep {
    /// The file.
    pub path: PathBuf,
    /// Its lines, one node each.
    pub lines: Vec<String>,
}

impl HostfileStep {
    /// What the file holds.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}

/// One step of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Ports are mirrored.
    Mirror(MirrorStep),
    /// A capture runs.
    Capture(CaptureStep),
    /// A hostfile is there.
    Hostfile(HostfileStep),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_with_quotes_where_they_matter() {
        let argv = ["/usr/bin/a", "-p=1", "x y", "$(id)", "it's", "a\nb", ""].map(str::to_owned);
        assert_eq!(shown(&argv), r#"/usr/bin/a -p=1 'x y' '$(id)' 'it'\''s' "a\nb" ''"#);
    }
}
