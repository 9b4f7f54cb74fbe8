//! Estimates from sampled captures: constructed ones, whose totals follow from their construction,
//! and samples of recorded runs.

use crate::runs;
use crate::tools::{ibscope, in_parallel, samples_folder};
use crate::wire::{WireBuilder, WireQueuePair};
use ibscope::analysis::GroupBy;
use ibscope::analysis::matrix::Selection;
use ibscope::analysis::timeline::timeline;
use ibscope::model::coverage::SamplingRate;
use ibscope::model::sampling::{Estimate, EstimatedSum, EstimatedValue, Estimator, RateSource};
use ibscope::model::{PairEstimators, Profile, TrafficKind, TrustVerdict};
use ibscope::pipeline::{self, AnalysisOptions};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::link::{TunnelPath, locate_in_tunnels};
use ibscope_parsers::sampled::{SflowDatagram, SflowSample};
use ibscope_samples::Random;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::{self, SamplingScheme, SamplingUnit, subsample};
use ibscope_samples::wrap::{in_psample, in_sflow};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a SEND around its payload: LRH, BTH, ICRC and VCRC.
const OVERHEAD_BYTES: u64 = 8 + 12 + 4 + 2;
const Z: f64 = 1.96;

fn analyzed(path: &Path, sampled: Option<u32>) -> Profile {
    let options = AnalysisOptions { sampled, threads: 1, bin_ns: None, ..AnalysisOptions::default() };
    pipeline::analyze(&[path.to_owned()], &options, &|_| {}).expect("profile")
}

/// Total of a quantity and the sum of its squares.
type Total = (u64, u64);

/// Totals of a pair: packets, messages, wire bytes, payload bytes.
type Totals = [Total; 4];

/// One connection of single-packet SENDs, of which each of `ports` ports samples one in `one_in`.
struct Case {
    totals: Totals,
    queue: WireQueuePair,
}

/// Writes a sampled capture of connections with 30 to 150 expected samples.
fn sampled_capture(wire: &mut WireBuilder, random: &mut Random, one_in: u64, ports: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for connection in 0..8u16 {
        let packets = (30 + random.below(120)) * one_in;
        // The share of large packets, in percent.
        let large_percent = [100, 50, 20][random.below(3) as usize];
        let mut queue = WireQueuePair::new(2 * connection + 1, 2 * connection + 2, 77);
        let mut totals = [(packets, packets), (packets, packets), (0, 0), (0, 0)];
        for number in 0..packets {
            let payload_bytes = if number * 37 % 100 < large_percent { 1024 } else { 64 };
            for (total, bytes) in totals[2..].iter_mut().zip([payload_bytes + OVERHEAD_BYTES, payload_bytes]) {
                *total = (total.0 + bytes, total.1 + bytes * bytes);
            }
            for _ in 0..ports {
                if random.below(one_in) == 0 {
                    queue.psn = number as u32;
                    queue.send(wire, &vec![0; payload_bytes as usize]);
                }
            }
        }
        cases.push(Case { totals, queue });
    }
    cases
}

/// Shown estimates, those whose interval holds the total, and widths relative to the binomial
/// interval of a sampler that knows the totals.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    shown: u64,
    covered: u64,
    width: f64,
}

impl Score {
    fn add(&mut self, value: EstimatedValue, total: Total, one_in: u64, ports: u64) {
        let EstimatedValue { estimate, low, high } = value;
        assert!(low <= estimate && estimate <= high);
        self.shown += 1;
        self.covered += u64::from((low..=high).contains(&total.0));
        let binomial = 2.0 * Z * (total.1 as f64 * (one_in - 1) as f64 / ports as f64).sqrt();
        self.width += (high - low) as f64 / binomial;
    }
}

/// Scores by quantity: packets, messages, wire bytes, payload bytes.
fn scores(captures: u64, one_in: u64, ports: u64, is_given: bool) -> [Score; 4] {
    let mut scores = [Score::default(); 4];
    let rounds: Vec<u64> = (0..captures).collect();
    let results = std::sync::Mutex::new(Vec::new());
    in_parallel(&rounds, |_, round| {
        let mut random = Random::new(one_in * 1_000_000 + ports * 100_000 + round);
        let mut wire = WireBuilder::new();
        let cases = sampled_capture(&mut wire, &mut random, one_in, ports);
        let profile = analyzed(&wire.file(), is_given.then_some(one_in as u32));
        results.lock().expect("lock").push((cases, profile));
    });
    for (cases, profile) in results.into_inner().expect("lock") {
        assert_eq!(profile.trust.verdict, TrustVerdict::Sampled, "{:?}", profile.notes);
        let source = profile.sampling.map(|sampling| sampling.source);
        assert_eq!(source, Some(if is_given { RateSource::Given } else { RateSource::Inferred }));
        for Case { totals, queue } in cases {
            let dst = ibscope_parsers::Endpoint::from_lid(ibscope_parsers::Lid(queue.dst));
            let row = profile.connections.iter().find(|row| row.dst == dst).expect("a connection");
            let pair = PairEstimators::of(row.sampled.as_deref().expect("samples"));
            let estimators: [&Estimator; 4] = [&pair.packets, &pair.messages, &pair.wire_bytes, &pair.payload_bytes];
            for ((score, estimator), total) in scores.iter_mut().zip(estimators).zip(totals) {
                match estimator.result(pair.quality) {
                    Estimate::Known(value) => score.add(value, total, one_in, ports),
                    Estimate::TooFew => assert!(row.traffic.packets < 60, "{}", row.traffic.packets),
                    Estimate::Unknown => panic!("{:?}", profile.notes),
                }
            }
        }
    }
    scores
}

fn assert_good(scores: &[Score; 4], least: u64, case: &str) {
    for (quantity, score) in scores.iter().enumerate() {
        assert!(score.shown >= least, "{case}: {quantity}: {score:?}");
        let covered = score.covered as f64 / score.shown as f64;
        let width = score.width / score.shown as f64;
        assert!(covered >= 0.93, "{case}: {quantity}: {covered} of {}", score.shown);
        assert!(width <= 1.3, "{case}: {quantity}: {width}");
    }
}

