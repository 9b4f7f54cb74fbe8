//! What SIGINT and its like mean to a command that has something to show for itself before it goes.

use signal_hook::flag;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Exit codes of what a signal has ended are this and its number, as shells have it.
const SIGNALLED: i32 = 128;

/// Signals that ask a command to end with what it has; a second one ends it at once.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Set by the first of them.
    pub(super) stop: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Waits for these signals from now on.
    pub(super) fn expect(signals: &[i32]) -> io::Result<Self> {
        let expected = Self::default();
        for &signal in signals {
            // In this order: the flag is set by the first signal and looked at by the second.
            flag::register_conditional_shutdown(signal, SIGNALLED + signal, Arc::clone(&expected.stop))?;
            flag::register_usize(signal, Arc::clone(&expected.which), signal as usize)?;
            flag::register(signal, Arc::clone(&expected.stop))?;
        }
        Ok(expected)
    }

    /// The exit code of a command that ended because of one.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from((SIGNALLED as usize + self.which.load(Ordering::Relaxed)) as u8)
    }
}
