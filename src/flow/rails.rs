//! Groups NCCL's paths (the queue pairs, perhaps on several ports, that one NCCL connection uses),
//! and decides on which path a message counts.
//!
//! ```text
//! queue  18 -> 17   elements 1 3 5 ..   path  17 -> 18   first shares of all messages
//! queue  34 -> 33   elements 2 4 6 ..   path  33 -> 34   later shares of all messages
//! both rows together: one NCCL connection
//! ```
//! A tracker observes one pair of ports, so every path has counted whole messages (`nccl`). The
//! connections of all inputs and their queues go in. Messages that count once come out, with
//! evidence of the queue pairs that belong to one process.
//!
//! Invariant: a message counts on the path that carries its first share and on no other. If the
//! capture missed that path, the message counts as missing.

use super::nccl::is_one_ring;
use crate::model::arithmetic::gcd;
use crate::model::{BinClass, ConnectionTotals, CtsPath, CtsQueue, NcclProcesses, NcclShares, QueuePair, SameProcess};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// How many times more often a path must carry one kind of shares than the other. In a capture with
/// losses a share may seem to belong to another element.
const CLEAR_RATIO: u64 = 2;
/// Queues with the same keys that are compared with each other. With more of them, each forms its
/// own group.
const MAX_COMPARED_QUEUES: usize = 1 << 10;

/// A path: the sender's port and the receiver's queue pair.
type NcclPath = (Endpoint, QueuePair);

/// Shares of messages that a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathRole {
    First,
    Later,
    Unclear,
}

impl PathRole {
    const fn of(shares: NcclShares) -> Self {
        let NcclShares { first, later } = shares;
        if first > 0 && first >= later.saturating_mul(CLEAR_RATIO) {
            Self::First
        } else if later > 0 && later >= first.saturating_mul(CLEAR_RATIO) {
            Self::Later
        } else {
            Self::Unclear
        }
    }
}

/// Removes messages from the connections that shall not count them. Returns evidence of the
/// processes that queue pairs belong to.
pub fn assign_shares(connections: &mut [Box<ConnectionTotals>], queues: &[CtsQueue]) -> NcclProcesses {
    let queues = merged(queues);
    let rings = Rings::of(&queues);
    let mut of_path: BTreeMap<NcclPath, (usize, NcclShares)> = BTreeMap::new();
    for (number, group) in rings.groups.iter().enumerate() {
        for (queue, path) in group.iter().flat_map(|queue| paths(&queues[*queue]).map(|path| (*queue, path))) {
            of_path.insert(path.0, (number, rings.shares(queue, path.1)));
        }
    }
    let mut members: BTreeMap<Option<usize>, Vec<&mut ConnectionTotals>> = BTreeMap::new();
    for connection in connections {
        let key = &connection.key;
        let path = of_path.get(&(key.src, QueuePair { endpoint: key.dst, qpn: key.dest_qp }));
        let Some(mpi) = &mut connection.mpi else { continue };
        if let Some((_, shares)) = path.filter(|_| mpi.shares == NcclShares::default()) {
            mpi.shares = *shares;
        }
        if path.is_some() || mpi.shares != NcclShares::default() {
            members.entry(path.map(|(group, _)| *group)).or_default().push(connection);
        }
    }
    let has_first = |members: &[&mut ConnectionTotals]| members.iter().any(|path| role(path) == PathRole::First);
    let counting: BTreeSet<usize> =
        members.iter().filter(|(_, members)| has_first(members)).filter_map(|(group, _)| *group).collect();
    for (group, members) in members {
        match group {
            // If the rails cannot be distinguished, one of the groups that may belong together
            // counts the messages.
            Some(group) => assign_messages(members, rings.alternatives(group).any(|group| counting.contains(&group))),
            None => members.into_iter().for_each(|alone| assign_messages(vec![alone], false)),
        }
    }
    let ends = |queue: &CtsQueue| {
        let receivers = paths(queue).map(|((_, receiver), _)| receiver);
        receivers.chain([queue.to]).map(|end| (end, queue.release)).collect::<Vec<_>>()
    };
    NcclProcesses {
        same: same_process(&queues, &rings.groups),
        releases: queues.iter().flat_map(ends).collect(),
        rings: queues.iter().map(|queue| (queue.to, queue.address)).collect(),
        overlapping: overlapping(&queues),
    }
}

