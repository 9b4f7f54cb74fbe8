//! The command `chakra`: traces that follow the published schema, with the messages of the truth, and
//! that end when they are run.

mod reader;

use crate::nccl::instances::allreduce_and_allgather;
use crate::runs::{self, RecordedRun};
use crate::tools::{CsvRow, ProgramResult, csv_rows, ibscope, matrix_by_rank};
use reader::{AttributeField, TraceNode, comm_types, node_types};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;

/// Messages and bytes by sender and receiver.
type PairSums = BTreeMap<(u32, u32), (u64, u64)>;

/// The traces of the ranks, and the output of the command.
fn traces(inputs: &[PathBuf], options: &[&str]) -> (ProgramResult, Vec<Vec<TraceNode>>) {
    let parent = tempfile::tempdir().expect("folder");
    let folder = parent.path().join("chakra");
    let words = ["chakra", "-o", folder.to_str().expect("path")].into_iter().chain(options.iter().copied());
    let result = ibscope(words.chain(inputs.iter().map(|path| path.to_str().expect("path"))));
    let left: Vec<_> = fs::read_dir(&parent).expect("folder").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left, if result.code == 1 { vec![] } else { vec!["chakra"] }, "{}", result.stderr);
    let files = fs::read_dir(&folder).map_or(0, Iterator::count);
    let rank = |rank: usize| reader::read(&fs::read(folder.join(format!("trace.{rank}.et"))).expect("a trace"));
    (result, (0..files).map(rank).collect())
}

fn is_message(node: &TraceNode) -> bool {
    [node_types::COMM_SEND_NODE, node_types::COMM_RECV_NODE].contains(&node.node_type)
}

/// The sums of sends by pair: all, and those whose tag is not negative. The receives are equal.
fn sums(ranks: &[Vec<TraceNode>]) -> (PairSums, PairSums) {
    let (mut sent, mut received, mut user) = (PairSums::new(), PairSums::new(), PairSums::new());
    for (rank, nodes) in (0_i64..).zip(ranks) {
        for node in nodes.iter().filter(|node| is_message(node)) {
            let is_send = node.node_type == node_types::COMM_SEND_NODE;
            let (src, dst) = (node.number("comm_src"), node.number("comm_dst"));
            assert_eq!(if is_send { src } else { dst }, rank);
            let add = |sums: &mut PairSums| {
                let sum = sums.entry((src as u32, dst as u32)).or_default();
                *sum = (sum.0 + 1, sum.1 + node.number("comm_size") as u64);
            };
            add(if is_send { &mut sent } else { &mut received });
            if is_send && node.number("comm_tag") >= 0 {
                add(&mut user);
            }
        }
    }
    assert_eq!(sent, received);
    (sent, user)
}

/// Checks the fields that `et_feeder_node.cpp` reads, the order of the numbers, and that the nodes
/// on which a node depends come before it and end before it starts. A receive may depend on receives
/// that end before it ends, because receives are posted in the order in which they end.
fn check(ranks: &[Vec<TraceNode>]) {
    let fields = BTreeMap::from([
        ("is_cpu_op", AttributeField::Bool),
        ("comm_type", AttributeField::Int64),
        ("comm_size", AttributeField::Int64),
        ("comm_src", AttributeField::Int32),
        ("comm_dst", AttributeField::Int32),
        ("comm_tag", AttributeField::Int32),
        ("pg_name", AttributeField::Text),
    ]);
    for nodes in ranks {
        let mut before: BTreeMap<u64, &TraceNode> = BTreeMap::new();
        for node in nodes {
            assert!(before.keys().all(|other| *other < node.id) || before.is_empty(), "{node:?}");
            for (name, (field, _)) in &node.attributes {
                assert_eq!(fields.get(name.as_str()), Some(field), "{name}");
            }
            for other in &node.data_deps {
                let other = before.get(other).unwrap_or_else(|| panic!("{node:?} depends on a later node"));
                let end_us = |node: &TraceNode| node.start_time_micros + node.duration_micros;
                let is_receive = node.node_type == node_types::COMM_RECV_NODE;
                let limit_us = if is_receive { end_us(node) } else { node.start_time_micros };
                assert!(end_us(other) <= limit_us, "{other:?} {node:?}");
            }
            before.insert(node.id, node);
        }
    }
}

