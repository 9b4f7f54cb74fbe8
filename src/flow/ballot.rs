//! Pairs the two directions of connections by votes: a vote states that one connection carries the
//! responses to the requests of another.

use crate::model::{PagedVec, clear_favorite};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Candidates counted per connection. A further candidate replaces the one with the fewest votes
/// and continues from its count (Metwally et al., *Space Saving*). So no count is too low, no
/// candidate looks clearer than it is, and a candidate with more than one vote in `MAX_PARTNERS` is
/// kept in the end.
const MAX_PARTNERS: usize = 16;

/// Responses that come before the request that they would respond to, from which on a candidate may be
/// refuted. Captures may exchange a few packets.
const MIN_EARLY: u16 = 2;
/// A candidate is refuted if more than one response in this number comes too early.
const EARLY_RATIO: u32 = 8;

/// The votes of all responding connections.
#[derive(Debug, Default)]
pub(super) struct Ballot {
    /// By number of the responding connection. Nearly all connections vote for one or two candidates.
    votes: PagedVec<SmallVec<[CandidateVotes; 2]>>,
    /// Pairs of a candidate and a connection that has votes for it. Most captures never need this
    /// index: the first search builds it, and further votes update it.
    responders: Option<BTreeSet<(u32, u32)>>,
}

/// The votes of a responding connection for one candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateVotes {
    pub(super) candidate: u32,
    pub(super) votes: u32,
    /// Responses before the request that they would respond to. Further ones count only after another
    /// request of the candidate: a lost READ request has many responses.
    early: u16,
    last_request: u32,
}

impl CandidateVotes {
    const fn new(candidate: u32, votes: u32) -> Self {
        Self { candidate, votes, early: 0, last_request: u32::MAX }
    }

    /// True if the responses belong to another connection, which the capture may miss.
    pub(super) const fn is_refuted(&self) -> bool {
        self.early >= MIN_EARLY && self.early as u32 * EARLY_RATIO > self.votes
    }
}

impl Ballot {
    /// Adds a vote of a responding connection for a candidate. Returns the candidate's votes, 0 if it is
    /// refuted.
    pub(super) fn vote(&mut self, connection: u32, candidate: u32) -> u32 {
        let index = connection as usize;
        while index >= self.votes.len() {
            self.votes.push(SmallVec::new());
        }
        let votes = &mut self.votes[index];
        if let Some(own) = votes.iter_mut().find(|own| own.candidate == candidate) {
            own.votes += 1;
            return if own.is_refuted() { 0 } else { own.votes };
        }
        if let Some(responders) = &mut self.responders {
            responders.insert((candidate, connection));
        }
        if votes.len() < MAX_PARTNERS {
            votes.push(CandidateVotes::new(candidate, 1));
            return 1;
        }
        let Some(fewest) = votes.iter_mut().min_by_key(|own| own.votes) else { return 0 };
        if let Some(responders) = &mut self.responders {
            responders.remove(&(fewest.candidate, connection));
        }
        *fewest = CandidateVotes::new(candidate, fewest.votes + 1);
        fewest.votes
    }

