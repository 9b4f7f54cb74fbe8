//! Counts how often each PSN of a connection was observed.
//!
//! PSNs come in long runs, so a ledger keeps runs of consecutive PSNs with equal counts. A stream
//! that is observed once is one run. At a mirror sink, where every packet appears twice, there are
//! two runs: PSNs observed twice, then PSNs whose mirror copy is still to come. Retransmissions,
//! losses and restarted READ requests split and join runs:
//!
//! ```text
//! seen 0 1 2 3 | 0 1 2   (mirror copies)  -> [0..3):2 [3..4):1
//! then 1 2 3     (go-back-N)              -> [0..1):2 [1..3):3 [3..4):2
//! ```

use crate::model::{MAX_GAP, PsnSteps};
use ibscope_parsers::Psn;
use smallvec::SmallVec;

/// Runs per ledger, including room for the three that one packet can add. A packet older than all
/// runs counts as new.
const MAX_RUNS: u8 = 128;
/// Runs per ACK ledger where a tracker has many connections. Coalesced ACKs leave one gap each, and
/// mirror copies lag behind by a few ACKs.
const FEW_RUNS: u8 = 32;
/// Number of connections of a tracker from which its ACK ledgers keep few runs.
const MANY_CONNECTIONS: usize = 1 << 8;

/// Observation counts per PSN, unwrapped to 64 bits.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// Nearly all connections have one or two runs; these are stored inline.
    runs: SmallVec<[PackedRun; 2]>,
    /// Largest unwrapped PSN observed.
    high: i64,
    /// Runs that this ledger keeps.
    room: u8,
    /// Runs were dropped.
    forgot_runs: bool,
    /// A number as old as the dropped runs was noted: it may have been observed before.
    observed_dropped_psn: bool,
    /// A dropped run was followed by a jump.
    forgot_jump: bool,
    /// Missing numbers between dropped runs.
    forgotten_gaps: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PsnRun {
    start: i64,
    /// One past the last.
    end: i64,
    count: u32,
}

/// A run in 8 bytes, because coalesced ACKs leave the full number of runs on each of many
/// connections.
///
/// `start` is the lower half of the run's start. All runs together reach back less than 2^32
/// numbers: their number is limited, and each gap is at most half the PSN range. The other field
/// holds, from the upper bits down, the form of the run, its count and its length. A PSN with very
/// many retransmissions is rarely in a long run, so a larger count leaves fewer bits to the length:
///
/// ```text
/// form   count            length
///    0   below 64         below 16 777 216    nearly all runs
///    1   below 1024       below 1 048 576
///    2   below 65 536     below 16 384
///    3   below 2^24       below 64
/// ```
#[derive(Clone, Copy, Debug)]
struct PackedRun {
    start: u32,
    count_and_length: u32,
}

/// Bits of a packed run that hold its count and its length.
const COUNT_AND_LENGTH_BITS: u32 = 30;
/// Bits of the length, by form.
const LENGTH_BITS: [u32; 4] = [24, 20, 14, 6];

impl PsnRun {
    /// Longest run of a small count; a longer one is kept as several.
    const MAX_LENGTH: i64 = Self::longest(1);
    const MAX_COUNT: u32 = (1 << (COUNT_AND_LENGTH_BITS - LENGTH_BITS[3])) - 1;

    /// The form of a packed run with this count.
    #[inline]
    const fn form(count: u32) -> usize {
        match count {
            0..0x40 => 0,
            0x40..0x400 => 1,
            0x400..0x1_0000 => 2,
            _ => 3,
        }
    }

    /// Longest run with this count.
    #[inline]
    const fn longest(count: u32) -> i64 {
        (1 << LENGTH_BITS[Self::form(count)]) - 1
    }

    /// True if the run is not too long for its count.
    const fn fits(&self) -> bool {
        self.end - self.start <= Self::longest(self.count)
    }

    /// True if this run and the next one can be one run.
    const fn joins(&self, next: &Self) -> bool {
        self.end == next.start && self.count == next.count && next.end - self.start <= Self::longest(self.count)
    }

    /// The count after one more observation. It saturates between the two largest values, so that
    /// its parity stays right.
    const fn next(count: u32) -> u32 {
        if count == Self::MAX_COUNT { count - 1 } else { count + 1 }
    }

