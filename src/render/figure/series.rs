//! Time series of a timeline figure: sums per bin and sender become vectors with one element per
//! bin, without gaps.
//!
//! The sum over all bins stays the same where bins are merged or senders are combined.

use super::axes::{partial_edges, seconds};
use crate::analysis::Label;
use crate::analysis::health::{HealthBin, HealthSeries, PauseTimes};
use crate::analysis::storage_timeline::{StorageBin, StorageTimeline};
use crate::analysis::timeline::{ClassTimeline, Timeline};
use crate::model::{ConnectionClass, Histogram};
use crate::render::RenderError;
use crate::render::health::CONGESTION_NAMES;
use crate::render::units::{count_of, duration};
use std::collections::BTreeMap;

/// Maximum number of bins of traffic; more are merged, since bins narrower than two pixels would
/// flicker.
const MAX_BINS: i128 = 750;
/// Maximum number of bins of rare events: a single bin between empty bins must be visible.
const MAX_BROAD_BINS: i128 = 150;
/// Maximum number of senders with their own color.
const MAX_SENDERS: usize = 7;

/// Values over time. All vectors have one element per bin, 0 for an empty bin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// Width of a bin in seconds.
    pub(super) bin_s: f64,
    /// Start of the first bin in seconds from the first packet.
    pub(super) start_s: f64,
    /// Seconds from the start of the first bin to the end of the last. Where bins are merged, the
    /// last may be narrower than the others.
    pub(super) span_s: f64,
    /// Start and end of the bins in which the captures begin or end, in seconds from the first packet.
    pub(super) edges_s: Vec<[f64; 2]>,
    /// Values by sender, the busiest first, the sum of the less busy senders last.
    pub(super) by_sender: Vec<(String, Vec<f64>)>,
    /// The second value, over all senders: messages per second, or the share of retransmissions.
    pub(super) total: Vec<f64>,
}

/// The two values of a sender or class in a bin.
#[derive(Clone, Copy)]
struct StackedSample<K> {
    time_ns: i64,
    of: K,
    /// Value that is shown by sender.
    own: u64,
    /// Value that is summed over all senders.
    common: u64,
}

impl Series {
    /// Wire bytes per second by sender, and messages per second of all senders.
    pub(super) fn traffic(timeline: &Timeline) -> Result<Self, RenderError> {
        let items = timeline.bins.iter().map(|bin| {
            let (own, common) = (bin.cell.wire_bytes, bin.cell.messages);
            StackedSample { time_ns: bin.time_ns, of: &bin.src, own, common }
        });
        let (times_ns, bins) =
            ((timeline.origin_ns, timeline.span_ns(), timeline.captured_until_ns), (timeline.bin_ns, MAX_BINS));
        Ok(Self::sums(times_ns, bins, items, Label::name)?.per_second())
    }

    /// Wire bytes per second by class, and messages per second of all classes.
    pub(super) fn classes(timeline: &ClassTimeline) -> Result<Self, RenderError> {
        let items = timeline.bins.iter().map(|bin| StackedSample {
            time_ns: bin.time_ns,
            of: bin.class,
            own: bin.wire_bytes,
            common: bin.messages,
        });
        let (times_ns, bins) =
            ((timeline.origin_ns, timeline.span_ns(), timeline.captured_until_ns), (timeline.bin_ns, MAX_BINS));
        let series = Self::sums(times_ns, bins, items, |class: ConnectionClass| class.name().to_owned())?;
        Ok(series.per_second())
    }

    /// Payload per second of storage in each direction and of the jobs of its clients, and commands
    /// per second.
    pub(super) fn storage(timeline: &StorageTimeline) -> Result<Self, RenderError> {
        const NAMES: [&str; 3] = ["written", "read", "MPI, NCCL"];
        let of_bin = |bin: &StorageBin| {
            let (time_ns, commands) = (bin.time_ns, bin.times.as_ref().map_or(0, Histogram::samples));
            [
                StackedSample { time_ns, of: 0, own: bin.to_server_bytes, common: commands },
                StackedSample { time_ns, of: 1, own: bin.to_client_bytes, common: 0 },
            ]
        };
        let jobs = timeline.job_bytes.iter().map(|(time_ns, own)| StackedSample {
            time_ns: *time_ns,
            of: 2,
            own: *own,
            common: 0,
        });
        let items: Vec<_> = timeline.bins.iter().flat_map(of_bin).chain(jobs).collect();
        let (times_ns, bins) =
            ((timeline.origin_ns, timeline.span_ns(), timeline.captured_until_ns), (timeline.bin_ns, MAX_BINS));
        Ok(Self::sums(times_ns, bins, items.into_iter(), |of: usize| NAMES[of].to_owned())?.per_second())
    }

    /// Divides all sums by the width of their bin.
    fn per_second(mut self) -> Self {
        let (bin_s, span_s) = (self.bin_s, self.span_s);
        for values in self.by_sender.iter_mut().map(|(_, values)| values).chain([&mut self.total]) {
            for (index, value) in values.iter_mut().enumerate() {
                *value /= bin_s.min(span_s - index as f64 * bin_s);
            }
        }
        self
    }

    /// Retransmitted packets by sender, and their share of all packets in percent.
    pub(super) fn retransmissions(health: &HealthSeries) -> Result<Self, RenderError> {
        let items = health.bins.iter().map(|bin| StackedSample {
            time_ns: bin.time_ns,
            of: &bin.src,
            own: bin.sums.retransmitted_packets,
            common: bin.sums.packets,
        });
        let (times_ns, bins) =
            ((health.origin_ns, health.span_ns(), health.captured_until_ns), (health.bin_ns, MAX_BROAD_BINS));
        let mut series = Self::sums(times_ns, bins, items, Label::name)?;
        let stacked = series.stacked();
        for (index, packets) in series.total.iter_mut().enumerate() {
            let retransmitted = stacked.last().and_then(|all| all.get(index)).copied().unwrap_or_default();
            *packets = if *packets > 0.0 { retransmitted * 100.0 / *packets } else { 0.0 };
        }
        Ok(series)
    }

