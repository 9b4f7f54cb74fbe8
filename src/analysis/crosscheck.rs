//! What a cross-check comes to: verdicts and outcomes counted, and sums by operation.

use crate::crosscheck::{Cause, CollectiveCalls, CollectivePair, Crosscheck, Direction, Outcome, Sums, Verdict};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs of each verdict, the worst last; of a profile of sums, sums.
#[must_use]
pub fn counts(crosscheck: &Crosscheck) -> [(Verdict, usize); 4] {
    let count = |verdict| verdicts(crosscheck).filter(|of_one| *of_one == verdict).count();
    [Verdict::Equal, Verdict::Explained, Verdict::Tolerated, Verdict::Unexplained]
        .map(|verdict| (verdict, count(verdict)))
}

/// Pairs of each outcome, the worst last; none of a profile of sums.
pub(crate) fn outcomes(crosscheck: &Crosscheck) -> [(Outcome, usize); 6] {
    let count = |outcome| crosscheck.pairs.iter().filter(|pair| pair.outcome() == outcome).count();
    Outcome::ALL.map(|outcome| (outcome, count(outcome)))
}

/// True where everything is equal or explained.
#[must_use]
pub fn agrees(crosscheck: &Crosscheck) -> bool {
    verdicts(crosscheck).all(|verdict| verdict != Verdict::Unexplained)
}

fn verdicts(crosscheck: &Crosscheck) -> impl Iterator<Item = Verdict> {
    let of_pairs = crosscheck.pairs.iter().map(|pair| pair.verdict);
    of_pairs.chain(crosscheck.ranks.iter().map(|sums| sums.verdict))
}

/// The causes of all pairs and of all sums.
pub(crate) fn all_causes(crosscheck: &Crosscheck) -> impl Iterator<Item = Cause> {
    let of_pairs = crosscheck.pairs.iter().map(|pair| &pair.causes);
    of_pairs.chain(crosscheck.ranks.iter().map(|sums| &sums.causes)).flatten().copied()
}

/// How many pairs of ranks share a node.
pub(crate) fn pairs_on_one_node(crosscheck: &Crosscheck) -> u64 {
    let mut ranks: BTreeMap<&String, u64> = BTreeMap::new();
    crosscheck.nodes.values().for_each(|node| *ranks.entry(node).or_default() += 1);
    ranks.values().map(|ranks| ranks * (ranks - 1)).sum()
}

/// What ranks of different nodes promise each other by an operation, and what went between them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Operation {
    /// Calls of all ranks.
    pub(crate) calls: u64,
    /// Pairs with a promise.
    pub(crate) pairs: u64,
    pub(crate) promised_bytes: u64,
    /// Pairs with a message on the wire.
    pub(crate) wire_pairs: u64,
    /// All messages on the wire.
    pub(crate) wire: Sums,
    /// Those of them that are the tracer's own.
    pub(crate) tracer: Sums,
}

/// Collective operations by name.
pub(crate) fn operations(crosscheck: &Crosscheck) -> BTreeMap<&str, Operation> {
    let mut operations: BTreeMap<&str, Operation> = BTreeMap::new();
    for calls in &crosscheck.collective_calls {
        operations.entry(&calls.operation).or_default().calls += calls.calls;
    }
    for pair in &crosscheck.collectives {
        let row = operations.entry(&pair.operation).or_default();
        row.promised_bytes = row.promised_bytes.saturating_add(pair.promised_bytes);
        row.pairs += u64::from(pair.promised_bytes > 0);
        row.wire_pairs += u64::from(pair.wire_messages > 0);
        row.wire += Sums { messages: pair.wire_messages, bytes: pair.wire_bytes };
        row.tracer += pair.tracer;
    }
    operations
}

/// Collective operations that the program called, pair by pair, without those that the tracer is known to have caused.
pub(crate) fn called(crosscheck: &Crosscheck) -> impl Iterator<Item = &CollectivePair> {
    let called: BTreeSet<&str> = crosscheck.collective_calls.iter().map(|calls| calls.operation.as_str()).collect();
    let has_any = |pair: &&CollectivePair| pair.promised_bytes > 0 || pair.wire_messages > pair.tracer.messages;
    crosscheck.collectives.iter().filter(move |pair| called.contains(pair.operation.as_str())).filter(has_any)
}

/// What ranks called, and what went between nodes, by operation.
#[derive(Default)]
pub(crate) struct OperationSums {
    /// Calls, bytes sent and bytes received, as the tracer counts.
    pub(crate) called: [u64; 3],
    /// All messages on the wire.
    pub(crate) wire: Sums,
    /// Those of them that are the tracer's own.
    pub(crate) tracer: Sums,
}

/// By operation: what ranks called, and what went between nodes. What they promise each other is not in a profile of sums.
pub(crate) fn operation_sums(crosscheck: &Crosscheck) -> BTreeMap<&str, OperationSums> {
    let mut operations: BTreeMap<&str, OperationSums> = BTreeMap::new();
    for CollectiveCalls { operation, calls, sent, received } in &crosscheck.collective_calls {
        operations.entry(operation).or_default().called = [*calls, *sent, *received];
    }
    for pair in &crosscheck.collectives {
        let row = operations.entry(&pair.operation).or_default();
        row.wire += Sums { messages: pair.wire_messages, bytes: pair.wire_bytes };
        row.tracer += pair.tracer;
    }
    operations
}

/// Bytes that were sent and are not on the wire, without those of which the other rank is not identified.
pub(crate) fn missing_bytes(crosscheck: &Crosscheck) -> u64 {
    let sent = crosscheck.ranks.iter().filter(|row| row.direction == Direction::Sent);
    sent.fold(0_u64, |sum, row| sum.saturating_add(row.missing_bytes.saturating_sub(row.unidentified.bytes)))
}
