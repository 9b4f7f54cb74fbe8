//! The matrix and the timeline as csv and JSON, and the columns of the terminal's list of pairs;
//! [`super::text`] has the rest of the terminal form.
//!
//! In csv and JSON, senders and receivers are endpoints or ranks; they are names only where the names
//! define rows and columns: by node and leaf switch.

use crate::analysis::Label;
use crate::analysis::matrix::{Matrix, MatrixCell};
use crate::analysis::timeline::{Timeline, TimelineBin};
use crate::model::PairEstimators;
use crate::model::column::ColumnUnit::{Count, Name, Timestamp};
use crate::render::table::groups::{self, HasCell, HasEstimates, HasPair};
use crate::render::table::{ColumnValue, Table, write_document};
use serde_json::json;
use std::io::{self, Write};

/// Version of both JSON documents of this module.
const VERSION: u32 = 2;

/// Reason why a sampled capture has no estimate of MPI bytes.
pub(super) const UNKNOWN_MPI_BYTES: &str = "unknown, because the sample shows the length of a message only if it contains the packet with the length, and the probability of that depends on the length and on the protocol";

/// A pair with traffic.
pub(super) struct MatrixRow<'a> {
    src: &'a Label,
    dst: &'a Label,
    cell: &'a MatrixCell,
    estimators: Option<&'a PairEstimators>,
}

impl HasEstimates for MatrixRow<'_> {
    fn estimators(&self) -> Option<&PairEstimators> {
        self.estimators
    }
}

impl HasPair for MatrixRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        Some((self.src, self.dst))
    }
}

impl HasCell for MatrixRow<'_> {
    fn cell(&self) -> &MatrixCell {
        self.cell
    }
}

impl HasPair for TimelineBin {
    fn pair(&self) -> Option<(&Label, &Label)> {
        self.dst.as_ref().map(|dst| (&self.src, dst))
    }

    fn sender(&self) -> Option<&Label> {
        Some(&self.src)
    }
}

impl HasEstimates for TimelineBin {
    fn estimators(&self) -> Option<&PairEstimators> {
        self.estimators.as_ref()
    }
}

impl HasCell for TimelineBin {
    fn cell(&self) -> &MatrixCell {
        &self.cell
    }
}

/// The pairs with at least one packet, sorted by job, sender and receiver.
fn rows(matrix: &Matrix) -> impl Iterator<Item = MatrixRow<'_>> {
    let row = |(ends, (src, dst, cell)): (&(u32, u32), _)| {
        let estimators = matrix.estimators.as_ref().and_then(|all| all.get(ends));
        MatrixRow { src, dst, cell, estimators }
    };
    matrix.cells.keys().zip(matrix.rows()).map(row)
}

/// The `most` pairs with the most traffic, largest first.
pub(super) fn busiest(matrix: &Matrix, most: usize) -> Vec<MatrixRow<'_>> {
    let mut rows: Vec<MatrixRow<'_>> = rows(matrix).collect();
    let size = |cell: &MatrixCell| (cell.mpi_bytes.unwrap_or(0), cell.payload_bytes, cell.wire_bytes);
    let order = |a: &MatrixRow<'_>, b: &MatrixRow<'_>| {
        size(b.cell).cmp(&size(a.cell)).then_with(|| (a.src, a.dst).cmp(&(b.src, b.dst)))
    };
    if rows.len() > most {
        rows.select_nth_unstable_by(most, order);
        rows.truncate(most);
    }
    rows.sort_by(order);
    rows
}

/// The columns of `matrix`.
pub(super) fn matrix_table<'a>() -> Table<MatrixRow<'a>> {
    covered_table().with(groups::class)
}

/// The columns up to the coverage, which the terminal table shows in part.
pub(super) fn covered_table<'a>() -> Table<MatrixRow<'a>> {
    Table::new("ibscope matrix --format csv").with(groups::cell).column(
        "coverage",
        Name,
        "whether the capture holds all messages of the pair, by its worst connection: `complete`, `incomplete` (counts are lower bounds), `sampled` (counts are those of the sample) or `unknown`",
        |row: &MatrixRow<'_>| row.cell.coverage.state.name(),
    )
}

