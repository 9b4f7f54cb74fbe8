//! Hash maps whose keys come from captures, and a hash that is the same on every machine.
//!
//! The author of a capture chooses its addresses and numbers. With a constant hash, such keys could
//! all fall into one bucket, so that each look-up compares all of them. So every map has its own
//! random seed. Results must not depend on seeds: code that iterates over a map sorts the entries
//! or does not depend on their order.

use foldhash::fast::FixedState;
use std::hash::{BuildHasher as _, Hash};

/// Hasher for keys from captures, with a random seed.
pub type SeededHasher = foldhash::fast::RandomState;

/// A map with keys from captures.
pub type HashMap<K, V> = std::collections::HashMap<K, V, SeededHasher>;

/// A hash that is equal in all runs and on all machines, for drawing samples. No map may use it.
#[must_use]
pub fn constant_hash(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Endpoint;
    use std::collections::BTreeSet;

    /// The lower half of these addresses is the constant that foldhash multiplies by, so that the
    /// product is zero for any upper half.
    #[test]
    fn keys_that_collide_under_a_constant_hash_do_not_collide_under_a_seed() {
        let address = |high: u64| (u128::from(high) << 64 | 0xC0AC_29B7_C97C_50DD).to_be_bytes();
        let keys: Vec<Endpoint> = (0..1000).map(|high| Endpoint::from_gid(address(high))).collect();
        assert_eq!(keys.iter().map(constant_hash).collect::<BTreeSet<u64>>().len(), 1);
        let seeded = SeededHasher::default();
        assert_eq!(keys.iter().map(|key| seeded.hash_one(key)).collect::<BTreeSet<u64>>().len(), keys.len());
        let hashes: BTreeSet<u64> = (0..1000).map(|_| SeededHasher::default().hash_one(keys[0])).collect();
        assert_eq!(hashes.len(), 1000, "each map has a seed of its own");
    }
}
