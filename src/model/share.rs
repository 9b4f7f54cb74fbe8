//! A share of the connections of a capture: several tasks analyze one share each.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One of `of` shares of the connections of a capture. Both directions of a pair of ports are in one
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionShare {
    /// From 1 to `of`.
    pub number: u32,
    /// The number of shares.
    pub of: u32,
}

impl ConnectionShare {
    /// Most shares of a capture: a share takes whole shards of the analysis.
    pub const MAX: u32 = 32;

    /// All shares of a capture.
    pub fn all(of: u32) -> impl Iterator<Item = Self> {
        (1..=of).map(move |number| Self { number, of })
    }

    /// True if the share has the connections of a shard, which is numbered from 0.
    #[must_use]
    pub const fn has_shard(self, shard: usize) -> bool {
        shard % self.of as usize == self.number as usize - 1
    }

    /// True if the numbers are in range.
    #[must_use]
    pub const fn is_sound(self) -> bool {
        1 <= self.number && self.number <= self.of && self.of <= Self::MAX
    }
}

impl fmt::Display for ConnectionShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Text that is not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a share is K/N, for example 3/16, with K from 1 to N and N up to {}", ConnectionShare::MAX)]
pub struct ShareError;

impl FromStr for ConnectionShare {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let (number, of) = text.split_once('/').ok_or(ShareError)?;
        let parsed = |text: &str| text.parse().map_err(|_| ShareError);
        let share = Self { number: parsed(number)?, of: parsed(of)? };
        if share.is_sound() { Ok(share) } else { Err(ShareError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_numbers_from_one() {
        for text in ["1/1", "3/16", "32/32"] {
            assert_eq!(text.parse::<ConnectionShare>().map(|share| share.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "3", "/", "0/4", "5/4", "1/33", "1/0", "-1/4", "1/4/4", "a/b"] {
            assert_eq!(text.parse::<ConnectionShare>(), Err(ShareError), "{text}");
        }
    }

    /// Each shard is in one share, and no share has more than one shard more than another.
    #[test]
    fn each_shard_is_in_one_share() {
        let shards = ConnectionShare::MAX as usize;
        for of in 1..=ConnectionShare::MAX {
            let held: Vec<Vec<usize>> = ConnectionShare::all(of)
                .map(|share| (0..shards).filter(|shard| share.has_shard(*shard)).collect())
                .collect();
            let mut all = held.concat();
            all.sort_unstable();
            assert_eq!(all, (0..shards).collect::<Vec<_>>(), "{of}");
            let lengths = held.iter().map(Vec::len);
            assert!(lengths.clone().max() <= lengths.min().map(|least| least + 1), "{of}");
        }
    }
}
