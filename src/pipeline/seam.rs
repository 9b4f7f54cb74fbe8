//! The records that two consecutive files of a stream share.
//!
//! Files of a rotated capture may repeat records around the point of rotation:
//!
//! ```text
//! a.pcap   r1 r2 r3 r4 r5
//! b.pcap            r4 r5 r6 r7     starts with the last two records of a: new from r6 on
//! ```
//! In: two files. Out: the offset in the later file at which its new records start. Two records are
//! the same if time, length and captured bytes are equal. Invariant: records are skipped only if
//! they form the start of the later file and the end of the earlier one, or if the earlier one has
//! all records of the later one in a row.
//!
//! The two mirror copies of a packet may also be equal in this sense, if the clock is coarse. A
//! seam between them looks like an overlap of one record, or of a few with one time. In captures
//! with such copies, records of one time count as an overlap only if there are more of them than
//! copies, with those of other times shortly before or after.

use super::PipelineError;
use crate::input::{self, Capture, SourceOptions};
use crate::model::Batch;
use ibscope_parsers::frame::{CaptureItem, LinkType, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Records of the later file that are compared; a usual overlap has hundreds. Each takes 20 bytes.
const MAX_RECORDS: usize = 1 << 21;

/// The start of the later of two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seam {
    /// With new records.
    New,
    /// With records of the earlier file; new records are at this offset of the (decompressed) file
    /// or behind it.
    NewFrom(u64),
    /// With more records of the earlier file than are compared.
    TooLong,
}

/// The seams between inputs, each compared once.
pub(super) struct Seams<'a> {
    paths: &'a [PathBuf],
    source: SourceOptions,
    /// Pairs of inputs of which the first holds the first record of the second.
    pub(super) first_records: BTreeSet<(usize, usize)>,
    /// True if some input holds two mirror copies that are equal records, so that other inputs may too.
    pub(super) has_copies: bool,
    compared: BTreeMap<(usize, usize), Seam>,
}

impl<'a> Seams<'a> {
    /// No seam yet. The inputs are read with the options `source`.
    pub(super) const fn new(paths: &'a [PathBuf], source: SourceOptions) -> Self {
        Self { paths, source, first_records: BTreeSet::new(), has_copies: false, compared: BTreeMap::new() }
    }

    /// The seam between two inputs. Reads both if the earlier one holds the first record of the
    /// later one.
    pub(super) fn between(&mut self, earlier: usize, later: usize) -> Result<Seam, PipelineError> {
        let pair = (earlier, later);
        if !self.first_records.contains(&pair) {
            return Ok(Seam::New);
        }
        if let Some(seam) = self.compared.get(&pair) {
            return Ok(*seam);
        }
        let seam = compare(&self.paths[earlier], &self.paths[later], self.has_copies, &self.source)?;
        self.compared.insert(pair, seam);
        Ok(seam)
    }
}

