//! Ranks of processes that never speak on `MPI_COMM_WORLD` where it can be seen: told by other communicators.
//!
//! From one port of many, a neighbour may be seen on a duplicate of `MPI_COMM_WORLD` or on a Cartesian communicator alone. Where every
//! process whose world rank is known speaks on such a communicator, under its world rank, the others are taken to do the same:
//!
//! ```text
//!             world    context 6
//! 10.77.0.1   0        0            known, and the same
//! 10.77.0.2   1        1            known, and the same
//! 10.77.0.3   -        2            rank 2, evidence "communicator"
//! ```
//! It takes two known processes, so that neither a reversed communicator nor one half of a split one passes; and one process that is
//! seen and does not speak there is enough to believe nothing. It is an inference all the same, and is marked as one.

use super::component::{Evidence, Rank, Votes};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Known processes that a communicator must hold under their world ranks.
const ENOUGH: usize = 2;
/// Envelopes that must name the rank.
const ENVELOPES: u64 = 3;

/// A process of a job: its ports, what its messages show, and its rank where that is known.
pub(super) struct Member<'a> {
    pub(super) ports: &'a BTreeSet<Endpoint>,
    pub(super) votes: &'a Votes,
    pub(super) rank: Option<u32>,
}

/// The ranks of members that have none, where communicators show them: by position in the list.
pub(super) fn infer(members: &[Member<'_>]) -> Vec<(usize, Rank)> {
    // Without those that say nothing at all: a queue pair may only ever receive.
    let speaks = |member: &&Member<'_>| member.rank.is_some() || !member.votes.elsewhere.is_empty();
    let seen: Vec<(Option<u32>, &Votes)> =
        members.iter().filter(speaks).map(|member| (member.rank, member.votes)).collect();
    let contexts = like_world(&seen);
    let mut taken: BTreeMap<u32, BTreeSet<Endpoint>> = BTreeMap::new();
    for member in members {
        if let Some(rank) = member.rank {
            taken.entry(rank).or_default().extend(member.ports);
        }
    }
    let infer = |(at, member): (usize, &Member<'_>)| {
        let (rank, agreeing) = rank_on(member.votes, &contexts)?;
        // A rank that is known is at one place, where it may have more queue pairs.
        let is_elsewhere = taken.get(&rank).is_some_and(|ports| ports.is_disjoint(member.ports));
        let is_free = !is_elsewhere && member.votes.envelopes.is_empty() && member.votes.stated.is_empty();
        is_free.then_some((at, Rank { rank, agreeing, disagreeing: 0, evidence: Evidence::Communicator }))
    };
    members.iter().enumerate().filter(|(_, member)| member.rank.is_none()).filter_map(infer).collect()
}

/// Context ids on which processes have their world rank, as far as the known ones say; `None`: a process without a world rank.
fn like_world(seen: &[(Option<u32>, &Votes)]) -> BTreeSet<u32> {
    let known: BTreeSet<u32> = seen.iter().filter_map(|(rank, _)| *rank).collect();
    let unknown = seen.iter().filter(|(rank, _)| rank.is_none()).count();
    let mut contexts: BTreeMap<u32, OnContext> = BTreeMap::new();
    for (world_rank, votes) in seen {
        let entries: Vec<(u32, u32)> = votes.elsewhere.keys().copied().collect();
        for entries in entries.chunk_by(|a, b| a.0 == b.0) {
            let (context, rank) = entries[0];
            let on = contexts.entry(context).or_default();
            match world_rank {
                _ if entries.len() > 1 => on.differs = true,
                Some(world_rank) if *world_rank == rank => _ = on.found.insert(rank),
                Some(_) => on.differs = true,
                None => on.unknown += 1,
            }
        }
    }
    // Known queue pairs of a rank need not all speak there: the rank must. An unknown process must.
    let is_like_world =
        |on: &OnContext| !on.differs && on.unknown == unknown && on.found.len() >= ENOUGH && on.found == known;
    contexts.into_iter().filter(|(_, on)| is_like_world(on)).map(|(context, _)| context).collect()
}

/// Who speaks on a context.
#[derive(Default)]
struct OnContext {
    /// World ranks of those who have them there too.
    found: BTreeSet<u32>,
    /// Processes without a world rank.
    unknown: usize,
    /// Somebody has another rank there, or several.
    differs: bool,
}

/// The rank that a process has on those contexts, and how many envelopes name it; `None` where it has none or several.
fn rank_on(votes: &Votes, contexts: &BTreeSet<u32>) -> Option<(u32, u64)> {
    let mut ranks: BTreeMap<u32, u64> = BTreeMap::new();
    for ((_, rank), count) in votes.elsewhere.iter().filter(|((context, _), _)| contexts.contains(context)) {
        *ranks.entry(*rank).or_default() += count;
    }
    match ranks.into_iter().collect::<Vec<_>>()[..] {
        [(rank, count)] if count >= ENVELOPES => Some((rank, count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(elsewhere: &[(u32, u32)]) -> Votes {
        Votes { elsewhere: elsewhere.iter().map(|place| (*place, 5)).collect(), ..Votes::default() }
    }

    #[test]
    fn a_duplicate_of_the_world_names_the_rest() {
        let (zero, one, two) = (process(&[(6, 0)]), process(&[(6, 1), (9, 0)]), process(&[(6, 2), (9, 1)]));
        let contexts = like_world(&[(Some(0), &zero), (Some(1), &one), (None, &two)]);
        assert_eq!(contexts, BTreeSet::from([6]));
        assert_eq!(rank_on(&two, &contexts), Some((2, 5)));
        assert_eq!(rank_on(&process(&[(9, 1)]), &contexts), None);
        assert_eq!(rank_on(&process(&[(6, 2), (6, 3)]), &contexts), None);
    }

    #[test]
    fn other_communicators_name_nobody() {
        let (zero, one, two) =
            (process(&[(3, 2), (4, 0), (5, 0)]), process(&[(3, 1), (4, 0), (5, 1)]), process(&[(4, 1)]));
        // 3 is reversed, 4 are the even and the odd ranks under one id, 5 leaves rank 2 out.
        let known = [(Some(0), &zero), (Some(1), &one), (Some(2), &two)];
        assert_eq!(like_world(&known), BTreeSet::new());
        assert_eq!(like_world(&known[..1]), BTreeSet::new(), "one process is not enough");
    }

    /// The world ranks 0, 1 and 3 are 0, 1 and 2 on context 3; world rank 2 is seen on another one.
    #[test]
    fn a_process_that_is_seen_and_is_not_there_is_a_warning() {
        let (zero, one) = (process(&[(3, 0), (4, 0)]), process(&[(3, 1), (4, 1)]));
        let (third, absent) = (process(&[(3, 2)]), process(&[(4, 2)]));
        let seen = [(Some(0), &zero), (Some(1), &one), (None, &third), (None, &absent)];
        assert_eq!(like_world(&seen), BTreeSet::new());
    }
}
