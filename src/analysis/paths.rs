//! Traffic classes, partitions and ECMP paths of a profile, by the path fields of the packets.
//!
//! In: the path fields (SL, VL, P_Key, DSCP, ECN, PCP, UDP source port) of the connections of a
//! [`Profile`]. Out: sums by combination and by pair of ports, and findings. Management and
//! multicast traffic is left out: it has classes of its own.

use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::paths::values_of;
use crate::model::profile::ConnectionRow;
use crate::model::{PathSums, Profile, TrafficKind};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::{Endpoint, PathFields, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that choose the traffic class and the partition of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrafficClass {
    /// Service level (native InfiniBand).
    pub sl: Option<u8>,
    /// Virtual lane (native InfiniBand).
    pub vl: Option<u8>,
    /// Partition key; bit 15 marks a full member.
    pub p_key: Option<u16>,
    /// DSCP (RoCE).
    pub dscp: Option<u8>,
    /// Priority of a VLAN tag.
    pub pcp: Option<u8>,
}

impl From<PathFields> for TrafficClass {
    fn from(fields: PathFields) -> Self {
        Self { sl: fields.sl(), vl: fields.vl(), p_key: fields.p_key(), dscp: fields.dscp(), pcp: fields.priority() }
    }
}

/// Packets, and packets with ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTotals {
    /// Connections with such packets.
    pub connections: u64,
    /// Packets, without mirror copies.
    pub packets: u64,
    /// Their wire bytes.
    pub wire_bytes: u64,
    /// Retransmitted packets among them.
    pub retransmitted_packets: u64,
    /// Packets whose sender can react to ECN marks: ECN is 1, 2 or 3.
    pub ecn_capable_packets: u64,
    /// Packets with ECN "congestion experienced".
    pub ecn_ce_packets: u64,
}

impl PathTotals {
    fn add(&mut self, sums: &PathSums) {
        self.packets += sums.packets;
        self.wire_bytes += sums.wire_bytes;
        self.retransmitted_packets += sums.retransmitted_packets;
        self.ecn_ce_packets += sums.ecn_ce_packets;
        if sums.fields.ecn().is_some_and(|ecn| ecn != 0) {
            self.ecn_capable_packets += sums.packets;
        }
    }
}

/// UDP source ports of the packets between two ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SourcePorts {
    ports: BTreeSet<u16>,
    /// There are more, which the profile does not list.
    has_more: bool,
}

impl SourcePorts {
    fn add(&mut self, fields: PathFields) {
        self.ports.extend(fields.port());
        self.has_more |= fields.has_further_ports() || fields.is_others();
    }

    /// Number of ports, at least; `None` without UDP.
    fn count(&self) -> Option<u64> {
        (!self.ports.is_empty()).then_some(self.ports.len() as u64 + u64::from(self.has_more))
    }
}

/// The packets of one traffic class and partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRow {
    /// The class.
    pub class: TrafficClass,
    /// Its packets.
    pub totals: PathTotals,
    /// Directed pairs of ports with such packets.
    pub port_pairs: u64,
    /// Fewest UDP source ports of one of these pairs; `None` without UDP.
    pub fewest_source_ports: Option<u64>,
    /// Most UDP source ports of one of these pairs.
    pub most_source_ports: Option<u64>,
}

/// The packets from one port to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairRow {
    /// Sender.
    pub src: Label,
    /// Receiver.
    pub dst: Label,
    /// Its packets.
    pub totals: PathTotals,
    /// Its classes, that of the most packets first.
    pub classes: Vec<TrafficClass>,
    /// UDP source ports, at least; `None` without UDP.
    pub source_ports: Option<u64>,
}

/// UDP source ports by sender and receiver.
type PortsByPair = BTreeMap<(Endpoint, Endpoint), SourcePorts>;

/// The sums by traffic class, most packets first.
#[must_use]
pub fn by_class(profile: &Profile) -> Vec<ClassRow> {
    let mut classes: BTreeMap<TrafficClass, (PathTotals, PortsByPair)> = BTreeMap::new();
    for connection in data(profile) {
        let mut counted: BTreeSet<TrafficClass> = BTreeSet::new();
        for sums in counted_paths(connection) {
            let class = TrafficClass::from(sums.fields);
            let (totals, ports) = classes.entry(class).or_default();
            totals.add(sums);
            totals.connections += u64::from(counted.insert(class));
            ports.entry((connection.src, connection.dst)).or_default().add(sums.fields);
        }
    }
    let row = |(class, (totals, ports)): (_, (_, PortsByPair))| {
        let counts = || ports.values().filter_map(SourcePorts::count);
        ClassRow {
            class,
            totals,
            port_pairs: ports.len() as u64,
            fewest_source_ports: counts().min(),
            most_source_ports: counts().max(),
        }
    };
    let mut rows: Vec<ClassRow> = classes.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.totals.packets));
    rows
}

