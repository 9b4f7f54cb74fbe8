//! Comma-separated values for programs. Senders and receivers are endpoints or ranks, never names.

use crate::analysis::Label;
use crate::analysis::matrix::{Cell, Matrix};
use crate::analysis::timeline::Timeline;
use std::borrow::Cow;
use std::io::{self, Write};

/// Writes `src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage`, pairs with at least one packet, sorted by
/// job, sender and receiver. `mpi_bytes` is empty where no MPI library was recognised, `job` by endpoint and for traffic of no job.
pub fn matrix_csv(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "src,dst,{CELL_COLUMNS},coverage")?;
    for (src, dst, cell) in matrix.rows() {
        writeln!(out, "{},{}", self::cell(src, dst, cell), cell.coverage.state.name())?;
    }
    Ok(())
}

/// Writes the same columns but coverage behind `time_ns`, the start of the bin in nanoseconds since the epoch.
pub fn timeline_csv(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "time_ns,src,dst,{CELL_COLUMNS}")?;
    for bin in &timeline.bins {
        writeln!(out, "{},{}", bin.time_ns, cell(&bin.src, &bin.dst, &bin.cell))?;
    }
    Ok(())
}

/// The columns of a cell, behind its sender and receiver.
pub(crate) const CELL_COLUMNS: &str = "messages,mpi_bytes,payload_bytes,wire_bytes,packets,job";

/// A cell in these columns, with its sender and receiver.
pub(crate) fn cell(src: &Label, dst: &Label, cell: &Cell) -> String {
    let Cell { messages, mpi_bytes, payload_bytes, wire_bytes, packets, .. } = cell;
    let (src, dst, job) = (src.without_job(), dst.without_job(), job(src));
    let mpi_bytes = mpi_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    format!("{src},{dst},{messages},{mpi_bytes},{payload_bytes},{wire_bytes},{packets},{job}")
}

/// A text as a field: in quotes where it needs them (RFC 4180).
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// The column of the job of a pair, which both ends of it share.
pub(crate) fn job(src: &Label) -> String {
    src.job().map(|job| job.to_string()).unwrap_or_default()
}

/// Sender, receiver and job of a pair; empty where all pairs are together.
pub(crate) fn ends(pair: Option<&(Label, Label)>) -> [String; 3] {
    pair.map(|(src, dst)| [src.without_job(), dst.without_job(), job(src)]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::By;
    use crate::analysis::fixture::two_jobs;
    use crate::analysis::matrix::{Selection, matrix};
    use crate::analysis::timeline::timeline;

    fn matrix_of(by: By, selection: Selection) -> String {
        let mut out = Vec::new();
        matrix_csv(&matrix(&two_jobs(), by, selection), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn jobs_are_columns_and_never_added_up() {
        let expected = "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage\n\
                        0,1,2,2000,3000,4000,10,1,complete\n\
                        0,1,4,4000,6000,8000,20,2,complete\n\
                        1,0,6,6000,9000,12000,30,2,incomplete\n\
                        unknown,0,8,8000,12000,16000,40,2,complete\n\
                        unknown,unknown,0,,15000,20000,50,,unknown\n";
        assert_eq!(matrix_of(By::Rank, Selection::P2p), expected);
    }

    #[test]
    fn by_endpoint_there_is_one_row_per_pair_with_its_worst_coverage() {
        let expected = "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage\n\
                        9,10,15,6300,9000,12000,30,,complete\n\
                        9,11,25,,15000,20000,50,,unknown\n\
                        10,9,35,14700,21000,28000,70,,incomplete\n";
        assert_eq!(matrix_of(By::Endpoint, Selection::All), expected);
    }

    #[test]
    fn bins_have_jobs_too() {
        let mut out = Vec::new();
        timeline_csv(&timeline(&two_jobs(), By::Rank, Selection::P2p, None).unwrap(), &mut out).unwrap();
        let expected = "time_ns,src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job\n\
                        0,0,1,2,2000,3000,4000,10,1\n\
                        0,0,1,4,4000,6000,8000,20,2\n\
                        0,1,0,6,6000,9000,12000,30,2\n\
                        0,unknown,0,8,8000,12000,16000,40,2\n\
                        0,unknown,unknown,0,,15000,20000,50,\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn texts_stay_one_field() {
        assert_eq!(quoted("MPI_COMM_WORLD"), "MPI_COMM_WORLD");
        assert_eq!(quoted("a \"grid\", 2x2"), "\"a \"\"grid\"\", 2x2\"");
    }
}
