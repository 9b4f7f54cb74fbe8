//! The time of each rank in the iterations, and the messages that it waits for.
//!
//! A rank is observed when it sends and when a message arrives. The time between two such events
//! belongs to the second: before a message that the rank sends, it computes; before a message that
//! arrives after its own, it waits for the sender. Messages that arrive before the rank sends
//! anything in an iteration are early, unless the rank responds to them ([`is_answer`]).

use super::iterations::{LoopSeries, MainLoop};
use super::{PairWaits, RankTimes};
use std::collections::{BTreeMap, BTreeSet};

/// A rank responds to others if it begins nearly all iterations after one of their messages.
const ANSWERED_SHARE: f64 = 0.9;

/// The times of all ranks.
#[derive(Debug)]
pub(super) struct LoopTimes {
    pub(super) period_ns: u64,
    pub(super) ranks: Vec<RankTimes>,
    pub(super) waits: Vec<PairWaits>,
    /// When and after how much time of its own each rank began each iteration, by rank.
    pub(super) entries: BTreeMap<u32, Vec<IterationEntry>>,
    /// Ranks that begin their iterations with the same step of the program: only their beginnings
    /// are compared.
    pub(super) comparable: BTreeSet<u32>,
    /// Ranks that may respond to messages of others when they begin an iteration.
    pub(super) may_answer: BTreeSet<u32>,
}

/// The beginning of an iteration at one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IterationEntry {
    pub(super) iteration: usize,
    /// The time of its first message, in nanoseconds since the epoch.
    pub(super) begin_ns: i64,
    /// The time before this message that the rank needed itself, or may have needed.
    pub(super) own_ns: i64,
}

/// An event of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankEvent {
    time_ns: i64,
    /// The sender of a message that arrives; `None` for a message that the rank sends.
    from: Option<u32>,
}

/// An iteration at one rank.
struct Visit {
    iteration: usize,
    /// The last event of the iteration before.
    end_before_ns: i64,
    /// The last message that arrived since then and before `begin_ns`.
    early: Option<RankEvent>,
    begin_ns: i64,
}

/// Divides the time of each rank.
pub(super) fn rank_times(main: &MainLoop) -> LoopTimes {
    let mut of_ranks: BTreeMap<u32, Vec<&LoopSeries>> = BTreeMap::new();
    for own in &main.series {
        for rank in BTreeSet::from([own.src, own.dst]) {
            of_ranks.entry(rank).or_default().push(own);
        }
    }
    let mut times = LoopTimes {
        period_ns: main.period_ns,
        ranks: Vec::new(),
        waits: Vec::new(),
        entries: BTreeMap::new(),
        comparable: main.comparable.clone(),
        may_answer: BTreeSet::new(),
    };
    let of_ranks: Vec<RankVisits> =
        of_ranks.into_iter().map(|(rank, series)| visits(rank, &series, main.count)).collect();
    let begins = IterationStarts::by_iteration(&of_ranks);
    for own in of_ranks {
        add_rank(own, &begins, &mut times);
    }
    count_last(&mut times);
    times
}

/// The events of a rank in one iteration, by time.
fn events(rank: u32, series: &[&LoopSeries], iteration: usize) -> Vec<RankEvent> {
    let mut events: Vec<RankEvent> = Vec::new();
    for own in series {
        let (first_ns, last_ns) = own.of(iteration);
        if own.src == rank {
            events.push(RankEvent { time_ns: first_ns, from: None });
        }
        if own.dst == rank {
            events.push(RankEvent { time_ns: last_ns, from: Some(own.src) });
        }
    }
    events.sort_unstable();
    events
}

/// The iterations of one rank.
struct RankVisits {
    rank: u32,
    visits: Vec<Visit>,
    sums: RankTimes,
    /// Number and sum of the waits for each other rank.
    waits: BTreeMap<u32, (u64, u64)>,
}

/// Divides the time of a rank after the first message of each iteration.
fn visits(rank: u32, series: &[&LoopSeries], count: usize) -> RankVisits {
    let mut sums = RankTimes { rank, ..RankTimes::default() };
    let mut waits: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut visits: Vec<Visit> = Vec::new();
    let mut end_ns: Option<i64> = None;
    for iteration in 0..count {
        let events = events(rank, series, iteration);
        let first = events.iter().position(|event| event.from.is_none()).unwrap_or(events.len());
        let (early, rest) = events.split_at(first);
        let Some(begin_ns) = rest.first().map(|event| event.time_ns) else { continue };
        if let Some(end_before_ns) = end_ns {
            let early = early.last().copied().filter(|event| event.time_ns > end_before_ns);
            visits.push(Visit { iteration, end_before_ns, early, begin_ns });
        }
        let mut last_ns = end_ns.map_or(begin_ns, |end| end.max(begin_ns));
        for event in rest {
            let gap_ns = event.time_ns.saturating_sub(last_ns).max(0).unsigned_abs();
            match event.from {
                None => sums.before_send_ns += gap_ns,
                Some(from) if gap_ns > 0 => wait(&mut sums, &mut waits, from, gap_ns),
                Some(_) => {}
            }
            last_ns = last_ns.max(event.time_ns);
        }
        end_ns = Some(last_ns);
    }
    RankVisits { rank, visits, sums, waits }
}

