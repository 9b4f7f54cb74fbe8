//! World ranks of processes that the captures show on other communicators only.
//!
//! A capture of one port may show a neighbor only on a duplicate of `MPI_COMM_WORLD` or on a
//! Cartesian communicator. If every process with a known world rank has the same rank on such a
//! communicator, the remaining processes are assumed to have it as well:
//!
//! ```text
//!             world    context 6
//! 10.77.0.1   0        0            known, equal
//! 10.77.0.2   1        1            known, equal
//! 10.77.0.3   -        2            rank 2, evidence "communicator"
//! ```
//! Two known processes are required, which excludes a reversed communicator and one half of a split
//! one. One process that sends messages but none on the communicator rules the communicator out.
//! Invariant: a rank from this module is marked as inferred.

use super::component::{Rank, RankEvidence, RankVotes};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum of known processes that have their world rank on the communicator.
const MIN_KNOWN_PROCESSES: usize = 2;
/// Minimum of envelopes that name the rank.
const MIN_ENVELOPES: u64 = 3;

/// A process of a job: its ports, its votes, and its rank if known.
pub(super) struct Member<'a> {
    pub(super) ports: &'a BTreeSet<Endpoint>,
    pub(super) votes: &'a RankVotes,
    pub(super) rank: Option<u32>,
}

/// Infers the ranks of members without one, by index in `members`.
pub(super) fn infer(members: &[Member<'_>]) -> Vec<(usize, Rank)> {
    // A queue pair that only receives has no votes and does not rule a communicator out.
    let has_votes = |member: &&Member<'_>| member.rank.is_some() || !member.votes.other_communicators.is_empty();
    let seen: Vec<(Option<u32>, &RankVotes)> =
        members.iter().filter(has_votes).map(|member| (member.rank, member.votes)).collect();
    let contexts = world_like_contexts(&seen);
    let mut taken: BTreeMap<u32, BTreeSet<Endpoint>> = BTreeMap::new();
    for member in members {
        if let Some(rank) = member.rank {
            taken.entry(rank).or_default().extend(member.ports);
        }
    }
    let infer = |(at, member): (usize, &Member<'_>)| {
        let (rank, agreeing) = rank_on(member.votes, &contexts)?;
        // A known rank lives at one place, where it may have more queue pairs.
        let is_elsewhere = taken.get(&rank).is_some_and(|ports| ports.is_disjoint(member.ports));
        let is_free = !is_elsewhere && member.votes.envelopes.is_empty() && member.votes.stated.is_empty();
        is_free.then_some((at, Rank { rank, agreeing, disagreeing: 0, evidence: RankEvidence::Communicator }))
    };
    members.iter().enumerate().filter(|(_, member)| member.rank.is_none()).filter_map(infer).collect()
}

/// Context ids on which all processes with a known world rank have the same rank. `None` marks a
/// process without a world rank.
fn world_like_contexts(seen: &[(Option<u32>, &RankVotes)]) -> BTreeSet<u32> {
    let known: BTreeSet<u32> = seen.iter().filter_map(|(rank, _)| *rank).collect();
    let unknown = seen.iter().filter(|(rank, _)| rank.is_none()).count();
    let mut contexts: BTreeMap<u32, ContextRanks> = BTreeMap::new();
    for (world_rank, votes) in seen {
        let entries: Vec<(u32, u32)> = votes.other_communicators.keys().copied().collect();
        for entries in entries.chunk_by(|a, b| a.0 == b.0) {
            let (context, rank) = entries[0];
            let on = contexts.entry(context).or_default();
            match world_rank {
                _ if entries.len() > 1 => on.differs = true,
                Some(world_rank) if *world_rank == rank => _ = on.matching.insert(rank),
                Some(_) => on.differs = true,
                None => on.unknown += 1,
            }
        }
    }
    // A rank may have queue pairs without messages on the communicator, so ranks are compared, not
    // processes. A process without a rank must have messages there.
    let is_like_world = |on: &ContextRanks| {
        !on.differs && on.unknown == unknown && on.matching.len() >= MIN_KNOWN_PROCESSES && on.matching == known
    };
    contexts.into_iter().filter(|(_, on)| is_like_world(on)).map(|(context, _)| context).collect()
}

/// The processes that send messages on a context.
#[derive(Default)]
struct ContextRanks {
    /// World ranks that are equal on the context.
    matching: BTreeSet<u32>,
    /// Number of processes without a world rank.
    unknown: usize,
    /// A process has a different rank on the context, or several.
    differs: bool,
}

/// The rank of a process on these contexts, and the number of envelopes that name it; `None` unless
/// there is exactly one.
fn rank_on(votes: &RankVotes, contexts: &BTreeSet<u32>) -> Option<(u32, u64)> {
    let mut ranks: BTreeMap<u32, u64> = BTreeMap::new();
    for ((_, rank), count) in votes.other_communicators.iter().filter(|((context, _), _)| contexts.contains(context)) {
        *ranks.entry(*rank).or_default() += count;
    }
    match ranks.into_iter().collect::<Vec<_>>()[..] {
        [(rank, count)] if count >= MIN_ENVELOPES => Some((rank, count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(elsewhere: &[(u32, u32)]) -> RankVotes {
        RankVotes { other_communicators: elsewhere.iter().map(|place| (*place, 5)).collect(), ..RankVotes::default() }
    }

    #[test]
    fn a_duplicate_of_the_world_gives_the_missing_ranks() {
        let (zero, one, two) = (process(&[(6, 0)]), process(&[(6, 1), (9, 0)]), process(&[(6, 2), (9, 1)]));
        let contexts = world_like_contexts(&[(Some(0), &zero), (Some(1), &one), (None, &two)]);
        assert_eq!(contexts, BTreeSet::from([6]));
        assert_eq!(rank_on(&two, &contexts), Some((2, 5)));
        assert_eq!(rank_on(&process(&[(9, 1)]), &contexts), None);
        assert_eq!(rank_on(&process(&[(6, 2), (6, 3)]), &contexts), None);
    }

    #[test]
    fn communicators_with_other_ranks_infer_nothing() {
        let (zero, one, two) =
            (process(&[(3, 2), (4, 0), (5, 0)]), process(&[(3, 1), (4, 0), (5, 1)]), process(&[(4, 1)]));
        // Context 3 is reversed; 4 is two communicators, of even and of odd ranks; 5 does not
        // contain rank 2.
        let known = [(Some(0), &zero), (Some(1), &one), (Some(2), &two)];
        assert_eq!(world_like_contexts(&known), BTreeSet::new());
        assert_eq!(world_like_contexts(&known[..1]), BTreeSet::new(), "one process is not enough");
    }

    /// World ranks 0, 1 and 3 are 0, 1 and 2 on context 3; world rank 2 appears on another context
    /// only.
    #[test]
    fn a_process_without_messages_on_it_rules_a_communicator_out() {
        let (zero, one) = (process(&[(3, 0), (4, 0)]), process(&[(3, 1), (4, 1)]));
        let (third, absent) = (process(&[(3, 2)]), process(&[(4, 2)]));
        let seen = [(Some(0), &zero), (Some(1), &one), (None, &third), (None, &absent)];
        assert_eq!(world_like_contexts(&seen), BTreeSet::new());
    }
}
