//! The same numbers in every format and by every command.

use super::{MATRIX_HEADER, TIMELINE_HEADER, cell, matrix_cells, profile_of, timeline_cells};
use crate::runs;
use crate::tools::{in_parallel, result, sample, samples, samples_folder};
use serde_json::Value;
use std::collections::BTreeMap;

#[test]
fn a_profile_shows_what_its_captures_show() {
    in_parallel(&samples(), |_, path| {
        let folder = tempfile::tempdir().expect("folder");
        let profile = profile_of(folder.path(), &[path], &[]);
        for command in ["matrix", "timeline"] {
            for by in ["endpoint", "rank"] {
                for (format, traffic) in [
                    ("csv", &[][..]),
                    ("csv", &["--traffic", "p2p"]),
                    ("json", &["--traffic", "collective"]),
                    ("table", &["--traffic", "all"]),
                ] {
                    let arguments = [&[command, "--by", by, "--format", format], traffic].concat();
                    let captures = result(&arguments, &[path]);
                    assert!(captures.lines().count() > 1, "{}: {arguments:?}", path.display());
                    assert_eq!(result(&arguments, &[&profile]), captures, "{}: {arguments:?}", path.display());
                }
            }
        }
    });
}

#[test]
fn timelines_add_up_to_the_matrix() {
    in_parallel(&samples(), |_, path| {
        for by in ["endpoint", "rank"] {
            let matrix = matrix_cells(&result(&["matrix", "--format", "csv", "--by", by], &[path]));
            assert!(!matrix.is_empty());
            for bin in ["1ms", "10ms", "1s"] {
                let timeline = result(&["timeline", "--format", "csv", "--by", by, "--bin", bin], &[path]);
                assert_eq!(timeline_cells(&timeline, |_| true), matrix, "{} by {by}, {bin}", path.display());
            }
        }
    });
}

#[test]
fn bins_are_multiples_of_their_width_and_in_order() {
    let path = sample("openib-mixed-4x1");
    for (bin, bin_ns) in [("1ms", 1_000_000), ("10ms", 10_000_000), ("250ms", 250_000_000)] {
        let csv = result(&["timeline", "--format", "csv", "--bin", bin], &[&path]);
        let times: Vec<i64> =
            csv.lines().skip(1).map(|line| line.split(',').next().expect("time").parse().expect("time")).collect();
        assert!(times.iter().all(|time_ns| time_ns % bin_ns == 0), "{bin}");
        assert!(times.is_sorted(), "{bin}");
    }
}

