//! The quantile columns that the time series and the surface share. Their buckets are coarser than
//! those of `latency`, so quantiles are exact to 6 %.

use crate::model::Histogram;
use crate::model::column::ColumnUnit::{Count, Nanoseconds};
use crate::render::table::Table;

/// A row that has a histogram.
pub(super) trait HasTimes {
    fn times(&self) -> &Histogram;
}

/// Columns that a narrow terminal leaves out, in this order.
pub(super) const LEFT_OUT: [&str; 3] = ["p10", "p90", "samples"];

/// Adds `samples`, `p10_ns`, `median_ns`, `p90_ns` and `p99_ns`.
pub(super) fn quantiles<R: HasTimes>(table: Table<R>) -> Table<R> {
    table
        .column("samples", Count, "times that were measured", |row: &R| row.times().samples())
        .headed("samples")
        .column("p10_ns", Nanoseconds, "10 % of the times are shorter; exact to 6 %", |row| row.times().quantile(0.1))
        .headed("p10")
        .column("median_ns", Nanoseconds, "half of the times are shorter; exact to 6 %", |row| {
            row.times().quantile(0.5)
        })
        .headed("median")
        .column("p90_ns", Nanoseconds, "90 % of the times are shorter; exact to 6 %", |row| row.times().quantile(0.9))
        .headed("p90")
        .column("p99_ns", Nanoseconds, "99 % of the times are shorter; exact to 6 %", |row| row.times().quantile(0.99))
        .headed("p99")
}
