//! Profile -> communication matrix, by endpoint, rank, node or leaf switch. Rows are senders, columns
//! receivers.
//!
//! In: the connections of a [`Profile`]. Out: a sparse [`Matrix`] with one cell for each pair that
//! exchanged at least one packet. Management and multicast traffic is never in a matrix.

use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::analysis::group_insides::{GroupInside, insides};
use crate::analysis::observed_ports::may_miss_ports;
use crate::model::profile::{ConnectionRow, JobRow, PairCoverage, Traffic};
use crate::model::sampling::{EstimateQuality, Estimator, SampledShare};
use crate::model::{ClassSet, ConnectionClass, HashMap, Nodes, PairEstimators, Profile, RdmaSums, TrafficKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The MPI messages that a matrix counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Point-to-point messages.
    P2p,
    /// Messages of collective operations.
    Collective,
    /// Point-to-point and collective messages.
    All,
    /// One-sided operations: WRITE and READ payload without envelopes between processes of a job.
    /// The other selections do not include them.
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

    /// True if the messages of a matrix are those of the transport: only ports have messages of all
    /// kinds.
    #[must_use]
    pub fn is_of_transport(self, by: GroupBy) -> bool {
        by.is_of_ports() && self == Self::All
    }

    /// MPI messages and bytes of this selection. One-sided operations have no envelopes: for a
    /// single time bin, they count as all transport messages and all payload of the connections
    /// that carry one-sided operations.
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

/// The value of a cell that a table or figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficUnit {
    /// Number of messages.
    Messages,
    /// MPI bytes.
    MpiBytes,
    /// InfiniBand payload bytes.
    PayloadBytes,
    /// Bytes on the wire.
    WireBytes,
    /// Number of packets.
    Packets,
}

impl TrafficUnit {
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

    /// True if values are bytes.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::MpiBytes | Self::PayloadBytes | Self::WireBytes)
    }
}

/// The traffic from one sender to one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixCell {
    /// Transport messages with [`Selection::All`], unless the matrix is by rank; otherwise MPI
    /// messages of the selection.
    pub messages: u64,
    /// MPI bytes of the selection; `None` if no MPI library was detected.
    pub mpi_bytes: Option<u64>,
    /// InfiniBand payload bytes of the pair, independent of the selection.
    pub payload_bytes: u64,
    /// Bytes on the wire of the pair, independent of the selection.
    pub wire_bytes: u64,
    /// Packets of the pair, independent of the selection.
    pub packets: u64,
    /// How much of the pair's traffic the capture contains. Set only in the [`Matrix`] of a whole
    /// profile.
    pub coverage: PairCoverage,
    /// Classes of the pair's connections.
    pub classes: ClassSet,
}

impl MatrixCell {
    /// Adds traffic of a connection.
    pub(crate) fn add(&mut self, counted: CountingRule, traffic: &Traffic) {
        let CountingRule { by, selection, has_mpi, one_sided, class } = counted;
        self.classes.insert(class);
        let of_rdma = |rdma: RdmaSums| (rdma.messages, rdma.payload_bytes);
        let (mpi_messages, mpi_bytes) = one_sided.map_or_else(|| selection.mpi(traffic), of_rdma);
        self.messages += match selection {
            _ if selection.is_of_transport(by) => traffic.messages,
            Selection::OneSided if !has_mpi => 0,
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

    /// Adds the sums of another cell.
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
        self.classes.merge(other.classes);
    }

    /// The value in a unit; unknown MPI bytes count as 0.
    #[must_use]
    pub fn value(&self, unit: TrafficUnit) -> u64 {
        match unit {
            TrafficUnit::Messages => self.messages,
            TrafficUnit::MpiBytes => self.mpi_bytes.unwrap_or(0),
            TrafficUnit::PayloadBytes => self.payload_bytes,
            TrafficUnit::WireBytes => self.wire_bytes,
            TrafficUnit::Packets => self.packets,
        }
    }
}

/// The part of a connection's traffic that a cell counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountingRule {
    by: GroupBy,
    selection: Selection,
    /// True if the connection's library was detected; with [`Selection::OneSided`], true if the
    /// connection carries one-sided operations.
    pub(crate) has_mpi: bool,
    /// With [`Selection::OneSided`], the one-sided sums of the whole connection.
    one_sided: Option<RdmaSums>,
    /// The connection's class.
    class: ConnectionClass,
}

