//! Values that the protocol layers of this module pass to each other.

use crate::error::take;
use crate::field::Endpoint;
use crate::ib::{Bth, ICRC_BYTES};
use crate::location::{Encapsulation, LinkContent, NotInfiniband};
use crate::tunnel::{TunnelKind, TunnelPath};
use crate::{Layer, ParseError};

/// Length of the shortest InfiniBand transport packet: a BTH and an ICRC.
pub(super) const SHORTEST_TRANSPORT_BYTES: usize = Bth::LEN + ICRC_BYTES;

/// `EtherType`s that several layers need.
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86DD;
pub(super) const MPLS: u16 = 0x8847;
pub(super) const MPLS_MULTICAST: u16 = 0x8848;
pub(super) const NSH: u16 = 0x894F;
pub(super) const VN_TAG: u16 = 0x8926;
pub(super) const E_TAG: u16 = 0x893F;
/// Bridged Ethernet frame (RFC 1701, "Transparent Ethernet Bridging").
pub(super) const BRIDGED: u16 = 0x6558;
/// 802.1Q, 802.1ad, and the older `EtherType` of stacked tags.
pub(super) const VLAN_TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];

/// What follows a header: each layer returns it to [`walk`](super::walk), which reads on.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// The end of the way.
    Content(LinkContent),
    /// An Ethernet frame, which fills the extent.
    Frame(FrameExtent),
    /// A header at offset `at` whose protocol is `EtherType` `kind`.
    Packet { kind: u16, at: usize, extent: FrameExtent },
    /// An IP packet of any version at this offset.
    Ip { at: usize, extent: FrameExtent },
}

impl Step {
    /// Another protocol.
    pub(super) const fn other(what: NotInfiniband) -> Self {
        Self::Content(LinkContent::Other(what))
    }

    /// The Ethernet frame at `at` in a tunnel of this kind.
    pub(super) const fn frame(at: usize, kind: TunnelKind, outer: FrameExtent, path: &mut TunnelPath) -> Self {
        if path.enter(kind) { Self::Frame(outer.inner_frame(at)) } else { Self::other(NotInfiniband::TooDeep) }
    }

    /// The IP packet at `at` in a tunnel of this kind.
    pub(super) const fn ip(at: usize, kind: TunnelKind, outer: FrameExtent, path: &mut TunnelPath) -> Self {
        if !path.enter(kind) {
            return Self::other(NotInfiniband::TooDeep);
        }
        Self::Ip { at, extent: outer.inner_packet(at) }
    }

    /// The content at `at` of a tunnel of this kind, whose header names it by the `EtherType`
    /// `protocol`.
    pub(super) const fn by_type(
        (protocol, at): (u16, usize),
        kind: TunnelKind,
        outer: FrameExtent,
        path: &mut TunnelPath,
    ) -> Self {
        match protocol {
            BRIDGED => Self::frame(at, kind, outer, path),
            _ if !path.enter(kind) => Self::other(NotInfiniband::TooDeep),
            IPV4 | IPV6 | MPLS | MPLS_MULTICAST | NSH => {
                Self::Packet { kind: protocol, at, extent: outer.inner_packet(at) }
            }
            other => Self::other(NotInfiniband::TunnelPayload(kind, other)),
        }
    }
}

/// The fields of an IP packet that RoCE and tunnels need.
#[derive(Clone, Copy)]
pub(super) struct IpPacket {
    pub(super) encapsulation: Encapsulation,
    /// Offset of the IP header.
    pub(super) at: usize,
    /// Original length of the IP packet, header included.
    pub(super) bytes: usize,
    /// Offset of the UDP header, or of the tunnel header after the IP header.
    pub(super) transport: usize,
    pub(super) src: Endpoint,
    pub(super) dst: Endpoint,
    /// The first of several fragments.
    pub(super) is_fragment: bool,
    pub(super) wire: FrameExtent,
}

impl IpPacket {
    /// The extent of a frame or packet inside this packet.
    pub(super) const fn extent(&self) -> FrameExtent {
        let end = self.at + self.bytes;
        FrameExtent { end: if end < self.wire.end { end } else { self.wire.end }, ..self.wire }
    }
}

/// Start and end of a frame. The frame's length on the wire comes from its headers, because
/// padding, checksums and hardware timestamps (Arista, Metamako, Cisco Nexus 3550) may follow its
/// packet, and because a mirror may have truncated it.
#[derive(Clone, Copy)]
pub(super) struct FrameExtent {
    /// Offset of the Ethernet header; without one, of the network header or of the tags before it.
    start: usize,
    /// Offset of the first byte after the frame, according to the record or to the tunnel.
    end: usize,
    /// The frame has no Ethernet header: Linux cooked capture, raw IP, or IP in a tunnel.
    is_headless: bool,
}

impl FrameExtent {
    const ETHERNET_BYTES: usize = 14;
    /// Shortest Ethernet frame without its checksum: shorter ones are padded (IEEE 802.3, 3.2.7).
    const SHORTEST_BYTES: usize = 60;

    /// An Ethernet frame.
    pub(super) const fn frame(start: usize, end: usize) -> Self {
        Self { start, end, is_headless: false }
    }

    /// A frame whose Ethernet header is not there.
    pub(super) const fn headless(start: usize, end: usize) -> Self {
        Self { start, end, is_headless: true }
    }

    /// The Ethernet frame that begins at `start`, inside this extent.
    pub(super) const fn inner_frame(self, start: usize) -> Self {
        Self::frame(start, self.end)
    }

    /// The packet that begins at `start`, inside this extent.
    pub(super) const fn inner_packet(self, start: usize) -> Self {
        Self::headless(start, self.end)
    }

    /// The extent without a tag of `bytes` bytes, which a port extender added.
    pub(super) const fn without_tag(self, bytes: usize) -> Self {
        Self { start: self.start + bytes, ..self }
    }

    /// Offset of the first byte of the frame.
    pub(super) const fn start(self) -> usize {
        self.start
    }

    /// Offset of the first byte after the frame.
    pub(super) const fn end(self) -> usize {
        self.end
    }

    /// True for a headless packet that begins at `at`.
    pub(super) const fn is_packet_at(self, at: usize) -> bool {
        self.is_headless && self.start == at
    }

    /// Length on the wire of the frame whose network header begins at `network`; the network packet
    /// has `network_bytes`.
    ///
    /// Frames of less than 60 bytes count with their padding if the record has it: a record made
    /// before the adapter pads the frame has none. Headless frames get 14 bytes for the Ethernet
    /// header and no padding.
    pub(super) const fn bytes(self, network: usize, network_bytes: usize) -> u32 {
        let packet = network.saturating_sub(self.start) + network_bytes;
        if self.is_headless {
            return (packet + Self::ETHERNET_BYTES) as u32;
        }
        let recorded = self.end.saturating_sub(self.start);
        let padded = if recorded < Self::SHORTEST_BYTES { recorded } else { Self::SHORTEST_BYTES };
        (if packet < padded { padded } else { packet }) as u32
    }
}

/// The `N` bytes at offset `at`; an error carries that offset.
#[inline]
pub(super) fn take_at<const N: usize>(data: &[u8], at: usize, layer: Layer) -> Result<&[u8; N], ParseError> {
    take::<N>(data.get(at..).unwrap_or_default(), layer).map_err(|error| error.add_offset(at))
}
