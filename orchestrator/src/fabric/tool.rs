//! A tool is run, and what it wrote becomes text that is safe to show.

use crate::config::Config;
use crate::remote::{Output, RemoteError, Runner};
use std::path::Path;
use std::time::Duration;

/// Characters of what a tool said that a message repeats.
const LONGEST: usize = 200;

/// Runs a tool on a node, or here, for at most `fabric.timeout_s`.
pub(super) fn run(
    config: &Config,
    runner: &dyn Runner,
    node: Option<&str>,
    tool: &Path,
    arguments: &[&str],
) -> Result<Output, RemoteError> {
    let program = name(tool);
    let argv: Vec<String> = [program.as_str()].iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
    runner.run(node, &argv, Duration::from_secs(config.fabric.timeout_s.into()))
}

/// A program's path as an argument.
pub(super) fn name(tool: &Path) -> String {
    tool.to_string_lossy().into_owned()
}

/// What a tool wrote to its standard output.
pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a tool gave as the reason of its failure: the warnings of its libraries without their prefix, or its status.
pub(super) fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = text(output);
    let reason = |line: &&str| !line.is_empty() && !line.contains("sim_connect: ");
    let lines: Vec<&str> =
        errors.lines().chain(text.lines().filter(|line| line.contains("error"))).map(bare).filter(reason).collect();
    let said = lines.join("; ");
    if said.is_empty() { format!("it ended with status {}", output.status) } else { shown(&said) }
}

/// A line without `ibwarn: [PID] `.
fn bare(line: &str) -> &str {
    let warning = line.strip_prefix("ibwarn: [").or_else(|| line.strip_prefix("ibpanic: ["));
    warning.and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rest)| rest).trim()
}

/// A text from elsewhere as it may stand in a message: no control characters, and not too long.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}