impl CountingRule {
    pub(crate) fn of(profile: &Profile, connection: &ConnectionRow, by: GroupBy, selection: Selection) -> Self {
        let has_mpi = match selection {
            Selection::OneSided => connection.one_sided.is_some(),
            Selection::P2p | Selection::Collective | Selection::All => connection.stack.is_some(),
        };
        let one_sided = connection.one_sided.filter(|_| selection == Selection::OneSided);
        Self { by, selection, has_mpi: profile.mpi_read && has_mpi, one_sided, class: connection.class }
    }

    /// The estimators of a connection in a sampled capture, or of a part of its traffic.
    pub(crate) fn estimators(
        self,
        connection: &ConnectionRow,
        part: Option<&Traffic>,
        quality: EstimateQuality,
    ) -> PairEstimators {
        // The sums of the window of a profile have no squares.
        let Some(samples) = &connection.sampled else { return PairEstimators::unknown(quality) };
        let unknown = || PairEstimators::unknown(quality).messages;
        let mut own = part.map_or_else(
            || PairEstimators::of(samples),
            |part| PairEstimators::of_part(samples, &share(part, &connection.traffic)),
        );
        match self.selection {
            _ if self.selection.is_of_transport(self.by) => {}
            _ if !self.has_mpi => own.messages = Estimator::default(),
            // Transport messages of RDMA alone are not counted for all observations.
            Selection::OneSided => own.messages = unknown(),
            // It is not known in which part a message of unknown length is.
            _ if part.is_some() && samples.sums.open_mpi_messages > 0 => own.messages = unknown(),
            _ => {
                let (messages, _) = self.selection.mpi(part.unwrap_or(&connection.traffic));
                own.set_mpi_messages(samples, messages, self.selection == Selection::All);
            }
        }
        own
    }

    /// The rule for a single time bin. One-sided sums exist for whole connections only.
    pub(crate) fn over_time(self) -> Self {
        Self { one_sided: None, ..self }
    }
}

/// The share of the sums `whole` that is in `part`.
fn share(part: &Traffic, whole: &Traffic) -> SampledShare {
    let of = |part: u64, whole: u64| if whole > 0 { (part as f64 / whole as f64).min(1.0) } else { 0.0 };
    SampledShare {
        packets: of(part.packets, whole.packets),
        wire_bytes: of(part.wire_bytes, whole.wire_bytes),
        payload_bytes: of(part.payload_bytes, whole.payload_bytes),
        messages: of(part.messages, whole.messages),
    }
}

/// A sparse communication matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// What rows and columns are.
    pub by: GroupBy,
    /// The MPI messages that the cells count.
    pub selection: Selection,
    /// Rows and columns, sorted by job, then numerically; `unknown` last.
    pub labels: Vec<Label>,
    /// Cells with at least one packet, by row (sender) and column (receiver) as indices into
    /// `labels`.
    pub cells: BTreeMap<(u32, u32), MatrixCell>,
    /// For a sampled capture, the estimators of each cell; `None` if it is not sampled.
    pub estimators: Option<BTreeMap<(u32, u32), PairEstimators>>,
    /// For a sampled capture, the sentence on sampling.
    pub sampled: Option<Arc<str>>,
    /// The jobs of the profile; empty unless the matrix is by rank. The matrices of single jobs share
    /// `jobs` and `nodes`.
    pub jobs: Arc<[JobRow]>,
    /// The nodes of the ranks; empty unless the matrix is by rank.
    pub nodes: Arc<Nodes>,
    /// By node and leaf switch, the inside of each label; otherwise empty.
    pub insides: Vec<GroupInside>,
    /// True if the captures may not show all ports, so a pair without captured packets may have
    /// sent some.
    pub is_partial: bool,
}

impl Matrix {
    /// The value that a cell shows in a unit.
    #[must_use]
    pub fn cell_value(&self, ends: (u32, u32), unit: TrafficUnit) -> CellValue {
        match self.cells.get(&ends).map(|cell| cell.value(unit)) {
            Some(value) if value > 0 => CellValue::Value(value),
            _ if self.is_on_one_node(ends) => CellValue::OneNode,
            Some(value) => CellValue::Value(value),
            None if self.may_miss(ends) => CellValue::NotCaptured,
            None => CellValue::Nothing,
        }
    }

