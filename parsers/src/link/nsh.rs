//! NSH, the network service header.

use super::vxlan;
use super::wire::{FrameExtent, Step, take_at};
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

/// Base header and service path header.
const SHORTEST_BYTES: usize = 8;

/// Locates the packet after the NSH at `at`.
///
/// ```text
/// version 2 | O 1 | unassigned 1 | TTL 6 | length 6 (in units of 4 bytes, this header included)
/// unassigned 4 | metadata type 4 | next protocol 8
/// service path 24 | index 8 | metadata
/// ```
/// Source: RFC 8300, section 2.2.
pub(super) fn locate(data: &[u8], at: usize, outer: FrameExtent, path: &mut TunnelPath) -> Result<Step, ParseError> {
    let header = take_at::<SHORTEST_BYTES>(data, at, Layer::Nsh)?;
    let invalid = |field, value: u8| Err(ParseError::invalid(Layer::Nsh, field, u64::from(value)).add_offset(at));
    if header[0] >> 6 != 0 {
        return invalid("version", header[0] >> 6);
    }
    let words = header[1] & 0x3F;
    let bytes = usize::from(words) * 4;
    if bytes < SHORTEST_BYTES {
        return invalid("length", words);
    }
    Ok(vxlan::next_protocol((header[3], at + bytes), TunnelKind::Nsh, outer, path))
}
