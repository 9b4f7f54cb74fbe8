//! Masks and replaces bytes of truncated packets.

/// Clears the bits that the mask does not contain, from `at` on, in the captured bytes.
pub(super) fn keep(data: &mut [u8], at: usize, mask: &[u8]) {
    let there = data.get_mut(at..).unwrap_or_default();
    there.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
}

/// Replaces the bytes at `at`. If the capture truncates them, the captured part is cleared.
pub(super) fn replace_bytes<const N: usize>(bytes: &mut [u8], at: usize, new: impl FnOnce([u8; N]) -> [u8; N]) {
    let Some(rest) = bytes.get_mut(at..) else { return };
    match rest.first_chunk_mut::<N>() {
        Some(place) => *place = new(*place),
        None => rest.fill(0),
    }
}
