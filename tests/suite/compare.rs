//! The command `compare`: two profiles side by side.

use crate::runs;
use crate::tools::{ibscope, result, sample};
use ibscope_samples::Random;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::{self, SamplingScheme, SamplingUnit};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn profile(folder: &Path, name: &str, capture: &Path) -> PathBuf {
    let place = folder.join(name);
    result(&["analyze", "-o", place.to_str().expect("path")], &[capture]);
    place
}

/// The rows of a section by label and value: A, B, verdict.
type ComparisonRows = BTreeMap<(String, String), (Option<f64>, Option<f64>, String)>;

fn rows(a: &Path, b: &Path, section: &str) -> ComparisonRows {
    let csv = result(&["compare", "--format", "csv"], &[a, b]);
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let mut rows = ComparisonRows::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), header.len(), "{line}");
        let at = |name: &str| fields[header.iter().position(|column| *column == name).expect("column")];
        if at("section") == section {
            let labels = ["interval", "verb", "from_bytes", "src", "dst"].map(at).join(",");
            let number = |text: &str| (!text.is_empty()).then(|| text.parse().expect("number"));
            let row = (number(at("a")), number(at("b")), at("verdict").to_owned());
            assert_eq!(rows.insert((labels, at("value").to_owned()), row), None, "{line}: duplicate row");
        }
    }
    rows
}

#[test]
fn a_profile_does_not_differ_from_itself() {
    let folder = tempfile::tempdir().expect("folder");
    let own = profile(folder.path(), "a.ibp", &sample("ucx-rc-ring2-loss1"));
    for section in ["total", "rate", "health", "pair", "latency"] {
        let rows = rows(&own, &own, section);
        assert!(!rows.is_empty(), "{section}");
        for (of, (a, b, verdict)) in rows {
            assert_eq!(a, b, "{of:?}");
            assert!(
                ["equal", "one value each", "within chance", "too few samples"].contains(&verdict.as_str()),
                "{of:?}: {verdict}"
            );
        }
    }
    let text = result(&["compare"], &[&own, &own]);
    assert!(
        text.contains("all 2 pairs of ranks sent equal amounts in both runs") && text.contains("no count differs"),
        "{text}"
    );
}

/// The same program over two libraries: equal MPI messages in different packets.
#[test]
fn pairs_and_totals_are_those_of_the_matrices() {
    let folder = tempfile::tempdir().expect("folder");
    let captures = [sample("openib-mixed-4x1"), sample("ucx-rc-mixed-4x1")];
    let [a, b] =
        [("a.ibp", &captures[0]), ("b.ibp", &captures[1])].map(|(name, capture)| profile(folder.path(), name, capture));
    let found = rows(&a, &b, "pair");
    let names = ["messages", "mpi_bytes", "payload_bytes", "wire_bytes", "packets"];
    for (index, place) in [&a, &b].into_iter().enumerate() {
        let csv = result(&["matrix", "--by", "rank", "--traffic", "all", "--format", "csv"], &[place]);
        let mut sums = [0.0; 5];
        for line in csv.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            for (column, name) in names.into_iter().enumerate() {
                let value: f64 = fields[2 + column].parse().expect("number");
                sums[column] += value;
                let row = &found[&(format!(",,,{},{}", fields[0], fields[1]), name.to_owned())];
                assert_eq!([row.0, row.1][index], Some(value), "{line}: {name}");
            }
        }
        let totals = rows(&a, &b, "total");
        let total = |name: &str| [&totals[&(",,,,".to_owned(), name.to_owned())]].map(|row| [row.0, row.1][index])[0];
        assert_eq!((total("wire_bytes"), total("packets")), (Some(sums[3]), Some(sums[4])));
        assert_eq!(total("p2p_messages").zip(total("collective_messages")).map(|(p2p, all)| p2p + all), Some(sums[0]));
    }
    for ((labels, value), (.., verdict)) in &found {
        let expected = ["messages", "mpi_bytes"].contains(&value.as_str());
        assert!(!expected || verdict == "equal", "{labels}: {value}: {verdict}");
    }
}

