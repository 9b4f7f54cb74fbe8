//! Another run in the report: a person sees the numbers that `ibscope compare` and the other
//! commands print of both.

use super::{has_browser, look, pictures};
use crate::runs;
use crate::tools::{ibscope, result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The profiles of two runs, and the page of both.
fn pages(folder: &Path, runs: [&str; 2]) -> ([PathBuf; 2], PathBuf) {
    let [a, b] = runs.map(|name| {
        let place = folder.join(format!("{name}.ibp"));
        result(&["analyze", "-o", place.to_str().expect("path")], &[runs::named(name).sink()]);
        place
    });
    let page = folder.join("compared.html");
    let place = |path: &Path| path.to_str().expect("path").to_owned();
    result(&["report", "-o", &place(&page), "--compare", &place(&b)], &[&a]);
    ([a, b], page)
}

/// The rows of `compare --format csv` without those of pairs: the quantity, both values, the
/// verdict.
fn printed([a, b]: &[PathBuf; 2]) -> Vec<[String; 4]> {
    let csv = result(&["compare", "--format", "csv"], &[a, b]);
    let mut lines = csv.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().expect("header");
    let row = |fields: Vec<String>| {
        let at = |name: &str| fields[header.iter().position(|column| column == name).expect("column")].clone();
        let of = ["section", "interval", "verb", "from_bytes", "value"].map(at).join(",");
        [of, at("a"), at("b"), at("verdict")]
    };
    lines.filter(|fields| fields[0] != "pair").map(row).collect()
}

/// The `matrix` output of both: the numeric columns by `src,dst`.
fn matrices([a, b]: &[PathBuf; 2], by: &str, selection: &str) -> BTreeMap<String, [Vec<u64>; 2]> {
    let mut pairs: BTreeMap<String, [Vec<u64>; 2]> = BTreeMap::new();
    for (side, place) in [a, b].into_iter().enumerate() {
        let csv = result(&["matrix", "--by", by, "--traffic", selection, "--format", "csv"], &[place]);
        for line in csv.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let values = fields[2..7].iter().map(|field| field.parse().expect("number")).collect();
            pairs.entry(fields[..2].join(",")).or_insert_with(|| [vec![0; 5], vec![0; 5]])[side] = values;
        }
    }
    pairs
}

fn numbers(value: &Value) -> Vec<[f64; 2]> {
    let point = |point: &Value| Some([point[0].as_f64()?, point[1].as_f64()?]);
    value.as_array().expect("points").iter().filter_map(point).collect()
}