    /// True if a pair without captured packets may have sent some: traffic inside a port is never
    /// on the wire.
    #[must_use]
    pub fn may_miss(&self, (src, dst): (u32, u32)) -> bool {
        self.is_partial && (src != dst || self.inside(src).has_several_ports)
    }

    /// The inside of a label; by endpoint and rank, it is empty.
    fn inside(&self, label: u32) -> GroupInside {
        self.insides.get(label as usize).copied().unwrap_or_default()
    }

    /// True for two different ranks of a job on one node, whose messages never reach the wire, and
    /// for a node or leaf switch with such ranks.
    fn is_on_one_node(&self, (src, dst): (u32, u32)) -> bool {
        if src == dst && self.inside(src).has_ranks_on_one_node {
            return true;
        }
        match (self.labels.get(src as usize), self.labels.get(dst as usize)) {
            (Some(Label::Rank(src, _)), Some(Label::Rank(dst, _))) => {
                src != dst && src.job == dst.job && self.nodes.are_shared(*src, *dst)
            }
            _ => false,
        }
    }

    /// Ordered pairs of different ranks of a job on one node, sorted; by node and leaf switch, the
    /// labels with such ranks, as pairs with themselves.
    #[must_use]
    pub fn pairs_on_one_node(&self) -> Vec<(u32, u32)> {
        let mut at: BTreeMap<(u32, &str), Vec<u32>> = BTreeMap::new();
        for (label, number) in self.labels.iter().zip(0..) {
            let Label::Rank(rank, _) = label else { continue };
            self.nodes.names(*rank).for_each(|node| at.entry((rank.job, node)).or_default().push(number));
        }
        let pairs = |ranks: &Vec<u32>| -> Vec<(u32, u32)> {
            ranks.iter().flat_map(|a| ranks.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b).collect()
        };
        let insides = self.insides.iter().zip(0..).filter(|(inside, _)| inside.has_ranks_on_one_node);
        let mut pairs: Vec<(u32, u32)> =
            at.values().flat_map(pairs).chain(insides.map(|(_, label)| (label, label))).collect();
        pairs.sort_unstable();
        // Two ranks may share several ports.
        pairs.dedup();
        pairs
    }

    /// Splits the matrix into one matrix per job and one for traffic of no job. Its labels omit the
    /// job number. There is only one matrix unless it is by rank.
    #[must_use]
    pub fn by_job(&self) -> Vec<(Option<u32>, Self)> {
        let mut first = 0;
        let mut parts = Vec::new();
        for labels in self.labels.chunk_by(|a, b| a.job() == b.job() && a.is_no_job() == b.is_no_job()) {
            let end = first + labels.len() as u32;
            let own = self.cells.range((first, 0)..(end, 0));
            let moved = |(src, dst): (u32, u32)| (src - first, dst.saturating_sub(first));
            let cells = own.map(|(&ends, cell)| (moved(ends), *cell)).collect();
            let own = |all: &BTreeMap<(u32, u32), PairEstimators>| {
                all.range((first, 0)..(end, 0)).map(|(&ends, estimators)| (moved(ends), *estimators)).collect()
            };
            let estimators = self.estimators.as_ref().map(own);
            let job = labels.first().and_then(Label::job);
            let labels = labels.iter().map(Label::of_one_job).collect();
            let (jobs, nodes, sampled) = (Arc::clone(&self.jobs), Arc::clone(&self.nodes), self.sampled.clone());
            let insides = self.insides.get(first as usize..end as usize).unwrap_or_default().to_vec();
            let Self { by, selection, is_partial, .. } = *self;
            let part = Self { by, selection, labels, cells, estimators, sampled, jobs, nodes, insides, is_partial };
            parts.push((job, part));
            first = end;
        }
        parts
    }

    /// The sum of all cells.
    #[must_use]
    pub fn total(&self) -> MatrixCell {
        self.cells.values().fold(MatrixCell::default(), |mut sum, cell| {
            sum.merge(cell);
            sum
        })
    }

    /// The classes of all cells.
    #[must_use]
    pub fn classes(&self) -> ClassSet {
        self.cells.values().fold(ClassSet::default(), |mut all, cell| {
            all.merge(cell.classes);
            all
        })
    }

    /// Cells with their labels, sorted by sender and receiver.
    pub fn rows(&self) -> impl Iterator<Item = (&Label, &Label, &MatrixCell)> {
        self.cells.iter().filter_map(|(&(src, dst), cell)| {
            Some((self.labels.get(src as usize)?, self.labels.get(dst as usize)?, cell))
        })
    }
}

