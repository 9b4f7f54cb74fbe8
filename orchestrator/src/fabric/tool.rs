//! Runs fabric tools, and makes their output safe to show.

use crate::config::Config;
use crate::remote::{CommandOutput, RemoteError, Runner};
use std::path::Path;
use std::time::Duration;

/// Maximum number of characters of a tool's output in a message.
const MAX_MESSAGE_CHARS: usize = 200;

/// Runs a tool on a node, or on this machine, for at most `fabric.timeout_s`.
pub(super) fn run(
    config: &Config,
    runner: &dyn Runner,
    node: Option<&str>,
    tool: &Path,
    arguments: &[&str],
) -> Result<CommandOutput, RemoteError> {
    let program = name(tool);
    let argv: Vec<String> = [program.as_str()].iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
    runner.run(node, &argv, Duration::from_secs(config.fabric.timeout_s.into()))
}

/// Path of a program as an argument.
pub(super) fn name(tool: &Path) -> String {
    tool.to_string_lossy().into_owned()
}

/// Standard output of a tool.
pub(super) fn text(output: &CommandOutput) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Reason why a tool failed: its error output without the prefixes of its libraries, or its exit
/// status.
pub(super) fn failure_reason(output: &CommandOutput) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = text(output);
    let reason = |line: &&str| !line.is_empty() && !line.contains("sim_connect: ");
    let lines: Vec<&str> = errors
        .lines()
        .chain(text.lines().filter(|line| line.contains("error")))
        .map(without_prefix)
        .filter(reason)
        .collect();
    let printed = lines.join("; ");
    if printed.is_empty() { format!("it ended with status {}", output.status) } else { printable(&printed) }
}

/// Removes `ibwarn: [PID] ` from a line.
fn without_prefix(line: &str) -> &str {
    let warning = line.strip_prefix("ibwarn: [").or_else(|| line.strip_prefix("ibpanic: ["));
    warning.and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rest)| rest).trim()
}

/// Replaces control characters by spaces and shortens the text for a message.
fn printable(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_MESSAGE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}
