//! JSON for programs.

use super::matrix::{Cell, Matrix, Selection};
use super::timeline::Timeline;
use super::who::By;
use super::who::Label;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Version of the two documents below.
const VERSION: u32 = 1;

/// Writes one object: what rows and columns are, their labels, and the cells as objects with `src` and `dst`.
pub fn matrix_json(matrix: &Matrix, out: &mut dyn Write) -> io::Result<()> {
    let label = |label: &Label| json!({ "label": value(label), "name": label.name() });
    let cell = |(src, dst, cell): (&Label, &Label, &Cell)| values(src, dst, cell);
    let document = json!({
        "schema": "ibscope matrix",
        "version": VERSION,
        "row": "sender",
        "column": "receiver",
        "by": by(matrix.by),
        "traffic": matrix.selection.name(),
        "definitions": definitions(matrix.by, matrix.selection),
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
pub(super) const fn by(by: By) -> &'static str {
    match by {
        By::Endpoint => "endpoint",
        By::Rank => "rank",
    }
}

fn definitions(by: By, selection: Selection) -> Value {
    let messages = match (by, selection) {
        (By::Endpoint, Selection::All) => "transport messages started by the sender",
        _ => "MPI messages of the selected traffic, sender to receiver",
    };
    json!({
        "messages": messages,
        "mpi_bytes": "MPI length of the selected traffic; null where no MPI library was recognised",
        "payload_bytes": "InfiniBand payload of the whole traffic of the pair, without repeats",
        "wire_bytes": "LRH to VCRC, or Ethernet frames, of the whole traffic of the pair, with repeats",
        "packets": "packets of the whole traffic of the pair, with repeats, mirror copies once",
    })
}

/// A cell with its sender and receiver.
pub(super) fn values(src: &Label, dst: &Label, cell: &Cell) -> Value {
    json!({
        "src": value(src),
        "dst": value(dst),
        "messages": cell.messages,
        "mpi_bytes": cell.mpi_bytes,
        "payload_bytes": cell.payload_bytes,
        "wire_bytes": cell.wire_bytes,
        "packets": cell.packets,
    })
}

/// Ranks are numbers, everything else is text.
fn value(label: &Label) -> Value {
    match label {
        Label::Rank(rank) => json!(rank),
        Label::Endpoint(..) | Label::JobRank(_) | Label::Unknown(_) => json!(label.to_string()),
    }
}
