//! Arguments that are one of a few words.

use crate::analysis::By;
use crate::analysis::matrix::{Selection, Unit};
use crate::render::packets::Form;
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// For people
    Table,
    /// Comma-separated values
    Csv,
    /// JSON
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ByArg {
    /// Ports: LID, GID or IP address
    Endpoint,
    /// MPI ranks
    Rank,
}

impl From<Format> for Form {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Csv => Self::Csv,
            Format::Json => Self::Json,
        }
    }
}

impl From<ByArg> for By {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Endpoint => Self::Endpoint,
            ByArg::Rank => Self::Rank,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum TrafficArg {
    /// Point-to-point messages
    P2p,
    /// Messages of collective operations
    Collective,
    /// Point-to-point and collective
    All,
    /// One-sided operations: payload of WRITEs and READs between processes of a job; not part of `all`
    OneSided,
}

impl From<TrafficArg> for Selection {
    fn from(traffic: TrafficArg) -> Self {
        match traffic {
            TrafficArg::P2p => Self::P2p,
            TrafficArg::Collective => Self::Collective,
            TrafficArg::All => Self::All,
            TrafficArg::OneSided => Self::OneSided,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum UnitArg {
    /// Messages: MPI messages by rank, transport messages by endpoint
    Messages,
    /// MPI payload
    MpiBytes,
    /// InfiniBand payload
    PayloadBytes,
    /// Bytes on the wire
    WireBytes,
    /// Packets
    Packets,
}

impl From<UnitArg> for Unit {
    fn from(unit: UnitArg) -> Self {
        match unit {
            UnitArg::Messages => Self::Messages,
            UnitArg::MpiBytes => Self::MpiBytes,
            UnitArg::PayloadBytes => Self::PayloadBytes,
            UnitArg::WireBytes => Self::WireBytes,
            UnitArg::Packets => Self::Packets,
        }
    }
}

/// Which MPI messages count: those that are asked for, or else all by endpoint and point-to-point by rank.
pub(in crate::cli) fn selection(by: ByArg, traffic: Option<TrafficArg>) -> Selection {
    let default = match By::from(by) {
        By::Endpoint => Selection::All,
        By::Rank => Selection::P2p,
    };
    traffic.map_or(default, Selection::from)
}