/// The columns of the csv of this matrix: a sampled capture has estimates.
fn csv_table<'a>(matrix: &Matrix) -> Table<MatrixRow<'a>> {
    if matrix.estimators.is_some() { matrix_table().with(groups::estimates) } else { matrix_table() }
}

/// The estimates of a sampled capture, for the terminal.
pub(super) fn estimates_table<'a>() -> Table<MatrixRow<'a>> {
    Table::new("the estimates of `ibscope matrix`")
        .shown_left("estimated total", |row: &MatrixRow<'_>| format!("{} → {}", row.src.name(), row.dst.name()))
        .with(groups::estimates)
}

/// The columns of the JSON form: those of csv, which are fixed, and the missing packets and
/// messages.
fn missing_table<'a>(matrix: &Matrix) -> Table<MatrixRow<'a>> {
    csv_table(matrix)
        .column(
            "missing_packets",
            Count,
            "packets of the pair that were sent and are not in the capture, according to the sequence numbers",
            |row: &MatrixRow<'_>| row.cell.coverage.missing_packets,
        )
        .column(
            "missing_messages",
            Count,
            "MPI messages of the pair that began and whose length is unknown; no other column counts them",
            |row: &MatrixRow<'_>| row.cell.coverage.missing_messages,
        )
}

/// The columns of `timeline`.
pub(super) fn timeline_table() -> Table<TimelineBin> {
    Table::new("ibscope timeline --format csv")
        .column(
            "time_ns",
            Timestamp,
            "start of the bin, a multiple of its width; bins without traffic are left out",
            |bin: &TimelineBin| bin.time_ns,
        )
        .with(groups::cell)
        .with(groups::class)
}

/// The columns of the csv of this timeline: a sampled capture has estimates.
fn csv_timeline_table(timeline: &Timeline) -> Table<TimelineBin> {
    if timeline.sampled.is_some() { timeline_table().with(groups::estimates) } else { timeline_table() }
}

/// Writes one csv row per pair with at least one packet.
pub fn matrix_csv(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    csv_table(matrix).csv(rows(matrix), out)
}

/// Writes one csv row per bin and pair with traffic.
pub fn timeline_csv(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    csv_timeline_table(timeline).csv(&timeline.bins, out)
}

/// Writes one JSON object: the meaning of rows and columns, their labels, and the cells.
pub fn matrix_json(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    let table = missing_table(matrix);
    let nodes = |label: &Label| match label {
        Label::Rank(rank, _) => json!(matrix.nodes.names(*rank).collect::<Vec<_>>()),
        _ => json!(null),
    };
    let label = |label: &Label| json!({ "label": ColumnValue::from(label).json(None), "job": label.job(), "name": label.name(), "nodes": nodes(label) });
    let mut definitions = table.definitions();
    definitions["nodes"] = json!(
        "nodes of a rank; traffic between two ranks on the same node is not on the wire, so a missing cell of such a pair does not mean that it has no traffic"
    );
    let members = json!({
        "row": "sender",
        "column": "receiver",
        "by": matrix.by.name(),
        "traffic": matrix.selection.name(),
        "sampled": matrix.sampled.as_deref(),
        "mpi_bytes_estimate": matrix.sampled.as_ref().map(|_| UNKNOWN_MPI_BYTES),
        "definitions": definitions,
        "labels": matrix.labels.iter().map(label).collect::<Vec<_>>(),
        "cells": table.objects(rows(matrix)),
    });
    write_document(out, "ibscope matrix", VERSION, members)
}

/// Writes one JSON object: the bin width, and the sums of each bin and pair.
pub fn timeline_json(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let table = csv_timeline_table(timeline);
    let members = json!({
        "by": timeline.by.name(),
        "traffic": timeline.selection.name(),
        "definitions": table.definitions(),
        "bin_ns": timeline.bin_ns,
        "sampled": timeline.sampled,
        "bins": table.objects(&timeline.bins),
    });
    write_document(out, "ibscope timeline", VERSION, members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::GroupBy;
    use crate::analysis::fixture::two_jobs;
    use crate::analysis::matrix::{Selection, matrix};
    use crate::analysis::timeline::{sender_timeline, timeline};
    use serde_json::Value as Json;

    fn matrix_of(by: GroupBy, selection: Selection) -> String {
        let mut out = Vec::new();
        matrix_csv(&matrix(&two_jobs(), by, selection), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn jobs_are_columns_and_never_added_up() {
        let expected = "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage,class\n\
                        0,1,2,2000,3000,4000,10,1,complete,unknown\n\
                        0,1,4,4000,6000,8000,20,2,complete,unknown\n\
                        1,0,6,6000,9000,12000,30,2,incomplete,unknown\n\
                        unknown,0,8,8000,12000,16000,40,2,complete,unknown\n\
                        unknown,unknown,0,,15000,20000,50,,unknown,unknown\n";
        assert_eq!(matrix_of(GroupBy::Rank, Selection::P2p), expected);
    }

    #[test]
    fn by_endpoint_there_is_one_row_per_pair_with_its_worst_coverage() {
        let expected = "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage,class\n\
                        9,10,15,6300,9000,12000,30,,complete,unknown\n\
                        9,11,25,,15000,20000,50,,unknown,unknown\n\
                        10,9,35,14700,21000,28000,70,,incomplete,unknown\n";
        assert_eq!(matrix_of(GroupBy::Endpoint, Selection::All), expected);
    }

    #[test]
    fn bins_have_jobs_too() {
        let mut out = Vec::new();
        timeline_csv(&timeline(&two_jobs(), GroupBy::Rank, Selection::P2p, None).unwrap(), &mut out).unwrap();
        let expected = "time_ns,src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,class\n\
                        0,0,1,2,2000,3000,4000,10,1,unknown\n\
                        0,0,1,4,4000,6000,8000,20,2,unknown\n\
                        0,1,0,6,6000,9000,12000,30,2,unknown\n\
                        0,unknown,0,8,8000,12000,16000,40,2,unknown\n\
                        0,unknown,unknown,0,,15000,20000,50,,unknown\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn bins_of_senders_have_no_receiver() {
        let mut out = Vec::new();
        timeline_csv(&sender_timeline(&two_jobs(), GroupBy::Rank, Selection::P2p, None).unwrap(), &mut out).unwrap();
        let expected = "time_ns,src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,class\n\
                        0,0,,2,2000,3000,4000,10,1,unknown\n\
                        0,0,,4,4000,6000,8000,20,2,unknown\n\
                        0,1,,6,6000,9000,12000,30,2,unknown\n\
                        0,unknown,,8,8000,12000,16000,40,2,unknown\n\
                        0,unknown,,0,,15000,20000,50,,unknown\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn cells_have_their_job_and_what_is_missing() {
        let mut out = Vec::new();
        matrix_json(&matrix(&two_jobs(), GroupBy::Rank, Selection::P2p), &mut out).unwrap();
        let document: Json = serde_json::from_slice(&out).unwrap();
        let cell = &document["cells"][2];
        assert_eq!((&cell["src"], &cell["dst"], &cell["job"]), (&json!(1), &json!(0), &json!(2)));
        assert_eq!(cell["coverage"], "incomplete");
        assert_eq!((&cell["missing_packets"], &cell["missing_messages"]), (&json!(3), &json!(1)));
        let other = &document["cells"][4];
        assert_eq!(
            (&other["src"], &other["job"], &other["coverage"]),
            (&json!("unknown"), &Json::Null, &json!("unknown"))
        );
        assert_eq!(document["labels"][2], json!({ "label": 0, "job": 2, "name": "2.0", "nodes": ["9"] }));
    }
}
