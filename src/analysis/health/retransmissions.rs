//! Retransmitted packets over time.

use crate::analysis::AnalysisError;
use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::{Profile, TrafficKind};
use std::collections::BTreeMap;

/// Retransmitted packets by sender and time bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retransmissions {
    /// Senders are ranks if the profile has any, otherwise endpoints.
    pub by: GroupBy,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Bins sorted by time and sender; bins without packets are omitted.
    pub bins: Vec<RetransmissionBin>,
}

/// The packets of one sender in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetransmissionBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
    /// Sender.
    pub src: Label,
    /// All packets, including retransmissions.
    pub packets: u64,
    /// Retransmitted packets among them.
    pub retransmitted_packets: u64,
}

impl Retransmissions {
    /// Start of the first bin and end of the last one, in nanoseconds since the epoch.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?, self.bins.last()?);
        Some((first.time_ns, last.time_ns.saturating_add(self.bin_ns)))
    }
}

/// Sums retransmitted packets over time, in the bins of the profile's senders. Fails if there is
/// none, and for a sampled capture.
pub fn retransmissions(profile: &Profile) -> Result<Retransmissions, AnalysisError> {
    let (rows, bin_ns) = profile.sender_series();
    if bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    if profile.sampling.is_some() {
        return Err(AnalysisError::Sampled);
    }
    let by = if profile.ranks.is_empty() { GroupBy::Endpoint } else { GroupBy::Rank };
    let labels = EndpointLabels::new(profile, by);
    let mut sums: BTreeMap<(i64, Label), (u64, u64)> = BTreeMap::new();
    for row in rows {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == TrafficKind::Data) else { continue };
        let (packets, retransmitted) = sums.entry((row.time_ns, labels.sender(connection))).or_default();
        *packets += row.traffic.packets;
        *retransmitted += row.retransmissions.packets;
    }
    let bin = |((time_ns, src), (packets, retransmitted_packets))| RetransmissionBin {
        time_ns,
        src,
        packets,
        retransmitted_packets,
    };
    let origin_ns = crate::analysis::origin_ns(profile, sums.keys().map(|(time_ns, _)| *time_ns).next());
    Ok(Retransmissions { by, bin_ns, origin_ns, bins: sums.into_iter().map(bin).collect() })
}
