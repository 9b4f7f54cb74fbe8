//! The end of an analysis: the readout of all inputs in, the profile out.
//!
//! [`conclude`] takes five steps. It combines the inputs (chooses observation points and removes
//! mirror copies), adds up the coverage, detects libraries and ranks, collects the notes, and fills
//! the profile. Invariant: nothing is decided before all inputs are read, so one analysis of all
//! files and a merge of partial profiles give the same result.

use super::align::{self, Transits};
use super::bounds::MemoryBounds;
use super::fill::fill;
use super::readout::{InputReadout, Readout, SHARDS, ShardReadout, UnionReadout};
use super::spill::Spill;
use super::stated_rate::stated_rate;
use super::{AnalysisOptions, PipelineError, common_clocks, input_losses, left_out, notes};
use crate::flow;
use crate::model::profile::{CmRow, CoverageState, Input, JobRow};
use crate::model::{
    ConnectionEnd, ConnectionKey, CopyOrder, Coverage, CtsQueue, MpiConnectionMessage, NcclProcesses, PacketFlags,
    Profile, RecordSeries, Trust, TrustVerdict, WorkerWireup, printable,
};
use crate::ranks::{self, Detection, IdentityEvidence, QueuePairPartners, ResolvedRanks, StatedRate};
use crate::reduce::{Accumulator, CombinedTotals, Combiner, ShardConnections, TrackerSample, UntimedMessages};
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The profile and the identification that messages need.
pub(super) struct AnalysisResult {
    pub(super) profile: Profile,
    pub(super) detection: Detection,
    /// Per spill of individual messages, if any: the profile row of each connection number, `None`
    /// for connections that are counted from another input.
    pub(super) spills: Vec<(Vec<Option<u32>>, Spill)>,
}

/// Makes the profile. `inputs` are the captures, `notes` those of reading and of clocks, and `clocks` the
/// names of the inputs' clocks, if there are several.
pub(super) fn conclude(
    readout: Readout,
    mut inputs: Vec<Input>,
    (mut notes, clocks): (Vec<String>, &[String]),
    transits: Vec<Transits>,
    options: &AnalysisOptions,
) -> Result<AnalysisResult, PipelineError> {
    if options.share.is_some() {
        return Ok(without_tables(&readout, inputs, &notes, options));
    }
    let Readout { inputs: readouts, unions, bounds } = readout;
    notes.extend(inputs.iter_mut().zip(&readouts).filter_map(|(input, readout)| count_records(input, readout)));
    notes.extend(inputs.iter().flat_map(notes::of_input));
    let (mut combined, mut rest) = combine(readouts, unions, transits);

    let mut coverage = sum_coverage(&mut inputs, &combined);
    // One input of a merge may have no InfiniBand packet.
    if coverage.infiniband == 0 && coverage.outside_window == 0 && !options.keep_parts {
        return Err(no_infiniband(&coverage));
    }

    let (stated, note) = stated_rate(&coverage, options);
    notes.extend(note);
    let has_unread_frames = left_out::unread_frames(&coverage).next().is_some();
    let (mut identified, paired) = identify(&mut combined, &mut rest, options, (stated, has_unread_frames));
    mark_coverage_unknown(&mut identified, &coverage);
    notes.extend(common_clocks::mark_jobs(&mut identified, &combined, &inputs, clocks));
    count_missing(&mut coverage, &combined, &identified.detection, rest.messages_evicted);

    notes.extend(bounds.notes());
    notes.extend(left_out::notes(&coverage, rest.cm_lost, options));
    notes.extend(notes::of_all(&combined, rest.untimed, options));
    notes.extend(identified.sampling.notes.iter().cloned());
    // The user's rank map resolves the doubts that these notes report.
    notes.extend(identified.notes.iter().filter(|_| options.rankmap.is_none()).cloned());

    let spills = rest.spills.into_iter().map(|(input, keys, spill)| (rows(&combined, input, &keys), spill)).collect();
    let mut profile = empty_profile(inputs, coverage, &notes, &bounds, options);
    profile.sampling = identified.sampling.sampling;
    profile.trust = trust(&identified.trust, &profile, &combined.records, options);
    profile.cm = rest.cm;
    fill_profile(&mut profile, combined, &identified, &paired, options);
    Ok(AnalysisResult { profile, detection: identified.detection, spills })
}

