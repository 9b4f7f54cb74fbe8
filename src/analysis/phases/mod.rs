//! Profile -> phases: the intervals of a job between changes of its communication pattern.
//!
//! In: the timeline of a [`Profile`]. Out: [`Phases`], each with its traffic, matrix, pattern and
//! collective operations. [`phases`] splits the timeline at connection turnovers (`turnovers.rs`)
//! and at change points (`change_points.rs` describes the method and its sources), sums the traffic
//! of each phase, and names the pattern of its matrix if exactly one name fits (`pattern.rs`). All
//! data is sparse: its size grows with the cells of the profile's timeline, not with the square of
//! the number of ranks.

mod change_points;
mod collectives;
mod graph;
mod lattice;
mod pairs;
mod pattern;
#[cfg(test)]
mod tests;
mod turnovers;
mod windows;

pub use collectives::PhaseCollective;
pub use pattern::{PatternName, PhasePattern};

use super::endpoint_label::GroupBy;
use super::matrix::{CountingRule, Matrix, MatrixCell, MatrixCells, Selection};
use super::observed_ports::may_miss_ports;
use crate::model::profile::Traffic;
use crate::model::{Nodes, Profile};
use graph::{Graph, PortVisibility};
use pairs::PairIndex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Options of the phase detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseOptions {
    /// Group patterns by endpoint or rank. `None` chooses ranks if they are known for most of the
    /// traffic, otherwise endpoints.
    pub by: Option<GroupBy>,
    /// Width of a window in nanoseconds, rounded up to whole bins of the profile. `None` chooses a
    /// round width that makes at most 64 windows.
    pub window_ns: Option<i64>,
}

/// The phases of a profile. Empty if there is no traffic or no timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases {
    /// Whether patterns and matrices are by endpoint or by rank.
    pub by: GroupBy,
    /// Width of a window in nanoseconds, the minimum distance between phase starts. 0 if there is
    /// no timeline.
    pub window_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// True if the analysis looked for MPI messages.
    pub mpi_read: bool,
    /// Phases in time order. There may be a pause between two phases.
    pub phases: Vec<Phase>,
}

/// A time interval with one communication pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Start in nanoseconds since the epoch, not before the first packet of the captures.
    pub from_ns: i64,
    /// End in nanoseconds since the epoch, exclusive.
    pub to_ns: i64,
    /// Traffic of all pairs.
    pub traffic: Traffic,
    /// True if an MPI library was detected on some connection.
    pub has_mpi: bool,
    /// The point-to-point and collective traffic by sender and receiver.
    pub matrix: Matrix,
    /// The pattern of the matrix.
    pub pattern: PhasePattern,
    /// Collective operations of the phase.
    pub collectives: Vec<PhaseCollective>,
}

impl Phase {
    /// Length in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> i64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// MPI messages if a library was detected, otherwise transport messages.
    #[must_use]
    pub fn messages(&self) -> u64 {
        if self.has_mpi { Selection::All.mpi(&self.traffic).0 } else { self.traffic.messages }
    }

    /// MPI bytes if a library was detected, otherwise payload bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        if self.has_mpi { Selection::All.mpi(&self.traffic).1 } else { self.traffic.payload_bytes }
    }

    /// Bytes on the wire per second.
    #[must_use]
    pub fn wire_rate(&self) -> f64 {
        self.traffic.wire_bytes as f64 * 1e9 / self.length_ns().max(1) as f64
    }
}

