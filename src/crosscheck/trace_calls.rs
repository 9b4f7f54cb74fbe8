//! The calls of collective operations in a trace, one by one.
//!
//! In: the begin and the end of each call of each rank. Out: operations, each with the calls of all
//! its ranks. MPI requires that all ranks of a communicator call its operations in the same order,
//! so the n-th call of each rank belongs to the n-th operation.

use ibscope_parsers::tools::otf2_print::Collective;
use std::collections::BTreeMap;

/// Limit of the calls that are kept, 48 bytes each.
const MAX_CALLS: usize = 1 << 21;
/// Limit of the calls that have begun and not ended; further ones have no begin.
const MAX_OPEN: usize = 1 << 16;

/// One call of one rank, with times of the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CollectiveCall {
    operation: Collective,
    communicator: u32,
    rank: u32,
    /// Begin and end in nanoseconds; the begin is `None` if the trace does not have it.
    times_ns: (Option<i64>, i64),
    is_nonblocking: bool,
}

/// Calls of collective operations, up to a limit.
#[derive(Clone, Debug, Default)]
pub struct TraceCalls {
    calls: Vec<CollectiveCall>,
    /// Begin of the calls that have not ended, by location, and by request for nonblocking ones.
    open: BTreeMap<(u64, Option<u64>), i64>,
    /// Calls beyond the limit.
    skipped: u64,
}

/// Begin and end of a call in nanoseconds of the trace's clock.
pub(super) type CallTimes = (Option<i64>, i64);

/// One collective operation: the calls of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceOperation {
    /// Number of the operation on its communicator, from 1.
    pub number: u64,
    pub operation: Collective,
    /// True if the first rank called the nonblocking variant.
    pub is_nonblocking: bool,
    /// The call of each world rank.
    pub calls: BTreeMap<u32, CallTimes>,
}

/// The operations of each communicator of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceOperations {
    /// Operations by communicator, in the order of their calls.
    pub by_communicator: BTreeMap<u32, Vec<TraceOperation>>,
    /// Calls that create or free an object of the communicator.
    pub handles: BTreeMap<u32, Vec<TraceOperation>>,
    /// Communicators whose ranks call different operations at the same place.
    pub contradictory: Vec<u32>,
}

impl TraceCalls {
    /// A blocking call began (`request` is `None`), or a nonblocking one was started.
    pub(super) fn begin(&mut self, location: u64, request: Option<u64>, time_ns: i64) {
        if self.open.len() < MAX_OPEN || self.open.contains_key(&(location, request)) {
            self.open.insert((location, request), time_ns);
        }
    }

    /// A call at a location ended.
    pub(super) fn end(
        &mut self,
        (location, request): (u64, Option<u64>),
        (operation, communicator, rank): (Collective, u32, u32),
        end_ns: i64,
    ) {
        let begin_ns = self.open.remove(&(location, request));
        if self.calls.len() >= MAX_CALLS {
            self.skipped += 1;
            return;
        }
        self.calls.push(CollectiveCall {
            operation,
            communicator,
            rank,
            times_ns: (begin_ns, end_ns),
            is_nonblocking: request.is_some(),
        });
    }

    /// Calls that were skipped beyond the limit.
    pub(super) const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The calls of the ranks, joined to operations.
    pub(super) fn operations(&self) -> TraceOperations {
        let mut calls = self.calls.clone();
        calls.sort_by_key(|call| {
            let (begin_ns, end_ns) = call.times_ns;
            (call.communicator, call.rank, begin_ns.unwrap_or(end_ns), end_ns)
        });
        let mut found = TraceOperations::default();
        for of_rank in calls.chunk_by(|a, b| (a.communicator, a.rank) == (b.communicator, b.rank)) {
            let Some(communicator) = of_rank.first().map(|call| call.communicator) else { continue };
            let kinds = [(false, &mut found.by_communicator), (true, &mut found.handles)];
            for (is_handle, operations) in kinds {
                let operations = operations.entry(communicator).or_default();
                let of_kind = of_rank.iter().filter(|call| call.operation.is_handle() == is_handle);
                for (index, call) in of_kind.enumerate() {
                    if index == operations.len() {
                        operations.push(TraceOperation {
                            number: index as u64 + 1,
                            operation: call.operation,
                            is_nonblocking: call.is_nonblocking,
                            calls: BTreeMap::new(),
                        });
                    }
                    operations[index].calls.insert(call.rank, call.times_ns);
                    // Threads may free objects in any order.
                    if !is_handle && operations[index].operation != call.operation {
                        found.contradictory.push(communicator);
                    }
                }
            }
        }
        found
            .by_communicator
            .retain(|communicator, own| !own.is_empty() && !found.contradictory.contains(communicator));
        found.contradictory.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(of: &[(u32, Collective, i64)]) -> TraceCalls {
        let mut calls = TraceCalls::default();
        for (rank, operation, begin_ns) in of {
            calls.begin(u64::from(*rank), None, *begin_ns);
            calls.end((u64::from(*rank), None), (*operation, 7, *rank), begin_ns + 5);
        }
        calls
    }

    #[test]
    fn the_nth_calls_of_all_ranks_are_one_operation() {
        let found = calls(&[
            (0, Collective::Barrier, 10),
            (0, Collective::CreateHandle, 20),
            (0, Collective::Bcast, 30),
            (1, Collective::Barrier, 12),
            (1, Collective::Bcast, 33),
        ])
        .operations();
        let own = &found.by_communicator[&7];
        let names: Vec<Collective> = own.iter().map(|operation| operation.operation).collect();
        assert_eq!(names, [Collective::Barrier, Collective::Bcast]);
        assert_eq!(own[1].calls, BTreeMap::from([(0, (Some(30), 35)), (1, (Some(33), 38))]));
        assert_eq!((found.handles[&7].len(), found.contradictory.len()), (1, 0));
    }

    #[test]
    fn nonblocking_calls_keep_the_order_of_their_starts() {
        let mut calls = TraceCalls::default();
        calls.begin(0, Some(1), 10);
        calls.begin(0, Some(2), 20);
        calls.end((0, Some(2)), (Collective::Barrier, 7, 0), 30);
        calls.end((0, Some(1)), (Collective::Allreduce, 7, 0), 40);
        let found = calls.operations();
        let names: Vec<Collective> = found.by_communicator[&7].iter().map(|operation| operation.operation).collect();
        assert_eq!(names, [Collective::Allreduce, Collective::Barrier]);
    }

    #[test]
    fn a_communicator_whose_ranks_disagree_has_no_operations() {
        let found = calls(&[(0, Collective::Barrier, 10), (1, Collective::Bcast, 12)]).operations();
        assert_eq!((found.by_communicator.len(), found.contradictory), (0, vec![7]));
    }

    #[test]
    fn calls_beyond_the_limits_are_counted_or_have_no_begin() {
        let mut calls = TraceCalls::default();
        for request in 0..=MAX_OPEN as u64 {
            calls.begin(0, Some(request), 1);
        }
        calls.end((0, Some(MAX_OPEN as u64)), (Collective::Barrier, 7, 0), 3);
        assert_eq!(calls.calls[0].times_ns, (None, 3));
        let call = calls.calls[0];
        calls.calls = vec![call; MAX_CALLS];
        calls.end((0, Some(0)), (Collective::Barrier, 7, 0), 3);
        assert_eq!((calls.skipped(), calls.calls.len()), (1, MAX_CALLS));
    }
}
