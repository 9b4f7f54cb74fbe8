//! Bits that stay, and bytes that are exchanged, as far as they were captured.

/// Clears what the mask does not keep, as far as it was captured.
pub(super) fn keep(data: &mut [u8], at: usize, mask: &[u8]) {
    let there = data.get_mut(at..).unwrap_or_default();
    there.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
}

/// Exchanges what stands at `at`; what was cut off in its middle is cleared.
pub(super) fn exchange<const N: usize>(bytes: &mut [u8], at: usize, new: impl FnOnce([u8; N]) -> [u8; N]) {
    let Some(rest) = bytes.get_mut(at..) else { return };
    match rest.first_chunk_mut::<N>() {
        Some(place) => *place = new(*place),
        None => rest.fill(0),
    }
}
