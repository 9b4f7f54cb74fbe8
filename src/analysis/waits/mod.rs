//! Iterations of a job, and the ranks that others wait for.
//!
//! In: the MPI messages of captures. Out: for each job, the iterations that its messages repeat,
//! the time that each rank spends before it sends and while it waits, the waits between ranks, and
//! the stragglers. Every duration is a difference of two capture times of one rank, so a constant
//! offset between the clocks of two captures cancels out; only the order in which ranks begin an
//! iteration compares clocks.

mod iterations;
mod rank_times;
mod rotation;
mod series;
mod stragglers;
#[cfg(test)]
mod tests;

use crate::analysis::observed_ports::uncaptured_ports;
use crate::model::nodes::Nodes;
use crate::model::profile::RankRow;
use crate::model::{JobRank, MessageRow, Profile};
use ibscope_parsers::mpi::MpiOperation;
use series::{MessageSeries, SeriesKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Limit on the messages of all jobs: 16 bytes each.
pub const MAX_MESSAGES: u64 = 20_000_000;

/// If copies of packets come late by more than this share of the period, the waits are unknown.
const MOST_DELAY: f64 = 0.02;

/// Collects the messages of each job.
#[derive(Debug, Default)]
pub struct WaitAnalysis {
    jobs: BTreeMap<u32, BTreeMap<SeriesKey, MessageSeries>>,
    /// Number of collected messages.
    messages: u64,
    /// Number of messages that were skipped beyond [`MAX_MESSAGES`].
    skipped: u64,
}

/// Iterations and waits of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobWaits {
    /// Number of the job.
    pub job: u32,
    /// Ranks with messages.
    pub ranks_seen: usize,
    /// The iterations, or the reason why they are unknown.
    pub iterations: Result<Iterations, NoIterations>,
}

impl JobWaits {
    /// The waits of the job; none if its iterations are unknown.
    #[must_use]
    pub fn waits(&self) -> &[PairWaits] {
        self.iterations.as_ref().map_or(&[], |iterations| &iterations.waits)
    }
}

/// Reason why the iterations of a job are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIterations {
    /// Too few messages repeat.
    NotRepeated,
    /// Messages repeat equally often, but not in one order.
    NotOrdered,
    /// Not all messages were collected.
    TooManyMessages,
    /// The mirror sampled the packets, so most messages are not in the captures.
    Sampled,
    /// The captures may show the traffic of some ports only: a rank that waits for messages that were
    /// not captured would seem to compute.
    PortsMissing,
    /// The messages of different ranks are on clocks that could not be compared.
    ClocksUnknown,
    /// The mirror copies of its packets are late by more than 2 % of the period.
    CopiesLate,
    /// The captures start or end within an iteration, and it is unclear which messages belong to one.
    EdgesUnclear,
}

impl NoIterations {
    /// Reason why no job of these captures can have iterations, if there is one. `nodes` are those
    /// of the ranks.
    fn of_captures(profile: &Profile, nodes: &Nodes) -> Option<Self> {
        if profile.sampling.is_some() {
            return Some(Self::Sampled);
        }
        let mut jobs: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        profile.ranks.iter().for_each(|row| _ = jobs.entry(row.job).or_default().insert(row.rank));
        let known = jobs.iter().flat_map(|(&job, ranks)| ranks.iter().map(move |&rank| JobRank { job, rank }));
        // Ranks of one node share a place, with all of its ports. Ranks between the known ones have
        // places that the captures do not show.
        let places: BTreeSet<Vec<&str>> = known.map(|rank| nodes.names(rank).collect()).collect();
        let hidden = |ranks: &BTreeSet<u32>| ranks.last().map_or(0, |last| *last as usize + 1 - ranks.len());
        let hidden: usize = jobs.values().map(hidden).sum();
        let uncaptured = uncaptured_ports(profile);
        let is_uncaptured = |row: &&RankRow| row.endpoint.parse().is_ok_and(|port| uncaptured.contains(&port));
        let of_place = |row: &RankRow| nodes.names(JobRank { job: row.job, rank: row.rank }).collect::<Vec<_>>();
        let uncaptured: BTreeSet<Vec<&str>> = profile.ranks.iter().filter(is_uncaptured).map(of_place).collect();
        // A capture of two places shows one of them at least.
        let is_shown = uncaptured.len() + hidden <= 1 || places.len() + hidden <= 2;
        (!is_shown).then_some(Self::PortsMissing)
    }

