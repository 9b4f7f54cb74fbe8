//! How the clock of a node runs against the orchestrator's: from its answers to the question what time it is.

use serde::{Deserialize, Serialize};

/// A drift beyond this is none, but two answers too close to each other.
const MOST_PPM: f64 = 500.0;

/// How the clock that stamped a capture runs against the run's reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureClock {
    /// A time on the capture's clock, nanoseconds since the epoch: where `offset_ns` holds.
    pub at_ns: i64,
    /// By how much it was ahead of the reference then, in nanoseconds.
    pub offset_ns: i64,
    /// How much faster it runs, in parts per million.
    #[serde(default)]
    pub drift_ppm: f64,
    /// The truth is not farther from this than so much.
    #[serde(default)]
    pub uncertainty_ns: u64,
}

/// A node was asked for the time. All in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// When it was asked, by the reference clock.
    pub asked_ns: i64,
    /// What it said.
    pub said_ns: i64,
    /// When the answer was there, by the reference clock.
    pub answered_ns: i64,
}

impl Exchange {
    /// By how much the node's clock is ahead, and how far from this the truth may be: the node looked at its clock at some time between
    /// question and answer.
    fn offset_ns(self) -> (i64, u64) {
        let took = self.answered_ns.saturating_sub(self.asked_ns).max(0);
        let half = took / 2;
        let offset = self.said_ns.saturating_sub(self.asked_ns.saturating_add(half));
        (offset, took.unsigned_abs().div_ceil(2))
    }
}

impl CaptureClock {
    /// The clock as answers show it, from before the capture and from after it. Of each the quickest one counts; times between are on the line
    /// through the two.
    pub fn measured(before: &[Exchange], after: &[Exchange]) -> Option<Self> {
        let quickest = |answers: &[Exchange]| answers.iter().copied().min_by_key(|answer| answer.offset_ns().1);
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
        if drift_ppm.abs() > MOST_PPM || span <= 0 {
            // Half way between the two, with room for both.
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

    /// A clock that is 5 ms ahead and gains 20 us per second is asked twice, 100 s apart; the ways of questions and answers are not equal.
    #[test]
    fn the_truth_is_within_the_uncertainty() {
        let theirs = |reference: i64| reference + 5_000_000 + (reference - 1_000_000_000) / 50_000;
        let ask = |at: i64, there: i64, back: i64| Exchange {
            asked_ns: at,
            said_ns: theirs(at + there),
            answered_ns: at + there + back,
        };
        let before = [ask(1_000_000_000, 9_000_000, 1_000_000), ask(1_100_000_000, 300_000, 100_000)];
        let after = [ask(101_000_000_000, 50_000, 450_000)];
        let clock = CaptureClock::measured(&before, &after).unwrap();
        assert_eq!(clock.uncertainty_ns, 250_000, "half of what the slower of the two quickest took");
        for reference in (1_100_000_000..101_000_000_000).step_by(1_000_000_007) {
            let own = theirs(reference);
            let found = own - (clock.offset_ns as f64 + (own - clock.at_ns) as f64 * clock.drift_ppm * 1e-6) as i64;
            // The drift is per second of their clock, not of the reference: 20 ppm of 20 ppm of 100 s.
            assert!((found - reference).unsigned_abs() <= clock.uncertainty_ns + 1, "{found} {reference}");
        }
    }

    #[test]
    fn answers_too_close_give_no_drift() {
        let answer = |asked_ns, said_ns, answered_ns| Exchange { asked_ns, said_ns, answered_ns };
        let clock = CaptureClock::measured(&[answer(0, 1_000, 2_000)], &[answer(10_000, 13_000, 12_000)]).unwrap();
        assert_eq!(clock, CaptureClock { at_ns: 1_000, offset_ns: 1_000, drift_ppm: 0.0, uncertainty_ns: 2_000 });
        let one = CaptureClock::measured(&[], &[answer(0, 1_500, 2_000)]).unwrap();
        assert_eq!(one, CaptureClock { at_ns: 1_500, offset_ns: 500, drift_ppm: 0.0, uncertainty_ns: 1_000 });
        assert_eq!(CaptureClock::measured(&[], &[]), None);
    }
}
