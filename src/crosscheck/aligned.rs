//! Assigns the collective operations on the wire to those of the trace.
//!
//! In: the operations of each communicator of the trace, and of each context on the wire. Out: for
//! each operation of the trace, the operation on the wire with the same name, in the same order,
//! whose packets overlap the calls in time. A communicator takes the operations of the context that
//! has most of its own; operations of a context belong to a communicator only if its members
//! exchanged all their messages.
//!
//! Ranks without point-to-point messages have no clock yet. Their operations are aligned by name
//! and order alone, and their clocks are fitted to the result. If clocks contradict the result, the
//! first operations on the wire count as those of `MPI_Init`, as many as necessary to remove the
//! contradictions.

use super::clocks::{Clocks, MatchedTimes, RankClock};
use super::contexts::WORLD;
use super::edit_script;
use super::placement::Placement;
use super::trace::{AppTrace, TraceCommunicator};
use super::trace_calls::{TraceOperation, TraceOperations};
use super::wire_operation::WireOperation;
use crate::model::RankActivity;
use ibscope_parsers::mpi::MpiOperation;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Operations at the beginning of the capture that may precede those of the trace, at most.
const MAX_SURPLUS: usize = 32;
/// Rounding of a time that is converted to the clock of the capture, in nanoseconds.
const ROUNDING_NS: i64 = 2;
/// Contexts that are aligned with a communicator: those with the most operations of the same names.
const MAX_CONTEXTS: usize = 8;

/// The clocks of the ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct RankClocks {
    /// Clocks with a known uncertainty in nanoseconds.
    clocks: BTreeMap<u32, (RankClock, i64)>,
    /// Number of clocks that were fitted to collective operations.
    fitted: u64,
}

impl RankClocks {
    /// The clocks that are bounded from both sides.
    pub(super) fn of(clocks: &Clocks) -> Self {
        Self { clocks: clocks.ranks.iter().filter_map(with_bound).collect(), fitted: 0 }
    }

    /// Number of clocks that were fitted to collective operations.
    pub(super) const fn fitted(&self) -> u64 {
        self.fitted
    }

    fn is_complete(&self, operation: &TraceOperation) -> bool {
        operation.calls.keys().all(|rank| self.clocks.contains_key(rank))
    }

    /// Largest uncertainty of the known clocks of the callers.
    pub(super) fn bound_ns(&self, operation: &TraceOperation) -> Option<u64> {
        let bounds = operation.calls.keys().filter_map(|rank| self.clocks.get(rank).map(|(_, bound_ns)| *bound_ns));
        bounds.max().map(i64::unsigned_abs)
    }

    /// Time at which the first rank entered and the last one left, on the clock of the capture.
    /// `None` if the clock or the entry of a rank is unknown.
    pub(super) fn calls_ns(&self, operation: &TraceOperation) -> Option<(i64, i64)> {
        let mut all: Option<(i64, i64)> = None;
        for (rank, (begin_ns, end_ns)) in &operation.calls {
            let (clock, _) = self.clocks.get(rank)?;
            let (entry_ns, exit_ns) = (clock.capture_ns((*begin_ns)?), clock.capture_ns(*end_ns));
            all = Some(all.map_or((entry_ns, exit_ns), |all| (all.0.min(entry_ns), all.1.max(exit_ns))));
        }
        all
    }

    /// [`RankClocks::calls_ns`], widened by the uncertainty of the clocks.
    pub(super) fn window_ns(&self, operation: &TraceOperation) -> Option<(i64, i64)> {
        let (entry_ns, exit_ns) = self.calls_ns(operation)?;
        let bound_ns = self.bound_ns(operation)?.cast_signed();
        Some((entry_ns.saturating_sub(bound_ns), exit_ns.saturating_add(bound_ns)))
    }

    /// How far the first send or the last receive of a rank lies outside its call, beyond the
    /// uncertainty of its clock. `None` if no rank has both.
    pub(super) fn outside_ns(&self, operation: &TraceOperation, wire: &WireOperation) -> Option<u64> {
        let of_rank = |rank: &RankActivity| {
            let (begin_ns, end_ns) = operation.calls.get(&rank.rank)?;
            let (clock, bound_ns) = self.clocks.get(&rank.rank)?;
            let early_ns =
                begin_ns.zip(rank.first_send_ns).map(|(begin_ns, send_ns)| clock.capture_ns(begin_ns) - send_ns);
            let late_ns = rank.last_receive_ns.map(|receive_ns| receive_ns - clock.capture_ns(*end_ns));
            Some(early_ns.max(late_ns)?.saturating_sub(bound_ns + ROUNDING_NS).max(0).unsigned_abs())
        };
        wire.activity.iter().filter_map(of_rank).max()
    }