#[test]
fn intervals_hold_the_totals_of_constructed_captures() {
    for one_in in [2, 10] {
        assert_good(&scores(30, one_in, 1, true), 200, &format!("1/{one_in}"));
    }
    assert_good(&scores(30, 10, 2, true), 200, "1/10 at two ports");
}

/// At least 2000 cases per quantity and rate.
#[test]
#[ignore = "a minute; the soak runs it"]
fn intervals_hold_the_totals_of_thousands_of_cases() {
    for one_in in [2, 10, 100, 1000] {
        assert_good(&scores(280, one_in, 1, true), 2000, &format!("1/{one_in}"));
        assert_good(&scores(280, one_in, 2, true), 2000, &format!("1/{one_in} at two ports"));
    }
    for one_in in [10, 100] {
        assert_good(&scores(280, one_in, 1, false), 2000, &format!("1/{one_in}, inferred"));
    }
}

/// The estimators of data by sender and receiver.
fn estimators_by_pair(profile: &Profile) -> BTreeMap<(String, String), PairEstimators> {
    let mut pairs: BTreeMap<(String, String), PairEstimators> = BTreeMap::new();
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
        let own = PairEstimators::of(row.sampled.as_deref().expect("samples"));
        pairs.entry((row.src.to_string(), row.dst.to_string())).or_default().merge(&own);
    }
    pairs
}

/// The estimates of packets and payload bytes that a profile has, each with its pair and the true total:
/// that of `truth`, divided by the number of copies of each packet in it.
fn estimates(profile: &Profile, truth: &PairTotals, copies: u64) -> Vec<((String, String), EstimatedValue, u64)> {
    let mut found = Vec::new();
    for (pair, estimators) in estimators_by_pair(profile) {
        let (packets, payload_bytes) = truth[&pair];
        let totals = [packets / copies, payload_bytes / copies];
        for (estimator, total) in [estimators.packets, estimators.payload_bytes].iter().zip(totals) {
            let known = estimator.result(estimators.quality).known();
            found.extend(known.map(|value| (pair.clone(), value, total)));
        }
    }
    found
}

/// Packets and payload bytes by sender and receiver.
type PairTotals = BTreeMap<(String, String), (u64, u64)>;

/// Packets and payload bytes by sender and receiver, of data packets.
fn truth(recording: &Recording) -> PairTotals {
    let mut truth = PairTotals::new();
    for record in &recording.records {
        let mut path = TunnelPath::default();
        let found = locate_in_tunnels(recording.link_type, &record.data, record.original_bytes, &mut path);
        let Ok(ibscope_parsers::link::LinkContent::Infiniband(location)) = found else { continue };
        let packet = ibscope_parsers::ib::Packet::parse_lax(&record.data, &location).expect("a packet");
        if packet.bth.dest_qp.value() > 1 {
            let sums = truth.entry((location.src.to_string(), location.dst.to_string())).or_default();
            *sums = (sums.0 + 1, sums.1 + packet.payload_bytes as u64);
        }
    }
    truth
}

/// Samples of recorded runs, of one port and of a sink with both ports. In total, at most 7 % of
/// the intervals miss; an estimate is never off by a factor of two.
#[test]
fn samples_of_recorded_runs_show_their_totals() {
    let folder = tempfile::tempdir().expect("folder");
    let (mut shown, mut covered) = (0, 0);
    for name in ["scorep-ompi-rc-halo-4x1", "ompi-rc-notrace-mixed-4x1", "ompi-openib-bt.S-4x1"] {
        let run = runs::named(name);
        for (path, copies) in [(run.node(1), 1), (run.sink(), 2)] {
            let whole = Recording::read(&path).expect("a recording");
            let truth = truth(&whole);
            for (one_in, seed) in [(2, 1), (2, 2), (4, 3), (10, 4), (10, 5)] {
                for unit in [SamplingUnit::Record, SamplingUnit::Transmission] {
                    let mut random = Random::new(seed);
                    let choice = (unit, SamplingScheme::Random);
                    let sample = subsample(std::slice::from_ref(&whole), copies, one_in, choice, &mut random);
                    let place = folder.path().join("sample.pcap");
                    sample[0].write(&place).expect("written");
                    let profile = analyzed(&place, Some(one_in as u32));
                    for (pair, value, total) in estimates(&profile, &truth, copies as u64) {
                        shown += 1;
                        covered += u64::from((value.low..=value.high).contains(&total));
                        let case = format!("{name} 1/{one_in} {unit:?} {pair:?}: {total} {value:?}");
                        assert!(value.low < 2 * total && total < 2 * value.high, "{case}");
                    }
                }
            }
        }
    }
    println!("{covered} of {shown}");
    assert!(shown > 500 && covered * 100 >= shown * 93, "{covered} of {shown}");
}

/// The READs of a job have up to 256 responses, and few of their requests are sampled: a random sample of
/// both ports is no contradiction, and its intervals hold the totals.
#[test]
fn random_samples_of_long_reads_have_estimates() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sample.pcap");
    let whole = Recording::read(&samples_folder().join("openib-mixed-4x1.pcap.zst")).expect("a recording");
    let truth = truth(&whole);
    let (mut shown, mut covered) = (0, 0);
    for one_in in [4, 10, 20] {
        for seed in 1..=6 {
            let choice = (SamplingUnit::Record, SamplingScheme::Random);
            let sample =
                subsample(std::slice::from_ref(&whole), 2, one_in, choice, &mut Random::new(100 * one_in + seed));
            sample[0].write(&place).expect("written");
            let profile = analyzed(&place, Some(one_in as u32));
            let known = profile.sampling.expect("sampling").one_in;
            assert_eq!(known, Some(one_in as f64), "1/{one_in}, seed {seed}: {:?}", profile.notes);
            for (pair, value, total) in estimates(&profile, &truth, 2) {
                shown += 1;
                covered += u64::from((value.low..=value.high).contains(&total));
                let case = format!("1/{one_in}, seed {seed} {pair:?}: {total} {value:?}");
                assert!(value.low < 2 * total && total < 2 * value.high, "{case}");
            }
        }
    }
    println!("{covered} of {shown}");
    assert!(shown > 100 && covered * 100 >= shown * 90, "{covered} of {shown}");
}

