//! A job on two rails whose queue pairs move by pairs of ranks: without connection messages, its two
//! halves look like two jobs, each with a part of the messages. What a rank exchanges on the other
//! rail is no time of its own, so neither half may have a finding on ranks or rails.

use super::recorded::is_healthy;
use super::{findings, names};
use crate::runs::{self, RecordedRun};
use crate::tools::in_parallel;
use crate::wire::profile;
use ibscope::model::{Profile, RankIndex, TrafficKind};
use ibscope_parsers::ib::Service;
use ibscope_parsers::{Endpoint, Lid, Qpn};
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{RecordedPacket, Recording};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Distance of the LIDs of the second rail from those of the first.
const RAIL: u64 = 16;

/// The queue pairs of reliable connections, by the ranks of their job.
type QueuePairsOfRanks = BTreeMap<(u32, u32), BTreeSet<(Endpoint, Qpn)>>;

fn queue_pairs(profile: &Profile) -> QueuePairsOfRanks {
    let ranks = RankIndex::of(profile);
    let mut found = QueuePairsOfRanks::new();
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data && row.service == 0) {
        let own = ranks.connection(row);
        if let Some((src, dst)) = own.src.zip(own.dst) {
            found.entry((src.min(dst), src.max(dst))).or_default().insert((row.dst, row.dest_qp));
        }
    }
    found
}

fn other_rail(endpoint: Endpoint) -> Endpoint {
    Endpoint::from_lid(Lid((endpoint.low_bits() + RAIL) as u16))
}

/// The recording with these queue pairs on the other rail, and without datagrams.
fn moved(recording: &Recording, queue_pairs: &BTreeSet<(Endpoint, Qpn)>) -> Recording {
    let packet = |record: &RecordedPacket| {
        let frame = PacketFrame::read(recording.link_type, record)?;
        if frame.opcode.service() == Service::Ud {
            return None;
        }
        let mut data = record.data.to_vec();
        if queue_pairs.contains(&(frame.dst, frame.dest_qp)) {
            frame.set_endpoints(&mut data, other_rail(frame.src), other_rail(frame.dst));
            frame.seal(&mut data);
        }
        Some(RecordedPacket { data: data.into(), ..record.clone() })
    };
    recording.with(recording.records.iter().filter_map(packet).collect())
}

/// Every set of pairs of ranks that may move, but the first pair stays.
fn choices(found: &QueuePairsOfRanks) -> Vec<BTreeSet<(Endpoint, Qpn)>> {
    let all: Vec<&BTreeSet<(Endpoint, Qpn)>> = found.values().skip(1).collect();
    let of = |choice: usize| {
        let chosen = all.iter().enumerate().filter(move |(at, _)| choice >> at & 1 == 1);
        chosen.flat_map(|(_, own)| own.iter().copied()).collect()
    };
    (1..1_usize << all.len().min(4)).map(of).collect()
}

#[test]
fn halves_of_a_job_have_no_finding_on_ranks() {
    let two_per_node = |run: &RecordedRun| run.name.ends_with("2x2") && run.sink().exists() && is_healthy(&run.name);
    let runs: Vec<RecordedRun> = runs::all().into_iter().filter(two_per_node).collect();
    assert!(runs.len() >= 8, "{}", runs.len());
    let split = AtomicUsize::new(0);
    in_parallel(&runs, |_, run| {
        let recording = Recording::read(&run.sink()).expect("recording");
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("rails.pcap");
        for choice in choices(&queue_pairs(&profile(&[run.sink()]))) {
            moved(&recording, &choice).write(&path).expect("written");
            let inputs = [path.clone()];
            let found = findings(&[], &inputs);
            assert!(names(&found).is_empty(), "{}, {choice:?}: {found:?}", run.name);
            let is_part = profile(&inputs).jobs.iter().any(|job| job.may_be_part);
            split.fetch_add(usize::from(is_part), Ordering::Relaxed);
        }
    });
    assert!(split.into_inner() >= 10, "too few jobs were split");
}
