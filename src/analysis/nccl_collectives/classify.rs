//! Names an operation from the messages of its connections.
//!
//! Every candidate predicts which messages a rank forwards, and excludes itself if the messages
//! contradict it:
//!
//! ```text
//! number   a ring of n ranks sends n - 1 chunks per loop (AllGather, ReduceScatter), or 2 (n - 1)
//! length   a chunk is as long as its buffer, except in the last loop (`enqueue.cc`)
//! order    a rank forwards a chunk only after it received it
//! data     a broadcast or gather forwards the same data; a reduction does not
//! ```
//! All channels are compared together, because no message names its channel: the set of messages
//! that arrived with the set of messages that were forwarded.
//!
//! `ncclSend` and `ncclRecv` may send anything. They are excluded by number or length, or if at
//! least [`MIN_ORDERED`] messages were sent only after those that a collective operation would wait
//! for. With [`CERTAIN_ORDERED`] of them, or if the data show it, the name is certain.

use super::connections::NcclCommunicator;
use super::trees;
use super::{NcclAlgorithm, NcclCollective, NcclOperation, NcclTransfer};
use std::collections::{BTreeMap, BTreeSet};

/// Messages in the order of a collective operation that exclude plain sends: one in 2^4 by chance.
const MIN_ORDERED: u32 = 4;
/// The same with buffers of another length than that of plain sends by default.
const MIN_ORDERED_OTHERS: u32 = 2;
/// Messages in that order that make it certain.
const CERTAIN_ORDERED: u32 = 12;
/// Messages in each chunk of a ring (`NCCL_MAX_SLICE_PER_CHUNK`).
const SLICES: [u32; 2] = [1, 2];
/// Length of one buffer of the protocol LL, by default (`device.h`). It writes a flag of 4 bytes
/// behind every 4 bytes of data. The buffers of LL128 have 600 KiB; its messages are rounded up to
/// 2 KiB, so the length of their data is unknown.
const LL_BYTES: u64 = 64 << 10;
/// A message that follows its receive within this many of the shortest such times may have waited
/// for it.
const REACTIONS: i64 = 4;
/// Shortest buffer of the simple protocol: that of `ncclSend` between nodes, by default
/// (`NCCL_P2P_NET_CHUNKSIZE`).
const SIMPLE_BYTES: u64 = 128 << 10;

/// The messages of one connection in an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow<'a> {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) messages: &'a [NcclTransfer],
    /// Messages per chunk, if the addresses of the buffers show it.
    pub(super) slices: Option<u32>,
}

impl Flow<'_> {
    fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.bytes).sum()
    }

    /// True if all messages but the last `count` are as long as their buffers.
    fn is_full_before(&self, count: usize) -> bool {
        let full = self.messages.len().saturating_sub(count);
        self.messages.iter().take(full).all(|message| message.bytes == message.receive.buffer_bytes)
    }

    /// True if every message but the last is as long as its buffer, as plain sends are.
    fn is_plain(&self) -> bool {
        self.is_full_before(1) && self.slices != Some(2)
    }

    fn has_gaps(&self) -> bool {
        self.messages.windows(2).any(|pair| pair[0].receive.index + 1 != pair[1].receive.index)
    }
}

/// Connections between the same two ranks with the same number of messages.
type Lane<'a> = Vec<Flow<'a>>;

/// The messages of a lane with this number, from 0.
fn messages_at(lane: &Lane<'_>, at: usize) -> Vec<NcclTransfer> {
    lane.iter().filter_map(|flow| flow.messages.get(at).copied()).collect()
}

/// Lanes by sender and receiver, of one number of messages.
type Hops<'a> = BTreeMap<(u32, u32), Lane<'a>>;

/// All flows by sender and receiver.
type Pairs<'a> = BTreeMap<(u32, u32), Vec<Flow<'a>>>;

/// Whether a rank changes the data that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forwarding {
    Copy,
    Reduce,
}

/// Evidence for a candidate.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// The messages contradict it.
    is_excluded: bool,
    /// Messages that were sent after those that they depend on.
    ordered: u32,
    /// Copies that were found where they are predicted.
    copies: u32,
    /// Messages with the same data, and with other data, where a reduction is predicted.
    unchanged: u32,
    changed: u32,
}

impl Evidence {
    const EXCLUDED: Self = Self { is_excluded: true, ordered: 0, copies: 0, unchanged: 0, changed: 0 };

