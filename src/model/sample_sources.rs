//! Evidence from the counters of samples (sFlow, psample): samples that arrive again, losses by
//! source, and how many sources sample the packets between two ports.
//!
//! In: the counters of each sample, in file order. Out: the positions of repeated samples
//! ([`RecentSamples`]), and the [`SampleSources`] of an input, which can be added. Invariant: memory
//! is bounded. Within the bounds on pairs and sources, the number of points of a pair is never too low.

use super::SeededHasher;
use ibscope_parsers::Endpoint;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Samples of an input that are compared with the next ones. Networks and mirrors that send a
/// datagram twice do so within seconds.
pub(super) const MAX_RECENT_SAMPLES: usize = 1 << 18;
/// A number that differs more from the newest one shows no loss: its source has started to count again, or
/// two engines of a switch count under one name.
pub(super) const FARTHEST: i32 = 1 << 16;
/// Numbers that a late sample is behind at most, if the agent does not count its uptime.
const MOST_LATE: i32 = 1 << 8;
/// Milliseconds that a late datagram travels longer than the others at most.
const MOST_LATE_MS: i32 = 1000;
/// Standard deviations of the interval around the share of samples that a source lost.
const LOSS_DEVIATIONS: f64 = 4.0;
const MILLION: f64 = 1e6;

/// The counters of a sample or of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounters {
    /// Number at its source, modulo 2^32.
    pub sequence: u32,
    /// Milliseconds since the agent started, modulo 2^32.
    pub uptime_ms: Option<u32>,
    /// Packets that the source could have sampled so far, modulo 2^32.
    pub pool: Option<u32>,
    /// Samples that the source dropped so far, modulo 2^32.
    pub drops: u32,
    /// Time of its record, nanoseconds since the epoch.
    pub time_ns: i64,
}

impl SampleCounters {
    /// Numbers from another sample of the source to this one; negative if this one is older.
    pub(super) const fn numbers_since(&self, other: &Self) -> i32 {
        self.sequence.wrapping_sub(other.sequence).cast_signed()
    }

    /// True if the source started to count again between `newest` and this sample.
    pub(super) const fn is_restart(&self, newest: &Self) -> bool {
        let numbers = self.numbers_since(newest);
        if numbers > FARTHEST || numbers < -FARTHEST {
            return true;
        }
        let (Some(uptime_ms), Some(newest_ms)) = (self.uptime_ms, newest.uptime_ms) else { return false };
        match uptime_ms.wrapping_sub(newest_ms).cast_signed() {
            // A late sample was sent earlier.
            1.. => numbers < 0,
            0 => numbers < -MOST_LATE,
            // The agent restarted, or the sample is late: then its agent started at the same time.
            _ => self.start_ms(uptime_ms).wrapping_sub(newest.start_ms(newest_ms)).cast_signed() > MOST_LATE_MS,
        }
    }

    /// The time when the agent started, in milliseconds modulo 2^32.
    const fn start_ms(&self, uptime_ms: u32) -> u32 {
        ((self.time_ns / 1_000_000) as u32).wrapping_sub(uptime_ms)
    }

    /// Packets that the source could have sampled since the sample `before`.
    pub(super) fn pool_since(&self, before: &Self) -> Option<u32> {
        let packets = self.pool?.wrapping_sub(before.pool?);
        // A counter that starts again seems to go back.
        (1..=u32::MAX / 2).contains(&packets).then_some(packets)
    }

    /// Samples that the source dropped since the sample `before`. A source drops no more samples than
    /// packets pass it; a counter that starts again seems to jump further.
    pub(super) fn drops_since(&self, before: &Self) -> u32 {
        let dropped = self.drops.wrapping_sub(before.drops);
        let most = self.pool_since(before).unwrap_or(FARTHEST.cast_unsigned());
        if dropped <= most { dropped } else { 0 }
    }
}

/// The last samples of an input, by their fingerprints.
#[derive(Debug, Default)]
pub struct RecentSamples {
    known: HashSet<u64, SeededHasher>,
    order: VecDeque<u64>,
}

impl RecentSamples {
    /// Adds the samples of the next batch, in file order. Returns the positions of those that the input
    /// has already.
    pub fn repeated(&mut self, fingerprints: &[u64]) -> Vec<usize> {
        let mut repeated = Vec::new();
        for (position, fingerprint) in fingerprints.iter().enumerate() {
            if !self.known.insert(*fingerprint) {
                repeated.push(position);
                continue;
            }
            self.order.push_back(*fingerprint);
            if self.order.len() > MAX_RECENT_SAMPLES
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        repeated
    }
}

/// The sources of samples of InfiniBand packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampleSources {
    /// Inputs with sFlow samples.
    pub inputs: u32,
    /// sFlow sources in them.
    pub sources: u64,
    /// Samples of all sources.
    pub samples: u64,
    /// Samples that were lost on the way, or dropped by the agents.
    pub lost_samples: u64,
    /// How the lost shares of the sources differ, in parts per million: one source lost at most the first
    /// share, and one lost at least the second.
    pub lost_ppm: Option<(u32, u32)>,
    /// By sender and receiver: the most points where sFlow sources may sample a packet between them. Pairs
    /// with one point are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pairs: BTreeMap<String, u32>,
    /// There are more pairs than the bound.
    pub has_more_pairs: bool,
    /// The most points in `pairs`; a merge finds them again.
    #[serde(skip)]
    pub(super) most: u32,
}

