//! Clocks of several captures: how far they are apart, from packets that two of them hold.
//!
//! Each input draws a sample of its packets by a hash of what a packet is, so that two inputs draw the same ones ([`Sights`]). `common` finds those that two
//! of them hold and says what they tell: a packet from a port that one input sees to a port that the other one sees was stamped by both, the sender's first,
//! so packets that went there bound the difference of the two clocks from above, packets that came back from below. Where one input sees both ports
//! of a pair, each packet bounds it from both sides. `line` finds the clock between these bounds, and how sure it is.
//!
//! Inputs whose clocks agree within the uncertainty are left as they are. All others are corrected to the clock of the first input, or to that of a manifest, on the
//! way over other inputs that is surest.

mod chains;
mod common;
mod sights;
#[cfg(test)]
mod tests;

pub use chains::chains;
pub use sights::{Drawn, Sights, hash};

use crate::model::{Clock, ClockRow, ConnectionKey, SizeClass, Turn, Verb};
use common::Common;
use ibscope_parsers::ib::Opcode;
use sights::{Drawing, Sight};
use std::collections::BTreeMap;

/// Clocks that do not run evenly and are farther apart than ten minutes are not found from packets: a queue pair that
/// begins anew with the same numbers would look the same. At an even pace it would not.
const MAX_APART_NS: f64 = 600e9;
/// A clock that does not run evenly is corrected if it stays as near to even as this, in nanoseconds, and is so many times farther off.
const MOST_UNEVEN_NS: f64 = 1e6;
const MUCH: f64 = 10.0;
const CONTRADICTION: &str = "their times contradict each other: a clock was set or runs unevenly, or the packets are not the same ones; \
                             give what is known with --manifest";

/// What is known of the clocks of all inputs.
#[derive(Debug, Default)]
pub struct Aligned {
    /// By input: what its times are corrected by; `None` where they are left as they are.
    pub clocks: Vec<Option<Clock>>,
    /// By input: what the profile says of it; `None` for the input that others are held against, and for one that shares nothing.
    pub rows: Vec<Option<ClockRow>>,
    /// The packets that were compared, from the sender's port to the receiver's.
    pub transits: Vec<Transit>,
    /// Pairs of inputs that hold the same packets and whose clocks could not be compared, and why.
    pub unclear: Vec<(usize, usize, &'static str)>,
}

/// The way of a packet from one port to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Its connection.
    pub connection: ConnectionKey,
    /// What it belongs to.
    pub verb: Verb,
    /// How long its payload is.
    pub size: SizeClass,
    /// When it began, on the clock that all are corrected to.
    pub time_ns: i64,
    /// How long it took; 0 where the uncertainty of the clocks turned it round.
    pub ns: u64,
}

/// How the clock of one input runs against that of another.
struct Edge {
    inputs: (usize, usize),
    /// Of the second input on the first.
    clock: Clock,
    /// The clocks are the same, as far as can be told.
    agrees: bool,
    /// A line lies between the bounds.
    is_even: bool,
    uncertainty_ns: f64,
    common: Common,
}

/// A clock that is known beforehand, and by how much it may be wrong, in nanoseconds.
pub type Given = (Clock, u64);

/// What is known of one input on the way.
#[derive(Clone)]
struct Known {
    /// Its clock on that of the root.
    clock: Clock,
    /// What the clock of the root is called.
    reference: String,
    uncertainty_ns: f64,
}

/// Compares the clocks of inputs. `names` are theirs, for the profile; `given` are the clocks that need not be found, all on one clock, which is
/// called `reference`; they get neither clock nor row here.
#[must_use]
pub fn align(sights: Vec<Sights>, names: &[String], given: &[Option<Given>], reference: &str) -> Aligned {
    let given = |input: usize| given.get(input).copied().flatten();
    let finish = |(input, sights): (usize, Sights)| sights.finish(given(input).map(|(clock, _)| clock));
    let inputs: Vec<Drawing> = sights.into_iter().enumerate().map(finish).collect();
    let mut aligned =
        Aligned { clocks: vec![None; inputs.len()], rows: vec![None; inputs.len()], ..Aligned::default() };
    let mut edges = Vec::new();
    for second in 1..inputs.len() {
        for first in 0..second {
            match compare((first, &inputs[first]), (second, &inputs[second])) {
                Some(Ok(edge)) => edges.push(edge),
                Some(Err(why)) if given(first).is_none() || given(second).is_none() => {
                    aligned.unclear.push((first, second, why));
                }
                Some(Err(_)) | None => {}
            }
        }
    }
    let mut known: BTreeMap<usize, Known> = BTreeMap::new();
    for index in 0..inputs.len() {
        if let Some((_, uncertainty_ns)) = given(index) {
            // Its sights are on the reference's clock already.
            let uncertainty_ns = uncertainty_ns as f64;
            known.insert(index, Known { clock: Clock::default(), reference: reference.to_owned(), uncertainty_ns });
        }
    }
    for root in 0..inputs.len() {
        // The next step is the one after which most is known.
        while let Some((edge, from, to)) = surest(&edges, &known) {
            let step = if to == edge.inputs.1 { edge.clock } else { edge.clock.inverse() };
            let Known { clock: before, reference, uncertainty_ns } = known[&from].clone();
            let clock = if edge.agrees { before } else { step.on(&before) };
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
            known.insert(to, Known { clock, reference, uncertainty_ns });
        }
        known.entry(root).or_insert_with(|| Known {
            clock: Clock::default(),
            reference: names.get(root).cloned().unwrap_or_default(),
            uncertainty_ns: 0.0,
        });
    }
    aligned.transits = transits(&edges, &aligned.clocks, &mut aligned.unclear);
    aligned
}