    fn add(&mut self, other: Self) {
        self.is_excluded |= other.is_excluded;
        self.ordered += other.ordered;
        self.copies += other.copies;
        self.unchanged += other.unchanged;
        self.changed += other.changed;
    }

    /// Compares messages that a rank received with those that it sent on.
    fn forward(&mut self, from: (&Lane<'_>, usize), to: (&Lane<'_>, usize), role: Forwarding, clock_bound_ns: i64) {
        let (received, sent) = (messages_at(from.0, from.1), messages_at(to.0, to.1));
        let sorted = |all: &[NcclTransfer], of: fn(&NcclTransfer) -> i64| {
            let mut values: Vec<i64> = all.iter().map(of).collect();
            values.sort_unstable();
            values
        };
        let lengths = |all| sorted(all, |message| message.bytes.cast_signed());
        let ends = sorted(&received, |message| message.times_ns.1);
        let starts = sorted(&sent, |message| message.times_ns.0);
        // The channels may be in any order, but none may send before the first one received.
        let is_early = starts.iter().zip(&ends).any(|(start, end)| start.saturating_add(clock_bound_ns) < *end);
        self.is_excluded |= lengths(&received) != lengths(&sent) || is_early;
        self.ordered += u32::from(starts.first().zip(ends.last()).is_some_and(|(start, end)| start >= end));
        let hashes = |all: &[NcclTransfer]| -> Option<Vec<u32>> {
            let mut hashes: Vec<u32> = all.iter().map(|message| message.receive.data_hash).collect::<Option<_>>()?;
            hashes.sort_unstable();
            Some(hashes)
        };
        let (Some(received), Some(sent)) = (hashes(&received), hashes(&sent)) else { return };
        match (role, received == sent) {
            (Forwarding::Copy, true) => self.copies += 1,
            (Forwarding::Copy, false) => self.is_excluded = true,
            (Forwarding::Reduce, true) => self.unchanged += 1,
            (Forwarding::Reduce, false) => self.changed += 1,
        }
    }

    /// The evidence after all messages: a reduction rarely leaves data unchanged.
    const fn concluded(self) -> Self {
        if self.unchanged * 3 > self.changed { Self::EXCLUDED } else { self }
    }
}