    /// The connections that have votes for a candidate, in ascending order.
    pub(super) fn responders(&mut self, candidate: u32) -> impl Iterator<Item = u32> + '_ {
        let votes = &self.votes;
        let responders = self.responders.get_or_insert_with(|| {
            let pairs = votes.iter().zip(0..).flat_map(|(own, id)| own.iter().map(move |own| (own.candidate, id)));
            pairs.collect()
        });
        responders.range((candidate, 0)..=(candidate, u32::MAX)).map(|(_, connection)| *connection)
    }

    /// Notes a response that comes before the request of some candidates: `last_request` is the PSN of
    /// the last request that such a candidate has sent.
    pub(super) fn note_early(&mut self, connection: u32, last_request: impl Fn(u32) -> Option<u32>) {
        for own in self.votes.get_mut(connection as usize).into_iter().flatten() {
            if let Some(last) = last_request(own.candidate).filter(|last| *last != own.last_request) {
                own.early = own.early.saturating_add(1);
                own.last_request = last;
            }
        }
    }

    /// All candidates of a connection with their votes.
    pub(super) fn all(&self, connection: u32) -> &[CandidateVotes] {
        self.votes.get(connection as usize).map_or(&[], SmallVec::as_slice)
    }

    /// Candidates of a connection that are not refuted, with their votes.
    pub(super) fn votes(&self, connection: u32) -> impl Iterator<Item = (u32, u32)> + Clone + '_ {
        self.all(connection).iter().filter(|own| !own.is_refuted()).map(|own| (own.candidate, own.votes))
    }

    /// The connection whose requests this one responds to, if the votes are clear by now.
    pub(super) fn partner(&self, connection: u32) -> Option<u32> {
        clear_favorite(self.votes(connection).map(|(partner, count)| (partner, u64::from(count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!((at.all(0).len(), at.partner(0)), (MAX_PARTNERS, Some(MAX_PARTNERS as u32)));
        let beyond = last_of(MAX_PARTNERS + 1);
        assert_eq!((beyond.all(0).len(), beyond.partner(0)), (MAX_PARTNERS, Some(MAX_PARTNERS as u32 + 1)));
    }

    /// An early candidate and one that arrives when the list is full, with two votes each.
    #[test]
    fn a_partner_beyond_the_bound_still_counts_against_the_others() {
        let mut ballot = Ballot::default();
        let late = MAX_PARTNERS as u32 + 1;
        (1..late).chain([1, late, 1, late]).for_each(|candidate| _ = ballot.vote(0, candidate));
        assert_eq!(ballot.partner(0), None);
    }

    /// Of two candidates with equal votes, one had not sent a quarter of the requests.
    #[test]
    fn a_candidate_whose_requests_come_after_the_responses_is_refuted() {
        let mut ballot = Ballot::default();
        for response in 0..8 {
            [5, 7].into_iter().for_each(|candidate| _ = ballot.vote(0, candidate));
            // Several responses after the same request count once.
            (0..3).for_each(|_| ballot.note_early(0, |candidate| (candidate == 5).then_some(response / 4)));
            let expected = if response >= 4 { Some(7) } else { None };
            assert_eq!(ballot.partner(0), expected, "after response {response}");
        }
        // Exactly one in eight is too few.
        (0..8).flat_map(|_| [5, 7]).for_each(|candidate| _ = ballot.vote(0, candidate));
        assert_eq!(ballot.partner(0), None);
    }

    /// A search for responders visits only the connections with votes for the candidate.
    #[test]
    fn a_search_visits_the_voters_of_a_candidate_only() {
        let connections = 10_000;
        let mut ballot = Ballot::default();
        for connection in 0..connections {
            ballot.vote(connection, connection ^ 1);
            ballot.vote(connection, connection ^ 1);
        }
        let visited: usize = (0..connections).map(|candidate| ballot.responders(candidate).count()).sum();
        assert_eq!(visited, connections as usize);
    }

    proptest! {
        /// Compares the index with a search of all connections, before and after it exists. The
        /// candidates are more than are counted per connection.
        #[test]
        fn the_index_has_the_responders_of_a_full_search(
            votes in prop::collection::vec((0u32..6, 0u32..2 * MAX_PARTNERS as u32), 1..300),
            first_search in 0usize..300,
        ) {
            let mut ballot = Ballot::default();
            for (index, (connection, candidate)) in votes.into_iter().enumerate() {
                ballot.vote(connection, candidate);
                for candidate in (0..2 * MAX_PARTNERS as u32).filter(|_| index >= first_search) {
                    let has_votes = |id: &u32| ballot.all(*id).iter().any(|own| own.candidate == candidate);
                    let expected: Vec<u32> = (0..6).filter(has_votes).collect();
                    prop_assert_eq!(ballot.responders(candidate).collect::<Vec<u32>>(), expected);
                }
            }
        }
    }
}
