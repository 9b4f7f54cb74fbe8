//! Pairs the two directions of a connection by request numbers that the receiver returns.
//!
//! A ready-to-send carries the sender's request number, and the receiver's reply (clear-to-send or
//! done) returns it. The reply comes on the other direction of the same connection, or at least
//! from the same process.

use super::ballot::Ballot;
use crate::model::HashMap;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::MpiMessageId;

/// Request numbers that may wait for a reply. When there are more, all are dropped: their replies
/// were not captured.
const MAX_WAITING: usize = 1 << 12;
/// Connections that may wait with the same request number.
const MAX_NAMESAKES: usize = 16;

/// Waiting requests, and votes for the other direction of connections.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// Connections by sender, receiver and request number. Processes of one node may use the same
    /// numbers.
    waiting: HashMap<(Endpoint, Endpoint, MpiMessageId), Vec<u32>>,
    ballot: Ballot,
}

impl Echoes {
    /// Notes a request whose number a reply will repeat.
    pub(super) fn request(&mut self, (src, dst): (Endpoint, Endpoint), name: MpiMessageId, connection: u32) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.clear();
        }
        let connections = self.waiting.entry((src, dst, name)).or_default();
        if connections.len() < MAX_NAMESAKES && !connections.contains(&connection) {
            connections.push(connection);
        }
    }

    /// Takes the reply to a request, from its receiver: one vote for each connection that waits for
    /// it.
    pub(super) fn reply(&mut self, (src, dst): (Endpoint, Endpoint), name: MpiMessageId, connection: u32) {
        let Some(candidates) = self.waiting.get(&(dst, src, name)) else { return };
        for candidate in candidates {
            self.ballot.vote(connection, *candidate);
        }
    }

    /// The votes of the replying connections.
    pub(super) const fn ballot(&self) -> &Ballot {
        &self.ballot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Lid;

    const REPLYING: u32 = 1 << 20;

    fn ends() -> (Endpoint, Endpoint) {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn reply(echoes: &mut Echoes, number: u64) {
        let (src, dst) = ends();
        echoes.reply((dst, src), MpiMessageId::SenderRequest(number), REPLYING);
    }

    #[test]
    fn one_request_more_than_may_wait_drops_all() {
        let waiting = |requests: u64| {
            let mut echoes = Echoes::default();
            (0..requests).for_each(|number| echoes.request(ends(), MpiMessageId::SenderRequest(number), number as u32));
            (0..requests).for_each(|number| reply(&mut echoes, number));
            echoes.ballot().votes(REPLYING).map(|(_, votes)| u64::from(votes)).sum::<u64>()
        };
        // Each reply votes once, or finds no request.
        let most = MAX_WAITING as u64;
        assert!(waiting(most) >= most / 16);
        assert_eq!(waiting(most + 1), 1);
    }

    #[test]
    fn connections_of_one_request_number_are_bounded() {
        for connections in [MAX_NAMESAKES as u32, MAX_NAMESAKES as u32 + 1] {
            let mut echoes = Echoes::default();
            (0..connections).for_each(|connection| echoes.request(ends(), MpiMessageId::SenderRequest(7), connection));
            reply(&mut echoes, 7);
            let votes: Vec<u32> = echoes.ballot().votes(REPLYING).map(|(voted, _)| voted).collect();
            assert_eq!(votes, (0..MAX_NAMESAKES as u32).collect::<Vec<_>>());
            // The candidates have equal votes, so none is chosen.
            assert_eq!(echoes.ballot().partner(REPLYING), None);
        }
    }
}
