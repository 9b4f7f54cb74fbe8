//! Storage commands as terminal tables, csv and JSON.
//!
//! In: the numbers by client and server, operation and size. Out: text. A number that is not known
//! is empty in csv, `null` in JSON and `?` in terminal tables.

use super::table::{Table, write_document};
use super::units::{bytes, group, size, time};
use crate::analysis::storage::{OperationKey, SizeKey, Storage, StoragePair, StorageTotals};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Nanoseconds};
use crate::model::storage::{STORAGE_KIND, STORAGE_RESULT};
use crate::model::{ConnectionClass, Histogram, StorageCounts, count_of};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A row that belongs to a client and a server.
pub(super) trait HasStoragePair {
    fn storage_pair(&self) -> &StoragePair;
}

/// Adds class, client and server.
pub(super) fn pair<R: HasStoragePair>(table: Table<R>) -> Table<R> {
    table
        .column("class", Name, "class of the connections: `nvmeof`, `nfs`, `iser` or `srp`", |row: &R| {
            row.storage_pair().class.name()
        })
        .headed("class")
        .label("client", "port that sends the commands", |row: &R| Some(&row.storage_pair().client))
        .shown_left("client", |row| row.storage_pair().client.name())
        .label("server", "port that completes the commands", |row: &R| Some(&row.storage_pair().server))
        .shown_left("server", |row| row.storage_pair().server.name())
}

/// The commands of a client at a server.
pub(super) struct StoragePairRow<'a> {
    pair: &'a StoragePair,
    totals: &'a StorageTotals,
}

impl HasStoragePair for StoragePairRow<'_> {
    fn storage_pair(&self) -> &StoragePair {
        self.pair
    }
}

pub(super) fn quantile(times: &Histogram, share: f64) -> Option<u64> {
    (times.samples() > 0).then(|| times.quantile(share))
}

fn shown(number: Option<u64>, format: fn(u64) -> String) -> String {
    number.map_or_else(|| "?".to_owned(), format)
}

fn shown_time(totals: &StorageTotals, share: f64) -> String {
    let unknown = if totals.untimed > 0 { "?" } else { "-" };
    totals.time_quantile(share).map_or_else(|| unknown.to_owned(), |ns| time(ns as f64))
}

/// The columns of `storage`.
pub(super) fn pairs_table<'a>() -> Table<StoragePairRow<'a>> {
    Table::new("ibscope storage --format csv")
        .with(pair)
        .column(
            "commands",
            Count,
            "commands, with or without a completion in the capture: NVMe commands of I/O queues, RPC calls, SCSI commands; empty where packets are truncated before the command",
            |row: &StoragePairRow<'_>| row.totals.commands,
        )
        .shown("commands", |row| shown(row.totals.commands, group))
        .column(
            "read_bytes",
            Bytes,
            "file or block data of completed commands, from the server to the client; empty where not known",
            |row| row.totals.read_bytes,
        )
        .shown("read", |row| shown(row.totals.read_bytes, bytes))
        .column(
            "written_bytes",
            Bytes,
            "file or block data of completed commands, from the client to the server; empty where not known",
            |row| row.totals.written_bytes,
        )
        .shown("written", |row| shown(row.totals.written_bytes, bytes))
        .column(
            "errors",
            Count,
            "completions that report an error: a status of NVMe, NFS or SCSI other than success, a rejected RPC; empty where a status was not captured",
            |row| row.totals.errors,
        )
        .shown("errors", |row| shown(row.totals.errors, group))
        .column(
            "latency_median_ns",
            Nanoseconds,
            "half of the times from command to completion are shorter; empty if the times of half of the completed commands are unknown",
            |row| row.totals.time_quantile(0.5),
        )
        .shown("median", |row| shown_time(row.totals, 0.5))
        .column(
            "latency_p99_ns",
            Nanoseconds,
            "99 % of these times are shorter; empty if the times of more than 1 % of the completed commands are unknown",
            |row| row.totals.time_quantile(0.99),
        )
        .shown("p99", |row| shown_time(row.totals, 0.99))
}

/// Commands with one operation and one status.
pub(super) struct StorageOperationRow<'a> {
    key: &'a OperationKey,
    counts: &'a StorageCounts,
}

impl HasStoragePair for StorageOperationRow<'_> {
    fn storage_pair(&self) -> &StoragePair {
        &self.key.pair
    }
}

