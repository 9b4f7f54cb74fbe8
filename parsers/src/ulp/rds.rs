//! RDS: Reliable Datagram Sockets (Linux `net/rds/rds.h`, `net/rds/ib_send.c`). All fields are
//! big-endian.
//!
//! ```text
//! P+0 sequence u64   P+8 acknowledged u64   P+16 length of the message u32   P+20 ports u16, u16
//! P+24 flags u8      P+25 credits u8        P+26 0 [4]                       P+30 checksum u16
//! P+32 extension headers [16]   P+48 data, at most 4096 bytes per SEND
//! ```
//! The checksum is the Internet checksum of the 48 bytes.

use super::{MatchStrength, is_zero};
use crate::mpi::Payload;

/// Port of the RDMA CM listener (`RDS_PORT`).
pub const PORT: u16 = 18634;
/// Port of the listener since RDS supports IPv6 (`RDS_CM_PORT`).
pub const IPV6_PORT: u16 = 16385;

const HEADER_BYTES: usize = 48;
const FRAGMENT_BYTES: u32 = 4096;

/// Matches a header with a correct checksum.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let header = payload.captured.first_chunk::<HEADER_BYTES>()?;
    let data_bytes = payload.message_bytes.and_then(|bytes| bytes.checked_sub(HEADER_BYTES as u32));
    let is_fragment = data_bytes.is_none_or(|bytes| bytes <= FRAGMENT_BYTES);
    (is_fragment && is_zero(header, 26..30) && sum(header) == u16::MAX).then_some(MatchStrength::Distinctive)
}

/// One's complement sum of the 16-bit words.
fn sum(header: &[u8; HEADER_BYTES]) -> u16 {
    let (words, _) = header.as_chunks::<2>();
    let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum > u32::from(u16::MAX) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}