/// The result of a share of the connections: the counts of records, and no tables, because the pairs of
/// other shares would look as if they had no traffic.
fn without_tables(
    readout: &Readout,
    mut inputs: Vec<Input>,
    notes: &[String],
    options: &AnalysisOptions,
) -> AnalysisResult {
    let mut coverage = Coverage::default();
    for (input, readout) in inputs.iter_mut().zip(&readout.inputs) {
        input.coverage = readout.whole_coverage();
        coverage.merge(&input.coverage);
    }
    let profile = empty_profile(inputs, coverage, notes, &readout.bounds, options);
    AnalysisResult { profile, detection: Detection::default(), spills: Vec::new() }
}

/// Data of the shards of all inputs, without the sums of their connections.
#[derive(Default)]
struct ShardExtras {
    cm: Vec<CmRow>,
    cm_lost: u64,
    messages_evicted: u64,
    wireups: Vec<WorkerWireup>,
    connection_messages: Vec<MpiConnectionMessage>,
    cts_queues: Vec<CtsQueue>,
    /// NCCL processes, derived from their queues.
    nccl: NcclProcesses,
    /// Messages that two inputs observed and that have no usable transfer time.
    untimed: UntimedMessages,
    /// Per shard: messages that other inputs may have observed too.
    samples: Vec<Vec<TrackerSample>>,
    /// Index of the input, its connections by number, and its individual messages.
    spills: Vec<(usize, Vec<ConnectionKey>, Spill)>,
}

impl ShardExtras {
    /// Takes the data of one shard of an input. Returns its connections and their sums.
    fn take_shard(&mut self, input: usize, shard: usize, of: ShardReadout) -> (Vec<ConnectionEnd>, Accumulator) {
        let keys = of.keys();
        if let Some(sample) = of.transit_samples {
            self.samples[shard].push(TrackerSample { input, keys: keys.clone(), sample });
        }
        self.cm.extend(of.cm);
        self.cm_lost += of.cm_lost;
        self.messages_evicted += of.evicted;
        self.wireups.extend(of.wireups);
        self.connection_messages.extend(of.connection_messages);
        self.cts_queues.extend(of.cts_queues);
        self.spills.extend(of.spill.map(|spill| (input, keys, spill)));
        (of.connections, of.sums)
    }
}

/// Adds the counts of an input's records. If most VCRCs are wrong, resets the VCRC counts and
/// returns a note: some adapters do not preserve the VCRC of mirrored packets.
fn count_records(input: &mut Input, readout: &InputReadout) -> Option<String> {
    input.coverage = readout.whole_coverage();
    if keeps_vcrc(&readout.coverage) {
        return None;
    }
    let (vcrc_ok, vcrc_bad) = (readout.coverage.vcrc_ok, readout.coverage.vcrc_bad);
    (input.coverage.vcrc_ok, input.coverage.vcrc_bad) = (0, 0);
    Some(format!(
        "{}: {vcrc_bad} of {} packets have a wrong VCRC: the device that mirrored or captured them does not preserve it, so VCRCs are not counted",
        input.name,
        vcrc_ok + vcrc_bad
    ))
}

const fn keeps_vcrc(coverage: &Coverage) -> bool {
    coverage.vcrc_ok >= coverage.vcrc_bad
}

/// Step 1: chooses observation points, removes mirror copies, and adds times that need several
/// inputs.
fn combine(
    readouts: Vec<InputReadout>,
    unions: Vec<UnionReadout>,
    transits: Vec<Transits>,
) -> (CombinedTotals, ShardExtras) {
    let mut rest = ShardExtras { samples: (0..SHARDS).map(|_| Vec::new()).collect(), ..ShardExtras::default() };
    let mut combiner = Combiner::default();
    let mut shards: Vec<Vec<(bool, Vec<ConnectionEnd>, Accumulator)>> = (0..SHARDS).map(|_| Vec::new()).collect();
    let inputs = readouts.into_iter().map(|readout| (Vec::new(), readout));
    let unions = unions.into_iter().map(|UnionReadout { members, readout }| (members, readout));
    let mut keeps: Vec<bool> = Vec::new();
    let mut damaged: Vec<BTreeSet<ConnectionKey>> = Vec::new();
    for (index, (members, readout)) in inputs.chain(unions).enumerate() {
        let keeps_vcrc = keeps_vcrc(&readout.coverage) && members.iter().all(|member| keeps[*member]);
        keeps.push(keeps_vcrc);
        // The packets of a union were checked when its members were read.
        let with_damage = match &members[..] {
            [] => damaged_connections(&readout),
            members => members.iter().flat_map(|member| damaged[*member].iter().copied()).collect(),
        };
        match readout.times_ns.filter(|_| !members.is_empty()) {
            Some(times_ns) => combiner.union(times_ns, members),
            None => combiner.input(readout.times_ns, readout.shards.par_iter().map(ShardReadout::sums)),
        }
        let orders = copy_orders(&readout);
        for ((number, own), shard) in shards.iter_mut().enumerate().zip(readout.shards) {
            let (mut connections, sums) = rest.take_shard(index, number, shard);
            for end in &mut connections {
                end.continuity.has_damaged = with_damage.contains(&end.key);
                end.copy_order = orders.get(&end.key.port_pair()).copied().unwrap_or_default();
            }
            own.push((keeps_vcrc, connections, sums));
        }
        damaged.push(with_damage);
    }
    let shard = |inputs: Vec<(bool, Vec<ConnectionEnd>, Accumulator)>| {
        combiner.shard(
            inputs.into_iter().map(|(keeps_vcrc, ends, sums)| shard_connections(keeps_vcrc, ends, sums)).collect(),
        )
    };
    let shards = shards.into_par_iter().map(shard).collect();
    let mut combined = combiner.finish(shards);
    rest.nccl = flow::assign_shares(&mut combined.connections, &rest.cts_queues);
    align::add_transits(&mut combined.connections, transits);
    for samples in std::mem::take(&mut rest.samples) {
        rest.untimed += combined.add_shared_message_times(samples);
    }
    (combined, rest)
}

