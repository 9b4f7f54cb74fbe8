//! Addresses -> pseudonyms: other addresses of the same kind, chosen by a key.
//!
//! Each kind is permuted within itself, so two addresses never get the same pseudonym, and the
//! mapping cannot be inverted without the key. The permutation is a Feistel network with SHA-256
//! rounds. It is applied repeatedly until the result is a valid address of the same kind (cycle
//! walking; unicast stays unicast). Values that identify no port, such as broadcast and link-local
//! prefixes, are kept.

use ibscope_parsers::{Endpoint, Lid};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;

/// Number of Feistel rounds, sufficient for halves of eight bits.
const ROUNDS: u8 = 10;
/// `fe80::/64`, the link-local prefix, which every subnet has.
const LINK_LOCAL: u64 = 0xFE80 << 48;
/// High word of an [`Endpoint`] that contains a LID.
const NO_PREFIX: u64 = u64::MAX;

/// The key on which all pseudonyms depend.
#[derive(Clone)]
pub struct AnonymizeKey([u8; 32]);

impl AnonymizeKey {
    /// A random key.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Self(key))
    }

    /// The key derived from a text, always the same for the same text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl std::fmt::Debug for AnonymizeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnonymizeKey(..)")
    }
}

/// Kinds of addresses, each permuted on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PseudonymKind {
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
    SourcePort,
}

/// Assigns pseudonyms to addresses.
pub(super) struct Pseudonyms {
    key: AnonymizeKey,
    /// Pseudonyms assigned so far.
    assigned: HashMap<(PseudonymKind, u64), u64>,
}

impl Pseudonyms {
    pub(super) fn new(key: &AnonymizeKey) -> Self {
        Self { key: key.clone(), assigned: HashMap::new() }
    }

    /// A LID; 0 and the permissive LID are kept.
    pub(super) fn lid(&mut self, lid: Lid) -> Lid {
        let value = u64::from(lid.0);
        match lid {
            _ if lid.is_unicast() => {
                Lid(self.pseudonym(PseudonymKind::Lid, 16, value, |new| Lid(new as u16).is_unicast()) as u16)
            }
            _ if lid.is_multicast() => {
                Lid(self.pseudonym(PseudonymKind::LidGroup, 16, value, |new| Lid(new as u16).is_multicast()) as u16)
            }
            _ => lid,
        }
    }

    /// An IPv4 address; 0.0.0.0, broadcast and 127.0.0.1 are kept. Loopback addresses stay loopback
    /// addresses.
    pub(super) fn ipv4(&mut self, address: [u8; 4]) -> [u8; 4] {
        const LOCALHOST: u64 = 0x7F00_0001;
        let value = u64::from(u32::from_be_bytes(address));
        let is_group = |value: u64| value >> 28 == 0xE;
        let is_loopback = |value: u64| value >> 24 == 127;
        let is_host = |value: u64| value != 0 && value != 0xFFFF_FFFF && !is_loopback(value) && !is_group(value);
        let new = match value {
            LOCALHOST => value,
            _ if is_group(value) => {
                0xE << 28 | self.pseudonym(PseudonymKind::Ipv4Group, 28, value & 0x0FFF_FFFF, |_| true)
            }
            _ if is_loopback(value) => {
                let is_other = |new: u64| new != LOCALHOST & 0xFF_FFFF;
                127 << 24 | self.pseudonym(PseudonymKind::Ipv4Loopback, 24, value & 0xFF_FFFF, is_other)
            }
            _ if is_host(value) => self.pseudonym(PseudonymKind::Ipv4, 32, value, is_host),
            _ => value,
        };
        (new as u32).to_be_bytes()
    }

    /// A GID or IPv6 address: prefix and interface id are replaced separately. Multicast addresses
    /// keep flags and scope.
    pub(super) fn gid(&mut self, gid: [u8; 16]) -> [u8; 16] {
        let value = u128::from_be_bytes(gid);
        let (high, low) = ((value >> 64) as u64, value as u64);
        let (high, low) = match high {
            0 | LINK_LOCAL => (high, self.guid(low)),
            _ if high >> 56 == 0xFF => {
                let scope = high & 0xFFFF << 48;
                let rest =
                    self.pseudonym(PseudonymKind::GidGroup, 48, high & !(0xFFFF << 48), |new| scope | new != NO_PREFIX);
                (scope | rest, self.pseudonym(PseudonymKind::GidGroup, 64, low, |_| true))
            }
            _ => {
                let is_prefix = |new: u64| new != 0 && new != LINK_LOCAL && new >> 56 != 0xFF;
                (self.pseudonym(PseudonymKind::Prefix, 64, high, is_prefix), self.guid(low))
            }
        };
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }

