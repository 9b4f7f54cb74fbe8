//! Classes with several jobs in the same captures.

use super::names::{move_hosts, permutation, renumber};
use super::partial::windowed;
use crate::library::{Library, LibraryRun, ports};
use crate::scene::{Scene, SceneJobs, cast, cast_in};
use ibscope_parsers::Endpoint;
use ibscope_samples::Random;
use ibscope_samples::hard::rewrite::{AddressRewrite, lid};
use ibscope_samples::hard::split::shuffle;
use std::collections::BTreeMap;

fn one_job(run: &LibraryRun) -> bool {
    run.jobs.len() == 1 && !run.name.contains("nfs")
}

/// Starts a second job while the first one runs.
fn beside(first: &SceneJobs, second: SceneJobs, random: &mut Random) -> SceneJobs {
    let (start_ns, end_ns) = first.span_ns();
    second.starting_at(start_ns + random.below(end_ns - start_ns))
}

/// A second job beside `first` on the same ports. Two processes of NCCL on one port never share memory
/// keys, so it is not the same run of NCCL.
fn second(
    library: &Library,
    random: &mut Random,
    first: &SceneJobs,
    filter: impl Fn(&LibraryRun) -> bool,
) -> (SceneJobs, String) {
    let is_same = |run: &LibraryRun| run.name.starts_with("nccl") && first.runs.contains(&run.name);
    let (cast, about) = cast_in(library, random, first.form, |run| filter(run) && !is_same(run));
    // The second job may be a copy of the first one, so it gets other names.
    let rewrite = AddressRewrite { identity: 1 + random.below(0x7FFF) as u32, ..renumber(&cast, random) };
    (cast.renamed(&rewrite), about)
}

/// A port that the runs do not use.
fn away(port: Endpoint) -> Endpoint {
    match port.lid() {
        Some(own) => lid(own.0 + 100),
        None => Endpoint::from_ipv4((port.low_bits() as u32 + 20).to_be_bytes()),
    }
}

/// Moves a job to nodes that the runs do not use.
fn moved_away(cast: SceneJobs) -> SceneJobs {
    let moved: BTreeMap<Endpoint, Endpoint> = ports(cast.form).into_iter().map(|port| (port, away(port))).collect();
    let rewrite = move_hosts(&cast, &moved);
    cast.renamed(&rewrite)
}

pub(super) fn other_nodes(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, one_job);
    let (other, other_about) = cast_in(library, random, first.form, one_job);
    let other = beside(&first, moved_away(other), random);
    first.with(other).scene(format!("{about} and {other_about} on other nodes"))
}

pub(super) fn same_nodes(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, one_job);
    let (other, other_about) = second(library, random, &first, one_job);
    let other = beside(&first, other, random);
    first.with(other).scene(format!("{about} and {other_about} on the same nodes"))
}

/// Two NCCL jobs on the same nodes. No field of NCCL's messages identifies a job.
pub(super) fn of_nccl(library: &Library, random: &mut Random, _: usize) -> Scene {
    let is_nccl = |run: &LibraryRun| run.name.starts_with("nccl");
    let (first, about) = cast(library, random, is_nccl);
    let (other, other_about) = second(library, random, &first, is_nccl);
    let other = beside(&first, other, random);
    first.with(other).scene(format!("{about} and {other_about} on the same nodes"))
}

/// A copy of the same run with other queue pairs, workers and job number. The copy writes to the
/// same memory addresses and keys as the original, by which NCCL's messages find their data. Two
/// real processes on one adapter never share keys, so NCCL's runs are not used.
pub(super) fn copies(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, |run| one_job(run) && !run.name.starts_with("nccl"));
    let rewrite = AddressRewrite { identity: 1 + random.below(0x7FFF) as u32, ..renumber(&first, random) };
    let other = beside(&first, first.clone().renamed(&rewrite), random);
    first.with(other).scene(format!("{about} and a copy of it"))
}

/// Moves the nodes of a job to any of eight, so that it may share some of them with another job.
fn moved_anywhere(cast: SceneJobs, random: &mut Random) -> SceneJobs {
    let near = ports(cast.form).into_iter().take(4).collect::<Vec<_>>();
    let mut to: Vec<Endpoint> = near.iter().copied().chain(near.iter().map(|port| away(*port))).collect();
    shuffle(&mut to, random);
    let moved = near.into_iter().zip(to).collect();
    let rewrite = move_hosts(&cast, &moved);
    cast.renamed(&rewrite)
}

