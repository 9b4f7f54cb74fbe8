//! The invariants: compares a profile of a scene with the truth.
//!
//! A cell is a sender and a receiver of one job, as the profile labels them. Only `Labels` knows
//! how a profile identifies ranks and jobs.

use crate::library::{PacketCount, QueuePairOwner, QueuePairOwners, ReferenceSums};
use crate::scene::Scene;
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope::model::{JobRank, Profile, RankIndex, TrafficKind};
use ibscope_parsers::{Endpoint, Qpn};
use ibscope_samples::hard::rewrite::QueuePairAddress;
use std::collections::{BTreeMap, BTreeSet};

/// A connection with so many packets shows gaps if most of them are missing.
const MANY_PACKETS: u64 = 16;

/// Sender and receiver of one job.
type JobRankPair = (usize, u32, u32);

/// Violated invariants of a case, one sentence each.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseOutcome {
    /// Queue pairs that have another rank than their own.
    pub(crate) wrong_rank: Vec<String>,
    /// Pairs with more messages or bytes than were sent.
    pub(crate) above: Vec<String>,
    /// Pairs with fewer messages or bytes than the captures show, and not marked as incomplete.
    pub(crate) silent: Vec<String>,
    /// Cells with messages of two jobs, and two jobs with one number.
    pub(crate) added_up: Vec<String>,
    /// Traffic of other protocols that is counted as MPI messages.
    pub(crate) foreign: Vec<String>,
    /// Pairs of a complete capture that differ from the truth.
    pub(crate) inexact: Vec<String>,
    /// Connections with more packets than were sent, and not marked.
    pub(crate) more_packets: Vec<String>,
    /// Connections without most of their packets, or without a tenth of them in a complete capture, and
    /// not marked.
    pub(crate) fewer_packets: Vec<String>,
    /// Errors of the analysis. They are failures only if no packet is missing.
    pub(crate) failed: Vec<String>,
    /// Number of queue pairs of other protocols that have the rank of their port.
    pub(crate) foreign_ranks: u64,
    /// Bytes in cells of the right ranks, and bytes that the captures show.
    pub(crate) right_bytes: u64,
    pub(crate) captured_bytes: u64,
    /// InfiniBand payload of the jobs' connections, and its part in cells of the right ranks.
    pub(crate) payload_bytes: u64,
    pub(crate) right_payload_bytes: u64,
    /// The case must be exact, so even an error is a failure.
    pub(crate) complete: bool,
}

impl CaseOutcome {
    /// Every kind of failure with its name.
    pub(crate) fn kinds(&self) -> [(&'static str, &Vec<String>); 9] {
        [
            ("wrong rank", &self.wrong_rank),
            ("above truth", &self.above),
            ("silent shortfall", &self.silent),
            ("jobs added up", &self.added_up),
            ("other as MPI", &self.foreign),
            ("inexact", &self.inexact),
            ("more packets", &self.more_packets),
            ("fewer packets", &self.fewer_packets),
            ("error", &self.failed),
        ]
    }
}

/// Job and rank that a profile gives to queue pairs.
struct Labels {
    ranks: RankIndex,
}

/// Number of a job in a profile.
type JobLabel = u32;

impl Labels {
    fn new(profile: &Profile) -> Self {
        Self { ranks: RankIndex::new(&profile.ranks) }
    }

    fn of(&self, endpoint: Endpoint, qpn: Option<Qpn>) -> Option<(JobLabel, u32)> {
        let JobRank { job, rank } = self.ranks.rank(endpoint, qpn)?;
        Some((job, rank))
    }
}

/// Messages and bytes by the pairs that a connection may belong to.
type SumsByPairs = BTreeMap<Vec<JobRankPair>, (u64, u64)>;

fn add(sums: &mut SumsByPairs, pairs: &[JobRankPair], (messages, bytes): (u64, u64)) {
    let sum = sums.entry(pairs.to_vec()).or_default();
    *sum = (sum.0 + messages, sum.1 + bytes);
}

/// Messages with the right ranks, by the job that the profile gives them.
type CellsByPair = BTreeMap<JobRankPair, BTreeMap<JobLabel, ReportedCell>>;

/// Values of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedCell {
    messages: u64,
    bytes: u64,
    /// The coverage is not complete.
    is_marked: bool,
    /// The coverage reports that something is missing.
    is_incomplete: bool,
    payload_bytes: u64,
}