impl SampleSources {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds a source: its samples, and the lost ones.
    pub(super) fn add_source(&mut self, samples: u64, lost: u64) {
        self.samples += samples;
        self.lost_samples += lost;
        let all = (samples + lost) as f64;
        if all > 0.0 {
            let share = lost as f64 / all;
            // The score interval of a binomial share.
            let scale = 1.0 + LOSS_DEVIATIONS * LOSS_DEVIATIONS / all;
            let center = (share + LOSS_DEVIATIONS * LOSS_DEVIATIONS / all / 2.0) / scale;
            let half =
                LOSS_DEVIATIONS * (share * (1.0 - share) / all + (LOSS_DEVIATIONS / all / 2.0).powi(2)).sqrt() / scale;
            let ppm = |share: f64| (share.clamp(0.0, 1.0) * MILLION) as u32;
            self.add_lost_ppm((ppm(center + half).saturating_add(1), ppm(center - half)));
        }
    }

    fn add_lost_ppm(&mut self, other: (u32, u32)) {
        let own = self.lost_ppm.get_or_insert(other);
        *own = (own.0.min(other.0), own.1.max(other.1));
    }

    /// Adds a pair with at most this many points.
    pub(super) fn add_pair(&mut self, (src, dst): &(Endpoint, Endpoint), points: u32) {
        if points > 1 {
            self.pairs.insert(pair_name(*src, *dst), points);
            self.most = self.most.max(points);
        }
    }

    /// Adds the sources of another input.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.inputs = self.inputs.saturating_add(other.inputs);
        self.sources += other.sources;
        self.samples += other.samples;
        self.lost_samples += other.lost_samples;
        other.lost_ppm.into_iter().for_each(|ppm| self.add_lost_ppm(ppm));
        for (pair, points) in &other.pairs {
            let own = self.pairs.entry(pair.clone()).or_default();
            *own = own.saturating_add(*points);
        }
        self.most = self.pairs.values().copied().max().unwrap_or(0);
        self.has_more_pairs |= other.has_more_pairs;
    }

    /// The most points where a packet from `src` to `dst` may be sampled, if its pair was observed at all
    /// of them. `None` if this is not known. A pair may have a point in each input that does not list it.
    #[must_use]
    pub fn points(&self, src: Endpoint, dst: Endpoint) -> Option<u32> {
        let listed = self.pairs.get(&pair_name(src, dst)).copied();
        let others = self.inputs.saturating_sub(1);
        listed.or((!self.has_more_pairs && self.inputs > 0).then_some(1)).map(|points| points.saturating_add(others))
    }

    /// The most points of any pair; at least 1.
    #[must_use]
    pub fn most_points(&self) -> u32 {
        self.most.max(1).saturating_add(self.inputs.saturating_sub(1))
    }

    /// Packets for each captured sample, if the samplers take one of `one_in` packets: lost samples
    /// represent packets too.
    #[must_use]
    pub fn with_lost_samples(&self, one_in: f64) -> f64 {
        one_in * (1.0 + self.lost_samples as f64 / self.samples.max(1) as f64)
    }

    /// The largest ratio between the rates of the captured samples of a source and of all sources; 1 if
    /// chance explains how the lost shares of the sources differ.
    #[must_use]
    pub fn rate_ratio(&self) -> f64 {
        let kept = |lost: f64| (1.0 - lost).max(1.0 / MILLION);
        let all = kept(self.lost_samples as f64 / (self.samples + self.lost_samples).max(1) as f64);
        let (least, most) = self.lost_ppm.unwrap_or((u32::MAX, 0));
        let [least, most] = [least, most].map(|ppm| kept(f64::from(ppm) / MILLION));
        (all / most).max(least / all).max(1.0)
    }
}

