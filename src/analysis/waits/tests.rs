use super::*;
use crate::analysis::fixture;
use ibscope_parsers::mpi::Identity;

const MS: i64 = 1_000_000;

/// Pseudorandom numbers (Numerical Recipes' LCG).
struct Lcg(u64);

impl Lcg {
    /// A number from 0 to below `limit`.
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A simulated program. Each rank has a clock of its own.
struct Program {
    random: Lcg,
    clocks: Vec<i64>,
    analysis: WaitAnalysis,
}

impl Program {
    fn of(ranks: usize, seed: u64) -> Self {
        Self { random: Lcg(seed), clocks: vec![0; ranks], analysis: WaitAnalysis::default() }
    }

    fn ranks(&self) -> usize {
        self.clocks.len()
    }

    /// Computes for `ns`, and up to 1 ms more.
    fn compute(&mut self, rank: usize, ns: i64) {
        self.clocks[rank] += ns + self.random.below(MS);
    }

    /// A message leaves now. Returns the time of its arrival.
    fn send(&mut self, src: usize, dst: usize, tag: i32, mpi_bytes: u64) -> i64 {
        self.clocks[src] += 1_000;
        let sent_ns = self.clocks[src];
        let arrival_ns = sent_ns + 20_000 + self.random.below(10_000);
        let identity = Identity { rank: 0, context: 7, tag, world: true, collective: tag < 0 };
        let mut row = fixture::message(identity, (Some(src as u32), Some(dst as u32)), (sent_ns, arrival_ns));
        row.raw.length_bytes = Some(mpi_bytes);
        self.analysis.push(&row);
        arrival_ns
    }

    /// All ranks send to their neighbors on a ring, and wait for the messages of both.
    fn halo(&mut self) {
        let ranks = self.ranks();
        let mut arrivals = vec![0; ranks];
        for rank in 0..ranks {
            for (tag, peer) in [(1, (rank + 1) % ranks), (2, (rank + ranks - 1) % ranks)] {
                arrivals[peer] = arrivals[peer].max(self.send(rank, peer, tag, 2048));
            }
        }
        for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
            *clock = arrival.max(*clock);
        }
    }

    /// All ranks reach one state of knowledge: dissemination, which suits any number of ranks.
    fn barrier(&mut self) {
        let ranks = self.ranks();
        let mut distance = 1;
        while distance < ranks {
            let mut arrivals = vec![0; ranks];
            for rank in 0..ranks {
                let peer = (rank + distance) % ranks;
                arrivals[peer] = self.send(rank, peer, -16, 0);
            }
            for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
                *clock = arrival.max(*clock);
            }
            distance *= 2;
        }
    }

    /// The messages that begin in this time.
    fn within(mut self, times_ns: std::ops::Range<i64>) -> Self {
        for own in self.analysis.jobs.values_mut().flat_map(BTreeMap::values_mut) {
            let mut kept = MessageSeries::default();
            let times = own.times_ns().iter().filter(|times| times_ns.contains(&times.0));
            times.for_each(|times| kept.push(times.0, times.1));
            *own = kept;
        }
        self
    }

    fn result(self) -> Result<Iterations, NoIterations> {
        let mut jobs = self.analysis.of_jobs(|_| None, &Nodes::default());
        assert_eq!(jobs.len(), 1);
        jobs.remove(0).iterations
    }
}

/// Computation of 10 ms, halo, barrier; `delay_ns` is the additional computation of each rank.
fn halo_program(ranks: usize, iterations: usize, seed: u64, delay_ns: impl Fn(usize) -> i64) -> Program {
    let mut program = Program::of(ranks, seed);
    program.barrier();
    for _ in 0..iterations {
        for rank in 0..ranks {
            program.compute(rank, 10 * MS + delay_ns(rank));
        }
        program.halo();
        program.barrier();
    }
    program
}

