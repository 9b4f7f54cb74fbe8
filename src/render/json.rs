//! JSON for programs.

use crate::analysis::By;
use crate::analysis::Label;
use crate::analysis::matrix::{Cell, Matrix, Selection};
use crate::analysis::timeline::Timeline;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Version of the two documents below.
const VERSION: u32 = 1;

/// Writes one object: what rows and columns are, their labels, and the cells as objects with `src` and `dst`.
pub fn matrix_json(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    let nodes = |label: &Label| match label {
        Label::Rank(rank, _) => json!(matrix.nodes.names(*rank).collect::<Vec<_>>()),
        _ => Value::Null,
    };
    let label = |label: &Label| json!({ "label": value(label), "job": label.job(), "name": label.name(), "nodes": nodes(label) });
    let cell = |(src, dst, cell): (&Label, &Label, &Cell)| {
        let mut object = values(src, dst, cell);
        object["coverage"] = json!(cell.coverage.state);
        object["missing_packets"] = json!(cell.coverage.missing_packets);
        object["missing_messages"] = json!(cell.coverage.missing_messages);
        object
    };
    let document = json!({
        "schema": "ibscope matrix",
        "version": VERSION,
        "row": "sender",
        "column": "receiver",
        "by": by(matrix.by),
        "traffic": matrix.selection.name(),
        "definitions": matrix_definitions(matrix),
        "labels": matrix.labels.iter().map(label).collect::<Vec<_>>(),
        "cells": matrix.rows().map(cell).collect::<Vec<_>>(),
    });
    writeln!(out, "{document:#}")
}

/// Writes one object: the width of the bins and the sums per bin and pair.
pub fn timeline_json(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let bins: Vec<Value> = timeline
        .bins
        .iter()
        .map(|bin| {
            let mut object = values(&bin.src, &bin.dst, &bin.cell);
            object["time_ns"] = json!(bin.time_ns);
            object
        })
        .collect();
    let document = json!({
        "schema": "ibscope timeline",
        "version": VERSION,
        "by": by(timeline.by),
        "traffic": timeline.selection.name(),
        "definitions": definitions(timeline.by, timeline.selection),
        "bin_ns": timeline.bin_ns,
        "bins": bins,
    });
    writeln!(out, "{document:#}")
}

/// What rows and columns are.
pub(crate) const fn by(by: By) -> &'static str {
    match by {
        By::Endpoint => "endpoint",
        By::Rank => "rank",
    }
}

fn definitions(by: By, selection: Selection) -> Value {
    let messages = match (by, selection) {
        (By::Endpoint, Selection::All) => "transport messages started by the sender",
        (_, Selection::OneSided) => "transport messages of connections with one-sided operations, sender to receiver",
        _ => "MPI messages of the selected traffic, sender to receiver",
    };
    json!({
        "messages": messages,
        "mpi_bytes": "MPI length of the selected traffic; null where no MPI library was recognised",
        "payload_bytes": "InfiniBand payload of the whole traffic of the pair, without repeats",
        "wire_bytes": "LRH to VCRC, or Ethernet frames, of the whole traffic of the pair, with repeats",
        "job": "number of the job; null by endpoint, and for traffic of no job",
        "packets": "packets of the whole traffic of the pair, with repeats, mirror copies once",
    })
}

fn matrix_definitions(matrix: &Matrix) -> Value {
    let mut definitions = definitions(matrix.by, matrix.selection);
    definitions["coverage"] = json!(
        "complete: no packet of the pair is missing; incomplete: packets or messages are missing, so counts are lower bounds; sampled: the mirror \
         sampled the packets; unknown: whether packets are missing is unknown. The worst of the pair's connections"
    );
    definitions["missing_packets"] =
        json!("packets that were sent and are not in the capture, as far as sequence numbers show");
    definitions["missing_messages"] =
        json!("MPI messages that were begun and whose length is unknown: they are in no count");
    definitions["nodes"] = json!(
        "nodes of a rank: what two ranks that share one send each other is not on the wire, so a pair of them without a cell says nothing"
    );
    definitions
}

/// A cell with its sender and receiver.
pub(crate) fn values(src: &Label, dst: &Label, cell: &Cell) -> Value {
    json!({
        "src": value(src),
        "dst": value(dst),
        "messages": cell.messages,
        "mpi_bytes": cell.mpi_bytes,
        "payload_bytes": cell.payload_bytes,
        "wire_bytes": cell.wire_bytes,
        "packets": cell.packets,
        "job": src.job(),
    })
}

/// Sender, receiver and job of a pair as texts and a number; null where all pairs are together.
pub(crate) fn ends(pair: Option<&(Label, Label)>) -> [(&'static str, Value); 3] {
    let text = |label: Option<&Label>| json!(label.map(Label::without_job));
    let (src, dst) = (pair.map(|(src, _)| src), pair.map(|(_, dst)| dst));
    [("src", text(src)), ("dst", text(dst)), ("job", json!(src.and_then(Label::job)))]
}

/// Ranks are numbers, everything else is text. The job stands beside it.
pub(crate) fn value(label: &Label) -> Value {
    label.rank().map_or_else(|| json!(label.without_job()), |rank| json!(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::two_jobs;
    use crate::analysis::matrix::matrix;

    #[test]
    fn cells_have_their_job_and_what_is_missing() {
        let mut out = Vec::new();
        matrix_json(&matrix(&two_jobs(), By::Rank, Selection::P2p), &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let cell = &document["cells"][2];
        assert_eq!((&cell["src"], &cell["dst"], &cell["job"]), (&json!(1), &json!(0), &json!(2)));
        assert_eq!(cell["coverage"], "incomplete");
        assert_eq!((&cell["missing_packets"], &cell["missing_messages"]), (&json!(3), &json!(1)));
        let other = &document["cells"][4];
        assert_eq!(
            (&other["src"], &other["job"], &other["coverage"]),
            (&json!("unknown"), &Value::Null, &json!("unknown"))
        );
        assert_eq!(document["labels"][2], json!({ "label": 0, "job": 2, "name": "2.0", "nodes": ["9"] }));
    }
}
