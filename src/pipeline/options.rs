//! The options of an analysis, in groups.

use crate::model::profile::RankRow;
use crate::model::{Clock, ConnectionShare};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Default width of the timeline's bins: 10 ms.
pub const DEFAULT_BIN_NS: i64 = 10_000_000;

/// Default for the cells of the timeline (connection x bin x kind, 48 bytes each: 24 MiB). Beyond
/// this number, the bins double in width. The latency time series has a quarter as many cells
/// (connection x bin x kind x bucket, 16 bytes each).
pub const DEFAULT_MAX_CELLS: usize = 1 << 19;

/// Default for the directed connections that are tracked per input. So many take a few GiB.
pub const DEFAULT_MAX_CONNECTIONS: usize = 1 << 20;

/// Options of an analysis.
#[derive(Clone, Debug)]
pub struct AnalysisOptions {
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Width of the timeline's bins in nanoseconds; `None` for no timeline.
    pub bin_ns: Option<i64>,
    /// Bounds on stored data and on input.
    pub limits: AnalysisLimits,
    /// The parts of packets that are read, and the quantities that are measured.
    pub measures: AnalysisMeasures,
    /// Digests of the inputs.
    pub digests: DigestChoice,
    /// The part of the captures that is analyzed.
    pub window: AnalysisWindow,
    /// The user's rank map, which takes precedence over inferred ranks.
    pub rankmap: Option<Vec<RankRow>>,
    /// The user's data on endpoints.
    pub endpoints: EndpointInfo,
    /// Comparison and correction of the captures' clocks.
    pub clocks: ClockOptions,
    /// Streams that the user gives, by capture path. Captures without an entry are grouped by their
    /// packets.
    pub streams: BTreeMap<PathBuf, String>,
    /// Each observation point took one of this many packets at random; `None` if the captures hold
    /// all packets, or samples at a rate that their PSNs or headers show.
    pub sampled: Option<u32>,
    /// Keep the data that [`merge`](super::merge()) needs. Needs whole captures: no window.
    pub keep_parts: bool,
    /// Analyze this share of the connections only; `None` for all. Needs `keep_parts`: the
    /// profile has the data for [`merge`](super::merge()) and no tables.
    pub share: Option<ConnectionShare>,
    /// Set by another thread to end the analysis early; the result covers the packets read until
    /// then.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            bin_ns: Some(DEFAULT_BIN_NS),
            limits: AnalysisLimits::default(),
            measures: AnalysisMeasures::default(),
            digests: DigestChoice::default(),
            window: AnalysisWindow::default(),
            rankmap: None,
            endpoints: EndpointInfo::default(),
            clocks: ClockOptions::default(),
            streams: BTreeMap::new(),
            sampled: None,
            keep_parts: false,
            share: None,
            stop: None,
        }
    }
}

/// Bounds on the data that an analysis stores and reads.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisLimits {
    /// Maximum of timeline cells; the latency time series may have a quarter as many.
    pub max_cells: usize,
    /// Directed connections to track per input at most. Packets of other connections count in the
    /// coverage only.
    pub max_connections: usize,
    /// Maximum number of bytes to decompress from each compressed input.
    pub max_decompressed_bytes: Option<u64>,
}

impl Default for AnalysisLimits {
    fn default() -> Self {
        Self { max_cells: DEFAULT_MAX_CELLS, max_connections: DEFAULT_MAX_CONNECTIONS, max_decompressed_bytes: None }
    }
}

/// The parts of packets that an analysis reads, and the quantities that it measures. All by
/// default.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct AnalysisMeasures {
    /// Look for MPI envelopes.
    pub mpi: bool,
    /// Measure latencies. Needs `mpi`, which pairs requests with their responses.
    pub times: bool,
    /// Count packets and messages by size. Sizes of messages need `mpi`, which assembles them.
    pub sizes: bool,
    /// Track retransmissions, NAKs, congestion and other faults per connection.
    pub health: bool,
    /// Verify the ICRC of every packet that was captured whole.
    pub icrc: bool,
    /// Read payload. Without it there are no MPI messages, no ranks and no connection messages.
    pub payload: bool,
}