    #[inline]
    const fn packed(self) -> PackedRun {
        let form = Self::form(self.count);
        let length = (self.end - self.start) as u32;
        let count_and_length = (form as u32) << COUNT_AND_LENGTH_BITS | self.count << LENGTH_BITS[form] | length;
        PackedRun { start: self.start as u32, count_and_length }
    }
}

impl PackedRun {
    /// True if the numbers of the run were observed once: nearly all runs.
    #[inline]
    const fn is_observed_once(self) -> bool {
        self.count_and_length >> LENGTH_BITS[0] == 1
    }

    /// Unpacks a run of a ledger whose largest number is `high`.
    #[inline]
    const fn run(self, high: i64) -> PsnRun {
        let start = high - (high as u32).wrapping_sub(self.start) as i64;
        let length_bits = LENGTH_BITS[(self.count_and_length >> COUNT_AND_LENGTH_BITS) as usize];
        let length = self.count_and_length & ((1 << length_bits) - 1);
        let count = (self.count_and_length & ((1 << COUNT_AND_LENGTH_BITS) - 1)) >> length_bits;
        PsnRun { start, end: start + length as i64, count }
    }
}

/// Number and occurrence of a noted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    /// Unwrapped PSN; the first PSN of a connection keeps its value.
    pub(super) number: i64,
    /// 1 for the first observation.
    pub(super) occurrence: u32,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            runs: SmallVec::new(),
            high: 0,
            room: MAX_RUNS,
            forgot_runs: false,
            observed_dropped_psn: false,
            forgot_jump: false,
            forgotten_gaps: 0,
        }
    }
}

impl Ledger {
    /// The largest count that is exact. Of a larger one, only the parity is right.
    pub(super) const LARGEST_EXACT_COUNT: u32 = PsnRun::MAX_COUNT - 2;

    /// A ledger of ACKs, for a connection of a tracker that has `others` already.
    pub(super) fn of_acks(others: usize) -> Self {
        Self { room: if others < MANY_CONNECTIONS { MAX_RUNS } else { FEW_RUNS }, ..Self::default() }
    }

    /// Number of runs, from the oldest, that are dropped at a time: several, so that drops are
    /// rare.
    const fn forgotten_runs(&self) -> usize {
        self.room as usize / 4
    }

    /// Notes a packet that takes `span` PSNs from `psn` on; more than one only for a READ request.
    #[inline]
    pub(super) fn note(&mut self, psn: Psn, span: u32) -> LedgerEntry {
        let number = if self.runs.is_empty() { i64::from(psn.value()) } else { self.number(psn) };
        // No message is longer than 2^31 bytes, and no request takes more PSNs than there are.
        let span = i64::from(span.max(1)).min(PsnRun::MAX_LENGTH);
        LedgerEntry { number, occurrence: self.add(number, number + span) }
    }

    /// Notes a 16-bit sequence number of a layer above (UCX over UD). Returns its occurrence.
    pub(super) fn note_u16(&mut self, sequence: u16) -> u32 {
        let number = if self.runs.is_empty() {
            i64::from(sequence)
        } else {
            self.high + i64::from(sequence.wrapping_sub(self.high as u16).cast_signed())
        };
        self.add(number, number + 1)
    }

    /// True if counts may be wrong: runs were dropped, or a count has reached its maximum.
    pub(super) fn overflowed(&self) -> bool {
        let is_inexact = |run: PsnRun| run.count > Self::LARGEST_EXACT_COUNT;
        self.forgot_runs || self.runs.iter().any(|run| is_inexact(run.run(self.high)))
    }

    /// True once a number was noted that dropped runs may have held.
    pub(super) const fn observed_dropped_psn(&self) -> bool {
        self.observed_dropped_psn
    }

    /// True if runs that reach above `done` will be dropped soon.
    #[inline]
    pub(super) fn is_nearly_full(&self, done: i64) -> bool {
        self.runs.len() >= usize::from(self.room) - self.forgotten_runs()
            && self.runs.get(self.forgotten_runs() - 1).is_some_and(|run| run.run(self.high).end > done)
    }

