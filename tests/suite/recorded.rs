//! Every recorded run: no packet is missing, and every way of capturing gives the same numbers.

use crate::runs::{self, RecordedRun};
use ibscope::analysis::GroupBy;
use ibscope::analysis::Label;
use ibscope::analysis::matrix::{self, MatrixCell, Selection};
use ibscope::model::profile::CoverageState;
use ibscope::model::{Profile, TrafficKind};
use ibscope::pipeline::{AnalysisOptions, AnalysisWindow, EndpointInfo, TimePoint, analyze};
use ibscope_parsers::{Endpoint, Lid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

pub(crate) fn profile(paths: &[PathBuf]) -> Profile {
    analyze(paths, &AnalysisOptions::default(), &|_| {}).unwrap_or_else(|error| panic!("{paths:?}: {error}"))
}

/// Node number of an endpoint: 10.77.0.N in the RoCE files, LID 16+N in the sink.
pub(crate) fn node(endpoint: Endpoint) -> u8 {
    match endpoint.lid() {
        Some(lid) => (lid.0 - 16) as u8,
        None => endpoint.to_string().strip_prefix("10.77.0.").expect("address").parse().expect("node"),
    }
}

/// Messages, payload bytes and packets by pair of nodes.
pub(crate) fn matrix(profile: &Profile) -> BTreeMap<(u8, u8), [u64; 3]> {
    let mut cells: BTreeMap<(u8, u8), [u64; 3]> = BTreeMap::new();
    for connection in profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data) {
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
pub(crate) fn every_way_of_recording_gives_the_same_matrix() {
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

/// MPI messages and bytes by rank pair, as in `matrix --by rank`, without pairs that have no
/// messages.
fn by_rank(profile: &Profile) -> BTreeMap<(String, String), (u64, u64)> {
    let matrix = matrix::matrix(profile, GroupBy::Rank, Selection::P2p);
    let row = |(src, dst, cell): (&Label, &Label, &MatrixCell)| {
        ((src.to_string(), dst.to_string()), (cell.messages, cell.mpi_bytes.unwrap_or(0)))
    };
    matrix.rows().map(row).filter(|(_, (messages, _))| *messages > 0).collect()
}

fn as_text(truth: &BTreeMap<(u32, u32), (u64, u64)>) -> BTreeMap<(String, String), (u64, u64)> {
    truth.iter().map(|(&(src, dst), &sums)| ((src.to_string(), dst.to_string()), sums)).collect()
}

/// Nodes of the ranks in a profile.
fn nodes_of_ranks(profile: &Profile) -> BTreeMap<u32, BTreeSet<u8>> {
    let mut nodes: BTreeMap<u32, BTreeSet<u8>> = BTreeMap::new();
    for row in &profile.ranks {
        nodes.entry(row.rank).or_default().insert(node(row.endpoint.parse().expect("endpoint")));
    }
    nodes
}

pub(crate) fn is_mpi(run: &RecordedRun) -> bool {
    !run.name.starts_with("perf-")
}

#[test]
fn the_rank_map_is_right() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| is_mpi(run)) {
        let truth: BTreeMap<u32, BTreeSet<u8>> =
            run.node_of_rank().into_iter().map(|(rank, node)| (rank, BTreeSet::from([node]))).collect();
        for paths in every_way(run) {
            let profile = profile(&paths);
            let mut expected = truth.clone();
            // Of a node without a capture, only its traffic with the captured node is visible.
            if let [path] = paths.as_slice()
                && *path != run.sink()
            {
                let seen: BTreeSet<u8> = matrix(&profile).keys().flat_map(|(src, dst)| [*src, *dst]).collect();
                expected.retain(|_, nodes| nodes.is_subset(&seen));
            }
            let found = nodes_of_ranks(&profile);
            assert_eq!(found, expected, "{}: {paths:?}: {:?}", run.name, profile.notes);
            checked += 1;
        }
    }
    assert_eq!(checked, 19 * 4 + 6 * 2, "19 runs on two nodes and 6 on four");
}

#[test]
fn perftest_has_no_ranks_and_no_messages() {
    for run in runs::all().iter().filter(|run| !is_mpi(run)) {
        let profile = profile(&[run.sink()]);
        assert_eq!(profile.ranks, [], "{}", run.name);
        assert!(profile.connections.iter().all(|connection| connection.stack.is_none()), "{}", run.name);
    }
}

/// All captures of a run together, those of each port alone if they show everything, and the sink.
pub(crate) fn every_way(run: &RecordedRun) -> Vec<Vec<PathBuf>> {
    let mut ways = vec![run.every_node(), vec![run.sink()]];
    if run.nodes == 2 {
        ways.extend([vec![run.node(1)], vec![run.node(2)]]);
    }
    ways
}

#[test]
fn messages_and_bytes_equal_the_truth() {
    for name in ["ompi-openib-notrace-mixed-4x1", "ompi-rc-notrace-mixed-4x1"] {
        let run = runs::named(name);
        let truth = as_text(&run.truth("truth.csv").expect("truth"));
        for paths in every_way(&run) {
            assert_eq!(by_rank(&profile(&paths)), truth, "{name}");
        }
    }
}

/// Every run, for every library and number of processes per node, including the tracer's messages.
#[test]
fn messages_of_all_runs_equal_those_on_the_wire() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| is_mpi(run)) {
        let Some(wire) = run.truth("wire.csv") else { continue };
        for paths in every_way(run) {
            assert_eq!(by_rank(&profile(&paths)), as_text(&wire), "{}: {paths:?}", run.name);
        }
        checked += 1;
    }
    assert_eq!(checked, 22, "runs with a wire.csv");
}

