//! The order of the steps of a plan: which steps run in parallel, and which in sequence.

use crate::step::PlanStep;
use std::collections::BTreeMap;

/// Groups of consecutive steps of the same kind, as indices. Steps of a group do not depend on each
/// other.
pub(crate) fn phases(steps: &[PlanStep]) -> Vec<Vec<usize>> {
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

/// Splits a phase into sequences that run at the same time. Steps for the same switch are in one
/// sequence, because a switch is configured by one command at a time.
pub(crate) fn sequences(steps: &[PlanStep], phase: &[usize]) -> Vec<Vec<usize>> {
    let mut by_leaf: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut lines = Vec::new();
    for &place in phase {
        match &steps[place] {
            PlanStep::Mirror(step) => by_leaf.entry(step.leaf_guid).or_default().push(place),
            PlanStep::Capture(_) | PlanStep::Hostfile(_) => lines.push(vec![place]),
        }
    }
    lines.extend(by_leaf.into_values());
    lines
}
