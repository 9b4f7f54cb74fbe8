//! The table of `docs/privacy.md`, bit by bit: the treatment of every field of every header by
//! `ibscope anonymize`.
//!
//! Packets are assembled header by header, so each header's position is known. Reserved bits are
//! set as well. Every byte of a record is in one header, and every bit of a header is in one row of
//! the table.

mod packets;

use crate::tools::{HEADER_BYTES, RawRecord, link_type, random, walk};
use crate::{anonymize, runs};
use ibscope::anonymize::{AnonymizeKey, Anonymizer, ConnectionStacks};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::{CrcVerdict, crc};
use ibscope_parsers::link::{LinkContent, locate};
use packets::{HeaderList, PacketMaker, location, places, sum, summed, udp_sum};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Headers of fixed length, in bytes.
const LENGTHS: [(&str, usize); 44] = [
    ("pcap file", 24),
    ("pcap record", 16),
    ("ERF", 16),
    ("ERF extension", 8),
    ("ERF pad", 2),
    ("SLL", 16),
    ("SLL2", 20),
    ("Ethernet", 14),
    ("VLAN", 4),
    ("MPLS", 4),
    ("Pause frame", 34),
    ("Mirror", 16),
    ("LRH", 8),
    ("GRH", 40),
    ("IPv6", 40),
    ("IPv4", 20),
    ("UDP", 8),
    ("BTH", 12),
    ("RDETH", 4),
    ("DETH", 8),
    ("XRCETH", 4),
    ("FETH", 4),
    ("RETH", 16),
    ("AtomicETH", 28),
    ("AETH", 4),
    ("AtomicAckETH", 8),
    ("ImmDt", 4),
    ("IETH", 4),
    ("CNP", 16),
    ("MAD", 24),
    ("CM REQ", 140),
    ("CM REP", 36),
    ("CM MRA", 10),
    ("CM REJ", 12),
    ("CM RTU", 8),
    ("CM DREP", 8),
    ("CM DREQ", 12),
    ("CM LAP", 64),
    ("CM APR", 12),
    ("CM SIDR_REQ", 16),
    ("CM SIDR_REP", 24),
    ("CM IP addresses", 36),
    ("Open MPI peer", 15),
    ("ICRC", 4),
];
/// The VCRC, and content of any length.
const OTHERS: [(&str, Option<usize>); 6] = [
    ("VCRC", Some(2)),
    ("MAD data", None),
    ("CM private data", None),
    ("Payload", None),
    ("Pad", None),
    ("Trailer", None),
];

fn length(header: &str) -> Option<usize> {
    let fixed = LENGTHS.iter().map(|(name, bytes)| (*name, Some(*bytes)));
    let found = fixed.chain(OTHERS).find(|(name, _)| *name == header);
    found.unwrap_or_else(|| panic!("`{header}` is not a header")).1
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Treatment {
    Kept,
    Permuted,
    Cleared,
    Number(u8),
    Computed,
}

/// A row of the table.
#[derive(Clone, Debug)]
struct Field {
    header: String,
    /// `None` for the whole of a header of any length.
    bytes: Option<Range<usize>>,
    mask: Vec<u8>,
    name: String,
    treatment: Treatment,
}

impl Field {
    fn id(&self) -> String {
        let bytes = self.bytes.as_ref().map_or("all".to_owned(), |bytes| format!("{bytes:?}"));
        format!("{} {bytes} {}", self.header, self.name)
    }

    /// The field of a header, or its captured part.
    fn of(&self, header: &[u8]) -> Vec<u8> {
        match &self.bytes {
            None => header.to_vec(),
            Some(bytes) => {
                let there = header.get(bytes.start.min(header.len())..bytes.end.min(header.len()));
                there.expect("a range").iter().zip(&self.mask).map(|(byte, mask)| byte & mask).collect()
            }
        }
    }
}

fn table() -> Vec<Field> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/privacy.md")).expect("document");
    let section = text.split("### Every field of every header\n").nth(1).expect("section");
    let section = section.split("\n## ").next().expect("section");
    let field = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [header, bytes, mask, name, becomes] = cells[..] else { panic!("{line}: five cells") };
        let bytes = (bytes != "all").then(|| {
            let (first, last) = bytes.split_once('-').unwrap_or((bytes, bytes));
            first.parse().expect("number")..last.parse::<usize>().expect("number") + 1
        });
        let mask = match mask.trim_matches('`').strip_prefix("0x") {
            None => vec![0xFF; bytes.as_ref().map_or(0, Range::len)],
            Some(digits) => {
                let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
                pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
            }
        };
        let becomes = match becomes {
            "kept" => Treatment::Kept,
            "permuted" => Treatment::Permuted,
            "cleared" => Treatment::Cleared,
            "computed" => Treatment::Computed,
            number => Treatment::Number(number.parse().unwrap_or_else(|_| panic!("{line}: {number}"))),
        };
        assert_eq!(mask.len(), bytes.as_ref().map_or(0, Range::len), "{line}: one byte of mask for each byte");
        Field { header: header.to_owned(), bytes, mask, name: name.to_owned(), treatment: becomes }
    };
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Header"));
    rows.map(field).collect()
}

