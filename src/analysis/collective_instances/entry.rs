//! The rank that entered an operation last, as far as the wire shows it.
//!
//! A rank entered an operation before it sent its first message. If that message depends on no
//! other, or follows the last message that it depends on after a pause, its time is that of the
//! entry. Otherwise the rank may have waited inside the operation, and entered at any time before.

use super::split::{CollectiveMessage, OperationMessages};

/// What the wire shows about the entry of a rank.
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
    /// Lead over the rank before it in nanoseconds; `None` if that rank's entry is not on the wire.
    pub lead_ns: Option<u64>,
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

/// The first send of a rank.
struct FirstSend {
    start_ns: i64,
    /// Time since the arrival of the last message that it depends on.
    pause_ns: Option<i64>,
    /// The arrival of that message.
    needed_ns: Option<i64>,
    /// Its time is not that of the entry: messages before it are not on the wire, or it may have
    /// waited for the connection.
    is_uncertain: bool,
}

fn first_send(operation: &OperationMessages, rank: u32, messages: &[CollectiveMessage]) -> Option<FirstSend> {
    let mut sends = operation.steps.iter().filter(|(transfer, _)| transfer.src == rank);
    let first = sends.clone().next()?;
    let step = first.0.step;
    let start_ns = sends.clone().filter_map(|(_, index)| Some(messages[(*index)?].times_ns.0)).min()?;
    let needed = operation.steps.iter().filter(|(transfer, _)| transfer.dst == rank && transfer.step < step);
    let needed_ns = needed.clone().filter_map(|(_, index)| Some(messages[(*index)?].times_ns.1)).max();
    let is_hidden = needed.clone().any(|(_, index)| index.is_none())
        || sends.clone().any(|(transfer, index)| transfer.step == step && index.is_none());
    let is_first_of_connection =
        sends.any(|(transfer, index)| transfer.step == step && index.is_some_and(|index| messages[index].is_first));
    Some(FirstSend {
        start_ns,
        pause_ns: needed_ns.map(|needed_ns| start_ns.saturating_sub(needed_ns).max(0)),
        needed_ns,
        is_uncertain: is_hidden || is_first_of_connection,
    })
}

/// The rank that entered last. `None` if the wire does not show it, or if its lead is at most
/// `margin_ns`.
pub(super) fn last_entry(
    operation: &OperationMessages,
    size: u32,
    messages: &[CollectiveMessage],
    margin_ns: i64,
) -> Option<LastEntry> {
    let entry = |rank: u32| match first_send(operation, rank, messages) {
        None => Entry::Unknown,
        Some(send) if send.is_uncertain => Entry::Before(send.start_ns),
        Some(FirstSend { start_ns, pause_ns: None, .. }) => Entry::At(start_ns),
        Some(FirstSend { start_ns, pause_ns: Some(pause_ns), .. }) if pause_ns > margin_ns => Entry::At(start_ns),
        Some(send) => Entry::Before(send.needed_ns.unwrap_or(send.start_ns)),
    };
    let entries: Vec<Entry> = (0..size).map(entry).collect();
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
    let lead_ns = last_ns.saturating_sub(before_ns);
    // A rank that waited for the last one may have entered between the two.
    let is_bounded = |entry: Entry| if let Entry::Before(time_ns) = entry { time_ns <= before_ns } else { true };
    (lead_ns > margin_ns)
        .then(|| LastEntry { rank: last as u32, lead_ns: others().all(is_bounded).then(|| lead_ns.unsigned_abs()) })
}