/// The columns of `storage --view operations`.
pub(super) fn operations_table<'a>() -> Table<StorageOperationRow<'a>> {
    let read = |row: &StorageOperationRow<'_>| (row.counts.read_unknown == 0).then_some(row.counts.read_bytes);
    let written = |row: &StorageOperationRow<'_>| (row.counts.written_unknown == 0).then_some(row.counts.written_bytes);
    Table::new("ibscope storage --view operations --format csv")
        .with(pair)
        .column(
            "kind",
            Name,
            STORAGE_KIND,
            |row: &StorageOperationRow<'_>| row.key.kind.name(),
        )
        .shown_left("kind", |row| row.key.kind.name().to_owned())
        .name("operation", "operation in the terms of the protocol", |row| Some(&row.key.operation))
        .headed("operation")
        .column("result", Name, STORAGE_RESULT, |row| {
            row.key.result.name()
        })
        .name("status", "status of the protocol, of RPC or of the transport", |row| Some(&row.key.status))
        .headed("status")
        .column("commands", Count, "commands, or messages that belong to no command", |row| row.counts.commands)
        .shown("commands", |row| group(row.counts.commands))
        .column("read_bytes", Bytes, "bytes that the commands transferred to the client, of any kind; empty where not known", read)
        .shown("read", move |row| shown(read(row), bytes))
        .column(
            "written_bytes",
            Bytes,
            "bytes that the commands transferred to the server, of any kind; empty where not known",
            written,
        )
        .shown("written", move |row| shown(written(row), bytes))
        .column(
            "rdma_read_bytes",
            Bytes,
            "lengths of the RDMA WRITEs of the server into the memory that the commands name; data in completions do not count",
            |row| row.counts.rdma_read_bytes,
        )
        .column(
            "rdma_written_bytes",
            Bytes,
            "lengths of the RDMA READs of the server from the memory that the commands name; data in commands do not count",
            |row| row.counts.rdma_written_bytes,
        )
}

/// Commands with data of one size class.
pub(super) struct StorageSizeRow<'a> {
    key: &'a SizeKey,
    times: &'a Histogram,
}

impl HasStoragePair for StorageSizeRow<'_> {
    fn storage_pair(&self) -> &StoragePair {
        &self.key.pair
    }
}

/// The columns of `storage --view sizes`.
pub(super) fn sizes_table<'a>() -> Table<StorageSizeRow<'a>> {
    Table::new("ibscope storage --view sizes --format csv")
        .with(pair)
        .name("kind", "`read`, `write` or `other`", |row: &StorageSizeRow<'_>| Some(row.key.kind))
        .headed("kind")
        .column(
            "from_bytes",
            Bytes,
            "size class of the data of a command: from this power of two to below the next; 0 without file or block data, and where the length is not known",
            |row| row.key.from_bytes,
        )
        .shown_left("size", |row| size(Some(row.key.from_bytes)))
        .column("commands", Count, "completed commands with a measured time; no rows if those are not half of all", |row| row.times.samples())
        .headed("commands")
        .column("median_ns", Nanoseconds, "half of the times from command to completion are shorter", |row| {
            row.times.quantile(0.5)
        })
        .headed("median")
        .column("p99_ns", Nanoseconds, "99 % of the times are shorter", |row| row.times.quantile(0.99))
        .headed("p99")
        .column("max_ns", Nanoseconds, "the longest time", |row| row.times.max())
        .headed("max")
}

fn pair_rows(storage: &Storage) -> impl Iterator<Item = StoragePairRow<'_>> {
    storage.pairs.iter().map(|(pair, totals)| StoragePairRow { pair, totals })
}

fn operation_rows(storage: &Storage) -> impl Iterator<Item = StorageOperationRow<'_>> {
    storage.operations.iter().map(|(key, counts)| StorageOperationRow { key, counts })
}

fn size_rows(storage: &Storage) -> impl Iterator<Item = StorageSizeRow<'_>> {
    storage.sizes.iter().map(|(key, times)| StorageSizeRow { key, times })
}

/// The message for a profile without a table of storage commands.
pub const NOT_ANALYZED: &str = "storage commands were not analyzed: the profile was written with `--no-mpi` or by an earlier version of ibscope; analyze the captures again\n";

const NOTHING: &str = "no command of NVMe over Fabrics, NFS over RDMA, iSER or SRP was found\n";

