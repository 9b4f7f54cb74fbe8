//! Helpers of the terminal tables of pairs and of ranks.

use crate::render::units::group;

/// Maximum number of rows of a terminal table; csv and JSON have all.
pub(super) const MAX_PAIRS: usize = 64;

/// Formats `wire - trace` with its sign: `+3`, `-2` or `0`.
pub(super) fn signed(wire: u64, trace: u64) -> String {
    match wire.cmp(&trace) {
        std::cmp::Ordering::Equal => "0".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", group(wire - trace)),
        std::cmp::Ordering::Less => format!("-{}", group(trace - wire)),
    }
}
