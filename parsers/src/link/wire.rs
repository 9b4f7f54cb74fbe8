//! What the layers of this module hand to each other.

use crate::error::take;
use crate::field::Endpoint;
use crate::ib::{Bth, ICRC_BYTES};
use crate::location::Framed;
use crate::{Layer, ParseError};

/// The shortest InfiniBand transport packet: a BTH and an ICRC.
pub(super) const SHORTEST_TRANSPORT_BYTES: usize = Bth::LEN + ICRC_BYTES;

/// An IP packet as far as RoCE needs it.
#[derive(Clone, Copy)]
pub(super) struct Network {
    pub(super) framed: Framed,
    /// Offset of the IP header.
    pub(super) at: usize,
    /// True length of the IP packet, header included.
    pub(super) bytes: usize,
    /// Offset of the UDP header.
    pub(super) transport: usize,
    pub(super) src: Endpoint,
    pub(super) dst: Endpoint,
    pub(super) wire: Wire,
}

/// How the length of the Ethernet frame is known.
#[derive(Clone, Copy)]
pub(super) enum Wire {
    /// The record held the whole frame.
    Frame { bytes: u32 },
    /// The capture put a header of its own, of this length, where the Ethernet header was.
    Cooked { header_bytes: usize },
}

impl Wire {
    const ETHERNET_BYTES: usize = 14;

    /// Bytes of the frame whose network header begins at `network` and has `network_bytes` up to its packet's end.
    pub(super) const fn bytes(self, network: usize, network_bytes: usize) -> u32 {
        match self {
            Self::Frame { bytes } => bytes,
            Self::Cooked { header_bytes } => {
                (network.saturating_sub(header_bytes) + Self::ETHERNET_BYTES + network_bytes) as u32
            }
        }
    }
}

/// The `N` bytes at offset `at`; an error points there.
#[inline]
pub(super) fn take_at<const N: usize>(data: &[u8], at: usize, layer: Layer) -> Result<&[u8; N], ParseError> {
    take::<N>(data.get(at..).unwrap_or_default(), layer).map_err(|error| error.add_offset(at))
}