/// A ring whose packets are delayed by 5 ms each takes longer, beyond chance, by the difference
/// that `latency` shows.
#[test]
fn a_delay_is_found_in_the_times() {
    let folder = tempfile::tempdir().expect("folder");
    let a = profile(folder.path(), "a.ibp", &runs::named("ompi-rc-ring2").sink());
    let b = profile(folder.path(), "b.ibp", &runs::named("ompi-rc-delay5ms-ring2").sink());
    let found = rows(&a, &b, "latency");
    let mut beyond = 0;
    for ((labels, value), (in_a, in_b, verdict)) in &found {
        if labels.starts_with("acknowledged,SEND") && value == "median_ns" && verdict == "beyond chance" {
            assert!(in_a < in_b, "{labels}");
            beyond += 1;
        }
    }
    assert!(beyond > 0, "{found:?}");
    for (index, place) in [&a, &b].into_iter().enumerate() {
        let csv = result(&["latency", "--format", "csv"], &[place]);
        let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
        for line in csv.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            for name in ["median_ns", "p99_ns"] {
                let at = header.iter().position(|column| *column == name).expect("column");
                let row = &found[&(fields[..5].join(","), name.to_owned())];
                assert_eq!([row.0, row.1][index], Some(fields[at].parse().expect("time")), "{line}");
            }
        }
    }
}

#[test]
fn captures_are_rejected() {
    let path = sample("openib-mixed-4x1");
    let path = path.to_str().expect("path");
    let ran = ibscope(["compare", path, path]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("analyze -o"), "{}", ran.stderr);
}

/// The same program with two ranks per node and with one: LID 16 + N is node N.
#[test]
fn a_different_placement_is_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let runs = ["ompi-rc-mixed-2x2", "ompi-rc-notrace-mixed-4x1"].map(runs::named);
    let [a, b] = ["a.ibp", "b.ibp"];
    let [a, b] = [(a, &runs[0]), (b, &runs[1])].map(|(name, run)| profile(folder.path(), name, &run.sink()));
    let nodes = runs.each_ref().map(runs::RecordedRun::node_of_rank);
    let moved: Vec<(u32, String, String)> = nodes[0]
        .iter()
        .filter(|(rank, node)| nodes[1][rank] != **node)
        .map(|(rank, node)| (*rank, (16 + node).to_string(), (16 + nodes[1][rank]).to_string()))
        .collect();
    assert_eq!(moved.len(), 3, "all but rank 0");
    let document: serde_json::Value =
        serde_json::from_str(&result(&["compare", "--format", "json"], &[&a, &b])).expect("json");
    let expected: Vec<serde_json::Value> =
        moved.iter().map(|(rank, in_a, in_b)| serde_json::json!([rank, in_a, in_b])).collect();
    let values = document["values"].as_array().expect("values");
    let of = |name: &str| values.iter().filter(|row| row["value"] == name).collect::<Vec<_>>();
    let found: Vec<serde_json::Value> =
        of("moved").iter().map(|row| serde_json::json!([row["src"], row["a_node"], row["b_node"]])).collect();
    assert_eq!((&document["ranks"], found), (&serde_json::json!(4), expected));
    // 0 and 1, 2 and 3, in both directions.
    let on_one_node = of("pairs_on_one_node")[0];
    assert_eq!([&on_one_node["a"], &on_one_node["b"]].map(serde_json::Value::as_f64), [Some(4.0), Some(0.0)]);
    let total = rows(&a, &b, "total");
    assert_eq!(
        total[&(",,,,".to_owned(), "pairs_on_one_node".to_owned())],
        (Some(4.0), Some(0.0), "differs".to_owned())
    );
    let in_csv: Vec<String> = rows(&a, &b, "placement").into_keys().map(|(labels, _)| labels).collect();
    assert_eq!(in_csv, [",,,1,", ",,,2,", ",,,3,"]);
    let text = result(&["compare"], &[&a, &b]);
    let sentence = "The placement differs: 3 of 4 ranks are on another node:\nrank 1 (17 in A, 18 in B),";
    assert!(text.contains(sentence), "{text}");
    let page = folder.path().join("page.html");
    result(&["report", "-o", page.to_str().expect("path"), "--compare", b.to_str().expect("path")], &[&a]);
    assert!(std::fs::read_to_string(page).expect("page").contains("The placement differs: 3 of 4 ranks"));
    assert!(!result(&["compare"], &[&a, &a]).contains("placement"));
}