#[test]
fn the_report_shows_the_numbers_of_compare() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    // A ring without and with losses, which differ in everything that is compared.
    let (places, page) = pages(folder.path(), ["ompi-rc-ring2", "ompi-rc-loss1-ring2"]);
    let seen = look(&["--compared".as_ref(), &page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    assert!(seen["overflow"].as_i64().expect("pixels") <= 0);
    assert!(seen["names"].as_str().expect("names").starts_with("A is ompi-rc-ring2.ibp"), "{}", seen["names"]);

    // Every value except those of pairs.
    let sorted = |mut rows: Vec<[String; 4]>| {
        rows.sort();
        rows
    };
    let shown: Vec<[String; 4]> = serde_json::from_value(seen["values"].clone()).expect("rows");
    let expected = printed(&places);
    for section in ["total,", "rate,", "health,", "latency,"] {
        assert!(expected.iter().any(|[of, ..]| of.starts_with(section)), "{section}");
    }
    assert_eq!(sorted(shown.clone()), sorted(expected));
    // Differences beyond chance come first, then other differences, then the rest.
    let order = [
        "beyond chance",
        "differs",
        "one only",
        "one value each",
        "within chance",
        "too few samples",
        "unknown",
        "equal",
    ];
    let place = |row: &[String; 4]| order.iter().position(|verdict| *verdict == row[3]).expect("verdict");
    assert!(shown.is_sorted_by_key(place), "{shown:?}");
    let first: Vec<[String; 4]> = serde_json::from_value(seen["first"].clone()).expect("rows");
    assert!(!first.is_empty() && first == shown[..first.len()]);

    matrices_are_those_of_the_commands(&seen, &places);
    series_are_rates(&seen, &places);
}

fn matrices_are_those_of_the_commands(seen: &Value, places: &[PathBuf; 2]) {
    for (state, tips) in seen["maps"].as_object().expect("maps") {
        let (by, selection) = state.split_once(',').expect("two parts");
        let expected = matrices(places, by, selection);
        let mut found = 0;
        for tip in tips.as_array().expect("tips") {
            let (src, dst) = tip["title"].as_str().expect("title").split_once(" → ").expect("arrow");
            let pair = [src, dst].map(|name| name.replace("rank ", "")).join(",");
            let rows = tip["values"].as_array().expect("rows");
            let Some(values) = expected.get(&pair) else {
                assert!(rows.is_empty(), "{state}: {tip}");
                continue;
            };
            found += 1;
            for (index, row) in rows.iter().enumerate() {
                let number = |at: usize| row[at].as_str().expect("text").parse::<i64>().expect("number");
                let [a, b] = [values[0][index] as i64, values[1][index] as i64];
                assert_eq!([number(1), number(2), number(3)], [a, b, b - a], "{state}: {tip}");
            }
        }
        assert_eq!(found, expected.len(), "{state}");
    }
    // One color means more in B, the other more in A.
    let shades: Vec<Vec<[i64; 3]>> = serde_json::from_value(seen["shades"].clone()).expect("colors");
    for (pair, [a, b]) in matrices(places, "rank", "all") {
        let (src, dst) = pair.split_once(',').expect("pair");
        let at = |text: &str| text.parse::<usize>().expect("rank");
        let [red, green, blue] = shades[at(src)][at(dst)];
        assert_ne!(a[3], b[3], "{pair}: runs that differ");
        let (a, b) = (a[3] as f64, b[3] as f64);
        if (b - a).abs() <= 0.05 * a.max(b) {
            // `--even` of the light theme: changes up to 5 % are neutral.
            assert_eq!([red, green, blue], [0xdc, 0xdc, 0xd9], "{pair}");
        } else {
            assert_eq!(red > blue, b > a, "{pair}: {red} {blue}");
        }
    }
}

/// The two lines show the output of `rates` for each run, from its first packet on.
fn series_are_rates(seen: &Value, places: &[PathBuf; 2]) {
    for (name, column) in [("wire_bytes", "wire_bytes_per_s"), ("mpi_messages", "mpi_messages_per_s")] {
        let mut differ = Vec::new();
        for (side, place) in places.iter().enumerate() {
            let line = numbers(&seen["series"][name][side]);
            let width_s = line[1][0] - line[0][0];
            let bin = format!("{}us", (width_s * 1e6).round());
            let csv = result(&["rates", "--format", "csv", "--bin", &bin], &[place]);
            let facts: Value = serde_json::from_str(&result(&["summary", "--format", "json"], &[place])).expect("json");
            let origin_ns = facts["facts"]["first_time_ns"].as_i64().expect("time");
            let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
            let at = |wanted: &str| header.iter().position(|name| *name == wanted).expect("column");
            let rows: Vec<[f64; 2]> = csv
                .lines()
                .skip(1)
                .map(|line| {
                    let fields: Vec<&str> = line.split(',').collect();
                    let time_ns: i64 = fields[at("time_ns")].parse().expect("time");
                    [(time_ns - origin_ns) as f64 / 1e9, fields[at(column)].parse().expect("rate")]
                })
                .collect();
            // The last point closes the last bin.
            assert_eq!(line.len(), rows.len() + 1, "{name}");
            for (shown, printed) in line.iter().zip(&rows) {
                let near = |index: usize| (shown[index] - printed[index]).abs() <= 1e-6 * printed[index].abs().max(1.0);
                assert!(near(0) && near(1), "{name}: {shown:?} and {printed:?}");
            }
            differ.push(rows);
        }
        assert_ne!(differ[0], differ[1]);
    }
}

/// One of these differences is wider than a cell, and is the largest of them.
#[test]
fn every_cell_of_a_small_map_has_its_text() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let (_, page) = pages(folder.path(), ["ompi-openib-notrace-mixed-4x1", "ompi-rc-notrace-mixed-4x1"]);
    let seen = look(&["--narrow".as_ref(), &page, &pictures()]);
    assert_eq!((&seen["complaints"], seen["overflow"].as_i64() <= Some(0)), (&json!([]), true));
    let texts = |name: &str| -> Vec<String> { serde_json::from_value(seen[name].clone()).expect("texts") };
    // Consecutive lines of one text follow each other.
    let written = texts("written").join(" ");
    let differences = texts("differences");
    assert_eq!(differences.len(), 12);
    for text in &differences {
        assert!(written.contains(text), "{text}: {written}");
    }
    assert!(!texts("written").contains(&differences[0]), "{differences:?} are written in one line each");
}

#[test]
fn the_other_run_must_be_a_profile() {
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("page.html");
    let capture = runs::named("ompi-rc-ring2").sink();
    let capture = capture.to_str().expect("path");
    let ran = ibscope(["report", capture, "-o", page.to_str().expect("path"), "--compare", capture]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("analyze -o"), "{}", ran.stderr);
    assert!(!page.exists());
}