/// The state of the ranks while their traces run.
struct Run<'a> {
    ranks: &'a [Vec<TraceNode>],
    started: Vec<BTreeSet<u64>>,
    ended: Vec<BTreeSet<u64>>,
    /// The send or collective operation of each rank that is under way.
    under_way: Vec<Option<u64>>,
    /// Ranks and nodes that wait at a message or a collective operation.
    waiting: BTreeMap<(u64, String), VecDeque<(usize, u64)>>,
    /// Collective operations of a rank so far, by process group.
    numbers: BTreeMap<(usize, String), u64>,
    /// The ranks of each process group except that of all ranks.
    groups: BTreeMap<String, BTreeSet<u32>>,
}

/// The process groups of a trace, by name: JSON in a Python list, as `PyTorch` writes it.
fn process_groups(nodes: &[TraceNode]) -> BTreeMap<String, BTreeSet<u32>> {
    let text =
        nodes.iter().find(|node| node.node_type == node_types::METADATA_NODE).and_then(|own| own.inputs.as_ref());
    let Some(text) = text else { return BTreeMap::new() };
    let list = text.strip_prefix("['").and_then(|rest| rest.strip_suffix("']")).expect("a list with a text");
    let list: Vec<Value> = serde_json::from_str(list).expect("JSON");
    let group = |own: &Value| {
        let ranks: BTreeSet<u32> = serde_json::from_value(own["ranks"].clone()).expect("ranks");
        let name = own["pg_name"].as_str().expect("a name").to_owned();
        // ASTRA-sim reads it with `std::stoi`; 0 is the group of all ranks.
        assert!(name.parse::<u32>().expect("a number") > 0);
        (name, ranks)
    };
    list.iter().map(group).collect()
}

impl Run<'_> {
    fn end(&mut self, rank: usize, id: u64) {
        self.ended[rank].insert(id);
        self.under_way[rank].take_if(|own| *own == id);
    }

    fn is_ready(&self, rank: usize, node: &TraceNode) -> bool {
        let is_free = node.node_type == node_types::COMM_RECV_NODE || self.under_way[rank].is_none();
        is_free
            && !self.started[rank].contains(&node.id)
            && node.data_deps.iter().all(|other| self.ended[rank].contains(other))
    }

    fn start(&mut self, rank: usize, node: &TraceNode) {
        self.started[rank].insert(node.id);
        match node.node_type {
            node_types::COMM_COLL_NODE => self.meet_all(rank, node),
            node_types::COMM_SEND_NODE | node_types::COMM_RECV_NODE => self.meet_one(rank, node),
            _ => self.end(rank, node.id),
        }
    }

    /// A collective operation ends when all ranks of its process group have started it.
    fn meet_all(&mut self, rank: usize, node: &TraceNode) {
        self.under_way[rank] = Some(node.id);
        let group = node.text("pg_name");
        let number = self.numbers.entry((rank, group.to_owned())).or_default();
        *number += 1;
        let [kind, bytes] = ["comm_type", "comm_size"].map(|name| node.number(name));
        let key = (node.node_type, format!("{group} {number} {kind} {bytes}"));
        let waiting = self.waiting.entry(key).or_default();
        waiting.push_back((rank, node.id));
        if waiting.len() == self.groups.get(group).map_or(self.ranks.len(), BTreeSet::len) {
            let all = std::mem::take(waiting);
            all.into_iter().for_each(|(rank, id)| self.end(rank, id));
        }
    }

    /// A message ends when its send and its receive have started.
    fn meet_one(&mut self, rank: usize, node: &TraceNode) {
        if node.node_type == node_types::COMM_SEND_NODE {
            self.under_way[rank] = Some(node.id);
        }
        let stream = ["comm_src", "comm_dst", "comm_tag"].map(|name| node.number(name));
        let key = |node_type| (node_type, format!("{stream:?}"));
        let other_type = node_types::COMM_SEND_NODE + node_types::COMM_RECV_NODE - node.node_type;
        let Some((other, id)) = self.waiting.get_mut(&key(other_type)).and_then(VecDeque::pop_front) else {
            self.waiting.entry(key(node.node_type)).or_default().push_back((rank, node.id));
            return;
        };
        let partner = self.ranks[other].iter().find(|own| own.id == id).expect("a node");
        assert_eq!(node.number("comm_size"), partner.number("comm_size"), "{node:?} {partner:?}");
        self.end(rank, node.id);
        self.end(other, id);
    }
}

