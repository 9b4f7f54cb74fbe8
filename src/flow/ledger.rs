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

/// Most runs that are kept per ledger. A packet older than all of them counts as new.
const MAX_RUNS: usize = 128;
/// Runs that are forgotten at once, the oldest first, so that this is seldom.
const FORGOTTEN_RUNS: usize = 32;
/// Runs from which on the ledger is to be looked through before it forgets.
const CROWDED_RUNS: usize = 96;
/// Most numbers that are taken for one hole. A jump over more is a new connection on an old queue pair number.
pub(super) const MAX_HOLE: i64 = 1 << 16;

/// Counts per PSN, unwrapped from `BITS` bits to 64.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Nearly all connections have one or two: these lie here, where they are found without another look into memory.
    runs: SmallVec<[Run; 2]>,
    /// Largest unwrapped number seen.
    high: i64,
    overflowed: bool,
    /// Numbers between runs that were forgotten.
    forgotten_holes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: i64,
    /// One past the last.
    end: i64,
    count: u32,
}

/// Where and how often a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The PSN without its wrap-around; the first one of a connection keeps its value.
    pub(super) number: i64,
    /// 1 for the first time.
    pub(super) occurrence: u32,
}

impl Ledger {
    /// Notes a packet that takes `span` sequence numbers from `psn` on (more than one for READ requests).
    pub(super) fn note(&mut self, psn: Psn, span: u32) -> Entry {
        let number = match self.runs.last() {
            None => i64::from(psn.value()),
            Some(_) => self.high + i64::from(psn.since(Psn::new(self.high as u32))),
        };
        Entry { number, occurrence: self.add(number, number + i64::from(span.max(1))) }
    }

    /// Notes a 16-bit number of a layer above (UCX over UD).
    pub(super) fn note_u16(&mut self, sequence: u16) -> u32 {
        let number = match self.runs.last() {
            None => i64::from(sequence),
            Some(_) => self.high + i64::from(sequence.wrapping_sub(self.high as u16).cast_signed()),
        };
        self.add(number, number + 1)
    }

    /// True once runs had to be forgotten.
    pub(super) const fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Runs above `done` may be forgotten soon.
    #[inline]
    pub(super) fn crowded(&self, done: i64) -> bool {
        self.runs.len() >= CROWDED_RUNS && self.runs.get(FORGOTTEN_RUNS - 1).is_some_and(|run| run.end > done)
    }

    /// Start of a run in the middle of them; those before it are the next to be forgotten.
    pub(super) fn middle(&self) -> i64 {
        self.runs.get(self.runs.len() / 2).map_or(self.high, |run| run.start)
    }

    /// The numbers that were seen, as ranges in order; neighbours may touch.
    pub(super) fn runs(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.runs.iter().map(|run| (run.start, run.end))
    }

    /// The largest number seen.
    pub(super) fn high(&self) -> Option<i64> {
        (!self.runs.is_empty()).then_some(self.high)
    }

    /// Numbers between the first and the last that were not seen.
    pub(super) fn never_seen(&self) -> u64 {
        self.forgotten_holes + holes(&self.runs)
    }

    fn add(&mut self, start: i64, end: i64) -> u32 {
        self.high = self.high.max(end - 1);
        // The next packet of a stream that is seen once, or one after a hole (coalesced ACKs leave many).
        match self.runs.last_mut() {
            Some(last) if last.end == start && last.count == 1 => {
                last.end = end;
                return 1;
            }
            Some(last) if last.end > start => {}
            _ => {
                self.bound();
                self.runs.push(Run { start, end, count: 1 });
                return 1;
            }
        }
        // Copies and repeats are near the end: the search starts there.
        let inside = self.runs.iter().rposition(|run| run.start <= start);
        if let Some(index) = inside.filter(|&index| self.runs[index].start == start && end <= self.runs[index].end)
            && let Some(occurrence) = self.add_at_start(index, end)
        {
            return occurrence;
        }
        self.bound();
        let from = self.runs.partition_point(|run| run.end <= start);
        let to = self.runs.partition_point(|run| run.start < end);
        self.splice(from, to, start, end)
    }

