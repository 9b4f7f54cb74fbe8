//! Collective operations: the bytes that two ranks must exchange according to the calls in the
//! trace, and the bytes that the wire carried between them.
//!
//! The expected bytes follow from the operation and its arguments: the bytes of each rank for each
//! other rank. A library transfers them with an algorithm of its own choice, through other ranks
//! and in other amounts. The two numbers may therefore differ, and the pairs get no verdict.

use super::contexts::Contexts;
use super::message_sums::MessageSums;
use super::placement::Placement;
use super::trace::{AppTrace, CollectiveKey, CollectiveSums, Tracer};
use super::wire::WireMessages;
use ibscope_parsers::mpi::MpiOperation;
use ibscope_parsers::tools::otf2_print::Collective;
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest communicator whose expected bytes are listed by pair. Larger ones would have millions of
/// pairs.
const MAX_MEMBERS: usize = 1 << 10;

/// One collective operation between two ranks on different nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectivePair {
    /// Name of the operation.
    pub operation: String,
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Bytes expected from the trace, from the sender to the receiver.
    pub expected_bytes: u64,
    /// Number of messages on the wire.
    pub wire_messages: u64,
    /// MPI bytes of these messages.
    pub wire_bytes: u64,
    /// The part of these messages in the tracer's own communicator.
    pub tracer: MessageSums,
}

/// The calls of a collective operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectiveCalls {
    /// Name of the operation.
    pub operation: String,
    /// Calls of all ranks.
    pub calls: u64,
    /// Bytes sent, as the tracer counts them.
    pub sent: u64,
    /// Bytes received, as the tracer counts them.
    pub received: u64,
}

/// Sums the calls by operation.
pub(super) fn calls(trace: &AppTrace) -> Vec<CollectiveCalls> {
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

/// Promises and traffic by operation and pair of ranks on different nodes, and whether
/// communicators were skipped because they are too large.
pub(super) fn pairs(
    trace: &AppTrace,
    wire: &WireMessages,
    contexts: &Contexts,
    placement: &Placement,
) -> (Vec<CollectivePair>, bool) {
    let mut rows: BTreeMap<(String, u32, u32), CollectivePair> = BTreeMap::new();
    let mut is_incomplete = false;
    let row = |operation: &str, src: u32, dst: u32| CollectivePair {
        operation: operation.to_owned(),
        src,
        dst,
        expected_bytes: 0,
        wire_messages: 0,
        wire_bytes: 0,
        tracer: MessageSums::default(),
    };
    for (key, sums) in trace.collectives.iter().filter(|(key, _)| !key.operation.is_handle()) {
        let Some(communicator) = trace.communicators.get(key.communicator as usize) else { continue };
        if communicator.members.len() > MAX_MEMBERS {
            is_incomplete = true;
            continue;
        }
        let bytes = per_peer(key, *sums, communicator.members.len() as u64, &trace.tracer);
        for &dst in &communicator.members {
            if dst == key.rank || placement.is_same_node(key.rank, dst) || !sends(key, dst) {
                continue;
            }
            let name = key.operation.name();
            let row = rows.entry((name.to_owned(), key.rank, dst)).or_insert_with(|| row(name, key.rank, dst));
            row.expected_bytes = row.expected_bytes.saturating_add(bytes);
        }
    }
    for ((src, dst, envelope, operation), sums) in &wire.streams {
        if *operation == MpiOperation::PointToPoint {
            continue;
        }
        let name = operation.name();
        let row = rows.entry((name.to_owned(), *src, *dst)).or_insert_with(|| row(name, *src, *dst));
        row.wire_messages = row.wire_messages.saturating_add(sums.messages);
        row.wire_bytes = row.wire_bytes.saturating_add(sums.mpi_bytes);
        if contexts.tracer.is_some() && envelope.map(|envelope| envelope.context) == contexts.tracer {
            row.tracer += MessageSums { messages: sums.messages, bytes: sums.mpi_bytes };
        }
    }
    rows.retain(|_, row| row.expected_bytes > 0 || row.wire_messages > 0);
    (rows.into_values().collect(), is_incomplete)
}

/// Operations in which only the root sends, and operations in which only the root receives.
const FROM_ROOT: [Collective; 3] = [Collective::Bcast, Collective::Scatter, Collective::Scatterv];
const TO_ROOT: [Collective; 3] = [Collective::Gather, Collective::Gatherv, Collective::Reduce];

/// True if the operation moves data from the caller to this rank.
fn sends(key: &CollectiveKey, dst: u32) -> bool {
    if FROM_ROOT.contains(&key.operation) {
        key.root == Some(key.rank)
    } else if TO_ROOT.contains(&key.operation) {
        key.root == Some(dst)
    } else {
        true
    }
}

/// Bytes that the caller's calls send to each other rank. Score-P counts the bytes to all ranks
/// including the caller, eztrace the bytes to one rank. If the parts differ (operations with `v` or
/// `w`), the result is their mean.
fn per_peer(key: &CollectiveKey, sums: CollectiveSums, members: u64, tracer: &Tracer) -> u64 {
    if TO_ROOT.contains(&key.operation) || *tracer == Tracer::Eztrace {
        return sums.sent;
    }
    sums.sent.checked_div(members).unwrap_or(0)
}
