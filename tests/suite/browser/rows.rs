//! The matrix of the report by rank, node, leaf switch and port: the numbers are those of the
//! commands, and the orders are permutations.

use super::{has_browser, look, pictures, place};
use crate::manifest::two_leaves;
use crate::tools::{result, sample};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().expect("list").iter().map(|text| text.as_str().expect("text")).collect()
}

#[test]
fn the_matrix_collapses_to_nodes_and_leaf_switches() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let [profile, page, manifest] = ["job.ibp", "report.html", "manifest.json"].map(|name| folder.path().join(name));
    fs::write(&manifest, two_leaves()).expect("manifest");
    result(&["analyze", "-o", place(&profile), "--manifest", place(&manifest)], &[sample("openib-mixed-4x1")]);
    result(&["report", "-o", place(&page)], &[&profile]);
    let seen = look(&[Path::new("--rows"), &page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]));
    assert_eq!(seen["kinds"], json!(["rank", "node", "leaf", "endpoint"]));
    for (by, labels) in [
        ("rank", vec!["rank 0", "rank 1", "rank 2", "rank 3"]),
        ("node", vec!["node1", "node2", "node3"]),
        ("leaf", vec!["0x000000000000000a", "0x000000000000000b"]),
        ("endpoint", vec!["node1/mlx5_0:1", "node2", "node3", "node1/mlx5_1:1"]),
    ] {
        let own = &seen["rows"][by];
        let command = own["command"].as_str().expect("command");
        assert!(command.contains(&format!("--by {by} ")), "{command}");
        let words: Vec<&str> = command.split(' ').skip(3).collect();
        let printed = result(&[&["matrix", "--format", "csv"], &words[..]].concat(), &[&profile]);
        assert_eq!(own["csv"], printed.as_str(), "{by}");
        let orders = own["orders"].as_object().expect("orders");
        assert_eq!(orders.keys().collect::<Vec<_>>(), ["cluster", "node", "number", "traffic"]);
        assert_eq!(texts(&orders["number"]), labels);
        for (order, found) in orders {
            let found = texts(found);
            let same: BTreeSet<_> = found.iter().collect();
            assert!(found.len() == labels.len() && same == labels.iter().collect(), "{by}, {order}: {found:?}");
        }
        // The tooltips show the wire bytes of the csv: both directions of each pair.
        let wire: BTreeSet<&str> = printed.lines().skip(1).filter_map(|line| line.split(',').nth(5)).collect();
        let tips = own["cells"].as_array().expect("cells");
        let shown = tips.iter().filter_map(|tip| tip["values"][3][1].as_str()).filter(|text| !text.is_empty());
        assert_eq!(shown.collect::<BTreeSet<_>>(), wire, "{by}");
    }
    let over = [&seen["narrow overflow"], &seen["overflow"]].map(|pixels| pixels.as_i64().expect("pixels"));
    assert!(over.iter().all(|pixels| *pixels <= 0), "long names stay within the page: {over:?}");
    assert_eq!(seen["reloaded"], json!({ "by": "leaf", "order": "cluster" }), "{}", seen["address"]);
}