    /// A GUID or interface id; 0 and 1 are kept. An embedded IPv4 address gets its usual pseudonym.
    pub(super) fn guid(&mut self, guid: u64) -> u64 {
        let is_mapped = |guid: u64| guid >> 32 == 0xFFFF;
        if is_mapped(guid) {
            return 0xFFFF << 32 | u64::from(u32::from_be_bytes(self.ipv4((guid as u32).to_be_bytes())));
        }
        self.pseudonym(PseudonymKind::Guid, 64, guid, |new| new > 1 && !is_mapped(new))
    }

    /// A MAC address. Of multicast addresses, only those derived from IP addresses are replaced;
    /// standards define all others.
    pub(super) fn mac(&mut self, mac: [u8; 6]) -> [u8; 6] {
        let value = mac.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
        let new = match mac {
            [0x33, 0x33, ..] => {
                value & !0xFFFF_FFFF | self.pseudonym(PseudonymKind::MacGroup, 32, value & 0xFFFF_FFFF, |_| true)
            }
            [0x01, 0x00, 0x5E, ..] => {
                value & !0xFF_FFFF | self.pseudonym(PseudonymKind::MacGroup, 24, value & 0xFF_FFFF, |new| new < 1 << 23)
            }
            _ if mac[0] & 1 == 1 || value == 0 => value,
            _ => self.pseudonym(PseudonymKind::Mac, 48, value, |new| new >> 40 & 1 == 0 && new != 0),
        };
        let [_, _, bytes @ ..] = new.to_be_bytes();
        bytes
    }

    /// A VLAN id; 0 (priority tag) and the reserved 4095 are kept.
    pub(super) fn vlan(&mut self, vlan: u16) -> u16 {
        self.pseudonym(PseudonymKind::Vlan, 12, u64::from(vlan), |new| (1..0xFFF).contains(&new)) as u16
    }

    /// An MPLS label; reserved labels are kept.
    pub(super) fn mpls_label(&mut self, label: u32) -> u32 {
        self.pseudonym(PseudonymKind::MplsLabel, 20, u64::from(label), |new| new >= 16) as u32
    }

    /// A partition key. The membership bit, the default partition and the invalid partition are
    /// kept.
    pub(super) fn partition(&mut self, p_key: u16) -> u16 {
        let member = p_key & 0x8000;
        member
            | self.pseudonym(PseudonymKind::Partition, 16, u64::from(p_key & 0x7FFF), |new| (1..0x7FFF).contains(&new))
                as u16
    }

    /// A UDP source port; 0 is kept. Dynamic ports stay dynamic ports (RFC 6335, section 6), as
    /// `RoCEv2` adapters choose them.
    pub(super) fn source_port(&mut self, port: u16) -> u16 {
        const FIRST_DYNAMIC: u64 = 0xC000;
        let value = u64::from(port);
        let is_alike = |new: u64| new != 0 && (new >= FIRST_DYNAMIC) == (value >= FIRST_DYNAMIC);
        self.pseudonym(PseudonymKind::SourcePort, 16, value, is_alike) as u16
    }

    /// The transaction id of a management datagram; 0 is kept. Request and response keep the same
    /// id.
    pub(super) fn transaction(&mut self, id: u64) -> u64 {
        self.pseudonym(PseudonymKind::Transaction, 64, id, |new| new != 0)
    }

