//! Tables for people at a terminal. All end with a line end.

mod heat;
mod matrix;
mod summary;
mod timeline;

pub use matrix::matrix_table;
pub use summary::summary;
pub use timeline::timeline_table;

use comfy_table::{Cell, CellAlignment, Color, LineStyle, Table, TableStyle};

/// What the reader's terminal can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Colours are written (256-colour escape sequences).
    pub color: bool,
    /// Columns that a line may fill.
    pub width: usize,
    /// Signs beyond ASCII are written.
    pub utf8: bool,
}

impl Style {
    const fn dot(&self) -> &'static str {
        if self.utf8 { "·" } else { "." }
    }
}

/// An empty table: no frame, one line below the header. The first `left` columns are words, the others numbers.
fn table(header: Vec<String>, left: usize, style: &Style) -> Table {
    let rule = LineStyle::none().fill(if style.utf8 { '─' } else { '-' });
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(rule.junction(if style.utf8 { '─' } else { '-' })));
    if style.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let cells = header.into_iter().enumerate();
    table.set_header(cells.map(|(index, text)| aligned(text, index < left)).collect::<Vec<_>>());
    table
}

/// A cell of a row: words start, numbers end together.
fn aligned(text: String, is_word: bool) -> Cell {
    Cell::new_owned(text).set_alignment(if is_word { CellAlignment::Left } else { CellAlignment::Right })
}

/// A cell on a colour from `viridis`, its text in whatever can be read on it.
fn shaded(text: String, color: (u8, u8, u8)) -> Cell {
    let (number, shown) = super::color::ansi256(color);
    // 16 and 231 are black and white in every palette; 0 and 15 are what the user made of them.
    let ink = if super::color::wants_dark_text(shown) { 16 } else { 231 };
    aligned(text, false).bg(Color::AnsiValue(number)).fg(Color::AnsiValue(ink))
}

/// The table's lines without blanks at their ends.
fn lines(table: &Table) -> Vec<String> {
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Breaks a text at blanks so that no line is wider than `width`; further lines start with `indent` blanks.
fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut used = 0;
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 {
            if used + 1 + length > width.max(indent + 20) {
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                used = indent;
            } else {
                wrapped.push(' ');
                used += 1;
            }
        }
        wrapped.push_str(word);
        used += length;
    }
    wrapped
}

/// Notes below a table, one or more lines each.
fn footer(notes: &[String], style: &Style) -> String {
    notes.iter().map(|note| wrap(note, style.width, 2) + "\n").collect()
}
