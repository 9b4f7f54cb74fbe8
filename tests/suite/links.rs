//! Health per link: sums over both directions, compared with raw frames and packets built by hand.

use crate::health::without;
use crate::runs::{self, decompressed};
use crate::tools::{in_parallel, result, walk};
use crate::wire::{WireBuilder, WireQueuePair};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

type LinkRow = BTreeMap<String, String>;

/// The csv per link, by port and direction.
fn links(paths: &[PathBuf]) -> BTreeMap<(String, String), LinkRow> {
    let text = result(&["health", "--by", "link", "--format", "csv"], paths);
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let row = |line: &str| {
        let row: LinkRow =
            header.iter().map(|name| (*name).to_owned()).zip(line.split(',').map(str::to_owned)).collect();
        ((row["endpoint"].clone(), row["direction"].clone()), row)
    };
    lines.map(row).collect()
}

fn number(row: &LinkRow, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column}: {row:?}"))
}

/// Packets and bytes by LID and direction, from the records of a sink, in which every packet
/// appears twice.
#[test]
fn a_link_has_all_packets_of_its_port() {
    let names = ["ompi-rc-loss1-ring2", "scorep-ompi-rc-comm-4x1", "ompi-openib-mixed-2x2", "ompi-ud-ring2"];
    in_parallel(&names, |_, name| {
        let run = runs::named(name);
        let mut expected: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        for record in runs::records(&run.sink()) {
            // ERF 16, LRH (DLID at 2, SLID at 6), BTH with the queue pair at 5.
            let packet = &record[16..];
            if matches!(packet[13..16], [0, 0, 0 | 1]) {
                continue;
            }
            let lid = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]).to_string();
            for end in [(lid(6), "from".to_owned()), (lid(2), "to".to_owned())] {
                let sums = expected.entry(end).or_default();
                sums.0 += 1;
                sums.1 += packet.len() as u64;
            }
        }
        let found = links(&[run.sink()]);
        let found: BTreeMap<_, _> = found
            .iter()
            .map(|(end, row)| (end.clone(), (2 * number(row, "packets"), 2 * number(row, "wire_bytes"))))
            .collect();
        assert_eq!(found, expected, "{name}");
    });
}

#[test]
fn events_of_a_packet_count_at_both_of_its_links() {
    let paths = [runs::named("ompi-rc-loss1-ring2").node(1)];
    let found = links(&paths);
    let row = |end: &str, way: &str| &found[&(end.to_owned(), way.to_owned())];
    let mut sums = [0, 0];
    for (one, other) in [("10.77.0.1", "10.77.0.2"), ("10.77.0.2", "10.77.0.1")] {
        let (from, to) = (row(one, "from"), row(other, "to"));
        for column in ["packets", "wire_bytes", "retransmitted_packets", "retransmitted_wire_bytes", "naks"] {
            assert_eq!(number(from, column), number(to, column), "{one}: {column}");
        }
        sums[0] += number(from, "retransmitted_packets");
        sums[1] += number(from, "naks");
    }
    // The record of the run: 47 requests, 16 READs that restart, 565 responses, 3 ACKs; 9 NAKs.
    assert_eq!(sums, [47 + 16 + 565 + 3, 9]);
    let json: serde_json::Value = serde_json::from_str(&result(&["health", "--format", "json"], &paths)).expect("JSON");
    let of_json = json["links"].as_array().expect("links");
    assert_eq!(of_json.len(), found.len());
    for link in of_json {
        let row = row(link["endpoint"].as_str().expect("endpoint"), link["direction"].as_str().expect("direction"));
        assert_eq!(link["packets"].as_u64(), Some(number(row, "packets")));
        assert!(!link["findings"].as_array().expect("findings").is_empty());
    }
    let table = result(&["health", "--by", "link"], &paths);
    for text in ["capture loss", "from port 10.77.0.1", "symbol errors"] {
        assert!(table.contains(text), "{text}: {table}");
    }
}

/// READs of eight packets: every third one without its fourth response, every fifth one without its
/// request.
#[test]
fn packets_missing_in_the_capture_count_in_their_direction() {
    let mut wire = WireBuilder::new();
    let (mut there, mut back) = WireQueuePair::pair((3, 0x11), (4, 0x22));
    (there.mtu_bytes, back.mtu_bytes) = (1024, 1024);
    let (mut requests, mut responses) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..60 {
        there.send(&mut wire, b"request");
        back.ack(&mut wire, &there);
        let request = wire.packets() as usize;
        there.read(&mut wire, 0x1000, 9, 8 * 1024);
        back.read_response(&mut wire, &there, &[5; 8 * 1024]);
        if number % 5 == 1 {
            requests.insert(request);
        } else if number % 3 == 2 {
            responses.insert(request + 4);
        }
    }
    there.send(&mut wire, b"request");
    back.ack(&mut wire, &there);
    assert_eq!((requests.len(), responses.len()), (12, 16));
    let file = std::fs::read(wire.file()).expect("capture");
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("cut.pcap");
    let deleted = requests.union(&responses).copied().collect();
    std::fs::write(&path, without(&file, &deleted)).expect("written");
    let found = links(&[path]);
    for (end, way, expected) in [("3", "from", 12), ("4", "to", 12), ("4", "from", 16), ("3", "to", 16)] {
        let row = &found[&(end.to_owned(), way.to_owned())];
        let bounds = ["lost_packets", "lost_at_least", "lost_at_most"].map(|column| number(row, column));
        assert_eq!(bounds, [expected; 3], "{end} {way}");
        let percent: f64 = row["lost_percent"].parse().expect("number");
        let passed = number(row, "packets") + expected;
        assert!((percent - expected as f64 * 100.0 / passed as f64).abs() < 1e-3, "{end} {way}: {percent}");
    }
}

/// At a sink of both ports, a packet with a missing copy was missed at one of its two links: at
/// most all of them at each link, at least none.
#[test]
fn single_copies_bound_the_packets_that_a_link_missed() {
    let file = decompressed(&runs::named("ompi-rc-ring2").sink());
    let (mut seen, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    let mut by_sender: BTreeMap<u8, u64> = BTreeMap::new();
    for (record, raw) in walk(&file).iter().enumerate() {
        // ERF 16, LRH with the SLID at 6, BTH; management stays.
        let data = raw.data(&file);
        let is_management = matches!(data[29..32], [0, 0, 0 | 1]);
        if seen.insert(data[16..36].to_vec()) && !is_management && seen.len() % 10 == 0 {
            deleted.insert(record);
            *by_sender.entry(data[23]).or_default() += 1;
        }
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("cut.pcap");
    std::fs::write(&path, without(&file, &deleted)).expect("written");
    let found = links(&[path]);
    for (sender, receiver) in [(17u8, 18u8), (18, 17)] {
        let single = by_sender[&sender];
        assert!(single > 20);
        for (end, way) in [(sender, "from"), (receiver, "to")] {
            let row = &found[&(end.to_string(), way.to_owned())];
            let bounds = ["single_observation_packets", "lost_packets", "lost_at_least", "lost_at_most"];
            assert_eq!(
                bounds.map(|column| number(row, column)),
                [single, single.div_ceil(2), 0, single],
                "{end} {way}"
            );
        }
    }
}