/// Packets from a port to a queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct FoundPackets {
    packets: u64,
    has_payload: bool,
    /// The coverage is not complete.
    is_marked: bool,
    is_datagram: bool,
}

/// Possible owners of an end of a connection.
fn owners_at(owners: &QueuePairOwners, endpoint: Endpoint, qpn: Option<Qpn>) -> BTreeSet<QueuePairOwner> {
    match qpn {
        Some(qpn) => owners.get(&(endpoint, qpn.value())).cloned().unwrap_or_default(),
        None => {
            owners.iter().filter(|((own, _), _)| *own == endpoint).flat_map(|(_, all)| all.iter().copied()).collect()
        }
    }
}

/// The pair of ranks that a connection belongs to, if it is the only one possible.
pub(crate) fn only_owner(scene: &Scene, row: &ConnectionRow) -> Option<JobRankPair> {
    let ends = [(row.src, row.src_qp), (row.dst, Some(row.dest_qp))];
    let [src, dst] = ends.map(|(endpoint, qpn)| owners_at(&scene.owners, endpoint, qpn));
    let pairs = pairs(&src, &dst);
    pairs.first().copied().filter(|_| pairs.len() == 1)
}

/// Compares a profile with the truth.
pub(crate) fn check(scene: &Scene, profile: &Profile) -> CaseOutcome {
    let mut outcome = CaseOutcome { complete: scene.complete, ..CaseOutcome::default() };
    let labels = Labels::new(profile);
    outcome.compare_rank_map(scene, profile);
    let (mut sums, mut collective) = (SumsByPairs::new(), SumsByPairs::new());
    let mut right = CellsByPair::new();
    let mut cells: BTreeMap<(JobLabel, u32, u32), BTreeSet<usize>> = BTreeMap::new();
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
        let ends = [(row.src, row.src_qp), (row.dst, Some(row.dest_qp))];
        let [src, dst] = ends.map(|(endpoint, qpn)| owners_at(&scene.owners, endpoint, qpn));
        let [src_label, dst_label] = ends.map(|(endpoint, qpn)| labels.of(endpoint, qpn));
        let pairs = pairs(&src, &dst);
        let traffic = &row.traffic;
        if pairs.is_empty() {
            let messages = traffic.p2p_messages + traffic.collective_messages;
            if messages > 0 {
                outcome.foreign.push(format!("{}: {messages} messages", name(row)));
            }
            outcome.foreign_ranks += [src_label, dst_label].iter().flatten().count() as u64;
            continue;
        }
        for (label, owners, side) in [(src_label, &src, "sender"), (dst_label, &dst, "receiver")] {
            if let Some((job, rank)) = label
                && owners.iter().all(|owner| owner.rank != rank)
            {
                outcome.wrong_rank.push(format!("{}: {side} is rank {job}.{rank}, not {owners:?}", name(row)));
            }
        }
        outcome.payload_bytes += traffic.payload_bytes;
        add(&mut sums, &pairs, (traffic.p2p_messages, traffic.p2p_mpi_bytes));
        add(&mut collective, &pairs, (traffic.collective_messages, traffic.collective_mpi_bytes));
        let (Some((job, src)), Some((dst_job, dst))) = (src_label, dst_label) else { continue };
        if job != dst_job || row.job.is_some_and(|own| own != job) {
            outcome.added_up.push(format!("{}: jobs {job}, {dst_job} and {:?}", name(row), row.job));
            continue;
        }
        if let [pair] = pairs[..]
            && (pair.1, pair.2) == (src, dst)
        {
            outcome.right_payload_bytes += traffic.payload_bytes;
            let cell = right.entry(pair).or_default().entry(job).or_default();
            cell.messages += traffic.p2p_messages;
            cell.bytes += traffic.p2p_mpi_bytes;
            cell.payload_bytes += traffic.payload_bytes;
            cell.is_marked |= row.coverage.state != CoverageState::Complete;
            cell.is_incomplete |= matches!(row.coverage.state, CoverageState::Incomplete | CoverageState::Sampled);
        }
        let jobs: BTreeSet<usize> = pairs.iter().map(|pair| pair.0).collect();
        if let [true_job] = jobs.into_iter().collect::<Vec<_>>()[..] {
            cells.entry((job, src, dst)).or_default().insert(true_job);
        }
    }
    outcome.compare_sums("point-to-point", &scene.truths, &sums);
    outcome.compare_sums("collective", &scene.collectives, &collective);
    cells.retain(|(label, ..), _| !is_marked_as_several_jobs(profile, *label));
    outcome.compare_cells(&cells);
    outcome.compare_right(scene, &right);
    outcome.compare_packets(scene, profile);
    outcome
}

