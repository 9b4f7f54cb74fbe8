//! Whether the clocks of inputs can be compared, and the jobs for which they cannot.
//!
//! Times of inputs that hold packets of one another are corrected to one clock. Without common packets
//! nothing relates two clocks, so times between packets of such inputs prove nothing.

use super::AnalysisOptions;
use crate::align::Alignment;
use crate::model::profile::Input;
use crate::model::ranges;
use crate::ranks::ResolvedRanks;
use crate::reduce::CombinedTotals;
use std::collections::BTreeMap;

/// By input: the name of the clock that its times are on. Inputs with different names hold no packets by
/// which their clocks could be compared.
pub(super) fn clocks_of(
    inputs: &[Input],
    aligned: &Alignment,
    streams: &[Vec<usize>],
    options: &AnalysisOptions,
) -> Vec<String> {
    let mut clocks = vec![String::new(); inputs.len()];
    if !options.clocks.align {
        // The user states that all clocks agree.
        return clocks;
    }
    for (first, stream) in streams.iter().filter_map(|stream| Some((*stream.first()?, stream))) {
        let clock = aligned.rows[first].as_ref().map_or(&inputs[first].name, |row| &row.reference);
        stream.iter().for_each(|input| clocks[*input].clone_from(clock));
    }
    clocks
}

/// Marks the jobs whose packets are on several clocks. Returns the note on those whose clocks could not be
/// compared.
pub(super) fn mark_jobs(
    identified: &mut ResolvedRanks,
    combined: &CombinedTotals,
    inputs: &[Input],
    clocks: &[String],
) -> Option<String> {
    mark_late_copies(identified, combined);
    mark_inputs(identified, combined, inputs, clocks)
}

/// Marks the jobs with late copies of packets: within one input, the clocks of two ports differ or a
/// device delays the copies.
fn mark_late_copies(identified: &mut ResolvedRanks, combined: &CombinedTotals) {
    for late in &combined.late_copies {
        let found = combined.connections.binary_search_by_key(&late.key, |connection| connection.key);
        let Some(job) = found.ok().and_then(|index| *identified.job_of.get(index)?) else { continue };
        let row = identified.jobs.iter_mut().filter(|row| row.job == job);
        row.for_each(|row| match late.delay_ns {
            Some(_) => row.copy_delay_ns = row.copy_delay_ns.max(late.delay_ns),
            None => row.lacks_common_clock = true,
        });
    }
}

fn mark_inputs(
    identified: &mut ResolvedRanks,
    combined: &CombinedTotals,
    inputs: &[Input],
    clocks: &[String],
) -> Option<String> {
    if clocks.windows(2).all(|two| two[0] == two[1]) {
        return None;
    }
    // By job: an input of each clock.
    let mut inputs_of: BTreeMap<u32, BTreeMap<&str, usize>> = BTreeMap::new();
    for (connection, job) in combined.connections.iter().zip(&identified.job_of) {
        let Some(job) = job else { continue };
        for input in connection.inputs.iter().map(|input| *input as usize) {
            // A union of inputs has packets of several of them, so these have a common clock.
            let Some(clock) = clocks.get(input) else { continue };
            inputs_of.entry(*job).or_default().entry(clock).or_insert(input);
        }
    }
    inputs_of.retain(|_, inputs| inputs.len() > 1);
    let jobs = identified.jobs.iter_mut().filter(|row| inputs_of.contains_key(&row.job));
    jobs.for_each(|row| row.lacks_common_clock = true);
    let mut named = inputs_of.values().next()?.values().filter_map(|input| Some(&inputs.get(*input)?.name));
    let (first, second) = (named.next()?, named.next()?);
    let has_more = named.next().is_some();
    Some(format!(
        "the clocks of {first}{} {second}{} could not be compared by packets that both hold: if they differ, times \
         from a packet of one to a packet of the other are wrong, and so is the order of messages in {} {}; capture both \
         directions of each port, or state the clocks with --manifest",
        if has_more { "," } else { " and" },
        if has_more { " and others" } else { "" },
        if inputs_of.len() == 1 { "job" } else { "jobs" },
        ranges(inputs_of.keys().copied())
    ))
}
