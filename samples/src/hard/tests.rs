//! Tests the transformations on small recordings built here.

use std::collections::HashMap;

use ibscope_parsers::Endpoint;
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::CrcVerdict;
use ibscope_parsers::ib::crc::{verify_icrc, verify_vcrc};
use ibscope_parsers::link::{LinkContent, locate};

use super::frame::PacketFrame;
use super::partial::{self, SamplingScheme, SamplingUnit};
use super::protocols::{ALL, Channel, ChannelSide, Conversation, mirrored};
use super::rewrite::{AddressRewrite, lid};
use super::{RecordedPacket, Recording, combine, split, transmissions};
use crate::Random;

const START_NS: u64 = 1_700_000_000_000_000_000;

/// Both ends of a connection in a framing.
fn ends(link_type: LinkType) -> [(Endpoint, u32); 2] {
    match link_type {
        LinkType::ERF => [(lid(17), 0x11), (lid(18), 0x22)],
        _ => [(Endpoint::from_ipv4([10, 77, 0, 1]), 0x11), (Endpoint::from_ipv4([10, 77, 0, 2]), 0x22)],
    }
}

/// Twenty SENDs with different contents and their acknowledgements: 40 packets.
fn sends(link_type: LinkType) -> Recording {
    let [client, server] = ends(link_type);
    let mut channel = Channel::new(link_type, client, server, [5, 9], START_NS);
    for number in 0..20u8 {
        channel.send(ChannelSide::Client, &[number; 100]);
    }
    channel.finish()
}

fn assert_sealed(recording: &Recording) {
    for record in &recording.records {
        let located = locate(recording.link_type, &record.data, record.original_bytes);
        let Ok(LinkContent::Infiniband(location)) = located else { panic!("{located:?}") };
        assert_eq!(verify_icrc(&record.data, &location), CrcVerdict::Ok);
        let vcrc = if recording.link_type == LinkType::ERF { CrcVerdict::Ok } else { CrcVerdict::None };
        assert_eq!(verify_vcrc(&record.data, &location), vcrc);
        assert_eq!(record.data.len() as u32, record.original_bytes);
    }
}

#[test]
fn files_are_read_as_they_were_written() {
    for (link_type, unit_ns) in [(LinkType::ERF, 1000), (LinkType::ETHERNET, 1)] {
        let recording = sends(link_type).retimed(|time_ns| time_ns / unit_ns * unit_ns);
        let path = std::env::temp_dir().join(format!("ibscope-hard-{}-{}.pcap", std::process::id(), link_type.0));
        recording.write(&path).unwrap();
        let read = Recording::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), recording);
    }
}

#[test]
fn every_protocol_has_valid_checksums_in_both_framings() {
    for (name, protocol) in ALL {
        for link_type in [LinkType::ERF, LinkType::ETHERNET] {
            let [client, server] = ends(link_type);
            let talk = Conversation { client, server, start_ns: START_NS, step_ns: 1_000_000, operations: 20 };
            let traffic = protocol(&talk, link_type, &mut Random::new(1));
            assert!(traffic.records.len() > 20, "{name}");
            assert!(traffic.records.is_sorted_by_key(|record| record.time_ns), "{name}");
            assert_sealed(&traffic);
            let frames: Vec<PacketFrame> =
                traffic.records.iter().map(|record| PacketFrame::read(link_type, record).unwrap()).collect();
            assert!(frames.iter().all(|frame| frame.src != frame.dst), "{name}");
            assert_eq!(protocol(&talk, link_type, &mut Random::new(1)), traffic, "{name}");
        }
    }
}

#[test]
fn mirror_copies_are_one_transmission_and_retransmissions_are_two() {
    let once = sends(LinkType::ERF);
    let sink = mirrored(&once);
    let found = transmissions(std::slice::from_ref(&sink), 2);
    assert_eq!((sink.records.len(), found.count), (80, 40));
    // Everything is retransmitted a second later.
    let again = combine::concatenate(&[sink.clone(), combine::shift(&sink, 1_000_000_000)]);
    assert_eq!(transmissions(&[again], 2).count, 80);
    // The same frame at two ports, one file each.
    assert_eq!(transmissions(&[once.clone(), once], 1).count, 40);
}

#[test]
fn sampling_keeps_one_in_k() {
    let sink = mirrored(&sends(LinkType::ERF));
    let mut random = Random::new(7);
    for (unit, kept) in [(SamplingUnit::Record, 16), (SamplingUnit::Transmission, 16)] {
        let thinned =
            partial::subsample(std::slice::from_ref(&sink), 2, 5, (unit, SamplingScheme::Periodic), &mut random);
        assert_eq!(thinned[0].records.len(), kept, "{unit:?}");
        let found = transmissions(&thinned, 2);
        // Of 40 transmissions every fifth is kept with both mirror copies; of 80 records no two are
        // mirror copies.
        let whole = found.mirror_copy[0].iter().filter(|copy| **copy == 1).count();
        assert_eq!(whole, if unit == SamplingUnit::Transmission { 8 } else { 0 }, "{unit:?}");
    }
    let random_half = partial::subsample(&[sink], 2, 2, (SamplingUnit::Record, SamplingScheme::Random), &mut random);
    assert!((20..60).contains(&random_half[0].records.len()));
}

