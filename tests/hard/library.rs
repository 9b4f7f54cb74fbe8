//! The recorded runs with their truth, and the owner of each queue pair.

use ibscope::model::{Profile, RankIndex, TrafficKind};
use ibscope::pipeline::{AnalysisOptions, messages};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Opcode;
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::rewrite::{QueuePairAddress, lid};
use ibscope_samples::hard::{Recording, transmissions};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A rank of one of the jobs in the captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueuePairOwner {
    pub(crate) job: usize,
    pub(crate) rank: u32,
}

/// Owners of queue pairs. A queue pair has several owners only if jobs follow each other with the
/// same numbers.
pub(crate) type QueuePairOwners = HashMap<QueuePairAddress, BTreeSet<QueuePairOwner>>;

/// Transmissions by sender and receiver. The number of a sender that is not known is 0.
pub(crate) type ReferencePackets = HashMap<(QueuePairAddress, QueuePairAddress), PacketCount>;

/// Transmissions of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketCount {
    pub(crate) all: u64,
    /// Those that are no acknowledgements.
    pub(crate) data: u64,
}

impl PacketCount {
    /// One transmission of a packet with this opcode.
    pub(crate) fn one(opcode: Opcode) -> Self {
        Self { all: 1, data: u64::from(!opcode.is_ack()) }
    }
}

impl AddAssign for PacketCount {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.data += other.data;
    }
}

/// Messages and bytes by sender and receiver.
pub(crate) type ReferenceSums = BTreeMap<(u32, u32), (u64, u64)>;

/// How a run was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordingSetup {
    /// One mirror sink, native InfiniBand, every packet appears twice.
    Sink,
    /// One file per port, RoCEv2.
    Nodes,
}

impl RecordingSetup {
    /// Mirror copies of a transmission in one file.
    pub(crate) const fn copies(self) -> usize {
        match self {
            Self::Sink => 2,
            Self::Nodes => 1,
        }
    }
}

/// A point-to-point message of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferenceMessage {
    pub(crate) job: usize,
    pub(crate) pair: (u32, u32),
    pub(crate) bytes: u64,
    pub(crate) times_ns: (i64, i64),
}

/// Facts about a run that are not in its packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    /// Owners by the LIDs of the sink; see [`LibraryRun::owners`] for the addresses of the other
    /// form.
    owners: QueuePairOwners,
    /// The queue pair that sends to a connected queue pair.
    senders: HashMap<QueuePairAddress, QueuePairAddress>,
    pub(crate) sent: Vec<ReferenceMessage>,
    /// Per job: messages of collectives that the analysis of the whole run counts. A part never has
    /// more.
    pub(crate) collectives: Vec<ReferenceSums>,
}

/// A recorded run.
pub(crate) struct LibraryRun {
    pub(crate) name: String,
    folder: PathBuf,
    /// Per job: truth of the wire, and node of each rank.
    pub(crate) jobs: Vec<LibraryJob>,
    captures: [OnceLock<Arc<Vec<Recording>>>; 2],
    packets: [OnceLock<Arc<ReferencePackets>>; 2],
    reference: OnceLock<Result<Arc<Reference>, String>>,
}

/// A job of a run.
#[derive(Clone, Debug)]
pub(crate) struct LibraryJob {
    pub(crate) truth: ReferenceSums,
    nodes: BTreeMap<u32, u8>,
}

/// Runs whose `truth.csv` equals the traffic on the wire: no tracer, and no two ranks on one node.
const TRUTH_ON_THE_WIRE: [&str; 2] = ["straggler", "ompi5-ucx-rc-rma"];

/// Node number of an endpoint: 10.77.0.N and 10.78.0.N, LID 16+N and 32+N.
pub(crate) fn node(endpoint: Endpoint) -> u8 {
    match endpoint.lid() {
        Some(lid) => (lid.0 % 16) as u8,
        None => endpoint.low_bits() as u8,
    }
}