impl Default for AnalysisMeasures {
    fn default() -> Self {
        Self { mpi: true, times: true, sizes: true, health: true, icrc: true, payload: true }
    }
}

/// The digests of each input that an analysis computes.
#[derive(Clone, Copy, Debug)]
pub struct DigestChoice {
    /// Compute the XXH3-128 digest, which the profile stores.
    pub xxh3: bool,
    /// Compute the SHA-256 digest as well.
    pub sha256: bool,
}

impl Default for DigestChoice {
    fn default() -> Self {
        Self { xxh3: true, sha256: false }
    }
}

/// The time window that an analysis covers; the whole captures by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnalysisWindow {
    /// Start of the window.
    pub from: Option<TimePoint>,
    /// End of the window, exclusive.
    pub to: Option<TimePoint>,
}

impl AnalysisWindow {
    /// True if only a part of the captures is analyzed.
    pub(super) fn is_limited(self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Start and end in nanoseconds since the epoch, for inputs whose first packet is at
    /// `start_ns`. A bound that is not given is the minimum or maximum of `i64`.
    pub(super) fn bounds_ns(self, start_ns: i64) -> (i64, i64) {
        let from_ns = self.from.map_or(i64::MIN, |moment| moment.absolute_ns(start_ns));
        let to_ns = self.to.map_or(i64::MAX, |moment| moment.absolute_ns(start_ns));
        (from_ns, to_ns)
    }
}

/// A point in time as the user gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePoint {
    /// Nanoseconds after the first packet of all inputs.
    SinceStart(i64),
    /// Nanoseconds since the epoch.
    Absolute(i64),
}

impl TimePoint {
    /// Nanoseconds since the epoch, for inputs whose first packet is at `start_ns`.
    #[must_use]
    pub const fn absolute_ns(self, start_ns: i64) -> i64 {
        match self {
            Self::SinceStart(ns) => start_ns.saturating_add(ns),
            Self::Absolute(ns) => ns,
        }
    }
}

/// Names, leaf switches and Slurm job ids of endpoints.
#[derive(Clone, Debug, Default)]
pub struct EndpointInfo {
    /// Names of the endpoints.
    pub names: BTreeMap<Endpoint, String>,
    /// Names of their leaf switches.
    pub leaves: BTreeMap<Endpoint, String>,
    /// Their data rates in bit/s.
    pub port_rates: BTreeMap<Endpoint, u64>,
    /// Ids of the Slurm jobs that ran on them.
    pub slurm_jobs: BTreeMap<Endpoint, String>,
}

/// Comparison and correction of the captures' clocks.
#[derive(Clone, Debug)]
pub struct ClockOptions {
    /// Compare the clocks of several captures and correct them.
    pub align: bool,
    /// Clocks that the user supplies, by capture path: the correction, and its uncertainty in nanoseconds.
    pub supplied: BTreeMap<PathBuf, (Clock, u64)>,
    /// Clocks that [`merge`](super::merge()) found and will find again, as `supplied`. Unlike
    /// the clocks in `supplied`, `merge` does not compare them. Captures without an entry need no
    /// correction.
    pub from_merge: Option<BTreeMap<PathBuf, (Clock, u64)>>,
}

impl ClockOptions {
    /// The clock of a capture, from the user or from a merge.
    pub(super) fn of(&self, path: &Path) -> Option<(Clock, u64)> {
        self.supplied.get(path).or_else(|| self.from_merge.as_ref()?.get(path)).copied()
    }
}

impl Default for ClockOptions {
    fn default() -> Self {
        Self { align: true, supplied: BTreeMap::new(), from_merge: None }
    }
}