/// Divides the time of a rank before the first message of each iteration.
fn add_rank(of_rank: RankVisits, begins: &BTreeMap<usize, IterationStarts>, times: &mut LoopTimes) {
    let RankVisits { rank, visits, mut sums, mut waits } = of_rank;
    let answer = is_answer(rank, &visits, begins);
    if answer == Answer::Unclear {
        times.may_answer.insert(rank);
    }
    let entries = entries(&visits, answer, &mut sums, &mut waits);
    let of_ns = sums.before_send_ns + sums.wait_ns + sums.unclear_ns;
    times.entries.insert(rank, entries);
    times.ranks.push(sums);
    times.waits.extend(waits.into_iter().map(|(for_rank, (count, wait_ns))| PairWaits {
        waiting_rank: rank,
        for_rank,
        times: count,
        wait_ns,
        of_ns,
    }));
}

fn wait(sums: &mut RankTimes, waits: &mut BTreeMap<u32, (u64, u64)>, from: u32, gap_ns: u64) {
    sums.wait_ns += gap_ns;
    let (count, wait_ns) = waits.entry(from).or_default();
    *count += 1;
    *wait_ns += gap_ns;
}

/// Divides the time before the first message of each iteration.
fn entries(
    visits: &[Visit],
    answer: Answer,
    sums: &mut RankTimes,
    waits: &mut BTreeMap<u32, (u64, u64)>,
) -> Vec<IterationEntry> {
    let positive = |ns: i64| ns.max(0).unsigned_abs();
    let mut entries = Vec::new();
    for visit in visits {
        let gap_ns = visit.begin_ns.saturating_sub(visit.end_before_ns);
        let mut own_ns = gap_ns;
        match (answer, visit.early) {
            (Answer::Yes, Some(early)) => {
                own_ns = visit.begin_ns.saturating_sub(early.time_ns);
                let waited_ns = positive(early.time_ns.saturating_sub(visit.end_before_ns));
                if let Some(from) = early.from {
                    wait(sums, waits, from, waited_ns);
                }
                sums.before_send_ns += positive(own_ns);
            }
            (Answer::Unclear, Some(_)) => sums.unclear_ns += positive(gap_ns),
            _ => sums.before_send_ns += positive(gap_ns),
        }
        entries.push(IterationEntry { iteration: visit.iteration, begin_ns: visit.begin_ns, own_ns });
    }
    entries
}

/// Whether the first message of a rank in an iteration responds to a message of another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Unclear,
}

/// The beginnings of one iteration at all ranks.
#[derive(Default)]
struct IterationStarts {
    /// Sorted, with the rank.
    by_time: Vec<(i64, u32)>,
    by_rank: BTreeMap<u32, i64>,
}

impl IterationStarts {
    fn by_iteration(of_ranks: &[RankVisits]) -> BTreeMap<usize, Self> {
        let mut begins: BTreeMap<usize, Self> = BTreeMap::new();
        for own in of_ranks {
            for visit in &own.visits {
                let iteration = begins.entry(visit.iteration).or_default();
                iteration.by_time.push((visit.begin_ns, own.rank));
                iteration.by_rank.insert(own.rank, visit.begin_ns);
            }
        }
        begins.values_mut().for_each(|iteration| iteration.by_time.sort_unstable());
        begins
    }

    /// The lower median of the ranks other than `rank` and `sender`. `None` if there are none.
    fn median_without(&self, rank: u32, sender: Option<u32>) -> Option<i64> {
        let place = |rank: u32| self.by_time.binary_search(&(*self.by_rank.get(&rank)?, rank)).ok();
        let places: BTreeSet<usize> = sender.into_iter().chain([rank]).filter_map(place).collect();
        let others = self.by_time.len().checked_sub(places.len() + 1)?;
        let middle = places.into_iter().fold(others / 2, |middle, place| middle + usize::from(middle >= place));
        self.by_time.get(middle).map(|begin| begin.0)
    }
}

/// An iteration in which a message arrived before the rank sent its first one: times since the end of
/// the iteration before.
#[derive(Clone, Copy)]
struct EarlyArrival {
    /// Arrival of the message, and beginning of the rank.
    point_ns: (f64, f64),
    /// The median beginning of the ranks other than this one and the sender, if there are any.
    others_begin_ns: Option<f64>,
}