/// The operation of these flows.
pub(super) fn operation(communicator: &NcclCommunicator, flows: &[Flow<'_>], clock_bound_ns: i64) -> NcclCollective {
    let ranks: Vec<u32> = communicator.ranks.iter().copied().collect();
    let all = || flows.iter().flat_map(|flow| flow.messages);
    let has_gaps = flows.iter().any(Flow::has_gaps);
    let (algorithm, mut candidates) =
        if has_gaps { Default::default() } else { candidates(communicator, &ranks, flows, clock_bound_ns) };
    // Copies are equal data where a rank forwards: chance does not make them.
    if candidates.iter().any(|(_, own)| own.copies > 0) {
        candidates.retain(|(_, own)| own.copies > 0);
    }
    let ordered = candidates.iter().filter(|(operation, _)| !operation.is_p2p()).map(|(_, own)| own.ordered).max();
    let are_of_sends = all().all(|message| message.receive.buffer_bytes == SIMPLE_BYTES);
    let enough = if are_of_sends { MIN_ORDERED } else { MIN_ORDERED_OTHERS };
    let has_order = ordered.is_some_and(|ordered| ordered >= enough);
    let kept = candidates.into_iter().filter(|(operation, _)| !(operation.is_p2p() && has_order));
    let mut kept: BTreeMap<NcclOperation, Evidence> = kept.collect();
    // Parts of several operations may look like plain sends.
    if kept.keys().eq([&NcclOperation::SendRecv]) && !are_of_sends {
        kept.clear();
    }
    let operations: Vec<NcclOperation> = kept.keys().copied().collect();
    let is_certain = |own: &Evidence| own.copies > 0 || own.changed > 0 || own.ordered >= CERTAIN_ORDERED;
    let times = all().map(|message| message.times_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let channels = pairs(flows).values().map(Vec::len).max().unwrap_or(0);
    NcclCollective {
        job: 0,
        communicator: String::new(),
        number: 0,
        algorithm: algorithm.filter(|_| !operations.is_empty()),
        is_certain: kept.values().all(is_certain) && !kept.is_empty() || operations == [NcclOperation::AllToAll],
        ranks: ranks.len() as u32,
        channels: channels as u32,
        bytes: common_bytes(&operations, ranks.len() as u64, flows),
        times_ns: times.unwrap_or_default(),
        last: last(&ranks, flows, algorithm),
        activity: Vec::new(),
        operations,
    }
}

/// Bytes as in the arguments of the call, if they are the same for all of these operations.
pub(super) fn common_bytes(operations: &[NcclOperation], n: u64, flows: &[Flow<'_>]) -> Option<u64> {
    let sizes: BTreeSet<Option<u64>> = operations.iter().map(|own| bytes(*own, n, flows)).collect();
    sizes.first().copied().flatten().filter(|_| sizes.len() == 1)
}

/// Bytes as in the arguments of the call; `None` if the protocol of a message is unknown.
fn bytes(operation: NcclOperation, n: u64, flows: &[Flow<'_>]) -> Option<u64> {
    let of_message = |message: &NcclTransfer| match message.receive.buffer_bytes {
        LL_BYTES => Some(message.bytes / 2),
        bytes if bytes >= SIMPLE_BYTES && bytes.is_power_of_two() => Some(message.bytes),
        _ => None,
    };
    let all = flows.iter().flat_map(|flow| flow.messages).map(of_message).sum::<Option<u64>>()?;
    let transmissions = match operation {
        NcclOperation::AllReduce => 2 * (n - 1),
        NcclOperation::AllGather | NcclOperation::ReduceScatter | NcclOperation::AllToAll => n * (n - 1),
        NcclOperation::Broadcast | NcclOperation::Reduce => n - 1,
        NcclOperation::SendRecv => 1,
    };
    all.is_multiple_of(transmissions).then_some(all / transmissions)
}

/// The rank that entered last, and its distance to the rank before it, where ranks send without
/// waiting for the data of others.
fn last(ranks: &[u32], flows: &[Flow<'_>], algorithm: Option<NcclAlgorithm>) -> Option<(u32, u64)> {
    algorithm.filter(|algorithm| *algorithm != NcclAlgorithm::Tree)?;
    let entries: Option<Vec<RankEntry>> = ranks.iter().map(|rank| RankEntry::of(*rank, flows)).collect();
    let entries = entries?;
    let reaction_ns = entries.iter().map(|own| own.start_ns.saturating_sub(own.allowed_ns)).min()?.max(0);
    let mut times: Vec<(i64, u32)> = entries.iter().map(|own| (own.time_ns(reaction_ns), own.rank)).collect();
    times.sort_unstable();
    let [.., (before_ns, _), (last_ns, rank)] = times[..] else { return None };
    let skew_ns = last_ns.checked_sub(before_ns)?.unsigned_abs();
    (skew_ns > 0).then_some((rank, skew_ns))
}

/// The entry of a rank, as far as the wire shows it.
struct RankEntry {
    rank: u32,
    /// The first message of the rank.
    start_ns: i64,
    /// The receiver had posted its receive.
    allowed_ns: i64,
    /// The rank posted its first receive.
    posted_ns: i64,
}

impl RankEntry {
    fn of(rank: u32, flows: &[Flow<'_>]) -> Option<Self> {
        let sent = flows.iter().filter(|flow| flow.src == rank).filter_map(|flow| flow.messages.first());
        let received = flows.iter().filter(|flow| flow.dst == rank).filter_map(|flow| flow.messages.first());
        let (start_ns, allowed_ns) = sent.map(|message| (message.times_ns.0, message.receive.posted_ns)).min()?;
        let posted_ns = received.map(|message| message.receive.posted_ns).min()?;
        Some(Self { rank, start_ns, allowed_ns, posted_ns })
    }

    /// The time of entry: that of the first message, unless the message left as soon as the
    /// receiver allowed it.
    const fn time_ns(&self, reaction_ns: i64) -> i64 {
        let has_waited = self.start_ns.saturating_sub(self.allowed_ns) <= reaction_ns.saturating_mul(REACTIONS);
        if has_waited { self.posted_ns } else { self.start_ns }
    }
}

fn pairs<'a>(flows: &[Flow<'a>]) -> Pairs<'a> {
    let mut pairs = Pairs::new();
    for flow in flows {
        pairs.entry((flow.src, flow.dst)).or_default().push(*flow);
    }
    pairs
}

/// Flows by their number of messages; `None` if not each of the `pairs` of ranks has as many of each.
fn lanes<'a>(flows: &[Flow<'a>], pairs: usize) -> Option<Vec<Hops<'a>>> {
    let mut lanes: BTreeMap<usize, Hops<'a>> = BTreeMap::new();
    for flow in flows {
        lanes.entry(flow.messages.len()).or_default().entry((flow.src, flow.dst)).or_default().push(*flow);
    }
    let is_even = |hops: &Hops<'_>| {
        let widths: BTreeSet<usize> = hops.values().map(Vec::len).collect();
        hops.len() == pairs && widths.len() == 1
    };
    lanes.values().all(is_even).then(|| lanes.into_values().collect())
}

