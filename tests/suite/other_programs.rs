//! Programs that are not MPI beside a job, and alone: their messages get no rank, and the pairs of the job
//! keep their numbers or are not called complete.
//!
//! The truth of a job is the same recording alone. The traffic of the programs is constructed
//! (`ibscope_samples::hard::protocols::Channel`).

use crate::classes::libfabric_message;
use crate::runs;
use crate::wire::profile_of;
use ibscope::analysis::matrix::{Selection, matrix};
use ibscope::analysis::{GroupBy, Label};
use ibscope::model::Profile;
use ibscope::model::profile::CoverageState;
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::{Endpoint, Lid};
use ibscope_samples::hard::protocols::{self, Channel, ChannelSide};
use ibscope_samples::hard::{Recording, combine};
use std::collections::BTreeMap;

fn sink(name: &str) -> Recording {
    Recording::read(&runs::of_any_set(name).sink()).expect("capture")
}

/// Payload bytes and coverage of each pair of ranks.
fn pairs(profile: &Profile) -> BTreeMap<(u32, u32), (u64, CoverageState)> {
    let found = matrix(profile, GroupBy::Rank, Selection::All);
    let rank = |at: u32| match &found.labels[at as usize] {
        Label::Rank(rank, _) => Some(rank.rank),
        _ => None,
    };
    let cells = found.cells.iter();
    cells
        .filter_map(|((src, dst), cell)| Some(((rank(*src)?, rank(*dst)?), (cell.payload_bytes, cell.coverage.state))))
        .collect()
}

/// A queue pair of a program between these LIDs.
const fn queue_pair(lid: u16, number: u32) -> (Endpoint, u32) {
    (Endpoint::from_lid(Lid(lid)), number)
}

/// The packets of a connection between LIDs 17 and 18 within the times of a job, with both mirror copies.
fn beside(job: &Recording, mut operation: impl FnMut(&mut Channel, u64)) -> Recording {
    const OPERATIONS: u64 = 60;
    let (start_ns, end_ns) = job.span_ns();
    let step_ns = (end_ns - start_ns) / (OPERATIONS + 20);
    let (client, server) = (queue_pair(17, 0x4000), queue_pair(18, 0x4001));
    let mut channel = Channel::new(job.link_type, client, server, [77, 99], start_ns + 10 * step_ns);
    for number in 0..OPERATIONS {
        channel.time_ns = start_ns + (10 + number) * step_ns;
        operation(&mut channel, number);
    }
    protocols::mirrored(&channel.finish())
}

/// A program that writes data and announces it with a message whose first byte is that of a message of
/// UCX; the replies match no library.
fn writes(channel: &mut Channel, number: u64) {
    let announcement = [&[5, 0, 0, 0][..], &number.to_le_bytes(), &[0x7A; 20]].concat();
    channel.write(ChannelSide::Client, (0x7F00_0000_0000 + (number << 20), 0x55), &vec![0x3C; 20_000]);
    channel.send(ChannelSide::Client, &announcement);
    channel.send(ChannelSide::Server, &[&[0, 0, 0, 0][..], &number.to_le_bytes(), &[0x61; 9]].concat());
}

#[test]
fn a_program_between_the_ports_of_a_job_gets_no_ranks() {
    for name in ["ompi-rc-ring2", "mpich-rc-ring2", "ompi-rc-mixed-2x2"] {
        let job = sink(name);
        let alone = pairs(&profile_of(&job));
        assert!(alone.values().any(|(bytes, _)| *bytes > 0), "{name}: {alone:?}");
        let profile = profile_of(&combine::merge(&[job.clone(), beside(&job, writes)]));
        let with_program = pairs(&profile);
        for (pair, (bytes, _)) in &alone {
            assert_eq!(with_program.get(pair).map(|(bytes, _)| bytes), Some(bytes), "{name} {pair:?}");
        }
        assert_eq!(with_program.len(), alone.len(), "{name}");
        assert!(!profile.ranks.iter().any(|row| matches!(row.qpn, Some(0x4000 | 0x4001))), "{name}");
    }
}

