//! Messages of collective operations as a table for people, csv and JSON.

use super::csv::job;
use super::units::{bytes, group};
use crate::analysis::Label;
use crate::analysis::collectives::{Collectives, Sums, by_operation};
use crate::render::columns::columns;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// A table for people: one line per operation, of each job where there are several. `mpi_read` says that MPI messages were looked for.
#[must_use]
pub fn table(collectives: &Collectives, mpi_read: bool) -> String {
    if !mpi_read {
        return super::NOT_LOOKED_FOR.to_owned();
    }
    if collectives.is_empty() {
        return "no message of a collective operation was seen\n".to_owned();
    }
    let operations = by_operation(collectives);
    let jobs: BTreeSet<Option<u32>> = operations.keys().map(|(job, _)| *job).collect();
    let named = jobs.len() > 1;
    let mut header = vec!["operation", "pairs", "messages", "MPI bytes", "bytes per message"];
    if named {
        header.insert(0, "job");
    }
    let numbers = usize::from(named) + 1;
    let mut table = columns(&header, numbers..numbers + 4);
    for ((job, operation), (pairs, total)) in operations {
        let mean = total.mpi_bytes / total.messages.max(1);
        let mut row =
            vec![operation.to_owned(), group(pairs), group(total.messages), bytes(total.mpi_bytes), bytes(mean)];
        if named {
            row.insert(0, job.map_or_else(|| "none".to_owned(), |job| job.to_string()));
        }
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

/// `operation,src,dst,messages,mpi_bytes,job`.
pub fn csv(collectives: &Collectives, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "operation,src,dst,messages,mpi_bytes,job")?;
    for ((operation, src, dst), Sums { messages, mpi_bytes }) in collectives {
        let (src, dst, job) = (src.without_job(), dst.without_job(), job(src));
        writeln!(out, "{operation},{src},{dst},{messages},{mpi_bytes},{job}")?;
    }
    Ok(())
}

/// One object with the rows of the csv.
pub fn json(collectives: &Collectives, out: &mut dyn Write) -> io::Result<()> {
    let row = |((operation, src, dst), sums): (&(String, Label, Label), &Sums)| {
        json!({
            "operation": operation, "src": src.without_job(), "dst": dst.without_job(), "job": src.job(),
            "messages": sums.messages, "mpi_bytes": sums.mpi_bytes,
        })
    };
    let rows: Vec<_> = collectives.iter().map(row).collect();
    writeln!(out, "{:#}", json!({ "schema": "ibscope collectives", "version": 1, "collectives": rows }))
}
