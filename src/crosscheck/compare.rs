//! The comparison, pair by pair, and what explains a difference.

use super::contexts::Contexts;
use super::eztrace;
use super::message_sums::Sums;
use super::placement::Placement;
use super::trace::{StreamKey, Trace, Tracer, fold};
use super::unidentified::Accounts;
use super::verdict::{Cause, Outcome, Verdict};
use super::wire::{Traffic, Wire};
use crate::model::profile::StreamEnvelope;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What one packet can hold.
const LARGEST_MTU_BYTES: u64 = 4096;

/// Two ranks, sender and receiver, in the trace and on the wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Point-to-point messages in the trace.
    pub trace: Sums,
    /// Point-to-point messages on the wire, all of them.
    pub wire: Sums,
    /// Those of them that are the tracer's own.
    pub tracer: Sums,
    /// Messages that the trace has and the wire has not, for a reason that is known.
    pub missing: Sums,
    /// Those of them that are on the wire with a sender or receiver that is not identified.
    pub unidentified: Sums,
    /// What counts on the wire beyond the trace, for a reason that is known: messages whose packets were sent again, and lengths over holes.
    pub beyond: Sums,
    /// What the comparison came to.
    pub verdict: Verdict,
    /// What explains a difference.
    pub causes: Vec<Cause>,
    /// Tags of which messages differ without a reason.
    pub differences: Vec<Difference>,
    /// All bytes on the wire from the sender to the receiver: headers, acknowledgements and collectives included.
    pub wire_bytes: u64,
    /// InfiniBand payload of them.
    pub payload_bytes: u64,
    /// Wire bytes of packets that were sent again.
    pub retransmitted_wire_bytes: u64,
}

/// Messages of one tag that differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The tag; `None` where tags are not told apart.
    pub tag: Option<i32>,
    /// Communicators of the trace, and context ids of the wire, with such messages.
    pub communicators: Vec<String>,
    /// See above.
    pub contexts: Vec<u32>,
    /// In the trace.
    pub trace: Sums,
    /// On the wire.
    pub wire: Sums,
}

impl Pair {
    /// What is left unexplained on the wire beyond the trace: messages and bytes, negative where the trace has more.
    #[must_use]
    pub fn excess(&self) -> (i128, i128) {
        let of = |of: fn(&Sums) -> u64| {
            let [wire, tracer, trace, missing, beyond] =
                [self.wire, self.tracer, self.trace, self.missing, self.beyond].map(|sums| i128::from(of(&sums)));
            wire - tracer - trace + missing - beyond
        };
        (of(|sums| sums.messages), of(|sums| sums.bytes))
    }

    /// What the pair comes to in one word.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::of(self.verdict, &self.causes)
    }
}

/// The messages of a pair by tag, on both sides.
#[derive(Clone, Debug, Default)]
struct Side {
    trace: BTreeMap<Option<i32>, Sums>,
    wire: BTreeMap<Option<i32>, Sums>,
    tracer: Sums,
    /// Those of the wire on `MPI_COMM_WORLD` with the tags of eztrace's own.
    world: eztrace::ByTag,
    communicators: BTreeMap<Option<i32>, BTreeSet<u32>>,
    contexts: BTreeMap<Option<i32>, BTreeSet<u32>>,
    /// Messages of the trace that were sent before or after the capture.
    outside: BTreeMap<Option<i32>, u64>,
}

/// What a comparison needs beside the trace.
pub(super) struct Known<'a> {
    pub(super) wire: &'a Wire,
    pub(super) contexts: &'a Contexts,
    pub(super) placement: &'a Placement,
    /// Messages of the trace that were sent before or after the capture, by sender, receiver and tag.
    pub(super) outside: &'a BTreeMap<(u32, u32, Option<i32>), u64>,
}

