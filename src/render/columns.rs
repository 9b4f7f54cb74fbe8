//! Terminal tables: aligned columns without borders.

use comfy_table::{CellAlignment, Table, presets};

/// Creates an empty table with this header; the columns at the indices in `right` are aligned
/// right.
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
