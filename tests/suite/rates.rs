//! Rates, sizes and time series of retransmissions in the recorded runs, compared with a simple
//! computation on their packets.

use crate::runs::{self, decompressed, is_roce};
use crate::tools::{csv_rows, ibscope, in_parallel, result, sample, walk};
use crate::wire::profile;
use ibscope::analysis::rates::{DEFAULT_WINDOW_NS, RateValues, rates};
use ibscope::analysis::{GroupBy, Label};
use ibscope::model::profile::BinRetransmissions;
use ibscope::model::{Profile, SizeCategory, SizeSums, TrafficKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Path MTU of all recorded runs.
const MTU_BYTES: u32 = 4096;

/// A clock that jumps by days makes no large csv from a small capture, unless requested; the sums
/// stay.
#[test]
fn days_without_packets_make_wider_bins() {
    const DAYS_3_S: u32 = 259_200;
    let mut file = decompressed(&sample("perftest-read-lat"));
    let records = walk(&file);
    for record in &records[records.len() / 2..] {
        let seconds = &mut file[record.place.start..record.place.start + 4];
        let later = u32::from_le_bytes(seconds.try_into().expect("seconds")) + DAYS_3_S;
        seconds.copy_from_slice(&later.to_le_bytes());
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("jump.pcap");
    std::fs::write(&path, file).expect("written");
    let place = path.to_str().expect("path");
    let ran = ibscope(["rates", "--format", "csv", place]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // 26 million bins of 10 ms: doubled five times.
    assert!(
        ran.stderr.contains("note: bins are 320 ms wide, because bins of 10 ms would be too many"),
        "{}",
        ran.stderr
    );
    let times: Vec<i64> =
        ran.stdout.lines().skip(1).map(|line| line.split(',').next().expect("time").parse().expect("ns")).collect();
    assert!(times.len() > 1 << 19 && times.len() <= 1 << 20, "{}", times.len());
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 320_000_000));
    let packets = |csv: &str| {
        csv.lines()
            .skip(1)
            .map(|line| line.split(',').nth(5).expect("packets").parse::<u64>().expect("number"))
            .sum::<u64>()
    };
    let asked = result(&["rates", "--format", "csv", "--bin", "1h"], &[&path]);
    assert!(packets(&ran.stdout) > 0);
    assert_eq!(packets(&ran.stdout), packets(&asked));
}

/// A RoCE packet parsed by hand: Ethernet 14, IPv4 20, UDP 8, BTH 12, extension headers.
struct RatePacket {
    time_ns: i64,
    /// Sender, receiver, the receiver's queue pair, and the sender's for datagrams.
    connection: ([u8; 4], [u8; 4], u32, u32),
    opcode: u8,
    psn: u32,
    wire_bytes: u64,
    frame: Vec<u8>,
}

impl RatePacket {
    /// Packet role: request 0, response 1, acknowledgement 2.
    fn role(&self) -> u8 {
        match self.opcode & 0x1F {
            0x0D..=0x10 | 0x12 => 1,
            0x11 => 2,
            _ => 0,
        }
    }

    /// PSNs that the packet takes: for a READ request those of its response, whose length is in the
    /// RETH.
    fn span(&self) -> u32 {
        let length = || u32::from_be_bytes(self.frame[66..70].try_into().expect("four bytes"));
        if self.opcode == 0x0C { length().div_ceil(MTU_BYTES).max(1) } else { 1 }
    }
}

/// The packets between queue pairs of applications at the port of a node, in file order.
fn packets(run: &runs::RecordedRun, node: u8) -> Vec<RatePacket> {
    let records = runs::timed_records(&run.node(node)).into_iter().filter(|(_, frame)| is_roce(frame));
    let packet = |(time_ns, frame): (u64, Vec<u8>)| {
        let number = |at: usize| u32::from_be_bytes([0, frame[at], frame[at + 1], frame[at + 2]]);
        let opcode = frame[42];
        let datagram_qp = if opcode >> 5 == 3 { number(59) } else { 0 };
        let ends = [26, 30].map(|at| <[u8; 4]>::try_from(&frame[at..at + 4]).expect("address"));
        RatePacket {
            time_ns: time_ns as i64,
            connection: (ends[0], ends[1], number(47), datagram_qp),
            opcode,
            psn: number(51),
            // Of the whole frame, even if truncated: 14 and the length in the IPv4 header.
            wire_bytes: 14 + u64::from(u16::from_be_bytes([frame[16], frame[17]])),
            frame,
        }
    };
    records.map(packet).filter(|packet| packet.connection.2 > 1).collect()
}

/// The first transmissions, and the retransmissions.
fn apart(packets: Vec<RatePacket>) -> (Vec<RatePacket>, Vec<RatePacket>) {
    let mut seen = BTreeSet::new();
    packets.into_iter().partition(|packet| {
        let key = |psn| (packet.connection, packet.role(), psn);
        let is_new = !seen.contains(&key(packet.psn));
        seen.extend((0..packet.span()).map(|more| key((packet.psn + more) & 0xFF_FFFF)));
        is_new
    })
}

fn data(profile: &Profile) -> impl Iterator<Item = (u32, &ibscope::model::profile::ConnectionRow)> {
    (0..).zip(&profile.connections).filter(|(_, row)| row.kind == TrafficKind::Data)
}

#[test]
fn retransmissions_are_in_the_bin_of_their_time() {
    for name in ["ompi-rc-loss1-ring2", "perf-read-lat", "ompi-rc-ring2"] {
        let run = runs::named(name);
        for node in [1, 2] {
            let found = profile(&[run.node(node)]);
            let mut bins: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for row in found.timeline.iter().filter(|row| row.retransmissions != BinRetransmissions::default()) {
                let bin = bins.entry(row.time_ns).or_default();
                *bin = (bin.0 + row.retransmissions.packets, bin.1 + row.retransmissions.wire_bytes);
            }
            let mut expected: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
            for packet in apart(packets(&run, node)).1 {
                let bin = expected.entry(packet.time_ns.div_euclid(found.bin_ns) * found.bin_ns).or_default();
                *bin = (bin.0 + 1, bin.1 + packet.wire_bytes);
            }
            assert_eq!(bins, expected, "{name}, node {node}");
            assert_eq!(bins.is_empty(), name == "ompi-rc-ring2", "{name}, node {node}");
        }
    }
}

#[test]
fn binned_retransmissions_add_up_to_those_of_the_connection() {
    for run in runs::all() {
        for paths in [run.every_node(), vec![run.sink()]] {
            let found = profile(&paths);
            for (index, row) in data(&found) {
                let mut sum = BinRetransmissions::default();
                found.timeline.iter().filter(|bin| bin.connection == index).for_each(|bin| sum += bin.retransmissions);
                let retransmissions = row.retransmissions;
                let packets = retransmissions.request_packets
                    + retransmissions.response_packets
                    + retransmissions.acknowledge_packets;
                assert_eq!(
                    (sum.packets, sum.wire_bytes),
                    (packets, retransmissions.wire_bytes),
                    "{}: {paths:?}",
                    run.name
                );
            }
        }
    }
}

/// The runs' captures at single ports.
fn ports() -> Vec<(runs::RecordedRun, u8)> {
    runs::all().into_iter().flat_map(|run| (1..=run.nodes).map(move |node| (runs::named(&run.name), node))).collect()
}

/// Sizes by sender, receiver, kind and class: count, bytes, minimum and maximum.
type Classes = BTreeMap<([u8; 4], [u8; 4], &'static str, u32), (u64, u64, u64, u64)>;

fn note(classes: &mut Classes, ends: ([u8; 4], [u8; 4]), of: &'static str, bytes: u64) {
    // 0, 1, 2 and 3, 4 to 7 ...
    let class = classes.entry((ends.0, ends.1, of, u64::BITS - bytes.leading_zeros())).or_insert((0, 0, u64::MAX, 0));
    *class = (class.0 + 1, class.1 + bytes, class.2.min(bytes), class.3.max(bytes));
}

/// These distributions in the profile.
fn kept(profile: &Profile, distributions: &[&str]) -> Classes {
    let mut classes = Classes::new();
    for row in profile.sizes.iter().filter(|row| distributions.contains(&row.category.distribution())) {
        let connection = &profile.connections[row.connection as usize];
        assert_eq!(connection.kind, TrafficKind::Data);
        let address = |endpoint: ibscope_parsers::Endpoint| {
            endpoint.to_string().parse::<std::net::Ipv4Addr>().expect("address").octets()
        };
        let from = row.size.from_bytes();
        let key =
            (address(connection.src), address(connection.dst), row.category.name(), u64::BITS - from.leading_zeros());
        let (sums, class) = (row.sums, classes.entry(key).or_insert((0, 0, u64::MAX, 0)));
        let (smallest, largest) = (class.2.min(sums.smallest_bytes), class.3.max(sums.largest_bytes));
        *class = (class.0 + sums.count, class.1 + sums.bytes, smallest, largest);
    }
    classes
}

#[test]
fn packet_sizes_match_a_simple_computation() {
    in_parallel(&ports(), |_, (run, node)| {
        let mut expected = Classes::new();
        for packet in apart(packets(run, *node)).0 {
            let of = ["request", "response", "acknowledge"][usize::from(packet.role())];
            note(&mut expected, (packet.connection.0, packet.connection.1), of, packet.wire_bytes);
        }
        assert!(!expected.is_empty());
        assert_eq!(kept(&profile(&[run.node(*node)]), &["packets"]), expected, "{}, node {node}", run.name);
    });
}

/// Bytes between the headers and pad and ICRC: RETH 16, DETH 8, immediate data or key 4.
fn payload_bytes(packet: &RatePacket) -> u64 {
    let service = packet.opcode >> 5;
    let extension = match packet.opcode & 0x1F {
        0x06 | 0x0A => 16,
        0x0B => 20,
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 => 4,
        _ => 0,
    } + if service == 3 { 8 } else { 0 };
    let pad = u64::from(packet.frame[43] >> 4 & 3);
    packet.wire_bytes - 42 - 12 - extension - pad - 4
}

/// Messages assembled by sorting: without retransmissions, First, Middle and Last packets are
/// consecutive by PSN.
#[test]
fn message_sizes_match_a_simple_computation() {
    in_parallel(&ports(), |_, (run, node)| {
        let mut expected = Classes::new();
        let mut connections: BTreeMap<_, Vec<RatePacket>> = BTreeMap::new();
        let requests = apart(packets(run, *node)).0.into_iter().filter(|packet| packet.role() == 0);
        requests.for_each(|packet| connections.entry(packet.connection).or_default().push(packet));
        for ((src, dst, ..), mut requests) in connections {
            let first = requests[0].psn;
            requests.sort_by_key(|packet| packet.psn.wrapping_sub(first).wrapping_add(1 << 20) & 0xFF_FFFF);
            let mut bytes = 0;
            for packet in &requests {
                let of = match packet.opcode & 0x1F {
                    _ if packet.opcode >> 5 == 3 => "DATAGRAM",
                    0x00..=0x05 | 0x16 | 0x17 => "SEND",
                    0x06..=0x0B => "WRITE",
                    0x0C => "READ",
                    _ => "ATOMIC",
                };
                bytes += match of {
                    "READ" => u64::from(u32::from_be_bytes(packet.frame[66..70].try_into().expect("four bytes"))),
                    "ATOMIC" => 8,
                    _ => payload_bytes(packet),
                };
                // All packets except First and Middle end a message.
                if !matches!(packet.opcode & 0x1F, 0x00 | 0x01 | 0x06 | 0x07) || of == "DATAGRAM" {
                    note(&mut expected, (src, dst), of, std::mem::take(&mut bytes));
                }
            }
        }
        let found = profile(&[run.node(*node)]);
        assert_eq!(kept(&found, &["messages"]), expected, "{}, node {node}", run.name);
        let messages: u64 = data(&found).map(|(_, row)| row.traffic.messages).sum();
        assert_eq!(expected.values().map(|class| class.0).sum::<u64>(), messages, "{}, node {node}", run.name);
    });
}

/// Every send that the applications recorded, of pairs of ranks without tracer messages.
#[test]
fn mpi_sizes_match_the_sends() {
    let mut checked = 0;
    for run in runs::all() {
        let (Some(wire), Some(truth)) = (run.truth("wire.csv"), run.truth("truth.csv")) else { continue };
        let pure: BTreeSet<(u32, u32)> =
            wire.iter().filter(|(pair, sums)| truth.get(pair) == Some(sums)).map(|(pair, _)| *pair).collect();
        let mut expected: BTreeMap<(u32, u32), BTreeMap<u64, SizeSums>> = BTreeMap::new();
        for rank in run.node_of_rank().keys() {
            let text = runs::decompressed(&run.folder.join(format!("sends/sends.{rank}.csv.zst")));
            for line in String::from_utf8(text).expect("text").lines().skip(1) {
                let fields: Vec<u64> = line.split(',').map(|field| field.parse().unwrap_or(0)).collect();
                let (pair, bytes) = ((fields[1] as u32, fields[2] as u32), fields[4]);
                if pure.contains(&pair) {
                    let from = if bytes == 0 { 0 } else { 1 << bytes.ilog2() };
                    let class = expected.entry(pair).or_default().entry(from).or_insert(SizeSums {
                        count: 0,
                        bytes: 0,
                        smallest_bytes: u64::MAX,
                        largest_bytes: 0,
                    });
                    class.count += 1;
                    class.bytes += bytes;
                    class.smallest_bytes = class.smallest_bytes.min(bytes);
                    class.largest_bytes = class.largest_bytes.max(bytes);
                }
            }
        }
        for paths in [run.every_node(), vec![run.sink()]] {
            let rates = rates(&profile(&paths), Some(GroupBy::Rank), None, DEFAULT_WINDOW_NS).expect("rates");
            for (pair, classes) in &expected {
                let series = &rates.pairs[&(Label::only(pair.0), Label::only(pair.1))];
                let own = series.sizes.iter().filter(|((of, _), _)| *of == SizeCategory::PointToPoint);
                let found: BTreeMap<u64, SizeSums> = own.map(|((_, size), sums)| (size.from_bytes(), *sums)).collect();
                assert_eq!(found, *classes, "{}: {pair:?}: {paths:?}", run.name);
                checked += found.len();
            }
        }
    }
    assert!(checked > 200, "only {checked} classes of sizes were compared");
}

/// Any width gives the sums of the connections, whether it is a multiple of the profile's or not;
/// pairs add up to the total.
#[test]
fn bins_add_up_to_the_connections() {
    in_parallel(&runs::all(), |_, run| {
        for paths in [run.every_node(), vec![run.sink()]] {
            let found = profile(&paths);
            let mut sums: RateValues = RateValues::default();
            for (_, row) in data(&found) {
                let traffic = row.traffic;
                let mpi = (
                    traffic.p2p_messages + traffic.collective_messages,
                    traffic.p2p_mpi_bytes + traffic.collective_mpi_bytes,
                );
                let values =
                    [traffic.wire_bytes, traffic.payload_bytes, traffic.packets, traffic.messages, mpi.0, mpi.1];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            for bin_ns in
                [None, Some(10_000_000), Some(30_000_000), Some(3_000_000), Some(7_654_321), Some(1_000_000_000)]
            {
                let place = format!("{}: {bin_ns:?}: {paths:?}", run.name);
                let rates = rates(&found, Some(GroupBy::Endpoint), bin_ns, DEFAULT_WINDOW_NS).expect("rates");
                let all = |series| {
                    let bins: Vec<(i64, RateValues)> = rates.bins(series).collect();
                    assert!(bins.windows(2).all(|pair| pair[1].0 - pair[0].0 == rates.bin_ns), "{place}");
                    assert!(bins.iter().all(|(time_ns, _)| time_ns % rates.bin_ns == 0), "{place}");
                    assert_eq!(bins.len() as i128, rates.count(), "{place}");
                    bins
                };
                let add = |bins: Vec<(i64, RateValues)>| {
                    bins.iter().fold(RateValues::default(), |mut sum, (_, values)| {
                        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                        sum
                    })
                };
                assert_eq!(add(all(&rates.total)), sums, "{place}");
                assert_eq!(rates.total.sums, sums, "{place}");
                let mut pairs = RateValues::default();
                for series in rates.pairs.values() {
                    let sum = add(all(series));
                    assert_eq!(sum, series.sums, "{place}");
                    pairs.iter_mut().zip(sum).for_each(|(pairs, sum)| *pairs += sum);
                }
                assert_eq!(pairs, sums, "{place}");
            }
        }
    });
}

/// The window moves over all packets of a port, one bin at a time.
#[test]
fn peaks_match_a_window_moved_over_all_packets() {
    for (name, window_ns) in [
        ("ompi-rc-ring2", 100_000_000),
        ("ompi-rc-loss1-ring2", 50_000_000),
        ("perf-read-lat", 20_000_000),
        ("ompi-openib-bt.S-4x1", 1_000_000_000),
    ] {
        let run = runs::named(name);
        let packets = packets(&run, 1);
        let found = profile(&[run.node(1)]);
        let rates = rates(&found, Some(GroupBy::Endpoint), None, window_ns).expect("rates");
        assert_eq!(rates.window_ns, window_ns, "{name}");
        let first = packets.iter().map(|packet| packet.time_ns.div_euclid(rates.fine_ns)).min().expect("packets");
        let last = packets.iter().map(|packet| packet.time_ns.div_euclid(rates.fine_ns)).max().expect("packets");
        let address = |label: &Label| label.to_string().parse::<std::net::Ipv4Addr>().expect("address").octets();
        let pairs = rates.pairs.iter().map(|((src, dst), series)| (Some((address(src), address(dst))), series));
        for (pair, series) in pairs.chain([(None, &rates.total)]) {
            let of = |packet: &&RatePacket| pair.is_none_or(|pair| pair == (packet.connection.0, packet.connection.1));
            let mut most = [0; 2];
            for start in first..=last + 1 - window_ns / rates.fine_ns {
                let start_ns = start * rates.fine_ns;
                let inside = packets.iter().filter(of);
                let inside = inside.filter(|packet| (start_ns..start_ns + window_ns).contains(&packet.time_ns));
                let sums = inside.fold([0, 0], |sums: [u64; 2], packet| [sums[0] + packet.wire_bytes, sums[1] + 1]);
                let held = |index: usize| series.peaks[index].start_ns == start_ns;
                assert!(!held(0) || series.peaks[0].sum == sums[0], "{name}: {pair:?}");
                assert!(!held(2) || series.peaks[2].sum == sums[1], "{name}: {pair:?}");
                most = [most[0].max(sums[0]), most[1].max(sums[1])];
            }
            assert_eq!([series.peaks[0].sum, series.peaks[2].sum], most, "{name}: {pair:?}");
            let rate = most[0] as f64 * 1e9 / window_ns as f64;
            assert!((rates.peak(series.peaks[0]) - rate).abs() < 1e-6 * rate, "{name}: {pair:?}");
        }
    }
}

#[test]
fn a_narrow_window_is_found_in_narrow_bins() {
    // With captures, bins are as narrow as both the bins and a hundredth of the window need.
    let path = runs::named("ompi-rc-ring2").node(1);
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&result(&[&["rates", "--format", "json"], arguments].concat(), &[&path])).expect("json")
    };
    let narrow = json(&["--bin", "10ms", "--window", "4ms"]);
    assert_eq!((&narrow["resolution_ns"], &narrow["window_ns"]), (&Value::from(40_000), &Value::from(4_000_000)));
    assert_eq!(narrow["shared_out"], false);
    // Bins of 10 ms of a narrow analysis equal those of an analysis with bins of 10 ms.
    assert_eq!(narrow["total"]["bins"], json(&["--bin", "10ms"])["total"]["bins"]);
}

#[test]
fn every_format_has_the_same_numbers() {
    let path = runs::named("ompi-rc-mixed-2x2").sink();
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("profile.ibp");
    // As narrow as captures are read for a window of 100 ms.
    result(&["analyze", "--bin", "1ms", "-o", place.to_str().expect("path")], &[&path]);
    for by in [&[][..], &["--by", "rank"], &["--by", "endpoint"]] {
        let all = |format| [&["rates", "--bin", "10ms", "--format", format], by].concat();
        let of = |format, input: &std::path::Path| result(&all(format), &[input]);
        for format in ["table", "csv", "json"] {
            assert_eq!(of(format, &place), of(format, &path), "{by:?}: {format}");
        }
        let csv = of("csv", &path);
        let json: Value = serde_json::from_str(&of("json", &path)).expect("json");
        let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
        let mut columns: BTreeMap<(String, String, String), Vec<u64>> = BTreeMap::new();
        for line in csv.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            for (index, name) in header.iter().enumerate().skip(3).take(6) {
                let key = (fields[1].to_owned(), fields[2].to_owned(), (*name).to_owned());
                let value: u64 = fields[index].parse().expect("number");
                columns.entry(key).or_default().push(value);
                let rate: f64 = fields[index + 6].parse().expect("rate");
                // Bins of 10 ms.
                assert!((rate - value as f64 * 100.0).abs() < 1e-6 * rate.max(1.0), "{line}");
            }
        }
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let all_series = if by.is_empty() {
            vec![&json["total"]]
        } else {
            json["pairs"].as_array().expect("pairs").iter().collect()
        };
        let mut seen = 0;
        for series in all_series {
            for (name, bins) in series["bins"].as_object().expect("bins") {
                let bins: Vec<u64> =
                    bins.as_array().expect("bins").iter().map(|bin| bin.as_u64().expect("sum")).collect();
                let key = (text(&series["src"]), text(&series["dst"]), name.clone());
                assert_eq!(columns[&key], bins, "{key:?}");
                let peaks = series["peaks"].as_array().expect("peaks");
                let peak = peaks.iter().find(|row| row["value"] == *name).expect("value");
                assert_eq!(peak["sum"].as_u64(), Some(bins.iter().sum()), "{key:?}");
                seen += 1;
            }
        }
        assert_eq!(seen, columns.len(), "{by:?}");
    }
}

