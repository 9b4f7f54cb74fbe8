//! Sinks that lose records, and fabrics that lose packets: the packets of all captures together
//! count, and the bounds of both losses hold.
//!
//! Two sinks, one per leaf switch, lose records at random or in bursts. Every packet between the
//! leaves passes both sinks, a packet within a leaf passes one of them twice. A packet that the
//! fabric loses is missing at the receiver's port, and its retransmission follows at both ports; a
//! lost ACK is not retransmitted. If one of the captures holds each packet of a pair of ports, the
//! pair must be exact; every other pair may be short, and says so.
#![allow(clippy::print_stdout, reason = "the widths of the bounds are a result")]

use crate::check;
use crate::library::{Library, LibraryRun, PacketCount, RecordingSetup, ReferencePackets};
use crate::scene::{Scene, SceneJobs};
use crate::{THREADS, in_parallel};
use ibscope::model::{PacketBounds, Profile, TrafficKind};
use ibscope::pipeline::{AnalysisOptions, DigestChoice, analyze};
use ibscope_parsers::Endpoint;
use ibscope_parsers::frame::LinkType;
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{RecordedPacket, transmissions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Time from a lost packet to its retransmission: less than the time to its ACK.
const RETRANSMITTED_AFTER_NS: u64 = 100;

/// The record of a transmission at one port.
#[derive(Clone)]
struct SinkRecord {
    packet: RecordedPacket,
    transmission: usize,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Losses {
    /// Sinks that lose records: none, one or both.
    sinks: usize,
    /// Share of the packets that the fabric loses, in a thousand.
    fabric_per_mille: u64,
}

/// The kinds of cases, in turn.
const KINDS: [Losses; 6] = [
    Losses { sinks: 1, fabric_per_mille: 0 },
    Losses { sinks: 2, fabric_per_mille: 0 },
    Losses { sinks: 1, fabric_per_mille: 0 },
    Losses { sinks: 0, fabric_per_mille: 10 },
    Losses { sinks: 0, fabric_per_mille: 10 },
    Losses { sinks: 1, fabric_per_mille: 10 },
];

/// Two sinks of a run, and what was lost.
struct LossySinks {
    about: String,
    /// Share of the records that a lossy sink loses, in a thousand.
    per_mille: u64,
    scene: Scene,
    /// Pairs of ports, smaller one first, with a packet of which no capture has a record.
    short: BTreeSet<(Endpoint, Endpoint)>,
    /// Records that the captures lost, packets that are in no capture, and packets that the fabric
    /// lost.
    lost_records: u64,
    never_captured: u64,
    lost_on_fabric: u64,
}

/// Leaf of a port: nodes take turns.
fn leaf(endpoint: Endpoint) -> usize {
    (endpoint.low_bits() % 16 + 1) as usize % 2
}

fn frame(link_type: LinkType, record: &SinkRecord) -> PacketFrame {
    PacketFrame::read(link_type, &record.packet).expect("a packet")
}

/// The records at each sink.
fn records_at_sinks(jobs: &SceneJobs) -> Vec<Vec<SinkRecord>> {
    let found = transmissions(&jobs.files, jobs.form.copies());
    let mut sinks: Vec<Vec<SinkRecord>> = vec![Vec::new(); 2];
    for (number, file) in jobs.files.iter().enumerate() {
        for (index, packet) in file.records.iter().enumerate() {
            let Some(frame) = PacketFrame::read(file.link_type, packet) else { continue };
            let sink = match jobs.form {
                RecordingSetup::Nodes => number % 2,
                RecordingSetup::Sink => leaf([frame.src, frame.dst][found.mirror_copy[number][index] % 2]),
            };
            sinks[sink].push(SinkRecord { packet: packet.clone(), transmission: found.transmission[number][index] });
        }
    }
    sinks
}

/// Loses packets of reliable connections between the ports: requests and responses, which are sent
/// again, and ACKs. Returns their number.
fn lose_on_fabric(sinks: &mut [Vec<SinkRecord>], link_type: LinkType, per_mille: u64, random: &mut Random) -> u64 {
    // By transmission: time, sink and index of its records.
    let mut records: BTreeMap<usize, Vec<(u64, usize, usize)>> = BTreeMap::new();
    for (sink, own) in sinks.iter().enumerate() {
        for (index, record) in own.iter().enumerate() {
            records.entry(record.transmission).or_default().push((record.packet.time_ns, sink, index));
        }
    }
    let mut next = records.keys().last().map_or(0, |last| last + 1);
    let (mut lost, mut sent_again) = (BTreeSet::new(), BTreeMap::new());
    for (transmission, points) in &records {
        let [(_, sink, index), other] = points[..] else { continue };
        let record = &sinks[sink][index];
        if random.below(1000) < per_mille && is_reliable(link_type, record) {
            // The receiver's port: at the sink of its leaf, because the clocks of two sinks differ,
            // and in one sink the port that the packet reaches last.
            let leaf = leaf(frame(link_type, record).dst);
            let is_later = |point: &(u64, usize, usize)| (point.1 == leaf, point.0);
            let (_, sink, index) = if is_later(&other) > is_later(&points[0]) { other } else { points[0] };
            lost.insert((sink, index));
            if frame(link_type, record).opcode.0 != ACKNOWLEDGE {
                sent_again.insert(*transmission, next);
                next += 1;
            }
        }
    }
    for (sink, own) in sinks.iter_mut().enumerate() {
        let mut kept = Vec::new();
        for (index, record) in std::mem::take(own).into_iter().enumerate() {
            if let Some(again) = sent_again.get(&record.transmission) {
                let time_ns = record.packet.time_ns + RETRANSMITTED_AFTER_NS;
                kept.push(SinkRecord { packet: record.packet.at(link_type, time_ns), transmission: *again });
            }
            if !lost.contains(&(sink, index)) {
                kept.push(record);
            }
        }
        *own = kept;
    }
    lost.len() as u64
}

const ACKNOWLEDGE: u8 = 0x11;

/// A packet of the reliable service (RC) between two queue pairs of programs.
fn is_reliable(link_type: LinkType, record: &SinkRecord) -> bool {
    frame(link_type, record).opcode.0 >> 5 == 0
}

/// Drops `per_mille` of the records, in bursts of `burst` records on average.
fn loses(per_mille: u64, burst: u64, random: &mut Random) -> impl FnMut() -> bool + '_ {
    let mut is_lost = false;
    let begin_ppm = per_mille * 1_000_000 / burst / (1000 - per_mille);
    move || {
        is_lost = if is_lost { random.below(burst) != 0 } else { random.below(1_000_000) < begin_ppm };
        is_lost
    }
}

impl LossySinks {
    fn new(run: &LibraryRun, losses: Losses, random: &mut Random) -> Self {
        let form = if random.below(2) == 0 { RecordingSetup::Sink } else { RecordingSetup::Nodes };
        let jobs = SceneJobs::of(run, form);
        let link_type = jobs.files[0].link_type;
        let mut sinks = records_at_sinks(&jobs);
        let lost_on_fabric = lose_on_fabric(&mut sinks, link_type, losses.fabric_per_mille, random);
        sinks.iter_mut().for_each(|sink| sink.sort_by_key(|record| record.packet.time_ns));
        let (mut counted, mut packets) = (BTreeSet::new(), ReferencePackets::new());
        for record in sinks.iter().flatten().filter(|record| counted.insert(record.transmission)) {
            let frame = frame(link_type, record);
            let ends = ((frame.src, 0), (frame.dst, frame.dest_qp.value()));
            *packets.entry(ends).or_default() += PacketCount::one(frame.opcode);
        }
        let (per_mille, burst) = ([10, 100, 300][random.below(3) as usize], [1, 5, 50][random.below(3) as usize]);
        let first = random.below(2) as usize;
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        let (mut lost_records, mut last_ns) = (0, 0);
        let mut files = Vec::new();
        for (sink, records) in sinks.iter().enumerate() {
            let is_lossy = losses.sinks == 2 || losses.sinks == 1 && sink == first;
            let mut is_lost = loses(per_mille, burst, random);
            let records: Vec<&SinkRecord> = records.iter().filter(|_| !is_lossy || !is_lost()).collect();
            lost_records += (sinks[sink].len() - records.len()) as u64;
            kept.extend(records.iter().map(|record| record.transmission));
            last_ns = last_ns.max(records.last().map_or(0, |record| record.packet.time_ns));
            files.push(jobs.files[0].with(records.into_iter().map(|record| record.packet.clone()).collect()));
        }
        let (mut short, mut never) = (BTreeSet::new(), BTreeSet::new());
        for record in sinks.iter().flatten().filter(|record| !kept.contains(&record.transmission)) {
            let PacketFrame { src, dst, .. } = frame(link_type, record);
            short.insert((src.min(dst), src.max(dst)));
            never.insert(record.transmission);
        }
        let about = format!("{} {form:?}, {losses:?}, {per_mille} per mille in bursts of {burst}", run.name);
        // A burst at the end of both captures is a capture that ended early.
        let captured = Some(jobs.sent_between(0, last_ns.saturating_add(1)));
        let scene = Scene { files, packets, captured, complete: false, ..jobs.scene(about.clone()) };
        Self { about, per_mille, scene, short, lost_records, never_captured: never.len() as u64, lost_on_fabric }
    }

    fn profile(&self) -> Profile {
        let folder = tempfile::tempdir().expect("folder");
        let paths = self.scene.write(folder.path());
        let digests = DigestChoice { xxh3: false, sha256: false };
        let options = AnalysisOptions { threads: 1, digests, ..AnalysisOptions::default() };
        analyze(&paths, &options, &|_| {}).expect("profile")
    }

    /// What does not hold.
    fn failures(&self, profile: &Profile) -> Vec<String> {
        let outcome = check::check(&self.scene, profile);
        let kinds = outcome.kinds();
        let of_check = kinds.iter().flat_map(|(kind, texts)| texts.iter().map(move |text| format!("{kind}: {text}")));
        let mut failures: Vec<String> = of_check.collect();
        failures.extend(self.inexact(profile));
        let trust = &profile.trust;
        // In these recordings, the fabric lost packets before their first observation point.
        let has_own_loss = self.about.contains("loss");
        for (what, lost, bounds, counts) in [
            ("by the capture", self.lost_records, trust.lost_by_capture_packets, true),
            ("by every capture", self.never_captured, trust.never_captured_packets, true),
            ("on the fabric", self.lost_on_fabric, trust.lost_on_fabric_packets, !has_own_loss),
        ] {
            let holds = bounds.at_least <= lost && bounds.at_most.is_none_or(|most| lost <= most);
            if counts && !holds {
                failures.push(format!("{lost} packets lost {what}: {bounds:?}"));
            }
        }
        failures
    }

    /// Pairs of ranks that differ from their truth, though no packet between their ports is missing.
    fn inexact(&self, profile: &Profile) -> Vec<String> {
        let mut found: BTreeMap<(usize, u32, u32), (u64, u64)> = BTreeMap::new();
        let mut whole: BTreeMap<(usize, u32, u32), bool> = BTreeMap::new();
        for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
            if let Some(pair) = check::only_owner(&self.scene, row) {
                let sums = found.entry(pair).or_default();
                *sums = (sums.0 + row.traffic.p2p_messages, sums.1 + row.traffic.p2p_mpi_bytes);
                *whole.entry(pair).or_insert(true) &=
                    !self.short.contains(&(row.src.min(row.dst), row.src.max(row.dst)));
            }
        }
        let mut failures = Vec::new();
        for (job, truth) in self.scene.truths.iter().enumerate() {
            for (&(src, dst), sent) in truth {
                let pair = (job, src, dst);
                if whole.get(&pair) == Some(&true) && found.get(&pair) != Some(sent) {
                    failures.push(format!("{pair:?}: {:?} of {sent:?}", found.get(&pair)));
                }
            }
        }
        failures
    }
}

