//! The header fields that choose the traffic class, the partition and the path of a packet.
//!
//! In: the headers of one packet. Out: one word, so that two packets are compared in one step: a
//! connection normally has one combination of values. Invariant: two packets have the same word if
//! and only if all these fields are equal.

/// SL, VL, partition key, traffic class (DSCP and ECN), PCP and UDP source port of a packet, as far
/// as it has them.
///
/// ```text
/// bit  0  P_Key 16 | 16  UDP source port 16 | 32  traffic class 8 | 40  SL 4 | 44  VL 4
/// bit 48  PCP 3 | 56  has a P_Key, port, traffic class, SL and VL, PCP; 61  further ports; 62  further values
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathFields(u64);

impl PathFields {
    const HAS_P_KEY: u64 = 1 << 56;
    const HAS_PORT: u64 = 1 << 57;
    const HAS_CLASS: u64 = 1 << 58;
    const HAS_LANE: u64 = 1 << 59;
    const HAS_PRIORITY: u64 = 1 << 60;
    const FURTHER_PORTS: u64 = 1 << 61;
    const FURTHER_VALUES: u64 = 1 << 62;
    const PORT_SHIFT: u32 = 16;
    const CLASS_SHIFT: u32 = 32;
    const SL_SHIFT: u32 = 40;
    const VL_SHIFT: u32 = 44;
    const PRIORITY_SHIFT: u32 = 48;
    /// ECN "congestion experienced".
    pub const ECN_CE: u8 = 3;
    /// Partition of a P_Key: without the bit that marks full members, because full and limited members
    /// of one partition exchange packets.
    #[must_use]
    pub const fn partition(p_key: u16) -> u16 {
        p_key & 0x7FFF
    }

    /// Values beyond those that are listed.
    pub const OTHERS: Self = Self(Self::FURTHER_VALUES);

    /// The fields of a `RoCEv2` packet: traffic class of the IP header, UDP source port.
    #[expect(clippy::inline_always, reason = "see `PacketShape::quick`")]
    #[inline(always)]
    #[must_use]
    pub const fn roce_v2(traffic_class: u8, port: u16) -> Self {
        Self::roce_v1(traffic_class).with_port(port)
    }

    /// The fields of a packet with a GRH on Ethernet (`RoCEv1`).
    #[expect(clippy::inline_always, reason = "see `PacketShape::quick`")]
    #[inline(always)]
    #[must_use]
    pub const fn roce_v1(traffic_class: u8) -> Self {
        Self(Self::HAS_CLASS | (traffic_class as u64) << Self::CLASS_SHIFT)
    }

    /// The fields of the first two bytes of an LRH: VL and version, SL and next header.
    #[expect(clippy::inline_always, reason = "see `PacketShape::quick`")]
    #[inline(always)]
    #[must_use]
    pub const fn native(lrh: [u8; 2]) -> Self {
        let (vl, sl) = (lrh[0] >> 4, lrh[1] >> 4);
        Self(Self::HAS_LANE | (vl as u64) << Self::VL_SHIFT | (sl as u64) << Self::SL_SHIFT)
    }

    /// These fields with the partition key of the BTH.
    #[expect(clippy::inline_always, reason = "see `PacketShape::quick`")]
    #[inline(always)]
    #[must_use]
    pub const fn with_p_key(self, p_key: u16) -> Self {
        Self(self.0 | Self::HAS_P_KEY | p_key as u64)
    }

    /// These fields with the priority of a VLAN tag, if there is one.
    #[must_use]
    pub const fn with_priority(self, priority: Option<u8>) -> Self {
        match priority {
            Some(priority) => Self(self.0 | Self::HAS_PRIORITY | ((priority & 7) as u64) << Self::PRIORITY_SHIFT),
            None => self,
        }
    }

    /// These fields with a UDP source port.
    #[expect(clippy::inline_always, reason = "see `PacketShape::quick`")]
    #[inline(always)]
    #[must_use]
    pub const fn with_port(self, port: u16) -> Self {
        Self(self.0 | Self::HAS_PORT | (port as u64) << Self::PORT_SHIFT)
    }

    /// These fields without the UDP source port: one of many ports.
    #[must_use]
    pub const fn without_port(self) -> Self {
        if !self.has(Self::HAS_PORT) {
            return self;
        }
        Self(self.0 & !(Self::HAS_PORT | 0xFFFF << Self::PORT_SHIFT) | Self::FURTHER_PORTS)
    }

    const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Partition key; bit 15 marks a full member.
    #[must_use]
    pub const fn p_key(self) -> Option<u16> {
        if self.has(Self::HAS_P_KEY) { Some(self.0 as u16) } else { None }
    }

    /// UDP source port (`RoCEv2`).
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        if self.has(Self::HAS_PORT) { Some((self.0 >> Self::PORT_SHIFT) as u16) } else { None }
    }

    /// Upper six bits of the traffic class (RoCE).
    #[must_use]
    pub const fn dscp(self) -> Option<u8> {
        if self.has(Self::HAS_CLASS) { Some((self.0 >> Self::CLASS_SHIFT) as u8 >> 2) } else { None }
    }

    /// Lower two bits of the traffic class (RoCE): 0 not capable, 1 and 2 capable, 3 congestion
    /// experienced.
    #[must_use]
    pub const fn ecn(self) -> Option<u8> {
        if self.has(Self::HAS_CLASS) { Some((self.0 >> Self::CLASS_SHIFT) as u8 & 3) } else { None }
    }

    /// Service level (native InfiniBand).
    #[must_use]
    pub const fn sl(self) -> Option<u8> {
        if self.has(Self::HAS_LANE) { Some((self.0 >> Self::SL_SHIFT) as u8 & 0xF) } else { None }
    }

    /// Virtual lane (native InfiniBand).
    #[must_use]
    pub const fn vl(self) -> Option<u8> {
        if self.has(Self::HAS_LANE) { Some((self.0 >> Self::VL_SHIFT) as u8 & 0xF) } else { None }
    }

    /// Priority of the outermost VLAN tag.
    #[must_use]
    pub const fn priority(self) -> Option<u8> {
        if self.has(Self::HAS_PRIORITY) { Some((self.0 >> Self::PRIORITY_SHIFT) as u8 & 7) } else { None }
    }

    /// True for the packets of further UDP source ports, which are not listed.
    #[must_use]
    pub const fn has_further_ports(self) -> bool {
        self.has(Self::FURTHER_PORTS)
    }

    /// True for the packets with further values, which are not listed.
    #[must_use]
    pub const fn is_others(self) -> bool {
        self.has(Self::FURTHER_VALUES)
    }

    /// All bits: equal words have equal fields.
    #[expect(clippy::inline_always, reason = "see `PacketShape::quick`")]
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}
