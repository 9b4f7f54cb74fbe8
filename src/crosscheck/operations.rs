//! Compares the collective operations of a trace with those on the wire, one by one.
//!
//! In: the calls of the trace and the operations that the messages on the wire form. Out: a row for
//! each operation of either side.
//!
//! 1. [`aligned`](super::aligned) assigns operations of the wire to those of each communicator, by
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
use crate::model::RankActivity;
use ibscope_parsers::mpi::MpiOperation;
use serde::Serialize;

/// A collective operation on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireOperation {
    /// Number of the job.
    pub job: u32,
    /// Context id of the communicator; `None` for `MPI_COMM_WORLD`.
    pub context: Option<u32>,
    /// Name of the communicator in outputs.
    pub communicator: String,
    /// Number of the operation on this communicator, from 1.
    pub number: u64,
    /// The operation.
    pub operation: MpiOperation,
    /// Time of the first packet, nanoseconds since the epoch.
    pub start_ns: i64,
    /// Time of the last packet.
    pub end_ns: i64,
    /// Times of the packets of each rank.
    pub activity: Vec<RankActivity>,
}

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
