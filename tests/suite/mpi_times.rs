//! Latencies of MPI messages of the recorded runs: the phases of rendezvous, and messages from port
//! to port.

use crate::latency::by_pair;
use crate::recorded::{is_mpi, profile};
use crate::runs;
use ibscope::model::{Histogram, Interval, Profile};
use ibscope::pipeline::{AnalysisMeasures, AnalysisOptions, messages};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const REQUEST: &str = "rendezvous_request";
const DATA: &str = "rendezvous_data";
const COMPLETION: &str = "rendezvous_completion";

/// How to recognize the packets of a rendezvous with little knowledge of the library.
struct RendezvousSignature {
    run: &'static str,
    verb: &'static str,
    /// True if the payload of a SEND is a ready-to-send message; true if it is a completion.
    is_ready_to_send: fn(&[u8]) -> bool,
    is_completion: fn(&[u8]) -> bool,
    /// BTH opcodes of the data.
    data: std::ops::RangeInclusive<u8>,
    /// The sender sends the completion; otherwise the receiver.
    by_sender: bool,
}

const fn ob1(payload: &[u8], kind: u8) -> bool {
    matches!(payload, [tag, _, _, _, other, ..] if *tag == kind && *other == kind)
}

const fn ucx(payload: &[u8], id: u8) -> bool {
    matches!(payload, [first, ..] if *first & 0x1F == id)
}

/// Opcodes of READ responses, and of WRITEs without immediate data.
const RESPONSES: std::ops::RangeInclusive<u8> = 0x0D..=0x10;
const WRITES: std::ops::RangeInclusive<u8> = 0x06..=0x0A;

const UCX_READ: RendezvousSignature = RendezvousSignature {
    run: "ompi-rc-ring2",
    verb: "READ",
    is_ready_to_send: |payload| ucx(payload, 9),
    is_completion: |payload| ucx(payload, 10),
    data: RESPONSES,
    by_sender: false,
};

const SIGNATURES: [RendezvousSignature; 4] = [
    RendezvousSignature {
        run: "ompi-openib-ring2",
        verb: "READ",
        is_ready_to_send: |payload| ob1(payload, 0x43),
        is_completion: |payload| ob1(payload, 0x49),
        data: RESPONSES,
        by_sender: false,
    },
    RendezvousSignature {
        run: "ompi-openib-put-ring2",
        verb: "WRITE",
        is_ready_to_send: |payload| ob1(payload, 0x42),
        is_completion: |payload| ob1(payload, 0x49),
        data: WRITES,
        by_sender: true,
    },
    UCX_READ,
    RendezvousSignature { run: "ompi-rc-delay5ms-ring2", ..UCX_READ },
];

/// A rendezvous in a simple computation at one port: the times of its ready-to-send message, its
/// first and last data, and its completion in nanoseconds.
#[derive(Clone, Copy, Default)]
struct RendezvousPhases {
    asked: u64,
    data: Option<(u64, u64)>,
    done: Option<u64>,
}

/// A ring sends one message at a time per direction: the packets between two ready-to-send messages
/// belong to the first.
fn rendezvous_phases(looks: &RendezvousSignature, node: u8) -> BTreeMap<u8, Vec<RendezvousPhases>> {
    let mut found: BTreeMap<u8, Vec<RendezvousPhases>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let records = runs::timed_records(&runs::named(looks.run).node(node));
    for (time_ns, frame) in records.iter().filter(|(_, frame)| runs::is_roce(frame)) {
        // Ethernet 14, IPv4 20, UDP 8, BTH 12: opcode @0, destination queue pair @5, PSN @9; the
        // payload of a SEND follows.
        let (src, dst, bth) = (frame[29], frame[33], &frame[42..]);
        let (opcode, payload) = (bth[0], &bth[12..bth.len() - 4]);
        // Requests and responses may share a PSN; a retransmission counts once.
        if !seen.insert((src, bth[5..8].to_vec(), RESPONSES.contains(&opcode), bth[9..12].to_vec())) {
            continue;
        }
        let is_send = [0x00, 0x04].contains(&opcode);
        if is_send && (looks.is_ready_to_send)(payload) {
            found.entry(src).or_default().push(RendezvousPhases { asked: *time_ns, ..RendezvousPhases::default() });
        } else if looks.data.contains(&opcode) {
            let Some(last) = found.entry(src).or_default().last_mut() else { continue };
            assert_eq!(last.done, None, "{}", looks.run);
            last.data = Some((last.data.map_or(*time_ns, |(first, _)| first), *time_ns));
        } else if is_send && (looks.is_completion)(payload) {
            let sender = if looks.by_sender { src } else { dst };
            let last = found.entry(sender).or_default().last_mut().expect("a ready-to-send message before");
            assert_eq!(last.done.replace(*time_ns), None, "{}", looks.run);
        }
    }
    found
}

