//! Handles SIGINT, SIGTERM and SIGHUP in a command that writes.
//!
//! A command that called [`stop`] ends at the first signal with the results so far.
//! Otherwise, and at the second signal, the scratch files are removed and the signal ends the
//! process.
//!
//! Invariant: a signal that was ignored when the program started (`nohup`, a background job) stays
//! ignored.

use super::{lock_scratch_paths, remove};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Advice for a thread that cannot be started.
const MORE_THREADS: &str = "raise the limit on processes (`ulimit -u`)";

/// Signals that end a command.
const TERMINATION_SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Exit code of a command that a signal ended: this base plus the signal number, as in shells.
const SIGNAL_EXIT_BASE: i32 = 128;

/// Request to end with the results so far.
#[derive(Debug)]
pub struct StopSignal {
    /// Set by the first signal.
    pub flag: Arc<AtomicBool>,
    signal: AtomicI32,
}

impl StopSignal {
    /// Exit code of a command that a signal ended.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from((SIGNAL_EXIT_BASE + self.signal.load(Ordering::Relaxed)) as u8)
    }
}

/// Set by [`stop`].
static STOP: OnceLock<StopSignal> = OnceLock::new();

/// From now on, the first signal only sets a flag, and the second one ends the process.
pub fn stop() -> io::Result<&'static StopSignal> {
    start()?;
    Ok(STOP.get_or_init(|| StopSignal { flag: Arc::default(), signal: AtomicI32::new(0) }))
}

/// From now on, a write beyond the file size limit (`ulimit -f`) fails like one to a full disk. By
/// default, SIGXFSZ would end the program without a message.
pub fn fail_beyond_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Starts the thread that waits for signals, because a signal handler may not remove files.
pub(super) fn start() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    let ignored = ignored_signals();
    let expected = TERMINATION_SIGNALS.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    // With `WithRawSiginfo`, two signals of one number in quick succession count as two. The origin
    // itself is not used.
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(expected)?;
    let wait = move || signals.forever().for_each(|origin| handle_signal(origin.si_signo));
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(|error| {
        io::Error::other(format!("the thread that waits for signals cannot be started: {error}; {MORE_THREADS}"))
    })?;
    *started = true;
    Ok(())
}

fn handle_signal(signal: i32) {
    if let Some(stop) = STOP.get()
        && !stop.flag.load(Ordering::Relaxed)
    {
        // The number first: a thread that sees the flag reads the number.
        stop.signal.store(signal, Ordering::Relaxed);
        stop.flag.store(true, Ordering::Release);
        return;
    }
    let all = lock_scratch_paths();
    all.iter().for_each(|path| remove(path));
    // The call does not return. The lock is held until the process ends, so no other thread makes a
    // scratch file that would stay behind.
    let _ = emulate_default_handler(signal);
}

/// Bit set of the ignored signals; empty if there is no `/proc`.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}