/// The terminal table: one line per client and server, below the name of their class.
#[must_use]
pub fn table(storage: &Storage) -> String {
    let mut classes: Vec<ConnectionClass> = storage.pairs.keys().map(|pair| pair.class).collect();
    classes.dedup();
    let part = |class: &ConnectionClass| {
        let rows: Vec<_> = pair_rows(storage).filter(|row| row.pair.class == *class).collect();
        format!("{}\n{}\n", class.name(), without(1, pairs_table()).text(rows))
    };
    or_nothing(storage, classes.iter().map(part))
}

/// The terminal table by operation and status, below the client and the server.
#[must_use]
pub fn operations(storage: &Storage) -> String {
    by_pair(storage, operation_rows(storage), operations_table())
}

/// The terminal table by size, below the client and the server.
#[must_use]
pub fn sizes(storage: &Storage) -> String {
    by_pair(storage, size_rows(storage), sizes_table())
}

/// A table per client and server, below both. The rows of a pair follow each other.
fn by_pair<R: HasStoragePair>(storage: &Storage, rows: impl Iterator<Item = R>, table: Table<R>) -> String {
    let rows: Vec<R> = rows.filter(|row| storage.pairs.contains_key(row.storage_pair())).collect();
    let table = without(3, table);
    let pairs = rows.chunk_by(|a, b| a.storage_pair() == b.storage_pair());
    or_nothing(
        storage,
        pairs.map(|rows| format!("{}\n{}\n", heading(storage, rows[0].storage_pair()), table.text(rows))),
    )
}

/// The parts of a text, or that there are none.
fn or_nothing(storage: &Storage, parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { nothing(storage) } else { parts.join("\n") }
}

/// The text without commands.
pub(super) fn nothing(storage: &Storage) -> String {
    match &storage.unknown_because {
        Some(because) => format!("storage commands are unknown, because {because}\n"),
        None if storage.pairs.is_empty() => NOTHING.to_owned(),
        None => "the times of the commands are unknown\n".to_owned(),
    }
}

fn heading(storage: &Storage, pair: &StoragePair) -> String {
    let ports = format!("{}: client {}, server {}", pair.class.name(), pair.client.name(), pair.server.name());
    let Some(totals) = storage.pairs.get(pair) else { return ports };
    match (totals.most_outstanding, totals.outstanding_at_least) {
        (Some(most), _) => format!("{ports}; at most {} outstanding per connection", count_of(most, "command")),
        (None, 0) => format!("{ports}; outstanding commands unknown"),
        (None, least) => {
            format!("{ports}; outstanding commands per connection unknown, at a time at least {}", group(least))
        }
    }
}

/// The table without its first columns, which its heading shows.
fn without<R>(columns: usize, mut table: Table<R>) -> Table<R> {
    table.shown.drain(..columns);
    table
}

/// Writes one csv row per client and server.
pub fn csv(storage: &Storage, out: &mut dyn Write) -> io::Result<()> {
    pairs_table().csv(pair_rows(storage), out)
}

/// Writes one csv row per operation and status.
pub fn operations_csv(storage: &Storage, out: &mut dyn Write) -> io::Result<()> {
    operations_table().csv(operation_rows(storage), out)
}

/// Writes one csv row per size class.
pub fn sizes_csv(storage: &Storage, out: &mut dyn Write) -> io::Result<()> {
    sizes_table().csv(size_rows(storage), out)
}

/// Writes one JSON object with the rows of all views and the notes; `timeline` only where it was
/// requested.
pub fn json(storage: &Storage, timeline: Option<Value>, out: &mut dyn Write) -> io::Result<()> {
    let pairs = pairs_table().objects_with(pair_rows(storage), "commands_apart", |row| {
        let totals = row.totals;
        json!({
            "without_completion": totals.without_completion,
            "without_command": totals.without_command,
            "admin": totals.admin_commands,
            "most_outstanding": totals.most_outstanding,
            "outstanding_at_least": totals.outstanding_at_least,
            "untimed": totals.untimed,
        })
    });
    let mut document = json!({
        "pairs": pairs,
        "operations": operations_table().objects(operation_rows(storage)),
        "sizes": sizes_table().objects(size_rows(storage)),
        "unknown_because": storage.unknown_because,
        "notes": storage.notes,
    });
    if let Some(timeline) = timeline {
        document["timeline"] = timeline;
    }
    write_document(out, "ibscope storage", 1, document)
}