/// One of ten packets of a run of READs, with the rate given as another one. Sampled READs without their
/// responses are consistent with higher rates.
#[test]
fn a_wrong_rate_of_reads_gives_no_estimates() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sample.pcap");
    for (name, wrong) in [("perf-read-lat", [100, 1000]), ("openib-mixed-4x1", [2, 200])] {
        let path = samples_folder().join(format!("{name}.pcap.zst"));
        let path = if path.exists() { path } else { runs::named(name).sink() };
        let whole = Recording::read(&path).expect("a recording");
        for seed in 1..=3 {
            let choice = (SamplingUnit::Record, SamplingScheme::Random);
            let sample = subsample(std::slice::from_ref(&whole), 2, 10, choice, &mut Random::new(seed));
            sample[0].write(&place).expect("written");
            assert_eq!(
                analyzed(&place, Some(10)).sampling.expect("sampling").one_in,
                Some(10.0),
                "{name}, seed {seed}"
            );
            for one_in in wrong {
                let profile = analyzed(&place, Some(one_in));
                assert_eq!(profile.sampling.expect("sampling").one_in, None, "{name} 1/{one_in}, seed {seed}");
                let note = profile.notes.iter().find(|note| note.starts_with("no estimates: "));
                assert!(
                    note.is_some_and(|note| note.contains(&format!("a sample of 1 in {one_in}"))),
                    "{:?}",
                    profile.notes
                );
            }
        }
    }
}

/// psample with a probability, as the kernel scales it and as Open vSwitch repeats its 16 bits: the
/// estimates are those of the bare sample, whose packets have the probability by construction.
#[test]
fn probabilities_of_psample_give_estimates() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("psample.pcap");
    let (mut shown, mut covered) = (0, 0);
    let whole = Recording::read(&runs::named("ompi-openib-bt.S-4x1").node(1)).expect("a recording");
    let truth = truth(&whole);
    for (per_mille, seed) in [(500, 1), (250, 2), (100, 3), (333, 4), (800, 5)] {
        let mut random = Random::new(seed);
        let sample = partial::keep(&whole, |_, _| random.below(1000) < per_mille);
        let short = (u64::from(u16::MAX) * per_mille / 1000) as u32;
        let scaled = (u64::from(u32::MAX) * per_mille / 1000) as u32;
        for probability in [scaled, short << 16 | short] {
            let mut recording = in_psample(&sample, probability);
            for record in &mut recording.records {
                let mut data = record.data.to_vec();
                // `PSAMPLE_ATTR_SAMPLE_PROBABILITY`, a flag at the end of the netlink message.
                data.extend([4, 0, 16, 0]);
                let bytes = data.len() as u32 - 16;
                data[16..20].copy_from_slice(&bytes.to_le_bytes());
                record.original_bytes = data.len() as u32;
                record.data = data.into();
            }
            recording.write(&place).expect("written");
            let profile = analyzed(&place, None);
            let sampling = profile.sampling.expect("sampling");
            let one_in = sampling.one_in.unwrap_or_else(|| panic!("{per_mille}: {:?}", profile.notes));
            assert!((one_in * per_mille as f64 / 1000.0 - 1.0).abs() < 1e-3, "{per_mille}: {one_in}");
            for (_, value, total) in estimates(&profile, &truth, 1) {
                shown += 1;
                covered += u64::from((value.low..=value.high).contains(&total));
            }
        }
    }
    println!("{covered} of {shown}");
    assert!(shown > 50 && covered * 100 >= shown * 88, "{covered} of {shown}");
}

/// Each packet that `choose` keeps of a connection of `packets` packets.
fn thinned(wire: &mut WireBuilder, packets: u32, mut choose: impl FnMut(u32) -> bool) {
    let mut queue = WireQueuePair::new(1, 2, 77);
    for number in (0..packets).filter(|number| choose(*number)) {
        queue.psn = number;
        queue.send(wire, &[0; 64]);
    }
}

#[test]
fn periodic_samples_are_reported_and_their_intervals_are_wider() {
    let of = |choose: &mut dyn FnMut(u32) -> bool| {
        let mut wire = WireBuilder::new();
        thinned(&mut wire, 5000, choose);
        let profile = analyzed(&wire.file(), Some(10));
        let pair = PairEstimators::of(profile.connections[0].sampled.as_deref().expect("samples"));
        let Estimate::Known(value) = pair.packets.result(pair.quality) else { panic!("{:?}", profile.notes) };
        assert!((value.low..=value.high).contains(&5000), "{value:?}");
        let is_noted = profile.notes.iter().any(|note| note.contains("regular distance"));
        (profile.sampling.expect("sampling").is_periodic, is_noted, value.high - value.low)
    };
    let mut random = Random::new(9);
    let (is_periodic, is_noted, width) = of(&mut |_| random.below(10) == 0);
    assert!(!is_periodic && !is_noted);
    let (is_periodic, is_noted, wider) = of(&mut |number| number % 10 == 3);
    assert!(is_periodic && is_noted && wider > 2 * width);
}

/// Every N-th record of a sink that holds both ports. The copies of a packet are adjacent, so a
/// period may take one port only, or one kind of packet.
#[test]
fn periodic_samples_of_a_sink_are_covered() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sample.pcap");
    let (mut shown, mut covered) = (0, 0);
    for name in ["mpich-rc-ring2", "ompi-rc-delay5ms-ring2", "ompi-openib-bt.S-4x1", "ompi-openib-put-ring2"] {
        let whole = Recording::read(&runs::named(name).sink()).expect("a recording");
        let truth = truth(&whole);
        for one_in in [2, 3, 4, 10] {
            for first in 0..2 {
                let taken = whole.records.iter().skip(first).step_by(one_in).cloned().collect();
                whole.with(taken).write(&place).expect("written");
                let profile = analyzed(&place, Some(one_in as u32));
                for (_, value, total) in estimates(&profile, &truth, 2) {
                    shown += 1;
                    covered += u64::from((value.low..=value.high).contains(&total));
                }
            }
        }
    }
    println!("{covered} of {shown}");
    assert!(shown > 200 && covered * 100 >= shown * 97, "{covered} of {shown}");
}

