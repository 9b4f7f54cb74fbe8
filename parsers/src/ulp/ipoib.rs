//! IP over InfiniBand: datagram mode (RFC 4391) and connected mode (RFC 4755). All fields are
//! big-endian.
//!
//! ```text
//! P+0 EtherType u16: 0x0800, 0x0806, 0x86DD   P+2 0 u16   P+4 the IPv4, ARP or IPv6 packet
//! ```
//! Connections of the connected mode have service id 0x10 in the highest byte and the queue pair
//! number in the lowest three.

use super::{MatchStrength, bytes, has_length};
use crate::mpi::Payload;

const HEADER_BYTES: u64 = 4;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86DD;
const IPV6_HEADER_BYTES: u64 = 40;
/// Hardware type InfiniBand, protocol IPv4, addresses of 20 and 4 bytes (RFC 4391, section 9).
const ARP_HEADER: [u8; 6] = [0x00, 0x20, 0x08, 0x00, 20, 4];
/// Prefix of the service ids of connected mode (RFC 4755, section 4), without the queue pair.
const SERVICE: u64 = 0x1000_0000_0000_0000;
const QPN_MASK: u64 = 0xFF_FFFF;

/// Matches an IPv4, IPv6 or ARP packet.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let captured = payload.captured;
    let [high, low, reserved, also_reserved] = bytes(captured, 0)?;
    if [reserved, also_reserved] != [0; 2] {
        return None;
    }
    let length = |at: usize| bytes(captured, at).map(|length| u64::from(u16::from_be_bytes(length)));
    let version_and_words = captured.get(4).copied()?;
    let is_packet = match u16::from_be_bytes([high, low]) {
        IPV4 => (0x45..=0x4F).contains(&version_and_words) && has_length(payload, HEADER_BYTES + length(6)?),
        IPV6 => version_and_words >> 4 == 6 && has_length(payload, HEADER_BYTES + IPV6_HEADER_BYTES + length(8)?),
        ARP => bytes(captured, 4) == Some(ARP_HEADER),
        _ => false,
    };
    is_packet.then_some(MatchStrength::Distinctive)
}

/// True for a service id of connected mode.
pub(super) const fn is_service(service_id: u64) -> bool {
    service_id & !QPN_MASK == SERVICE && service_id & QPN_MASK != 0
}
