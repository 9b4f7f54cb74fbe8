//! The command `goal`: schedules that a strict reader of the grammar accepts, with the messages of the
//! truth, and that end when they are run.

use crate::runs::{self, RecordedRun};
use crate::tools::{CsvRow, csv_rows, ibscope, matrix_by_rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;

/// Messages and bytes by sender and receiver.
type PairSums = BTreeMap<(u32, u32), (u64, u64)>;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send { bytes: u64, peer: u32, tag: u32 },
    Receive { bytes: u64, peer: u32, tag: u32 },
    Compute { ns: u64 },
}

/// An operation: its kind, and the operations of its rank that end or start before it starts.
struct Operation {
    kind: Kind,
    after_end: Vec<usize>,
    after_start: Vec<usize>,
}

/// Reads a schedule. Accepts only `num_ranks N`, then each rank once and in order, with one
/// statement per line in the grammar of LogGOPSim's `txt2bin` (without `cpu` and `nic`); labels are
/// defined once, and before they are used. No tag is 2^32 - 1, which matches any tag.
fn read(text: &str) -> Vec<Vec<Operation>> {
    let mut lines = text.lines();
    let count = lines.next().and_then(|line| line.strip_prefix("num_ranks ")).expect("num_ranks");
    let count: usize = number(count);
    let mut ranks: Vec<Vec<Operation>> = Vec::new();
    let mut lines = lines.filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        assert_eq!(line, format!("rank {} {{", ranks.len()));
        let (mut operations, mut labels) = (Vec::new(), BTreeMap::new());
        loop {
            let line = lines.next().expect("a closing brace");
            if line == "}" {
                break;
            }
            statement(line, &mut operations, &mut labels);
        }
        ranks.push(operations);
    }
    assert_eq!(ranks.len(), count);
    ranks
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?} is no number");
    text.parse().unwrap_or_else(|_| panic!("{text} is too large"))
}

