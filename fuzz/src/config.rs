//! Target `config`: the bytes are a capture configuration.

use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::job::SlurmJob;
use std::path::Path;

/// Parses the configuration and selects jobs with it.
///
/// # Panics
/// If an error does not name its file.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Config::parse(&text, Path::new("capture.toml")) {
        Ok(config) => {
            let jobs = SlurmJob::from_nodelist(1, text.lines().next().unwrap_or_default()).into_iter();
            jobs.chain(SlurmJob::from_nodelist(7, "n[001-004]"))
                .for_each(|job| drop((config.selects(&job), format!("{config:?}"))));
        }
        Err(error) => assert!(error.to_string().contains("capture.toml"), "{error}"),
    }
}
