//! Sets of components that belong to one job, built one component at a time.
//!
//! A capture without connection messages has one component per connection, and a capture of many
//! small jobs has thousands of sets. The candidates for a component are therefore looked up by rank
//! and port, and when two sets join, the smaller one moves.

use super::component::Component;
use super::outline::{MAX_COMPARED, Outline};
use super::tag_layout::Family;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::TagLayout;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of comparisons between candidate sets, in total over all components. A component
/// whose candidates need more comparisons than are left joins no set.
const MAX_PAIRS: usize = 1 << 22;

/// A rank at a port, with the library and tag layout that give the rank.
type RankPort = ((Family, TagLayout), u32, Endpoint);

/// Components that belong together.
#[derive(Debug)]
struct ComponentSet<'a> {
    outline: Outline,
    components: Vec<Component<'a>>,
    /// Sequence number of the latest component.
    latest: usize,
}

/// All sets, and an index by rank and port.
#[derive(Debug)]
pub(super) struct ComponentSets<'a> {
    /// `None` for a set that joined another one.
    sets: Vec<Option<ComponentSet<'a>>>,
    at: BTreeMap<RankPort, Vec<usize>>,
    added: usize,
    pairs_left: usize,
}

impl Default for ComponentSets<'_> {
    fn default() -> Self {
        Self { sets: Vec::new(), at: BTreeMap::new(), added: 0, pairs_left: MAX_PAIRS }
    }
}

fn places(outline: &Outline) -> impl Iterator<Item = RankPort> + Clone + '_ {
    outline.ports.iter().flat_map(|(rank, ports)| ports.iter().map(|port| (outline.key, *rank, *port)))
}

impl<'a> ComponentSets<'a> {
    /// Adds a component to all sets that share a rank at a port with it and do not contradict it;
    /// these sets become one. If the sets contradict each other or are too many to compare, returns
    /// the component and the number of sets.
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
        self.sets.push(Some(ComponentSet { outline, components: vec![component], latest: self.added }));
        for other in possible {
            own = self.join(own, other);
        }
        None
    }

    /// Joins two sets and returns the index of the joined set.
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

    /// The sets, in the order of their latest components.
    pub(super) fn finish(self) -> Vec<(Outline, Vec<Component<'a>>)> {
        let mut sets: Vec<ComponentSet<'a>> = self.sets.into_iter().flatten().collect();
        sets.sort_by_key(|set| set.latest);
        sets.into_iter().map(|set| (set.outline, set.components)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::outline::fixture::component;
    use super::super::processes::Processes;
    use super::*;

    /// Adds a component of two processes with known ranks at these LIDs.
    fn add(groups: &mut ComponentSets<'static>, processes: &mut Processes, ranks: [(u32, u16); 2]) -> Option<usize> {
        let (outline, component) = component(processes, &ranks);
        groups.add(outline, component).map(|(_, count)| count)
    }

    /// The larger set stays in place; otherwise each connection would move all components before
    /// it.
    #[test]
    fn the_smaller_of_two_joined_sets_moves() {
        let (mut groups, mut processes) = (ComponentSets::default(), Processes::default());
        for rank in 1..=64 {
            assert_eq!(add(&mut groups, &mut processes, [(0, 1), (rank, 1 + rank as u16)]), None);
        }
        let left: Vec<usize> = (0..64).filter(|at| groups.sets[*at].is_some()).collect();
        assert_eq!(left, [0]);
        assert!(groups.at.values().all(|list| *list == [0]));
        let sets = groups.finish();
        assert_eq!((sets.len(), sets[0].0.ports.len(), sets[0].1.len()), (1, 65, 64));
    }

    /// Rank 0 is at the same port in all sets, and rank 1 at a different port in each. The last
    /// component matches one set only, but rank 0 makes all sets candidates.
    #[test]
    fn a_component_with_too_many_candidate_sets_joins_none() {
        for (sets, rejected) in [(MAX_COMPARED, None), (MAX_COMPARED + 1, Some(MAX_COMPARED + 1))] {
            let (mut groups, mut processes) = (ComponentSets::default(), Processes::default());
            for lid in 0..sets as u16 {
                assert_eq!(add(&mut groups, &mut processes, [(0, 1), (1, 2 + lid)]), None);
            }
            assert_eq!(add(&mut groups, &mut processes, [(0, 1), (1, 2)]), rejected);
            assert_eq!(groups.finish().len(), sets);
        }
    }

    /// One component belongs to two sets, so one pair is compared.
    #[test]
    fn a_component_beyond_the_comparison_bound_joins_none() {
        assert_eq!(ComponentSets::default().pairs_left, MAX_PAIRS);
        for (pairs_left, rejected) in [(1, None), (0, Some(2))] {
            let (mut groups, mut processes) = (ComponentSets::default(), Processes::default());
            assert_eq!(add(&mut groups, &mut processes, [(0, 1), (1, 2)]), None);
            assert_eq!(add(&mut groups, &mut processes, [(2, 3), (3, 4)]), None);
            groups.pairs_left = pairs_left;
            assert_eq!(add(&mut groups, &mut processes, [(1, 2), (2, 3)]), rejected);
            assert_eq!(groups.finish().len(), if rejected.is_none() { 1 } else { 2 });
        }
    }
}
