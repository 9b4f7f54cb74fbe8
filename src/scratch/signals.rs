//! What SIGINT, SIGTERM and SIGHUP do to a command that writes: it ends with what it has, where it asked for that; else, and at the second signal, its
//! scratch files are removed and the signal ends it.
//!
//! Invariant: a signal that was ignored when the program started (`nohup`, a job in the background) stays ignored.

use super::{all, remove};
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

/// What to do where a thread cannot be started.
const MORE_THREADS: &str = "raise the limit on processes (`ulimit -u`)";

/// Signals that end a command.
const ENDING: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Exit codes of what a signal has ended are this and its number, as shells have it.
const SIGNALED: i32 = 128;

/// What asks a command to end with what it has.
#[derive(Debug)]
pub struct Stop {
    /// Set by the first signal.
    pub flag: Arc<AtomicBool>,
    signal: AtomicI32,
}

impl Stop {
    /// The exit code of a command that a signal has ended.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from((SIGNALED + self.signal.load(Ordering::Relaxed)) as u8)
    }
}

/// The stop of the command, where it has one.
static STOP: OnceLock<Stop> = OnceLock::new();

/// From now on the first signal sets a flag and nothing else, and the second one ends the command.
pub fn stop() -> io::Result<&'static Stop> {
    start()?;
    Ok(STOP.get_or_init(|| Stop { flag: Arc::default(), signal: AtomicI32::new(0) }))
}

/// From now on a write beyond the longest file that is allowed (`ulimit -f`) fails as one to a full disk does; SIGXFSZ would end the program without a word.
pub fn fail_beyond_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Waits for signals in a thread of its own: handlers may not remove files.
pub(super) fn start() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    let ignored = ignored();
    let expected = ENDING.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    // With their origins, which this does not need: signals of one number that come close together are then counted each.
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(expected)?;
    let wait = move || signals.forever().for_each(|origin| arrived(origin.si_signo));
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(|error| {
        io::Error::other(format!("the thread that waits for signals cannot be started: {error}; {MORE_THREADS}"))
    })?;
    *started = true;
    Ok(())
}

fn arrived(signal: i32) {
    if let Some(stop) = STOP.get()
        && !stop.flag.load(Ordering::Relaxed)
    {
        // The number first: whoever sees the flag asks for it.
        stop.signal.store(signal, Ordering::Relaxed);
        stop.flag.store(true, Ordering::Release);
        return;
    }
    let all = all();
    all.iter().for_each(|path| remove(path));
    // It does not return, and the lock is held until then: nobody makes another scratch file, or misses one of these.
    let _ = emulate_default_handler(signal);
}

/// The signals that are ignored, as a set of bits. Empty where there is no `/proc`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}
