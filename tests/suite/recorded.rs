//! Every recorded run: nothing is lost, and every way of recording gives the same numbers.

use crate::runs::{self, Run};
use ibscope::model::{Kind, Profile};
use ibscope::pipeline::{Options, analyze};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) fn profile(paths: &[PathBuf]) -> Profile {
    analyze(paths, &Options::default(), &|_| {}).unwrap_or_else(|error| panic!("{paths:?}: {error}"))
}

/// Node number of an endpoint: 10.77.0.N in the RoCE files, LID 16+N in the sink.
fn node(endpoint: Endpoint) -> u8 {
    match endpoint.lid() {
        Some(lid) => (lid.0 - 16) as u8,
        None => endpoint.to_string().strip_prefix("10.77.0.").expect("address").parse().expect("node"),
    }
}

/// Messages, payload bytes and packets by pair of nodes.
fn matrix(profile: &Profile) -> BTreeMap<(u8, u8), [u64; 3]> {
    let mut cells: BTreeMap<(u8, u8), [u64; 3]> = BTreeMap::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == Kind::Data) {
        let cell = cells.entry((node(connection.src), node(connection.dst))).or_default();
        let traffic = connection.traffic;
        for (sum, value) in cell.iter_mut().zip([traffic.messages, traffic.payload_bytes, traffic.packets]) {
            *sum += value;
        }
    }
    cells
}

fn involving(cells: &BTreeMap<(u8, u8), [u64; 3]>, node: u8) -> BTreeMap<(u8, u8), [u64; 3]> {
    cells.iter().filter(|((src, dst), _)| *src == node || *dst == node).map(|(pair, cell)| (*pair, *cell)).collect()
}

#[test]
fn every_file_decodes_completely() {
    for run in runs::all() {
        for path in run.every_node().into_iter().chain([run.sink()]) {
            let records = runs::records(&path);
            let is_sink = path == run.sink();
            let infiniband = records.iter().filter(|frame| is_sink || runs::is_roce(frame)).count() as u64;
            let profile = profile(std::slice::from_ref(&path));
            let coverage = &profile.coverage;
            let place = path.display();
            assert_eq!(coverage.records, records.len() as u64, "{place}");
            assert_eq!(coverage.infiniband, infiniband, "{place}");
            assert_eq!(coverage.records, coverage.infiniband + coverage.other(), "{place}");
            assert_eq!((coverage.failed(), coverage.icrc_bad), (0, 0), "{place}");
            assert_eq!(coverage.icrc_ok, coverage.infiniband - coverage.truncated, "{place}");
            if !run.folder.join("SNAPLEN").exists() {
                assert_eq!(coverage.truncated, 0, "{place}");
            }
            if !is_sink {
                assert!((24..=311).contains(&coverage.other()), "{place}: {} other frames", coverage.other());
            }
            assert!(profile.notes.iter().all(|note| !note.contains("_input")), "{place}: {:?}", profile.notes);
        }
    }
}

#[test]
fn every_way_of_recording_gives_the_same_matrix() {
    for run in runs::all() {
        let together = matrix(&profile(&run.every_node()));
        assert!(!together.is_empty(), "{}", run.name);
        assert_eq!(matrix(&profile(&[run.sink()])), together, "{}: sink", run.name);
        for node in 1..=run.nodes {
            let alone = matrix(&profile(&[run.node(node)]));
            assert_eq!(alone, involving(&together, node), "{}: node {node} alone", run.name);
        }
    }
}

/// Point-to-point messages and MPI bytes by rank pair.
fn by_rank(profile: &Profile) -> BTreeMap<(u32, u32), (u64, u64)> {
    let ranks: BTreeMap<&str, u32> = profile.ranks.iter().map(|row| (row.endpoint.as_str(), row.rank)).collect();
    let mut cells = BTreeMap::new();
    for connection in profile.connections.iter().filter(|connection| connection.traffic.p2p_messages > 0) {
        let rank = |endpoint: Endpoint| ranks[endpoint.to_string().as_str()];
        let cell: &mut (u64, u64) = cells.entry((rank(connection.src), rank(connection.dst))).or_default();
        cell.0 += connection.traffic.p2p_messages;
        cell.1 += connection.traffic.p2p_mpi_bytes;
    }
    cells
}

fn one_process_per_node(run: &Run) -> bool {
    let nodes = run.node_of_rank();
    !nodes.is_empty() && nodes.len() == usize::from(run.nodes)
}

#[test]
fn ranks_are_right_where_one_process_runs_per_node() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| one_process_per_node(run) && !run.name.contains("-ofi-")) {
        for paths in [run.every_node(), vec![run.sink()]] {
            let profile = profile(&paths);
            let found: BTreeMap<u32, u8> =
                profile.ranks.iter().map(|row| (row.rank, node(row.endpoint.parse().expect("endpoint")))).collect();
            assert_eq!(found, run.node_of_rank(), "{}: {:?}", run.name, profile.notes);
            checked += 1;
        }
    }
    assert_eq!(checked, 2 * 15, "runs with one process per node");
}

#[test]
fn messages_and_bytes_equal_the_truth() {
    for name in ["ompi-openib-notrace-mixed-4x1", "ompi-rc-notrace-mixed-4x1"] {
        let run = runs::named(name);
        let truth = run.truth("truth.csv").expect("truth");
        for paths in [run.every_node(), vec![run.sink()]] {
            assert_eq!(by_rank(&profile(&paths)), truth, "{name}");
        }
    }
}

/// Beyond what issue and README promise so far: every traced run with one process per node, with the tracer's own messages.
#[test]
fn messages_of_traced_runs_equal_what_must_stand_on_the_wire() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| one_process_per_node(run) && !run.name.contains("-ofi-")) {
        let Some(wire) = run.truth("wire.csv") else { continue };
        for paths in [run.every_node(), vec![run.sink()]] {
            assert_eq!(by_rank(&profile(&paths)), wire, "{}", run.name);
            checked += 1;
        }
    }
    assert_eq!(checked, 2 * 15, "runs with one process per node and a wire.csv");
}
