//! Reports in the job's `AdminComment` whether the job is captured.

use crate::config::Config;
use crate::log::{Level, Log};
use crate::remote::Runner;
use crate::text::printable;
use std::path::Path;
use std::time::Duration;

/// Time limit for Slurm's response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest text, in characters.
const MAX_CHARACTERS: usize = 400;

/// Replaces the comment, if the configuration requests it. A failure is only logged.
pub(super) fn set(config: &Config, runner: &dyn Runner, job_id: u32, text: &str, log: &Log) {
    if !config.run.admin_comment {
        return;
    }
    let scontrol = config.tools.sbatch.parent().unwrap_or(Path::new("/usr/bin")).join("scontrol");
    let text: String = text.chars().take(MAX_CHARACTERS).collect();
    let argv = [
        scontrol.to_string_lossy().into_owned(),
        "update".to_owned(),
        format!("JobId={job_id}"),
        format!("AdminComment=ibscope: {text}"),
    ];
    let what = match runner.run(None, &argv, ANSWER_TIMEOUT) {
        Ok(output) if output.is_success() => return,
        Ok(output) => printable(&output.stderr),
        Err(error) => error.to_string(),
    };
    log.write(Level::Warning, &format!("the job's AdminComment was not written: {what}"));
}