fn pair_name(src: Endpoint, dst: Endpoint) -> String {
    format!("{src} > {dst}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(sequence: u32, uptime_ms: Option<u32>, time_ms: i64) -> SampleCounters {
        SampleCounters { sequence, uptime_ms, time_ns: time_ms * 1_000_000, ..SampleCounters::default() }
    }

    #[test]
    fn a_restart_differs_from_a_late_sample() {
        let newest = counters(5000, Some(60_000), 1_000_000);
        for (sequence, uptime_ms, time_ms, is_restart) in [
            // The next one, also after a day.
            (5001, Some(60_010), 1_000_010, false),
            (5001, Some(86_460_000), 87_400_000, false),
            // Late by 5 numbers and 300 ms.
            (4995, Some(59_700), 1_000_020, false),
            // A record that stands a minute too late in the file.
            (100, Some(10_000), 950_000, false),
            // The agent restarted: with smaller, equal and larger numbers.
            (1, Some(100), 1_005_000, true),
            (5000, Some(100), 1_005_000, true),
            (5100, Some(900), 1_005_000, true),
            // The source counts again, and the agent did not restart.
            (1, Some(65_000), 1_005_000, true),
            // An agent that does not count its uptime.
            (4900, Some(60_000), 1_000_500, false),
            (1, Some(60_000), 1_000_500, true),
            // Without an uptime, only a long jump is a restart.
            (1, None, 1_005_000, false),
            (5000 + 65_537, None, 1_005_000, true),
        ] {
            let other = counters(sequence, uptime_ms, time_ms);
            assert_eq!(other.is_restart(&newest), is_restart, "{other:?}");
        }
        // The uptime starts again after 2^32 ms.
        assert!(!counters(6, Some(5), 1_000_010).is_restart(&counters(5, Some(u32::MAX - 4), 1_000_000)));
    }

    #[test]
    fn drops_are_differences_modulo_two_to_the_32() {
        let of = |drops, pool| SampleCounters { pool, drops, ..SampleCounters::default() };
        let since = |before: SampleCounters, own: SampleCounters| own.drops_since(&before);
        assert_eq!(since(of(1000, Some(50)), of(1007, Some(100))), 7);
        assert_eq!(since(of(u32::MAX - 2, Some(u32::MAX)), of(4, Some(99))), 7);
        // A counter that starts again, from a small and from a large value.
        assert_eq!(since(of(1000, Some(50)), of(0, Some(100))), 0);
        assert_eq!(since(of(3_000_000_000, Some(50)), of(0, Some(100))), 0);
        // Without a pool.
        assert_eq!(since(of(3, None), of(9, None)), 6);
        assert_eq!(since(of(9, None), of(3, None)), 0);
    }

    #[test]
    fn samples_are_known_up_to_the_bound() {
        let mut recent = RecentSamples::default();
        assert_eq!(recent.repeated(&[7, 8, 7, 9, 8]), [2, 4]);
        assert_eq!(recent.repeated(&[9]), [0]);
        let others: Vec<u64> = (100..100 + MAX_RECENT_SAMPLES as u64 - 3).collect();
        assert!(recent.repeated(&others).is_empty());
        // The bound is reached: the first one is known. One more, and it is not.
        assert_eq!(recent.repeated(&[7]), [0]);
        assert!(recent.repeated(&[1]).is_empty());
        assert_eq!(recent.repeated(&[8, 7]), [0]);
    }

    #[test]
    fn points_of_a_pair_in_several_inputs_add_up() {
        let [a, b, c] = [1, 2, 3].map(|last| Endpoint::from_ipv4([10, 0, 0, last]));
        assert_eq!((SampleSources::default().points(a, b), SampleSources::default().most_points()), (None, 1));
        let mut one = SampleSources { inputs: 1, sources: 3, ..SampleSources::default() };
        one.add_pair(&(a, b), 3);
        one.add_pair(&(a, c), 1);
        assert_eq!((one.points(a, b), one.points(b, a), one.points(a, c)), (Some(3), Some(1), Some(1)));
        let mut other = SampleSources { inputs: 1, sources: 1, ..SampleSources::default() };
        other.add_pair(&(b, a), 2);
        other.merge(&one);
        assert_eq!((other.points(a, b), other.points(b, a), other.points(c, a)), (Some(4), Some(3), Some(2)));
        assert_eq!((other.most_points(), other.sources), (4, 4));
        other.has_more_pairs = true;
        assert_eq!((other.points(a, b), other.points(c, a)), (Some(4), None));
    }

    #[test]
    fn sources_with_other_losses_have_other_rates() {
        let of = |sources: &[(u64, u64)]| {
            let mut all = SampleSources::default();
            sources.iter().for_each(|(samples, lost)| all.add_source(*samples, *lost));
            all
        };
        assert!((of(&[(900, 100), (450, 50)]).with_lost_samples(9.0) - 10.0).abs() < 1e-9);
        // One of 20 samples is hardly evidence against none of 1000.
        for alike in [&[][..], &[(100, 0)], &[(900, 100), (900, 100)], &[(1000, 0), (19, 1)]] {
            assert!((1.0..1.01).contains(&of(alike).rate_ratio()), "{alike:?}");
        }
        // One source lost half of its samples, all together a quarter: its rate is 1.5 times that of all.
        let apart = of(&[(100_000, 0), (50_000, 50_000)]).rate_ratio();
        assert!((1.45..1.51).contains(&apart), "{apart}");
    }
}
