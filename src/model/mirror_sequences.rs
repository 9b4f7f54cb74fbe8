//! Sequence numbers of mirrors: how many mirrored frames were lost between a switch and the
//! capture.
//!
//! Sequence numbers of ERSPAN and GRE headers and of samples go in, as [`SequenceRuns`] of a batch;
//! [`MirrorSequences`] returns the numbers that no frame had, and the [`SampleSources`]. Invariant: the
//! result depends on the frames of an input in file order, not on the batches that they come in.

use super::sample_sources::{FARTHEST, SampleCounters, SampleSources};
use ibscope_parsers::Endpoint;
use ibscope_parsers::link::{MirrorHeader, MirrorSession, TunnelKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Sessions of an input, the first by kind and source address, so that the order of frames does not
/// matter. A fabric has one per switch, and each has few.
const MAX_SESSIONS: usize = 1 << 10;
/// Runs of consecutive numbers of a session. A number before the last of them is lost for good.
const MAX_SEQUENCE_RUNS: usize = 1 << 10;
/// Pairs of a sender and a receiver whose sources of samples are kept per input: those that sort first.
const MAX_SAMPLED_PAIRS: usize = 1 << 18;
/// Sources of samples that are kept per pair.
const MAX_PAIR_SOURCES: usize = 16;

/// Sender and receiver of packets.
type SampledPair = (Endpoint, Endpoint);

/// The sequence numbers of a batch: by session, runs of consecutive numbers in file order.
#[derive(Clone, Debug, Default)]
pub struct SequenceRuns {
    sessions: BTreeMap<MirrorSession, Vec<(u32, u32)>>,
    /// Samples and numbered datagrams by source.
    sources: BTreeMap<MirrorSession, SourceSamples>,
    /// Sources that sampled InfiniBand packets, by the ends of the packets.
    pairs: BTreeMap<SampledPair, BTreeSet<MirrorSession>>,
    /// Fingerprints of all samples, in file order.
    fingerprints: Vec<u64>,
    /// Positions of the samples that are left out, because the input has them already.
    repeated: Vec<usize>,
}

/// The samples of a source in a batch.
#[derive(Clone, Debug, Default)]
struct SourceSamples {
    /// In file order.
    counters: Vec<SampleCounters>,
    /// Samples of InfiniBand packets.
    infiniband: u64,
}

/// Distances between successive samples, in packets that the sampler could have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerSteps {
    /// Number of distances, without those across samples that the agent dropped.
    pub steps: u64,
    /// Their sum.
    pub packets: u64,
    /// Sum of their squares.
    pub squares: u64,
    /// Distances across dropped samples: from each sample to the next one, dropped or not.
    #[serde(default)]
    pub dropped_steps: u64,
    /// Their sum.
    #[serde(default)]
    pub dropped_packets: u64,
}

impl SamplerSteps {
    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps == 0 && self.dropped_steps == 0
    }

    /// Adds the distances of another source or input.
    pub const fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.packets = self.packets.saturating_add(other.packets);
        self.squares = self.squares.saturating_add(other.squares);
        self.dropped_steps = self.dropped_steps.saturating_add(other.dropped_steps);
        self.dropped_packets = self.dropped_packets.saturating_add(other.dropped_packets);
    }

    /// The mean and the relative variance of the distances without those across dropped samples. `None`
    /// without distances.
    #[must_use]
    pub fn spread(&self) -> Option<(f64, f64)> {
        let mean = self.packets as f64 / self.steps as f64;
        let squares = self.squares as f64 / self.steps as f64;
        (self.packets > 0).then(|| (mean, squares / (mean * mean) - 1.0))
    }

    /// The mean of all distances.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let packets = self.packets.saturating_add(self.dropped_packets);
        let steps = self.steps.saturating_add(self.dropped_steps);
        (packets > 0).then(|| packets as f64 / steps as f64)
    }
}

impl SequenceRuns {
    /// An empty batch that leaves out the samples at these positions, in ascending order.
    #[must_use]
    pub fn without(repeated: Vec<usize>) -> Self {
        Self { repeated, ..Self::default() }
    }

