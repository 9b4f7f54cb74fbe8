//! Finds the differences between the clocks of several captures, from packets that two of them
//! hold.
//!
//! In: a [`PacketSample`] of each input. Out: an [`Alignment`], with a correction per input and the
//! transit samples.
//!
//! Each input samples its packets by a hash of their headers, so that all inputs sample the same
//! packets. `common` finds the packets that two inputs hold. If each input observes one of the two
//! ports of a connection, packets in one direction bound the difference of the clocks from above,
//! packets in the other direction from below. If an input observes both ports, each packet bounds
//! it from both sides. `model::line` finds the line between these bounds, and its uncertainty.
//!
//! All inputs are corrected to the clock of the first one, or to the clock of a manifest, along the
//! chain of inputs with the least uncertainty.
//!
//! Invariant: times of inputs whose clocks agree within the uncertainty are not changed.

mod chains;
mod common;
mod packet_sample;
#[cfg(test)]
mod tests;

pub use chains::chains;
pub use packet_sample::{PacketSample, SampleCandidate, hash};

use crate::model::{Clock, ClockRow, ConnectionKey, PacketRole, SizeClass, Verb};
use common::CommonPackets;
use ibscope_parsers::ib::Opcode;
use packet_sample::{FinishedSample, SampledPacket};
use std::collections::BTreeMap;

/// Packets cannot align clocks that run unevenly and differ by more than this many nanoseconds (ten
/// minutes): a queue pair that starts over with the same PSNs looks the same, except to clocks that run
/// evenly.
const MAX_APART_NS: f64 = 600e9;
/// An unevenly running clock is corrected if the uncertainty of its line is at most this many
/// nanoseconds, and its offset at least `MIN_IMPROVEMENT` times the uncertainty.
const MAX_UNEVEN_NS: f64 = 1e6;
const MIN_IMPROVEMENT: f64 = 10.0;
const CONTRADICTION: &str = "their timestamps contradict each other: a clock was set or runs unevenly, or different packets look alike; \
                             state the known clocks with --manifest";

/// The clocks of all inputs.
#[derive(Debug, Default)]
pub struct Alignment {
    /// By input: the correction of its times; `None` if they are not corrected.
    pub clocks: Vec<Option<Clock>>,
    /// By input: its row in the profile; `None` for the input that others are compared with, and
    /// for an input that has no packets in common with others.
    pub rows: Vec<Option<ClockRow>>,
    /// Transit samples of the packets that were compared, from the sender's port to the receiver's.
    pub transits: Vec<Transit>,
    /// Pairs of inputs with common packets whose clocks could not be compared, and the reason.
    pub unclear: Vec<(usize, usize, &'static str)>,
    /// Pairs of inputs that hold the same packets, but at times that no constant offset and
    /// drift of a clock relates.
    pub look_alikes: Vec<LookAlikes>,
}

/// Two inputs with the same packets at other times: their clocks differ and run unevenly, or a
/// second run of the program has the same queue pairs and PSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookAlikes {
    /// The inputs, in the order given.
    pub inputs: (usize, usize),
    /// Median difference of their times, the second minus the first, in nanoseconds.
    pub apart_ns: i64,
}

/// Transit sample: the time of a packet between two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Connection of the packet.
    pub connection: ConnectionKey,
    /// Operation that the packet belongs to.
    pub verb: Verb,
    /// Size class of its payload.
    pub size: SizeClass,
    /// Time at the sender's port, on the clock that all inputs are corrected to.
    pub time_ns: i64,
    /// Transit time in nanoseconds; 0 if the clocks, which are uncertain, make it negative.
    pub ns: u64,
}

/// The clock of one input relative to that of another.
struct ClockEdge {
    inputs: (usize, usize),
    /// Clock of the second input, relative to the first.
    clock: Clock,
    /// The clocks differ by no more than the uncertainty.
    agrees: bool,
    /// A straight line lies between the bounds.
    is_even: bool,
    uncertainty_ns: f64,
    common: CommonPackets,
}

/// A clock given by the user, and how much it may be wrong, in nanoseconds.
pub type KnownClock = (Clock, u64);

/// The clock of one input whose path to the root is found.
#[derive(Clone)]
struct InputClock {
    /// Its clock, relative to the root.
    clock: Clock,
    /// Name of the root's clock.
    reference: String,
    uncertainty_ns: f64,
}

