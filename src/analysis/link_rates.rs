//! Rates of each port and direction over time, against the capacity of its link.
//!
//! In: the timeline of a profile, and the speed of the links if it is known. Out: for each port and
//! direction the mean, the peaks over three windows, the share of time above 90 % of the capacity,
//! and the largest number of senders at once. A packet counts at the port of its sender and at the
//! port of its receiver. Invariant: a value is missing where the captures do not show it, and a rate
//! that may be too low is marked as a lower bound.

use super::AnalysisError;
use super::endpoint_label::{EndpointLabels, GroupBy, Label};
use super::health::LinkDirection;
use super::observed_ports::shows_each_packet_at_both_ports;
use super::rates::per_second;
use super::sliding_sums::sliding_sums;
use crate::model::link::Speed;
use crate::model::profile::{CoverageState, TimelineRow};
use crate::model::{Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Lengths of the windows of the peaks in nanoseconds: 1, 10 and 100 ms.
pub const PEAK_WINDOWS_NS: [i64; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Width of the bins if captures are read: the shortest of the windows.
pub const LINK_BIN_NS: i64 = PEAK_WINDOWS_NS[0];
/// A link is busy in a bin from this share of its capacity on.
pub const BUSY_SHARE: f64 = 0.9;
/// Wider bins do not show for which share of the time a link is busy.
const WIDEST_BUSY_BIN_NS: i64 = PEAK_WINDOWS_NS[2];
/// Windows that may show the capacity of a link. Timestamps that a capturing program assigns in
/// batches can compress the packets of a shorter window.
const CAPACITY_WINDOWS: std::ops::Range<usize> = 1..PEAK_WINDOWS_NS.len();

/// The capacity of a link in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkCapacity {
    /// The user gave the speed.
    Given(f64),
    /// The manifest of the captures has the rate of the port.
    OfPort(f64),
    /// The highest rate of any link in the captures: the links carry at least this.
    AtLeast(f64),
}

impl LinkCapacity {
    /// The capacity, if it is more than a lower bound.
    #[must_use]
    pub const fn known(self) -> Option<f64> {
        match self {
            Self::Given(bytes_per_s) | Self::OfPort(bytes_per_s) => Some(bytes_per_s),
            Self::AtLeast(_) => None,
        }
    }

    /// The capacity or its lower bound.
    #[must_use]
    pub const fn bytes_per_s(self) -> f64 {
        match self {
            Self::Given(bytes_per_s) | Self::OfPort(bytes_per_s) | Self::AtLeast(bytes_per_s) => bytes_per_s,
        }
    }

    /// The name of the source in outputs.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::Given(_) => "given",
            Self::OfPort(_) => "manifest",
            Self::AtLeast(_) => "at_least",
        }
    }
}

/// Reasons why the rates of a link may be lower than the real ones; the strongest one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LowerBound {
    /// Other frames share the link.
    OtherFrames,
    /// The captures show one of the two ports of some packets, and may miss other traffic of a port.
    OneSide,
    /// Packets without a timestamp are in no bin.
    WithoutTime,
    /// The captures do not show whether packets are missing.
    CannotTell,
    /// Some traffic of the captures was left out: another job, or connections beyond the limit.
    LeftOut,
    /// Packets are missing in the captures.
    Missing,
}

impl LowerBound {
    /// The reason as the end of "lower bound, because ...".
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::OtherFrames => "frames that are not InfiniBand share the links and do not count",
            Self::OneSide => "some traffic was observed at one of its two ports only",
            Self::WithoutTime => "packets without a timestamp do not count",
            Self::CannotTell => "the captures do not show whether packets are missing",
            Self::LeftOut => "some connections were left out",
            Self::Missing => "the captures miss packets",
        }
    }
}

/// One bin of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBin {
    /// Start of the bin in nanoseconds since the epoch.
    pub time_ns: i64,
    /// Bytes of all packets on the wire.
    pub wire_bytes: u64,
    /// Ports that sent payload to this port.
    pub senders: u32,
}

/// The highest mean rate over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPeak {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Start of the window in nanoseconds since the epoch; the earliest of several equal ones.
    pub start_ns: i64,
}

