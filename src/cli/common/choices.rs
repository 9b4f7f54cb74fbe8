//! Options that take one of a few values.

use crate::analysis::GroupBy;
use crate::analysis::matrix::{Selection, TrafficUnit};
use crate::model::{ClassSelection, ConnectionClass};
use crate::render::packets::LineFormat;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// Human-readable text
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
pub(in crate::cli) enum GroupByArg {
    /// Ports: LID, GID or IP address
    Endpoint,
    /// MPI ranks
    Rank,
}

/// The rows and columns of `matrix`, and the senders of `timeline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum TrafficGroupArg {
    /// Ports: LID, GID or IP address
    Endpoint,
    /// MPI ranks
    Rank,
    /// Nodes: all ports of a node, by the names of --hosts or --manifest
    Node,
    /// Leaf switches: all ports at a switch, by --manifest
    Leaf,
}

impl From<Format> for LineFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Csv => Self::Csv,
            Format::Json => Self::Json,
        }
    }
}

impl From<GroupByArg> for GroupBy {
    fn from(by: GroupByArg) -> Self {
        match by {
            GroupByArg::Endpoint => Self::Endpoint,
            GroupByArg::Rank => Self::Rank,
        }
    }
}

impl From<TrafficGroupArg> for GroupBy {
    fn from(by: TrafficGroupArg) -> Self {
        match by {
            TrafficGroupArg::Endpoint => Self::Endpoint,
            TrafficGroupArg::Rank => Self::Rank,
            TrafficGroupArg::Node => Self::Node,
            TrafficGroupArg::Leaf => Self::Leaf,
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
    /// One-sided operations: payload of WRITEs and READs between processes of a job; not part of
    /// `all`
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
    /// Messages: MPI messages by rank, otherwise transport messages
    Messages,
    /// Bytes that the application sent in MPI messages
    MpiBytes,
    /// InfiniBand payload
    PayloadBytes,
    /// Bytes on the wire
    WireBytes,
    /// Packets
    Packets,
}

impl From<UnitArg> for TrafficUnit {
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

/// Parses the name of a class, or `storage`.
pub(in crate::cli) fn class_parser() -> impl TypedValueParser<Value = ClassSelection> {
    let names = ConnectionClass::ALL.map(ConnectionClass::name).into_iter().chain([ClassSelection::STORAGE]);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ClassSelection>())
}

/// The MPI messages to count: those of `--traffic`, by default point-to-point by rank and otherwise
/// all.
pub(in crate::cli) fn selection(by: GroupBy, traffic: Option<TrafficArg>) -> Selection {
    let default = if by.is_of_ports() { Selection::All } else { Selection::P2p };
    traffic.map_or(default, Selection::from)
}
