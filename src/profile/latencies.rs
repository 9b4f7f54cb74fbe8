//! The Parquet tables of times between packets: one row per histogram, one per bucket, and one per coarse bucket and bin of time.

use super::ProfileError;
use super::tables::{Table, column};
use crate::model::histogram::COARSE_BUCKETS;
use crate::model::profile::{LatencyBin, LatencyRow};
use crate::model::{Histogram, HistogramParts, Interval, Packed, SizeClass, TimingKey, Verb};
use polars::prelude::{Column, DataFrame, NamedFrom, PolarsResult, Series};
use std::path::{Path, PathBuf};

/// The upper half of a sum of 128 bits.
const fn high(sum: u128) -> u64 {
    (sum >> 64) as u64
}

/// The table of histograms.
pub(super) fn table(rows: &[LatencyRow]) -> PolarsResult<DataFrame> {
    let parts: Vec<(&LatencyRow, HistogramParts)> = rows.iter().map(|row| (row, row.histogram.parts())).collect();
    let columns = vec![
        column!(rows, "connection", u32, |row| row.connection),
        column!(rows, "interval", String, |row| row.timing.interval.name().to_owned()),
        column!(rows, "verb", String, |row| row.timing.verb.name().to_owned()),
        column!(rows, "from_bytes", u64, |row| row.timing.size.from_bytes()),
        column!(parts, "kept_bits", u32, |(_, parts)| parts.kept_bits),
        column!(rows, "samples", u64, |row| row.histogram.samples()),
        column!(rows, "min_ns", u64, |row| row.histogram.min()),
        column!(rows, "median_ns", u64, |row| row.histogram.quantile(0.5)),
        column!(rows, "p99_ns", u64, |row| row.histogram.quantile(0.99)),
        column!(rows, "max_ns", u64, |row| row.histogram.max()),
        column!(parts, "sum_ns_high", u64, |(_, parts)| high(parts.sum)),
        column!(parts, "sum_ns_low", u64, |(_, parts)| parts.sum as u64),
        column!(parts, "sum_of_squares_high", u64, |(_, parts)| high(parts.sum_of_squares)),
        column!(parts, "sum_of_squares_low", u64, |(_, parts)| parts.sum_of_squares as u64),
    ];
    DataFrame::new(rows.len(), columns)
}

/// Buckets with their counts, each with the row of its histogram.
pub(super) fn bucket_rows(rows: impl Iterator<Item = LatencyRow>) -> impl Iterator<Item = (u32, u32, u32)> {
    let of_row = |(latency, row): (u32, LatencyRow)| {
        let buckets = row.histogram.parts().buckets;
        buckets.into_iter().map(move |(bucket, count)| (latency, bucket, count))
    };
    (0..).zip(rows).flat_map(of_row)
}

/// The table of buckets.
pub(super) fn buckets(buckets: &[(u32, u32, u32)]) -> PolarsResult<DataFrame> {
    let columns = vec![
        column!(buckets, "latency", u32, |(latency, ..)| *latency),
        column!(buckets, "bucket", u32, |(_, bucket, _)| *bucket),
        column!(buckets, "count", u32, |(.., count)| *count),
    ];
    DataFrame::new(buckets.len(), columns)
}

/// The table of times over time.
pub(super) fn timeline(rows: &[LatencyBin]) -> PolarsResult<DataFrame> {
    let columns = vec![
        column!(rows, "time_ns", i64, |row| row.time_ns),
        column!(rows, "latency", u32, |row| row.latency),
        column!(rows, "bucket", u32, |row| u32::from(row.bucket)),
        column!(rows, "count", u32, |row| row.count),
    ];
    DataFrame::new(rows.len(), columns)
}

