//! Compares the messages of a trace with the wire by pair of ranks, and explains differences.
//!
//! In: sums by stream of both sides, and the context (placement, contexts, messages outside the
//! capture, unidentified messages). Out: a [`PairComparison`] per pair. A difference is explained
//! only by a cause whose amount covers it.

use super::contexts::Contexts;
use super::eztrace;
use super::message_sums::MessageSums;
use super::placement::Placement;
use super::trace::{AppTrace, StreamKey, Tracer, fold};
use super::unidentified::Accounts;
use super::verdict::{Cause, CrosscheckOutcome, CrosscheckVerdict};
use super::wire::{WireMessages, WireTotals};
use crate::model::profile::StreamEnvelope;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of payload bytes of one packet.
const LARGEST_MTU_BYTES: u64 = 4096;

/// The messages from one rank to another, in the trace and on the wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairComparison {
    /// World rank of the sender.
    pub src: u32,
    /// World rank of the receiver.
    pub dst: u32,
    /// Point-to-point messages in the trace.
    pub trace: MessageSums,
    /// All point-to-point messages on the wire.
    pub wire: MessageSums,
    /// The tracer's own messages in `wire`.
    pub tracer: MessageSums,
    /// Messages that are in the trace but not on the wire, for a known cause.
    pub missing: MessageSums,
    /// The part of `missing` that is on the wire with an unidentified sender or receiver.
    pub unidentified: MessageSums,
    /// Messages and bytes that the wire has in excess of the trace, for a known cause:
    /// retransmissions counted twice, and message lengths that span lost packets.
    pub beyond: MessageSums,
    /// The result of the comparison.
    pub verdict: CrosscheckVerdict,
    /// Causes of the differences.
    pub causes: Vec<Cause>,
    /// Tags whose messages differ without a known cause.
    pub differences: Vec<Difference>,
    /// All bytes on the wire from the sender to the receiver, including headers, acknowledgements
    /// and collectives.
    pub wire_bytes: u64,
    /// The InfiniBand payload in these bytes.
    pub payload_bytes: u64,
    /// Wire bytes of retransmitted packets.
    pub retransmitted_wire_bytes: u64,
}

/// Messages of one tag that differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The tag; `None` if tags are not distinguished.
    pub tag: Option<i32>,
    /// Communicators of the trace with such messages.
    pub communicators: Vec<String>,
    /// Context ids of the wire with such messages.
    pub contexts: Vec<u32>,
    /// Messages in the trace.
    pub trace: MessageSums,
    /// Messages on the wire.
    pub wire: MessageSums,
}

impl PairComparison {
    /// The unexplained excess of the wire over the trace, in messages and bytes; negative if the
    /// trace has more.
    #[must_use]
    pub fn excess(&self) -> (i128, i128) {
        let of = |of: fn(&MessageSums) -> u64| {
            let [wire, tracer, trace, missing, beyond] =
                [self.wire, self.tracer, self.trace, self.missing, self.beyond].map(|sums| i128::from(of(&sums)));
            wire - tracer - trace + missing - beyond
        };
        (of(|sums| sums.messages), of(|sums| sums.bytes))
    }

    /// The outcome of the pair as one word.
    #[must_use]
    pub fn outcome(&self) -> CrosscheckOutcome {
        CrosscheckOutcome::of(self.verdict, &self.causes)
    }
}

/// The messages of a pair by tag, on both sides.
#[derive(Clone, Debug, Default)]
struct PairMessages {
    trace: BTreeMap<Option<i32>, MessageSums>,
    wire: BTreeMap<Option<i32>, MessageSums>,
    tracer: MessageSums,
    /// Messages on the wire in `MPI_COMM_WORLD` with the tags of eztrace's own messages.
    world: eztrace::EztraceSums,
    communicators: BTreeMap<Option<i32>, BTreeSet<u32>>,
    contexts: BTreeMap<Option<i32>, BTreeSet<u32>>,
    /// Messages of the trace that were sent before or after the capture.
    outside: BTreeMap<Option<i32>, u64>,
}

