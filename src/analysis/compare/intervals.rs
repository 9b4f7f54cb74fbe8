//! What a histogram says of the distribution that its samples were drawn from.

use crate::model::Histogram;

/// Standard deviations on each side of the middle that hold 99 % of a normal distribution.
const DEVIATIONS: f64 = 2.576;

/// An interval that holds the true quantile with 99 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its low end, itself included.
    pub low_ns: u64,
    /// Its high end, itself included.
    pub high_ns: u64,
}

/// The interval of a quantile; `None` where there are so few samples that it goes beyond the smallest or the largest.
pub(super) fn bounds(times: &Histogram, share: f64) -> Option<Bounds> {
    let samples = times.samples() as f64;
    let half = DEVIATIONS * (samples * share * (1.0 - share)).sqrt();
    let (low, high) = ((samples * share - half).floor(), (samples * share + half).ceil() + 1.0);
    // The sample at a rank, which is counted from 1.
    let at = |rank: f64| times.quantile((rank - 0.5) / samples);
    (low >= 1.0 && high <= samples).then(|| Bounds { low_ns: at(low), high_ns: at(high) })
}

/// How often the time of `b` is the longer one when one of each is drawn, ties counting half; `None` where one has none.
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
    fn intervals_are_those_of_the_book() {
        // n = 100, q = 1/2: ranks 50 - 2.576 * 5 = 37.12 and 50 + 12.88 = 62.88, so the 37th and the 64th of 1 to 100.
        let hundred = histogram(&(1..=100).collect::<Vec<_>>());
        assert_eq!(bounds(&hundred, 0.5), Some(Bounds { low_ns: 37, high_ns: 64 }));
        assert_eq!(bounds(&hundred, 0.99), None, "the 99th percentile of 100 samples has no upper end");
        assert_eq!(bounds(&histogram(&[]), 0.5), None);
        assert_eq!(bounds(&histogram(&[1, 2, 3]), 0.5), None);
    }

    proptest! {
        /// Against every pair, one by one.
        #[test]
        fn the_longer_one_is_counted_as_by_hand(
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
