//! Observations of a packet: their classes, and the observation points that explain them.
//!
//! The same packet is observed again at a second observation point, and if the sender retransmits it.
//! Invariant: the class depends on the number of the observation alone.

/// Occurrence classes of a packet: first, second, odd from the third, even from the fourth.
pub const OCCURRENCES: usize = 4;

/// Class of the `occurrence`-th observation of a packet.
#[must_use]
pub const fn occurrence_class(occurrence: u32) -> usize {
    match occurrence {
        0 | 1 => 0,
        2 => 1,
        odd if odd % 2 == 1 => 2,
        _ => 3,
    }
}

/// Observation points of a directed pair of endpoints in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointCount {
    /// Later observations of a packet are retransmissions.
    #[default]
    One,
    /// Every second observation is a mirror copy.
    Two,
    /// Neither explains the observations: a later one may be a mirror copy or a retransmission, so only the
    /// first one of each PSN counts.
    Unclear,
}

impl PointCount {
    /// True if the input holds both mirror copies of each packet.
    #[must_use]
    pub const fn is_two(self) -> bool {
        matches!(self, Self::Two)
    }
}