    /// The random id of a UCX worker.
    pub(super) fn worker(&mut self, id: u64) -> u64 {
        self.pseudonym(PseudonymKind::Worker, 64, id, |_| true)
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

    /// The pseudonym of a value of `bits` bits among the values that are `wanted`. Other values are
    /// kept.
    fn pseudonym(&mut self, kind: PseudonymKind, bits: u32, value: u64, wanted: impl Fn(u64) -> bool) -> u64 {
        if let Some(new) = self.assigned.get(&(kind, value)) {
            return *new;
        }
        if !wanted(value) {
            return value;
        }
        // A permutation leads back to the start of its cycle, where `value` is wanted: the loop
        // ends, and no two values get the same pseudonym.
        let mut new = self.permuted(kind, bits, value);
        while !wanted(new) {
            new = self.permuted(kind, bits, new);
        }
        self.assigned.insert((kind, value), new);
        new
    }

    fn permuted(&self, kind: PseudonymKind, bits: u32, value: u64) -> u64 {
        let half = bits / 2;
        let mask = (1u64 << half) - 1;
        let (mut left, mut right) = (value >> half & mask, value & mask);
        for round in 0..ROUNDS {
            let digest = Sha256::new()
                .chain_update(self.key.0)
                .chain_update([kind as u8, bits as u8, round])
                .chain_update(right.to_be_bytes())
                .finalize();
            let random = digest.first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_be_bytes(*bytes));
            (left, right) = (right, (left ^ random) & mask);
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
        let mut names = Pseudonyms::new(&AnonymizeKey::of("a"));
        let new: Vec<Lid> = (0..=u16::MAX).map(|lid| names.lid(Lid(lid))).collect();
        assert_eq!(new.iter().map(|lid| lid.0).collect::<HashSet<_>>().len(), 1 << 16);
        for (old, new) in (0..=u16::MAX).map(Lid).zip(&new) {
            assert_eq!((old.is_unicast(), old.is_multicast()), (new.is_unicast(), new.is_multicast()), "{old}");
        }
        assert_eq!((new[0], new[0xFFFF]), (Lid(0), Lid::PERMISSIVE));
        let fixed_points = new.iter().zip(0..=u16::MAX).filter(|(new, old)| new.0 == *old).count();
        // A random permutation has one fixed point on average; here there are two permutations, and
        // two kept LIDs.
        assert!(fixed_points < 12, "{fixed_points}");
    }

    #[test]
    fn the_key_decides_and_kinds_stay() {
        let of = |text: &str, key: &str| Pseudonyms::new(&AnonymizeKey::of(key)).endpoint(text.parse().unwrap());
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
        // The address of the machine itself in a file `hosts`: another loopback address, in IPv6 as
        // well.
        let Some(IpAddr::V4(own)) = of("127.0.1.1", "one").ip() else { panic!() };
        assert!(own.is_loopback() && own.octets() != [127, 0, 1, 1] && own.octets() != [127, 0, 0, 1], "{own}");
        assert_eq!(of("fe80::1:2", "one").to_string().split_at(6).0, "fe80::");
    }

    #[test]
    fn an_ipv4_address_in_a_gid_has_its_usual_pseudonym() {
        let mut names = Pseudonyms::new(&AnonymizeKey::of("a"));
        let new = names.ipv4([10, 77, 0, 1]);
        for prefix in [0u64, LINK_LOCAL, 0x2001_0DB8 << 32] {
            let gid = (u128::from(prefix) << 64 | 0xFFFF << 32 | 0x0A4D_0001).to_be_bytes();
            assert_eq!(names.gid(gid)[12..], new, "{prefix:x}");
        }
    }

    #[test]
    fn numbers_that_standards_fix_stay_and_all_others_change_places() {
        let mut names = Pseudonyms::new(&AnonymizeKey::of("a"));
        let places = |new: Vec<u32>| {
            assert_eq!(new.iter().collect::<HashSet<_>>().len(), new.len());
            (0..).zip(new).filter(|(old, new)| old == new).map(|(old, _)| old).collect::<Vec<u32>>()
        };
        // The other values are permuted at random, with one fixed point on average.
        let vlans = places((0..4096).map(|vlan| u32::from(names.vlan(vlan))).collect());
        assert!(vlans.len() < 8 && vlans.first() == Some(&0) && vlans.last() == Some(&0xFFF), "{vlans:?}");
        let keys = places((0..=0xFFFF).map(|key| u32::from(names.partition(key))).collect());
        assert!(keys.len() < 16 && [0, 0x7FFF, 0x8000, 0xFFFF].iter().all(|key| keys.contains(key)), "{keys:?}");
        let labels = places((0..2000).map(|label| names.mpls_label(label)).collect());
        assert!(labels.len() < 20 && labels[..16].iter().copied().eq(0..16), "{labels:?}");
        assert_eq!(names.transaction(0), 0);
    }

    #[test]
    fn source_ports_change_places_within_the_dynamic_ports_and_within_the_others() {
        let mut names = Pseudonyms::new(&AnonymizeKey::of("a"));
        let new: Vec<u16> = (0..=u16::MAX).map(|port| names.source_port(port)).collect();
        assert_eq!(new.iter().collect::<HashSet<_>>().len(), 1 << 16);
        assert_eq!(new[0], 0);
        let fixed_points = (0..=u16::MAX).zip(&new).filter(|(old, new)| old == *new).count();
        // One on average in each of the two permutations, and port 0.
        assert!(fixed_points < 12, "{fixed_points}");
        for (old, new) in (0..=u16::MAX).zip(&new) {
            assert_eq!((49_152..).contains(&old), (49_152..).contains(new), "{old} has become {new}");
        }
        assert_eq!(names.source_port(0xC123), new[0xC123], "the same port again");
        assert_ne!(Pseudonyms::new(&AnonymizeKey::of("b")).source_port(0xC123), new[0xC123]);
    }

    #[test]
    fn ethernet_addresses_keep_what_standards_fix() {
        let mut names = Pseudonyms::new(&AnonymizeKey::of("a"));
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
