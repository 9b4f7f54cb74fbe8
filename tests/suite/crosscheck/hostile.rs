//! Traces and profiles that are crafted to take time or to overflow sums.

use super::profiles::{ArchiveFiles, built, sums};
use super::{Description, noted_sends};
use crate::runs;
use crate::tools::{ProgramResult, ibscope};
use ibscope::crosscheck::cubex;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// A profile of this description with one metric, visits, with a value for each call and location.
fn with_anchor(files: &mut ArchiveFiles, inner: &str, visits: &[u64]) {
    let metric = "<metric id='4' type='EXCLUSIVE'><uniq_name>visits</uniq_name><dtype>UINT64</dtype></metric>";
    files.clear();
    files.insert("anchor.xml", format!("<cube>{metric}{inner}</cube>").into_bytes());
    files.insert("4.index", [&b"CUBEX.INDEX"[..], &1_u32.to_be_bytes(), &[0, 0, 0]].concat());
    files.insert(
        "4.data",
        b"CUBEX.DATA".iter().copied().chain(visits.iter().flat_map(|value| value.to_be_bytes())).collect(),
    );
}

/// One process with one location.
const ONE: &str = "<locationgroup Id='0'><rank>0</rank><location Id='0'/></locationgroup>";

/// Each of these takes a second in linear time, and minutes or all memory otherwise;
/// `.config/nextest.toml` then ends the test.
#[test]
fn any_number_of_definitions_is_read_in_linear_time() {
    const MANY: usize = 60_000;
    let folder = tempfile::tempdir().expect("folder");
    // Sibling metrics and regions, each region called once.
    let wide = |files: &mut ArchiveFiles| {
        let metric = |id: usize| {
            format!("<metric id='{id}' type='EXCLUSIVE'><uniq_name>m{id}</uniq_name><dtype>UINT64</dtype></metric>")
        };
        let region = |id: usize| format!("<region id='{id}'><name>MPI_Send</name><role>point2point</role></region>");
        let call = |id: usize| format!("<cnode id='{id}' calleeId='{}'/>", MANY - 1 - id);
        let inner: String = (5..MANY)
            .map(metric)
            .chain((0..MANY).map(region))
            .chain((0..MANY).map(call))
            .chain([ONE.to_owned()])
            .collect();
        with_anchor(files, &inner, &vec![2; MANY]);
    };
    assert_eq!(sums(&built(folder.path(), wide)).ranks[&0].send_calls, 2 * MANY as u64);
    // Nested system nodes, each with a process; the outermost node names the host.
    let deep = |files: &mut ArchiveFiles| {
        let node = |rank: usize| {
            format!(
                "<systemtreenode Id='{rank}'><locationgroup Id='{rank}'><rank>{rank}</rank><location Id='{rank}'/></locationgroup>"
            )
        };
        let inner: String = ["<systemtreenode Id='0'><name>node far</name><class>node</class>".to_owned()]
            .into_iter()
            .chain((0..MANY).map(node))
            .chain(["</systemtreenode>".repeat(MANY + 1)])
            .collect();
        with_anchor(files, &inner, &[]);
    };
    let profile = sums(&built(folder.path(), deep));
    assert_eq!(profile.trace.ranks.len(), MANY);
    assert!(profile.trace.ranks.values().all(|host| host.as_deref() == Some("far")));
}

/// Input that takes the XML library quadratic time or memory is rejected before the library sees
/// it.
#[test]
fn descriptions_that_are_made_to_take_time_are_read_in_linear_time() {
    const MANY: usize = 200_000;
    let folder = tempfile::tempdir().expect("folder");
    let refused = |inner: String| {
        let error = cubex::read(&built(folder.path(), |files| with_anchor(files, &inner, &[])))
            .expect_err("refused")
            .to_string();
        assert!(error.contains("built.cubex") && error.contains("attributes"), "{error}");
    };
    let attribute = |number: usize| format!(" a{number}='>'");
    let attributes: String = (0..MANY).map(attribute).collect();
    refused(format!("<metric{attributes}/>{ONE}"));
    // Each element inherits the namespaces of all elements around it.
    let space = |number: usize| format!("<a xmlns:n{number}='n{number}'>");
    let spaces: String = (0..60_000).map(space).collect();
    refused(format!("{spaces}{}{ONE}", "</a>".repeat(60_000)));
    // A name that each of many processes would copy.
    let host = format!("<systemtreenode Id='0'><name>{}</name><class>node</class>", "n".repeat(1 << 20));
    let group =
        |rank: usize| format!("<locationgroup Id='{rank}'><rank>{rank}</rank><location Id='{rank}'/></locationgroup>");
    let groups: String = (0..MANY).map(group).collect();
    let inner = format!("{host}{groups}</systemtreenode>");
    let profile = sums(&built(folder.path(), |files| with_anchor(files, &inner, &[])));
    assert_eq!(profile.trace.ranks.len(), MANY);
    assert!(profile.trace.ranks.values().all(Option::is_none), "that is no name of a host");
    // Text that looks like attributes.
    let harmless =
        format!("<!-- {} it's --><attr key='a=b' value=\"{}\"/>{ONE}", "= ".repeat(1000), "x='y' ".repeat(1000));
    assert_eq!(sums(&built(folder.path(), |files| with_anchor(files, &harmless, &[]))).ranks.len(), 1);
}

