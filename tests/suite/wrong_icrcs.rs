//! Packets with a wrong ICRC: damaged ones make the coverage of their pair unknown, and those of a host
//! that captures before the adapter sets the ICRC do not. The truth is the same capture as it was recorded.

use crate::runs::{self, RecordedRun};
use crate::tools::in_parallel;
use crate::wire::{data_connections, profile, profile_of};
use ibscope::model::Profile;
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope_parsers::Endpoint;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::frame::{PacketFrame, change_packets};

fn of_pair(profile: &Profile, ports: [Endpoint; 2]) -> impl Iterator<Item = &ConnectionRow> {
    data_connections(profile).filter(move |row| [row.src, row.dst] == ports)
}

/// The capture of the first node of a run whose pairs are all complete.
fn complete(run: &RecordedRun) -> Option<(Recording, Profile)> {
    let path = run.node(1);
    let truth = profile(std::slice::from_ref(&path));
    let is_complete = data_connections(&truth).all(|row| row.coverage.state == CoverageState::Complete);
    (is_complete && truth.coverage.icrc_bad == 0 && truth.coverage.icrc_ok > 0)
        .then(|| (Recording::read(&path).expect("recording"), truth))
}

#[test]
fn a_connection_with_a_damaged_packet_is_not_complete() {
    let checked = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(&runs::all(), |_, run| {
        let Some((recording, _)) = complete(run) else { return };
        // The last packet with payload is damaged in the first byte of it.
        let mut packets =
            recording.records.iter().enumerate().filter_map(|(number, record)| {
                PacketFrame::read(recording.link_type, record).map(|frame| (number, frame))
            });
        let has_payload = |(_, frame): &(usize, PacketFrame)| frame.payload_bytes > 0 && frame.q_key.is_none();
        let Some((damaged, frame)) = packets.rfind(has_payload) else { return };
        let found = profile_of(&change_packets(&recording, |number, frame, data| {
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
        let found = profile_of(&change_packets(&recording, |_, frame, data| {
            if frame.src == own_port {
                let icrc = data.len() - 4..;
                data[icrc].fill(0);
            }
        }));
        assert!(found.coverage.icrc_bad > 0, "{}", run.name);
        assert!(
            data_connections(&found)
                .map(|row| (row.traffic, row.coverage))
                .eq(data_connections(&truth).map(|row| (row.traffic, row.coverage))),
            "{}",
            run.name
        );
        checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(checked.into_inner() >= 10);
}
