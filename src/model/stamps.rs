//! How fine time stamps are: records that carry the same one.
//!
//! A capture that stamps packets when it polls for them gives one stamp to all that came together, whatever its clock can resolve. So the records
//! of an input are followed in their order, in parts that join: what comes out does not depend on where they were cut.

/// Records in a row with one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    time_ns: i64,
    records: u64,
    bytes: u64,
    first_bytes: u64,
}

impl Run {
    fn and(self, later: &Self) -> Self {
        Self { records: self.records + later.records, bytes: self.bytes + later.bytes, ..self }
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
    /// Most records, and most bytes behind the first, of a run that has ended.
    largest: (u64, u64),
}

impl Stamps {
    /// The next record, with its length on the wire.
    #[inline]
    pub fn add(&mut self, time_ns: i64, bytes: u32) {
        let bytes = u64::from(bytes);
        let next = Run { time_ns, records: 1, bytes, first_bytes: bytes };
        match &mut self.current {
            Some(run) if run.time_ns == time_ns => {
                run.records += 1;
                run.bytes += bytes;
                self.repeated += 1;
            }
            // Nearly all have a time of their own: a run of one that is not the first has nothing to leave.
            Some(run) if run.records == 1 && self.first.is_some() => *run = next,
            _ => {
                self.close();
                self.current = Some(next);
            }
        }
    }

    /// Those that follow in the same input.
    pub fn join(&mut self, later: &Self) {
        let Some(next) = later.first.or(later.current) else { return };
        match &mut self.current {
            Some(run) if run.time_ns == next.time_ns => {
                *run = run.and(&next);
                self.repeated += 1;
            }
            _ => {
                self.close();
                self.current = Some(next);
            }
        }
        if later.first.is_some() {
            self.close();
            self.current = later.current;
        }
        self.repeated += later.repeated;
        self.note(later.largest);
    }

    /// Records with the time of the one before; most records with one time, and most bytes that such records have behind the first.
    #[must_use]
    pub fn together(mut self) -> (u64, u64, u64) {
        self.close();
        (self.repeated, self.largest.0, self.largest.1)
    }

    fn close(&mut self) {
        if let Some(run) = self.current.take() {
            self.first.get_or_insert(run);
            self.note((run.records, run.bytes - run.first_bytes));
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
            records.iter().for_each(|(time_ns, bytes)| stamps.add(*time_ns, *bytes));
            stamps
        };
        // 2 + 1 + 3 repeat a time; four at most; the 50 bytes behind the 5 are the most.
        assert_eq!(all(&records).together(), (6, 4, 50));
        for one in 0..=records.len() {
            for other in one..=records.len() {
                let mut joined = all(&records[..one]);
                joined.join(&all(&records[one..other]));
                joined.join(&all(&records[other..]));
                assert_eq!(joined.together(), (6, 4, 50), "{one}, {other}");
            }
        }
        assert_eq!(Stamps::default().together(), (0, 0, 0));
    }
}
