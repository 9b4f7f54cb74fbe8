//! The lines of a summary, each with a label.

/// Labels and texts. A line with an empty label continues the line before it.
pub(super) struct SummaryLines {
    pub(super) lines: Vec<(&'static str, String)>,
}

impl SummaryLines {
    pub(super) fn put(&mut self, label: &'static str, value: &str) {
        self.lines.push((label, value.to_owned()));
    }
}