/// One direction of the link between a port and its switch.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSeries {
    /// The port.
    pub port: Label,
    /// The direction.
    pub(crate) direction: LinkDirection,
    /// Bins with traffic, by time.
    pub bins: Vec<LinkBin>,
    /// The capacity of the link.
    pub capacity: LinkCapacity,
    /// Bytes of all packets on the wire.
    pub wire_bytes: u64,
    /// Mean rate from the first to the last packet of the captures, in bytes per second; `None` for
    /// a sample.
    pub mean: Option<f64>,
    /// Peaks over [`PEAK_WINDOWS_NS`]; `None` if the bins are wider than the window or no divisor of
    /// it, if the traffic is shorter, and for a sample.
    pub peaks: [Option<LinkPeak>; PEAK_WINDOWS_NS.len()],
    /// Share of the time, 0 to 1, in bins with at least [`BUSY_SHARE`] of the capacity; `None` if
    /// the capacity is not known, if the bins are too wide, and for a sample.
    pub busy: Option<f64>,
    /// Most ports that sent payload to this port within one bin; `None` for the direction from the
    /// port, and for a sample.
    pub senders: Option<u32>,
    /// Reason why the rates are lower bounds; `None` if they are exact.
    pub lower_bound: Option<LowerBound>,
}

impl LinkSeries {
    /// The highest of the known peaks, or the mean.
    #[must_use]
    pub fn highest(&self) -> f64 {
        let peaks = self.peaks.iter().flatten().map(|peak| peak.bytes_per_s);
        peaks.chain(self.mean).fold(0.0, f64::max)
    }

    /// A rate as a share of the capacity; `None` if the capacity is not known.
    #[must_use]
    pub fn share(&self, bytes_per_s: f64) -> Option<f64> {
        self.capacity.known().map(|capacity| bytes_per_s / capacity)
    }
}

/// The rates of all links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRates {
    /// Width of a bin in nanoseconds.
    pub bin_ns: i64,
    /// Width of the bins of the profile in nanoseconds. Peaks and busy shares come from these, so they
    /// do not depend on the shown bins.
    pub fine_ns: i64,
    /// Start of the first bin and end of the last one, in nanoseconds since the epoch.
    pub span_ns: (i64, i64),
    /// Time from the first to the last packet in nanoseconds, at least 1 bin if all have one time.
    pub length_ns: i64,
    /// Origin of relative times (the first packet of the captures), in nanoseconds since the epoch.
    pub origin_ns: i64,
    /// For a sampled capture, the sentence on sampling: rates and utilization are unknown.
    pub sampled: Option<String>,
    /// The links, by port and direction.
    pub links: Vec<LinkSeries>,
}

impl LinkRates {
    /// Sum of a bin divided by its width, in bytes per second.
    #[must_use]
    pub fn rate(&self, bin: &LinkBin) -> f64 {
        per_second(bin.wire_bytes, self.bin_ns)
    }

    /// True if the capacity of every link is known.
    #[must_use]
    pub fn has_capacities(&self) -> bool {
        self.links.iter().all(|link| link.capacity.known().is_some())
    }

    /// The reason with which all links are lower bounds, if they have one in common.
    #[must_use]
    pub fn common_bound(&self) -> Option<LowerBound> {
        let first = self.links.first()?.lower_bound?;
        self.links.iter().all(|link| link.lower_bound == Some(first)).then_some(first)
    }
}

/// Sums of one link while the timeline is read.
#[derive(Default)]
struct LinkSums {
    bins: Vec<LinkBin>,
    /// Starts and wire bytes of the bins of the profile, which may be narrower.
    fine: Vec<(i64, u64)>,
    /// The ports that sent payload to the port in the last bin.
    senders: BTreeSet<Endpoint>,
    bound: Option<LowerBound>,
}