    /// Start of the middle run; the runs before it will be dropped first.
    pub(super) fn middle(&self) -> i64 {
        self.runs.get(self.runs.len() / 2).map_or(self.high, |run| run.run(self.high).start)
    }

    /// The unwrapped number of a PSN near the largest one.
    pub(super) const fn number(&self, psn: Psn) -> i64 {
        self.high + psn.since(Psn::new(self.high as u32)) as i64
    }

    /// Start of the last run: the numbers from there on were observed equally often.
    pub(super) fn last_run_start(&self) -> Option<i64> {
        self.runs.last().map(|run| run.run(self.high).start)
    }

    /// How often a number was observed; `None` if it is beyond the runs, so that nothing is known
    /// of it.
    pub(super) fn observations(&self, psn: Psn) -> Option<u32> {
        let number = self.number(psn);
        let mut runs = self.runs.iter().map(|run| run.run(self.high));
        let first = runs.clone().next()?.start;
        let found = runs.find(|run| (run.start..run.end).contains(&number)).map_or(0, |run| run.count);
        (first..=self.high).contains(&number).then_some(found)
    }

    /// How often a number was observed; `None` if it is older than all runs and runs were dropped.
    pub(super) fn count(&self, psn: Psn) -> Option<u32> {
        let number = self.number(psn);
        let found = self.runs.iter().rev().map(|run| run.run(self.high)).find(|run| run.start <= number);
        match found {
            Some(run) => Some(if number < run.end { run.count } else { 0 }),
            None => (!self.forgot_runs).then_some(0),
        }
    }

    /// The observed numbers as ascending ranges; neighbors may touch.
    pub(super) fn runs(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.runs.iter().map(|run| run.run(self.high)).map(|run| (run.start, run.end))
    }

    /// First number observed; `None` if it was dropped.
    pub(super) fn low(&self) -> Option<i64> {
        self.runs.first().filter(|_| !self.forgot_runs).map(|run| run.run(self.high).start)
    }

    /// Largest number observed.
    pub(super) fn high(&self) -> Option<i64> {
        (!self.runs.is_empty()).then_some(self.high)
    }

    /// Numbers between the first and the last that were not observed.
    pub(super) fn missing_numbers(&self) -> u64 {
        u64::from(self.forgotten_gaps) + self.gaps(self.runs.len())
    }

    /// Distances between observed numbers, in the runs that the ledger keeps.
    pub(super) fn steps(&self) -> PsnSteps {
        let mut steps = PsnSteps::default();
        self.runs().for_each(|(start, end)| steps.add(1, (end - start - 1).cast_unsigned()));
        let gaps = self.between(self.runs.len()).filter(|gap| *gap <= MAX_GAP);
        gaps.for_each(|gap| steps.add(gap.cast_unsigned() + 1, 1));
        steps
    }

    /// True if numbers jump by more than [`MAX_GAP`].
    pub(super) fn jumps(&self) -> bool {
        self.forgot_jump || self.between(self.runs.len()).any(|gap| gap > MAX_GAP)
    }

    /// Missing numbers between the first `runs` runs.
    fn gaps(&self, runs: usize) -> u64 {
        self.between(runs).filter(|gap| *gap <= MAX_GAP).map(i64::cast_unsigned).sum()
    }

