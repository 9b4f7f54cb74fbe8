//! Counts and the output of programs, as text for messages.

use std::fmt::Display;

/// A count and a noun: `1 port`, `2 ports`.
pub(crate) fn plural<N: Copy + Display + From<u8> + PartialEq>(number: N, what: &str) -> String {
    let end = if number == N::from(1) { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// Bytes as one line of text: lines joined by `; `, other control characters replaced by `?`, at
/// most 600 characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").chars().map(|c| if c.is_control() { '?' } else { c }).take(600).collect()
}
