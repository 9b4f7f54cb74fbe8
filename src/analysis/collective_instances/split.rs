//! Splits the collective messages of a communicator into operations.
//!
//! In: the messages of one communicator. Out: its operations, each with its messages. MPI does not
//! let messages between two ranks overtake each other, and all ranks call the operations of a
//! communicator in the same order. The messages of an operation are therefore always the next ones
//! between each pair of ranks. The splitter takes the earliest message, compares the next messages
//! of all pairs with the schedule of each algorithm, and removes those of the algorithm that
//! matches.
//!
//! A schedule matches if it contains the earliest message, all its messages between nodes are on
//! the wire with consistent lengths, and no rank sends a message before it received those that this
//! message depends on.

use super::algorithms::{ALGORITHMS, Algorithm, BlockSizes, segmented_ring};
use super::schedule::{BlockRange, Schedule, Transfer};
use ibscope_parsers::mpi::MpiOperation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Largest communicator that is compared with schedules: some have a message for each pair.
pub(super) const MAX_RANKS: u32 = 512;
/// Largest communicator for which every rank is tried as the root.
pub(super) const MAX_ROOTS: u32 = 64;
/// Smallest segment that a library sends, in bytes (`coll_tuned_*_segmentsize`).
const MIN_SEGMENT_BYTES: u64 = 1 << 10;
/// A segment may be this many bytes shorter than a power of two: it holds whole elements.
const ELEMENT_BYTES: u64 = 16;
/// Smallest vector that libraries send in parts with Allreduce. Below, messages that may be two
/// operations are two operations.
const MIN_SPLIT_BYTES: u64 = 1 << 12;
/// Most messages after the first one that are searched for those of the same operation.
pub(super) const MAX_SEARCHED: usize = 1 << 14;
/// Most segments of a block in a segmented ring.
pub(super) const MAX_SEGMENTS: u32 = 64;

/// A collective message, with ranks of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveMessage {
    /// Rank of the sender in the communicator.
    pub src: u32,
    /// Rank of the receiver in the communicator.
    pub dst: u32,
    /// The operation that the tag names.
    pub operation: MpiOperation,
    /// The tag.
    pub tag: i32,
    /// MPI length in bytes; `None` if packets that show it are missing.
    pub bytes: Option<u64>,
    /// Times of the first and last packet.
    pub times_ns: (i64, i64),
    /// True for the first message of its connection: it may have waited for the connection.
    pub is_first: bool,
}

/// Confidence in the operation and the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// No schedule matches: messages are missing, or the algorithm is unknown.
    Unknown,
    /// Several calls could send the same messages.
    Low,
    /// Several algorithms send the same messages, or some messages are not on the wire because
    /// their ranks share a node.
    Medium,
    /// One schedule matches, with all its messages.
    High,
}

