//! The manifest of a run in the analysis: names of endpoints, leaf switches and job ids.

use crate::tools::{CsvRow, csv_rows, ibscope, result, sample, samples_folder};
use std::collections::BTreeMap;
use std::fs;

/// LIDs 17 to 20, as in the sample. In the second form node3 has 18 and 19, by an LMC of 1.
fn manifest(ports: &[(&str, &str, u16, u8)]) -> String {
    let port = |(index, (node, ca, lid, lmc)): (usize, &(&str, &str, u16, u8))| {
        format!(
            r#"{{"node": "{node}", "ca": "{ca}", "port": 1, "port_guid": "0x{index:x}", "lid": {lid}, "lmc": {lmc},
            "leaf_guid": "0xb8599f0300001000", "leaf_port": {index}}}"#
        )
    };
    let ports: Vec<String> = ports.iter().enumerate().map(port).collect();
    // The last port is a sink: its own traffic has a name too.
    let (sink, compute) = ports.split_last().expect("ports");
    format!(r#"{{"version": 1, "job_id": 17, "ports": [{}], "sinks": [{sink}]}}"#, compute.join(","))
}

#[test]
fn a_manifest_names_endpoints() {
    let capture = [sample("openib-mixed-4x1")];
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("manifest.json");
    let place = path.to_str().expect("path");
    let shown = |ports: &[(&str, &str, u16, u8)], more: &[&str]| {
        fs::write(&path, manifest(ports)).expect("manifest");
        result(&[&["matrix", "--manifest", place], more].concat(), &capture)
    };
    let hosts = |text: &str| {
        let path = folder.path().join("hosts.csv");
        fs::write(&path, format!("endpoint,name\n{text}")).expect("hosts");
        path
    };
    let by_hosts = |text: &str| result(&["matrix", "--hosts", hosts(text).to_str().expect("path")], &capture);

    let four = [
        ("node1", "mlx5_0", 17, 0),
        ("node2", "mlx5_0", 18, 0),
        ("node3", "mlx5_0", 19, 0),
        ("node4", "mlx5_0", 20, 0),
    ];
    let native = samples_folder().join("hosts-native.csv");
    let expected = result(&["matrix", "--hosts", native.to_str().expect("path")], &capture);
    assert!(expected.contains("node4"), "{expected}");
    assert_eq!(shown(&four, &[]), expected);

    // The four LIDs belong to three ports, two of them on one node.
    let three = [("node2", "mlx5_0", 18, 1), ("node1", "mlx5_0", 17, 0), ("node1", "mlx5_1", 20, 0)];
    let names = "17,node1/mlx5_0:1\n18,node2\n19,node2\n20,node1/mlx5_1:1\n";
    assert_eq!(shown(&three, &[]), by_hosts(names));

    // The user's names take precedence, endpoint by endpoint.
    let own = hosts("18,gateway\n");
    let mixed = shown(&four, &["--hosts", own.to_str().expect("path")]);
    assert_eq!(mixed, by_hosts("17,node1\n18,gateway\n19,node3\n20,node4\n"));

    // A profile stores the names, and takes them if it has none.
    let profile = folder.path().join("job.ibp");
    let profile = profile.to_str().expect("path");
    result(&["analyze", "-o", profile, "--manifest", place], &capture);
    assert!(result(&["matrix"], &[profile]).contains("node4"));

    // So are leaf switches, of all four LIDs.
    let document = fs::read_to_string(folder.path().join("job.ibp/profile.json")).expect("profile");
    assert_eq!(document.matches(r#""leaf": "0xb8599f0300001000""#).count(), 4, "{document}");
}

#[test]
fn a_job_on_the_ports_of_a_run_has_its_id() {
    let capture = [sample("openib-mixed-4x1")];
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("manifest.json");
    let place = path.to_str().expect("path");
    let shown = |ports: &[(&str, &str, u16, u8)]| {
        fs::write(&path, manifest(ports)).expect("manifest");
        result(&["matrix", "--by", "rank", "--manifest", place], &capture)
    };
    let all = [("a", "", 17, 0), ("b", "", 18, 0), ("c", "", 19, 0), ("d", "", 20, 0), ("sink", "", 30, 0)];
    assert!(shown(&all).starts_with("job 1 (Slurm 17): "), "{}", shown(&all));
    // A job on ports beyond those of the run is another one.
    assert!(!shown(&all[..4]).contains("Slurm"), "{}", shown(&all[..4]));

    // The profile stores the id, and a merge finds it.
    fs::write(&path, manifest(&all)).expect("manifest");
    let profile = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    result(&["analyze", "--partial", "-o", &profile("a.ibp"), "--manifest", place], &capture);
    result(&["merge", "-o", &profile("b.ibp")], &[profile("a.ibp")]);
    for name in ["a.ibp", "b.ibp"] {
        let text = result(&["matrix", "--by", "rank"], &[profile(name)]);
        assert!(text.starts_with("job 1 (Slurm 17): "), "{name}: {text}");
    }
}

/// Rates as `ibstat` prints them: EDR, and 56 for FDR, which carries 54.5 Gbit/s. One port has none.
#[test]
fn rates_of_ports_are_the_capacities_of_links() {
    let capture = [sample("openib-mixed-4x1")];
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let ports = [("a", "", 17, 0), ("b", "", 18, 0), ("c", "", 19, 0), ("d", "", 20, 0)];
    let mut text = manifest(&ports);
    for (lid, rate) in [(17, "100"), (18, "56"), (20, "100")] {
        text = text.replace(&format!("\"lid\": {lid},"), &format!("\"lid\": {lid}, \"rate_gbits\": {rate}.0,"));
    }
    fs::write(place("manifest.json"), text).expect("manifest");
    let columns = ["rates", "--by", "link", "--format", "csv"];
    let capacities = |arguments: &[&str], input: &str| -> Vec<(String, String, f64)> {
        let rows = csv_rows(&result(&[&columns[..], arguments].concat(), &[input]));
        let from = rows.iter().filter(|row| row["direction"] == "from");
        let number = |row: &CsvRow| row["capacity_bytes_per_s"].parse().expect("number");
        from.map(|row| (row["endpoint"].clone(), row["capacity_source"].clone(), number(row))).collect()
    };
    let input = capture[0].to_str().expect("path");
    let expect = |found: &[(String, String, f64)]| {
        for (endpoint, source, bytes_per_s) in found {
            let expected = match endpoint.as_str() {
                "17" | "20" => ("manifest", 100e9 / 8.0),
                "18" => ("manifest", 4.0 * 14.0625e9 * 64.0 / 66.0 / 8.0),
                _ => ("at_least", *bytes_per_s),
            };
            assert!(
                source == expected.0 && (bytes_per_s - expected.1).abs() < 1.0,
                "{endpoint}: {source} {bytes_per_s}"
            );
        }
        assert_eq!(found.len(), 4);
    };
    expect(&capacities(&["--manifest", &place("manifest.json")], input));
    // The profile stores them, and a merge finds them.
    result(&["analyze", "--partial", "-o", &place("a.ibp"), "--manifest", &place("manifest.json")], &capture);
    result(&["merge", "-o", &place("b.ibp")], &[place("a.ibp")]);
    for name in ["a.ibp", "b.ibp"] {
        expect(&capacities(&[], &place(name)));
    }
    // --link takes precedence.
    let given = capacities(&["--link", "1Gb/s"], &place("a.ibp"));
    assert!(given.iter().all(|(_, source, rate)| source == "given" && (rate - 125e6).abs() < 1.0), "{given:?}");
    let shown = ibscope(["diagnose", place("a.ibp").as_str()]);
    assert!(shown.stderr.contains("the speed of some links is not known"), "{}", shown.stderr);
}

#[test]
fn a_contradictory_manifest_is_rejected() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("manifest.json");
    fs::write(&path, manifest(&[("node1", "mlx5_0", 17, 2), ("node2", "mlx5_0", 18, 0)])).expect("manifest");
    let capture = sample("openib-mixed-4x1");
    let ran = ibscope(["matrix".as_ref(), "--manifest".as_ref(), path.as_os_str(), capture.as_os_str()]);
    let what = "manifest.json: LID 18 belongs to node1 and to node2; remove one of the two ports from the manifest";
    assert!(ran.code == 1 && ran.stderr.contains(what), "{}: {}", ran.code, ran.stderr);
}

/// The manifest of a run at two leaf switches: LIDs 17 and 20 are of one node and at different
/// switches.
pub(crate) fn two_leaves() -> String {
    let ports = [
        ("node1", "mlx5_0", 17, "0xa"),
        ("node2", "", 18, "0xa"),
        ("node3", "", 19, "0xb"),
        ("node1", "mlx5_1", 20, "0xb"),
    ];
    let port = |(node, ca, lid, leaf): (&str, &str, u16, &str)| {
        format!(
            r#"{{"node": "{node}", "ca": "{ca}", "port": 1, "port_guid": "{lid:#x}", "lid": {lid}, "lmc": 0,
            "leaf_guid": "{leaf}", "leaf_port": {lid}}}"#
        )
    };
    format!(r#"{{"version": 1, "job_id": 17, "ports": [{}], "sinks": []}}"#, ports.map(port).join(","))
}

