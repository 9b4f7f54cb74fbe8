//! RPC-over-RDMA version 1 (RFC 8166), which NFS uses (RFC 8267), and its CM private data (RFC
//! 8797). All fields are big-endian.
//!
//! ```text
//! P+0 XID u32   P+4 version u32, 1   P+8 credits u32   P+12 procedure u32, 0 to 4   P+16 chunk lists
//! without chunks: P+16, P+20, P+24: 0   P+28 the RPC message: XID u32, 0 call or 1 reply u32
//! private data: +0 0xF6AB0E18   +4 version u8, 1   +5 flags u8   +6 send size u8   +7 receive size u8
//! ```

use super::{MatchStrength, bytes, is_zero};
use crate::mpi::Payload;

/// TCP port that IANA registers for NFS over RDMA.
pub const PORT: u16 = 20049;

const VERSION: u32 = 1;
/// `RDMA_MSG`, `RDMA_NOMSG`, `RDMA_MSGP`, `RDMA_DONE`, `RDMA_ERROR`.
const MSG: u32 = 0;
const PROCEDURE_LAST: u32 = 4;
/// More credits than any server grants (Linux: 16384 slots).
const CREDITS_LIMIT: u32 = 1 << 16;
const HEADER_BYTES: usize = 28;
/// Format identifier of the private data.
const FORMAT: u32 = 0xF6AB_0E18;
const FORMAT_VERSION: u8 = 1;

/// Matches a transport header, and the RPC header after it if there are no chunks.
pub(super) fn message(payload: &Payload<'_>) -> Option<MatchStrength> {
    let captured = payload.captured;
    let word = |at: usize| bytes(captured, at).map(u32::from_be_bytes);
    let (xid, version, credits, procedure) = (word(0)?, word(4)?, word(8)?, word(12)?);
    if version != VERSION || !(1..=CREDITS_LIMIT).contains(&credits) || procedure > PROCEDURE_LAST {
        return None;
    }
    if procedure == MSG
        && is_zero(captured, 16..HEADER_BYTES)
        && let (Some(inner), Some(direction)) = (word(HEADER_BYTES), word(HEADER_BYTES + 4))
        && (inner != xid || direction > 1)
    {
        return None;
    }
    Some(MatchStrength::Distinctive)
}

/// True for private data of RFC 8797.
pub(super) fn is_private_data(data: &[u8]) -> bool {
    bytes(data, 0).map(u32::from_be_bytes) == Some(FORMAT) && data.get(4) == Some(&FORMAT_VERSION)
}
