//! Profile -> traffic per time bin, by pair or by sender, of endpoints or ranks.
//!
//! Senders may have narrower bins than pairs, because they are fewer.

use super::AnalysisError;
use super::matrix::{CountingRule, MatrixCell, Selection};
use crate::analysis::endpoint_label::GroupBy;
use crate::analysis::endpoint_label::{EndpointLabels, Label};
use crate::model::profile::{ConnectionRow, TimelineRow};
use crate::model::{ConnectionClass, PairEstimators, Profile, TrafficKind};
use std::collections::BTreeMap;

/// Sums of one pair or sender in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
    /// Sender.
    pub src: Label,
    /// Receiver; `None` for all receivers together.
    pub dst: Option<Label>,
    /// The sums.
    pub cell: MatrixCell,
    /// For a sampled capture, the estimators of the sums.
    pub estimators: Option<PairEstimators>,
}

/// Traffic over time. Bins without traffic are omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Whether sender and receiver are endpoints or ranks.
    pub by: GroupBy,
    /// The MPI messages that the cells count.
    pub selection: Selection,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Time of the last packet of the captures; `None` if it is not known.
    pub captured_until_ns: Option<i64>,
    /// For a sampled capture, the sentence that says so.
    pub sampled: Option<String>,
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

/// Sums of one class in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
    /// The class.
    pub class: ConnectionClass,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// Transport messages.
    pub messages: u64,
}

/// The traffic of each class over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTimeline {
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times, in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Time of the last packet of the captures; `None` if it is not known.
    pub captured_until_ns: Option<i64>,
    /// For a sampled capture, the sentence that says so.
    pub sampled: Option<String>,
    /// Bins sorted by time and class.
    pub bins: Vec<ClassBin>,
}

impl ClassTimeline {
    /// Start of the first bin and end of the last one, in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.time_ns, last.time_ns.saturating_add(self.bin_ns)))
    }
}

/// The data traffic of each class in the bins of a timeline of senders.
#[must_use]
pub fn class_timeline(profile: &Profile, timeline: &Timeline) -> ClassTimeline {
    let Timeline { bin_ns, origin_ns, captured_until_ns, .. } = *timeline;
    let mut bins: BTreeMap<(i64, ConnectionClass), (u64, u64)> = BTreeMap::new();
    for row in profile.sender_series().0 {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == TrafficKind::Data) else { continue };
        let time_ns = row.time_ns.div_euclid(bin_ns.max(1)).saturating_mul(bin_ns.max(1));
        let sums = bins.entry((time_ns, connection.class)).or_default();
        *sums = (sums.0 + row.traffic.wire_bytes, sums.1 + row.traffic.messages);
    }
    let bin = |((time_ns, class), (wire_bytes, messages))| ClassBin { time_ns, class, wire_bytes, messages };
    let sampled = timeline.sampled.clone();
    ClassTimeline { bin_ns, origin_ns, captured_until_ns, sampled, bins: bins.into_iter().map(bin).collect() }
}

/// Builds the timeline of the pairs of a profile in bins of `bin_ns`, or in the bins of the profile if
/// `bin_ns` is `None`. Fails if the profile has no timeline or `bin_ns` is no multiple of its bin
/// width.
pub fn timeline(
    profile: &Profile,
    by: GroupBy,
    selection: Selection,
    bin_ns: Option<i64>,
) -> Result<Timeline, AnalysisError> {
    summed(profile, (by, selection), (&profile.timeline, profile.bin_ns), bin_ns, |labels, connection| {
        (labels.sender(connection), Some(labels.receiver(connection)))
    })
}

/// As [`timeline`], for each sender with all its receivers, in the bins of the profile's senders.
pub fn sender_timeline(
    profile: &Profile,
    by: GroupBy,
    selection: Selection,
    bin_ns: Option<i64>,
) -> Result<Timeline, AnalysisError> {
    // Only connections show whether they carry one-sided operations, and have estimates.
    let series = if selection == Selection::OneSided || profile.sampling.is_some() {
        (&profile.timeline[..], profile.bin_ns)
    } else {
        profile.sender_series()
    };
    summed(profile, (by, selection), series, bin_ns, |labels, connection| (labels.sender(connection), None))
}

/// Start of a bin, sender, and receiver if pairs are counted.
type TrafficBinKey = (i64, Label, Option<Label>);

fn summed(
    profile: &Profile,
    (by, selection): (GroupBy, Selection),
    (rows, own_ns): (&[TimelineRow], i64),
    bin_ns: Option<i64>,
    ends: impl Fn(&EndpointLabels<'_>, &ConnectionRow) -> (Label, Option<Label>),
) -> Result<Timeline, AnalysisError> {
    if own_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    let wanted_ns = bin_ns.unwrap_or(own_ns);
    if wanted_ns % own_ns != 0 {
        return Err(AnalysisError::Bins { wanted_ns, profile_ns: own_ns });
    }
    let labels = EndpointLabels::new(profile, by);
    let mut cells: BTreeMap<TrafficBinKey, (MatrixCell, Option<PairEstimators>)> = BTreeMap::new();
    for row in rows {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        if connection.kind != TrafficKind::Data {
            continue;
        }
        let time_ns = row.time_ns.div_euclid(wanted_ns).saturating_mul(wanted_ns);
        let (src, dst) = ends(&labels, connection);
        let rule = CountingRule::of(profile, connection, by, selection);
        let (cell, estimators) = cells.entry((time_ns, src, dst)).or_default();
        cell.add(rule.over_time(), &row.traffic);
        if let Some(sampling) = profile.sampling {
            let own = rule.estimators(connection, Some(&row.traffic), sampling.quality());
            estimators.get_or_insert_default().merge(&own);
        }
    }
    let origin_ns = crate::analysis::origin_ns(profile, cells.keys().map(|(time_ns, ..)| *time_ns).next());
    let bin = |((time_ns, src, dst), (cell, estimators))| TimelineBin { time_ns, src, dst, cell, estimators };
    let bins = cells.into_iter().map(bin).collect();
    let sampled = profile.sampling.map(|sampling| sampling.describe());
    let captured_until_ns = crate::analysis::captured_until_ns(profile);
    Ok(Timeline { by, selection, bin_ns: wanted_ns, origin_ns, captured_until_ns, sampled, bins })
}