/// The connections of an input that have packets with a wrong ICRC, although other packets of the same
/// port have a correct one. Some hosts capture their own packets before the adapter sets the ICRC: then
/// all packets of that port have a wrong ICRC, and are otherwise intact.
fn damaged_connections(readout: &InputReadout) -> BTreeSet<ConnectionKey> {
    let ends = || readout.shards.iter().flat_map(|shard| &shard.connections);
    let wrong: Vec<ConnectionKey> = ends().filter(|end| end.icrcs.has_wrong()).map(|end| end.key).collect();
    if wrong.is_empty() {
        return BTreeSet::new();
    }
    let right: BTreeSet<Endpoint> = ends().filter(|end| end.icrcs.has_correct()).map(|end| end.key.src).collect();
    wrong.into_iter().filter(|key| right.contains(&key.src)).collect()
}

/// By pair of ports of an input where a request was recorded after its ACK: all requests between them.
fn copy_orders(readout: &InputReadout) -> BTreeMap<(Endpoint, Endpoint), CopyOrder> {
    let ends = || readout.shards.iter().flat_map(|shard| &shard.connections);
    let late = ends().filter(|end| end.copy_order.has_late());
    let mut orders: BTreeMap<_, _> = late.map(|end| (end.key.port_pair(), CopyOrder::default())).collect();
    if orders.is_empty() {
        return orders;
    }
    for end in ends() {
        orders.entry(end.key.port_pair()).and_modify(|order| *order += end.copy_order);
    }
    orders
}

/// The connections of a shard with their sums.
fn shard_connections(keeps_vcrc: bool, mut ends: Vec<ConnectionEnd>, sums: Accumulator) -> ShardConnections {
    if !keeps_vcrc {
        let health = ends.iter_mut().filter_map(|end| end.health.as_mut());
        health.for_each(|health| health.reset_flag(PacketFlags::VCRC_BAD));
    }
    (ends, sums.finish())
}

/// Step 2: the coverage of each input and of all.
fn sum_coverage(inputs: &mut [Input], combined: &CombinedTotals) -> Coverage {
    let mut coverage = Coverage::default();
    for (input, copies) in inputs.iter_mut().zip(&combined.inputs) {
        input.coverage.mirror_copies = copies.mirror_copies;
        input.coverage.missing_packets = copies.missing_packets;
        input.pairs_observed_once = copies.pairs_observed_once;
        input.pairs_observed_twice = copies.pairs_observed_twice;
        coverage.merge(&input.coverage);
    }
    coverage.window_overflows = combined.window_overflows;
    coverage.unclear_copies = combined.unclear_copies;
    coverage
}

