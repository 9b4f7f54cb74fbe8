//! One file with the packets of two ports: times that end at the second port are those of two files, or
//! unknown with a note.

use crate::concatenated::{TimedRecord, later, read, write};
use crate::latency::by_pair;
use crate::recorded::{matrix, profile};
use crate::runs::{self, RecordedRun, VARIED, is_roce};
use crate::tools::{ibscope, in_parallel};
use ibscope::model::{Histogram, Profile};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Difference of the two clocks.
const AHEAD_NS: i64 = 10_000_000;
/// Intervals that end at the port of the receiver of their last packet.
const ARRIVALS: [&str; 6] =
    ["transit", "acknowledged", "first_response", "last_response", "mpi_message", "rendezvous_completion"];
/// A frame before and after the record header: where its source address and its BTH are.
const SOURCE: std::ops::Range<usize> = 16 + 26..16 + 30;
const BTH: usize = 16 + 42;

/// The records of two ports in one file.
fn joined(folder: &Path, name: &str, header: &[u8], ports: &[Vec<TimedRecord>]) -> Profile {
    let mut records = ports.concat();
    records.sort_by_key(|(time_ns, _)| *time_ns);
    profile(&[write(folder, name, header, &records)])
}

fn note(profile: &Profile) -> Option<&String> {
    profile.notes.iter().find(|note| note.contains("observed at the second port after their ACKs"))
}

#[test]
fn clocks_that_differ_in_one_file_give_no_times_between_ports() {
    let varied = VARIED.iter().map(|name| runs::named(name));
    let all: Vec<RecordedRun> = varied.filter(|run| run.nodes == 2).collect();
    let noted = AtomicUsize::new(0);
    in_parallel(&all, |_, run| {
        let (header, first) = read(&run.node(1));
        let (_, second) = read(&run.node(2));
        let folder = tempfile::tempdir().expect("folder");
        let same = joined(folder.path(), "same.pcap", &header, &[first.clone(), second.clone()]);
        assert_eq!(note(&same), None, "{}", run.name);
        let ahead = joined(folder.path(), "ahead.pcap", &header, &[first, later(&second, AHEAD_NS)]);
        assert_eq!(matrix(&ahead), matrix(&same), "{}", run.name);
        // Datagrams have no ACKs.
        let has_acks = |(interval, ..): &(&str, &str, u8, u8)| *interval == "acknowledged";
        if !by_pair(&same).keys().any(has_acks) {
            return;
        }
        noted.fetch_add(1, Ordering::Relaxed);
        assert!(note(&ahead).is_some(), "{}: {:?}", run.name, ahead.notes);
        let arrivals: Vec<_> = by_pair(&ahead).into_keys().filter(|key| ARRIVALS.contains(&key.0)).collect();
        assert_eq!(arrivals, [], "{}", run.name);
    });
    assert!(noted.load(Ordering::Relaxed) > 2, "{noted:?}");
}

/// One file with the four ports of a run, whose clocks are ahead of one another by up to `ahead_ns`.
fn with_four_clocks(folder: &Path, ahead_ns: i64) -> PathBuf {
    let run = runs::of_second_set("straggler-none-4x1");
    let ports: Vec<Vec<TimedRecord>> = (0..4i64)
        .map(|node| later(&read(&run.node(node as u8 + 1)).1, [0, ahead_ns, -ahead_ns, ahead_ns / 2][node as usize]))
        .collect();
    let mut records = ports.concat();
    records.sort_by_key(|(time_ns, _)| *time_ns);
    write(folder, &format!("ahead{ahead_ns}.pcap"), &read(&run.node(1)).0, &records)
}