/// Compares the start of `later` with the end of `earlier`. With `has_copies`, both mirror copies
/// of a packet may be the same record.
///
/// # Errors
/// A file cannot be read.
fn compare(earlier: &Path, later: &Path, has_copies: bool, source: &SourceOptions) -> Result<Seam, PipelineError> {
    let (mut hashes, mut offsets) = (Vec::new(), Vec::new());
    let mut first: Option<RecordId> = None;
    // Copies of the first record, and records before the first one of another time.
    let (mut copies, mut of_one_time) = (0, 0);
    walk(later, source, |record, offset| {
        if hashes.len() == MAX_RECORDS {
            return ControlFlow::Break(());
        }
        let first = first.get_or_insert(record);
        copies += usize::from(record.may_be_copy_of(first));
        of_one_time += usize::from(of_one_time == hashes.len() && record.time_ns == first.time_ns);
        hashes.push(record.hash);
        offsets.push(offset);
        ControlFlow::Continue(())
    })?;
    let is_truncated = hashes.len() == MAX_RECORDS;
    let Some(first) = first else { return Ok(Seam::New) };
    let mut search = PrefixSearch::new(hashes);
    walk(earlier, source, |record, _| {
        search.next(record.hash);
        copies += usize::from(record.may_be_copy_of(&first));
        if search.is_whole() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let matched = search.matched;
    Ok(match matched {
        0 => Seam::New,
        _ if search.is_whole() && is_truncated => Seam::TooLong,
        _ if has_copies && matched <= of_one_time && copies <= COPIES => Seam::New,
        _ => Seam::NewFrom(offsets.get(matched).copied().unwrap_or(u64::MAX)),
    })
}

/// The first records of several files, by time: the file, by its position, and the hash.
pub(super) struct FirstRecords(BTreeMap<i64, Vec<(usize, u64)>>);

impl FirstRecords {
    /// Reads the first record of each file. Records without a time are left out.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(paths: &[PathBuf], source: &SourceOptions) -> Result<Self, PipelineError> {
        let mut records: BTreeMap<i64, Vec<(usize, u64)>> = BTreeMap::new();
        for (file, path) in paths.iter().enumerate() {
            walk(path, source, |record, _| {
                if let Some(time_ns) = record.time_ns {
                    records.entry(time_ns).or_default().push((file, record.hash));
                }
                ControlFlow::Break(())
            })?;
        }
        Ok(Self(records))
    }

    /// The files whose first record is in the batch, whose records have times within `span_ns`.
    pub(super) fn in_batch(&self, batch: &Batch, span_ns: Option<(i64, i64)>) -> Vec<usize> {
        let mut files = Vec::new();
        if span_ns.is_none_or(|(first_ns, last_ns)| self.0.range(first_ns..=last_ns).next().is_none()) {
            return files;
        }
        batch.framing.clone().walk(&batch.bytes, |item| {
            if let CaptureItem::Record(record) = item
                && let Some(firsts) = record.time_ns.and_then(|time_ns| self.0.get(&time_ns))
            {
                let hash = RecordId::of(record).hash;
                files.extend(firsts.iter().filter(|(_, first)| *first == hash).map(|(file, _)| *file));
            }
        });
        files
    }
}

/// Mirror copies of a packet that a capture may hold: at the sender's port and at the receiver's.
const COPIES: usize = 2;

/// The timestamp at the start of an ERF header.
const ERF_TIME_BYTES: usize = 8;
/// The copies of a packet pass both ports within this time.
const COPY_NS: u64 = 1_000_000;

/// Identity of a record.
#[derive(Clone, Copy)]
struct RecordId {
    /// Nanoseconds since the epoch.
    time_ns: Option<i64>,
    /// Hash of its captured bytes, without the time in an ERF header.
    frame_hash: u64,
    /// Hash of its captured bytes, length and time.
    hash: u64,
}

impl RecordId {
    fn of(record: &Record<'_>) -> Self {
        let seed = record.time_ns.unwrap_or(0).cast_unsigned() ^ u64::from(record.original_bytes).rotate_left(48);
        let start = if record.link_type == LinkType::ERF { ERF_TIME_BYTES.min(record.data.len()) } else { 0 };
        let (erf_time, frame) = record.data.split_at(start);
        let frame_hash = xxh3_64(frame);
        Self { time_ns: record.time_ns, frame_hash, hash: xxh3_64_with_seed(erf_time, seed ^ frame_hash) }
    }

    /// True if both have the same bytes, and times so close that they may be copies of a packet.
    fn may_be_copy_of(&self, other: &Self) -> bool {
        let is_near = |(own, other): (i64, i64)| own.abs_diff(other) <= COPY_NS;
        self.frame_hash == other.frame_hash && self.time_ns.zip(other.time_ns).is_none_or(is_near)
    }
}

/// Finds the longest start of a list of hashes that a text ends with (Knuth, Morris and Pratt).
struct PrefixSearch {
    hashes: Vec<u64>,
    /// For each length of a start: the length of the longest shorter start that it ends with.
    shorter: Vec<u32>,
    /// The text so far ends with this many of the hashes.
    matched: usize,
}

impl PrefixSearch {
    fn new(hashes: Vec<u64>) -> Self {
        let mut search = Self { shorter: vec![0; hashes.len() + 1], hashes, matched: 0 };
        for index in 1..search.hashes.len() {
            search.next(search.hashes[index]);
            search.shorter[index + 1] = search.matched as u32;
        }
        search.matched = 0;
        search
    }

    /// True if the text ends with all hashes.
    fn is_whole(&self) -> bool {
        self.matched == self.hashes.len()
    }

    /// Adds a hash to the text.
    fn next(&mut self, hash: u64) {
        if self.is_whole() {
            self.matched = self.shorter[self.matched] as usize;
        }
        while self.matched > 0 && self.hashes.get(self.matched) != Some(&hash) {
            self.matched = self.shorter[self.matched] as usize;
        }
        self.matched += usize::from(self.hashes.get(self.matched) == Some(&hash));
    }
}

/// Calls `each` with the time and hash of each record and the offset of its captured bytes in the
/// (decompressed) file.
fn walk(
    path: &Path,
    source: &SourceOptions,
    mut each: impl FnMut(RecordId, u64) -> ControlFlow<()>,
) -> Result<(), PipelineError> {
    let captures = input::open(&[path.to_owned()], source)?;
    let Some(mut capture): Option<Capture> = captures.into_iter().next() else { return Ok(()) };
    let mut spare = Vec::new();
    let mut flow = ControlFlow::Continue(());
    while let (ControlFlow::Continue(()), Some(batch)) = (flow, capture.next_batch(std::mem::take(&mut spare))) {
        let start = batch.bytes.as_ptr().addr();
        batch.framing.clone().walk(&batch.bytes, |item| {
            if let (CaptureItem::Record(record), ControlFlow::Continue(())) = (item, flow) {
                let offset = record.data.as_ptr().addr().wrapping_sub(start) as u64;
                flow = each(RecordId::of(record), batch.offset_bytes + offset);
            }
        });
        spare = batch.bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pcap file with a record of 1 byte for each pair of a byte, which is also its time in seconds,
    /// and the microseconds of its time.
    fn pcap(records: impl IntoIterator<Item = (u32, u32)>) -> Vec<u8> {
        let header = [[0xD4, 0xC3, 0xB2, 0xA1], [2, 0, 4, 0], [0; 4], [0; 4], [0, 0, 4, 0], [247, 0, 0, 0]];
        let record = |(time_s, time_us): (u32, u32)| {
            let header = [time_s.to_le_bytes(), time_us.to_le_bytes(), [1, 0, 0, 0], [1, 0, 0, 0]];
            header.concat().into_iter().chain([time_s as u8])
        };
        header.concat().into_iter().chain(records.into_iter().flat_map(record)).collect()
    }

    fn compared_at(
        earlier: impl IntoIterator<Item = (u32, u32)>,
        later: impl IntoIterator<Item = (u32, u32)>,
        has_copies: bool,
    ) -> Seam {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["a", "b"].map(|name| folder.path().join(name));
        std::fs::write(&one, pcap(earlier)).unwrap();
        std::fs::write(&other, pcap(later)).unwrap();
        compare(&one, &other, has_copies, &SourceOptions::default()).unwrap()
    }

    fn compared(
        earlier: impl IntoIterator<Item = u32>,
        later: impl IntoIterator<Item = u32>,
        has_copies: bool,
    ) -> Seam {
        let at_whole_seconds = |time_s| (time_s, 0);
        compared_at(earlier.into_iter().map(at_whole_seconds), later.into_iter().map(at_whole_seconds), has_copies)
    }

    fn seam(earlier: impl IntoIterator<Item = u32>, later: impl IntoIterator<Item = u32>) -> Seam {
        compared(earlier, later, false)
    }

    /// Offset of the bytes of a record.
    const fn at(record: u64) -> Seam {
        Seam::NewFrom(24 + 17 * record + 16)
    }

    #[test]
    fn the_longest_common_part_is_skipped() {
        assert_eq!(seam([1, 2, 3, 4, 5], [4, 5, 6, 7]), at(2));
        assert_eq!(seam([1, 2, 3], [3, 4]), at(1));
        assert_eq!(seam([1, 2, 2], [2, 2, 2, 3]), at(2));
        assert_eq!(seam([1, 2, 2], [2, 2, 3]), at(2));
        assert_eq!(seam([1, 2, 1, 2, 1], [1, 2, 1, 3]), at(3));
        assert_eq!(seam([7, 8], [8, 7, 9]), at(1));
    }

    #[test]
    fn a_seam_between_mirror_copies_is_no_overlap() {
        assert_eq!(compared([1, 1, 2], [2, 3, 3], true), Seam::New);
        assert_eq!(compared([1, 2], [2, 3], true), Seam::New);
        // Three of one, or of several times.
        assert_eq!(compared([1, 1, 2, 2], [2, 3, 3], true), at(1));
        assert_eq!(compared([1, 1, 2, 3], [2, 3, 3], true), at(2));
        // The copy before it has another time.
        assert_eq!(compared_at([(1, 0), (2, 0), (2, 1)], [(2, 1)], true), Seam::NewFrom(u64::MAX));
        assert_eq!(compared_at([(1, 0), (2, 0), (2, 1)], [(2, 1), (3, 9)], true), at(1));
        // The packet was retransmitted long after the first transmission.
        assert_eq!(compared_at([(1, 0), (2, 0), (2, 4000)], [(2, 4000)], true), Seam::New);
        // Without copies elsewhere, the same record in both files is an overlap.
        assert_eq!(compared([1, 2], [2, 3], false), at(1));
    }

    #[test]
    fn a_file_without_new_records_is_skipped() {
        assert_eq!(seam([1, 2, 3, 4], [3, 4]), Seam::NewFrom(u64::MAX));
        assert_eq!(seam([1, 2, 3, 4], [2, 3]), Seam::NewFrom(u64::MAX));
    }

    #[test]
    fn other_records_are_new() {
        assert_eq!(seam([1, 2, 3], [4, 5]), Seam::New);
        // In the middle of the earlier file, and not up to its end.
        assert_eq!(seam([1, 2, 3, 4], [2, 3, 9]), Seam::New);
    }

    #[test]
    fn more_records_than_are_compared_are_not_skipped() {
        let limit = MAX_RECORDS as u32;
        assert_eq!(seam(0..limit - 1, 0..=limit), at(u64::from(limit) - 1));
        assert_eq!(seam(0..limit, 0..=limit), Seam::TooLong);
    }
}
