//! The program that a user without root's rights may call with sudo on a sink (`ibscope capture
//! helper`): starts, finds and ends captures, and reads and removes their files.
//!
//! The input is one argument, the request, which the user of the ssh login may choose freely. The
//! [rules](HelperRules) on the sink name the folder and the programs of captures. The helper does
//! nothing outside this folder, runs no other program, and signals no other process. It uses no files in a
//! folder that another user can change, who could put links to other files there.

mod permit;
mod request;

pub(super) use request::request;

use super::local::GRACE_S;
use super::script;
use crate::config::Tools;
use crate::folder::Folder;
use permit::Refusal;
use serde::Deserialize;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rules on a sink.
pub const RULES: &str = "/etc/ibscope/node.toml";

/// Starts a capture.
const LAUNCH: &str = "launch";
/// Removes captures, their logs, and folders of relays.
const REMOVE: &str = "remove";
/// Gives captures, archives of profiles and logs to a user; no folders.
const CHOWN: &str = "chown";

/// The other verbs, and the scripts that they run.
const SCRIPTS: [(&str, &str); 10] = [
    ("cancel", script::CANCEL_LAUNCH),
    ("status", script::STATUS),
    ("signal", script::SIGNAL),
    ("find", script::FIND),
    ("hash", script::HASH),
    ("join", script::JOIN),
    ("fetch", script::FETCH),
    ("folders", script::STAT_FOLDERS),
    ("make", script::MAKE_FOLDER),
    ("list", script::LIST_CAPTURES),
];

/// The rules on a sink: the file [`RULES`], which only root may write.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelperRules {
    /// Folder of captures, as `capture.directory`.
    pub directory: PathBuf,
    /// ibdump.
    #[serde(default = "default::ibdump")]
    pub ibdump: PathBuf,
    /// tcpdump.
    #[serde(default = "default::tcpdump")]
    pub tcpdump: PathBuf,
    /// ibscope, for captures that keep only a profile.
    #[serde(default = "default::ibscope")]
    pub ibscope: PathBuf,
}

mod default {
    use super::{PathBuf, Tools};

    pub(super) fn ibdump() -> PathBuf {
        Tools::default().ibdump
    }

    pub(super) fn tcpdump() -> PathBuf {
        Tools::default().tcpdump
    }

    pub(super) fn ibscope() -> PathBuf {
        Tools::default().ibscope
    }
}

/// Reason why the helper does nothing.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The rules cannot be used.
    #[error("{}: {what}; root must write the folder of captures there, see \"A user without root's rights\" in slurm.md", path.display())]
    Rules {
        /// Path of the rules.
        path: PathBuf,
        /// Description of the fault.
        what: String,
    },
    /// The request is not one of the fixed ones.
    #[error("ibscope capture helper refuses this: {0}")]
    Refused(Refusal),
    /// The program cannot be run.
    #[error("/bin/sh cannot be run: {0}")]
    Run(io::Error),
}

/// Result of a check: the command that root runs, or an answer without a command.
#[derive(Debug, PartialEq, Eq)]
enum HelperAction {
    Command(Vec<String>),
    Answer(&'static str),
}

impl HelperRules {
    /// Reads the rules. Refuses a file that other users can change.
    fn read(path: &Path) -> Result<Self, HelperError> {
        let fault = |what: String| HelperError::Rules { path: path.to_owned(), what };
        let bytes = Folder::parent_of(path)
            .and_then(|(folder, name)| folder.bytes(name))
            .map_err(|error| fault(error.to_string()))?;
        toml::from_str(&String::from_utf8_lossy(&bytes)).map_err(|error| fault(error.message().to_owned()))
    }
}

/// Name of a capture, a log or another file of a run in the folder of captures. `None` for every other
/// path: nothing else has the name of a run.
fn capture_name<'a>(folder: &Path, path: &'a str) -> Option<&'a str> {
    let name = path.rsplit_once('/')?.1;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = name.starts_with("ibscope-") && name.bytes().all(is_plain);
    (is_name && folder.join(name).as_os_str() == path).then_some(name)
}

/// Words of the command that calls the helper for this request.
pub(super) fn call(program: &Path, limit_s: &str, request: &[String]) -> Vec<String> {
    // One argument: otherwise the arguments of sudo would be those of a capture, for which `FIND`
    // looks.
    let words: Vec<&str> = [limit_s].into_iter().chain(request.iter().map(String::as_str)).collect();
    let request = serde_json::Value::from(words).to_string();
    let program = program.to_string_lossy().into_owned();
    ["/usr/bin/sudo", "-n", "--", &program, "capture", "helper", &request].map(str::to_owned).to_vec()
}

/// Does what a request says, if the rules permit it. Replaces this process by the command; returns the
/// text to print if there is no command to run. Either output begins with the mark
/// that the controller expects.
pub fn run(request: &str, rules: &Path) -> Result<String, HelperError> {
    let rules = HelperRules::read(rules)?;
    let words: Vec<String> = serde_json::from_str(request).map_err(|_| HelperError::Refused(Refusal::NoRequest))?;
    let (limit_s, words) = words.split_first().ok_or(HelperError::Refused(Refusal::NoRequest))?;
    if !limit_s.parse().is_ok_and(|limit_s: f64| limit_s > 0.0 && limit_s.is_finite()) {
        return Err(HelperError::Refused(Refusal::NoRequest));
    }
    let folder = Folder::open(&rules.directory).map(drop);
    match permit::permit(&rules, folder, words).map_err(HelperError::Refused)? {
        HelperAction::Answer(text) => Ok([script::OUTPUT_MARK, text].concat()),
        HelperAction::Command(argv) => {
            let own = ["-c", script::RUN, "sh", limit_s, &GRACE_S.to_string()];
            Err(HelperError::Run(Command::new("/bin/sh").args(own).args(argv).current_dir("/").exec()))
        }
    }
}
