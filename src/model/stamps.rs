//! How fine time stamps are: records that carry the same one.
//!
//! A capture that stamps packets when it polls for them gives one stamp to all that came together, whatever its clock can resolve. So the records
//! of an input are followed in their order, in parts that join: what comes out does not depend on where they were cut.

/// Records in a row with one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    time_ns: i64,
    records: u64,
    /// Bytes of the first record, and of those behind it.
    first_bytes: u64,
    behind_bytes: u64,
}

impl Run {
    fn of((time_ns, bytes): (i64, u32)) -> Self {
        Self { time_ns, records: 1, first_bytes: bytes.into(), behind_bytes: 0 }
    }

    fn and(self, later: &Self) -> Self {
        Self {
            records: self.records + later.records,
            behind_bytes: self.behind_bytes + later.first_bytes + later.behind_bytes,
            ..self
        }
    }

    /// The next record belongs to it, or begins another one: all bits where it does, or none, instead of a branch, since it cannot be foretold.
    #[inline]
    fn next(self, record: (i64, u32)) -> Self {
        let begun = Self::of(record);
        let belongs = u64::from(self.time_ns == begun.time_ns).wrapping_neg();
        Self {
            time_ns: begun.time_ns,
            records: (self.records & belongs) + 1,
            first_bytes: self.first_bytes & belongs | begun.first_bytes & !belongs,
            behind_bytes: (self.behind_bytes + begun.first_bytes) & belongs,
        }
    }
}

/// The stamps of consecutive records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The first run, once another one has begun.
    first: Option<Run>,
    current: Option<Run>,
    /// Records with the time of the one before.
    repeated: u64,
    /// Most records, and most bytes behind the first, of a run; of the current one so far.
    largest: (u64, u64),
}

impl Stamps {
    /// The next records: times, and lengths on the wire.
    pub fn add(&mut self, records: impl IntoIterator<Item = (i64, u32)>) {
        let mut records = records.into_iter();
        // The first run has a place of its own: with the second one begins what nearly all records are.
        while self.first.is_none()
            && let Some(record) = records.next()
        {
            self.join(&Self { current: Some(Run::of(record)), ..Self::default() });
        }
        let Some(mut run) = self.current else { return };
        let (mut repeated, (mut most, mut most_bytes)) = (self.repeated, self.largest);
        for record in records {
            run = run.next(record);
            repeated += u64::from(run.records > 1);
            most = most.max(run.records);
            most_bytes = most_bytes.max(run.behind_bytes);
        }
        self.current = Some(run);
        (self.repeated, self.largest) = (repeated, (most, most_bytes));
    }

    /// Those that follow in the same input.
    pub fn join(&mut self, later: &Self) {
        let Some(next) = later.first.or(later.current) else { return };
        let run = match self.current {
            Some(run) if run.time_ns == next.time_ns => {
                self.repeated += 1;
                run.and(&next)
            }
            _ => {
                self.close();
                next
            }
        };
        self.current = Some(run);
        self.note((run.records, run.behind_bytes));
        if later.first.is_some() {
            self.close();
            self.current = later.current;
        }
        self.repeated += later.repeated;
        self.note(later.largest);
    }

    /// Records with the time of the one before; most records with one time, and most bytes that such records have behind the first.
    #[must_use]
    pub const fn together(&self) -> (u64, u64, u64) {
        (self.repeated, self.largest.0, self.largest.1)
    }

    /// Another run begins.
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
    fn groups_do_not_depend_on_cuts() {
        // Times with the lengths of their records: groups of 1, 3, 2, 4, 1.
        let records = [(1, 9), (2, 100), (2, 10), (2, 20), (3, 5), (3, 50), (4, 7), (4, 1), (4, 2), (4, 3), (5, 99)];
        let all = |records: &[(i64, u32)]| {
            let mut stamps = Stamps::default();
            stamps.add(records.iter().copied());
            stamps
        };
        // 2 + 1 + 3 repeat a time; four at most; the 50 bytes behind the 5 are the most.
        assert_eq!(all(&records).together(), (6, 4, 50));
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
        assert_eq!(Stamps::default().together(), (0, 0, 0));
    }
}