impl Confidence {
    /// Name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A message of a matched schedule, and its index among the messages of the communicator. `None` if
/// it is not on the wire.
pub(super) type ScheduleStep = (Transfer, Option<usize>);

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct OperationMessages {
    /// The operation.
    pub operation: MpiOperation,
    /// Names of the algorithms that send these messages; empty if none matches.
    pub algorithms: Vec<&'static str>,
    /// Confidence in both.
    pub confidence: Confidence,
    /// Bytes of the vector, or of one block (`BlockSizes::Equal`), if the messages show them.
    pub bytes: Option<u64>,
    /// Root, if the operation has one and is known.
    pub root: Option<u32>,
    /// Indices of its messages.
    pub messages: BTreeSet<usize>,
    /// The matched schedule; empty if none matches.
    pub steps: Vec<ScheduleStep>,
}

/// The messages of one tag: nonblocking operations each have a tag of their own.
type Stream = (MpiOperation, i32);

fn stream(message: &CollectiveMessage) -> Stream {
    (message.operation, if message.operation == MpiOperation::Nonblocking { message.tag } else { 0 })
}

/// A schedule that matches.
struct ScheduleMatch {
    algorithm: &'static Algorithm,
    root: Option<u32>,
    steps: Vec<ScheduleStep>,
    messages: BTreeSet<usize>,
    bytes: Option<u64>,
    last_start_ns: i64,
    /// Number of ranks that sent another message before their last one of this schedule.
    overtaken: usize,
    /// Number of sends that are out of the algorithm's order.
    disorder: usize,
    has_segments: bool,
}

impl ScheduleMatch {
    /// True if some of its messages are not on the wire.
    fn is_partial(&self) -> bool {
        self.steps.iter().any(|(_, index)| index.is_none())
    }
}

/// Splits the messages of one communicator.
pub(super) struct Splitter<'a> {
    size: u32,
    /// Sorted by the time of the first packet.
    messages: &'a [CollectiveMessage],
    /// True if messages between two ranks are on the wire.
    is_visible: &'a dyn Fn(u32, u32) -> bool,
    /// Bound of the error of differences of times.
    clock_bound_ns: i64,
    pairs: BTreeMap<(Stream, u32, u32), VecDeque<usize>>,
    /// Messages of blocking operations by sender, in the order of time, from the first one that may
    /// be left.
    sends: BTreeMap<u32, VecDeque<usize>>,
    is_taken: Vec<bool>,
    /// Longest pause within an operation.
    pause_ns: i64,
    schedules: BTreeMap<(usize, u32), Option<Rc<Schedule>>>,
}

/// The operations of a communicator, in the order of their first messages.
pub(super) struct SplitOperations {
    pub operations: Vec<OperationMessages>,
    /// Longest pause within an operation.
    pub pause_ns: i64,
}

/// Times of a job that apply to all its communicators.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobTimes {
    /// Bound of the error of differences of times.
    pub clock_bound_ns: i64,
    /// Usual time between successive messages of a communicator. Those of a communicator that sends
    /// one message per operation do not show how long a pause within an operation may be.
    pub gap_ns: Option<i64>,
}

/// Splits the messages of a communicator of `size` ranks into operations, in the order of their
/// first messages. `messages` are sorted by the time of the first packet.
pub(super) fn operations(
    size: u32,
    messages: &[CollectiveMessage],
    is_visible: &dyn Fn(u32, u32) -> bool,
    times: JobTimes,
) -> SplitOperations {
    let own_gap_ns = usual_ns(gaps_ns(messages.iter().map(|message| message.times_ns.0)));
    let gap_ns = own_gap_ns.into_iter().chain(times.gap_ns).min().unwrap_or(0);
    let mut pairs: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
    let mut sends: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
    for (index, message) in messages.iter().enumerate() {
        pairs.entry((stream(message), message.src, message.dst)).or_default().push_back(index);
        if message.operation != MpiOperation::Nonblocking {
            sends.entry(message.src).or_default().push_back(index);
        }
    }
    let mut splitter = Splitter {
        size,
        messages,
        is_visible,
        clock_bound_ns: times.clock_bound_ns,
        pairs,
        sends,
        is_taken: vec![false; messages.len()],
        pause_ns: gap_ns.saturating_mul(PAUSE_FACTOR),
        schedules: BTreeMap::new(),
    };
    let mut operations = Vec::new();
    for index in 0..messages.len() {
        if !splitter.is_taken[index] {
            operations.push(splitter.next(index));
        }
    }
    SplitOperations { operations, pause_ns: splitter.pause_ns }
}

/// A pause within an operation is at most this many times as long as the usual time between
/// successive messages.
const PAUSE_FACTOR: i64 = 8;

/// Times between successive messages. Most of these belong to the same operation.
pub(super) fn gaps_ns(starts_ns: impl Iterator<Item = i64>) -> Vec<i64> {
    let starts_ns: Vec<i64> = starts_ns.collect();
    starts_ns.windows(2).map(|two| two[1].saturating_sub(two[0])).collect()
}

/// The usual time between messages: the upper median. `None` for no times.
pub(super) fn usual_ns(mut gaps_ns: Vec<i64>) -> Option<i64> {
    gaps_ns.sort_unstable();
    gaps_ns.get(gaps_ns.len() / 2).copied()
}

