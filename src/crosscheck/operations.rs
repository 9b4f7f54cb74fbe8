//! Compares the collective operations of a trace with those on the wire, one by one.
//!
//! In: the calls of the trace and the operations that the messages on the wire form. Out: a row for
//! each operation of either side.
//!
//! 1. `aligned` assigns operations of the wire to those of each communicator, by
//!    name, order and time.
//! 2. A rank sends after it entered the call, and leaves after it received, so the packets of a rank
//!    lie between the two times of its call, up to the uncertainty of the clocks.
//!
//! The comparison gives no verdict: a library may send nothing for a call (a Bcast of 0 bytes), or
//! send the messages of a call on a communicator of its own.

use super::aligned::{AlignedOperations, AlignmentSides, RankClocks};
use super::clocks::Clocks;
use super::contexts::Contexts;
use super::placement::Placement;
use super::trace::AppTrace;
use super::trace_calls::TraceOperation;
use super::wire_operation::WireOperation;
use serde::Serialize;

/// The collective operations of a trace and of the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperationsComparison {
    /// Operations of the trace by communicator and number, each with its operation on the wire, then
    /// those that only the wire has, by start.
    pub rows: Vec<OperationComparison>,
    /// Operations on the tracer's own communicator, which are not compared.
    pub of_tracer: u64,
    /// Operations of the trace on communicators whose ranks share a node, which are not compared.
    pub of_one_node: u64,
    /// Ranks whose clock follows from the operations themselves, because the trace and the wire have
    /// no point-to-point messages of theirs in common.
    pub own_clocks: u64,
}

/// One collective operation of the trace, of the wire, or of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationComparison {
    /// Name of the communicator in the trace; `None` if only the wire has the operation.
    pub communicator: Option<String>,
    /// Number of the operation on this communicator in the trace, from 1.
    pub number: Option<u64>,
    /// Name of the operation in the trace.
    pub operation: Option<&'static str>,
    /// Name of the communicator on the wire; `None` if only the trace has the operation.
    pub wire_communicator: Option<String>,
    /// Number of the operation on this communicator on the wire, from 1.
    pub wire_number: Option<u64>,
    /// Name of the operation on the wire.
    pub wire_operation: Option<&'static str>,
    /// Time at which the first rank entered the call, on the clock of the capture.
    pub entry_ns: Option<i64>,
    /// Time of the first packet.
    pub start_ns: Option<i64>,
    /// Time of the last packet.
    pub end_ns: Option<i64>,
    /// Time at which the last rank left the call, on the clock of the capture.
    pub exit_ns: Option<i64>,
    /// How far packets of a rank lie outside its call, beyond the bound; `None` if no clock is known.
    pub outside_ns: Option<u64>,
    /// Largest uncertainty of the clocks of its ranks.
    pub bound_ns: Option<u64>,
    /// The relation of the two sides.
    pub result: OperationResult,
}

/// The relation of an operation in the trace and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationResult {
    /// Both have it, and its packets lie within the calls, as far as clocks are known.
    Equal,
    /// Both have it, and the library sent it on a communicator of its own.
    OtherCommunicator,
    /// Both have it; packets lie outside the calls, beyond the uncertainty of the clocks.
    OtherTimes,
    /// Both have it, but the wire does not show which operation it is.
    OperationUnknown,
    /// Only the trace has it.
    OnlyInTrace,
    /// Only the wire has it, during a call that creates or frees a communicator, window or file.
    InHandleCall,
    /// Only the wire has it, before the first or after the last collective call of the trace.
    OutsideCalls,
    /// Only the wire has it.
    OnlyOnWire,
}

impl OperationResult {
    /// All results.
    pub const ALL: [Self; 8] = [
        Self::Equal,
        Self::OtherCommunicator,
        Self::OtherTimes,
        Self::OperationUnknown,
        Self::OnlyInTrace,
        Self::InHandleCall,
        Self::OutsideCalls,
        Self::OnlyOnWire,
    ];

    /// Description for outputs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::OtherCommunicator => "equal, on a communicator of the library",
            Self::OtherTimes => "packets outside the calls",
            Self::OperationUnknown => "the wire does not show the operation",
            Self::OnlyInTrace => "only in the trace",
            Self::InHandleCall => "only on the wire: the library's own, in a call that creates or frees an object",
            Self::OutsideCalls => "only on the wire: before the first or after the last call",
            Self::OnlyOnWire => "only on the wire",
        }
    }

    /// True if the trace has the operation.
    #[must_use]
    pub const fn is_in_trace(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::OtherCommunicator | Self::OtherTimes | Self::OperationUnknown | Self::OnlyInTrace
        )
    }
}

