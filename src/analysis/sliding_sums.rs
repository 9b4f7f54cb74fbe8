//! Sums over a window that slides over bins.

use std::collections::VecDeque;

/// The sum of each window that starts with a bin, with the start of the window: the latest bin first.
/// `bins` are starts and values, the latest first. Some window that starts with a bin that is not
/// empty is always among the fullest.
pub(crate) fn sliding_sums(
    bins: impl Iterator<Item = (i64, u64)>,
    window_ns: i64,
) -> impl Iterator<Item = (i64, u128)> {
    let mut inside: VecDeque<(i64, u64)> = VecDeque::new();
    // Wider than the values: bytes from envelopes may be arbitrarily large.
    let mut sum = 0_u128;
    // In reverse: the window that starts with a bin contains the later bins within its length.
    bins.map(move |(start_ns, value)| {
        inside.push_front((start_ns, value));
        sum += u128::from(value);
        while let Some((_, last)) = inside.pop_back_if(|(last_ns, _)| last_ns.saturating_sub(start_ns) >= window_ns) {
            sum -= u128::from(last);
        }
        (start_ns, sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_has_the_bins_within_its_length() {
        let bins = [(0, 1), (10, 2), (25, 4), (30, 8)];
        let sums: Vec<_> = sliding_sums(bins.into_iter().rev(), 20).collect();
        assert_eq!(sums, [(30, 8), (25, 12), (10, 6), (0, 3)]);
    }
}