/// Everything that the comparison needs in addition to the trace.
pub(super) struct ComparisonContext<'a> {
    pub(super) wire: &'a WireMessages,
    pub(super) contexts: &'a Contexts,
    pub(super) placement: &'a Placement,
    /// Messages of the trace that were sent before or after the capture, by sender, receiver and
    /// tag.
    pub(super) outside: &'a BTreeMap<(u32, u32, Option<i32>), u64>,
}

/// Compares all pairs of ranks with messages in the trace or on the wire. `accounts` contains the
/// messages on the wire with unidentified ranks, which may explain missing messages.
pub(super) fn pairs(
    trace: &AppTrace,
    known: &ComparisonContext<'_>,
    accounts: &mut Accounts,
    tolerance_percent: f64,
) -> Vec<PairComparison> {
    let ComparisonContext { wire, contexts, placement, outside } = known;
    let mut sides: BTreeMap<(u32, u32), PairMessages> = BTreeMap::new();
    let by_pair = trace.tracer == Tracer::Table;
    // The wire comes first: whether it has tags decides how those of the trace are summed.
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
        let sums = MessageSums { messages: sums.messages, bytes: sums.mpi_bytes };
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
    let ends = LastSendTimes::of(wire);
    // Pairs with a rank that is identified nowhere draw on the accounts first.
    let mut sides: Vec<((u32, u32), PairMessages)> = sides.into_iter().collect();
    sides.sort_by_key(|((src, dst), _)| wire.is_identified(*src) && wire.is_identified(*dst));
    let judge = |((src, dst), mut side): ((u32, u32), PairMessages)| {
        let of_pair = (src, dst, Some(i32::MIN))..=(src, dst, Some(i32::MAX));
        for (&(.., tag), messages) in outside.range(of_pair) {
            *side.outside.entry(tag_of((src, dst), tag)).or_default() += messages;
        }
        let traffic = wire.traffic.get(&(src, dst)).copied().unwrap_or_default();
        let back = wire.traffic.get(&(dst, src)).copied().unwrap_or_default();
        let has_packets = traffic.packets.max(back.packets) > 0;
        let seen = PairContext {
            pair: (src, dst),
            traffic,
            is_captured: !ports || has_packets || may_be_unidentified(wire, accounts, (src, dst)),
            is_same_node: placement.is_same_node(src, dst),
        };
        let own = trace.own.get(&src).filter(|_| dst == 0 && ends.eztrace_is_last(src));
        side.judge(&seen, trace, own, &mut UnidentifiedAccounts { wire, accounts }, tolerance_percent)
    };
    let mut pairs: Vec<PairComparison> = sides.into_iter().map(judge).collect();
    pairs.sort_by_key(|pair| (pair.src, pair.dst));
    pairs
}

/// True if captured packets with an unidentified rank may belong to this pair.
fn may_be_unidentified(wire: &WireMessages, accounts: &Accounts, (src, dst): (u32, u32)) -> bool {
    accounts.may_explain(wire, (src, dst)) || accounts.may_explain(wire, (dst, src))
}

/// True if uncaptured ports may explain all pairs without packets: whenever packets between two
/// nodes were captured, at least one of the nodes has no pair without packets.
fn ports_explain(
    sides: &BTreeMap<(u32, u32), PairMessages>,
    known: &ComparisonContext<'_>,
    accounts: &Accounts,
) -> bool {
    let ComparisonContext { wire, placement, .. } = known;
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

/// Time of the last message of each rank.
#[derive(Default)]
struct LastSendTimes {
    /// Messages of the program.
    program: BTreeMap<u32, i64>,
    /// Messages that may be eztrace's own.
    tracer: BTreeMap<u32, i64>,
}

impl LastSendTimes {
    fn of(wire: &WireMessages) -> Self {
        let mut ends = Self::default();
        for ((src, dst), envelope, sums) in wire.messages() {
            let (Some(envelope), Some((_, last_ns))) = (envelope, sums.times_ns) else { continue };
            let is_tracers = dst == 0 && envelope.world && eztrace::TAGS.contains(&envelope.tag);
            let last = if is_tracers { &mut ends.tracer } else { &mut ends.program };
            last.entry(src).and_modify(|last| *last = last_ns.max(*last)).or_insert(last_ns);
        }
        ends
    }

    /// True if the last message is eztrace's: it sends its own messages when the program is done.
    fn eztrace_is_last(&self, src: u32) -> bool {
        self.tracer.get(&src) >= self.program.get(&src)
    }
}

/// Facts about a pair in addition to its messages.
struct PairContext {
    pair: (u32, u32),
    traffic: WireTotals,
    /// False if the ports of the pair may not have been captured.
    is_captured: bool,
    is_same_node: bool,
}

/// The messages with unidentified ranks, which may explain missing messages.
struct UnidentifiedAccounts<'a> {
    wire: &'a WireMessages,
    accounts: &'a mut Accounts,
}

