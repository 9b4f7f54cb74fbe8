//! The requests from one endpoint to another that wait for a response: PSN and connection of each.
//!
//! A large fabric has about as many pairs of endpoints as connections, with few requests each. A
//! list therefore stores the requests of a pair until it is too long; then a map stores them.

use crate::model::HashMap;
use smallvec::SmallVec;

/// Connections that may wait for a response with the same PSN.
const MAX_CONNECTIONS_PER_PSN: usize = 16;
/// Maximum number of PSNs in a map. At this limit the map is cleared: so many waiting requests show
/// that the capture does not hold the responses.
const MAX_PSNS: usize = 1 << 12;
/// Requests at which a list becomes a map, and at which a map becomes a list.
const MAX_LISTED: usize = 32;
const FEW_LISTED: usize = 8;

/// Placeholder for a response that one of several waiting connections has received. When there are as many
/// of them as connections, none of these waits any longer.
const ANSWERED: u32 = u32::MAX;

/// Connections in the order of their requests; a removed one is replaced by the last.
pub(super) type Candidates = SmallVec<[u32; 4]>;

/// The waiting requests of one direction.
#[derive(Debug)]
pub(super) enum PendingRequests {
    /// PSN and connection; requests with the same PSN are in the order of their arrival.
    List(SmallVec<[(u32, u32); 2]>),
    Map(Box<PsnMap>),
}

/// Connections by PSN.
#[derive(Debug, Default)]
pub(super) struct PsnMap(HashMap<u32, Vec<u32>>);

impl Default for PendingRequests {
    fn default() -> Self {
        Self::List(SmallVec::new())
    }
}

impl PendingRequests {
    /// Adds a request.
    pub(super) fn add(&mut self, psn: u32, connection: u32) {
        if let Self::List(list) = self
            && list.len() >= MAX_LISTED
        {
            let mut map = PsnMap::default();
            list.iter().for_each(|(psn, connection)| map.0.entry(*psn).or_default().push(*connection));
            *self = Self::Map(Box::new(map));
        }
        match self {
            Self::List(list) => {
                let same = || list.iter().filter(|(other, of)| *other == psn && *of != ANSWERED);
                if same().count() < MAX_CONNECTIONS_PER_PSN && !same().any(|(_, other)| *other == connection) {
                    if list.len() == list.capacity() {
                        list.reserve_exact(list.len() / 2);
                    }
                    list.push((psn, connection));
                }
            }
            Self::Map(map) => {
                if map.0.len() >= MAX_PSNS {
                    map.0.clear();
                }
                let connections = map.0.entry(psn).or_default();
                let count = connections.iter().filter(|of| **of != ANSWERED).count();
                if count < MAX_CONNECTIONS_PER_PSN && !connections.contains(&connection) {
                    connections.push(connection);
                }
            }
        }
    }

    /// The connections that wait for a response with this PSN.
    pub(super) fn of(&self, psn: u32) -> Candidates {
        self.entries(psn).filter(|connection| *connection != ANSWERED).collect()
    }

