//! What programs say, as text for people.

/// Bytes as text for people, without the line ends and other controls that a program on a node may put in.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").chars().map(|c| if c.is_control() { '?' } else { c }).take(600).collect()
}
