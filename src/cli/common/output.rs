//! Writes to standard output and standard error.

use super::choices::Color;
use super::prose::{ProseWriter, wrapped};
use crate::model::printable;
use crate::render::text::Style;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use terminal_size::Width;

/// Width of tables, in columns, if that of the terminal is unknown.
const DEFAULT_WIDTH: usize = 100;

/// Prints a line for the user. Control characters, for example in file names, are escaped.
pub(in crate::cli) fn eprint_line(text: &str) {
    let width = terminal_size::terminal_size_of(io::stderr()).map(|(Width(width), _)| usize::from(width));
    for line in text.split('\n') {
        let line = printable(line);
        let line = width.map_or(line.as_str().into(), |width| wrapped(&line, width));
        // If standard error is closed, the result still counts.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Prints the notes on a result.
pub(in crate::cli) fn notes(notes: &[String]) {
    for note in notes {
        eprint_line(&format!("note: {note}"));
    }
}

/// Writes a result to standard output. A terminal gets prose wrapped at its width.
pub(in crate::cli) fn results(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match terminal_width() {
        None => write(&mut out)?,
        Some(width) => {
            let mut prose = ProseWriter::new(&mut out, width);
            write(&mut prose)?;
            prose.flush()?;
        }
    }
    out.flush()
}

/// Errors of the operating system, with the next step for the user.
const ADVICE: [(&str, &str); 2] = [
    ("No space left on device", "make room there, or write to another disk"),
    ("File too large", "raise the file size limit (`ulimit -f`), or write to another disk"),
];

/// An error with its causes, each once, because many messages already include their cause.
pub(in crate::cli) fn describe(error: &anyhow::Error) -> String {
    let causes = causes(error);
    let mut text = causes.clone();
    for (_, advice) in ADVICE.into_iter().filter(|(what, _)| causes.contains(what)) {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
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

/// True if standard output was closed by its reader.
pub(in crate::cli) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is = |error: &(dyn std::error::Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is)
}

/// Width of the terminal that standard output is, in columns; `None` for files and pipes.
pub(in crate::cli) fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(Width(width), _)| usize::from(width))
}

/// Color and width of tables on this standard output.
pub(in crate::cli) fn style(color: Color) -> Style {
    let is_terminal = io::stdout().is_terminal();
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    Style { color, width: terminal_width().unwrap_or(DEFAULT_WIDTH) }
}
