//! The tunnels around a packet: headers that switches and mirrors put before a whole frame or
//! packet.
//!
//! [`link`](crate::link) removes the tunnels and fills a [`TunnelPath`] on the way to the inner
//! packet. Invariant: a path has at most [`MAX_DEPTH`] tunnels.

use crate::field::Endpoint;
use core::fmt;

/// Tunnels around a packet that are removed. Real captures have one or two: a mirror's and an
/// overlay's.
pub const MAX_DEPTH: u8 = 8;

/// A kind of tunnel. `link/` has the layouts and their sources.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum TunnelKind {
    /// VN-tag of a port extender (`EtherType` 0x8926).
    VnTag,
    /// E-tag of a port extender (IEEE 802.1BR).
    ETag,
    /// Ethernet frame after an MPLS label stack.
    Pseudowire,
    /// MPLS label stack in an IP packet.
    MplsInIp,
    /// MPLS label stack in UDP.
    MplsInUdp,
    /// IPv4 or IPv6 packet in an IP packet.
    IpInIp,
    /// GRE with an Ethernet frame (gretap, NVGRE), an IP packet or an MPLS label stack.
    Gre,
    /// GRE in UDP, with the same content.
    GreInUdp,
    /// ERSPAN type I: GRE without an ERSPAN header.
    ErspanI,
    /// ERSPAN type II.
    ErspanII,
    /// ERSPAN type III.
    ErspanIII,
    /// GRE with the mirror header of Mellanox Spectrum switches.
    MellanoxMirror,
    /// VXLAN.
    Vxlan,
    /// VXLAN Generic Protocol Extension.
    VxlanGpe,
    /// Network service header.
    Nsh,
    /// GENEVE.
    Geneve,
    /// Sample in an sFlow datagram.
    Sflow,
    /// Sample in a netlink message of psample.
    Psample,
}

impl TunnelKind {
    /// Name used in messages and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VnTag => "VN-tag",
            Self::ETag => "E-tag",
            Self::Pseudowire => "pseudowire",
            Self::MplsInIp => "MPLS in IP",
            Self::MplsInUdp => "MPLS in UDP",
            Self::IpInIp => "IP in IP",
            Self::Gre => "GRE",
            Self::GreInUdp => "GRE in UDP",
            Self::ErspanI => "ERSPAN I",
            Self::ErspanII => "ERSPAN II",
            Self::ErspanIII => "ERSPAN III",
            Self::MellanoxMirror => "Mellanox mirror",
            Self::Vxlan => "VXLAN",
            Self::VxlanGpe => "VXLAN-GPE",
            Self::Nsh => "NSH",
            Self::Geneve => "GENEVE",
            Self::Sflow => "sFlow",
            Self::Psample => "psample",
        }
    }

    /// True if the tunnel exists to carry mirror copies.
    const fn is_mirror(self) -> bool {
        matches!(
            self,
            Self::ErspanI | Self::ErspanII | Self::ErspanIII | Self::MellanoxMirror | Self::Sflow | Self::Psample
        )
    }
}

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of tunnel kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunnelKinds(u32);

impl TunnelKinds {
    /// No tunnel: a bare frame.
    pub const NONE: Self = Self(0);

    /// True for a bare frame.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the set has this kind.
    #[must_use]
    pub const fn contains(self, kind: TunnelKind) -> bool {
        self.0 >> kind as u32 & 1 == 1
    }

    /// The set with this kind added.
    #[must_use]
    pub const fn with(self, kind: TunnelKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }
}

/// The frames that one mirror numbers consecutively.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct MirrorSession {
    /// Kind of the tunnel that has the sequence numbers: GRE or ERSPAN.
    pub kind: TunnelKind,
    /// Source address of the tunnel: the switch.
    pub source: Endpoint,
    /// Session of ERSPAN (10 bits), or key of GRE (0 if it has none). Of a sample, the source of sFlow
    /// (`sflow_source`) or the group of psample; of a datagram of sFlow, the sub-agent.
    pub session: u64,
    /// Hardware engine of the switch that sent the frame (ERSPAN III, 6 bits), or the sub-agent of a sample
    /// (sFlow): each has its own counter. 0 for other kinds.
    pub engine: u32,
}

impl MirrorSession {
    /// Bits of the session that are the index of an sFlow source; the others are its class.
    const INDEX_BITS: u32 = 32;