fn role(path: &ConnectionTotals) -> PathRole {
    path.mpi.as_ref().map_or(PathRole::Unclear, |mpi| PathRole::of(mpi.shares))
}

/// Keeps the messages of one NCCL connection on the paths of the first shares only. `is_counted` is
/// true if there is such a path.
fn assign_messages(paths: Vec<&mut ConnectionTotals>, is_counted: bool) {
    let others = paths.into_iter().filter(|path| role(path) != PathRole::First);
    let mut others: Vec<(PathRole, u64, &mut ConnectionTotals)> =
        others.map(|path| (role(path), take_messages(path), path)).collect();
    // All these paths carry the same messages, so they are missing once.
    others.sort_by_key(|(_, messages, path)| (std::cmp::Reverse(*messages), path.key));
    for (at, (role, messages, path)) in others.into_iter().enumerate() {
        let is_counted = role == PathRole::Later && (at > 0 || is_counted);
        let missing = if is_counted { 0 } else { messages };
        match &mut path.missing {
            Some(known) if is_counted => known.mpi_incomplete = 0,
            known if missing > 0 => known.get_or_insert_default().mpi_incomplete += missing,
            _ => {}
        }
    }
}

/// Removes the messages of a connection and returns their number.
fn take_messages(connection: &mut ConnectionTotals) -> u64 {
    let Some(mpi) = &mut connection.mpi else { return 0 };
    let sums = std::mem::take(&mut mpi.sums);
    (mpi.sizes, mpi.streams) = Default::default();
    let bins = std::mem::take(&mut connection.bins);
    *connection.bins = bins.iter().filter(|(_, sums)| !matches!(sums.class, BinClass::Mpi(_))).collect();
    connection.latencies.retain(|(required, _)| required.is_none());
    sums.iter().map(|(_, sums)| sums.messages).sum()
}

/// Merges the observations of a queue by several inputs.
fn merged(queues: &[CtsQueue]) -> Vec<CtsQueue> {
    let mut merged: BTreeMap<(Endpoint, QueuePair), CtsQueue> = BTreeMap::new();
    for queue in queues {
        let known = merged.entry((queue.from, queue.to)).or_insert_with(|| queue.clone());
        known.step = gcd(gcd(known.step, queue.step), known.index.abs_diff(queue.index));
        for memory in &queue.memory {
            if !known.memory.contains(memory) {
                known.memory.push(*memory);
            }
        }
        for path in &queue.paths {
            match known.paths.iter_mut().find(|other| other.qpn == path.qpn) {
                Some(other) => other.unmatched.extend(&path.unmatched),
                None => known.paths.push(path.clone()),
            }
        }
    }
    merged.into_values().collect()
}

/// Queues that carry elements of one ring, or may do so.
struct Rings<'a> {
    queues: &'a [CtsQueue],
    /// By queue: all queues that may belong to its ring, including itself.
    candidates: Vec<Vec<usize>>,
    /// Queues by NCCL connection. An ambiguous queue forms its own group.
    groups: Vec<Vec<usize>>,
    /// By queue: its group.
    group_of_queue: Vec<usize>,
}

