//! Sequence numbers of mirrors: how many mirrored frames were lost between a switch and the
//! capture.
//!
//! Sequence numbers of ERSPAN and GRE headers go in, as [`SequenceRuns`] of a batch;
//! [`MirrorSequences`] returns the numbers that no frame had. Invariant: the result depends on the
//! frames of an input in file order, not on the batches that they come in.

use ibscope_parsers::link::{MirrorHeader, MirrorSession};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sessions of an input, the first by kind and source address, so that the order of frames does not
/// matter. A fabric has one per switch, and each has few.
const MAX_SESSIONS: usize = 1 << 10;
/// Runs of consecutive numbers of a session. A number before the last of them is lost for good.
const MAX_SEQUENCE_RUNS: usize = 1 << 10;
/// A number that differs more from the newest one does not show a loss: the switch has started to
/// count again, or two engines of a switch count under one name.
const FARTHEST: i64 = 1 << 16;

/// The sequence numbers of a batch: by session, runs of consecutive numbers in file order.
#[derive(Clone, Debug, Default)]
pub struct SequenceRuns {
    sessions: BTreeMap<MirrorSession, Vec<(u32, u32)>>,
    /// Least and most samples that the source had dropped.
    drops: BTreeMap<MirrorSession, (u32, u32)>,
    /// Number and pool of each sample, in file order.
    pools: BTreeMap<MirrorSession, Vec<(u32, u32)>>,
}

/// Distances between successive samples, in packets that the sampler could have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerSteps {
    /// Number of distances.
    pub steps: u64,
    /// Their sum.
    pub packets: u64,
    /// Sum of their squares.
    pub squares: u64,
}

impl SamplerSteps {
    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps == 0
    }

    /// Adds the distances of another source or input.
    pub const fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.packets = self.packets.saturating_add(other.packets);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// The mean distance and the relative variance of the distances. `None` without distances.
    #[must_use]
    pub fn spread(&self) -> Option<(f64, f64)> {
        let mean = self.packets as f64 / self.steps as f64;
        let squares = self.squares as f64 / self.steps as f64;
        (self.packets > 0).then(|| (mean, squares / (mean * mean) - 1.0))
    }
}

impl SequenceRuns {
    /// Adds the drops that a sample states: how many the source has dropped so far.
    pub fn add_drops(&mut self, session: MirrorSession, drops: u32) {
        let range = self.drops.entry(session).or_insert((drops, drops));
        *range = (range.0.min(drops), range.1.max(drops));
    }

    /// Adds the number of a sample, and the packets that its source could have sampled so far.
    pub fn add_pool(&mut self, session: MirrorSession, sequence: u32, pool: u32) {
        self.pools.entry(session).or_default().push((sequence, pool));
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
            if let Some((least, most)) = batch.drops.get(session) {
                let range = own.drops.get_or_insert((*least, *most));
                *range = (range.0.min(*least), range.1.max(*most));
            }
            batch.pools.get(session).into_iter().flatten().for_each(|(number, pool)| own.add_pool(*number, *pool));
        }
        while self.sessions.len() > MAX_SESSIONS {
            let Some((_, last)) = self.sessions.pop_last() else { return };
            self.left_out += last.frames;
        }
    }

    /// The sessions that lost frames, by name.
    #[must_use]
    pub fn losses(&self) -> BTreeMap<String, MirrorLoss> {
        let loss = |own: &SessionRuns| MirrorLoss { frames: own.frames, lost_frames: own.lost() + own.dropped() };
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
    /// Least and most samples that the source had dropped before it numbered them.
    drops: Option<(u32, u32)>,
    /// Number and pool of the last sample, and the distances so far.
    pool: Option<(u32, u32)>,
    steps: SamplerSteps,
}

impl SessionRuns {
    /// Adds the distance from the sample before, if none is missing in between.
    fn add_pool(&mut self, number: u32, pool: u32) {
        let before = self.pool.replace((number, pool));
        // A counter that starts again seems to go back.
        let step = before
            .filter(|(last, _)| last.wrapping_add(1) == number)
            .map(|(_, last)| pool.wrapping_sub(last))
            .filter(|step| (1..=u32::MAX / 2).contains(step));
        if let Some(step) = step.map(u64::from) {
            self.steps.merge(&SamplerSteps { steps: 1, packets: step, squares: step.saturating_mul(step) });
        }
    }

    /// Samples that the source dropped while it was captured.
    fn dropped(&self) -> u64 {
        self.drops.map_or(0, |(least, most)| u64::from(most - least))
    }

    /// Adds `frames` frames with consecutive numbers.
    fn add(&mut self, first: u32, frames: u32) {
        self.frames += u64::from(frames);
        let next = self.runs.last().map_or(i64::from(first), |run| run.1);
        // The distance from the number that is due, modulo 2^32.
        let distance = i64::from(first.wrapping_sub(next as u32).cast_signed());
        if distance.abs() > FARTHEST {
            self.lost = self.lost();
            self.runs.clear();
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
    use ibscope_parsers::Endpoint;
    use ibscope_parsers::link::TunnelKind;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