/// On four nodes, one port shows the pairs of its node with their ranks, even if a neighbor uses
/// other communicators only.
#[test]
fn one_port_of_four_shows_the_pairs_of_its_node() {
    let mut checked = 0;
    for run in runs::all().iter().filter(|run| run.nodes == 4) {
        let Some(wire) = run.truth("wire.csv") else { continue };
        let nodes = run.node_of_rank();
        for port in 1..=4 {
            let mut expected = wire.clone();
            expected.retain(|(src, dst), _| nodes[src] == port || nodes[dst] == port);
            assert_eq!(by_rank(&profile(&[run.node(port)])), as_text(&expected), "{}: node {port}", run.name);
            checked += 1;
        }
    }
    assert_eq!(checked, 6 * 4, "ports of the runs on four nodes");
}

/// Open MPI and MPICH fill UCX's tags differently: each job gets its own tag layout.
#[test]
fn two_libraries_in_one_analysis_are_distinguished() {
    let runs = [runs::named("ompi-rc-ring2"), runs::named("mpich-rc-ring2")];
    let together = profile(&[runs[0].node(1), runs[1].sink()]);
    for (run, library, place) in [(&runs[0], "Open MPI UCX rc_verbs", 0), (&runs[1], "MPICH UCX rc_verbs", 1)] {
        let own = |row: &&ibscope::model::profile::ConnectionRow| usize::from(row.src.lid().is_some()) == place;
        let stacks: BTreeSet<&str> =
            together.connections.iter().filter(own).filter_map(|row| row.stack.as_deref()).collect();
        assert_eq!(stacks, BTreeSet::from([library]), "{}", run.name);
        let wire = run.truth("wire.csv").expect("wire.csv");
        let messages: u64 = together.connections.iter().filter(own).map(|row| row.traffic.p2p_messages).sum();
        assert_eq!(messages, wire.values().map(|sums| sums.0).sum::<u64>(), "{}", run.name);
    }
    assert!(together.notes.iter().all(|note| !note.contains("4096")), "{:?}", together.notes);
}

/// Two jobs in one analysis: each has its own ranks and its own truth.
#[test]
fn two_jobs_are_never_added_up() {
    let runs = [runs::named("ompi-rc-ring2"), runs::named("ompi-openib-ring2")];
    let together = profile(&[runs[0].node(1), runs[1].sink()]);
    assert_eq!(together.jobs.len(), 2, "{:?}", together.notes);
    for (run, job) in runs.iter().zip(1..) {
        let mut own = together.clone();
        own.connections.retain(|connection| connection.job == Some(job));
        own.ranks.retain(|row| row.job == job);
        own.jobs.retain(|row| row.job == job);
        assert_eq!(by_rank(&own), as_text(&run.truth("wire.csv").expect("wire.csv")), "{}", run.name);
    }
}