/// Reads the table of times over time; `latencies` is the length of the table that it points into.
pub(super) fn read_timeline(path: &Path, bytes: Vec<u8>, latencies: usize) -> Result<Vec<LatencyBin>, ProfileError> {
    let table = Table::open(path, bytes)?;
    let time = table.i64("time_ns")?;
    let (latency, bucket, count) = (table.u32("latency")?, table.u32("bucket")?, table.u32("count")?);
    let row = |row: usize| {
        let (latency, bucket) = (table.value(&latency, row)?, table.value(&bucket, row)?);
        if latency as usize >= latencies {
            return Err(table.bad(row, format!("latency {latency} is not in the table of {latencies}")));
        }
        let bucket = u16::try_from(bucket).ok().filter(|bucket| *bucket < COARSE_BUCKETS);
        let bucket = bucket.ok_or_else(|| table.bad(row, "there is no such bucket".to_owned()))?;
        Ok(LatencyBin { time_ns: table.value(&time, row)?, latency, bucket, count: table.value(&count, row)? })
    };
    (0..table.rows()).map(row).collect()
}

/// Reads both tables, each with its path for errors; `connections` is the length of the table that the first points into.
pub(super) fn read(
    (path, bytes): (PathBuf, Vec<u8>),
    (buckets_path, buckets_bytes): (PathBuf, Vec<u8>),
    connections: usize,
) -> Result<Packed<LatencyRow>, ProfileError> {
    let table = Table::open(&path, bytes)?;
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
        let interval = table.named(&interval, row, Interval::ALL, Interval::name, "no interval")?;
        let verb = table.named(&verb, row, Verb::ALL, Verb::name, "no verb")?;
        let [samples, from_bytes, min, max, sum_high, sum_low, squares_high, squares_low] =
            table.values(&numbers, row)?;
        if min > max {
            return Err(table.bad(row, format!("no time is at least {min} ns and at most {max} ns")));
        }
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let parts = HistogramParts {
            kept_bits: table.value(&kept_bits, row)?,
            buckets: Vec::new(),
            samples,
            extremes: Some((min, max)),
            sum: wide(sum_high, sum_low),
            sum_of_squares: wide(squares_high, squares_low),
        };
        let timing = TimingKey { interval, verb, size: SizeClass::of(from_bytes) };
        Ok((table.connection(&connection, row, connections)?, timing, parts))
    };
    let mut rows = (0..table.rows()).map(row).collect::<Result<Vec<_>, ProfileError>>()?;
    let table = Table::open(&buckets_path, buckets_bytes)?;
    let (latency, bucket, count) = (table.u32("latency")?, table.u32("bucket")?, table.u32("count")?);
    for row in 0..table.rows() {
        let latency = table.value(&latency, row)?;
        let (_, _, parts) = rows
            .get_mut(latency as usize)
            .ok_or_else(|| table.bad(row, format!("latency {latency} is not in the table of latencies")))?;
        parts.buckets.push((table.value(&bucket, row)?, table.value(&count, row)?));
    }
    let whole = |(connection, timing, parts)| {
        let histogram = Histogram::from_parts(parts);
        LatencyRow { connection, timing, histogram }
    };
    Ok(rows.into_iter().map(whole).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tables;
    use super::*;
    use crate::model::Recorder;

    #[test]
    fn extremes_that_no_times_have_are_refused() {
        let mut recorder = Recorder::default();
        [5, 9].into_iter().for_each(|ns| recorder.record(ns));
        let timing = TimingKey { interval: Interval::Acknowledged, verb: Verb::Send, size: SizeClass::of(64) };
        let rows = [LatencyRow { connection: 0, timing, histogram: recorder.finish() }];
        let written = |name: &str, frame: DataFrame| {
            let path = std::path::PathBuf::from(name);
            let whole = |rows: &[()]| Ok(frame.head(Some(rows.len() * frame.height())));
            let bytes = tables::bytes(&path, [[()]].iter(), whole).unwrap();
            (path, bytes)
        };
        let read_with = |min_ns: u64| {
            let mut frame = table(&rows).unwrap();
            frame.with_column(Column::from(Series::new("min_ns".into(), [min_ns]))).unwrap();
            let buckets = buckets(&bucket_rows(rows.iter().cloned()).collect::<Vec<_>>()).unwrap();
            read(written("latencies.parquet", frame), written("buckets.parquet", buckets), 1)
        };
        assert!(read_with(5).unwrap().iter().eq(rows.iter().cloned()));
        let error = read_with(10).unwrap_err().to_string();
        assert!(error.contains("latencies.parquet") && error.contains("at least 10 ns and at most 9 ns"), "{error}");
    }
}
