//! Votes of connections for the connection whose requests they answer.

use crate::model::{Paged, clear_favourite};
use smallvec::SmallVec;

/// Partners that are counted per connection.
const MAX_PARTNERS: usize = 16;

/// Votes by number of the connection that answers: nearly all are for one or two.
#[derive(Debug, Default)]
pub(super) struct Ballot(Paged<SmallVec<[(u32, u32); 2]>>);

impl Ballot {
    /// A vote of one connection for another. Gives how many there are now, 0 where there is no room for one more candidate.
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
        if votes.len() == MAX_PARTNERS {
            return 0;
        }
        votes.push((candidate, 1));
        1
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
