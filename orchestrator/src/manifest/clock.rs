//! The offset and drift of a node's clock against the orchestrator's clock, from requests for the
//! node's time.

use serde::{Deserialize, Serialize};

/// A larger drift is not real: the two exchanges are too close to each other.
const MAX_DRIFT_PPM: f64 = 500.0;

/// Offset and drift of the clock of a capture's timestamps against the run's reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureClock {
    /// Time on the capture's clock at which `offset_ns` applies, in nanoseconds since the epoch.
    pub at_ns: i64,
    /// Nanoseconds by which the capture's clock was ahead of the reference clock at `at_ns`.
    pub offset_ns: i64,
    /// Drift: how much faster the capture's clock runs, in parts per million.
    #[serde(default)]
    pub drift_ppm: f64,
    /// Largest error of the offset, in nanoseconds.
    #[serde(default)]
    pub uncertainty_ns: u64,
}

/// A request for a node's time. All times are in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockExchange {
    /// Time of the request, by the reference clock.
    pub asked_ns: i64,
    /// Time that the node answered.
    pub said_ns: i64,
    /// Time at which the response arrived, by the reference clock.
    pub answered_ns: i64,
}

impl ClockExchange {
    /// Offset of the node's clock, and the largest error of the offset. The node read its clock at
    /// an unknown time between request and answer.
    fn offset_ns(self) -> (i64, u64) {
        let took = self.answered_ns.saturating_sub(self.asked_ns).max(0);
        let half = took / 2;
        let offset = self.said_ns.saturating_sub(self.asked_ns.saturating_add(half));
        (offset, took.unsigned_abs().div_ceil(2))
    }
}

impl CaptureClock {
    /// The clock from exchanges before and after the capture; `None` without any exchange. The
    /// quickest exchange of each side counts, and times in between are interpolated. If an offset
    /// of 0 is within the uncertainty of both, there is none.
    pub fn from_exchanges(before: &[ClockExchange], after: &[ClockExchange]) -> Option<Self> {
        let quickest = |answers: &[ClockExchange]| answers.iter().copied().min_by_key(|answer| answer.offset_ns().1);
        let ends = [quickest(before), quickest(after)];
        let [first, last] = match ends {
            [Some(first), Some(last)] => [first, last],
            [Some(one), None] | [None, Some(one)] => [one, one],
            [None, None] => return None,
        };
        let ((early, early_room), (late, late_room)) = (first.offset_ns(), last.offset_ns());
        let span = last.said_ns.saturating_sub(first.said_ns);
        let change = late.saturating_sub(early);
        let drift_ppm = if span > 0 { change as f64 / span as f64 * 1e6 } else { 0.0 };
        let room = early_room.max(late_room);
        // The start of a shell on the node takes most of an exchange, on one way only. If 0 is
        // possible, synchronous clocks are more likely than an offset of just half that time.
        if early.unsigned_abs() <= early_room && late.unsigned_abs() <= late_room {
            let uncertainty_ns = early.unsigned_abs().saturating_add(early_room);
            let uncertainty_ns = uncertainty_ns.max(late.unsigned_abs().saturating_add(late_room));
            return Some(Self { at_ns: first.said_ns, offset_ns: 0, drift_ppm: 0.0, uncertainty_ns });
        }
        if drift_ppm.abs() > MAX_DRIFT_PPM || span <= 0 {
            // The middle between the two offsets, with an uncertainty that covers both.
            let offset_ns = early.saturating_add(change / 2);
            let uncertainty_ns = room.saturating_add(change.unsigned_abs().div_ceil(2));
            return Some(Self { at_ns: first.said_ns, offset_ns, drift_ppm: 0.0, uncertainty_ns });
        }
        Some(Self { at_ns: first.said_ns, offset_ns: early, drift_ppm, uncertainty_ns: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is 5 ms ahead and gains 20 us per second is read twice, 100 s apart. The delays
    /// of requests and answers differ.
    #[test]
    fn the_truth_is_within_the_uncertainty() {
        let theirs = |reference: i64| reference + 5_000_000 + (reference - 1_000_000_000) / 50_000;
        let ask = |at: i64, there: i64, back: i64| ClockExchange {
            asked_ns: at,
            said_ns: theirs(at + there),
            answered_ns: at + there + back,
        };
        let before = [ask(1_000_000_000, 9_000_000, 1_000_000), ask(1_100_000_000, 300_000, 100_000)];
        let after = [ask(101_000_000_000, 50_000, 450_000)];
        let clock = CaptureClock::from_exchanges(&before, &after).unwrap();
        assert_eq!(clock.uncertainty_ns, 250_000, "half the duration of the slower one of the two quickest exchanges");
        for reference in (1_100_000_000..101_000_000_000).step_by(1_000_000_007) {
            let own = theirs(reference);
            let found = own - (clock.offset_ns as f64 + (own - clock.at_ns) as f64 * clock.drift_ppm * 1e-6) as i64;
            // The drift is per second of the node's clock, not of the reference clock: 20 ppm of 20
            // ppm of 100 s.
            assert!((found - reference).unsigned_abs() <= clock.uncertainty_ns + 1, "{found} {reference}");
        }
    }

    /// Identical clocks. The node answers late, because a shell starts there first: the middle of
    /// the exchange is up to half of it away from the truth.
    #[test]
    fn identical_clocks_have_no_offset() {
        let ask = |at: i64, there: i64, back: i64| ClockExchange {
            asked_ns: at,
            said_ns: at + there,
            answered_ns: at + there + back,
        };
        for late in [1_000_000, 97_000_000, 288_000_000] {
            let clock =
                CaptureClock::from_exchanges(&[ask(0, late, 500_000)], &[ask(10_000_000_000, 3_000_000, 400_000)]);
            let clock = clock.unwrap();
            assert_eq!((clock.offset_ns, clock.drift_ppm), (0, 0.0), "{late}");
            // The offset could still be this large.
            assert!(clock.uncertainty_ns >= late.unsigned_abs(), "{clock:?}");
        }
    }

    #[test]
    fn exchanges_too_close_to_each_other_give_no_drift() {
        let answer = |asked_ns, said_ns, answered_ns| ClockExchange { asked_ns, said_ns, answered_ns };
        let clock =
            CaptureClock::from_exchanges(&[answer(0, 1_000, 2_000)], &[answer(10_000, 13_000, 12_000)]).unwrap();
        assert_eq!(clock, CaptureClock { at_ns: 1_000, offset_ns: 1_000, drift_ppm: 0.0, uncertainty_ns: 2_000 });
        let one = CaptureClock::from_exchanges(&[], &[answer(0, 1_500, 2_000)]).unwrap();
        assert_eq!(one, CaptureClock { at_ns: 1_500, offset_ns: 0, drift_ppm: 0.0, uncertainty_ns: 1_500 });
        assert_eq!(CaptureClock::from_exchanges(&[], &[]), None);
    }
}