/// Messages of one tag that the trace has in excess of the wire.
struct Shortage {
    tag: Option<i32>,
    found: MessageSums,
    missing: MessageSums,
    /// Messages of the tag that were sent before or after the capture.
    outside: u64,
    /// Messages of other tags that the capture lost.
    lost: u64,
}

/// The result of comparing a pair tag by tag.
#[derive(Default)]
struct TagComparison {
    /// Messages of the trace that are not on the wire, with a cause.
    missing: MessageSums,
    /// Those of `missing` whose cause is an unknown rank.
    unidentified: MessageSums,
    /// Messages of the wire that are not in the trace, with a cause.
    beyond: MessageSums,
    causes: BTreeSet<Cause>,
    /// Differences without a cause.
    differences: Vec<Difference>,
}

impl TagComparison {
    /// Messages that need a loss as their cause; `lost` others have that cause already.
    fn lost(&self, lost: u64) -> u64 {
        self.missing.less(self.unidentified).messages.saturating_add(lost)
    }

    /// Explains all remaining differences together by lost packets, if there were enough.
    fn explain_by_loss(&mut self, seen: &PairContext, lost: u64) {
        if let Some((shortfall, more_bytes)) = seen.loss_explanation(&self.differences, self.lost(lost)) {
            self.causes.insert(Cause::Lost);
            self.missing += shortfall;
            self.beyond += MessageSums { messages: 0, bytes: more_bytes };
            self.differences.clear();
        }
    }
}

/// The verdict on a pair whose causes and differences are known.
fn verdict(pair: &PairComparison, tolerance_percent: f64) -> CrosscheckVerdict {
    let (messages, bytes) = pair.excess();
    let within = |excess: i128, of: u64| {
        excess == 0 || tolerance_percent > 0.0 && excess.unsigned_abs() as f64 * 100.0 <= tolerance_percent * of as f64
    };
    match (pair.differences.is_empty(), pair.causes.is_empty()) {
        (true, true) => CrosscheckVerdict::Equal,
        (true, false) => CrosscheckVerdict::Explained,
        _ if tolerance_percent > 0.0 && within(messages, pair.trace.messages) && within(bytes, pair.trace.bytes) => {
            CrosscheckVerdict::Tolerated
        }
        _ => CrosscheckVerdict::Unexplained,
    }
}

impl PairMessages {
    fn add_world(&mut self, envelope: Option<StreamEnvelope>, sums: MessageSums) {
        let Some(envelope) = envelope.filter(|envelope| envelope.world) else { return };
        let place = eztrace::TAGS.iter().position(|tag| *tag == envelope.tag);
        if let Some(world) = place.and_then(|place| self.world.get_mut(place)) {
            *world += sums;
        }
    }

