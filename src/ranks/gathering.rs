//! Components, one after the other -> sets of those that belong together.
//!
//! A capture without connection messages has a component for each connection, and one of many small jobs has thousands of
//! sets. So the sets that a component may belong to are looked up by rank and port, and of two sets that are joined the
//! smaller one moves.

use super::component::Component;
use super::jobs::{MAX_COMPARED, Outline};
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
    /// Places that have moved to another set.
    moved: usize,
}

impl Default for Gathering<'_> {
    fn default() -> Self {
        Self { sets: Vec::new(), at: BTreeMap::new(), added: 0, pairs_left: MAX_PAIRS, moved: 0 }
    }
}

fn places(outline: &Outline) -> impl Iterator<Item = Place> + Clone + '_ {
    outline.ports.iter().flat_map(|(rank, ports)| ports.iter().map(|port| (outline.key, *rank, *port)))
}

impl<'a> Gathering<'a> {
    /// Adds a component: to all sets that have a rank at a port in common with it and do not contradict it, which become
    /// one. Where these contradict each other, gives it back, and how many they are.
    pub(super) fn add(&mut self, outline: Outline, component: Component<'a>) -> Result<(), (Component<'a>, usize)> {
        let lists = places(&outline).filter_map(|place| self.at.get(&place));
        if let Some(crowd) = lists.clone().map(Vec::len).find(|count| *count > MAX_COMPARED) {
            return Err((component, crowd));
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
            return Err((component, possible.len()));
        }
        self.pairs_left -= pairs;
        self.added += 1;
        let mut own = self.sets.len();
        places(&outline).for_each(|place| self.at.entry(place).or_default().push(own));
        self.sets.push(Some(Set { outline, components: vec![component], latest: self.added }));
        for other in possible {
            own = self.join(own, other);
        }
        Ok(())
    }

    /// Joins two sets; gives the one that is left.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let ranks = |at: usize| self.sets[at].as_ref().map_or(0, |set| set.outline.ports.len());
        let (large, small) = if ranks(a) > ranks(b) { (a, b) } else { (b, a) };
        let Some(moving) = self.sets[small].take() else { return large };
        for place in places(&moving.outline) {
            self.moved += 1;
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
