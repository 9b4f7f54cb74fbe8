//! Retransmitted packets, congestion and NAKs over time.

use super::PauseTimes;
use crate::analysis::AnalysisError;
use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::TimelineRow;
use crate::model::{BinCongestion, Profile, TrafficKind};
use std::collections::BTreeMap;

/// Retransmissions, congestion and NAKs by sender and time bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSeries {
    /// Senders are ranks if the profile has any, otherwise endpoints.
    pub by: GroupBy,
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// Time of the last packet of the captures; `None` if it is not known.
    pub captured_until_ns: Option<i64>,
    /// False if the profile has no counts of congestion over time: they are 0 here, and unknown.
    pub has_congestion: bool,
    /// Bins sorted by time and sender; bins without packets are omitted.
    pub bins: Vec<HealthBin>,
    /// Pause and PFC frames, which belong to no sender of the bins, in bins of their own.
    pub pauses: PauseTimes,
}

/// The packets of one sender in one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthBin {
    /// Start of the bin in nanoseconds since the epoch, a multiple of the bin width.
    pub time_ns: i64,
    /// Sender.
    pub src: Label,
    /// Its packets.
    pub sums: HealthSums,
}

/// Sums of the packets of one or all senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthSums {
    /// All packets, including retransmissions.
    pub packets: u64,
    /// Bytes of all packets on the wire.
    pub wire_bytes: u64,
    /// Retransmitted packets among them.
    pub retransmitted_packets: u64,
    /// Congestion and NAKs among them.
    pub congestion: BinCongestion,
}

impl HealthSums {
    /// Adds the packets of a connection in a bin.
    fn add(&mut self, row: &TimelineRow) {
        *self += Self {
            packets: row.traffic.packets,
            wire_bytes: row.traffic.wire_bytes,
            retransmitted_packets: row.retransmissions.packets,
            congestion: row.congestion,
        };
    }

    /// Retransmissions, and packets that show congestion, loss or a slow receiver.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.retransmitted_packets.saturating_add(self.congestion.packets())
    }
}

impl std::ops::AddAssign for HealthSums {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes = self.wire_bytes.saturating_add(other.wire_bytes);
        self.retransmitted_packets += other.retransmitted_packets;
        self.congestion += other.congestion;
    }
}

impl HealthSeries {
    /// Start of the first bin and end of the last one, in nanoseconds since the epoch. The bins
    /// include the times of pause frames, which may come before and after all traffic. `None` without
    /// traffic.
    #[must_use]
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.bins.first()?.time_ns, self.bins.last()?.time_ns);
        let start_ns = |time_ns: i64| time_ns.div_euclid(self.bin_ns).saturating_mul(self.bin_ns);
        let pauses = self.pauses.span_ns().map(|(from_ns, to_ns)| (start_ns(from_ns), start_ns(to_ns - 1)));
        let (first, last) = pauses.map_or((first, last), |(from, to)| (first.min(from), last.max(to)));
        Some((first, last.saturating_add(self.bin_ns)))
    }

    /// Sums over all senders by the start of the bin.
    #[must_use]
    pub fn of_all_senders(&self) -> BTreeMap<i64, HealthSums> {
        let mut bins: BTreeMap<i64, HealthSums> = BTreeMap::new();
        self.bins.iter().for_each(|bin| *bins.entry(bin.time_ns).or_default() += bin.sums);
        bins
    }
}

/// Sums retransmissions, congestion and NAKs over time, in the bins of the profile's senders. Fails if
/// there is none, and for a sampled capture.
pub fn health_series(profile: &Profile) -> Result<HealthSeries, AnalysisError> {
    let (rows, bin_ns) = profile.sender_series();
    if bin_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    if profile.sampling.is_some() {
        return Err(AnalysisError::Sampled);
    }
    let by = if profile.ranks.is_empty() { GroupBy::Endpoint } else { GroupBy::Rank };
    let labels = EndpointLabels::new(profile, by);
    let mut sums: BTreeMap<(i64, Label), HealthSums> = BTreeMap::new();
    for row in rows {
        let connection = profile.connections.get(row.connection as usize);
        let Some(connection) = connection.filter(|connection| connection.kind == TrafficKind::Data) else { continue };
        sums.entry((row.time_ns, labels.sender(connection))).or_default().add(row);
    }
    let origin_ns = crate::analysis::origin_ns(profile, sums.keys().map(|(time_ns, _)| *time_ns).next());
    let bins = sums.into_iter().map(|((time_ns, src), sums)| HealthBin { time_ns, src, sums }).collect();
    let captured_until_ns = crate::analysis::captured_until_ns(profile);
    Ok(HealthSeries {
        by,
        bin_ns,
        origin_ns,
        captured_until_ns,
        has_congestion: !profile.is_without_congestion,
        bins,
        pauses: PauseTimes::of(profile),
    })
}