    /// The session of an sFlow source, from its class and its index (`source_id`).
    #[must_use]
    pub(crate) const fn sflow_source(class: u32, index: u32) -> u64 {
        (class as u64) << Self::INDEX_BITS | index as u64
    }

    /// True for sources of sFlow and psample, which sample frames and do not mirror all of them.
    #[must_use]
    pub const fn is_sampler(&self) -> bool {
        matches!(self.kind, TunnelKind::Sflow | TunnelKind::Psample)
    }

    /// True for an sFlow source that is one interface (class 0, with an index). Other sources may sample
    /// at several interfaces, such as a whole switch.
    #[must_use]
    pub const fn is_interface(&self) -> bool {
        matches!(self.kind, TunnelKind::Sflow) && self.session != 0 && self.session >> Self::INDEX_BITS == 0
    }
}

impl fmt::Display for MirrorSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            TunnelKind::Gre => "key",
            TunnelKind::Sflow => "interface",
            // The kernel that samples is the one that captures.
            TunnelKind::Psample => return write!(f, "{}, group {}", self.kind, self.session),
            _ => "session",
        };
        write!(f, "{} from {}, ", self.kind, self.source)?;
        match self.session >> Self::INDEX_BITS {
            0 => write!(f, "{what} {}", self.session)?,
            class => write!(f, "source {class}:{}", self.session & u64::from(u32::MAX))?,
        }
        if self.engine > 0 {
            let what = if matches!(self.kind, TunnelKind::Sflow) { "sub-agent" } else { "hardware" };
            write!(f, ", {what} {}", self.engine)?;
        }
        Ok(())
    }
}

/// The properties of a frame in a mirror's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MirrorHeader {
    /// The session that numbers the frame.
    pub session: MirrorSession,
    /// Number of the frame in its session, modulo 2^32; `None` without the S flag of GRE.
    pub sequence: Option<u32>,
    /// VLAN of the mirrored frame (ERSPAN II and III).
    pub vlan: Option<u16>,
    /// True if the frame was mirrored as it left the switch, false if as it entered (ERSPAN III).
    pub is_egress: Option<bool>,
    /// The mirror truncated the frame (ERSPAN II and III).
    pub is_truncated: bool,
}

/// The tunnels around a packet, from the outside in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunnelPath {
    kinds: TunnelKinds,
    outermost: Option<TunnelKind>,
    depth: u8,
    frame_at: usize,
    priority: Option<u8>,
    mirror: Option<MirrorHeader>,
    samples: Option<(usize, usize)>,
}

impl TunnelPath {
    /// The kinds of tunnels.
    #[must_use]
    pub const fn kinds(&self) -> TunnelKinds {
        self.kinds
    }

    /// Kind of the outermost tunnel; `None` for a bare frame.
    #[must_use]
    pub const fn outermost(&self) -> Option<TunnelKind> {
        self.outermost
    }

    /// Number of tunnels, at most [`MAX_DEPTH`].
    #[must_use]
    pub const fn depth(&self) -> u8 {
        self.depth
    }

    /// Offset of the innermost Ethernet header in the record; 0 if there is none.
    #[must_use]
    pub const fn frame_at(&self) -> usize {
        self.frame_at
    }

    /// The innermost header of a mirror with a session: the one nearest to the mirrored frame,
    /// whose sequence numbers show what was lost anywhere on the way. Other GRE tunnels count only
    /// if no mirror is around the packet.
    #[must_use]
    pub const fn mirror(&self) -> Option<MirrorHeader> {
        self.mirror
    }

    /// Start and end of the sFlow datagram in the record, if the path ends at one:
    /// [`sampled`](crate::sampled) reads it.
    #[must_use]
    pub const fn samples(&self) -> Option<(usize, usize)> {
        self.samples
    }

    /// Notes the start and the end of an sFlow datagram.
    pub(crate) const fn set_samples(&mut self, start: usize, end: usize) {
        self.samples = Some((start, end));
    }

    /// The path of a sampled frame, whose sampler is at the end of this path; `None` if there are
    /// too many tunnels. Offsets count from the start of the sampled frame.
    #[must_use]
    pub fn of_sample(&self, sampler: MirrorHeader) -> Option<Self> {
        let mut path = Self { samples: None, frame_at: 0, ..*self };
        let is_entered = path.enter(sampler.session.kind);
        path.add_mirror(sampler);
        is_entered.then_some(path)
    }

