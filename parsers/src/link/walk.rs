//! Reads the headers of a record one after the other, through its tunnels.
//!
//! Each layer returns what follows it as a [`Step`]. Invariant: the loop ends, because every step
//! either adds a tunnel, of which a path has at most [`MAX_DEPTH`](crate::tunnel::MAX_DEPTH), or
//! goes from MPLS to IP, or is the last one.

use super::wire::{FrameExtent, Step};
use super::{ethernet, ip};
use crate::ParseError;
use crate::location::LinkContent;
use crate::tunnel::TunnelPath;

/// Locates the packet of the Ethernet frame that fills this extent.
pub(super) fn frame(data: &[u8], extent: FrameExtent, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    follow(data, Step::Frame(extent), path)
}

/// Locates the packet of the IP packet that fills this extent.
pub(super) fn ip_packet(data: &[u8], extent: FrameExtent, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    follow(data, Step::Ip { at: extent.start(), extent }, path)
}

/// Locates the packet after a header that is not Ethernet's and that names the `EtherType`.
pub(super) fn packet(
    data: &[u8],
    kind: u16,
    extent: FrameExtent,
    path: &mut TunnelPath,
) -> Result<LinkContent, ParseError> {
    follow(data, Step::Packet { kind, at: extent.start(), extent }, path)
}

fn follow(data: &[u8], mut step: Step, path: &mut TunnelPath) -> Result<LinkContent, ParseError> {
    loop {
        step = match step {
            Step::Content(content) => return Ok(content),
            Step::Frame(extent) => ethernet::read(data, extent, path)?,
            Step::Packet { kind, at, extent } => ethernet::by_type(data, kind, at, extent, path)?,
            Step::Ip { at, extent } => ip::by_version(data, at, extent, path)?,
        };
    }
}