fn statement(line: &str, operations: &mut Vec<Operation>, labels: &mut BTreeMap<String, usize>) {
    let words: Vec<&str> = line.split(' ').collect();
    let bytes = |text: &str| number(text.strip_suffix('b').unwrap_or_else(|| panic!("{line}")));
    let kind = match words[..] {
        [own, verb @ ("requires" | "irequires"), other] => {
            let (own, other) = (labels[own], labels[other]);
            assert!(other < own, "{line}");
            let list = &mut operations[own];
            if verb == "requires" {
                list.after_end.push(other);
            } else {
                list.after_start.push(other);
            }
            return;
        }
        [_, "calc", ns] => Kind::Compute { ns: number(ns) },
        [_, "send", size, "to", peer, "tag", tag] => {
            Kind::Send { bytes: bytes(size), peer: number(peer), tag: number(tag) }
        }
        [_, "recv", size, "from", peer, "tag", tag] => {
            Kind::Receive { bytes: bytes(size), peer: number(peer), tag: number(tag) }
        }
        _ => panic!("not in the grammar: {line}"),
    };
    assert!(!matches!(kind, Kind::Send { tag: u32::MAX, .. } | Kind::Receive { tag: u32::MAX, .. }), "{line}");
    let label = words[0].strip_suffix(':').expect("a label");
    assert!(label.starts_with(|first: char| first.is_ascii_alphabetic()), "{line}");
    assert!(label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
    assert!(labels.insert(label.to_owned(), operations.len()).is_none(), "{line}");
    operations.push(Operation { kind, after_end: Vec::new(), after_start: Vec::new() });
}

/// The sums of sends by pair: all, and those whose tag is not negative. The receives are equal.
fn sums(ranks: &[Vec<Operation>]) -> (PairSums, PairSums) {
    let (mut sent, mut received, mut user) = (PairSums::new(), PairSums::new(), PairSums::new());
    let add = |sums: &mut PairSums, pair, bytes| {
        let sum = sums.entry(pair).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    };
    for (rank, operations) in (0..).zip(ranks) {
        for operation in operations {
            match operation.kind {
                Kind::Send { bytes, peer, tag } => {
                    add(&mut sent, (rank, peer), bytes);
                    if i32::try_from(tag).is_ok() {
                        add(&mut user, (rank, peer), bytes);
                    }
                }
                Kind::Receive { bytes, peer, .. } => add(&mut received, (peer, rank), bytes),
                Kind::Compute { .. } => {}
            }
        }
    }
    assert_eq!(sent, received);
    (sent, user)
}

/// Runs the schedule. A send ends when its receive has started, as a simulator does for large
/// messages. Sends and receives of one sender, receiver and tag match in their order, with equal
/// lengths.
fn run(ranks: &[Vec<Operation>]) {
    type Stream = (u32, u32, u32);
    /// Rank, index and length of the sends that wait, and of the receives.
    type Waiting = [VecDeque<(u32, usize, u64)>; 2];
    let mut open: BTreeMap<Stream, Waiting> = BTreeMap::new();
    let mut started: Vec<Vec<bool>> = ranks.iter().map(|own| vec![false; own.len()]).collect();
    let mut ended = started.clone();
    let mut has_moved = true;
    while has_moved {
        has_moved = false;
        for (rank, operations) in (0_u32..).zip(ranks) {
            for (index, operation) in operations.iter().enumerate() {
                let at = rank as usize;
                let is_ready = !started[at][index]
                    && operation.after_end.iter().all(|other| ended[at][*other])
                    && operation.after_start.iter().all(|other| started[at][*other]);
                if !is_ready {
                    continue;
                }
                has_moved = true;
                started[at][index] = true;
                let (stream, side, bytes) = match operation.kind {
                    Kind::Compute { .. } => {
                        ended[at][index] = true;
                        continue;
                    }
                    Kind::Send { bytes, peer, tag } => ((rank, peer, tag), 0, bytes),
                    Kind::Receive { bytes, peer, tag } => ((peer, rank, tag), 1, bytes),
                };
                let sides = open.entry(stream).or_default();
                if let Some((other, other_index, other_bytes)) = sides[1 - side].pop_front() {
                    assert_eq!(bytes, other_bytes, "{stream:?}");
                    (ended[at][index], ended[other as usize][other_index]) = (true, true);
                } else {
                    sides[side].push_back((rank, index, bytes));
                }
            }
        }
    }
    assert!(ended.iter().flatten().all(|ended| *ended), "the schedule hangs");
}

fn schedule(inputs: &[PathBuf]) -> Vec<Vec<Operation>> {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("job.goal");
    let inputs = inputs.iter().map(|path| path.to_str().expect("path"));
    let result = ibscope(["goal", "-o", file.to_str().expect("path")].into_iter().chain(inputs));
    assert_eq!(result.code, 0, "{}", result.stderr);
    let left: BTreeSet<_> =
        fs::read_dir(&folder).expect("folder").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    read(&fs::read_to_string(file).expect("text"))
}

#[test]
fn schedules_have_the_messages_of_the_wire() {
    let second = ["ompi-rc-ft.S-2x2", "ompi5-ucx-rc-mixed-2x2"].map(runs::of_second_set);
    let first = ["ompi-openib-bt.S-4x1", "ompi-rc-loss1-ring2", "scorep-ompi-rc-comm-4x1"].map(runs::named);
    for run in first.into_iter().chain(second) {
        let inputs = run.every_node();
        let ranks = schedule(&inputs);
        let (all, user) = sums(&ranks);
        assert_eq!(user, run.wire_messages(), "{}", run.name);
        assert_eq!(all, matrix_by_rank(&inputs), "{}", run.name);
        self::run(&ranks);
    }
}

/// Computation before the sends of a halo exchange, by rank: their tags are 0 to 3.
fn before_halo_ns(operations: &[Operation]) -> u64 {
    let sends_halo = |own: &Operation| matches!(own.kind, Kind::Send { tag: 0..=3, .. });
    let pairs = operations.windows(2).filter(|pair| sends_halo(&pair[1]));
    pairs.map(|pair| if let Kind::Compute { ns } = pair[0].kind { ns } else { 0 }).sum()
}

/// The program computes (sleeps) before it sends, 20 ms longer in rank 2 than in the others. Messages
/// that arrive meanwhile hide the time before them: the schedule has most of the 20 ms, and no rank
/// computes longer than its own halo exchanges took, its computation included.
#[test]
fn a_rank_that_sleeps_computes() {
    let run: RecordedRun = runs::of_second_set("straggler-rank2-20ms-4x1");
    let computed: Vec<u64> = schedule(&run.every_node()).iter().map(|own| before_halo_ns(own)).collect();
    for (rank, computed) in computed.iter().enumerate() {
        let text = fs::read_to_string(run.folder.join(format!("straggler.{rank}.csv"))).expect("truth");
        let sum = |time: &dyn Fn(&CsvRow) -> u64| csv_rows(&text).iter().map(time).sum::<u64>();
        let number = |row: &CsvRow, name: &str| row[name].parse::<u64>().expect("number");
        let halo_ns = sum(&|row| number(row, "halo_end_ns") - number(row, "start_ns"));
        let extra_ns = sum(&|row| 1000 * number(row, "extra_us"));
        assert_eq!(extra_ns > 0, rank == 2);
        assert!((extra_ns / 2..halo_ns).contains(computed), "{rank}: {computed} of {halo_ns} ns");
    }
    assert_eq!(computed.iter().max(), computed.get(2), "{computed:?}");
}

#[test]
fn a_capture_of_some_ports_has_a_note() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let is_noted = |captures: &[PathBuf], name: &str| {
        let output = folder.path().join(name);
        let command = ["goal", "-o", output.to_str().expect("path")].map(str::to_owned);
        let captures = captures.iter().map(|path| path.to_str().expect("path").to_owned());
        let ran = ibscope(command.into_iter().chain(captures));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stderr.contains("messages between other ports are missing, and their time counts as computation")
    };
    assert!(is_noted(&[run.node(1)], "one.goal"));
    assert!(!is_noted(&run.every_node(), "all.goal"));
}

/// The time of messages that the sample does not have would look like computation.
#[test]
fn a_sampled_capture_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let output = folder.path().join("output");
    let [output, sink] =
        [output, runs::named("ompi-rc-halo-2x2").sink()].map(|path| path.to_str().expect("path").to_owned());
    for command in ["goal", "otf2"] {
        let refused = ibscope([command, "--sampled", "1/10", "-o", &output, &sink]);
        assert_eq!(refused.code, 1, "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains("unknown, because the mirror sampled the packets"), "{}", refused.stderr);
        assert!(fs::read_dir(folder.path()).expect("folder").next().is_none(), "{command}");
    }
}