#[test]
fn every_bit_of_every_header_is_in_one_row() {
    let table = table();
    let named: BTreeSet<&str> = table.iter().map(|field| field.header.as_str()).collect();
    let known: BTreeSet<&str> = LENGTHS.iter().map(|(name, _)| *name).chain(OTHERS.map(|(name, _)| name)).collect();
    assert_eq!(named, known);
    for header in known {
        let rows: Vec<&Field> = table.iter().filter(|field| field.header == header).collect();
        let Some(bytes) = length(header) else {
            assert!(rows.len() == 1 && rows[0].bytes.is_none(), "{header}: one row for all of it");
            continue;
        };
        let mut bits = vec![0u8; bytes];
        for row in rows {
            let range = row.bytes.clone().unwrap_or_else(|| panic!("{header}: {} has no place", row.name));
            for (at, mask) in range.zip(&row.mask) {
                assert!(at < bytes && bits[at] & mask == 0, "{header}: byte {at} is in two rows, or after its end");
                bits[at] |= mask;
            }
        }
        assert!(bits.iter().all(|bits| *bits == 0xFF), "{header}: only {bits:02x?} are in a row");
    }
}

/// A classic file in nanoseconds with a time zone and an accuracy. Record number n has second n.
fn file(link_type: LinkType, records: &[(&[u8], usize)]) -> Vec<u8> {
    let mut file: Vec<u8> = [0xA1B2_3C4D, 0x0004_0002, 3600, 7, 0xFFFF, u32::from(link_type.0)]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    for (number, (data, original)) in records.iter().enumerate() {
        for word in [number, 5, data.len(), *original] {
            file.extend((word as u32).to_le_bytes());
        }
        file.extend(*data);
    }
    file
}

/// Anonymizes a file.
fn anonymized(folder: &Path, file: &[u8]) -> Vec<u8> {
    let path = folder.join("fields.pcap");
    fs::write(&path, file).expect("written");
    let mut new = Vec::new();
    let mut anonymizer = Anonymizer::new(&AnonymizeKey::of("fields"), ConnectionStacks::default());
    anonymizer.file(&path, Path::new("result"), &mut new).expect("anonymized");
    new
}

/// Compares the headers of old and new records with the table, and remembers permuted values.
#[derive(Default)]
struct FieldCheck {
    table: BTreeMap<String, Vec<Field>>,
    /// By header and field, the new value of each old one.
    permuted: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Rows for which there was a record that would have shown an error.
    tried: BTreeSet<String>,
}

