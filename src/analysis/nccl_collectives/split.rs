//! Divides the messages of NCCL into communicators and operations.
//!
//! ```text
//! connection 0 -> 1   post 1 2 3 4    data 1 2 3 4 |   post 5 6   data 5 6
//! connection 1 -> 0   post 1 2 3 4   data 1 2 3 4  |    post 5 6 data 5 6
//! ```
//! A process posts the receives of an operation only after all data of the one before it arrived on
//! the same connection (`proxy.cc`: operations of a connection follow each other; `net.cc`:
//! `recvProxyProgress`). A new operation can therefore begin only while no receive is posted: a
//! *segment* ends there. Segments of several connections that overlap in time are one operation. A
//! rank posts all receives of an operation when it enters, so a segment that it posts after it
//! finished another one is part of a later operation. A late rank may leave a connection without
//! receives within an operation, so segments are joined if only the joined segments form an
//! operation.

use super::NcclCollective;
use super::classify::{self, Flow};
use super::connections::{NcclCommunicator, NcclConnection};
use crate::model::RankActivity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Segments of a connection that are joined at most.
const MAX_JOINED: usize = 64;

/// Messages of one connection between two points at which no receive was posted.
#[derive(Clone, Debug)]
struct OperationSegment {
    range: Range<usize>,
    /// Time at which its first receive was posted, and of its last packet.
    times_ns: (i64, i64),
    /// Start of its last message.
    last_start_ns: i64,
}

/// An operation, or a part of one: the messages of each connection.
type Parts = BTreeMap<usize, Range<usize>>;

fn segments(connection: &NcclConnection) -> Vec<OperationSegment> {
    let mut segments: Vec<OperationSegment> = Vec::new();
    for (at, transfer) in connection.transfers.iter().enumerate() {
        let (posted_ns, (last_start_ns, end_ns)) = (transfer.receive.posted_ns, transfer.times_ns);
        match segments.last_mut().filter(|segment| posted_ns < segment.times_ns.1) {
            Some(segment) => {
                segment.range.end = at + 1;
                segment.times_ns.1 = end_ns.max(segment.times_ns.1);
                segment.last_start_ns = last_start_ns.max(segment.last_start_ns);
            }
            None => segments.push(OperationSegment { range: at..at + 1, times_ns: (posted_ns, end_ns), last_start_ns }),
        }
    }
    segments
}

/// Connections that may belong to the next operation, in the order in which their receives were
/// posted, and how many of them overlap in time. `next` has the number of the next segment of each
/// connection.
fn active(communicator: &NcclCommunicator, segments: &[Vec<OperationSegment>], next: &[usize]) -> (Vec<usize>, usize) {
    let mut ahead: Vec<(&OperationSegment, usize)> = segments
        .iter()
        .zip(next)
        .enumerate()
        .filter_map(|(connection, (own, next))| Some((own.get(*next)?, connection)))
        .collect();
    ahead.sort_by_key(|(segment, connection)| (segment.times_ns, *connection));
    let mut active = Vec::new();
    let (mut last_ns, mut overlapping) = (i64::MIN, 0);
    // By rank: the time at which it was done with the first of its connections.
    let mut done_ns: BTreeMap<u32, i64> = BTreeMap::new();
    for (segment, connection) in ahead {
        let (posted_ns, end_ns) = segment.times_ns;
        let Some(NcclConnection { src, dst, .. }) = communicator.connections.get(connection) else { continue };
        if done_ns.get(dst).is_some_and(|done_ns| *done_ns < posted_ns) {
            continue;
        }
        if last_ns >= posted_ns || active.is_empty() {
            overlapping = active.len() + 1;
            last_ns = last_ns.max(end_ns);
        }
        active.push(connection);
        // A rank is done with a connection when it hands over the last message.
        for (rank, own_ns) in [(src, segment.last_start_ns), (dst, end_ns)] {
            let done_ns = done_ns.entry(*rank).or_insert(own_ns);
            *done_ns = own_ns.min(*done_ns);
        }
    }
    (active, overlapping)
}