/// Runs the traces as ASTRA-sim's `Workload` issues nodes: the lowest number first, and one send or
/// collective operation of a rank at a time.
fn run(ranks: &[Vec<TraceNode>]) {
    let none = || vec![BTreeSet::new(); ranks.len()];
    let mut run = Run {
        ranks,
        started: none(),
        ended: none(),
        under_way: vec![None; ranks.len()],
        waiting: BTreeMap::new(),
        numbers: BTreeMap::new(),
        groups: ranks.first().map(|nodes| process_groups(nodes)).unwrap_or_default(),
    };
    let mut has_moved = true;
    while has_moved {
        has_moved = false;
        for (rank, nodes) in ranks.iter().enumerate() {
            for node in nodes {
                if run.is_ready(rank, node) {
                    run.start(rank, node);
                    has_moved = true;
                }
            }
        }
    }
    let is_ended = |(nodes, ended): (&Vec<TraceNode>, &BTreeSet<u64>)| nodes.len() == ended.len();
    assert!(ranks.iter().zip(&run.ended).all(is_ended), "the traces hang");
}

#[test]
fn traces_have_the_messages_of_the_wire() {
    let nccl = ["nccl-ring-2x1", "nccl2.18-ring-2x1", "nccl-ring-qps2split-2x1", "nccl2.30-ring-multirail-2x1"];
    let second = nccl.into_iter().chain(["ompi-rc-ft.S-2x2"]).map(runs::of_second_set);
    let first = ["ompi-openib-bt.S-4x1", "ompi-rc-loss1-ring2"].map(runs::named);
    for run in first.into_iter().chain(second) {
        let inputs = run.every_node();
        let (result, ranks) = traces(&inputs, &[]);
        assert_eq!(result.code, 0, "{}", result.stderr);
        check(&ranks);
        let (all, user) = sums(&ranks);
        assert_eq!(user, run.wire_messages(), "{}", run.name);
        assert_eq!(all, matrix_by_rank(&inputs), "{}", run.name);
        self::run(&ranks);
        // As `goal`, which infers the same computation in nanoseconds.
        let computed_us: u64 = ranks
            .iter()
            .flatten()
            .filter(|node| node.node_type == node_types::COMP_NODE)
            .map(|node| node.duration_micros)
            .sum();
        let words: Vec<&str> = result.stderr.split(' ').collect();
        let at = words.windows(4).position(|own| own[1..] == ["s", "of", "computation"]).expect("computation");
        let printed_s: f64 = words[at].parse().expect("seconds");
        assert!((computed_us as f64 / 1e6 - printed_s).abs() < 0.002, "{computed_us}: {}", result.stderr);
    }
}

/// An Allreduce and an Allgather over a ring of three ranks. Each rank of a ring of n sends
/// 2 (n - 1) / n of the vector, or n - 1 blocks (`PERFORMANCE.md` of nccl-tests), which is the matrix.
#[test]
fn operations_of_nccl_are_nodes() {
    let mut wire = allreduce_and_allgather();
    let capture = [wire.file()];
    let (result, ranks) = traces(&capture, &["--collectives"]);
    assert_eq!(result.code, 0, "{}", result.stderr);
    check(&ranks);
    let ring = matrix_by_rank(&capture);
    assert_eq!(ranks.len(), 3);
    for (rank, nodes) in (0..).zip(&ranks) {
        let collectives: Vec<&TraceNode> =
            nodes.iter().filter(|node| node.node_type == node_types::COMM_COLL_NODE).collect();
        let found: Vec<(i64, i64, &str)> = collectives
            .iter()
            .map(|node| (node.number("comm_type"), node.number("comm_size"), node.text("pg_name")))
            .collect();
        assert_eq!(found, [(comm_types::ALL_REDUCE, 12_288, "0"), (comm_types::ALL_GATHER, 4096, "0")]);
        assert!(!nodes.iter().any(is_message));
        let sent = found[0].1 * 4 / 3 + found[1].1 * 2;
        assert_eq!(ring[&(rank, (rank + 1) % 3)].1, sent as u64);
    }
    run(&ranks);
}