impl LinkSums {
    fn add(&mut self, row: &TimelineRow, bin_ns: i64, sender: Option<Endpoint>) {
        let wire_bytes = row.traffic.wire_bytes;
        match self.fine.last_mut() {
            Some((time_ns, sum)) if *time_ns == row.time_ns => *sum = sum.saturating_add(wire_bytes),
            _ => self.fine.push((row.time_ns, wire_bytes)),
        }
        let time_ns = bin_start(row.time_ns, bin_ns);
        if self.bins.last().is_none_or(|bin| bin.time_ns != time_ns) {
            self.bins.push(LinkBin { time_ns, ..LinkBin::default() });
            self.senders.clear();
        }
        let Some(bin) = self.bins.last_mut() else { return };
        bin.wire_bytes = bin.wire_bytes.saturating_add(wire_bytes);
        if let Some(sender) = sender.filter(|_| row.traffic.payload_bytes > 0) {
            self.senders.insert(sender);
            bin.senders = self.senders.len() as u32;
        }
    }
}

const fn bin_start(time_ns: i64, bin_ns: i64) -> i64 {
    time_ns.div_euclid(bin_ns).saturating_mul(bin_ns)
}

/// Computes the rates of all links in bins of `bin_ns`, rounded down to whole bins of the profile, or
/// in the bins of the profile. `speed` takes precedence over the rates of the ports in the profile.
/// `is_selected` states that the profile holds one of several jobs only. Fails if the profile has no
/// timeline.
pub fn link_rates(
    profile: &Profile,
    speed: Option<&Speed>,
    is_selected: bool,
    bin_ns: Option<i64>,
) -> Result<LinkRates, AnalysisError> {
    let fine_ns = profile.bin_ns;
    if fine_ns <= 0 {
        return Err(AnalysisError::NoTimeline);
    }
    let bin_ns = bin_ns.map_or(fine_ns, |bin_ns| bin_ns.max(fine_ns) / fine_ns * fine_ns);
    let mut sums: BTreeMap<(Endpoint, LinkDirection), LinkSums> = BTreeMap::new();
    for row in &profile.timeline {
        let Some(connection) = profile.connections.get(row.connection as usize) else { continue };
        sums.entry((connection.src, LinkDirection::From)).or_default().add(row, bin_ns, None);
        if connection.kind != TrafficKind::Multicast {
            let sender = (connection.kind == TrafficKind::Data).then_some(connection.src);
            sums.entry((connection.dst, LinkDirection::To)).or_default().add(row, bin_ns, sender);
        }
    }
    for connection in &profile.connections {
        let bound = match connection.coverage.state {
            CoverageState::Complete | CoverageState::Sampled => None,
            CoverageState::Unknown => Some(LowerBound::CannotTell),
            CoverageState::Incomplete => Some(LowerBound::Missing),
        };
        for end in [(connection.src, LinkDirection::From), (connection.dst, LinkDirection::To)] {
            if let Some(link) = sums.get_mut(&end) {
                link.bound = link.bound.max(bound);
            }
        }
    }
    let ends = profile.timeline.first().zip(profile.timeline.last());
    let start_ns = |row: &TimelineRow| bin_start(row.time_ns, bin_ns);
    let span_ns = ends.map_or((0, 0), |(first, last)| (start_ns(first), start_ns(last).saturating_add(bin_ns)));
    let length_ns = length_ns(profile, span_ns).max(1);
    let labels = EndpointLabels::new(profile, GroupBy::Endpoint);
    let bound = common_bound(profile, is_selected);
    let is_sampled = profile.sampling.is_some();
    let series = |((endpoint, direction), sums): ((Endpoint, LinkDirection), LinkSums)| {
        let wire_bytes = sums.bins.iter().fold(0_u64, |sum, bin| sum.saturating_add(bin.wire_bytes));
        let peak = |window_ns| peak(&sums.fine, window_ns, (fine_ns, length_ns)).filter(|_| !is_sampled);
        let senders = sums.bins.iter().map(|bin| bin.senders).max();
        let capacity = capacity_of(profile, speed, endpoint);
        let known = capacity.known().filter(|_| !is_sampled && fine_ns <= WIDEST_BUSY_BIN_NS);
        let busy = known.map(|capacity| busy(&sums.fine, capacity, (fine_ns, length_ns)));
        LinkSeries {
            port: labels.port(endpoint),
            direction,
            capacity,
            wire_bytes,
            mean: (!is_sampled).then(|| per_second(wire_bytes, length_ns)),
            peaks: PEAK_WINDOWS_NS.map(peak),
            busy,
            senders: senders.filter(|_| direction == LinkDirection::To && !is_sampled),
            lower_bound: sums.bound.max(bound),
            bins: sums.bins,
        }
    };
    let mut links: Vec<LinkSeries> = sums.into_iter().map(series).collect();
    let highest = highest(&links);
    let unknown = links.iter_mut().filter(|link| link.capacity.known().is_none());
    unknown.for_each(|link| link.capacity = LinkCapacity::AtLeast(highest));
    let origin_ns = super::origin_ns(profile, Some(span_ns.0));
    let sampled = profile.sampling.map(|sampling| sampling.describe());
    Ok(LinkRates { bin_ns, fine_ns, span_ns, length_ns, origin_ns, sampled, links })
}

