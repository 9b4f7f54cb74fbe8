//! The comparison, pair by pair, and what explains a difference.

use super::contexts::Contexts;
use super::placement::Placement;
use super::trace::{EZTRACE_TAGS, StreamKey, Sums, Trace, Tracer, fold};
use super::verdict::{Cause, Verdict};
use super::wire::{Traffic, Wire};
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
}

/// The messages of a pair by tag, on both sides.
#[derive(Clone, Debug, Default)]
struct Side {
    trace: BTreeMap<Option<i32>, Sums>,
    wire: BTreeMap<Option<i32>, Sums>,
    tracer: Sums,
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

/// Compares all pairs of ranks between which the trace or the wire has messages.
pub(super) fn pairs(trace: &Trace, known: &Known<'_>, tolerance_percent: f64) -> Vec<Pair> {
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
    let ports = ports_explain(&sides, wire, placement);
    let ends = (trace.tracer == Tracer::Eztrace).then(|| Ends::of(wire));
    sides
        .into_iter()
        .map(|((src, dst), mut side)| {
            let of_pair = (src, dst, Some(i32::MIN))..=(src, dst, Some(i32::MAX));
            for (&(.., tag), messages) in outside.range(of_pair) {
                *side.outside.entry(tag_of((src, dst), tag)).or_default() += messages;
            }
            let traffic = wire.traffic.get(&(src, dst)).copied().unwrap_or_default();
            let back = wire.traffic.get(&(dst, src)).copied().unwrap_or_default();
            let is_same_node = placement.is_same_node(src, dst);
            let seen = Seen { traffic, is_captured: !ports || traffic.packets.max(back.packets) > 0, is_same_node };
            let is_tracers = ends.as_ref().is_some_and(|ends| dst == 0 && ends.eztrace_is_last(src));
            side.judge((src, dst), &seen, trace, is_tracers, tolerance_percent)
        })
        .collect()
}

/// True where the ports that were captured may explain which pairs have no packets at all: all that was seen went through a node of which nothing is
/// missing.
fn ports_explain(sides: &BTreeMap<(u32, u32), Side>, wire: &Wire, placement: &Placement) -> bool {
    let node = |rank: u32| placement.node(rank).map_or_else(|| format!("rank {rank}"), str::to_owned);
    let packets = |src: u32, dst: u32| wire.traffic.get(&(src, dst)).map_or(0, |traffic| traffic.packets);
    let (mut seen, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for (&(src, dst), side) in sides.iter().filter(|((src, dst), _)| !placement.is_same_node(*src, *dst)) {
        if packets(src, dst).max(packets(dst, src)) > 0 {
            seen.insert((node(src), node(dst)));
        } else if !side.trace.is_empty() {
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
            let is_tracers = dst == 0 && envelope.world && EZTRACE_TAGS.contains(&envelope.tag);
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
    traffic: Traffic,
    /// Packets between the two were captured, or it cannot be that they were not.
    is_captured: bool,
    is_same_node: bool,
}

impl Side {
    fn judge(
        mut self,
        (src, dst): (u32, u32),
        seen: &Seen,
        trace: &Trace,
        is_eztrace: bool,
        tolerance_percent: f64,
    ) -> Pair {
        let mut causes = BTreeSet::new();
        let total = |sums: &BTreeMap<Option<i32>, Sums>| {
            let mut total = Sums::default();
            sums.values().for_each(|sums| total += *sums);
            total
        };
        let in_trace = total(&self.trace);
        let mut on_wire = total(&self.wire);
        on_wire += self.tracer;
        let mut lost = 0;
        if is_eztrace {
            let own;
            (own, lost) = self.eztrace(seen.traffic.lost_packets);
            self.tracer += own;
            if lost > 0 {
                causes.insert(Cause::Lost);
            }
        }
        if self.tracer.messages > 0 {
            causes.insert(Cause::Tracer);
        }
        let (mut missing, mut beyond) = (Sums::default(), Sums::default());
        let mut differences = Vec::new();
        let tags: BTreeSet<Option<i32>> = self.trace.keys().chain(self.wire.keys()).copied().collect();
        for tag in tags {
            let of = |sums: &BTreeMap<Option<i32>, Sums>| sums.get(&tag).copied().unwrap_or_default();
            let (expected, found) = (of(&self.trace), of(&self.wire));
            if expected == found {
                continue;
            }
            let lacking = expected.messages.checked_sub(found.messages).zip(expected.bytes.checked_sub(found.bytes));
            let lacking = lacking.filter(|(messages, _)| *messages > 0);
            let cause = lacking.and_then(|(messages, _)| {
                let outside = self.outside.get(&tag).copied().unwrap_or(0);
                seen.cause(found, messages, outside, missing.messages.saturating_add(lost))
            });
            if let (Some(cause), Some((messages, bytes))) = (cause, lacking) {
                causes.insert(cause);
                missing += Sums { messages, bytes };
                continue;
            }
            let more = found.messages.checked_sub(expected.messages).zip(found.bytes.checked_sub(expected.bytes));
            if let Some((messages, bytes)) =
                more.filter(|(messages, _)| seen.may_repeat(beyond.messages.saturating_add(*messages)))
            {
                causes.insert(Cause::Retransmission);
                beyond += Sums { messages, bytes };
                continue;
            }
            differences.push(self.difference(tag, trace));
        }
        if let Some((lacking, more_bytes)) = seen.over_holes(&differences, missing.messages.saturating_add(lost)) {
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

    /// Takes eztrace's own messages out of those of the wire: at the end each rank sends rank 0 of `MPI_COMM_WORLD` two of tag 17 (4 bytes
    /// each) for every three of tag 18. Only what the trace does not have is taken, and only where it is just that, but for `lost_packets` at most. Also
    /// says how many are lost.
    fn eztrace(&mut self, lost_packets: u64) -> (Sums, u64) {
        let beyond = |tag: i32| {
            let of = |sums: &BTreeMap<Option<i32>, Sums>| sums.get(&Some(tag)).copied().unwrap_or_default();
            let (expected, found) = (of(&self.trace), of(&self.wire));
            let messages = found.messages.checked_sub(expected.messages)?;
            Some(Sums { messages, bytes: found.bytes.checked_sub(expected.bytes)? })
        };
        let none = (Sums::default(), 0);
        let [Some(first), Some(second)] = EZTRACE_TAGS.map(beyond) else { return none };
        let rounds = first.messages.div_ceil(2).max(second.messages.div_ceil(3));
        let lost = rounds.saturating_mul(5).saturating_sub(first.messages).saturating_sub(second.messages);
        if rounds == 0 || Some(first.bytes) != first.messages.checked_mul(4) || lost > lost_packets {
            return none;
        }
        for (tag, own) in EZTRACE_TAGS.into_iter().zip([first, second]) {
            if let Some(sums) = self.wire.get_mut(&Some(tag)) {
                sums.messages -= own.messages;
                sums.bytes -= own.bytes;
            }
        }
        let mut own = first;
        own += second;
        (own, lost)
    }
}

impl Seen {
    /// Why `messages` of the trace are not on the wire, where `found` of the same tag are, of which `outside` were sent before or after the capture, and
    /// `before` of other tags are missing too.
    fn cause(&self, found: Sums, messages: u64, outside: u64, before: u64) -> Option<Cause> {
        if self.is_same_node && found.messages == 0 {
            Some(Cause::SameNode)
        } else if !self.is_captured {
            Some(Cause::NotCaptured)
        } else if messages <= outside {
            Some(Cause::OutsideCapture)
        } else if before.saturating_add(messages) <= self.traffic.lost_packets {
            Some(Cause::Lost)
        } else {
            None
        }
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
            let seen = Seen { traffic, is_captured: true, is_same_node: false };
            side.judge((0, 1), &seen, &Trace::default(), false, 0.0)
        };
        let explained = judged(2);
        assert_eq!((explained.verdict, &explained.causes[..]), (Verdict::Explained, &[Cause::Retransmission][..]));
        assert_eq!((explained.beyond, explained.excess()), (Sums { messages: 2, bytes: 20 }, (0, 0)));
        let unexplained = judged(1);
        assert_eq!((unexplained.verdict, unexplained.excess()), (Verdict::Unexplained, (2, 20)));
    }
}