/// Compares all pairs of ranks between which the trace or the wire has messages. `accounts` are
/// what explains messages of ranks that are not identified.
pub(super) fn pairs(trace: &Trace, known: &Known<'_>, accounts: &mut Accounts, tolerance_percent: f64) -> Vec<Pair> {
    let Known { wire, contexts, placement, outside } = known;
    let mut sides: BTreeMap<(u32, u32), Side> = BTreeMap::new();
    let by_pair = trace.tracer == Tracer::Table;
    // The wire first: whether its tags are known decides how those of the trace are added up.
    let mut unnamed = BTreeSet::new();
    for (pair, envelope, _) in wire.messages() {
        if envelope.is_none() {
            unnamed.insert(pair);
        }
    }
    let tag_of = |pair: (u32, u32), tag: Option<i32>| {
        let mut key = StreamKey { src: pair.0, dst: pair.1, communicator: 0, tag };
        if by_pair || unnamed.contains(&pair) {
            key.tag = None;
        } else if trace.sends.is_folded() {
            fold(&mut key);
        }
        key.tag
    };
    for (pair, envelope, sums) in wire.messages() {
        let side = sides.entry(pair).or_default();
        let sums = Sums { messages: sums.messages, bytes: sums.mpi_bytes };
        match envelope {
            Some(envelope) if contexts.tracer == Some(envelope.context) => side.tracer += sums,
            _ => {
                side.add_world(envelope, sums);
                let tag = tag_of(pair, envelope.map(|envelope| envelope.tag));
                *side.wire.entry(tag).or_default() += sums;
                side.contexts.entry(tag).or_default().extend(envelope.map(|envelope| envelope.context));
            }
        }
    }
    for (key, stream) in trace.sends.sorted() {
        let pair = (key.src, key.dst);
        let side = sides.entry(pair).or_default();
        let tag = tag_of(pair, key.tag);
        *side.trace.entry(tag).or_default() += stream.sums;
        side.communicators.entry(tag).or_default().insert(key.communicator);
    }
    let ports = ports_explain(&sides, known, accounts);
    let ends = Ends::of(wire);
    // Accounts are for ranks that are identified nowhere before they are for others.
    let mut sides: Vec<((u32, u32), Side)> = sides.into_iter().collect();
    sides.sort_by_key(|((src, dst), _)| wire.is_identified(*src) && wire.is_identified(*dst));
    let judge = |((src, dst), mut side): ((u32, u32), Side)| {
        let of_pair = (src, dst, Some(i32::MIN))..=(src, dst, Some(i32::MAX));
        for (&(.., tag), messages) in outside.range(of_pair) {
            *side.outside.entry(tag_of((src, dst), tag)).or_default() += messages;
        }
        let traffic = wire.traffic.get(&(src, dst)).copied().unwrap_or_default();
        let back = wire.traffic.get(&(dst, src)).copied().unwrap_or_default();
        let has_packets = traffic.packets.max(back.packets) > 0;
        let seen = Seen {
            pair: (src, dst),
            traffic,
            is_captured: !ports || has_packets || may_be_unidentified(wire, accounts, (src, dst)),
            is_same_node: placement.is_same_node(src, dst),
        };
        let own = trace.own.get(&src).filter(|_| dst == 0 && ends.eztrace_is_last(src));
        side.judge(&seen, trace, own, &mut Explaining { wire, accounts }, tolerance_percent)
    };
    let mut pairs: Vec<Pair> = sides.into_iter().map(judge).collect();
    pairs.sort_by_key(|pair| (pair.src, pair.dst));
    pairs
}

/// True where packets that were captured may be of two ranks though at least one of their ranks is
/// not identified.
fn may_be_unidentified(wire: &Wire, accounts: &Accounts, (src, dst): (u32, u32)) -> bool {
    accounts.may_hold(wire, (src, dst)) || accounts.may_hold(wire, (dst, src))
}