    fn entries(&self, psn: u32) -> impl Iterator<Item = u32> + '_ {
        let (list, map) = match self {
            Self::List(list) => (&list[..], None),
            Self::Map(map) => (&[][..], map.0.get(&psn)),
        };
        let listed = list.iter().filter(move |(other, _)| *other == psn).map(|(_, connection)| *connection);
        listed.chain(map.into_iter().flatten().copied())
    }

    /// Removes a connection that has its response; the last one with this PSN takes its place.
    pub(super) fn remove(&mut self, psn: u32, index: usize) {
        match self {
            Self::List(list) => {
                let is_waiting = |at: &usize| list[*at].0 == psn && list[*at].1 != ANSWERED;
                let mut same = (0..list.len()).filter(is_waiting).skip(index);
                let Some(at) = same.next() else { return };
                let last = same.last().unwrap_or(at);
                list[at] = list[last];
                list.remove(last);
            }
            Self::Map(map) => {
                let Some(connections) = map.0.get_mut(&psn) else { return };
                let mut same = (0..connections.len()).filter(|at| connections[*at] != ANSWERED).skip(index);
                let Some(at) = same.next() else { return };
                let last = same.last().unwrap_or(at);
                connections[at] = connections[last];
                connections.remove(last);
            }
        }
        self.remove_if_answered(psn);
    }

    /// One of the connections that wait for this PSN has its response, and nothing shows which one.
    pub(super) fn answer(&mut self, psn: u32) {
        match self {
            Self::List(list) => list.push((psn, ANSWERED)),
            Self::Map(map) => map.0.entry(psn).or_default().push(ANSWERED),
        }
        self.remove_if_answered(psn);
    }

    /// Removes the connections of this PSN if all of them have their responses.
    fn remove_if_answered(&mut self, psn: u32) {
        let answered = self.entries(psn).filter(|connection| *connection == ANSWERED).count();
        if answered < self.entries(psn).count() - answered {
            return;
        }
        match self {
            Self::List(list) => list.retain(|(other, _)| *other != psn),
            Self::Map(map) => _ = map.0.remove(&psn),
        }
    }

    /// Removes all requests of a connection.
    pub(super) fn forget(&mut self, connection: u32) {
        match self {
            Self::List(list) => {
                let psns: SmallVec<[u32; 8]> =
                    list.iter().filter(|(_, other)| *other == connection).map(|(psn, _)| *psn).collect();
                list.retain(|(_, other)| *other != connection);
                psns.into_iter().for_each(|psn| self.remove_if_answered(psn));
                if let Self::List(list) = self {
                    list.shrink_to_fit();
                }
            }
            Self::Map(map) => {
                let PsnMap(map) = &mut **map;
                map.retain(|_, connections| {
                    connections.retain(|other| *other != connection);
                    let answered = connections.iter().filter(|other| **other == ANSWERED).count();
                    answered < connections.len() - answered
                });
                if map.values().map(Vec::len).sum::<usize>() <= FEW_LISTED {
                    let of_psn = |(psn, all): (u32, Vec<u32>)| all.into_iter().map(move |connection| (psn, connection));
                    *self = Self::List(std::mem::take(map).into_iter().flat_map(of_psn).collect());
                } else {
                    map.shrink_to_fit();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, Debug)]
    enum WaitingStep {
        Add(u32, u32),
        Remove(u32, usize),
        Answer(u32),
        Forget(u32),
    }

    fn step() -> impl Strategy<Value = WaitingStep> {
        prop_oneof![
            8 => (0u32..12, 0u32..24).prop_map(|(psn, connection)| WaitingStep::Add(psn, connection)),
            3 => (0u32..12, 0usize..20).prop_map(|(psn, index)| WaitingStep::Remove(psn, index)),
            2 => (0u32..12).prop_map(WaitingStep::Answer),
            1 => (0u32..24).prop_map(WaitingStep::Forget),
        ]
    }

    proptest! {
        /// List and map give the same connections, in the same order, as a tree of lists.
        #[test]
        fn a_list_and_a_map_return_the_same_connections(steps in prop::collection::vec(step(), 0..160)) {
            let mut waiting = PendingRequests::default();
            let mut tree: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            let mut answered: BTreeMap<u32, usize> = BTreeMap::new();
            for step in steps {
                match step {
                    WaitingStep::Add(psn, connection) => {
                        waiting.add(psn, connection);
                        let all = tree.entry(psn).or_default();
                        if all.len() < MAX_CONNECTIONS_PER_PSN && !all.contains(&connection) {
                            all.push(connection);
                        }
                    }
                    WaitingStep::Remove(psn, index) => {
                        waiting.remove(psn, index);
                        let all = tree.entry(psn).or_default();
                        if index < all.len() {
                            all.swap_remove(index);
                        }
                    }
                    WaitingStep::Answer(psn) => {
                        waiting.answer(psn);
                        *answered.entry(psn).or_default() += 1;
                    }
                    WaitingStep::Forget(connection) => {
                        waiting.forget(connection);
                        tree.values_mut().for_each(|all| all.retain(|other| *other != connection));
                    }
                }
                for (psn, all) in &mut tree {
                    if answered.get(psn).is_some_and(|count| *count >= all.len()) {
                        all.clear();
                        answered.remove(psn);
                    }
                }
                answered.retain(|psn, _| tree.get(psn).is_some_and(|all| !all.is_empty()));
                for psn in 0..12 {
                    prop_assert_eq!(waiting.of(psn).to_vec(), tree.get(&psn).cloned().unwrap_or_default());
                }
            }
        }
    }

    /// One connection beyond the limit per PSN is not kept.
    #[test]
    fn connections_that_wait_for_one_psn_are_bounded() {
        for others in [0, MAX_LISTED as u32] {
            let mut waiting = PendingRequests::default();
            (0..others).for_each(|psn| waiting.add(100 + psn, 0));
            (0..=MAX_CONNECTIONS_PER_PSN as u32).for_each(|connection| waiting.add(7, connection));
            assert_eq!(waiting.of(7).to_vec(), (0..MAX_CONNECTIONS_PER_PSN as u32).collect::<Vec<_>>());
        }
    }

    /// A list that becomes a map keeps all requests.
    #[test]
    fn a_full_list_becomes_a_map_without_loss() {
        let mut waiting = PendingRequests::default();
        for psn in 0..=MAX_LISTED as u32 {
            waiting.add(psn, psn % 2);
            assert_eq!(matches!(waiting, PendingRequests::Map(_)), psn as usize == MAX_LISTED);
        }
        assert!((0..=MAX_LISTED as u32).all(|psn| waiting.of(psn).to_vec() == [psn % 2]));
    }

    #[test]
    fn one_psn_more_than_may_wait_drops_all() {
        let mut waiting = PendingRequests::default();
        (0..MAX_PSNS as u32).for_each(|psn| waiting.add(psn, 7));
        assert!((0..MAX_PSNS as u32).all(|psn| waiting.of(psn).to_vec() == [7]));
        waiting.add(MAX_PSNS as u32, 7);
        // The dropped requests match no response, so no response votes for a wrong connection.
        assert!((0..MAX_PSNS as u32).all(|psn| waiting.of(psn).is_empty()));
        assert_eq!(waiting.of(MAX_PSNS as u32).to_vec(), [7]);
    }

    #[test]
    fn without_responses_the_waiting_requests_are_bounded() {
        let mut waiting = PendingRequests::default();
        for psn in 0..3 * MAX_PSNS as u32 {
            waiting.add(psn, 7);
            assert!(
                matches!(&waiting, PendingRequests::Map(map) if map.0.len() <= MAX_PSNS) || psn < MAX_LISTED as u32
            );
        }
        assert_eq!(waiting.of(3 * MAX_PSNS as u32 - 1).to_vec(), [7]);
        waiting.forget(7);
        assert!(matches!(waiting, PendingRequests::List(list) if list.is_empty()));
    }
}
