//! How many pairs of a matrix are in which state of coverage.

use super::matrix::Cell;
use crate::model::profile::CoverageState;
use std::collections::BTreeMap;

/// How many pairs of a matrix are in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct States(BTreeMap<CoverageState, u64>);

impl States {
    pub(crate) fn of<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Self {
        let mut states = BTreeMap::new();
        for cell in cells {
            *states.entry(cell.coverage.state).or_default() += 1;
        }
        Self(states)
    }

    /// The state of all pairs, where it is one.
    pub(crate) fn of_all(&self) -> Option<CoverageState> {
        self.0.first_key_value().filter(|_| self.0.len() == 1).map(|(state, _)| *state)
    }

    /// True where single pairs are worth a mark: not where all are in one state.
    pub(crate) fn are_mixed(&self) -> bool {
        self.0.len() > 1
    }

    /// The states that are not complete, with the number of pairs in each.
    pub(crate) fn incomplete(&self) -> impl Iterator<Item = (CoverageState, u64)> {
        self.0.iter().map(|(state, count)| (*state, *count)).filter(|(state, _)| *state != CoverageState::Complete)
    }
}
