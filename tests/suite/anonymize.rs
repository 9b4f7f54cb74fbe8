//! `ibscope anonymize`: its results show the same as the captures, under other names, and contain
//! nothing else of them.

use crate::runs;
use crate::tools::{Blocks, RawRecord, ibscope, in_parallel, result, sample, walk};
use ibscope::model::Profile;
use ibscope::pipeline::{AnalysisOptions, DigestChoice, analyze};
use ibscope_parsers::Endpoint;
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc::{icrc, verify_icrc, verify_vcrc};
use ibscope_parsers::ib::{CrcVerdict, Packet};
use ibscope_parsers::link::{LinkContent, Location, locate};
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::frame::change_packets;
use ibscope_samples::{SampleFraming, SampleOptions, generate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One run of each library, of several processes per node, with loss, with connections by RDMA CM
/// and by datagrams, and of perftest.
const RUNS: [&str; 14] = [
    "mpich-rc-mixed-2x2",
    "ompi-ofi-ring2",
    "ompi-openib-bt.S-4x1",
    "ompi-openib-eagerrdma-ring2",
    "ompi-openib-mixed-2x2",
    "ompi-rc-coll-2x2",
    "ompi-rc-loss1-ring2",
    "ompi-rc-mixed-2x2",
    "ompi-ud-ring2",
    "perf-atomic-lat",
    "perf-cm-write-lat",
    "perf-read-lat",
    "perf-ud-send-lat",
    "scorep-ompi-rc-halo-4x1",
];

/// Runs the command; returns the new endpoint of each old one, and the output of the command.
pub(crate) fn anonymized(captures: &[PathBuf], output: &Path, names: &Path) -> (BTreeMap<Endpoint, Endpoint>, String) {
    let text = |path: &Path| path.to_str().expect("path").to_owned();
    let mut arguments = vec!["anonymize".to_owned(), "--threads".to_owned(), "1".to_owned()];
    arguments.extend(["-o".to_owned(), text(output), "--names".to_owned(), text(names)]);
    arguments.extend(captures.iter().map(|path| text(path)));
    let ran = ibscope(&arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let table = fs::read_to_string(names).expect("names");
    let row = |line: &str| {
        let (new, old) = line.split_once(',').expect("two fields");
        (old.parse().expect("endpoint"), new.parse().expect("endpoint"))
    };
    (table.lines().skip(1).map(row).collect(), ran.stderr)
}

fn analyzed(paths: &[PathBuf]) -> Profile {
    let digests = DigestChoice { xxh3: false, sha256: false };
    analyze(paths, &AnalysisOptions { digests, ..AnalysisOptions::default() }, &|_| {}).expect("analysis")
}

/// A row without the number of its connection.
fn rest<T: Debug>(row: &T, connection: u32) -> String {
    format!("{row:?}").replacen(&format!("connection: {connection},"), "", 1)
}

/// A profile as lines that do not depend on the order of endpoints; `name` maps endpoints.
fn lines(profile: &Profile, name: &dyn Fn(Endpoint) -> Endpoint) -> BTreeMap<&'static str, Vec<String>> {
    let connection = |index: u32| {
        let row = &profile.connections[index as usize];
        format!(
            "{:?} {:?} {:?} {} {:?} {:?}",
            name(row.src),
            name(row.dst),
            row.kind,
            row.service,
            row.dest_qp,
            row.src_qp
        )
    };
    let mut tables: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut add = |table, line: String| tables.entry(table).or_default().push(line);
    for (index, row) in profile.connections.iter().enumerate() {
        let times = (row.first_time_ns, row.last_time_ns);
        let sums = (&row.traffic, &row.retransmissions, &row.coverage, &row.stack, &row.src_qp_evidence);
        add("connections", format!("{}: {times:?} {sums:?}", connection(index as u32)));
        for path in &row.paths {
            let fields = path.fields;
            let classes = [fields.sl(), fields.vl(), fields.dscp(), fields.ecn(), fields.priority()];
            let others = (fields.p_key().map(|p_key| p_key >> 15), fields.port().is_some(), fields.has_further_ports());
            let sums = (path.packets, path.wire_bytes, path.retransmitted_packets, path.ecn_ce_packets);
            add("paths", format!("{}: {classes:?} {others:?} {sums:?}", connection(index as u32)));
        }
    }
    for row in &profile.ranks {
        let endpoint: Endpoint = row.endpoint.parse().expect("endpoint");
        let mut row = row.clone();
        row.endpoint.clear();
        add("ranks", format!("{:?} {row:?}", name(endpoint)));
    }
    for row in &profile.cm {
        let (src, dst) = (name(row.src), name(row.dst));
        let rest = (
            &row.message,
            row.local_comm_id,
            row.remote_comm_id,
            row.qpn,
            row.starting_psn,
            row.service_id,
            row.world_rank,
        );
        add("cm", format!("{src:?} {dst:?} {} {rest:?}", row.time_ns));
    }
    macro_rules! table {
        ($($table:ident),*) => {
            $(for row in &profile.$table {
                add(stringify!($table), format!("{}: {}", connection(row.connection), rest(&row, row.connection)));
            })*
        };
    }
    table!(timeline, collectives, latencies, sizes, health);
    for row in profile.streams.iter().flatten() {
        add("streams", format!("{}: {}", connection(row.connection), rest(&row, row.connection)));
    }
    tables.values_mut().for_each(|lines| lines.sort());
    tables
}

/// Asserts that these tables have the same lines.
fn assert_tables(
    case: &str,
    (old, new): (&Profile, &Profile),
    names: &BTreeMap<Endpoint, Endpoint>,
    is_compared: impl Fn(&str) -> bool,
) {
    let named =
        lines(old, &|endpoint| *names.get(&endpoint).unwrap_or_else(|| panic!("{case}: {endpoint} has no name")));
    let found = lines(new, &|endpoint| endpoint);
    let tables = |of: &BTreeMap<&'static str, Vec<String>>| -> Vec<&'static str> {
        of.keys().copied().filter(|table| is_compared(table)).collect()
    };
    assert_eq!(tables(&named), tables(&found), "{case}");
    for table in tables(&named) {
        for (expected, found) in named[table].iter().zip(&found[table]) {
            assert_eq!(found, expected, "{case}: {table}");
        }
        assert_eq!(named[table].len(), found[table].len(), "{case}: {table}");
    }
}

fn assert_same(case: &str, old: &Profile, new: &Profile, names: &BTreeMap<Endpoint, Endpoint>) {
    assert_tables(case, (old, new), names, |_| true);
    let counts = |profile: &Profile| {
        let coverage = &profile.coverage;
        let checks = [coverage.icrc_ok, coverage.icrc_bad, coverage.vcrc_ok, coverage.vcrc_bad];
        (coverage.infiniband, coverage.truncated, coverage.mirror_copies, coverage.management, checks)
    };
    assert_eq!(counts(new), counts(old), "{case}");
    assert!(names.iter().any(|(old, new)| old != new), "{case}: nothing has changed");
}

#[test]
fn runs_show_the_same_under_other_names() {
    in_parallel(&RUNS, |_, name| {
        let run = runs::named(name);
        // Native InfiniBand as captured at a sink, and RoCE as captured at each port.
        for captures in [vec![run.sink()], run.every_node()] {
            let folder = tempfile::tempdir().expect("folder");
            let output = folder.path().join("out");
            fs::create_dir(&output).expect("folder");
            let (names, _) = anonymized(&captures, &output, &folder.path().join("names.csv"));
            let results: Vec<PathBuf> =
                captures.iter().map(|path| output.join(path.file_name().expect("name"))).collect();
            assert_same(name, &analyzed(&captures), &analyzed(&results), &names);
        }
    });
}

/// Every recorded run, at its sink if it has one: messages, bytes, ranks and coverage of each
/// connection.
#[test]
fn all_runs_have_the_same_matrix_under_other_names() {
    let runs = runs::of_all_sets();
    assert!(runs.len() > 70, "{}", runs.len());
    in_parallel(&runs, |_, run| {
        let captures = if run.sink().exists() { vec![run.sink()] } else { run.every_node() };
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out");
        fs::create_dir(&output).expect("folder");
        let (names, _) = anonymized(&captures, &output, &folder.path().join("names.csv"));
        let results: Vec<PathBuf> = captures.iter().map(|path| output.join(path.file_name().expect("name"))).collect();
        let profiles = (&analyzed(&captures), &analyzed(&results));
        // Commands of storage are payload.
        let is_matrix = |table: &str| ["connections", "paths", "ranks", "collectives", "streams"].contains(&table);
        assert_tables(&run.name, profiles, &names, is_matrix);
    });
}

/// The rows and findings of `paths`, sorted, without the sentences, under these names.
fn path_lines(capture: &Path, names: &BTreeMap<Endpoint, Endpoint>) -> Vec<String> {
    let text = result(&["paths", "--no-align", "--format", "json"], &[capture]);
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    let named = |end: &str| {
        let new = names.get(&end.parse().expect("endpoint"));
        new.map_or_else(|| end.to_owned(), Endpoint::to_string)
    };
    let mut lines = Vec::new();
    for table in ["classes", "pairs", "findings"] {
        for row in document[table].as_array_mut().expect("rows") {
            let row = row.as_object_mut().expect("object");
            row.remove("text");
            let ends = ["src", "dst"].map(|end| row.remove(end));
            let mut ends: Vec<String> = ends.iter().flatten().map(|end| named(end.as_str().expect("name"))).collect();
            if table == "findings" {
                // A finding on both directions names the pair in the order of its addresses.
                ends.sort();
            }
            lines.push(format!("{table} {ends:?} {row:?}"));
        }
    }
    lines.sort();
    lines
}

/// The findings of `diagnose` with their numbers, which name no endpoint.
fn diagnosis(capture: &Path) -> Vec<(String, Value)> {
    let text = result(&["diagnose", "--format", "json"], &[capture]);
    let all: Vec<Value> = serde_json::from_str(&text).expect("a JSON list");
    all.into_iter().map(|one| (one["finding"].as_str().expect("name").to_owned(), one["numbers"].clone())).collect()
}

/// The captures differ in DSCP and UDP source port only: one of each for all packets of a queue
/// pair, another DSCP in one direction, one source port for all queue pairs.
#[test]
fn traffic_classes_and_source_ports_have_the_same_findings_under_other_names() {
    // Offsets in an Ethernet frame with IPv4 without options.
    const TYPE_OF_SERVICE: usize = 15;
    const SOURCE: usize = 26;
    const SOURCE_PORT: usize = 34;
    let folder = tempfile::tempdir().expect("folder");
    let recorded = Recording::read(&runs::named("ompi-rc-ring2").node(1)).expect("capture");
    let one_way = change_packets(&recorded, |_, frame, data| {
        if data[SOURCE..SOURCE + 4] == [10, 77, 0, 1] {
            data[TYPE_OF_SERVICE] = 34 << 2 | data[TYPE_OF_SERVICE] & 3;
        }
        frame.seal(data);
    });
    let path = folder.path().join("generated.pcap");
    let options =
        SampleOptions { framing: SampleFraming::Roce, bytes: 1_000_000, lids: 6, qps: 6, ..SampleOptions::default() };
    generate(&options, &mut fs::File::create(&path).expect("file")).expect("generated");
    let generated = Recording::read(&path).expect("capture");
    let one_port = change_packets(&generated, |_, frame, data| {
        data[SOURCE_PORT..SOURCE_PORT + 2].copy_from_slice(&49_152_u16.to_be_bytes());
        frame.seal(data);
    });
    for (capture, expected) in
        [(recorded, None), (one_way, Some("traffic_class")), (generated, None), (one_port, Some("single_source_port"))]
    {
        let (old, new) = (folder.path().join("old.pcap"), folder.path().join("new.pcap"));
        capture.write(&old).expect("written");
        let (names, _) = anonymized(std::slice::from_ref(&old), &new, &folder.path().join("names.csv"));
        let found = diagnosis(&new);
        assert!(found.iter().map(|(name, _)| name.as_str()).eq(expected), "{expected:?}: {found:?}");
        assert_eq!(found, diagnosis(&old), "{expected:?}");
        assert_eq!(path_lines(&new, &BTreeMap::new()), path_lines(&old, &names), "{expected:?}");
    }
}

/// The packet of a record, if it is InfiniBand.
fn packet(link_type: u16, data: &[u8]) -> Option<Location> {
    match locate(LinkType(link_type), data, data.len() as u32) {
        Ok(LinkContent::Infiniband(location)) => Some(location),
        _ => None,
    }
}

const MARK: &[u8] = b"SECRETWORD";

/// Fills everything in a classic file that may be data with a repeated mark: the whole payload of a
/// packet that starts no message, and the bytes after the longest envelope in one that does.
/// Recomputes the ICRC. Returns the file and the number of marks.
fn planted(file: &[u8]) -> (Vec<u8>, usize) {
    /// No header of a library is longer.
    const ENVELOPE_BYTES: usize = 96;
    let link_type = crate::tools::link_type(file);
    let mut marked = file.to_vec();
    let mut marks = 0;
    for record in walk(file) {
        let data = &mut marked[record.place.start + 16..record.place.end];
        let Some(location) = packet(link_type, data) else { continue };
        let Ok(found) = Packet::parse_lax(data, &location) else { continue };
        let begins = found.bth.opcode.is_request() && (found.bth.opcode.is_first() || found.bth.opcode.is_only());
        let start = found.payload_offset + if begins { ENVELOPE_BYTES } else { 0 };
        let end = (found.payload_offset + found.payload_bytes).min(data.len());
        if found.bth.dest_qp.is_management()
            || start + MARK.len() > end
            || verify_icrc(data, &location) != CrcVerdict::Ok
        {
            continue;
        }
        for place in data[start..end].chunks_exact_mut(MARK.len()) {
            place.copy_from_slice(MARK);
            marks += 1;
        }
        let sum = icrc(location.encapsulation, data, &location).expect("whole");
        let end = location.end();
        data[end - 4..end].copy_from_slice(&sum.to_le_bytes());
    }
    (marked, marks)
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[test]
fn planted_words_and_addresses_are_removed_and_checksums_match() {
    for name in ["ompi-rc-mixed-2x2", "ompi-openib-mixed-2x2", "ompi-ofi-ring2", "perf-send-lat", "perf-cm-write-lat"] {
        let run = runs::named(name);
        for capture in [run.sink(), run.node(1)] {
            let folder = tempfile::tempdir().expect("folder");
            let (file, marks) = planted(&runs::decompressed(&capture));
            assert!(marks > 0 || name.starts_with("perf"), "{name}");
            let path = folder.path().join("planted.pcap");
            fs::write(&path, &file).expect("written");
            let place = folder.path().join("out.pcap");
            let (names, printed) = anonymized(std::slice::from_ref(&path), &place, &folder.path().join("names.csv"));
            let new = fs::read(&place).expect("result");
            assert!(!holds(&new, MARK) && !printed.contains("SECRETWORD"), "{name}");
            // Wire-up messages contain user and host names; many messages contain addresses.
            assert!(!holds(&new, b"node1") && !holds(&new, b"node2"), "{name}");
            for address in [[10, 77, 0, 1], [10, 77, 0, 2]] {
                assert!(!holds(&new, &address), "{name}: {address:?}");
            }
            let link_type = crate::tools::link_type(&file);
            let old: Vec<RawRecord> =
                walk(&file).into_iter().filter(|record| packet(link_type, record.data(&file)).is_some()).collect();
            let records = walk(&new);
            assert_eq!(records.len(), old.len(), "{name}: {printed}");
            for (record, old) in records.iter().zip(old) {
                let (data, before) = (record.data(&new), old.data(&file));
                assert_eq!(
                    (record.time_ns, record.original_bytes, data.len()),
                    (old.time_ns, old.original_bytes, before.len())
                );
                let (here, there) =
                    (packet(link_type, data).expect("a packet"), packet(link_type, before).expect("a packet"));
                assert_eq!(verify_icrc(data, &here), verify_icrc(before, &there), "{name}");
                assert_eq!(verify_vcrc(data, &here), verify_vcrc(before, &there), "{name}");
                assert_eq!((here.src, here.dst), (names[&there.src], names[&there.dst]), "{name}");
                let ethernet = |data: &[u8]| <[u8; 12]>::try_from(&data[..12]).expect("addresses");
                if link_type == 1 {
                    assert_ne!(ethernet(data), ethernet(before), "{name}");
                }
            }
        }
    }
}

/// The packets that tshark reports as malformed, and the states of their checksums.
fn objections(capture: &Path) -> BTreeMap<String, usize> {
    let fields = ["_ws.malformed", "ip.checksum.status", "udp.checksum.status", "infiniband.bth.opcode"];
    let mut tshark = Command::new("tshark");
    // It would take some payload for RPC over RDMA.
    tshark.args(["--disable-protocol", "rpcordma"]);
    tshark.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-n", "-T", "fields"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.arg("-r").arg(capture).output().expect("tshark is installed (make deps)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines = BTreeMap::new();
    String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
    lines
}

#[test]
fn tshark_reads_the_result_as_it_reads_the_capture() {
    for name in ["ompi-rc-coll-2x2", "ompi-openib-mixed-2x2", "perf-cm-write-lat"] {
        let run = runs::named(name);
        for capture in [run.sink(), run.node(1)] {
            let folder = tempfile::tempdir().expect("folder");
            let place = folder.path().join("out.pcap");
            anonymized(std::slice::from_ref(&capture), &place, &folder.path().join("names.csv"));
            let plain = folder.path().join("plain.pcap");
            fs::write(&plain, runs::decompressed(&capture)).expect("written");
            // The result contains InfiniBand packets only; other packets have no opcode.
            let packets = |path: &Path| {
                let mut found = objections(path);
                found.retain(|line, _| !line.ends_with('\t'));
                found
            };
            assert_eq!(packets(&place), packets(&plain), "{name}");
            assert_eq!(objections(&place), packets(&place), "{name}: the result contains other packets");
        }
    }
}

#[test]
fn names_of_pcapng_files_and_their_comments_are_dropped() {
    let folder = tempfile::tempdir().expect("folder");
    let file = runs::decompressed(&sample("perftest-read-lat"));
    for big_endian in [false, true] {
        let blocks = Blocks { big_endian };
        let mut pcapng = blocks.section();
        pcapng.extend(blocks.interface(
            crate::tools::link_type(&file),
            0,
            &[(2, b"mlx5_0 of SECRETWORD"), (9, &[9]), (1, b"SECRETWORD")],
        ));
        // A host name table, and a comment after a packet.
        pcapng.extend(blocks.block(4, b"SECRETWORD in a name table.."));
        for record in walk(&file) {
            pcapng.extend(blocks.packet(0, record.time_ns.cast_unsigned(), record.data(&file), record.original_bytes));
        }
        pcapng.extend(blocks.block(0x0BAD, b"SECRETWORD"));
        let path = folder.path().join("named.pcapng");
        fs::write(&path, &pcapng).expect("written");
        let place = folder.path().join("out.pcapng");
        let (names, printed) = anonymized(std::slice::from_ref(&path), &place, &folder.path().join("names.csv"));
        assert!(printed.contains("2 blocks without a packet"), "{printed}");
        let new = fs::read(&place).expect("result");
        assert!(!holds(&new, b"SECRETWORD"));
        assert_same("pcapng", &analyzed(&[path]), &analyzed(&[place]), &names);
    }
}

#[test]
fn names_depend_on_the_key() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("perf-write-lat");
    let ends = |key: Option<&str>, capture: &Path| {
        let place = folder.path().join("out.pcap");
        let place_text = place.to_str().expect("path");
        let mut arguments = vec!["anonymize", "-o", place_text, capture.to_str().expect("path")];
        arguments.extend(key.iter().flat_map(|key| ["--key", key]));
        assert_eq!(ibscope(&arguments).code, 0);
        let csv = result(&["matrix", "--format", "csv"], &[&place]);
        csv.lines()
            .skip(1)
            .flat_map(|line| line.split(',').take(2).map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let one = ends(Some("one"), &run.sink());
    assert_eq!(one, ends(Some("one"), &run.sink()));
    assert_ne!(one, ends(Some("two"), &run.sink()));
    assert_ne!(ends(None, &run.sink()), ends(None, &run.sink()), "a key that is drawn");
}

#[test]
fn wrong_arguments_and_inputs_are_errors() {
    let folder = tempfile::tempdir().expect("folder");
    let capture = sample("perftest-read-lat");
    let capture = capture.to_str().expect("path");
    let place = folder.path().join("x.pcap");
    let place = place.to_str().expect("path");
    // The same file under another path.
    let again = format!("{}/./x.pcap", folder.path().display());
    for (arguments, code, expected) in [
        (vec!["anonymize", capture], 2, "--output"),
        (
            vec!["anonymize", "-", "-o", place],
            1,
            "-: is not a regular file, and anonymize reads captures twice; save it to a file first",
        ),
        (vec!["anonymize", capture, "-o", capture], 1, "the command reads it"),
        (
            vec!["anonymize", capture, capture, "-o", folder.path().to_str().expect("path")],
            1,
            "another capture has the same file name",
        ),
        (vec!["anonymize", "/nowhere.pcap", "-o", place], 1, "/nowhere.pcap: cannot be opened"),
        (
            vec!["anonymize", capture, "-o", place, "--names", &again],
            2,
            "--names and --output name the same file; give each its own",
        ),
    ] {
        let ran = ibscope(&arguments);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 0, "nothing is left");
}

#[test]
fn the_name_table_is_written_only_on_success_and_for_its_owner() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let file = runs::decompressed(&runs::named("perf-write-lat").sink());
    fs::write(at("whole.pcap"), &file).expect("written");
    fs::write(at("cut.pcap"), &file[..file.len() - 3]).expect("written");
    let run = |captures: &[String]| {
        let mut arguments = vec!["anonymize".to_owned(), "-o".to_owned(), at("out/")];
        arguments.extend(["--names".to_owned(), at("names.csv")]);
        arguments.extend(captures.iter().cloned());
        ibscope(&arguments)
    };
    // A truncated capture, and a missing one, each after a complete one.
    for failing in ["cut.pcap", "missing.pcap"] {
        let ran = run(&[at("whole.pcap"), at(failing)]);
        assert_eq!(ran.code, 1, "{failing}: {}", ran.stderr);
        assert!(!Path::new(&at("names.csv")).exists(), "{failing}: {}", ran.stderr);
    }
    let printed = run(&[at("cut.pcap")]).stderr;
    assert!(printed.contains("names.csv: not written"), "{printed}");
    // A world-readable file is replaced by one that only its owner may read.
    fs::write(at("names.csv"), "old").expect("written");
    fs::set_permissions(at("names.csv"), fs::Permissions::from_mode(0o644)).expect("permissions");
    assert_eq!(run(&[at("cut.pcap")]).code, 1);
    assert_eq!(fs::read_to_string(at("names.csv")).expect("file"), "old");
    assert_eq!(run(&[at("whole.pcap")]).code, 0);
    assert!(fs::read_to_string(at("names.csv")).expect("file").starts_with("endpoint,name\n"));
    assert_eq!(fs::metadata(at("names.csv")).expect("file").permissions().mode() & 0o777, 0o600);
    let left = fs::read_dir(folder.path()).expect("folder").map(|entry| entry.expect("entry").file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains(".part-")));
}
