//! Ranks that are not identified on the wire, although their messages are on it.
//!
//! The recorded runs identify every rank, so a rank map leaves some out. The messages without a
//! rank on the wire must then be those of the left-out ranks in the truth.

use super::archive;
use crate::runs::{self, RecordedRun};
use crate::tools::{ProgramResult, ibscope};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

type ExpectedSums = BTreeMap<(u32, u32), (u64, u64)>;

/// One rank per node; no tracer.
fn run() -> RecordedRun {
    runs::named("ompi-rc-notrace-mixed-4x1")
}

/// A rank map of a run with one rank per node, without some ranks: rank R is at LID 17 + R.
fn rankmap(folder: &Path, without: &[u32]) -> PathBuf {
    let rows = (0..4).filter(|rank| !without.contains(rank)).map(|rank| format!("{rank},{}\n", 17 + rank));
    let path = folder.join("ranks.csv");
    fs::write(&path, format!("rank,endpoint\n{}", rows.collect::<String>())).expect("written");
    path
}

fn crosscheck(run: &RecordedRun, trace: &Path, rankmap: &Path, more: &[&str]) -> ProgramResult {
    let sink = run.sink();
    let first = [OsStr::new("crosscheck"), sink.as_os_str(), trace.as_os_str(), OsStr::new("--rankmap")];
    ibscope(first.into_iter().chain([rankmap.as_os_str()]).chain(more.iter().map(OsStr::new)))
}

fn document(ran: &ProgramResult) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr))
}

/// Messages and bytes of a part of a row.
fn sums(row: &Value, part: &str) -> (u64, u64) {
    let bytes = if part == "wire" { "wire_mpi_bytes".to_owned() } else { format!("{part}_bytes") };
    (row[format!("{part}_messages")].as_u64().expect("messages"), row[bytes].as_u64().expect("bytes"))
}

/// Sender and receiver, if identified.
fn ends(row: &Value) -> (Option<u32>, Option<u32>) {
    let rank = |of: &str| row[of].as_u64().map(|rank| rank as u32);
    (rank("src"), rank("dst"))
}

fn causes(pair: &Value) -> Vec<&str> {
    pair["causes"].as_array().expect("causes").iter().map(|cause| cause.as_str().expect("text")).collect()
}

/// The messages on the wire of each pair of identified ranks and of the others, from the truth.
fn expected(truth: &ExpectedSums, without: &[u32]) -> BTreeMap<(Option<u32>, Option<u32>), (u64, u64)> {
    let mut expected = BTreeMap::new();
    for ((src, dst), (messages, bytes)) in truth {
        let [src, dst] = [src, dst].map(|rank| (!without.contains(rank)).then_some(*rank));
        let sums: &mut (u64, u64) = expected.entry((src, dst)).or_default();
        *sums = (sums.0 + messages, sums.1 + bytes);
    }
    expected
}

#[test]
fn messages_of_a_rank_that_is_not_identified_are_not_missing() {
    let folder = tempfile::tempdir().expect("folder");
    let (run, table) = (run(), run().folder.join("truth.csv"));
    let truth = run.truth("truth.csv").expect("truth");
    for without in [vec![3], vec![2, 3], vec![0]] {
        let map = rankmap(folder.path(), &without);
        let ran = crosscheck(&run, &table, &map, &["--format", "json"]);
        assert_eq!(ran.code, 0, "{without:?}: {}", ran.stderr);
        let document = document(&ran);
        let result = &document;
        assert_eq!(result["not_identified"], json!(without));
        let rows = result["unidentified"].as_array().expect("rows");
        for (place, on_wire) in
            expected(&truth, &without).iter().filter(|((src, dst), _)| src.is_none() || dst.is_none())
        {
            let row = rows.iter().find(|row| ends(row) == *place).unwrap_or_else(|| panic!("{place:?}"));
            assert_eq!((sums(row, "wire"), sums(row, "explained")), (*on_wire, *on_wire), "{place:?}");
        }
        let pairs = result["pairs"].as_array().expect("pairs");
        assert_eq!(pairs.len(), truth.len());
        for pair in pairs {
            let (Some(src), Some(dst)) = ends(pair) else { panic!("{pair}") };
            let names: Vec<&str> = [(dst, "receiver not identified"), (src, "sender not identified")]
                .into_iter()
                .filter(|(rank, _)| without.contains(rank))
                .map(|(_, name)| name)
                .collect();
            assert_eq!(causes(pair), names, "{pair}");
            let all = truth[&(src, dst)];
            let missing = if names.is_empty() { (0, 0) } else { all };
            assert_eq!((sums(pair, "missing"), sums(pair, "unidentified")), (missing, missing), "{pair}");
            assert_eq!(pair["verdict"], if names.is_empty() { "equal" } else { "explained" });
        }
    }
}