/// True if a note of the profile states that the job may be several jobs, and the coverage of all
/// its connections is unknown.
fn is_marked_as_several_jobs(profile: &Profile, label: JobLabel) -> bool {
    let mut own = profile.connections.iter().filter(|row| row.job == Some(label));
    profile.notes.iter().any(|note| note.contains("it may be several jobs") && is_about(note, label))
        && own.all(|row| row.coverage.state == CoverageState::Unknown)
}

/// True if the note begins with the job, or with ranges of jobs that contain it: `jobs 2, 5-9:
/// ...`.
fn is_about(note: &str, label: JobLabel) -> bool {
    let jobs = note.split_once(':').map_or("", |(jobs, _)| jobs).trim_start_matches("jobs").trim_start_matches("job");
    jobs.split(',').any(|range| {
        let range = range.trim();
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().is_ok_and(|first| label >= first) && last.parse().is_ok_and(|last| label <= last)
    })
}

fn pairs(src: &BTreeSet<QueuePairOwner>, dst: &BTreeSet<QueuePairOwner>) -> Vec<JobRankPair> {
    let mut pairs = Vec::new();
    for one in src {
        pairs.extend(dst.iter().filter(|other| other.job == one.job).map(|other| (one.job, one.rank, other.rank)));
    }
    pairs
}

fn name(row: &ConnectionRow) -> String {
    let src_qp = row.src_qp.map_or_else(|| "?".to_owned(), |qpn| format!("{:#x}", qpn.value()));
    format!("{} {src_qp} -> {} {:#x}", row.src, row.dst, row.dest_qp.value())
}

fn truth_of(truths: &[ReferenceSums], (job, src, dst): JobRankPair) -> (u64, u64) {
    truths[job].get(&(src, dst)).copied().unwrap_or_default()
}

impl CaseOutcome {
    /// Checks that no pair exceeds its truth.
    fn compare_sums(&mut self, what: &str, truths: &[ReferenceSums], sums: &SumsByPairs) {
        for (pairs, &(messages, bytes)) in sums {
            let bounds = pairs.iter().map(|&pair| truth_of(truths, pair));
            let (most, most_bytes) = bounds.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            if messages > most || bytes > most_bytes {
                let text = format!("{what} {pairs:?}: {messages} messages, {bytes} bytes of {most}, {most_bytes}");
                self.above.push(text);
            }
        }
    }

    /// Checks that a cell has one job, and a job number means one job.
    fn compare_cells(&mut self, cells: &BTreeMap<(JobLabel, u32, u32), BTreeSet<usize>>) {
        let mut numbers: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        for ((label, src, dst), jobs) in cells {
            if jobs.len() > 1 {
                self.added_up.push(format!("cell {src} -> {dst} of job {label} holds jobs {jobs:?}"));
            }
            numbers.entry(*label).or_default().extend(jobs);
        }
        for (label, jobs) in numbers.iter().filter(|(_, jobs)| jobs.len() > 1) {
            self.added_up.push(format!("job {label} is jobs {jobs:?}"));
        }
    }

    /// Checks the rows of the rank map, for queue pairs and for whole endpoints.
    fn compare_rank_map(&mut self, scene: &Scene, profile: &Profile) {
        for row in &profile.ranks {
            let Ok(endpoint) = row.endpoint.parse::<Endpoint>() else { continue };
            let owners = owners_at(&scene.owners, endpoint, row.qpn.map(Qpn::new));
            let is_known = row.qpn.is_none() || !owners.is_empty();
            if is_known && owners.iter().all(|owner| owner.rank != row.rank) {
                self.wrong_rank.push(format!(
                    "rank map: {} {:?} is {}.{}, not {owners:?}",
                    row.endpoint, row.qpn, row.job, row.rank
                ));
            }
        }
    }