/// With two or three ranks, it takes more iterations to show that the slow rank does not answer the
/// messages of the others.
#[test]
fn the_slow_rank_is_the_straggler() {
    for ranks in 2..=16 {
        let iterations = if ranks < 4 { 200 } else { 30 };
        for delay_ms in [2, 5, 20] {
            let slow = (ranks * 7 + delay_ms) % ranks;
            let delay_ns = |rank| if rank == slow { delay_ms as i64 * MS } else { 0 };
            let found = halo_program(ranks, iterations, ranks as u64, delay_ns).result().expect("iterations");
            assert_eq!(found.count, iterations, "{ranks} ranks");
            let period_ns = (10 + delay_ms as u64) * MS as u64;
            assert!(found.period_ns.abs_diff(period_ns) < period_ns / 10, "{ranks} ranks: {}", found.period_ns);
            let [straggler] = &found.stragglers[..] else { panic!("{ranks} ranks, {delay_ms} ms: {found:?}") };
            assert_eq!(straggler.rank as usize, slow);
            let expected_ns = delay_ms as u64 * MS as u64;
            assert!(straggler.delay_ns.abs_diff(expected_ns) * 5 <= expected_ns, "{ranks} ranks: {straggler:?}");
            // The neighbors of the slow rank wait for it; the others wait for them.
            for neighbor in [(slow + 1) % ranks, (slow + ranks - 1) % ranks] {
                let longest = found.waits.iter().find(|pair| pair.waiting_rank as usize == neighbor);
                assert_eq!(longest.expect("a wait").for_rank as usize, slow, "{ranks} ranks: {:?}", found.waits);
            }
        }
    }
}

/// A loop that calls the same operation twice, and computes longest before the second call: the
/// iterations begin with this call at all ranks.
#[test]
fn the_straggler_of_one_of_two_equal_steps_is_found() {
    for ranks in 4..=12 {
        for slow in [None, Some(1), Some(ranks - 1)] {
            let mut program = Program::of(ranks, ranks as u64);
            for _ in 0..30 {
                program.halo();
                (0..ranks).for_each(|rank| program.compute(rank, 2 * MS));
                program.barrier();
                (0..ranks)
                    .for_each(|rank| program.compute(rank, 10 * MS + if slow == Some(rank) { 5 * MS } else { 0 }));
                program.barrier();
            }
            let found = program.result().expect("iterations");
            assert_eq!((found.count, found.whole, found.compared), (30, 29, ranks), "{ranks} ranks, {slow:?}");
            let stragglers: Vec<usize> = found.stragglers.iter().map(|straggler| straggler.rank as usize).collect();
            assert_eq!(stragglers, slow.into_iter().collect::<Vec<_>>(), "{ranks} ranks");
            for straggler in &found.stragglers {
                assert!((4 * MS..=6 * MS).contains(&(straggler.delay_ns as i64)), "{ranks} ranks: {straggler:?}");
            }
        }
    }
}

/// Captures that start or end anywhere in an iteration name no other straggler. The loop follows other messages
/// by 100 ms, and 100 ms later come others, so most cuts at one end show on which side messages are missing.
#[test]
fn a_cut_within_an_iteration_moves_no_straggler() {
    let program = |slow: Option<usize>, delay_ns: i64| {
        let mut program = Program::of(4, 5);
        program.send(0, 1, 99, 8);
        (0..4).for_each(|rank| program.compute(rank, 100 * MS));
        for _ in 0..40 {
            (0..4).for_each(|rank| program.compute(rank, 10 * MS + if slow == Some(rank) { delay_ns } else { 0 }));
            program.halo();
            program.barrier();
        }
        (0..4).for_each(|rank| program.compute(rank, 100 * MS));
        program.send(0, 1, 98, 8);
        program
    };
    for (slow, delay_ms) in [(None, 0), (Some(2), 5), (Some(1), 8), (Some(3), 25)] {
        let period_ns = (10 + delay_ms) * MS;
        let (mut cuts, mut named) = (0, 0);
        for step in 0..60 {
            let later_ns = step * period_ns / 60;
            let (start_ns, end_ns) = (100 * MS + 8 * period_ns + later_ns, 100 * MS + 30 * period_ns + later_ns);
            for times_ns in [start_ns..i64::MAX, 0..end_ns, start_ns..end_ns] {
                cuts += 1;
                let Ok(found) = program(slow, delay_ms * MS).within(times_ns.clone()).result() else { continue };
                let ranks: Vec<usize> = found.stragglers.iter().map(|straggler| straggler.rank as usize).collect();
                assert!(ranks.iter().all(|rank| slow == Some(*rank)), "{slow:?} {delay_ms} ms {times_ns:?}: {ranks:?}");
                named += usize::from(ranks.len() == usize::from(slow.is_some()));
            }
        }
        assert!(named * 2 >= cuts, "{slow:?} {delay_ms} ms: {named} of {cuts}");
    }
}