type OperationCandidates = Vec<(NcclOperation, Evidence)>;

/// The operations that may send these flows, and the algorithm if it is the same for all.
fn candidates(
    communicator: &NcclCommunicator,
    ranks: &[u32],
    flows: &[Flow<'_>],
    clock_bound_ns: i64,
) -> (Option<NcclAlgorithm>, OperationCandidates) {
    let pairs = pairs(flows);
    let mut next: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (src, dst) in pairs.keys() {
        next.entry(*src).or_default().insert(*dst);
    }
    let order = ring_order(ranks, &next);
    let mut found: OperationCandidates = Vec::new();
    let mut algorithm = None;
    if let (Some(order), Some(lanes)) = (order, lanes(flows, pairs.len())) {
        let is_closed = next.len() == ranks.len();
        // Of a ring that was captured in part, only a chain would be left.
        let closing = order.last().copied().zip(order.first().copied());
        let is_whole = || communicator.connections.iter().any(|own| Some((own.src, own.dst)) == closing);
        if is_closed || is_whole() {
            found.extend(if is_closed {
                ring(&order, &lanes, clock_bound_ns)
            } else {
                chain(&order, &lanes, clock_bound_ns)
            });
            found.extend(plain(flows));
            algorithm = Some(NcclAlgorithm::Ring);
        }
    }
    found.retain(|(_, evidence)| !evidence.is_excluded);
    let is_ring = found.iter().any(|(operation, _)| !operation.is_p2p());
    let tree = tree(ranks, flows, &pairs, clock_bound_ns);
    if !tree.is_excluded {
        // Of two ranks, ring and tree may look alike.
        algorithm = Some(NcclAlgorithm::Tree).filter(|_| !is_ring);
        found.push((NcclOperation::AllReduce, tree));
        found.extend(plain(flows));
    } else if next.len() == ranks.len() && next.values().all(|to| to.len() + 1 == ranks.len()) {
        let totals: BTreeSet<u64> = pairs.values().map(|own| own.iter().map(Flow::bytes).sum()).collect();
        if totals.len() == 1 && plain(flows).is_some() {
            found.push((NcclOperation::AllToAll, Evidence::default()));
            algorithm = algorithm.or(Some(NcclAlgorithm::Direct));
        }
    }
    (algorithm, found)
}

/// The ranks in the order in which each sends to the next one: of a ring from the lowest on, of a
/// chain from its start on.
fn ring_order(ranks: &[u32], next: &BTreeMap<u32, BTreeSet<u32>>) -> Option<Vec<u32>> {
    let only = |rank: u32| next.get(&rank).filter(|to| to.len() == 1).and_then(BTreeSet::first).copied();
    let receivers: BTreeSet<u32> = next.values().flatten().copied().collect();
    let start = ranks.iter().find(|rank| !receivers.contains(rank)).or(ranks.first())?;
    let mut order = vec![*start];
    while let Some(to) = only(*order.last()?)
        && to != *start
        && order.len() < ranks.len()
    {
        order.push(to);
    }
    let is_each_once = order.iter().collect::<BTreeSet<_>>().len() == ranks.len();
    let is_simple = next.values().all(|to| to.len() == 1) && next.len() + 1 >= ranks.len();
    (is_each_once && is_simple).then_some(order)
}

/// Candidates of a closed ring.
fn ring(order: &[u32], lanes: &[Hops<'_>], clock_bound_ns: i64) -> OperationCandidates {
    let mut found = OperationCandidates::new();
    for operation in [NcclOperation::AllReduce, NcclOperation::AllGather, NcclOperation::ReduceScatter] {
        for slices in SLICES {
            let sum = lanes.iter().fold(Evidence::default(), |mut sum, hops| {
                sum.add(ring_lane(order, hops, (operation, slices as usize), clock_bound_ns));
                sum
            });
            found.push((operation, sum.concluded()));
        }
    }
    // Either number of slices.
    found.retain(|(_, evidence)| !evidence.is_excluded);
    found.sort_by_key(|(operation, evidence)| (*operation, std::cmp::Reverse(evidence.ordered)));
    found.dedup_by_key(|(operation, _)| *operation);
    found
}

fn ring_lane(order: &[u32], hops: &Hops<'_>, candidate: (NcclOperation, usize), clock_bound_ns: i64) -> Evidence {
    let (operation, slices) = candidate;
    let n = order.len();
    let chunks = if operation == NcclOperation::AllReduce { 2 * (n - 1) } else { n - 1 };
    let per_loop = chunks * slices;
    let flows = || hops.values().flatten();
    let count = flows().next().map_or(0, |flow| flow.messages.len());
    let is_consistent = |flow: &Flow<'_>| {
        let lengths: Vec<u64> = flow.messages.iter().map(|message| message.bytes).collect();
        let is_even = lengths.chunks(per_loop).all(|own| own.iter().zip(own.iter().skip(slices)).all(|(a, b)| a == b));
        let is_sliced = slices == 1 || lengths.chunks(slices).all(|own| own.windows(2).all(|pair| pair[0] >= pair[1]));
        flow.is_full_before(per_loop)
            && flow.slices.is_none_or(|own| own as usize == slices)
            && is_sliced
            && (is_even || operation == NcclOperation::AllReduce)
    };
    if !count.is_multiple_of(per_loop) || !flows().all(is_consistent) {
        return Evidence::EXCLUDED;
    }
    let mut evidence = Evidence::default();
    for (at, rank) in order.iter().enumerate() {
        let (before, after) = (order[(at + n - 1) % n], order[(at + 1) % n]);
        let (Some(from), Some(to)) = (hops.get(&(before, *rank)), hops.get(&(*rank, after))) else {
            return Evidence::EXCLUDED;
        };
        for message in (0..count).filter(|message| message % per_loop >= slices) {
            let chunk = message % per_loop / slices;
            let role = match operation {
                NcclOperation::AllReduce if chunk < n => Forwarding::Reduce,
                NcclOperation::ReduceScatter => Forwarding::Reduce,
                _ => Forwarding::Copy,
            };
            evidence.forward((from, message - slices), (to, message), role, clock_bound_ns);
        }
    }
    evidence
}

/// Candidates of a ring without one of its connections.
fn chain(order: &[u32], lanes: &[Hops<'_>], clock_bound_ns: i64) -> OperationCandidates {
    let mut found = OperationCandidates::new();
    for (operation, role) in [(NcclOperation::Broadcast, Forwarding::Copy), (NcclOperation::Reduce, Forwarding::Reduce)]
    {
        let mut evidence = Evidence::default();
        for hops in lanes {
            for ranks in order.windows(3) {
                let (Some(from), Some(to)) = (hops.get(&(ranks[0], ranks[1])), hops.get(&(ranks[1], ranks[2]))) else {
                    evidence.is_excluded = true;
                    continue;
                };
                let count = to.first().map_or(0, |flow| flow.messages.len());
                (0..count).for_each(|message| evidence.forward((from, message), (to, message), role, clock_bound_ns));
            }
        }
        found.push((operation, evidence.concluded()));
    }
    // These operations send chunks like plain sends.
    let is_plain = lanes.iter().flat_map(BTreeMap::values).flatten().all(Flow::is_plain);
    if is_plain { found } else { Vec::new() }
}

/// Plain sends.
fn plain(flows: &[Flow<'_>]) -> Option<(NcclOperation, Evidence)> {
    flows.iter().all(Flow::is_plain).then(|| (NcclOperation::SendRecv, Evidence::default()))
}

/// An `AllReduce` over one or both of NCCL's trees.
fn tree(ranks: &[u32], flows: &[Flow<'_>], pairs: &Pairs<'_>, clock_bound_ns: i64) -> Evidence {
    let n = ranks.len() as u32;
    // Part of a larger tree would look like a smaller one.
    let are_all_ranks = ranks.iter().copied().eq(0..n);
    let is_plain = flows.iter().all(|flow| flow.slices != Some(2));
    if !are_all_ranks || !is_plain || n < 2 {
        return Evidence::EXCLUDED;
    }
    let trees = trees::parents(n);
    let links = trees.each_ref().map(|parents| {
        (0..).zip(parents).filter_map(|(child, parent)| Some((child, (*parent)?))).collect::<BTreeSet<(u32, u32)>>()
    });
    let width = |a: u32, b: u32| pairs.get(&(a, b)).map_or(0, Vec::len);
    let has = |tree: usize, a: u32, b: u32| links[tree].contains(&(a, b)) || links[tree].contains(&(b, a));
    // Channels of each tree.
    let channels = [0, 1].map(|tree| {
        let own = links[tree].iter().find(|(child, parent)| !has(1 - tree, *child, *parent));
        own.map(|(child, parent)| width(*child, *parent))
    });
    let [Some(first), Some(second)] = channels else { return tree_of_two(pairs, clock_bound_ns) };
    let expected = |a: u32, b: u32| usize::from(has(0, a, b)) * first + usize::from(has(1, a, b)) * second;
    let all_pairs = (0..n).flat_map(|a| (0..n).filter(move |b| *b != a).map(move |b| (a, b)));
    if all_pairs.clone().any(|(a, b)| width(a, b) != expected(a, b)) || first + second == 0 {
        return Evidence::EXCLUDED;
    }
    let mut evidence = Evidence::default();
    for (tree, width, other) in [(0, first, second), (1, second, first)] {
        let is_own = |(child, parent): &(u32, u32)| other == 0 || !has(1 - tree, *child, *parent);
        let own: Vec<(u32, u32)> = links[tree].iter().copied().filter(|link| width > 0 && is_own(link)).collect();
        evidence.add(tree_messages(&own, pairs, clock_bound_ns));
    }
    evidence
}

/// Compares the messages of the pairs that only one tree has.
fn tree_messages(links: &[(u32, u32)], pairs: &Pairs<'_>, clock_bound_ns: i64) -> Evidence {
    let mut evidence = Evidence::default();
    let none = Lane::new();
    let lane = |a: u32, b: u32| pairs.get(&(a, b)).unwrap_or(&none);
    let counts = |lane: &Lane<'_>| {
        let mut counts: Vec<usize> = lane.iter().map(|flow| flow.messages.len()).collect();
        counts.sort_unstable();
        counts
    };
    let mut results: BTreeSet<Vec<Option<u32>>> = BTreeSet::new();
    let expected = links.first().map(|(child, parent)| counts(lane(*child, *parent)));
    for (child, parent) in links {
        let (up, down) = (lane(*child, *parent), lane(*parent, *child));
        let count = up.iter().map(|flow| flow.messages.len()).min().unwrap_or(0);
        evidence.is_excluded |= Some(counts(up)) != expected || Some(counts(down)) != expected || count == 0;
        for message in 0..count {
            // The parent sends the result only after it received the child's data.
            evidence.forward((up, message), (down, message), Forwarding::Reduce, clock_bound_ns);
            for (grandchild, _) in links.iter().filter(|(_, own)| own == child) {
                evidence.forward(
                    (lane(*grandchild, *child), message),
                    (up, message),
                    Forwarding::Reduce,
                    clock_bound_ns,
                );
                evidence.forward(
                    (down, message),
                    (lane(*child, *grandchild), message),
                    Forwarding::Copy,
                    clock_bound_ns,
                );
            }
        }
        let first = down.iter().map(|flow| flow.messages.first().and_then(|message| message.receive.data_hash));
        let mut first: Vec<Option<u32>> = first.collect();
        first.sort_unstable();
        results.insert(first);
    }
    // All ranks receive the same result.
    evidence.is_excluded |= results.len() > 1 && results.iter().flatten().all(Option::is_some);
    evidence.concluded()
}

/// Two ranks: each channel of a tree sends one way first, then back. Either rank may be the root.
fn tree_of_two(pairs: &Pairs<'_>, clock_bound_ns: i64) -> Evidence {
    let (Some(there), Some(back)) = (pairs.get(&(0, 1)), pairs.get(&(1, 0))) else { return Evidence::EXCLUDED };
    let counts: BTreeSet<usize> = there.iter().chain(back).map(|flow| flow.messages.len()).collect();
    let (Some(count), 1, true) = (counts.first(), counts.len(), there.len() == back.len()) else {
        return Evidence::EXCLUDED;
    };
    let mut evidence = Evidence::default();
    for message in 0..*count {
        let (there, back) = (messages_at(there, message), messages_at(back, message));
        let first = |all: &[NcclTransfer]| all.iter().map(|own| own.times_ns.1).min().unwrap_or(i64::MAX);
        let early = |all: &[NcclTransfer], end_ns: i64| {
            all.iter().filter(|own| own.times_ns.0.saturating_add(clock_bound_ns) < end_ns).count()
        };
        let ups = early(&there, first(&back)) + early(&back, first(&there));
        evidence.is_excluded |= ups != there.len();
        evidence.ordered += 1;
    }
    evidence
}
