//! Work on nodes: commands, files and processes, over ssh or where the orchestrator runs.
//!
//! A command is an argument vector and never text for a shell. On the way of ssh there is a shell by nature: [`quote`] keeps
//! every argument whole there.

pub mod quote;

use std::io;
use std::path::Path;
use std::time::Duration;

/// What a command left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 + the signal's number where a signal ended it.
    pub status: i32,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// True when it ended with status 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

/// Work on a node that could not be done. A command that ran and failed is no such error: it has an [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No connection.
    #[error("{node}: no connection to {address}: {what}; check that the node is up and that its sshd answers there")]
    Connect {
        /// The node.
        node: String,
        /// Host and port.
        address: String,
        /// What went wrong.
        what: String,
    },
    /// The node's host key is not the one that known_hosts has.
    #[error(
        "{node}: the host key of {address} ({fingerprint}) is not the one in {known_hosts}: someone may be listening in; if the node was \
         installed anew, take the old key out (`ssh-keygen -f {known_hosts} -R '{address}'`) and add the new one"
    )]
    HostKeyChanged {
        /// The node.
        node: String,
        /// Host and port as known_hosts writes them.
        address: String,
        /// SHA-256 of the key that was shown.
        fingerprint: String,
        /// The file.
        known_hosts: String,
    },
    /// known_hosts does not have the node.
    #[error(
        "{node}: {known_hosts} has no key for {address} (it shows {fingerprint}); compare the fingerprint with the node's own and add its key, \
         as ssh-keyscan prints it"
    )]
    HostKeyUnknown {
        /// The node.
        node: String,
        /// Host and port as known_hosts writes them.
        address: String,
        /// SHA-256 of the key that was shown.
        fingerprint: String,
        /// The file.
        known_hosts: String,
    },
    /// A file of the ssh configuration cannot be used.
    #[error("{path}: {what}; check the [ssh] section of the configuration and who may read the file")]
    KeyFile {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The node does not accept the key.
    #[error("{node}: user {user} may not log in with {key}: {what}; check that the key is in the user's authorized_keys on the node")]
    Login {
        /// The node.
        node: String,
        /// The user.
        user: String,
        /// The private key's file.
        key: String,
        /// What the node said.
        what: String,
    },
    /// The time for a command is over.
    #[error("{node}: {command} took longer than {seconds} s and was ended")]
    Timeout {
        /// The node.
        node: String,
        /// The program.
        command: String,
        /// The time that it had.
        seconds: f64,
    },
    /// A command that could not be run, or whose connection broke.
    #[error("{node}: {command}: {what}")]
    Command {
        /// The node.
        node: String,
        /// The program.
        command: String,
        /// What went wrong.
        what: String,
    },
    /// An argument that is not passed on.
    #[error("{node}: {source}")]
    Argument {
        /// The node.
        node: String,
        /// What is wrong with it.
        source: quote::QuoteError,
    },
    /// A file that could not be read.
    #[error("{node}: {path}: {source}")]
    File {
        /// The node.
        node: String,
        /// The file.
        path: String,
        /// What went wrong.
        source: io::Error,
    },
}

/// Runs programs on nodes.
pub trait Runner: Sync {
    /// Runs `argv` on `node`, or where the orchestrator runs. The program is an absolute path; when `timeout` is over it is ended.
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<Output, RemoteError>;
}

/// Reads files of nodes.
pub trait Files: Runner {
    /// Gives the bytes of a file from `offset` on to `sink`; the number of bytes given. An error of `sink` ends it. `idle` is the longest time
    /// without a byte.
    fn read_file(
        &self,
        node: &str,
        path: &Path,
        offset: u64,
        idle: Duration,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, RemoteError>;
}