    /// Distances between each of the first `runs` runs and the next.
    fn between(&self, runs: usize) -> impl Iterator<Item = i64> + '_ {
        let ends = self.runs().map(|(_, end)| end);
        ends.zip(self.runs().skip(1)).map(|(end, (start, _))| start - end).take(runs.saturating_sub(1))
    }

    #[inline]
    fn run(&self, index: usize) -> PsnRun {
        self.runs[index].run(self.high)
    }

    #[inline]
    fn add(&mut self, start: i64, end: i64) -> u32 {
        // Common case: the next packet of a stream that is observed once.
        if let Some(packed) = self.runs.last_mut().filter(|packed| packed.is_observed_once()) {
            let last = packed.run(self.high);
            let longer = PsnRun { end, ..last };
            if last.end == start && end - last.start <= PsnRun::MAX_LENGTH {
                *packed = longer.packed();
                self.high = end - 1;
                return 1;
            }
        }
        self.add_elsewhere(start, end)
    }

    #[inline(never)]
    fn add_elsewhere(&mut self, start: i64, end: i64) -> u32 {
        let is_behind = match self.runs.last() {
            Some(last) => last.run(self.high).end <= start,
            None => true,
        };
        // Packed runs are relative to the largest number, so it changes for all runs at once.
        self.high = if self.runs.is_empty() { end - 1 } else { self.high.max(end - 1) };
        if is_behind {
            // After a gap; coalesced ACKs leave many.
            self.bound();
            self.runs.push(PsnRun { start, end, count: 1 }.packed());
            return 1;
        }
        // Mirror copies and retransmissions are near the end, so the search starts there.
        let inside = (0..self.runs.len()).rev().find(|&index| self.run(index).start <= start);
        if let Some(index) = inside.filter(|&index| self.run(index).start == start && end <= self.run(index).end)
            && let Some(occurrence) = self.add_at_start(index, end)
        {
            return occurrence;
        }
        self.observed_dropped_psn |= inside.is_none() && self.forgot_runs;
        self.bound();
        let high = self.high;
        let from = self.runs.partition_point(|run| run.run(high).end <= start);
        let to = self.runs.partition_point(|run| run.run(high).start < end);
        self.splice(from, to, start, end)
    }

    /// Common case at a mirror sink: the next mirror copy takes the start of a run, or all of it,
    /// and joins the run before, or replaces its run.
    fn add_at_start(&mut self, index: usize, end: i64) -> Option<u32> {
        let run = self.run(index);
        let whole = run.end == end;
        let seen = PsnRun { end, count: PsnRun::next(run.count), ..run };
        let rest = PsnRun { start: end, ..run };
        let last = if whole { seen } else { rest };
        if index + 1 < self.runs.len() && last.joins(&self.run(index + 1)) {
            return None;
        }
        match index.checked_sub(1).map(|before| (before, self.run(before))).filter(|(_, run)| run.joins(&seen)) {
            Some((before, run)) => {
                self.runs[before] = PsnRun { end, ..run }.packed();
                if whole {
                    self.runs.remove(index);
                } else {
                    self.runs[index] = rest.packed();
                }
            }
            None if whole && seen.fits() => self.runs[index] = seen.packed(),
            None => return None,
        }
        Some(seen.count)
    }

    /// General case: counts [start, end) once more, where the runs `from..to` overlap it.
    fn splice(&mut self, from: usize, to: usize, start: i64, end: i64) -> u32 {
        let mut pieces: Vec<PsnRun> = Vec::with_capacity(to - from + 4);
        let mut occurrence = None;
        let mut at = start;
        let mut put = |run: PsnRun| {
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + PsnRun::longest(run.count));
                let piece = PsnRun { start, end, ..run };
                match pieces.last_mut() {
                    Some(last) if last.joins(&piece) => last.end = end,
                    _ => pieces.push(piece),
                }
                start = end;
            }
        };
        // Include the neighbors, so that equal counts join.
        let (first, last) = (from.saturating_sub(1), (to + 1).min(self.runs.len()));
        for run in self.runs.get(first..last).unwrap_or_default() {
            let run = run.run(self.high);
            if run.end <= start {
                put(run);
                continue;
            }
            let (inside_start, inside_end) = (run.start.clamp(start, end), run.end.clamp(start, end));
            if at < inside_start {
                put(PsnRun { start: at, end: inside_start, count: 1 });
                occurrence.get_or_insert(1);
                at = inside_start;
            }
            let count = PsnRun::next(run.count);
            put(PsnRun { start: run.start, end: inside_start, count: run.count });
            put(PsnRun { start: inside_start, end: inside_end, count });
            if inside_start < inside_end {
                occurrence.get_or_insert(count);
                at = inside_end;
            }
            put(PsnRun { start: inside_end.max(run.start), end: run.end, count: run.count });
        }
        if at < end {
            put(PsnRun { start: at, end, count: 1 });
            occurrence.get_or_insert(1);
        }
        self.runs.drain(first..last);
        self.runs.insert_many(first, pieces.into_iter().map(PsnRun::packed));
        // A long READ request that was retransmitted very often is split into many runs.
        if let Some(excess @ 1..) = self.runs.len().checked_sub(usize::from(self.room)) {
            self.forget(excess);
            self.runs.shrink_to_fit();
        }
        occurrence.unwrap_or(1)
    }

    /// A ledger that has observed the numbers below `length` so often.
    #[cfg(test)]
    pub(super) fn observed(length: i64, count: u32) -> Self {
        let mut ledger = Self { high: length - 1, ..Self::default() };
        let most = PsnRun::longest(count);
        let starts = (0..length).step_by(usize::try_from(most).unwrap_or(usize::MAX));
        ledger.runs.extend(starts.map(|start| PsnRun { start, end: length.min(start + most), count }.packed()));
        ledger
    }

    /// Makes room for the runs that one packet can add, so that the list never exceeds its limit.
    fn bound(&mut self) {
        if self.runs.len() + 3 > usize::from(self.room) {
            self.forget(self.forgotten_runs());
        }
    }

    /// Drops the oldest runs.
    fn forget(&mut self, forgotten: usize) {
        let gaps = u32::try_from(self.gaps(forgotten + 1)).unwrap_or(u32::MAX);
        self.forgot_runs = true;
        let has_jump = self.between(forgotten + 1).any(|gap| gap > MAX_GAP);
        self.forgot_jump |= has_jump;
        self.forgotten_gaps = self.forgotten_gaps.saturating_add(gaps);
        self.runs.drain(..forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn occurrences(psns: &[u32]) -> Vec<u32> {
        let mut ledger = Ledger::default();
        psns.iter().map(|&psn| ledger.note(Psn::new(psn), 1).occurrence).collect()
    }

    #[test]
    fn a_stream_observed_once_is_one_run() {
        let mut ledger = Ledger::default();
        for psn in 0xFF_FFF0..0x100_0010u32 {
            assert_eq!(ledger.note(Psn::new(psn), 1), LedgerEntry { number: i64::from(psn), occurrence: 1 });
        }
        assert_eq!(ledger.runs.len(), 1);
    }

    #[test]
    fn mirror_copies_may_lag() {
        assert_eq!(occurrences(&[0, 1, 0, 2, 3, 1, 2, 3]), [1, 1, 2, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn go_back_n_fills_a_gap() {
        // 2 was lost upstream of the capture; the sender goes back to it.
        assert_eq!(occurrences(&[0, 1, 3, 4, 2, 3, 4, 5]), [1, 1, 1, 1, 1, 2, 2, 1]);
    }

    #[test]
    fn a_read_restarted_in_the_middle_is_a_retransmission() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(Psn::new(10), 8).occurrence, 1);
        assert_eq!(ledger.note(Psn::new(18), 1).occurrence, 1);
        assert_eq!(ledger.note(Psn::new(14), 4).occurrence, 2);
        assert_eq!(ledger.note(Psn::new(19), 1).occurrence, 1);
    }

    /// Two and a half wrap-arounds of the PSN, each packet once and each packet twice: runs are
    /// split at the length limit and give the same counts.
    #[test]
    fn long_streams_and_many_observations() {
        let mut ledger = Ledger::default();
        let mut twice = Ledger::default();
        let step = 1000;
        for start in (0..5i64 << 23).step_by(step) {
            let (psn, span) = (Psn::new(start as u32), step as u32);
            assert_eq!(ledger.note(psn, span), LedgerEntry { number: start, occurrence: 1 });
            assert_eq!((twice.note(psn, span).occurrence, twice.note(psn, span).occurrence), (1, 2));
        }
        for ledger in [ledger, twice] {
            assert!((2..5).contains(&ledger.runs.len()) && ledger.missing_numbers() == 0 && !ledger.overflowed());
            assert_eq!(ledger.runs().next().map(|run| run.0), Some(0));
        }
        assert_eq!(occurrences(&vec![7; 70_000]), (1..=70_000).collect::<Vec<u32>>());
    }

    /// The largest exact count, and the next ones: their parity stays right, and they are reported.
    #[test]
    fn a_count_beyond_the_maximum_keeps_its_parity_and_is_reported() {
        let most = PsnRun::MAX_COUNT;
        let mut ledger = Ledger::observed(1, most - 3);
        assert_eq!((ledger.note(Psn::new(0), 1).occurrence, ledger.overflowed()), (most - 2, false));
        let beyond: Vec<u32> = (0..4).map(|_| ledger.note(Psn::new(0), 1).occurrence).collect();
        assert_eq!((beyond, ledger.overflowed()), (vec![most - 1, most, most - 1, most], true));
        assert_eq!(Ledger::LARGEST_EXACT_COUNT, most - 2);
        assert_eq!(ledger.count(Psn::new(0)), Some(most));
    }

    /// READ requests of these lengths, up to the counts at which the form of the run changes.
    #[test]
    fn long_runs_with_many_observations_are_split() {
        for (span, runs) in [(1, [1, 1]), (63, [1, 1]), (100, [1, 2]), (1000, [1, 16])] {
            let mut ledger = Ledger::default();
            for pass in 1..=66_000 {
                assert_eq!(ledger.note(Psn::new(9), span), LedgerEntry { number: 9, occurrence: pass });
                assert_eq!(ledger.runs.len(), runs[usize::from(pass >= 0x1_0000)], "{span}, {pass}");
            }
            assert_eq!(ledger.count(Psn::new(9 + span - 1)), Some(66_000));
            assert_eq!((ledger.missing_numbers(), ledger.overflowed()), (0, false));
            // The last packet alone once more.
            assert_eq!(ledger.note(Psn::new(9 + span - 1), 1).occurrence, 66_001);
            assert_eq!(ledger.runs().map(|(start, end)| end - start).sum::<i64>(), i64::from(span));
        }
    }

    /// One PSN more than fits into all runs of the largest form.
    #[test]
    fn a_read_that_is_split_into_too_many_runs_drops_some() {
        let room = i64::from(MAX_RUNS);
        let most = room * PsnRun::longest(0x1_0000);
        for (length, overflows) in [(most, false), (most + 1, true)] {
            let mut ledger = Ledger::observed(length, 0xFFFF);
            assert_eq!(ledger.note(Psn::new(0), length as u32).occurrence, 0x1_0000);
            assert_eq!((ledger.overflowed(), ledger.runs.len()), (overflows, usize::from(MAX_RUNS)));
            assert!(ledger.runs.capacity() <= usize::from(MAX_RUNS) && ledger.missing_numbers() == 0);
            assert_eq!(ledger.count(Psn::new(length as u32 - 1)), Some(0x1_0000));
        }
    }

    #[test]
    fn old_runs_are_dropped_and_reported() {
        let mut ledger = Ledger::default();
        let most = usize::from(MAX_RUNS);
        for index in 0..10 * u32::from(MAX_RUNS) {
            assert_eq!(ledger.note(Psn::new(index * 2), 1).occurrence, 1);
            // Mirror copies of all packets but each fifth split and join runs.
            let copies = if index % 5 == 0 { 1 } else { 2 };
            assert!(copies == 1 || ledger.note(Psn::new(index * 2), 1).occurrence == 2);
            assert!(ledger.runs.len() <= most);
        }
        assert!(ledger.overflowed());
        assert!(ledger.runs.capacity() <= most);
        assert_eq!(ledger.note(Psn::new(20 * u32::from(MAX_RUNS) - 2), 1).occurrence, 3);
        assert_eq!(ledger.note(Psn::new(0), 1).occurrence, 1);
    }

    #[test]
    fn one_gap_more_than_there_is_room_for_drops_runs() {
        // One packet may add three runs, and the limit leaves room for two more.
        let runs = u32::from(MAX_RUNS) - 2;
        let noted = |gaps: u32| {
            let mut ledger = Ledger::default();
            (0..gaps).for_each(|index| _ = ledger.note(Psn::new(index * 2), 1));
            ledger
        };
        let (at, beyond) = (noted(runs), noted(runs + 1));
        assert_eq!((at.overflowed(), beyond.overflowed()), (false, true));
        assert_eq!([at.missing_numbers(), beyond.missing_numbers()], [u64::from(runs) - 1, u64::from(runs)]);
    }

    #[test]
    fn a_run_of_maximum_length_is_followed_by_another_run() {
        let most = PsnRun::MAX_LENGTH as u32;
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(Psn::new(0), most).occurrence, 1);
        assert_eq!(ledger.runs.len(), 1);
        assert_eq!(ledger.note(Psn::new(most), 1), LedgerEntry { number: most.into(), occurrence: 1 });
        assert_eq!((ledger.runs.len(), ledger.missing_numbers()), (2, 0));
        assert_eq!(ledger.note(Psn::new(most), 1).occurrence, 2);
        assert_eq!(ledger.note(Psn::new(most - 1), 1).occurrence, 2);
        // A span beyond the maximum is shortened: no request has as many packets.
        assert_eq!(Ledger::default().note(Psn::new(0), u32::MAX).occurrence, 1);
    }

    /// A gap of the maximum size counts as missing packets. A longer one counts as a jump, whether
    /// its runs were dropped or not.
    #[test]
    fn a_jump_larger_than_the_largest_gap_is_reported() {
        for (gap, missing) in [(MAX_GAP, MAX_GAP as u64), (MAX_GAP + 1, 0)] {
            let mut ledger = Ledger::default();
            ledger.note(Psn::new(0), 1);
            ledger.note(Psn::new(1 + gap as u32), 1);
            assert_eq!((ledger.missing_numbers(), ledger.jumps()), (missing, gap > MAX_GAP));
            let start = 1 + gap as u32;
            let gaps = u32::from(MAX_RUNS);
            (1..=gaps).for_each(|index| _ = ledger.note(Psn::new(start + index * 2), 1));
            assert!(ledger.overflowed());
            assert_eq!((ledger.missing_numbers(), ledger.jumps()), (missing + u64::from(gaps), gap > MAX_GAP));
        }
    }

    /// Every fourth packet is acknowledged, and each ACK appears twice, with the mirror copy some
    /// ACKs later.
    #[test]
    fn ack_ledgers_of_many_connections_stay_small() {
        const LAG: u32 = 8;
        let mut ledgers = [0, MANY_CONNECTIONS].map(Ledger::of_acks);
        for index in 0..1000 {
            for ledger in &mut ledgers {
                assert_eq!(ledger.note(Psn::new(index * 4), 1).occurrence, 1);
                if let Some(copied) = index.checked_sub(LAG) {
                    assert_eq!(ledger.note(Psn::new(copied * 4), 1).occurrence, 2);
                }
            }
        }
        let [few, many] = &ledgers;
        assert!(few.runs.len() > usize::from(FEW_RUNS) && few.overflowed());
        assert!(many.runs.capacity() <= usize::from(FEW_RUNS) && many.overflowed());
        // Three numbers before each ACK but the first, whether its run was dropped or not.
        assert_eq!([few.missing_numbers(), many.missing_numbers()], [3 * 999; 2]);
    }

    proptest! {
        /// Compares the ledger with a map from number to count, for all spans and orders within the
        /// window, from counts on at which the form of a run changes soon.
        #[test]
        fn counts_like_a_map(
            steps in prop::collection::vec((0u32..60, 1u32..6), 1..200),
            before in prop::sample::select(vec![0, 0x3E, 0x3FE, 0xFFFE]),
        ) {
            let mut ledger = if before == 0 { Ledger::default() } else { Ledger::observed(70, before) };
            let mut map: HashMap<i64, u32> = HashMap::new();
            (0..70).filter(|_| before > 0).for_each(|number| _ = map.insert(number, before));
            for (psn, span) in steps {
                let entry = ledger.note(Psn::new(psn), span);
                let start = i64::from(psn);
                for number in start..start + i64::from(span) {
                    *map.entry(number).or_default() += 1;
                }
                prop_assert_eq!(entry, LedgerEntry { number: start, occurrence: map[&start] });
                let runs: Vec<PsnRun> = (0..ledger.runs.len()).map(|index| ledger.run(index)).collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start && !pair[0].joins(&pair[1])));
                prop_assert!(runs.iter().all(PsnRun::fits));
                prop_assert!(runs.iter().all(|run| (run.start..run.end).all(|n| map[&n] == run.count)));
            }
        }
    }
}