    /// Adds a tunnel; false if there are too many.
    pub(crate) const fn enter(&mut self, kind: TunnelKind) -> bool {
        if self.depth == MAX_DEPTH {
            return false;
        }
        self.depth += 1;
        // Its tags belong to the outer frame.
        self.priority = None;
        self.kinds = self.kinds.with(kind);
        if self.outermost.is_none() {
            self.outermost = Some(kind);
        }
        true
    }

    /// Priority (PCP) of the outermost VLAN tag of the innermost frame.
    #[must_use]
    pub const fn priority(&self) -> Option<u8> {
        self.priority
    }

    /// Notes the innermost Ethernet header so far.
    pub(crate) const fn frame(&mut self, at: usize) {
        self.frame_at = at;
        self.priority = None;
    }

    /// Notes the first two bytes of a VLAN tag.
    pub(crate) const fn vlan_tag(&mut self, control: [u8; 2]) {
        if self.priority.is_none() {
            self.priority = Some(control[0] >> 5);
        }
    }

    /// Notes a header with a session.
    pub(crate) fn add_mirror(&mut self, header: MirrorHeader) {
        let keeps = self.mirror.is_some_and(|own| own.session.kind.is_mirror());
        if header.session.kind.is_mirror() || !keeps {
            self.mirror = Some(header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const KINDS: [TunnelKind; 18] = [
        TunnelKind::VnTag,
        TunnelKind::ETag,
        TunnelKind::Pseudowire,
        TunnelKind::MplsInIp,
        TunnelKind::MplsInUdp,
        TunnelKind::IpInIp,
        TunnelKind::Gre,
        TunnelKind::GreInUdp,
        TunnelKind::ErspanI,
        TunnelKind::ErspanII,
        TunnelKind::ErspanIII,
        TunnelKind::MellanoxMirror,
        TunnelKind::Vxlan,
        TunnelKind::VxlanGpe,
        TunnelKind::Nsh,
        TunnelKind::Geneve,
        TunnelKind::Sflow,
        TunnelKind::Psample,
    ];

    #[test]
    fn a_set_has_the_kinds_that_were_added() {
        for kind in KINDS {
            let only = TunnelKinds::NONE.with(kind);
            assert!(!only.is_empty());
            for other in KINDS {
                assert_eq!(only.contains(other), kind == other, "{kind} {other}");
            }
        }
    }

    #[test]
    fn a_path_knows_its_first_tunnel_and_ends_at_the_maximum_depth() {
        let mut path = TunnelPath::default();
        assert_eq!((path.outermost(), path.depth()), (None, 0));
        assert!(path.enter(TunnelKind::ErspanII));
        for depth in 1..MAX_DEPTH {
            assert_eq!(path.depth(), depth);
            assert!(path.enter(TunnelKind::Vxlan));
        }
        let full = path;
        assert!(!path.enter(TunnelKind::Gre));
        assert_eq!((path, path.outermost()), (full, Some(TunnelKind::ErspanII)));
    }

    #[test]
    fn the_innermost_mirror_numbers_the_frame() {
        let header = |kind, session| MirrorHeader {
            session: MirrorSession { kind, source: Endpoint::from_ipv4([10, 0, 0, 1]), session, engine: 0 },
            sequence: Some(7),
            vlan: None,
            is_egress: None,
            is_truncated: false,
        };
        let of = |headers: &[MirrorHeader]| {
            let mut path = TunnelPath::default();
            headers.iter().for_each(|header| path.add_mirror(*header));
            path.mirror()
        };
        let (gre, outer, inner) =
            (header(TunnelKind::Gre, 1), header(TunnelKind::ErspanII, 2), header(TunnelKind::ErspanIII, 3));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[gre]), Some(gre));
        assert_eq!(of(&[gre, outer]), Some(outer));
        assert_eq!(of(&[outer, gre]), Some(outer));
        assert_eq!(of(&[outer, inner, gre]), Some(inner));
        assert_eq!(outer.session.to_string(), "ERSPAN II from 10.0.0.1, session 2");
        assert_eq!(gre.session.to_string(), "GRE from 10.0.0.1, key 1");
    }
}
