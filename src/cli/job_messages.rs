//! The messages of one job, sorted by time, which `otf2`, `goal` and `chakra` write.

use super::common::arguments::CaptureArgs;
use super::common::{input, output};
use crate::analysis::rank_events::{LeftOutMessages, RankMessage};
use crate::model::profile::JobRow;
use crate::model::{MessageRow, Profile, count_either};
use crate::pipeline::{self, MessageStream};
use anyhow::bail;
use ext_sort::{ExternalSorter, ExternalSorterBuilder, LimitedBufferBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cmp::Ordering;
use std::io;
use std::path::Path;

/// Items that are sorted in memory; the others wait in files.
const ITEMS_IN_MEMORY: usize = 1 << 20;

/// Items in order.
pub(super) type SortedItems<T> = Box<dyn Iterator<Item = io::Result<T>>>;

/// Captures with messages of one job.
pub(super) struct JobCapture {
    pub(super) profile: Profile,
    pub(super) job: u32,
    pub(super) stream: MessageStream,
}

impl JobCapture {
    /// Reads captures for `command`, which writes `output`, such as "an archive".
    pub(super) fn read(command: &str, output: &str, captures: &CaptureArgs) -> anyhow::Result<Self> {
        let CaptureArgs { inputs, reading, scope } = captures;
        input::check(inputs)?;
        if let Some(profile) = inputs.iter().find(|place| pipeline::is_profile(place)) {
            bail!("{}: a profile has no individual messages; give the captures", profile.display());
        }
        input::check_captures(command, inputs)?;
        let stream = input::messages_alone(inputs, reading, *scope, false)?;
        let profile = stream.profile().clone();
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
    let sorter: ExternalSorter<T, io::Error> = ExternalSorterBuilder::new()
        .with_tmp_dir(scratch)
        .with_buffer(LimitedBufferBuilder::new(ITEMS_IN_MEMORY, false))
        .build()?;
    let sorted = sorter.sort_by(items, order)?;
    // The sorter owns the folder of the files that the merge reads.
    let mut merge = (sorted, sorter);
    Ok(Box::new(std::iter::from_fn(move || merge.0.next()).map(|item| item.map_err(io::Error::other))))
}

/// The messages that `message` takes from the rows, by time.
pub(super) fn in_time(
    stream: MessageStream,
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
    for (count, one, many) in [
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
    ] {
        if count > 0 {
            output::eprint_line(&format!("note: {}", count_either(count, one, many)));
        }
    }
}