impl Splitter<'_> {
    /// The operation of the earliest message that is left.
    fn next(&mut self, first: usize) -> OperationMessages {
        let operation = self.best(first).unwrap_or_else(|| self.unmatched(first));
        self.remove(&operation.messages);
        for sends in self.sends.values_mut() {
            while sends.front().is_some_and(|&index| self.is_taken[index]) {
                sends.pop_front();
            }
        }
        operation
    }

    /// All schedules that match.
    fn matches(&mut self, first: usize) -> Vec<ScheduleMatch> {
        let message = self.messages[first];
        let mut matches = Vec::new();
        if self.size < 2 || self.size > MAX_RANKS {
            return matches;
        }
        let is_nonblocking = message.operation == MpiOperation::Nonblocking;
        let is_candidate = |(_, algorithm): &(usize, &Algorithm)| {
            algorithm.tag == message.operation || is_nonblocking && algorithm.second_tag.is_none()
        };
        let candidates = || ALGORITHMS.iter().enumerate().filter(is_candidate);
        let may_have_segments = candidates().any(|(_, algorithm)| algorithm.has_segments);
        let segments = if may_have_segments { self.segments(first) } else { Vec::new() };
        for (number, algorithm) in candidates() {
            let roots: Vec<u32> = match (algorithm.is_rooted, self.size <= MAX_ROOTS) {
                (false, _) => vec![0],
                (true, true) => (0..self.size).collect(),
                (true, false) => BTreeSet::from([0, message.src, message.dst]).into_iter().collect(),
            };
            for root in roots {
                let Some(schedule) = self.schedule(number, root) else { continue };
                let segmented = (algorithm.has_segments && segments.len() > 1)
                    .then(|| self.compare(algorithm, &schedule, first, &segments))
                    .flatten();
                let whole = || self.compare(algorithm, &schedule, first, &[]);
                let found = segmented.or_else(whole);
                let root = algorithm.is_rooted.then_some(root);
                matches.extend(found.map(|found| ScheduleMatch { root, ..found }));
            }
        }
        if message.operation == MpiOperation::Allreduce {
            matches.extend(self.segmented_ring(first));
        }
        matches
    }

    /// The schedule of an algorithm.
    fn schedule(&mut self, number: usize, root: u32) -> Option<Rc<Schedule>> {
        if let Some(schedule) = self.schedules.get(&(number, root)) {
            return schedule.clone();
        }
        let schedule = (ALGORITHMS[number].build)(self.size, root).map(Rc::new);
        self.schedules.insert((number, root), schedule.clone());
        schedule
    }

    /// Compares a schedule with the next messages of each pair. `segments` are the lengths of the
    /// segments of each message; empty if messages are not segmented.
    fn compare(
        &self,
        algorithm: &'static Algorithm,
        schedule: &Schedule,
        first: usize,
        segments: &[u64],
    ) -> Option<ScheduleMatch> {
        let first_stream = stream(&self.messages[first]);
        let mut used: BTreeMap<(bool, u32, u32), usize> = BTreeMap::new();
        let mut lengths = Lengths::new(algorithm.sizes);
        let mut steps = Vec::with_capacity(schedule.transfers.len());
        let mut messages = BTreeSet::new();
        for transfer in &schedule.transfers {
            let Transfer { src, dst, blocks, is_second_tag, .. } = *transfer;
            if !(self.is_visible)(src, dst) {
                steps.push((*transfer, None));
                continue;
            }
            let stream = match algorithm.second_tag {
                Some(second) if is_second_tag => (second, first_stream.1),
                _ => first_stream,
            };
            let queue = self.pairs.get(&(stream, src, dst))?;
            let used = used.entry((is_second_tag, src, dst)).or_default();
            for part in 0..segments.len().max(1) {
                let index = *queue.get(*used)?;
                *used += 1;
                let bytes = self.messages[index].bytes?;
                let is_consistent = match segments.get(part) {
                    Some(segment) => bytes == *segment,
                    None => lengths.add(blocks, bytes),
                };
                if !is_consistent {
                    return None;
                }
                messages.insert(index);
                if part == 0 {
                    steps.push((*transfer, Some(index)));
                }
            }
        }
        if !messages.contains(&first) || !self.is_causal(&steps) || !lengths.are_consistent() {
            return None;
        }
        let bytes = if segments.is_empty() { lengths.total(schedule.blocks) } else { Some(segments.iter().sum()) };
        // Libraries return at once from calls without data. An Allreduce without data is a barrier.
        if algorithm.operation != MpiOperation::Barrier && bytes == Some(0) {
            return None;
        }
        Some(ScheduleMatch {
            algorithm,
            root: None,
            last_start_ns: messages.iter().map(|&index| self.messages[index].times_ns.0).max()?,
            overtaken: self.overtaken(&messages)?,
            disorder: self.disorder(&steps),
            has_segments: segments.len() > 1,
            steps,
            messages,
            bytes,
        })
    }

    /// True if no rank sends before it received the messages of earlier steps.
    fn is_causal(&self, steps: &[ScheduleStep]) -> bool {
        let mut received = vec![i64::MIN; self.size as usize];
        for group in steps.chunk_by(|(a, _), (b, _)| a.step == b.step) {
            let seen =
                || group.iter().filter_map(|(transfer, index)| Some((transfer, self.messages[(*index)?].times_ns.0)));
            let slack_ns = self.clock_bound_ns;
            if seen().any(|(transfer, start_ns)| start_ns.saturating_add(slack_ns) < received[transfer.src as usize]) {
                return false;
            }
            for (transfer, start_ns) in seen() {
                let latest = &mut received[transfer.dst as usize];
                *latest = start_ns.max(*latest);
            }
        }
        true
    }

    /// Number of ranks that sent another message before their last one among `messages`. A rank
    /// sends the messages of an operation before those of the next one, but a message may wait for
    /// its connection or for credits. `None` if the messages that were overtaken belong to a later
    /// operation: they follow after a pause.
    fn overtaken(&self, messages: &BTreeSet<usize>) -> Option<usize> {
        if messages.iter().any(|&index| self.messages[index].operation == MpiOperation::Nonblocking) {
            return Some(0);
        }
        let start_ns = |index: &usize| self.messages[*index].times_ns.0;
        let mut last = BTreeMap::new();
        for index in messages {
            last.insert(self.messages[*index].src, start_ns(index));
        }
        let is_overtaken = |(src, last_ns): (&u32, &i64)| {
            let mut sends = self.sends.get(src)?.iter();
            let left = sends.find(|index| !self.is_taken[**index] && !messages.contains(index))?;
            (start_ns(left) < *last_ns).then_some(())
        };
        let count = last.iter().filter_map(is_overtaken).count();
        let mut steps = messages.iter().zip(messages.iter().skip(1));
        let has_pause = steps.any(|(a, b)| start_ns(b).saturating_sub(start_ns(a)) > self.pause_ns);
        (count == 0 || !has_pause).then_some(count)
    }

    /// Number of sends that are earlier than the send before them in the schedule.
    fn disorder(&self, steps: &[ScheduleStep]) -> usize {
        let mut last = vec![i64::MIN; self.size as usize];
        let mut count = 0;
        for (transfer, index) in steps {
            let Some(index) = index else { continue };
            let start_ns = self.messages[*index].times_ns.0;
            let last = &mut last[transfer.src as usize];
            count += usize::from(start_ns < *last);
            *last = start_ns.max(*last);
        }
        count
    }

    /// The lengths of the messages on the connection of the first message that may be segments of
    /// one vector: all but the last are equally long, and their sender never pauses.
    fn segments(&self, first: usize) -> Vec<u64> {
        let message = self.messages[first];
        let Some(bytes) = message.bytes else { return Vec::new() };
        let mut lengths = vec![bytes];
        let power = bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        let is_segment = bytes >= MIN_SEGMENT_BYTES && power - bytes < ELEMENT_BYTES;
        if !is_segment {
            return lengths;
        }
        let (mut end_ns, mut latest_ns) = (message.times_ns.1, message.times_ns.0);
        let mut sends = 0;
        for (index, next) in self.messages.iter().enumerate().skip(first + 1).take(MAX_SEARCHED) {
            let (start_ns, next_end_ns) = next.times_ns;
            let pitch_ns = latest_ns.saturating_sub(message.times_ns.0) / (sends + 1);
            if start_ns.saturating_sub(end_ns) > self.pause_ns.max(pitch_ns.saturating_mul(2)) {
                break;
            }
            if self.is_taken[index] || stream(next) != stream(&message) || next.src != message.src {
                continue;
            }
            end_ns = end_ns.max(next_end_ns);
            latest_ns = start_ns;
            sends += 1;
            if next.dst == message.dst {
                let Some(next_bytes) = next.bytes.filter(|next_bytes| *next_bytes <= bytes) else { break };
                lengths.push(next_bytes);
                if next_bytes < bytes {
                    break;
                }
            }
        }
        lengths
    }

    /// Open MPI's segmented ring. The number of segments follows from the first message that is
    /// longer than those before it: it carries a whole block.
    fn segmented_ring(&self, first: usize) -> Option<ScheduleMatch> {
        const RING: Algorithm = Algorithm {
            name: "segmented_ring",
            operation: MpiOperation::Allreduce,
            tag: MpiOperation::Allreduce,
            second_tag: None,
            sizes: BlockSizes::Varying,
            has_segments: false,
            build: |_, _| None,
            is_rooted: false,
        };
        if self.size > MAX_ROOTS {
            return None;
        }
        let message = self.messages[first];
        let queue = self.pairs.get(&(stream(&message), message.src, message.dst))?;
        let per_segment = self.size - 1;
        let segment_bytes = message.bytes?;
        let is_whole = |&index: &usize| {
            self.messages[index].bytes.is_some_and(|bytes| bytes > segment_bytes.saturating_mul(3) / 2)
        };
        let mut searched = queue.iter().take((MAX_SEGMENTS * per_segment) as usize + 1);
        let before = u32::try_from(searched.position(is_whole)?).ok()?;
        let segments = before / per_segment;
        if segments < 2 || before % per_segment != 0 {
            return None;
        }
        self.compare(&RING, &segmented_ring(self.size, segments), first, &[])
    }

    /// The operation whose schedule matches best: no rank sent other messages in between, and it ends
    /// first. Segments, and messages that follow without a pause and belong to a longer schedule, are
    /// part of the operation.
    fn best(&mut self, first: usize) -> Option<OperationMessages> {
        let mut matches = self.matches(first);
        matches.sort_by_key(|found| (found.overtaken, !found.has_segments, found.last_start_ns, found.disorder));
        let mut best = 0;
        let shortest = matches.first()?;
        // A barrier with the tag of an Allreduce may be an Allreduce without data.
        let mut is_ambiguous = shortest.has_segments || shortest.algorithm.is_barrier_with_another_tag();
        for number in 1..matches.len() {
            let (shorter, longer) = (&matches[best], &matches[number]);
            let is_longer =
                longer.messages.len() > shorter.messages.len() && shorter.messages.is_subset(&longer.messages);
            // Nonblocking operations on a communicator have different tags.
            let is_one = self.messages[first].operation == MpiOperation::Nonblocking;
            let is_same = longer.algorithm.operation == shorter.algorithm.operation;
            // Without the messages inside nodes, parts of a schedule look like whole ones.
            let is_partial = shorter.is_partial() && is_same;
            let has_no_pause = self.has_no_pause(&shorter.messages, &longer.messages);
            if !is_longer || !(is_one || is_same || has_no_pause) {
                continue;
            }
            let rest = self.rest(&shorter.messages, &longer.messages);
            let is_certain = is_one || has_no_pause && rest.is_empty();
            let is_long = longer.bytes.is_some_and(|bytes| bytes >= MIN_SPLIT_BYTES);
            let may_be_split = has_no_pause && is_long && longer.algorithm.operation == MpiOperation::Allreduce;
            // Another call of the same kind sends messages of the same algorithm.
            let is_another = rest.contains(&(shorter.algorithm.name, shorter.root));
            let is_rest_of_same = is_same && rest.is_empty();
            if is_certain || is_rest_of_same || may_be_split || is_partial && (has_no_pause || !is_another) {
                is_ambiguous = is_ambiguous || !is_certain;
                best = number;
            } else if is_same && is_long && has_no_pause {
                is_ambiguous = true;
            }
        }
        let chosen = &matches[best];
        is_ambiguous = is_ambiguous || chosen.algorithm.name == "ring" && self.may_continue(first, chosen);
        // The order of sends on different connections is weak evidence.
        let most_disorder = 2 * chosen.disorder + self.size as usize / 2;
        let same: Vec<&ScheduleMatch> = matches
            .iter()
            .filter(|other| other.messages == chosen.messages && other.disorder <= most_disorder)
            .collect();
        let operations: BTreeSet<MpiOperation> = same.iter().map(|found| found.algorithm.operation).collect();
        let names: BTreeSet<&'static str> = same.iter().map(|found| found.algorithm.name).collect();
        let lengths: BTreeSet<Option<u64>> = same.iter().map(|found| found.bytes).collect();
        let roots: BTreeSet<Option<u32>> = same.iter().map(|found| found.root).collect();
        let is_known = operations.len() == 1;
        let confidence = if !is_known {
            Confidence::Unknown
        } else if is_ambiguous {
            Confidence::Low
        } else if chosen.is_partial() || names.len() > 1 {
            Confidence::Medium
        } else {
            Confidence::High
        };
        let chosen = matches.swap_remove(best);
        Some(OperationMessages {
            operation: if is_known { chosen.algorithm.operation } else { self.messages[first].operation },
            algorithms: if is_known { names.into_iter().collect() } else { Vec::new() },
            confidence,
            bytes: chosen.bytes.filter(|_| lengths.len() == 1),
            root: chosen.root.filter(|_| is_known && roots.len() == 1),
            messages: chosen.messages,
            steps: chosen.steps,
        })
    }

    /// True if another message of the same length follows a ring without a pause: the ring may be a
    /// part of a segmented one that has more segments than are compared.
    fn may_continue(&self, first: usize, ring: &ScheduleMatch) -> bool {
        let message = self.messages[first];
        let queue = self.pairs.get(&(stream(&message), message.src, message.dst));
        let next = queue.and_then(|queue| queue.iter().find(|index| !ring.messages.contains(index)));
        next.is_some_and(|&next| {
            let start_ns = self.messages[next].times_ns.0;
            self.messages[next].bytes == message.bytes && start_ns.saturating_sub(ring.last_start_ns) <= self.pause_ns
        })
    }

    /// Names and roots of the algorithms that describe the messages that remain of the longer
    /// schedule after those of the shorter one.
    fn rest(&mut self, shorter: &BTreeSet<usize>, longer: &BTreeSet<usize>) -> Vec<(&'static str, Option<u32>)> {
        let Some(&remaining) = longer.difference(shorter).next() else { return Vec::new() };
        self.remove(shorter);
        let found = self.matches(remaining).iter().map(|found| (found.algorithm.name, found.root)).collect();
        for &index in shorter.iter().rev() {
            let message = &self.messages[index];
            self.is_taken[index] = false;
            self.pairs.entry((stream(message), message.src, message.dst)).or_default().push_front(index);
        }
        found
    }

    /// Removes messages, which are the next ones of their pairs.
    fn remove(&mut self, messages: &BTreeSet<usize>) {
        for &index in messages {
            let message = &self.messages[index];
            self.is_taken[index] = true;
            if let Some(queue) = self.pairs.get_mut(&(stream(message), message.src, message.dst)) {
                queue.pop_front();
            }
        }
    }

    /// True if the messages that only the longer schedule has follow those of the shorter one
    /// without a pause.
    fn has_no_pause(&self, shorter: &BTreeSet<usize>, longer: &BTreeSet<usize>) -> bool {
        let Some(end_ns) = shorter.iter().map(|&index| self.messages[index].times_ns.1).max() else { return false };
        let rest = longer.difference(shorter).map(|&index| self.messages[index].times_ns.0).min();
        rest.is_some_and(|start_ns| start_ns.saturating_sub(end_ns) <= self.pause_ns)
    }

    /// An operation that no schedule describes: the messages of the tag until the next pause.
    fn unmatched(&self, first: usize) -> OperationMessages {
        let message = &self.messages[first];
        let mut messages = BTreeSet::from([first]);
        let mut end_ns = message.times_ns.1;
        for (index, next) in self.messages.iter().enumerate().skip(first + 1).take(MAX_SEARCHED) {
            if next.times_ns.0.saturating_sub(end_ns) > self.pause_ns {
                break;
            }
            if !self.is_taken[index] && stream(next) == stream(message) {
                messages.insert(index);
                end_ns = end_ns.max(next.times_ns.1);
            }
        }
        OperationMessages {
            operation: message.operation,
            algorithms: Vec::new(),
            confidence: Confidence::Unknown,
            bytes: None,
            root: None,
            messages,
            steps: Vec::new(),
        }
    }
}

