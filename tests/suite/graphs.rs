//! The graphs of `matrix`, read by the programs that they are for: networkx, Graphviz and Scotch. Their
//! sums are those of the truth.

use crate::python::{run, venv};
use crate::runs::{self, RecordedRun};
use crate::tools::ibscope;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the edges of a GraphML file by the ranks of their ends.
const READ_GRAPHML: &str = "
import json, sys, networkx
graph = networkx.read_graphml(sys.argv[1])
rank = graph.nodes(data='rank')
print(json.dumps([[rank[a], rank[b], edge['messages'], edge['mpi_bytes']] for a, b, edge in graph.edges(data=True)]))
";

/// Messages and bytes by sender and receiver.
type PairSums = BTreeMap<(u32, u32), (u64, u64)>;

/// A run, its point-to-point messages on the wire, and the folder of its four graphs.
struct Graphs {
    truth: PairSums,
    folder: tempfile::TempDir,
    stderr: String,
}

impl Graphs {
    fn of(run: &RecordedRun) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let file = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
        let sink = run.sink();
        let mut arguments = vec!["matrix".to_owned(), "--by".to_owned(), "rank".to_owned()];
        for format in ["graphml", "dot", "scotch", "dense"] {
            arguments.extend([format!("--{format}"), file(format)]);
        }
        arguments.push(sink.to_str().expect("path").to_owned());
        let result = ibscope(arguments);
        assert_eq!(result.code, 0, "{}: {}", run.name, result.stderr);
        let truth = run.wire_messages();
        Self { truth, folder, stderr: result.stderr }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect("file")
    }

    fn bytes(&self, src: u32, dst: u32) -> u64 {
        self.truth.get(&(src, dst)).map_or(0, |(_, bytes)| *bytes)
    }
}

/// One rank per node, and two.
fn graphs() -> [Graphs; 2] {
    ["ompi-openib-bt.S-4x1", "ompi-rc-mixed-2x2"].map(|name| Graphs::of(&runs::named(name)))
}

#[test]
fn networkx_reads_graphml() {
    let python = venv(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graph/requirements.txt"));
    for graphs in graphs() {
        let mut command = Command::new(&python);
        let text = run(command.arg("-c").arg(READ_GRAPHML).arg(graphs.file("graphml")), "networkx");
        let edges: Vec<(u32, u32, u64, u64)> = serde_json::from_str(&text).expect("edges");
        let mut found: PairSums =
            edges.into_iter().map(|(src, dst, messages, bytes)| ((src, dst), (messages, bytes))).collect();
        // Collective messages are packets of a pair without point-to-point messages.
        found.retain(|_, (messages, _)| *messages > 0);
        assert_eq!(found, graphs.truth);
    }
}

#[test]
fn graphviz_reads_dot() {
    for graphs in graphs() {
        let text = run(Command::new("dot").arg("-Tjson0").arg(graphs.file("dot")), "make deps installs graphviz");
        let graph: Value = serde_json::from_str(&text).expect("JSON");
        let list = |name: &str| graph[name].as_array().expect("list").clone();
        let labels: BTreeMap<u64, u32> = list("objects")
            .iter()
            .map(|node| {
                let label = node["label"].as_str().expect("label");
                (node["_gvid"].as_u64().expect("number"), label.parse().expect("rank"))
            })
            .collect();
        let mut found = BTreeMap::new();
        for edge in list("edges") {
            let rank = |end: &str| labels[&edge[end].as_u64().expect("end")];
            let weight: u64 = edge["weight"].as_str().expect("weight").parse().expect("number");
            found.insert((rank("tail"), rank("head")), weight);
        }
        let expected: BTreeMap<(u32, u32), u64> =
            graphs.truth.iter().map(|(pair, (_, bytes))| (*pair, *bytes)).filter(|(_, bytes)| *bytes > 0).collect();
        assert_eq!(found, expected);
    }
}

/// Scotch accepts the graph, its sum of weights is that of the truth, once per direction of an edge,
/// and it maps the ranks to as many places.
#[test]
fn scotch_reads_and_maps_the_graph() {
    for graphs in graphs() {
        let text = run(Command::new("gtst").arg(graphs.file("scotch")), "make deps installs scotch");
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
        assert!(line("S\tVertex\tnbr").ends_with("nbr=4"), "{text}");
        let sum: u64 = graphs.truth.values().map(|(_, bytes)| *bytes).sum();
        assert!(line("S\tEdge load").contains(&format!("sum={}", 2 * sum)), "{sum}: {text}");
        let (target, mapping) = (graphs.file("target"), graphs.file("mapping"));
        fs::write(&target, "tleaf 2 2 10 2 1\n").expect("two nodes with two cores");
        run(Command::new("scotch_gmap").arg(graphs.file("scotch")).arg(target).arg(&mapping), "scotch");
        let text = fs::read_to_string(mapping).expect("mapping");
        let mut places: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        places.sort_unstable();
        assert_eq!(places, ["0", "1", "2", "3"]);
    }
}

#[test]
fn a_dense_matrix_has_the_bytes_of_each_pair() {
    for graphs in graphs() {
        let row = |src| (0..4).map(|dst| graphs.bytes(src, dst).to_string()).collect::<Vec<_>>().join(" ") + "\n";
        assert_eq!(graphs.text("dense"), (0..4).map(row).collect::<String>());
    }
}

/// A graph for mapping says which traffic it does not have, and has ranks only.
#[test]
fn graphs_of_ranks_name_their_limits() {
    let [alone, two_per_node] = graphs();
    assert!(!alone.stderr.contains("on one node"), "{}", alone.stderr);
    let note = "the graph of ranks has no traffic for 4 pairs of ranks on one node, because their messages are not on the wire";
    assert!(two_per_node.stderr.contains(note), "{}", two_per_node.stderr);
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("graph");
    let sink = runs::named("ompi-rc-ring2").sink();
    let result =
        ibscope(["matrix", "--by", "endpoint", "--scotch", file.to_str().expect("path"), sink.to_str().expect("path")]);
    assert!(result.code != 0 && result.stderr.contains("add --by rank"), "{}", result.stderr);
    assert!(!file.exists());
}
