//! The end of an analysis: from the readout of all inputs to the profile.
//!
//! [`conclude`] takes five steps: it combines the inputs (chooses observation points and removes mirror copies), adds up
//! the coverage, detects libraries and ranks, collects the notes, and fills the profile. Invariant: nothing is decided
//! before all inputs are read, so one analysis of all files and a merge of partial profiles give the same result.

use super::align::{self, Transits};
use super::bounds::Bounds;
use super::fill::fill;
use super::readout::{InputReadout, Readout, SHARDS, ShardReadout};
use super::spill::Spill;
use super::{Error, Options, left_out};
use crate::flow;
use crate::model::profile::{CmRow, CoverageState, Input, JobRow};
use crate::model::{
    ConnectionEnd, ConnectionKey, Coverage, CtsQueue, Introduction, Marks, NcclProcesses, Profile, Wireup, printable,
};
use crate::ranks::{self, Detection, Identified, Pairs, Witnesses};
use crate::reduce::{Accumulator, CombinedTotals, Combiner, ConnectionSums, Drawn, Untimed};
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

/// Concludes an analysis: `inputs` are the captures, `notes` those of reading and of clocks.
pub(super) fn conclude(
    readout: Readout,
    mut inputs: Vec<Input>,
    mut notes: Vec<String>,
    transits: Vec<Transits>,
    options: &Options,
) -> Result<Finished, Error> {
    let Readout { inputs: readouts, bounds } = readout;
    notes.extend(inputs.iter_mut().zip(&readouts).filter_map(|(input, readout)| count_records(input, readout)));
    let (combined, mut rest) = combine(readouts, transits);

    let mut coverage = sum_coverage(&mut inputs, &combined);
    // A part may hold nothing: the others have it.
    if coverage.infiniband == 0 && coverage.outside_window == 0 && !options.keep_parts {
        return Err(no_infiniband(&coverage));
    }

    let (mut identified, paired) = identify(&combined, &mut rest, options);
    mark_coverage_unknown(&mut identified, &coverage);
    count_missing(&mut coverage, &combined, &identified.detection, rest.messages_evicted);

    notes.extend(notes_of(&combined, &rest, &coverage, &bounds, options));
    // The user's rank map is the answer to what the notes of the identification ask for.
    notes.extend(identified.notes.iter().filter(|_| options.rankmap.is_none()).cloned());

    let spills = rest.spills.into_iter().map(|(input, keys, spill)| (rows(&combined, input, &keys), spill)).collect();
    let mut profile = empty_profile(inputs, coverage, &notes, &bounds, options);
    profile.cm = rest.cm;
    fill_profile(&mut profile, combined, &identified, &paired, options);
    Ok(Finished { profile, detection: identified.detection, spills })
}

/// What the shards of all inputs hold beside the sums of their connections.
#[derive(Default)]
struct ShardExtras {
    cm: Vec<CmRow>,
    cm_lost: u64,
    messages_evicted: u64,
    wireups: Vec<Wireup>,
    introductions: Vec<Introduction>,
    cts_queues: Vec<CtsQueue>,
    /// NCCL's processes, as their queues show them.
    nccl: NcclProcesses,
    /// Messages that two inputs observed and whose times cannot be given.
    untimed: Untimed,
    /// Per shard: messages that other inputs may have observed too.
    samples: Vec<Vec<Drawn>>,
    /// Index of the input, its connections by number, and its single messages.
    spills: Vec<(usize, Vec<ConnectionKey>, Spill)>,
}

impl ShardExtras {
    /// Takes what one shard of an input holds, and returns its connections with their sums.
    fn take(&mut self, input: usize, shard: usize, of: ShardReadout) -> (Vec<ConnectionEnd>, Accumulator) {
        let keys = of.keys();
        if let Some(sample) = of.drawn {
            self.samples[shard].push(Drawn { input, keys: keys.clone(), sample });
        }
        self.cm.extend(of.cm);
        self.cm_lost += of.cm_lost;
        self.messages_evicted += of.evicted;
        self.wireups.extend(of.wireups);
        self.introductions.extend(of.introductions);
        self.cts_queues.extend(of.cts_queues);
        self.spills.extend(of.spill.map(|spill| (input, keys, spill)));
        (of.connections, of.sums)
    }
}