#[test]
fn losses_have_the_requested_share() {
    let record = RecordedPacket { time_ns: 0, original_bytes: 4, data: vec![0; 4].into() };
    let many = Recording::default().with(vec![record; 100_000]);
    for (per_mille, burst) in [(10, 1), (100, 20), (300, 100)] {
        let mut random = Random::new(3);
        let lost = 100_000 - partial::lose(&many, per_mille, burst, &mut random).records.len() as u64;
        let expected = per_mille * 100;
        assert!((expected * 7 / 10..expected * 13 / 10).contains(&lost), "{per_mille}, {burst}: {lost}");
    }
}

#[test]
fn snap_length_keeps_the_original_length() {
    let cut = partial::truncate(&sends(LinkType::ERF), 60);
    assert!(cut.records.iter().all(|record| record.data.len() <= 60));
    assert_eq!(cut.records[0].data.len(), 60);
    // ERF 16, LRH 8, BTH 12, 100, ICRC 4, VCRC 2.
    assert_eq!(cut.records[0].original_bytes, 142);
}

#[test]
fn concatenated_parts_are_the_whole() {
    let whole = sends(LinkType::ETHERNET);
    let parts = split::rotate(&whole, &[3, 3, 30], 0);
    assert_eq!(parts.iter().map(|part| part.records.len()).collect::<Vec<_>>(), [3, 0, 27, 10]);
    assert_eq!(combine::concatenate(&parts), whole);
    let overlapping = split::rotate(&whole, &[3, 30], 5);
    assert_eq!(overlapping.iter().map(|part| part.records.len()).collect::<Vec<_>>(), [8, 32, 10]);
    assert_eq!(overlapping[0].records[3..], overlapping[1].records[..5]);
    let early = split::disorder(&split::rotate(&whole, &[30], 0), 20_000);
    assert_eq!(early[1].records[0].time_ns + 20_000, early[0].records[29].time_ns);
}

#[test]
fn a_leaf_sees_its_ports() {
    let once = sends(LinkType::ERF);
    let leaf = |endpoint: Endpoint| usize::from(endpoint == lid(18));
    let sinks = split::by_leaf(&mirrored(&once), 2, leaf);
    // Every packet passes one port of each leaf.
    assert_eq!(sinks.iter().map(|sink| sink.records.len()).collect::<Vec<_>>(), [40, 40]);
    assert!(sinks.iter().all(|sink| transmissions(std::slice::from_ref(sink), 1).count == 40));
}

#[test]
fn shift_and_drift_change_times_as_requested() {
    let recording = sends(LinkType::ERF);
    let later = combine::shift(&recording, 5_000_000);
    assert_eq!(later.span_ns().0, START_NS + 5_000_000);
    // Seconds, and 5000 us times 4295.
    let erf = u64::from_le_bytes(later.records[0].data[..8].try_into().unwrap());
    assert_eq!(erf, (1_700_000_000 << 32) + 5000 * 4295);
    let record = |time_ns: u64| recording.records[0].at(LinkType::ERF, time_ns);
    let slow = recording.with(vec![record(START_NS), record(START_NS + 1_000_000_000)]);
    assert_eq!(combine::drift(&slow, 80).span_ns().1, START_NS + 1_000_080_000);
    assert_eq!(combine::start_at(&[later], 7_000)[0].span_ns().0, 7_000);
}

#[test]
fn every_header_has_the_new_names_and_valid_checksums() {
    for link_type in [LinkType::ERF, LinkType::ETHERNET] {
        let [client, server] = ends(link_type);
        let renamed: [(Endpoint, u32); 2] = match link_type {
            LinkType::ERF => [(lid(33), 0xAB_CDEF), (lid(34), 0x10)],
            _ => [(Endpoint::from_ipv4([10, 78, 0, 1]), 0xAB_CDEF), (Endpoint::from_ipv4([10, 78, 0, 2]), 0x10)],
        };
        let rewrite = AddressRewrite {
            ends: HashMap::from([(client, renamed[0]), (server, renamed[1])]),
            senders: HashMap::from([(client, server), (server, client)]),
            ..AddressRewrite::default()
        };
        let recording = rewrite.apply(&sends(link_type));
        assert_sealed(&recording);
        let frames: Vec<PacketFrame> =
            recording.records.iter().map(|record| PacketFrame::read(link_type, record).unwrap()).collect();
        let there = (renamed[0].0, renamed[1].0, renamed[1].1);
        let back = (renamed[1].0, renamed[0].0, renamed[0].1);
        for frame in frames {
            let own = (frame.src, frame.dst, frame.dest_qp.value());
            assert!(own == there || own == back, "{own:?}");
        }
    }
}

#[test]
fn datagrams_carry_the_new_number_of_their_sender() {
    let [client, server] = ends(LinkType::ERF);
    let mut channel = Channel::new(LinkType::ERF, client, server, [5, 9], START_NS);
    channel.datagram(ChannelSide::Client, 0x1234_5678, &[7; 64]);
    let rewrite = AddressRewrite { ends: HashMap::from([(client, (lid(17), 0x77))]), ..AddressRewrite::default() };
    let recording = rewrite.apply(&channel.finish());
    assert_sealed(&recording);
    let frame = PacketFrame::read(LinkType::ERF, &recording.records[0]).unwrap();
    assert_eq!((frame.src_qp.unwrap().value(), frame.q_key), (0x77, Some(0x1234_5678)));
}
