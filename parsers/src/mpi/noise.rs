//! Random payloads for the tests: measures how often a parser mistakes noise for a message.

use alloc::vec::Vec;

/// `SplitMix64`: the same sequence on every machine.
pub(super) struct Noise(u64);

impl Noise {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(super) fn fill(&mut self, payload: &mut [u8]) {
        for chunk in payload.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    pub(super) fn payload(&mut self, len: usize) -> Vec<u8> {
        let mut payload = alloc::vec![0; len];
        self.fill(&mut payload);
        payload
    }
}

/// Upper bound (95 %) of the probability that `taken` accepts a random payload of `len` bytes.
///
/// `forced` sets bytes to values that noise has with probability `prior`. Drawing only payloads
/// that pass these first checks makes rates far below one in a million measurable.
pub(super) fn rate(
    len: usize,
    forced: &[(usize, u8)],
    prior: f64,
    draws: u32,
    mut taken: impl FnMut(&[u8], &mut Noise) -> bool,
) -> f64 {
    let mut noise = Noise::new(0x1B5C_09E5);
    let mut payload = alloc::vec![0; len];
    let mut hits = 0u32;
    for _ in 0..draws {
        noise.fill(&mut payload);
        for &(at, byte) in forced {
            payload[at] = byte;
        }
        hits += u32::from(taken(&payload, &mut noise));
    }
    // Rule of three for no hit, and a generous margin for some.
    prior * (f64::from(hits) * 2.0 + 3.0) / f64::from(draws)
}
