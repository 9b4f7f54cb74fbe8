//! The communicators of a job, recognized from their messages.
//!
//! A message states its context id and the sender's rank in the communicator. Libraries use one
//! context id for several disjoint communicators (`MPI_Comm_split`), and reuse it after
//! `MPI_Comm_free`. Ranks that exchange messages under a context id belong to one communicator, as
//! long as no two of them have the same rank and none changes its rank. Ranks of one node exchange
//! no messages on the wire, so a communicator may show as several groups: `join_incomplete` joins
//! groups that cannot be communicators of their own.

use std::collections::BTreeMap;

/// A communicator: the world rank of each of its ranks, as far as known, and its messages.
#[derive(Clone, Debug, Default)]
pub(super) struct CommunicatorMembers {
    /// World ranks of the members, and their ranks in the communicator, if they sent a message.
    members: BTreeMap<u32, Option<u32>>,
    /// World ranks by rank in the communicator.
    numbered: BTreeMap<u32, u32>,
    /// Indices of its messages, in order.
    pub messages: Vec<usize>,
}

impl CommunicatorMembers {
    /// `MPI_COMM_WORLD` of `size` ranks.
    pub(super) fn world(size: u32) -> Self {
        Self {
            members: (0..size).map(|rank| (rank, Some(rank))).collect(),
            numbered: (0..size).map(|rank| (rank, rank)).collect(),
            messages: Vec::new(),
        }
    }

    /// World ranks by rank in the communicator; `None` where no member is known. Members that never
    /// sent a message follow only if one rank is left.
    pub(super) fn world_ranks(&self) -> Option<Vec<Option<u32>>> {
        let highest = self.numbered.keys().next_back().map_or(0, |rank| rank + 1);
        let size = highest.max(self.members.len() as u32);
        let mut ranks: Vec<Option<u32>> = (0..size).map(|rank| self.numbered.get(&rank).copied()).collect();
        let silent: Vec<u32> =
            self.members.iter().filter(|(_, rank)| rank.is_none()).map(|(&world, _)| world).collect();
        let free: Vec<usize> = (0..ranks.len()).filter(|&rank| ranks[rank].is_none()).collect();
        match (&silent[..], &free[..]) {
            ([], _) => Some(ranks),
            ([world], [rank]) => {
                ranks[*rank] = Some(*world);
                Some(ranks)
            }
            _ => None,
        }
    }

    /// Lowest world rank of its members.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.members.keys().next().copied()
    }

    /// Number of members that are known.
    pub(super) fn known(&self) -> usize {
        self.members.len()
    }

    /// Number of ranks below the highest one that are not known.
    fn gaps(&self) -> usize {
        self.numbered.keys().next_back().map_or(0, |rank| *rank as usize + 1) - self.numbered.len()
    }

    /// True if messages of both alternate.
    fn overlaps(&self, other: &Self) -> bool {
        let span = |own: &Self| Some((*own.messages.first()?, *own.messages.last()?));
        let (Some(own), Some(other)) = (span(self), span(other)) else { return false };
        own.0 < other.1 && other.0 < own.1
    }

    /// True if `other` is the same communicator or another part of it.
    fn agrees_with(&self, other: &Self) -> bool {
        other.numbered.iter().all(|(rank, world)| self.numbered.get(rank).is_none_or(|known| known == world))
            && other.members.iter().all(|(world, rank)| {
                let known = self.members.get(world).copied().flatten();
                rank.is_none() || known.is_none() || known == *rank
            })
    }

    fn merge(&mut self, mut other: Self) {
        if other.messages.len() > self.messages.len() {
            std::mem::swap(self, &mut other);
        }
        for (world, rank) in other.members {
            let known = self.members.entry(world).or_default();
            *known = known.or(rank);
        }
        self.numbered.extend(other.numbered);
        self.messages.extend(other.messages);
        self.messages.sort_unstable();
    }
}

/// The communicators of one context id.
#[derive(Clone, Debug, Default)]
pub(super) struct ContextCommunicators {
    communicators: Vec<CommunicatorMembers>,
    /// The communicator of each world rank at this time.
    current: BTreeMap<u32, usize>,
}

