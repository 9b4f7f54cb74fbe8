//! The schedules of operations in which all ranks send.
//!
//! Sources: Open MPI's `coll_base_allreduce.c`, `coll_base_allgather.c`, `coll_base_alltoall.c`,
//! `coll_base_barrier.c`, `coll_base_reduce_scatter.c`, `coll_base_scan.c`; MPICH's files of the
//! same operations in `src/mpi/coll`. If both libraries schedule the same messages, one function
//! serves both.

use super::schedule::Schedule;

/// Largest power of two that is at most `n`.
const fn floor_power(n: u32) -> u32 {
    if n == 0 { 0 } else { 1 << n.ilog2() }
}

/// Which rank of a pair remains when `n` ranks are reduced to a power of two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remaining {
    Odd,
    Even,
}

/// The ranks that remain, in the order of their new ranks: of each of the first pairs one, then all
/// others.
fn remaining(n: u32, which: Remaining) -> Vec<u32> {
    let power = floor_power(n);
    let pairs = n - power;
    let of_pair = |index| 2 * index + u32::from(which == Remaining::Odd);
    (0..power).map(|index| if index < pairs { of_pair(index) } else { index + pairs }).collect()
}

/// Recursive doubling of the whole vector; ranks beyond a power of two fold into their neighbors.
pub(super) fn recursive_doubling(n: u32, blocks: u32) -> Schedule {
    let mut schedule = Schedule::new(blocks);
    let ranks = remaining(n, Remaining::Odd);
    let pairs = n - ranks.len() as u32;
    (0..pairs).for_each(|pair| schedule.send_all(0, (2 * pair, 2 * pair + 1)));
    let mut step = 1;
    let mut mask = 1;
    while mask < ranks.len() {
        for (index, &rank) in ranks.iter().enumerate() {
            schedule.send_all(step, (rank, ranks[index ^ mask]));
        }
        mask *= 2;
        step += 1;
    }
    (0..pairs).for_each(|pair| schedule.send_all(step, (2 * pair + 1, 2 * pair)));
    schedule.sorted()
}

/// Open MPI's barrier by recursive doubling: the ranks beyond a power of two fold into the first
/// ranks.
pub(super) fn barrier_recursive_doubling(n: u32) -> Schedule {
    let mut schedule = Schedule::new(0);
    let power = floor_power(n);
    (power..n).for_each(|rank| schedule.send_all(0, (rank, rank - power)));
    let mut step = 1;
    let mut mask = 1;
    while mask < power {
        (0..power).for_each(|rank| schedule.send_all(step, (rank, rank ^ mask)));
        mask *= 2;
        step += 1;
    }
    (power..n).for_each(|rank| schedule.send_all(step, (rank - power, rank)));
    schedule.sorted()
}

/// The blocks travel around the ring once while they are reduced, and once more as results.
/// `has_second_tag`: the second part is an Allgatherv (MPICH).
pub(super) fn ring_allreduce(n: u32, has_second_tag: bool) -> Schedule {
    ring(n).then(ring_from(n, 1), has_second_tag)
}

/// Each rank passes on the block that it received in the step before.
pub(super) fn ring(n: u32) -> Schedule {
    ring_from(n, 0)
}

/// A ring in which rank `r` first sends block `r + start`.
pub(super) fn ring_from(n: u32, start: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    for step in 0..n - 1 {
        (0..n).for_each(|rank| schedule.send(step, (rank, (rank + 1) % n), rank + start + n - step, 1));
    }
    schedule
}

/// The windows of a recursive halving over `ranks`, in blocks of the number of ranks: each step
/// sends the half of the window that the partner keeps. Returns the windows that remain.
fn halving(schedule: &mut Schedule, ranks: &[u32], first_step: u32) -> Vec<(u32, u32)> {
    let blocks = ranks.len() as u32;
    let mut windows = vec![(0, blocks); ranks.len()];
    let (mut mask, mut step) = (1, first_step);
    while mask < ranks.len() {
        for index in 0..ranks.len() {
            let (first, count) = windows[index];
            let half = count / 2;
            let (kept, sent) = if index & mask == 0 { (first, first + half) } else { (first + half, first) };
            schedule.send(step, (ranks[index], ranks[index ^ mask]), sent, half);
            windows[index] = (kept, half);
        }
        mask *= 2;
        step += 1;
    }
    windows
}

