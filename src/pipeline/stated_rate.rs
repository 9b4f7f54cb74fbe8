//! The sampling rate of a sampled capture, as the user gives it or the samples state it.
//!
//! In: the coverage, which counts the samples by stated rate, and the options. Out: one rate for all
//! samples, and a note. Invariant: without one rate that the samples do not contradict, there are no
//! estimates.

use super::AnalysisOptions;
use crate::model::sampling::RateSource;
use crate::model::{Coverage, SamplerSteps, count_either};
use crate::ranks::StatedRate;

/// The sampling rate that the user gives or the samples state, and a note if they disagree or if
/// the samples have no common rate.
pub(super) fn stated_rate<'a>(
    coverage: &'a Coverage,
    options: &AnalysisOptions,
) -> (Option<StatedRate<'a>>, Option<String>) {
    let sources = &coverage.sample_sources;
    let rates = &coverage.sampling_rates;
    let given = options.sampled.map(|one_in| StatedRate {
        one_in: Some(f64::from(one_in)),
        source: RateSource::Given,
        is_periodic: false,
        sources,
    });
    let stated: Vec<String> = rates.keys().map(|one_in| format!("1/{one_in}")).collect();
    let all = match (&stated[..], given) {
        ([], given) => return (given, None),
        ([one], Some(_)) if Some(one) == options.sampled.map(|one_in| format!("1/{one_in}")).as_ref() => {
            return (given, None);
        }
        (_, Some(_)) => {
            let note = format!("--sampled replaces the rates that the samples state: {}", stated.join(", "));
            return (given, Some(note));
        }
        (all, None) => all,
    };
    let source = RateSource::Stated;
    match coverage.stated_one_in() {
        Some(0 | 1) => (None, None),
        Some(one_in) => {
            let stated = f64::from(one_in);
            let one_in = coverage.with_lost_samples(one_in);
            let (real, is_periodic) = sampler(&coverage.sampler_steps, stated);
            let note = real.map(|real| {
                format!(
                    "no estimates: the samples state the rate 1/{stated}, but their sample pools grow by {real:.1} packets per sample, \
                     reported drops included; check the configuration of the agents, and whether they drop samples without a report, or \
                     give the rate with --sampled 1/N"
                )
            });
            (Some(StatedRate { one_in: Some(one_in).filter(|_| real.is_none()), source, is_periodic, sources }), note)
        }
        None => {
            let bare = coverage.infiniband.saturating_sub(coverage.sampled_frames());
            let bare = if bare > 0 {
                format!(", and {} no rate", count_either(bare, "packet states", "packets state"))
            } else {
                String::new()
            };
            let note = format!(
                "no estimates: the samples state the rates {}{bare}; analyze captures of one rate at a time",
                all.join(", ")
            );
            (Some(StatedRate { one_in: None, source, is_periodic: false, sources }), Some(note))
        }
    }
}

/// Distances between samples that show the sampler.
const MIN_SAMPLER_STEPS: u64 = 60;
/// Largest relative difference from the stated rate that does not contradict it: agents read the pool
/// at other times than they take the sample.
const POOL_TOLERANCE: f64 = 0.02;
/// Relative variance of the distances below which they are regular. Those of a random sampler have 1,
/// and those that agents draw evenly from 1 to 2N - 1 have a third.
const REGULAR: f64 = 0.1;

/// The real distance between samples if it contradicts the stated one, and whether the distances are
/// regular. If every distance is exactly the stated one, the agent does not count the pool but multiplies
/// the number of samples, so the distances prove nothing.
fn sampler(steps: &SamplerSteps, stated: f64) -> (Option<f64>, bool) {
    let (spread, mean) = (steps.spread().filter(|_| steps.steps >= MIN_SAMPLER_STEPS), steps.mean());
    let Some(((step, variance), mean)) = spread.zip(mean) else { return (None, false) };
    let is_counted = (step - stated).abs() > 1e-9 * stated || variance > 1e-12;
    if !is_counted {
        return (None, false);
    }
    let tolerance = stated * (POOL_TOLERANCE + 5.0 * (variance.max(0.0) / steps.steps as f64).sqrt());
    ((mean - stated).abs().gt(&tolerance).then_some(mean), variance < REGULAR)
}