    /// Packets that show congestion, loss or a slow receiver, by kind, in the bins of the
    /// retransmissions.
    pub(super) fn congestion(health: &HealthSeries) -> Result<Self, RenderError> {
        let of_bin = |bin: &HealthBin| {
            let counts = bin.sums.congestion.values();
            let time_ns = bin.time_ns;
            std::array::from_fn::<_, { CONGESTION_NAMES.len() }, _>(|of| StackedSample {
                time_ns,
                of,
                own: counts[of],
                common: 0,
            })
        };
        let items: Vec<_> = health.bins.iter().flat_map(of_bin).collect();
        let (times_ns, bins) =
            ((health.origin_ns, health.span_ns(), health.captured_until_ns), (health.bin_ns, MAX_BROAD_BINS));
        Self::sums(times_ns, bins, items.into_iter(), |of: usize| CONGESTION_NAMES[of].to_owned())
    }

    /// Pause and PFC frames, in bins of their own, which the name states.
    pub(super) fn pauses(pauses: &PauseTimes) -> Result<Self, RenderError> {
        let items = pauses.bins.iter().map(|(time_ns, sums)| StackedSample {
            time_ns: *time_ns,
            of: (),
            own: sums.frames,
            common: 0,
        });
        let times_ns = (pauses.origin_ns, pauses.span_ns(), None);
        let mut series = Self::sums(times_ns, (pauses.bin_ns, MAX_BROAD_BINS), items, |()| String::new())?;
        let width = duration((series.bin_s * 1e9).round() as i64);
        series.by_sender.iter_mut().for_each(|(name, _)| *name = format!("pause and PFC frames, bins of {width}"));
        Ok(series)
    }

    fn sums<K: Copy + Ord>(
        (origin_ns, span_ns, captured_ns): (i64, Option<(i64, i64)>, Option<i64>),
        (bin_ns, most_bins): (i64, i128),
        items: impl Iterator<Item = StackedSample<K>> + Clone,
        name: impl Fn(K) -> String,
    ) -> Result<Self, RenderError> {
        let (Some((start, end)), 1..) = (span_ns, bin_ns) else { return Err(RenderError::Empty) };
        let start_s = seconds(origin_ns, start);
        let (start, bin_ns) = (i128::from(start), i128::from(bin_ns));
        let span_ns = i128::from(end) - start;
        // All terms are positive, so this division rounds up.
        let width_ns = bin_ns * ((span_ns / bin_ns + most_bins - 1) / most_bins).max(1);
        let bins = usize::try_from((span_ns + width_ns - 1) / width_ns).unwrap_or_default();

        let mut sums: BTreeMap<K, u64> = BTreeMap::new();
        for item in items.clone() {
            *sums.entry(item.of).or_default() += item.own;
        }
        let mut senders: Vec<(K, u64)> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
        senders.sort_by_key(|&(_, sum)| std::cmp::Reverse(sum));
        let places: BTreeMap<K, usize> =
            senders.iter().enumerate().map(|(place, &(label, _))| (label, place.min(MAX_SENDERS))).collect();
        let mut by_sender: Vec<(String, Vec<f64>)> =
            senders.iter().take(MAX_SENDERS).map(|(label, _)| (name(*label), vec![0.0; bins])).collect();
        let others = senders.len().saturating_sub(MAX_SENDERS);
        if others > 0 {
            by_sender.push((count_of(others as u64, "other"), vec![0.0; bins]));
        }

        let mut of_all = vec![0.0; bins];
        for item in items {
            let index = usize::try_from((i128::from(item.time_ns) - start) / width_ns).unwrap_or_default();
            if let Some(sum) = of_all.get_mut(index) {
                *sum += item.common as f64;
            }
            let place = places.get(&item.of).and_then(|&place| by_sender.get_mut(place));
            if let Some(sum) = place.and_then(|(_, values)| values.get_mut(index)) {
                *sum += item.own as f64;
            }
        }
        let (bin_s, span_s) = (width_ns as f64 / 1e9, span_ns as f64 / 1e9);
        let captured_s = captured_ns.map_or(f64::INFINITY, |ns| seconds(origin_ns, ns));
        let edges_s = partial_edges((start_s, bin_s, start_s + span_s), captured_s);
        Ok(Self { start_s, bin_s, span_s, edges_s, by_sender, total: of_all })
    }

    /// True if more than half of all values are those of the combined others.
    pub(super) fn is_mostly_others(&self) -> bool {
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        let others = self.by_sender.get(MAX_SENDERS).map_or(0.0, |(_, values)| sum(values));
        others * 2.0 > self.by_sender.iter().map(|(_, values)| sum(values)).sum()
    }

    /// The largest sum of the values by sender, and the largest of `total`.
    pub(super) fn most(&self) -> (f64, f64) {
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        (self.stacked().last().map_or(0.0, |values| most(values)), most(&self.total))
    }

    /// Running sums over the senders: each element adds one more sender, the last has all.
    pub(super) fn stacked(&self) -> Vec<Vec<f64>> {
        let mut sum = vec![0.0; self.total.len()];
        let mut add = |values: &Vec<f64>| {
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum += value;
            }
            sum.clone()
        };
        self.by_sender.iter().map(|(_, values)| add(values)).collect()
    }
}
