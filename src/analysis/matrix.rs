//! Profile -> communication matrix, by endpoint or by rank. Row = sender, column = receiver.

use crate::analysis::endpoint_label::{By, EndpointLabels, Label};
use crate::model::RdmaSums;
use crate::model::profile::{ConnectionRow, JobRow, PairCoverage, Traffic};
use crate::model::{Kind, Nodes, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which MPI messages count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Point-to-point.
    P2p,
    /// Those of collective operations.
    Collective,
    /// Point-to-point and collective.
    All,
    /// One-sided operations: WRITE and READ payload without envelopes, between processes of a job. They are no part of the others.
    OneSided,
}

impl Selection {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P2p => "p2p",
            Self::Collective => "collective",
            Self::All => "all",
            Self::OneSided => "one-sided",
        }
    }

    /// MPI messages and bytes of this selection. One-sided operations have no envelopes: in a part of the time of the connections that carry
    /// them, those are all transport messages and all payload.
    #[must_use]
    pub const fn mpi(self, traffic: &Traffic) -> (u64, u64) {
        match self {
            Self::OneSided => (traffic.messages, traffic.payload_bytes),
            Self::P2p => (traffic.p2p_messages, traffic.p2p_mpi_bytes),
            Self::Collective => (traffic.collective_messages, traffic.collective_mpi_bytes),
            Self::All => (
                traffic.p2p_messages + traffic.collective_messages,
                traffic.p2p_mpi_bytes.saturating_add(traffic.collective_mpi_bytes),
            ),
        }
    }
}

/// Which value of a cell a table or figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Messages.
    Messages,
    /// MPI bytes.
    MpiBytes,
    /// InfiniBand payload bytes.
    PayloadBytes,
    /// Bytes on the wire.
    WireBytes,
    /// Packets.
    Packets,
}

impl Unit {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::MpiBytes => "MPI bytes",
            Self::PayloadBytes => "payload bytes",
            Self::WireBytes => "wire bytes",
            Self::Packets => "packets",
        }
    }

    /// True where values are bytes.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::MpiBytes | Self::PayloadBytes | Self::WireBytes)
    }
}

/// What one sender sent to one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Transport messages by endpoint with [`Selection::All`]; else MPI messages of the selection.
    pub messages: u64,
    /// MPI bytes of the selection; `None` where no MPI library was recognised.
    pub mpi_bytes: Option<u64>,
    /// InfiniBand payload bytes of the pair, whatever the selection.
    pub payload_bytes: u64,
    /// Wire bytes of the pair, whatever the selection.
    pub wire_bytes: u64,
    /// Packets of the pair, whatever the selection.
    pub packets: u64,
    /// How much of the pair's messages the capture holds. Set in a [`Matrix`] of a whole profile alone.
    pub coverage: PairCoverage,
}

impl Cell {
    /// Adds traffic of a connection.
    pub(crate) fn add(&mut self, counted: Counted, traffic: &Traffic) {
        let Counted { by, selection, has_mpi, one_sided } = counted;
        let of_rdma = |rdma: RdmaSums| (rdma.messages, rdma.payload_bytes);
        let (mpi_messages, mpi_bytes) = one_sided.map_or_else(|| selection.mpi(traffic), of_rdma);
        self.messages += match (by, selection) {
            (By::Endpoint, Selection::All) => traffic.messages,
            (_, Selection::OneSided) if !has_mpi => 0,
            _ => mpi_messages,
        };
        if has_mpi {
            let sum = self.mpi_bytes.get_or_insert(0);
            *sum = sum.saturating_add(mpi_bytes);
        }
        self.payload_bytes += traffic.payload_bytes;
        self.wire_bytes += traffic.wire_bytes;
        self.packets += traffic.packets;
    }

    /// Adds another cell.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.messages += other.messages;
        if let Some(mpi_bytes) = other.mpi_bytes {
            let sum = self.mpi_bytes.get_or_insert(0);
            *sum = sum.saturating_add(mpi_bytes);
        }
        self.payload_bytes += other.payload_bytes;
        self.wire_bytes += other.wire_bytes;
        self.packets += other.packets;
        self.coverage.merge(&other.coverage);
    }

    /// The value in a unit; unknown MPI bytes count as 0.
    #[must_use]
    pub fn value(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Messages => self.messages,
            Unit::MpiBytes => self.mpi_bytes.unwrap_or(0),
            Unit::PayloadBytes => self.payload_bytes,
            Unit::WireBytes => self.wire_bytes,
            Unit::Packets => self.packets,
        }
    }
}

/// What of a connection's traffic is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    by: By,
    selection: Selection,
    /// Its library was recognised; of one-sided operations, the connection carries them.
    pub(crate) has_mpi: bool,
    /// Of one-sided operations, all that the connection carries.
    one_sided: Option<RdmaSums>,
}

impl Counted {
    pub(crate) fn of(profile: &Profile, connection: &ConnectionRow, by: By, selection: Selection) -> Self {
        let has_mpi = match selection {
            Selection::OneSided => connection.one_sided.is_some(),
            Selection::P2p | Selection::Collective | Selection::All => connection.stack.is_some(),
        };
        let one_sided = connection.one_sided.filter(|_| selection == Selection::OneSided);
        Self { by, selection, has_mpi: profile.mpi_read && has_mpi, one_sided }
    }

    /// The same of a part of the connection's time, for which RDMA by itself is not kept.
    pub(crate) fn over_time(self) -> Self {
        Self { one_sided: None, ..self }
    }
}

