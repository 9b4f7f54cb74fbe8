//! What was sent again, over time.

use crate::analysis::AnalysisError;
use crate::analysis::endpoint_label::{By, EndpointLabels, Label};
use crate::model::{Kind, Profile};
use std::collections::BTreeMap;

/// Packets that were sent again, by sender and bin of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retransmissions {
    /// What senders are: ranks where any is known.
    pub by: By,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// The first packet of the captures, from which times are told, in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Sorted by time and sender; bins without packets are left out.
    pub bins: Vec<RepeatedBin>,
}

/// What one sender sent in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the width.
    pub time_ns: i64,
    /// Sender.
    pub src: Label,
    /// All packets, each transmission.
    pub packets: u64,
    /// Those of them that were sent before.
    pub repeated_packets: u64,
}

impl Retransmissions {
    /// First and one past the last bin, as their start times in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.time_ns, last.time_ns.saturating_add(self.bin_ns)))
    }
}

/// What was sent again over time, in the bins of the profile's timeline.
pub fn retransmissions(profile: &Profile) -> Result<Retransmissions, AnalysisError> {
    if profile.bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    let by = if profile.ranks.is_empty() { By::Endpoint } else { By::Rank };
    let who = EndpointLabels::new(profile, by);
    let mut sums: BTreeMap<(i64, Label), (u64, u64)> = BTreeMap::new();
    for row in &profile.timeline {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == Kind::Data) else { continue };
        let (packets, repeated) = sums.entry((row.time_ns, who.sender(connection))).or_default();
        *packets += row.traffic.packets;
        *repeated += row.repeated.packets;
    }
    let bin = |((time_ns, src), (packets, repeated_packets))| RepeatedBin { time_ns, src, packets, repeated_packets };
    let origin_ns = crate::analysis::origin_ns(profile, sums.keys().map(|(time_ns, _)| *time_ns).next());
    Ok(Retransmissions { by, bin_ns: profile.bin_ns, origin_ns, bins: sums.into_iter().map(bin).collect() })
}
