//! The configuration: one TOML file in, a checked [`Config`] out. Unknown keys are refused; an
//! error names the line and the remedy.

mod capture;
mod check;
mod fault;
mod mirror;
mod read;
mod run;
mod ssh;
mod template;
mod value;

pub use capture::{CaptureBackend, CaptureConfig, CaptureMode, Ibdump, ProfileOptions, Tcpdump};
pub use mirror::{Directions, MirrorBackend, MirrorCommand, MirrorConfig, Mstreg, Sinks};
pub use run::{AnalysisLocation, AnalyzeConfig, CollectConfig, JobSelection, RunConfig};
pub use ssh::{FabricOptions, JumpHost, NodeConfig, SshConfig, Tools};
pub use template::{CommandTemplate, TemplateError, TemplateValues, TextTemplate};
pub use value::{Owner, RunLocation};

use crate::job::SlurmJob;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use strsim::levenshtein;

/// Reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: the configuration cannot be read: {source}; check the path and its permissions", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The content of the file is wrong.
    #[error("{}: line {line}: {what}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Description of the fault, and the remedy.
        what: String,
    },
}

/// Characters that separate the words of a job comment or a constraint.
const DIVIDERS: [char; 9] = [',', ';', '&', '|', '*', '(', ')', '[', ']'];

/// The configuration of captures at a site.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Access to the nodes.
    pub ssh: SshConfig,
    /// Settings of single nodes, by node name.
    #[serde(default, deserialize_with = "value::nodes")]
    pub nodes: BTreeMap<String, NodeConfig>,
    /// Paths of programs.
    #[serde(default)]
    pub tools: Tools,
    /// Exploration of the fabric.
    #[serde(default)]
    pub fabric: FabricOptions,
    /// Nodes that receive mirrored packets.
    #[serde(default)]
    pub sinks: Sinks,
    /// Mirroring of the ports.
    pub mirror: MirrorConfig,
    /// Capturing on the sinks.
    pub capture: CaptureConfig,
    /// Destination of the captures.
    pub collect: CollectConfig,
    /// Behavior of the hooks.
    #[serde(default)]
    pub run: RunConfig,
    /// Analysis after the captures.
    #[serde(default)]
    pub analyze: AnalyzeConfig,
    /// The file that the configuration was read from.
    #[serde(skip)]
    pub source: ConfigSource,
}

/// The file of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
}

/// Word of a comment with which a job is not captured, whatever `run.select` says. The jobs that
/// analyze captures have it.
pub const NOT_CAPTURED: &str = "ibscope=off";

/// True if a comment or a constraint has the word.
fn has_word(text: Option<&String>, wanted: &str) -> bool {
    text.is_some_and(|text| text.split(|c: char| c.is_whitespace() || DIVIDERS.contains(&c)).any(|word| word == wanted))
}

impl Config {
    /// True if the job requests a capture: by the option `--ibscope`, or else by the rule of
    /// `run.select`.
    pub fn selects(&self, job: &SlurmJob) -> bool {
        if let Some(chosen) = job.ibscope_option {
            return chosen && !has_word(job.comment.as_ref(), NOT_CAPTURED);
        }
        match self.run.select {
            JobSelection::All => !has_word(job.comment.as_ref(), NOT_CAPTURED),
            JobSelection::Comment => has_word(job.comment.as_ref(), &self.run.word),
            JobSelection::Constraint => has_word(job.constraints.as_ref(), &self.run.word),
        }
    }

    /// Reason why the site does not capture this job, although it requests a capture.
    pub fn refusal(&self, job: &SlurmJob) -> Option<String> {
        let RunConfig { users, partitions, .. } = &self.run;
        let is_user = |allowed: &String| {
            job.user.as_ref() == Some(allowed) || allowed.parse().is_ok_and(|id| job.user_id == Some(id))
        };
        if !users.is_empty() && !users.iter().any(is_user) {
            let user = job.user.as_deref().unwrap_or("unknown");
            return Some(format!("not captured: the user {user} is not one of run.users"));
        }
        let partition = job.partition.as_deref().unwrap_or("unknown");
        (!partitions.is_empty() && !partitions.iter().any(|allowed| allowed == partition))
            .then(|| format!("not captured: the partition {partition} is not one of run.partitions"))
    }

    /// A word of an uncaptured job that is probably a misspelling of `run.word`.
    pub fn mistyped_word(&self, job: &SlurmJob) -> Option<String> {
        if job.ibscope_option.is_some() || self.selects(job) {
            return None;
        }
        let plain = |word: &str| -> String {
            word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
        };
        let wanted = plain(&self.run.word);
        let is_close = |word: &&str| {
            let word = plain(word);
            word == wanted || word.len() + 2 >= wanted.len() && wanted.len() >= 6 && levenshtein(&word, &wanted) <= 1
        };
        let is_off =
            |word: &str| ["off", "no", "false", "0"].iter().any(|end| word.to_ascii_lowercase().ends_with(end));
        let text = match self.run.select {
            JobSelection::All => return None,
            JobSelection::Comment => job.comment.as_deref()?,
            JobSelection::Constraint => job.constraints.as_deref()?,
        };
        text.split(|c: char| c.is_whitespace() || DIVIDERS.contains(&c))
            .filter(is_close)
            .find(|word| !is_off(word))
            .map(str::to_owned)
    }

    /// The configuration for runs of this user: `capture.owner = "job"` becomes the user. If the
    /// user is unknown, files belong to the user that makes them.
    pub(crate) fn for_user(&self, user_id: Option<u32>) -> Self {
        let mut config = self.clone();
        if config.capture.owner.as_ref().is_some_and(Owner::is_job) {
            config.capture.owner = user_id.map(Owner::of_user);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn mistyped_words_are_found() {
        let text = "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[capture]\n\
                    backend = \"ibdump\"\ndirectory = \"/c\"\n[collect]\ndirectory = \"/r\"\n";
        let config = Config::parse(text, Path::new("x")).unwrap();
        let word = |comment: &str| {
            config.mistyped_word(&SlurmJob { comment: Some(comment.to_owned()), ..SlurmJob::default() })
        };
        for mistyped in
            ["IBSCOPE=ON", "ibscope=On", "ibscope:on", "ibscope_on", "ibscop=on", "ibsscope=on", "IBscope-on"]
        {
            assert_eq!(word(&format!("run 7 {mistyped}, urgent")).as_deref(), Some(mistyped));
        }
        // The right word, another word, and a request not to be captured.
        for comment in
            ["ibscope=on", "IBSCOPE=ON ibscope=on", "", "ibscope", "ibscope=off", "ibscope=no", "scope=on", "nothing"]
        {
            assert_eq!(word(comment), None, "{comment}");
        }
    }
}