/// The operations of a communicator in the order of time.
pub(super) fn operations(communicator: &NcclCommunicator, clock_bound_ns: i64) -> Vec<NcclCollective> {
    let segments: Vec<Vec<OperationSegment>> = communicator.connections.iter().map(segments).collect();
    let mut next = vec![0; segments.len()];
    let mut found: Vec<(Parts, NcclCollective)> = Vec::new();
    loop {
        let (all, overlapping) = active(communicator, &segments, &next);
        let active = &all[..overlapping];
        if active.is_empty() {
            break;
        }
        let classify = |parts: Parts| {
            let operation = classify::operation(communicator, &flows(communicator, &parts), clock_bound_ns);
            (parts, operation)
        };
        let is_known = |(_, operation): &(Parts, NcclCollective)| !operation.operations.is_empty();
        let alone = classify(parts(active, &segments, &next, |_| Some(1)));
        // As many messages on each connection, over several segments.
        let joined = || {
            let counts = active.first().map(|first| counts(&segments[*first], next[*first])).unwrap_or_default();
            let of = |count: usize| {
                let all = |at: usize| counts_to(&segments[at], next[at], count);
                let parts = parts(active, &segments, &next, all);
                (parts.len() == active.len()).then(|| classify(parts)).filter(is_known)
            };
            counts.into_iter().find_map(of)
        };
        // A rank may have entered after others were done.
        let extended = || {
            let more = overlapping + 1..=all.len();
            let of = |count: usize| classify(parts(&all[..count], &segments, &next, |_| Some(1)));
            more.into_iter().map(of).find(is_known)
        };
        let best = if is_known(&alone) { alone } else { joined().or_else(extended).unwrap_or(alone) };
        for (connection, range) in &best.0 {
            next[*connection] += segments[*connection][next[*connection]..]
                .iter()
                .take_while(|segment| segment.range.end <= range.end)
                .count();
        }
        found.push(best);
    }
    exclude_send_recv(communicator, &mut found);
    let with_activity = |(parts, operation): (Parts, NcclCollective)| {
        let flows = flows(communicator, &parts);
        let messages = flows.iter().flat_map(|flow| flow.messages);
        let activity = RankActivity::of_messages(messages.map(|message| (message.src, message.dst, message.times_ns)));
        NcclCollective { activity, ..operation }
    };
    found.into_iter().map(with_activity).collect()
}

/// The next segments of these connections, as many of each as `count` returns.
fn parts(
    active: &[usize],
    segments: &[Vec<OperationSegment>],
    next: &[usize],
    count: impl Fn(usize) -> Option<usize>,
) -> Parts {
    let part = |connection: &usize| {
        let own = segments.get(*connection)?.get(next[*connection]..)?.get(..count(*connection)?)?;
        Some((*connection, own.first()?.range.start..own.last()?.range.end))
    };
    active.iter().filter_map(part).collect()
}

/// Numbers of messages in the next two, three ... segments.
fn counts(segments: &[OperationSegment], next: usize) -> Vec<usize> {
    let Some(own) = segments.get(next..) else { return Vec::new() };
    let start = own.first().map_or(0, |first| first.range.start);
    own.iter().take(MAX_JOINED).map(|segment| segment.range.end - start).collect()
}

/// Number of the next segments that together have `count` messages.
fn counts_to(segments: &[OperationSegment], next: usize, count: usize) -> Option<usize> {
    counts(segments, next).iter().position(|own| *own == count).map(|at| at + 1)
}

/// `ncclSend` and `ncclRecv` have connections of their own (`connIndex` 1), so a connection that
/// carried another operation carries none of them.
fn exclude_send_recv(communicator: &NcclCommunicator, found: &mut [(Parts, NcclCollective)]) {
    let of_collectives: BTreeSet<usize> = found
        .iter()
        .filter(|(_, own)| !own.operations.is_empty() && !own.operations.iter().any(|operation| operation.is_p2p()))
        .flat_map(|(parts, _)| parts.keys().copied())
        .collect();
    for (parts, own) in found {
        if own.operations.len() > 1 && parts.keys().any(|connection| of_collectives.contains(connection)) {
            own.operations.retain(|operation| !operation.is_p2p());
            own.bytes = classify::common_bytes(&own.operations, own.ranks.into(), &flows(communicator, parts));
        }
    }
}

fn flows<'a>(communicator: &'a NcclCommunicator, parts: &Parts) -> Vec<Flow<'a>> {
    let flow = |(connection, range): (&usize, &Range<usize>)| {
        let own = communicator.connections.get(*connection)?;
        let messages = own.transfers.get(range.clone())?;
        let slices = messages.first().and_then(|first| own.slices.get(&first.receive.buffer_bytes).copied().flatten());
        Some(Flow { src: own.src, dst: own.dst, messages, slices })
    };
    parts.iter().filter_map(flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_max_joined_segments_are_joined() {
        for count in [MAX_JOINED, MAX_JOINED + 1] {
            let segment = |at: usize| OperationSegment { range: at..at + 1, times_ns: (0, 0), last_start_ns: 0 };
            let segments: Vec<OperationSegment> = (0..count).map(segment).collect();
            assert_eq!(counts(&segments, 0), (1..=MAX_JOINED).collect::<Vec<_>>());
            assert_eq!(counts_to(&segments, 0, count), Some(count).filter(|count| *count <= MAX_JOINED));
        }
    }
}
