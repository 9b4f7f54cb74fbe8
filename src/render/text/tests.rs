use super::*;
use crate::analysis::GroupBy;
use crate::analysis::fixture::{self, traffic, two_jobs};
use crate::analysis::matrix::{Selection, matrix};
use crate::analysis::timeline::timeline;
use crate::model::profile::{ConnectionRow, PairCoverage, RetransmissionSums, TimelineRow, Traffic};
use crate::model::{Coverage, Profile, TrafficKind};
use crate::render::matrix as rendered;
use ibscope_parsers::{Lid, Qpn};

const PLAIN: Style = Style { color: false, width: 80 };

fn connection(src: u16, dst: u16, traffic: Traffic) -> ConnectionRow {
    ConnectionRow {
        src: ibscope_parsers::Endpoint::from_lid(Lid(src)),
        dst: ibscope_parsers::Endpoint::from_lid(Lid(dst)),
        kind: TrafficKind::Data,
        service: 0,
        dest_qp: Qpn::new(u32::from(dst) + 1),
        src_qp: None,
        src_qp_evidence: None,
        first_time_ns: 0,
        last_time_ns: 0,
        traffic,
        retransmissions: RetransmissionSums::default(),
        stack: Some("Open MPI".to_owned()),
        job: None,
        class: crate::model::ConnectionClass::default(),
        one_sided: None,
        coverage: PairCoverage::default(),
        sampled: None,
        paths: smallvec::SmallVec::default(),
        is_at_both_ports: None,
    }
}

/// LIDs 9 and 10 send to each other, LID 10 over two connections. LID 11 has no rank.
fn profile() -> Profile {
    let rank = |rank, endpoint: &str| crate::model::profile::RankRow {
        rank,
        endpoint: endpoint.to_owned(),
        qpn: None,
        evidence: "envelope".to_owned(),
        agreeing: 4,
        disagreeing: 0,
        job: 1,
        inferred: false,
    };
    let mut silent = connection(11, 9, traffic(1));
    silent.stack = None;
    Profile {
        connections: vec![
            connection(9, 10, traffic(1)),
            connection(10, 9, traffic(10)),
            connection(10, 9, traffic(20)),
            silent,
        ],
        timeline: vec![
            TimelineRow { time_ns: 1_000_000, connection: 0, traffic: traffic(1), ..TimelineRow::default() },
            TimelineRow { time_ns: 4_000_000, connection: 1, traffic: traffic(10), ..TimelineRow::default() },
        ],
        ranks: vec![rank(0, "9"), rank(1, "10")],
        names: [("9".parse().unwrap(), "node,1".to_owned())].into(),
        coverage: Coverage { records: 42, infiniband: 41, ..Coverage::default() },
        bin_ns: 1_000_000,
        mpi_read: true,
        ..Profile::default()
    }
}