/// IP address of the port that has this LID in a sink.
fn address(endpoint: Endpoint) -> Endpoint {
    let lid = endpoint.lid().expect("a LID").0;
    Endpoint::from_ipv4([10, if lid < 32 { 77 } else { 78 }, 0, (lid % 16) as u8])
}

fn csv(folder: &Path, file: &str) -> Option<Vec<Vec<String>>> {
    let text = std::fs::read_to_string(folder.join(file)).ok()?;
    Some(text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

fn truth(folder: &Path, file: &str) -> Option<ReferenceSums> {
    let row = |fields: &Vec<String>| {
        let number = |index: usize| fields[index].parse::<u64>().expect("number");
        ((number(0) as u32, number(1) as u32), (number(2), number(3)))
    };
    Some(csv(folder, file)?.iter().map(row).collect())
}

fn nodes(folder: &Path, file: &str) -> Option<BTreeMap<u32, u8>> {
    let row = |fields: &Vec<String>| {
        let node = fields[1].strip_prefix("node").expect("node").parse().expect("node");
        (fields[0].parse().expect("rank"), node)
    };
    Some(csv(folder, file)?.iter().map(row).collect())
}

impl LibraryRun {
    fn open(folder: PathBuf) -> Self {
        let name = folder.file_name().expect("name").to_string_lossy().into_owned();
        let jobs = jobs(&folder, &name);
        let (captures, packets) = Default::default();
        Self { name, folder, jobs, captures, packets, reference: OnceLock::new() }
    }

    /// Bytes of the compressed sink, which determine how long a case takes.
    fn size(&self) -> u64 {
        std::fs::metadata(self.folder.join("sink.ib.pcap.zst")).expect("sink").len()
    }

    fn has_snap_length(&self) -> bool {
        self.folder.join("SNAPLEN").exists()
    }

    /// The captures: one of a sink, or one per port.
    pub(crate) fn captures(&self, form: RecordingSetup) -> Arc<Vec<Recording>> {
        let read = || {
            let files = match form {
                RecordingSetup::Sink => vec!["sink.ib.pcap.zst".to_owned()],
                RecordingSetup::Nodes => self.port_files(),
            };
            let read = |file: &String| Recording::read(&self.folder.join(file)).expect("capture");
            Arc::new(files.iter().map(read).collect())
        };
        Arc::clone(self.captures[form as usize].get_or_init(read))
    }

    /// Transmissions of each connection, by the bytes of the records.
    pub(crate) fn packets(&self, form: RecordingSetup) -> Arc<ReferencePackets> {
        let count = || {
            let (captures, senders) = (self.captures(form), self.senders(form));
            let found = transmissions(&captures, form.copies());
            let mut is_counted = vec![false; found.count];
            let mut packets = ReferencePackets::new();
            for (capture, numbers) in captures.iter().zip(&found.transmission) {
                for (record, number) in capture.records.iter().zip(numbers) {
                    let Some(frame) = PacketFrame::read(capture.link_type, record) else { continue };
                    if std::mem::replace(&mut is_counted[*number], true) {
                        continue;
                    }
                    let receiver = (frame.dst, frame.dest_qp.value());
                    let named = frame.src_qp.map(|qpn| (frame.src, qpn.value()));
                    let sender = named.or_else(|| senders.get(&receiver).copied()).unwrap_or((frame.src, 0));
                    *packets.entry((sender, receiver)).or_default() += PacketCount::one(frame.opcode);
                }
            }
            Arc::new(packets)
        };
        Arc::clone(self.packets[form as usize].get_or_init(count))
    }

    fn port_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).expect("folder").map(|entry| entry.expect("entry").file_name());
        let mut files: Vec<String> = entries
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| name.starts_with("node") && name.ends_with(".pcap.zst"))
            .collect();
        files.sort();
        files
    }

    /// The reference of the run; an error if it has no independent truth.
    pub(crate) fn reference(&self) -> Result<Arc<Reference>, String> {
        self.reference.get_or_init(|| self.learn().map(Arc::new)).clone()
    }

    /// Owner of each queue pair, by the endpoints of a form.
    pub(crate) fn owners(&self, form: RecordingSetup) -> QueuePairOwners {
        let reference = self.reference().expect("a run with a reference");
        reference.owners.iter().map(|(&end, owners)| (at(end, form), owners.clone())).collect()
    }

    /// The queue pair that sends to a connected queue pair, by the endpoints of a form.
    pub(crate) fn senders(&self, form: RecordingSetup) -> HashMap<QueuePairAddress, QueuePairAddress> {
        let reference = self.reference().expect("a run with a reference");
        reference.senders.iter().map(|(&receiver, &sender)| (at(receiver, form), at(sender, form))).collect()
    }

    /// The upper bound per job.
    pub(crate) fn truths(&self) -> Vec<ReferenceSums> {
        self.jobs.iter().map(|job| job.truth.clone()).collect()
    }

    fn learn(&self) -> Result<Reference, String> {
        let sink = self.folder.join("sink.ib.pcap.zst");
        let options = AnalysisOptions { threads: 1, ..AnalysisOptions::default() };
        let stream = messages(&[sink], &options, false, &|_| {}).map_err(|error| error.to_string())?;
        let profile = stream.profile().clone();
        let mut reference = Reference { senders: senders(&profile), ..Reference::default() };
        reference.owners = match &self.jobs[..] {
            [] => QueuePairOwners::new(),
            [job] => job.owners(&profile)?,
            jobs => by_totals(jobs, &profile)?,
        };
        reference.collectives = collectives(&profile, &reference.owners, self.jobs.len());
        for message in stream {
            let message = message.map_err(|error| error.to_string())?;
            let row = &profile.connections[message.connection as usize];
            let owner = |end: QueuePairAddress| reference.owners.get(&end).and_then(BTreeSet::first).copied();
            let Some(src_qp) = row.src_qp else { continue };
            let ends = (owner((row.src, src_qp.value())), owner((row.dst, row.dest_qp.value())));
            let (Some(src), Some(dst)) = ends else { continue };
            if let (Some(identity), Some(bytes)) = (message.identity(), message.mpi_bytes())
                && !identity.collective
            {
                let times_ns = message.raw.times_ns;
                reference.sent.push(ReferenceMessage { job: src.job, pair: (src.rank, dst.rank), bytes, times_ns });
            }
        }
        Ok(reference)
    }
}

