//! The columns of an output table: for each column a description and a function that computes its
//! value from a row.
//!
//! A [`Table`] is generic over the row type `R` and writes nothing itself: `render` writes it as
//! csv, JSON or terminal text, `profile` as Parquet. csv, JSON and Parquet take their columns from
//! here, so none of them can have a column without a description.

use super::column::{ColumnDescription, ColumnType, ColumnUnit, TableDescription};
use std::borrow::Cow;

/// The value of one cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ColumnValue<'a> {
    /// Unknown or not applicable: empty in csv, `null` in JSON.
    Missing,
    Unsigned(u64),
    Signed(i64),
    Real(f64),
    Flag(bool),
    /// `yes` or `no` in csv.
    YesNo(bool),
    Text(Cow<'a, str>),
    List(Vec<Cow<'a, str>>),
}

/// A return type of a column function; it determines the type of the column.
pub(crate) trait Field {
    const TYPE: ColumnType;

    fn value(self) -> ColumnValue<'static>;
}

macro_rules! field {
    ($($type:ty: $column:ident, $number:ident => $value:expr;)*) => {
        $(impl Field for $type {
            const TYPE: ColumnType = ColumnType::$column;

            fn value(self) -> ColumnValue<'static> {
                let $number = self;
                $value
            }
        })*
    };
}

field! {
    u32: U32, number => ColumnValue::Unsigned(number.into());
    u64: U64, number => ColumnValue::Unsigned(number);
    usize: U64, number => ColumnValue::Unsigned(number as u64);
    i32: I32, number => ColumnValue::Signed(number.into());
    i64: I64, number => ColumnValue::Signed(number);
    f64: F64, number => ColumnValue::Real(number);
    bool: Bool, flag => ColumnValue::Flag(flag);
    &'static str: Text, text => ColumnValue::Text(Cow::Borrowed(text));
    String: Text, text => ColumnValue::Text(Cow::Owned(text));
}

impl<T: Field> Field for Option<T> {
    const TYPE: ColumnType = T::TYPE;

    fn value(self) -> ColumnValue<'static> {
        self.map_or(ColumnValue::Missing, T::value)
    }
}

/// Computes the values of a column.
trait Getter<R> {
    fn value<'r>(&self, row: &'r R) -> ColumnValue<'r>;

    /// The values of many rows: one dynamic call for all of them.
    fn values<'r>(&self, rows: &'r [R]) -> Vec<ColumnValue<'r>>;

    /// The unsigned numbers of many rows; `None` for other values. Most columns hold such numbers, and
    /// this makes no [`ColumnValue`] of each.
    fn unsigned(&self, rows: &[R]) -> Vec<Option<u64>>;
}

impl<R, F: for<'r> Fn(&'r R) -> ColumnValue<'r>> Getter<R> for F {
    fn value<'r>(&self, row: &'r R) -> ColumnValue<'r> {
        self(row)
    }

    fn values<'r>(&self, rows: &'r [R]) -> Vec<ColumnValue<'r>> {
        rows.iter().map(self).collect()
    }

    fn unsigned(&self, rows: &[R]) -> Vec<Option<u64>> {
        rows.iter().map(|row| if let ColumnValue::Unsigned(number) = self(row) { Some(number) } else { None }).collect()
    }
}

/// Formats a row's value in a terminal column.
pub(crate) type Formatter<R> = Box<dyn Fn(&R) -> String>;

/// A column in csv, JSON and Parquet.
pub(crate) struct Column<R> {
    pub(crate) description: ColumnDescription,
    getter: Box<dyn Getter<R>>,
    /// Decimal places of fractional numbers in csv and JSON; `None` writes all digits.
    pub(crate) decimals: Option<usize>,
}

/// A column in the terminal table.
pub(crate) struct ShownColumn<R> {
    pub(crate) heading: Cow<'static, str>,
    pub(crate) is_right: bool,
    pub(crate) text: ShownText<R>,
}

/// The text of a terminal cell.
pub(crate) enum ShownText<R> {
    /// The value of `Table::columns` at this index, formatted by its unit.
    OfUnit(usize),
    Formatted(Formatter<R>),
}

/// The columns of a table in csv order (`columns`), and the columns of its terminal form (`shown`).
pub(crate) struct Table<R> {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Column<R>>,
    pub(crate) shown: Vec<ShownColumn<R>>,
}