/// Messages of the program resemble those of the library, so its ports may not prove the rank of
/// one-sided operations. The pairs that miss these are not complete.
#[test]
fn one_sided_operations_that_a_program_hides_are_missing_with_a_mark() {
    let job = sink("ompi5-ucx-rc-rma-2x1");
    let alone = profile_of(&job);
    let expected = pairs(&alone);
    assert!(alone.notes.iter().any(|note| note.contains("as one-sided operations")), "{:?}", alone.notes);
    assert!(expected.values().any(|(bytes, _)| *bytes > 1_000_000), "{expected:?}");
    let both_ways = |channel: &mut Channel, number: u64| {
        channel.send(ChannelSide::Client, &[&[5, 0, 0, 0][..], &number.to_le_bytes(), &[0x7A; 20]].concat());
        channel.send(ChannelSide::Server, &[&[0x10, 0, 0, 0][..], &number.to_le_bytes(), &[0x61; 9]].concat());
    };
    let tagged = |channel: &mut Channel, number: u64| {
        for (side, id) in [(ChannelSide::Client, 1001u64), (ChannelSide::Server, 1002)] {
            channel.send(side, &ucx_message(id << 32 | number));
        }
    };
    for program in [beside(&job, both_ways), beside(&job, tagged), beside(&job, writes)] {
        let found = pairs(&profile_of(&combine::merge(&[job.clone(), program])));
        for (pair, (bytes, _)) in &expected {
            let (found, state) = found[pair];
            assert!(found <= *bytes, "{pair:?}: {found} of {bytes}");
            assert!(found == *bytes || state != CoverageState::Complete, "{pair:?}: {found} of {bytes}, complete");
        }
    }
}

/// An eager message of UCX.
fn ucx_message(tag: u64) -> Vec<u8> {
    [&[2][..], &tag.to_le_bytes(), &[0x8B; 40]].concat()
}

/// Tags of programs that are not MPI, or of a library with another layout: the ranks would be numbers
/// of the program, shifted.
#[test]
fn numbers_in_the_tags_of_programs_are_no_ranks() {
    type Message = fn(id: u64, number: u64) -> Vec<u8>;
    let programs: [(&str, u16, Message); 5] = [
        // `na_ofi.c`: a request has the bit 32, the reply only the number.
        ("Mercury", 2, |id, number| libfabric_message((1 - id) << 32 | number, number)),
        ("a type and a node id", 4, |id, _| ucx_message(id << 24)),
        ("a rank shifted by one bit", 4, |id, _| ucx_message(5 << 41 | id << 21)),
        ("ids of nodes in the place of MPICH's rank", 4, |id, number| ucx_message((1000 + 7 * id) << 32 | number)),
        ("Open MPI 2 without collective operations", 4, |id, _| ucx_message(5 << 40 | id << 16)),
    ];
    for (name, nodes, message) in programs {
        let job = sink("ompi-rc-ring2");
        let (start_ns, _) = job.span_ns();
        let mut parts = vec![job.empty_like()];
        for (one, other) in (0..nodes).flat_map(|one| (one + 1..nodes).map(move |other| (one, other))) {
            let ends = [(one, other), (other, one)]
                .map(|(own, peer)| queue_pair(17 + own, 0x4000 + u32::from(own) * 16 + u32::from(peer)));
            let mut channel = Channel::new(LinkType::ERF, ends[0], ends[1], [5, 6], start_ns + u64::from(one) * 1000);
            for number in 0..40 {
                channel.time_ns += 1_000_000;
                for (side, id) in [(ChannelSide::Client, one), (ChannelSide::Server, other)] {
                    channel.send(side, &message(id.into(), number));
                }
            }
            parts.push(protocols::mirrored(&channel.finish()));
        }
        let profile = profile_of(&combine::merge(&parts));
        assert!(profile.ranks.is_empty() && profile.jobs.is_empty(), "{name}: {:?}", profile.ranks);
    }
}

/// Two recorded runs: four queue pairs of storage, whose commands resemble messages of UCX, and a job of
/// another library.
#[test]
fn storage_beside_a_job_leaves_its_pairs_complete() {
    let mut compared = 0;
    for name in ["ompi-openib-mixed-2x2", "ompi-openib-ring2"] {
        let [job, storage] = [sink(name), sink("nvmeof-dd-2")];
        let alone = pairs(&profile_of(&job));
        let storage = combine::start_at(&[storage], job.span_ns().0).remove(0);
        let profile = profile_of(&combine::merge(&[job, storage]));
        assert_eq!(pairs(&profile), alone, "{name}");
        assert_eq!(profile.unassigned, [], "{name}");
        compared += alone.len();
    }
    assert!(compared > 8, "{compared}");
}
