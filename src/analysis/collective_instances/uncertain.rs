//! Operations that an output of facts, which shows no confidence, cannot contain.
//!
//! In: operations. Out: which of them the output contains, and counts of the others for its notes.
//! Invariant: an operation that its messages do not show is never kept.

use super::{CollectiveInstance, Confidence};

/// Counts of operations without certain messages or a certain call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncertainOperations {
    /// Operations whose messages match no known algorithm; not kept.
    pub unmatched: u64,
    /// Other operations of communicators whose messages are missing in part; not kept.
    pub with_missing_messages: u64,
    /// Operations of low confidence that are kept.
    pub kept: u64,
}

impl UncertainOperations {
    /// True if the output can contain the operation; counts it if it is uncertain.
    pub const fn keep(&mut self, own: &CollectiveInstance) -> bool {
        match own.confidence {
            Confidence::Unknown => self.unmatched += 1,
            _ if own.misses_messages => self.with_missing_messages += 1,
            Confidence::Low => {
                self.kept += 1;
                return true;
            }
            Confidence::Medium | Confidence::High => return true,
        }
        false
    }
}
