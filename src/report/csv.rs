//! Comma-separated values for programs. Senders and receivers are endpoints or ranks, never names, so nothing needs quotes.

use super::matrix::{Cell, Matrix};
use super::timeline::Timeline;
use std::io::{self, Write};

/// Writes `src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets`, pairs with at least one packet, sorted by sender and
/// receiver numerically. `mpi_bytes` is empty where no MPI library was recognised.
pub fn matrix_csv(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets")?;
    for (src, dst, cell) in matrix.rows() {
        writeln!(out, "{src},{dst},{}", values(cell))?;
    }
    Ok(())
}

/// Writes the same columns behind `time_ns`, the start of the bin in nanoseconds since the epoch.
pub fn timeline_csv(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "time_ns,src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets")?;
    for bin in &timeline.bins {
        writeln!(out, "{},{},{},{}", bin.time_ns, bin.src, bin.dst, values(&bin.cell))?;
    }
    Ok(())
}

fn values(cell: &Cell) -> String {
    let Cell { messages, mpi_bytes, payload_bytes, wire_bytes, packets } = cell;
    let mpi_bytes = mpi_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    format!("{messages},{mpi_bytes},{payload_bytes},{wire_bytes},{packets}")
}