fn at((endpoint, qpn): QueuePairAddress, form: RecordingSetup) -> QueuePairAddress {
    match form {
        RecordingSetup::Sink => (endpoint, qpn),
        RecordingSetup::Nodes => (address(endpoint), qpn),
    }
}

fn jobs(folder: &Path, name: &str) -> Vec<LibraryJob> {
    let one = |truth: ReferenceSums, map: &str| LibraryJob { truth, nodes: nodes(folder, map).unwrap_or_default() };
    if let (Some(first), Some(second)) = (truth(folder, "truth1.csv"), truth(folder, "truth2.csv")) {
        let apart = |truth: ReferenceSums| truth.into_iter().filter(|((src, dst), _)| src != dst).collect();
        return vec![one(apart(first), "rankmap1.csv"), one(apart(second), "rankmap2.csv")];
    }
    let wire = truth(folder, "wire.csv").or_else(|| {
        let alone = one(ReferenceSums::new(), "rankmap.csv").has_one_rank_per_node();
        let is_wire = TRUTH_ON_THE_WIRE.iter().any(|start| name.starts_with(start)) || name.contains("-coll-");
        truth(folder, "truth.csv").filter(|_| alone && is_wire && !name.starts_with("scorep"))
    });
    wire.map(|truth| one(truth, "rankmap.csv")).filter(|job| !job.nodes.is_empty()).into_iter().collect()
}

