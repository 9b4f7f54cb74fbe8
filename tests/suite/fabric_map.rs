//! The command `map` on a recorded fabric: the links of each pair are those that `ibtracert` printed.

use crate::python::run;
use crate::runs;
use crate::tools::{CsvRow, csv_rows, ibscope, sample};
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::keep;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Port that receives: GUID and number. It identifies a link in one direction.
type Receiver = (String, u32);

fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/fabric").join(name).to_str().expect("path").to_owned()
}

/// The links of each route in the output of `ibtracert`, by the LIDs of its ends.
fn traced() -> BTreeMap<(u32, u32), Vec<Receiver>> {
    let text = fs::read_to_string(file("ibtracert.txt")).expect("text");
    let mut routes = BTreeMap::new();
    for trace in text.split("From ca ").skip(1) {
        let lid = |line: &str| line.split(" lid ").nth(1)?.split('-').next()?.parse().ok();
        let src: u32 = trace.lines().next().and_then(lid).expect("LID");
        let dst: u32 = trace.lines().find(|line| line.starts_with("To ca ")).and_then(lid).expect("LID");
        let hops = trace.lines().filter_map(|line| line.split_once(" port {"));
        let hop = |(_, rest): (&str, &str)| {
            let (guid, rest) = rest.split_once("}[").expect("GUID");
            (guid.to_owned(), rest.split(']').next().and_then(|port| port.parse().ok()).expect("port"))
        };
        assert!(routes.insert((src, dst), hops.map(hop).collect()).is_none());
    }
    assert_eq!(routes.len(), 12);
    routes
}

fn map(capture: &Path, more: &[&str]) -> String {
    let fabric = file("ibnetdiscover.txt");
    let command = ["map", capture.to_str().expect("path"), "--fabric", &fabric];
    let result = ibscope(command.into_iter().chain(more.iter().copied()));
    assert_eq!(result.code, 0, "{}", result.stderr);
    result.stdout
}

/// Bytes on the wire by the LIDs of sender and receiver.
fn pairs(capture: &Path) -> BTreeMap<(u32, u32), u64> {
    let result = ibscope(["matrix", "--format", "csv", capture.to_str().expect("path")]);
    let rows = csv_rows(&result.stdout);
    let number = |row: &CsvRow, name: &str| row[name].parse().expect("number");
    rows.iter().map(|row| ((number(row, "src") as u32, number(row, "dst") as u32), number(row, "wire_bytes"))).collect()
}

#[test]
fn bytes_are_on_the_links_that_ibtracert_names() {
    let captures: [PathBuf; 2] = [sample("openib-mixed-4x1"), runs::of_second_set("ompi5-coll-default-4x1").sink()];
    for capture in captures {
        let pairs = pairs(&capture);
        assert_eq!(pairs.len(), 12);
        let mut expected: BTreeMap<Receiver, u64> = BTreeMap::new();
        let mut hop_bytes = 0;
        for (lids, receivers) in traced() {
            hop_bytes += pairs[&lids] * receivers.len() as u64;
            receivers.into_iter().for_each(|receiver| *expected.entry(receiver).or_default() += pairs[&lids]);
        }
        let routes = file("dump_fts.txt");
        let rows = csv_rows(&map(&capture, &["--routes", &routes, "--format", "csv"]));
        let mut found = BTreeMap::new();
        for row in &rows {
            assert_eq!(row["wire_bytes"], row["upper_wire_bytes"]);
            let bytes: u64 = row["wire_bytes"].parse().expect("number");
            let receiver = (row["to_guid"].clone(), row["to_port"].parse().expect("port"));
            assert!(found.insert(receiver, bytes).is_none());
        }
        found.retain(|_, bytes| *bytes > 0);
        assert_eq!(found, expected);
        let document: Value =
            serde_json::from_str(&map(&capture, &["--routes", &routes, "--format", "json"])).expect("JSON");
        assert_eq!(document["hop_bytes"], hop_bytes);
        assert_eq!(document["wire_bytes"], pairs.values().sum::<u64>());
        assert_eq!(document["left_out"], serde_json::json!([]));
        let most =
            rows.iter().filter(|row| row["between_switches"] == "true").map(|row| row["wire_bytes"].parse::<u64>());
        assert_eq!(
            document["hottest_link"]["wire_bytes"],
            most.map(|bytes| bytes.expect("number")).max().expect("links")
        );
        let after = document["placement"]["hop_bytes_after"].as_u64().expect("number");
        assert!(after <= hop_bytes);
        // The best of all 24 placements of four nodes: a local search may miss it, not undercut it.
        let lids = [17, 18, 19, 20];
        let routes = traced();
        let cost = |places: &[usize]| -> u64 {
            let at = |lid: u32| lids[places[lid as usize - 17]];
            pairs.iter().map(|((src, dst), bytes)| bytes * routes[&(at(*src), at(*dst))].len() as u64).sum()
        };
        assert!(after >= permutations(4).iter().map(|places| cost(places)).min().expect("placements"));
        let go = document["placement"]["moves"].as_array().expect("list");
        assert_eq!(go.is_empty(), after == hop_bytes);
    }
}

