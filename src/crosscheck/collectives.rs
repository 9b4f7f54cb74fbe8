//! Collective operations: what the trace promises between two ranks beside what the wire carried between them.
//!
//! A library moves the bytes of a collective by an algorithm of its own choice, over other ranks and in other amounts, so the two need not be equal and
//! are not judged. The promise is what the operation means: each rank's part for each other rank.

use super::contexts::Contexts;
use super::message_sums::Sums;
use super::placement::Placement;
use super::trace::{CollectiveKey, CollectiveSums, Trace, Tracer};
use super::wire::Wire;
use ibscope_parsers::mpi::Operation;
use ibscope_parsers::tools::otf2_print::Collective;
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest communicator of which promises are told pair by pair: of larger ones there would be millions.
const MOST_MEMBERS: usize = 1 << 10;

/// One collective operation between two ranks of different nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectivePair {
    /// Name of the operation.
    pub operation: String,
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Bytes that the trace promises from the sender to the receiver.
    pub promised_bytes: u64,
    /// Messages on the wire.
    pub wire_messages: u64,
    /// Their bytes.
    pub wire_bytes: u64,
    /// Those of them that are the tracer's own, known by its communicator.
    pub tracer: Sums,
}

/// How often ranks called an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectiveCalls {
    /// Name of the operation.
    pub operation: String,
    /// Calls of all ranks.
    pub calls: u64,
    /// Bytes that they sent, as the tracer counts them.
    pub sent: u64,
    /// Bytes that they received, as the tracer counts them.
    pub received: u64,
}

/// Calls by operation.
pub(super) fn calls(trace: &Trace) -> Vec<CollectiveCalls> {
    let mut operations: BTreeMap<Collective, CollectiveSums> = BTreeMap::new();
    for (key, sums) in trace.collectives.iter().filter(|(key, _)| !key.operation.is_handle()) {
        let total = operations.entry(key.operation).or_default();
        total.calls = total.calls.saturating_add(sums.calls);
        total.sent = total.sent.saturating_add(sums.sent);
        total.received = total.received.saturating_add(sums.received);
    }
    let calls = |(operation, CollectiveSums { calls, sent, received }): (Collective, CollectiveSums)| CollectiveCalls {
        operation: operation.name().to_owned(),
        calls,
        sent,
        received,
    };
    operations.into_iter().map(calls).collect()
}

/// Promises and traffic by operation and pair, of pairs on different nodes; and whether there were communicators too large for that.
pub(super) fn pairs(
    trace: &Trace,
    wire: &Wire,
    contexts: &Contexts,
    placement: &Placement,
) -> (Vec<CollectivePair>, bool) {
    let mut rows: BTreeMap<(String, u32, u32), CollectivePair> = BTreeMap::new();
    let mut is_cut = false;
    let row = |operation: &str, src: u32, dst: u32| CollectivePair {
        operation: operation.to_owned(),
        src,
        dst,
        promised_bytes: 0,
        wire_messages: 0,
        wire_bytes: 0,
        tracer: Sums::default(),
    };
    for (key, sums) in trace.collectives.iter().filter(|(key, _)| !key.operation.is_handle()) {
        let Some(communicator) = trace.communicators.get(key.communicator as usize) else { continue };
        if communicator.members.len() > MOST_MEMBERS {
            is_cut = true;
            continue;
        }
        let bytes = per_peer(key, *sums, communicator.members.len() as u64, &trace.tracer);
        for &dst in &communicator.members {
            if dst == key.rank || placement.is_same_node(key.rank, dst) || !sends(key, dst) {
                continue;
            }
            let name = key.operation.name();
            let row = rows.entry((name.to_owned(), key.rank, dst)).or_insert_with(|| row(name, key.rank, dst));
            row.promised_bytes = row.promised_bytes.saturating_add(bytes);
        }
    }
    for ((src, dst, envelope, operation), sums) in &wire.streams {
        if *operation == Operation::PointToPoint {
            continue;
        }
        let name = operation.name();
        let row = rows.entry((name.to_owned(), *src, *dst)).or_insert_with(|| row(name, *src, *dst));
        row.wire_messages = row.wire_messages.saturating_add(sums.messages);
        row.wire_bytes = row.wire_bytes.saturating_add(sums.mpi_bytes);
        if contexts.tracer.is_some() && envelope.map(|envelope| envelope.context) == contexts.tracer {
            row.tracer += Sums { messages: sums.messages, bytes: sums.mpi_bytes };
        }
    }
    rows.retain(|_, row| row.promised_bytes > 0 || row.wire_messages > 0);
    (rows.into_values().collect(), is_cut)
}

/// Operations in which the root alone sends, or receives.
const FROM_ROOT: [Collective; 3] = [Collective::Bcast, Collective::Scatter, Collective::Scatterv];
const TO_ROOT: [Collective; 3] = [Collective::Gather, Collective::Gatherv, Collective::Reduce];

/// True where the operation moves something from the caller to this rank.
fn sends(key: &CollectiveKey, dst: u32) -> bool {
    if FROM_ROOT.contains(&key.operation) {
        key.root == Some(key.rank)
    } else if TO_ROOT.contains(&key.operation) {
        key.root == Some(dst)
    } else {
        true
    }
}

/// Bytes of the caller's calls for each other rank. Score-P counts what goes to all ranks, the caller included; eztrace what goes to one. Where
/// parts differ (`v` and `w`), what is known is their mean.
fn per_peer(key: &CollectiveKey, sums: CollectiveSums, members: u64, tracer: &Tracer) -> u64 {
    if TO_ROOT.contains(&key.operation) || *tracer == Tracer::Eztrace {
        return sums.sent;
    }
    sums.sent.checked_div(members).unwrap_or(0)
}