/// A sparse matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// What rows and columns are.
    pub by: By,
    /// Which MPI messages count.
    pub selection: Selection,
    /// Rows and columns, sorted by job, then numerically; `unknown` last.
    pub labels: Vec<Label>,
    /// Cells with at least one packet, by row (sender) and column (receiver) as indices into `labels`.
    pub cells: BTreeMap<(u32, u32), Cell>,
    /// The jobs of the profile; none by endpoint. The matrices of single jobs share them and the nodes.
    pub jobs: Arc<[JobRow]>,
    /// Nodes of the ranks; none by endpoint.
    pub nodes: Arc<Nodes>,
}

impl Matrix {
    /// The matrix of these cells by sender and receiver.
    pub(crate) fn of(by: By, selection: Selection, cells: &BTreeMap<(Label, Label), Cell>) -> Self {
        let mut labels: BTreeSet<&Label> = BTreeSet::new();
        // One by one: made of all at once it would sort them, and there are many times as many as labels.
        labels.extend(cells.keys().flat_map(|(src, dst)| [src, dst]));
        let labels: Vec<Label> = labels.into_iter().cloned().collect();
        let index = |label: &Label| labels.binary_search(label).unwrap_or_default() as u32;
        let cells = cells.iter().map(|((src, dst), cell)| ((index(src), index(dst)), *cell)).collect();
        Self { by, selection, labels, cells, jobs: Arc::default(), nodes: Arc::default() }
    }

    /// What the matrix shows of a pair in a unit.
    #[must_use]
    pub fn shown(&self, ends: (u32, u32), unit: Unit) -> Shown {
        match self.cells.get(&ends).map(|cell| cell.value(unit)) {
            Some(value) if value > 0 => Shown::Value(value),
            _ if self.is_on_one_node(ends) => Shown::OneNode,
            Some(value) => Shown::Value(value),
            None => Shown::Nothing,
        }
    }

    /// True where two different ranks of a job are on one node: what they send each other there is not on the wire.
    fn is_on_one_node(&self, (src, dst): (u32, u32)) -> bool {
        match (self.labels.get(src as usize), self.labels.get(dst as usize)) {
            (Some(Label::Rank(src, _)), Some(Label::Rank(dst, _))) => {
                src != dst && src.job == dst.job && self.nodes.are_shared(*src, *dst)
            }
            _ => false,
        }
    }

    /// Pairs of different ranks of a job on one node, both ways, sorted.
    #[must_use]
    pub fn one_node(&self) -> Vec<(u32, u32)> {
        let mut at: BTreeMap<(u32, &str), Vec<u32>> = BTreeMap::new();
        for (label, number) in self.labels.iter().zip(0..) {
            let Label::Rank(rank, _) = label else { continue };
            self.nodes.names(*rank).for_each(|node| at.entry((rank.job, node)).or_default().push(number));
        }
        let pairs = |ranks: &Vec<u32>| -> Vec<(u32, u32)> {
            ranks.iter().flat_map(|a| ranks.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b).collect()
        };
        let mut pairs: Vec<(u32, u32)> = at.values().flat_map(pairs).collect();
        pairs.sort_unstable();
        // Ranks may share several ports.
        pairs.dedup();
        pairs
    }

    /// The matrix of each job, and of traffic of no job, each with the job that it is of and ranks without its number. By endpoint there is one.
    #[must_use]
    pub fn by_job(&self) -> Vec<(Option<u32>, Self)> {
        let mut first = 0;
        let mut parts = Vec::new();
        for labels in self.labels.chunk_by(|a, b| a.job() == b.job() && a.is_no_job() == b.is_no_job()) {
            let end = first + labels.len() as u32;
            let own = self.cells.range((first, 0)..(end, 0));
            let cells = own.map(|(&(src, dst), cell)| ((src - first, dst.saturating_sub(first)), *cell)).collect();
            let job = labels.first().and_then(Label::job);
            let labels = labels.iter().map(Label::of_one_job).collect();
            let (jobs, nodes) = (Arc::clone(&self.jobs), Arc::clone(&self.nodes));
            parts.push((job, Self { labels, cells, jobs, nodes, ..*self }));
            first = end;
        }
        parts
    }

    /// The sum of all cells.
    #[must_use]
    pub fn total(&self) -> Cell {
        self.cells.values().fold(Cell::default(), |mut sum, cell| {
            sum.merge(cell);
            sum
        })
    }

    /// Cells with their labels, sorted by sender and receiver.
    pub fn rows(&self) -> impl Iterator<Item = (&Label, &Label, &Cell)> {
        self.cells.iter().filter_map(|(&(src, dst), cell)| {
            Some((self.labels.get(src as usize)?, self.labels.get(dst as usize)?, cell))
        })
    }
}

/// What stands in a cell for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// There was no packet.
    Nothing,
    /// A value, which may be 0.
    Value(u64),
    /// The pair is on one node, and nothing of the unit was seen: it is not on the wire.
    OneNode,
}

/// The matrix of a profile. Management and multicast traffic stand outside it.
#[must_use]
pub fn matrix(profile: &Profile, by: By, selection: Selection) -> Matrix {
    let who = EndpointLabels::new(profile, by);
    let mut cells: BTreeMap<(Label, Label), Cell> = BTreeMap::new();
    for connection in data(profile).filter(|connection| connection.traffic.packets > 0) {
        let pair = (who.sender(connection), who.receiver(connection));
        let cell = cells.entry(pair).or_default();
        cell.add(Counted::of(profile, connection, by, selection), &connection.traffic);
        cell.coverage.merge(&connection.coverage);
    }
    let matrix = Matrix::of(by, selection, &cells);
    match by {
        By::Endpoint => matrix,
        By::Rank => Matrix { jobs: profile.jobs.as_slice().into(), nodes: Arc::new(Nodes::of(profile)), ..matrix },
    }
}

fn data(profile: &Profile) -> impl Iterator<Item = &ConnectionRow> {
    profile.connections.iter().filter(|connection| connection.kind == Kind::Data)
}
