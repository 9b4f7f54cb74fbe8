//! The connections of NCCL, and the ranks that they join.

use super::NcclTransfer;
use std::collections::{BTreeMap, BTreeSet};

/// Buffers of a connection (`NCCL_STEPS`).
const STEPS: usize = 8;

/// A connection of NCCL: one direction of one channel between two ranks.
#[derive(Clone, Debug)]
pub(super) struct NcclConnection {
    pub(super) job: u32,
    pub(super) src: u32,
    pub(super) dst: u32,
    /// Its messages in the order of their receives.
    pub(super) transfers: Vec<NcclTransfer>,
    /// By length of the buffers: the number of messages that carry one chunk, as far as the
    /// addresses of the buffers show it.
    pub(super) slices: BTreeMap<u64, Option<u32>>,
}

/// Ranks that exchange messages, directly or through others.
#[derive(Clone, Debug)]
pub(super) struct NcclCommunicator {
    pub(super) ranks: BTreeSet<u32>,
    pub(super) connections: Vec<NcclConnection>,
}

/// Groups messages by connection and communicator.
pub(super) fn communicators(transfers: Vec<NcclTransfer>) -> Vec<NcclCommunicator> {
    let mut by_connection: BTreeMap<(u32, u32, u32, u64), Vec<NcclTransfer>> = BTreeMap::new();
    for transfer in transfers {
        let key = (transfer.job, transfer.src, transfer.dst, transfer.receive.ring);
        by_connection.entry(key).or_default().push(transfer);
    }
    let mut group_of: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut groups: Vec<NcclCommunicator> = Vec::new();
    for ((job, src, dst, _), mut transfers) in by_connection {
        transfers.sort_by_key(|transfer| (transfer.receive.index, transfer.times_ns));
        let slices = slices(&transfers);
        let connection = NcclConnection { job, src, dst, transfers, slices };
        let mut own = NcclCommunicator { ranks: BTreeSet::from([src, dst]), connections: vec![connection] };
        let at = groups.len();
        for old in
            [src, dst].into_iter().filter_map(|rank| group_of.get(&(job, rank)).copied()).collect::<BTreeSet<_>>()
        {
            let Some(group) = groups.get_mut(old) else { continue };
            own.ranks.append(&mut group.ranks);
            own.connections.append(&mut group.connections);
        }
        own.ranks.iter().for_each(|rank| _ = group_of.insert((job, *rank), at));
        groups.push(own);
    }
    groups.retain(|group| !group.connections.is_empty());
    groups
}

/// Messages per chunk by length of the buffers. A ring of eight buffers holds four slices of two
/// buffers each (`ALLREDUCE_SLICESTEPS` and the like), or eight slices of one.
fn slices(transfers: &[NcclTransfer]) -> BTreeMap<u64, Option<u32>> {
    let mut addresses: BTreeMap<u64, (BTreeSet<u64>, usize)> = BTreeMap::new();
    for transfer in transfers {
        let (distinct, count) = addresses.entry(transfer.receive.buffer_bytes).or_default();
        if distinct.len() <= STEPS {
            distinct.insert(transfer.receive.buffer_address);
        }
        *count += 1;
    }
    let per_chunk = |(distinct, count): (BTreeSet<u64>, usize)| match distinct.len() {
        5..=STEPS => Some(1),
        4 if count > 4 => Some(2),
        _ => None,
    };
    addresses.into_iter().map(|(bytes, seen)| (bytes, per_chunk(seen))).collect()
}
