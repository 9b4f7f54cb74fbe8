//! Work on nodes: commands, files and processes, over ssh or where the orchestrator runs.
//!
//! A command is an argument vector and never text for a shell. On the way of ssh there is a shell by nature: [`quote`](crate::quote) keeps
//! every argument whole there.

mod connect;
pub mod local;
pub mod process;
mod script;
pub mod ssh;

pub use local::Local;
pub use ssh::Ssh;

use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Where programs are looked up by those that we start: nobody else's `PATH` has a say.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Bytes of output that are taken from a command; one that says more is ended.
pub const MOST_OUTPUT_BYTES: usize = 64 << 20;

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
    /// The node's host key is not the one that `known_hosts` has.
    #[error(
        "{node}: the host key of {address} ({fingerprint}) is not the one in {known_hosts}: someone may be listening in; if the node was \
         installed anew, take the old key out (`ssh-keygen -f {known_hosts} -R '{address}'`) and add the new one"
    )]
    HostKeyChanged {
        /// The node.
        node: String,
        /// Host and port as `known_hosts` writes them.
        address: String,
        /// SHA-256 of the key that was shown.
        fingerprint: String,
        /// The file.
        known_hosts: String,
    },
    /// `known_hosts` does not have the node.
    #[error(
        "{node}: {known_hosts} has no key for {address} (it shows {fingerprint}); compare the fingerprint with the node's own and add its key, \
         as ssh-keyscan prints it"
    )]
    HostKeyUnknown {
        /// The node.
        node: String,
        /// Host and port as `known_hosts` writes them.
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
    #[error(
        "{node}: user {user} may not log in with {key}: {what}; check that the key is in the user's authorized_keys on the node"
    )]
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
        source: crate::quote::QuoteError,
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

/// Does `work` for every item, at most `most` at a time; the results in the items' order.
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
            // Where it cannot be started the other workers do its share.
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
    fn results_stand_in_the_items_order_and_no_more_than_so_many_run() {
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
