//! Collective operations, one by one, as terminal table, csv and JSON.

use super::table::{Table, write_document};
use super::units::bytes;
use crate::analysis::collective_instances::{CollectiveInstance, CollectiveInstances};
use crate::model::column::ColumnUnit::{Bytes, BytesPerSecond, Count, Name, Nanoseconds, Number, Timestamp};
use serde_json::json;
use std::io::{self, Write};

/// The columns of `collectives --view instances` in csv and JSON.
pub(super) fn instances_table() -> Table<CollectiveInstance> {
    Table::new("ibscope collectives --view instances --format csv")
        .column("job", Number, "number of the job, from 1", |row: &CollectiveInstance| row.job)
        .column(
            "communicator",
            Name,
            "`world`, or the context id and the lowest world rank of the communicator, as in `3/1`",
            |row| row.communicator.clone(),
        )
        .column("instance", Number, "number of the operation on this communicator in the order of time, from 1", |row| row.number)
        .column(
            "operation",
            Name,
            "`barrier`, `bcast`, `allreduce` ...; `nonblocking` or `collective` where the messages do not show it",
            |row| row.operation.name(),
        )
        .column(
            "algorithm",
            Name,
            "algorithm whose schedule has these messages: `recursive_doubling`, `ring`, `binomial` ...; several, joined by vertical bars, if they send the same messages; of NCCL `ring`, `tree` or `direct`, or the operations that send the same messages; `unknown` if none does",
            algorithm,
        )
        .column(
            "confidence",
            Name,
            "`high`: one schedule matches, with all its messages; `medium`: several algorithms send the same messages, or ranks share a node; `low`: several calls could send them; `unknown`: no schedule matches, so the messages until the next pause count as one operation",
            |row| row.confidence.name(),
        )
        .column("ranks", Count, "ranks of the communicator, as far as they are known", |row| row.ranks)
        .column(
            "bytes",
            Bytes,
            "bytes per rank, as in the arguments of the call: the vector of an allreduce, reduce, bcast or scan, one block of other operations; empty if the messages do not show it",
            |row| row.bytes,
        )
        .column("start_ns", Timestamp, "time of the first packet", |row| row.start_ns)
        .column("end_ns", Timestamp, "time of the last packet", |row| row.end_ns)
        .column("duration_ns", Nanoseconds, "`end_ns` - `start_ns`", CollectiveInstance::duration_ns)
        .column(
            "last_rank",
            Number,
            "world rank of the rank that entered last; empty if the wire does not show it or its skew is within the margin",
            |row| row.last_rank,
        )
        .column(
            "skew_ns",
            Nanoseconds,
            "time from the entry of the rank before it to the entry of `last_rank`; empty if the wire does not show the former",
            |row| row.skew_ns,
        )
        .column(
            "algbw_bytes_per_s",
            BytesPerSecond,
            "bytes per `duration_ns` as in nccl-tests: the blocks of all ranks of an allgather, alltoall, gather, scatter or reduce_scatter_block, `bytes` of others",
            CollectiveInstance::algbw_bytes_per_s,
        )
        .decimals(0)
        .column(
            "busbw_bytes_per_s",
            BytesPerSecond,
            "`algbw_bytes_per_s` times the factor of nccl-tests: 2(n-1)/n of an allreduce of n ranks, 1 of a bcast or reduce, (n-1)/n of others; empty for scans and barriers",
            CollectiveInstance::busbw_bytes_per_s,
        )
        .decimals(0)
}

/// Names of the algorithms, or `unknown`.
fn algorithm(row: &CollectiveInstance) -> String {
    if row.algorithms.is_empty() { "unknown".to_owned() } else { row.algorithms.join("|") }
}

/// The first of the algorithms, and a mark if there are more.
fn short_algorithm(row: &CollectiveInstance) -> String {
    match row.algorithms[..] {
        [] => "unknown".to_owned(),
        [name] => name.to_owned(),
        [name, ..] => format!("{name}|…"),
    }
}

/// The rank that entered last and its skew.
fn last(row: &CollectiveInstance) -> String {
    match (row.last_rank, row.skew_ns) {
        (None, _) => "-".to_owned(),
        (Some(rank), None) => rank.to_string(),
        (Some(rank), Some(skew_ns)) => format!("{rank} +{:.3}", skew_ns as f64 / 1e6),
    }
}

/// The columns of the terminal table; with `has_jobs`, the job too. Times count from `origin_ns`.
fn shown_table(origin_ns: Option<i64>, has_jobs: bool) -> Table<CollectiveInstance> {
    Table::new("ibscope collectives --view instances")
        .with(
            |table| {
                if has_jobs { table.shown_left("job", |row: &CollectiveInstance| row.job.to_string()) } else { table }
            },
        )
        .shown_left("comm", |row| row.communicator.clone())
        .shown("start s", move |row| {
            let since_ns = row.start_ns.saturating_sub(origin_ns.unwrap_or(row.start_ns));
            format!("{:.3}", since_ns as f64 / 1e9)
        })
        .shown_left("operation", |row| row.operation.name().to_owned())
        .shown_left("algorithm", short_algorithm)
        .shown("bytes", |row| row.bytes.map_or_else(|| "-".to_owned(), bytes))
        .shown("ms", |row| format!("{:.3}", row.duration_ns() as f64 / 1e6))
        .shown("last +ms", last)
}

/// The terminal table. `origin_ns` is the time of the first packet of the captures.
#[must_use]
pub fn table(found: &CollectiveInstances, origin_ns: Option<i64>) -> String {
    let Some(first) = found.instances.first() else {
        return "no message of a collective operation was detected\n".to_owned();
    };
    let has_jobs = found.instances.iter().any(|instance| instance.job != first.job);
    format!("{}\n", shown_table(origin_ns, has_jobs).text(&found.instances))
}

/// Writes one csv row per operation.
pub fn csv(found: &CollectiveInstances, out: &mut dyn Write) -> io::Result<()> {
    instances_table().csv(&found.instances, out)
}

/// Writes one JSON object with the csv rows.
pub fn json(found: &CollectiveInstances, out: &mut dyn Write) -> io::Result<()> {
    let document = json!({
        "instances": instances_table().objects(&found.instances),
        "messages_without_ranks": found.without_ranks,
        "messages_beyond_bound": found.beyond_bound,
    });
    write_document(out, "ibscope collective instances", 1, document)
}