/// Finds the phases of a profile.
#[must_use]
pub fn phases(profile: &Profile, options: &PhaseOptions) -> Phases {
    let by = options.by.unwrap_or_else(|| natural(profile));
    let mut found = Phases {
        by,
        window_ns: 0,
        origin_ns: super::origin_ns(profile, profile.timeline.first().map(|row| row.time_ns)),
        mpi_read: profile.mpi_read,
        phases: Vec::new(),
    };
    if profile.bin_ns <= 0 {
        return found;
    }
    let pairs = PairIndex::new(profile, by);
    let span_ns = windows::span_ns(profile, &pairs).unwrap_or_default();
    let width_ns = windows::width_ns(span_ns, profile.bin_ns, options.window_ns);
    found.window_ns = width_ns;
    let step_ns = windows::step_ns(span_ns, profile.bin_ns, width_ns);
    let steps = windows::windows(profile, &pairs, step_ns);
    let view = PortVisibility::new(profile);
    let mut phase_of: BTreeMap<i64, usize> = BTreeMap::new();
    let ends_ns = turnovers::ends_ns(profile, change_points::neighborhood_ns(width_ns));
    // The first bin may start before the first packet of the captures.
    let first_ns = span_ns.0.max(found.origin_ns).min(span_ns.1);
    for (index, range) in change_points::phases(&steps, step_ns, width_ns, &ends_ns).into_iter().enumerate() {
        let steps = &steps[range];
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { continue };
        phase_of.extend((first.number..=last.number).map(|number| (number, index)));
        let bound = |number: i64| number.saturating_mul(step_ns).clamp(first_ns, span_ns.1);
        let (from_ns, to_ns) = (bound(first.number), bound(last.number.saturating_add(1)));
        let pattern = pattern::detect(&Graph::new(&view, &pairs, steps));
        let matrix = MatrixCells::default().into_matrix(by, Selection::All);
        let traffic = Traffic::default();
        found.phases.push(Phase { from_ns, to_ns, traffic, has_mpi: false, matrix, pattern, collectives: Vec::new() });
    }
    add_up(profile, &pairs, &mut found, |time_ns| phase_of.get(&time_ns.div_euclid(step_ns)).copied());
    found
}

/// Ranks if both ranks of at least half of the packets are known, otherwise endpoints.
fn natural(profile: &Profile) -> GroupBy {
    let ranks = super::matrix::matrix(profile, GroupBy::Rank, Selection::All);
    let known =
        ranks.rows().filter(|(src, dst, _)| !src.is_unknown() && !dst.is_unknown()).map(|(_, _, cell)| cell.packets);
    if known.sum::<u64>() * 2 >= ranks.total().packets.max(1) { GroupBy::Rank } else { GroupBy::Endpoint }
}

/// Adds the traffic, matrix and collectives of each phase.
fn add_up(profile: &Profile, pairs: &PairIndex, found: &mut Phases, phase_at: impl Fn(i64) -> Option<usize>) {
    let mut cells: Vec<BTreeMap<u32, MatrixCell>> = vec![BTreeMap::new(); found.phases.len()];
    let mut collectives = vec![BTreeMap::new(); found.phases.len()];
    for row in &profile.timeline {
        let (Some(pair), Some(index)) = (pairs.of(row.connection), phase_at(row.time_ns)) else { continue };
        let connection = &profile.connections[row.connection as usize];
        let counted = CountingRule::of(profile, connection, found.by, Selection::All);
        let phase = &mut found.phases[index];
        phase.traffic += row.traffic;
        phase.has_mpi |= counted.has_mpi;
        cells[index].entry(pair).or_default().add(counted, &row.traffic);
        if row.traffic.collective_messages > 0 {
            *collectives[index].entry(row.connection).or_default() += row.traffic.collective_messages;
        }
    }
    // All phases have the same unit.
    let has_mpi = found.phases.iter().any(|phase| phase.has_mpi);
    let nodes = Arc::new(if found.by == GroupBy::Rank { Nodes::of(profile) } else { Nodes::default() });
    let is_partial = may_miss_ports(profile);
    for ((phase, cells), collectives) in found.phases.iter_mut().zip(cells).zip(&collectives) {
        phase.has_mpi = has_mpi;
        let mut by_label = MatrixCells::default();
        for (pair, cell) in cells {
            let (src, dst) = pairs.labels(pair);
            *by_label.cell(src.clone(), dst.clone()) = cell;
        }
        let matrix = by_label.into_matrix(found.by, Selection::All);
        phase.matrix = Matrix { nodes: Arc::clone(&nodes), is_partial, ..matrix };
        phase.collectives = collectives::phase_collectives(profile, collectives);
    }
}
