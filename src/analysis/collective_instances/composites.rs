//! Operations that libraries implement by calling two others.
//!
//! In: the messages of one communicator. Out: its operations; those that one call may have sent are
//! joined. The wire does not show whether the library or the program called both, so the confidence
//! of a joined operation is low. Sources: Open MPI's `coll_base_allreduce.c` (nonoverlapping, basic
//! linear), `coll_base_allgather.c` (basic linear) and `coll_base_barrier.c` (double ring).

use super::split::{self, CollectiveMessage, Confidence, JobTimes, OperationMessages, ScheduleStep, SplitOperations};
use ibscope_parsers::mpi::MpiOperation;

/// The operations of a communicator of `size` ranks, in the order of their first messages; arguments
/// as in [`split::operations`].
pub(super) fn operations(
    size: u32,
    messages: &[CollectiveMessage],
    is_visible: &dyn Fn(u32, u32) -> bool,
    times: JobTimes,
) -> Vec<OperationMessages> {
    let SplitOperations { operations, pause_ns } = split::operations(size, messages, is_visible, times);
    let mut joined: Vec<OperationMessages> = Vec::with_capacity(operations.len());
    for mut second in operations {
        if let Some(first) = joined.last_mut() {
            let has_no_pause = has_no_pause(first, &second, messages, pause_ns);
            let joint = joint(size, first, &second);
            if let Some((operation, name)) = joint.filter(|_| has_no_pause) {
                append(first, second, operation, name);
                continue;
            }
            // The library may pause between them, but the program more probably calls both.
            if joint.is_some() || has_no_pause && may_be_double_ring(size, first, &second, messages) {
                first.confidence = first.confidence.min(Confidence::Low);
                second.confidence = second.confidence.min(Confidence::Low);
            }
        }
        joined.push(second);
    }
    joined
}

/// True if the second operation starts within `pause_ns` after the end of the first one.
fn has_no_pause(
    first: &OperationMessages,
    second: &OperationMessages,
    messages: &[CollectiveMessage],
    pause_ns: i64,
) -> bool {
    let times = |operation: &OperationMessages| {
        operation.messages.iter().map(|&index| messages[index].times_ns).collect::<Vec<_>>()
    };
    let end_ns = times(first).into_iter().map(|times| times.1).max();
    let start_ns = times(second).into_iter().map(|times| times.0).min();
    end_ns.zip(start_ns).is_some_and(|(end_ns, start_ns)| start_ns.saturating_sub(end_ns) <= pause_ns)
}

/// The operation that sends the messages of both, and the name of its algorithm. Open MPI calls both
/// parts with root 0.
fn joint(size: u32, first: &OperationMessages, second: &OperationMessages) -> Option<(MpiOperation, &'static str)> {
    let is_known = first.confidence != Confidence::Unknown && second.confidence != Confidence::Unknown;
    let has_roots = first.root == Some(0) && second.root == Some(0);
    if !is_known || !has_roots || second.operation != MpiOperation::Bcast {
        return None;
    }
    let (first_bytes, result_bytes) = (first.bytes?, second.bytes?);
    match first.operation {
        MpiOperation::Reduce if result_bytes == first_bytes => Some((MpiOperation::Allreduce, "reduce_bcast")),
        MpiOperation::Gather if Some(result_bytes) == first_bytes.checked_mul(size.into()) => {
            Some((MpiOperation::Allgather, "gather_bcast"))
        }
        _ => None,
    }
}

/// Appends the second operation to the first one.
fn append(first: &mut OperationMessages, second: OperationMessages, operation: MpiOperation, name: &'static str) {
    first.operation = operation;
    first.algorithms = vec![name];
    first.confidence = Confidence::Low;
    first.root = None;
    first.messages.extend(second.messages);
    let after = first.steps.iter().map(|(transfer, _)| transfer.step + 1).max().unwrap_or(0);
    first.steps.extend(second.steps.into_iter().map(|(mut transfer, index)| -> ScheduleStep {
        transfer.step += after;
        transfer.is_second_tag = true;
        (transfer, index)
    }));
}

/// True if two barriers of two ranks may be one double ring: two rounds, in both of which rank 1
/// answers rank 0.
fn may_be_double_ring(
    size: u32,
    first: &OperationMessages,
    second: &OperationMessages,
    messages: &[CollectiveMessage],
) -> bool {
    let is_round = |operation: &OperationMessages| {
        let senders: Vec<u32> = operation.messages.iter().map(|&index| messages[index].src).collect();
        operation.operation == MpiOperation::Barrier && senders == [0, 1]
    };
    size == 2 && is_round(first) && is_round(second)
}