/// The sums by directed pair of ports.
#[must_use]
pub fn by_pair(profile: &Profile) -> Vec<PairRow> {
    #[derive(Default)]
    struct PairPaths {
        totals: PathTotals,
        classes: BTreeMap<TrafficClass, u64>,
        ports: SourcePorts,
    }
    let labels = EndpointLabels::new(profile, GroupBy::Endpoint);
    let mut pairs: BTreeMap<(Label, Label), PairPaths> = BTreeMap::new();
    for connection in data(profile) {
        if counted_paths(connection).next().is_none() {
            continue;
        }
        let pair = pairs.entry((labels.sender(connection), labels.receiver(connection))).or_default();
        pair.totals.connections += 1;
        for sums in counted_paths(connection) {
            pair.totals.add(sums);
            *pair.classes.entry(sums.fields.into()).or_default() += sums.packets;
            pair.ports.add(sums.fields);
        }
    }
    let row = |((src, dst), pair): (_, PairPaths)| {
        let mut classes: Vec<(TrafficClass, u64)> = pair.classes.into_iter().collect();
        classes.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        let classes = classes.into_iter().map(|(class, _)| class).collect();
        PairRow { src, dst, totals: pair.totals, classes, source_ports: pair.ports.count() }
    };
    pairs.into_iter().map(row).collect()
}

/// A field that chooses a traffic class on the whole path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassField {
    /// Service level.
    Sl,
    /// DSCP.
    Dscp,
    /// Priority of the VLAN tag.
    Pcp,
}

impl ClassField {
    const ALL: [Self; 3] = [Self::Sl, Self::Dscp, Self::Pcp];

    /// The name of the column, and in upper case of the field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sl => "sl",
            Self::Dscp => "dscp",
            Self::Pcp => "pcp",
        }
    }

    const fn of(self, fields: PathFields) -> Option<u8> {
        match self {
            Self::Sl => fields.sl(),
            Self::Dscp => fields.dscp(),
            Self::Pcp => fields.priority(),
        }
    }
}

/// A problem that the path fields show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathProblem {
    /// The two directions of connections have different traffic classes.
    OneDirection {
        /// The field.
        field: ClassField,
        /// Its value from `src` to `dst`.
        forward: u8,
        /// Its value from `dst` to `src`.
        backward: u8,
    },
    /// All queue pairs send from one UDP source port: all packets take one path.
    OneSourcePort {
        /// The port.
        port: u16,
    },
    /// Another partition than that of nearly all packets.
    UnexpectedPartition {
        /// The partition key.
        p_key: u16,
        /// That of nearly all packets.
        usual: u16,
    },
}

impl PathProblem {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneDirection { .. } => "class_in_one_direction",
            Self::OneSourcePort { .. } => "one_source_port",
            Self::UnexpectedPartition { .. } => "unexpected_p_key",
        }
    }
}

/// A problem of the connections from one port to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFinding {
    /// Sender.
    pub src: Label,
    /// Receiver.
    pub dst: Label,
    /// The problem.
    pub problem: PathProblem,
    /// Connections that have it.
    pub connections: u64,
    /// Their packets.
    pub packets: u64,
}

/// Number of connections from one port to another that should have several UDP source ports.
const MIN_QUEUE_PAIRS: u64 = 4;
/// Nearly all packets: at least this many in a hundred.
const USUAL_PERCENT: u64 = 90;

/// The findings, sorted by problem, sender and receiver.
#[must_use]
pub fn findings(profile: &Profile) -> Vec<PathFinding> {
    let labels = EndpointLabels::new(profile, GroupBy::Endpoint);
    let mut found: BTreeMap<(PathProblem, Label, Label), (u64, u64)> = BTreeMap::new();
    let mut add = |problem: PathProblem, connection: &ConnectionRow, (connections, packets): (u64, u64)| {
        let key = (problem, labels.sender(connection), labels.receiver(connection));
        let sums = found.entry(key).or_default();
        sums.0 += connections;
        sums.1 += packets;
    };
    for (connection, problem) in one_direction(profile) {
        add(problem, connection, (1, connection.traffic.packets));
    }
    for (connection, problem, connections, packets) in one_source_port(profile) {
        add(problem, connection, (connections, packets));
    }
    for (connection, problem, packets) in unexpected_partitions(profile) {
        add(problem, connection, (1, packets));
    }
    let finding =
        |((problem, src, dst), (connections, packets))| PathFinding { src, dst, problem, connections, packets };
    found.into_iter().map(finding).collect()
}