/// All orders of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    (0..count).fold(vec![Vec::new()], |orders, next| {
        let with = |order: &Vec<usize>, at| {
            let mut order = order.clone();
            order.insert(at, next);
            order
        };
        orders.iter().flat_map(|order| (0..=order.len()).map(move |at| with(order, at))).collect()
    })
}

/// Without tables, the links between the leaves and the two spines are unknown, and their bounds hold
/// the bytes that are there by the tables.
#[test]
fn without_tables_the_uplinks_are_unknown() {
    let capture = sample("openib-mixed-4x1");
    let known = csv_rows(&map(&capture, &["--routes", &file("dump_fts.txt"), "--format", "csv"]));
    let open = csv_rows(&map(&capture, &["--format", "csv"]));
    let number = |row: &CsvRow, name: &str| -> u64 { row[name].parse().expect("number") };
    let mut in_doubt = 0;
    for row in &open {
        let is_same = |other: &&CsvRow| ["to_guid", "to_port"].iter().all(|name| other[*name] == row[*name]);
        let bytes = known.iter().find(is_same).map_or(0, |other| number(other, "wire_bytes"));
        assert!((number(row, "wire_bytes")..=number(row, "upper_wire_bytes")).contains(&bytes), "{row:?}");
        in_doubt += u64::from(row["wire_bytes"] != row["upper_wire_bytes"]);
        assert!(row["between_switches"] == "true" || row["wire_bytes"] == row["upper_wire_bytes"]);
    }
    assert_eq!(in_doubt, 12, "three leaves, two spines, both directions");
    let document: Value = serde_json::from_str(&map(&capture, &["--format", "json"])).expect("JSON");
    assert_eq!(document["hottest_link"], Value::Null);
}

/// Captures of one port: each link may carry more, so neither the hottest one nor a placement is known.
#[test]
fn links_of_a_capture_of_some_ports_have_no_upper_bound() {
    let folder = tempfile::tempdir().expect("folder");
    let sink = Recording::read(&sample("openib-mixed-4x1")).expect("capture");
    // LRH: the destination LID is at byte 2, the source LID at byte 6, both behind the 16 bytes of ERF.
    let is_of_port = |data: &[u8], lid: u8| [data[16 + 3], data[16 + 7]].contains(&lid);
    let lid = sink.records[0].data[16 + 3];
    let mut seen = BTreeSet::new();
    let one_port = keep(&sink, |_, record| is_of_port(&record.data, lid) && seen.insert(record.data[16..].to_vec()));
    let place = folder.path().join("port.pcap");
    one_port.write(&place).expect("written");
    let csv = csv_rows(&map(&place, &["--format", "csv"]));
    assert!(csv.iter().any(|row| row["wire_bytes"] != "0"), "{csv:?}");
    assert!(csv.iter().all(|row| row["upper_wire_bytes"].is_empty()), "{csv:?}");
    let document: Value = serde_json::from_str(&map(&place, &["--format", "json"])).expect("JSON");
    assert_eq!(document["hottest_link"], Value::Null);
    assert_eq!(document["placement"]["unknown_because"], "the captures may not show all ports");
    let text = map(&place, &[]);
    assert!(text.contains("hottest   unknown, because the captures may not show all ports"), "{text}");
    assert!(text.contains("≥ "), "{text}");
}