impl<'a> Rings<'a> {
    fn of(queues: &'a [CtsQueue]) -> Self {
        let mut alike: BTreeMap<(Release, &[u32]), Vec<usize>> = BTreeMap::new();
        for (number, queue) in queues.iter().enumerate() {
            alike.entry((queue.release, &queue.r_keys)).or_default().push(number);
        }
        let candidates: Vec<Vec<usize>> = queues
            .iter()
            .enumerate()
            .map(|(number, queue)| {
                let alike = alike.get(&(queue.release, queue.r_keys.as_slice())).map_or(&[][..], Vec::as_slice);
                let is_few = alike.len() <= MAX_COMPARED_QUEUES;
                let is_candidate = |other: &usize| *other == number || is_few && is_same(queue, &queues[*other]);
                alike.iter().copied().filter(is_candidate).collect()
            })
            .collect();
        let mut groups = Vec::new();
        let mut of_queue = vec![0; queues.len()];
        let mut left: BTreeSet<usize> = (0..queues.len()).collect();
        while let Some(one) = left.pop_first() {
            let agree = candidates[one].iter().all(|other| candidates[*other] == candidates[one]);
            let group = if agree { candidates[one].clone() } else { vec![one] };
            for member in &group {
                left.remove(member);
                of_queue[*member] = groups.len();
            }
            groups.push(group);
        }
        Self { queues, candidates, groups, group_of_queue: of_queue }
    }

    /// Groups with queues that may belong to the ring of this group, including itself.
    fn alternatives(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.groups[group].iter().flat_map(|queue| &self.candidates[*queue]).map(|queue| self.group_of_queue[*queue])
    }

    /// Parts that a path carries if none of them matches an element on its own port. They are
    /// matched with the memory that other elements of the ring name, or of queues that write to the
    /// same memory between the same ports.
    fn shares(&self, queue: usize, path: &CtsPath) -> NcclShares {
        let mut shares = NcclShares::default();
        if path.unmatched.is_empty() {
            return shares;
        }
        let own = &self.queues[queue];
        let is_akin = |other: &CtsQueue| {
            (other.from, other.to.endpoint, &other.r_keys) == (own.from, own.to.endpoint, &own.r_keys)
        };
        let akin: Vec<usize> = (0..self.queues.len()).filter(|other| is_akin(&self.queues[*other])).collect();
        let rings: BTreeSet<usize> = akin.iter().flat_map(|other| self.candidates[*other].iter().copied()).collect();
        let memory = || rings.iter().flat_map(|other| &self.queues[*other].memory);
        for (address, _) in &path.unmatched {
            if memory().any(|(start, _)| start == address) {
                shares.first += 1;
            } else if memory().any(|(start, bytes)| address.checked_sub(*start).is_some_and(|at| at < *bytes)) {
                shares.later += 1;
            }
        }
        shares
    }
}

/// True if two queues may carry elements of one ring through different devices of the receiver.
fn is_same(a: &CtsQueue, b: &CtsQueue) -> bool {
    let is_in_place = is_one_ring(a.release, (a.index, a.address), (b.index, b.address));
    a.from != b.from && a.r_keys.len() > 1 && is_in_place && have_distinct_indices(a, b)
}

/// True if the indices of two queues can never be equal.
fn have_distinct_indices(a: &CtsQueue, b: &CtsQueue) -> bool {
    let indices = a.index.abs_diff(b.index);
    match gcd(a.step, b.step) {
        0 => indices != 0,
        step => !indices.is_multiple_of(step),
    }
}

/// Queue pairs of one port that received the same elements of a ring at the same address: they
/// belong to two processes.
fn overlapping(queues: &[CtsQueue]) -> BTreeMap<QueuePair, QueuePair> {
    let mut by_place: Vec<&CtsQueue> = queues.iter().collect();
    by_place.sort_by_key(|queue| (queue.to.endpoint, queue.release, queue.address));
    let meet = |pair: &&[&CtsQueue]| {
        let (a, b) = (pair[0], pair[1]);
        let near_bytes = a.release.ring_slots().0 * u64::from(a.release.slot_bytes());
        let is_near = b.address.abs_diff(a.address) < near_bytes;
        (a.to.endpoint, a.release) == (b.to.endpoint, b.release)
            && a.to != b.to
            && is_near
            && is_one_ring(a.release, (a.index, a.address), (b.index, b.address))
            && !have_distinct_indices(a, b)
    };
    by_place.windows(2).filter(meet).map(|pair| (pair[0].to, pair[1].to)).collect()
}