impl LibraryJob {
    fn has_one_rank_per_node(&self) -> bool {
        self.nodes.values().collect::<BTreeSet<_>>().len() == self.nodes.len()
    }

    /// Owners by the nodes of ranks if each node has one rank. Otherwise by the analysis of the
    /// whole run, if it gives the truth.
    fn owners(&self, profile: &Profile) -> Result<QueuePairOwners, String> {
        let by_node: BTreeMap<u8, u32> = self.nodes.iter().map(|(&rank, &node)| (node, rank)).collect();
        if self.has_one_rank_per_node() {
            return Ok(owners(profile, |row| Some([*by_node.get(&node(row.src))?, *by_node.get(&node(row.dst))?])));
        }
        let index = RankIndex::new(&profile.ranks);
        let found = owners(profile, |row| {
            let [src, dst] = [index.rank(row.src, row.src_qp)?.rank, index.rank(row.dst, Some(row.dest_qp))?.rank];
            let fits = self.nodes.get(&src) == Some(&node(row.src)) && self.nodes.get(&dst) == Some(&node(row.dst));
            fits.then_some([src, dst])
        });
        let mut sums = ReferenceSums::new();
        for row in profile.connections.iter().filter(|row| row.traffic.p2p_messages > 0) {
            let pair = index.rank(row.src, row.src_qp).zip(index.rank(row.dst, Some(row.dest_qp)));
            let (src, dst) = pair.ok_or("a rank is not known")?;
            let sum = sums.entry((src.rank, dst.rank)).or_default();
            sum.0 += row.traffic.p2p_messages;
            sum.1 += row.traffic.p2p_mpi_bytes;
        }
        if sums == self.truth && !sums.is_empty() {
            Ok(found)
        } else {
            Err("the whole run differs from its truth".to_owned())
        }
    }
}

type ReportedConnection = ibscope::model::profile::ConnectionRow;

fn owners(profile: &Profile, ranks: impl Fn(&ReportedConnection) -> Option<[u32; 2]>) -> QueuePairOwners {
    let mut owners = QueuePairOwners::new();
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
        let Some([src, dst]) = ranks(row) else { continue };
        owners.entry((row.dst, row.dest_qp.value())).or_default().insert(QueuePairOwner { job: 0, rank: dst });
        if let Some(src_qp) = row.src_qp {
            owners.entry((row.src, src_qp.value())).or_default().insert(QueuePairOwner { job: 0, rank: src });
        }
    }
    owners
}

/// For two jobs with one rank per node: a connection belongs to the job whose truth its messages
/// equal.
fn by_totals(jobs: &[LibraryJob], profile: &Profile) -> Result<QueuePairOwners, String> {
    let mut owners = QueuePairOwners::new();
    let mut found = 0;
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
        let sums = (row.traffic.p2p_messages, row.traffic.p2p_mpi_bytes);
        for (job, own) in jobs.iter().enumerate() {
            let by_node: BTreeMap<u8, u32> = own.nodes.iter().map(|(&rank, &node)| (node, rank)).collect();
            let (Some(&src), Some(&dst)) = (by_node.get(&node(row.src)), by_node.get(&node(row.dst))) else { continue };
            if own.truth.get(&(src, dst)) == Some(&sums) {
                found += 1;
                owners.entry((row.dst, row.dest_qp.value())).or_default().insert(QueuePairOwner { job, rank: dst });
                let src_qp = row.src_qp.ok_or("a queue pair is not known")?.value();
                owners.entry((row.src, src_qp)).or_default().insert(QueuePairOwner { job, rank: src });
            }
        }
    }
    let pairs: usize = jobs.iter().map(|job| job.truth.len()).sum();
    if found == pairs { Ok(owners) } else { Err(format!("{found} of {pairs} pairs are one connection each")) }
}