/// Profiles of all four ports of a run, and of one of them, 10.77.0.1.
fn all_ports_and_one(folder: &Path) -> [PathBuf; 2] {
    let run = runs::named("ompi-openib-bt.S-4x1");
    [("whole.ibp", run.every_node()), ("port.ibp", vec![run.node(1)])].map(|(name, captures)| {
        let place = folder.join(name);
        result(&["analyze", "-o", place.to_str().expect("path")], &captures);
        place
    })
}

/// All four ports, and one of them: the pairs of the other ports are unknown in the capture of one port.
#[test]
fn pairs_that_a_capture_does_not_show_are_unknown() {
    let folder = tempfile::tempdir().expect("folder");
    let [whole, port] = all_ports_and_one(folder.path());
    let by_endpoint = |arguments: &[&str], a: &Path, b: &Path| {
        result(&[&["compare", "--by", "endpoint"], arguments].concat(), &[a, b])
    };
    let document: serde_json::Value =
        serde_json::from_str(&by_endpoint(&["--format", "json"], &whole, &port)).expect("json");
    let values = document["values"].as_array().expect("values");
    let packets: Vec<_> = values.iter().filter(|row| row["section"] == "pair" && row["value"] == "packets").collect();
    let (mut own, mut others) = (0, 0);
    for row in packets {
        let is_own = [&row["src"], &row["dst"]].iter().any(|end| **end == "10.77.0.1");
        assert!(row["a"].as_f64().is_some_and(|packets| packets > 0.0), "{row}");
        assert_eq!(row["b"].is_number(), is_own, "{row}");
        assert!(is_own || row["verdict"] == "one only" && row["ratio"].is_null(), "{row}");
        *(if is_own { &mut own } else { &mut others }) += 1;
    }
    assert!(own > 0 && others > 0, "{own}, {others}");
    let line = format!("{others} pairs not captured in B: unknown whether they differ");
    let text = by_endpoint(&[], &whole, &port);
    assert!(text.contains(&line), "{text}");
    assert!(by_endpoint(&[], &port, &whole).contains(&line.replace("in B", "in A")));
    // The capture of all ports shows that a pair sent nothing.
    assert!(!by_endpoint(&[], &whole, &whole).contains("not captured"));
}

/// Writes changed captures of a run, and the profile of all of them.
fn changed(folder: &Path, name: &str, captures: &[Recording], options: &[&str]) -> PathBuf {
    let captures: Vec<PathBuf> = (captures.iter().enumerate())
        .map(|(number, capture)| {
            let path = folder.join(format!("{name}{number}.pcap"));
            capture.write(&path).expect("written");
            path
        })
        .collect();
    let place = folder.join(format!("{name}.ibp"));
    result(&[&["analyze", "-o", place.to_str().expect("path")], options].concat(), &captures);
    place
}

/// A snap length of 64 bytes hides lengths of messages, so pairs may miss some: a note names the run.
#[test]
fn a_run_that_may_be_incomplete_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let captures: Vec<Recording> = (runs::of_second_set("mixed-mpi-plus-nfs").every_node().iter())
        .map(|path| Recording::read(path).expect("capture"))
        .collect();
    let whole = changed(folder.path(), "whole", &captures, &[]);
    let short: Vec<Recording> = captures.iter().map(|capture| partial::truncate(capture, 64)).collect();
    let short = changed(folder.path(), "short", &short, &[]);
    let notes = |a: &Path, b: &Path| ibscope([Path::new("compare"), a, b]).stderr;
    let found = notes(&whole, &short);
    let is_of = |side: &str| found.lines().any(|line| line.starts_with(&format!("note: {side}: ")));
    assert!(!is_of("A") && is_of("B"), "{found}");
    assert!(found.contains("B: it is unknown whether the capture is complete"), "{found}");
    assert_eq!(notes(&whole, &whole), "");
}

