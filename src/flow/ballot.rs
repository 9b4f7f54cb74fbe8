//! Votes of connections for the connection whose requests they answer.

use crate::model::{Paged, clear_favourite};
use smallvec::SmallVec;

/// Candidates that are counted per connection. Beyond that a new one takes the place of the one with the fewest votes, and
/// goes on from its count (Metwally et al., *Space Saving*): no count is too low, so none looks clearer than it is, and a
/// candidate with more than one vote in so many is among them in the end.
const MAX_PARTNERS: usize = 16;

/// Votes by number of the connection that answers: nearly all are for one or two.
#[derive(Debug, Default)]
pub(super) struct Ballot(Paged<SmallVec<[(u32, u32); 2]>>);

impl Ballot {
    /// A vote of one connection for another. Gives how many there are now.
    pub(super) fn vote(&mut self, connection: u32, candidate: u32) -> u32 {
        let index = connection as usize;
        while index >= self.0.len() {
            self.0.push(SmallVec::new());
        }
        let votes = &mut self.0[index];
        if let Some((_, count)) = votes.iter_mut().find(|(partner, _)| *partner == candidate) {
            *count += 1;
            return *count;
        }
        if votes.len() < MAX_PARTNERS {
            votes.push((candidate, 1));
            return 1;
        }
        let Some(fewest) = votes.iter_mut().min_by_key(|(_, count)| *count) else { return 0 };
        *fewest = (candidate, fewest.1 + 1);
        fewest.1
    }

    /// Numbers of connections in the other direction, and how often they were voted for.
    pub(super) fn votes(&self, connection: u32) -> &[(u32, u32)] {
        self.0.get(connection as usize).map_or(&[], SmallVec::as_slice)
    }

    /// The connection whose requests this one answers, if that is clear by now.
    pub(super) fn partner(&self, connection: u32) -> Option<u32> {
        clear_favourite(self.votes(connection).iter().map(|&(partner, count)| (partner, u64::from(count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One vote for each of so many others, then two more for the last of them.
    fn last_of(candidates: usize) -> Ballot {
        let mut ballot = Ballot::default();
        let last = candidates as u32;
        (1..=last).chain([last, last]).for_each(|candidate| _ = ballot.vote(0, candidate));
        ballot
    }

    #[test]
    fn of_more_partners_than_are_counted_the_favorite_stays() {
        let at = last_of(MAX_PARTNERS);
        assert_eq!((at.votes(0).len(), at.partner(0)), (MAX_PARTNERS, Some(MAX_PARTNERS as u32)));
        let beyond = last_of(MAX_PARTNERS + 1);
        assert_eq!((beyond.votes(0).len(), beyond.partner(0)), (MAX_PARTNERS, Some(MAX_PARTNERS as u32 + 1)));
    }

    /// An early candidate with two votes, and one that came too late for a place of its own with two as well.
    #[test]
    fn a_partner_without_a_place_still_speaks_against_the_others() {
        let mut ballot = Ballot::default();
        let late = MAX_PARTNERS as u32 + 1;
        (1..late).chain([1, late, 1, late]).for_each(|candidate| _ = ballot.vote(0, candidate));
        assert_eq!(ballot.partner(0), None);
    }
}
