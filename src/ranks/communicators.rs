//! Ranks of processes that never speak on `MPI_COMM_WORLD` where it can be seen: told by other communicators.
//!
//! From one port of many, a neighbour may be seen on a duplicate of `MPI_COMM_WORLD` or on a Cartesian communicator alone. Where every
//! process whose world rank is known speaks on such a communicator, under its world rank, the others are taken to do the same:
//!
//! ```text
//!             world    context 6
//! 10.77.0.1   0        0            known, and the same
//! 10.77.0.2   1        1            known, and the same
//! 10.77.0.3   -        2            rank 2, evidence "communicator"
//! ```
//! It takes two known processes, so that neither a reversed communicator nor one half of a split one passes; one known process that is
//! missing there is enough to believe nothing. It is an inference all the same, and is marked as one.

use super::processes::Process;
use std::collections::{BTreeMap, BTreeSet};

/// Known processes that a communicator must hold under their world ranks.
const ENOUGH: usize = 2;
/// Envelopes that must name the rank.
const ENVELOPES: u64 = 3;

/// Context ids on which processes have their world rank, as far as the known ones say.
pub(super) fn like_world(known: &[(u32, &Process)]) -> BTreeSet<u32> {
    let ranks: BTreeSet<u32> = known.iter().map(|(rank, _)| *rank).collect();
    let mut contexts: BTreeMap<u32, Option<BTreeSet<u32>>> = BTreeMap::new();
    for (world_rank, process) in known {
        for &(context, rank) in process.elsewhere.keys() {
            let seen = contexts.entry(context).or_insert_with(|| Some(BTreeSet::new()));
            if rank == *world_rank {
                seen.iter_mut().for_each(|seen| _ = seen.insert(rank));
            } else {
                *seen = None;
            }
        }
    }
    let complete = |seen: &BTreeSet<u32>| seen.len() >= ENOUGH && *seen == ranks;
    contexts.into_iter().filter(|(_, seen)| seen.as_ref().is_some_and(complete)).map(|(context, _)| context).collect()
}

/// The rank that a process has on those contexts, and how many envelopes name it; `None` where it has none or several, or one that is known to be
/// another process.
pub(super) fn infer(process: &Process, contexts: &BTreeSet<u32>, known: &[(u32, &Process)]) -> Option<(u32, u64)> {
    let mut ranks: BTreeMap<u32, u64> = BTreeMap::new();
    for ((_, rank), count) in process.elsewhere.iter().filter(|((context, _), _)| contexts.contains(context)) {
        *ranks.entry(*rank).or_default() += count;
    }
    match ranks.into_iter().collect::<Vec<_>>()[..] {
        [(rank, count)] if count >= ENVELOPES && known.iter().all(|(other, _)| *other != rank) => Some((rank, count)),
        _ => None,
    }
}

/// True where processes at one endpoint contradict each other on a communicator: they are not one.
pub(super) fn contradict(processes: &[&Process]) -> bool {
    let mut ranks: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for process in processes {
        let mut own: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &(context, rank) in process.elsewhere.keys() {
            own.entry(context).or_default().push(rank);
        }
        // A context id that was used again shows several ranks of one process.
        for (context, own) in own {
            if let [rank] = own[..] {
                ranks.entry(context).or_default().insert(rank);
            }
        }
    }
    ranks.values().any(|ranks| ranks.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(elsewhere: &[(u32, u32)]) -> Process {
        Process { elsewhere: elsewhere.iter().map(|place| (*place, 5)).collect(), ..Process::default() }
    }

    #[test]
    fn a_duplicate_of_the_world_names_the_rest() {
        let (zero, one) = (process(&[(6, 0)]), process(&[(6, 1), (9, 0)]));
        let known = [(0, &zero), (1, &one)];
        let contexts = like_world(&known);
        assert_eq!(contexts, BTreeSet::from([6]));
        assert_eq!(infer(&process(&[(6, 2), (9, 1)]), &contexts, &known), Some((2, 5)));
        assert_eq!(infer(&process(&[(6, 1)]), &contexts, &known), None, "rank 1 is somebody else");
        assert_eq!(infer(&process(&[(9, 1)]), &contexts, &known), None);
        assert_eq!(infer(&process(&[(6, 2), (6, 3)]), &contexts, &known), None);
    }

    #[test]
    fn other_communicators_name_nobody() {
        let (zero, one, two) =
            (process(&[(3, 2), (4, 0), (5, 0)]), process(&[(3, 1), (4, 0), (5, 1)]), process(&[(4, 1)]));
        // 3 is reversed, 4 are the even and the odd ranks under one id, 5 leaves rank 2 out.
        let known = [(0, &zero), (1, &one), (2, &two)];
        assert_eq!(like_world(&known), BTreeSet::new());
        assert_eq!(like_world(&known[..1]), BTreeSet::new(), "one process is not enough");
    }

    #[test]
    fn two_ranks_on_one_communicator_are_two_processes() {
        let (zero, one, both) = (process(&[(3, 0)]), process(&[(3, 1)]), process(&[(3, 0), (3, 1)]));
        assert!(contradict(&[&zero, &one]));
        assert!(!contradict(&[&zero, &zero]));
        assert!(!contradict(&[&both, &both]), "the context id was used again");
    }
}