/// Adds the counts of an input's records. Returns a note where its VCRCs mean nothing: some adapters do not keep the VCRC
/// of what they mirror.
fn count_records(input: &mut Input, readout: &InputReadout) -> Option<String> {
    input.coverage = readout.coverage.clone();
    input.coverage.introductions_left_out +=
        readout.shards.iter().map(|shard| shard.introductions_left_out).sum::<u64>();
    if keeps_vcrc(&readout.coverage) {
        return None;
    }
    let (vcrc_ok, vcrc_bad) = (readout.coverage.vcrc_ok, readout.coverage.vcrc_bad);
    (input.coverage.vcrc_ok, input.coverage.vcrc_bad) = (0, 0);
    Some(format!(
        "{}: the VCRC of {vcrc_bad} of {} packets is wrong: the device that mirrored or captured them does not keep it, so no VCRC is counted",
        input.name,
        vcrc_ok + vcrc_bad
    ))
}

const fn keeps_vcrc(coverage: &Coverage) -> bool {
    coverage.vcrc_ok >= coverage.vcrc_bad
}

/// Step 1: chooses the observation points, removes mirror copies, and adds the times that need several inputs.
fn combine(readouts: Vec<InputReadout>, transits: Vec<Transits>) -> (CombinedTotals, ShardExtras) {
    let mut rest = ShardExtras { samples: (0..SHARDS).map(|_| Vec::new()).collect(), ..ShardExtras::default() };
    let mut combiner = Combiner::default();
    let mut shards: Vec<Vec<(bool, Vec<ConnectionEnd>, Accumulator)>> = (0..SHARDS).map(|_| Vec::new()).collect();
    for (index, readout) in readouts.into_iter().enumerate() {
        let keeps_vcrc = keeps_vcrc(&readout.coverage);
        combiner.input(readout.times_ns, readout.shards.iter().flat_map(ShardReadout::sums));
        for ((number, own), shard) in shards.iter_mut().enumerate().zip(readout.shards) {
            let (connections, sums) = rest.take(index, number, shard);
            own.push((keeps_vcrc, connections, sums));
        }
    }
    let shard = |inputs: Vec<(bool, Vec<ConnectionEnd>, Accumulator)>| {
        combiner
            .shard(inputs.into_iter().map(|(keeps_vcrc, ends, sums)| connection_sums(keeps_vcrc, ends, sums)).collect())
    };
    let shards = shards.into_par_iter().map(shard).collect();
    let mut combined = combiner.finish(shards);
    rest.nccl = flow::assign_shares(&mut combined.connections, &rest.cts_queues);
    align::add(&mut combined.connections, transits);
    for samples in std::mem::take(&mut rest.samples) {
        rest.untimed += combined.join(samples);
    }
    (combined, rest)
}

/// The connections of a shard with their sums.
fn connection_sums(keeps_vcrc: bool, ends: Vec<ConnectionEnd>, sums: Accumulator) -> Vec<ConnectionSums> {
    let with_sums = ends.into_iter().zip(sums.finish()).map(|(mut end, sums)| {
        if !keeps_vcrc {
            end.health.iter_mut().for_each(|health| health.forget(Marks::VCRC_BAD));
        }
        Box::new((end, sums))
    });
    with_sums.collect()
}

/// Step 2: the coverage of each input and of all.
fn sum_coverage(inputs: &mut [Input], combined: &CombinedTotals) -> Coverage {
    let mut coverage = Coverage::default();
    for (input, copies) in inputs.iter_mut().zip(&combined.inputs) {
        input.coverage.mirror_copies = copies.mirror_copies;
        input.coverage.missing_packets = copies.missing_packets;
        input.pairs_seen_once = copies.pairs_seen_once;
        input.pairs_seen_twice = copies.pairs_seen_twice;
        coverage.merge(&input.coverage);
    }
    coverage.window_overflows = combined.window_overflows;
    coverage
}

