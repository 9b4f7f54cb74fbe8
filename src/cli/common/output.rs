//! Standard output and error.

use super::choices::Color;
use crate::model::printable;
use crate::render::text::Style;
use std::io::{self, BufWriter, IsTerminal as _, Write};

/// Columns that tables fill where the terminal's width is not known.
const DEFAULT_WIDTH: usize = 100;

/// Words for the person at the terminal, who is not to see what names of files and the like would do to it.
pub(in crate::cli) fn say(text: &str) {
    for line in text.split('\n') {
        // Where nobody reads standard error any more the result counts alone.
        let _ = writeln!(io::stderr(), "{}", printable(line));
    }
}

/// Notes on a result.
pub(in crate::cli) fn notes(notes: &[String]) {
    for note in notes {
        say(&format!("note: {note}"));
    }
}

/// Writes a result to standard output.
pub(in crate::cli) fn results(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// What the system says, whoever passes it on, and what to do.
const ADVICE: [(&str, &str); 2] = [
    ("No space left on device", "make room there, or write to another disk"),
    ("File too large", "raise the limit on the length of files (`ulimit -f`), or write to another disk"),
];

/// An error and its causes, each said once: many messages hold their cause already.
pub(in crate::cli) fn describe(error: &anyhow::Error) -> String {
    let causes = causes(error);
    let mut said = causes.clone();
    for (_, advice) in ADVICE.into_iter().filter(|(what, _)| causes.contains(what)) {
        said.push_str("; ");
        said.push_str(advice);
    }
    said
}

fn causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |mut text, cause| {
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
        text
    })
}

/// True where the reader of standard output has gone.
pub(in crate::cli) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is = |error: &(dyn std::error::Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is)
}

/// How tables look on this standard output.
pub(in crate::cli) fn style(color: Color) -> Style {
    let is_terminal = io::stdout().is_terminal();
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let width = if is_terminal {
        terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0))
    } else {
        DEFAULT_WIDTH
    };
    Style { color, width }
}
