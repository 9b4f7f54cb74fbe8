//! Checksums of short packets by carry-less multiplication.
//!
//! In: the bytes that a checksum covers. Out: the checksum, or `None` if the processor has no
//! carry-less multiplication or if there are fewer bytes than [`BLOCK_BYTES`]; the caller then
//! computes the checksum in another way. Libraries use carry-less multiplication for long inputs
//! only, but most packets of an InfiniBand capture have some hundred bytes.
//!
//! This is a separate crate, because the instructions exist only on some processors: after a check
//! of the processor, one unsafe call enters the code that uses them. All other code is safe.
//!
//! # Method
//!
//! Bits are polynomials over GF(2), and a checksum is the remainder of a division. Both checksums
//! of a packet are reflected: the first bit of a byte is its lowest, and the first bit has the
//! highest power. So bit `i` of a block of 128 bits stands for x^(127 - i), and bit `i` of 64 for
//! x^(63 - i). A carry-less product of two words of 64 bits has 127 bits, so as a block of 128 bits
//! it stands for the product times x; all constants are therefore smaller by one power.
//!
//! A block `H x^64 + L` followed by a block `B` has the remainder of
//! `H x^192 + L x^128 + B`, so two products replace two blocks by one. The last block is then
//! reduced to 96 and 64 bits in the same way, and Barrett's method, with the quotient of x^64,
//! gives the remainder.
//!
//! Source: V. Gopal et al., *Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction*, Intel, 2009.
#![deny(unsafe_code)]

/// Fewer bytes have no checksum here.
pub const BLOCK_BYTES: usize = 16;

/// Constants of a checksum with 32 bits or fewer.
#[derive(Clone, Copy, Debug)]
pub struct Polynomial {
    /// x^191 and x^127: the factors of a block's first and second half for the next block.
    fold: (u64, u64),
    /// x^95 and x^63: the factors that reduce 128 bits to 96, and 96 to 64.
    reduce: (u64, u64),
    /// Quotient of x^64 and the polynomial, and the polynomial: 33 bits each.
    barrett: (u64, u64),
}

impl Polynomial {
    /// Constants of x^32 + `low`; bit 31 of `low` stands for x^31. A shorter polynomial is
    /// multiplied with a power of x: the checksum has its bits first.
    #[must_use]
    pub const fn new(low: u32) -> Self {
        let quotient = quotient_of_x64(low);
        Self {
            fold: (power(low, 191), power(low, 127)),
            reduce: (power(low, 95), power(low, 63)),
            barrett: ((quotient as u64).reverse_bits() >> 31 | 1, (low.reverse_bits() as u64) << 1 | 1),
        }
    }

    /// The checksum of `head` and then `rest`, not complemented at its end. `head` may begin with
    /// zeros, which count for nothing, so that it fills its blocks; the state before the first byte
    /// is combined with the bytes after them (XOR). `None` if `head` is empty or the processor has
    /// no carry-less multiplication.
    #[must_use]
    #[inline]
    pub fn checksum(&self, head: &[[u8; BLOCK_BYTES]], rest: &[u8]) -> Option<u32> {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("pclmulqdq") && std::is_x86_feature_detected!("sse4.1") {
            // The conditions are what the call requires.
            #[expect(unsafe_code, reason = "only an unsafe call enters code for certain processors")]
            return unsafe { x86_64::checksum(self, head, rest) };
        }
        None
    }
}

/// x^`exponent` modulo x^32 + `low`, reflected, in the upper half of 64 bits.
const fn power(low: u32, exponent: u32) -> u64 {
    let mut remainder: u32 = 1;
    let mut done = 0;
    while done < exponent {
        let carry = remainder >> 31 == 1;
        remainder <<= 1;
        if carry {
            remainder ^= low;
        }
        done += 1;
    }
    (remainder.reverse_bits() as u64) << 32
}