/// The lengths of the blocks, as far as the messages show them.
struct Lengths {
    sizes: BlockSizes,
    /// Length of one block, if all are equal.
    unit_bytes: Option<u64>,
    ranges: BTreeMap<BlockRange, u64>,
}

impl Lengths {
    const fn new(sizes: BlockSizes) -> Self {
        Self { sizes, unit_bytes: None, ranges: BTreeMap::new() }
    }

    /// Adds a message. Returns false if its length contradicts those of the messages before it.
    fn add(&mut self, blocks: BlockRange, bytes: u64) -> bool {
        if blocks.count == 0 {
            return bytes == 0;
        }
        match self.sizes {
            BlockSizes::Varying => *self.ranges.entry(blocks).or_insert(bytes) == bytes,
            BlockSizes::Equal => {
                let unit_bytes = *self.unit_bytes.get_or_insert(bytes / u64::from(blocks.count));
                unit_bytes.checked_mul(blocks.count.into()) == Some(bytes)
            }
        }
    }

    /// True if each message is as long as its blocks together, as far as shorter messages show their
    /// lengths.
    fn are_consistent(&self) -> bool {
        let is_consistent = |(range, bytes): (&BlockRange, &u64)| {
            range.count < 2 || self.sum(range.first, range.count).is_none_or(|sum| sum == *bytes)
        };
        self.ranges.iter().all(is_consistent)
    }

    /// Length of one block if all are equal, or else of all blocks. `None` if the messages do not show
    /// it.
    fn total(&self, blocks: u32) -> Option<u64> {
        if blocks == 0 {
            return Some(0);
        }
        if self.sizes == BlockSizes::Equal {
            return self.unit_bytes;
        }
        let whole = self.ranges.get(&BlockRange { first: 0, count: blocks }).copied();
        whole.or_else(|| self.sum(0, blocks))
    }

    /// Sum of the longest shorter ranges that together are `count` blocks from `first`.
    fn sum(&self, first: u32, count: u32) -> Option<u64> {
        let (mut position, mut left, mut total) = (first, count, 0u64);
        while left > 0 {
            let ends = (BlockRange { first: position, count: 0 }, BlockRange { first: position, count: left });
            let (range, bytes) = self.ranges.range(ends.0..=ends.1).rev().find(|(range, _)| range.count < count)?;
            position += range.count;
            left -= range.count;
            total = total.checked_add(*bytes)?;
        }
        Some(total)
    }
}