    /// False if the packets of a rank that sends end before its call begins, or those of a rank that
    /// receives begin after its call ended. Packets of ranks without a clock are not compared.
    fn may_be_in_time(&self, operation: &TraceOperation, wire: &WireOperation) -> bool {
        let of_rank = |rank: &RankActivity| {
            let call = operation.calls.get(&rank.rank).zip(self.clocks.get(&rank.rank));
            let Some(((begin_ns, end_ns), (clock, bound_ns))) = call else { return true };
            let slack_ns = bound_ns + ROUNDING_NS;
            let is_late = |begin_ns: i64| rank.end_ns.saturating_add(slack_ns) >= clock.capture_ns(begin_ns);
            (rank.first_send_ns.is_none() || begin_ns.is_none_or(is_late))
                && (rank.last_receive_ns.is_none()
                    || rank.start_ns.saturating_sub(slack_ns) <= clock.capture_ns(*end_ns))
        };
        let is_in_window =
            self.window_ns(operation).is_none_or(|(from_ns, to_ns)| wire.start_ns <= to_ns && wire.end_ns >= from_ns);
        is_in_window && wire.activity.iter().all(of_rank)
    }

    /// Fits the clocks of ranks that have none to pairs of operations. Clocks that contradict some
    /// pair stay unknown; returns their number.
    fn fit(&mut self, pairs: &[(&TraceOperation, &WireOperation)]) -> usize {
        let mut matched: BTreeMap<u32, MatchedTimes> = BTreeMap::new();
        for (operation, wire) in pairs {
            for rank in wire.activity.iter().filter(|rank| !self.clocks.contains_key(&rank.rank)) {
                let Some((begin_ns, end_ns)) = operation.calls.get(&rank.rank) else { continue };
                let times = matched.entry(rank.rank).or_default();
                times.sent.extend(begin_ns.zip(rank.first_send_ns));
                times.received.extend(rank.last_receive_ns.map(|receive_ns| (*end_ns, receive_ns)));
            }
        }
        let clocks: Vec<RankClock> = matched.iter().filter_map(|(rank, times)| times.clock(*rank)).collect();
        let contradictory = clocks.iter().filter(|own| own.is_uneven).count();
        let fitted: Vec<_> = clocks.iter().filter(|own| !own.is_uneven).filter_map(with_bound).collect();
        self.fitted += fitted.len() as u64;
        self.clocks.extend(fitted);
        contradictory
    }
}

fn with_bound(clock: &RankClock) -> Option<(u32, (RankClock, i64))> {
    let bound_ns = i64::try_from(clock.uncertainty_ns?).ok()?;
    Some((clock.rank, (*clock, bound_ns)))
}

/// The operations of one communicator of the trace.
pub(super) struct AlignedCommunicator<'a> {
    /// Index into [`AppTrace::communicators`].
    pub(super) communicator: u32,
    pub(super) operations: &'a [TraceOperation],
    /// The operation on the wire of each of them.
    pub(super) wire: Vec<Option<usize>>,
}

/// The operations of both sides.
#[derive(Clone, Copy)]
pub(super) struct AlignmentSides<'a, 'b> {
    pub(super) trace: &'b AppTrace,
    /// The operations of the trace.
    pub(super) found: &'a TraceOperations,
    /// The operations on the wire, by start.
    pub(super) wire: &'b [&'b WireOperation],
    pub(super) placement: &'b Placement,
}

/// The operations of all communicators that are compared.
#[derive(Default)]
pub(super) struct AlignedOperations<'a> {
    /// By communicator.
    pub(super) communicators: Vec<AlignedCommunicator<'a>>,
    /// Operations of communicators whose ranks share a node.
    pub(super) of_one_node: u64,
    taken: BTreeSet<usize>,
    /// Those of them that the library sent on a communicator of its own.
    of_library: BTreeSet<usize>,
}

