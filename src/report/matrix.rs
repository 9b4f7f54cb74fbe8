//! Profile -> communication matrix, by endpoint or by rank. Row = sender, column = receiver.

use super::who::{By, Label, Who};
use crate::model::profile::{ConnectionRow, PairCoverage, Traffic};
use crate::model::{Kind, Profile};
use std::collections::{BTreeMap, BTreeSet};

/// Which MPI messages count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Point-to-point.
    P2p,
    /// Those of collective operations.
    Collective,
    /// Both.
    All,
}

impl Selection {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P2p => "p2p",
            Self::Collective => "collective",
            Self::All => "all",
        }
    }

    /// MPI messages and bytes of this selection.
    #[must_use]
    pub const fn mpi(self, traffic: &Traffic) -> (u64, u64) {
        match self {
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
    /// Adds traffic of a connection. `has_mpi` says that its library was recognised.
    pub(super) fn add(&mut self, by: By, selection: Selection, traffic: &Traffic, has_mpi: bool) {
        let (mpi_messages, mpi_bytes) = selection.mpi(traffic);
        self.messages += match (by, selection) {
            (By::Endpoint, Selection::All) => traffic.messages,
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
    pub(super) fn merge(&mut self, other: &Self) {
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
}

impl Matrix {
    /// The matrix of these cells by sender and receiver.
    pub(super) fn of(by: By, selection: Selection, cells: &BTreeMap<(Label, Label), Cell>) -> Self {
        let mut labels: BTreeSet<&Label> = BTreeSet::new();
        // One by one: made of all at once it would sort them, and there are many times as many as labels.
        labels.extend(cells.keys().flat_map(|(src, dst)| [src, dst]));
        let labels: Vec<Label> = labels.into_iter().cloned().collect();
        let index = |label: &Label| labels.binary_search(label).unwrap_or_default() as u32;
        let cells = cells.iter().map(|((src, dst), cell)| ((index(src), index(dst)), *cell)).collect();
        Self { by, selection, labels, cells }
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

/// The matrix of a profile. Management and multicast traffic stand outside it.
#[must_use]
pub fn matrix(profile: &Profile, by: By, selection: Selection) -> Matrix {
    let who = Who::new(profile, by);
    let mut cells: BTreeMap<(Label, Label), Cell> = BTreeMap::new();
    for connection in data(profile).filter(|connection| connection.traffic.packets > 0) {
        let pair = (who.sender(connection), who.receiver(connection));
        let has_mpi = profile.mpi_read && connection.stack.is_some();
        let cell = cells.entry(pair).or_default();
        cell.add(by, selection, &connection.traffic, has_mpi);
        cell.coverage.merge(&connection.coverage);
    }
    Matrix::of(by, selection, &cells)
}

fn data(profile: &Profile) -> impl Iterator<Item = &ConnectionRow> {
    profile.connections.iter().filter(|connection| connection.kind == Kind::Data)
}