/// Step 3: libraries, jobs and ranks.
fn identify(
    combined: &mut CombinedTotals,
    rest: &mut ShardExtras,
    options: &AnalysisOptions,
    (sampled, has_unread_frames): (Option<StatedRate<'_>>, bool),
) -> (ResolvedRanks, QueuePairPartners) {
    rest.cm.sort_by_key(cm_order);
    // Mirror copies of a message, and copies in several inputs, differ only in time.
    rest.cm.dedup_by(|a, b| cm_identity(a) == cm_identity(b));
    rest.cm.sort_by_key(|row| row.time_ns);
    ranks::clear_contradicted_ranks(&mut rest.cm);
    let named = ranks::named_queue_pairs(&combined.connections, &rest.wireups);
    let CombinedTotals { connections, records, .. } = combined;
    let others = IdentityEvidence {
        connections: &[],
        cm: &rest.cm,
        wireups: &rest.wireups,
        named_queue_pairs: &named,
        connection_messages: &rest.connection_messages,
        is_window: options.window.is_limited(),
        names: &options.endpoints.names,
        nccl: &rest.nccl,
        sampled,
        records,
        has_unread_frames,
    };
    let paired = ranks::pair(&IdentityEvidence { connections, ..others });
    ranks::clear_foreign_losses(connections, &paired);
    (ranks::identify(&IdentityEvidence { connections, ..others }, &paired), paired)
}

/// Marks the coverage of all pairs as unknown if packets were left out: their pairs are unknown.
fn mark_coverage_unknown(identified: &mut ResolvedRanks, coverage: &Coverage) {
    if coverage.untracked_packets + coverage.overlap_left_out > 0 {
        identified.coverage.iter_mut().for_each(|own| own.state = own.state.max(CoverageState::Unknown));
    }
}

/// Adds the messages with missing packets to the coverage.
fn count_missing(coverage: &mut Coverage, combined: &CombinedTotals, detection: &Detection, evicted: u64) {
    coverage.messages_evicted += evicted;
    for connection in &combined.connections {
        let Some(missing) = connection.missing.as_deref() else { continue };
        coverage.messages_with_gaps += missing.with_gaps;
        coverage.messages_without_start += missing.without_start;
        coverage.messages_evicted += missing.evicted;
        // A connection whose library is not detected has no MPI messages to lose.
        if let Some(stack) = detection.stack(&connection.key) {
            coverage.mpi_incomplete += missing.mpi_incomplete;
            coverage.mpi_truncated += missing.mpi_truncated;
            coverage.truncated_headers += missing.truncated_headers_of(stack);
        }
    }
}

/// Step 5, first part: the profile without its tables.
fn empty_profile(
    inputs: Vec<Input>,
    coverage: Coverage,
    notes: &[String],
    bounds: &MemoryBounds,
    options: &AnalysisOptions,
) -> Profile {
    let (bin_ns, latency_bin_ns) = bounds.bins_ns();
    Profile {
        inputs,
        coverage,
        // Notes contain file names, which may contain control characters.
        notes: notes.iter().map(|note| printable(note)).collect(),
        bin_ns,
        latency_bin_ns,
        mpi_read: options.measures.mpi && options.measures.payload,
        times_read: options.measures.mpi && options.measures.times,
        names: options.endpoints.names.clone(),
        leaves: options.endpoints.leaves.clone(),
        port_rates: options.endpoints.port_rates.clone(),
        ibscope: env!("CARGO_PKG_VERSION").to_owned(),
        ..Profile::default()
    }
}

/// The verdict on the captures. It is the verdict on their connections, unless packets may be
/// missing that no connection shows.
fn trust(connections: &Trust, profile: &Profile, records: &[RecordSeries], options: &AnalysisOptions) -> Trust {
    let coverage = &profile.coverage;
    let cut = profile.inputs.iter().filter(|input| input.ends_early).count() as u64;
    let reasons = [
        (coverage.failed(), ["record was", "records were"], "not decoded"),
        (coverage.interface_drops, ["packet was", "packets were"], "dropped by the capturing interfaces"),
        (coverage.outside_window, ["record is", "records are"], "outside the time window"),
        (coverage.untracked_packets, ["packet belongs", "packets belong"], "to connections beyond --max-connections"),
        (
            coverage.overlap_left_out,
            ["packet may count twice: it was", "packets may count twice: they were"],
            "not compared with another file of the stream",
        ),
        (cut, ["input was not read to its", "inputs were not read to their"], "end"),
        (
            coverage.lost_mirrored_frames(),
            ["mirrored frame was", "mirrored frames were"],
            "lost between the mirror and the capture",
        ),
        (
            coverage.mirrored_frames_left_out,
            ["mirrored frame belongs", "mirrored frames belong"],
            "to sessions whose losses were not counted",
        ),
    ];
    let reasons = reasons.iter().filter(|(count, ..)| *count > 0);
    let reasons =
        reasons.map(|(count, [one, many], what)| format!("{count} {} {what}", if *count == 1 { one } else { many }));
    // A proof that nothing is missing holds for joined captures too.
    let may_be_joined = |input: &Input| input.coverage.may_be_joined() && connections.verdict != TrustVerdict::Complete;
    let is_joined = profile.inputs.iter().any(may_be_joined);
    let is_out_of_order = is_joined || profile.inputs.iter().any(|input| input.coverage.is_out_of_order());
    let disorder = is_out_of_order.then(|| {
        let joined = "; give captures that were joined into one file separately";
        format!("the records are not in the order of capture{}", if is_joined { joined } else { "" })
    });
    let unread = (!options.measures.mpi).then(|| "--no-mpi: requests and responses were not compared".to_owned());
    let mut trust = connections.clone();
    if is_out_of_order {
        trust.lose_order();
    }
    trust.doubt(reasons.chain(disorder).chain(unread));
    if coverage.lost_mirrored_frames() > 0 {
        trust.lose_mirrored_frames();
    }
    if matches!(trust.verdict, TrustVerdict::Incomplete | TrustVerdict::Unknown) {
        if !is_out_of_order {
            trust.input_losses = input_losses::input_losses(profile, records);
        }
        // First, because the summary has the first reasons only.
        trust.reasons.splice(0..0, trust.input_losses.iter().map(input_losses::reason));
    }
    trust
}

/// Step 5, second part: the tables of the profile.
fn fill_profile(
    profile: &mut Profile,
    combined: CombinedTotals,
    identified: &ResolvedRanks,
    paired: &QueuePairPartners,
    options: &AnalysisOptions,
) {
    profile.jobs.clone_from(&identified.jobs);
    profile.ranks.clone_from(&identified.ranks);
    profile.unassigned.clone_from(&identified.unassigned);
    let plan = fill(profile, combined.connections, identified, paired, options.limits.max_cells);
    profile.notes.extend(plan.note(profile, options.bin_ns, options.limits.max_cells));
    if let Some(rankmap) = &options.rankmap {
        ranks::rankmap::apply(profile, rankmap);
    }
    if !options.window.is_limited() {
        ranks::mark_unseen_payload(profile);
    }
    name_slurm_jobs(profile, &options.endpoints.slurm_jobs);
}

/// Row of each connection in the profile, by its number in the tracker of an input; `None` if the
/// profile counts the connection from other inputs only.
fn rows(combined: &CombinedTotals, input: usize, keys: &[ConnectionKey]) -> Vec<Option<u32>> {
    let row = |key: &ConnectionKey| {
        let index = combined.connections.binary_search_by_key(key, |connection| connection.key).ok()?;
        combined.connections[index].inputs.contains(&(input as u32)).then_some(index as u32)
    };
    keys.iter().map(row).collect()
}

/// Sets the Slurm job id of each job that has one id on all of its ports. Skips jobs that share a
/// port at the same time: they may be steps of one Slurm job, or jobs that share nodes.
fn name_slurm_jobs(profile: &mut Profile, ids: &BTreeMap<Endpoint, String>) {
    let mut ports: BTreeMap<u32, BTreeSet<Endpoint>> = BTreeMap::new();
    for row in &profile.ranks {
        ports.entry(row.job).or_default().extend(row.endpoint.parse::<Endpoint>());
    }
    let jobs = profile.jobs.clone();
    let overlap_in_time = |a: &JobRow, b: &JobRow| {
        a.job != b.job && a.first_time_ns <= b.last_time_ns && b.first_time_ns <= a.last_time_ns
    };
    for job in &mut profile.jobs {
        let Some(own) = ports.get(&job.job) else { continue };
        let is_other = |other: &JobRow| ports.get(&other.job).is_some_and(|ports| !ports.is_disjoint(own));
        if jobs.iter().any(|other| overlap_in_time(job, other) && is_other(other)) {
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

fn no_infiniband(coverage: &Coverage) -> PipelineError {
    let kinds = coverage.other_frames.iter().chain(&coverage.undecoded);
    let found: Vec<String> = kinds.map(|(name, count)| format!("{count} x {name}")).collect();
    let advice = if let Some((.., remedy)) = left_out::unread_frames(coverage).next() {
        remedy
    } else if coverage.failed() > 0 {
        "the records are truncated or damaged: capture at least 64 bytes of each packet"
    } else {
        "capture on an InfiniBand port with ibdump, or on a RoCE port with a filter that passes UDP port 4791"
    };
    PipelineError::NoInfiniband { records: coverage.records, found: found.join(", "), advice }
}