/// The content of a cell, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellValue {
    /// The pair exchanged no packet.
    Nothing,
    /// A value, which may be 0.
    Value(u64),
    /// Both ranks are on one node, or the cell is that of a node with several ranks, and the value
    /// is 0: their messages are not on the wire.
    OneNode,
    /// No packet of the pair was captured, and the captures may not show all ports: the pair may
    /// have sent some.
    NotCaptured,
}

/// The cells of a matrix while they are added up, by the numbers of their labels: comparing the
/// labels themselves for each connection would take most of the time.
#[derive(Default)]
pub(crate) struct MatrixCells {
    numbers: HashMap<Label, u32>,
    cells: HashMap<(u32, u32), MatrixCell>,
}

impl MatrixCells {
    /// The cell of a sender and a receiver.
    pub(crate) fn cell(&mut self, src: Label, dst: Label) -> &mut MatrixCell {
        let pair = (self.number(src), self.number(dst));
        self.cells.entry(pair).or_default()
    }

    fn number(&mut self, label: Label) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(label).or_insert(next)
    }

    /// The matrix of these cells.
    pub(crate) fn into_matrix(self, by: GroupBy, selection: Selection) -> Matrix {
        let mut labels: Vec<(Label, u32)> = self.numbers.into_iter().collect();
        labels.sort_unstable();
        let mut indices = vec![0; labels.len()];
        labels.iter().zip(0..).for_each(|((_, number), index)| indices[*number as usize] = index);
        let indexed =
            |((src, dst), cell): ((u32, u32), MatrixCell)| ((indices[src as usize], indices[dst as usize]), cell);
        Matrix {
            by,
            selection,
            cells: self.cells.into_iter().map(indexed).collect(),
            labels: labels.into_iter().map(|(label, _)| label).collect(),
            estimators: None,
            sampled: None,
            jobs: Arc::default(),
            nodes: Arc::default(),
            insides: Vec::new(),
            is_partial: false,
        }
    }
}

/// Builds the matrix of a profile, without management and multicast traffic.
#[must_use]
pub fn matrix(profile: &Profile, by: GroupBy, selection: Selection) -> Matrix {
    let labels = EndpointLabels::new(profile, by);
    let mut cells = MatrixCells::default();
    for connection in data(profile).filter(|connection| connection.traffic.packets > 0) {
        let cell = cells.cell(labels.sender(connection), labels.receiver(connection));
        cell.add(CountingRule::of(profile, connection, by, selection), &connection.traffic);
        cell.coverage.merge(&connection.coverage);
    }
    let estimators = profile.sampling.map(|sampling| estimators(profile, &labels, by, selection, sampling.quality()));
    let matrix = cells.into_matrix(by, selection);
    let index = |label: &Label| matrix.labels.binary_search(label).unwrap_or_default() as u32;
    let estimators = estimators.map(|estimators| {
        estimators.iter().map(|((src, dst), estimators)| ((index(src), index(dst)), *estimators)).collect()
    });
    let sampled = profile.sampling.map(|sampling| sampling.describe().into());
    let matrix = Matrix { estimators, sampled, is_partial: may_miss_ports(profile), ..matrix };
    match (by, labels.groups()) {
        (GroupBy::Rank, _) => {
            Matrix { jobs: profile.jobs.as_slice().into(), nodes: Arc::new(Nodes::of(profile)), ..matrix }
        }
        (_, Some(groups)) => Matrix { insides: insides(profile, groups, &matrix.labels), ..matrix },
        (_, None) => matrix,
    }
}

/// The estimators of each pair of a sampled capture.
fn estimators(
    profile: &Profile,
    labels: &EndpointLabels<'_>,
    by: GroupBy,
    selection: Selection,
    quality: EstimateQuality,
) -> BTreeMap<(Label, Label), PairEstimators> {
    let mut pairs: BTreeMap<(Label, Label), PairEstimators> = BTreeMap::new();
    for connection in data(profile).filter(|connection| connection.traffic.packets > 0) {
        let pair = pairs.entry((labels.sender(connection), labels.receiver(connection))).or_default();
        let rule = CountingRule::of(profile, connection, by, selection);
        pair.merge(&rule.estimators(connection, None, quality));
    }
    pairs
}

fn data(profile: &Profile) -> impl Iterator<Item = &ConnectionRow> {
    profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data)
}