    /// The reason, as the end of "unknown, because ...".
    #[must_use]
    pub fn because(self) -> String {
        match self {
            Self::NotRepeated => {
                format!(
                    "fewer than half of the ranks send the same message (receiver, tag, length) at least {} times",
                    iterations::FEWEST
                )
            }
            Self::NotOrdered => "the messages that recur do not keep one order".to_owned(),
            Self::TooManyMessages => {
                format!("the captures have more than {MAX_MESSAGES} messages; select some with --from and --to")
            }
            Self::Sampled => "the mirror sampled the packets".to_owned(),
            Self::PortsMissing => {
                "the captures may show some ports only; give a capture of a sink of all ports, or of each port"
                    .to_owned()
            }
            Self::ClocksUnknown => {
                "the clocks of its captures could not be compared by packets that several of them hold".to_owned()
            }
            Self::EdgesUnclear => {
                "the captures start or end within an iteration, and nothing shows which messages belong to the same \
                 one; capture the job for a longer time, or from its start to its end"
                    .to_owned()
            }
            Self::CopiesLate => {
                "the clocks of its ports differ, or a device delays the mirror copies, by more than 2 % of the period of \
                 its iterations; capture each port in a file of its own"
                    .to_owned()
            }
        }
    }
}

/// The iterations of a job. The lists are sorted as each field states.
#[derive(Clone, Debug, PartialEq)]
pub struct Iterations {
    /// Number of iterations: how often the messages of the main loop repeat.
    pub count: usize,
    /// Number of iterations whose times are in `ranks`, `waits` and `stragglers`: one less if the
    /// longest computation lies in the middle of the messages that repeat.
    pub whole: usize,
    /// Messages in the iterations.
    pub messages: usize,
    /// Messages of the job.
    pub of_messages: usize,
    /// Median time from the beginning of one iteration to the next, in nanoseconds.
    pub period_ns: u64,
    /// Interquartile range of these times, in nanoseconds.
    pub jitter_ns: u64,
    /// The times of each rank, by rank.
    pub ranks: Vec<RankTimes>,
    /// Waits between ranks: longest sum first.
    pub waits: Vec<PairWaits>,
    /// Number of ranks that begin their iterations with the same step, and are compared.
    pub compared: usize,
    /// Ranks that begin most iterations late: longest delay first.
    pub stragglers: Vec<Straggler>,
}

/// The time of one rank, from its first message to its last. Sums over all iterations, in
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTimes {
    /// The rank.
    pub rank: u32,
    /// Time that ends when the rank sends: it computes, or is on its way to the network.
    pub before_send_ns: u64,
    /// Time that ends when a message arrives, after the rank sent its own: it waits, unless it
    /// computes while messages are on their way.
    pub wait_ns: u64,
    /// Time before the first message that the rank sends in an iteration, while messages of the
    /// others arrive, where the packets do not show whether the rank computes or waits.
    pub unclear_ns: u64,
    /// Number of iterations after the first one that the rank began last: nothing shows what a rank did before
    /// the first one. `None` if it begins them with another message
    /// than most ranks do.
    pub times_last: Option<usize>,
}

/// The waits of one rank for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairWaits {
    /// The rank that waits.
    pub waiting_rank: u32,
    /// The rank whose message ends the wait.
    pub for_rank: u32,
    /// Number of waits.
    pub times: u64,
    /// Sum of the waits in nanoseconds.
    pub wait_ns: u64,
    /// Time of the waiting rank in all iterations, in nanoseconds.
    pub of_ns: u64,
}

impl PairWaits {
    /// Share of the waiting rank's time, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.of_ns == 0 { 0.0 } else { self.wait_ns as f64 / self.of_ns as f64 }
    }
}

/// A rank that begins most iterations late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Straggler {
    /// The rank.
    pub rank: u32,
    /// Other ranks of its node that send no message in the step that begins an iteration: the delay
    /// may be theirs.
    pub or_ranks: Vec<u32>,
    /// Median delay against the median of the other ranks, in nanoseconds.
    pub delay_ns: u64,
    /// Lower bound of this median (99.7 % confidence) in nanoseconds.
    pub delay_low_ns: u64,
}

