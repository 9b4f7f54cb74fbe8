//! Values that the protocol layers of this module pass to each other.

use crate::error::take;
use crate::field::Endpoint;
use crate::ib::{Bth, ICRC_BYTES};
use crate::location::Encapsulation;
use crate::{Layer, ParseError};

/// Length of the shortest InfiniBand transport packet: a BTH and an ICRC.
pub(super) const SHORTEST_TRANSPORT_BYTES: usize = Bth::LEN + ICRC_BYTES;

/// The fields of an IP packet that RoCE needs.
#[derive(Clone, Copy)]
pub(super) struct IpPacket {
    pub(super) encapsulation: Encapsulation,
    /// Offset of the IP header.
    pub(super) at: usize,
    /// Original length of the IP packet, header included.
    pub(super) bytes: usize,
    /// Offset of the UDP header.
    pub(super) transport: usize,
    pub(super) src: Endpoint,
    pub(super) dst: Endpoint,
    pub(super) wire: FrameLength,
}

/// Source of the length of the Ethernet frame.
#[derive(Clone, Copy)]
pub(super) enum FrameLength {
    /// The record held the whole frame of `bytes` bytes.
    Frame { bytes: u32 },
    /// The capture replaced the Ethernet header by its own header of `header_bytes` bytes.
    Cooked { header_bytes: usize },
}

impl FrameLength {
    const ETHERNET_BYTES: usize = 14;

    /// Length of the frame whose network header begins at `network`; the network packet has
    /// `network_bytes`.
    pub(super) const fn bytes(self, network: usize, network_bytes: usize) -> u32 {
        match self {
            Self::Frame { bytes } => bytes,
            Self::Cooked { header_bytes } => {
                (network.saturating_sub(header_bytes) + Self::ETHERNET_BYTES + network_bytes) as u32
            }
        }
    }
}

/// The `N` bytes at offset `at`; an error carries that offset.
#[inline]
pub(super) fn take_at<const N: usize>(data: &[u8], at: usize, layer: Layer) -> Result<&[u8; N], ParseError> {
    take::<N>(data.get(at..).unwrap_or_default(), layer).map_err(|error| error.add_offset(at))
}