/// Compares the operations of the trace with those of the wire, which are sorted by start.
pub(super) fn compare(
    trace: &AppTrace,
    wire: &[&WireOperation],
    clocks: &Clocks,
    contexts: &Contexts,
    placement: &Placement,
) -> OperationsComparison {
    let is_of_tracer = |own: &&&WireOperation| contexts.tracer.is_some() && own.context == contexts.tracer;
    let program: Vec<&WireOperation> = wire.iter().filter(|own| !is_of_tracer(own)).copied().collect();
    let found = trace.calls.operations();
    let mut clocks = RankClocks::of(clocks);
    let sides = AlignmentSides { trace, found: &found, wire: &program, placement };
    let aligned = AlignedOperations::find(&sides, &mut clocks);
    let mut rows = Vec::new();
    for own in &aligned.communicators {
        let label = trace.communicators.get(own.communicator as usize).map(super::trace::TraceCommunicator::label);
        for (operation, wire) in own.operations.iter().zip(&own.wire) {
            let is_elsewhere = wire.is_some_and(|index| aligned.is_of_library(index));
            let wire = wire.and_then(|index| program.get(index)).copied();
            let own_row = row(label.clone(), operation, wire, &clocks);
            let result = match own_row.result {
                OperationResult::Equal if is_elsewhere => OperationResult::OtherCommunicator,
                result => result,
            };
            rows.push(OperationComparison { result, ..own_row });
        }
    }
    let handles: Vec<(i64, i64)> =
        found.handles.values().flatten().filter_map(|handle| clocks.window_ns(handle)).collect();
    let windows =
        || aligned.communicators.iter().flat_map(|own| own.operations).filter_map(|own| clocks.window_ns(own));
    let calls = windows().chain(handles.iter().copied()).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    for (_, own) in program.iter().enumerate().filter(|(index, _)| aligned.is_left(*index)) {
        let is_within = |(from_ns, to_ns): &(i64, i64)| *from_ns <= own.start_ns && own.end_ns <= *to_ns;
        let result = if handles.iter().any(is_within) {
            OperationResult::InHandleCall
        } else if calls.is_some_and(|(from_ns, to_ns)| own.end_ns < from_ns || own.start_ns > to_ns) {
            OperationResult::OutsideCalls
        } else {
            OperationResult::OnlyOnWire
        };
        rows.push(OperationComparison { result, ..on_wire(own) });
    }
    OperationsComparison {
        rows,
        of_tracer: wire.len().saturating_sub(program.len()) as u64,
        of_one_node: aligned.of_one_node,
        own_clocks: clocks.fitted(),
    }
}

/// The row of an operation that only the wire has.
fn on_wire(own: &WireOperation) -> OperationComparison {
    OperationComparison {
        communicator: None,
        number: None,
        operation: None,
        wire_communicator: Some(own.communicator.clone()),
        wire_number: Some(own.number),
        wire_operation: Some(own.operation.name()),
        entry_ns: None,
        start_ns: Some(own.start_ns),
        end_ns: Some(own.end_ns),
        exit_ns: None,
        outside_ns: None,
        bound_ns: None,
        result: OperationResult::OnlyOnWire,
    }
}