fn collectives(profile: &Profile, owners: &QueuePairOwners, jobs: usize) -> Vec<ReferenceSums> {
    let mut sums = vec![ReferenceSums::new(); jobs];
    for row in profile.connections.iter().filter(|row| row.traffic.collective_messages > 0) {
        let owner = |end: QueuePairAddress| owners.get(&end).and_then(BTreeSet::first);
        let src = row.src_qp.and_then(|src_qp| owner((row.src, src_qp.value())));
        let (Some(src), Some(dst)) = (src, owner((row.dst, row.dest_qp.value()))) else { continue };
        let sum = sums[src.job].entry((src.rank, dst.rank)).or_default();
        sum.0 += row.traffic.collective_messages;
        sum.1 += row.traffic.collective_mpi_bytes;
    }
    sums
}

fn senders(profile: &Profile) -> HashMap<QueuePairAddress, QueuePairAddress> {
    let connected = profile.connections.iter().filter(|row| row.kind == TrafficKind::Data && !row.key().is_datagram());
    connected.filter_map(|row| Some(((row.dst, row.dest_qp.value()), (row.src, row.src_qp?.value())))).collect()
}

/// The runs, by their use in cases.
pub(crate) struct Library {
    /// MPI and NCCL jobs with a reference.
    pub(crate) jobs: Vec<Arc<LibraryRun>>,
    /// Recorded storage traffic without a job.
    pub(crate) storage: Vec<Arc<LibraryRun>>,
    /// Runs without a reference, and the reason.
    pub(crate) refused: Vec<(String, String)>,
}

impl Library {
    /// Opens all runs and determines their references, with this many threads.
    pub(crate) fn open(threads: usize) -> Self {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
        let folders = ["runs", "runs2"].into_iter().flat_map(|set| std::fs::read_dir(samples.join(set)).expect("runs"));
        let mut folders: Vec<PathBuf> =
            folders.map(|entry| entry.expect("entry").path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        let runs: Vec<Arc<LibraryRun>> = folders.into_iter().map(|folder| Arc::new(LibraryRun::open(folder))).collect();
        crate::in_parallel(&runs, threads, |run| {
            let _ = run.reference();
        });
        let mut library = Self { jobs: Vec::new(), storage: Vec::new(), refused: Vec::new() };
        for run in runs.into_iter().filter(|run| !run.name.starts_with("perf-")) {
            match run.reference() {
                _ if run.has_snap_length() => {}
                Err(why) => library.refused.push((run.name.clone(), why)),
                Ok(_) if run.name.starts_with("nfs") || run.name.starts_with("nvme") => library.storage.push(run),
                Ok(_) if run.jobs.is_empty() => library.refused.push((run.name.clone(), "no truth".to_owned())),
                Ok(_) => library.jobs.push(run),
            }
        }
        library
    }

    /// A random job whose name passes the filter. Large runs are less likely, because they take
    /// long.
    pub(crate) fn pick(&self, random: &mut Random, filter: impl Fn(&LibraryRun) -> bool) -> Arc<LibraryRun> {
        let fitting: Vec<&Arc<LibraryRun>> = self.jobs.iter().filter(|run| filter(run)).collect();
        let weights: Vec<u64> = fitting.iter().map(|run| 1_000_000 / run.size().max(100_000)).collect();
        let mut at = random.below(weights.iter().sum());
        for (run, weight) in fitting.iter().zip(weights) {
            if at < weight {
                return Arc::clone(run);
            }
            at -= weight;
        }
        unreachable!("no run passes the filter")
    }
}

/// The endpoints of a run's ports in a form.
pub(crate) fn ports(form: RecordingSetup) -> Vec<Endpoint> {
    let lids = (17..=20).chain(33..=36);
    lids.map(|number| if form == RecordingSetup::Sink { lid(number) } else { address(lid(number)) }).collect()
}
