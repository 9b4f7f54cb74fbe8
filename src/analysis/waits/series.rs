//! Series: the messages of a job that are alike, in the order of their times.
//!
//! MPI messages of one series do not overtake each other, so their order in time is the order in
//! which the program sends them.

use ibscope_parsers::mpi::MpiOperation;
use std::collections::{BTreeMap, BTreeSet};

/// Messages with equal keys form one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeriesKey {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) operation: MpiOperation,
    pub(super) context: u32,
    /// `None` if tags are ignored.
    pub(super) tag: Option<i32>,
    pub(super) mpi_bytes: u64,
}

/// Operation and context: what series of one step of a program have in common.
pub(super) type SeriesRole = (MpiOperation, u32);

impl SeriesKey {
    pub(super) const fn role(&self) -> SeriesRole {
        (self.operation, self.context)
    }
}

/// Times of the first and the last packet of each message, in nanoseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageSeries {
    times_ns: Vec<(i64, i64)>,
}

impl MessageSeries {
    pub(super) fn push(&mut self, first_ns: i64, last_ns: i64) {
        self.times_ns.push((first_ns, last_ns));
    }

    /// Sorts by time; messages are pushed by connection.
    pub(super) fn sort(&mut self) {
        self.times_ns.sort_unstable();
    }

    pub(super) fn times_ns(&self) -> &[(i64, i64)] {
        &self.times_ns
    }

    /// Time of the first message, once sorted.
    pub(super) fn begin_ns(&self) -> Option<i64> {
        self.times_ns.first().map(|times| times.0)
    }

    /// Time at which the last message begins, once sorted.
    pub(super) fn end_ns(&self) -> Option<i64> {
        self.times_ns.last().map(|times| times.0)
    }

    pub(super) fn len(&self) -> usize {
        self.times_ns.len()
    }
}

/// The ranks that send or receive.
pub(super) fn ranks<'k>(keys: impl Iterator<Item = &'k SeriesKey>) -> BTreeSet<u32> {
    keys.flat_map(|key| [key.src, key.dst]).collect()
}

/// The series without regard to tags.
pub(super) fn without_tags(series: BTreeMap<SeriesKey, MessageSeries>) -> BTreeMap<SeriesKey, MessageSeries> {
    let mut joined: BTreeMap<SeriesKey, MessageSeries> = BTreeMap::new();
    for (key, own) in series {
        joined.entry(SeriesKey { tag: None, ..key }).or_default().times_ns.extend(own.times_ns);
    }
    joined.values_mut().for_each(MessageSeries::sort);
    joined
}
