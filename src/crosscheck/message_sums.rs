//! Sums of messages and their bytes.

use serde::Serialize;

/// Number of messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MessageSums {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}

impl MessageSums {
    /// The difference, at least 0.
    pub(super) const fn less(self, other: Self) -> Self {
        Self { messages: self.messages.saturating_sub(other.messages), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    /// The difference; `None` if `other` is larger.
    pub(super) fn checked_less(self, other: Self) -> Option<Self> {
        Some(Self { messages: self.messages.checked_sub(other.messages)?, bytes: self.bytes.checked_sub(other.bytes)? })
    }
}

impl std::ops::AddAssign for MessageSums {
    fn add_assign(&mut self, other: Self) {
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
