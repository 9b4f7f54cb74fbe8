//! Messages and their bytes, added up.

use serde::Serialize;

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Sums {
    /// What is left of them without others.
    pub(super) const fn less(self, other: Self) -> Self {
        Self { messages: self.messages.saturating_sub(other.messages), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    /// What is left of them without others; `None` where the others are more.
    pub(super) fn checked_less(self, other: Self) -> Option<Self> {
        Some(Self { messages: self.messages.checked_sub(other.messages)?, bytes: self.bytes.checked_sub(other.bytes)? })
    }
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
