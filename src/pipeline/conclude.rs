//! What was read -> profile: mirror copies and inputs settled, libraries believed, ranks learnt.
//!
//! Everything that is decided is decided here, from what the inputs have left (`ending`), so that inputs that were read together and inputs that
//! were read apart and merged come to the same.

use super::align::{self, Transits};
use super::ending::{Ended, SHARDS, ShardEnd};
use super::fill::fill;
use super::spill::Spill;
use super::{Error, Options, left_out};
use crate::flow::{self, ConnectionEnd};
use crate::model::profile::{CmRow, CoverageState, Input, JobRow};
use crate::model::{ConnectionKey, Coverage, Marks, Missing, Profile, printable};
use crate::ranks::{self, Detection, Witnesses};
use crate::reduce::{Accumulator, Drawn, Ending, Settling, Share, Untimed};
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// An analysis that has seen everything.
pub(super) struct Finished {
    pub(super) profile: Profile,
    pub(super) detection: Detection,
    /// Single messages, where they were asked for, and the row of each connection that counts by its number in them.
    pub(super) spills: Vec<(Vec<Option<u32>>, Spill)>,
}

/// What one tracker of an input has left to be settled.
struct Unsettled {
    input: usize,
    keeps_vcrc: bool,
    connections: Vec<ConnectionEnd>,
    sums: Accumulator,
}

impl Unsettled {
    /// Adds it to the share of its input.
    fn share(self, shares: &mut [Share]) {
        let Some(share) = shares.get_mut(self.input) else { return };
        for (end, sums) in self.connections.into_iter().zip(self.sums.finish()) {
            let ConnectionEnd { key, missing, continuity, overflowed, partners, mut health } = end;
            if !self.keeps_vcrc {
                health.iter_mut().for_each(|health| health.forget(Marks::VCRC_BAD));
            }
            let missing = (missing != Missing::default()).then(|| Box::new(missing));
            share.add(key, sums, Ending { missing, continuity, overflowed, partners, health });
        }
    }
}

