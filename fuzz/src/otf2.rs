//! Bytes as what `otf2-print` prints of a trace.

use crate::checked;
use ibscope::crosscheck::otf2::parse;
use std::path::Path;

/// Read, and compared with a recorded run.
///
/// # Panics
/// Where an error does not name its file.
pub fn run(bytes: &[u8]) {
    match parse(Path::new("traces.otf2"), bytes) {
        Ok(trace) => checked::trace(&trace),
        Err(error) => assert!(error.to_string().contains("traces.otf2"), "{error}"),
    }
}
