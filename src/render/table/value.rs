//! Writes single values as csv and JSON.

use crate::analysis::Label;
use crate::model::table::ColumnValue;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Separates the items of a list in csv.
const SEPARATOR: &str = ";";

impl ColumnValue<'_> {
    /// The value as JSON. Fractional numbers are rounded as in csv.
    pub(crate) fn json(self, decimals: Option<usize>) -> Json {
        match self {
            Self::Real(number) if decimals.is_some() => {
                let mut field = String::new();
                self.put(decimals, &mut field);
                field.parse().unwrap_or(number).into()
            }
            Self::Missing => Json::Null,
            Self::Unsigned(number) => number.into(),
            Self::Signed(number) => number.into(),
            // serde_json writes NaN and infinities as `null`.
            Self::Real(number) => number.into(),
            Self::Flag(flag) | Self::YesNo(flag) => flag.into(),
            Self::Text(text) => text.into_owned().into(),
            Self::List(texts) => texts.into_iter().map(Cow::into_owned).collect(),
        }
    }

    /// Appends the value as csv writes it, unquoted.
    pub(crate) fn put(&self, decimals: Option<usize>, field: &mut String) {
        match self {
            Self::Missing => {}
            Self::Unsigned(number) => field.push_str(itoa::Buffer::new().format(*number)),
            Self::Signed(number) => field.push_str(itoa::Buffer::new().format(*number)),
            Self::Real(number) => put_real(*number, decimals, field),
            Self::Flag(flag) => field.push_str(if *flag { "true" } else { "false" }),
            Self::YesNo(flag) => field.push_str(if *flag { "yes" } else { "no" }),
            Self::Text(text) => field.push_str(text),
            Self::List(texts) => field.push_str(&texts.join(SEPARATOR)),
        }
    }
}

/// Appends a number; not-a-number and infinities are left empty.
fn put_real(number: f64, decimals: Option<usize>, field: &mut String) {
    if !number.is_finite() {
        return;
    }
    let _ = match decimals.filter(|_| number.fract() != 0.0) {
        Some(decimals) => write!(field, "{number:.decimals$}"),
        None => write!(field, "{number}"),
    };
}

impl<'a> From<&'a Label> for ColumnValue<'a> {
    /// A rank becomes a number, any other label a string. The job is left to the column `job`.
    fn from(label: &'a Label) -> Self {
        label.rank().map_or_else(|| Self::Text(label.without_job().into()), |rank| Self::Unsigned(rank.into()))
    }
}