impl<R> Table<R> {
    /// Creates a table without columns. `name` is the command line that writes it as csv, or the
    /// file name of a Parquet table.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, columns: Vec::new(), shown: Vec::new() }
    }

    /// Adds a column from a description and a function that returns any [`ColumnValue`].
    pub(crate) fn values(
        mut self,
        description: ColumnDescription,
        value: impl for<'r> Fn(&'r R) -> ColumnValue<'r> + 'static,
    ) -> Self {
        self.columns.push(Column { description, getter: Box::new(value), decimals: None });
        self
    }

    /// Adds a column of numbers, flags or owned strings; the return type of `value` sets its type.
    pub(crate) fn column<T: Field>(
        self,
        name: &'static str,
        unit: ColumnUnit,
        meaning: &'static str,
        value: impl Fn(&R) -> T + 'static,
    ) -> Self {
        let description = ColumnDescription { name, column_type: T::TYPE, unit, meaning };
        self.values(description, move |row| value(row).value())
    }

    /// Adds a text column that borrows from the row.
    pub(crate) fn name(
        self,
        name: &'static str,
        meaning: &'static str,
        text: impl for<'r> Fn(&'r R) -> Option<&'r str> + 'static,
    ) -> Self {
        let description = ColumnDescription { name, column_type: ColumnType::Text, unit: ColumnUnit::Name, meaning };
        self.values(description, move |row| {
            text(row).map_or(ColumnValue::Missing, |text| ColumnValue::Text(Cow::Borrowed(text)))
        })
    }

    /// Adds a column whose values are lists of strings.
    pub(crate) fn list(
        self,
        name: &'static str,
        unit: ColumnUnit,
        meaning: &'static str,
        texts: impl for<'r> Fn(&'r R) -> Vec<Cow<'r, str>> + 'static,
    ) -> Self {
        let description = ColumnDescription { name, column_type: ColumnType::List, unit, meaning };
        self.values(description, move |row| ColumnValue::List(texts(row)))
    }

    /// Adds one column for each count of a struct (see `column_values!`).
    pub(crate) fn counts<const N: usize>(
        self,
        columns: [ColumnDescription; N],
        values: impl Fn(&R) -> [u64; N] + Copy + 'static,
    ) -> Self {
        self.known_counts(columns, values, |_, _| true)
    }

    /// Adds one column for each count of a struct; `is_known` decides by row and column name
    /// whether there is a value.
    pub(crate) fn known_counts<const N: usize>(
        mut self,
        columns: [ColumnDescription; N],
        values: impl Fn(&R) -> [u64; N] + Copy + 'static,
        is_known: impl Fn(&R, &str) -> bool + Copy + 'static,
    ) -> Self {
        for (index, description) in columns.into_iter().enumerate() {
            self = self.values(description, move |row| {
                let is_known = is_known(row, description.name);
                if is_known { ColumnValue::Unsigned(values(row)[index]) } else { ColumnValue::Missing }
            });
        }
        self
    }

    /// Applies `group`, which adds columns that several tables share.
    pub(crate) fn with(self, group: impl FnOnce(Self) -> Self) -> Self {
        group(self)
    }

    /// Rounds the numbers of the last column to `decimals` decimal places in csv and JSON.
    pub(crate) fn decimals(mut self, decimals: usize) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.decimals = Some(decimals);
        }
        self
    }

    /// Shows the last column in the terminal table under `heading`, formatted by its unit.
    pub(crate) fn headed(mut self, heading: impl Into<Cow<'static, str>>) -> Self {
        if let Some((last, column)) = self.columns.iter().enumerate().next_back() {
            let is_right = column.description.column_type.is_number();
            self.shown.push(ShownColumn { heading: heading.into(), is_right, text: ShownText::OfUnit(last) });
        }
        self
    }

    /// Adds a right-aligned column to the terminal table only.
    pub(crate) fn shown(self, heading: impl Into<Cow<'static, str>>, format: impl Fn(&R) -> String + 'static) -> Self {
        self.show(heading.into(), true, Box::new(format))
    }

    /// Replaces a heading of the terminal table.
    pub(crate) fn renamed(mut self, heading: &str, by: impl Into<Cow<'static, str>>) -> Self {
        if let Some(column) = self.shown.iter_mut().find(|column| column.heading == heading) {
            column.heading = by.into();
        }
        self
    }

    /// Adds a left-aligned column to the terminal table only.
    pub(crate) fn shown_left(
        self,
        heading: impl Into<Cow<'static, str>>,
        format: impl Fn(&R) -> String + 'static,
    ) -> Self {
        self.show(heading.into(), false, Box::new(format))
    }

    fn show(mut self, heading: Cow<'static, str>, is_right: bool, format: Formatter<R>) -> Self {
        self.shown.push(ShownColumn { heading, is_right, text: ShownText::Formatted(format) });
        self
    }

    /// The descriptions of the columns.
    pub(crate) fn describe(&self) -> TableDescription {
        TableDescription { name: self.name, columns: self.columns.iter().map(|column| column.description).collect() }
    }
}

impl<R> Column<R> {
    /// Computes the value of the column for `row`.
    pub(crate) fn value<'r>(&self, row: &'r R) -> ColumnValue<'r> {
        self.getter.value(row)
    }

    /// Computes the values of the column for `rows`.
    pub(crate) fn values<'r>(&self, rows: &'r [R]) -> Vec<ColumnValue<'r>> {
        self.getter.values(rows)
    }

    /// Computes the unsigned numbers of the column for `rows`; `None` for other values.
    pub(crate) fn unsigned(&self, rows: &[R]) -> Vec<Option<u64>> {
        self.getter.unsigned(rows)
    }
}