impl WaitAnalysis {
    /// Adds a message. Messages without a job, ranks or an MPI length do not count.
    pub fn push(&mut self, row: &MessageRow) {
        let (Some(job), Some(src), Some(dst)) = (row.job, row.src_rank, row.dst_rank) else { return };
        let (Some(identity), Some(mpi_bytes)) = (row.identity(), row.mpi_bytes()) else { return };
        let (first_ns, last_ns) = row.raw.times_ns;
        if self.messages >= MAX_MESSAGES {
            self.skipped += 1;
            return;
        }
        self.messages += 1;
        let operation = identity.operation();
        let key = SeriesKey {
            src,
            dst,
            operation,
            context: identity.context,
            // Each nonblocking collective operation has a tag of its own.
            tag: (operation != MpiOperation::Nonblocking).then_some(identity.tag),
            mpi_bytes,
        };
        self.jobs.entry(job).or_default().entry(key).or_default().push(first_ns, last_ns);
    }

    /// The result of each job, by number. `profile` is that of the same captures.
    #[must_use]
    pub fn finish(self, profile: &Profile) -> Vec<JobWaits> {
        let nodes = Nodes::of(profile);
        let of_captures = NoIterations::of_captures(profile, &nodes);
        let lacks_clock = |job: u32| profile.jobs.iter().any(|row| row.job == job && row.lacks_common_clock);
        let missing = |job| of_captures.or_else(|| lacks_clock(job).then_some(NoIterations::ClocksUnknown));
        let mut jobs = self.of_jobs(missing, &nodes);
        for job in &mut jobs {
            let delay_ns = profile.jobs.iter().find(|row| row.job == job.job).and_then(|row| row.copy_delay_ns);
            let is_late =
                |found: &Iterations| delay_ns.is_some_and(|ns| ns as f64 > MOST_DELAY * found.period_ns as f64);
            if job.iterations.as_ref().is_ok_and(is_late) {
                job.iterations = Err(NoIterations::CopiesLate);
            }
        }
        jobs
    }

    /// The result of each job, by number; `missing` is the reason why a job can have no iterations, if
    /// there is one.
    fn of_jobs(self, missing: impl Fn(u32) -> Option<NoIterations>, nodes: &Nodes) -> Vec<JobWaits> {
        let too_many = (self.skipped > 0).then_some(NoIterations::TooManyMessages);
        let result = |(job, series): (u32, BTreeMap<SeriesKey, MessageSeries>)| {
            let ranks = series::ranks(series.keys());
            let are_shared = |a: u32, b: u32| nodes.are_shared(JobRank { job, rank: a }, JobRank { job, rank: b });
            let iterations = missing(job).or(too_many).map_or_else(|| of_job(series, &ranks, &are_shared), Err);
            JobWaits { job, ranks_seen: ranks.len(), iterations }
        };
        self.jobs.into_iter().map(result).collect()
    }
}

/// Some libraries give each call of a collective operation its own tag, so a second attempt
/// ignores tags.
fn of_job(
    mut series: BTreeMap<SeriesKey, MessageSeries>,
    ranks: &BTreeSet<u32>,
    are_shared: &dyn Fn(u32, u32) -> bool,
) -> Result<Iterations, NoIterations> {
    series.values_mut().for_each(MessageSeries::sort);
    let mut found = match iterations::find(&series) {
        Err(NoIterations::NotRepeated | NoIterations::NotOrdered) => iterations::find(&series::without_tags(series)),
        with_tags => with_tags,
    }?;
    rotation::rotate(&mut found);
    let times = rank_times::rank_times(&found);
    let mut stragglers = stragglers::stragglers(&times);
    for straggler in &mut stragglers {
        let is_hidden = |rank: &&u32| !times.comparable.contains(rank) && are_shared(straggler.rank, **rank);
        straggler.or_ranks = ranks.iter().filter(is_hidden).copied().collect();
    }
    let mut waits = times.waits;
    waits.sort_by_key(|pair| (Reverse(pair.wait_ns), pair.waiting_rank, pair.for_rank));
    Ok(Iterations {
        count: found.repetitions,
        whole: found.count,
        messages: found.series.len() * found.repetitions,
        of_messages: found.of_messages,
        period_ns: found.period_ns,
        jitter_ns: found.jitter_ns,
        ranks: times.ranks,
        waits,
        compared: times.comparable.len(),
        stragglers,
    })
}