/// Compares the clocks of all inputs.
///
/// `names` are the names of the inputs for the profile. `given` are clocks that are known already,
/// all relative to the one called `reference`; their inputs get neither a correction nor a row
/// here.
#[must_use]
pub fn align(samples: Vec<PacketSample>, names: &[String], given: &[Option<KnownClock>], reference: &str) -> Alignment {
    let given = |input: usize| given.get(input).copied().flatten();
    let finish = |(input, sample): (usize, PacketSample)| sample.finish(given(input).map(|(clock, _)| clock));
    let inputs: Vec<FinishedSample> = samples.into_iter().enumerate().map(finish).collect();
    let mut aligned =
        Alignment { clocks: vec![None; inputs.len()], rows: vec![None; inputs.len()], ..Alignment::default() };
    let mut edges = Vec::new();
    for second in 1..inputs.len() {
        for first in 0..second {
            match compare((first, &inputs[first]), (second, &inputs[second])) {
                Some(Ok(edge)) => edges.push(edge),
                Some(Err((why, apart_ns))) if given(first).is_none() || given(second).is_none() => {
                    aligned.unclear.push((first, second, why));
                    let look_alikes = |apart_ns| LookAlikes { inputs: (first, second), apart_ns };
                    aligned.look_alikes.extend(apart_ns.map(look_alikes));
                }
                Some(Err(_)) | None => {}
            }
        }
    }
    let mut known: BTreeMap<usize, InputClock> = BTreeMap::new();
    for index in 0..inputs.len() {
        if let Some((_, uncertainty_ns)) = given(index) {
            // `finish` has corrected its times to the clock of the reference.
            let uncertainty_ns = uncertainty_ns as f64;
            known
                .insert(index, InputClock { clock: Clock::default(), reference: reference.to_owned(), uncertainty_ns });
        }
    }
    for root in 0..inputs.len() {
        // Each step takes the input whose clock is then the least uncertain.
        while let Some((edge, from, to)) = least_uncertain_edge(&edges, &known) {
            let step = if to == edge.inputs.1 { edge.clock } else { edge.clock.inverse() };
            let InputClock { clock: before, reference, uncertainty_ns } = known[&from].clone();
            let clock = if edge.agrees { before } else { step.relative_to(&before) };
            let uncertainty_ns = uncertainty_ns + edge.uncertainty_ns;
            let at_ns = inputs[to].span_ns().map_or(0, |(first, _)| first);
            aligned.clocks[to] = (clock != Clock::default()).then_some(clock);
            aligned.rows[to] = Some(ClockRow {
                reference: reference.clone(),
                compared_with: names.get(from).cloned().unwrap_or_default(),
                at_ns,
                offset_ns: at_ns.saturating_sub(clock.corrected_ns(at_ns)),
                drift_ppm: clock.drift_ppm(),
                uncertainty_ns: uncertainty_ns.ceil() as u64,
                is_even: edge.is_even,
                common_packets: edge.common.packets.len() as u64,
            });
            known.insert(to, InputClock { clock, reference, uncertainty_ns });
        }
        known.entry(root).or_insert_with(|| InputClock {
            clock: Clock::default(),
            reference: names.get(root).cloned().unwrap_or_default(),
            uncertainty_ns: 0.0,
        });
    }
    // Other inputs relate the clocks of some of these.
    let reference = |input: usize| known.get(&input).map(|clock| &clock.reference);
    aligned.look_alikes.retain(|same| reference(same.inputs.0) != reference(same.inputs.1));
    aligned.transits = transits(&edges, &aligned.clocks, &mut aligned.unclear);
    aligned
}

/// The edge from an aligned input to one that is not, with the least uncertainty at its end.
fn least_uncertain_edge<'a>(
    edges: &'a [ClockEdge],
    known: &BTreeMap<usize, InputClock>,
) -> Option<(&'a ClockEdge, usize, usize)> {
    let ways = edges.iter().filter_map(|edge| {
        let (a, b) = edge.inputs;
        let (from, to) = match (known.get(&a), known.get(&b)) {
            (Some(_), None) => (a, b),
            (None, Some(_)) => (b, a),
            _ => return None,
        };
        Some((known[&from].uncertainty_ns + edge.uncertainty_ns, edge, from, to))
    });
    let best = ways.min_by(|one, other| one.0.total_cmp(&other.0).then((one.2, one.3).cmp(&(other.2, other.3))));
    best.map(|(_, edge, from, to)| (edge, from, to))
}