/// Decides whether a rank responds to messages, or computes while they arrive. A message that
/// arrives later by some time delays its response by this time, but does not delay a computation.
/// The slope of the regression of the rank's start times on the arrivals is therefore near 1 for
/// responses and near 0 for computations. The slope decides if its standard error is at most a
/// quarter, and if it differs from one half by two standard errors.
///
/// Both times also vary together if all ranks leave the iteration before late, at a barrier inside
/// the nodes for example. An answer therefore needs the same slope between arrivals and beginnings
/// that differ from those of the other ranks.
fn is_answer(rank: u32, visits: &[Visit], begins: &BTreeMap<usize, IterationStarts>) -> Answer {
    let early = |visit: &Visit| {
        let since = |time_ns: i64| time_ns.saturating_sub(visit.end_before_ns) as f64;
        let arrival = visit.early?;
        let others_ns = begins.get(&visit.iteration)?.median_without(rank, arrival.from);
        Some(EarlyArrival {
            point_ns: (since(arrival.time_ns), since(visit.begin_ns)),
            others_begin_ns: others_ns.map(since),
        })
    };
    let early: Vec<EarlyArrival> = visits.iter().filter_map(early).collect();
    if early.is_empty() || (early.len() as f64) < ANSWERED_SHARE * visits.len() as f64 {
        return Answer::No;
    }
    let points: Vec<(f64, f64)> = early.iter().map(|one| one.point_ns).collect();
    let alone = decide(slope(&points, 2));
    let others: Option<Vec<f64>> = early.iter().map(|one| one.others_begin_ns).collect();
    match others.filter(|_| alone == Answer::Yes) {
        Some(others) if decide(slope(&residuals(&points, &others), 3)) != Answer::Yes => Answer::Unclear,
        _ => alone,
    }
}

/// The answer that a slope and its standard error show.
fn decide(slope: Option<(f64, f64)>) -> Answer {
    match slope.filter(|(_, error)| *error <= 0.25) {
        Some((slope, error)) if slope - 2.0 * error > 0.5 => Answer::Yes,
        Some((slope, error)) if slope + 2.0 * error < 0.5 => Answer::No,
        _ => Answer::Unclear,
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// What remains of both coordinates of the points without their regressions on `others`.
fn residuals(points: &[(f64, f64)], others: &[f64]) -> Vec<(f64, f64)> {
    let others_mean = mean(others.iter().copied());
    let means = (mean(points.iter().map(|point| point.0)), mean(points.iter().map(|point| point.1)));
    let centered =
        || points.iter().zip(others).map(|(point, other)| (point.0 - means.0, point.1 - means.1, other - others_mean));
    let square = centered().map(|(_, _, other)| other * other).sum::<f64>();
    if square <= 0.0 {
        return centered().map(|(x, y, _)| (x, y)).collect();
    }
    let x_slope = centered().map(|(x, _, other)| x * other).sum::<f64>() / square;
    let y_slope = centered().map(|(_, y, other)| y * other).sum::<f64>() / square;
    centered().map(|(x, y, other)| (x - x_slope * other, y - y_slope * other)).collect()
}

/// Slope of the regression line of `y` on `x`, and its standard error. `parameters` are estimated
/// from the points. `None` if all `x` are equal or if there are no more points than parameters.
fn slope(points: &[(f64, f64)], parameters: usize) -> Option<(f64, f64)> {
    if points.len() <= parameters {
        return None;
    }
    let (x_mean, y_mean) = (mean(points.iter().map(|point| point.0)), mean(points.iter().map(|point| point.1)));
    let sum =
        |value: &dyn Fn(f64, f64) -> f64| -> f64 { points.iter().map(|(x, y)| value(x - x_mean, y - y_mean)).sum() };
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let residual = (yy - slope * xy).max(0.0) / (points.len() - parameters) as f64;
    Some((slope, (residual / xx).sqrt()))
}

/// Counts how often each rank began an iteration last, among the ranks that are compared.
fn count_last(times: &mut LoopTimes) {
    let mut last: BTreeMap<usize, (i64, u32)> = BTreeMap::new();
    for (&rank, entries) in times.entries.iter().filter(|(rank, _)| times.comparable.contains(rank)) {
        for entry in entries {
            let own = (entry.begin_ns, rank);
            last.entry(entry.iteration).and_modify(|latest| *latest = own.max(*latest)).or_insert(own);
        }
    }
    for own in times.ranks.iter_mut().filter(|own| times.comparable.contains(&own.rank)) {
        own.times_last = Some(last.values().filter(|(_, rank)| *rank == own.rank).count());
    }
}
