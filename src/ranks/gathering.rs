//! Components, one after the other -> sets of those that belong together.
//!
//! A capture without connection messages has a component for each connection, and one of many small jobs has thousands of
//! sets. So the sets that a component may belong to are looked up by rank and port, and of two sets that are joined the
//! smaller one moves.

use super::component::Component;
use super::outline::{MAX_COMPARED, Outline};
use super::reading::Family;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::TagLayout;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs of sets that are compared with each other, because one component may belong to both. Beyond that the component
/// belongs to none.
const MAX_PAIRS: usize = 1 << 22;

/// A rank at a port, with the library that says so.
type Place = ((Family, TagLayout), u32, Endpoint);

/// Components that belong together.
#[derive(Debug)]
struct Set<'a> {
    outline: Outline,
    components: Vec<Component<'a>>,
    /// Number of the component that was added last.
    latest: usize,
}

/// Sets of components.
#[derive(Debug)]
pub(super) struct Gathering<'a> {
    /// `None` where a set has joined another one.
    sets: Vec<Option<Set<'a>>>,
    at: BTreeMap<Place, Vec<usize>>,
    added: usize,
    pairs_left: usize,
}

impl Default for Gathering<'_> {
    fn default() -> Self {
        Self { sets: Vec::new(), at: BTreeMap::new(), added: 0, pairs_left: MAX_PAIRS }
    }
}

fn places(outline: &Outline) -> impl Iterator<Item = Place> + Clone + '_ {
    outline.ports.iter().flat_map(|(rank, ports)| ports.iter().map(|port| (outline.key, *rank, *port)))
}

impl<'a> Gathering<'a> {
    /// Adds a component: to all sets that have a rank at a port in common with it and do not contradict it, which become
    /// one. Gives it back where these contradict each other or are too many to compare, and how many they are.
    pub(super) fn add(&mut self, outline: Outline, component: Component<'a>) -> Option<(Component<'a>, usize)> {
        let lists = places(&outline).filter_map(|place| self.at.get(&place));
        if let Some(crowd) = lists.clone().map(Vec::len).find(|count| *count > MAX_COMPARED) {
            return Some((component, crowd));
        }
        let touching: BTreeSet<usize> = lists.flatten().copied().collect();
        let contradicts =
            |at: usize, other: &Outline| self.sets[at].as_ref().is_some_and(|own| own.outline.contradicts(other));
        let possible: Vec<usize> = touching.into_iter().filter(|at| !contradicts(*at, &outline)).collect();
        let pairs = possible.len() * possible.len().saturating_sub(1) / 2;
        let contradict = |a: usize, b: usize| self.sets[b].as_ref().is_some_and(|own| contradicts(a, &own.outline));
        if pairs > self.pairs_left
            || possible.iter().enumerate().any(|(at, a)| possible[..at].iter().any(|b| contradict(*a, *b)))
        {
            return Some((component, possible.len()));
        }
        self.pairs_left -= pairs;
        self.added += 1;
        let mut own = self.sets.len();
        places(&outline).for_each(|place| self.at.entry(place).or_default().push(own));
        self.sets.push(Some(Set { outline, components: vec![component], latest: self.added }));
        for other in possible {
            own = self.join(own, other);
        }
        None
    }