/// True where the ports that were captured may explain which pairs have no packets at all: all that was seen went through a node of which nothing is
/// missing.
fn ports_explain(sides: &BTreeMap<(u32, u32), Side>, known: &Known<'_>, accounts: &Accounts) -> bool {
    let Known { wire, placement, .. } = known;
    let node = |rank: u32| placement.node(rank).map_or_else(|| format!("rank {rank}"), str::to_owned);
    let packets = |src: u32, dst: u32| wire.traffic.get(&(src, dst)).map_or(0, |traffic| traffic.packets);
    let (mut seen, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for (&(src, dst), side) in sides.iter().filter(|((src, dst), _)| !placement.is_same_node(*src, *dst)) {
        if packets(src, dst).max(packets(dst, src)) > 0 {
            seen.insert((node(src), node(dst)));
        } else if !side.trace.is_empty() && !may_be_unidentified(wire, accounts, (src, dst)) {
            missing.extend([node(src), node(dst)]);
        }
    }
    seen.iter().all(|(src, dst)| !missing.contains(src) || !missing.contains(dst))
}

/// When each rank sent its last messages.
#[derive(Default)]
struct Ends {
    /// Of the program.
    program: BTreeMap<u32, i64>,
    /// Those that may be eztrace's.
    tracer: BTreeMap<u32, i64>,
}

impl Ends {
    fn of(wire: &Wire) -> Self {
        let mut ends = Self::default();
        for ((src, dst), envelope, sums) in wire.messages() {
            let (Some(envelope), Some((_, last_ns))) = (envelope, sums.times_ns) else { continue };
            let is_tracers = dst == 0 && envelope.world && eztrace::TAGS.contains(&envelope.tag);
            let last = if is_tracers { &mut ends.tracer } else { &mut ends.program };
            last.entry(src).and_modify(|last| *last = last_ns.max(*last)).or_insert(last_ns);
        }
        ends
    }

    /// eztrace sends when the program is done.
    fn eztrace_is_last(&self, src: u32) -> bool {
        self.tracer.get(&src) >= self.program.get(&src)
    }
}

/// What is known of a pair beside its messages.
struct Seen {
    pair: (u32, u32),
    traffic: Traffic,
    /// Packets between the two were captured, or it cannot be that they were not.
    is_captured: bool,
    is_same_node: bool,
}

/// What explains messages of ranks that are not identified.
struct Explaining<'a> {
    wire: &'a Wire,
    accounts: &'a mut Accounts,
}

/// A message total and a byte total that the trace has beyond the wire, of one tag.
struct Shortage {
    tag: Option<i32>,
    found: Sums,
    missing: Sums,
    /// Messages of the tag that were sent before or after the capture.
    outside: u64,
    /// Messages of other tags that the capture has lost.
    lost: u64,
}

impl Side {
    fn add_world(&mut self, envelope: Option<StreamEnvelope>, sums: Sums) {
        let Some(envelope) = envelope.filter(|envelope| envelope.world) else { return };
        let place = eztrace::TAGS.iter().position(|tag| *tag == envelope.tag);
        if let Some(world) = place.and_then(|place| self.world.get_mut(place)) {
            *world += sums;
        }
    }