    /// Checks that the packets from a port to a queue pair are those that were sent, or marked. Packets
    /// before the first and after the last one of a capture may be missing without a mark.
    fn compare_packets(&mut self, scene: &Scene, profile: &Profile) {
        let mut sent: BTreeMap<(Endpoint, QueuePairAddress), PacketCount> = BTreeMap::new();
        for ((from, to), packets) in scene.packets.iter().filter(|((_, to), _)| to.1 > 1) {
            *sent.entry((from.0, *to)).or_default() += *packets;
        }
        let mut found: BTreeMap<(Endpoint, QueuePairAddress), FoundPackets> = BTreeMap::new();
        for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
            let sum = found.entry((row.src, (row.dst, row.dest_qp.value()))).or_default();
            sum.packets += row.traffic.packets;
            sum.has_payload |= row.traffic.payload_bytes > 0;
            sum.is_marked |= row.coverage.state != CoverageState::Complete;
            sum.is_datagram |= row.key().is_datagram();
        }
        for ((src, (dst, qpn)), found) in found.into_iter().filter(|(_, found)| !found.is_marked) {
            let Some(&PacketCount { all, data }) = sent.get(&(src, (dst, qpn))) else { continue };
            let FoundPackets { packets, has_payload, is_datagram, .. } = found;
            let text = format!("{src} -> {dst} {qpn:#x}: {packets} packets of {all}");
            // Connection messages in datagrams are retransmitted until they arrive.
            let misses_most = has_payload && !is_datagram && data >= MANY_PACKETS && packets * 2 < data;
            // If the fabric loses a packet twice behind the sender's port, nothing shows which record is a copy.
            let misses_some = packets * 10 < all * 9;
            if packets > all {
                self.more_packets.push(text);
            } else if scene.captured.is_none() && misses_most || scene.complete && misses_some {
                self.fewer_packets.push(text);
            }
        }
    }

    /// Checks that the cells with the right ranks are complete or marked.
    fn compare_right(&mut self, scene: &Scene, right: &CellsByPair) {
        let captured = scene.captured.as_ref().unwrap_or(&scene.truths);
        for (job, truth) in captured.iter().enumerate() {
            let label = main_label(job, right);
            for (&(src, dst), &(messages, bytes)) in truth {
                let found = right.get(&(job, src, dst)).and_then(|labels| labels.get(&label?));
                let cell = found.copied().unwrap_or_default();
                self.captured_bytes += bytes;
                self.right_bytes += cell.bytes.min(bytes);
                if cell.messages >= messages && cell.bytes >= bytes {
                    // A pair whose data have unknown ranks is incomplete.
                    if scene.complete && cell.is_incomplete && cell.payload_bytes >= cell.bytes {
                        self.inexact.push(format!("job {job}: {src} -> {dst} is complete, but marked as incomplete"));
                    }
                    continue;
                }
                let ReportedCell { messages: own, bytes: own_bytes, is_marked, .. } = cell;
                let text =
                    format!("job {job}: {src} -> {dst}: {own} messages, {own_bytes} bytes of {messages}, {bytes}");
                if scene.complete {
                    self.inexact.push(text.clone());
                }
                if found.is_some() && !is_marked {
                    self.silent.push(text);
                }
            }
        }
    }
}

/// The number that a profile gives to most bytes of a job. Messages with another number are in
/// other cells.
fn main_label(job: usize, right: &CellsByPair) -> Option<JobLabel> {
    let mut sums: BTreeMap<JobLabel, (u64, u64)> = BTreeMap::new();
    for (_, labels) in right.iter().filter(|(pair, _)| pair.0 == job) {
        for (label, own) in labels {
            let sum = sums.entry(*label).or_default();
            *sum = (sum.0 + own.bytes, sum.1 + own.messages);
        }
    }
    sums.into_iter().max_by_key(|(_, sum)| *sum).map(|(label, _)| label)
}