#[test]
fn limits_of_a_profile_are_reported() {
    let path = runs::named("ompi-rc-ring2").sink();
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("profile.ibp");
    result(&["analyze", "-o", place.to_str().expect("path")], &[&path]);
    let run = |more: &[&str]| ibscope([&["rates"], more, &[place.to_str().expect("path")]].concat());
    let shared = run(&["--bin", "3ms"]);
    assert!(shared.code == 0 && shared.stderr.contains("not a multiple"), "{}", shared.stderr);
    assert!(!run(&["--bin", "30ms"]).stderr.contains("not a multiple"));
    let long = run(&["--window", "1h"]);
    assert!(long.stderr.contains("the traffic lasts only that long"), "{}", long.stderr);
    let part = run(&["--from", "0.1", "--to", "0.2"]);
    assert!(part.code == 0 && part.stderr.contains("for its whole time only"), "{}", part.stderr);
    let many = run(&["--bin", "1ns", "--format", "csv"]);
    assert!(many.code == 1 && many.stderr.contains("--bin") && many.stdout.is_empty(), "{}", many.stderr);
    let nothing = run(&["--from", "10000"]);
    assert!(nothing.code == 0 && nothing.stdout.contains("no traffic"), "{}", nothing.stdout);
    result(&["analyze", "--no-mpi", "-o", place.to_str().expect("path")], &[&path]);
    let without = run(&[]);
    assert!(without.stdout.contains("--no-mpi") && without.stdout.contains("request"), "{}", without.stdout);
}

