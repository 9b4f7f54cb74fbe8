//! Which sequence numbers of a connection have been seen, and how often.
//!
//! Sequence numbers come as long runs, so the ledger holds runs of PSNs with an equal count. A stream seen once is one
//! run; at a mirror sink, where each packet stands twice, there are two: what was seen twice, and after it what still
//! waits for its copy. Repeats, losses and READ requests that start again in the middle of an earlier one split and join
//! runs, and none of them needs to be known beforehand:
//!
//! ```text
//! seen 0 1 2 3 | 0 1 2   (copies)      -> [0..3):2 [3..4):1
//! then 1 2 3   (go-back-N)             -> [0..1):2 [1..3):3 [3..4):2
//! ```

use ibscope_parsers::Psn;
use smallvec::SmallVec;

/// Most runs that are kept per ledger, with room for the three that one packet can add. A packet older than all of them counts
/// as new.
const MAX_RUNS: u8 = 128;
/// Most runs of a ledger of ACKs that many others stand beside: coalesced ones leave a hole each, and copies at a sink lag by a few.
const FEW_RUNS: u8 = 32;
/// Connections of a tracker that are many.
const MANY_CONNECTIONS: usize = 1 << 8;
/// Most numbers that are taken for one hole. A jump over more may be a new connection on an old queue pair number, or packets
/// that were lost: which of them is unknown.
pub(super) const MAX_HOLE: i64 = 1 << 16;

/// Counts per PSN, unwrapped from `BITS` bits to 64.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// Nearly all connections have one or two: these lie here, where they are found without another look into memory.
    runs: SmallVec<[Packed; 2]>,
    /// Largest unwrapped number seen.
    high: i64,
    /// Most runs that it keeps.
    room: u8,
    /// Runs were forgotten.
    forgets: bool,
    /// Behind one of them was a jump.
    forgets_jump: bool,
    /// Numbers between runs that were forgotten.
    forgotten_holes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: i64,
    /// One past the last.
    end: i64,
    count: u32,
}

/// A run as it is kept: ACKs that are sent for several packets leave as many runs as there may be, on each of many connections.
///
/// The lower half of its start; its length in 24 bits, its count in 8. All runs together reach less far back than the 32 bits of a start: as many as
/// there may be, and a hole in front of each, which is half as long at most as PSNs are many.
#[derive(Clone, Copy, Debug)]
struct Packed {
    start: u32,
    length_and_count: u32,
}

impl Run {
    const LENGTH_BITS: u32 = 24;
    /// Longest run. A longer one is kept as several.
    const MAX_LENGTH: i64 = (1 << Self::LENGTH_BITS) - 1;
    const MAX_COUNT: u32 = u8::MAX as u32;

    /// May be one with the run that follows it.
    const fn joins(&self, next: &Self) -> bool {
        self.end == next.start && self.count == next.count && next.end - self.start <= Self::MAX_LENGTH
    }

    /// One sight more. Whether it is odd or even is what matters of large numbers.
    const fn next(count: u32) -> u32 {
        if count == Self::MAX_COUNT { count - 1 } else { count + 1 }
    }

    #[inline]
    const fn packed(self) -> Packed {
        let length = (self.end - self.start) as u32;
        Packed { start: self.start as u32, length_and_count: self.count << Self::LENGTH_BITS | length }
    }
}

impl Packed {
    /// The run, of a ledger whose largest number this is.
    #[inline]
    const fn run(self, high: i64) -> Run {
        let start = high - (high as u32).wrapping_sub(self.start) as i64;
        let length = self.length_and_count & Run::MAX_LENGTH as u32;
        Run { start, end: start + length as i64, count: self.length_and_count >> Run::LENGTH_BITS }
    }
}

/// Where and how often a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The PSN without its wrap-around; the first one of a connection keeps its value.
    pub(super) number: i64,
    /// 1 for the first time.
    pub(super) occurrence: u32,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { runs: SmallVec::new(), high: 0, room: MAX_RUNS, forgets: false, forgets_jump: false, forgotten_holes: 0 }
    }
}

impl Ledger {
    /// A ledger of ACKs, of a connection that is the next after so many others.
    pub(super) fn of_acks(others: usize) -> Self {
        Self { room: if others < MANY_CONNECTIONS { MAX_RUNS } else { FEW_RUNS }, ..Self::default() }
    }

    /// Runs that are forgotten at once, the oldest first, so that this is seldom.
    const fn forgotten_runs(&self) -> usize {
        self.room as usize / 4
    }