#[test]
fn captures_without_lids_and_foreign_files_are_refused() {
    let roce = runs::named("ompi-rc-ring2").every_node();
    let roce = roce[0].to_str().expect("path");
    let fabric = file("ibnetdiscover.txt");
    let result = ibscope(["map", roce, "--fabric", &fabric]);
    assert!(result.code == 1 && result.stderr.contains("no endpoint has a LID"), "{}", result.stderr);
    let sample = sample("openib-mixed-4x1");
    let sample = sample.to_str().expect("path");
    let foreign = file("README.md");
    let result = ibscope(["map", sample, "--fabric", &foreign]);
    assert!(result.code == 1 && result.stderr.contains("no line has a port with a cable"), "{}", result.stderr);
    let result = ibscope(["map", sample, "--fabric", &fabric, "--routes", &foreign]);
    assert!(result.code == 1 && result.stderr.contains("no line begins a forwarding table"), "{}", result.stderr);
}

/// `scotch_gmap` maps the ranks of a run to the nodes, and `map` compares this mapping with the
/// placement: bytes times the links that `ibtracert` printed. Scotch has the same distances.
#[test]
fn a_mapping_of_scotch_is_compared_with_the_placement() {
    let capture = sample("openib-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let [ranks, target, mapping, pair] = ["ranks.grf", "nodes.tgt", "ranks.map", "pair.grf"].map(place);
    let graph = ibscope(["matrix", "--by", "rank", "--scotch", &ranks, capture.to_str().expect("path")]);
    assert_eq!(graph.code, 0, "{}", graph.stderr);
    map(&capture, &["--scotch", &target]);
    run(Command::new("scotch_gmap").args([&ranks, &target, &mapping]), "make deps installs scotch");

    // A graph with one edge of 100 bytes between nodes A and B has 100 times their distance.
    let routes = traced();
    fs::write(&pair, "0\n4 2\n0 010\n1 100 1\n1 100 0\n0\n0\n").expect("written");
    for order in permutations(4) {
        let placed = place("pair.map");
        let rows =
            order.iter().enumerate().fold("4\n".to_owned(), |rows, (vertex, node)| format!("{rows}{vertex} {node}\n"));
        fs::write(&placed, rows).expect("written");
        let text = run(Command::new("gmtst").args([&pair, &target, &placed]), "make deps installs scotch");
        let links = routes[&(17 + order[0] as u32, 17 + order[1] as u32)].len();
        let sum = format!("({})", 100 * links);
        assert!(text.lines().any(|line| line.contains("CommExpan") && line.ends_with(&sum)), "{order:?}: {text}");
    }

    let text = fs::read_to_string(&mapping).expect("mapping");
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().expect("number")).collect::<Vec<usize>>();
    let mut at = [usize::MAX; 4];
    text.lines().skip(1).map(numbers).for_each(|row| at[row[0]] = row[1]);
    // Rank r is at LID 17 + r.
    let lid = |rank: u32| 17 + at[rank as usize - 17] as u32;
    let expected: u64 =
        pairs(&capture).iter().map(|((src, dst), bytes)| bytes * routes[&(lid(*src), lid(*dst))].len() as u64).sum();
    let with = |mapping: &str, format: &str| {
        map(&capture, &["--routes", &file("dump_fts.txt"), "--mapping", mapping, "--format", format])
    };
    let document: Value = serde_json::from_str(&with(&mapping, "json")).expect("JSON");
    assert_eq!(document["mapping"]["hop_bytes_after"], expected, "{document}");
    assert_eq!(document["mapping"]["unknown_because"], Value::Null);

    // Two ranks on one node.
    let shared = place("shared.map");
    fs::write(&shared, "4\n0 0\n1 0\n2 2\n3 3\n").expect("written");
    let text = with(&shared, "table");
    assert!(text.contains("mapping: unknown, because it places the processes of two nodes on "), "{text}");
}
