//! Requests between two endpoints in one direction that wait for an answer: their PSNs, and the connections that each was sent on.
//!
//! There are as many pairs of endpoints as connections in a large fabric, with a few requests each, so these lie in a list; where they are more, in a map.

use crate::model::HashMap;
use smallvec::SmallVec;

/// Connections that can wait for an answer with the same PSN.
const MAX_WAITING: usize = 16;
/// PSNs that can wait. Beyond that all are forgotten: the answers were not captured.
const MAX_PSNS: usize = 1 << 12;
/// Requests in a list, and in a map that becomes one.
const MOST_LISTED: usize = 32;
const FEW_LISTED: usize = 8;

/// Connections in the order in which they came, but for those that took the place of one that has its answer.
pub(super) type Candidates = SmallVec<[u32; 4]>;

/// The requests of one direction.
#[derive(Debug)]
pub(super) enum Waiting {
    /// PSN and connection; those of the same PSN in their order.
    List(SmallVec<[(u32, u32); 2]>),
    Map(Box<Map>),
}

/// Connections by PSN.
#[derive(Debug, Default)]
pub(super) struct Map(HashMap<u32, Vec<u32>>);

impl Default for Waiting {
    fn default() -> Self {
        Self::List(SmallVec::new())
    }
}

impl Waiting {
    /// A request is sent.
    pub(super) fn add(&mut self, psn: u32, connection: u32) {
        if let Self::List(list) = self
            && list.len() >= MOST_LISTED
        {
            let mut map = Map::default();
            list.iter().for_each(|(psn, connection)| map.0.entry(*psn).or_default().push(*connection));
            *self = Self::Map(Box::new(map));
        }
        match self {
            Self::List(list) => {
                let same = || list.iter().filter(|(other, _)| *other == psn);
                if same().count() < MAX_WAITING && !same().any(|(_, other)| *other == connection) {
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
                if connections.len() < MAX_WAITING && !connections.contains(&connection) {
                    connections.push(connection);
                }
            }
        }
    }

    /// The connections that wait for an answer with this PSN.
    pub(super) fn of(&self, psn: u32) -> Candidates {
        match self {
            Self::List(list) => {
                list.iter().filter(|(other, _)| *other == psn).map(|(_, connection)| *connection).collect()
            }
            Self::Map(map) => map.0.get(&psn).map_or_else(SmallVec::new, |all| all.iter().copied().collect()),
        }
    }

    /// One of them has its answer; the last of them takes its place.
    pub(super) fn remove(&mut self, psn: u32, index: usize) {
        match self {
            Self::List(list) => {
                let mut same = (0..list.len()).filter(|&at| list[at].0 == psn).skip(index);
                let Some(at) = same.next() else { return };
                let last = same.last().unwrap_or(at);
                list[at] = list[last];
                list.remove(last);
            }
            Self::Map(map) => {
                let Some(connections) = map.0.get_mut(&psn).filter(|all| index < all.len()) else { return };
                connections.swap_remove(index);
                if connections.is_empty() {
                    map.0.remove(&psn);
                }
            }
        }
    }

    /// The requests of a connection wait no more.
    pub(super) fn forget(&mut self, connection: u32) {
        match self {
            Self::List(list) => {
                list.retain(|(_, other)| *other != connection);
                list.shrink_to_fit();
            }
            Self::Map(map) => {
                let Map(map) = &mut **map;
                map.retain(|_, connections| {
                    connections.retain(|other| *other != connection);
                    !connections.is_empty()
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
    enum Step {
        Add(u32, u32),
        Remove(u32, usize),
        Forget(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u32..12, 0u32..24).prop_map(|(psn, connection)| Step::Add(psn, connection)),
            3 => (0u32..12, 0usize..20).prop_map(|(psn, index)| Step::Remove(psn, index)),
            1 => (0u32..24).prop_map(Step::Forget),
        ]
    }

    proptest! {
        /// In a list or in a map: what a tree of lists would hold, in its order.
        #[test]
        fn a_list_and_a_map_are_alike(steps in prop::collection::vec(step(), 0..160)) {
            let mut waiting = Waiting::default();
            let mut tree: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Add(psn, connection) => {
                        waiting.add(psn, connection);
                        let all = tree.entry(psn).or_default();
                        if all.len() < MAX_WAITING && !all.contains(&connection) {
                            all.push(connection);
                        }
                    }
                    Step::Remove(psn, index) => {
                        waiting.remove(psn, index);
                        let all = tree.entry(psn).or_default();
                        if index < all.len() {
                            all.swap_remove(index);
                        }
                    }
                    Step::Forget(connection) => {
                        waiting.forget(connection);
                        tree.values_mut().for_each(|all| all.retain(|other| *other != connection));
                    }
                }
                for psn in 0..12 {
                    prop_assert_eq!(waiting.of(psn).to_vec(), tree.get(&psn).cloned().unwrap_or_default());
                }
            }
        }
    }

    /// The last connection of those that wait for one PSN is not remembered; an answer then votes for the others alone.
    #[test]
    fn connections_that_wait_for_one_psn_are_bounded() {
        for others in [0, MOST_LISTED as u32] {
            let mut waiting = Waiting::default();
            (0..others).for_each(|psn| waiting.add(100 + psn, 0));
            (0..=MAX_WAITING as u32).for_each(|connection| waiting.add(7, connection));
            assert_eq!(waiting.of(7).to_vec(), (0..MAX_WAITING as u32).collect::<Vec<_>>());
        }
    }

    /// What is in the list is in the map, and the other way round when few are left.
    #[test]
    fn a_full_list_becomes_a_map_without_loss() {
        let mut waiting = Waiting::default();
        for psn in 0..=MOST_LISTED as u32 {
            waiting.add(psn, psn % 2);
            assert_eq!(matches!(waiting, Waiting::Map(_)), psn as usize == MOST_LISTED);
        }
        assert!((0..=MOST_LISTED as u32).all(|psn| waiting.of(psn).to_vec() == [psn % 2]));
    }

    #[test]
    fn psns_beyond_those_that_can_wait_take_the_place_of_all() {
        let mut waiting = Waiting::default();
        (0..MAX_PSNS as u32).for_each(|psn| waiting.add(psn, 7));
        assert!((0..MAX_PSNS as u32).all(|psn| waiting.of(psn).to_vec() == [7]));
        waiting.add(MAX_PSNS as u32, 7);
        // No answer finds a wrong connection: the older requests have none.
        assert!((0..MAX_PSNS as u32).all(|psn| waiting.of(psn).is_empty()));
        assert_eq!(waiting.of(MAX_PSNS as u32).to_vec(), [7]);
    }

    #[test]
    fn without_answers_it_stays_bounded() {
        let mut waiting = Waiting::default();
        for psn in 0..3 * MAX_PSNS as u32 {
            waiting.add(psn, 7);
            assert!(matches!(&waiting, Waiting::Map(map) if map.0.len() <= MAX_PSNS) || psn < MOST_LISTED as u32);
        }
        assert_eq!(waiting.of(3 * MAX_PSNS as u32 - 1).to_vec(), [7]);
        waiting.forget(7);
        assert!(matches!(waiting, Waiting::List(list) if list.is_empty()));
    }
}