    fn judge(
        mut self,
        seen: &Seen,
        trace: &Trace,
        eztrace: Option<&eztrace::ByTag>,
        explaining: &mut Explaining<'_>,
        tolerance_percent: f64,
    ) -> Pair {
        let (src, dst) = seen.pair;
        let mut causes = BTreeSet::new();
        let total = |sums: &BTreeMap<Option<i32>, Sums>| {
            let mut total = Sums::default();
            sums.values().for_each(|sums| total += *sums);
            total
        };
        let in_trace = total(&self.trace);
        let mut on_wire = total(&self.wire);
        on_wire += self.tracer;
        let lost = eztrace.map_or(0, |own| self.take_eztrace(own, seen.traffic.lost_packets));
        if lost > 0 {
            causes.insert(Cause::Lost);
        }
        if self.tracer.messages > 0 {
            causes.insert(Cause::Tracer);
        }
        let [mut missing, mut unidentified, mut beyond] = [Sums::default(); 3];
        let mut differences = Vec::new();
        let tags: BTreeSet<Option<i32>> = self.trace.keys().chain(self.wire.keys()).copied().collect();
        for tag in tags {
            let of = |sums: &BTreeMap<Option<i32>, Sums>| sums.get(&tag).copied().unwrap_or_default();
            let (expected, found) = (of(&self.trace), of(&self.wire));
            if expected == found {
                continue;
            }
            let shortage = expected.checked_less(found).filter(|missing| missing.messages > 0).map(|short| Shortage {
                tag,
                found,
                missing: short,
                outside: self.outside.get(&tag).copied().unwrap_or(0),
                lost: missing.less(unidentified).messages.saturating_add(lost),
            });
            let found_causes = shortage.as_ref().map(|shortage| seen.causes(shortage, explaining)).unwrap_or_default();
            if let Some(shortage) = shortage.filter(|_| !found_causes.is_empty()) {
                missing += shortage.missing;
                if found_causes.iter().any(|cause| cause.is_not_identified()) {
                    unidentified += shortage.missing;
                }
                causes.extend(found_causes);
                continue;
            }
            let more = found.checked_less(expected);
            if let Some(more) = more.filter(|more| seen.may_repeat(beyond.messages.saturating_add(more.messages))) {
                causes.insert(Cause::Retransmission);
                beyond += more;
                continue;
            }
            differences.push(self.difference(tag, trace));
        }
        let lost = missing.less(unidentified).messages.saturating_add(lost);
        if let Some((lacking, more_bytes)) = seen.over_holes(&differences, lost) {
            causes.insert(Cause::Lost);
            missing += lacking;
            beyond += Sums { messages: 0, bytes: more_bytes };
            differences.clear();
        }
        let mut pair = Pair {
            src,
            dst,
            trace: in_trace,
            wire: on_wire,
            tracer: self.tracer,
            missing,
            unidentified,
            beyond,
            verdict: Verdict::Equal,
            causes: causes.into_iter().collect(),
            differences,
            wire_bytes: seen.traffic.wire_bytes,
            payload_bytes: seen.traffic.payload_bytes,
            retransmitted_wire_bytes: seen.traffic.retransmitted_wire_bytes,
        };
        let (messages, bytes) = pair.excess();
        let within = |excess: i128, of: u64| {
            excess == 0
                || tolerance_percent > 0.0 && excess.unsigned_abs() as f64 * 100.0 <= tolerance_percent * of as f64
        };
        pair.verdict = match (pair.differences.is_empty(), pair.causes.is_empty()) {
            (true, true) => Verdict::Equal,
            (true, false) => Verdict::Explained,
            _ if tolerance_percent > 0.0 && within(messages, in_trace.messages) && within(bytes, in_trace.bytes) => {
                Verdict::Tolerated
            }
            _ => Verdict::Unexplained,
        };
        if pair.retransmitted_wire_bytes > 0 && !pair.causes.contains(&Cause::Retransmission) {
            // That is why the wire carried more than messages and headers; the messages agree without it.
            pair.causes.push(Cause::Retransmission);
        }
        pair
    }

    /// Messages of a tag, on both sides.
    fn difference(&self, tag: Option<i32>, trace: &Trace) -> Difference {
        let communicators = self.communicators.get(&tag).into_iter().flatten();
        let label = |index: &u32| trace.communicators.get(*index as usize).map(super::trace::Communicator::label);
        Difference {
            tag,
            communicators: communicators.filter_map(label).collect(),
            contexts: self.contexts.get(&tag).into_iter().flatten().copied().collect(),
            trace: self.trace.get(&tag).copied().unwrap_or_default(),
            wire: self.wire.get(&tag).copied().unwrap_or_default(),
        }
    }

    /// Takes eztrace's own messages out of those of the wire, of the ones that it must have sent.
    /// How many of them the capture has lost.
    fn take_eztrace(&mut self, own: &eztrace::ByTag, lost_packets: u64) -> u64 {
        let mut beyond = eztrace::ByTag::default();
        for ((beyond, tag), world) in beyond.iter_mut().zip(eztrace::TAGS).zip(self.world) {
            let of = |sums: &BTreeMap<Option<i32>, Sums>| sums.get(&Some(tag)).copied().unwrap_or_default();
            let Some(more) = of(&self.wire).checked_less(of(&self.trace)) else { return 0 };
            *beyond = Sums { messages: more.messages.min(world.messages), bytes: more.bytes.min(world.bytes) };
        }
        let Some(taken) = eztrace::among(&beyond, own) else { return 0 };
        for (tag, taken) in eztrace::TAGS.into_iter().zip(taken) {
            if let Some(sums) = self.wire.get_mut(&Some(tag)) {
                *sums = sums.less(taken);
            }
            self.tracer += taken;
        }
        let messages = |of: &eztrace::ByTag| of.iter().fold(0_u64, |sum, sums| sum.saturating_add(sums.messages));
        let lost = messages(own).saturating_sub(messages(&taken));
        // Where none are on the wire, or more are missing than the capture has lost, they went
        // another way or before or after it.
        if messages(&taken) > 0 && lost <= lost_packets { lost } else { 0 }
    }
}