/// Connections whose two directions have different traffic classes: once per pair of directions. A
/// queue pair has one class, so the class of most packets counts.
fn one_direction(profile: &Profile) -> Vec<(&ConnectionRow, PathProblem)> {
    type Place = (Endpoint, Endpoint, u8, Qpn);
    // Most captures have one class only, so that no two directions can differ.
    let mut classes = data(profile).flat_map(|row| &row.paths).map(|sums| ClassField::ALL.map(|of| of.of(sums.fields)));
    let first = classes.next();
    if classes.all(|class| Some(class) == first) {
        return Vec::new();
    }
    let place = |row: &ConnectionRow| (row.src, row.dst, row.service, row.dest_qp);
    let by_place: BTreeMap<Place, &ConnectionRow> =
        data(profile).filter(|row| is_connected(row)).map(|row| (place(row), row)).collect();
    let mut found = Vec::new();
    for (own, row) in &by_place {
        let back = row.src_qp.and_then(|qpn| by_place.get_key_value(&(row.dst, row.src, row.service, qpn)));
        let Some((_, reverse)) = back.filter(|(other, reverse)| own < other && reverse.src_qp == Some(row.dest_qp))
        else {
            continue;
        };
        for field in ClassField::ALL {
            let main = |row: &ConnectionRow| values_of(&row.paths, |fields| field.of(fields)).first().copied();
            if let (Some(forward), Some(backward)) = (main(row), main(reverse))
                && forward != backward
            {
                found.push((*row, PathProblem::OneDirection { field, forward, backward }));
            }
        }
    }
    found
}

/// Pairs of ports whose queue pairs all send from one UDP source port, each with one of its
/// connections, their number and their packets.
fn one_source_port(profile: &Profile) -> Vec<(&ConnectionRow, PathProblem, u64, u64)> {
    if data(profile).flat_map(counted_paths).all(|sums| sums.fields.port().is_none()) {
        return Vec::new();
    }
    let mut pairs: BTreeMap<(Endpoint, Endpoint), (&ConnectionRow, SourcePorts, u64, u64)> = BTreeMap::new();
    for connection in data(profile).filter(|row| is_connected(row)) {
        let key = (connection.src, connection.dst);
        let (_, ports, connections, packets) =
            pairs.entry(key).or_insert_with(|| (connection, SourcePorts::default(), 0, 0));
        counted_paths(connection).for_each(|sums| ports.add(sums.fields));
        *connections += 1;
        *packets += connection.traffic.packets;
    }
    let finding = |(connection, ports, connections, packets): (_, SourcePorts, u64, u64)| {
        let port =
            ports.ports.first().copied().filter(|_| ports.count() == Some(1) && connections >= MIN_QUEUE_PAIRS)?;
        Some((connection, PathProblem::OneSourcePort { port }, connections, packets))
    };
    pairs.into_values().filter_map(finding).collect()
}

/// Connections with packets of another partition than that of nearly all packets.
fn unexpected_partitions(profile: &Profile) -> Vec<(&ConnectionRow, PathProblem, u64)> {
    let mut packets: BTreeMap<u16, (u64, u16)> = BTreeMap::new();
    for sums in data(profile).flat_map(counted_paths) {
        if let Some(p_key) = sums.fields.p_key() {
            let (count, full) = packets.entry(PathFields::partition(p_key)).or_default();
            *count += sums.packets;
            *full = (*full).max(p_key);
        }
    }
    let all: u64 = packets.values().map(|(count, _)| count).sum();
    let Some((usual, &(most, shown))) = packets.iter().max_by_key(|(_, (count, _))| *count) else { return Vec::new() };
    if most.saturating_mul(100) < all.saturating_mul(USUAL_PERCENT) {
        // Several partitions are in use, each with its own connections.
        return Vec::new();
    }
    let mut found = Vec::new();
    for connection in data(profile) {
        let mut others: BTreeMap<u16, u64> = BTreeMap::new();
        for sums in counted_paths(connection) {
            if let Some(p_key) = sums.fields.p_key().filter(|p_key| PathFields::partition(*p_key) != *usual) {
                *others.entry(p_key).or_default() += sums.packets;
            }
        }
        let problem = |p_key| PathProblem::UnexpectedPartition { p_key, usual: shown };
        found.extend(others.into_iter().map(|(p_key, packets)| (connection, problem(p_key), packets)));
    }
    found
}

/// The connections of data traffic.
fn data(profile: &Profile) -> impl Iterator<Item = &ConnectionRow> {
    profile.connections.iter().filter(|row| row.kind == TrafficKind::Data)
}

/// The combinations of a connection with packets that count.
fn counted_paths(connection: &ConnectionRow) -> impl Iterator<Item = &PathSums> {
    connection.paths.iter().filter(|sums| sums.packets > 0 || sums.ecn_ce_packets > 0)
}

/// True for services whose queue pairs are connected. Congestion notifications have a class of
/// their own.
fn is_connected(row: &ConnectionRow) -> bool {
    Opcode(row.service << 5).service().is_connected()
}
