//! Jobs and connections whose ranks are in doubt: several jobs may be one, and several processes may
//! have used one queue pair.
//!
//! In: the jobs, and queue pairs that are used again. Out: notes, and the coverage of the pairs.
//! Invariant: a pair that misses messages for such a reason is never called complete.

use super::jobs::JobUncertainty;
use super::tag_layout::{self, LibraryConnection};
use super::{QueuePairPartners, ResolvedRanks, reverse};
use crate::model::profile::CoverageState;
use crate::model::{ConnectionTotals, QueuePair, count_of, ranges};
use std::collections::{BTreeMap, BTreeSet};

/// Adds notes on jobs that may be part of a job, or several jobs, and marks their pairs as unknown.
pub(super) fn mark_uncertain_jobs(uncertainties: &BTreeMap<u32, JobUncertainty>, identified: &mut ResolvedRanks) {
    let mut note = |of: fn(&JobUncertainty) -> bool, what: &str| {
        let jobs: Vec<u32> = uncertainties.iter().filter(|(_, own)| of(own)).map(|(job, _)| *job).collect();
        if !jobs.is_empty() {
            let plural = if jobs.len() == 1 { "" } else { "s" };
            identified.notes.push(format!("job{plural} {}: {what}", ranges(jobs)));
        }
    };
    note(
        |own| own.may_be_part,
        "the same ranks appear at other ports at the same time, and no connection message separates them, so they may be one job on several ports; capture from the start of the job",
    );
    note(
        |own| own.may_be_several,
        "identified by consistent ranks only; no connection message shows that all connections belong to one job, so it may be several jobs; capture from the start of the job",
    );
    note(
        |own| own.has_doubtful_processes,
        "identified by its ports only; its messages write to more memory areas than one process per port would use, so it may be several jobs; capture one job at a time",
    );
    for (coverage, job) in identified.coverage.iter_mut().zip(&identified.job_of) {
        if job.is_some_and(|job| uncertainties.contains_key(&job)) {
            coverage.state = coverage.state.max(CoverageState::Unknown);
        }
    }
}

/// Adds a note on connections whose MPI messages have no job, because they may be of several, and
/// marks their pairs as unknown.
pub(super) fn mark_ambiguous(ambiguous: &BTreeSet<usize>, identified: &mut ResolvedRanks) {
    if ambiguous.is_empty() {
        return;
    }
    for index in ambiguous {
        if let Some(coverage) = identified.coverage.get_mut(*index) {
            coverage.state = coverage.state.max(CoverageState::Unknown);
        }
    }
    let (count, one) = (count_of(ambiguous.len() as u64, "connection"), ambiguous.len() == 1);
    let (have, their) = if one { ("has", "its queue pair") } else { ("have", "their queue pairs") };
    identified.notes.push(format!(
        "{count} {have} no MPI messages: several processes used the numbers of {their}, one after the other; analyze one job at a time, e.g. with --from and --to"
    ));
}

/// Connections of a library whose messages may belong to several processes: those of `reused` queue
/// pairs, and those that were restarted. Restarted connections do not count if at least half of all
/// were restarted, because the captures then probably hold a whole run twice.
pub(super) fn ambiguous_connections(
    connections: &[Box<ConnectionTotals>],
    candidates: &[LibraryConnection<'_>],
    reused: &BTreeSet<QueuePair>,
    paired: &QueuePairPartners,
) -> BTreeSet<usize> {
    let is_reused = |own: &ConnectionTotals| {
        let ends = [reverse::sender(&own.key, paired), Some(tag_layout::receiver(&own.key))];
        ends.into_iter().flatten().any(|end| reused.contains(&end))
    };
    let is_ambiguous = |own: &ConnectionTotals| tag_layout::consistent_stack(own).is_some() && is_reused(own);
    let all = connections.iter().enumerate().filter(|_| !reused.is_empty());
    let mut ambiguous: BTreeSet<usize> = all.filter(|(_, own)| is_ambiguous(own)).map(|(index, _)| index).collect();
    let restarted = || candidates.iter().filter(|found| found.connection.continuity.restarted);
    if restarted().count() * 2 < candidates.len() {
        ambiguous.extend(restarted().map(|found| found.index));
    }
    ambiguous
}