impl Seen {
    /// Why messages of the trace are not on the wire between these ranks; none where nothing says.
    fn causes(&self, shortage: &Shortage, explaining: &mut Explaining<'_>) -> Vec<Cause> {
        let &Shortage { tag, found, missing, outside, lost } = shortage;
        if self.is_same_node && found.messages == 0 {
            return vec![Cause::SameNode];
        }
        if !self.is_captured {
            return vec![Cause::NotCaptured];
        }
        if missing.messages <= outside {
            return vec![Cause::OutsideCapture];
        }
        let unidentified = explaining.accounts.take(explaining.wire, self.pair, tag, missing);
        if unidentified.is_empty() && lost.saturating_add(missing.messages) <= self.traffic.lost_packets {
            return vec![Cause::Lost];
        }
        unidentified
    }

    /// What is lacking, and the bytes that are too many, where lost packets may be why: with some libraries the length of a message is that of its packets, and
    /// where the end of one and the start of another are lost, the first is as long as both. `before` messages of other tags are missing too.
    fn over_holes(&self, differences: &[Difference], before: u64) -> Option<(Sums, u64)> {
        let mut lacking = Sums::default();
        let (mut expected_bytes, mut found_bytes) = (0_u64, 0_u64);
        for Difference { trace, wire, .. } in differences {
            lacking += Sums { messages: trace.messages.checked_sub(wire.messages)?, bytes: 0 };
            expected_bytes = expected_bytes.saturating_add(trace.bytes);
            found_bytes = found_bytes.saturating_add(wire.bytes);
        }
        lacking.bytes = expected_bytes.saturating_sub(found_bytes);
        let more_bytes = found_bytes.saturating_sub(expected_bytes);
        let lost = self.traffic.lost_packets;
        let is_possible = lacking.messages > 0
            && before.saturating_add(lacking.messages) <= lost
            && more_bytes <= lost.saturating_mul(LARGEST_MTU_BYTES);
        is_possible.then_some((lacking, more_bytes))
    }

    /// True where so many messages may have been counted twice: what is sent again is told from what is new by its number, until so much was lost that
    /// numbers had to be forgotten. What is older than those counts as new, and as late.
    const fn may_repeat(&self, messages: u64) -> bool {
        messages > 0 && messages <= self.traffic.late_packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_explain_no_more_than_may_be_repeats() {
        let judged = |late_packets: u64| {
            let sums = |messages, bytes| BTreeMap::from([(Some(5), Sums { messages, bytes })]);
            let side = Side { trace: sums(3, 30), wire: sums(5, 50), ..Side::default() };
            let traffic = Traffic { late_packets, ..Traffic::default() };
            let seen = Seen { pair: (0, 1), traffic, is_captured: true, is_same_node: false };
            let mut explaining = Explaining { wire: &Wire::default(), accounts: &mut Accounts::default() };
            side.judge(&seen, &Trace::default(), None, &mut explaining, 0.0)
        };
        let explained = judged(2);
        assert_eq!((explained.verdict, &explained.causes[..]), (Verdict::Explained, &[Cause::Retransmission][..]));
        assert_eq!((explained.beyond, explained.excess()), (Sums { messages: 2, bytes: 20 }, (0, 0)));
        let unexplained = judged(1);
        assert_eq!((unexplained.verdict, unexplained.excess()), (Verdict::Unexplained, (2, 20)));
    }
}
