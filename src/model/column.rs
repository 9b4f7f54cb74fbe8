//! Descriptions of output columns: name, type, unit and meaning.
//!
//! csv, JSON and Parquet tables and `docs/columns.md` are generated from these descriptions, so a
//! column without a unit or a meaning cannot be written.

/// The unit of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnUnit {
    /// A count of packets, messages, calls and the like.
    Count,
    /// Bytes.
    Bytes,
    /// A duration in nanoseconds.
    Nanoseconds,
    /// A time in nanoseconds since 1970-01-01T00:00:00Z on the capture's clock.
    Timestamp,
    /// Bytes per second.
    BytesPerSecond,
    /// A count per second.
    PerSecond,
    /// Percent.
    Percent,
    /// Parts per million.
    PartsPerMillion,
    /// A dimensionless number: a quotient, or a share from 0 to 1.
    Ratio,
    /// Pause quanta; one quantum is the time that 512 bits take on the link.
    Quanta,
    /// Squared nanoseconds.
    SquareNanoseconds,
    /// An identifier: a rank, a queue pair, a PSN, a tag, a row number of another table.
    Number,
    /// A name.
    Name,
    /// One or more sentences.
    Prose,
    /// Yes or no.
    Flag,
    /// The unit of the quantity that the row's column `value` names.
    OfValue,
}

impl ColumnUnit {
    /// The name of the unit in `docs/columns.md`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Nanoseconds => "ns",
            Self::Timestamp => "ns since the epoch",
            Self::BytesPerSecond => "bytes/s",
            Self::PerSecond => "1/s",
            Self::Percent => "percent",
            Self::PartsPerMillion => "parts per million",
            Self::Ratio => "ratio",
            Self::Quanta => "pause quanta",
            Self::SquareNanoseconds => "ns²",
            Self::Number => "number",
            Self::Name => "name",
            Self::Prose => "text",
            Self::Flag => "flag",
            Self::OfValue => "unit of `value`",
        }
    }
}

/// The data type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A string.
    Text,
    /// An unsigned 32-bit integer.
    U32,
    /// An unsigned 64-bit integer.
    U64,
    /// A signed 32-bit integer.
    I32,
    /// A signed 64-bit integer.
    I64,
    /// A 64-bit floating-point number.
    F64,
    /// `true` or `false`; `yes` or `no` in csv where the column's meaning states that.
    Bool,
    /// A list of strings: an array in JSON, separated by `;` in csv.
    List,
    /// A sender or receiver: a rank as a number; an endpoint or `unknown` as a string.
    Label,
}

impl ColumnType {
    /// The name of the type in `docs/columns.md`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::List => "list",
            Self::Label => "label",
        }
    }

    /// True for numbers, which terminal tables align right.
    #[must_use]
    pub const fn is_number(self) -> bool {
        match self {
            Self::U32 | Self::U64 | Self::I32 | Self::I64 | Self::F64 => true,
            Self::Text | Self::Bool | Self::List | Self::Label => false,
        }
    }
}

/// The description of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// The column name, the same in every format.
    pub name: &'static str,
    /// The data type of the values.
    pub column_type: ColumnType,
    /// The unit of the values.
    pub unit: ColumnUnit,
    /// The meaning of the values, as a noun phrase.
    pub meaning: &'static str,
}

impl ColumnDescription {
    /// The column's row in a table of `docs/columns.md`, below [`TableDescription::HEADER`].
    #[must_use]
    pub fn markdown(&self) -> String {
        let Self { name, column_type, unit, meaning } = self;
        format!("| `{name}` | {} | {} | {meaning} |", column_type.name(), unit.name())
    }
}

/// The name and the columns of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// The command line that writes the table, without its inputs, or the file name.
    pub name: &'static str,
    /// The columns, in output order.
    pub columns: Vec<ColumnDescription>,
}

impl TableDescription {
    /// The header lines of a table in `docs/columns.md`.
    pub const HEADER: &'static str = "| column | type | unit | meaning |\n|---|---|---|---|";

    /// The Markdown table that describes the columns in `docs/columns.md`.
    #[must_use]
    pub fn markdown(&self) -> String {
        let rows = self.columns.iter().map(ColumnDescription::markdown);
        std::iter::once(Self::HEADER.to_owned()).chain(rows).collect::<Vec<_>>().join("\n")
    }
}

/// Implements `COLUMNS`, `values` and `from_values` for a struct of counts, all from one list of
/// fields, so that no table can omit a field.
macro_rules! column_values {
    ($type:ident { $($field:ident: $name:literal, $unit:ident, $meaning:expr;)* }) => {
        impl $type {
            /// The column descriptions, in the order of [`Self::values`].
            pub const COLUMNS: [$crate::model::column::ColumnDescription; [$($name),*].len()] = [
                $($crate::model::column::ColumnDescription {
                    name: $name,
                    column_type: $crate::model::column::ColumnType::U64,
                    unit: $crate::model::column::ColumnUnit::$unit,
                    meaning: $meaning,
                }),*
            ];

            /// The counts, in the order of [`Self::COLUMNS`].
            #[must_use]
            #[inline]
            pub const fn values(&self) -> [u64; Self::COLUMNS.len()] {
                [$(self.$field),*]
            }

            /// Builds the struct from its counts, in the order of [`Self::COLUMNS`].
            #[must_use]
            pub const fn from_values([$($field),*]: [u64; Self::COLUMNS.len()]) -> Self {
                Self { $($field),* }
            }
        }
    };
}

pub(crate) use column_values;
