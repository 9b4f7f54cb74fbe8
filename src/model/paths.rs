//! The combinations of path fields (SL, VL, P_Key, DSCP, ECN, PCP, UDP source port) of a
//! connection, with their packets.
//!
//! Invariant: the packets of all combinations add up to the packets of the connection, even beyond
//! the bound on combinations.

use ibscope_parsers::PathFields;
use smallvec::SmallVec;
use std::ops::AddAssign;

/// Combinations of a connection that are listed in full. A connection normally has one, or two if
/// ECN marks some of its packets.
pub const MAX_PATHS: usize = 8;
/// Further combinations that are listed without their UDP source port. The packets of all others
/// are in one entry, [`PathFields::OTHERS`].
const MAX_COARSE_PATHS: usize = 8;

/// Packets of a connection with one combination of path fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSums {
    /// The combination.
    pub fields: PathFields,
    /// Packets, without mirror copies; 0 if only the second observation point saw the combination.
    pub packets: u64,
    /// Wire bytes of these packets.
    pub wire_bytes: u64,
    /// Retransmitted packets among them, of any role.
    pub retransmitted_packets: u64,
    /// Packets with ECN "congestion experienced", at any observation point.
    pub ecn_ce_packets: u64,
}

impl AddAssign for PathSums {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
        self.retransmitted_packets = self.retransmitted_packets.saturating_add(other.retransmitted_packets);
        self.ecn_ce_packets = self.ecn_ce_packets.saturating_add(other.ecn_ce_packets);
    }
}

/// The combinations of a connection, in the order of their first packets; usually one.
pub type ConnectionPaths = SmallVec<[PathSums; 1]>;

/// The row in which the packets of a combination count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPlace {
    /// In the entry with this index.
    At(usize),
    /// In a new entry at the end, with these fields.
    New(PathFields),
}

impl PathPlace {
    /// The place of a combination in a list of `len` entries. Depends only on the list.
    #[must_use]
    pub fn of(fields: PathFields, len: usize, entry: impl Fn(usize) -> PathFields) -> Self {
        let find = |fields: PathFields| (0..len).find(|index| entry(*index) == fields).map(Self::At);
        let bounded = |fields: PathFields, most: usize| find(fields).or((len < most).then_some(Self::New(fields)));
        bounded(fields, MAX_PATHS)
            .or_else(|| bounded(fields.without_port(), MAX_PATHS + MAX_COARSE_PATHS))
            .or_else(|| find(PathFields::OTHERS))
            .unwrap_or(Self::New(PathFields::OTHERS))
    }
}

/// Adds packets to a list of combinations.
pub fn add_path(paths: &mut ConnectionPaths, sums: PathSums) {
    match PathPlace::of(sums.fields, paths.len(), |index| paths[index].fields) {
        PathPlace::At(index) => paths[index] += sums,
        PathPlace::New(fields) => paths.push(PathSums { fields, ..sums }),
    }
}

/// Chooses connections by the path fields of their packets. An empty list accepts every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFilter {
    /// Service levels.
    pub sl: Vec<u8>,
    /// Virtual lanes.
    pub vl: Vec<u8>,
    /// Partition keys; bit 15, which marks full members, does not matter.
    pub p_key: Vec<u16>,
    /// DSCP values.
    pub dscp: Vec<u8>,
    /// Priorities in VLAN tags.
    pub pcp: Vec<u8>,
}

/// The connections that pass a filter by path fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilteredPaths {
    /// Connections that were kept.
    pub connections: u64,
    /// Those of them that also have packets with other values.
    pub mixed_connections: u64,
    /// Their packets with other values.
    pub other_packets: u64,
}

impl PathFilter {
    /// True if the filter accepts every packet.
    #[must_use]
    pub fn accepts_all(&self) -> bool {
        *self == Self::default()
    }

    /// True if the filter accepts packets with these fields.
    #[must_use]
    pub fn accepts(&self, fields: PathFields) -> bool {
        fn is_in<T: PartialEq>(wanted: &[T], value: Option<T>) -> bool {
            wanted.is_empty() || value.is_some_and(|value| wanted.contains(&value))
        }
        let wanted: Vec<u16> = self.p_key.iter().map(|p_key| PathFields::partition(*p_key)).collect();
        is_in(&self.sl, fields.sl())
            && is_in(&self.vl, fields.vl())
            && is_in(&wanted, fields.p_key().map(PathFields::partition))
            && is_in(&self.dscp, fields.dscp())
            && is_in(&self.pcp, fields.priority())
    }
}

/// A P_Key as text.
#[must_use]
pub fn p_key_text(p_key: u16) -> String {
    format!("{p_key:#06x}")
}

/// The values of one field in the packets of a connection, the one of the most packets first, each
/// once; `None` if no packet has the field.
#[must_use]
pub fn values_of<T: Copy + Ord>(paths: &[PathSums], field: impl Fn(PathFields) -> Option<T>) -> Vec<T> {
    let mut values: Vec<(T, u64)> = Vec::new();
    for (value, packets) in paths.iter().filter_map(|path| Some((field(path.fields)?, path.packets))) {
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, sum)) => *sum += packets,
            None => values.push((value, packets)),
        }
    }
    values.sort_unstable_by_key(|&(value, packets)| (std::cmp::Reverse(packets), value));
    values.into_iter().map(|(value, _)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that changes its source port with every packet: the ports beyond the bound are one
    /// entry, and no packet is missing.
    #[test]
    fn combinations_are_bounded_and_no_packet_is_missing() {
        let mut paths = ConnectionPaths::new();
        for port in 0..1000 {
            for class in 0..40 {
                let fields = PathFields::roce_v2(class << 2, 0xC000 + port).with_p_key(0xFFFF);
                add_path(&mut paths, PathSums { fields, packets: 1, wire_bytes: 100, ..PathSums::default() });
            }
        }
        assert_eq!(paths.len(), MAX_PATHS + MAX_COARSE_PATHS + 1);
        assert_eq!(paths.iter().map(|path| path.packets).sum::<u64>(), 40_000);
        // The first eight are whole, the next eight have no port.
        assert!(paths[..MAX_PATHS].iter().all(|path| path.fields.port() == Some(0xC000)));
        let coarse = &paths[MAX_PATHS..MAX_PATHS + MAX_COARSE_PATHS];
        assert!(coarse.iter().all(|path| path.fields.has_further_ports() && path.fields.dscp().is_some()));
        assert!(paths[MAX_PATHS + MAX_COARSE_PATHS].fields.is_others());
    }
}