    /// Joins two sets; gives the one that is left.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let ranks = |at: usize| self.sets[at].as_ref().map_or(0, |set| set.outline.ports.len());
        let (large, small) = if ranks(a) > ranks(b) { (a, b) } else { (b, a) };
        let Some(moving) = self.sets[small].take() else { return large };
        for place in places(&moving.outline) {
            let list = self.at.entry(place).or_default();
            list.retain(|at| *at != small);
            if !list.contains(&large) {
                list.push(large);
            }
        }
        if let Some(set) = &mut self.sets[large] {
            set.outline.add(&moving.outline);
            set.components.extend(moving.components);
            set.latest = self.added;
        }
        large
    }

    /// The sets, in the order in which their last components came.
    pub(super) fn finish(self) -> Vec<(Outline, Vec<Component<'a>>)> {
        let mut sets: Vec<Set<'a>> = self.sets.into_iter().flatten().collect();
        sets.sort_by_key(|set| set.latest);
        sets.into_iter().map(|set| (set.outline, set.components)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::component::{Evidence, Rank};
    use super::super::outline::Nodes;
    use super::super::processes::Processes;
    use super::*;
    use ibscope_parsers::Lid;

    /// Two processes whose ranks are known, at these LIDs.
    fn add(gathering: &mut Gathering<'static>, processes: &mut Processes, ranks: [(u32, u16); 2]) -> Option<usize> {
        let ends = ranks.map(|(rank, lid)| (processes.unknown_sender(), rank, Endpoint::from_lid(Lid(lid))));
        let known = |rank| Rank { rank, agreeing: 3, disagreeing: 0, evidence: Evidence::Envelopes };
        let component = Component {
            family: Family::Ucx,
            layout: TagLayout::OpenMpi,
            connections: Vec::new(),
            votes: BTreeMap::new(),
            ranks: ends.iter().map(|(end, rank, _)| (*end, known(*rank))).collect(),
            ports: ends.iter().map(|(end, _, port)| (*end, BTreeSet::from([*port]))).collect(),
            times_ns: (0, 1),
            release: None,
        };
        let outline = Outline::new(&component, &Nodes::new(&BTreeMap::new()), processes);
        gathering.add(outline, component).map(|(_, count)| count)
    }

    /// The set that has grown stays where it is: else each connection would take over all that came before.
    #[test]
    fn of_two_sets_the_smaller_one_moves() {
        let (mut gathering, mut processes) = (Gathering::default(), Processes::default());
        for rank in 1..=64 {
            assert_eq!(add(&mut gathering, &mut processes, [(0, 1), (rank, 1 + rank as u16)]), None);
        }
        let left: Vec<usize> = (0..64).filter(|at| gathering.sets[*at].is_some()).collect();
        assert_eq!(left, [0]);
        assert!(gathering.at.values().all(|list| *list == [0]));
        let sets = gathering.finish();
        assert_eq!((sets.len(), sets[0].0.ports.len(), sets[0].1.len()), (1, 65, 64));
    }

    /// Rank 0 is at one port in all of them, and rank 1 at another port in each: what has both belongs to one set.
    #[test]
    fn of_more_sets_than_are_compared_a_component_joins_none() {
        for (sets, refused) in [(MAX_COMPARED, None), (MAX_COMPARED + 1, Some(MAX_COMPARED + 1))] {
            let (mut gathering, mut processes) = (Gathering::default(), Processes::default());
            for lid in 0..sets as u16 {
                assert_eq!(add(&mut gathering, &mut processes, [(0, 1), (1, 2 + lid)]), None);
            }
            assert_eq!(add(&mut gathering, &mut processes, [(0, 1), (1, 2)]), refused);
            assert_eq!(gathering.finish().len(), sets);
        }
    }

    /// Two sets that one component belongs to: one pair is compared.
    #[test]
    fn a_component_that_needs_more_comparisons_than_are_left_joins_none() {
        assert_eq!(Gathering::default().pairs_left, MAX_PAIRS);
        for (pairs_left, refused) in [(1, None), (0, Some(2))] {
            let (mut gathering, mut processes) = (Gathering::default(), Processes::default());
            assert_eq!(add(&mut gathering, &mut processes, [(0, 1), (1, 2)]), None);
            assert_eq!(add(&mut gathering, &mut processes, [(2, 3), (3, 4)]), None);
            gathering.pairs_left = pairs_left;
            assert_eq!(add(&mut gathering, &mut processes, [(1, 2), (2, 3)]), refused);
            assert_eq!(gathering.finish().len(), if refused.is_none() { 1 } else { 2 });
        }
    }
}