/// Of the edges that lead from what is known to what is not, the one with the least uncertainty at its end.
fn surest<'a>(edges: &'a [Edge], known: &BTreeMap<usize, Known>) -> Option<(&'a Edge, usize, usize)> {
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

/// Compares two inputs; `None` where they hold nothing in common.
fn compare((first, here): (usize, &Drawing), (second, there): (usize, &Drawing)) -> Option<Result<Edge, &'static str>> {
    let mut common = Common::find(here, there);
    let base_ns = middle(common.packets.iter().map(common::Packet::difference_ns))?;
    let (start_ns, end_ns) = span(common.packets.iter().map(|packet| packet.here.time_ns))?;
    let origin_ns = start_ns + (end_ns - start_ns) / 2;
    // A time may have been cut to the resolution on either side.
    let slack = (here.resolution_ns.max(there.resolution_ns) - 1) as f64;
    let Some(clouds) = common.clouds((origin_ns, base_ns), slack) else {
        return Some(Err("only packets in one direction are in both"));
    };
    let Some(line) = clouds.fit() else {
        return Some(Err(CONTRADICTION));
    };
    // How far an even clock can be off at both ends of what the two hold.
    let (from, to) = there.span_ns().unwrap_or_default();
    let (own_from, own_to) = here.span_ns().unwrap_or_default();
    let ends = [own_from.min(from.saturating_sub(base_ns)), own_to.max(to.saturating_sub(base_ns))]
        .map(|time_ns| time_ns.saturating_sub(origin_ns) as f64);
    let uncertainty = clouds.uncertainty(&line, (ends[0], ends[1]));
    let apart = ends.map(|x| (base_ns as f64 + line.at + line.slope * x).abs());
    let (least, most) = (apart[0].min(apart[1]), apart[0].max(apart[1]));
    // One that does not run evenly is set right where that is much better than nothing.
    let is_even = line.margin >= 0.0;
    // Numbers come again: parts of a capture that follow each other may hold packets that are alike, at the pace of their sender. Copies of one
    // packet differ by a clock and a way, which fits a line; packets that are sent at a later time do not.
    if !is_even && (own_to < from || to < own_from) {
        return Some(Err("they do not overlap in time, and what is alike in them is not the same packets"));
    }
    if !is_even && (most > MAX_APART_NS || uncertainty > MOST_UNEVEN_NS || least < MUCH * uncertainty) {
        return Some(Err(CONTRADICTION));
    }
    let agrees = most <= uncertainty;
    let clock = Clock {
        own_ns: origin_ns.saturating_add(base_ns).saturating_add(line.at.round() as i64),
        reference_ns: origin_ns,
        gain: 1.0 / (1.0 + line.slope) - 1.0,
    };
    let uncertainty_ns = if agrees { uncertainty + most } else { uncertainty };
    Some(Ok(Edge { inputs: (first, second), clock, agrees, is_even, uncertainty_ns, common }))
}

fn middle(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    let half = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(half).1)
}

fn span(times: impl Iterator<Item = i64> + Clone) -> Option<(i64, i64)> {
    times.clone().min().zip(times.max())
}

/// Transits of packets from a port that one input sees to a port that the other one sees, of each connection from the two inputs that hold most of them.
fn transits(edges: &[Edge], clocks: &[Option<Clock>], unclear: &mut Vec<(usize, usize, &'static str)>) -> Vec<Transit> {
    let corrected = |input: usize, time_ns: i64| match clocks.get(input).copied().flatten() {
        Some(clock) => clock.corrected_ns(time_ns),
        None => time_ns,
    };
    let mut best: BTreeMap<ConnectionKey, Vec<Transit>> = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.is_even) {
        let (first, second) = edge.inputs;
        let mut own: BTreeMap<ConnectionKey, Vec<Transit>> = BTreeMap::new();
        let passages = edge.common.passages();
        for (packet, is_forth) in passages {
            let Some(verb) = Verb::of(packet.here.opcode).filter(|_| is_timed(packet.here.opcode)) else { continue };
            let times_ns = (corrected(first, packet.here.time_ns), corrected(second, packet.there.time_ns));
            let (from_ns, to_ns) = if is_forth { times_ns } else { (times_ns.1, times_ns.0) };
            let ns = u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0);
            let size = SizeClass::of(u64::from(packet.here.payload_bytes));
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
                "what is between them takes less time than their clocks are known to; no transits are shown",
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

/// As where one input holds both ports: requests and responses, no acknowledgements.
fn is_timed(opcode: Opcode) -> bool {
    matches!(Turn::of(opcode), Turn::Request | Turn::Response)
}