    /// Adds the next sample. False if it is left out.
    #[must_use]
    pub fn add_sample(&mut self, source: MirrorSession, counters: SampleCounters, fingerprint: u64) -> bool {
        let is_repeated = self.repeated.binary_search(&self.fingerprints.len()).is_ok();
        self.fingerprints.push(fingerprint);
        if !is_repeated {
            self.add_counters(source, counters);
        }
        !is_repeated
    }

    /// Adds the counters of a sample or of a datagram.
    pub fn add_counters(&mut self, source: MirrorSession, counters: SampleCounters) {
        self.sources.entry(source).or_default().counters.push(counters);
    }

    /// Notes that the last sample of a source has an InfiniBand packet between these ports. The points of
    /// psample are not known: its groups may sample at any number of interfaces.
    pub fn add_packet(&mut self, source: MirrorSession, pair: (Endpoint, Endpoint)) {
        self.sources.entry(source).or_default().infiniband += 1;
        if source.kind == TunnelKind::Sflow {
            self.pairs.entry(pair).or_default().insert(source);
        }
    }

    /// Fingerprints of all samples, in file order.
    #[must_use]
    pub fn fingerprints(&self) -> &[u64] {
        &self.fingerprints
    }

    /// Adds the next frame.
    pub fn add(&mut self, header: &MirrorHeader) {
        let Some(sequence) = header.sequence else { return };
        let runs = self.sessions.entry(header.session).or_default();
        match runs.last_mut() {
            Some((first, frames)) if first.wrapping_add(*frames) == sequence && *frames < u32::MAX => *frames += 1,
            _ => runs.push((sequence, 1)),
        }
    }
}

/// The sequence numbers of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorSequences {
    sessions: BTreeMap<MirrorSession, SessionRuns>,
    left_out: u64,
    /// Sources of sFlow by the ends of the packets that they sampled.
    pairs: BTreeMap<SampledPair, Vec<MirrorSession>>,
    has_more_pairs: bool,
}

/// Lost frames of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorLoss {
    /// Frames with a sequence number, duplicates included.
    pub frames: u64,
    /// Sequence numbers between those of other frames that no frame has.
    pub lost_frames: u64,
}

impl MirrorSequences {
    /// Adds the numbers of the next batch of the input.
    pub fn add(&mut self, batch: &SequenceRuns) {
        for (session, runs) in &batch.sessions {
            let own = self.sessions.entry(*session).or_default();
            runs.iter().for_each(|(first, frames)| own.add(*first, *frames));
        }
        for (source, samples) in &batch.sources {
            let own = self.sessions.entry(*source).or_default();
            samples.counters.iter().for_each(|sample| own.add_sample(sample));
            own.infiniband += samples.infiniband;
        }
        for (pair, sources) in &batch.pairs {
            let own = self.pairs.entry(*pair).or_default();
            let new: Vec<MirrorSession> = sources.iter().filter(|source| !own.contains(source)).copied().collect();
            own.extend(new.into_iter().take(MAX_PAIR_SOURCES - own.len()));
        }
        while self.pairs.len() > MAX_SAMPLED_PAIRS {
            self.has_more_pairs |= self.pairs.pop_last().is_some();
        }
        while self.sessions.len() > MAX_SESSIONS {
            let Some((_, last)) = self.sessions.pop_last() else { return };
            self.left_out += last.frames;
        }
    }

    /// The sessions that lost frames, by name.
    #[must_use]
    pub fn losses(&self) -> BTreeMap<String, MirrorLoss> {
        let loss = |own: &SessionRuns| MirrorLoss { frames: own.frames, lost_frames: own.all_lost() };
        let all = self.sessions.iter().map(|(session, own)| (session.to_string(), loss(own)));
        all.filter(|(_, loss)| loss.lost_frames > 0).collect()
    }

    /// The distances between successive samples of all sources.
    #[must_use]
    pub fn steps(&self) -> SamplerSteps {
        self.sessions.values().fold(SamplerSteps::default(), |mut all, own| {
            all.merge(&own.steps);
            all
        })
    }

