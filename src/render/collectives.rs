//! Messages of collective operations as terminal table, csv and JSON.

use super::table::groups::{self, HasPair};
use super::table::{Table, write_document};
use crate::analysis::Label;
use crate::analysis::collectives::{CollectiveTotals, Collectives, by_operation};
use crate::model::column::ColumnUnit::{Bytes, Count};
use crate::render::units::{bytes, group};
use serde_json::json;
use std::io::{self, Write};

/// One collective operation between two ranks or endpoints.
pub(super) struct OperationPairRow<'a> {
    operation: &'a str,
    src: &'a Label,
    dst: &'a Label,
    sums: &'a CollectiveTotals,
}

impl HasPair for OperationPairRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        Some((self.src, self.dst))
    }
}

/// The columns of `collectives` in csv and JSON.
pub(super) fn pairs_table<'a>() -> Table<OperationPairRow<'a>> {
    Table::new("ibscope collectives --format csv")
        .name(
            "operation",
            "`barrier`, `bcast`, `allreduce` ...; `collective` where the library does not identify it",
            |row: &OperationPairRow<'_>| Some(row.operation),
        )
        .with(groups::pair)
        .column("messages", Count, "MPI messages of the operation", |row| row.sums.messages)
        .column("mpi_bytes", Bytes, "MPI length of these messages", |row| row.sums.mpi_bytes)
        .with(groups::job)
}

fn rows(collectives: &Collectives) -> impl Iterator<Item = OperationPairRow<'_>> {
    collectives.iter().map(|((operation, src, dst), sums)| OperationPairRow { operation, src, dst, sums })
}

/// One collective operation of a job, all pairs together.
struct OperationSumsRow<'a> {
    job: Option<u32>,
    operation: &'a str,
    pairs: u64,
    total: CollectiveTotals,
}

/// The columns of the terminal table; with `has_jobs`, the job too.
fn operations_table<'a>(has_jobs: bool) -> Table<OperationSumsRow<'a>> {
    let job = |row: &OperationSumsRow<'_>| row.job.map_or_else(|| "none".to_owned(), |job| job.to_string());
    Table::new("ibscope collectives")
        .with(|table| if has_jobs { table.shown_left("job", job) } else { table })
        .shown_left("operation", |row: &OperationSumsRow<'_>| row.operation.to_owned())
        .shown("pairs", |row| group(row.pairs))
        .shown("messages", |row| group(row.total.messages))
        .shown("MPI bytes", |row| bytes(row.total.mpi_bytes))
        .shown("bytes per message", |row| bytes(row.total.mpi_bytes / row.total.messages.max(1)))
}

/// The terminal table: one line per operation and job. `mpi_read` is false for a profile without
/// MPI analysis.
#[must_use]
pub fn table(collectives: &Collectives, mpi_read: bool) -> String {
    if !mpi_read {
        return super::NOT_ANALYZED.to_owned();
    }
    if collectives.is_empty() {
        return "no message of a collective operation was detected\n".to_owned();
    }
    let operations = by_operation(collectives);
    let rows: Vec<OperationSumsRow<'_>> = operations
        .into_iter()
        .map(|((job, operation), (pairs, total))| OperationSumsRow { job, operation, pairs, total })
        .collect();
    let has_jobs = rows.iter().any(|row| row.job != rows[0].job);
    format!("{}\n", operations_table(has_jobs).text(rows))
}

/// Writes one csv row per operation and pair.
pub fn csv(collectives: &Collectives, out: &mut dyn Write) -> io::Result<()> {
    pairs_table().csv(rows(collectives), out)
}

/// Writes one JSON object with the csv rows.
pub fn json(collectives: &Collectives, out: &mut dyn Write) -> io::Result<()> {
    write_document(out, "ibscope collectives", 2, json!({ "collectives": pairs_table().objects(rows(collectives)) }))
}
