//! The messages of one job, sorted by time, which `otf2`, `goal` and `chakra` write.

use super::common::arguments::CaptureArgs;
use super::common::{input, output};
use crate::analysis::collective_instances::UncertainOperations;
use crate::analysis::rank_events::{LeftOutMessages, RankMessage};
use crate::model::profile::JobRow;
use crate::model::{MessageRow, Profile, count_either};
use crate::pipeline::{self, MessageIter};
use anyhow::bail;
use ext_sort::{ExternalSorter, ExternalSorterBuilder, LimitedBufferBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cmp::Ordering;
use std::io;
use std::path::Path;

/// Items that are sorted in memory; the others wait in files.
const ITEMS_IN_MEMORY: usize = 1 << 20;

/// Rows of the timeline, and of the series of senders: a quarter of those of `analyze`, because the
/// messages of long captures need the memory too.
const MAX_TIMELINE_ROWS: usize = pipeline::DEFAULT_MAX_CELLS / 4;

/// Items in order.
pub(super) type SortedItems<T> = Box<dyn Iterator<Item = io::Result<T>>>;

/// Captures with messages of one job.
pub(super) struct JobCapture {
    pub(super) profile: Profile,
    pub(super) job: u32,
    pub(super) stream: MessageIter,
}

/// The data that a command reads beside the messages with envelopes.
#[derive(Clone, Copy, Default)]
pub(super) struct MoreData {
    /// Transport messages that belong to no MPI message.
    pub(super) transport: bool,
    /// The timeline, in bins of this width in nanoseconds, or wider ones if it has too many rows.
    pub(super) bin_ns: Option<i64>,
}

impl JobCapture {
    /// Reads captures for `command`, which writes `output`, such as "an archive".
    pub(super) fn read(command: &str, output: &str, captures: &CaptureArgs, more: MoreData) -> anyhow::Result<Self> {
        let CaptureArgs { inputs, reading, scope } = captures;
        input::check(inputs)?;
        if let Some(profile) = inputs.iter().find(|place| pipeline::is_profile(place)) {
            bail!("{}: a profile has no individual messages; give the captures", profile.display());
        }
        input::check_captures(command, inputs)?;
        let mut options = input::message_options(inputs, reading)?;
        options.bin_ns = more.bin_ns;
        options.limits.max_cells = MAX_TIMELINE_ROWS;
        let stream = input::messages(inputs, &options, *scope, more.transport)?;
        let profile = stream.profile().clone();
        if profile.sampling.is_some() {
            bail!("the messages are unknown, because the mirror sampled the packets: most of them are missing");
        }
        input::one_job(&profile, &format!("the traffic of {output}"))?;
        let Some(job) = profile.jobs.first().map(|job: &JobRow| job.job) else {
            bail!(
                "the captures have no MPI job with known ranks, so there is no {}; `ibscope ranks` shows the reasons",
                output.trim_start_matches("an ").trim_start_matches("a ")
            );
        };
        Ok(Self { profile, job, stream })
    }
}

/// The items in the order of `order`. Those that exceed memory wait in files in the folder `scratch`.
pub(super) fn sorted<T: Send + Serialize + DeserializeOwned + 'static>(
    items: impl Iterator<Item = io::Result<T>>,
    scratch: &Path,
    order: impl Fn(&T, &T) -> Ordering + Send + Sync + Copy + 'static,
) -> anyhow::Result<SortedItems<T>> {
    sorted_within(ITEMS_IN_MEMORY, items, scratch, order)
}

/// As [`sorted`], with at most `most` items in memory, and one of each file.
fn sorted_within<T: Send + Serialize + DeserializeOwned + 'static>(
    most: usize,
    items: impl Iterator<Item = io::Result<T>>,
    scratch: &Path,
    order: impl Fn(&T, &T) -> Ordering + Send + Sync + Copy + 'static,
) -> anyhow::Result<SortedItems<T>> {
    let sorter: ExternalSorter<T, io::Error> = ExternalSorterBuilder::new()
        .with_tmp_dir(scratch)
        .with_buffer(LimitedBufferBuilder::new(most, false))
        .build()?;
    let sorted = sorter.sort_by(items, order)?;
    // The sorter owns the folder of the files that the merge reads.
    let mut merge = (sorted, sorter);
    Ok(Box::new(std::iter::from_fn(move || merge.0.next()).map(|item| item.map_err(io::Error::other))))
}