/// The WRITEs and READs of the program, without messages that UCX sends itself: 3 421 120 bytes by
/// each in each direction (`summary.txt` of the run).
#[test]
fn one_sided_operations_are_counted_in_the_direction_of_their_bytes() {
    let run = runs::of_second_set("ompi5-ucx-rc-rma-2x1");
    for paths in [run.every_node(), vec![run.sink()], vec![run.node(1)]] {
        let profile = profile(&paths);
        let one_sided = matrix::matrix(&profile, GroupBy::Rank, Selection::OneSided);
        let bytes: BTreeMap<(String, String), u64> = one_sided
            .rows()
            .filter_map(|(src, dst, cell)| Some(((src.to_string(), dst.to_string()), cell.mpi_bytes?)))
            .collect();
        let pair = |src: &str, dst: &str| (src.to_owned(), dst.to_owned());
        assert_eq!(bytes, BTreeMap::from([(pair("0", "1"), 6_842_240), (pair("1", "0"), 6_842_240)]), "{paths:?}");
        let messages = |selection| matrix::matrix(&profile, GroupBy::Rank, selection).total().messages;
        assert_eq!(messages(Selection::P2p), 0, "one-sided operations are no point-to-point messages");
    }
}

/// UCX's address lists the devices of a process: both rails belong to its rank, including the
/// payload of rendezvous.
#[test]
fn a_second_rail_belongs_to_the_ranks_of_the_first() {
    let run = runs::of_second_set("ompi5-ucx-rc-multirail-mixed-2x1");
    let profile = profile(&run.every_node());
    assert_eq!(by_rank(&profile), as_text(&run.truth("wire.csv").expect("wire.csv")));
    let ports: BTreeSet<(u32, &str)> = profile.ranks.iter().map(|row| (row.rank, row.endpoint.as_str())).collect();
    let both = [(0, "10.77.0.1"), (0, "10.78.0.1"), (1, "10.77.0.2"), (1, "10.78.0.2")];
    assert_eq!(ports, BTreeSet::from(both));
    let of_no_rank = profile.connections.iter().filter(|row| row.kind == TrafficKind::Data && row.job.is_none());
    assert_eq!(of_no_rank.count(), 0);
}

/// Two ports of each node, without captured connection messages: apparent pairs of jobs are marked
/// as possibly one; a job that is joined by the names of its nodes is marked as possibly several.
#[test]
fn jobs_that_may_be_one_on_two_rails_have_a_note() {
    let run = runs::of_second_set("ompi-openib-multirail-mixed-2x1");
    let window = AnalysisWindow { from: Some(TimePoint::SinceStart(800_000_000)), to: None };
    let late = AnalysisOptions { window, ..AnalysisOptions::default() };
    let analyzed = |options: &AnalysisOptions| analyze(&[run.sink()], options, &|_| {}).expect("analysis");
    let unnamed = analyzed(&late);
    assert_eq!(unnamed.jobs.len(), 2);
    assert!(unnamed.notes.iter().any(|note| note.contains("may be one job")), "{:?}", unnamed.notes);
    let of_jobs = unnamed.connections.iter().filter(|row| row.job.is_some());
    assert_eq!(of_jobs.clone().filter(|row| row.coverage.state != CoverageState::Unknown).count(), 0);
    assert!(of_jobs.count() > 0);

    let names = [(17, "node1/mlx5_0:1"), (33, "node1/mlx5_1:1"), (18, "node2"), (34, "node2")];
    let names = names.map(|(lid, name)| (Endpoint::from_lid(Lid(lid)), name.to_owned())).into();
    let endpoints = EndpointInfo { names, ..EndpointInfo::default() };
    let named = analyzed(&AnalysisOptions { endpoints, ..late });
    assert_eq!(named.jobs.len(), 1, "{:?}", named.notes);
    assert!(named.notes.iter().any(|note| note.contains("it may be several jobs")), "{:?}", named.notes);
    let sums = |profile: &Profile| matrix::matrix(profile, GroupBy::Rank, Selection::P2p).total().messages;
    assert_eq!(sums(&named), sums(&unnamed));
}