/// Concludes an analysis: `inputs` are what was read, `notes` what is to be said of them already.
pub(super) fn conclude(
    ended: Ended,
    mut inputs: Vec<Input>,
    mut notes: Vec<String>,
    transits: Vec<Transits>,
    options: &Options,
) -> Result<Finished, Error> {
    let Ended { inputs: ends, bounds } = ended;
    let mut coverage = Coverage::default();
    let mut cm = Vec::new();
    let mut cm_lost = 0;
    let (mut wireups, mut introductions, mut cts_queues) = (Vec::new(), Vec::new(), Vec::new());
    let mut settling = Settling::default();
    let mut shards: Vec<Vec<Unsettled>> = (0..SHARDS).map(|_| Vec::new()).collect();
    let mut spills: Vec<(usize, Vec<ConnectionKey>, Spill)> = Vec::new();
    let mut drawn: Vec<Vec<Drawn>> = (0..SHARDS).map(|_| Vec::new()).collect();
    for (index, (end, input)) in ends.into_iter().zip(&mut inputs).enumerate() {
        input.coverage = end.coverage;
        // Some adapters do not keep the VCRC of what they mirror; it says nothing then.
        let keeps_vcrc = input.coverage.vcrc_ok >= input.coverage.vcrc_bad;
        if !keeps_vcrc {
            let (vcrc_ok, vcrc_bad) = (&mut input.coverage.vcrc_ok, &mut input.coverage.vcrc_bad);
            notes.push(format!(
                "{}: the VCRC of {vcrc_bad} of {} packets does not fit: it was not kept by what mirrored or captured them, and is not counted",
                input.name,
                *vcrc_ok + *vcrc_bad
            ));
            (*vcrc_ok, *vcrc_bad) = (0, 0);
        }
        settling.input(end.times_ns, end.shards.iter().flat_map(ShardEnd::sums));
        for ((shard, drawn), unsettled) in end.shards.into_iter().zip(&mut drawn).zip(&mut shards) {
            let keys = shard.keys();
            drawn.extend(shard.drawn.map(|sample| Drawn { input: index, keys: keys.clone(), sample }));
            cm.extend(shard.cm);
            cm_lost += shard.cm_lost;
            coverage.messages_evicted += shard.evicted;
            wireups.extend(shard.wireups);
            introductions.extend(shard.introductions);
            input.coverage.introductions_left_out += shard.introductions_left_out;
            cts_queues.extend(shard.cts_queues);
            spills.extend(shard.spill.map(|spill| (index, keys, spill)));
            unsettled.push(Unsettled { input: index, keeps_vcrc, connections: shard.connections, sums: shard.sums });
        }
    }
    let shard = |unsettled: Vec<Unsettled>| {
        let mut shares: Vec<Share> = inputs.iter().map(|_| Share::default()).collect();
        unsettled.into_iter().for_each(|unsettled| unsettled.share(&mut shares));
        settling.shard(shares)
    };
    let shards = shards.into_par_iter().map(shard).collect();
    let mut settled = settling.finish(shards);
    let nccl = flow::settle_shares(&mut settled.connections, &cts_queues);
    align::add(&mut settled.connections, transits);
    let mut untimed = Untimed::default();
    for drawn in drawn {
        let shard = settled.join(drawn);
        untimed.unclear += shard.unclear;
        untimed.backwards += shard.backwards;
    }
    for (input, copies) in inputs.iter_mut().zip(&settled.inputs) {
        input.coverage.mirror_copies = copies.mirror_copies;
        input.coverage.missing_packets = copies.missing_packets;
        input.pairs_seen_once = copies.pairs_seen_once;
        input.pairs_seen_twice = copies.pairs_seen_twice;
        coverage.merge(&input.coverage);
    }
    coverage.window_overflows = settled.window_overflows;
    // A part may hold nothing: the others have it.
    if coverage.infiniband == 0 && coverage.outside_window == 0 && !options.keep_parts {
        return Err(no_infiniband(&coverage));
    }
    notes.extend(bounds.notes());
    let evicted = settled.connections.iter().filter_map(|own| own.missing.as_deref()).map(|missing| missing.evicted);
    coverage.messages_evicted += evicted.sum::<u64>();
    notes.extend(left_out::notes(&coverage, cm_lost, options));
    if !options.read_payload {
        notes.push(
            "payload was not looked at (--no-payload): no MPI messages, ranks or connection management messages"
                .to_owned(),
        );
    }
    if settled.continued > 0 {
        notes.push(format!(
            "{} connections go on from one input to the next: a message that lies across the end of a file is incomplete, and a packet that \
             is sent again after it counts as new",
            settled.continued
        ));
    }
    if settled.left_out > 0 {
        notes.push(format!(
            "the inputs overlap in part: of {} connections only the input with most of their packets counts, and packets that another one \
             alone holds do not",
            settled.left_out
        ));
    }
    if untimed.unclear + untimed.backwards > 0 {
        notes.push(format!(
            "of {} MPI messages that two inputs have seen it cannot be told how long they took: the clocks of the inputs differ by more than that",
            untimed.unclear + untimed.backwards
        ));
    }
    cm.sort_by_key(cm_order);
    // Copies of one message, from mirrors and from several inputs, differ in time only.
    cm.dedup_by(|a, b| cm_identity(a) == cm_identity(b));
    cm.sort_by_key(|row| row.time_ns);
    ranks::keep_agreed(&mut cm);
    let named = ranks::named(&settled.connections, &wireups);
    let is_window = options.from.is_some() || options.to.is_some();
    let witnesses = Witnesses {
        connections: &settled.connections,
        cm: &cm,
        wireups: &wireups,
        named: &named,
        introductions: &introductions,
        is_window,
        names: &options.names,
        nccl: &nccl,
    };
    let paired = ranks::pair(&witnesses);
    let mut identified = ranks::identify(&witnesses, &paired);
    if coverage.not_followed + coverage.seam_left_out > 0 {
        // Whose packets these are is not known.
        identified.coverage.iter_mut().for_each(|own| own.state = own.state.max(CoverageState::Unknown));
    }
    for connection in &settled.connections {
        let Some(missing) = connection.missing.as_deref() else { continue };
        coverage.messages_with_gaps += missing.with_gaps;
        coverage.messages_without_start += missing.without_start;
        // What looks like MPI and is not believed has lost no MPI message.
        if identified.detection.form(&connection.key).is_some() {
            coverage.mpi_incomplete += missing.mpi_incomplete;
            coverage.mpi_cut += missing.mpi_cut;
        }
    }
    // The user's rank map is the answer to what they ask for.
    if options.rankmap.is_none() {
        notes.extend(identified.notes.iter().cloned());
    }
    let (bin_ns, latency_bin_ns) = bounds.bins_ns();
    let mut profile = Profile {
        inputs,
        coverage,
        // They name files, and these may be called anything.
        notes: notes.iter().map(|note| printable(note)).collect(),
        bin_ns,
        latency_bin_ns,
        mpi_read: options.read_mpi && options.read_payload,
        times_read: options.read_mpi && options.read_times,
        names: options.names.clone(),
        leaves: options.leaves.clone(),
        ibscope: env!("CARGO_PKG_VERSION").to_owned(),
        jobs: identified.jobs.clone(),
        ranks: identified.ranks.clone(),
        unassigned: identified.unassigned.clone(),
        cm,
        ..Profile::default()
    };
    let row = |input: usize, key: &ConnectionKey| {
        let index = settled.connections.binary_search_by_key(key, |connection| connection.key).ok()?;
        settled.connections[index].inputs.contains(&(input as u32)).then_some(index as u32)
    };
    let spills = spills
        .into_iter()
        .map(|(input, keys, spill)| (keys.iter().map(|key| row(input, key)).collect(), spill))
        .collect();
    fill(&mut profile, settled.connections, &identified, &paired);
    if let Some(rankmap) = &options.rankmap {
        ranks::rankmap::apply(&mut profile, rankmap);
    }
    if !is_window {
        ranks::mark_unseen_payload(&mut profile);
    }
    name_slurm_jobs(&mut profile, &options.slurm_jobs);
    Ok(Finished { profile, detection: identified.detection, spills })
}

