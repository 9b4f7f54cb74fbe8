//! The clock of a capture, relative to the clock of another one.

use serde::{Deserialize, Serialize};

/// Converts times of one capture to the clock of another: a clock with an offset and a constant
/// drift.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// A time of this capture, nanoseconds since the epoch.
    pub own_ns: i64,
    /// The time of the other clock at that moment.
    pub reference_ns: i64,
    /// Time gained by the other clock, as a fraction of the time on this one: 20 parts per million
    /// are `20e-6`.
    pub gain: f64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { own_ns: 0, reference_ns: 0, gain: 0.0 }
    }
}

impl Clock {
    /// A clock that is `ahead_ns` ahead of the other one when it shows `own_ns`, and runs faster by
    /// the fraction `drift`.
    #[must_use]
    pub fn ahead(own_ns: i64, ahead_ns: i64, drift: f64) -> Self {
        Self { own_ns, reference_ns: own_ns.saturating_sub(ahead_ns), gain: 1.0 / (1.0 + drift) - 1.0 }
    }

    /// The conversion in the opposite direction.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { own_ns: self.reference_ns, reference_ns: self.own_ns, gain: 1.0 / (1.0 + self.gain) - 1.0 }
    }

    /// Converts a time of this capture to the other clock.
    #[inline]
    #[must_use]
    pub fn corrected_ns(&self, time_ns: i64) -> i64 {
        let since_ns = time_ns.saturating_sub(self.own_ns);
        let gained_ns = if self.gain == 0.0 { 0 } else { (since_ns as f64 * self.gain).round() as i64 };
        self.reference_ns.saturating_add(since_ns).saturating_add(gained_ns)
    }

    /// Drift relative to the other clock in parts per million; positive if this clock is faster.
    #[must_use]
    pub fn drift_ppm(&self) -> f64 {
        (1.0 / (1.0 + self.gain) - 1.0) * 1e6
    }

    /// Chains two conversions: this clock to `reference`, and `reference` to its own reference.
    #[must_use]
    pub fn relative_to(&self, reference: &Self) -> Self {
        Self {
            own_ns: self.own_ns,
            reference_ns: reference.corrected_ns(self.reference_ns),
            gain: (1.0 + self.gain) * (1.0 + reference.gain) - 1.0,
        }
    }
}

/// Clock of an input as stored in a profile. The times of the input are corrected by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockRow {
    /// Name of the input whose clock is the reference, or `manifest`.
    pub reference: String,
    /// Name of the input that this one was compared with: the reference, or one whose clock was
    /// known already.
    pub compared_with: String,
    /// Time of this input's first sampled packet on its own clock, nanoseconds since the epoch:
    /// `offset_ns` refers to this time.
    pub at_ns: i64,
    /// How far this clock was ahead at `at_ns`; 0 if both agree within the uncertainty.
    pub offset_ns: i64,
    /// Drift in parts per million; positive if this clock is faster.
    pub drift_ppm: f64,
    /// Upper bound of the error over the time span of the common packets, if both clocks run
    /// evenly.
    pub uncertainty_ns: u64,
    /// True if no uneven drift was found; otherwise the uncertainty covers only the observed
    /// deviations.
    pub is_even: bool,
    /// Common packets of this input and `compared_with` that were compared; 0 if the manifest gave
    /// the clock.
    pub common_packets: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_ahead_and_fast_is_corrected() {
        // 3 s ahead at 10 s of its own time, and 20 ppm fast: 1 s later it shows another 20 us too
        // much.
        let clock = Clock { own_ns: 10_000_000_000, reference_ns: 7_000_000_000, gain: -20e-6 };
        assert_eq!(clock.corrected_ns(10_000_000_000), 7_000_000_000);
        assert_eq!(clock.corrected_ns(11_000_000_000), 7_999_980_000);
        assert_eq!(clock.corrected_ns(9_000_000_000), 6_000_020_000);
        assert_eq!(Clock::default().corrected_ns(i64::MIN + 1), i64::MIN + 1);
    }

    #[test]
    fn relative_to_chains_two_clocks() {
        let middle = Clock { own_ns: 1_000, reference_ns: 5_000, gain: 0.5 };
        let last = Clock { own_ns: 0, reference_ns: 2_000, gain: 1.0 };
        let both = last.relative_to(&middle);
        for time_ns in [-7_000, 0, 1, 4_321, 1_000_000] {
            assert!((both.corrected_ns(time_ns) - middle.corrected_ns(last.corrected_ns(time_ns))).abs() <= 1);
        }
    }
}