#[test]
fn a_rate_that_the_psns_contradict_gives_no_estimates() {
    let mut random = Random::new(9);
    let mut wire = WireBuilder::new();
    thinned(&mut wire, 5000, |_| random.below(10) == 0);
    let profile = analyzed(&wire.file(), Some(100));
    assert_eq!(profile.sampling.expect("sampling").one_in, None);
    let pair = PairEstimators::of(profile.connections[0].sampled.as_deref().expect("samples"));
    assert_eq!(pair.packets.result(pair.quality), Estimate::Unknown);
    let note = profile.notes.iter().find(|note| note.starts_with("no estimates: ")).expect("a note");
    // All PSNs from the first to the last sampled one were sent.
    let seen = profile.connections[0].traffic.packets;
    assert!((400..600).contains(&seen) && note.contains("the capture holds 1"), "{note}");
    let expected =
        "a sample of 1 in 100 holds 1.0 % (one port) or 2.0 % (both ports) of them (1 of 1 pair of ports differ)";
    assert!(note.contains(expected), "{note}");
}

/// A capture that was interrupted once misses half of the packets of a connection, but is no sample.
#[test]
fn an_interrupted_capture_is_no_sample() {
    let folder = tempfile::tempdir().expect("folder");
    let runs = ["ompi-rc-delay5ms-ring2", "ompi-openib-eagerrdma-ring2", "nccl-ring-2x1", "mpich-rc-ring2"];
    for run in runs.map(runs::of_any_set) {
        let whole = Recording::read(&run.sink()).expect("capture");
        let records = whole.records.len();
        for (from, until) in [(1, 5), (2, 6), (3, 6), (3, 7)] {
            let lost = records * from / 8..records * until / 8;
            let path = folder.path().join("interrupted.pcap");
            partial::keep(&whole, |record, _| !lost.contains(&record)).write(&path).expect("capture");
            let profile = analyzed(&path, None);
            assert!(profile.sampling.is_none(), "{}: without {lost:?} of {records} records", run.name);
        }
    }
}