/// Phases at each of the two ports, message by message, compared with a simple computation; they
/// add up to the time from ready-to-send to completion.
#[test]
fn phases_match_a_simple_computation() {
    for looks in &SIGNATURES {
        for node in [1, 2] {
            let found = by_pair(&profile(&[runs::named(looks.run).node(node)]));
            let slow = rendezvous_phases(looks, node);
            for (src, dst) in [(1u8, 2u8), (2, 1)] {
                let phases = &slow[&src];
                assert!(phases.len() >= 5, "{}", looks.run);
                let of = |interval: &'static str| &found[&(interval, looks.verb, src, dst)];
                let data = |phases: &RendezvousPhases| phases.data.expect("data");
                let done = |phases: &RendezvousPhases| phases.done.expect("done");
                let compare = |interval: &'static str, mut expected: Vec<u64>| {
                    let place = format!("{} at node {node}: {interval} {src} to {dst}", looks.run);
                    expected.sort_unstable();
                    let times = of(interval);
                    assert_eq!(times.samples(), expected.len() as u64, "{place}");
                    assert_eq!((times.min(), times.max()), (expected[0], expected[expected.len() - 1]), "{place}");
                    let mean = expected.iter().sum::<u64>() as f64 / expected.len() as f64;
                    assert!((times.mean() - mean).abs() < 1.0, "{place}: {}, not {mean}", times.mean());
                };
                compare(REQUEST, phases.iter().map(|phases| data(phases).0 - phases.asked).collect());
                compare(DATA, phases.iter().map(|phases| data(phases).1 - data(phases).0).collect());
                compare(COMPLETION, phases.iter().map(|phases| done(phases) - data(phases).1).collect());
                let sum: f64 = [REQUEST, DATA, COMPLETION].map(|interval| of(interval).mean()).iter().sum();
                let whole: u64 = phases.iter().map(|phases| done(phases) - phases.asked).sum();
                assert!((sum - whole as f64 / phases.len() as f64).abs() < 1.0, "{} at node {node}", looks.run);
            }
        }
    }
}

/// Every frame leaves its node 5 ms late. The phase from ready-to-send to data contains two frames,
/// the READ and its response; the phase from data to completion contains one. The delay is before
/// the ports, so a message of one packet takes no longer from port to port.
#[test]
fn added_delay_is_in_the_phases_that_wait_for_a_response() {
    let [slow, fast] =
        ["ompi-rc-delay5ms-ring2", "ompi-rc-ring2"].map(|name| by_pair(&profile(&[runs::named(name).sink()])));
    for (src, dst) in [(1, 2), (2, 1)] {
        for (interval, least_ns) in [(REQUEST, 10_000_000), (COMPLETION, 5_000_000), ("mpi_message", 10_000_000)] {
            let min = |times: &BTreeMap<_, Histogram>| times[&(interval, "READ", src, dst)].min();
            let (slow, fast) = (min(&slow), min(&fast));
            assert!(slow >= least_ns && fast < least_ns, "{interval} {src} to {dst}: {slow} and {fast} ns");
        }
        // Within a tenth of the two delays, and a millisecond: the machines are emulated.
        let [slow, fast] = [&slow, &fast].map(|times| times[&(REQUEST, "READ", src, dst)].min());
        assert!((slow - fast).abs_diff(10_000_000) < 1_000_000, "{src} to {dst}: {slow} and {fast} ns");
    }
    let [slow, fast] = [&slow, &fast].map(|times| times[&("mpi_message", "SEND", 1, 2)].quantile(0.5));
    assert!(slow < 1_000_000 && fast < 1_000_000, "{slow} and {fast} ns");
}

/// Samples of an interval, of all verbs, by pair of LIDs or addresses.
fn samples(profile: &Profile, interval: Interval) -> BTreeMap<(String, String), u64> {
    let mut samples: BTreeMap<(String, String), u64> = BTreeMap::new();
    for row in profile.latencies.iter().filter(|row| row.timing.interval == interval) {
        let connection = &profile.connections[row.connection as usize];
        *samples.entry((connection.src.to_string(), connection.dst.to_string())).or_default() +=
            row.histogram.samples();
    }
    samples
}

/// MPI messages by pair: all, and the rendezvous among them whose data are separate.
fn counted(paths: &[PathBuf]) -> [BTreeMap<(String, String), u64>; 2] {
    let measures = AnalysisMeasures { icrc: false, times: false, ..AnalysisMeasures::default() };
    let options = AnalysisOptions { bin_ns: None, measures, ..AnalysisOptions::default() };
    let stream = messages(paths, &options, false, &|_| {}).expect("messages");
    let connections = stream.profile().connections.clone();
    let mut counted = [BTreeMap::new(), BTreeMap::new()];
    for row in stream.map(|row| row.expect("row")) {
        let connection = &connections[row.connection as usize];
        let pair = (connection.src.to_string(), connection.dst.to_string());
        let is_rendezvous = row.protocol() == Some("rendezvous") && row.raw.packets > 1;
        *counted[0].entry(pair.clone()).or_default() += 1;
        if is_rendezvous {
            *counted[1].entry(pair).or_default() += 1;
        }
    }
    counted
}