/// The capacity of the link of a port; at least 0 if nothing is known.
fn capacity_of(profile: &Profile, speed: Option<&Speed>, endpoint: Endpoint) -> LinkCapacity {
    let of_port = || profile.port_rates.get(&endpoint).map(|bit_per_s| LinkCapacity::OfPort(*bit_per_s as f64 / 8.0));
    let given = speed.map(|speed| LinkCapacity::Given(speed.gbit_per_s() * 1e9 / 8.0));
    given.or_else(of_port).unwrap_or(LinkCapacity::AtLeast(0.0))
}

/// The highest rate that surely passed some link.
fn highest(links: &[LinkSeries]) -> f64 {
    let peaks = links.iter().flat_map(|link| &link.peaks[CAPACITY_WINDOWS]).flatten().map(|peak| peak.bytes_per_s);
    peaks.chain(links.iter().filter_map(|link| link.mean)).fold(0.0, f64::max)
}

/// The reason with which the rates of every link are lower bounds.
fn common_bound(profile: &Profile, is_selected: bool) -> Option<LowerBound> {
    let coverage = &profile.coverage;
    [
        (coverage.other() > 0, LowerBound::OtherFrames),
        (!shows_each_packet_at_both_ports(profile), LowerBound::OneSide),
        (coverage.without_time > 0, LowerBound::WithoutTime),
        (is_selected || coverage.untracked_packets > 0, LowerBound::LeftOut),
    ]
    .into_iter()
    .filter_map(|(holds, bound)| holds.then_some(bound))
    .max()
}

/// Time from the first to the last packet within the bins; a bin if all packets have one time.
fn length_ns(profile: &Profile, span_ns: (i64, i64)) -> i64 {
    // A connection without any timestamp has its last time before its first.
    let timed = profile.connections.iter().filter(|connection| connection.first_time_ns <= connection.last_time_ns);
    let times = timed.map(|connection| (connection.first_time_ns, connection.last_time_ns));
    let (first, last) = times.reduce(|all, own| (all.0.min(own.0), all.1.max(own.1))).unwrap_or(span_ns);
    match last.min(span_ns.1).saturating_sub(first.max(span_ns.0)) {
        length_ns if length_ns > 0 => length_ns,
        _ => profile.bin_ns,
    }
}

/// The highest mean over a window of whole bins.
fn peak(bins: &[(i64, u64)], window_ns: i64, (bin_ns, length_ns): (i64, i64)) -> Option<LinkPeak> {
    if window_ns % bin_ns != 0 || window_ns > length_ns {
        return None;
    }
    let sums = sliding_sums(bins.iter().rev().copied(), window_ns);
    // Of equal windows the earliest, which comes last.
    let (start_ns, sum) = sums.max_by_key(|(_, sum)| *sum)?;
    Some(LinkPeak { bytes_per_s: sum as f64 * 1e9 / window_ns as f64, start_ns })
}

/// Share of the time in bins that are busy; at most 1, because the first and the last bin reach
/// beyond the traffic.
fn busy(bins: &[(i64, u64)], capacity: f64, (bin_ns, length_ns): (i64, i64)) -> f64 {
    let count = bins.iter().filter(|(_, bytes)| per_second(*bytes, bin_ns) >= BUSY_SHARE * capacity).count();
    (count as f64 * bin_ns as f64 / length_ns.max(bin_ns) as f64).min(1.0)
}
