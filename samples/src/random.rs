//! A small random number generator that never changes between versions: a seed must give the same
//! bytes forever, because tests compare against them.

/// Increment of the state per number.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// `SplitMix64` (Steele, Lea and Flood 2014): one addition and two multiplications per number.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "an iterator ends, and needs an Option")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Skips `numbers` numbers.
    pub fn skip(&mut self, numbers: u64) {
        self.state = self.state.wrapping_add(STEP.wrapping_mul(numbers));
    }

    /// A random number in `0..limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The upper half of a 128-bit product: needs no division, and its bias is too small to show
        // in a capture.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first numbers of seed 1234567, as published with the reference implementation.
    #[test]
    fn is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn skipped_numbers_are_the_next_ones() {
        let (mut one, mut other) = (Random::new(9), Random::new(9));
        for _ in 0..1000 {
            one.next();
        }
        other.skip(1000);
        assert_eq!(one.next(), other.next());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[random.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 150), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
