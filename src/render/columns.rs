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

/// The text of a table of at most `width` columns. Leaves out the columns with the headings `order`,
/// one after the other, until the table fits, and names them below it; `text` returns the table
/// without the first so many of them.
pub(crate) fn within(width: Option<usize>, order: &[&str], text: impl Fn(usize) -> String) -> String {
    let fits = |text: &str| width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width));
    let left_out = (0..order.len()).find(|left_out| fits(&text(*left_out))).unwrap_or(order.len());
    match left_out {
        0 => text(0),
        _ => format!("{}\n{}", text(left_out), not_shown(&order[..left_out])),
    }
}

/// The sentence that names the columns that do not fit.
pub(crate) fn not_shown(headings: &[&str]) -> String {
    let names: Vec<String> = headings.iter().map(|heading| heading.replace("-\n", "").replace('\n', " ")).collect();
    format!("not shown at this width: {}; --wide shows all columns", names.join(", "))
}

/// A table of these rows of at most `width` columns: leaves out the columns at the indices `order`,
/// one after the other, until it fits. The columns at the indices in `right` are aligned right.
pub(crate) fn rows_within<S: AsRef<str>>(
    header: &[S],
    right: &[usize],
    rows: &[Vec<String>],
    (width, order): (Option<usize>, &[usize]),
) -> String {
    let names: Vec<&str> = order.iter().filter_map(|index| header.get(*index)).map(AsRef::as_ref).collect();
    within(width, &names, |left_out| {
        let shown: Vec<usize> = (0..header.len()).filter(|index| !order[..left_out].contains(index)).collect();
        let names: Vec<&str> = shown.iter().filter_map(|index| header.get(*index)).map(AsRef::as_ref).collect();
        let is_right = |(at, index): (usize, &usize)| right.contains(index).then_some(at);
        let mut table = columns(&names, shown.iter().enumerate().filter_map(is_right));
        for row in rows {
            table.add_row(shown.iter().filter_map(|index| row.get(*index)));
        }
        table.trim_fmt()
    })
}
