//! Finds the rank that entered an operation last, if the wire shows it.
//!
//! A rank entered an operation before it sent its first message. If that message depends on no
//! other, or follows the last message that it depends on after a pause, its time is that of the
//! entry. Otherwise the rank may have waited inside the operation, and may have entered at any
//! earlier time.

use super::split::{CollectiveMessage, OperationMessages, ScheduleStep};

/// A send at most this many margins after the message that it depends on may be a slow reaction of a
/// rank that waited: reactions have a long tail.
const SLOW: i64 = 3;

/// The entry of a rank, as far as the wire shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// The rank sent nothing: it entered at an unknown time.
    Unknown,
    /// The rank entered at this time.
    At(i64),
    /// The rank waited for the message that arrived last, or may have waited for messages that are
    /// not on the wire: it entered before this time.
    Before(i64),
}

/// The rank that entered last, and how much later than the rank before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastEntry {
    /// Rank in the communicator.
    pub rank: u32,
    /// Time from the entry of the rank before it in nanoseconds; `None` if that rank's entry is not
    /// on the wire.
    pub skew_ns: Option<u64>,
}

/// Times in nanoseconds from the last message that a send depends on, or the end of the rank's send
/// before it, to that send. Messages that may have waited for their connection do not count.
pub(super) fn reactions(operation: &OperationMessages, size: u32, messages: &[CollectiveMessage]) -> Vec<i64> {
    // The time since which each rank could send; `None` after a message that is not on the wire.
    let mut ready_ns = vec![Some(i64::MIN); size as usize];
    let mut reactions = Vec::new();
    for step in operation.steps.chunk_by(|(a, _), (b, _)| a.step == b.step) {
        let mut next_ns = ready_ns.clone();
        for (transfer, index) in step {
            let message = index.and_then(|index| messages.get(index));
            let from_ns = ready_ns[transfer.src as usize].filter(|from_ns| *from_ns != i64::MIN);
            if let (Some(message), Some(from_ns)) = (message.filter(|message| !message.is_first), from_ns) {
                reactions.push(message.times_ns.0.saturating_sub(from_ns).max(0));
                // The next send of this step follows this one.
                ready_ns[transfer.src as usize] = Some(message.times_ns.1.max(from_ns));
            }
            let end_ns = message.map(|message| message.times_ns.1);
            for rank in [transfer.src, transfer.dst] {
                let next = &mut next_ns[rank as usize];
                *next = next.zip(end_ns).map(|(next, end_ns)| next.max(end_ns));
            }
        }
        ready_ns = next_ns;
    }
    reactions
}

/// The steps of an operation in which one rank sends, and those in which it receives.
#[derive(Clone, Default)]
struct RankSteps<'a> {
    sends: Vec<&'a ScheduleStep>,
    receives: Vec<&'a ScheduleStep>,
}

fn steps_by_rank(operation: &OperationMessages, size: u32) -> Vec<RankSteps<'_>> {
    let mut ranks = vec![RankSteps::default(); size as usize];
    for step in &operation.steps {
        ranks[step.0.src as usize].sends.push(step);
        ranks[step.0.dst as usize].receives.push(step);
    }
    ranks
}

/// The first send of a rank.
struct FirstSend {
    start_ns: i64,
    /// The arrival of the last message that it depends on.
    needed_ns: Option<i64>,
    /// Its time is not that of the entry: messages before it are not on the wire, or it may have
    /// waited for the connection.
    is_uncertain: bool,
}

impl FirstSend {
    fn of(rank: &RankSteps<'_>, messages: &[CollectiveMessage]) -> Option<Self> {
        let step = rank.sends.first()?.0.step;
        let start_ns = rank.sends.iter().filter_map(|(_, index)| Some(messages[(*index)?].times_ns.0)).min()?;
        let needed = || rank.receives.iter().filter(|(transfer, _)| transfer.step < step);
        let needed_ns = needed().filter_map(|(_, index)| Some(messages[(*index)?].times_ns.1)).max();
        let is_uncertain = needed().any(|(_, index)| index.is_none())
            // The time of a first message that belongs to a second operation is not that of the call.
            || rank.sends.first().is_some_and(|(transfer, _)| transfer.is_second_tag)
            || rank
                .sends
                .iter()
                .any(|(transfer, index)| transfer.step == step && index.is_none_or(|index| messages[index].is_first));
        Some(Self { start_ns, needed_ns, is_uncertain })
    }

    const fn entry(&self, margin_ns: i64) -> Entry {
        match self.needed_ns {
            _ if self.is_uncertain => Entry::Before(self.start_ns),
            Some(needed_ns) if self.start_ns.saturating_sub(needed_ns) <= margin_ns => Entry::Before(needed_ns),
            Some(needed_ns) if self.start_ns.saturating_sub(needed_ns) <= margin_ns.saturating_mul(SLOW) => {
                Entry::Before(self.start_ns)
            }
            _ => Entry::At(self.start_ns),
        }
    }
}

/// The rank that entered last. `None` if the wire does not show it, or if its skew is at most
/// `margin_ns`.
pub(super) fn last_entry(
    operation: &OperationMessages,
    size: u32,
    messages: &[CollectiveMessage],
    margin_ns: i64,
) -> Option<LastEntry> {
    let entry =
        |rank: &RankSteps<'_>| FirstSend::of(rank, messages).map_or(Entry::Unknown, |first| first.entry(margin_ns));
    let entries: Vec<Entry> = steps_by_rank(operation, size).iter().map(entry).collect();
    let at = |(rank, entry): (usize, &Entry)| match entry {
        Entry::At(time_ns) => Some((*time_ns, rank)),
        Entry::Unknown | Entry::Before(_) => None,
    };
    let (last_ns, last) = entries.iter().enumerate().filter_map(at).max()?;
    let others = || entries.iter().enumerate().filter(|(rank, _)| *rank != last).map(|(_, entry)| *entry);
    let may_be_later = |entry: Entry| match entry {
        Entry::Unknown => true,
        Entry::At(_) => false,
        Entry::Before(time_ns) => time_ns > last_ns.saturating_add(margin_ns),
    };
    if others().any(may_be_later) {
        return None;
    }
    let before_ns =
        others().filter_map(|entry| if let Entry::At(time_ns) = entry { Some(time_ns) } else { None }).max()?;
    let skew_ns = last_ns.saturating_sub(before_ns);
    // A rank that waited for the last one may have entered between the two.
    let is_bounded = |entry: Entry| if let Entry::Before(time_ns) = entry { time_ns <= before_ns } else { true };
    (skew_ns > margin_ns)
        .then(|| LastEntry { rank: last as u32, skew_ns: others().all(is_bounded).then(|| skew_ns.unsigned_abs()) })
}
