//! Sinks that lose records: the packets of all captures together count, the bounds of the loss hold.
//!
//! Two sinks, one per leaf switch, lose records at random or in bursts. Every packet between the
//! leaves passes both sinks. A pair of ports of whose packets each is in one of the captures must be
//! exact; every other pair may be short, and says so.

use crate::check;
use crate::library::{Library, LibraryRun, RecordingSetup};
use crate::scene::SceneJobs;
use crate::{THREADS, in_parallel};
use ibscope::model::profile::CoverageState;
use ibscope::model::{Profile, TrafficKind};
use ibscope::pipeline::{AnalysisOptions, DigestChoice, analyze};
use ibscope_parsers::Endpoint;
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{RecordedPacket, Recording, transmissions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// A record of a sink, and the transmission that it shows.
type SinkRecord = (RecordedPacket, usize);

/// Two sinks that lose records.
struct LossySinks {
    about: String,
    jobs: SceneJobs,
    files: Vec<Recording>,
    /// Pairs of ports, smaller one first, with a packet of which no capture has a record.
    short: BTreeSet<(Endpoint, Endpoint)>,
    /// Packets without a record, and records that are lost.
    lost_packets: u64,
    lost_records: u64,
}

/// Leaf of a port: nodes in blocks.
fn leaf(endpoint: Endpoint) -> usize {
    (endpoint.low_bits() % 16 + 1) as usize % 2
}

/// The records of each sink, with their transmissions.
fn records_at_sinks(jobs: &SceneJobs) -> Vec<Vec<SinkRecord>> {
    let found = transmissions(&jobs.files, jobs.copies());
    let mut sinks: Vec<Vec<SinkRecord>> = vec![Vec::new(); 2];
    for (number, file) in jobs.files.iter().enumerate() {
        for (index, record) in file.records.iter().enumerate() {
            let Some(frame) = PacketFrame::read(file.link_type, record) else { continue };
            let sink = match jobs.form {
                RecordingSetup::Nodes => number % 2,
                RecordingSetup::Sink => leaf([frame.src, frame.dst][found.mirror_copy[number][index] % 2]),
            };
            sinks[sink].push((record.clone(), found.transmission[number][index]));
        }
    }
    sinks.iter_mut().for_each(|sink| sink.sort_by_key(|(record, _)| record.time_ns));
    sinks
}

/// Drops `per_mille` of the records, in bursts of `burst` records on average.
fn is_lost(per_mille: u64, burst: u64, random: &mut Random) -> impl FnMut() -> bool + '_ {
    let mut is_lost = false;
    let begin_ppm = per_mille * 1_000_000 / burst / (1000 - per_mille);
    move || {
        is_lost = if is_lost { random.below(burst) != 0 } else { random.below(1_000_000) < begin_ppm };
        is_lost
    }
}

impl LossySinks {
    /// `lossy_sinks` of two sinks lose records.
    fn new(run: &LibraryRun, lossy_sinks: usize, random: &mut Random) -> Self {
        let form = if random.below(2) == 0 { RecordingSetup::Sink } else { RecordingSetup::Nodes };
        let jobs = SceneJobs::of(run, form);
        let sinks = records_at_sinks(&jobs);
        let (per_mille, burst) = ([10, 100, 300][random.below(3) as usize], [1, 5, 50][random.below(3) as usize]);
        let first = random.below(2) as usize;
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        let mut lost_records = 0;
        let mut files = Vec::new();
        for (sink, records) in sinks.iter().enumerate() {
            let loses = lossy_sinks == 2 || sink == first;
            let mut is_lost = is_lost(per_mille, burst, random);
            let records: Vec<&SinkRecord> = records.iter().filter(|_| !loses || !is_lost()).collect();
            lost_records += (sinks[sink].len() - records.len()) as u64;
            kept.extend(records.iter().map(|(_, transmission)| *transmission));
            files.push(jobs.files[0].with(records.into_iter().map(|(record, _)| record.clone()).collect()));
        }
        let mut short = BTreeSet::new();
        let mut lost = BTreeSet::new();
        for (record, transmission) in sinks.iter().flatten().filter(|(_, transmission)| !kept.contains(transmission)) {
            let frame = PacketFrame::read(jobs.files[0].link_type, record).expect("a packet");
            short.insert((frame.src.min(frame.dst), frame.src.max(frame.dst)));
            lost.insert(*transmission);
        }
        let about =
            format!("{} {form:?}, {lossy_sinks} sinks lose {per_mille} per mille in bursts of {burst}", run.name);
        Self { about, jobs, files, short, lost_packets: lost.len() as u64, lost_records }
    }

