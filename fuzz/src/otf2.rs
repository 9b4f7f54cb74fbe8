//! Target `otf2`: the bytes are the output of `otf2-print`.

use crate::crosscheck;
use ibscope::crosscheck::otf2::parse;
use std::path::Path;

/// Parses the trace and compares it with a recorded run.
///
/// # Panics
/// If an error does not name its file.
pub fn run(bytes: &[u8]) {
    match parse(Path::new("traces.otf2"), bytes) {
        Ok(trace) => crosscheck::trace(&trace),
        Err(error) => assert!(error.to_string().contains("traces.otf2"), "{error}"),
    }
}
