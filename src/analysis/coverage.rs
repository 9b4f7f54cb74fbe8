//! Counts the pairs of a matrix in each coverage state.

use super::matrix::MatrixCell;
use crate::model::profile::CoverageState;
use crate::model::{Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Number of pairs in each coverage state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct States(BTreeMap<CoverageState, u64>);

impl States {
    pub(crate) fn of<'a>(cells: impl IntoIterator<Item = &'a MatrixCell>) -> Self {
        Self::count_all(cells.into_iter().map(|cell| cell.coverage.state))
    }

    fn count_all(all: impl Iterator<Item = CoverageState>) -> Self {
        let mut states = BTreeMap::new();
        all.for_each(|state| *states.entry(state).or_default() += 1);
        Self(states)
    }

    /// The states of the directed pairs of endpoints with data, each by its worst connection.
    pub(crate) fn of_endpoints(profile: &Profile) -> Self {
        let mut pairs: BTreeMap<(Endpoint, Endpoint), CoverageState> = BTreeMap::new();
        for connection in profile.connections.iter().filter(|connection| connection.key().kind == TrafficKind::Data) {
            let state = pairs.entry((connection.key().src, connection.key().dst)).or_default();
            *state = connection.coverage.state.max(*state);
        }
        Self::count_all(pairs.into_values())
    }

    /// Number of pairs in one state, and of all pairs.
    pub(crate) fn count(&self, state: CoverageState) -> (u64, u64) {
        (self.0.get(&state).copied().unwrap_or_default(), self.0.values().sum())
    }

    /// The common state of all pairs; `None` if the pairs differ or there are none.
    pub(crate) fn of_all(&self) -> Option<CoverageState> {
        self.0.first_key_value().filter(|_| self.0.len() == 1).map(|(state, _)| *state)
    }

    /// True if the pairs differ in their state, so that a mark on single pairs is informative.
    pub(crate) fn are_mixed(&self) -> bool {
        self.0.len() > 1
    }

    /// The states other than complete, with the number of pairs in each.
    pub(crate) fn incomplete(&self) -> impl Iterator<Item = (CoverageState, u64)> {
        self.0.iter().map(|(state, count)| (*state, *count)).filter(|(state, _)| *state != CoverageState::Complete)
    }
}
