//! Bytes as the configuration of captures.

use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::job::Job;
use std::path::Path;

/// Read, and used to choose jobs; an error names a line that is there.
///
/// # Panics
/// Where it does not.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Config::parse(&text, Path::new("capture.toml")) {
        Ok(config) => {
            let jobs = Job::named(1, text.lines().next().unwrap_or_default()).into_iter();
            jobs.chain(Job::named(7, "n[001-004]")).for_each(|job| drop((config.selects(&job), format!("{config:?}"))));
        }
        Err(error) => assert!(error.to_string().contains("capture.toml"), "{error}"),
    }
}