    fn profile(&self) -> Profile {
        let folder = tempfile::tempdir().expect("folder");
        let files = self.files.iter().filter(|file| !file.records.is_empty()).enumerate();
        let paths: Vec<_> = files
            .map(|(number, file)| {
                let path = folder.path().join(format!("{number}.pcap"));
                file.write(&path).expect("capture");
                path
            })
            .collect();
        let digests = DigestChoice { xxh3: false, sha256: false };
        let options = AnalysisOptions { threads: 1, digests, ..AnalysisOptions::default() };
        analyze(&paths, &options, &|_| {}).expect("profile")
    }

    /// What does not hold.
    fn failures(&self, profile: &Profile) -> Vec<String> {
        let scene = crate::scene::Scene { complete: false, ..self.jobs.clone().scene(self.about.clone()) };
        let outcome = check::check(&scene, profile);
        let kinds = outcome.kinds();
        let of_check = kinds.iter().flat_map(|(kind, texts)| texts.iter().map(move |text| format!("{kind}: {text}")));
        let mut failures: Vec<String> = of_check.collect();
        let mut found: BTreeMap<(usize, u32, u32), (u64, u64)> = BTreeMap::new();
        let mut pairs: BTreeMap<(usize, u32, u32), (Endpoint, Endpoint)> = BTreeMap::new();
        for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
            for (pair, is_only) in check::owners_of(&scene, row) {
                if is_only {
                    let sums = found.entry(pair).or_default();
                    *sums = (sums.0 + row.traffic.p2p_messages, sums.1 + row.traffic.p2p_mpi_bytes);
                    pairs.insert(pair, (row.src.min(row.dst), row.src.max(row.dst)));
                    let is_short = self.short.contains(&pairs[&pair]);
                    if is_short && row.service == 0 && row.coverage.state == CoverageState::Complete && sums.1 == 0 {
                        // A connection without messages may be complete.
                        continue;
                    }
                }
            }
        }
        for (job, truth) in self.jobs.truths.iter().enumerate() {
            for (&(src, dst), sent) in truth {
                let key = (job, src, dst);
                let is_whole = pairs.get(&key).is_some_and(|ports| !self.short.contains(ports));
                if is_whole && found.get(&key) != Some(sent) {
                    failures.push(format!("{key:?}: {:?} of {sent:?}", found.get(&key)));
                }
            }
        }
        failures
    }
}

/// Runs cases; prints those that fail and returns their number.
fn run(cases: usize) -> usize {
    let library = Library::open(THREADS);
    let numbers: Vec<usize> = (0..cases).collect();
    let only: Option<usize> = std::env::var("IBSCOPE_HARD_ONLY").ok().and_then(|text| text.parse().ok());
    let failed = Mutex::new(Vec::new());
    in_parallel(&numbers, THREADS, |number| {
        if only.is_some_and(|only| only != *number) {
            return;
        }
        let mut random = Random::new(0x5EED_0000 + *number as u64);
        let run = library.pick(&mut random, |run| !run.name.contains("multirail"));
        let sinks = LossySinks::new(&run, 1 + number % 2, &mut random);
        let profile = sinks.profile();
        let failures = sinks.failures(&profile);
        let trust = &profile.trust;
        println!(
            "{number} {}: lost {} packets, {} records; {:?} {:?} {:?}",
            sinks.about,
            sinks.lost_packets,
            sinks.lost_records,
            trust.verdict,
            trust.lost_by_capture_packets,
            trust.lost_on_fabric_packets
        );
        if !failures.is_empty() {
            println!("{number} FAILED: {}", failures.join("; "));
            failed.lock().expect("failed").push(*number);
        }
    });
    failed.into_inner().expect("failed").len()
}

#[test]
fn a_few_lossy_sinks() {
    assert_eq!(run(12), 0);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn lossy_sinks() {
    assert_eq!(run(1000), 0);
}