fn csv_of(by: GroupBy, selection: Selection) -> String {
    let mut out = Vec::new();
    rendered::matrix_csv(&matrix(&profile(), by, selection), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const HEADER: &str = "src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,coverage,class\n";

#[test]
fn csv_by_endpoint_counts_transport_messages_and_all_mpi_bytes() {
    let rows = "9,10,5,2100,3000,4000,10,,complete,unknown\n10,9,150,63000,90000,120000,300,,complete,unknown\n11,9,5,,3000,4000,10,,complete,unknown\n";
    assert_eq!(csv_of(GroupBy::Endpoint, Selection::All), format!("{HEADER}{rows}"));
}

#[test]
fn csv_by_rank_counts_the_selected_messages_and_puts_unknown_last() {
    let p2p = "0,1,2,2000,3000,4000,10,1,complete,unknown\n1,0,60,60000,90000,120000,300,1,complete,unknown\nunknown,0,2,,3000,4000,10,1,complete,unknown\n";
    assert_eq!(csv_of(GroupBy::Rank, Selection::P2p), format!("{HEADER}{p2p}"));
    let collective = "0,1,1,100,3000,4000,10,1,complete,unknown\n1,0,30,3000,90000,120000,300,1,complete,unknown\nunknown,0,1,,3000,4000,10,1,complete,unknown\n";
    assert_eq!(csv_of(GroupBy::Rank, Selection::Collective), format!("{HEADER}{collective}"));
}

#[test]
fn queue_pairs_of_a_rank_map_split_an_endpoint() {
    let mut profile = profile();
    for (rank, qpn) in [(5, 10), (6, 11)] {
        let mut row = profile.ranks[0].clone();
        (row.rank, row.endpoint, row.qpn) = (rank, "9".to_owned(), Some(qpn));
        profile.ranks.push(row);
    }
    profile.connections[2].dest_qp = Qpn::new(11);
    let labels: Vec<String> =
        matrix(&profile, GroupBy::Rank, Selection::All).rows().map(|(src, dst, _)| format!("{src}>{dst}")).collect();
    // The sender LID 9 has three ranks, and its queue pair is not known, so its rank is unknown.
    assert_eq!(labels, ["1>5", "1>6", "unknown>1", "unknown>5"]);
}

#[test]
fn json_has_the_same_numbers_and_names_its_rows() {
    let mut out = Vec::new();
    rendered::matrix_json(&matrix(&profile(), GroupBy::Rank, Selection::P2p), &mut out).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(document["row"], "sender");
    assert_eq!(document["cells"][1]["src"], 1);
    assert_eq!(document["cells"][1]["mpi_bytes"], 60000);
    assert_eq!(document["cells"][2]["src"], "unknown");
    assert!(document["cells"][2]["mpi_bytes"].is_null());
}

#[test]
fn the_table_has_totals_and_names_its_rows() {
    let table = matrix_table(&matrix(&profile(), GroupBy::Endpoint, Selection::All), TrafficUnit::Packets, &PLAIN);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "packets by endpoint, row = sender, column = receiver");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(lines[1]), ["node,1", "10", "11", "total"]);
    assert_eq!(cells(lines[2]), ["node,1", "·", "10", "·", "10"]);
    assert_eq!(cells(lines[3]), ["10", "300", "·", "·", "300"]);
    assert_eq!(cells(lines[5]), ["total", "310", "10", "0", "320"]);
    assert!(!table.contains('\x1b'));
    let colored = matrix_table(
        &matrix(&profile(), GroupBy::Endpoint, Selection::All),
        TrafficUnit::Packets,
        &Style { color: true, ..PLAIN },
    );
    // Black text on yellow.
    assert!(colored.contains("\x1b[48;5;220;38;5;16m"), "the largest value is painted brightest");
}

#[test]
fn many_endpoints_become_a_heat_map_that_fits() {
    let mut profile = profile();
    profile.connections = (1..=300).map(|lid| connection(lid, lid % 300 + 1, traffic(u64::from(lid)))).collect();
    let table = matrix_table(&matrix(&profile, GroupBy::Endpoint, Selection::All), TrafficUnit::WireBytes, &PLAIN);
    assert!(
        table.starts_with("wire bytes by endpoint, row = sender, column = receiver, 300 x 300, each character 5 x 5\n")
    );
    // The name of LID 9 takes six columns, so there are 60 rows of blocks below the column names.
    // Each block on the diagonal has traffic, and the last block sends to the first.
    let rows: Vec<&str> = table.lines().skip(2).take(60).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 80));
    // Five senders per block: the least traffic is LID 5 to 6, right of the first block; the most
    // is in the last block.
    assert!(rows[0].trim_end().ends_with('.') && rows[59].contains('@'), "{table}");
    assert!(table.contains("blank: no traffic"));
    assert!(table.contains("the 10 busiest of 300 pairs"));
    let colored = Style { color: true, ..PLAIN };
    let table = matrix_table(&matrix(&profile, GroupBy::Endpoint, Selection::All), TrafficUnit::WireBytes, &colored);
    // Two rows of blocks in each line: the first block sends to itself and to the second, the
    // second to itself and to the third.
    let rows: Vec<&str> = table.lines().skip(2).take(30).collect();
    let marks = |row: &str| row.chars().filter(|c| "▀▄".contains(*c)).collect::<String>();
    assert_eq!((marks(rows[0]), rows.len()), ("▀▀▄".to_owned(), 30), "{table}");
}

