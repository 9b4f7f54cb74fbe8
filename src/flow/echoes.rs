//! Answers that repeat the number of a request: they pair the two directions of a connection, as acknowledgements do.
//!
//! A ready to send carries the sender's request number, and the receiver's answer (clear to send, done) repeats it. The
//! answer comes on the other direction of the same connection, or at least between the same processes.

use super::ballot::Ballot;
use crate::model::HashMap;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::Name;

/// Requests that may wait for their answer. Beyond that all are forgotten: the answers were not captured.
const MAX_WAITING: usize = 1 << 12;
/// Connections whose requests with the same number may wait.
const MAX_NAMESAKES: usize = 16;

/// Votes for the other direction of connections.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// Numbers of connections by sender, receiver and request: processes of one node may use the same numbers.
    waiting: HashMap<(Endpoint, Endpoint, Name), Vec<u32>>,
    ballot: Ballot,
}

impl Echoes {
    /// A request that will be repeated.
    pub(super) fn request(&mut self, (src, dst): (Endpoint, Endpoint), name: Name, connection: u32) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.clear();
        }
        let connections = self.waiting.entry((src, dst, name)).or_default();
        if connections.len() < MAX_NAMESAKES && !connections.contains(&connection) {
            connections.push(connection);
        }
    }

    /// An answer that repeats one, from its receiver: a vote for each connection that waits for it.
    pub(super) fn answer(&mut self, (src, dst): (Endpoint, Endpoint), name: Name, connection: u32) {
        let Some(candidates) = self.waiting.get(&(dst, src, name)) else { return };
        for candidate in candidates {
            self.ballot.vote(connection, *candidate);
        }
    }

    /// The votes of connections that answer.
    pub(super) const fn ballot(&self) -> &Ballot {
        &self.ballot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::Lid;

    const ANSWERING: u32 = 1 << 20;

    fn ends() -> (Endpoint, Endpoint) {
        (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
    }

    fn answer(echoes: &mut Echoes, number: u64) {
        let (src, dst) = ends();
        echoes.answer((dst, src), Name::Request(number), ANSWERING);
    }

    #[test]
    fn requests_beyond_those_that_may_wait_take_the_place_of_all() {
        let waiting = |requests: u64| {
            let mut echoes = Echoes::default();
            (0..requests).for_each(|number| echoes.request(ends(), Name::Request(number), number as u32));
            (0..requests).for_each(|number| answer(&mut echoes, number));
            echoes.ballot().votes(ANSWERING).iter().map(|(_, votes)| u64::from(*votes)).sum::<u64>()
        };
        // Each answer votes once, or finds nothing.
        let most = MAX_WAITING as u64;
        assert!(waiting(most) >= most / 16);
        assert_eq!(waiting(most + 1), 1);
    }

    #[test]
    fn connections_of_one_request_number_are_bounded() {
        for connections in [MAX_NAMESAKES as u32, MAX_NAMESAKES as u32 + 1] {
            let mut echoes = Echoes::default();
            (0..connections).for_each(|connection| echoes.request(ends(), Name::Request(7), connection));
            answer(&mut echoes, 7);
            let votes: Vec<u32> = echoes.ballot().votes(ANSWERING).iter().map(|(voted, _)| *voted).collect();
            assert_eq!(votes, (0..MAX_NAMESAKES as u32).collect::<Vec<_>>());
            // Which of them is meant is open.
            assert_eq!(echoes.ballot().partner(ANSWERING), None);
        }
    }
}
