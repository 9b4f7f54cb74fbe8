//! A case: captures, and what is true of them.

use crate::library::{Form, Owners, Run, Sent, Truth};
use ibscope_samples::Random;
use ibscope_samples::hard::rewrite::{End, Rewrite};
use ibscope_samples::hard::{Recording, combine, split};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Captures, and what is true of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// What was done, for people.
    pub(crate) about: String,
    /// The files, in the order in which they are given.
    pub(crate) files: Vec<Recording>,
    /// Whose each queue pair is. Others carry no MPI.
    pub(crate) owners: Owners,
    /// Per job: messages and bytes that were sent. Never to be exceeded.
    pub(crate) truths: Vec<Truth>,
    /// The same of collectives: what the whole runs show.
    pub(crate) collectives: Vec<Truth>,
    /// Per job: messages and bytes whose packets are all in the captures; `None`: as `truths`.
    pub(crate) captured: Option<Vec<Truth>>,
    /// No packet is missing: every pair must be exact.
    pub(crate) complete: bool,
}

impl Scene {
    /// Writes the captures into a folder; gives their paths.
    pub(crate) fn write(&self, folder: &Path) -> Vec<PathBuf> {
        std::fs::create_dir_all(folder).expect("folder");
        let path = |index: usize| folder.join(format!("{index:02}.pcap"));
        let paths: Vec<PathBuf> = (0..self.files.len()).map(path).collect();
        for (path, file) in paths.iter().zip(&self.files) {
            file.write(path).expect("capture");
        }
        paths
    }

    /// Writes what is true of the captures beside them.
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

/// Clocks of nodes are within this of the sink's: at most 86 us in `clock_before.csv` of the recorded runs.
const NODE_CLOCKS_NS: u64 = 200_000;

/// One or more jobs as they were recorded, under their final names.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) form: Form,
    pub(crate) files: Vec<Recording>,
    pub(crate) owners: Owners,
    pub(crate) senders: HashMap<End, End>,
    pub(crate) truths: Vec<Truth>,
    pub(crate) collectives: Vec<Truth>,
    pub(crate) sent: Vec<Sent>,
}

impl Cast {
    pub(crate) fn of(run: &Run, form: Form) -> Self {
        let reference = run.reference().expect("a run with a reference");
        Self {
            form,
            files: run.captures(form).to_vec(),
            owners: run.owners(form),
            senders: run.senders(form),
            truths: run.truths(),
            collectives: reference.collectives.clone(),
            sent: reference.sent.clone(),
        }
    }

    /// Mirror copies of a transmission in one file.
    pub(crate) fn copies(&self) -> usize {
        if self.form == Form::Sink { 2 } else { 1 }
    }

    /// Under other names.
    pub(crate) fn renamed(mut self, rewrite: &Rewrite) -> Self {
        self.files = self.files.iter().map(|file| rewrite.apply(file)).collect();
        self.owners = self.owners.into_iter().map(|(end, owners)| (rewrite.end(end), owners)).collect();
        self.senders =
            self.senders.into_iter().map(|(receiver, sender)| (rewrite.end(receiver), rewrite.end(sender))).collect();
        self
    }

    /// Moved in time, so that the first packet is at this time.
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

    /// Together with other jobs: files are merged by their place in the list, by time.
    pub(crate) fn with(mut self, other: Self) -> Self {
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
        self.truths.extend(other.truths);
        self.collectives.extend(other.collectives);
        self.sent.extend(other.sent.into_iter().map(|sent| Sent { job: sent.job + jobs, ..sent }));
        self
    }

    /// All of it as a case.
    pub(crate) fn scene(self, about: String) -> Scene {
        let Self { files, owners, truths, collectives, .. } = self;
        Scene { about, files, owners, truths, collectives, captured: None, complete: true }
    }

    /// What was sent wholly between two times, both excluded. Messages have the times of the sink; what passed a port so
    /// close to the times that its clock decides is not counted.
    pub(crate) fn sent_between(&self, start_ns: u64, end_ns: u64) -> Vec<Truth> {
        let apart_ns = if self.form == Form::Nodes { NODE_CLOCKS_NS } else { 0 };
        let (start_ns, end_ns) = (start_ns.saturating_add(apart_ns), end_ns.saturating_sub(apart_ns));
        let mut truths = vec![Truth::new(); self.truths.len()];
        let (start_ns, end_ns) = (start_ns.cast_signed(), end_ns.cast_signed());
        for sent in self.sent.iter().filter(|sent| sent.times_ns.0 > start_ns && sent.times_ns.1 < end_ns) {
            let sum = truths[sent.job].entry(sent.pair).or_default();
            sum.0 += 1;
            sum.1 += sent.bytes;
        }
        truths
    }
}

/// A job in a random form, and a text that names it.
pub(crate) fn cast(
    library: &crate::library::Library,
    random: &mut Random,
    filter: impl Fn(&Run) -> bool,
) -> (Cast, String) {
    let form = if random.below(2) == 0 { Form::Sink } else { Form::Nodes };
    cast_in(library, random, form, filter)
}

/// A job in this form, and a text that names it.
pub(crate) fn cast_in(
    library: &crate::library::Library,
    random: &mut Random,
    form: Form,
    filter: impl Fn(&Run) -> bool,
) -> (Cast, String) {
    let run = library.pick(random, filter);
    (Cast::of(&run, form), format!("{} {form:?}", run.name))
}

/// The captures as one file: those of ports merged by time, as a sink has them.
pub(crate) fn one_file(cast: &Cast) -> Recording {
    if cast.files.len() == 1 { cast.files[0].clone() } else { combine::merge(&cast.files) }
}

/// Shuffles files.
pub(crate) fn shuffled(mut files: Vec<Recording>, random: &mut Random) -> Vec<Recording> {
    split::shuffle(&mut files, random);
    files
}