    /// The sources of samples of InfiniBand packets.
    #[must_use]
    pub fn sample_sources(&self) -> SampleSources {
        let mut all = SampleSources { has_more_pairs: self.has_more_pairs, ..SampleSources::default() };
        for (session, own) in self.sessions.iter().filter(|(session, own)| session.is_sampler() && own.infiniband > 0) {
            all.sources += u64::from(session.kind == TunnelKind::Sflow);
            all.add_source(own.frames, own.all_lost());
        }
        all.inputs = u32::from(all.sources > 0);
        // A packet enters a switch at one interface and leaves it at another one.
        let points = |source: &MirrorSession| if source.is_interface() { 1 } else { 2 };
        self.pairs.iter().for_each(|(pair, sources)| all.add_pair(pair, sources.iter().map(points).sum()));
        all
    }

    /// Frames of sessions beyond the bound: whether some of them are lost is not known.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Numbers of one session that were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SessionRuns {
    frames: u64,
    /// Runs in ascending order, not adjacent: first number and the one after the last. Numbers
    /// count on beyond 2^32 where the counter starts from 0 again.
    runs: Vec<(i64, i64)>,
    /// Numbers between runs that are gone from `runs`.
    lost: u64,
    /// Samples that the source dropped before it numbered them.
    dropped: u64,
    /// The sample with the latest number, and the distances so far.
    newest: Option<SampleCounters>,
    steps: SamplerSteps,
    /// Samples of InfiniBand packets.
    infiniband: u64,
}

impl SessionRuns {
    /// Adds a sample.
    fn add_sample(&mut self, sample: &SampleCounters) {
        if self.newest.is_some_and(|newest| sample.is_restart(&newest)) {
            self.restart();
        }
        self.add(sample.sequence, 1);
        if self.newest.is_some_and(|newest| sample.numbers_since(&newest) <= 0) {
            return;
        }
        let Some(before) = self.newest.replace(*sample) else { return };
        let dropped = sample.drops_since(&before);
        self.dropped += u64::from(dropped);
        // The distances of lost samples are not known.
        if let Some(packets) = sample.pool_since(&before).filter(|_| sample.numbers_since(&before) == 1) {
            let packets = u64::from(packets);
            let step = match u64::from(dropped) {
                0 => SamplerSteps {
                    steps: 1,
                    packets,
                    squares: packets.saturating_mul(packets),
                    ..SamplerSteps::default()
                },
                dropped => {
                    SamplerSteps { dropped_steps: dropped + 1, dropped_packets: packets, ..SamplerSteps::default() }
                }
            };
            self.steps.merge(&step);
        }
    }

    /// Starts a new count: nothing between the numbers so far and the next ones is lost.
    fn restart(&mut self) {
        self.lost = self.lost();
        self.runs.clear();
        self.newest = None;
    }

    /// Numbers that no frame has, and samples that the source dropped.
    fn all_lost(&self) -> u64 {
        self.lost() + self.dropped
    }

    /// Adds `frames` frames with consecutive numbers.
    fn add(&mut self, first: u32, frames: u32) {
        self.frames += u64::from(frames);
        let next = self.runs.last().map_or(i64::from(first), |run| run.1);
        // The distance from the number that is due, modulo 2^32.
        let distance = i64::from(first.wrapping_sub(next as u32).cast_signed());
        if distance.abs() > i64::from(FARTHEST) {
            self.restart();
        }
        let start = if self.runs.is_empty() { i64::from(first) } else { next + distance };
        // The first number as a run of its own, and then the others: batches may divide a run
        // anywhere.
        self.insert(start);
        self.extend(start, start + i64::from(frames));
    }

    /// Inserts a number, and joins the two oldest runs if there are too many.
    fn insert(&mut self, number: i64) {
        let at = self.runs.partition_point(|run| run.1 < number);
        match self.runs.get(at).copied() {
            Some((first, end)) if first <= number => return self.extend(first, end.max(number + 1)),
            Some((first, _)) if first == number + 1 => self.runs[at].0 = number,
            _ => self.runs.insert(at, (number, number + 1)),
        }
        if self.runs.len() > MAX_SEQUENCE_RUNS {
            let oldest = self.runs.remove(0);
            self.lost += (self.runs[0].0 - oldest.1).cast_unsigned();
            self.runs[0].0 = oldest.0;
        }
    }

