//! Processes of NCCL's queue pairs.
//!
//! NCCL's connections are one-way, so a connection on which a process receives does not name it.
//! Usually a process has one port per GPU, so queue pairs of a port that are in use at the same
//! time count as one process. Two observations contradict that:
//!
//! **Release.** A process has one NCCL. Clear-to-send elements of two layouts therefore belong to
//! two processes, and to two jobs.
//!
//! **Addresses.** Rings of clear-to-send elements lie in the sender's heap. Two rings at one
//! address belong to two processes. So, most likely, do two that are [`APART_BYTES`] or more apart:
//! Linux places the heap and the memory map of each process anywhere within 1 TiB (`mmap_rnd_bits`
//! 28, x86-64), so two processes are closer than that once in 32 times, and on two nodes once in a
//! thousand. But one process may map as much between two of its rings. Distance therefore splits no
//! process; a note states that the job may be several.

use super::processes::{EndId, Processes};
use crate::model::{NcclProcesses, QueuePair};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Rings of one process are closer than this: glibc's heaps of threads have 64 MiB each, one mapped
/// below the other.
const APART_BYTES: u64 = 16 << 30;

/// Ends of the areas in which Linux places memory at random: the heap of programs at fixed
/// addresses, the heap of other programs (from two thirds of the address space, `ELF_ET_DYN_BASE`),
/// and mapped memory; the last two on x86-64 (47 bits) and on aarch64 (48 bits).
const AREA_ENDS: [u64; 4] = [1 << 40, 0x6AAA_AAAA_AAAA, 1 << 47, 0xD555_5555_5555];

/// Times of the first and the last packet of an end's connection in nanoseconds since the epoch,
/// and the end.
type UsedEnd = ((i64, i64), EndId);

/// Ends of NCCL connections, by port.
#[derive(Debug, Default)]
pub(super) struct NcclEnds(BTreeMap<Endpoint, Vec<UsedEnd>>);

impl NcclEnds {
    pub(super) fn add(&mut self, port: Endpoint, times_ns: (i64, i64), end: EndId) {
        self.0.entry(port).or_default().push((times_ns, end));
    }

    /// Joins the ends of a port and release that are in use at the same time into one process, and
    /// flags it if it may be several.
    pub(super) fn join(self, evidence: &NcclProcesses, processes: &mut Processes) {
        for ends in self.0.into_values() {
            for (release, mut ends) in by_release(ends, evidence, processes) {
                ends.sort_unstable();
                concurrent_ends(&ends).iter().for_each(|ends| join_as_process(ends, release, evidence, processes));
            }
        }
    }
}

fn join_as_process(ends: &[EndId], release: Option<Release>, evidence: &NcclProcesses, processes: &mut Processes) {
    processes.join(ends);
    if let Some(release) = release {
        ends.iter().for_each(|end| processes.set_release(*end, release));
    }
    let own = ends.iter().filter_map(|end| processes.queue_pair(*end)).collect();
    if are_several_processes(&own, evidence) {
        processes.doubt(ends[0]);
    }
}

/// Groups the ends of a port by release. If there is a single release, ends without one belong to
/// it.
fn by_release(
    ends: Vec<UsedEnd>,
    evidence: &NcclProcesses,
    processes: &Processes,
) -> BTreeMap<Option<Release>, Vec<UsedEnd>> {
    let mut releases: BTreeMap<Option<Release>, Vec<UsedEnd>> = BTreeMap::new();
    for (times_ns, end) in ends {
        let release = processes.queue_pair(end).and_then(|own| evidence.releases.get(&own)).copied();
        releases.entry(release).or_default().push((times_ns, end));
    }
    if releases.len() == 2
        && let Some(unknown) = releases.remove(&None)
    {
        releases.values_mut().for_each(|known| known.extend(&unknown));
    }
    releases
}

