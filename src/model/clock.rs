//! The clock of a capture, held against that of another.

use serde::{Deserialize, Serialize};

/// How the times of one capture become those of another: a clock that started elsewhere and runs at another, even, rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// A time of this capture, nanoseconds since the epoch.
    pub own_ns: i64,
    /// What the other clock showed then.
    pub reference_ns: i64,
    /// How much more time passes on the other clock than on this one, as a share: 20 parts in a million are `20e-6`.
    pub gain: f64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { own_ns: 0, reference_ns: 0, gain: 0.0 }
    }
}

impl Clock {
    /// One that shows `own_ns` when it is `ahead_ns` ahead of the other, and that runs faster by `drift`, as a share.
    #[must_use]
    pub fn ahead(own_ns: i64, ahead_ns: i64, drift: f64) -> Self {
        Self { own_ns, reference_ns: own_ns.saturating_sub(ahead_ns), gain: 1.0 / (1.0 + drift) - 1.0 }
    }

    /// The other clock on this one.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { own_ns: self.reference_ns, reference_ns: self.own_ns, gain: 1.0 / (1.0 + self.gain) - 1.0 }
    }

    /// A time of this capture on the other clock.
    #[inline]
    #[must_use]
    pub fn corrected_ns(&self, time_ns: i64) -> i64 {
        let since_ns = time_ns.saturating_sub(self.own_ns);
        let gained_ns = if self.gain == 0.0 { 0 } else { (since_ns as f64 * self.gain).round() as i64 };
        self.reference_ns.saturating_add(since_ns).saturating_add(gained_ns)
    }

    /// How much faster it runs than the other clock, in parts per million.
    #[must_use]
    pub fn drift_ppm(&self) -> f64 {
        (1.0 / (1.0 + self.gain) - 1.0) * 1e6
    }

    /// This clock on the one that `reference` is held against.
    #[must_use]
    pub fn on(&self, reference: &Self) -> Self {
        Self {
            own_ns: self.own_ns,
            reference_ns: reference.corrected_ns(self.reference_ns),
            gain: (1.0 + self.gain) * (1.0 + reference.gain) - 1.0,
        }
    }
}

/// What is known of an input's clock, as it stands in a profile. The times of the input are corrected by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockRow {
    /// Name of the input to whose clock the times are corrected, or `manifest`.
    pub reference: String,
    /// Name of the input that it was compared with: the reference, or one whose clock was known by then.
    pub compared_with: String,
    /// Time of this input's first sampled packet on its own clock, nanoseconds since the epoch: where `offset_ns` holds.
    pub at_ns: i64,
    /// By how much it was ahead there; 0 where both agree within the uncertainty.
    pub offset_ns: i64,
    /// How much faster it runs, in parts per million.
    pub drift_ppm: f64,
    /// The truth is not farther from this than so much, in the span of the packets that both inputs hold, if both clocks run evenly.
    pub uncertainty_ns: u64,
    /// It runs evenly, as far as can be told; else the uncertainty is no more than what was seen.
    pub is_even: bool,
    /// Packets that it and `compared_with` hold and that were compared; 0 where the manifest gave the clock.
    pub common_packets: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_ahead_and_fast_is_set_back() {
        // 3 s ahead at 10 s of its own time, and 20 ppm fast: 1 s later it shows 20 us too much beyond that.
        let clock = Clock { own_ns: 10_000_000_000, reference_ns: 7_000_000_000, gain: -20e-6 };
        assert_eq!(clock.corrected_ns(10_000_000_000), 7_000_000_000);
        assert_eq!(clock.corrected_ns(11_000_000_000), 7_999_980_000);
        assert_eq!(clock.corrected_ns(9_000_000_000), 6_000_020_000);
        assert_eq!(Clock::default().corrected_ns(i64::MIN + 1), i64::MIN + 1);
    }

    #[test]
    fn clocks_follow_each_other() {
        let middle = Clock { own_ns: 1_000, reference_ns: 5_000, gain: 0.5 };
        let last = Clock { own_ns: 0, reference_ns: 2_000, gain: 1.0 };
        let both = last.on(&middle);
        for time_ns in [-7_000, 0, 1, 4_321, 1_000_000] {
            assert!((both.corrected_ns(time_ns) - middle.corrected_ns(last.corrected_ns(time_ns))).abs() <= 1);
        }
    }
}