impl ContextCommunicators {
    /// Adds message `index` from world rank `src`, which is `rank` in its communicator, to world rank
    /// `dst`. Messages come in the order of time.
    pub(super) fn add(&mut self, index: usize, (src, dst): (u32, u32), rank: u32) {
        if let Some(number) = self.current.get(&src).filter(|number| self.current.get(&dst) == Some(number))
            && let Some(known) = self.communicators.get_mut(*number)
            && known.members.get(&src) == Some(&Some(rank))
        {
            known.messages.push(index);
            return;
        }
        let mut part = CommunicatorMembers {
            members: BTreeMap::from([(src, Some(rank)), (dst, None)]),
            numbered: BTreeMap::from([(rank, src)]),
            messages: vec![index],
        };
        for world in [src, dst] {
            let Some(number) = self.current.get(&world).copied() else { continue };
            let Some(known) = self.communicators.get_mut(number) else { continue };
            let known = std::mem::take(known);
            if known.agrees_with(&part) {
                part.merge(known);
            } else {
                // Another communicator with the same context id: the one before it ended.
                self.current.retain(|_, other| *other != number);
                self.communicators[number] = known;
            }
        }
        let number = self.communicators.len();
        self.current.extend(part.members.keys().map(|&world| (world, number)));
        self.communicators.push(part);
    }

    /// The communicators of a job of `size` ranks, in the order of their first messages.
    pub(super) fn into_communicators(self, size: u32) -> Vec<CommunicatorMembers> {
        let mut communicators: Vec<CommunicatorMembers> =
            self.communicators.into_iter().filter(|communicator| !communicator.messages.is_empty()).collect();
        communicators.sort_by_key(|communicator| communicator.messages.first().copied());
        join_incomplete(&mut communicators, size);
        communicators
    }
}

/// Joins two groups of members that communicate at the same time if one cannot be a communicator of
/// its own: the ranks of a communicator have no gaps, a process has at most one communicator of a
/// context id at a time, and the job has too few other processes to fill the gaps. Together, both
/// have to be complete.
fn join_incomplete(communicators: &mut Vec<CommunicatorMembers>, size: u32) {
    let mut at = 0;
    while let Some(own) = communicators.get(at) {
        let overlapping =
            || (0..communicators.len()).filter(|&other| other != at && own.overlaps(&communicators[other]));
        let claimed = own.known() + overlapping().map(|other| communicators[other].known()).sum::<usize>();
        let free = (size as usize).saturating_sub(claimed);
        let mut completing = overlapping().filter(|&index| {
            let other = &communicators[index];
            let is_complete = own.numbered.len() + other.numbered.len()
                == own.numbered.keys().chain(other.numbered.keys()).max().map_or(0, |rank| *rank as usize + 1);
            is_complete
                && other.numbered.keys().all(|rank| !own.numbered.contains_key(rank))
                && other.members.keys().all(|world| !own.members.contains_key(world))
        });
        match (completing.next(), completing.next()) {
            (Some(other), None) if own.gaps() > free => {
                let (first, second) = (at.min(other), at.max(other));
                let part = communicators.remove(second);
                communicators[first].merge(part);
                at = first;
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of two pairs at the same time, as world ranks and ranks in the communicator, and the
    /// members of the communicators that they belong to.
    fn members(pairs: [[(u32, u32); 2]; 2], size: u32) -> Vec<Vec<u32>> {
        let mut context = ContextCommunicators::default();
        let mut index = 0;
        for _ in 0..2 {
            for [one, other] in pairs {
                for (src, dst) in [(one, other), (other, one)] {
                    context.add(index, (src.0, dst.0), src.1);
                    index += 1;
                }
            }
        }
        let found = context.into_communicators(size);
        assert_eq!(found.iter().map(|own| own.messages.len()).sum::<usize>(), index);
        found.iter().map(|own| own.members.keys().copied().collect()).collect()
    }

    /// Ranks 0 and 1 share a node, and ranks 2 and 3.
    #[test]
    fn groups_of_one_communicator_are_joined() {
        let pairs = [[(0, 0), (2, 2)], [(1, 1), (3, 3)]];
        assert_eq!(members(pairs, 4), [vec![0, 1, 2, 3]]);
        // Four other processes may be the missing ranks of both groups.
        assert_eq!(members(pairs, 8), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn communicators_of_a_split_are_not_joined() {
        assert_eq!(members([[(0, 0), (2, 1)], [(1, 0), (3, 1)]], 4), [vec![0, 2], vec![1, 3]]);
    }
}
