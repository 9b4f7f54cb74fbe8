//! Statistics of a distribution, from the histogram of its samples.

use crate::model::Histogram;

/// Standard deviations on each side of the mean that contain 99 % of a normal distribution.
const DEVIATIONS: f64 = 2.576;

/// An interval that contains the true quantile with 99 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfidenceInterval {
    /// Lower bound, inclusive.
    pub low_ns: u64,
    /// Upper bound, inclusive.
    pub high_ns: u64,
}

/// The confidence interval of a quantile; `None` if there are too few samples for both bounds.
pub(super) fn confidence_interval(times: &Histogram, share: f64) -> Option<ConfidenceInterval> {
    let samples = times.samples() as f64;
    let half = DEVIATIONS * (samples * share * (1.0 - share)).sqrt();
    let (low, high) = ((samples * share - half).floor(), (samples * share + half).ceil() + 1.0);
    // Ranks count from 1.
    let at = |rank: f64| times.quantile((rank - 0.5) / samples);
    (low >= 1.0 && high <= samples).then(|| ConfidenceInterval { low_ns: at(low), high_ns: at(high) })
}

/// The probability that a random time of `b` is longer than a random time of `a`, ties counting
/// half; `None` if one histogram is empty.
pub(super) fn share_longer(a: &Histogram, b: &Histogram) -> Option<f64> {
    let (in_a, in_b) = (a.samples(), b.samples());
    if in_a == 0 || in_b == 0 {
        return None;
    }
    let mut below = 0u64;
    let mut longer = 0.0;
    let mut of_a = a.values().peekable();
    for (value, count) in b.values() {
        while let Some((_, shorter)) = of_a.next_if(|(other, _)| *other < value) {
            below += shorter;
        }
        let equal = of_a.peek().filter(|(other, _)| *other == value).map_or(0, |(_, equal)| *equal);
        longer += count as f64 * (below as f64 + equal as f64 / 2.0);
    }
    Some(longer / in_a as f64 / in_b as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Recorder;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn histogram(values: &[u64]) -> Histogram {
        let mut recorder = Recorder::default();
        values.iter().for_each(|value| recorder.record(*value));
        recorder.finish()
    }

    #[test]
    fn intervals_follow_the_textbook_formula() {
        // n = 100, q = 1/2: ranks 50 - 2.576 * 5 = 37.12 and 50 + 12.88 = 62.88, so the 37th and
        // the 64th of 1 to 100.
        let hundred = histogram(&(1..=100).collect::<Vec<_>>());
        assert_eq!(confidence_interval(&hundred, 0.5), Some(ConfidenceInterval { low_ns: 37, high_ns: 64 }));
        assert_eq!(confidence_interval(&hundred, 0.99), None, "the 99th percentile of 100 samples has no upper end");
        assert_eq!(confidence_interval(&histogram(&[]), 0.5), None);
        assert_eq!(confidence_interval(&histogram(&[1, 2, 3]), 0.5), None);
    }

    proptest! {
        /// Compares the result with a count over all pairs of values.
        #[test]
        fn the_share_of_longer_times_equals_a_count_over_all_pairs(
            a in prop::collection::vec(0u64..40, 1..30),
            b in prop::collection::vec(0u64..40, 1..30),
        ) {
            let wins = |x: u64, y: u64| match y.cmp(&x) {
                Ordering::Greater => 1.0,
                Ordering::Equal => 0.5,
                Ordering::Less => 0.0,
            };
            let by_hand: f64 = a.iter().flat_map(|x| b.iter().map(move |y| wins(*x, *y))).sum();
            let found = share_longer(&histogram(&a), &histogram(&b)).unwrap();
            prop_assert!((found - by_hand / (a.len() * b.len()) as f64).abs() < 1e-9);
        }
    }
}