fn crosscheck(capture: &Path, trace: &Path, more: &[&str]) -> ProgramResult {
    let arguments = [OsStr::new("crosscheck"), capture.as_os_str(), trace.as_os_str()];
    ibscope(arguments.into_iter().chain(more.iter().map(OsStr::new)))
}

/// Sums of a table that exceed 64 bits stay at the maximum, which no capture reaches.
#[test]
fn sums_of_a_table_stop_at_the_largest_number() {
    let capture = runs::named("ompi-rc-notrace-mixed-4x1").sink();
    let folder = tempfile::tempdir().expect("folder");
    let table = folder.path().join("table.csv");
    let with = |rows: &str| fs::write(&table, format!("src,dst,messages,bytes\n{rows}")).expect("table");
    let (half, most) = (1_u64 << 63, u64::MAX);
    // Twice half of the range would wrap to 0.
    with(&format!("4,5,{half},{half}\n5,4,{half},{half}\n"));
    let ran = crosscheck(&capture, &table, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains(&most.to_string()), "{}", ran.stderr);
    // Compared with the messages on the wire.
    with(&format!("0,1,{most},{most}\n1,0,{half},{most}\n0,2,{half},{half}\n"));
    let places = [folder.path().join("c.svg"), folder.path().join("c.png")];
    let [svg, png] = places.each_ref().map(|path| path.to_str().expect("path"));
    let ran = crosscheck(&capture, &table, &["--format", "json", "--svg", svg, "--png", png, "--tolerance", "5"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("json");
    let pairs = document["pairs"].as_array().expect("pairs");
    let of = |src: u32, dst: u32| {
        let pair = pairs.iter().find(|pair| pair["src"] == src && pair["dst"] == dst).expect("pair");
        (pair["trace_messages"].as_u64(), pair["trace_bytes"].as_u64(), pair["verdict"].as_str().expect("verdict"))
    };
    assert_eq!(of(0, 1), (Some(most), Some(most), "unexplained"));
    assert_eq!(of(1, 0), (Some(half), Some(most), "unexplained"));
    assert_eq!(document["events"], json!(most));
    assert!(places.iter().all(|place| place.exists()));
    for format in ["table", "csv"] {
        let ran = crosscheck(&capture, &table, &["--format", format]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert!(ran.stdout.replace(' ', "").contains(&most.to_string()), "{}", ran.stdout);
    }
    let page = folder.path().join("page.html");
    let arguments = ["report".as_ref(), capture.as_os_str(), "-o".as_ref(), page.as_os_str(), "--trace".as_ref()];
    let ran = ibscope(arguments.into_iter().chain([table.as_os_str()]));
    assert_eq!((ran.code, page.exists()), (4, true), "{}", ran.stderr);
}

/// The same for an archive: messages, receives, collectives, one-sided operations.
#[test]
fn sums_of_an_archive_stop_at_the_largest_number() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let mut description = Description::new(4, 1);
    // In the middle of the run, where nothing explains missing messages.
    let sends = noted_sends(&run);
    description.sends(&sends);
    let at_ns = sends[sends.len() / 2].0;
    let most = u64::MAX;
    for index in 0..3 {
        for event in [
            json!([0, 0, "send", at_ns + index, 1, 0, 7, most]),
            json!([1, 0, "recv", at_ns + index, 0, 0, 7, most]),
            json!([2, 0, "collective", at_ns + 10 * index, "ALLTOALL", 0, null, most, most]),
            json!([3, 0, "put", at_ns + index, 0, most]),
            json!([3, 0, "get", at_ns + index, 1, most]),
        ] {
            description.events.push(event);
        }
    }
    let archive = description.write(folder.path());
    let ran = crosscheck(&run.sink(), &archive, &["--format", "json"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("json");
    let result = &document;
    let find = |list: &str, src: u32, dst: u32| {
        let rows = result[list].as_array().expect("rows");
        rows.iter()
            .find(|row| row["src"] == src && row["dst"] == dst)
            .unwrap_or_else(|| panic!("{list}: {result}"))
            .clone()
    };
    let pair = find("pairs", 0, 1);
    assert_eq!((&pair["trace_bytes"], &pair["verdict"]), (&json!(most), &json!("unexplained")));
    for (src, dst) in [(3, 0), (1, 3)] {
        let row = find("one_sided", src, dst);
        assert_eq!((&row["operations"], &row["bytes"]), (&json!(3), &json!(most)));
    }
    let calls = result["calls"].as_array().expect("calls");
    let calls = calls.iter().find(|calls| calls["operation"] == "alltoall").expect("alltoall");
    assert_eq!(
        (&calls["calls"], &calls["sent_bytes"], &calls["received_bytes"]),
        (&json!(3), &json!(most), &json!(most))
    );
    for format in ["table", "csv"] {
        let ran = crosscheck(&run.sink(), &archive, &["--format", format]);
        assert_eq!(ran.code, 4, "{format}: {}", ran.stderr);
    }
}
