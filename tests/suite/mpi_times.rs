//! Times of MPI messages of the recorded runs: the phases of rendezvous, and messages from port to port.

use crate::latency::by_pair;
use crate::recorded::{is_mpi, profile};
use crate::runs;
use ibscope::model::{Histogram, Interval, Profile};
use ibscope::pipeline::{Options, messages};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const REQUEST: &str = "rendezvous_request";
const DATA: &str = "rendezvous_data";
const COMPLETION: &str = "rendezvous_completion";

/// How to see with little knowledge of a library what a packet of a rendezvous is.
struct Looks {
    run: &'static str,
    verb: &'static str,
    /// The start of a SEND is a ready to send; says that it is done.
    asks: fn(&[u8]) -> bool,
    done: fn(&[u8]) -> bool,
    /// BTH opcodes of the data.
    data: std::ops::RangeInclusive<u8>,
    /// The sender says that it is done; else the receiver.
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

const LOOKS: [Looks; 4] = [
    Looks {
        run: "ompi-openib-ring2",
        verb: "READ",
        asks: |payload| ob1(payload, 0x43),
        done: |payload| ob1(payload, 0x49),
        data: RESPONSES,
        by_sender: false,
    },
    Looks {
        run: "ompi-openib-put-ring2",
        verb: "WRITE",
        asks: |payload| ob1(payload, 0x42),
        done: |payload| ob1(payload, 0x49),
        data: WRITES,
        by_sender: true,
    },
    Looks {
        run: "ompi-rc-ring2",
        verb: "READ",
        asks: |payload| ucx(payload, 9),
        done: |payload| ucx(payload, 10),
        data: RESPONSES,
        by_sender: false,
    },
    Looks {
        run: "ompi-rc-delay5ms-ring2",
        verb: "READ",
        asks: |payload| ucx(payload, 9),
        done: |payload| ucx(payload, 10),
        data: RESPONSES,
        by_sender: false,
    },
];

/// A rendezvous as a slow look at one port finds it: when its ready to send, first and last data, and what says that it is done were seen, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Phases {
    asked: u64,
    data: Option<(u64, u64)>,
    done: Option<u64>,
}

/// A ring sends one message at a time in a direction: what follows a ready to send, up to the next one, is of it.
fn slow_look(looks: &Looks, node: u8) -> BTreeMap<u8, Vec<Phases>> {
    let mut found: BTreeMap<u8, Vec<Phases>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let records = runs::timed_records(&runs::named(looks.run).node(node));
    for (time_ns, frame) in records.iter().filter(|(_, frame)| runs::is_roce(frame)) {
        // Ethernet 14, IPv4 20, UDP 8, BTH 12: opcode @0, destination queue pair @5, PSN @9; SENDs have their payload after it.
        let (src, dst, bth) = (frame[29], frame[33], &frame[42..]);
        let (opcode, payload) = (bth[0], &bth[12..bth.len() - 4]);
        // Of requests and responses with the same number only what is sent again counts once.
        if !seen.insert((src, bth[5..8].to_vec(), RESPONSES.contains(&opcode), bth[9..12].to_vec())) {
            continue;
        }
        let is_send = [0x00, 0x04].contains(&opcode);
        if is_send && (looks.asks)(payload) {
            found.entry(src).or_default().push(Phases { asked: *time_ns, ..Phases::default() });
        } else if looks.data.contains(&opcode) {
            let Some(last) = found.entry(src).or_default().last_mut() else { continue };
            assert_eq!(last.done, None, "{}", looks.run);
            last.data = Some((last.data.map_or(*time_ns, |(first, _)| first), *time_ns));
        } else if is_send && (looks.done)(payload) {
            let sender = if looks.by_sender { src } else { dst };
            let last = found.entry(sender).or_default().last_mut().expect("a ready to send before");
            assert_eq!(last.done.replace(*time_ns), None, "{}", looks.run);
        }
    }
    found
}

/// Phases at each of the two ports, message by message, against a slow look; and they add up to the time from ready to send to done.
#[test]
fn phases_are_those_of_a_slow_look() {
    for looks in &LOOKS {
        for node in [1, 2] {
            let found = by_pair(&profile(&[runs::named(looks.run).node(node)]));
            let slow = slow_look(looks, node);
            for (src, dst) in [(1u8, 2u8), (2, 1)] {
                let phases = &slow[&src];
                assert!(phases.len() >= 5, "{}", looks.run);
                let of = |interval: &'static str| &found[&(interval, looks.verb, src, dst)];
                let data = |phases: &Phases| phases.data.expect("data");
                let done = |phases: &Phases| phases.done.expect("done");
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

/// Every frame leaves its node 5 ms late. From ready to send to data there are two of them, the READ and its response, and one from the data to what
/// says that they are there. The delay lies before the ports, so a message of one packet takes no longer from port to port.
#[test]
fn added_delay_is_in_the_phases_that_wait_for_an_answer() {
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

/// MPI messages by pair: all, and those of `messages` that are rendezvous whose data came by themselves.
fn counted(paths: &[PathBuf]) -> [BTreeMap<(String, String), u64>; 2] {
    let options = Options { bin_ns: None, check_icrc: false, read_times: false, ..Options::default() };
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

/// One time for each MPI message, at the sink and from all ports together; the phases of each rendezvous; and at one port alone no time from port
/// to port. What is sent point to point, and with which sizes, is held against the applications elsewhere.
#[test]
fn every_message_has_its_times() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| is_mpi(run)) {
        for paths in [vec![run.sink()], run.every_node()] {
            let place = format!("{}: {paths:?}", run.name);
            let profile = profile(&paths);
            let [all, rendezvous] = counted(&paths);
            assert_eq!(samples(&profile, Interval::MpiMessage), all, "{place}");
            assert_eq!(samples(&profile, Interval::RendezvousRequest), rendezvous, "{place}");
            assert_eq!(samples(&profile, Interval::RendezvousData), rendezvous, "{place}");
            // UCX over UD sends the data as messages of its own, which nothing answers.
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
        assert!(profile.latencies.iter().all(|row| !row.timing.interval.is_of_mpi()), "{}: no MPI", run.name);
    }
}

/// The truth of the application itself: ring sends each of its sizes equally often, and long ones by rendezvous.
#[test]
fn rendezvous_of_a_size_are_the_sends_of_that_size() {
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

/// From the ready to send at the sender's port to the last data at the receiver's: the phases up to the last data, and its way.
#[test]
fn a_message_takes_its_phases_and_the_way() {
    for looks in &LOOKS {
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

/// Two captures of two ports give what a sink of both gives, but for the microseconds of its clock.
#[test]
fn two_ports_show_what_a_sink_shows() {
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