/// One latency for each MPI message, at the sink and from all ports together; the phases of each
/// rendezvous; and no port-to-port time from one port alone. Other tests compare the point-to-point
/// messages and sizes with the applications.
#[test]
fn every_message_has_its_latencies() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| is_mpi(run)) {
        for paths in [vec![run.sink()], run.every_node()] {
            let place = format!("{}: {paths:?}", run.name);
            let profile = profile(&paths);
            let [all, rendezvous] = counted(&paths);
            assert_eq!(samples(&profile, Interval::MpiMessage), all, "{place}");
            assert_eq!(samples(&profile, Interval::RendezvousRequest), rendezvous, "{place}");
            assert_eq!(samples(&profile, Interval::RendezvousData), rendezvous, "{place}");
            // UCX over UD sends the data as messages of its own, without a completion.
            let done = if run.name.contains("-ud-") { BTreeMap::new() } else { rendezvous };
            assert_eq!(samples(&profile, Interval::RendezvousCompletion), done, "{place}");
            checked += 1;
        }
        let alone = profile(&[run.node(1)]);
        assert_eq!(samples(&alone, Interval::MpiMessage), BTreeMap::new(), "{}", run.name);
    }
    assert_eq!(checked, 2 * 25, "ways of 25 MPI runs");
    for run in runs::all().iter().filter(|run| !is_mpi(run)) {
        let profile = profile(&[run.sink()]);
        assert!(profile.latencies.iter().all(|row| !row.timing.interval.requires_detection()), "{}: no MPI", run.name);
    }
}

/// The truth of the application: ring sends each of its sizes equally often, long ones by
/// rendezvous.
#[test]
fn rendezvous_match_the_sends_of_their_size() {
    for name in ["ompi-openib-ring2", "ompi-openib-put-ring2", "ompi-rc-ring2"] {
        let run = runs::named(name);
        let profile = profile(&[run.sink()]);
        let mut sent: BTreeMap<u64, u64> = BTreeMap::new();
        for rank in 0..2 {
            let text = runs::decompressed(&run.folder.join(format!("sends/sends.{rank}.csv.zst")));
            for line in String::from_utf8(text).expect("text").lines().skip(1) {
                let bytes: u64 = line.split(',').nth(4).expect("bytes").parse().expect("number");
                *sent.entry(1 << bytes.ilog2()).or_default() += 1;
            }
        }
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for row in profile.latencies.iter().filter(|row| row.timing.interval == Interval::RendezvousRequest) {
            *found.entry(row.timing.size.from_bytes()).or_default() += row.histogram.samples();
        }
        let longest = *sent.keys().next_back().expect("sends");
        assert_eq!(found.get(&longest), sent.get(&longest), "{name}: {found:?} of {sent:?}");
        for (from_bytes, samples) in &found {
            assert!(sent.get(from_bytes).is_some_and(|sent| samples <= sent), "{name}: {found:?} of {sent:?}");
        }
    }
}

/// From ready-to-send at the sender's port to the last data at the receiver's: the phases up to the
/// last data, and its transit.
#[test]
fn a_message_takes_its_phases_and_the_transit() {
    for looks in &SIGNATURES {
        let run = runs::named(looks.run);
        for paths in [vec![run.sink()], run.every_node()] {
            let found = by_pair(&profile(&paths));
            let transit = by_pair(&profile(&[run.sink()]));
            for (src, dst) in [(1, 2), (2, 1)] {
                let mean = |interval: &'static str| found[&(interval, looks.verb, src, dst)].mean();
                let way_ns = mean("mpi_message") - mean(REQUEST) - mean(DATA);
                let transit = &transit[&("transit", looks.verb, src, dst)];
                // The sink's clock has microseconds.
                let possible = transit.min() as f64 - 2000.0..=transit.max() as f64 + 2000.0;
                assert!(possible.contains(&way_ns), "{}: {src} to {dst}: {way_ns} ns, not in {possible:?}", looks.run);
            }
        }
    }
}

/// Two captures of two ports give the same as a sink of both, to the microseconds of its clock.
#[test]
fn two_ports_show_the_same_as_a_sink() {
    for run in runs::all().iter().filter(|run| is_mpi(run) && run.nodes == 2 && !run.name.contains("loss")) {
        let [sink, ports] = [vec![run.sink()], run.every_node()].map(|paths| by_pair(&profile(&paths)));
        let of_messages = |times: &BTreeMap<(&'static str, &'static str, u8, u8), Histogram>| {
            let rows = times.iter().filter(|(key, _)| key.0 == "mpi_message");
            rows.map(|(key, times)| (*key, times.clone())).collect::<BTreeMap<_, _>>()
        };
        let (sink, ports) = (of_messages(&sink), of_messages(&ports));
        assert_eq!(sink.keys().collect::<Vec<_>>(), ports.keys().collect::<Vec<_>>(), "{}", run.name);
        for (key, at_sink) in &sink {
            let between = &ports[key];
            let place = format!("{}: {key:?}: {} and {} ns", run.name, at_sink.mean(), between.mean());
            assert_eq!(at_sink.samples(), between.samples(), "{place}");
            assert!((at_sink.mean() - between.mean()).abs() < 2000.0, "{place}");
            assert!(at_sink.max().abs_diff(between.max()) < 2000, "{place}");
        }
    }
}