/// Gives jobs the id of Slurm's job that ran on all of their ports. Not those that share a port at the same time: they may be steps of one job, or
/// jobs that share nodes.
fn name_slurm_jobs(profile: &mut Profile, ids: &BTreeMap<Endpoint, String>) {
    let mut ports: BTreeMap<u32, BTreeSet<Endpoint>> = BTreeMap::new();
    for row in &profile.ranks {
        ports.entry(row.job).or_default().extend(row.endpoint.parse::<Endpoint>());
    }
    let jobs = profile.jobs.clone();
    let meet = |a: &JobRow, b: &JobRow| {
        a.job != b.job && a.first_time_ns <= b.last_time_ns && b.first_time_ns <= a.last_time_ns
    };
    for job in &mut profile.jobs {
        let Some(own) = ports.get(&job.job) else { continue };
        let is_other = |other: &JobRow| ports.get(&other.job).is_some_and(|ports| !ports.is_disjoint(own));
        if jobs.iter().any(|other| meet(job, other) && is_other(other)) {
            continue;
        }
        let found: BTreeSet<Option<&String>> = own.iter().map(|port| ids.get(port)).collect();
        if let Some(Some(id)) = found.first().filter(|_| found.len() == 1) {
            job.slurm_job_id = Some((*id).clone());
        }
    }
}

fn cm_identity(row: &CmRow) -> impl PartialEq + use<> {
    (row.src, row.dst, row.message.clone(), row.local_comm_id, row.remote_comm_id)
}

fn cm_order(row: &CmRow) -> impl Ord + use<> {
    (row.src, row.dst, row.local_comm_id, row.remote_comm_id, row.message.clone(), row.time_ns)
}

fn no_infiniband(coverage: &Coverage) -> Error {
    let kinds = coverage.other_frames.iter().chain(&coverage.undecoded);
    let found: Vec<String> = kinds.map(|(name, count)| format!("{count} x {name}")).collect();
    let advice = if coverage.failed() > 0 {
        "the records are too short or damaged: capture at least 64 bytes of each packet"
    } else {
        "was the capture made on an InfiniBand port with ibdump, or on a RoCE port with UDP port 4791 in it?"
    };
    Error::NoInfiniband { records: coverage.records, found: found.join(", "), advice }
}
