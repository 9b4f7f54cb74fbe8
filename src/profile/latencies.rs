//! The Parquet tables of latencies: histograms, their buckets, and the time series.

use super::ProfileError;
use super::decode::{TableFile, TableReader};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Nanoseconds, Number, SquareNanoseconds, Timestamp};
use crate::model::histogram::COARSE_BUCKETS;
use crate::model::profile::{LatencyBin, LatencyRow};
use crate::model::table::Table;
use crate::model::{Histogram, HistogramParts, Interval, PackedRows, SizeClass, TimingKey, Verb};
use std::path::{Path, PathBuf};

/// The upper half of a 128-bit sum.
const fn high(sum: u128) -> u64 {
    (sum >> 64) as u64
}

/// A histogram, with the values that several columns share and that are computed once.
pub(super) struct HistogramRow {
    row: LatencyRow,
    parts: HistogramParts,
}

impl From<LatencyRow> for HistogramRow {
    fn from(row: LatencyRow) -> Self {
        let parts = row.histogram.clone().into_parts();
        Self { row, parts }
    }
}

/// The table of histograms.
pub(super) fn table() -> Table<HistogramRow> {
    Table::new("latencies.parquet")
        .column(
            "connection",
            Number,
            "the row of `connections.parquet`, from 0, that carried the requests",
            |of: &HistogramRow| of.row.connection,
        )
        .column("interval", Name, "the measured interval, as in `ibscope latency`", |of| of.row.timing.interval.name())
        .column("verb", Name, "`SEND`, `WRITE`, `READ`, `ATOMIC` or `DATAGRAM`", |of| of.row.timing.verb.name())
        .column("from_bytes", Bytes, "size class of the messages: from this power of two to below the next", |of| {
            of.row.timing.size.from_bytes()
        })
        .column("kept_bits", Count, "significant bits of the times of a bucket", |of| of.parts.kept_bits)
        .column("samples", Count, "number of times that were measured", |of| of.row.histogram.samples())
        .column("min_ns", Nanoseconds, "the shortest time", |of| of.row.histogram.min())
        .column("median_ns", Nanoseconds, "half of the times are shorter", |of| of.row.histogram.quantile(0.5))
        .column("p99_ns", Nanoseconds, "99 % of the times are shorter", |of| of.row.histogram.quantile(0.99))
        .column("max_ns", Nanoseconds, "the longest time", |of| of.row.histogram.max())
        .column("sum_ns_high", Nanoseconds, "upper 64 bits of the sum of the times", |of| high(of.parts.sum))
        .column("sum_ns_low", Nanoseconds, "lower 64 bits of the sum of the times", |of| of.parts.sum as u64)
        .column(
            "sum_of_squares_high",
            SquareNanoseconds,
            "upper 64 bits of the sum of the squares of the times",
            |of| high(of.parts.sum_of_squares),
        )
        .column("sum_of_squares_low", SquareNanoseconds, "lower 64 bits of the sum of the squares of the times", |of| {
            of.parts.sum_of_squares as u64
        })
}

/// Buckets with their counts, each with the row of its histogram.
pub(super) fn bucket_rows(rows: impl Iterator<Item = LatencyRow>) -> impl Iterator<Item = (u32, u32, u32)> {
    let of_row = |(latency, row): (u32, LatencyRow)| {
        let buckets = row.histogram.into_parts().buckets;
        buckets.into_iter().map(move |(bucket, count)| (latency, bucket, count))
    };
    (0..).zip(rows).flat_map(of_row)
}

/// The row that a histogram has in the first table.
const LATENCY: &str = "the row of `latencies.parquet`, from 0";

/// The table of buckets.
pub(super) fn buckets() -> Table<(u32, u32, u32)> {
    Table::new("latency_buckets.parquet")
        .column("latency", Number, LATENCY, |(latency, ..): &(u32, u32, u32)| *latency)
        .column("bucket", Number, "number of the bucket", |(_, bucket, _)| *bucket)
        .column("count", Count, "times in the bucket", |(.., count)| *count)
}

/// The table of times over time.
pub(super) fn timeline() -> Table<LatencyBin> {
    Table::new("latency_timeline.parquet")
        .column("time_ns", Timestamp, "start of the bin", |row: &LatencyBin| row.time_ns)
        .column("latency", Number, LATENCY, |row| row.latency)
        .column("bucket", Number, "number of the coarse bucket: eight for each power of two", |row| {
            u32::from(row.bucket)
        })
        .column("count", Count, "times in the bucket", |row| row.count)
}

/// Reads the latency time series; `latencies` is the number of rows of the table it refers to.
pub(super) fn read_timeline(path: &Path, bytes: Vec<u8>, latencies: usize) -> Result<Vec<LatencyBin>, ProfileError> {
    TableFile::open(path, bytes)?.read(|table| {
        let time = table.i64("time_ns")?;
        let (latency, bucket, count) = (table.u32("latency")?, table.u32("bucket")?, table.u32("count")?);
        let row = |row: usize| {
            let (latency, bucket) = (table.value(&latency, row)?, table.value(&bucket, row)?);
            if latency as usize >= latencies {
                return Err(table.invalid_value(row, format!("latency {latency} is not in the table of {latencies}")));
            }
            let bucket = u16::try_from(bucket).ok().filter(|bucket| *bucket < COARSE_BUCKETS);
            let bucket = bucket.ok_or_else(|| table.invalid_value(row, "no such bucket".to_owned()))?;
            Ok(LatencyBin { time_ns: table.value(&time, row)?, latency, bucket, count: table.value(&count, row)? })
        };
        (0..table.rows()).map(row).collect()
    })
}

