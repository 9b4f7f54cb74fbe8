//! VCRC of native links: CRC-16 with polynomial 0x100B, reflected, initial value all ones,
//! complemented.
//!
//! Runs for every packet of a native capture. Most packets are short: carry-less multiplication of
//! one block at a time processes them, or tables, where the processor has no such multiplication.
//! From `LONG_BYTES` on, `crc-fast`, which multiplies several blocks at a time, is faster despite
//! its setup cost.

use alloc::boxed::Box;
use crc_fast::CrcParams;
use ibscope_crc::Polynomial;
use once_cell::race::OnceBox;

/// Polynomial 0x100B with its bits reversed.
const REFLECTED: u16 = 0xD008;
/// Bytes that one round of table lookups processes.
const BLOCK_BYTES: usize = 16;
const HALF_BYTES: usize = 8;
/// From this length on, `crc-fast` is faster.
const LONG_BYTES: usize = 256;

/// A CRC-16 is the first half of the CRC-32 with its polynomial times x^16.
static SHORT: Polynomial = Polynomial::new(0x100B << 16);

/// Initialized by the first long packet.
static LONG: OnceBox<CrcParams> = OnceBox::new();

/// `TABLES[places][byte]`: contribution of a byte to the CRC, `places` bytes before the end of its
/// block.
static TABLES: [[u16; 256]; BLOCK_BYTES] = tables();

const fn tables() -> [[u16; 256]; BLOCK_BYTES] {
    let mut tables = [[0; 256]; BLOCK_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u16;
        let mut places = 0;
        while places < BLOCK_BYTES {
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ REFLECTED } else { sum >> 1 };
                bit += 1;
            }
            tables[places][byte] = sum;
            places += 1;
        }
        byte += 1;
    }
    tables
}

/// The VCRC of `bytes` (LRH through ICRC); its wire bytes are `to_le_bytes()`. No field is masked.
#[must_use]
pub fn vcrc(bytes: &[u8]) -> u16 {
    if bytes.len() < LONG_BYTES {
        return by_blocks(bytes).unwrap_or_else(|| by_tables(bytes));
    }
    // Width, polynomial, initial value, reflected, final XOR; the check value is unused.
    let long = || Box::new(CrcParams::new("InfiniBand VCRC", 16, 0x100B, 0xFFFF, true, 0xFFFF, 0));
    crc_fast::checksum_with_params(*LONG.get_or_init(long), bytes) as u16
}

fn by_blocks(bytes: &[u8]) -> Option<u16> {
    let (first, rest) = bytes.split_first_chunk::<BLOCK_BYTES>()?;
    let first = (u128::from_le_bytes(*first) ^ 0xFFFF).to_le_bytes();
    SHORT.checksum(&[first], rest).map(|sum| !sum as u16)
}

fn by_tables(bytes: &[u8]) -> u16 {
    let mut sum = 0xFFFF;
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        let [low, high] = halves(block);
        let (low, high) = ((low ^ u64::from(sum)).to_le_bytes(), high.to_le_bytes());
        sum = crc_of_eight_bytes(low, 8) ^ crc_of_eight_bytes(high, 0);
    }
    let (half, rest) = rest.as_chunks::<HALF_BYTES>();
    for half in half {
        sum = crc_of_eight_bytes((u64::from_le_bytes(*half) ^ u64::from(sum)).to_le_bytes(), 0);
    }
    let (quarter, rest) = rest.as_chunks::<4>();
    for quarter in quarter {
        let bytes = (u32::from_le_bytes(*quarter) ^ u32::from(sum)).to_le_bytes();
        sum = TABLES[3][usize::from(bytes[0])]
            ^ TABLES[2][usize::from(bytes[1])]
            ^ TABLES[1][usize::from(bytes[2])]
            ^ TABLES[0][usize::from(bytes[3])];
    }
    !rest.iter().fold(sum, |sum, byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)])
}

fn halves(block: &[u8; BLOCK_BYTES]) -> [u64; 2] {
    let block = u128::from_le_bytes(*block);
    [block as u64, (block >> 64) as u64]
}

/// Contribution of eight bytes; `behind` bytes of the block follow the last one.
#[inline]
fn crc_of_eight_bytes(bytes: [u8; HALF_BYTES], behind: usize) -> u16 {
    TABLES[behind + 7][usize::from(bytes[0])]
        ^ TABLES[behind + 6][usize::from(bytes[1])]
        ^ TABLES[behind + 5][usize::from(bytes[2])]
        ^ TABLES[behind + 4][usize::from(bytes[3])]
        ^ TABLES[behind + 3][usize::from(bytes[4])]
        ^ TABLES[behind + 2][usize::from(bytes[5])]
        ^ TABLES[behind + 1][usize::from(bytes[6])]
        ^ TABLES[behind][usize::from(bytes[7])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Computes the VCRC bit by bit.
    fn slow(bytes: &[u8]) -> u16 {
        let mut register = 0xFFFFu16;
        for byte in bytes {
            register ^= u16::from(*byte);
            for _ in 0..8 {
                register = if register & 1 == 1 { register >> 1 ^ REFLECTED } else { register >> 1 };
            }
        }
        !register
    }

    #[test]
    fn vcrc_of_every_length_matches_the_bitwise_one() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..9000).map(|_| byte()).collect();
        let around = |length: usize| length - 140..length + 140;
        let lengths = (0..600).chain(around(1024)).chain(around(4096 + 26)).chain(around(8192));
        for length in lengths {
            let expected = slow(&bytes[..length]);
            assert_eq!([vcrc(&bytes[..length]), by_tables(&bytes[..length])], [expected; 2], "{length}");
            assert!(by_blocks(&bytes[..length]).is_none_or(|sum| sum == expected), "{length}");
        }
    }
}