    fn judge(
        mut self,
        seen: &PairContext,
        trace: &AppTrace,
        eztrace: Option<&eztrace::EztraceSums>,
        explaining: &mut UnidentifiedAccounts<'_>,
        tolerance_percent: f64,
    ) -> PairComparison {
        let (src, dst) = seen.pair;
        let mut causes = BTreeSet::new();
        let total = |sums: &BTreeMap<Option<i32>, MessageSums>| {
            let mut total = MessageSums::default();
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
        let mut tags = self.compare_tags(seen, trace, explaining, lost);
        tags.explain_by_loss(seen, lost);
        causes.append(&mut tags.causes);
        let mut pair = PairComparison {
            src,
            dst,
            trace: in_trace,
            wire: on_wire,
            tracer: self.tracer,
            missing: tags.missing,
            unidentified: tags.unidentified,
            beyond: tags.beyond,
            verdict: CrosscheckVerdict::Equal,
            causes: causes.into_iter().collect(),
            differences: tags.differences,
            wire_bytes: seen.traffic.wire_bytes,
            payload_bytes: seen.traffic.payload_bytes,
            retransmitted_wire_bytes: seen.traffic.retransmitted_wire_bytes,
        };
        pair.verdict = verdict(&pair, tolerance_percent);
        if pair.retransmitted_wire_bytes > 0 && !pair.causes.contains(&Cause::Retransmission) {
            // Explains the excess in wire bytes; the messages agree without this cause.
            pair.causes.push(Cause::Retransmission);
        }
        pair
    }

    /// Compares the pair tag by tag, and looks for the cause of each difference. The fabric or the
    /// capture lost `lost` messages of the tracer.
    fn compare_tags(
        &self,
        seen: &PairContext,
        trace: &AppTrace,
        explaining: &mut UnidentifiedAccounts<'_>,
        lost: u64,
    ) -> TagComparison {
        let mut result = TagComparison::default();
        let tags: BTreeSet<Option<i32>> = self.trace.keys().chain(self.wire.keys()).copied().collect();
        for tag in tags {
            let of = |sums: &BTreeMap<Option<i32>, MessageSums>| sums.get(&tag).copied().unwrap_or_default();
            let (expected, found) = (of(&self.trace), of(&self.wire));
            if expected == found {
                continue;
            }
            let shortage = expected.checked_less(found).filter(|missing| missing.messages > 0).map(|short| Shortage {
                tag,
                found,
                missing: short,
                outside: self.outside.get(&tag).copied().unwrap_or(0),
                lost: result.lost(lost),
            });
            let causes = shortage.as_ref().map(|shortage| seen.causes(shortage, explaining)).unwrap_or_default();
            if let Some(shortage) = shortage.filter(|_| !causes.is_empty()) {
                result.missing += shortage.missing;
                if causes.iter().any(|cause| cause.is_not_identified()) {
                    result.unidentified += shortage.missing;
                }
                result.causes.extend(causes);
                continue;
            }
            let more = found.checked_less(expected);
            if let Some(more) =
                more.filter(|more| seen.may_be_counted_twice(result.beyond.messages.saturating_add(more.messages)))
            {
                result.causes.insert(Cause::Retransmission);
                result.beyond += more;
                continue;
            }
            result.differences.push(self.difference(tag, trace));
        }
        result
    }

    /// The messages of a tag on both sides.
    fn difference(&self, tag: Option<i32>, trace: &AppTrace) -> Difference {
        let communicators = self.communicators.get(&tag).into_iter().flatten();
        let label = |index: &u32| trace.communicators.get(*index as usize).map(super::trace::TraceCommunicator::label);
        Difference {
            tag,
            communicators: communicators.filter_map(label).collect(),
            contexts: self.contexts.get(&tag).into_iter().flatten().copied().collect(),
            trace: self.trace.get(&tag).copied().unwrap_or_default(),
            wire: self.wire.get(&tag).copied().unwrap_or_default(),
        }
    }

    /// Moves eztrace's own messages from `wire` to `tracer`, at most the number that eztrace must
    /// have sent. Returns the number of them that the capture lost.
    fn take_eztrace(&mut self, own: &eztrace::EztraceSums, lost_packets: u64) -> u64 {
        let mut beyond = eztrace::EztraceSums::default();
        for ((beyond, tag), world) in beyond.iter_mut().zip(eztrace::TAGS).zip(self.world) {
            let of = |sums: &BTreeMap<Option<i32>, MessageSums>| sums.get(&Some(tag)).copied().unwrap_or_default();
            let Some(more) = of(&self.wire).checked_less(of(&self.trace)) else { return 0 };
            *beyond = MessageSums { messages: more.messages.min(world.messages), bytes: more.bytes.min(world.bytes) };
        }
        let Some(taken) = eztrace::tracer_part(&beyond, own) else { return 0 };
        for (tag, taken) in eztrace::TAGS.into_iter().zip(taken) {
            if let Some(sums) = self.wire.get_mut(&Some(tag)) {
                *sums = sums.less(taken);
            }
            self.tracer += taken;
        }
        let messages = |of: &eztrace::EztraceSums| of.iter().fold(0_u64, |sum, sums| sum.saturating_add(sums.messages));
        let lost = messages(own).saturating_sub(messages(&taken));
        // If none of eztrace's messages is on the wire, or more are missing than the capture lost
        // packets, they took another path or were sent outside the capture.
        if messages(&taken) > 0 && lost <= lost_packets { lost } else { 0 }
    }
}

impl PairContext {
    /// Causes of messages that are in the trace but not on the wire; empty if there is no
    /// explanation.
    fn causes(&self, shortage: &Shortage, explaining: &mut UnidentifiedAccounts<'_>) -> Vec<Cause> {
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
        // Messages of all tags together: one missing packet or message explains only one of them.
        let all = lost.saturating_add(missing.messages);
        if unidentified.is_empty() && all <= self.traffic.lost_packets {
            return vec![Cause::Lost];
        }
        if unidentified.is_empty() && all <= self.traffic.incomplete_messages {
            return vec![Cause::Incomplete];
        }
        unidentified
    }