#[test]
fn csv_has_the_estimates_last_and_too_few_below_30_samples() {
    let mut random = Random::new(3);
    let mut wire = WireBuilder::new();
    thinned(&mut wire, 5000, |_| random.below(10) == 0);
    let mut queue = WireQueuePair::new(3, 4, 78);
    (0..5).for_each(|_| queue.send(&mut wire, &[0; 64]));
    let path = wire.file();
    let run = |words: &[&str]| {
        let ran = ibscope(
            ["matrix", "--no-mpi", "--sampled", "1/10"].iter().chain(words).map(PathBuf::from).chain([path.clone()]),
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let text = run(&["--format", "csv"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let first = rows[0].iter().position(|name| *name == "messages_estimate").expect("a column");
    assert_eq!(rows[0][first - 2..first], ["coverage", "class"]);
    assert_eq!(rows[0].len(), first + 12);
    assert_eq!(rows[0][first + 9..], ["packets_estimate", "packets_low", "packets_high"]);
    assert_eq!(rows[1][first - 2], "sampled");
    let samples: u64 = rows[1][6].parse().expect("packets");
    assert_eq!(rows[1][first + 9], (samples * 10).to_string());
    assert_eq!((rows[2][first + 9], rows[2][first + 10], rows[2][first + 11]), ("too few", "", ""));
    assert!(run(&[]).contains("too few"));
    let document: serde_json::Value = serde_json::from_str(&run(&["--format", "json"])).expect("JSON");
    assert_eq!(document["cells"][0]["packets_estimate"], samples * 10);
    assert_eq!(document["cells"][1]["packets_estimate"], "too few");
}

/// The intervals of time bins hold the totals of the bins: of a recorded run, at one port and at a
/// sink of both ports.
#[test]
fn intervals_of_time_bins_hold_their_totals() {
    const BIN_NS: i64 = 500_000_000;
    let folder = tempfile::tempdir().expect("folder");
    let (mut shown, mut covered) = (0, 0);
    let run = runs::named("ompi-openib-bt.S-4x1");
    for (path, copies) in [(run.node(1), 1), (run.sink(), 2)] {
        let whole = Recording::read(&path).expect("a recording");
        let bins = |recording: &Recording, sampled: Option<u32>| {
            let place = folder.path().join("bins.pcap");
            recording.write(&place).expect("written");
            let options = AnalysisOptions { sampled, threads: 1, bin_ns: Some(BIN_NS), ..AnalysisOptions::default() };
            let profile = pipeline::analyze(&[place], &options, &|_| {}).expect("profile");
            timeline(&profile, GroupBy::Endpoint, Selection::All, None).expect("a timeline").bins
        };
        let truth: BTreeMap<_, _> =
            bins(&whole, None).into_iter().map(|bin| ((bin.time_ns, bin.src, bin.dst), bin.cell)).collect();
        for (one_in, seed) in [(2, 1), (4, 2), (4, 3), (10, 4)] {
            let choice = (SamplingUnit::Record, SamplingScheme::Random);
            let mut random = Random::new(seed);
            let sample = subsample(std::slice::from_ref(&whole), copies, one_in, choice, &mut random);
            for bin in bins(&sample[0], Some(one_in as u32)) {
                let pair = bin.estimators.expect("estimators");
                let total = &truth[&(bin.time_ns, bin.src, bin.dst)];
                let totals = [total.messages, total.payload_bytes, total.wire_bytes, total.packets];
                for (sum, total) in EstimatedSum::ALL.into_iter().zip(totals) {
                    let Estimate::Known(value) = sum.estimate(&pair) else { continue };
                    shown += 1;
                    covered += u64::from((value.low..=value.high).contains(&total));
                }
            }
        }
    }
    println!("{covered} of {shown}");
    assert!(shown > 500 && covered * 100 >= shown * 93, "{covered} of {shown}");
}

/// What every output of the sampled capture says.
const SENTENCE: &str = "sampled 1 in 10 (given); counts are of the sample, times are biased";

/// Every output of counts says that they are those of the sample, and has the estimates of the
/// totals: 500 samples of one in 10 are 5000 packets.
#[test]
fn every_output_shows_the_sample_and_its_estimates() {
    let mut random = Random::new(3);
    let mut wire = WireBuilder::new();
    thinned(&mut wire, 5000, |_| random.below(10) == 0);
    let path = wire.file();
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("profile.ibp");
    let run = |words: &[&str]| {
        let ran = ibscope(words.iter().map(PathBuf::from).chain([place.clone()]));
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        (ran.stdout, ran.stderr)
    };
    let (analyzed, _) = {
        let ran = ibscope(
            ["analyze", "--sampled", "1/10", "--bin", "10s", "-o"]
                .iter()
                .map(PathBuf::from)
                .chain([place.clone(), path.clone()]),
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        (ran.stdout, ran.stderr)
    };
    assert!(analyzed.contains(SENTENCE), "{analyzed}");
    let samples: u64 = (analyzed.split("traffic").nth(1).expect("traffic").split_whitespace().next())
        .and_then(|count| count.parse().ok())
        .expect("a count");
    let total = (samples * 10).to_string();
    for command in ["summary", "timeline", "rates", "matrix"] {
        let (text, notes) = run(&[command]);
        assert!(text.contains(SENTENCE), "{command}: {text}");
        assert!(command == "summary" || notes.contains(SENTENCE), "{command}: {notes}");
        let (csv, _) = run(&[command, "--format", "csv"]);
        let estimate = if command == "summary" {
            csv.lines().find_map(|line| line.strip_prefix("packets_estimate,")).map(str::to_owned)
        } else {
            let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
            assert_eq!(rows[0][rows[0].len() - 3..], ["packets_estimate", "packets_low", "packets_high"]);
            Some(rows[1][rows[0].len() - 3].to_owned())
        };
        assert_eq!(estimate.as_ref(), Some(&total), "{command}: {csv}");
        let (json, _) = run(&[command, "--format", "json"]);
        let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(document["sampled"], SENTENCE, "{command}");
        if command != "summary" {
            let drawing = folder.path().join("figure.svg");
            run(&[command, "--svg", drawing.to_str().expect("path")]);
            assert!(std::fs::read_to_string(&drawing).expect("figure").contains(SENTENCE), "{command}");
        }
    }
    let (peaks, _) = run(&["rates", "--view", "peaks", "--format", "csv"]);
    assert!(
        peaks.lines().any(|line| line.starts_with(",,packets,") && line.contains(&format!(",{total},"))),
        "{peaks}"
    );
    // MPI bytes have no estimate, and the outputs say why.
    let (by_rank, _) = run(&["matrix", "--by", "endpoint", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&by_rank).expect("JSON");
    assert!(document["mpi_bytes_estimate"].as_str().expect("a reason").starts_with("unknown, because"));
    let page = folder.path().join("page.html");
    run(&["report", "-o", page.to_str().expect("path")]);
    let page = std::fs::read_to_string(&page).expect("page");
    assert!(page.contains(SENTENCE) && page.contains(&format!("[{total},")), "the page");
}

/// A run without retransmissions, at a sink that has each packet twice: a sample has some packets
/// twice and misses others, and `health` must not call these retransmitted or lost.
#[test]
fn health_of_a_sample_has_no_retransmissions_and_no_losses() {
    let whole = Recording::read(&runs::named("ompi-rc-notrace-mixed-4x1").sink()).expect("a recording");
    let choice = (SamplingUnit::Record, SamplingScheme::Random);
    let sample = subsample(&[whole], 1, 2, choice, &mut Random::new(5)).remove(0);
    let file = tempfile::NamedTempFile::new().expect("file");
    sample.write(file.path()).expect("written");
    let run = |view: &[&str]| {
        let words = ["health"].iter().chain(view).chain(&["--sampled", "1/2"]).map(PathBuf::from);
        ibscope(words.chain([file.path().to_owned()]))
    };
    let text = run(&[]).stdout;
    assert!(
        text.contains("retransmitted unknown, because") && text.contains("capture loss  unknown, because"),
        "{text}"
    );
    assert!(text.contains("no connection has findings"), "{text}");
    for (view, known) in [(&[][..], "request_packets"), (&["--by", "link"], "naks")] {
        let csv = run(&[view, &["--format", "csv"]].concat()).stdout;
        let rows = crate::tools::csv_rows(&csv);
        assert!(!rows.is_empty());
        for row in rows {
            assert_ne!(row[known], "", "{view:?}");
            let unknown = ["retransmitted_packets", "retransmitted_request_packets", "lost_requests", "lost_packets"];
            for name in unknown.iter().filter(|name| row.contains_key(**name)) {
                assert_eq!(row[*name], "", "{view:?} {name}");
            }
        }
    }
    let json: serde_json::Value = serde_json::from_str(&run(&["--format", "json"]).stdout).expect("JSON");
    assert!(json["total"]["lost_requests"].is_null() && json["total"]["request_packets"].is_u64());
    let over_time = run(&["--by", "time"]);
    assert!(over_time.code != 0 && over_time.stderr.contains("unknown, because a sample"), "{}", over_time.stderr);
}

/// One of four packets of a recorded run, at random.
fn sampled_run() -> Recording {
    let whole = Recording::read(&runs::named("scorep-ompi-rc-halo-4x1").node(1)).expect("a recording");
    let choice = (SamplingUnit::Record, SamplingScheme::Random);
    subsample(&[whole], 1, 4, choice, &mut Random::new(7)).remove(0)
}

/// A run in sFlow datagrams and in psample messages has the packets of the bare run, and the
/// estimates of the bare sample with the rate given.
#[test]
fn samples_state_their_rate() {
    let folder = tempfile::tempdir().expect("folder");
    let sample = sampled_run();
    let place = |name: &str| folder.path().join(name);
    sample.write(&place("bare.pcap")).expect("written");
    let bare = analyzed(&place("bare.pcap"), Some(4));
    for (name, kind, recording) in
        [("sflow.pcap", "sFlow", in_sflow(&sample, 4, 7)), ("psample.pcap", "psample", in_psample(&sample, 4))]
    {
        recording.write(&place(name)).expect("written");
        let found = analyzed(&place(name), None);
        let coverage = &found.coverage;
        assert_eq!(coverage.encapsulated, BTreeMap::from([(kind.to_owned(), coverage.infiniband)]));
        assert_eq!((coverage.infiniband, coverage.records), (bare.coverage.infiniband, bare.coverage.records));
        assert_eq!(coverage.sampling_rates, BTreeMap::from([(SamplingRate::new(4.0), coverage.infiniband)]));
        assert_eq!((coverage.failed(), coverage.lost_mirrored_frames()), (0, 0), "{:?}", coverage.undecoded);
        let sampling = found.sampling.expect("sampling");
        assert_eq!((sampling.source, sampling.one_in), (RateSource::Stated, Some(4.0)), "{:?}", found.notes);
        assert_eq!(found.connections.len(), bare.connections.len());
        for (own, other) in found.connections.iter().zip(&bare.connections) {
            assert_eq!((own.traffic, &own.sampled, own.key()), (other.traffic, &other.sampled, other.key()));
        }
        assert_eq!(found.ranks, bare.ranks);
    }
}

/// Samples that were lost on the way are counted, and lower the rate.
#[test]
fn lost_samples_are_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let sample = sampled_run();
    let mut datagrams = in_sflow(&sample, 4, 1);
    datagrams.records.remove(20);
    datagrams.records.remove(30);
    let place = folder.path().join("sflow.pcap");
    datagrams.write(&place).expect("written");
    let found = analyzed(&place, None);
    assert_eq!(found.coverage.lost_mirrored_frames(), 2);
    let one_in = found.sampling.and_then(|sampling| sampling.one_in).expect("a rate");
    // Samples of any frames were lost.
    let samples = sample.records.len() as f64 - 2.0;
    assert!((one_in - 4.0 * (1.0 + 2.0 / samples)).abs() < 1e-9, "{one_in}");
}

/// Datagrams that arrive twice add nothing: next to each other, or all of them at the end of the file,
/// which is longer than a batch.
#[test]
fn datagrams_that_arrive_twice_count_once() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sflow.pcap");
    let whole = Recording::read(&runs::named("ompi-openib-bt.S-4x1").node(1)).expect("a recording");
    let choice = (SamplingUnit::Record, SamplingScheme::Random);
    let sample = subsample(std::slice::from_ref(&whole), 1, 4, choice, &mut Random::new(7)).remove(0);
    for recording in [&sample, &whole] {
        let once = in_sflow(recording, 4, 5);
        let of = |records: Vec<_>, threads: usize| {
            once.with(records).write(&place).expect("written");
            let options = AnalysisOptions { threads, bin_ns: None, ..AnalysisOptions::default() };
            pipeline::analyze(std::slice::from_ref(&place), &options, &|_| {}).expect("profile")
        };
        let expected = of(once.records.clone(), 1);
        assert_eq!(expected.coverage.repeated_samples, 0);
        for (percent, is_late) in [(5, false), (20, false), (100, true)] {
            let mut random = Random::new(percent);
            let (mut records, mut late, mut samples) = (Vec::new(), Vec::new(), 0);
            for (record, frames) in once.records.iter().zip(recording.records.chunks(5)) {
                records.push(record.clone());
                if random.below(100) < percent {
                    samples += frames.len() as u64;
                    let place = if is_late { &mut late } else { &mut records };
                    place.push(record.clone());
                }
            }
            records.append(&mut late);
            for threads in [1, 3] {
                let found = of(records.clone(), threads);
                assert_eq!(found.coverage.repeated_samples, samples);
                assert!(found.notes.iter().any(|note| note.contains("a second time")), "{:?}", found.notes);
                let counts = |profile: &Profile| {
                    let coverage = &profile.coverage;
                    let counts = (coverage.records, coverage.infiniband, coverage.other(), coverage.failed());
                    (counts, coverage.sampler_steps, coverage.sample_sources.clone(), profile.sampling)
                };
                assert_eq!(counts(&found), counts(&expected));
                assert_eq!(found.connections.len(), expected.connections.len());
                for (own, other) in found.connections.iter().zip(&expected.connections) {
                    assert_eq!((own.traffic, &own.sampled, own.key()), (other.traffic, &other.sampled, other.key()));
                }
            }
        }
    }
}

/// Sender and receiver of the packet of a record.
fn ends(recording: &Recording, data: &[u8], original_bytes: u32) -> Option<(String, String)> {
    match locate_in_tunnels(recording.link_type, data, original_bytes, &mut TunnelPath::default()) {
        Ok(ibscope_parsers::link::LinkContent::Infiniband(found)) => {
            Some((found.src.to_string(), found.dst.to_string()))
        }
        _ => None,
    }
}

/// The datagrams of several agents, in the order of time. Each agent has an address of its own.
fn of_agents(agents: &[Recording]) -> Recording {
    let mut records = Vec::new();
    for (agent, recording) in agents.iter().enumerate() {
        for record in &recording.records {
            let mut record = record.clone();
            let mut data = record.data.to_vec();
            // The headers of Ethernet, IP and UDP, and the version and the type of address.
            data[42 + 11] = agent as u8;
            record.data = data.into();
            records.push(record);
        }
    }
    records.sort_by_key(|record| record.time_ns);
    agents[0].with(records)
}

/// Three switches on the path of each packet sample it, or of the packets of one pair only: estimates
/// count each packet once, and a pair does not take over the number of points of other pairs.
#[test]
fn samples_at_three_points_show_the_totals() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sflow.pcap");
    let whole = Recording::read(&runs::named("ompi-openib-bt.S-4x1").node(1)).expect("a recording");
    let truth = truth(&whole);
    let (one, other) = truth.keys().next().expect("a pair").clone();
    let is_of_pair =
        |pair: &(String, String)| *pair == (one.clone(), other.clone()) || *pair == (other.clone(), one.clone());
    let (mut shown, mut covered, mut at_three) = (0, 0, 0);
    for (one_in, seed) in [(10, 1), (10, 2), (20, 3), (20, 4), (40, 5), (40, 6), (40, 7)] {
        for has_all in [true, false] {
            let agent = |number: u64| {
                let mut random = Random::new(3 * seed + number);
                let records = whole.records.iter().filter(|record| {
                    let pair = ends(&whole, &record.data, record.original_bytes);
                    let passes = has_all || number == 0 || pair.is_some_and(|pair| is_of_pair(&pair));
                    random.below(one_in) == 0 && passes
                });
                in_sflow(&whole.with(records.cloned().collect()), one_in as u32, 1)
            };
            of_agents(&(0..3).map(agent).collect::<Vec<_>>()).write(&place).expect("written");
            let profile = analyzed(&place, None);
            let case = format!("1/{one_in} {has_all}: {:?}", profile.notes);
            assert_eq!(profile.sampling.and_then(|sampling| sampling.one_in), Some(one_in as f64), "{case}");
            for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
                let weight = row.sampled.as_deref().and_then(|sampled| sampled.weight);
                let is_three = weight.is_some_and(|weight| weight.points.most() == 3);
                at_three += u64::from(is_three);
                // The others have one point.
                let pair = (row.src.to_string(), row.dst.to_string());
                assert!(has_all || !is_three || is_of_pair(&pair), "{case}");
            }
            for (pair, value, total) in estimates(&profile, &truth, 1) {
                shown += 1;
                covered += u64::from((value.low..=value.high).contains(&total));
                assert!(value.low < 2 * total && total < 2 * value.high, "{case} {pair:?}: {total} {value:?}");
            }
        }
    }
    println!("{covered} of {shown}, {at_three}");
    assert!(shown > 60 && covered * 100 >= shown * 85, "{covered} of {shown}");
    assert!(at_three > 20, "{at_three}");
}

/// The run in datagrams of one sample each, with these counters by place: number, pool and drops of the
/// sample, and uptime of the agent.
fn with_counters(sample: &Recording, counters: impl Fn(usize) -> [u32; 4]) -> Recording {
    let mut datagrams = in_sflow(sample, 4, 1);
    for (place, record) in datagrams.records.iter_mut().enumerate() {
        let [sequence, pool, drops, uptime_ms] = counters(place);
        let mut data = record.data.to_vec();
        // The sample follows the headers of Ethernet, IP, UDP and the datagram; counters may precede it.
        let at = 42 + 28 + if data[73] == 2 { 20 } else { 0 };
        let pool_at = at + 8 + if data[at + 3] == 3 { 16 } else { 12 };
        for (at, number) in [(42 + 20, uptime_ms), (at + 8, sequence), (pool_at, pool), (pool_at + 4, drops)] {
            data[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        record.data = data.into();
    }
    datagrams
}

/// Counters of an agent that start again, at 2^32 or because the agent or a source restarted, invent no
/// losses.
#[test]
fn counters_that_start_again_are_no_losses() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sflow.pcap");
    let sample = sampled_run();
    let count = sample.records.len() as u32;
    let half = count / 2;
    let of = |counters: &dyn Fn(u32) -> [u32; 3]| {
        let datagrams = with_counters(&sample, |place| {
            let [sequence, drops, uptime_ms] = counters(place as u32);
            [sequence, sequence.wrapping_mul(4), drops, uptime_ms]
        });
        datagrams.write(&place).expect("written");
        let found = analyzed(&place, None);
        let one_in = found.sampling.and_then(|sampling| sampling.one_in).expect("a rate");
        (found.coverage.lost_mirrored_frames(), one_in)
    };
    let uptime_ms = |place: u32| 5_000_000 + place;
    let is_before = |place: u32| place < half;
    // Drops: constant, at 2^32, and from 1000 to 0.
    assert_eq!(of(&|place| [place, 1000, uptime_ms(place)]), (0, 4.0));
    let wraps = of(&|place| [place, (u32::MAX - 9).wrapping_add(place / 10), uptime_ms(place)]);
    let dropped = (count - 1) / 10;
    assert_eq!(wraps.0, u64::from(dropped));
    assert!((wraps.1 - 4.0 * (1.0 + f64::from(dropped) / f64::from(count))).abs() < 1e-9, "{wraps:?}");
    assert_eq!(of(&|place| [place, if is_before(place) { 1000 } else { 0 }, uptime_ms(place)]), (0, 4.0));
    // Numbers: at 2^32, of the agent, and of the source alone.
    assert_eq!(of(&|place| [(u32::MAX - 9).wrapping_add(place), 0, uptime_ms(place)]), (0, 4.0));
    let restart = |place: u32| if is_before(place) { 3000 + place } else { 1 + place - half };
    assert_eq!(of(&|place| [restart(place), 7, if is_before(place) { uptime_ms(place) } else { place }]), (0, 4.0));
    assert_eq!(of(&|place| [restart(place), 7, uptime_ms(place)]), (0, 4.0));
}

/// An agent drops a fifth or half of its samples, and reports this: its pools show the rate of the samples
/// and the dropped ones, and the estimates are those of the real rate.
#[test]
fn samples_that_an_agent_drops_lower_the_rate() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("sflow.pcap");
    let whole = Recording::read(&runs::named("ompi-openib-bt.S-4x1").node(1)).expect("a recording");
    let truth = truth(&whole);
    let (mut shown, mut covered) = (0, 0);
    for (drop_percent, seed) in [(20, 1), (20, 2), (50, 3), (50, 4)] {
        let mut random = Random::new(seed);
        let (mut taken, mut counters, mut drops) = (Vec::new(), Vec::new(), 0);
        for (number, record) in (1..).zip(&whole.records).filter(|_| random.below(4) == 0).collect::<Vec<_>>() {
            if random.below(100) < drop_percent {
                drops += 1;
                continue;
            }
            taken.push(record.clone());
            counters.push([taken.len() as u32, number, drops, 1000]);
        }
        with_counters(&whole.with(taken), |place| counters[place]).write(&place).expect("written");
        let profile = analyzed(&place, None);
        let dropped = f64::from(counters.last().expect("samples")[2] - counters[0][2]);
        let one_in = profile.sampling.and_then(|sampling| sampling.one_in).expect("a rate");
        let expected = 4.0 * (1.0 + dropped / counters.len() as f64);
        assert!((one_in - expected).abs() < 1e-9, "{one_in} {expected}");
        for (_, value, total) in estimates(&profile, &truth, 1) {
            shown += 1;
            covered += u64::from((value.low..=value.high).contains(&total));
        }
    }
    assert!(shown > 30 && covered * 100 >= shown * 85, "{covered} of {shown}");
}

/// The pool of an sFlow sample counts the packets that the agent could have sampled: it shows the
/// real rate, and samples at a regular distance. `distance` is from a sample to the next one.
#[test]
fn pools_show_the_real_rate_and_regular_samplers() {
    let folder = tempfile::tempdir().expect("folder");
    let sample = sampled_run();
    let place = folder.path().join("sflow.pcap");
    let of = |distance: &mut dyn FnMut() -> u32| {
        let mut datagrams = in_sflow(&sample, 4, 1);
        let mut pool = 1_u32 << 31;
        for record in &mut datagrams.records {
            let mut data = record.data.to_vec();
            // The sample follows the headers of Ethernet, IP, UDP and the datagram, and its format and
            // length; counters may precede it.
            let mut at = 42 + 28;
            if data[at..at + 4] == [0, 0, 0, 2] {
                at += 20;
            }
            let is_expanded = data[at + 3] == 3;
            at += 8 + if is_expanded { 16 } else { 12 };
            // The rate precedes the pool.
            assert_eq!(data[at - 4..at], 4u32.to_be_bytes());
            pool = pool.wrapping_add(distance());
            data[at..at + 4].copy_from_slice(&pool.to_be_bytes());
            record.data = data.into();
        }
        datagrams.write(&place).expect("written");
        analyzed(&place, None)
    };
    let mut random = Random::new(5);
    let geometric =
        |random: &mut Random, one_in: u64| (1..u32::MAX).find(|_| random.below(one_in) == 0).expect("a number");
    let right = of(&mut || geometric(&mut random, 4));
    let sampling = right.sampling.expect("sampling");
    assert_eq!((sampling.one_in, sampling.is_periodic), (Some(4.0), false), "{:?}", right.notes);
    assert!(right.coverage.sampler_steps.steps > 500, "{:?}", right.coverage.sampler_steps);
    // An agent that multiplies its samples by the rate shows nothing.
    assert!(!of(&mut || 4).sampling.expect("sampling").is_periodic);
    let mut turn = 0;
    let regular = of(&mut || {
        turn += 1;
        if turn % 20 == 0 { 5 } else { 4 }
    });
    assert!(regular.sampling.expect("sampling").is_periodic);
    let wrong = of(&mut || geometric(&mut random, 7));
    assert_eq!(wrong.sampling.expect("sampling").one_in, None);
    let note = wrong.notes.iter().find(|note| note.contains("their sample pools grow by"));
    assert!(note.is_some_and(|note| note.contains("rate 1/4")), "{:?}", wrong.notes);
}

/// A sample that cannot be read counts as not decoded, in an analysis and in `inspect`.
#[test]
fn unreadable_samples_are_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let mut sample = sampled_run();
    sample.records.retain(|record| runs::is_roce(&record.data));
    sample.records.truncate(10);
    let mut datagrams = in_sflow(&sample, 4, 1);
    // Truncated inside the header of the sample, and a sample of an unknown format.
    for (number, record) in datagrams.records.iter_mut().enumerate().take(2) {
        let mut data = record.data.to_vec();
        let at = 42 + 28 + if data[73] == 2 { 20 } else { 0 };
        if number == 0 {
            data.truncate(at + 20);
        } else {
            data[at + 3] = 9;
        }
        record.data = data.into();
    }
    let place = folder.path().join("sflow.pcap");
    datagrams.write(&place).expect("written");
    let analyzed = analyzed(&place, None);
    assert_eq!((analyzed.coverage.failed(), analyzed.coverage.infiniband), (2, 8), "{:?}", analyzed.coverage);
    let ran = ibscope([Path::new("inspect"), Path::new("--min-coverage"), Path::new("100"), &place]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
}

/// The sFlow captures of the tcpdump project: the inner frames, their lengths and rates are those
/// that tshark shows.
#[test]
fn recorded_sflow_holds_the_frames_that_tshark_shows() {
    const FIELDS: [&str; 6] = [
        "sflow_245.sampletype",
        "sflow.flow_sample.sampling_rate",
        "sflow_245.header.frame_length",
        "sflow_245.header",
        "ip.src",
        "ip.dst",
    ];
    let mut frames = 0;
    for name in ["sflow-print-v6.pcap", "sflow_expanded.pcap"] {
        let path = samples_folder().join("encap").join(name);
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&path).args(["-T", "fields", "-E", "occurrence=a"]);
        FIELDS.iter().for_each(|field| _ = command.args(["-e", field]));
        let output = command.output().expect("tshark");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("text");
        let records = Recording::read(&path).expect("a recording").records;
        assert_eq!(text.lines().count(), records.len());
        for (record, shown) in records.iter().zip(text.lines()) {
            let shown: Vec<Vec<&str>> =
                shown.split('\t').map(|values| values.split(',').filter(|value| !value.is_empty()).collect()).collect();
            let mut outer = TunnelPath::default();
            let _ = locate_in_tunnels(LinkType::ETHERNET, &record.data, record.original_bytes, &mut outer);
            let (start, end) = outer.samples().expect("a datagram");
            let samples: Vec<SflowSample<'_>> = SflowDatagram::parse(&record.data[start..end])
                .expect("a header")
                .map(|sample| sample.expect("a sample"))
                .collect();
            // Types 1 and 3 are flow samples, 2 and 4 counters.
            let is_flow: Vec<bool> = shown[0].iter().map(|kind| matches!(*kind, "1" | "3")).collect();
            assert_eq!(
                samples.iter().map(|sample| matches!(sample, SflowSample::Frame(_))).collect::<Vec<_>>(),
                is_flow
            );
            let found: Vec<_> = samples
                .iter()
                .filter_map(|sample| if let SflowSample::Frame(frame) = sample { Some(frame) } else { None })
                .collect();
            frames += found.len();
            for (at, frame) in found.iter().enumerate() {
                let stripped = 4;
                assert_eq!(shown[2][at].parse(), Ok(frame.original_bytes + stripped), "{name}");
                assert_eq!(shown[1][at].parse(), Ok(frame.header.one_in), "{name}");
                let ip = frame.data.windows(3).position(|bytes| bytes == [8, 0, 0x45]).expect("IPv4") + 2;
                let address = |at: usize| {
                    frame.data[ip + at..ip + at + 4].iter().map(u8::to_string).collect::<Vec<_>>().join(".")
                };
                assert!(shown[4].contains(&address(12).as_str()) && shown[5].contains(&address(16).as_str()), "{name}");
            }
        }
    }
    assert!(frames > 10, "{frames}");
}
