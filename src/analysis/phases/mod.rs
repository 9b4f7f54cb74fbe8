//! Profile -> phases: the job's time cut where the communication pattern changes, and what each part does.
//!
//! [`phases`] cuts the timeline where connections end (`turnovers.rs`) and by kernel change-point detection (`cuts.rs` says how, with its sources), adds up what each phase sent, and gives the
//! pattern of its matrix a name where only one fits (`pattern.rs`). Everything is sparse: it grows with the cells of the profile's timeline, not with
//! the square of the ranks.

mod collectives;
mod cuts;
mod graph;
mod lattice;
mod pairs;
mod pattern;
#[cfg(test)]
mod tests;
mod turnovers;
mod windows;

pub use collectives::Seen;
pub use pattern::{Name, Pattern};

use super::endpoint_label::By;
use super::matrix::{Counted, Matrix, Selection};
use crate::model::Profile;
use crate::model::profile::Traffic;
use graph::{Graph, View};
use pairs::Pairs;
use std::collections::BTreeMap;

/// How to cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What patterns are of; `None` for ranks where most of the traffic has them, else endpoints.
    pub by: Option<By>,
    /// Width of a window in nanoseconds, rounded up to whole bins of the profile; `None` for a round one that makes at most 64 of them.
    pub window_ns: Option<i64>,
}

/// The phases of a job. Empty where there is no traffic, or no timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases {
    /// What patterns and matrices are of.
    pub by: By,
    /// Width of a window in nanoseconds: phases begin at least so far apart. 0 where there is no timeline.
    pub window_ns: i64,
    /// The first packet of the captures, from which times are told, in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// MPI messages were looked for.
    pub mpi_read: bool,
    /// In the order of time; between two there may be a pause.
    pub phases: Vec<Phase>,
}

/// A time in which the pattern stays the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Start in nanoseconds since the epoch.
    pub from_ns: i64,
    /// End in nanoseconds since the epoch, itself not included.
    pub to_ns: i64,
    /// The sums of all pairs.
    pub traffic: Traffic,
    /// An MPI library was recognised on some connection.
    pub has_mpi: bool,
    /// Who sent what to whom, point-to-point and collective.
    pub matrix: Matrix,
    /// What the matrix looks like.
    pub pattern: Pattern,
    /// Collective operations.
    pub collectives: Vec<Seen>,
}

impl Phase {
    /// Length in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> i64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Messages: of MPI where a library was recognised, else of the transport.
    #[must_use]
    pub fn messages(&self) -> u64 {
        if self.has_mpi { Selection::All.mpi(&self.traffic).0 } else { self.traffic.messages }
    }

    /// Bytes: of MPI where a library was recognised, else payload.
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

/// The phases of a profile.
#[must_use]
pub fn phases(profile: &Profile, options: &Options) -> Phases {
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
    let pairs = Pairs::new(profile, by);
    let span_ns = windows::span_ns(profile, &pairs).unwrap_or_default();
    let width_ns = windows::width_ns(span_ns, profile.bin_ns, options.window_ns);
    found.window_ns = width_ns;
    let step_ns = windows::step_ns(span_ns, profile.bin_ns, width_ns);
    let steps = windows::windows(profile, &pairs, step_ns);
    let view = View::new(profile);
    let mut phase_of: BTreeMap<i64, usize> = BTreeMap::new();
    let ends_ns = turnovers::ends_ns(profile, cuts::around_ns(width_ns));
    for (index, range) in cuts::phases(&steps, step_ns, width_ns, &ends_ns).into_iter().enumerate() {
        let steps = &steps[range];
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { continue };
        phase_of.extend((first.number..=last.number).map(|number| (number, index)));
        let bound = |number: i64| number.saturating_mul(step_ns).clamp(span_ns.0, span_ns.1);
        let (from_ns, to_ns) = (bound(first.number), bound(last.number.saturating_add(1)));
        let pattern = pattern::name(&Graph::new(&view, &pairs, steps));
        let matrix = Matrix::of(by, Selection::All, &BTreeMap::new());
        let traffic = Traffic::default();
        found.phases.push(Phase { from_ns, to_ns, traffic, has_mpi: false, matrix, pattern, collectives: Vec::new() });
    }
    add_up(profile, &pairs, &mut found, |time_ns| phase_of.get(&time_ns.div_euclid(step_ns)).copied());
    found
}

/// Ranks where at least half of the packets have both, else endpoints.
fn natural(profile: &Profile) -> By {
    let ranks = super::matrix::matrix(profile, By::Rank, Selection::All);
    let known =
        ranks.rows().filter(|(src, dst, _)| !src.is_unknown() && !dst.is_unknown()).map(|(_, _, cell)| cell.packets);
    if known.sum::<u64>() * 2 >= ranks.total().packets.max(1) { By::Rank } else { By::Endpoint }
}

/// Fills in what each phase sent.
fn add_up(profile: &Profile, pairs: &Pairs, found: &mut Phases, phase_at: impl Fn(i64) -> Option<usize>) {
    let mut cells = vec![BTreeMap::new(); found.phases.len()];
    let mut collectives = vec![BTreeMap::new(); found.phases.len()];
    for row in &profile.timeline {
        let (Some(pair), Some(index)) = (pairs.of(row.connection), phase_at(row.time_ns)) else { continue };
        let connection = &profile.connections[row.connection as usize];
        let counted = Counted::of(profile, connection, found.by, Selection::All);
        let phase = &mut found.phases[index];
        phase.traffic += row.traffic;
        phase.has_mpi |= counted.has_mpi;
        let cell: &mut super::matrix::Cell = cells[index].entry(pair).or_default();
        cell.add(counted, &row.traffic);
        if row.traffic.collective_messages > 0 {
            *collectives[index].entry(row.connection).or_default() += row.traffic.collective_messages;
        }
    }
    for ((phase, cells), collectives) in found.phases.iter_mut().zip(cells).zip(&collectives) {
        let cells = cells.into_iter().map(|(pair, cell)| (pairs.labels(pair).clone(), cell)).collect();
        phase.matrix = Matrix::of(found.by, Selection::All, &cells);
        phase.collectives = collectives::seen(profile, collectives);
    }
}