    /// The missing messages and the excess bytes, if lost packets may explain both: some libraries
    /// derive the length of a message from its packets, so if the end of one message and the start
    /// of the next are lost, the first appears as long as both. `before` messages of other tags are
    /// missing as well.
    fn loss_explanation(&self, differences: &[Difference], before: u64) -> Option<(MessageSums, u64)> {
        let mut shortfall = MessageSums::default();
        let (mut expected_bytes, mut found_bytes) = (0_u64, 0_u64);
        for Difference { trace, wire, .. } in differences {
            shortfall += MessageSums { messages: trace.messages.checked_sub(wire.messages)?, bytes: 0 };
            expected_bytes = expected_bytes.saturating_add(trace.bytes);
            found_bytes = found_bytes.saturating_add(wire.bytes);
        }
        shortfall.bytes = expected_bytes.saturating_sub(found_bytes);
        let more_bytes = found_bytes.saturating_sub(expected_bytes);
        let lost = self.traffic.lost_packets;
        let is_possible = shortfall.messages > 0
            && before.saturating_add(shortfall.messages) <= lost
            && more_bytes <= lost.saturating_mul(LARGEST_MTU_BYTES);
        is_possible.then_some((shortfall, more_bytes))
    }

    /// True if this many messages may have been counted twice. The flow tracker distinguishes a
    /// retransmission from a new packet by its PSN, unless the capture lost so many packets that it
    /// dropped PSNs. Older packets then count as new and as late.
    const fn may_be_counted_twice(&self, messages: u64) -> bool {
        messages > 0 && messages <= self.traffic.late_packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_explain_at_most_the_late_packets() {
        let judged = |late_packets: u64| {
            let sums = |messages, bytes| BTreeMap::from([(Some(5), MessageSums { messages, bytes })]);
            let side = PairMessages { trace: sums(3, 30), wire: sums(5, 50), ..PairMessages::default() };
            let traffic = WireTotals { late_packets, ..WireTotals::default() };
            let seen = PairContext { pair: (0, 1), traffic, is_captured: true, is_same_node: false };
            let mut explaining =
                UnidentifiedAccounts { wire: &WireMessages::default(), accounts: &mut Accounts::default() };
            side.judge(&seen, &AppTrace::default(), None, &mut explaining, 0.0)
        };
        let explained = judged(2);
        assert_eq!(
            (explained.verdict, &explained.causes[..]),
            (CrosscheckVerdict::Explained, &[Cause::Retransmission][..])
        );
        assert_eq!((explained.beyond, explained.excess()), (MessageSums { messages: 2, bytes: 20 }, (0, 0)));
        let unexplained = judged(1);
        assert_eq!((unexplained.verdict, unexplained.excess()), (CrosscheckVerdict::Unexplained, (2, 20)));
    }
}
