//! A case: captures, and the truth about them.

use crate::library::{LibraryRun, QueuePairOwners, RecordingSetup, ReferenceMessage, ReferencePackets, ReferenceSums};
use ibscope_samples::Random;
use ibscope_samples::hard::rewrite::{AddressRewrite, QueuePairAddress};
use ibscope_samples::hard::{Recording, combine, split};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Captures, and the truth about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Description of the distortions.
    pub(crate) about: String,
    /// The files, in the order of the command line.
    pub(crate) files: Vec<Recording>,
    /// Owner of each queue pair. Queue pairs without an owner carry no MPI.
    pub(crate) owners: QueuePairOwners,
    /// Per job: messages and bytes that were sent, the upper bound of every result.
    pub(crate) truths: Vec<ReferenceSums>,
    /// Per job: collective messages and bytes that the analysis of the whole run shows.
    pub(crate) collectives: Vec<ReferenceSums>,
    /// Transmissions, the upper bound of packets that are not marked.
    pub(crate) packets: ReferencePackets,
    /// Per job: messages and bytes whose packets are all in the captures; `None`: the same as
    /// `truths`.
    pub(crate) captured: Option<Vec<ReferenceSums>>,
    /// No packet is missing: every pair must be exact.
    pub(crate) complete: bool,
}

impl Scene {
    /// Writes the captures into a folder; returns their paths.
    pub(crate) fn write(&self, folder: &Path) -> Vec<PathBuf> {
        std::fs::create_dir_all(folder).expect("folder");
        let path = |index: usize| folder.join(format!("{index:02}.pcap"));
        let paths: Vec<PathBuf> = (0..self.files.len()).map(path).collect();
        for (path, file) in paths.iter().zip(&self.files) {
            file.write(path).expect("capture");
        }
        paths
    }

    /// Writes the truth into the folder of the captures.
    pub(crate) fn write_truth(&self, folder: &Path) {
        let mut owners = "endpoint,qpn,job,rank\n".to_owned();
        for (end, own) in self.owners.iter().collect::<BTreeMap<_, _>>() {
            for owner in own {
                writeln!(owners, "{},{:#x},{},{}", end.0, end.1, owner.job, owner.rank).expect("text");
            }
        }
        let mut truth = "job,src,dst,messages,bytes\n".to_owned();
        for (job, own) in self.truths.iter().enumerate() {
            for ((src, dst), (messages, bytes)) in own {
                writeln!(truth, "{job},{src},{dst},{messages},{bytes}").expect("text");
            }
        }
        for (name, text) in [("about.txt", &self.about), ("owners.csv", &owners), ("truth.csv", &truth)] {
            std::fs::write(folder.join(name), text).expect("truth");
        }
    }
}

/// Largest offset of a node's clock from the sink's clock: at most 86 us in `clock_before.csv` of
/// the recorded runs.
const NODE_CLOCKS_NS: u64 = 200_000;

/// One or more jobs as they were recorded, with their final names.
#[derive(Clone, Debug)]
pub(crate) struct SceneJobs {
    /// Names of the recorded runs.
    pub(crate) runs: BTreeSet<String>,
    pub(crate) form: RecordingSetup,
    pub(crate) files: Vec<Recording>,
    pub(crate) owners: QueuePairOwners,
    pub(crate) senders: HashMap<QueuePairAddress, QueuePairAddress>,
    pub(crate) truths: Vec<ReferenceSums>,
    pub(crate) collectives: Vec<ReferenceSums>,
    pub(crate) sent: Vec<ReferenceMessage>,
    pub(crate) packets: ReferencePackets,
}

impl SceneJobs {
    pub(crate) fn of(run: &LibraryRun, form: RecordingSetup) -> Self {
        let reference = run.reference().expect("a run with a reference");
        Self {
            runs: BTreeSet::from([run.name.clone()]),
            form,
            files: run.captures(form).to_vec(),
            owners: run.owners(form),
            senders: run.senders(form),
            truths: run.truths(),
            collectives: reference.collectives.clone(),
            sent: reference.sent.clone(),
            packets: (*run.packets(form)).clone(),
        }
    }

    /// Applies other names.
    pub(crate) fn renamed(mut self, rewrite: &AddressRewrite) -> Self {
        self.files = self.files.iter().map(|file| rewrite.apply(file)).collect();
        self.owners = self.owners.into_iter().map(|(end, owners)| (rewrite.rewritten_end(end), owners)).collect();
        self.senders = self
            .senders
            .into_iter()
            .map(|(receiver, sender)| (rewrite.rewritten_end(receiver), rewrite.rewritten_end(sender)))
            .collect();
        let renamed = |end: QueuePairAddress| rewrite.rewritten_end(end);
        self.packets =
            self.packets.into_iter().map(|((from, to), sent)| ((renamed(from), renamed(to)), sent)).collect();
        self
    }

