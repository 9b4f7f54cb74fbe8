//! The operations of the ranks of one job, for the commands that write schedules (`goal`, `chakra`).
//!
//! In: the messages of captures. Out: operations by rank, and sums over them. Operations that exceed
//! memory wait in files.

use super::common::output;
use super::job_messages::{SortedItems, in_time, note_left_out, sorted};
use crate::analysis::rank_events::{EventPlan, RankMessage, RankMessages};
use crate::analysis::rank_schedule::{RankOperation, RankOperationKind, RankSchedule};
use crate::model::{Profile, count_of};
use crate::pipeline::MessageIter;
use std::path::Path;

/// Messages by time, and the plan of all events.
pub(super) type PlannedMessages = (SortedItems<RankMessage>, EventPlan);

/// Sums over the operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScheduleSums {
    /// Time of the first packet, in nanoseconds since the epoch.
    pub(super) origin_ns: i64,
    /// Number of collective operations, once for each rank that takes part.
    pub(super) collectives: u64,
    computed_ns: u64,
}

/// All messages, those of collective operations included, and no operations.
pub(super) fn all_messages(
    profile: &Profile,
    job: u32,
    stream: MessageIter,
    scratch: &Path,
) -> anyhow::Result<PlannedMessages> {
    let mut messages = RankMessages::with_collectives();
    let by_time = in_time(stream, scratch, |row| messages.message(row))?;
    Ok((by_time, messages.finish(profile, job, &[])))
}

/// The operations of rank 0, then those of rank 1, and so on. Messages of one sender, receiver and tag
/// are one stream, because the formats have no communicators of messages.
pub(super) fn by_rank(
    messages: SortedItems<RankMessage>,
    plan: &mut EventPlan,
    scratch: &Path,
) -> anyhow::Result<(SortedItems<RankOperation>, ScheduleSums)> {
    let messages = messages.map(|message| message.map(|message| RankMessage { communicator: 0, ..message }));
    let mut sums = ScheduleSums::default();
    let mut origin_ns = None;
    let operations = RankSchedule::new(plan.events(messages)).inspect(|operation| {
        let Ok(operation) = operation else { return };
        // The first operation is the earliest one.
        origin_ns.get_or_insert(operation.times_ns.0);
        match operation.kind {
            RankOperationKind::Compute => {
                sums.computed_ns = sums.computed_ns.saturating_add(operation.duration_ns());
            }
            RankOperationKind::Collective(_) => sums.collectives += 1,
            RankOperationKind::Send(_) | RankOperationKind::Receive(_) => {}
        }
    });
    let order = |a: &RankOperation, b: &RankOperation| (a.rank, a.number).cmp(&(b.rank, b.number));
    let operations = sorted(operations, scratch, order)?;
    sums.origin_ns = origin_ns.unwrap_or(0);
    Ok((operations, sums))
}

impl ScheduleSums {
    /// Prints that the messages of `plan`, with `more` beside them, were written to `place`, and notes
    /// on those that are left out.
    pub(super) fn report(&self, plan: &EventPlan, more: &str, place: &Path) {
        output::eprint_line(&format!(
            "{}{more} of {} with {:.3} s of computation between them written to {}",
            count_of(plan.messages, "message"),
            count_of(u64::from(plan.ranks), "rank"),
            self.computed_ns as f64 / 1e9,
            place.display()
        ));
        note_left_out(plan.left_out);
    }
}
