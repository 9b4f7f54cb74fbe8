//! Comma-separated values for programs. Senders and receivers are endpoints or ranks, never names, so nothing needs quotes.

use super::matrix::{Cell, Matrix};
use super::timeline::Timeline;
use std::io::{self, Write};

/// Writes `src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets`, pairs with at least one packet, sorted by sender and
/// receiver numerically. `mpi_bytes` is empty where no MPI library was recognised.
pub fn matrix_csv(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,{CELL_COLUMNS}")?;
    for (src, dst, cell) in matrix.rows() {
        writeln!(out, "{src},{dst},{}", self::cell(cell))?;
    }
    Ok(())
}

/// Writes the same columns behind `time_ns`, the start of the bin in nanoseconds since the epoch.
pub fn timeline_csv(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "time_ns,src,dst,{CELL_COLUMNS}")?;
    for bin in &timeline.bins {
        writeln!(out, "{},{},{},{}", bin.time_ns, bin.src, bin.dst, cell(&bin.cell))?;
    }
    Ok(())
}

/// The columns of a cell.
pub(super) const CELL_COLUMNS: &str = "messages,mpi_bytes,payload_bytes,wire_bytes,packets";

/// A cell in these columns.
pub(super) fn cell(cell: &Cell) -> String {
    let Cell { messages, mpi_bytes, payload_bytes, wire_bytes, packets } = cell;
    let mpi_bytes = mpi_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    format!("{messages},{mpi_bytes},{payload_bytes},{wire_bytes},{packets}")
}