/// The reason why two clocks cannot be compared; and, if the inputs hold the same packets, the median
/// difference of their times in nanoseconds.
type ClockProblem = (&'static str, Option<i64>);

/// Compares two inputs; `None` if they have no packets in common.
fn compare(
    (first, here): (usize, &FinishedSample),
    (second, there): (usize, &FinishedSample),
) -> Option<Result<ClockEdge, ClockProblem>> {
    let mut common = CommonPackets::find(here, there);
    let is_most = common.is_most;
    let base_ns = middle(common.packets.iter().map(common::CommonPacket::difference_ns))?;
    let problem = |why| Some(Err((why, is_most.then_some(base_ns))));
    let (start_ns, end_ns) = span(common.packets.iter().map(|packet| packet.first.time_ns))?;
    let origin_ns = start_ns + (end_ns - start_ns) / 2;
    // Either timestamp may be truncated to its resolution.
    let slack = (here.resolution_ns.max(there.resolution_ns) - 1) as f64;
    let Some(clouds) = common.clouds((origin_ns, base_ns), slack) else {
        return problem("no pair of endpoints has packets of both directions in both captures");
    };
    let Some(line) = clouds.fit() else {
        return problem(CONTRADICTION);
    };
    // The uncertainty of the line is largest at the first and the last time of both inputs.
    let (from, to) = there.span_ns().unwrap_or_default();
    let (own_from, own_to) = here.span_ns().unwrap_or_default();
    let ends = [own_from.min(from.saturating_sub(base_ns)), own_to.max(to.saturating_sub(base_ns))]
        .map(|time_ns| time_ns.saturating_sub(origin_ns) as f64);
    let uncertainty = clouds.uncertainty(&line, (ends[0], ends[1]));
    let apart = ends.map(|x| (base_ns as f64 + line.at + line.slope * x).abs());
    let (least, most) = (apart[0].min(apart[1]), apart[0].max(apart[1]));
    // A clock that runs unevenly is corrected only if the correction is much better than none.
    let is_even = line.margin >= 0.0;
    // PSNs wrap around: consecutive parts of one capture may hold packets that look alike, at the
    // rate of their sender. Observations of one packet differ by clock and transit time, so a line fits
    // them. No line fits packets that were sent later.
    if !is_even && (own_to < from || to < own_from) {
        return problem("they do not overlap in time, and packets that look alike may be different packets");
    }
    if !is_even && (most > MAX_APART_NS || uncertainty > MAX_UNEVEN_NS || least < MIN_IMPROVEMENT * uncertainty) {
        return problem(CONTRADICTION);
    }
    let agrees = most <= uncertainty;
    let clock = Clock {
        own_ns: origin_ns.saturating_add(base_ns).saturating_add(line.at.round() as i64),
        reference_ns: origin_ns,
        gain: 1.0 / (1.0 + line.slope) - 1.0,
    };
    let uncertainty_ns = if agrees { uncertainty + most } else { uncertainty };
    Some(Ok(ClockEdge { inputs: (first, second), clock, agrees, is_even, uncertainty_ns, common }))
}

fn middle(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    let half = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(half).1)
}

fn span(times: impl Iterator<Item = i64> + Clone) -> Option<(i64, i64)> {
    times.clone().min().zip(times.max())
}

/// Transit samples between a port that one input observes and a port that another observes. Each
/// connection takes its samples from the two inputs that hold most of them.
fn transits(
    edges: &[ClockEdge],
    clocks: &[Option<Clock>],
    unclear: &mut Vec<(usize, usize, &'static str)>,
) -> Vec<Transit> {
    let corrected = |input: usize, time_ns: i64| match clocks.get(input).copied().flatten() {
        Some(clock) => clock.corrected_ns(time_ns),
        None => time_ns,
    };
    let mut best: BTreeMap<ConnectionKey, Vec<Transit>> = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.is_even) {
        let (first, second) = edge.inputs;
        let mut own: BTreeMap<ConnectionKey, Vec<Transit>> = BTreeMap::new();
        for (packet, is_forth) in edge.common.transits() {
            let Some(verb) = Verb::of(packet.first.opcode).filter(|_| is_timed(packet.first.opcode)) else { continue };
            let times_ns = (corrected(first, packet.first.time_ns), corrected(second, packet.second.time_ns));
            let (from_ns, to_ns) = if is_forth { times_ns } else { (times_ns.1, times_ns.0) };
            let ns = u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0);
            let size = SizeClass::of(u64::from(packet.first.payload_bytes));
            own.entry(packet.key).or_default().push(Transit {
                connection: packet.key,
                verb,
                size,
                time_ns: from_ns,
                ns,
            });
        }
        let half = middle(own.values().flatten().map(|transit| i64::try_from(transit.ns).unwrap_or(i64::MAX)));
        if half.is_some_and(|half| (half as f64) < edge.uncertainty_ns && !edge.agrees) {
            unclear.push((
                first,
                second,
                "transit between them takes less time than the uncertainty of their clocks; no transits are shown",
            ));
            continue;
        }
        for (key, transits) in own {
            let most = best.entry(key).or_default();
            if transits.len() > most.len() {
                *most = transits;
            }
        }
    }
    best.into_values().flatten().collect()
}

/// Requests and responses, not acknowledgements, as if one input held both ports.
fn is_timed(opcode: Opcode) -> bool {
    matches!(PacketRole::of(opcode), PacketRole::Request | PacketRole::Response)
}