/// How Rabenseifner's algorithm folds the ranks beyond a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// One rank of a pair sends its vector to the other one (MPICH): the even rank in an Allreduce,
    /// the odd one in a Reduce.
    Whole,
    /// Both ranks of a pair exchange halves; the odd rank sends its result to the even one (Open
    /// MPI).
    Halves,
}

/// Both ranks of a pair exchange halves; the odd rank sends its result to the even one.
fn fold_halves(schedule: &mut Schedule, (even, odd): (u32, u32)) {
    let half = schedule.blocks / 2;
    schedule.send(0, (even, odd), half, half);
    schedule.send(0, (odd, even), 0, half);
    schedule.send(1, (odd, even), half, half);
}

/// Rabenseifner's Allreduce: recursive halving, then recursive doubling of the windows.
pub(super) fn rabenseifner_allreduce(n: u32, fold: Fold) -> Schedule {
    let power = floor_power(n);
    let mut schedule = Schedule::new(power);
    let which = if fold == Fold::Whole { Remaining::Odd } else { Remaining::Even };
    let ranks = remaining(n, which);
    for pair in 0..n - power {
        let (even, odd) = (2 * pair, 2 * pair + 1);
        if fold == Fold::Whole {
            schedule.send_all(0, (even, odd));
        } else {
            fold_halves(&mut schedule, (even, odd));
        }
    }
    let mut windows = halving(&mut schedule, &ranks, 2);
    let mut step = 2 + power.ilog2();
    let mut mask = ranks.len() / 2;
    while mask > 0 {
        let before = windows.clone();
        for index in 0..ranks.len() {
            let ((first, count), (other, _)) = (before[index], before[index ^ mask]);
            schedule.send(step, (ranks[index], ranks[index ^ mask]), first, count);
            windows[index] = (first.min(other), count * 2);
        }
        mask /= 2;
        step += 1;
    }
    for pair in 0..n - power {
        let (even, odd) = (2 * pair, 2 * pair + 1);
        let ends = if fold == Fold::Whole { (odd, even) } else { (even, odd) };
        schedule.send_all(step, ends);
    }
    schedule.sorted()
}

/// Rabenseifner's Reduce: recursive halving, then a binomial gather to the root. A root that has
/// folded into its neighbor takes the place of the first remaining rank in the gather.
pub(super) fn rabenseifner_reduce(n: u32, root: u32, fold: Fold) -> Schedule {
    let power = floor_power(n);
    let mut schedule = Schedule::new(power);
    let mut ranks = remaining(n, Remaining::Even);
    for pair in 0..n - power {
        let (even, odd) = (2 * pair, 2 * pair + 1);
        if fold == Fold::Whole {
            schedule.send_all(0, (odd, even));
        } else {
            fold_halves(&mut schedule, (even, odd));
        }
    }
    let mut windows = halving(&mut schedule, &ranks, 2);
    let mut step = 2 + power.ilog2();
    let new_root = ranks.iter().position(|&rank| rank == root).unwrap_or(0);
    if ranks[new_root] != root {
        let (first, count) = windows[0];
        schedule.send(step, (ranks[0], root), first, count);
        ranks[0] = root;
        step += 1;
    }
    let mut mask = ranks.len() / 2;
    // In each step, the ranks whose bit differs from that of the root send their window and leave.
    let mut members: Vec<usize> = (0..ranks.len()).collect();
    while mask > 0 {
        for &index in members.iter().filter(|&&index| (index ^ new_root) & mask != 0) {
            let (first, count) = windows[index];
            schedule.send(step, (ranks[index], ranks[index ^ mask]), first, count);
            let kept = windows[index ^ mask];
            windows[index ^ mask] = (kept.0.min(first), kept.1 + count);
        }
        members.retain(|index| (index ^ new_root) & mask == 0);
        mask /= 2;
        step += 1;
    }
    schedule.sorted()
}

/// Number of blocks of the ranks before remaining rank `index`: a rank that represents a pair owns
/// two.
fn blocks_before(index: u32, pairs: u32) -> u32 {
    index + index.min(pairs)
}

/// The order of the distances in a recursive halving of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distances {
    /// Half of the ranks first (MPICH; Open MPI's recursive halving).
    Falling,
    /// Neighbors first (Open MPI's butterfly).
    Rising,
}

