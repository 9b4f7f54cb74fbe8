//! Phases as a table for people, csv and JSON.

use crate::analysis::phases::{Phase, Phases};
use crate::render::columns::columns;
use crate::render::csv;
use crate::render::json::{by, values};
use crate::render::units::{bytes, duration, group, seconds_since};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A table for people: one line per phase, and one per pause.
#[must_use]
pub fn table(phases: &Phases) -> String {
    if phases.phases.is_empty() {
        return "phases: no traffic\n".to_owned();
    }
    let header = [
        "",
        "from [s]",
        "to [s]",
        "lasted",
        "messages",
        "bytes",
        "wire rate",
        "pattern",
        "",
        "collective",
        "of these at least",
    ];
    let mut table = columns(&header, [0, 1, 2, 3, 4, 5, 6, 8, 9]);
    let mut before_ns = None;
    for (number, phase) in (1..).zip(&phases.phases) {
        if let Some(before_ns) = before_ns.filter(|ns| *ns < phase.from_ns) {
            let lasted = duration(phase.from_ns.saturating_sub(before_ns));
            table.add_row([String::new(), String::new(), String::new(), lasted, "pause".to_owned()]);
        }
        before_ns = Some(phase.to_ns);
        let certain = phase.collectives.iter().filter(|seen| seen.at_least > 0);
        let collectives: Vec<String> =
            certain.map(|seen| format!("{} {}", group(seen.at_least), seen.operation)).collect();
        let confidence = if phase.pattern.confidence > 0.0 {
            format!("{:.0} %", phase.pattern.confidence * 100.0)
        } else {
            String::new()
        };
        table.add_row([
            number.to_string(),
            seconds_since(phases.origin_ns, phase.from_ns),
            seconds_since(phases.origin_ns, phase.to_ns),
            duration(phase.length_ns()),
            group(phase.messages()),
            bytes(phase.bytes()),
            format!("{}/s", bytes(phase.wire_rate().round() as u64)),
            phase.pattern.name.name().to_owned(),
            confidence,
            group(phase.traffic.collective_messages),
            collectives.join(", "),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

/// What is to be said of the phases.
#[must_use]
pub fn notes(phases: &Phases, wanted_ns: Option<i64>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(wanted_ns) = wanted_ns.filter(|wanted_ns| phases.window_ns > *wanted_ns) {
        notes.push(format!(
            "windows are {} wide, not {}: they are whole bins of the timeline, and at most 512",
            duration(phases.window_ns),
            duration(wanted_ns)
        ));
    }
    notes
}

/// One row per phase.
pub fn csv(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "from_ns,to_ns,messages,mpi_bytes,payload_bytes,wire_bytes,packets,p2p_messages,collective_messages,pairs,pattern,confidence,symmetric,collectives"
    )?;
    for phase in &phases.phases {
        let traffic = &phase.traffic;
        let mpi_bytes = if phase.has_mpi { phase.bytes().to_string() } else { String::new() };
        let collectives: Vec<&str> = phase.collectives.iter().map(|seen| seen.operation.as_str()).collect();
        writeln!(
            out,
            "{},{},{},{mpi_bytes},{},{},{},{},{},{},{},{:.3},{},{}",
            phase.from_ns,
            phase.to_ns,
            phase.messages(),
            traffic.payload_bytes,
            traffic.wire_bytes,
            traffic.packets,
            traffic.p2p_messages,
            traffic.collective_messages,
            phase.matrix.cells.len(),
            phase.pattern.name.name(),
            phase.pattern.confidence,
            phase.pattern.symmetric,
            collectives.join(" ")
        )?;
    }
    Ok(())
}

/// `phase,from_ns,to_ns,src,dst` and the columns of `ibscope matrix`: a row for each pair that has sent something in a phase.
pub fn matrices_csv(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "phase,from_ns,to_ns,src,dst,{}", csv::CELL_COLUMNS)?;
    for (number, phase) in (1..).zip(&phases.phases) {
        for (src, dst, cell) in phase.matrix.rows() {
            writeln!(out, "{number},{},{},{}", phase.from_ns, phase.to_ns, csv::cell(src, dst, cell))?;
        }
    }
    Ok(())
}

/// `phase,from_ns,to_ns,operation,at_least_messages`: a row for each collective operation that was seen in a phase.
pub fn collectives_csv(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "phase,from_ns,to_ns,operation,at_least_messages")?;
    for (number, phase) in (1..).zip(&phases.phases) {
        for seen in &phase.collectives {
            writeln!(out, "{number},{},{},{},{}", phase.from_ns, phase.to_ns, seen.operation, seen.at_least)?;
        }
    }
    Ok(())
}

/// One object with everything, the matrices too.
pub fn json(phases: &Phases, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", value(phases))
}

/// The object that is written as JSON.
fn value(phases: &Phases) -> Value {
    let of_phase = |phase: &Phase| {
        let traffic = &phase.traffic;
        json!({
            "from_ns": phase.from_ns,
            "to_ns": phase.to_ns,
            "messages": phase.messages(),
            "mpi_bytes": phase.has_mpi.then(|| phase.bytes()),
            "payload_bytes": traffic.payload_bytes,
            "wire_bytes": traffic.wire_bytes,
            "packets": traffic.packets,
            "p2p_messages": traffic.p2p_messages,
            "collective_messages": traffic.collective_messages,
            "wire_bytes_per_s": phase.wire_rate(),
            "pattern": {
                "name": phase.pattern.name.name(),
                "confidence": phase.pattern.confidence,
                "symmetric": phase.pattern.symmetric,
            },
            "collectives": phase.collectives.iter().map(|seen| json!({
                "operation": seen.operation,
                "at_least_messages": seen.at_least,
            })).collect::<Vec<_>>(),
            "cells": phase.matrix.rows().map(|(src, dst, cell)| values(src, dst, cell)).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema": "ibscope phases",
        "version": 1,
        "row": "sender",
        "column": "receiver",
        "by": by(phases.by),
        "window_ns": phases.window_ns,
        "origin_ns": phases.origin_ns,
        "phases": phases.phases.iter().map(of_phase).collect::<Vec<_>>(),
    })
}