#[test]
fn a_profile_shows_wider_bins_and_no_narrower_ones() {
    let folder = tempfile::tempdir().expect("folder");
    let path = sample("ucx-rc-mixed-4x1");
    let profile = profile_of(folder.path(), &[&path], &["--bin", "2ms"]);
    let arguments = ["timeline", "--format", "csv", "--bin", "10ms"];
    assert_eq!(result(&arguments, &[&profile]), result(&arguments, &[&path]));
    for bin in ["1ms", "3ms"] {
        let ran = crate::tools::ibscope(["timeline", "--bin", bin, super::text(&profile)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{bin}: {}", ran.stderr);
        assert!(ran.stderr.contains("bins of 2 ms"), "{bin}: names the profile's bins: {}", ran.stderr);
    }
}

#[test]
fn ranks_have_the_messages_and_bytes_of_the_truth() {
    for name in ["openib-mixed-4x1", "ucx-rc-mixed-4x1", "ucx-ud-ring2", "ucx-rc-ring2-loss1", "ucx-rc-halo-4x1"] {
        let csv = result(&["matrix", "--format", "csv", "--by", "rank"], &[sample(name)]);
        let found: BTreeMap<_, _> = matrix_cells(&csv)
            .into_iter()
            .filter(|(_, cell)| cell[0] != Some(0))
            .map(|((src, dst), cell)| (format!("{src},{dst}"), format!("{},{}", cell[0].unwrap(), cell[1].unwrap())))
            .collect();
        let truth = std::fs::read_to_string(samples_folder().join(format!("{name}.truth.csv"))).expect("truth");
        let row = |line: &str| {
            let (at, _) = line.match_indices(',').nth(1).expect("fields");
            (line[..at].to_owned(), line[at + 1..].to_owned())
        };
        assert_eq!(found, truth.lines().skip(1).map(row).collect(), "{name}");
    }
}

#[test]
fn json_has_the_numbers_of_the_csv() {
    for name in ["openib-mixed-4x1", "perftest-read-lat", "ucx-rc-ring2.node1"] {
        for by in ["endpoint", "rank"] {
            for (command, list, header) in [("matrix", "cells", MATRIX_HEADER), ("timeline", "bins", TIMELINE_HEADER)] {
                let run = |format| result(&[command, "--by", by, "--format", format], &[sample(name)]);
                let (json, csv) = (run("json"), run("csv"));
                let json: Value = serde_json::from_str(&json).expect("JSON");
                let rows: Vec<String> =
                    json[list].as_array().expect("list").iter().map(|row| line(row, header)).collect();
                let mut lines = csv.lines();
                assert_eq!(lines.next(), Some(header));
                assert_eq!(rows, lines.collect::<Vec<_>>(), "{command} of {name} by {by}");
            }
        }
        let csv = result(&["inspect", "--format", "csv"], &[sample(name)]);
        let (header, lines) = csv.split_once('\n').expect("header");
        let json = result(&["inspect", "--format", "json"], &[sample(name)]);
        let rows = json.lines().map(|row| line(&serde_json::from_str(row).expect("JSON"), header));
        assert!(rows.eq(lines.lines()), "inspect of {name}");
    }
}

/// The csv line of a JSON object.
fn line(object: &Value, header: &str) -> String {
    let field = |name| match &object[name] {
        Value::Null if object.get(name).is_some() => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(";"),
        other => panic!("{name}: {other}"),
    };
    header.split(',').map(field).collect::<Vec<_>>().join(",")
}

#[test]
fn without_mpi_its_columns_are_empty_and_the_others_the_same() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["openib-mixed-4x1", "ucx-ud-ring2"] {
        let path = sample(name);
        let with = matrix_cells(&result(&["matrix", "--format", "csv"], &[&path]));
        assert!(with.values().all(|cell| cell[1].is_some()), "{name}: {with:?}");
        let csv = result(&["matrix", "--format", "csv", "--no-mpi"], &[&path]);
        let without = matrix_cells(&csv);
        let emptied = with.into_iter().map(|(pair, [messages, _, rest @ ..])| {
            let [payload, wire, packets] = rest;
            (pair, [messages, None, payload, wire, packets])
        });
        assert_eq!(without, emptied.collect(), "{name}");
        let profile = profile_of(folder.path(), &[&path], &["--no-mpi"]);
        assert_eq!(result(&["matrix", "--format", "csv"], &[profile]), csv, "{name}: from a profile");
        let by_rank = matrix_cells(&result(&["matrix", "--format", "csv", "--by", "rank", "--no-mpi"], &[&path]));
        assert!(by_rank.values().all(|cell| cell[0] == Some(0) && cell[1].is_none()), "{name}: {by_rank:?}");
        // Without messages there is no job and no rank.
        assert!(by_rank.into_keys().all(|pair| pair == ("unknown".to_owned(), "unknown".to_owned())), "{name}");
        let timeline = result(&["timeline", "--format", "csv", "--no-mpi"], &[&path]);
        assert!(timeline.lines().skip(1).all(|line| cell(&line.split(',').collect::<Vec<_>>()[3..8])[1].is_none()));
    }
}

#[test]
fn any_number_of_threads_prints_the_same_bytes() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let inputs = run.every_node();
    for arguments in [
        &["matrix", "--format", "csv", "--by", "rank"][..],
        &["matrix", "--format", "json"],
        &["matrix"],
        &["timeline", "--format", "csv", "--bin", "1ms"],
        &["inspect", "--format", "csv"],
        &["analyze"],
    ] {
        let with = |threads| result(&[arguments, &["--threads", threads]].concat(), &inputs);
        let one = with("1");
        assert!(one.lines().count() > 4, "{arguments:?}: {one}");
        for threads in ["2", "3", "16"] {
            assert!(with(threads) == one, "{arguments:?} with {threads} threads");
        }
    }
}