/// Width of the bounds as a share of the truth, in percent; infinite without an upper bound.
fn width_percent(bounds: PacketBounds, lost: u64) -> f64 {
    match bounds.at_most.map(|most| most.saturating_sub(bounds.at_least)) {
        Some(0) => 0.0,
        Some(width) => width as f64 * 100.0 / lost as f64,
        None => f64::INFINITY,
    }
}

fn median(mut widths: Vec<f64>) -> f64 {
    widths.sort_by(f64::total_cmp);
    widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Kind of case, losses of a sink in a thousand, and what was lost.
type WidthKey = (usize, u64, &'static str);

/// Median widths of bounds.
type MedianWidths = BTreeMap<WidthKey, f64>;

/// Runs cases; prints those that fail, and the widths of the bounds where reliable connections carry
/// the messages. Returns the number of failed cases, and the median widths in percent.
fn run(cases: usize) -> (usize, MedianWidths) {
    let library = Library::open(THREADS);
    let only: Option<usize> = std::env::var("IBSCOPE_HARD_ONLY").ok().and_then(|text| text.parse().ok());
    let numbers: Vec<usize> = (0..cases).filter(|number| only.is_none_or(|only| only == *number)).collect();
    let failed = Mutex::new(0);
    let widths: Mutex<BTreeMap<WidthKey, Vec<f64>>> = Mutex::new(BTreeMap::new());
    let seed = std::env::var("IBSCOPE_HARD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x5EED_0000_u64);
    in_parallel(&numbers, THREADS, |number| {
        let mut random = Random::new(seed + *number as u64);
        let run = library.pick(&mut random, |run| !run.name.contains("multirail"));
        let kind = KINDS.iter().position(|losses| *losses == KINDS[number % KINDS.len()]).expect("a kind");
        let sinks = LossySinks::new(&run, KINDS[kind], &mut random);
        let profile = sinks.profile();
        let trust = &profile.trust;
        let (records, never, fabric) = (sinks.lost_records, sinks.never_captured, sinks.lost_on_fabric);
        let bounds = [trust.lost_by_capture_packets, trust.never_captured_packets, trust.lost_on_fabric_packets];
        let bounds = bounds.map(<(u64, Option<u64>)>::from);
        println!("{number} {}: {records} {never} {fabric} {bounds:?} {:?}", sinks.about, trust.reasons);
        if !run.name.contains("-ud-") {
            let mut widths = widths.lock().expect("widths");
            let own =
                [("capture", records, trust.lost_by_capture_packets), ("fabric", fabric, trust.lost_on_fabric_packets)];
            for (what, lost, bounds) in own.into_iter().filter(|(_, lost, _)| *lost > 0) {
                widths
                    .entry((kind, if KINDS[kind].sinks == 0 { 0 } else { sinks.per_mille }, what))
                    .or_default()
                    .push(width_percent(bounds, lost));
            }
        }
        let failures = sinks.failures(&profile);
        if !failures.is_empty() {
            println!("{number} FAILED: {}; {:?}", failures.join("; "), profile.trust.reasons);
            *failed.lock().expect("failed") += 1;
        }
    });
    let mut medians = BTreeMap::new();
    for ((kind, per_mille, what), own) in widths.into_inner().expect("widths") {
        let (cases, median) = (own.len(), median(own));
        println!("{:?}, {per_mille} per mille, {what}: median width {median:.1} % of {cases} cases", KINDS[kind]);
        medians.insert((kind, per_mille, what), median);
    }
    (failed.into_inner().expect("failed"), medians)
}

#[test]
fn a_few_lossy_sinks() {
    assert_eq!(run(18).0, 0);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn lossy_sinks() {
    let (failed, medians) = run(1000);
    assert_eq!(failed, 0);
    // Where a sink and the fabric lose packets at once, or both sinks do, no capture shows which of
    // them lost a record.
    let is_apart = |losses: Losses| losses.sinks + losses.fabric_per_mille.min(1) as usize == 1;
    let apart: Vec<_> = medians.iter().filter(|((kind, ..), _)| is_apart(KINDS[*kind])).collect();
    assert_eq!(apart.len(), 4);
    assert!(apart.iter().all(|(_, median)| **median <= 20.0), "{apart:?}");
}