    /// Extends the run with the number `start` up to `end`, and joins the runs that it reaches.
    fn extend(&mut self, start: i64, end: i64) {
        let at = self.runs.partition_point(|run| run.1 <= start);
        let Some(run) = self.runs.get_mut(at) else { return };
        run.1 = run.1.max(end);
        let end = run.1;
        let reached = self.runs[at + 1..].iter().take_while(|run| run.0 <= end).count();
        let last = self.runs[at + reached].1;
        self.runs[at].1 = end.max(last);
        self.runs.drain(at + 1..=at + reached);
    }

    fn lost(&self) -> u64 {
        let gaps = self.runs.windows(2).map(|pair| (pair[1].0 - pair[0].1).cast_unsigned());
        self.lost + gaps.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(switch: u32, sequence: u32) -> MirrorHeader {
        let source = Endpoint::from_ipv4(switch.to_be_bytes());
        MirrorHeader {
            session: MirrorSession { kind: TunnelKind::ErspanII, source, session: 1, engine: 0 },
            sequence: Some(sequence),
            vlan: None,
            is_egress: None,
            is_truncated: false,
        }
    }

    /// The state after frames of one switch, in batches of this length.
    fn sequences(numbers: &[u32], batch: usize) -> MirrorSequences {
        let mut all = MirrorSequences::default();
        for numbers in numbers.chunks(batch.max(1)) {
            let mut runs = SequenceRuns::default();
            numbers.iter().for_each(|number| runs.add(&header(1, *number)));
            all.add(&runs);
        }
        all
    }

    fn lost(numbers: &[u32]) -> u64 {
        sequences(numbers, 3).losses().values().map(|loss| loss.lost_frames).sum()
    }

    #[test]
    fn numbers_between_others_are_lost() {
        assert_eq!(lost(&[]), 0);
        assert_eq!(lost(&[7, 8, 9]), 0);
        assert_eq!(lost(&[7, 9, 12]), 3);
        // Late and duplicate frames.
        assert_eq!(lost(&[7, 9, 8, 9, 9, 11, 10, 7]), 0);
        assert_eq!(lost(&[9, 7]), 1);
        // The counter starts from 0 after 2^32 frames.
        assert_eq!(lost(&[u32::MAX - 1, 1, 2]), 2);
        assert_eq!(lost(&[1, u32::MAX]), 1);
    }

    #[test]
    fn a_counter_that_starts_again_is_no_loss() {
        assert_eq!(lost(&[1_000_000, 1_000_002, 0, 1, 3]), 2);
        let edge = FARTHEST as u32;
        assert_eq!(lost(&[0, edge + 1]), u64::from(edge));
        assert_eq!(lost(&[0, edge + 2]), 0);
    }

    #[test]
    fn the_oldest_gaps_are_final_beyond_the_bound() {
        let gaps = MAX_SEQUENCE_RUNS as u32;
        let numbers: Vec<u32> = (0..gaps).map(|number| number * 2).collect();
        assert_eq!(lost(&numbers), u64::from(gaps - 1));
        let late = |numbers: &[u32]| lost(&[numbers, &[1]].concat());
        assert_eq!(late(&numbers), u64::from(gaps - 2));
        // One run more: the first gap does not wait for its frame.
        let more = [&numbers[..], &[gaps * 2]].concat();
        assert_eq!((lost(&more), late(&more)), (u64::from(gaps), u64::from(gaps)));
    }

    #[test]
    fn sessions_beyond_the_bound_are_counted() {
        let of = |switches: &mut dyn Iterator<Item = u32>| {
            let mut all = MirrorSequences::default();
            for switch in switches {
                let mut runs = SequenceRuns::default();
                [0, 2].iter().for_each(|number| runs.add(&header(switch, *number)));
                all.add(&runs);
            }
            all
        };
        let bound = MAX_SESSIONS as u32;
        assert_eq!((of(&mut (0..bound)).left_out(), of(&mut (0..bound)).losses().len()), (0, MAX_SESSIONS));
        let beyond = of(&mut (0..=bound));
        assert_eq!((beyond.left_out(), beyond.losses().len()), (2, MAX_SESSIONS));
        assert_eq!(of(&mut (0..=bound).rev()), beyond);
    }

    /// The source of interface `index` of one switch.
    fn source(index: u64) -> MirrorSession {
        MirrorSession { kind: TunnelKind::Sflow, session: index, ..header(1, 0).session }
    }

    /// The state after samples of one source, in batches of this length.
    fn sampled(samples: &[SampleCounters], batch: usize) -> MirrorSequences {
        let mut all = MirrorSequences::default();
        for samples in samples.chunks(batch.max(1)) {
            let mut runs = SequenceRuns::default();
            samples.iter().for_each(|sample| runs.add_counters(source(1), *sample));
            all.add(&runs);
        }
        all
    }

    /// Samples of these numbers, a second apart, after `start_ms` of the agent's uptime. Each number is
    /// four packets, and `drops` are those of the first sample.
    fn samples(numbers: impl Iterator<Item = u32>, (time_s, uptime_s): (i64, u32), drops: u32) -> Vec<SampleCounters> {
        let sample = |(place, sequence): (u32, u32)| SampleCounters {
            sequence,
            uptime_ms: Some((uptime_s + place) * 1000),
            pool: Some(sequence.wrapping_mul(4)),
            drops: drops.wrapping_add(place / 10),
            time_ns: (time_s + i64::from(place)) * 1_000_000_000,
        };
        (0..).zip(numbers).map(sample).collect()
    }

    /// Lost samples of one source.
    fn lost_samples(samples: &[SampleCounters]) -> u64 {
        let all = sampled(samples, 1);
        assert_eq!(all, sampled(samples, 7));
        all.losses().values().map(|loss| loss.lost_frames).sum()
    }

    /// 41 samples show four dropped ones, and a missing number is lost.
    #[test]
    fn drops_add_to_the_lost_numbers() {
        assert_eq!(lost_samples(&samples(100..141, (0, 50), 0)), 4);
        assert_eq!(lost_samples(&samples((100..120).chain(121..142), (0, 50), 0)), 5);
        // The counter of drops starts again after 2^32, or at 0.
        assert_eq!(lost_samples(&samples(100..141, (0, 50), u32::MAX - 1)), 4);
        let restarted = [samples(100..121, (0, 50), 1000), samples(121..142, (21, 71), 0)].concat();
        assert_eq!(lost_samples(&restarted), 2 + 2);
        // Samples that are late.
        let mut late = samples(100..141, (0, 50), 0);
        late.swap(9, 10);
        late.swap(20, 22);
        assert_eq!(lost_samples(&late), 4);
    }

    #[test]
    fn no_sample_is_lost_across_a_restart() {
        let before = samples(300..400, (0, 500), 0);
        for (first, uptime_s) in [(1, 0), (90, 3), (390, 3), (450, 3), (3_000_000, 3)] {
            let after = samples(first..first + 50, (103, uptime_s), 7);
            assert_eq!(lost_samples(&[&before[..], &after].concat()), 9 + 4, "{first}");
        }
        // Without a restart, these numbers are missing.
        let gap = [&before[..], &samples(450..500, (100, 600), 9)].concat();
        assert_eq!(lost_samples(&gap), 9 + 4 + 50);
    }

    /// The mean distance counts dropped samples, so that it is the rate: here one in four. The agent drops
    /// a sample before every second number.
    #[test]
    fn the_mean_distance_counts_dropped_samples() {
        let sample = |number: u32| SampleCounters {
            sequence: number,
            pool: Some((number + number / 2) * 4),
            drops: number / 2,
            ..SampleCounters::default()
        };
        let steps = sampled(&(0..101).map(sample).collect::<Vec<_>>(), 3).steps();
        assert_eq!((steps.steps, steps.packets, steps.squares), (50, 200, 800));
        assert_eq!((steps.dropped_steps, steps.dropped_packets), (100, 400));
        assert_eq!((steps.spread(), steps.mean()), (Some((4.0, 0.0)), Some(4.0)));
    }

    /// Two interfaces of a switch, and the switch as a whole, which may take a packet twice.
    #[test]
    fn pairs_have_the_sources_that_sample_their_packets() {
        let [a, b, c] = [1, 2, 3].map(|last| Endpoint::from_ipv4([10, 0, 0, last]));
        let mut runs = SequenceRuns::default();
        for (interface, pair) in [(1, (a, b)), (2, (a, b)), (1, (a, b)), (2, (b, a)), (0, (a, c))] {
            runs.add_packet(source(interface), pair);
        }
        let mut all = MirrorSequences::default();
        all.add(&runs);
        all.add(&runs);
        let found = all.sample_sources();
        assert_eq!((found.inputs, found.sources), (1, 3));
        assert_eq!([(a, b), (b, a), (a, c)].map(|(src, dst)| found.points(src, dst)), [Some(2), Some(1), Some(2)]);
    }

    #[test]
    fn sources_of_a_pair_are_counted_up_to_the_bound() {
        let pair = (Endpoint::from_ipv4([10, 0, 0, 1]), Endpoint::from_ipv4([10, 0, 0, 2]));
        for sources in [MAX_PAIR_SOURCES, MAX_PAIR_SOURCES + 1] {
            let mut all = MirrorSequences::default();
            let mut runs = SequenceRuns::default();
            (1..=sources).for_each(|index| runs.add_packet(source(index as u64), pair));
            all.add(&runs);
            assert_eq!(all.sample_sources().points(pair.0, pair.1), Some(MAX_PAIR_SOURCES as u32));
        }
    }

    #[test]
    fn points_of_pairs_beyond_the_bound_are_unknown() {
        let pair = |number: usize| {
            let [_, high, middle, low] = (number as u32).to_be_bytes();
            (Endpoint::from_ipv4([10, high, middle, low]), Endpoint::from_ipv4([11, 0, 0, 1]))
        };
        let mut all = MirrorSequences::default();
        let mut runs = SequenceRuns::default();
        (0..MAX_SAMPLED_PAIRS).for_each(|number| runs.add_packet(source(1), pair(number)));
        all.add(&runs);
        let points = |all: &MirrorSequences| {
            let found = all.sample_sources();
            [0, MAX_SAMPLED_PAIRS].map(|number| found.points(pair(number).0, pair(number).1))
        };
        assert_eq!(points(&all), [Some(1), Some(1)]);
        let mut runs = SequenceRuns::default();
        runs.add_packet(source(1), pair(MAX_SAMPLED_PAIRS));
        all.add(&runs);
        assert_eq!(points(&all), [None, None]);
        assert_eq!(all.pairs.len(), MAX_SAMPLED_PAIRS);
    }

    /// The samples at these positions are left out, and only they.
    #[test]
    fn repeated_samples_are_left_out() {
        let mut runs = SequenceRuns::without(vec![1, 2]);
        let all = samples([7, 7, 7, 8].into_iter(), (0, 0), 0);
        let added: Vec<bool> = all.iter().map(|sample| runs.add_sample(source(1), *sample, 5)).collect();
        assert_eq!((added, runs.fingerprints()), (vec![true, false, false, true], &[5; 4][..]));
        assert_eq!(runs.sources[&source(1)].counters, [all[0], all[3]]);
    }

    proptest! {
        #[test]
        fn batches_do_not_matter_and_losses_are_exact(
            start: u32, steps in proptest::collection::vec(-3i32..6, 1..200), batch in 1usize..20,
        ) {
            let mut number = start;
            let numbers: Vec<u32> = steps.iter().map(|step| {
                number = number.wrapping_add_signed(*step);
                number
            }).collect();
            let all = sequences(&numbers, batch);
            prop_assert_eq!(&all, &sequences(&numbers, 1));
            let distances: BTreeSet<i32> =
                numbers.iter().map(|number| number.wrapping_sub(start).cast_signed()).collect();
            let (first, last) = (*distances.first().unwrap(), *distances.last().unwrap());
            let missing = (last - first) as u64 + 1 - distances.len() as u64;
            prop_assert_eq!(all.losses().values().map(|loss| loss.lost_frames).sum::<u64>(), missing);
        }

        #[test]
        fn batches_do_not_matter_with_jumps_and_many_gaps(
            steps in proptest::collection::vec(prop_oneof![Just(1u32), Just(2), Just(u32::MAX - 40), Just(90_000)], 1..4000),
            batch in 1usize..50,
        ) {
            let mut number = 0u32;
            let numbers: Vec<u32> = steps.iter().map(|step| {
                number = number.wrapping_add(*step);
                number
            }).collect();
            prop_assert_eq!(sequences(&numbers, batch), sequences(&numbers, 1));
        }
    }
}
