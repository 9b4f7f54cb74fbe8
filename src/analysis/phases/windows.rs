//! Timeline -> windows of equal width with the weight of each pair and message category.
//!
//! Traffic is weighted by the packets that it needs: one per message, and one per 4 KiB of payload.
//! Acknowledgements have no weight. MPI messages are point-to-point or collective; payload without
//! a new message belongs to the last category of its pair. Messages of connections without a known
//! library have a category of their own.

use super::pairs::PairIndex;
use crate::model::Profile;
use crate::model::profile::Traffic;
use std::collections::BTreeMap;

/// Default limit of the number of windows.
const DEFAULT_WINDOWS: i128 = 64;
/// Hard limit of the number of windows or steps: similarities are quadratic in this number.
const MAX_WINDOWS: i128 = 512;
/// Payload that weighs as much as one message: a full packet.
const PACKET_BYTES: f64 = 4096.0;

/// Category of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MessageCategory {
    /// Point-to-point messages.
    PointToPoint,
    /// Messages of collective operations.
    Collective,
    /// Messages without a detected MPI library, and payload before the first MPI message of the
    /// pair.
    Other,
}

/// Number of [`MessageCategory`] variants.
pub(super) const MESSAGE_CATEGORIES: usize = 3;

/// The traffic in a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    /// Start of the window, in widths since the epoch.
    pub(super) number: i64,
    /// Pair, category and weight; sorted.
    pub(super) parts: Vec<(u32, MessageCategory, f64)>,
}

/// Start of the first and end of the last bin with data.
pub(super) fn span_ns(profile: &Profile, pairs: &PairIndex) -> Option<(i64, i64)> {
    let mut times = profile.timeline.iter().filter(|row| pairs.of(row.connection).is_some()).map(|row| row.time_ns);
    let first = times.next()?;
    let (first, last) = times.fold((first, first), |(first, last), ns| (first.min(ns), last.max(ns)));
    Some((first, last.saturating_add(profile.bin_ns)))
}

/// The width of a window in whole bins of the profile: the requested width, or a round number of
/// bins that makes at most 64 windows.
pub(super) fn width_ns(span_ns: (i64, i64), bin_ns: i64, wanted_ns: Option<i64>) -> i64 {
    let (bin_ns, length_ns) = (i128::from(bin_ns), i128::from(span_ns.1) - i128::from(span_ns.0));
    let bins = |ns: i128| ((ns + bin_ns - 1) / bin_ns).max(1);
    let least = bins((length_ns + MAX_WINDOWS - 1) / MAX_WINDOWS);
    let width = if let Some(wanted_ns) = wanted_ns {
        bins(wanted_ns.into()).max(least)
    } else {
        let needed = bins((length_ns + DEFAULT_WINDOWS - 1) / DEFAULT_WINDOWS);
        let powers = std::iter::successors(Some(1_i128), |power| power.checked_mul(10));
        powers.flat_map(|power| [1, 2, 5].map(|factor| factor * power)).find(|round| *round >= needed).unwrap_or(needed)
    };
    i64::try_from(width * bin_ns).unwrap_or(i64::MAX)
}

/// The width of a step in whole bins of the profile: no wider than a window, and at most 512 steps.
pub(super) fn step_ns(span_ns: (i64, i64), bin_ns: i64, width_ns: i64) -> i64 {
    let (bin_ns, length_ns) = (i128::from(bin_ns), i128::from(span_ns.1) - i128::from(span_ns.0));
    let bins = |ns: i128| (ns + bin_ns - 1) / bin_ns;
    let step_ns = bins((length_ns + MAX_WINDOWS - 1) / MAX_WINDOWS).max(1) * bin_ns;
    i64::try_from(step_ns).unwrap_or(i64::MAX).min(width_ns)
}

/// The windows with traffic, in time order.
pub(super) fn windows(profile: &Profile, pairs: &PairIndex, width_ns: i64) -> Vec<Window> {
    let mut sums: BTreeMap<(i64, u32), WindowSums> = BTreeMap::new();
    for row in &profile.timeline {
        let Some(pair) = pairs.of(row.connection) else { continue };
        let has_mpi = profile.mpi_read && profile.connections[row.connection as usize].stack.is_some();
        let number = row.time_ns.div_euclid(width_ns);
        sums.entry((number, pair)).or_default().add(&row.traffic, has_mpi);
    }
    let mut before: BTreeMap<u32, MessageCategory> = BTreeMap::new();
    let mut windows: Vec<Window> = Vec::new();
    for ((number, pair), sums) in sums {
        let parts = sums.parts(before.entry(pair).or_insert(MessageCategory::Other));
        let parts =
            parts.into_iter().filter(|(_, weight)| *weight > 0.0).map(|(service, weight)| (pair, service, weight));
        match windows.last_mut().filter(|window| window.number == number) {
            Some(window) => window.parts.extend(parts),
            None => windows.push(Window { number, parts: parts.collect() }),
        }
    }
    windows.retain(|window| !window.parts.is_empty());
    windows
}

/// Traffic of a pair in a window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowSums {
    traffic: Traffic,
    /// Messages of connections without a detected library.
    others: u64,
}

impl WindowSums {
    fn add(&mut self, traffic: &Traffic, has_mpi: bool) {
        self.traffic += *traffic;
        if !has_mpi {
            self.others += traffic.messages;
        }
    }

    fn parts(&self, before: &mut MessageCategory) -> [(MessageCategory, f64); MESSAGE_CATEGORIES] {
        let Traffic { payload_bytes, p2p_messages, p2p_mpi_bytes, collective_messages, collective_mpi_bytes, .. } =
            self.traffic;
        if p2p_messages + collective_messages > 0 {
            let is_p2p = p2p_messages > 0 && p2p_mpi_bytes >= collective_mpi_bytes;
            *before = if is_p2p { MessageCategory::PointToPoint } else { MessageCategory::Collective };
        }
        let data = payload_bytes as f64 / PACKET_BYTES;
        let weight = |service, messages: u64| (service, messages as f64 + if *before == service { data } else { 0.0 });
        [
            weight(MessageCategory::PointToPoint, p2p_messages),
            weight(MessageCategory::Collective, collective_messages),
            weight(MessageCategory::Other, self.others),
        ]
    }
}
