//! Addresses -> other addresses of the same kind, by a key.
//!
//! Each kind is permuted within itself, so two addresses never become one, and without the key nothing tells which was which: a Feistel network
//! whose rounds are SHA-256, walked on until the result is an address that could have stood there (unicast stays unicast).
//! What names no port, as broadcast and link-local prefixes, stays.

use ibscope_parsers::{Endpoint, Lid};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;

/// Rounds of the network: enough for halves of eight bits.
const ROUNDS: u8 = 10;
/// `fe80::/64`, the prefix that every subnet has.
const LINK_LOCAL: u64 = 0xFE80 << 48;
/// High word of what stands for a LID in an [`Endpoint`].
const NO_PREFIX: u64 = u64::MAX;

/// What the exchange of addresses depends on.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// One that nobody knows.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Self(key))
    }

    /// The key of a text: the same for the same text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Kinds of addresses, which have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Lid,
    LidGroup,
    Ipv4,
    Ipv4Group,
    Ipv4Loopback,
    Prefix,
    Guid,
    GidGroup,
    Mac,
    MacGroup,
    Vlan,
    MplsLabel,
    Partition,
    Transaction,
    Worker,
}

/// Addresses and what they are called instead.
pub(super) struct Names {
    key: Key,
    /// Those that were asked for before.
    known: HashMap<(Kind, u64), u64>,
}

impl Names {
    pub(super) fn new(key: &Key) -> Self {
        Self { key: key.clone(), known: HashMap::new() }
    }

    /// A LID; 0 and the permissive one stay.
    pub(super) fn lid(&mut self, lid: Lid) -> Lid {
        let value = u64::from(lid.0);
        match lid {
            _ if lid.is_unicast() => {
                Lid(self.exchange(Kind::Lid, 16, value, |new| Lid(new as u16).is_unicast()) as u16)
            }
            _ if lid.is_multicast() => {
                Lid(self.exchange(Kind::LidGroup, 16, value, |new| Lid(new as u16).is_multicast()) as u16)
            }
            _ => lid,
        }
    }

    /// An IPv4 address; 0.0.0.0, broadcast and 127.0.0.1 stay. Loopback addresses stay loopback addresses.
    pub(super) fn ipv4(&mut self, address: [u8; 4]) -> [u8; 4] {
        const LOCALHOST: u64 = 0x7F00_0001;
        let value = u64::from(u32::from_be_bytes(address));
        let is_group = |value: u64| value >> 28 == 0xE;
        let is_loopback = |value: u64| value >> 24 == 127;
        let is_host = |value: u64| value != 0 && value != 0xFFFF_FFFF && !is_loopback(value) && !is_group(value);
        let new = match value {
            LOCALHOST => value,
            _ if is_group(value) => 0xE << 28 | self.exchange(Kind::Ipv4Group, 28, value & 0x0FFF_FFFF, |_| true),
            _ if is_loopback(value) => {
                let is_other = |new: u64| new != LOCALHOST & 0xFF_FFFF;
                127 << 24 | self.exchange(Kind::Ipv4Loopback, 24, value & 0xFF_FFFF, is_other)
            }
            _ if is_host(value) => self.exchange(Kind::Ipv4, 32, value, is_host),
            _ => value,
        };
        (new as u32).to_be_bytes()
    }

    /// A GID or IPv6 address: prefix and interface each for itself. Groups keep flags and scope.
    pub(super) fn gid(&mut self, gid: [u8; 16]) -> [u8; 16] {
        let value = u128::from_be_bytes(gid);
        let (high, low) = ((value >> 64) as u64, value as u64);
        let (high, low) = match high {
            0 | LINK_LOCAL => (high, self.guid(low)),
            _ if high >> 56 == 0xFF => {
                let scope = high & 0xFFFF << 48;
                let rest = self.exchange(Kind::GidGroup, 48, high & !(0xFFFF << 48), |new| scope | new != NO_PREFIX);
                (scope | rest, self.exchange(Kind::GidGroup, 64, low, |_| true))
            }
            _ => {
                let is_prefix = |new: u64| new != 0 && new != LINK_LOCAL && new >> 56 != 0xFF;
                (self.exchange(Kind::Prefix, 64, high, is_prefix), self.guid(low))
            }
        };
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }

    /// A GUID or the interface part of an address; 0 and 1 stay. An IPv4 address inside becomes what it becomes elsewhere.
    pub(super) fn guid(&mut self, guid: u64) -> u64 {
        let is_mapped = |guid: u64| guid >> 32 == 0xFFFF;
        if is_mapped(guid) {
            return 0xFFFF << 32 | u64::from(u32::from_be_bytes(self.ipv4((guid as u32).to_be_bytes())));
        }
        self.exchange(Kind::Guid, 64, guid, |new| new > 1 && !is_mapped(new))
    }