/// The time of a peak as a window holds exactly the traffic of the peak.
#[test]
fn the_window_of_a_peak_shows_its_traffic() {
    let path = crate::tools::sample("openib-mixed-4x1");
    let wire = |arguments: &[&str]| -> Vec<String> {
        let table = crate::tools::result(&[&["rates"], arguments].concat(), &[&path]);
        let row = table.lines().find(|line| line.trim_start().starts_with("wire")).expect("wire").to_owned();
        row.split_whitespace().map(str::to_owned).collect()
    };
    let peaks = |arguments: &[&str]| -> [u64; 2] {
        let csv =
            crate::tools::result(&[&["rates", "--view", "peaks", "--format", "csv"], arguments].concat(), &[&path]);
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().expect("header");
        let row = lines.find(|row| row[2] == "wire_bytes").expect("wire");
        ["sum", "peak_sum"]
            .map(|name| row[header.iter().position(|column| *column == name).expect("column")].parse().expect("number"))
    };
    // The columns of the line: wire SUM UNIT MEAN UNIT PEAK UNIT FROM TO.
    let whole = wire(&[]);
    let [sum, peak_sum] = peaks(&[]);
    assert_eq!(peaks(&["--from", &whole[7], "--to", &whole[8]])[0], peak_sum);
    assert!(peak_sum < sum);
}

