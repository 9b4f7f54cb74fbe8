//! CRC-16 of native links: polynomial 0x100B, reflected, begun with ones, complemented.
//!
//! Every packet of a native capture goes through here, so it is done in two ways that give the same. Short ones: 16 bytes at a time, each byte by a
//! table of what it adds from its place. Long ones: first the packet is made short. As
//!
//! ```text
//! x^(64 * 69) = x^(64 * 39) + x^(64 * 24) + 1      modulo the polynomial
//! ```
//! a word of 64 bits may be taken away where it is added to the words 30, 45 and 69 places behind it. So all but the last 69 words go, by additions
//! alone, many bits at a time.

/// 0x100B, its bits backwards.
const REFLECTED: u16 = 0xD008;
/// Bytes taken at a time.
const BLOCK_BYTES: usize = 16;
const WORD_BYTES: usize = 8;
/// How far behind a word it is added.
const OFFSETS: [usize; 3] = [30, 45, 69];
/// Words of a packet that are left.
const TAIL_WORDS: usize = OFFSETS[2];
/// Words that are folded at a time: fewer than the shortest way that they are added over.
const GROUP_WORDS: usize = 16;
/// Words of a packet that are made short together.
const PART_WORDS: usize = TAIL_WORDS + 29 * GROUP_WORDS;
/// Below this, making it short takes as long as it saves.
const LONG_BYTES: usize = (TAIL_WORDS + 3 * GROUP_WORDS) * WORD_BYTES;

/// `TABLES[places][byte]`: what a byte adds to the sum, so many places before the end of its block.
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

/// The VCRC of `bytes` (LRH through ICRC), such that `to_le_bytes()` is what stands on the wire. Nothing is masked.
#[must_use]
pub fn vcrc(bytes: &[u8]) -> u16 {
    let mut sum = 0xFFFF;
    let mut rest = bytes;
    while rest.len() >= LONG_BYTES {
        let words = (rest.len() / WORD_BYTES).min(PART_WORDS);
        let groups = (words - TAIL_WORDS) / GROUP_WORDS;
        let Some((part, after)) = rest.split_at_checked((TAIL_WORDS + groups * GROUP_WORDS) * WORD_BYTES) else {
            break;
        };
        sum = shortened(sum, part);
        rest = after;
    }
    !plain(sum, rest)
}

/// Goes on from `sum`, 16 bytes at a time.
fn plain(mut sum: u16, bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    for block in blocks {
        let [low, high] = halves(block);
        let (low, high) = ((low ^ u64::from(sum)).to_le_bytes(), high.to_le_bytes());
        sum = by_place(low, 8) ^ by_place(high, 0);
    }
    let (half, rest) = rest.as_chunks::<WORD_BYTES>();
    for half in half {
        sum = by_place((u64::from_le_bytes(*half) ^ u64::from(sum)).to_le_bytes(), 0);
    }
    let (quarter, rest) = rest.as_chunks::<4>();
    for quarter in quarter {
        let bytes = (u32::from_le_bytes(*quarter) ^ u32::from(sum)).to_le_bytes();
        sum = TABLES[3][usize::from(bytes[0])]
            ^ TABLES[2][usize::from(bytes[1])]
            ^ TABLES[1][usize::from(bytes[2])]
            ^ TABLES[0][usize::from(bytes[3])];
    }
    rest.iter().fold(sum, |sum, byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)])
}

fn halves(block: &[u8; BLOCK_BYTES]) -> [u64; 2] {
    let block = u128::from_le_bytes(*block);
    [block as u64, (block >> 64) as u64]
}

/// What eight bytes add, of which the last has so many behind it.
#[inline]
fn by_place(bytes: [u8; WORD_BYTES], behind: usize) -> u16 {
    TABLES[behind + 7][usize::from(bytes[0])]
        ^ TABLES[behind + 6][usize::from(bytes[1])]
        ^ TABLES[behind + 5][usize::from(bytes[2])]
        ^ TABLES[behind + 4][usize::from(bytes[3])]
        ^ TABLES[behind + 3][usize::from(bytes[4])]
        ^ TABLES[behind + 2][usize::from(bytes[5])]
        ^ TABLES[behind + 1][usize::from(bytes[6])]
        ^ TABLES[behind][usize::from(bytes[7])]
}

/// Goes on from `sum` over a whole number of groups and the tail.
fn shortened(sum: u16, part: &[u8]) -> u16 {
    // Zeros in front, so that the first words have something to take from.
    let mut words = [0u64; TAIL_WORDS + PART_WORDS];
    let (chunks, _) = part.as_chunks::<WORD_BYTES>();
    let count = chunks.len();
    let mut at = TAIL_WORDS;
    let (groups, _) = chunks.as_chunks::<GROUP_WORDS>();
    let folded = (count - TAIL_WORDS) / GROUP_WORDS;
    let mut first = u64::from(sum);
    for group in groups.iter().take(folded) {
        let Some((before, here)) = words.split_at_mut_checked(at) else { return sum };
        let Some(here) = here.first_chunk_mut::<GROUP_WORDS>() else { return sum };
        let from = |offset: usize| before.get(at - offset..).and_then(<[u64]>::first_chunk::<GROUP_WORDS>);
        let [Some(near), Some(middle), Some(far)] = OFFSETS.map(from) else { return sum };
        for word in 0..GROUP_WORDS {
            here[word] = u64::from_le_bytes(group[word]) ^ near[word] ^ middle[word] ^ far[word];
        }
        here[0] ^= core::mem::take(&mut first);
        at += GROUP_WORDS;
    }
    // What is left takes from the words before, and gives to none.
    let mut left = [0u8; TAIL_WORDS * WORD_BYTES];
    let (left_words, _) = left.as_chunks_mut::<WORD_BYTES>();
    let own = chunks.get(folded * GROUP_WORDS..).unwrap_or_default();
    for (index, (left, own)) in left_words.iter_mut().zip(own).enumerate() {
        let from = |offset: usize| words.get(at + index - offset).copied().unwrap_or(0);
        let added = OFFSETS.map(from).iter().fold(0, |sum, word| sum ^ word);
        *left = (u64::from_le_bytes(*own) ^ added).to_le_bytes();
    }
    plain(0, &left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Bit by bit.
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
    fn every_length_gives_what_bits_give() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..3 * PART_WORDS * WORD_BYTES).map(|_| byte()).collect();
        let around = |length: usize| length.saturating_sub(40)..(length + 40).min(bytes.len() + 1);
        let lengths = (0..400)
            .chain(around(LONG_BYTES))
            .chain(around(4096 + 26))
            .chain(around(PART_WORDS * WORD_BYTES))
            .chain(around(2 * PART_WORDS * WORD_BYTES))
            .chain(around(bytes.len()));
        for length in lengths {
            assert_eq!(vcrc(&bytes[..length]), slow(&bytes[..length]), "{length}");
        }
    }
}