/// The row of an operation of the trace.
fn row(
    label: Option<String>,
    operation: &TraceOperation,
    wire: Option<&WireOperation>,
    clocks: &RankClocks,
) -> OperationComparison {
    let calls = clocks.calls_ns(operation);
    let on_wire = wire.map(on_wire);
    let outside_ns = wire.and_then(|wire| clocks.outside_ns(operation, wire));
    let result = match (wire, outside_ns) {
        (None, _) => OperationResult::OnlyInTrace,
        (Some(wire), _) if wire.operation.name() != operation.operation.name() => OperationResult::OperationUnknown,
        (Some(_), Some(1..)) => OperationResult::OtherTimes,
        (Some(_), _) => OperationResult::Equal,
    };
    OperationComparison {
        communicator: label,
        number: Some(operation.number),
        operation: Some(operation.operation.name()),
        wire_communicator: on_wire.as_ref().and_then(|own| own.wire_communicator.clone()),
        wire_number: on_wire.as_ref().and_then(|own| own.wire_number),
        wire_operation: on_wire.as_ref().and_then(|own| own.wire_operation),
        entry_ns: calls.map(|(entry_ns, _)| entry_ns),
        start_ns: wire.map(|own| own.start_ns),
        end_ns: wire.map(|own| own.end_ns),
        exit_ns: calls.map(|(_, exit_ns)| exit_ns),
        outside_ns,
        bound_ns: clocks.bound_ns(operation),
        result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crosscheck::clocks::RankClock;
    use crate::crosscheck::trace::TraceCommunicator;
    use crate::model::RankActivity;
    use ibscope_parsers::mpi::MpiOperation;
    use ibscope_parsers::tools::otf2_print::Collective;

    const WORLD_RANKS: u32 = 3;
    /// Uncertainty of the clocks.
    const BOUND_NS: u64 = 10;

    /// A trace of three ranks whose clock is 1000 ns behind that of the capture.
    fn trace(calls: &[(u32, Collective, i64)]) -> AppTrace {
        let world = TraceCommunicator {
            name: "MPI_COMM_WORLD".to_owned(),
            members: (0..WORLD_RANKS).collect(),
            ..TraceCommunicator::default()
        };
        let duplicate = TraceCommunicator { name: "dup".to_owned(), ..world.clone() };
        let mut trace = AppTrace { communicators: vec![world, duplicate], ..AppTrace::default() };
        for (communicator, operation, begin_ns) in calls {
            for rank in 0..WORLD_RANKS {
                trace.calls.begin(rank.into(), None, *begin_ns);
                trace.calls.end((rank.into(), None), (*operation, *communicator, rank), begin_ns + 100);
            }
        }
        trace
    }

    /// An operation on the wire: each of the ranks sends at `start_ns`, and receives 60 ns later.
    fn on_wire(context: Option<u32>, operation: MpiOperation, start_ns: i64, ranks: &[u32]) -> WireOperation {
        let activity = |rank: &u32| RankActivity {
            rank: *rank,
            start_ns,
            end_ns: start_ns + 60,
            first_send_ns: Some(start_ns),
            last_receive_ns: Some(start_ns + 60),
        };
        WireOperation {
            job: 1,
            context,
            communicator: context.map_or_else(|| "world".to_owned(), |context| format!("{context}/0")),
            number: 1,
            operation,
            start_ns,
            end_ns: start_ns + 60,
            activity: ranks.iter().map(activity).collect(),
        }
    }

    fn clocks() -> Clocks {
        let clock = |rank| RankClock {
            rank,
            offset_ns: 1000,
            drift_ppm: 0.0,
            uncertainty_ns: Some(BOUND_NS),
            is_uneven: false,
            sent: 9,
            received: 9,
        };
        Clocks { ranks: (0..WORLD_RANKS).map(clock).collect(), ..Clocks::default() }
    }

    fn compared(trace: &AppTrace, wire: &[WireOperation], clocks: &Clocks) -> OperationsComparison {
        let wire: Vec<&WireOperation> = wire.iter().collect();
        let contexts = Contexts::of_tracer(Some(99));
        compare(trace, &wire, clocks, &contexts, &Placement::default())
    }

    fn results(found: &OperationsComparison) -> Vec<(Option<&'static str>, Option<&'static str>, OperationResult)> {
        found.rows.iter().map(|row| (row.operation, row.wire_operation, row.result)).collect()
    }

    const ALL: [u32; 3] = [0, 1, 2];

    #[test]
    fn missing_and_surplus_operations_are_listed() {
        let calls = [(0, Collective::Barrier, 1000), (0, Collective::Bcast, 2000), (0, Collective::Barrier, 3000)];
        let wire = [
            on_wire(None, MpiOperation::Barrier, 500, &ALL),
            on_wire(None, MpiOperation::Barrier, 2020, &ALL),
            on_wire(Some(99), MpiOperation::Gather, 2500, &ALL),
            on_wire(None, MpiOperation::Reduce, 2700, &ALL),
            on_wire(None, MpiOperation::Barrier, 4020, &ALL),
        ];
        let found = compared(&trace(&calls), &wire, &clocks());
        let barrier = Some("barrier");
        assert_eq!(
            results(&found),
            [
                (barrier, barrier, OperationResult::Equal),
                (Some("bcast"), None, OperationResult::OnlyInTrace),
                (barrier, barrier, OperationResult::Equal),
                (None, barrier, OperationResult::OutsideCalls),
                (None, Some("reduce"), OperationResult::OnlyOnWire),
            ]
        );
        assert_eq!((found.of_tracer, found.own_clocks), (1, 0));
        let first = &found.rows[0];
        assert_eq!(
            (first.entry_ns, first.exit_ns, first.outside_ns, first.bound_ns),
            (Some(2000), Some(2100), Some(0), Some(10))
        );
    }

    #[test]
    fn packets_outside_the_calls_are_measured() {
        // The call lasts from 2000 to 2100. Sends at 1970 are 30 ns early: 18 beyond the bound of 10
        // and the rounding of 2. Receives at 2130 are as late.
        for (start_ns, outside_ns) in [(1988, 0), (1970, 18), (2070, 18)] {
            let calls = [(0, Collective::Barrier, 1000)];
            let wire = [on_wire(None, MpiOperation::Barrier, start_ns, &ALL)];
            let found = compared(&trace(&calls), &wire, &clocks());
            assert_eq!(found.rows[0].outside_ns, Some(outside_ns), "{start_ns}");
            let expected = if outside_ns > 0 { OperationResult::OtherTimes } else { OperationResult::Equal };
            assert_eq!(found.rows[0].result, expected, "{start_ns}");
        }
    }

    #[test]
    fn calls_that_create_objects_explain_operations_of_the_library() {
        let calls =
            [(0, Collective::Barrier, 1000), (0, Collective::CreateHandle, 2000), (0, Collective::Barrier, 3000)];
        let wire = [
            on_wire(None, MpiOperation::Barrier, 2020, &ALL),
            on_wire(None, MpiOperation::Allreduce, 3020, &ALL),
            on_wire(None, MpiOperation::Barrier, 4020, &ALL),
        ];
        let found = compared(&trace(&calls), &wire, &clocks());
        assert_eq!(found.rows.len(), 3);
        assert_eq!(found.rows[2].result, OperationResult::InHandleCall);
    }

    #[test]
    fn a_library_may_use_a_communicator_of_its_own() {
        let calls = [(0, Collective::Allreduce, 1000), (0, Collective::Barrier, 2000)];
        let leaders = on_wire(Some(5), MpiOperation::Allreduce, 2020, &[0, 2]);
        let wire = [leaders.clone(), on_wire(None, MpiOperation::Barrier, 3020, &ALL)];
        let found = compared(&trace(&calls), &wire, &clocks());
        assert_eq!(found.rows[0].result, OperationResult::OtherCommunicator);
        // With two of them within the call, neither is chosen.
        let wire = [leaders.clone(), leaders, wire[1].clone()];
        let found = compared(&trace(&calls), &wire, &clocks());
        assert_eq!(found.rows[0].result, OperationResult::OnlyInTrace);
    }

    #[test]
    fn without_clocks_the_order_decides_and_clocks_follow() {
        let times = [1000, 2000, 2700, 4100];
        let operations = [Collective::Barrier, Collective::Bcast, Collective::Barrier, Collective::Allreduce];
        let calls: Vec<_> =
            times.iter().zip(operations).map(|(begin_ns, operation)| (0, operation, *begin_ns)).collect();
        let names = [MpiOperation::Barrier, MpiOperation::Bcast, MpiOperation::Barrier, MpiOperation::Allreduce];
        let mut wire: Vec<WireOperation> = times
            .iter()
            .zip(names)
            .map(|(begin_ns, operation)| on_wire(None, operation, begin_ns + 1020, &ALL))
            .collect();
        let found = compared(&trace(&calls), &wire, &Clocks::default());
        assert!(found.rows.iter().all(|row| row.result == OperationResult::Equal), "{:?}", results(&found));
        assert_eq!((found.own_clocks, found.rows[0].outside_ns), (3, Some(0)));
        // Two barriers of the library at the start contradict the other operations.
        wire.insert(0, on_wire(None, MpiOperation::Barrier, 300, &ALL));
        wire.insert(0, on_wire(None, MpiOperation::Barrier, 100, &ALL));
        let found = compared(&trace(&calls), &wire, &Clocks::default());
        let starts: Vec<Option<i64>> = found.rows.iter().take(4).map(|row| row.start_ns).collect();
        assert_eq!(starts, times.map(|begin_ns| Some(begin_ns + 1020)));
        assert_eq!(found.rows.len(), 6);
    }

    #[test]
    fn each_communicator_takes_the_context_with_its_operations() {
        let calls = [(0, Collective::Barrier, 1000), (1, Collective::Bcast, 2000), (1, Collective::Reduce, 3000)];
        let wire = [
            on_wire(None, MpiOperation::Barrier, 2020, &ALL),
            on_wire(Some(4), MpiOperation::Bcast, 2500, &ALL),
            on_wire(Some(5), MpiOperation::Bcast, 3020, &ALL),
            on_wire(Some(5), MpiOperation::Reduce, 4020, &ALL),
        ];
        let found = compared(&trace(&calls), &wire, &clocks());
        let of_wire: Vec<Option<&str>> = found.rows.iter().map(|row| row.wire_communicator.as_deref()).collect();
        assert_eq!(of_wire, [Some("world"), Some("5/0"), Some("5/0"), Some("4/0")]);
    }
}