/// Mean rates, peak rates and busy shares by row, for captures and for a profile, in bins of any
/// width. Only a whole bin divides the time at its ends differently.
#[test]
fn rates_do_not_depend_on_the_width_of_the_bins() {
    const BINS: [&str; 8] = ["1ms", "3ms", "7ms", "10ms", "25ms", "50ms", "100ms", "250ms"];
    let folder = tempfile::tempdir().expect("folder");
    for name in ["ompi-openib-bt.S-4x1", "ompi-rc-coll-2x2"] {
        let sink = runs::named(name).sink();
        let place = folder.path().join(format!("{name}.ibp"));
        result(&["analyze", "--bin", "1ms", "-o", place.to_str().expect("path")], std::slice::from_ref(&sink));
        let views: [(&[&str], &[&str]); 2] = [
            (&["--view", "peaks"], &["mean_per_s", "peak_per_s"]),
            (
                &["--by", "link", "--link", "0.1Gb/s"],
                &["mean_bytes_per_s", "peak_10ms_bytes_per_s", "peak_100ms_bytes_per_s", "busy_share"],
            ),
        ];
        for (input, (arguments, columns)) in
            [&sink, &place].into_iter().flat_map(|input| views.map(|view| (input, view)))
        {
            let numbers = |bin: &str| -> Vec<f64> {
                let all = [&["rates", "--format", "csv", "--bin", bin][..], arguments].concat();
                let rows = csv_rows(&result(&all, std::slice::from_ref(input)));
                let number = |text: &String| text.parse().unwrap_or_else(|_| panic!("{name}, {bin}: {text}"));
                rows.iter().flat_map(|row| columns.iter().map(|column| number(&row[*column]))).collect()
            };
            let expected = numbers(BINS[0]);
            assert!(expected.len() >= 8 && expected.iter().any(|value| *value > 0.0), "{name}: {expected:?}");
            for bin in &BINS[1..] {
                let found = numbers(bin);
                assert_eq!(found.len(), expected.len(), "{name}, {bin}");
                for (found, expected) in found.iter().zip(&expected) {
                    assert!((found - expected).abs() <= 0.01 * expected, "{name}, {bin}: {found}, not {expected}");
                }
            }
        }
    }
}
