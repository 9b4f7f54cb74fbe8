//! Tables for people: columns without lines, numbers at the right.

use comfy_table::{CellAlignment, Table, presets};

/// An empty table with this header; the columns of these numbers are aligned at the right.
pub(crate) fn columns<S: AsRef<str>>(header: &[S], right: impl IntoIterator<Item = usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().map(AsRef::as_ref));
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
