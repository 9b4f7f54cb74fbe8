//! Maps context ids on the wire to the communicators of the trace.
//!
//! A context id may belong to several communicators, because disjoint communicators share ids and
//! freed ids are reused. A communicator has one context. So each communicator takes the context
//! with most of its messages between the same ranks with the same tags. Contexts that no
//! communicator takes belong to the tracer or to another program.

use super::trace::{AppTrace, StreamKey, Tracer, fold};
use super::wire::WireMessages;
use crate::model::profile::StreamEnvelope;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the communicator of all ranks.
pub(super) const WORLD: &str = "MPI_COMM_WORLD";

/// The contexts of the program and of its tracer.
#[derive(Clone, Debug, Default)]
pub(super) struct Contexts {
    /// Contexts of the program's communicators.
    own: BTreeSet<u32>,
    /// Context of the tracer's own communicator.
    pub(super) tracer: Option<u32>,
}

impl Contexts {
    /// Finds the contexts of a trace on the wire.
    pub(super) fn find(trace: &AppTrace, wire: &WireMessages) -> Self {
        let mut contexts = Self::default();
        contexts.own.extend(worlds(wire));
        let is_world = |communicator: u32| {
            trace.communicators.get(communicator as usize).is_some_and(|communicator| communicator.name == WORLD)
        };
        let names_world = (0..trace.communicators.len() as u32).any(is_world);
        // By sender, receiver and tag.
        let mut seen: BTreeMap<_, Vec<(StreamEnvelope, u64)>> = BTreeMap::new();
        for ((src, dst), envelope, sums) in wire.messages() {
            let Some(envelope) = envelope else { continue };
            let mut key = StreamKey { src, dst, communicator: 0, tag: Some(envelope.tag) };
            if trace.sends.is_folded() {
                fold(&mut key);
            }
            seen.entry((src, dst, key.tag)).or_default().push((envelope, sums.messages));
        }
        let mut scores: BTreeMap<u32, BTreeMap<u32, i128>> = BTreeMap::new();
        for (key, stream) in trace.sends.sorted() {
            let communicator = trace.communicators.get(key.communicator as usize);
            for &(envelope, messages) in seen.get(&(key.src, key.dst, key.tag)).into_iter().flatten() {
                let is_member = communicator.is_some_and(|communicator| {
                    let groups = [Some(&communicator.members), communicator.remote.as_ref()];
                    groups.into_iter().flatten().any(|group| group.get(envelope.rank as usize) == Some(&key.src))
                });
                if is_member && (!names_world || envelope.world == is_world(key.communicator)) {
                    // The capture may have lost messages, so a shortage on the wire costs nothing;
                    // an excess does.
                    let (expected, found) = (i128::from(stream.sums.messages), i128::from(messages));
                    let score = expected.min(found) - (found - expected).max(0);
                    *scores.entry(key.communicator).or_default().entry(envelope.context).or_default() += score;
                }
            }
        }
        for scores in scores.into_values() {
            let best = scores.into_iter().max_by_key(|(context, score)| (*score, std::cmp::Reverse(*context)));
            contexts.own.extend(best.filter(|(_, score)| *score >= 0).map(|(context, _)| context));
        }
        contexts.tracer = tracers(trace, wire, &contexts.own).first().copied();
        contexts
    }

    /// Only the context of the tracer.
    pub(super) fn of_tracer(tracer: Option<u32>) -> Self {
        Self { own: BTreeSet::new(), tracer }
    }

    /// Contexts that may be the tracer's own, the likeliest first, for profiles without
    /// communicators.
    pub(super) fn candidates(trace: &AppTrace, wire: &WireMessages) -> Vec<u32> {
        tracers(trace, wire, &worlds(wire).collect())
    }
}

/// Contexts of `MPI_COMM_WORLD`.
fn worlds(wire: &WireMessages) -> impl Iterator<Item = u32> {
    let worlds = wire.messages().filter_map(|(_, envelope, _)| envelope.filter(|envelope| envelope.world));
    worlds.map(|world| world.context)
}

/// Contexts that may be Score-P's duplicate of `MPI_COMM_WORLD`, sorted by their first message:
/// those of no communicator of the trace, which contain only messages with tag 0 that each rank
/// sent before its first or after its last message of the program.
fn tracers(trace: &AppTrace, wire: &WireMessages, own: &BTreeSet<u32>) -> Vec<u32> {
    if !matches!(trace.tracer, Tracer::ScoreP(_)) {
        return Vec::new();
    }
    let mut program: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for ((src, _), envelope, sums) in wire.messages() {
        if envelope.is_some_and(|envelope| own.contains(&envelope.context))
            && let Some((first_ns, last_ns)) = sums.times_ns
        {
            let times = program.entry(src).or_insert((first_ns, last_ns));
            *times = (first_ns.min(times.0), last_ns.max(times.1));
        }
    }
    let is_amid =
        |src: u32, time_ns: i64| program.get(&src).is_some_and(|(first, last)| (first..last).contains(&&time_ns));
    let mut candidates: BTreeMap<u32, i64> = BTreeMap::new();
    let mut rejected = BTreeSet::new();
    for ((src, _), envelope, sums) in wire.messages() {
        let Some(envelope) = envelope.filter(|envelope| !own.contains(&envelope.context)) else { continue };
        let is_amid = sums.times_ns.is_some_and(|(first, last)| is_amid(src, first) || is_amid(src, last));
        if envelope.tag != 0 || envelope.rank != src || is_amid {
            rejected.insert(envelope.context);
        }
        let first_ns = sums.times_ns.map_or(i64::MAX, |times| times.0);
        let earliest = candidates.entry(envelope.context).or_insert(first_ns);
        *earliest = first_ns.min(*earliest);
    }
    candidates.retain(|context, _| !rejected.contains(context));
    let mut candidates: Vec<(i64, u32)> =
        candidates.into_iter().map(|(context, first_ns)| (first_ns, context)).collect();
    candidates.sort_unstable();
    candidates.into_iter().map(|(_, context)| context).collect()
}