/// Rank r of the sample is at LID 17 + r.
#[test]
fn a_matrix_by_node_and_by_leaf_switch_has_the_sums_of_the_truth() {
    let folder = tempfile::tempdir().expect("folder");
    let [profile, path] = ["job.ibp", "manifest.json"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&path, two_leaves()).expect("manifest");
    result(&["analyze", "-o", &profile, "--manifest", &path], &[sample("openib-mixed-4x1")]);
    let truth = fs::read_to_string(samples_folder().join("openib-mixed-4x1.truth.csv")).expect("truth");
    let leaves = ["0x000000000000000a", "0x000000000000000b"];
    for (by, groups) in
        [("node", ["node1", "node2", "node3", "node1"]), ("leaf", [leaves[0], leaves[0], leaves[1], leaves[1]])]
    {
        let mut expected: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for row in csv_rows(&truth) {
            let number = |column: &str| row[column].parse::<u64>().expect("number");
            let group = |column: &str| groups[number(column) as usize];
            if row["src"] != row["dst"] {
                let sums = expected.entry((group("src"), group("dst"))).or_default();
                *sums = (sums.0 + number("messages"), sums.1 + number("bytes"));
            }
        }
        let printed = result(&["matrix", "--by", by, "--traffic", "p2p", "--format", "csv"], &[&profile]);
        let rows = csv_rows(&printed);
        let number = |row: &CsvRow, column: &str| row[column].parse::<u64>().expect("number");
        let found: BTreeMap<(&str, &str), (u64, u64)> = rows
            .iter()
            .map(|row| ((&*row["src"], &*row["dst"]), (number(row, "messages"), number(row, "mpi_bytes"))))
            .filter(|(_, sums)| *sums != (0, 0))
            .collect();
        assert_eq!(found, expected, "{by}");
        let table = result(&["matrix", "--by", by], &[&profile]);
        assert!(
            table.starts_with(&format!("payload bytes by {}", if by == "leaf" { "leaf switch" } else { by })),
            "{table}"
        );
    }
    // Without a manifest, each port is a node, and the leaf switches are unknown.
    let plain = [sample("openib-mixed-4x1")];
    let ports = |by| result(&["matrix", "--by", by, "--format", "csv"], &plain);
    assert_eq!(ports("node"), ports("endpoint"));
    let refused = ibscope(["matrix", "--by", "leaf", plain[0].to_str().expect("path")]);
    assert!(
        refused.code == 1 && refused.stderr.contains("analyze the captures with --manifest, which names them"),
        "{}",
        refused.stderr
    );
}
