//! Which context id on the wire is which communicator of the trace, and which are none of them.
//!
//! A context id may stand for several communicators: disjoint ones share one, and a freed one is given again. A communicator has one context. So each
//! communicator looks for the context that has most of its messages between the same ranks with the same tags; contexts that none has found
//! belong to somebody else.

use super::trace::{StreamKey, Trace, Tracer, fold};
use super::wire::Wire;
use crate::model::profile::StreamEnvelope;
use std::collections::{BTreeMap, BTreeSet};

/// The name that tells the communicator of all ranks.
const WORLD: &str = "MPI_COMM_WORLD";

/// The contexts of the program, and that of its tracer.
#[derive(Clone, Debug, Default)]
pub(super) struct Contexts {
    /// Contexts that are communicators of the program.
    own: BTreeSet<u32>,
    /// The context of the tracer's own communicator.
    pub(super) tracer: Option<u32>,
}

impl Contexts {
    /// Finds them.
    pub(super) fn find(trace: &Trace, wire: &Wire) -> Self {
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
                    // The capture may lack some of its messages; those that the wire has beyond the trace speak against it.
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

    /// That of the tracer alone.
    pub(super) fn of_tracer(tracer: Option<u32>) -> Self {
        Self { own: BTreeSet::new(), tracer }
    }

    /// Contexts that may be the tracer's own, where nothing tells the communicators of the program: the likeliest first.
    pub(super) fn candidates(trace: &Trace, wire: &Wire) -> Vec<u32> {
        tracers(trace, wire, &worlds(wire).collect())
    }
}

/// Contexts of `MPI_COMM_WORLD`.
fn worlds(wire: &Wire) -> impl Iterator<Item = u32> {
    let worlds = wire.messages().filter_map(|(_, envelope, _)| envelope.filter(|envelope| envelope.world));
    worlds.map(|world| world.context)
}

/// Contexts that may be that of Score-P's duplicate of `MPI_COMM_WORLD`, sorted by their first message: those that no communicator of the trace has, with
/// messages of tag 0 alone, each rank's before its first message of the program or after its last.
fn tracers(trace: &Trace, wire: &Wire, own: &BTreeSet<u32>) -> Vec<u32> {
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
    let mut refused = BTreeSet::new();
    for ((src, _), envelope, sums) in wire.messages() {
        let Some(envelope) = envelope.filter(|envelope| !own.contains(&envelope.context)) else { continue };
        let is_amid = sums.times_ns.is_some_and(|(first, last)| is_amid(src, first) || is_amid(src, last));
        if envelope.tag != 0 || envelope.rank != src || is_amid {
            refused.insert(envelope.context);
        }
        let first_ns = sums.times_ns.map_or(i64::MAX, |times| times.0);
        let earliest = candidates.entry(envelope.context).or_insert(first_ns);
        *earliest = first_ns.min(*earliest);
    }
    candidates.retain(|context, _| !refused.contains(context));
    let mut candidates: Vec<(i64, u32)> =
        candidates.into_iter().map(|(context, first_ns)| (first_ns, context)).collect();
    candidates.sort_unstable();
    candidates.into_iter().map(|(_, context)| context).collect()
}
