//! Rows of a table as a Parquet file.

use super::ProfileError;
use crate::model::column::ColumnType;
use crate::model::table::{Column as TableColumn, ColumnValue, Table};
use polars::polars_utils::compression::ZstdLevel;
use polars::prelude::{
    ChunkFullNull, ChunkedArray, DataFrame, Float64Type, Int32Type, Int64Type, IntoSeries, NamedFrom,
    ParquetCompression, ParquetWriter, PlSmallStr, PolarsNumericType, PolarsResult, Series, UInt32Type, UInt64Type,
};
use std::path::Path;

/// The compression of all tables.
pub(super) fn compression() -> ParquetCompression {
    // The default level takes twice the time, for files that are a few percent smaller.
    ParquetCompression::Zstd(ZstdLevel::try_new(1).ok())
}

/// Converts rows to a polars table.
pub(super) fn frame<R>(table: &Table<R>, rows: &[R]) -> PolarsResult<DataFrame> {
    let columns = table.columns.iter().map(|column| series(column, rows).into());
    DataFrame::new(rows.len(), columns.collect())
}

/// Converts the values of a column to a polars series.
///
/// A value of another type than the column's becomes null. No column produces such a value: the
/// column's type follows from the return type of its function.
fn series<R>(column: &TableColumn<R>, rows: &[R]) -> Series {
    let name = column.description.name.into();
    let unsigned = || column.unsigned(rows).into_iter();
    let values = || column.values(rows).into_iter();
    let signed = |value| if let ColumnValue::Signed(number) = value { Some(number) } else { None };
    match column.description.column_type {
        ColumnType::U32 => numbers::<UInt32Type>(name, unsigned().map(|value| value.map(|number| number as u32))),
        ColumnType::U64 => numbers::<UInt64Type>(name, unsigned()),
        ColumnType::I32 => numbers::<Int32Type>(name, values().map(|value| signed(value).map(|number| number as i32))),
        ColumnType::I64 => numbers::<Int64Type>(name, values().map(signed)),
        ColumnType::F64 => {
            let real = |value| if let ColumnValue::Real(number) = value { Some(number) } else { None };
            numbers::<Float64Type>(name, values().map(real))
        }
        ColumnType::Bool => {
            let flag = |value| if let ColumnValue::Flag(flag) = value { Some(flag) } else { None };
            Series::new(name, values().map(flag).collect::<Vec<_>>())
        }
        ColumnType::Text | ColumnType::List | ColumnType::Label => {
            let text = |value| if let ColumnValue::Text(text) = value { Some(text) } else { None };
            Series::new(name, values().map(text).collect::<Vec<_>>())
        }
    }
}

/// Makes a column of numbers. Most columns have a value in every row, or in none, and polars takes
/// such columns over without looking at each value.
fn numbers<T: PolarsNumericType>(name: PlSmallStr, values: impl Iterator<Item = Option<T::Native>>) -> Series
where
    ChunkedArray<T>: IntoSeries,
{
    let mut is_valid = Vec::with_capacity(values.size_hint().0);
    let numbers: Vec<T::Native> = values
        .map(|value| {
            is_valid.push(value.is_some());
            value.unwrap_or_default()
        })
        .collect();
    let nulls = is_valid.iter().filter(|is_valid| !**is_valid).count();
    if nulls == numbers.len() {
        return ChunkedArray::<T>::full_null(name, nulls).into_series();
    }
    let validity = (nulls > 0).then(|| is_valid.into_iter().collect());
    ChunkedArray::<T>::from_vec_validity(name, numbers, validity).into_series()
}

/// Rows per row group; a group takes a few MB while it is written.
pub(super) const GROUP: usize = 1 << 14;

/// Splits rows into chunks of [`GROUP`] rows.
pub(super) fn groups<T>(mut rows: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    std::iter::from_fn(move || Some(rows.by_ref().take(GROUP).collect()).filter(|group: &Vec<T>| !group.is_empty()))
}

/// Encodes a table as Parquet, one row group at a time, so that the rows are not held twice.
///
/// The caller writes the bytes to the file, because polars does not report why a write failed.
/// `path` is for errors.
pub(super) fn bytes<R>(
    path: &Path,
    groups: impl Iterator<Item = impl AsRef<[R]>>,
    table: &Table<R>,
) -> Result<Vec<u8>, ProfileError> {
    let failed = |source| ProfileError::Table { path: path.to_owned(), action: "written", source };
    let mut bytes = Vec::new();
    let empty = frame(table, &[]).map_err(failed)?;
    let writer =
        ParquetWriter::new(&mut bytes).with_compression(compression()).set_parallel(false).batched(empty.schema());
    let mut writer = writer.map_err(failed)?;
    for group in groups {
        frame(table, group.as_ref()).and_then(|group| writer.write_batch(&group)).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(bytes)
}
