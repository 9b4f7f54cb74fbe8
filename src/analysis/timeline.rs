//! Profile -> traffic per time bin, by pair of endpoints or ranks.

use super::AnalysisError;
use super::matrix::{CountingRule, MatrixCell, Selection};
use crate::analysis::endpoint_label::GroupBy;
use crate::analysis::endpoint_label::{EndpointLabels, Label};
use crate::model::{Profile, TrafficKind};
use std::collections::BTreeMap;

/// Sums of one pair in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
    /// Sender.
    pub src: Label,
    /// Receiver.
    pub dst: Label,
    /// The sums.
    pub cell: MatrixCell,
}

/// Traffic over time. Bins without traffic are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Whether sender and receiver are endpoints or ranks.
    pub by: GroupBy,
    /// Which MPI messages the cells count.
    pub selection: Selection,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Bins sorted by time, sender, receiver.
    pub bins: Vec<TimelineBin>,
}

impl Timeline {
    /// Start of the first bin and end of the last one, in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.time_ns, last.time_ns.saturating_add(self.bin_ns)))
    }
}

/// Builds the timeline of a profile in bins of `bin_ns`, or in the bins of the profile if `bin_ns`
/// is `None`. Fails if the profile has no timeline or `bin_ns` is no multiple of its bin width.
pub fn timeline(
    profile: &Profile,
    by: GroupBy,
    selection: Selection,
    bin_ns: Option<i64>,
) -> Result<Timeline, AnalysisError> {
    if profile.bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    let wanted_ns = bin_ns.unwrap_or(profile.bin_ns);
    if wanted_ns % profile.bin_ns != 0 {
        return Err(AnalysisError::Bins { wanted_ns, profile_ns: profile.bin_ns });
    }
    let labels = EndpointLabels::new(profile, by);
    let mut cells: BTreeMap<(i64, Label, Label), MatrixCell> = BTreeMap::new();
    for row in &profile.timeline {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        if connection.kind != TrafficKind::Data {
            continue;
        }
        let time_ns = row.time_ns.div_euclid(wanted_ns).saturating_mul(wanted_ns);
        let key = (time_ns, labels.sender(connection), labels.receiver(connection));
        cells
            .entry(key)
            .or_default()
            .add(CountingRule::of(profile, connection, by, selection).over_time(), &row.traffic);
    }
    let origin_ns = crate::analysis::origin_ns(profile, cells.keys().map(|(time_ns, ..)| *time_ns).next());
    let bins = cells.into_iter().map(|((time_ns, src, dst), cell)| TimelineBin { time_ns, src, dst, cell }).collect();
    Ok(Timeline { by, selection, bin_ns: wanted_ns, origin_ns, bins })
}
