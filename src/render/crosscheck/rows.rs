//! What the tables of pairs and of ranks have in common.

use crate::render::units::group;

/// Pairs that are listed; csv and json have all.
pub(super) const MOST_PAIRS: usize = 64;

/// `+3`, `-2`, or `0` where they are equal.
pub(super) fn signed(wire: u64, trace: u64) -> String {
    match wire.cmp(&trace) {
        std::cmp::Ordering::Equal => "0".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", group(wire - trace)),
        std::cmp::Ordering::Less => format!("-{}", group(trace - wire)),
    }
}
