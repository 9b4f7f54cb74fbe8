//! Round numbers (1, 2 and 5 times powers of ten) for the ends of axes and the spacing of labels.

/// The round numbers in ascending order: 1, 2, 5, 10, 20, 50, ...
pub(crate) fn steps() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1_usize), |power| power.checked_mul(10))
        .flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)))
}

/// The smallest round number that is not below `value`.
pub(crate) fn round_up(value: u64) -> u64 {
    steps().map(|step| step as u64).find(|step| *step >= value).unwrap_or(u64::MAX)
}