/// The messages that `message` takes from the rows, by time.
pub(super) fn in_time(
    stream: MessageIter,
    scratch: &Path,
    mut message: impl FnMut(&MessageRow) -> Option<RankMessage>,
) -> anyhow::Result<SortedItems<RankMessage>> {
    let rows = stream.filter_map(|row| match row {
        Ok(row) => message(&row).map(Ok),
        Err(error) => Some(Err(error)),
    });
    sorted(rows, scratch, RankMessage::in_time)
}

/// Prints notes on the messages and operations that are left out.
pub(super) fn note_left_out(left_out: LeftOutMessages) {
    note_counts([
        (
            left_out.without_ranks,
            "message is left out, because the rank of its sender or receiver is not known",
            "messages are left out, because the ranks of their senders or receivers are not known",
        ),
        (
            left_out.without_length_or_time,
            "message is left out, because packets that show its length or time were not captured",
            "messages are left out, because packets that show their lengths or times were not captured",
        ),
        (
            left_out.operations,
            "collective operation is left out, because its kind is not known",
            "collective operations are left out, because their kinds are not known",
        ),
    ]);
    note_uncertain(left_out.uncertain);
    if left_out.uncertain.kept > 0 {
        let kept = count_either(
            left_out.uncertain.kept,
            "collective operation has low confidence: several calls could send its messages, or messages of its \
             communicator may be missing",
            "collective operations have low confidence: several calls could send their messages, or messages of \
             their communicators may be missing",
        );
        output::eprint_line(&format!("note: {kept}; `ibscope collectives --view instances` marks them"));
    }
}

/// Prints notes on the collective operations that are left out because they are uncertain.
pub(super) fn note_uncertain(operations: UncertainOperations) {
    note_counts([
        (
            operations.unmatched,
            "collective operation is left out, because its messages match no known algorithm",
            "collective operations are left out, because their messages match no known algorithm",
        ),
        (
            operations.with_missing_messages,
            "collective operation is left out, because messages of its communicator are missing",
            "collective operations are left out, because messages of their communicators are missing",
        ),
    ]);
}

/// Prints a note for each count other than 0, with its words for one and for several.
fn note_counts<const N: usize>(counts: [(u64, &str, &str); N]) {
    for (count, one, many) in counts.into_iter().filter(|(count, ..)| *count > 0) {
        output::eprint_line(&format!("note: {}", count_either(count, one, many)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Deserializer};
    use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};

    /// Items that exist, and the most at a time.
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);

    /// A number that counts itself.
    #[derive(Serialize)]
    struct CountedItem(u64);

    impl CountedItem {
        fn new(number: u64) -> Self {
            let live = LIVE.fetch_add(1, AtomicOrdering::SeqCst) + 1;
            MOST.fetch_max(live, AtomicOrdering::SeqCst);
            Self(number)
        }
    }

    impl Drop for CountedItem {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, AtomicOrdering::SeqCst);
        }
    }

    impl<'de> Deserialize<'de> for CountedItem {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            struct Bare(u64);
            Bare::deserialize(deserializer).map(|bare| Self::new(bare.0))
        }
    }

    /// 10 000 items with 100 in memory are 100 files. Besides these items, the merge holds one of each
    /// file, and the one that the caller has.
    #[test]
    fn items_beyond_the_bound_wait_in_files() {
        const ITEMS: u64 = 10_000;
        const IN_MEMORY: usize = 100;
        let folder = tempfile::tempdir().expect("folder");
        // 7919 is prime, so each number comes once.
        let items = (0..ITEMS).map(|number| Ok(CountedItem::new(number * 7919 % ITEMS)));
        let sorted = sorted_within(IN_MEMORY, items, folder.path(), |a, b| a.0.cmp(&b.0)).expect("sorted");
        let mut count = 0;
        for (item, expected) in sorted.zip(0..) {
            assert_eq!(item.expect("an item").0, expected);
            count += 1;
        }
        assert_eq!(count, ITEMS);
        let most = MOST.load(AtomicOrdering::SeqCst);
        assert!((IN_MEMORY..=IN_MEMORY + 2).contains(&most), "{most} items at a time");
        assert_eq!(std::fs::read_dir(&folder).expect("folder").count(), 0);
    }
}
