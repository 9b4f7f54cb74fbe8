//! Summaries of a cross-check: the number of pairs by verdict and by outcome, and sums by
//! operation.

use crate::crosscheck::{
    Cause, CollectiveCalls, CollectivePair, Crosscheck, CrosscheckOutcome, CrosscheckVerdict, MessageSums,
    RankDirection,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Number of pairs by verdict, the worst verdict last. For a profile of sums, rank totals are
/// counted instead of pairs.
#[must_use]
pub fn counts(crosscheck: &Crosscheck) -> [(CrosscheckVerdict, usize); 4] {
    let count = |verdict| verdicts(crosscheck).filter(|of_one| *of_one == verdict).count();
    [
        CrosscheckVerdict::Equal,
        CrosscheckVerdict::Explained,
        CrosscheckVerdict::Tolerated,
        CrosscheckVerdict::Unexplained,
    ]
    .map(|verdict| (verdict, count(verdict)))
}

/// Number of pairs by outcome, the worst outcome last; all 0 for a profile of sums.
pub(crate) fn outcomes(crosscheck: &Crosscheck) -> [(CrosscheckOutcome, usize); 6] {
    let count = |outcome| crosscheck.pairs.iter().filter(|pair| pair.outcome() == outcome).count();
    CrosscheckOutcome::ALL.map(|outcome| (outcome, count(outcome)))
}

/// True if every pair or sum is equal, explained or tolerated.
#[must_use]
pub fn agrees(crosscheck: &Crosscheck) -> bool {
    verdicts(crosscheck).all(|verdict| verdict != CrosscheckVerdict::Unexplained)
}

fn verdicts(crosscheck: &Crosscheck) -> impl Iterator<Item = CrosscheckVerdict> {
    let of_pairs = crosscheck.pairs.iter().map(|pair| pair.verdict);
    of_pairs.chain(crosscheck.ranks.iter().map(|sums| sums.verdict))
}

/// The causes of all pairs and of all sums.
pub(crate) fn all_causes(crosscheck: &Crosscheck) -> impl Iterator<Item = Cause> {
    let of_pairs = crosscheck.pairs.iter().map(|pair| &pair.causes);
    of_pairs.chain(crosscheck.ranks.iter().map(|sums| &sums.causes)).flatten().copied()
}

/// Number of ordered pairs of ranks that share a node.
pub(crate) fn pairs_on_one_node(crosscheck: &Crosscheck) -> u64 {
    let mut ranks: BTreeMap<&String, u64> = BTreeMap::new();
    crosscheck.nodes.values().for_each(|node| *ranks.entry(node).or_default() += 1);
    ranks.values().map(|ranks| ranks * (ranks - 1)).sum()
}

/// One collective operation between ranks of different nodes: the bytes that its arguments promise,
/// and the traffic on the wire.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct OperationSummary {
    /// Calls of all ranks.
    pub(crate) calls: u64,
    /// Pairs of ranks with expected bytes.
    pub(crate) pairs: u64,
    pub(crate) expected_bytes: u64,
    /// Pairs with a message on the wire.
    pub(crate) wire_pairs: u64,
    /// All messages of the operation on the wire.
    pub(crate) wire: MessageSums,
    /// The part of `wire` that the tracer itself sent.
    pub(crate) tracer: MessageSums,
}

/// Summarizes the collective operations by name.
pub(crate) fn operations(crosscheck: &Crosscheck) -> BTreeMap<&str, OperationSummary> {
    let mut operations: BTreeMap<&str, OperationSummary> = BTreeMap::new();
    for calls in &crosscheck.collective_calls {
        operations.entry(&calls.operation).or_default().calls += calls.calls;
    }
    for pair in &crosscheck.collectives {
        let row = operations.entry(&pair.operation).or_default();
        row.expected_bytes = row.expected_bytes.saturating_add(pair.expected_bytes);
        row.pairs += u64::from(pair.expected_bytes > 0);
        row.wire_pairs += u64::from(pair.wire_messages > 0);
        row.wire += MessageSums { messages: pair.wire_messages, bytes: pair.wire_bytes };
        row.tracer += pair.tracer;
    }
    operations
}

/// The pairs of each collective operation that the program called. Pairs whose only messages are
/// the tracer's own are skipped.
pub(crate) fn called_pairs(crosscheck: &Crosscheck) -> impl Iterator<Item = &CollectivePair> {
    let called: BTreeSet<&str> = crosscheck.collective_calls.iter().map(|calls| calls.operation.as_str()).collect();
    let has_any = |pair: &&CollectivePair| pair.expected_bytes > 0 || pair.wire_messages > pair.tracer.messages;
    crosscheck.collectives.iter().filter(move |pair| called.contains(pair.operation.as_str())).filter(has_any)
}

/// One collective operation in a profile of sums: the calls of the ranks, and the traffic between
/// nodes.
#[derive(Default)]
pub(crate) struct OperationSums {
    /// Calls, bytes sent and bytes received, as the tracer counts them.
    pub(crate) call_totals: [u64; 3],
    /// All messages of the operation on the wire.
    pub(crate) wire: MessageSums,
    /// The part of `wire` that the tracer itself sent.
    pub(crate) tracer: MessageSums,
}

/// Sums collective operations by name. A profile of sums does not contain the bytes that the calls
/// promise to each pair.
pub(crate) fn operation_sums(crosscheck: &Crosscheck) -> BTreeMap<&str, OperationSums> {
    let mut operations: BTreeMap<&str, OperationSums> = BTreeMap::new();
    for CollectiveCalls { operation, calls, sent, received } in &crosscheck.collective_calls {
        operations.entry(operation).or_default().call_totals = [*calls, *sent, *received];
    }
    for pair in &crosscheck.collectives {
        let row = operations.entry(&pair.operation).or_default();
        row.wire += MessageSums { messages: pair.wire_messages, bytes: pair.wire_bytes };
        row.tracer += pair.tracer;
    }
    operations
}

/// Bytes that ranks sent and that are missing on the wire, without the bytes exchanged with
/// unidentified ranks.
pub(crate) fn missing_bytes(crosscheck: &Crosscheck) -> u64 {
    let sent = crosscheck.ranks.iter().filter(|row| row.direction == RankDirection::Sent);
    sent.fold(0_u64, |sum, row| sum.saturating_add(row.missing_bytes.saturating_sub(row.unidentified.bytes)))
}
