//! Pairs the two directions of connections by votes: a vote states that one connection carries the
//! responses to the requests of another.

use crate::model::{PagedVec, clear_favorite};
use smallvec::SmallVec;

/// Candidates counted per connection. A further candidate replaces the one with the fewest votes
/// and continues from its count (Metwally et al., *Space Saving*). So no count is too low, no
/// candidate looks clearer than it is, and a candidate with more than one vote in `MAX_PARTNERS` is
/// kept in the end.
const MAX_PARTNERS: usize = 16;

/// Votes as (candidate, count), by number of the responding connection. Nearly all connections vote
/// for one or two candidates.
#[derive(Debug, Default)]
pub(super) struct Ballot(PagedVec<SmallVec<[(u32, u32); 2]>>);

impl Ballot {
    /// Adds a vote of a responding connection for a candidate. Returns the candidate's votes.
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

    /// Candidates of a connection with their votes.
    pub(super) fn votes(&self, connection: u32) -> &[(u32, u32)] {
        self.0.get(connection as usize).map_or(&[], SmallVec::as_slice)
    }

    /// The connection whose requests this one responds to, if the votes are clear by now.
    pub(super) fn partner(&self, connection: u32) -> Option<u32> {
        clear_favorite(self.votes(connection).iter().map(|&(partner, count)| (partner, u64::from(count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One vote for each candidate, then two more for the last one.
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

    /// An early candidate and one that arrives when the list is full, with two votes each.
    #[test]
    fn a_partner_without_a_place_still_speaks_against_the_others() {
        let mut ballot = Ballot::default();
        let late = MAX_PARTNERS as u32 + 1;
        (1..late).chain([1, late, 1, late]).for_each(|candidate| _ = ballot.vote(0, candidate));
        assert_eq!(ballot.partner(0), None);
    }
}