    /// Moves the jobs in time, so that the first packet is at this time.
    pub(crate) fn starting_at(mut self, start_ns: u64) -> Self {
        let offset_ns = start_ns.cast_signed() - self.span_ns().0.cast_signed();
        self.files = combine::start_at(&self.files, start_ns);
        for sent in &mut self.sent {
            sent.times_ns.0 += offset_ns;
            sent.times_ns.1 += offset_ns;
        }
        self
    }

    /// Time of the first and of the last record.
    pub(crate) fn span_ns(&self) -> (u64, u64) {
        let spans = || self.files.iter().filter(|file| !file.records.is_empty()).map(Recording::span_ns);
        (spans().map(|span| span.0).min().unwrap_or(0), spans().map(|span| span.1).max().unwrap_or(0))
    }

    /// Adds other jobs. Files with the same index are merged by time.
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.runs.extend(other.runs);
        let jobs = self.truths.len();
        let files = self.files.len().max(other.files.len());
        let both = |index: usize| {
            let own = [self.files.get(index), other.files.get(index)].into_iter().flatten().cloned();
            combine::merge(&own.collect::<Vec<_>>())
        };
        self.files = (0..files).map(both).collect();
        for (end, owners) in other.owners {
            let moved = owners.into_iter().map(|mut owner| {
                owner.job += jobs;
                owner
            });
            self.owners.entry(end).or_default().extend(moved);
        }
        self.senders.extend(other.senders);
        for (ends, sent) in other.packets {
            *self.packets.entry(ends).or_default() += sent;
        }
        self.truths.extend(other.truths);
        self.collectives.extend(other.collectives);
        self.sent.extend(other.sent.into_iter().map(|sent| ReferenceMessage { job: sent.job + jobs, ..sent }));
        self
    }

    /// The jobs as a case.
    pub(crate) fn scene(self, about: String) -> Scene {
        let Self { files, owners, truths, collectives, packets, .. } = self;
        Scene { about, files, owners, truths, collectives, packets, captured: None, complete: true }
    }

    /// Messages that were sent completely between two times, both excluded. Messages have the times
    /// of the sink. Messages so close to the limits that the clock of a port decides are not
    /// counted.
    pub(crate) fn sent_between(&self, start_ns: u64, end_ns: u64) -> Vec<ReferenceSums> {
        let apart_ns = if self.form == RecordingSetup::Nodes { NODE_CLOCKS_NS } else { 0 };
        let (start_ns, end_ns) = (start_ns.saturating_add(apart_ns), end_ns.saturating_sub(apart_ns));
        let mut truths = vec![ReferenceSums::new(); self.truths.len()];
        let (start_ns, end_ns) = (start_ns.cast_signed(), end_ns.cast_signed());
        for sent in self.sent.iter().filter(|sent| sent.times_ns.0 > start_ns && sent.times_ns.1 < end_ns) {
            let sum = truths[sent.job].entry(sent.pair).or_default();
            sum.0 += 1;
            sum.1 += sent.bytes;
        }
        truths
    }
}

/// A job in a random form, and its description.
pub(crate) fn cast(
    library: &crate::library::Library,
    random: &mut Random,
    filter: impl Fn(&LibraryRun) -> bool,
) -> (SceneJobs, String) {
    let form = if random.below(2) == 0 { RecordingSetup::Sink } else { RecordingSetup::Nodes };
    cast_in(library, random, form, filter)
}

/// A job in this form, and its description.
pub(crate) fn cast_in(
    library: &crate::library::Library,
    random: &mut Random,
    form: RecordingSetup,
    filter: impl Fn(&LibraryRun) -> bool,
) -> (SceneJobs, String) {
    let run = library.pick(random, filter);
    (SceneJobs::of(&run, form), format!("{} {form:?}", run.name))
}

/// The captures as one file: captures of ports are merged by time, as in the file of a sink.
pub(crate) fn one_file(cast: &SceneJobs) -> Recording {
    if cast.files.len() == 1 { cast.files[0].clone() } else { combine::merge(&cast.files) }
}

pub(crate) fn shuffled(mut files: Vec<Recording>, random: &mut Random) -> Vec<Recording> {
    split::shuffle(&mut files, random);
    files
}
