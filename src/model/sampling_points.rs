//! How many observation points sample the packets of a connection.
//!
//! Each point that samples independently adds observations, so the number of points decides how many
//! transmissions an observation represents ([`super::sampling`]). Profiles store the number as a code.

use std::ops::RangeInclusive;

/// The observation points that sample a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingPoints {
    /// The number is not known, but the number of transmissions per observation is.
    PerObservation,
    /// So many, from 1 to [`Self::MOST`], independently of each other.
    Independent(u32),
    /// Two ports that sample together: each packet is in the samples of both ports or of neither,
    /// because the mirror sampled before it made its copies.
    TwoTogether,
    /// One to so many, from 2 to [`Self::MOST`]: intervals cover all of these numbers.
    UpTo(u32),
}

impl SamplingPoints {
    /// Points of a packet at most: a path has no more switches, and each has two interfaces on it.
    pub const MOST: u32 = 32;

    /// Code of three points, minus 3.
    const INDEPENDENT_CODE: u32 = 100;
    /// Code of one to three points, minus 3.
    const UP_TO_CODE: u32 = 200;

    /// One to so many points.
    #[must_use]
    pub const fn up_to(points: u32) -> Self {
        match points {
            0 | 1 => Self::Independent(1),
            2..=Self::MOST => Self::UpTo(points),
            _ => Self::UpTo(Self::MOST),
        }
    }

    /// The largest possible number of points.
    #[must_use]
    pub const fn most(self) -> u32 {
        match self {
            Self::PerObservation | Self::TwoTogether => 2,
            Self::Independent(points) | Self::UpTo(points) => points,
        }
    }

    /// The possible numbers of points that take different packets: two that sample together count as one.
    #[must_use]
    pub const fn distinct(self) -> RangeInclusive<u32> {
        match self {
            Self::PerObservation | Self::TwoTogether => 1..=1,
            Self::Independent(points) => points..=points,
            Self::UpTo(points) => 1..=points,
        }
    }

    /// The code in the column `sampled_ports`.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::PerObservation => 0,
            Self::Independent(points @ 0..=2) => points,
            Self::UpTo(0..=2) => 3,
            Self::TwoTogether => 4,
            Self::Independent(points) => Self::INDEPENDENT_CODE + points,
            Self::UpTo(points) => Self::UP_TO_CODE + points,
        }
    }

    /// The points with this code; `None` for other numbers.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::PerObservation),
            1 | 2 => Some(Self::Independent(code)),
            3 => Some(Self::UpTo(2)),
            4 => Some(Self::TwoTogether),
            103..=132 => Some(Self::Independent(code - Self::INDEPENDENT_CODE)),
            203..=232 => Some(Self::UpTo(code - Self::UP_TO_CODE)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_points() {
        let codes = [0, 1, 2, 3, 4].into_iter().chain(103..=132).chain(203..=232);
        let points: Vec<SamplingPoints> = codes
            .map(|code| SamplingPoints::from_code(code).filter(|points| points.code() == code).expect("its points"))
            .collect();
        let all = 1..=SamplingPoints::MOST;
        let expected = all.clone().map(SamplingPoints::Independent).chain(all.clone().map(SamplingPoints::up_to));
        assert!(expected.clone().all(|expected| points.contains(&expected)));
        assert_eq!(
            expected.map(SamplingPoints::most).collect::<Vec<_>>(),
            [all.clone(), all].map(Vec::from_iter).concat()
        );
        let others = [5, 100, 102, 133, 202, 233, 303, u32::MAX];
        assert_eq!(others.map(SamplingPoints::from_code), [None; 8]);
        assert_eq!(SamplingPoints::up_to(99), SamplingPoints::UpTo(SamplingPoints::MOST));
    }
}
