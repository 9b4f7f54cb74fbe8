//! Wraps prose at the width of a terminal, between words.
//!
//! In: lines of a result or a note. Out: the same lines, those of prose wrapped, with the text that
//! follows indented like the text before it. Invariant: rows of tables stay as they are, and so does
//! everything that is not written to a terminal.

use std::borrow::Cow;
use std::io::{self, Write};
use textwrap::{Options, WordSplitter};

/// Columns in which the key of a line must end, as in `input         sink.pcap: ...`.
const MAX_KEY_COLUMNS: usize = 24;
/// The start of a color, and its end.
const ESCAPE: char = '\u{1b}';
const RESET: &str = "\u{1b}[0m";
/// Narrower terminals show long lines as they are: one word per line is harder to read.
const MIN_WIDTH: usize = 40;

/// Writes lines to a terminal and wraps those of prose.
pub(super) struct ProseWriter<W: Write> {
    out: W,
    width: usize,
    line: Vec<u8>,
}

impl<W: Write> ProseWriter<W> {
    /// A writer for a terminal of this width in columns.
    pub(super) const fn new(out: W, width: usize) -> Self {
        Self { out, width, line: Vec::new() }
    }

    fn put_line(&mut self) -> io::Result<()> {
        // Names of files may be any bytes; such a line stays as it is.
        match std::str::from_utf8(&self.line) {
            Ok(line) => self.out.write_all(wrapped(line, self.width).as_bytes())?,
            Err(_) => self.out.write_all(&self.line)?,
        }
        self.line.clear();
        Ok(())
    }
}

impl<W: Write> Write for ProseWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(end) => {
                    self.line.extend_from_slice(end);
                    self.put_line()?;
                    self.out.write_all(b"\n")?;
                }
                None => self.line.extend_from_slice(part),
            }
        }
        Ok(bytes.len())
    }

    /// Writes an unfinished line too.
    fn flush(&mut self) -> io::Result<()> {
        self.put_line()?;
        self.out.flush()
    }
}

/// A line of prose, wrapped at `width` columns; any other line as it is.
pub(super) fn wrapped(line: &str, width: usize) -> Cow<'_, str> {
    let Some(indent) = text_column(line) else { return line.into() };
    if width < MIN_WIDTH || textwrap::core::display_width(line) <= width {
        return line.into();
    }
    let (key, text) = line.split_at(indent);
    let spaces = " ".repeat(textwrap::core::display_width(key));
    let options = Options::new(width)
        .initial_indent(key)
        .subsequent_indent(&spaces)
        .break_words(false)
        // Names and addresses must stay searchable.
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options).into()
}

/// Where the text of a line of prose starts, in bytes: after its indentation, and after a key that two
/// spaces or the end of its color end. `None` for rows of tables, which have several such gaps.
fn text_column(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let body = &line[indent..];
    let key = match body.strip_prefix(ESCAPE).and_then(|colored| colored.find(RESET)) {
        Some(end) => ESCAPE.len_utf8() + end + RESET.len(),
        None => match body.find("  ") {
            Some(gap) => gap,
            None => return Some(indent),
        },
    };
    let text = key + body[key..].find(|letter| letter != ' ')?;
    let columns = textwrap::core::display_width(&line[..indent + text]);
    (columns <= MAX_KEY_COLUMNS && !body[text..].contains("  ")).then_some(indent + text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_below_its_text() {
        let line = "health        reliable connections retransmitted packets, and the capture shows where";
        assert_eq!(
            wrapped(line, 60),
            "health        reliable connections retransmitted packets,\n              and the capture shows where"
        );
        assert_eq!(
            wrapped("    three words of an indented sentence that is long", 40),
            "    three words of an indented sentence\n    that is long"
        );
        assert_eq!(wrapped("short", 60), "short");
    }

    #[test]
    fn rows_of_tables_and_long_words_stay() {
        let row = "  acknowledged   SEND   0 B   5   1.63 ms   2.12 ms   2.14 ms   2.71 ms   2.71 ms";
        assert_eq!(wrapped(row, 60), row);
        let path = "a".repeat(70);
        assert_eq!(wrapped(&path, 60), path);
        assert_eq!(wrapped("narrow terminals do not wrap", 10), "narrow terminals do not wrap");
    }

    #[test]
    fn colors_take_no_columns() {
        let line = "\x1b[1mred\x1b[0m words of forty columns, more or so";
        assert_eq!(wrapped(line, 41), line);
        let line = "\x1b[1mretransmitted\x1b[0m more requests than forty columns";
        let expected = "\x1b[1mretransmitted\x1b[0m more requests than forty\n              columns";
        assert_eq!(wrapped(line, 40), expected);
    }

    #[test]
    fn bytes_arrive_in_any_parts() {
        let text = "a line of prose that is longer than forty columns\nx  1  2\nthe end";
        let mut whole = Vec::new();
        let mut writer = ProseWriter::new(&mut whole, 40);
        for part in text.as_bytes().chunks(3) {
            writer.write_all(part).expect("write");
        }
        writer.flush().expect("flush");
        assert_eq!(
            String::from_utf8(whole).expect("text"),
            "a line of prose that is longer than\nforty columns\nx  1  2\nthe end"
        );
    }
}
