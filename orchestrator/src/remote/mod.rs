//! Runs commands and reads files on nodes, over ssh or on the orchestrator's machine.
//!
//! A command is an argument vector, never text for a shell. Over ssh a shell is unavoidable:
//! [`quote`](crate::quote) keeps every argument intact there.

mod connect;
pub mod helper;
pub mod local;
pub mod process;
mod script;
pub mod ssh;

pub use local::LocalRunner;
pub use ssh::SshRunner;

use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// `PATH` of the programs that ibscope starts. No other `PATH` is used.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Maximum number of bytes of a command's output. A command that prints more is terminated.
pub const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// Result of a command that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit status; 128 + the number of the signal if a signal ended the command.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl CommandOutput {
    /// True if the exit status is 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

/// Reason why work on a node failed. A command that ran and failed is not such an error: it has a
/// [`CommandOutput`].
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No connection to the node.
    #[error("{node}: no connection to {address}: {what}; check that the node is up and that its sshd answers there")]
    Connect {
        /// Name of the node.
        node: String,
        /// Host and port.
        address: String,
        /// Description of the fault.
        what: String,
    },
    /// The node's host key differs from the one in `known_hosts`.
    #[error(
        "{node}: the host key of {address} ({fingerprint}) is not the one in {known_hosts}: someone may intercept the connection; if the node was \
         reinstalled, remove the old key (`ssh-keygen -f {known_hosts} -R '{address}'`) and add the new one"
    )]
    HostKeyChanged {
        /// Name of the node.
        node: String,
        /// Host and port as `known_hosts` has them.
        address: String,
        /// SHA-256 of the key that the node presented.
        fingerprint: String,
        /// Path of `known_hosts`.
        known_hosts: String,
    },
    /// `known_hosts` has no key for the node.
    #[error(
        "{node}: {known_hosts} has no key for {address} (the node presents {fingerprint}); compare the fingerprint on the node itself and add its key, \
         as ssh-keyscan prints it"
    )]
    HostKeyUnknown {
        /// Name of the node.
        node: String,
        /// Host and port as `known_hosts` has them.
        address: String,
        /// SHA-256 of the key that the node presented.
        fingerprint: String,
        /// Path of `known_hosts`.
        known_hosts: String,
    },
    /// A file of the section `[ssh]` cannot be used.
    #[error("{path}: {what}; check the [ssh] section of the configuration and the permissions of the file")]
    KeyFile {
        /// Path of the file.
        path: String,
        /// Description of the fault.
        what: String,
    },
    /// The node refuses the key.
    #[error(
        "{node}: user {user} cannot log in with {key}: {what}; check that the key is in the user's authorized_keys on the node"
    )]
    Login {
        /// Name of the node.
        node: String,
        /// User name.
        user: String,
        /// Path of the private key.
        key: String,
        /// Message of the node.
        what: String,
    },
    /// A command exceeded its time limit.
    #[error("{node}: {command} took longer than {seconds} s and was terminated")]
    Timeout {
        /// Name of the node.
        node: String,
        /// Path of the program.
        command: String,
        /// Time limit in seconds.
        seconds: f64,
    },
    /// A command could not be run, or its connection broke.
    #[error("{node}: {command}: {what}")]
    Command {
        /// Name of the node.
        node: String,
        /// Path of the program.
        command: String,
        /// Description of the fault.
        what: String,
    },
    /// A command ran and ended with an exit status other than 0.
    #[error("{node}: {command}: status {status}{}{printed}", if printed.is_empty() { "" } else { ": " })]
    Status {
        /// Name of the node.
        node: String,
        /// Path of the program.
        command: String,
        /// Exit status.
        status: i32,
        /// Text of the error output.
        printed: String,
    },
    /// A command was refused because of an argument.
    #[error("{node}: {source}")]
    Argument {
        /// Name of the node.
        node: String,
        /// Description of the fault.
        source: crate::quote::QuoteError,
    },
    /// A file could not be read.
    #[error("{node}: {path}: {source}")]
    File {
        /// Name of the node.
        node: String,
        /// Path of the file.
        path: String,
        /// Description of the fault.
        source: io::Error,
    },
}

/// Runs programs on nodes.
pub trait Runner: Sync {
    /// Runs `argv` on `node`, or on the orchestrator's machine. The program is an absolute path. It
    /// is terminated after `timeout`.
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError>;
}

/// The part of a file that is read from a node.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<'a> {
    /// Path on the node.
    pub path: &'a Path,
    /// Number of bytes that are known already.
    pub offset: u64,
    /// Number of bytes that the file must have.
    pub bytes: u64,
}

/// Time limits of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct TransferTimeouts {
    /// Time without a byte.
    pub idle: Duration,
    /// Time after which the node ends the transfer by itself, if the connection does not end it.
    pub whole: Duration,
}

/// Reads files on nodes.
pub trait Files: Runner {
    /// Passes the bytes of a file from an offset on to `sink`. Returns SHA-256 of the whole file in
    /// hex, which the node computes while it reads the file. An error of `sink` ends the transfer,
    /// and so does a file that has another size or is changed while it is read.
    fn read_file(
        &self,
        node: &str,
        part: FilePart<'_>,
        timeouts: TransferTimeouts,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<String, RemoteError>;
}

/// Calls `work` for every item, at most `most` at the same time. Returns the results in the order
/// of the items.
pub fn parallel<T: Sync, R: Send>(items: &[T], most: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(items.iter().enumerate());
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let take = || next.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let one = || {
        while let Some((place, item)) = take() {
            let result = work(item);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((place, result));
        }
    };
    thread::scope(|scope| {
        let workers = NonZero::new(most.min(items.len())).map_or(0, |workers| workers.get() - 1);
        for _ in 0..workers {
            // If a thread cannot be started, the other workers do its share.
            let _ = thread::Builder::new().spawn_scoped(scope, one);
        }
        one();
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_keep_the_order_of_the_items_and_at_most_so_many_run() {
        let items: Vec<u64> = (0..40).collect();
        let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results = parallel(&items, 4, |item| {
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis((item * 7) % 5));
            running.fetch_sub(1, Ordering::SeqCst);
            item * item
        });
        assert_eq!(results, (0..40).map(|item| item * item).collect::<Vec<u64>>());
        assert!((2..=4).contains(&peak.load(Ordering::SeqCst)));
        assert!(parallel(&[] as &[u8], 4, |item| *item).is_empty());
    }
}