fn one_rail(run: &LibraryRun) -> bool {
    one_job(run) && !run.name.contains("multirail")
}

/// Two or three jobs whose nodes may overlap.
pub(super) fn anywhere(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (mut all, mut about) = cast(library, random, one_rail);
    for _ in 0..=random.below(2) {
        let (other, other_about) = second(library, random, &all, one_rail);
        let other = beside(&all, moved_anywhere(other, random), random);
        all = all.with(other);
        about = format!("{about}, {other_about}");
    }
    all.scene(format!("{about} on nodes that may overlap"))
}

/// A later job gets queue pair numbers of a job that has ended.
pub(super) fn queue_pairs_reused(library: &Library, random: &mut Random, _: usize) -> Scene {
    loop {
        let (first, about) = cast(library, random, one_rail);
        let shares = |run: &LibraryRun| run.owners(first.form).keys().any(|end| first.owners.contains_key(end));
        let is_other = |run: &LibraryRun| one_rail(run) && !about.starts_with(&run.name) && shares(run);
        if !library.jobs.iter().any(|run| is_other(run)) {
            continue;
        }
        let (other, other_about) = cast_in(library, random, first.form, is_other);
        let pause_ns = 2_000_000_000 + random.below(100_000_000_000);
        let other = other.starting_at(first.span_ns().1 + pause_ns);
        // Messages of two processes with one queue pair number have no rank.
        let scene = first.clone().with(other).scene(format!("{about}, {pause_ns} ns before {other_about}"));
        return Scene { complete: false, ..scene };
    }
}

/// One job after the other on the same nodes: another program of the same user.
pub(super) fn queue(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, one_job);
    let (other, other_about) = second(library, random, &first, one_job);
    let gap_ns = 100_000_000 + random.below(60_000_000_000);
    let other = other.starting_at(first.span_ns().1 + gap_ns);
    first.with(other).scene(format!("{about}, then {other_about} after {gap_ns} ns"))
}

/// One job after the other, with permuted nodes.
pub(super) fn sequence(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, one_job);
    let (other, other_about) = second(library, random, &first, one_job);
    let moved = permutation(&other, random);
    let rewrite = move_hosts(&other, &moved);
    let gap_ns = 1_000_000_000 * (1 + random.below(60));
    let other = other.renamed(&rewrite).starting_at(first.span_ns().1 + gap_ns);
    first.with(other).scene(format!("{about}, then {other_about} with {moved:?}"))
}

pub(super) fn two_libraries(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, |run| one_job(run) && run.name.starts_with("mpich"));
    let open_mpi = |run: &LibraryRun| one_job(run) && (run.name.contains("ompi-rc") || run.name.contains("ompi5-ucx"));
    let (other, other_about) = second(library, random, &first, open_mpi);
    let other = beside(&first, other, random);
    first.with(other).scene(format!("{about} and {other_about} on the same nodes"))
}

/// The same run again later, with the same queue pairs and PSNs.
pub(super) fn twice(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, one_job);
    let gap_ns = 1_000_000_000 * (1 + random.below(60));
    let other = first.clone().starting_at(first.span_ns().1 + gap_ns);
    let mut scene = first.with(other).scene(format!("{about}, again after {gap_ns} ns"));
    // Both jobs have the same queue pairs, so their pairs cannot be distinguished.
    for truths in [&mut scene.truths, &mut scene.collectives] {
        *truths = vec![truths[0].iter().map(|(pair, sums)| (*pair, (2 * sums.0, 2 * sums.1))).collect()];
    }
    for owners in scene.owners.values_mut() {
        owners.retain(|owner| owner.job == 0);
    }
    // Only the time distinguishes the second run from the first: counts may be lower if they are
    // marked.
    scene.complete = false;
    scene
}

/// A part of two jobs on the same nodes.
pub(super) fn in_a_window(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (first, about) = cast(library, random, one_job);
    let (other, other_about) = second(library, random, &first, one_job);
    let other = beside(&first, other, random);
    let kind = random.below(3);
    windowed(first.with(other), &format!("{about} and {other_about}"), kind, random)
}