/// Reduce-scatter by recursive halving. `None` for a butterfly whose number of ranks is no power of
/// two, because its messages then depend on the library.
pub(super) fn halving_reduce_scatter(n: u32, distances: Distances) -> Option<Schedule> {
    let power = floor_power(n);
    if distances == Distances::Rising && power != n {
        return None;
    }
    let mut schedule = Schedule::new(n);
    let ranks = remaining(n, Remaining::Odd);
    let pairs = n - power;
    (0..pairs).for_each(|pair| schedule.send_all(0, (2 * pair, 2 * pair + 1)));
    let blocks_before = |index: u32| blocks_before(index, pairs);
    let mut windows = vec![(0, power); power as usize];
    for level in 0..power.ilog2() {
        let mask = if distances == Distances::Falling { power >> (level + 1) } else { 1 << level };
        for index in 0..power {
            let (first, count) = windows[index as usize];
            let half = count / 2;
            let (kept, sent) = if index & mask == 0 { (first, first + half) } else { (first + half, first) };
            let (low, high) = (blocks_before(sent), blocks_before(sent + half));
            schedule.send(1 + level, (ranks[index as usize], ranks[(index ^ mask) as usize]), low, high - low);
            windows[index as usize] = (kept, half);
        }
    }
    let step = schedule.next_step();
    (0..pairs).for_each(|pair| schedule.send(step, (2 * pair + 1, 2 * pair), 2 * pair, 1));
    Some(schedule.sorted())
}

/// Pairwise exchange: in step `s`, rank `r` sends the block of rank `r + s` to it.
pub(super) fn pairwise(n: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    for step in 1..n {
        (0..n).for_each(|rank| schedule.send(step - 1, (rank, (rank + step) % n), rank + step, 1));
    }
    schedule
}

/// Pairwise exchange with `r xor s` (MPICH). `None` unless the number of ranks is a power of two.
pub(super) fn pairwise_xor(n: u32) -> Option<Schedule> {
    if !n.is_power_of_two() {
        return None;
    }
    let mut schedule = Schedule::new(n);
    for step in 1..n {
        (0..n).for_each(|rank| schedule.send(step - 1, (rank, rank ^ step), rank ^ step, 1));
    }
    Some(schedule)
}

/// All messages at once, to the ranks below first.
pub(super) fn linear_alltoall(n: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    for step in 1..n {
        (0..n).for_each(|rank| schedule.send(0, (rank, (rank + n - step) % n), rank + n - step, 1));
    }
    schedule
}

/// All messages of an Allgather at once.
pub(super) fn linear_allgather(n: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    for step in 1..n {
        (0..n).for_each(|rank| schedule.send(0, (rank, (rank + step) % n), rank, 1));
    }
    schedule
}

/// Bruck's Alltoall: in step `k`, the blocks whose distance has bit `k`.
pub(super) fn bruck_alltoall(n: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    let mut distance = 1;
    let mut step = 0;
    while distance < n {
        let count = (1..n).filter(|block| block & distance != 0).count() as u32;
        (0..n).for_each(|rank| schedule.send(step, (rank, (rank + distance) % n), rank + distance, count));
        distance *= 2;
        step += 1;
    }
    schedule
}

/// Bruck's Allgather.
pub(super) fn bruck_allgather(n: u32) -> Schedule {
    let mut schedule = Schedule::new(n);
    let mut distance = 1;
    let mut step = 0;
    while distance < n {
        let count = distance.min(n - distance);
        (0..n).for_each(|rank| schedule.send(step, (rank, (rank + n - distance) % n), rank, count));
        distance *= 2;
        step += 1;
    }
    schedule
}

/// Allgather by recursive doubling. `None` unless the number of ranks is a power of two.
pub(super) fn doubling_allgather(n: u32) -> Option<Schedule> {
    if !n.is_power_of_two() {
        return None;
    }
    let mut schedule = Schedule::new(n);
    for step in 0..n.ilog2() {
        let distance = 1 << step;
        (0..n).for_each(|rank| schedule.send(step, (rank, rank ^ distance), rank & !(distance - 1), distance));
    }
    Some(schedule)
}