#[test]
fn equal_ranks_have_no_straggler() {
    for ranks in 2..=16 {
        for seed in 0..10 {
            let found = halo_program(ranks, 30, seed, |_| 0).result().expect("iterations");
            assert_eq!(found.stragglers, [], "{ranks} ranks, seed {seed}");
        }
    }
}

#[test]
fn two_slow_ranks_are_two_stragglers() {
    let delay_ns = |rank| [0, 0, 8 * MS, 0, 0, 6 * MS, 0, 0][rank];
    let found = halo_program(8, 40, 3, delay_ns).result().expect("iterations");
    let ranks: Vec<u32> = found.stragglers.iter().map(|straggler| straggler.rank).collect();
    assert_eq!(ranks, [2, 5]);
}

/// Each rank waits for the one before, so ranks begin late without being slow.
#[test]
fn ranks_of_a_pipeline_are_no_stragglers() {
    for ranks in 2..=8 {
        let mut program = Program::of(ranks, 1);
        for _ in 0..30 {
            for rank in 0..ranks {
                program.compute(rank, 2 * MS);
                let peer = (rank + 1) % ranks;
                let arrival = program.send(rank, peer, 5, 4096);
                program.clocks[peer] = program.clocks[peer].max(arrival);
            }
        }
        let found = program.result().expect("iterations");
        assert_eq!(found.stragglers, [], "{ranks} ranks");
        for own in found.ranks.iter().filter(|own| own.rank > 0) {
            let most_ns = own.wait_ns + own.unclear_ns;
            assert!(most_ns > own.before_send_ns * (ranks as u64 - 2), "{ranks} ranks: {own:?}");
        }
    }
}

/// The time of a rank is the sum of its parts, and its waits are those of its pairs.
#[test]
fn parts_of_the_time_sum_up() {
    let found = halo_program(6, 20, 9, |rank| rank as i64 * MS).result().expect("iterations");
    for own in &found.ranks {
        let pairs: Vec<&PairWaits> = found.waits.iter().filter(|pair| pair.waiting_rank == own.rank).collect();
        assert_eq!(pairs.iter().map(|pair| pair.wait_ns).sum::<u64>(), own.wait_ns);
        assert!(pairs.iter().all(|pair| pair.of_ns == own.before_send_ns + own.wait_ns + own.unclear_ns));
        assert!(own.before_send_ns + own.unclear_ns >= 19 * 10 * MS as u64, "{own:?}");
    }
    assert_eq!(found.ranks.iter().filter_map(|own| own.times_last).sum::<usize>(), 19);
}

#[test]
fn what_does_not_repeat_has_no_iterations() {
    assert_eq!(halo_program(4, 8, 1, |_| 0).result().unwrap_err(), NoIterations::NotRepeated);
    let sampled =
        halo_program(4, 30, 1, |_| 0).analysis.of_jobs(|_| Some(NoIterations::Sampled), &Nodes::default()).remove(0);
    assert_eq!(sampled.iterations, Err(NoIterations::Sampled));
}

#[test]
fn one_message_beyond_the_bound_leaves_no_iterations() {
    for (more, expected) in [(0, Ok(30)), (1, Err(NoIterations::TooManyMessages))] {
        let mut program = halo_program(4, 30, 1, |_| 0);
        program.analysis.messages = MAX_MESSAGES - 1;
        for _ in 0..=more {
            program.send(0, 1, 99, 1);
        }
        assert_eq!(program.result().map(|found| found.count), expected);
    }
}

/// A library may give each call its own tag.
#[test]
fn tags_may_differ_in_each_iteration() {
    let mut program = Program::of(4, 2);
    for iteration in 0..20 {
        for rank in 0..4 {
            program.compute(rank, 5 * MS);
            let (tag, peer) = (100 + iteration, (rank + 1) % 4);
            program.send(rank, peer, tag, 512);
        }
    }
    assert_eq!(program.result().expect("iterations").count, 20);
}