impl FieldCheck {
    fn new() -> Self {
        let mut check = Self::default();
        for field in table() {
            check.table.entry(field.header.clone()).or_default().push(field);
        }
        check
    }

    /// Checks one header of a complete packet, without its checksums.
    fn header(&mut self, case: &str, header: &str, old: &[u8], new: &[u8]) {
        self.part(case, header, old, new, false);
    }

    /// Checks the captured part of one header. A truncated datagram must become zeros.
    fn part(&mut self, case: &str, header: &str, old: &[u8], new: &[u8], is_truncated: bool) {
        let is_management = is_truncated && (header.starts_with("CM ") || matches!(header, "MAD" | "Open MPI peer"));
        for field in &self.table[header] {
            let is_there = field.bytes.as_ref().is_none_or(|bytes| bytes.end <= old.len());
            let (before, after) = (field.of(old), field.of(new));
            let is_cleared = after.iter().all(|byte| *byte == 0);
            let why = format!("{case}: {header}, {}: {before:02x?} has become {after:02x?}", field.name);
            let id = field.id();
            let is_telling = match field.treatment {
                Treatment::Kept => {
                    assert!(before == after || is_management && is_cleared, "{why}");
                    before == after && before.iter().any(|byte| *byte != 0)
                }
                Treatment::Cleared => {
                    assert!(is_cleared, "{why}");
                    before != after
                }
                Treatment::Number(number) => {
                    assert!(after.iter().all(|byte| *byte == number), "{why}");
                    before != after
                }
                Treatment::Permuted if !is_there || is_management && is_cleared => {
                    assert!(is_cleared, "{why}");
                    false
                }
                Treatment::Permuted => {
                    let known = self.permuted.entry(id.clone()).or_default();
                    let earlier = known.insert(before.clone(), after.clone());
                    assert!(earlier.is_none_or(|earlier| earlier == after), "{why}, but had another value before");
                    before != after && !is_cleared
                }
                Treatment::Computed => before != after,
            };
            if is_telling && !is_truncated {
                self.tried.insert(id);
            }
        }
    }

    fn end(&self, headers: &[&str]) {
        for (field, values) in &self.permuted {
            let new: BTreeSet<&Vec<u8>> = values.values().collect();
            assert_eq!(new.len(), values.len(), "{field}: two values have become one");
        }
        for field in headers.iter().flat_map(|header| &self.table[*header]) {
            let id = field.id();
            assert!(self.tried.contains(&id), "{id}: no packet covers this row");
        }
    }
}

#[test]
fn constructed_packets_are_treated_as_the_table_says() {
    let folder = tempfile::tempdir().expect("folder");
    let mut check = FieldCheck::new();
    let mut packets = Vec::new();
    for seed in 0..3 {
        packets.extend(PacketMaker(random(seed)).all());
    }
    let link_types: BTreeSet<u16> = packets.iter().map(|(link_type, _)| link_type.0).collect();
    for link_type in link_types.into_iter().map(LinkType) {
        let of_type: Vec<&HeaderList> = packets.iter().filter(|(own, _)| *own == link_type).map(|(_, it)| it).collect();
        for are_right in [true, false] {
            let data: Vec<Vec<u8>> = of_type.iter().map(|packet| summed(link_type, packet, are_right)).collect();
            let old = file(link_type, &data.iter().map(|data| (&data[..], data.len())).collect::<Vec<_>>());
            let new = anonymized(folder.path(), &old);
            check.header("file", "pcap file", &old[..HEADER_BYTES], &new[..HEADER_BYTES]);
            let (before, after) = (walk(&old), walk(&new));
            assert_eq!(after.len(), before.len(), "{link_type:?}: records were dropped");
            for ((packet, before), after) in of_type.iter().zip(&before).zip(&after) {
                let places = places(packet);
                let names: Vec<&str> = places.iter().map(|(name, _)| *name).collect();
                let case = format!("{link_type:?} {names:?}");
                let head = |file: &[u8], record: &RawRecord| file[record.place.start..record.place.start + 16].to_vec();
                check.header(&case, "pcap record", &head(&old, before), &head(&new, after));
                let (before, after) = (before.data(&old), after.data(&new));
                assert_eq!(before.len(), after.len(), "{case}");
                for (name, place) in &places {
                    check.header(&case, name, &before[place.clone()], &after[place.clone()]);
                }
                assert_checksums(&case, link_type, after, &places, are_right);
            }
        }
    }
    let all: Vec<&str> = LENGTHS.iter().map(|(name, _)| *name).chain(OTHERS.map(|(name, _)| name)).collect();
    check.end(&all);
}