    /// An Ethernet address; of groups those that are made of IP addresses change, all others are fixed by standards.
    pub(super) fn mac(&mut self, mac: [u8; 6]) -> [u8; 6] {
        let value = mac.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
        let new = match mac {
            [0x33, 0x33, ..] => value & !0xFFFF_FFFF | self.exchange(Kind::MacGroup, 32, value & 0xFFFF_FFFF, |_| true),
            [0x01, 0x00, 0x5E, ..] => {
                value & !0xFF_FFFF | self.exchange(Kind::MacGroup, 24, value & 0xFF_FFFF, |new| new < 1 << 23)
            }
            _ if mac[0] & 1 == 1 || value == 0 => value,
            _ => self.exchange(Kind::Mac, 48, value, |new| new >> 40 & 1 == 0 && new != 0),
        };
        let [_, _, bytes @ ..] = new.to_be_bytes();
        bytes
    }

    /// A VLAN; 0 (none, only a priority) and the reserved 4095 stay.
    pub(super) fn vlan(&mut self, vlan: u16) -> u16 {
        self.exchange(Kind::Vlan, 12, u64::from(vlan), |new| (1..0xFFF).contains(&new)) as u16
    }

    /// An MPLS label; those that the standard reserves stay.
    pub(super) fn mpls_label(&mut self, label: u32) -> u32 {
        self.exchange(Kind::MplsLabel, 20, u64::from(label), |new| new >= 16) as u32
    }

    /// A partition key: its membership bit stays, and so do the default partition and the invalid one.
    pub(super) fn partition(&mut self, p_key: u16) -> u16 {
        let member = p_key & 0x8000;
        member | self.exchange(Kind::Partition, 16, u64::from(p_key & 0x7FFF), |new| (1..0x7FFF).contains(&new)) as u16
    }

    /// The transaction of a management datagram; 0 stays. Question and answer keep the same one.
    pub(super) fn transaction(&mut self, id: u64) -> u64 {
        self.exchange(Kind::Transaction, 64, id, |new| new != 0)
    }

    /// The number that a UCX worker has drawn for itself.
    pub(super) fn worker(&mut self, id: u64) -> u64 {
        self.exchange(Kind::Worker, 64, id, |_| true)
    }

    /// An endpoint of any kind.
    pub(super) fn endpoint(&mut self, endpoint: Endpoint) -> Endpoint {
        match (endpoint.lid(), endpoint.ip()) {
            (Some(lid), _) => Endpoint::from_lid(self.lid(lid)),
            (None, Some(IpAddr::V4(ip))) => Endpoint::from_ipv4(self.ipv4(ip.octets())),
            (None, Some(IpAddr::V6(ip))) => Endpoint::from_gid(self.gid(ip.octets())),
            (None, None) => endpoint,
        }
    }

    /// What a number of so many bits becomes among those that are `wanted`, of which it is one.
    fn exchange(&mut self, kind: Kind, bits: u32, value: u64, wanted: impl Fn(u64) -> bool) -> u64 {
        if let Some(new) = self.known.get(&(kind, value)) {
            return *new;
        }
        if !wanted(value) {
            return value;
        }
        // Walking on along the cycle of a permutation comes back to where it began at the latest, so this ends, and no two meet.
        let mut new = self.permuted(kind, bits, value);
        while !wanted(new) {
            new = self.permuted(kind, bits, new);
        }
        self.known.insert((kind, value), new);
        new
    }

    fn permuted(&self, kind: Kind, bits: u32, value: u64) -> u64 {
        let half = bits / 2;
        let mask = (1u64 << half) - 1;
        let (mut left, mut right) = (value >> half & mask, value & mask);
        for round in 0..ROUNDS {
            let digest = Sha256::new()
                .chain_update(self.key.0)
                .chain_update([kind as u8, bits as u8, round])
                .chain_update(right.to_be_bytes())
                .finalize();
            let drawn = digest.first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_be_bytes(*bytes));
            (left, right) = (right, (left ^ drawn) & mask);
        }
        left << half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn all_lids_change_places() {
        let mut names = Names::new(&Key::of("a"));
        let new: Vec<Lid> = (0..=u16::MAX).map(|lid| names.lid(Lid(lid))).collect();
        assert_eq!(new.iter().map(|lid| lid.0).collect::<HashSet<_>>().len(), 1 << 16);
        for (old, new) in (0..=u16::MAX).map(Lid).zip(&new) {
            assert_eq!((old.is_unicast(), old.is_multicast()), (new.is_unicast(), new.is_multicast()), "{old}");
        }
        assert_eq!((new[0], new[0xFFFF]), (Lid(0), Lid::PERMISSIVE));
        let stayed = new.iter().zip(0..).filter(|(new, old)| new.0 == *old).count();
        // A permutation drawn by chance has one fixed point on average; here there are two permutations, and two that stay.
        assert!(stayed < 12, "{stayed}");
    }

