//! Jobs in the report: each has a matrix of its own with its coverage, as `ibscope matrix` prints
//! them.

use super::{has_browser, look, pictures};
use crate::runs;
use crate::tools::{HEADER_BYTES, result, walk};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Job, sender and receiver.
type PageRow = [String; 3];

/// Numbers and coverage of each pair that `matrix --format csv` prints for a command of the page.
fn printed(command: &str, profile: &Path) -> BTreeMap<PageRow, (Vec<String>, String)> {
    let words: Vec<&str> = command.split(' ').collect();
    let csv = result(&[&["matrix", "--format", "csv"], &words[3..]].concat(), &[profile]);
    let row = |line: &str| {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let [src, dst, numbers @ .., job, coverage, _class] = &fields[..] else { panic!("{line}") };
        ([job.clone(), src.clone(), dst.clone()], (numbers[..5].to_vec(), coverage.clone()))
    };
    csv.lines().skip(1).map(row).collect()
}

/// Numbers and coverage of each pair in the tooltips. A tooltip names a coverage that is not
/// complete.
fn shown(tips: &Value) -> BTreeMap<PageRow, (Vec<String>, String)> {
    let mut cells = BTreeMap::new();
    for tip in tips.as_array().expect("cells") {
        let (src, dst) = tip["title"].as_str().expect("title").split_once(" → ").expect("arrow");
        let (src, dst) = (src.trim_start_matches("rank "), dst.trim_start_matches("rank "));
        let numbers: Vec<&str> =
            tip["values"].as_array().expect("rows").iter().map(|row| row[1].as_str().expect("text")).collect();
        if numbers[4].is_empty() {
            continue;
        }
        let texts = tip["texts"].as_array().expect("texts").iter().filter_map(Value::as_str);
        let mut own = texts.filter_map(|text| text.strip_prefix(&format!("{src} → {dst}: coverage ")));
        let coverage = own.next().map_or("complete", |text| text.split(',').next().unwrap_or_default());
        let [(job, src), (other, dst)] = [src, dst].map(|label| label.split_once('.').unwrap_or(("1", label)));
        assert_eq!(job, other, "no pair is of two jobs");
        let numbers = numbers.into_iter().map(str::to_owned).collect();
        cells.insert([job, src, dst].map(str::to_owned), (numbers, coverage.to_owned()));
    }
    cells
}

#[test]
fn each_job_has_a_matrix_and_a_coverage() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    // Without twenty consecutive packets, of any pairs.
    let whole = runs::decompressed(&runs::of_second_set("twojobs-mixed-halo-2x1").sink());
    let records = walk(&whole);
    let mut capture = whole[..HEADER_BYTES].to_vec();
    let middle = records.len() / 3;
    for (number, record) in records.iter().enumerate() {
        if !(middle..middle + 20).contains(&number) {
            capture.extend(&whole[record.place.clone()]);
        }
    }
    fs::write(place("two.pcap"), capture).expect("capture");
    result(&["analyze", "-o", &place("two.ibp")], &[place("two.pcap")]);
    result(&["report", "-o", &place("two.html")], &[place("two.ibp")]);
    let seen = look(&["--jobs".as_ref(), place("two.html").as_ref(), &pictures()]);
    assert_eq!(seen["complaints"], json!([]));
    let jobs = seen["jobs"].as_object().expect("jobs");
    assert_eq!(jobs.keys().collect::<Vec<_>>(), ["", "1", "2"]);
    let mut states = Vec::new();
    for (job, own) in jobs {
        let command = own["command"].as_str().expect("command");
        assert_eq!(command.contains("--job"), !job.is_empty(), "{command}");
        let cells = shown(&own["cells"]);
        assert_eq!(cells.len(), if job.is_empty() { 4 } else { 2 }, "{own}");
        assert_eq!(cells, printed(command, place("two.ibp").as_ref()), "{command}");
        states.extend(cells.into_values().map(|(_, coverage)| coverage));
        // Sums of two jobs are never added.
        let head = &own["totals"][0];
        let expected = if job.is_empty() { json!(["", "job 1", "job 2"]) } else { json!(["", "all pairs"]) };
        assert_eq!(*head, expected);
        let notes_incomplete =
            own["coverage"].as_array().expect("texts").iter().any(|text| text.to_string().contains("incomplete"));
        let is_incomplete = own["cells"].to_string().contains("incomplete");
        assert_eq!(notes_incomplete, is_incomplete, "{own}");
    }
    assert!(states.iter().any(|state| state == "incomplete"), "{states:?}");
}

#[test]
fn ranks_on_one_node_are_not_on_the_wire() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("report.html");
    let run = runs::of_second_set("ompi5-ucx-rc-mixed-2x2");
    result(&["report", "-o", page.to_str().expect("path")], &[run.sink()]);
    let seen = look(&["--jobs".as_ref(), &page, folder.path()]);
    let only = &seen["jobs"][""];
    let cells = only["cells"].as_array().expect("cells");
    let is_on_one_node = |tip: &&Value| tip["texts"].to_string().contains("not on this wire (same node)");
    let pairs: Vec<&str> = cells.iter().filter(is_on_one_node).filter_map(|tip| tip["title"].as_str()).collect();
    // Two ranks per node, according to the host file.
    assert_eq!(pairs, ["rank 0 → rank 1", "rank 1 → rank 0", "rank 2 → rank 3", "rank 3 → rank 2"]);
    assert!(only["coverage"].to_string().contains("both ranks are on one node"), "{only}");
}

/// A capture of one of four ports shows no packet of the pairs of the other three, and does not show
/// that there were none. The sink shows all ports.
#[test]
fn pairs_that_a_capture_may_not_show_are_marked() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("report.html");
    let run = runs::named("ompi-openib-notrace-mixed-4x1");
    // Rank 1 runs on node2.
    let others: Vec<String> = [0, 2, 3]
        .into_iter()
        .flat_map(|src| [0, 2, 3].map(|dst| (src, dst)))
        .filter(|(src, dst)| src != dst)
        .map(|(src, dst)| format!("rank {src} → rank {dst}"))
        .collect();
    for (capture, expected) in [(run.folder.join("node2.pcap.zst"), others), (run.sink(), Vec::new())] {
        result(&["report", "-o", page.to_str().expect("path")], &[&capture]);
        let seen = look(&["--jobs".as_ref(), &page, folder.path()]);
        let only = &seen["jobs"][""];
        let cells = only["cells"].as_array().expect("cells");
        let is_marked = |tip: &&Value| tip["texts"].to_string().contains("the captures may not show all ports");
        let pairs: Vec<&str> = cells.iter().filter(is_marked).filter_map(|tip| tip["title"].as_str()).collect();
        assert_eq!(pairs, expected);
        assert_eq!(only["coverage"].to_string().contains("no packet captured"), !expected.is_empty(), "{only}");
        let text = result(&["matrix", "--by", "rank"], &[&capture]);
        let rows = text.lines().skip(2).take(4);
        assert_eq!(rows.map(|row| row.matches('?').count()).sum::<usize>(), expected.len(), "{text}");
    }
}