/// Asserts that all checksums of a complete packet match, or that none does.
fn assert_checksums(
    case: &str,
    link_type: LinkType,
    data: &[u8],
    places: &[(&'static str, Range<usize>)],
    are_right: bool,
) {
    let Some(location) = location(link_type, data) else { return };
    let verdict = if are_right { CrcVerdict::Ok } else { CrcVerdict::Bad };
    assert_eq!(crc::verify_icrc(data, &location), verdict, "{case}: ICRC");
    for (name, place) in places {
        match *name {
            "VCRC" => assert_eq!(crc::verify_vcrc(data, &location), verdict, "{case}: VCRC"),
            "IPv4" => assert_eq!(sum(&data[place.clone()]) == 0xFFFF, are_right, "{case}: checksum of IP"),
            "UDP" => assert_eq!(udp_sum(data, places) == 0xFFFF, are_right, "{case}: checksum of UDP"),
            _ => {}
        }
    }
}

/// Wherever a capture truncates a packet, no cleared field is left.
#[test]
fn packets_truncated_at_any_byte_leave_nothing_more() {
    let folder = tempfile::tempdir().expect("folder");
    let mut check = FieldCheck::new();
    let packets = PacketMaker(random(7)).all();
    let link_types: BTreeSet<u16> = packets.iter().map(|(link_type, _)| link_type.0).collect();
    for link_type in link_types.into_iter().map(LinkType) {
        let of_type: Vec<(Vec<_>, Vec<u8>)> = packets
            .iter()
            .filter(|(own, _)| *own == link_type)
            .map(|(_, packet)| (places(packet), summed(link_type, packet, true)))
            .collect();
        let cuts: Vec<(usize, usize)> = of_type
            .iter()
            .enumerate()
            .flat_map(|(index, (_, data))| (1..data.len()).map(move |cut| (index, cut)))
            .collect();
        let records: Vec<(&[u8], usize)> =
            cuts.iter().map(|&(index, cut)| (&of_type[index].1[..cut], of_type[index].1.len())).collect();
        let old = file(link_type, &records);
        let new = anonymized(folder.path(), &old);
        let after = walk(&new);
        assert!(after.len() * 4 > records.len(), "{link_type:?}: {} of {}", after.len(), records.len());
        for record in &after {
            // Unreadable records are dropped; the second of a record's time is its number.
            let (index, cut) = cuts[(record.time_ns / 1_000_000_000) as usize];
            let (places, old) = &of_type[index];
            let new = record.data(&new);
            assert_eq!(new.len(), cut);
            for (name, place) in places.iter().filter(|(_, place)| place.start < cut) {
                let place = place.start..place.end.min(cut);
                let case = format!("{link_type:?} record {index} of {cut} bytes");
                check.part(&case, name, &old[place.clone()], &new[place.clone()], true);
                // A checksum over missing bytes would be invented, and the original one would
                // reveal them.
                let covers_all = matches!(*name, "ICRC" | "VCRC") && place.len() < length(name).expect("fixed");
                assert!(!covers_all || new[place].iter().all(|byte| *byte == 0), "{case}: {name}");
            }
        }
    }
    check.end(&[]);
}

/// The headers of recorded packets, up to the payload.
fn recorded(link_type: u16, data: &[u8]) -> Option<Vec<(&'static str, Range<usize>)>> {
    let fixed: &[&'static str] = match link_type {
        1 if data.get(12..14) == Some(&[0x08, 0x00]) => &["Ethernet", "IPv4", "UDP", "BTH"],
        1 => return None,
        _ => &["ERF", "LRH", "BTH"],
    };
    let mut at = 0;
    let mut found: Vec<(&'static str, Range<usize>)> = Vec::new();
    let mut add = |name: &'static str, bytes: usize| {
        found.push((name, at..at + bytes));
        at += bytes;
        at - bytes
    };
    let mut bth = 0;
    for name in fixed {
        bth = add(name, length(name).expect("fixed"));
    }
    let extensions: &[&str] = match data.get(bth)? & 0x1F {
        0x05 | 0x03 if data[bth] < 0x20 => &["ImmDt"],
        0x06 | 0x0A | 0x0C if data[bth] < 0x40 => &["RETH"],
        0x0D | 0x0F | 0x10 | 0x11 if data[bth] < 0x20 => &["AETH"],
        0x12 if data[bth] < 0x20 => &["AETH", "AtomicAckETH"],
        0x13 | 0x14 if data[bth] < 0x20 => &["AtomicETH"],
        0x04 if data[bth] == 0x64 => &["DETH"],
        _ => &[],
    };
    for name in extensions {
        add(name, length(name).expect("fixed"));
    }
    if data.get(bth + 5..bth + 8) == Some(&[0, 0, 1]) {
        let mad = add("MAD", 24);
        if data.get(mad + 1) == Some(&7) {
            let message = match data[mad + 17] {
                0x10 => "CM REQ",
                0x13 => "CM REP",
                0x14 => "CM RTU",
                0x15 => "CM DREQ",
                0x16 => "CM DREP",
                _ => return Some(found),
            };
            add(message, length(message).expect("fixed"));
        }
    }
    Some(found)
}

#[test]
fn recorded_packets_are_treated_as_the_table_says() {
    let mut check = FieldCheck::new();
    for name in ["perf-atomic-lat", "perf-cm-write-lat", "perf-read-lat", "perf-ud-send-lat", "ompi-ofi-ring2"] {
        let run = runs::named(name);
        for capture in [run.sink(), run.node(1)] {
            let folder = tempfile::tempdir().expect("folder");
            let place = folder.path().join("out.pcap");
            anonymize::anonymized(std::slice::from_ref(&capture), &place, &folder.path().join("names.csv"));
            let (old, new) = (runs::decompressed(&capture), fs::read(&place).expect("result"));
            let link = link_type(&old);
            let before: Vec<RawRecord> = walk(&old)
                .into_iter()
                .filter(|record| {
                    matches!(
                        locate(LinkType(link), record.data(&old), record.original_bytes),
                        Ok(LinkContent::Infiniband(_))
                    )
                })
                .collect();
            let after = walk(&new);
            assert_eq!(before.len(), after.len(), "{name}");
            for (before, after) in before.iter().zip(&after) {
                let (before, after) = (before.data(&old), after.data(&new));
                for (header, place) in recorded(link, before).into_iter().flatten() {
                    check.header(name, header, &before[place.clone()], &after[place]);
                }
            }
            // Each run has its own key.
            check.end(&[]);
            check.permuted.clear();
        }
    }
    for id in [
        "LRH 6..8 source LID",
        "IPv4 4..6 identification",
        "IPv4 12..16 source",
        "UDP 0..2 source port",
        "Ethernet 0..6 destination",
        "MAD 8..16 transaction",
        "CM REQ 16..24 GUID of the adapter",
        "AtomicETH 0..8 virtual address",
        "RETH 8..12 remote key",
    ] {
        assert!(check.tried.contains(id), "{id}: no recorded packet covers this row");
    }
}
