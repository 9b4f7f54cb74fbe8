//! Which steps of a plan go side by side, and which one after the other.

use crate::step::Step;
use std::collections::BTreeMap;

/// Steps that stand beside each other and are of one kind need nothing of each other. The places of each such group.
pub(crate) fn phases(steps: &[Step]) -> Vec<Vec<usize>> {
    let mut phases: Vec<Vec<usize>> = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        match phases.last_mut() {
            Some(phase) if std::mem::discriminant(&steps[phase[0]]) == std::mem::discriminant(step) => {
                phase.push(place);
            }
            _ => phases.push(vec![place]),
        }
    }
    phases
}

/// Splits a phase into lines of work that go side by side: a switch is told one thing after the other.
pub(crate) fn lines(steps: &[Step], phase: &[usize]) -> Vec<Vec<usize>> {
    let mut by_leaf: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut lines = Vec::new();
    for &place in phase {
        match &steps[place] {
            Step::Mirror(step) => by_leaf.entry(step.leaf_guid).or_default().push(place),
            Step::Capture(_) | Step::Hostfile(_) => lines.push(vec![place]),
        }
    }
    lines.extend(by_leaf.into_values());
    lines
}
