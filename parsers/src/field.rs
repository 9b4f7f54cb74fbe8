//! Typed header fields, so that the compiler rejects a queue pair number used as a sequence number.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Local identifier (LID) of a port, 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lid(pub u16);

impl Lid {
    /// The permissive LID of directed-route management packets.
    pub const PERMISSIVE: Self = Self(0xFFFF);

    /// True for multicast LIDs: 0xC000 to 0xFFFE.
    #[must_use]
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0 >= 0xC000 && self.0 != 0xFFFF
    }

    /// True for unicast LIDs: 0x0001 to 0xBFFF.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        self.0 != 0 && self.0 < 0xC000
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Queue pair number (QPN), 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qpn(u32);

impl Qpn {
    /// QP 0, the subnet management interface.
    pub const SMI: Self = Self(0);
    /// QP 1, the general services interface.
    pub const GSI: Self = Self(1);
    /// Destination QP of multicast datagrams.
    pub const MULTICAST: Self = Self(0xFF_FFFF);

    /// The low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & 0xFF_FFFF)
    }

    /// The QPN, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// True for QP 0 and QP 1, which carry only management datagrams.
    #[must_use]
    pub const fn is_management(self) -> bool {
        self.0 <= 1
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Packet sequence number (PSN): 24 bits with serial arithmetic (InfiniBand Architecture 9.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & 0xFF_FFFF)
    }

    /// The PSN, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Distance from `earlier` to `self` in packets, modulo 2^24: -2^23 to 2^23 - 1.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i32 {
        // Shift the 24-bit difference to the top of the word, so that shifting back sign-extends
        // it.
        (self.0.wrapping_sub(earlier.0) << 8).cast_signed() >> 8
    }

    /// The PSN `packets` after this one, modulo 2^24.
    #[must_use]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Source or destination of a packet: a LID on native InfiniBand, a GID or an IP address on RoCE.
///
/// Stored as sixteen bytes that sort numerically. IPv4 addresses are stored IPv4-mapped, as
/// `RoCEv1` GIDs write them; LIDs get the prefix `ffff:ffff:ffff:ffff::/64`, a reserved multicast
/// scope.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoint {
    high: u64,
    low: u64,
}

impl Endpoint {
    const LID_PREFIX: u64 = u64::MAX;

    /// The port with LID `lid`.
    #[must_use]
    #[inline]
    pub const fn from_lid(lid: Lid) -> Self {
        Self { high: Self::LID_PREFIX, low: lid.0 as u64 }
    }

    /// The port with GID `gid`, or the host with this IPv6 address.
    #[must_use]
    pub const fn from_gid(gid: [u8; 16]) -> Self {
        let value = u128::from_be_bytes(gid);
        Self { high: (value >> 64) as u64, low: value as u64 }
    }

    /// The host with this IPv4 address.
    #[must_use]
    #[inline]
    pub const fn from_ipv4(address: [u8; 4]) -> Self {
        Self { high: 0, low: 0xFFFF_0000_0000 | u32::from_be_bytes(address) as u64 }
    }

    /// The LID; `None` for a GID or an IP address.
    #[must_use]
    #[inline]
    pub const fn lid(self) -> Option<Lid> {
        if self.high == Self::LID_PREFIX { Some(Lid(self.low as u16)) } else { None }
    }

    /// The GID or IP address, IPv4-mapped ones as IPv4; `None` for a LID.
    #[must_use]
    pub const fn ip(self) -> Option<IpAddr> {
        if self.high == Self::LID_PREFIX {
            return None;
        }
        if self.high == 0 && self.low >> 32 == 0xFFFF {
            return Some(IpAddr::V4(Ipv4Addr::from_bits(self.low as u32)));
        }
        Some(IpAddr::V6(Ipv6Addr::from_bits((self.high as u128) << 64 | self.low as u128)))
    }

    /// The low 64 bits: LID, IPv4 address or interface identifier of a GID.
    #[must_use]
    #[inline]
    pub const fn low_bits(self) -> u64 {
        self.low
    }

    /// A well-mixed 64-bit hash, the same on every machine, for distributing endpoints over
    /// buckets.
    #[must_use]
    #[inline]
    pub const fn hash64(self) -> u64 {
        let mixed = (self.high ^ self.low.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    }

    /// True for multicast LIDs, GIDs and IP addresses, and for the IPv4 broadcast address.
    #[must_use]
    #[inline]
    pub const fn is_multicast(self) -> bool {
        if let Some(lid) = self.lid() {
            return lid.is_multicast();
        }
        match self.ip() {
            Some(IpAddr::V4(ip)) => ip.is_multicast() || ip.is_broadcast(),
            Some(IpAddr::V6(ip)) => ip.is_multicast(),
            None => false,
        }
    }

    /// True for the permissive LID.
    #[must_use]
    #[inline]
    pub const fn is_permissive(self) -> bool {
        matches!(self.lid(), Some(Lid::PERMISSIVE))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lid(), self.ip()) {
            (Some(lid), _) => write!(f, "{lid}"),
            (None, Some(ip)) => write!(f, "{ip}"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// Error: the text is neither a LID (decimal or `0x` hexadecimal) nor an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointError;

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an endpoint: expected a LID (17 or 0x11), a GID or an IP address")
    }
}

impl core::error::Error for EndpointError {}

impl core::str::FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(match ip {
                IpAddr::V4(ip) => Self::from_ipv4(ip.octets()),
                IpAddr::V6(ip) => Self::from_gid(ip.octets()),
            });
        }
        let lid = match text.strip_prefix("0x") {
            Some(hex) => u16::from_str_radix(hex, 16),
            None => text.parse(),
        };
        lid.map(|lid| Self::from_lid(Lid(lid))).map_err(|_| EndpointError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn psn_differences_wrap_at_24_bits() {
        assert_eq!(Psn::new(5).since(Psn::new(3)), 2);
        assert_eq!(Psn::new(3).since(Psn::new(5)), -2);
        assert_eq!(Psn::new(1).since(Psn::new(0xFF_FFFF)), 2);
        assert_eq!(Psn::new(0xFF_FFFF).since(Psn::new(1)), -2);
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7F_FFFF).since(Psn::new(0)), 0x7F_FFFF);
        assert_eq!(Psn::new(0xFF_FFFE).add(3), Psn::new(1));
    }

    #[test]
    fn endpoints_print_as_they_parse() {
        for text in ["17", "10.77.0.1", "fe80::5054:ff:fe12:3456", "::1"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("0x11".parse::<Endpoint>(), "17".parse());
        assert_eq!("::ffff:10.0.0.1".parse::<Endpoint>(), "10.0.0.1".parse());
        for text in ["", "node1", "65536", "-1", "10.77.0"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn endpoints_order_numerically() {
        let lid = |n| Endpoint::from_lid(Lid(n));
        assert!(lid(9) < lid(10));
        assert!(Endpoint::from_ipv4([10, 0, 0, 9]) < Endpoint::from_ipv4([10, 0, 0, 10]));
    }

    #[test]
    fn multicast_and_permissive_lids_are_distinguished() {
        let of = |text: &str| text.parse::<Endpoint>().unwrap();
        assert!(of("0xC000").is_multicast() && of("0xFFFE").is_multicast() && of("ff12::1").is_multicast());
        assert!(of("224.0.0.1").is_multicast() && of("255.255.255.255").is_multicast());
        assert!(!of("0xFFFF").is_multicast() && of("0xFFFF").is_permissive());
        assert!(!of("0xBFFF").is_multicast() && !of("10.0.0.1").is_multicast());
    }
}