#[test]
fn timelines_merge_bins_and_refuse_widths_that_are_no_multiple() {
    let of = |bin_ns| timeline(&profile(), GroupBy::Rank, Selection::P2p, bin_ns);
    let mut out = Vec::new();
    rendered::timeline_csv(&of(Some(3_000_000)).unwrap(), &mut out).unwrap();
    let expected = "time_ns,src,dst,messages,mpi_bytes,payload_bytes,wire_bytes,packets,job,class\n\
                    0,0,1,2,2000,3000,4000,10,1,unknown\n\
                    3000000,1,0,20,20000,30000,40000,100,1,unknown\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    let error = of(Some(1_500_000)).unwrap_err().to_string();
    assert!(error.contains("1.5 ms") && error.contains("1 ms") && error.contains("--bin"), "{error}");
    let text = timeline_table(&of(None).unwrap(), &PLAIN);
    // Bins 1 to 4 ms: the two in the middle are empty and shown.
    let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    let packets: Vec<&str> = rows.iter().map(|row| row[2]).collect();
    assert_eq!(packets, ["10", "0", "0", "100"]);
}

#[test]
fn the_summary_names_what_was_found() {
    let mut profile = profile();
    profile.notes.push("truncated_input: x".to_owned());
    let text = summary(&profile, &PLAIN);
    for line in [
        "records       42: 41 InfiniBand",
        "MPI           point-to-point 64 messages, 62.5 KiB; collective 32 messages, 3.1 KiB (Open MPI)",
        "              9 node,1: rank 0: from MPI messages",
        "              11: rank unknown",
        "note          truncated_input: x",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn each_job_has_a_table_of_its_own() {
    let table = matrix_table(&matrix(&two_jobs(), GroupBy::Rank, Selection::P2p), TrafficUnit::MpiBytes, &PLAIN);
    let expected = "\
job 1: Open MPI UCX rc_verbs, 2 ranks
MPI bytes (point-to-point) by rank in KiB, row = sender, column = receiver
              0      1  total
      0       ·    2.0    2.0
      1       ·      ·      0
  total       0    2.0    2.0

 pair   messages  MPI bytes  payload bytes  wire bytes  packets  coverage
 0 → 1         2      2 000          3 000       4 000       10  complete

job 2 (Slurm 4711): Open MPI UCX rc_verbs, 2 ranks
MPI bytes (point-to-point) by rank in KiB, row = sender, column = receiver
                  0        1  unknown    total
        0         ·      3.9        ·      3.9
        1      ≥5.9        ·        ·     ≥5.9
  unknown       7.8        ·        ·      7.8
    total     ≥13.7      3.9        0    ≥17.6

 pair         messages  MPI bytes  payload bytes  wire bytes  packets  coverage
 unknown → 0         8      8 000         12 000      16 000       40  complete
 1 → 0               6      6 000          9 000      12 000       30  incomplete
 0 → 1               4      4 000          6 000       8 000       20  complete

traffic of no job: 14.6 KiB payload, 19.5 KiB on the wire, 50 packets; coverage
unknown; `--by endpoint` shows its senders and receivers

Messages and MPI bytes count the selected traffic (p2p); payload, wire bytes and
packets count all traffic of the pair.
Cells: · no traffic.
unknown: processes without a rank; `ibscope ranks` lists the reasons, and
--rankmap assigns ranks.
≥ incomplete: packets or messages are missing, so the numbers are lower bounds
(1 pair).

missing from the capture of job 2:
  1 → 0: 3 packets, 1 message
";
    assert_eq!(table, expected, "{table}");
}

#[test]
fn with_one_job_there_is_no_heading_and_no_mark_where_all_is_complete() {
    let mut profile = two_jobs();
    profile.keep_job(1).unwrap();
    let table = matrix_table(&matrix(&profile, GroupBy::Rank, Selection::P2p), TrafficUnit::MpiBytes, &PLAIN);
    let expected = "\
MPI bytes (point-to-point) by rank in KiB, row = sender, column = receiver
              0      1  total
      0       ·    2.0    2.0
      1       ·      ·      0
  total       0    2.0    2.0

 pair   messages  MPI bytes  payload bytes  wire bytes  packets
 0 → 1         2      2 000          3 000       4 000       10

Messages and MPI bytes count the selected traffic (p2p); payload, wire bytes and
packets count all traffic of the pair.
Cells: · no traffic.
";
    assert_eq!(table, expected, "{table}");
}

#[test]
fn one_coverage_of_all_pairs_is_one_sentence() {
    let mut profile = two_jobs();
    profile.keep_job(1).unwrap();
    profile.connections.iter_mut().for_each(|row| row.coverage.state = crate::model::profile::CoverageState::Sampled);
    let table = matrix_table(&matrix(&profile, GroupBy::Rank, Selection::P2p), TrafficUnit::MpiBytes, &PLAIN);
    assert!(!table.contains('~') && !table.contains("  coverage"), "{table}");
    assert!(table.contains("Coverage of all pairs is sampled: the mirror sampled the packets"), "{table}");
}

#[test]
fn ranks_on_one_node_are_not_on_the_wire() {
    let mut profile = two_jobs();
    // Rank 2 shares LID 9 with rank 0. Ranks 1 and 3 use two ports of one node.
    profile.keep_job(1).unwrap();
    profile.ranks.extend([fixture::rank(1, 2, 9, Some(30)), fixture::rank(1, 3, 12, Some(31))]);
    profile.connections.extend([
        fixture::connection(Some(1), (9, 30), (12, 31), 1),
        fixture::connection(Some(1), (12, 31), (9, 30), 1),
    ]);
    for port in ["10", "12"] {
        profile.names.insert(port.parse().unwrap(), "node2".to_owned());
    }
    let table = matrix_table(&matrix(&profile, GroupBy::Rank, Selection::P2p), TrafficUnit::Packets, &PLAIN);
    let cells: Vec<Vec<&str>> = table.lines().skip(2).take(4).map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        ["0", "·", "10", "=", "·", "10"],
        ["1", "·", "·", "·", "=", "0"],
        ["2", "=", "·", "·", "10", "10"],
        ["3", "·", "=", "10", "·", "10"],
    ];
    assert_eq!(cells, expected, "{table}");
    assert!(table.contains("= not on the wire: the two ranks are on the same node."), "{table}");
    // By endpoint, no cell is marked.
    let table = matrix_table(&matrix(&profile, GroupBy::Endpoint, Selection::All), TrafficUnit::Packets, &PLAIN);
    assert!(!table.contains("not on the wire"), "{table}");
}

#[test]
fn the_summary_lists_jobs_and_what_is_missing() {
    let text = summary(&two_jobs(), &PLAIN);
    for line in [
        "jobs          2; `rank 2.0` is rank 0 of job 2",
        "              job 1: Open MPI UCX rc_verbs, 2 ranks, 1.000 ms from 1970-01-01T00:00:00.000000Z",
        "              job 2 (Slurm 4711): Open MPI UCX rc_verbs, 2 ranks, 1.000 ms from 1970-01-01T00:00:00.000000Z",
        "unassigned    1 queue pair with MPI traffic has no rank; `ibscope ranks` lists the reasons",
        "coverage      of 3 pairs: 1 incomplete, 1 unknown; `ibscope matrix` marks them",
        "              9: rank 1.0 (queue pair 0xa): from MPI messages; rank 2.0 (queue pair 0x14): from MPI messages",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    // A capture without timestamps: the profile has the times of an empty interval.
    let mut untimed = two_jobs();
    (untimed.jobs[1].first_time_ns, untimed.jobs[1].last_time_ns) = (i64::MAX, i64::MIN);
    let text = summary(&untimed, &PLAIN);
    let line = "              job 2 (Slurm 4711): Open MPI UCX rc_verbs, 2 ranks";
    assert!(text.lines().any(|found| found == line), "{text}");
    let mut one = two_jobs();
    one.keep_job(1).unwrap();
    let text = summary(&one, &PLAIN);
    assert!(!text.contains("\njobs") && !text.contains("\ncoverage") && !text.contains("job 1"), "{text}");
}

#[test]
fn collectives_that_carry_most_bytes_are_named_with_both_numbers() {
    let mut profile = two_jobs();
    let quiet = summary(&profile, &PLAIN);
    assert!(!quiet.contains("\ncollectives"), "{quiet}");
    assert_eq!(crate::render::matrix_note::note(&profile, GroupBy::Rank, Selection::P2p), None);
    profile.connections[0].traffic.collective_mpi_bytes = 30 << 10;
    let note = crate::render::matrix_note::note(&profile, GroupBy::Rank, Selection::P2p).unwrap();
    // 30 KiB and nine times 100 B, and ten times 2000 B.
    assert!(note.contains("30.9 KiB") && note.contains("19.5 KiB") && note.contains("--traffic all"), "{note}");
    assert!(summary(&profile, &PLAIN).contains(&note));
    assert_eq!(crate::render::matrix_note::note(&profile, GroupBy::Rank, Selection::All), None);
    assert_eq!(crate::render::matrix_note::note(&profile, GroupBy::Endpoint, Selection::All), None);
}
