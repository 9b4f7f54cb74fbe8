//! Formats the values of a column for a terminal.

use crate::model::column::ColumnUnit;
use crate::model::table::ColumnValue;
use crate::render::units::{bytes, bytes_per_second, group, per_second, time};

/// Formats a value by the unit of its column; `-` for a missing value.
pub(super) fn text(value: &ColumnValue<'_>, unit: ColumnUnit) -> String {
    match (value, unit) {
        (ColumnValue::Missing, _) => "-".to_owned(),
        (ColumnValue::Unsigned(number), ColumnUnit::Count) => group(*number),
        (ColumnValue::Unsigned(number), ColumnUnit::Bytes) => bytes(*number),
        (ColumnValue::Unsigned(number), ColumnUnit::Nanoseconds) => time(*number as f64),
        (ColumnValue::Real(number), ColumnUnit::Nanoseconds) => time(*number),
        (ColumnValue::Real(number), ColumnUnit::Percent) => format!("{number:.1} %"),
        (ColumnValue::Real(number), ColumnUnit::BytesPerSecond) => bytes_per_second(*number),
        (ColumnValue::Real(number), ColumnUnit::PerSecond) => per_second(*number),
        _ => {
            let mut text = String::new();
            value.put(None, &mut text);
            text
        }
    }
}
