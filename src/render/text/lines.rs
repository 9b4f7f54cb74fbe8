//! Labelled lines, as they come.

/// Labels and texts. A line without a label belongs to the one before.
pub(super) struct Lines {
    pub(super) lines: Vec<(&'static str, String)>,
}

impl Lines {
    pub(super) fn put(&mut self, label: &'static str, value: &str) {
        self.lines.push((label, value.to_owned()));
    }
}
