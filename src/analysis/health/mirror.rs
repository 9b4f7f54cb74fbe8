//! The rate of the mirrored traffic against the link of the sink.
//!
//! In: the timeline of a profile, and the speed of the link. Out: the highest rate of all
//! observations. A mirror that sends more than the link carries drops the rest, so the captured rate
//! is close to that of the link, and never far beyond it.

use crate::analysis::rates::{DEFAULT_WINDOW_NS, PACKETS, WIRE_BYTES, rates};
use crate::model::Profile;
use crate::model::link::Speed;

/// Share of the link, in percent, from which the mirror is probably oversubscribed: headers of the
/// mirror and gaps between packets take the rest.
const FULL_PERCENT: f64 = 90.0;

/// The highest rate of the captured observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MirrorLoad {
    /// Bytes per second on the wire, mirror copies included.
    pub(crate) bytes_per_s: f64,
    /// Length of the window with that rate in nanoseconds, and its start in nanoseconds since the
    /// epoch and from the first packet.
    pub(crate) window_ns: i64,
    pub(crate) from_ns: i64,
    pub(crate) origin_ns: i64,
    /// The rate in percent of the link.
    pub(crate) link_percent: f64,
}

impl MirrorLoad {
    /// True if the link was probably full.
    pub(crate) fn is_full(&self) -> bool {
        self.link_percent >= FULL_PERCENT
    }
}

/// The load of the sink's link; `None` for several inputs, whose packets may come over several
/// links, and without a timeline.
pub(crate) fn mirror_load(profile: &Profile, speed: &Speed) -> Option<MirrorLoad> {
    let [_] = profile.inputs.as_slice() else { return None };
    let rates = rates(profile, None, None, DEFAULT_WINDOW_NS).ok()?;
    let packets = rates.total.sums[PACKETS];
    let peak = rates.total.peaks[WIRE_BYTES];
    if packets == 0 || peak.sum == 0 {
        return None;
    }
    // The timeline has each packet once, and the link carries each mirror copy.
    let observations = (packets + profile.coverage.mirror_copies) as f64 / packets as f64;
    let bytes_per_s = rates.peak(peak) * observations;
    let link_percent = bytes_per_s * 8e-9 / speed.gbit_per_s() * 100.0;
    let (window_ns, from_ns, origin_ns) = (rates.window_ns, peak.start_ns, rates.origin_ns);
    Some(MirrorLoad { bytes_per_s, window_ns, from_ns, origin_ns, link_percent })
}