    /// Notes a packet that takes `span` sequence numbers from `psn` on (more than one for READ requests).
    #[inline]
    pub(super) fn note(&mut self, psn: Psn, span: u32) -> Entry {
        let number = if self.runs.is_empty() {
            i64::from(psn.value())
        } else {
            self.high + i64::from(psn.since(Psn::new(self.high as u32)))
        };
        // No message is longer than 2^31 bytes, and no request takes more numbers than there are.
        let span = i64::from(span.max(1)).min(Run::MAX_LENGTH);
        Entry { number, occurrence: self.add(number, number + span) }
    }

    /// Notes a 16-bit number of a layer above (UCX over UD).
    pub(super) fn note_u16(&mut self, sequence: u16) -> u32 {
        let number = if self.runs.is_empty() {
            i64::from(sequence)
        } else {
            self.high + i64::from(sequence.wrapping_sub(self.high as u16).cast_signed())
        };
        self.add(number, number + 1)
    }

    /// True once runs had to be forgotten.
    pub(super) const fn overflowed(&self) -> bool {
        self.forgets
    }

    /// Runs above `done` may be forgotten soon.
    #[inline]
    pub(super) fn crowded(&self, done: i64) -> bool {
        self.runs.len() >= usize::from(self.room) - self.forgotten_runs()
            && self.runs.get(self.forgotten_runs() - 1).is_some_and(|run| run.run(self.high).end > done)
    }

    /// Start of a run in the middle of them; those before it are the next to be forgotten.
    pub(super) fn middle(&self) -> i64 {
        self.runs.get(self.runs.len() / 2).map_or(self.high, |run| run.run(self.high).start)
    }

    /// The numbers that were seen, as ranges in order; neighbours may touch.
    pub(super) fn runs(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.runs.iter().map(|run| run.run(self.high)).map(|run| (run.start, run.end))
    }

    /// The largest number seen.
    pub(super) fn high(&self) -> Option<i64> {
        (!self.runs.is_empty()).then_some(self.high)
    }

    /// Numbers between the first and the last that were not seen.
    pub(super) fn never_seen(&self) -> u64 {
        u64::from(self.forgotten_holes) + self.holes(self.runs.len())
    }

    /// True where numbers jump by more than is taken for one hole.
    pub(super) fn jumps(&self) -> bool {
        self.forgets_jump || self.between(self.runs.len()).any(|hole| hole > MAX_HOLE)
    }

    /// Numbers between the first runs.
    fn holes(&self, runs: usize) -> u64 {
        self.between(runs).filter(|hole| *hole <= MAX_HOLE).map(i64::cast_unsigned).sum()
    }