/// Reads histograms and buckets, each with its path for errors; `connections` is the number of rows
/// of the table that the histograms refer to.
pub(super) fn read(
    (path, bytes): (PathBuf, Vec<u8>),
    (buckets_path, buckets_bytes): (PathBuf, Vec<u8>),
    connections: usize,
) -> Result<PackedRows<LatencyRow>, ProfileError> {
    let latencies = TableFile::open(&path, bytes)?;
    let buckets = read_buckets(&buckets_path, buckets_bytes, latencies.rows())?;
    latencies.read_packed(|table| read_part(table, &buckets, connections))
}

fn read_part(
    table: &TableReader<'_>,
    buckets: &[(u32, u32, u32)],
    connections: usize,
) -> Result<Vec<LatencyRow>, ProfileError> {
    let (connection, interval, verb) = (table.u32("connection")?, table.text("interval")?, table.text("verb")?);
    let kept_bits = table.u32("kept_bits")?;
    let numbers = [
        "samples",
        "from_bytes",
        "min_ns",
        "max_ns",
        "sum_ns_high",
        "sum_ns_low",
        "sum_of_squares_high",
        "sum_of_squares_low",
    ];
    let numbers = table.u64s(numbers)?;
    let row = |row: usize| {
        let interval = table.parse_name(&interval, row, Interval::ALL, Interval::name, "no interval")?;
        let verb = table.parse_name(&verb, row, Verb::ALL, Verb::name, "no verb")?;
        let [samples, from_bytes, min, max, sum_high, sum_low, squares_high, squares_low] =
            table.values(&numbers, row)?;
        if min > max {
            return Err(table.invalid_value(row, format!("the minimum {min} ns exceeds the maximum {max} ns")));
        }
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let latency = table.first_row() + row;
        let of_row = |wanted: usize| buckets.partition_point(|&(latency, ..)| (latency as usize) < wanted);
        let own = &buckets[of_row(latency)..of_row(latency + 1)];
        let parts = HistogramParts {
            kept_bits: table.value(&kept_bits, row)?,
            buckets: own.iter().map(|&(_, bucket, count)| (bucket, count)).collect(),
            samples,
            extremes: Some((min, max)),
            sum: wide(sum_high, sum_low),
            sum_of_squares: wide(squares_high, squares_low),
        };
        Ok(LatencyRow {
            connection: table.connection(&connection, row, connections)?,
            timing: TimingKey { interval, verb, size: SizeClass::of(from_bytes) },
            histogram: Histogram::from_parts(parts),
        })
    };
    (0..table.rows()).map(row).collect()
}

/// Reads the buckets, in the order of the histograms that they belong to; `latencies` is the number
/// of histograms.
fn read_buckets(path: &Path, bytes: Vec<u8>, latencies: usize) -> Result<Vec<(u32, u32, u32)>, ProfileError> {
    let mut rows = TableFile::open(path, bytes)?.read(|table| {
        let (latency, bucket, count) = (table.u32("latency")?, table.u32("bucket")?, table.u32("count")?);
        let row = |row: usize| {
            let latency = table.value(&latency, row)?;
            if latency as usize >= latencies {
                return Err(table.invalid_value(row, format!("latency {latency} is not in the table of {latencies}")));
            }
            Ok((latency, table.value(&bucket, row)?, table.value(&count, row)?))
        };
        (0..table.rows()).map(row).collect()
    })?;
    // This program writes them in order. A stable sort costs nothing then.
    rows.sort_by_key(|&(latency, ..)| latency);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;
    use crate::model::Recorder;

    #[test]
    fn a_minimum_above_the_maximum_is_rejected() {
        let mut recorder = Recorder::default();
        [5, 9].into_iter().for_each(|ns| recorder.record(ns));
        let timing = TimingKey { interval: Interval::Acknowledged, verb: Verb::Send, size: SizeClass::of(64) };
        let rows = [LatencyRow { connection: 0, timing, histogram: recorder.finish() }];
        let read_with = |min_ns: u64| {
            let path = PathBuf::from("latencies.parquet");
            let mut table = table();
            table.columns.retain(|column| column.description.name != "min_ns");
            let table = table.column("min_ns", Nanoseconds, "the shortest time", move |_: &HistogramRow| min_ns);
            let histograms: Vec<HistogramRow> = rows.iter().cloned().map(HistogramRow::from).collect();
            let latencies = encode::bytes(&path, [histograms].iter(), &table).unwrap();
            let own: Vec<_> = bucket_rows(rows.iter().cloned()).collect();
            let buckets = encode::bytes(&path, [own].iter(), &buckets()).unwrap();
            read((path.clone(), latencies), (path, buckets), 1)
        };
        assert!(read_with(5).unwrap().iter().eq(rows.iter().cloned()));
        let error = read_with(10).unwrap_err().to_string();
        assert!(
            error.contains("latencies.parquet") && error.contains("the minimum 10 ns exceeds the maximum 9 ns"),
            "{error}"
        );
    }
}
