//! Hash maps whose keys come from captures, and a hash that is the same everywhere.
//!
//! Whoever writes a capture chooses its addresses and numbers. Under a constant hash, keys can be chosen that all fall
//! into one bucket, and each look-up then compares all of them. So each map has a seed of its own, drawn when the map is
//! made. Results must not depend on seeds: what goes through a map sorts it, or does not care about the order.

use foldhash::fast::FixedState;
use std::hash::{BuildHasher as _, Hash};

/// Hashes keys of captures, with a seed of its own.
pub type Seeded = foldhash::fast::RandomState;

/// A map by keys of captures.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Seeded>;

/// A hash that is equal in all runs and on all machines: samples are drawn by it. No map may use it.
#[must_use]
pub fn constant_hash(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Endpoint;
    use std::collections::BTreeSet;

    /// The lower half of these addresses is the constant that foldhash multiplies by, so that the product is zero
    /// whatever the upper half is.
    #[test]
    fn keys_that_collide_under_a_constant_hash_do_not_collide_under_a_seed() {
        let address = |high: u64| (u128::from(high) << 64 | 0xC0AC_29B7_C97C_50DD).to_be_bytes();
        let keys: Vec<Endpoint> = (0..1000).map(|high| Endpoint::from_gid(address(high))).collect();
        assert_eq!(keys.iter().map(constant_hash).collect::<BTreeSet<u64>>().len(), 1);
        let seeded = Seeded::default();
        assert_eq!(keys.iter().map(|key| seeded.hash_one(key)).collect::<BTreeSet<u64>>().len(), keys.len());
        let hashes: BTreeSet<u64> = (0..1000).map(|_| Seeded::default().hash_one(keys[0])).collect();
        assert_eq!(hashes.len(), 1000, "each map has a seed of its own");
    }
}
