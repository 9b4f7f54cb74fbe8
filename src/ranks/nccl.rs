//! NCCL's queue pairs -> processes.
//!
//! NCCL's connections go one way, so those on which a process receives name it nowhere. It has a port for each GPU as a
//! rule, so queue pairs of a port that are in use at a time are taken for one process. Two things speak against that:
//!
//! **Release.** A process has one NCCL, so elements of two layouts are of two processes, and of two jobs.
//!
//! **Addresses.** Rings of clear-to-send elements lie in the sender's heap. Two of them at one place are of two
//! processes. So are, most likely, two that are [`APART_BYTES`] or more from each other: Linux puts the heap and the
//! memory map of each process anywhere within 1 TiB (`mmap_rnd_bits` 28, x86-64), so of two processes they are nearer
//! than that once in 32 times, at two nodes once in a thousand. But one process may have mapped as much between two of
//! its rings, so nothing is parted by it: the job may be several then, and says so.

use super::processes::{End, Processes};
use crate::model::{NcclProcesses, QueuePair};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::nccl::Release;
use std::collections::{BTreeMap, BTreeSet};

/// Rings of one process are nearer to each other: glibc's heaps of threads have 64 MiB each, one mapped below the other.
const APART_BYTES: u64 = 16 << 30;

/// The first address behind each area in which Linux places memory by a random number of its own: the heap of programs at
/// fixed addresses, the heap of others (they start at two thirds of the address space, `ELF_ET_DYN_BASE`), and mapped
/// memory; the last two on x86-64 (47 bits), then on aarch64 (48 bits).
const AREA_ENDS: [u64; 4] = [1 << 40, 0x6AAA_AAAA_AAAA, 1 << 47, 0xD555_5555_5555];

/// An end, behind the times of the first and the last packet of its connection in nanoseconds since the epoch.
type UsedEnd = ((i64, i64), End);

/// Ends of connections that speak NCCL, by port.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<Endpoint, Vec<UsedEnd>>);

impl Ends {
    pub(super) fn add(&mut self, port: Endpoint, times_ns: (i64, i64), end: End) {
        self.0.entry(port).or_default().push((times_ns, end));
    }

    /// Makes those of a port and release that are in use at a time one process, which may be several.
    pub(super) fn join(self, shown: &NcclProcesses, processes: &mut Processes) {
        for ends in self.0.into_values() {
            for (release, mut ends) in by_release(ends, shown, processes) {
                ends.sort_unstable();
                at_a_time(&ends).iter().for_each(|ends| one_process(ends, release, shown, processes));
            }
        }
    }
}

fn one_process(ends: &[End], release: Option<Release>, shown: &NcclProcesses, processes: &mut Processes) {
    processes.join(ends);
    if let Some(release) = release {
        ends.iter().for_each(|end| processes.set_release(*end, release));
    }
    let own = ends.iter().filter_map(|end| processes.queue_pair(*end)).collect();
    if are_several(&own, shown) {
        processes.doubt(ends[0]);
    }
}

/// Ends of one port by the release that they show. Where there is one release, the others are of it.
fn by_release(
    ends: Vec<UsedEnd>,
    shown: &NcclProcesses,
    processes: &Processes,
) -> BTreeMap<Option<Release>, Vec<UsedEnd>> {
    let mut releases: BTreeMap<Option<Release>, Vec<UsedEnd>> = BTreeMap::new();
    for (times_ns, end) in ends {
        let release = processes.queue_pair(end).and_then(|own| shown.releases.get(&own)).copied();
        releases.entry(release).or_default().push((times_ns, end));
    }
    if releases.len() == 2
        && let Some(unknown) = releases.remove(&None)
    {
        releases.values_mut().for_each(|known| known.extend(&unknown));
    }
    releases
}

/// Cuts ends, sorted by the time of their first packet, where none is in use: one process follows another.
fn at_a_time(ends: &[UsedEnd]) -> Vec<Vec<End>> {
    let mut parts: Vec<(i64, Vec<End>)> = Vec::new();
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

/// The rings of these queue pairs do not look like those of one process.
fn are_several(queue_pairs: &BTreeSet<QueuePair>, shown: &NcclProcesses) -> bool {
    let mut rings: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for ring in queue_pairs.iter().filter_map(|own| shown.rings.get(own)) {
        rings.entry(AREA_ENDS.partition_point(|end| end <= ring)).or_default().push(*ring);
    }
    let are_apart = rings.into_values().any(|mut rings| {
        rings.sort_unstable();
        rings.windows(2).any(|pair| pair[1] - pair[0] >= APART_BYTES)
    });
    let overlaps = |own: &QueuePair| shown.overlapping.get(own).is_some_and(|other| queue_pairs.contains(other));
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

    /// Queue pairs 0, 1, ... of one port, with release and ring: how many processes they are, and how many of these may
    /// be several.
    fn joined(shown: &[(Release, u64)], overlapping: &[(u32, u32)]) -> (usize, usize) {
        let own = |(qpn, shown): (u32, &(Release, u64))| (queue_pair(qpn), *shown);
        let of: BTreeMap<QueuePair, (Release, u64)> = (0..).zip(shown).map(own).collect();
        let shown = NcclProcesses {
            same: Vec::new(),
            releases: of.iter().map(|(own, (release, _))| (*own, *release)).collect(),
            rings: of.iter().map(|(own, (_, ring))| (*own, *ring)).collect(),
            overlapping: overlapping.iter().map(|(a, b)| (queue_pair(*a), queue_pair(*b))).collect(),
        };
        let (mut processes, mut ends) = (Processes::default(), Ends::default());
        for own in of.keys() {
            ends.add(own.endpoint, (0, 1), processes.end(*own));
        }
        ends.join(&shown, &mut processes);
        let all: BTreeSet<End> = (0..processes.len() as End).map(|end| processes.process(end)).collect();
        (all.len(), processes.doubtful().len())
    }

    #[test]
    fn a_port_is_one_process() {
        use Release::{From2_12, From2_24};
        const HEAP: u64 = 0x55F7_F418_7220;
        const MAPPED: u64 = 0x7F0E_713D_1180;
        assert_eq!(joined(&[(From2_24, MAPPED), (From2_24, MAPPED + 15 * GIB)], &[]), (1, 0));
        // Each area begins at a random number of its own.
        assert_eq!(joined(&[(From2_24, HEAP), (From2_24, MAPPED)], &[]), (1, 0));
        // They may be two, and nothing parts them.
        assert_eq!(joined(&[(From2_24, MAPPED), (From2_24, MAPPED + 16 * GIB)], &[]), (1, 1));
        assert_eq!(joined(&[(From2_24, HEAP), (From2_24, HEAP + 64), (From2_24, HEAP)], &[(0, 2)]), (1, 1));
        // A process has one NCCL.
        assert_eq!(joined(&[(From2_24, MAPPED), (From2_12, MAPPED), (From2_24, MAPPED)], &[]), (2, 0));
    }
}