impl<'a> AlignedOperations<'a> {
    /// Aligns the operations of the trace with those of the wire, and fits missing clocks.
    pub(super) fn find(sides: &AlignmentSides<'a, '_>, clocks: &mut RankClocks) -> Self {
        let wire = sides.wire;
        let mut best = Self::align(sides, clocks, 0);
        if sides.found.by_communicator.values().flatten().all(|own| clocks.is_complete(own)) {
            return best;
        }
        let given = clocks.clone();
        let mut contradictory = clocks.fit(&best.pairs(wire));
        for surplus in 1..=MAX_SURPLUS.min(wire.len()) {
            if contradictory == 0 {
                break;
            }
            let own = Self::align(sides, &given, surplus);
            let mut fitted = given.clone();
            let of_own = fitted.fit(&own.pairs(wire));
            if own.taken.len() >= best.taken.len() && of_own < contradictory {
                (best, contradictory, *clocks) = (own, of_own, fitted);
            }
        }
        best
    }

    /// True if no operation of the trace corresponds to this one of the wire.
    pub(super) fn is_left(&self, index: usize) -> bool {
        !self.taken.contains(&index)
    }

    /// True if the library sent this operation of the wire on a communicator of its own.
    pub(super) fn is_of_library(&self, index: usize) -> bool {
        self.of_library.contains(&index)
    }

    /// Operations of the trace and of the wire, in the order of time on the wire.
    fn pairs<'b>(&self, wire: &[&'b WireOperation]) -> Vec<(&'a TraceOperation, &'b WireOperation)> {
        let of_one = |own: &AlignedCommunicator<'a>| -> Vec<(&'a TraceOperation, usize)> {
            own.operations.iter().zip(&own.wire).filter_map(|(operation, index)| Some((operation, (*index)?))).collect()
        };
        let mut pairs: Vec<(&TraceOperation, usize)> = self.communicators.iter().flat_map(of_one).collect();
        pairs.sort_by_key(|(_, index)| *index);
        pairs.into_iter().filter_map(|(operation, index)| Some((operation, *wire.get(index)?))).collect()
    }

    /// Aligns the operations but the first `surplus` of the wire.
    fn align(sides: &AlignmentSides<'a, '_>, clocks: &RankClocks, surplus: usize) -> Self {
        let AlignmentSides { trace, found, wire, placement } = *sides;
        let mut aligned = Self::default();
        let mut by_context: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for (index, own) in wire.iter().enumerate().skip(surplus) {
            by_context.entry(own.context).or_default().push(index);
        }
        let mut communicators: Vec<(&u32, &Vec<TraceOperation>)> = found.by_communicator.iter().collect();
        communicators.sort_by_key(|(communicator, operations)| (Reverse(operations.len()), **communicator));
        for (&communicator, operations) in communicators {
            let Some(definition) = trace.communicators.get(communicator as usize) else { continue };
            if is_of_one_node(definition, placement) {
                aligned.of_one_node += operations.len() as u64;
                continue;
            }
            let has_world = by_context.contains_key(&None);
            let is_candidate = |context: &Option<u32>| !has_world || (definition.name == WORLD) == context.is_none();
            let candidates = by_context.iter().filter(|(context, _)| is_candidate(context));
            let lists = candidates.map(|(_, indices)| aligned.candidates(indices, wire, definition));
            let pairs = best(operations, lists.collect(), wire, clocks);
            let mut of_each = vec![None; operations.len()];
            for (operation, index) in pairs {
                of_each[operation] = Some(index);
                aligned.taken.insert(index);
            }
            aligned.communicators.push(AlignedCommunicator { communicator, operations, wire: of_each });
        }
        aligned.communicators.sort_by_key(|own| own.communicator);
        aligned.take_of_library(sides, clocks);
        aligned
    }

    /// Assigns operations that a library sent on a communicator of its own, as Open MPI's han does
    /// between the nodes: of the same name, between members, and within the calls, if only one is left.
    fn take_of_library(&mut self, sides: &AlignmentSides<'a, '_>, clocks: &RankClocks) {
        let AlignmentSides { trace, wire, .. } = *sides;
        let missing = |own: &AlignedCommunicator<'a>| -> Vec<usize> {
            (0..own.operations.len()).filter(|index| own.wire.get(*index) == Some(&None)).collect()
        };
        for at in 0..self.communicators.len() {
            let Some(own) = self.communicators.get(at) else { continue };
            let Some(definition) = trace.communicators.get(own.communicator as usize) else { continue };
            let mut found = Vec::new();
            for index in missing(own) {
                let operation = &own.operations[index];
                let Some((from_ns, to_ns)) = clocks.window_ns(operation) else { continue };
                // The operations are sorted by start.
                let first = wire.partition_point(|wire| wire.start_ns < from_ns);
                let within = (first..wire.len()).take_while(|place| wire[*place].start_ns <= to_ns);
                let mut of_members = within.filter(|place| {
                    self.is_left(*place)
                        && wire[*place].end_ns <= to_ns
                        && wire[*place].operation.name() == operation.operation.name()
                        && wire[*place].activity.iter().all(|rank| is_member(definition, rank.rank))
                });
                if let (Some(place), None) = (of_members.next(), of_members.next()) {
                    found.push((index, place));
                }
            }
            for (index, place) in found {
                if self.taken.insert(place) {
                    self.of_library.insert(place);
                    self.communicators[at].wire[index] = Some(place);
                }
            }
        }
    }

    /// The operations of a context that are left and may be of this communicator.
    fn candidates(&self, indices: &[usize], wire: &[&WireOperation], of: &TraceCommunicator) -> Vec<usize> {
        let is_of_members = |index: &usize| {
            let own = wire.get(*index);
            own.is_some_and(|own| own.activity.iter().all(|rank| is_member(of, rank.rank)))
        };
        indices.iter().copied().filter(|index| self.is_left(*index) && is_of_members(index)).collect()
    }
}