#[test]
fn every_output_names_the_cause_and_what_to_do() {
    let folder = tempfile::tempdir().expect("folder");
    let (run, map) = (run(), rankmap(folder.path(), &[3]));
    let table = run.folder.join("truth.csv");
    let figure = folder.path().join("figure.svg");
    let ran = crosscheck(&run, &table, &map, &["--svg", &figure.to_string_lossy()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result = "the wire and the trace agree, as far as ranks are identified";
    for part in [result, "receiver not identified", "sender not identified", "ibscope ranks, --rankmap"] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("not on the wire") && !ran.stdout.contains("not captured"), "{}", ran.stdout);
    assert!(ran.stderr.contains("`ibscope ranks --format csv`") && ran.stderr.contains("--rankmap"), "{}", ran.stderr);
    let widest = ran.stdout.lines().skip(1).map(|line| line.chars().count()).max();
    assert!(widest <= Some(84), "the name of the trace alone may be longer: {}", ran.stdout);
    let figure = fs::read_to_string(figure).expect("figure");
    assert!(figure.contains("rank not identified (ibscope ranks, --rankmap)"), "the figure's legend");

    let truth = run.truth("truth.csv").expect("truth");
    let (messages, bytes) = truth[&(2, 3)];
    let csv = crosscheck(&run, &table, &map, &["--format", "csv"]).stdout;
    let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
    let row: Vec<&str> =
        csv.lines().find(|line| line.starts_with("point-to-point,2,3,")).expect("the pair").split(',').collect();
    let at = |name: &str| row[header.iter().position(|column| *column == name).expect("column")];
    assert_eq!([at("verdict"), at("causes")], ["explained", "receiver not identified"]);
    assert_eq!([at("unidentified_messages"), at("unidentified_bytes")], [messages.to_string(), bytes.to_string()]);
    let csv = crosscheck(&run, &table, &map, &["--format", "csv", "--view", "unidentified"]).stdout;
    assert!(csv.lines().any(|line| line == format!("2,,{messages},{bytes},{messages},{bytes}")), "{csv}");

    let page = folder.path().join("page.html");
    let arguments =
        [OsStr::new("report"), OsStr::new("-o"), page.as_os_str(), OsStr::new("--trace"), table.as_os_str()];
    let more = [OsStr::new("--rankmap"), map.as_os_str()];
    let sink = run.sink();
    let ran = ibscope(arguments.into_iter().chain(more).chain([sink.as_os_str()]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let page = fs::read_to_string(page).expect("page");
    for part in [
        result,
        "receiver not identified",
        "rank not identified",
        "`ibscope ranks --format csv` lists the queue pairs without a rank",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// One message, or one byte, too many in the trace: no unidentified message on the wire is left for
/// it.
#[test]
fn no_more_is_explained_than_is_on_the_wire() {
    let folder = tempfile::tempdir().expect("folder");
    let (run, map, table) = (run(), rankmap(folder.path(), &[3]), folder.path().join("table.csv"));
    let truth = run.truth("truth.csv").expect("truth");
    for (pair, more) in [((0, 3), (1, 0)), ((0, 3), (0, 1)), ((3, 1), (1, 8)), ((2, 3), (0, 1))] {
        let mut text = "src,dst,messages,bytes\n".to_owned();
        for (place, (messages, bytes)) in &truth {
            let (all, size) = if *place == pair { (messages + more.0, bytes + more.1) } else { (*messages, *bytes) };
            let (src, dst) = place;
            let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{src},{dst},{all},{size}\n"));
        }
        fs::write(&table, text).expect("written");
        let ran = crosscheck(&run, &table, &map, &["--format", "json"]);
        assert_eq!(ran.code, 4, "{pair:?} {more:?}: {}", ran.stderr);
        let document = document(&ran);
        let pairs = document["pairs"].as_array().expect("pairs");
        let differ = pairs.iter().filter(|pair| pair["verdict"] == "unexplained").map(ends);
        assert_eq!(differ.collect::<BTreeSet<_>>(), BTreeSet::from([(Some(pair.0), Some(pair.1))]));
        let ran = crosscheck(&run, &table, &map, &[]);
        assert!(ran.stdout.contains("; rank 3 is not identified on the wire"), "{}", ran.stdout);
    }
}

/// Two ranks per node, with tags and with the tracer's own messages. Only queue pairs of rank 3 are
/// left out; it shares a node with rank 2.
#[test]
fn an_unidentified_rank_does_not_affect_its_neighbor() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("scorep-ompi-rc-mw-2x2");
    let truth = run.truth("truth.csv").expect("truth");
    let learned = ibscope([OsStr::new("ranks"), run.sink().as_os_str(), OsStr::new("--format"), OsStr::new("csv")]);
    let map = folder.path().join("ranks.csv");
    let kept: Vec<&str> = learned.stdout.lines().filter(|line| !line.starts_with("3,")).collect();
    fs::write(&map, kept.join("\n")).expect("written");
    let ran = crosscheck(&run, &archive(&run).expect("archive"), &map, &["--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = document(&ran);
    for pair in document["pairs"].as_array().expect("pairs") {
        let names = match ends(pair) {
            (Some(0 | 1), Some(0 | 1)) | (Some(2 | 3), Some(2 | 3)) => vec!["not on the wire (same node)"],
            (_, Some(3)) => vec!["receiver not identified"],
            (Some(3), _) => vec!["sender not identified"],
            _ => vec!["tracer's own messages"],
        };
        assert_eq!(causes(pair), names, "{pair}");
        if let (Some(src), Some(dst)) = ends(pair) {
            assert_eq!(sums(pair, "trace"), truth[&(src, dst)], "{pair}");
        }
    }
    // The sums of the profile, of all peers together.
    let ran = crosscheck(&run, &run.folder.join("trace/profile.cubex"), &map, &["--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = self::document(&ran);
    for row in document["ranks"].as_array().expect("ranks") {
        let is_sent = row["direction"] == "sent";
        let rank = row["rank"].as_u64().expect("rank") as u32;
        let own = |(src, dst): (u32, u32)| if is_sent { (src, dst) } else { (dst, src) };
        // Between nodes, and of rank 3.
        let is_unidentified =
            |(own, other): (u32, u32)| own == rank && own / 2 != other / 2 && (own == 3 || other == 3);
        let bytes: u64 = truth.iter().filter(|(pair, _)| is_unidentified(own(**pair))).map(|(_, sums)| sums.1).sum();
        assert_eq!(row["unidentified_bytes"], json!(bytes), "{row}");
        let is_named = causes(row).iter().any(|cause| cause.ends_with("not identified"));
        assert_eq!((is_named, &row["verdict"]), (bytes > 0, &json!("explained")), "{row}");
    }
}

/// Two jobs with the same rank numbers: each table is compared with its own job.
#[test]
fn the_job_of_the_trace_is_found() {
    let run = runs::of_second_set("twojobs-mixed-halo-2x1");
    let sink = run.sink();
    for job in ["1", "2"] {
        let table = run.folder.join(format!("truth{job}.csv"));
        let own =
            [OsStr::new("crosscheck"), sink.as_os_str(), table.as_os_str(), OsStr::new("--format"), OsStr::new("json")];
        let ran = ibscope(own);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let document = document(&ran);
        // Jobs are numbered by the time of their first packet, which the truth does not have.
        let found = document["job"].to_string();
        assert!(
            ran.stderr.contains(&format!("the capture contains 2 jobs; job {found} has the most messages in common")),
            "{}",
            ran.stderr
        );
        let truth = run.truth(&format!("truth{job}.csv")).expect("truth");
        let pairs = document["pairs"].as_array().expect("pairs");
        assert_eq!(pairs.len(), truth.len());
        for pair in pairs {
            let (Some(src), Some(dst)) = ends(pair) else { panic!("{pair}") };
            let on_wire = if src == dst { (0, 0) } else { truth[&(src, dst)] };
            assert_eq!(sums(pair, "wire"), on_wire, "{pair}");
        }
        let other = if found == "1" { "2" } else { "1" };
        let ran = ibscope(own.into_iter().chain(["--job", other].map(OsStr::new)));
        assert_eq!(ran.code, 4, "job {other}: {}", ran.stderr);
        let ran = ibscope(own.into_iter().chain(["--job", "3"].map(OsStr::new)));
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("the profile has no job 3"), "{}", ran.stderr);
        // Collective operations alone do not show which job they belong to.
        let ran = ibscope(own.into_iter().chain([OsStr::new("--collectives-only")]));
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.contains("jobs 1, 2") && ran.stderr.contains("--job"), "{}", ran.stderr);
    }
}