/// The period of this run is 46 ms.
#[test]
fn clocks_that_differ_by_a_part_of_the_period_give_no_waits() {
    let folder = tempfile::tempdir().expect("folder");
    let of = |command: &str, capture: &Path| {
        let result = ibscope([OsStr::new(command), capture.as_os_str()]);
        assert_eq!(result.code, 0, "{}", result.stderr);
        (result.stdout, result.stderr.replace('\n', " "))
    };
    let late = with_four_clocks(folder.path(), 15_000_000);
    let (waits, notes) = of("waits", &late);
    assert!(waits.replace('\n', " ").contains("iterations unknown, because the clocks of its ports differ"), "{waits}");
    assert!(notes.contains("the clocks of the two ports differ, by 22.5 ms, or"), "{notes}");
    let (findings, notes) = of("diagnose", &late);
    assert!(!findings.contains("straggler") && !findings.contains("late_sender"), "{findings}");
    assert!(notes.contains("stragglers and imbalance of job 1, because the clocks of its ports differ"), "{notes}");
    // This difference is too short to matter.
    let (waits, _) = of("waits", &with_four_clocks(folder.path(), 100_000));
    assert!(waits.contains("30 iterations") && waits.contains("no straggler"), "{waits}");
}

/// The sender's transmissions of requests and READ responses that its own capture misses, because they
/// were dropped before it: each 500 ns before the next higher PSN, which was observed earlier.
fn lost_transmissions(node: u8, records: &[TimedRecord]) -> Vec<TimedRecord> {
    let mut times: BTreeMap<(Vec<u8>, bool), BTreeMap<i64, i64>> = BTreeMap::new();
    let mut lost = Vec::new();
    for (time_ns, record) in records {
        let opcode = record.get(BTH).copied().unwrap_or(u8::MAX);
        if !is_roce(&record[16..]) || record[SOURCE] != [10, 77, 0, node] || opcode > 16 {
            continue;
        }
        let number = |at: usize| record[at..at + 3].iter().fold(0, |number, byte| number << 8 | i64::from(*byte));
        let (queue_pair, psn) = (record[BTH + 5..BTH + 8].to_vec(), number(BTH + 9));
        let seen = times.entry((queue_pair, opcode >= 13)).or_default();
        if seen.contains_key(&psn) {
            continue;
        }
        let overtook = seen.range(psn + 1..psn + (1 << 23)).map(|(_, time_ns)| *time_ns).min();
        if let Some(overtook_ns) = overtook {
            lost.extend(later(&[(*time_ns, record.clone())], overtook_ns - 500 - time_ns));
        }
        seen.insert(psn, *time_ns);
    }
    lost
}

fn of_interval(profile: &Profile, interval: &str) -> BTreeMap<(u8, u8), Histogram> {
    let own = by_pair(profile).into_iter().filter(|((name, ..), _)| *name == interval);
    let mut sums: BTreeMap<(u8, u8), Histogram> = BTreeMap::new();
    own.for_each(|((_, _, src, dst), histogram)| sums.entry((src, dst)).or_default().merge(&histogram));
    sums
}

/// Packets that are lost between the ports are observed at the sender's port, and their
/// retransmissions at both.
#[test]
fn messages_with_packets_lost_between_the_ports_take_as_long_as_in_two_files() {
    let run = runs::named("ompi-rc-loss1-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let (header, _) = read(&run.node(1));
    let ports = [1, 2].map(|node| {
        let (_, mut records) = read(&run.node(node));
        let lost = lost_transmissions(node, &records);
        assert!(lost.len() > 5, "{}", lost.len());
        records.extend(lost);
        records.sort_by_key(|(time_ns, _)| *time_ns);
        records
    });
    let files = [1, 2].map(|node| write(folder.path(), &format!("node{node}.pcap"), &header, &ports[node - 1]));
    let (apart, one) = (profile(&files), joined(folder.path(), "both.pcap", &header, &ports));
    assert_eq!(matrix(&one), matrix(&apart));
    for interval in ["mpi_message", "acknowledged", "first_response", "last_response", "rendezvous_completion"] {
        let [in_one, in_two] = [&one, &apart].map(|profile| of_interval(profile, interval));
        assert_eq!(in_one.keys().collect::<BTreeSet<_>>(), in_two.keys().collect(), "{interval}");
        for (pair, times) in &in_two {
            let [in_one, in_two] =
                [&in_one[pair], times].map(|times| (times.samples(), times.quantile(0.5), times.max()));
            assert_eq!(in_one, in_two, "{interval} {pair:?}");
        }
    }
    // A retransmission comes no sooner than a second after.
    let longest_ns = of_interval(&one, "transit").values().map(Histogram::max).max();
    assert!(longest_ns.is_some_and(|ns| ns < 1_000_000), "{longest_ns:?}");
}