fn paths(queue: &CtsQueue) -> impl Iterator<Item = (NcclPath, &CtsPath)> {
    let ends = |path: &CtsPath| (queue.to.endpoint, QueuePair { endpoint: queue.from, qpn: path.qpn });
    queue.paths.iter().map(move |path| (ends(path), path))
}

/// Queue pairs that belong to one process: the senders of a group, the receivers of a group, and
/// the receivers of all groups that write to the same memory.
fn same_process(queues: &[CtsQueue], groups: &[Vec<usize>]) -> Vec<SameProcess> {
    let mut same = BTreeSet::new();
    let mut of_memory: BTreeMap<(Endpoint, &[u32]), QueuePair> = BTreeMap::new();
    let mut join = |a: QueuePair, b: QueuePair, shares_ring| {
        let same_process = SameProcess { a: a.min(b), b: a.max(b), shares_ring };
        _ = (a != b).then(|| same.insert(same_process));
    };
    for group in groups {
        let senders: Vec<QueuePair> = group.iter().map(|queue| queues[*queue].to).collect();
        let receivers: Vec<QueuePair> =
            group.iter().flat_map(|queue| paths(&queues[*queue])).map(|((_, receiver), _)| receiver).collect();
        for ends in [&senders, &receivers] {
            ends.windows(2).for_each(|pair| join(pair[0], pair[1], true));
        }
        let Some(receiver) = receivers.first() else { continue };
        for queue in group {
            let memory = (queues[*queue].from, queues[*queue].r_keys.as_slice());
            join(*of_memory.entry(memory).or_insert(*receiver), *receiver, false);
        }
    }
    same.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::{Lid, Qpn};

    const RELEASE: Release = Release::From2_24;
    const SLOT_BYTES: u32 = RELEASE.slot_bytes();
    const RING: u64 = 0x7F76_9445_BA80;

    fn endpoint(lid: u16) -> Endpoint {
        Endpoint::from_lid(Lid(lid))
    }

    fn queue_pair(lid: u16, qpn: u32) -> QueuePair {
        QueuePair { endpoint: endpoint(lid), qpn: Qpn::new(qpn) }
    }

    /// A queue with every second index from `index` on, in ring number `ring`, from port to port.
    fn queue(from: u16, to: u16, index: u64, ring: u64, paths: &[u32]) -> CtsQueue {
        CtsQueue {
            from: endpoint(from),
            to: queue_pair(to, 0x10),
            index,
            address: RING + ring * 0x10_0000 + (index - 1) % 256 * u64::from(SLOT_BYTES),
            release: RELEASE,
            step: 2,
            r_keys: vec![0x2CCD, 0x1776],
            memory: vec![(0x1000, 0x1000)],
            paths: paths.iter().map(|qpn| CtsPath { qpn: Qpn::new(*qpn), unmatched: Vec::new() }).collect(),
        }
    }

    fn same(queues: &[CtsQueue]) -> Vec<SameProcess> {
        assign_shares(&mut [], queues).same
    }

    #[test]
    fn queues_with_alternating_indices_in_one_ring_are_one_connection() {
        let expected = [
            SameProcess { a: queue_pair(17, 0x10), b: queue_pair(33, 0x10), shares_ring: true },
            SameProcess { a: queue_pair(18, 0x20), b: queue_pair(34, 0x20), shares_ring: true },
        ];
        // The index has wrapped around the ring, at one queue more often than at the other.
        for index in [2, 256, 258, 1024] {
            let found = same(&[queue(18, 17, 1, 0, &[0x20]), queue(34, 33, index, 0, &[0x20])]);
            assert_eq!(found, expected, "{index}");
        }
        // Several inputs observed the queues.
        let queues = [queue(18, 17, 1, 0, &[0x20]), queue(34, 33, 2, 0, &[0x20]), queue(18, 17, 5, 0, &[0x20])];
        assert_eq!(same(&queues), expected);
    }

    #[test]
    fn other_queues_are_separate_connections() {
        let one = queue(18, 17, 1, 0, &[0x20]);
        let same_turn = queue(34, 33, 3, 0, &[0x20]);
        let another_ring = queue(34, 33, 2, 1, &[0x20]);
        let another_place = CtsQueue { address: RING + 3 * u64::from(SLOT_BYTES), ..queue(34, 33, 2, 0, &[0x20]) };
        let other_keys = CtsQueue { r_keys: vec![0x2CCD, 0x1777], ..queue(34, 33, 2, 0, &[0x20]) };
        let all_indices = CtsQueue { step: 1, ..queue(34, 33, 2, 0, &[0x20]) };
        for other in [same_turn, another_ring, another_place, other_keys, all_indices] {
            assert_eq!(same(&[one.clone(), other.clone()]), [], "{other:?}");
        }
        // The receivers of two connections write to the same memory.
        let paths = [queue(18, 17, 1, 0, &[0x20]), queue(18, 19, 1, 1, &[0x21])];
        assert_eq!(
            same(&paths),
            [SameProcess { a: queue_pair(18, 0x20), b: queue_pair(18, 0x21), shares_ring: false }]
        );
    }

    /// No process has two rings at one address.
    #[test]
    fn rings_at_one_address_belong_to_two_processes() {
        let to = |qpn: u32, other: CtsQueue| CtsQueue { to: queue_pair(17, qpn), ..other };
        let overlapping = |other: CtsQueue| {
            let queues = [to(0x10, queue(18, 17, 1, 0, &[0x20])), to(0x11, other)];
            assign_shares(&mut [], &queues).overlapping.into_iter().collect::<Vec<_>>()
        };
        let both = [(queue_pair(17, 0x10), queue_pair(17, 0x11))];
        assert_eq!(overlapping(queue(18, 17, 1, 0, &[0x21])), both);
        // Another element of the same ring.
        assert_eq!(overlapping(queue(18, 17, 5, 0, &[0x21])), both);
        assert_eq!(overlapping(queue(19, 17, 5, 0, &[0x21])), both);
        // Through the other device of the receiver with alternating indices, and in another ring.
        assert_eq!(overlapping(queue(34, 17, 2, 0, &[0x21])), []);
        assert_eq!(overlapping(queue(18, 17, 1, 1, &[0x21])), []);
    }

    /// Two connections of two identical nodes: any pairing would be a guess.
    #[test]
    fn of_two_consistent_pairings_neither_is_taken() {
        let queues = [
            queue(18, 17, 1, 0, &[0x20]),
            queue(34, 33, 2, 0, &[0x20]),
            queue(17, 18, 1, 0, &[0x20]),
            queue(33, 34, 2, 0, &[0x20]),
        ];
        assert_eq!(same(&queues), []);
    }

    #[test]
    fn roles() {
        let role = |first, later| PathRole::of(NcclShares { first, later });
        assert_eq!(
            [role(5, 0), role(4, 2), role(0, 1), role(3, 7)],
            [PathRole::First, PathRole::First, PathRole::Later, PathRole::Later]
        );
        assert_eq!([role(0, 0), role(3, 2), role(2, 3)], [PathRole::Unclear; 3]);
    }

    /// Two queues of one connection, and others between other ports with the same keys.
    #[test]
    fn too_many_queues_with_the_same_keys_are_not_grouped() {
        for (alike, expected) in [(MAX_COMPARED_QUEUES as u16, 2), (MAX_COMPARED_QUEUES as u16 + 1, 0)] {
            let others = (2..alike).map(|other| queue(100 + other, 5000 + other, 1, other.into(), &[0x20]));
            let queues: Vec<CtsQueue> =
                [queue(18, 17, 1, 0, &[0x20]), queue(34, 33, 2, 0, &[0x20])].into_iter().chain(others).collect();
            assert_eq!(same(&queues).len(), expected);
        }
    }
}