/// Splits ends, sorted by their first packet, wherever none is in use: one process follows another.
fn concurrent_ends(ends: &[UsedEnd]) -> Vec<Vec<EndId>> {
    let mut parts: Vec<(i64, Vec<EndId>)> = Vec::new();
    for &((first_ns, last_ns), end) in ends {
        match parts.last_mut().filter(|(busy_until_ns, _)| first_ns <= *busy_until_ns) {
            Some((busy_until_ns, part)) => {
                *busy_until_ns = last_ns.max(*busy_until_ns);
                part.push(end);
            }
            None => parts.push((last_ns, vec![end])),
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

/// True if the rings of these queue pairs do not look like the rings of one process.
fn are_several_processes(queue_pairs: &BTreeSet<QueuePair>, evidence: &NcclProcesses) -> bool {
    let mut rings: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for ring in queue_pairs.iter().filter_map(|own| evidence.rings.get(own)) {
        rings.entry(AREA_ENDS.partition_point(|end| end <= ring)).or_default().push(*ring);
    }
    let are_apart = rings.into_values().any(|mut rings| {
        rings.sort_unstable();
        rings.windows(2).any(|pair| pair[1] - pair[0] >= APART_BYTES)
    });
    let overlaps = |own: &QueuePair| evidence.overlapping.get(own).is_some_and(|other| queue_pairs.contains(other));
    are_apart || queue_pairs.iter().any(overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::{Lid, Qpn};

    const GIB: u64 = 1 << 30;

    fn port(lid: u16) -> Endpoint {
        Endpoint::from_lid(Lid(lid))
    }

    fn queue_pair(qpn: u32) -> QueuePair {
        QueuePair { endpoint: port(17), qpn: Qpn::new(qpn) }
    }

    /// Queue pairs 0, 1, ... of one port, with release and ring. Returns the number of processes,
    /// and how many of them may be several.
    fn joined(evidence: &[(Release, u64)], overlapping: &[(u32, u32)]) -> (usize, usize) {
        let own = |(qpn, evidence): (u32, &(Release, u64))| (queue_pair(qpn), *evidence);
        let of: BTreeMap<QueuePair, (Release, u64)> = (0..).zip(evidence).map(own).collect();
        let evidence = NcclProcesses {
            same: Vec::new(),
            releases: of.iter().map(|(own, (release, _))| (*own, *release)).collect(),
            rings: of.iter().map(|(own, (_, ring))| (*own, *ring)).collect(),
            overlapping: overlapping.iter().map(|(a, b)| (queue_pair(*a), queue_pair(*b))).collect(),
        };
        let (mut processes, mut ends) = (Processes::default(), NcclEnds::default());
        for own in of.keys() {
            ends.add(own.endpoint, (0, 1), processes.end(*own));
        }
        ends.join(&evidence, &mut processes);
        let all: BTreeSet<EndId> = (0..processes.len() as EndId).map(|end| processes.process(end)).collect();
        (all.len(), processes.doubtful().len())
    }

    #[test]
    fn a_port_is_one_process() {
        use Release::{From2_12, From2_24};
        const HEAP: u64 = 0x55F7_F418_7220;
        const MAPPED: u64 = 0x7F0E_713D_1180;
        assert_eq!(joined(&[(From2_24, MAPPED), (From2_24, MAPPED + 15 * GIB)], &[]), (1, 0));
        // Each area starts at its own random number.
        assert_eq!(joined(&[(From2_24, HEAP), (From2_24, MAPPED)], &[]), (1, 0));
        // These may be two processes, but distance does not split them.
        assert_eq!(joined(&[(From2_24, MAPPED), (From2_24, MAPPED + 16 * GIB)], &[]), (1, 1));
        assert_eq!(joined(&[(From2_24, HEAP), (From2_24, HEAP + 64), (From2_24, HEAP)], &[(0, 2)]), (1, 1));
        // A process has one NCCL.
        assert_eq!(joined(&[(From2_24, MAPPED), (From2_12, MAPPED), (From2_24, MAPPED)], &[]), (2, 0));
    }
}