/// The quotient of x^64 and x^32 + `low`, without its highest bit x^32.
const fn quotient_of_x64(low: u32) -> u32 {
    // x^64 = x^32 (x^32 + low) + low x^32: the division goes on with `low`.
    let (mut remainder, mut quotient) = (low, 0);
    let mut bit = 0;
    while bit < 32 {
        let carry = remainder >> 31 == 1;
        remainder <<= 1;
        if carry {
            remainder ^= low;
        }
        quotient = quotient << 1 | carry as u32;
        bit += 1;
    }
    quotient
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{BLOCK_BYTES, Polynomial};
    use std::arch::x86_64::{
        __m128i, _mm_blendv_epi8, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si32, _mm_extract_epi32,
        _mm_extract_epi64, _mm_set_epi64x, _mm_shuffle_epi8, _mm_slli_si128, _mm_srli_si128, _mm_xor_si128,
    };

    /// Positions for a byte shuffle. Those from index `n` on shift a block to its end and keep `n`
    /// bytes; those from `BLOCK_BYTES + n` on shift it to its front by `n` bytes. A position above
    /// 127 gives a zero.
    static POSITIONS: [u8; 3 * BLOCK_BYTES] = positions();

    const fn positions() -> [u8; 3 * BLOCK_BYTES] {
        let mut positions = [0x80; 3 * BLOCK_BYTES];
        let mut index = 0;
        while index < BLOCK_BYTES {
            positions[BLOCK_BYTES + index] = index as u8;
            index += 1;
        }
        positions
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn block(bits: u128) -> __m128i {
        _mm_set_epi64x((bits >> 64) as i64, bits as i64)
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn pair((first, second): (u64, u64)) -> __m128i {
        _mm_set_epi64x(second as i64, first as i64)
    }

    /// Fewer bytes than a block, at the end of a block.
    fn at_end(bytes: &[u8]) -> u128 {
        let (words, rest) = bytes.as_chunks::<4>();
        let bits = words.iter().fold(0, |bits, word| bits >> 32 | u128::from(u32::from_le_bytes(*word)) << 96);
        rest.iter().fold(bits, |bits, byte| bits >> 8 | u128::from(*byte) << 120)
    }

    /// Replaces a block and the next one by one with the same remainder.
    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn fold(state: __m128i, factors: __m128i, next: __m128i) -> __m128i {
        let first = _mm_clmulepi64_si128::<0x00>(state, factors);
        let second = _mm_clmulepi64_si128::<0x11>(state, factors);
        _mm_xor_si128(_mm_xor_si128(first, second), next)
    }

    /// One block with the remainder of all bytes; `None` if there is no head.
    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn fold_all(factors: __m128i, head: &[[u8; BLOCK_BYTES]], rest: &[u8]) -> Option<__m128i> {
        let (first, head) = head.split_first()?;
        let (blocks, end) = rest.as_chunks::<BLOCK_BYTES>();
        let mut state = block(u128::from_le_bytes(*first));
        for next in head {
            state = fold(state, factors, block(u128::from_le_bytes(*next)));
        }
        for next in blocks {
            state = fold(state, factors, block(u128::from_le_bytes(*next)));
        }
        if end.is_empty() {
            return Some(state);
        }
        // The first bytes of the state become a block of their own, with zeros before them; the
        // others and the new ones make the next block.
        let to_end = block(u128::from_le_bytes(*POSITIONS.get(end.len()..)?.first_chunk()?));
        let to_front = block(u128::from_le_bytes(*POSITIONS.get(BLOCK_BYTES + end.len()..)?.first_chunk()?));
        let last = rest.last_chunk().map_or_else(|| at_end(end), |last| u128::from_le_bytes(*last));
        let next = _mm_blendv_epi8(_mm_shuffle_epi8(state, to_front), block(last), to_front);
        Some(fold(_mm_shuffle_epi8(state, to_end), factors, next))
    }

    #[target_feature(enable = "pclmulqdq,sse4.1")]
    pub(super) fn checksum(of: &Polynomial, head: &[[u8; BLOCK_BYTES]], rest: &[u8]) -> Option<u32> {
        let state = fold_all(pair(of.fold), head, rest)?;
        let reduce = pair(of.reduce);
        // The state times x^32, in 96 bits.
        let second_half = _mm_slli_si128::<4>(_mm_srli_si128::<8>(state));
        let state = _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(state, reduce), second_half);
        // In 64 bits.
        let product = _mm_clmulepi64_si128::<0x10>(state, reduce);
        let bits = _mm_extract_epi64::<1>(_mm_xor_si128(state, product)) as u64;
        // In 32 bits.
        let barrett = pair(of.barrett);
        let quotient = _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(i64::from(bits as u32)), barrett);
        let quotient = _mm_cvtsi64_si128(i64::from(_mm_cvtsi128_si32(quotient).cast_unsigned()));
        let product = _mm_clmulepi64_si128::<0x10>(quotient, barrett);
        Some((bits >> 32) as u32 ^ _mm_extract_epi32::<1>(product).cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC-32 of Ethernet and ICRC, and the CRC-16 of the VCRC in the first half of 32 bits.
    const LOWS: [u32; 2] = [0x04C1_1DB7, 0x100B << 16];

    /// The remainder, bit by bit.
    fn bitwise(low: u32, initial: u32, bytes: &[u8]) -> u32 {
        let reflected = low.reverse_bits();
        bytes.iter().fold(initial, |state, byte| {
            (0..8).fold(
                state ^ u32::from(*byte),
                |state, _| if state & 1 == 1 { state >> 1 ^ reflected } else { state >> 1 },
            )
        })
    }

    fn by_blocks(polynomial: &Polynomial, initial: u32, bytes: &[u8], head_bytes: usize) -> Option<u32> {
        let (head, rest) = bytes.split_at(head_bytes);
        let zeros = head_bytes.next_multiple_of(BLOCK_BYTES) - head_bytes;
        let mut padded = [vec![0; zeros], head.to_vec()].concat();
        padded[zeros..].iter_mut().zip(initial.to_le_bytes()).for_each(|(byte, state)| *byte ^= state);
        polynomial.checksum(padded.as_chunks().0, rest)
    }

    #[test]
    fn checksums_of_every_length_match_the_bitwise_ones() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..150).map(|_| byte()).collect();
        for low in LOWS {
            let polynomial = Polynomial::new(low);
            for (length, head_bytes) in
                (4..=bytes.len()).flat_map(|length| (4..=length.min(60)).map(move |head| (length, head)))
            {
                for initial in [0, 0xFFFF, u32::MAX] {
                    let found = by_blocks(&polynomial, initial, &bytes[..length], head_bytes);
                    let expected = bitwise(low, initial, &bytes[..length]);
                    assert!(found.is_none_or(|found| found == expected), "{low:x} {length} {head_bytes} {initial:x}");
                }
            }
        }
    }

    /// The check value of CRC-32: "123456789" has 0xCBF43926.
    #[test]
    fn the_check_value_of_crc_32_is_found() {
        let found = by_blocks(&Polynomial::new(LOWS[0]), u32::MAX, b"123456789", 9);
        assert!(found.is_none_or(|found| !found == 0xCBF4_3926));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(found.is_some(), std::is_x86_feature_detected!("pclmulqdq"));
        assert_eq!(Polynomial::new(LOWS[0]).checksum(&[], b"123456789"), None);
    }
}