/// Allgather by MPICH's recursive exchange with radix 2: ranks beyond a power of two fold into their
/// neighbors. With falling distances, the ranks first exchange their blocks with the rank whose
/// number has the bits in reverse order, so that the blocks of each step are adjacent.
pub(super) fn recursive_exchange_allgather(n: u32, distances: Distances) -> Schedule {
    let mut schedule = Schedule::new(n);
    let ranks = remaining(n, Remaining::Odd);
    let power = ranks.len() as u32;
    let pairs = n - power;
    (0..pairs).for_each(|pair| schedule.send(0, (2 * pair, 2 * pair + 1), 2 * pair, 1));
    let levels = power.ilog2();
    // Blocks of the group of 2^level remaining ranks that has `index`.
    let group = |index: u32, level: u32| {
        let first = index >> level << level;
        let (low, high) = (blocks_before(first, pairs), blocks_before(first + (1 << level), pairs));
        (low, high - low)
    };
    let place = |index: u32| match distances {
        Distances::Rising => index,
        Distances::Falling if levels == 0 => index,
        Distances::Falling => index.reverse_bits() >> (u32::BITS - levels),
    };
    for index in (0..power).filter(|&index| place(index) != index) {
        let (first, count) = group(index, 0);
        schedule.send(1, (ranks[index as usize], ranks[place(index) as usize]), first, count);
    }
    for level in 0..levels {
        let mask = if distances == Distances::Rising { 1 << level } else { power >> (level + 1) };
        for index in 0..power {
            let (first, count) = group(place(index), level);
            schedule.send(2 + level, (ranks[index as usize], ranks[(index ^ mask) as usize]), first, count);
        }
    }
    (0..pairs).for_each(|pair| schedule.send_all(2 + levels, (2 * pair + 1, 2 * pair)));
    schedule
}

/// Open MPI's synchronized Gather: the root asks one rank after the other, each of which sends its
/// block in two parts. The blocks of the schedule are these parts.
pub(super) fn linear_sync_gather(n: u32, root: u32) -> Schedule {
    let mut schedule = Schedule::new(2);
    for (index, rank) in (0..).zip((0..n).filter(|&rank| rank != root)) {
        schedule.send(2 * index, (root, rank), 0, 0);
        schedule.send(2 * index + 1, (rank, root), 0, 1);
    }
    // The root does not wait for the second parts before it asks the next rank.
    let step = schedule.next_step();
    (0..n).filter(|&rank| rank != root).for_each(|rank| schedule.send(step, (rank, root), 1, 1));
    schedule
}

/// Open MPI's neighbor exchange. `None` for an odd number of ranks.
pub(super) fn neighbor_exchange(n: u32) -> Option<Schedule> {
    if !n.is_multiple_of(2) || n < 4 {
        return None;
    }
    let mut schedule = Schedule::new(n);
    let offset = |rank: u32, step: u32| {
        let is_right = rank.is_multiple_of(2) == step.is_multiple_of(2);
        if is_right { (rank + 1) % n } else { (rank + n - 1) % n }
    };
    (0..n).for_each(|rank| schedule.send(0, (rank, offset(rank, 0)), rank, 1));
    // From the second step on, a rank sends the two blocks that it received last.
    let mut last: Vec<u32> = (0..n).map(|rank| rank & !1).collect();
    for step in 1..n / 2 {
        let before = last.clone();
        for rank in 0..n {
            let partner = offset(rank, step);
            schedule.send(step, (rank, partner), before[rank as usize], 2);
            last[partner as usize] = before[rank as usize];
        }
    }
    Some(schedule)
}

/// Dissemination: in step `k`, rank `r` signals rank `r + 2^k`.
pub(super) fn dissemination(n: u32) -> Schedule {
    let mut schedule = Schedule::new(0);
    let mut distance = 1;
    let mut step = 0;
    while distance < n {
        (0..n).for_each(|rank| schedule.send_all(step, (rank, (rank + distance) % n)));
        distance *= 2;
        step += 1;
    }
    schedule
}

/// A signal travels around the ring twice.
pub(super) fn double_ring(n: u32) -> Schedule {
    let mut schedule = Schedule::new(0);
    for step in 0..2 * n {
        schedule.send_all(step, (step % n, (step + 1) % n));
    }
    schedule
}

/// A scan along the ranks.
pub(super) fn linear_scan(n: u32) -> Schedule {
    let mut schedule = Schedule::new(1);
    (0..n - 1).for_each(|rank| schedule.send_all(rank, (rank, rank + 1)));
    schedule
}

/// A scan by recursive doubling: partners exchange their partial results.
pub(super) fn doubling_scan(n: u32) -> Schedule {
    let mut schedule = Schedule::new(1);
    let (mut mask, mut step) = (1, 0);
    while mask < n {
        for rank in (0..n).filter(|rank| rank ^ mask < n) {
            schedule.send_all(step, (rank, rank ^ mask));
        }
        mask *= 2;
        step += 1;
    }
    schedule
}