    #[test]
    fn the_key_decides_and_kinds_stay() {
        let of = |text: &str, key: &str| Names::new(&Key::of(key)).endpoint(text.parse().unwrap());
        for text in [
            "17",
            "0xC001",
            "10.77.0.1",
            "224.0.0.9",
            "fe80::5054:ff:fe12:3456",
            "2001:db8::7",
            "ff12:401b:ffff::1",
            "::5054:1",
            "127.0.1.1",
            "::ffff:10.77.0.1",
        ] {
            let old: Endpoint = text.parse().unwrap();
            let (one, other) = (of(text, "one"), of(text, "other"));
            assert_eq!(one, of(text, "one"));
            assert!(one != old && one != other, "{text}: {one} {other}");
            assert_eq!(one.is_multicast(), old.is_multicast(), "{text}");
            assert_eq!(one.lid().is_some(), old.lid().is_some(), "{text}");
            assert_eq!(one.ip().map(|ip| ip.is_ipv4()), old.ip().map(|ip| ip.is_ipv4()), "{text}");
        }
        for text in ["0", "65535", "0.0.0.0", "255.255.255.255", "127.0.0.1", "::", "::1"] {
            assert_eq!(of(text, "one"), text.parse().unwrap(), "{text}");
        }
        // What a file `hosts` calls the machine itself: another loopback address, in IPv6 as well.
        let Some(IpAddr::V4(own)) = of("127.0.1.1", "one").ip() else { panic!() };
        assert!(own.is_loopback() && own.octets() != [127, 0, 1, 1] && own.octets() != [127, 0, 0, 1], "{own}");
        assert_eq!(of("fe80::1:2", "one").to_string().split_at(6).0, "fe80::");
    }

    #[test]
    fn an_ipv4_address_in_a_gid_becomes_what_it_becomes_elsewhere() {
        let mut names = Names::new(&Key::of("a"));
        let new = names.ipv4([10, 77, 0, 1]);
        for prefix in [0u64, LINK_LOCAL, 0x2001_0DB8 << 32] {
            let gid = (u128::from(prefix) << 64 | 0xFFFF << 32 | 0x0A4D_0001).to_be_bytes();
            assert_eq!(names.gid(gid)[12..], new, "{prefix:x}");
        }
    }

    #[test]
    fn numbers_that_standards_fix_stay_and_all_others_change_places() {
        let mut names = Names::new(&Key::of("a"));
        let places = |new: Vec<u32>| {
            assert_eq!(new.iter().collect::<HashSet<_>>().len(), new.len());
            (0..).zip(new).filter(|(old, new)| old == new).map(|(old, _)| old).collect::<Vec<u32>>()
        };
        // Beside them a permutation drawn by chance has one fixed point on average.
        let vlans = places((0..4096).map(|vlan| u32::from(names.vlan(vlan))).collect());
        assert!(vlans.len() < 8 && vlans.first() == Some(&0) && vlans.last() == Some(&0xFFF), "{vlans:?}");
        let keys = places((0..=0xFFFF).map(|key| u32::from(names.partition(key))).collect());
        assert!(keys.len() < 16 && [0, 0x7FFF, 0x8000, 0xFFFF].iter().all(|key| keys.contains(key)), "{keys:?}");
        let labels = places((0..2000).map(|label| names.mpls_label(label)).collect());
        assert!(labels.len() < 20 && labels[..16].iter().copied().eq(0..16), "{labels:?}");
        assert_eq!(names.transaction(0), 0);
    }

    #[test]
    fn ethernet_addresses_keep_what_standards_fix() {
        let mut names = Names::new(&Key::of("a"));
        for fixed in [[0xFF; 6], [0x01, 0x80, 0xC2, 0, 0, 1], [0; 6]] {
            assert_eq!(names.mac(fixed), fixed);
        }
        assert_eq!(names.mac([0x33, 0x33, 1, 2, 3, 4])[..2], [0x33, 0x33]);
        let group = names.mac([0x01, 0, 0x5E, 1, 2, 3]);
        assert!(group[..3] == [0x01, 0, 0x5E] && group[3] < 0x80);
        let new: HashSet<[u8; 6]> =
            (0..2000u16).map(|n| names.mac([0x52, 0x54, 0, 0, (n >> 8) as u8, n as u8])).collect();
        assert!(new.len() == 2000 && new.iter().all(|mac| mac[0] & 1 == 0));
    }
}
