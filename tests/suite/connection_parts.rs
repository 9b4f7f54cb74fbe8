//! Captures whose connections are distributed over several files: by a hash over receive queues, links
//! or collectors. Truth: the distribution loses nothing, and the records that a test drops are known.

use crate::runs::{self, RecordedRun};
use crate::tools::in_parallel;
use crate::wire::profile;
use ibscope::model::profile::CoverageState;
use ibscope::model::{Profile, RankIndex};
use ibscope::pipeline::{AnalysisOptions, ProfileWriter, analyze, merge};
use ibscope_parsers::Endpoint;
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{RecordedPacket, Recording, partial, transmissions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Share of the records that a lossy mirror loses, in a thousand.
const LOSS_PER_MILLE: u64 = 100;

/// Number of a direction of a connection: all its packets have the same one.
fn connection_hash(recording: &Recording, index: usize, seed: u64) -> usize {
    let frame = PacketFrame::read(recording.link_type, &recording.records[index]);
    let key = frame.map(|frame| (frame.src, frame.dst, frame.dest_qp));
    xxh3_64(format!("{key:?} {seed}").as_bytes()) as usize
}

/// Distributes the connections over files; empty files are left out.
pub(crate) fn by_connection(recording: &Recording, files: usize, seed: u64) -> Vec<Recording> {
    let part = |file| partial::keep(recording, |index, _| connection_hash(recording, index, seed) % files == file);
    (0..files).map(part).filter(|part| !part.records.is_empty()).collect()
}

/// The records of a sink at the first and at the second port of their packets.
fn mirrors(sink: &Recording) -> [Recording; 2] {
    let found = transmissions(std::slice::from_ref(sink), 2);
    std::array::from_fn(|port| partial::keep(sink, |index, _| found.mirror_copy[0][index] % 2 == port))
}

fn written(folder: &Path, recordings: &[Recording]) -> Vec<PathBuf> {
    let write = |(number, recording): (usize, &Recording)| {
        let path = folder.join(format!("part{number}.pcap"));
        recording.write(&path).expect("written");
        path
    };
    recordings.iter().enumerate().map(write).collect()
}

fn profile_of(recordings: &[Recording]) -> Profile {
    let folder = tempfile::tempdir().expect("folder");
    profile(&written(folder.path(), recordings))
}

fn runs_with_sink() -> Vec<RecordedRun> {
    let second = ["nccl-ring-2x1", "nccl-ring-qps2split-2x1", "ompi5-ucx-rc-mixed-2x2", "mpich4.2-rc-mixed-2x2"];
    let second = second.iter().map(|name| runs::of_second_set(name));
    runs::all().into_iter().chain(second).filter(|run| run.sink().exists()).collect()
}

fn lost_at_least(profile: &Profile) -> u64 {
    profile.trust.lost_by_capture_packets.at_least
}

/// The splits of a sink that lose nothing.
fn splits(sink: &Recording) -> Vec<(&'static str, Vec<Recording>)> {
    let ports = mirrors(sink);
    let of_port = |seeds: [u64; 2]| -> Vec<Recording> {
        ports.iter().zip(seeds).flat_map(|(port, seed)| by_connection(port, 2, seed)).collect()
    };
    let with_second = [by_connection(&ports[0], 2, 5), vec![ports[1].clone()]].concat();
    vec![
        ("2 files", by_connection(sink, 2, 1)),
        ("4 files", by_connection(sink, 4, 2)),
        ("8 files", by_connection(sink, 8, 3)),
        ("both ports, one hash", of_port([4, 4])),
        ("both ports, two hashes", of_port([6, 7])),
        ("a second mirror", with_second),
    ]
}

#[test]
fn files_of_other_connections_lose_nothing() {
    let checked = AtomicUsize::new(0);
    in_parallel(&runs_with_sink(), |_, run| {
        let sink = Recording::read(&run.sink()).expect("recording");
        let whole = profile(&[run.sink()]);
        for (name, parts) in splits(&sink).into_iter().filter(|(_, parts)| parts.len() > 1) {
            let found = profile_of(&parts);
            let case = format!("{}, {name}", run.name);
            assert!(lost_at_least(&found) <= lost_at_least(&whole), "{case}: {:?}", found.trust);
            assert!(found.trust.input_losses.is_empty(), "{case}: {:?}", found.trust.input_losses);
            let missed = |profile: &Profile| profile.health.iter().map(|row| row.health.lost()).sum::<u64>();
            assert!(missed(&found) <= missed(&whole), "{case}: {} lost", missed(&found));
            checked.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(checked.into_inner() >= 100, "too few splits");
}

/// One port in two files, the other port in one file that loses records: the loss is found, and it is
/// not larger than the records that were dropped.
#[test]
fn a_second_mirror_that_loses_records_is_found() {
    let (all, found) = (AtomicUsize::new(0), [(); 2].map(|()| AtomicUsize::new(0)));
    in_parallel(&runs_with_sink(), |at, run| {
        let [first, second] = mirrors(&Recording::read(&run.sink()).expect("recording"));
        let mut random = Random::new(at as u64 + 1);
        let lossy = partial::lose(&second, LOSS_PER_MILLE, 1, &mut random);
        let dropped = (second.records.len() - lossy.records.len()) as u64;
        let whole = vec![first.clone(), lossy.clone()];
        let parts = [by_connection(&first, 2, 8), vec![lossy]].concat();
        for (files, found) in [whole, parts].iter().zip(&found) {
            let bounds = profile_of(files).trust.lost_by_capture_packets;
            let case = format!("{}, {} files", run.name, files.len());
            assert!(bounds.at_least <= dropped, "{case}: {bounds:?} of {dropped}");
            assert!(bounds.at_most.is_none_or(|most| most >= dropped), "{case}: {bounds:?} of {dropped}");
            found.fetch_add(usize::from(bounds.at_least > 0), Ordering::Relaxed);
        }
        all.fetch_add(1, Ordering::Relaxed);
    });
    // Captures of datagrams, or of few packets, show no loss for certain. Parts with one connection of a
    // pair of ports do not show either whether they are parts.
    let (all, [whole, parts]) = (all.into_inner(), found.map(AtomicUsize::into_inner));
    assert!(all >= 30 && whole * 100 >= all * 90 && parts * 100 >= all * 75, "{whole} and {parts} of {all}");
}

/// A mirror that lost a whole connection still holds the others: all its records count as lost.
#[test]
fn a_whole_connection_that_one_mirror_lost_is_found() {
    let checked = AtomicUsize::new(0);
    in_parallel(&runs_with_sink(), |_, run| {
        let [first, second] = mirrors(&Recording::read(&run.sink()).expect("recording"));
        let mut packets: BTreeMap<(Endpoint, Endpoint, u32), u64> = BTreeMap::new();
        let key = |record: &RecordedPacket| {
            let frame = PacketFrame::read(second.link_type, record)?;
            let key = (frame.src, frame.dst, frame.dest_qp.value());
            (frame.opcode.0 >> 5 == 0).then_some(key)
        };
        second.records.iter().filter_map(key).for_each(|key| *packets.entry(key).or_default() += 1);
        let Some((lost, count)) = packets.iter().max_by_key(|(_, count)| **count) else { return };
        let is_only = packets.keys().filter(|other| (other.0, other.1) == (lost.0, lost.1)).count() == 1;
        if is_only || run.name.contains("loss") {
            return;
        }
        let lossy = partial::keep(&second, |_, record| key(record) != Some(*lost));
        let bounds = profile_of(&[first, lossy]).trust.lost_by_capture_packets;
        let contains =
            bounds.at_least > 0 && bounds.at_least <= *count && bounds.at_most.is_none_or(|most| most >= *count);
        assert!(contains, "{}: {bounds:?} of {count}", run.name);
        checked.fetch_add(1, Ordering::Relaxed);
    });
    assert!(checked.into_inner() >= 10, "too few runs have several connections");
}

/// The merge of a partial profile of each recording.
fn merged(recordings: &[Recording]) -> Profile {
    let folder = tempfile::tempdir().expect("folder");
    let options = AnalysisOptions { keep_parts: true, ..AnalysisOptions::default() };
    let single = |capture: &PathBuf| {
        let place = capture.with_extension("ibp");
        let profile = analyze(std::slice::from_ref(capture), &options, &|_| {}).expect("profile");
        ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
        place
    };
    let places: Vec<PathBuf> = written(folder.path(), recordings).iter().map(single).collect();
    merge(&places, &AnalysisOptions::default()).expect("merged")
}

#[test]
fn merged_profiles_of_parts_give_the_same_verdict() {
    for name in ["mpich-rc-mixed-2x2", "ompi-rc-mixed-2x2", "ompi-openib-ring2"] {
        let sink = Recording::read(&runs::named(name).sink()).expect("recording");
        let parts = by_connection(&sink, 3, 9);
        let merged = merged(&parts);
        assert_eq!(lost_at_least(&merged), 0, "{name}: {:?}", merged.trust);
        assert_eq!(merged.trust, profile_of(&parts).trust, "{name}");
    }
}

/// The runs of NCCL.
const NCCL: [&str; 4] =
    ["nccl-ring-2x1", "nccl-ring-qps2split-2x1", "nccl2.18-ring-2x1", "nccl2.30-ring-multirail-2x1"];

/// Messages and bytes by sender and receiver, and whether a pair is complete.
fn sums_by_rank(profile: &Profile) -> BTreeMap<(u32, u32), (u64, u64, bool)> {
    let ranks = RankIndex::of(profile);
    let mut sums: BTreeMap<(u32, u32), (u64, u64, bool)> = BTreeMap::new();
    for row in &profile.connections {
        let own = ranks.connection(row);
        let Some(pair) = own.src.zip(own.dst) else { continue };
        let (messages, bytes, is_complete) = sums.entry(pair).or_insert((0, 0, true));
        *messages += row.traffic.p2p_messages + row.traffic.collective_messages;
        *bytes += row.traffic.p2p_mpi_bytes + row.traffic.collective_mpi_bytes;
        *is_complete &= row.coverage.state == CoverageState::Complete;
    }
    sums
}

/// The data of NCCL and the elements that name its ranks are in different files.
#[test]
fn messages_of_nccl_are_found_across_files() {
    in_parallel(&NCCL, |_, name| {
        let run = runs::of_second_set(name);
        let truth = run.truth("wire.csv").expect("truth");
        let sink = Recording::read(&run.sink()).expect("recording");
        for (files, seed) in [(2, 1), (2, 2), (4, 3), (8, 4)] {
            let found = sums_by_rank(&profile_of(&by_connection(&sink, files, seed)));
            let found = found.into_iter().map(|(pair, (messages, bytes, _))| (pair, (messages, bytes)));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), truth, "{name}, {files} files, seed {seed}");
        }
    });
}

/// Partial profiles are not read again: what is missing is marked, and nothing is said to be missing
/// in the captures.
#[test]
fn merged_parts_of_nccl_are_marked() {
    for name in NCCL {
        let run = runs::of_second_set(name);
        let truth = run.truth("wire.csv").expect("truth");
        let sink = Recording::read(&run.sink()).expect("recording");
        for (files, seed) in [(2, 1), (4, 3)] {
            let found = merged(&by_connection(&sink, files, seed));
            for (pair, (messages, bytes, is_complete)) in sums_by_rank(&found) {
                let expected = truth.get(&pair).copied().unwrap_or_default();
                let is_right =
                    (messages, bytes) == expected || !is_complete && messages <= expected.0 && bytes <= expected.1;
                assert!(is_right, "{name}, {pair:?}: {messages} messages, {bytes} bytes of {expected:?}");
            }
            assert!(!found.notes.iter().any(|note| note.contains("were not captured")), "{name}: {:?}", found.notes);
        }
    }
}

/// READ responses without the requests that state their number: a mirror of one direction. The recorded
/// run reads all large messages.
#[test]
fn responses_without_their_requests_are_not_known_to_be_complete() {
    let sink = Recording::read(&runs::named("ompi-openib-ring2").sink()).expect("capture");
    let is_response = |record: &RecordedPacket| {
        PacketFrame::read(sink.link_type, record).is_some_and(|frame| frame.opcode.is_read_response())
    };
    let all = partial::keep(&sink, |_, record| is_response(record));
    let every_tenth = partial::keep(&all, |index, _| index % 10 == 0);
    for responses in [all, every_tenth] {
        let profile = profile_of(&[responses]);
        assert!(profile.connections.iter().any(|row| row.traffic.payload_bytes > 0));
        assert!(profile.connections.iter().all(|row| row.coverage.state == CoverageState::Unknown), "{profile:?}");
    }
}