/// `comm_type` and `comm_size` of a logged call: the bytes of the call's vector, or of the blocks of all
/// ranks (`coll.c` logs one block).
fn logged(call: &CsvRow, ranks: i64) -> (i64, i64) {
    let bytes: i64 = call["bytes"].parse().expect("number");
    match call["operation"].as_str() {
        "Allreduce" => (comm_types::ALL_REDUCE, bytes),
        "Reduce" => (comm_types::REDUCE, bytes),
        "Bcast" => (comm_types::BROADCAST, bytes),
        "Allgather" => (comm_types::ALL_GATHER, bytes),
        "Gather" => (comm_types::GATHER, bytes),
        "Scatter" => (comm_types::SCATTER, bytes * ranks),
        "Alltoall" => (comm_types::ALL_TO_ALL, bytes * ranks),
        "Reduce_scatter_block" => (comm_types::REDUCE_SCATTER, bytes * ranks),
        "Barrier" => (comm_types::BARRIER, 0),
        other => panic!("{other}"),
    }
}

/// Each rank has its calls in the order of the log, on process groups with the ranks of the log. The
/// libraries call more operations, which the log does not have.
#[test]
fn operations_of_mpi_are_those_of_the_log() {
    for run in ["ompi5-coll-default-4x1", "mpich4.2-coll-default-4x1"].map(runs::of_second_set) {
        let (result, ranks) = traces(&[run.sink()], &["--collectives"]);
        assert_eq!(result.code, 0, "{}", result.stderr);
        check(&ranks);
        self::run(&ranks);
        let calls = csv_rows(&fs::read_to_string(run.folder.join("coll_truth.csv")).expect("truth"));
        let all: BTreeSet<u32> = (0..4).collect();
        let mut groups = 0;
        for (rank, nodes) in (0..).zip(&ranks) {
            let named = process_groups(nodes);
            groups = named.len();
            let mut left = nodes.iter().filter(|node| node.node_type == node_types::COMM_COLL_NODE);
            for call in &calls {
                let members: BTreeSet<u32> =
                    call["comm_ranks"].split(' ').map(|word| word.parse().expect("rank")).collect();
                if !members.contains(&rank) {
                    continue;
                }
                let is_call = |node: &&TraceNode| {
                    let found = (node.number("comm_type"), node.number("comm_size"));
                    let ranks = named.get(node.text("pg_name")).unwrap_or(&all);
                    found == logged(call, members.len() as i64) && *ranks == members
                };
                assert!(left.any(|node| is_call(&node)), "{}: rank {rank} has no node for {call:?}", run.name);
            }
        }
        assert!(groups > 0);
    }
}

/// Two ranks of NCCL send the same messages in several operations, a job with two ranks per node
/// hides messages, and a sample has some of them only.
#[test]
fn unknown_operations_are_refused() {
    let run = |name: &str| runs::of_second_set(name);
    let refused = |run: &RecordedRun, options: &[&str], reason: &str| {
        let (result, _) = traces(&[run.sink()], options);
        assert_eq!(result.code, 1, "{}", result.stderr);
        assert!(result.stderr.contains(reason), "{}", result.stderr);
    };
    refused(&run("nccl-ring-2x1"), &["--collectives"], "operations are not known");
    refused(&run("ompi-rc-ft.S-2x2"), &["--collectives"], "the collective operations are unknown, because");
    refused(&run("nccl-ring-2x1"), &["--sampled", "1/10"], "unknown, because the mirror sampled the packets");
}