    /// How many numbers lie between each of the first runs and the next.
    fn between(&self, runs: usize) -> impl Iterator<Item = i64> + '_ {
        let ends = self.runs().map(|(_, end)| end);
        ends.zip(self.runs().skip(1)).map(|(end, (start, _))| start - end).take(runs.saturating_sub(1))
    }

    #[inline]
    fn run(&self, index: usize) -> Run {
        self.runs[index].run(self.high)
    }

    #[inline]
    fn add(&mut self, start: i64, end: i64) -> u32 {
        // The next packet of a stream that is seen once.
        if let Some(packed) = self.runs.last_mut() {
            let last = packed.run(self.high);
            let longer = Run { end, ..last };
            if last.end == start && last.count == 1 && end - last.start <= Run::MAX_LENGTH {
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
        // Runs are read by the largest number, so it changes for all of them at a time.
        self.high = if self.runs.is_empty() { end - 1 } else { self.high.max(end - 1) };
        if is_behind {
            // One after a hole: coalesced ACKs leave many.
            self.bound();
            self.runs.push(Run { start, end, count: 1 }.packed());
            return 1;
        }
        // Copies and repeats are near the end: the search starts there.
        let inside = (0..self.runs.len()).rev().find(|&index| self.run(index).start <= start);
        if let Some(index) = inside.filter(|&index| self.run(index).start == start && end <= self.run(index).end)
            && let Some(occurrence) = self.add_at_start(index, end)
        {
            return occurrence;
        }
        self.bound();
        let high = self.high;
        let from = self.runs.partition_point(|run| run.run(high).end <= start);
        let to = self.runs.partition_point(|run| run.run(high).start < end);
        self.splice(from, to, start, end)
    }

    /// The next copy at a sink: it takes the start of a run, or all of it, as the run before it did; or stands alone.
    fn add_at_start(&mut self, index: usize, end: i64) -> Option<u32> {
        let run = self.run(index);
        let whole = run.end == end;
        let seen = Run { end, count: Run::next(run.count), ..run };
        if whole && index + 1 < self.runs.len() && seen.joins(&self.run(index + 1)) {
            return None;
        }
        match index.checked_sub(1).map(|before| (before, self.run(before))).filter(|(_, run)| run.joins(&seen)) {
            Some((before, run)) => {
                self.runs[before] = Run { end, ..run }.packed();
                if whole {
                    self.runs.remove(index);
                } else {
                    self.runs[index] = Run { start: end, ..self.run(index) }.packed();
                }
            }
            None if whole => self.runs[index] = seen.packed(),
            None => return None,
        }
        Some(seen.count)
    }

    /// The general case: counts [start, end) once more, where the runs `from..to` overlap it.
    fn splice(&mut self, from: usize, to: usize, start: i64, end: i64) -> u32 {
        let mut pieces: Vec<Run> = Vec::with_capacity(to - from + 4);
        let mut occurrence = None;
        let mut at = start;
        let mut put = |run: Run| {
            if run.start < run.end {
                match pieces.last_mut() {
                    Some(last) if last.joins(&run) => last.end = run.end,
                    _ => pieces.push(run),
                }
            }
        };
        // The neighbours come along so that equal counts join.
        let (first, last) = (from.saturating_sub(1), (to + 1).min(self.runs.len()));
        for run in self.runs.get(first..last).unwrap_or_default() {
            let run = run.run(self.high);
            if run.end <= start {
                put(run);
                continue;
            }
            let (inside_start, inside_end) = (run.start.clamp(start, end), run.end.clamp(start, end));
            if at < inside_start {
                put(Run { start: at, end: inside_start, count: 1 });
                occurrence.get_or_insert(1);
                at = inside_start;
            }
            let count = Run::next(run.count);
            put(Run { start: run.start, end: inside_start, count: run.count });
            put(Run { start: inside_start, end: inside_end, count });
            if inside_start < inside_end {
                occurrence.get_or_insert(count);
                at = inside_end;
            }
            put(Run { start: inside_end.max(run.start), end: run.end, count: run.count });
        }
        if at < end {
            put(Run { start: at, end, count: 1 });
            occurrence.get_or_insert(1);
        }
        self.runs.drain(first..last);
        self.runs.insert_many(first, pieces.into_iter().map(Run::packed));
        occurrence.unwrap_or(1)
    }

    /// Makes room for the runs that one packet can add, so that the list never grows beyond its bound.
    fn bound(&mut self) {
        if self.runs.len() + 3 > usize::from(self.room) {
            let forgotten = self.forgotten_runs();
            let holes = u32::try_from(self.holes(forgotten + 1)).unwrap_or(u32::MAX);
            self.forgets = true;
            let has_jump = self.between(forgotten + 1).any(|hole| hole > MAX_HOLE);
            self.forgets_jump |= has_jump;
            self.forgotten_holes = self.forgotten_holes.saturating_add(holes);
            self.runs.drain(..forgotten);
        }
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
    fn a_stream_seen_once_is_one_run() {
        let mut ledger = Ledger::default();
        for psn in 0xFF_FFF0..0x100_0010u32 {
            assert_eq!(ledger.note(Psn::new(psn), 1), Entry { number: i64::from(psn), occurrence: 1 });
        }
        assert_eq!(ledger.runs.len(), 1);
    }

    #[test]
    fn copies_may_lag() {
        assert_eq!(occurrences(&[0, 1, 0, 2, 3, 1, 2, 3]), [1, 1, 2, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn go_back_n_and_a_hole_that_is_filled() {
        // 2 was lost before the capture; the sender goes back to it.
        assert_eq!(occurrences(&[0, 1, 3, 4, 2, 3, 4, 5]), [1, 1, 1, 1, 1, 2, 2, 1]);
    }

    #[test]
    fn a_read_that_starts_again_in_the_middle_is_a_repeat() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(Psn::new(10), 8).occurrence, 1);
        assert_eq!(ledger.note(Psn::new(18), 1).occurrence, 1);
        assert_eq!(ledger.note(Psn::new(14), 4).occurrence, 2);
        assert_eq!(ledger.note(Psn::new(19), 1).occurrence, 1);
    }

    /// Two wraps and a half of the PSN, as one stream and each packet twice: a run is kept in parts, and what it says is the same.
    #[test]
    fn long_streams_and_many_sights() {
        let mut ledger = Ledger::default();
        let mut twice = Ledger::default();
        let step = 1000;
        for start in (0..5i64 << 23).step_by(step) {
            let (psn, span) = (Psn::new(start as u32), step as u32);
            assert_eq!(ledger.note(psn, span), Entry { number: start, occurrence: 1 });
            assert_eq!((twice.note(psn, span).occurrence, twice.note(psn, span).occurrence), (1, 2));
        }
        for ledger in [ledger, twice] {
            assert!((2..5).contains(&ledger.runs.len()) && ledger.never_seen() == 0 && !ledger.overflowed());
            assert_eq!(ledger.runs().next().map(|run| run.0), Some(0));
        }
        let sights = occurrences(&[7; 1000]);
        assert_eq!(sights[..255], (1..=255).collect::<Vec<u32>>());
        assert!(sights.iter().enumerate().all(|(index, sight)| *sight > 2 || index < 2));
        assert!(sights.iter().enumerate().all(|(index, sight)| sight % 2 == (index as u32 + 1) % 2));
    }

    #[test]
    fn old_runs_are_forgotten_and_said() {
        let mut ledger = Ledger::default();
        let most = usize::from(MAX_RUNS);
        for index in 0..10 * u32::from(MAX_RUNS) {
            assert_eq!(ledger.note(Psn::new(index * 2), 1).occurrence, 1);
            // Copies of every packet but each fifth split and join runs.
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
    fn a_hole_more_than_there_is_room_for_forgets() {
        // A packet may add three runs, and there is room for these.
        let runs = u32::from(MAX_RUNS) - 2;
        let noted = |holes: u32| {
            let mut ledger = Ledger::default();
            (0..holes).for_each(|index| _ = ledger.note(Psn::new(index * 2), 1));
            ledger
        };
        let (at, beyond) = (noted(runs), noted(runs + 1));
        assert_eq!((at.overflowed(), beyond.overflowed()), (false, true));
        assert_eq!([at.never_seen(), beyond.never_seen()], [u64::from(runs) - 1, u64::from(runs)]);
    }

    #[test]
    fn the_longest_run_and_the_next_packet_are_both_known() {
        let most = Run::MAX_LENGTH as u32;
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(Psn::new(0), most).occurrence, 1);
        assert_eq!(ledger.runs.len(), 1);
        assert_eq!(ledger.note(Psn::new(most), 1), Entry { number: most.into(), occurrence: 1 });
        assert_eq!((ledger.runs.len(), ledger.never_seen()), (2, 0));
        assert_eq!(ledger.note(Psn::new(most), 1).occurrence, 2);
        assert_eq!(ledger.note(Psn::new(most - 1), 1).occurrence, 2);
        // A span beyond the largest is cut: no request has as many packets.
        assert_eq!(Ledger::default().note(Psn::new(0), u32::MAX).occurrence, 1);
    }

    /// A hole of the largest size is missing packets, and of one more it is unknown what it is: said, whether it is forgotten or not.
    #[test]
    fn a_jump_over_more_than_a_hole_is_said() {
        for (hole, missing) in [(MAX_HOLE, MAX_HOLE as u64), (MAX_HOLE + 1, 0)] {
            let mut ledger = Ledger::default();
            ledger.note(Psn::new(0), 1);
            ledger.note(Psn::new(1 + hole as u32), 1);
            assert_eq!((ledger.never_seen(), ledger.jumps()), (missing, hole > MAX_HOLE));
            let start = 1 + hole as u32;
            let holes = u32::from(MAX_RUNS);
            (1..=holes).for_each(|index| _ = ledger.note(Psn::new(start + index * 2), 1));
            assert!(ledger.overflowed());
            assert_eq!((ledger.never_seen(), ledger.jumps()), (missing + u64::from(holes), hole > MAX_HOLE));
        }
    }

    /// Every fourth packet is acknowledged, and each ACK stands twice, the copies some ACKs later.
    #[test]
    fn acks_of_many_connections_take_little_room() {
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
        // Three numbers before each ACK but the first, whether its run was forgotten or not.
        assert_eq!([few.never_seen(), many.never_seen()], [3 * 999; 2]);
    }

    proptest! {
        /// Against a map from number to count, for spans and orders of every kind within the window.
        #[test]
        fn counts_like_a_map(steps in prop::collection::vec((0u32..60, 1u32..6), 1..200)) {
            let mut ledger = Ledger::default();
            let mut map: HashMap<i64, u32> = HashMap::new();
            for (psn, span) in steps {
                let entry = ledger.note(Psn::new(psn), span);
                let start = i64::from(psn);
                for number in start..start + i64::from(span) {
                    *map.entry(number).or_default() += 1;
                }
                prop_assert_eq!(entry, Entry { number: start, occurrence: map[&start] });
                let runs: Vec<Run> = (0..ledger.runs.len()).map(|index| ledger.run(index)).collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start
                    && (pair[0].end < pair[1].start || pair[0].count != pair[1].count)));
                prop_assert!(runs.iter().all(|run| (run.start..run.end).all(|n| map[&n] == run.count)));
            }
        }
    }
}
