//! Packets with a wrong ICRC: damaged ones make the coverage of their pair unknown, and those of a host
//! that captures before the adapter sets the ICRC do not. The truth is the same capture as it was recorded.

use crate::runs::{self, RecordedRun};
use crate::tools::in_parallel;
use crate::wire::profile;
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope::model::{Profile, TrafficKind};
use ibscope_parsers::Endpoint;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{RecordedPacket, Recording};
use std::path::PathBuf;

/// Changes the bytes of records; `change` gets the number of the record, its packet and its bytes.
fn changed(recording: &Recording, mut change: impl FnMut(usize, &PacketFrame, &mut [u8])) -> Recording {
    let each = |(number, record): (usize, &RecordedPacket)| {
        let mut record = record.clone();
        if let Some(frame) = PacketFrame::read(recording.link_type, &record) {
            let mut data = record.data.to_vec();
            change(number, &frame, &mut data);
            record.data = data.into();
        }
        record
    };
    recording.with(recording.records.iter().enumerate().map(each).collect())
}

fn profile_of(recording: &Recording) -> Profile {
    let folder = tempfile::tempdir().expect("folder");
    let path: PathBuf = folder.path().join("capture.pcap");
    recording.write(&path).expect("written");
    profile(&[path])
}

fn data(profile: &Profile) -> impl Iterator<Item = &ConnectionRow> {
    profile.connections.iter().filter(|row| row.kind == TrafficKind::Data)
}

fn of_pair(profile: &Profile, ports: [Endpoint; 2]) -> impl Iterator<Item = &ConnectionRow> {
    data(profile).filter(move |row| [row.src, row.dst] == ports)
}

/// The capture of the first node of a run whose pairs are all complete.
fn complete(run: &RecordedRun) -> Option<(Recording, Profile)> {
    let path = run.node(1);
    let truth = profile(std::slice::from_ref(&path));
    let is_complete = data(&truth).all(|row| row.coverage.state == CoverageState::Complete);
    (is_complete && truth.coverage.icrc_bad == 0 && truth.coverage.icrc_ok > 0)
        .then(|| (Recording::read(&path).expect("recording"), truth))
}

#[test]
fn a_connection_with_a_damaged_packet_is_not_complete() {
    let checked = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(&runs::all(), |_, run| {
        let Some((recording, _)) = complete(run) else { return };
        // The last packet with payload is damaged in its last byte before the ICRC.
        let mut last = None;
        changed(&recording, |number, frame, _| {
            if frame.payload_bytes > 0 && frame.q_key.is_none() {
                last = Some((number, *frame));
            }
        });
        let Some((damaged, frame)) = last else { return };
        let found = profile_of(&changed(&recording, |number, frame, data| {
            if number == damaged {
                data[frame.payload_at] ^= 1;
            }
        }));
        assert_eq!(found.coverage.icrc_bad, 1, "{}", run.name);
        let of_queue_pair = |row: &&ConnectionRow| row.dest_qp == frame.dest_qp;
        let own: Vec<_> = of_pair(&found, [frame.src, frame.dst]).filter(of_queue_pair).collect();
        assert!(own.iter().any(|row| row.coverage.state == CoverageState::Unknown), "{}", run.name);
        assert!(own.iter().all(|row| row.coverage.state != CoverageState::Complete), "{}", run.name);
        assert!(found.trust.reasons.iter().any(|reason| reason.contains("wrong ICRC")), "{}", run.name);
        checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(checked.into_inner() >= 10);
}

#[test]
fn a_host_that_captures_before_the_icrc_is_set_has_the_same_numbers_and_coverage() {
    let checked = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(&runs::all(), |_, run| {
        let Some((recording, truth)) = complete(run) else { return };
        let first = recording.records.iter().find_map(|record| PacketFrame::read(recording.link_type, record));
        let Some(own_port) = first.map(|frame| frame.src) else { return };
        let found = profile_of(&changed(&recording, |_, frame, data| {
            if frame.src == own_port {
                let icrc = data.len() - 4..;
                data[icrc].fill(0);
            }
        }));
        assert!(found.coverage.icrc_bad > 0, "{}", run.name);
        assert!(
            data(&found).map(|row| (row.traffic, row.coverage)).eq(data(&truth).map(|row| (row.traffic, row.coverage))),
            "{}",
            run.name
        );
        checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(checked.into_inner() >= 10);
}