/// Of a sampled capture, the times between packets that were both sampled are biased: a difference is
/// unknown, in all outputs.
#[test]
fn times_of_a_sampled_run_are_not_compared() {
    const UNKNOWN: &str = "It is unknown whether medians differ, because the times of a sampled capture";
    let folder = tempfile::tempdir().expect("folder");
    let capture = [Recording::read(&runs::named("ompi-rc-ring2").node(1)).expect("capture")];
    let whole = changed(folder.path(), "whole", &capture, &[]);
    let choice = (SamplingUnit::Record, SamplingScheme::Random);
    let sample = partial::subsample(&capture, 1, 4, choice, &mut Random::new(7));
    let sample = changed(folder.path(), "sample", &sample, &["--sampled", "1/4"]);
    for (a, b, side) in [(&whole, &sample, "B"), (&sample, &whole, "A")] {
        let verdicts: Vec<String> = rows(a, b, "latency").into_values().map(|(.., verdict)| verdict).collect();
        assert!(verdicts.iter().any(|verdict| verdict == "unknown"), "{verdicts:?}");
        assert!(verdicts.iter().all(|verdict| ["unknown", "one only"].contains(&verdict.as_str())), "{verdicts:?}");
        let ran = ibscope([Path::new("compare"), a, b]);
        assert!(ran.stdout.contains(UNKNOWN), "{}", ran.stdout);
        assert!(ran.stderr.contains(&format!("note: {side}: the capture is sampled")), "{}", ran.stderr);
    }
    assert!(!result(&["compare"], &[&whole, &whole]).contains(UNKNOWN));
    let several = rows_of_runs(&[&whole, &sample, &whole, &whole]);
    let times: Vec<_> = several.iter().filter(|((of, _), _)| of.starts_with("latency,")).collect();
    for (of, runs) in &times {
        let is_of_sample = runs.iter().any(|run| run["run"] == "B" && !run["in_run"].is_empty());
        assert!(!is_of_sample || ["unknown", "one only"].contains(&runs[0]["verdict"].as_str()), "{of:?} {runs:?}");
        assert_eq!(runs[0]["deviating_run"], "", "{of:?}");
    }
    assert!(times.iter().any(|(_, runs)| runs[0]["verdict"] == "unknown"), "{times:?}");
    let page = folder.path().join("page.html");
    let other = sample.to_str().expect("path");
    result(&["report", "-o", page.to_str().expect("path"), "--compare", other], &[&whole]);
    let page = fs::read_to_string(&page).expect("page");
    assert!(page.contains("\"doubts\":[null,\"the capture is sampled\"]"), "the page names the sampled run");
}

/// A node keeps its identity if only one profile knows its name.
#[test]
fn different_names_are_not_a_different_placement() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = sample("ucx-rc-mixed-4x1");
    let plain = profile(folder.path(), "plain.ibp", &capture);
    let named = folder.path().join("named.ibp");
    let hosts = crate::tools::samples_folder().join("hosts-native.csv");
    let hosts = hosts.to_str().expect("path");
    result(&["analyze", "--hosts", hosts, "-o", named.to_str().expect("path")], &[&capture]);
    assert!(!result(&["compare"], &[&plain, &named]).contains("placement"));
    assert!(rows(&plain, &named, "placement").is_empty());
}

/// The rows of a comparison of several runs: by section, pair and value, the fields of each run.
fn rows_of_runs(profiles: &[&Path]) -> BTreeMap<(String, String), Vec<BTreeMap<String, String>>> {
    let csv = result(&["compare", "--format", "csv"], profiles);
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let mut rows: BTreeMap<(String, String), Vec<BTreeMap<String, String>>> = BTreeMap::new();
    for line in lines {
        let fields = header.iter().zip(line.split(',')).map(|(name, field)| ((*name).to_owned(), field.to_owned()));
        let row: BTreeMap<String, String> = fields.collect();
        let of = ["section", "interval", "verb", "from_bytes", "src", "dst"].map(|name| row[name].as_str()).join(",");
        rows.entry((of, row["value"].clone())).or_default().push(row);
    }
    rows
}