fn is_member(communicator: &TraceCommunicator, rank: u32) -> bool {
    let groups = [Some(&communicator.members), communicator.remote.as_ref()];
    groups.into_iter().flatten().any(|group| group.contains(&rank))
}

/// True if no message of the communicator is on the wire.
fn is_of_one_node(communicator: &TraceCommunicator, placement: &Placement) -> bool {
    let groups = [Some(&communicator.members), communicator.remote.as_ref()];
    let members: Vec<u32> = groups.into_iter().flatten().flatten().copied().collect();
    let Some(first) = members.first() else { return true };
    communicator.is_self || members.iter().all(|rank| rank == first || placement.is_same_node(*first, *rank))
}

/// Indices of the operations of the trace and of the wire that correspond, for the list of
/// operations on the wire that has most of them.
fn best(
    operations: &[TraceOperation],
    lists: Vec<Vec<usize>>,
    wire: &[&WireOperation],
    clocks: &RankClocks,
) -> Vec<(usize, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    operations.iter().for_each(|own| *counts.entry(own.operation.name()).or_default() += 1);
    let in_common = |list: &Vec<usize>| {
        let mut left = counts.clone();
        let of_list = list.iter().filter_map(|index| Some(wire.get(*index)?.operation.name()));
        of_list
            .filter(|name| {
                left.get_mut(name).is_some_and(|left| left.checked_sub(1).map(|less| *left = less).is_some())
            })
            .count()
    };
    let mut lists: Vec<(usize, Vec<usize>)> = lists.into_iter().map(|list| (in_common(&list), list)).collect();
    lists.sort_by_key(|(in_common, _)| Reverse(*in_common));
    let align = |list: &[usize]| {
        let is_equal = |operation: usize, place: usize| {
            wire.get(list[place]).is_some_and(|wire| may_be(&operations[operation], wire, clocks))
        };
        let pairs = edit_script::common((operations.len(), list.len()), &is_equal).unwrap_or_default();
        pairs.into_iter().map(|(operation, place)| (operation, list[place])).collect::<Vec<_>>()
    };
    let aligned = lists.iter().take(MAX_CONTEXTS).map(|(_, list)| align(list));
    aligned.reduce(|best, own| if own.len() > best.len() { own } else { best }).unwrap_or_default()
}

/// True if the operation on the wire may be that of the trace.
fn may_be(operation: &TraceOperation, wire: &WireOperation, clocks: &RankClocks) -> bool {
    let is_named = match wire.operation {
        MpiOperation::Nonblocking => operation.is_nonblocking,
        MpiOperation::Collective => clocks.is_complete(operation),
        named => named.name() == operation.operation.name(),
    };
    is_named && clocks.may_be_in_time(operation, wire)
}
