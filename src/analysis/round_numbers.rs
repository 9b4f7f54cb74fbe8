//! 1, 2 and 5 times powers of ten: where axes end, and how many labels are shown.

/// 1, 2, 5, 10, 20, 50, ...: every how many labels one is shown.
pub(crate) fn steps() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1_usize), |power| power.checked_mul(10))
        .flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)))
}

/// The smallest number of the form 1, 2 or 5 times a power of ten that is not below this.
pub(crate) fn round_up(value: u64) -> u64 {
    steps().map(|step| step as u64).find(|step| *step >= value).unwrap_or(u64::MAX)
}