    /// The next copy at a sink: it takes the start of a run, or all of it, as the run before it did; or stands alone.
    fn add_at_start(&mut self, index: usize, end: i64) -> Option<u32> {
        let run = self.runs[index];
        let whole = run.end == end;
        let count = run.count + 1;
        if whole && self.runs.get(index + 1).is_some_and(|next| next.start == end && next.count == count) {
            return None;
        }
        let joins = |before: &Run| before.end == run.start && before.count == count;
        match index.checked_sub(1).map(|before| &mut self.runs[before]).filter(|before| joins(before)) {
            Some(before) => {
                before.end = end;
                if whole {
                    self.runs.remove(index);
                } else {
                    self.runs[index].start = end;
                }
            }
            None if whole => self.runs[index].count = count,
            None => return None,
        }
        Some(count)
    }

    /// The general case: counts [start, end) once more, where the runs `from..to` overlap it.
    fn splice(&mut self, from: usize, to: usize, start: i64, end: i64) -> u32 {
        let mut pieces: Vec<Run> = Vec::with_capacity(to - from + 4);
        let mut occurrence = None;
        let mut at = start;
        let mut put = |run: Run| {
            if run.start < run.end {
                match pieces.last_mut() {
                    Some(last) if last.end == run.start && last.count == run.count => last.end = run.end,
                    _ => pieces.push(run),
                }
            }
        };
        // The neighbours come along so that equal counts join.
        let (first, last) = (from.saturating_sub(1), (to + 1).min(self.runs.len()));
        for run in self.runs.get(first..last).unwrap_or_default() {
            if run.end <= start {
                put(*run);
                continue;
            }
            let (inside_start, inside_end) = (run.start.clamp(start, end), run.end.clamp(start, end));
            if at < inside_start {
                put(Run { start: at, end: inside_start, count: 1 });
                occurrence.get_or_insert(1);
                at = inside_start;
            }
            put(Run { start: run.start, end: inside_start, count: run.count });
            put(Run { start: inside_start, end: inside_end, count: run.count + 1 });
            if inside_start < inside_end {
                occurrence.get_or_insert(run.count + 1);
                at = inside_end;
            }
            put(Run { start: inside_end.max(run.start), end: run.end, count: run.count });
        }
        if at < end {
            put(Run { start: at, end, count: 1 });
            occurrence.get_or_insert(1);
        }
        self.runs.drain(first..last);
        self.runs.insert_many(first, pieces);
        occurrence.unwrap_or(1)
    }

    /// Makes room for the runs that one packet can add, so that the list never grows beyond its bound.
    fn bound(&mut self) {
        if self.runs.len() + 3 > MAX_RUNS {
            self.forgotten_holes += holes(self.runs.get(..=FORGOTTEN_RUNS).unwrap_or_default());
            self.runs.drain(..FORGOTTEN_RUNS);
            self.overflowed = true;
        }
    }
}

/// Numbers between runs.
fn holes(runs: &[Run]) -> u64 {
    let between = runs.windows(2).map(|pair| pair[1].start - pair[0].end);
    between.filter(|hole| *hole <= MAX_HOLE).map(i64::cast_unsigned).sum()
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

    #[test]
    fn old_runs_are_forgotten_and_said() {
        let mut ledger = Ledger::default();
        for index in 0..10 * MAX_RUNS as u32 {
            assert_eq!(ledger.note(Psn::new(index * 2), 1).occurrence, 1);
            // Copies of every packet but each fifth split and join runs.
            let copies = if index % 5 == 0 { 1 } else { 2 };
            assert!(copies == 1 || ledger.note(Psn::new(index * 2), 1).occurrence == 2);
            assert!(ledger.runs.len() <= MAX_RUNS);
        }
        assert!(ledger.overflowed());
        assert!(ledger.runs.capacity() <= MAX_RUNS);
        assert_eq!(ledger.note(Psn::new(20 * MAX_RUNS as u32 - 2), 1).occurrence, 3);
        assert_eq!(ledger.note(Psn::new(0), 1).occurrence, 1);
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
                prop_assert!(ledger.runs.windows(2).all(|pair| pair[0].end <= pair[1].start
                    && (pair[0].end < pair[1].start || pair[0].count != pair[1].count)));
                prop_assert!(ledger.runs.iter().all(|run| (run.start..run.end).all(|n| map[&n] == run.count)));
            }
        }
    }
}
