//! Detects coarse timestamps: consecutive records with equal times.
//!
//! A capture that timestamps packets when it polls for them gives one timestamp to all that arrived
//! together, regardless of the resolution of its clock. The records of an input are counted in
//! parts that can be joined: the result does not depend on how the input was split.

/// Consecutive records with one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TimestampRun {
    time_ns: i64,
    records: u64,
    /// Bytes of the first record, and of the later ones.
    first_bytes: u64,
    later_bytes: u64,
}

impl TimestampRun {
    fn of((time_ns, bytes): (i64, u32)) -> Self {
        Self { time_ns, records: 1, first_bytes: bytes.into(), later_bytes: 0 }
    }

    fn and(self, later: &Self) -> Self {
        Self {
            records: self.records + later.records,
            later_bytes: self.later_bytes + later.first_bytes + later.later_bytes,
            ..self
        }
    }

    /// The run of the next record: continued, or a new one. A bit mask instead of a branch, because
    /// the branch would be unpredictable.
    #[inline]
    fn next(self, record: (i64, u32)) -> Self {
        let single = Self::of(record);
        let belongs = u64::from(self.time_ns == single.time_ns).wrapping_neg();
        Self {
            time_ns: single.time_ns,
            records: (self.records & belongs) + 1,
            first_bytes: self.first_bytes & belongs | single.first_bytes & !belongs,
            later_bytes: (self.later_bytes + single.first_bytes) & belongs,
        }
    }
}

/// Statistics of equal times in consecutive records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampStats {
    /// The first run, once a second one has started.
    first: Option<TimestampRun>,
    current: Option<TimestampRun>,
    /// Records with the time of the record before.
    same_time: u64,
    /// Largest number of records in a run, and of bytes after its first record; includes the
    /// current run.
    largest: (u64, u64),
}

impl TimestampStats {
    /// Adds the next records, as times and wire lengths.
    pub fn add(&mut self, records: impl IntoIterator<Item = (i64, u32)>) {
        let mut records = records.into_iter();
        // The first run is kept apart; the loop below needs the second one to have started.
        while self.first.is_none()
            && let Some(record) = records.next()
        {
            self.join(&Self { current: Some(TimestampRun::of(record)), ..Self::default() });
        }
        let Some(mut run) = self.current else { return };
        let (mut same_time, (mut most, mut most_bytes)) = (self.same_time, self.largest);
        for record in records {
            run = run.next(record);
            same_time += u64::from(run.records > 1);
            most = most.max(run.records);
            most_bytes = most_bytes.max(run.later_bytes);
        }
        self.current = Some(run);
        (self.same_time, self.largest) = (same_time, (most, most_bytes));
    }

    /// Adds the statistics of the records that follow.
    pub fn join(&mut self, later: &Self) {
        let Some(next) = later.first.or(later.current) else { return };
        let run = match self.current {
            Some(run) if run.time_ns == next.time_ns => {
                self.same_time += 1;
                run.and(&next)
            }
            _ => {
                self.close();
                next
            }
        };
        self.current = Some(run);
        self.note((run.records, run.later_bytes));
        if later.first.is_some() {
            self.close();
            self.current = later.current;
        }
        self.same_time += later.same_time;
        self.note(later.largest);
    }

    /// Statistics of the next file of the same stream, which may continue the current run. Counts
    /// start at 0.
    #[must_use]
    pub fn continued(&self) -> Self {
        Self { first: self.current, current: self.current, ..Self::default() }
    }

    /// Records with the time of the record before; most records with one time; most bytes after the
    /// first of such records.
    #[must_use]
    pub const fn same_time_counts(&self) -> (u64, u64, u64) {
        (self.same_time, self.largest.0, self.largest.1)
    }

    /// Ends the current run.
    fn close(&mut self) {
        if let Some(run) = self.current {
            self.first.get_or_insert(run);
        }
    }

    fn note(&mut self, (records, bytes): (u64, u64)) {
        self.largest = (self.largest.0.max(records), self.largest.1.max(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_depend_on_splits() {
        // Times with the lengths of their records: groups of 1, 3, 2, 4, 1.
        let records = [(1, 9), (2, 100), (2, 10), (2, 20), (3, 5), (3, 50), (4, 7), (4, 1), (4, 2), (4, 3), (5, 99)];
        let all = |records: &[(i64, u32)]| {
            let mut stats = TimestampStats::default();
            stats.add(records.iter().copied());
            stats
        };
        // 2 + 1 + 3 records repeat a time; at most four have one time; the 50 bytes after the 5 are
        // the most.
        assert_eq!(all(&records).same_time_counts(), (6, 4, 50));
        for one in 0..=records.len() {
            for other in one..=records.len() {
                let mut added = all(&records[..one]);
                added.add(records[one..other].iter().copied());
                added.add(records[other..].iter().copied());
                assert_eq!(added, all(&records), "{one}, {other}");
                let mut joined = all(&records[..one]);
                joined.join(&all(&records[one..other]));
                joined.join(&all(&records[other..]));
                assert_eq!(joined, all(&records), "{one}, {other}");
            }
        }
        assert_eq!(TimestampStats::default().same_time_counts(), (0, 0, 0));
    }

    #[test]
    fn a_run_continues_in_the_next_file() {
        let mut one = TimestampStats::default();
        one.add([(1, 9), (2, 100), (2, 10)]);
        let mut other = one.continued();
        other.add([(2, 20), (3, 5), (3, 50)]);
        assert_eq!((one.same_time_counts(), other.same_time_counts()), ((1, 2, 10), (2, 3, 50)));
    }
}