/// Step 3: libraries, jobs and ranks.
fn identify(combined: &CombinedTotals, rest: &mut ShardExtras, options: &Options) -> (Identified, Pairs) {
    rest.cm.sort_by_key(cm_order);
    // Copies of one message, from mirrors and from several inputs, differ in time only.
    rest.cm.dedup_by(|a, b| cm_identity(a) == cm_identity(b));
    rest.cm.sort_by_key(|row| row.time_ns);
    ranks::keep_agreed(&mut rest.cm);
    let named = ranks::named(&combined.connections, &rest.wireups);
    let witnesses = Witnesses {
        connections: &combined.connections,
        cm: &rest.cm,
        wireups: &rest.wireups,
        named: &named,
        introductions: &rest.introductions,
        is_window: options.is_window(),
        names: &options.names,
        nccl: &rest.nccl,
    };
    let paired = ranks::pair(&witnesses);
    (ranks::identify(&witnesses, &paired), paired)
}

/// Marks the coverage of all pairs as unknown where packets were left out: whose packets these are is not known.
fn mark_coverage_unknown(identified: &mut Identified, coverage: &Coverage) {
    if coverage.not_followed + coverage.seam_left_out > 0 {
        identified.coverage.iter_mut().for_each(|own| own.state = own.state.max(CoverageState::Unknown));
    }
}

/// Adds to the coverage the messages of which packets are missing.
fn count_missing(coverage: &mut Coverage, combined: &CombinedTotals, detection: &Detection, evicted: u64) {
    coverage.messages_evicted += evicted;
    for connection in &combined.connections {
        let Some(missing) = connection.missing.as_deref() else { continue };
        coverage.messages_with_gaps += missing.with_gaps;
        coverage.messages_without_start += missing.without_start;
        coverage.messages_evicted += missing.evicted;
        // A connection that merely looks like MPI has lost no MPI message.
        if detection.form(&connection.key).is_some() {
            coverage.mpi_incomplete += missing.mpi_incomplete;
            coverage.mpi_cut += missing.mpi_cut;
        }
    }
}

/// Step 4: what the reader must know.
fn notes_of(
    combined: &CombinedTotals,
    rest: &ShardExtras,
    coverage: &Coverage,
    bounds: &Bounds,
    options: &Options,
) -> Vec<String> {
    let mut notes = bounds.notes();
    notes.extend(left_out::notes(coverage, rest.cm_lost, options));
    if !options.read_payload {
        notes.push(
            "--no-payload: the payload was not read, so there are no MPI messages, ranks or connection messages"
                .to_owned(),
        );
    }
    if combined.continued > 0 {
        notes.push(format!(
            "{} connections continue from one input to the next: a message that spans the end of a file is incomplete, and a packet \
             that is retransmitted after the end counts as new",
            combined.continued
        ));
    }
    if combined.left_out > 0 {
        notes.push(format!(
            "the inputs overlap in part: of {} connections only the input with most of their packets counts; packets that only \
             another input holds are missing",
            combined.left_out
        ));
    }
    let untimed = rest.untimed.unclear + rest.untimed.backwards;
    if untimed > 0 {
        notes.push(format!(
            "{untimed} MPI messages that two inputs observed have no transfer time: the clocks of the inputs differ by more than it"
        ));
    }
    notes
}

/// Step 5: the profile without its tables.
fn empty_profile(
    inputs: Vec<Input>,
    coverage: Coverage,
    notes: &[String],
    bounds: &Bounds,
    options: &Options,
) -> Profile {
    let (bin_ns, latency_bin_ns) = bounds.bins_ns();
    Profile {
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
        ..Profile::default()
    }
}

/// Fills the tables of the profile.
fn fill_profile(
    profile: &mut Profile,
    combined: CombinedTotals,
    identified: &Identified,
    paired: &Pairs,
    options: &Options,
) {
    profile.jobs.clone_from(&identified.jobs);
    profile.ranks.clone_from(&identified.ranks);
    profile.unassigned.clone_from(&identified.unassigned);
    fill(profile, combined.connections, identified, paired);
    if let Some(rankmap) = &options.rankmap {
        ranks::rankmap::apply(profile, rankmap);
    }
    if !options.is_window() {
        ranks::mark_unseen_payload(profile);
    }
    name_slurm_jobs(profile, &options.slurm_jobs);
}

/// The row of each connection of an input that counts, by its number in the input.
fn rows(combined: &CombinedTotals, input: usize, keys: &[ConnectionKey]) -> Vec<Option<u32>> {
    let row = |key: &ConnectionKey| {
        let index = combined.connections.binary_search_by_key(key, |connection| connection.key).ok()?;
        combined.connections[index].inputs.contains(&(input as u32)).then_some(index as u32)
    };
    keys.iter().map(row).collect()
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