/// Five runs of one program of two ranks, over different libraries and with different losses: the values
/// of each run are those of the comparison of two, and the statistics follow from them.
#[test]
fn values_of_several_runs_are_those_of_two() {
    let folder = tempfile::tempdir().expect("folder");
    let names = ["ompi-rc-ring2", "ompi-ud-ring2", "ompi-rc-loss1-ring2", "mpich-rc-ring2", "ompi-ofi-ring2"];
    let places = names.map(|name| profile(folder.path(), &format!("{name}.ibp"), &runs::named(name).sink()));
    let all: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
    let several = rows_of_runs(&all);
    let mut compared = 0;
    for (run, place) in places.iter().enumerate().skip(1) {
        for section in ["total", "rate", "health", "pair", "latency"] {
            for ((labels, value), (a, b, _)) in rows(&places[0], place, section) {
                // A peak is over the window that the coarsest bins of the compared runs allow.
                if value.ends_with("_peak") {
                    continue;
                }
                let own = &several[&(format!("{section},{labels}"), value.clone())];
                let in_run = |run: usize| own[run]["in_run"].parse().ok();
                assert_eq!((in_run(0), in_run(run)), (a, b), "{section} {labels} {value}");
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
    for (of, rows) in &several {
        let letters: Vec<&str> = rows.iter().map(|row| row["run"].as_str()).collect();
        assert_eq!(letters, ["A", "B", "C", "D", "E"], "{of:?}");
        let mut known: Vec<f64> = rows.iter().filter_map(|row| row["in_run"].parse().ok()).collect();
        known.sort_by(f64::total_cmp);
        let of_row = |name: &str| rows[0][name].parse::<f64>().ok();
        assert_eq!(of_row("minimum"), known.first().copied(), "{of:?}");
        assert_eq!(of_row("maximum"), known.last().copied(), "{of:?}");
        if known.len() == 5 {
            assert_eq!(of_row("median"), Some(known[2]), "{of:?}");
            let spread = if known[4] > known[0] { Some((known[4] - known[0]) / known[2]) } else { Some(0.0) };
            assert_eq!(of_row("spread"), spread.filter(|spread| spread.is_finite()), "{of:?}");
        }
    }
}

/// Four identical runs, and one that sent other traffic: the fifth deviates. Without it, none does.
#[test]
fn the_run_that_deviates_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let usual = profile(folder.path(), "usual.ibp", &runs::named("ompi-rc-ring2").sink());
    let other = profile(folder.path(), "other.ibp", &runs::named("ompi-rc-delay5ms-ring2").sink());
    let text = result(&["compare"], &[&usual, &usual, &usual]);
    assert!(text.contains("no pair of ranks varies") && text.contains("health: no count varies"), "{text}");
    let rows = rows_of_runs(&[&usual, &other, &usual, &usual, &usual]);
    let time = &rows[&("total,,,,,".to_owned(), "time_ns".to_owned())];
    assert!(time.iter().all(|row| row["deviating_run"] == "B" && row["verdict"] == "beyond chance"), "{time:?}");
    let ranks = &rows[&("total,,,,,".to_owned(), "ranks".to_owned())];
    assert!(ranks.iter().all(|row| row["deviating_run"].is_empty() && row["verdict"] == "equal"), "{ranks:?}");
    for arguments in [&["compare", "--job", "1,1"][..], &["compare", "--job", "1,1,1,1"]] {
        let ran = ibscope(arguments.iter().map(Path::new).chain([usual.as_path(); 3]));
        assert_eq!((ran.code, ran.stderr.contains("or one for each")), (2, true), "{}", ran.stderr);
    }
    assert_eq!(result(&["compare", "--job", "1,1,1"], &[&usual; 3]), result(&["compare", "--job", "1"], &[&usual; 3]));
}

/// Four identical runs, and one that sent twice the bytes: the figure names it at both pairs, as the csv
/// does.
#[test]
fn the_figure_of_several_runs_marks_the_run_that_deviates() {
    let folder = tempfile::tempdir().expect("folder");
    let usual = profile(folder.path(), "usual.ibp", &runs::named("ompi-rc-ring2").sink());
    let other = profile(folder.path(), "other.ibp", &runs::named("ompi-rc-loss1-ring2").sink());
    let place = folder.path().join("runs.svg");
    let options = ["compare", "--svg", place.to_str().expect("path")];
    let drawn = |profiles: &[&PathBuf]| {
        result(&options, profiles);
        fs::read_to_string(&place).expect("figure")
    };
    let texts = |svg: &str| -> Vec<String> {
        let document = roxmltree::Document::parse(svg).expect("SVG");
        let texts = document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text());
        texts.map(|text| text.trim().to_owned()).collect()
    };
    let same = texts(&drawn(&[&usual, &usual, &usual]));
    assert!(same.iter().any(|text| text == "median") && !same.iter().any(|text| text == "A"), "{same:?}");
    let profiles = [&usual, &other, &usual, &usual, &usual];
    let found = texts(&drawn(&profiles));
    let paths: Vec<&Path> = profiles.iter().map(|path| path.as_path()).collect();
    let rows = rows_of_runs(&paths);
    let unit = if found.iter().any(|text| text.starts_with("MPI bytes,")) { "mpi_bytes" } else { "wire_bytes" };
    let deviating = rows.iter().filter(|((of, value), rows)| {
        of.starts_with("pair") && value == unit && rows.iter().all(|row| row["deviating_run"] == "B")
    });
    let count = deviating.count();
    assert_eq!(count, 2, "both pairs sent twice the bytes");
    assert_eq!(found.iter().filter(|text| *text == "B").count(), count, "{found:?}");
    assert!(found.iter().any(|text| text == "deviates beyond chance"), "{found:?}");
    let two = ibscope(options.iter().map(Path::new).chain([usual.as_path(); 2]));
    assert!(two.code == 2 && two.stderr.contains("three or more runs"), "{}", two.stderr);
}

/// All four ports twice, and one of them: the pairs of the other ports have no value in the third run.
#[test]
fn pairs_that_one_of_several_runs_does_not_show_are_unknown() {
    let folder = tempfile::tempdir().expect("folder");
    let [whole, port] = all_ports_and_one(folder.path());
    let profiles = [&whole, &port, &whole];
    let document: serde_json::Value =
        serde_json::from_str(&result(&["compare", "--by", "endpoint", "--format", "json"], &profiles)).expect("json");
    let values = document["values"].as_array().expect("values");
    let packets = values.iter().filter(|row| row["section"] == "pair" && row["value"] == "packets");
    let (mut hidden, mut shown) = (0, 0);
    for row in packets.filter(|row| row["run"] == "B") {
        let is_own = [&row["src"], &row["dst"]].iter().any(|end| **end == "10.77.0.1");
        assert_eq!(row["in_run"].is_number(), is_own, "{row}");
        assert!(row["minimum"].as_f64().is_some_and(|packets| packets > 0.0), "{row}");
        *(if is_own { &mut shown } else { &mut hidden }) += 1;
    }
    assert!(hidden > 0 && shown > 0, "{hidden}, {shown}");
    let text = result(&["compare", "--by", "endpoint"], &profiles);
    let line = format!("{hidden} pairs not captured in B: unknown there");
    assert!(text.contains(&line), "{text}");
}

/// Two profiles of one capture, one without MPI: the MPI bytes of its pairs and its ranks are unknown, not 0.
#[test]
fn unknown_mpi_bytes_are_no_difference() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = sample("openib-mixed-4x1");
    let whole = profile(folder.path(), "a.ibp", &capture);
    let place = folder.path().join("b.ibp");
    result(&["analyze", "--no-mpi", "-o", place.to_str().expect("path")], &[&capture]);
    let total = &rows(&whole, &place, "total")[&(",,,,".to_owned(), "ranks".to_owned())];
    assert_eq!((total.0, total.1, total.2.as_str()), (Some(4.0), None, "one only"));
    let pairs = rows(&whole, &place, "pair");
    assert!(pairs.len() >= 5 * 12, "{pairs:?}");
    for ((pair, value), (a, b, verdict)) in &pairs {
        let expected = if value == "mpi_bytes" { (None, "one only") } else { (*a, "equal") };
        assert_eq!((*b, verdict.as_str()), expected, "{pair} {value}");
    }
    let text = result(&["compare"], &[&whole, &place]);
    assert!(text.contains("all 12 pairs of endpoints sent equal amounts in both runs"), "{text}");
    let csv = result(&["compare", "--format", "csv"], &[&place, &whole, &whole]);
    let bytes = csv.lines().filter(|line| line.starts_with("pair,") && line.contains(",mpi_bytes,"));
    let values: Vec<Vec<&str>> = bytes.map(|line| line.split(',').collect()).collect();
    assert_eq!(values.len(), 3 * 12);
    for row in values {
        let [run, in_run, median, minimum, maximum] = [7, 8, 9, 10, 11].map(|column| row[column]);
        let expected = if run == "A" { "" } else { median };
        assert_eq!([in_run, minimum, maximum], [expected, median, median], "{row:?}");
        assert!(median.parse::<u64>().expect("bytes") > 0, "{row:?}");
    }
}
