//! Score-P profiles (`profile.cubex`): sums by rank, compared with the trace of the same run, the
//! truth, and the wire.

use super::{archive, read, with_profile};
use crate::recorded::every_way;
use crate::runs::{self, RecordedRun};
use crate::tools::{ibscope, in_parallel, random};
use ibscope::crosscheck::cubex::{self, CubeProfile};
use ibscope::crosscheck::{
    Cause, Crosscheck, CrosscheckOptions, CrosscheckVerdict, RankDirection, RankSums, crosscheck_sums,
};
use ibscope::model::Profile;
use ibscope::pipeline::{self, analyze};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fn profiled() -> Vec<RecordedRun> {
    let profiled: Vec<RecordedRun> = runs::all().into_iter().filter(|run| place(run).exists()).collect();
    assert_eq!(profiled.len(), 7, "runs by Score-P");
    profiled
}

fn place(run: &RecordedRun) -> PathBuf {
    run.folder.join("trace/profile.cubex")
}

pub(super) fn sums(path: &Path) -> CubeProfile {
    cubex::read(path).unwrap_or_else(|error| panic!("{error}"))
}

fn analyzed(paths: &[PathBuf]) -> Profile {
    analyze(paths, &pipeline::AnalysisOptions::default(), &|_| {}).expect("profile")
}

fn compared(sums: &CubeProfile, profile: &Profile) -> Crosscheck {
    crosscheck_sums(sums, profile, None, &CrosscheckOptions::default()).expect("compared")
}

/// Messages and bytes by rank and direction, from a table by pair.
fn by_rank(pairs: &BTreeMap<(u32, u32), (u64, u64)>) -> BTreeMap<(u32, RankDirection), (u64, u64)> {
    let mut sums: BTreeMap<(u32, RankDirection), (u64, u64)> = BTreeMap::new();
    for ((src, dst), (messages, bytes)) in pairs {
        for end in [(*src, RankDirection::Sent), (*dst, RankDirection::Received)] {
            let sum = sums.entry(end).or_default();
            *sum = (sum.0 + messages, sum.1 + bytes);
        }
    }
    sums
}

#[test]
fn sums_equal_the_trace_and_the_truth() {
    for run in profiled() {
        let name = &run.name;
        let sums = sums(&place(&run));
        let trace = read(&archive(&run).expect("archive"));
        assert_eq!(sums.trace.ranks, trace.ranks, "{name}: hosts");
        assert_eq!(sums.trace.tracer, trace.tracer, "{name}");
        let truth = by_rank(&run.truth("truth.csv").expect("truth"));
        let profile = analyzed(&[run.sink()]);
        for (rank, found) in &sums.ranks {
            let of = |direction| truth.get(&(*rank, direction)).copied().unwrap_or_default();
            let ((sends, sent), (receives, received)) = (of(RankDirection::Sent), of(RankDirection::Received));
            let case = format!("{name}, rank {rank}: {found:?}");
            assert_eq!(found.sent_bytes, sent, "{case}");
            // Only `comm` has persistent requests and a nonblocking collective; the profile has no
            // bytes for these.
            let has_bytes = !name.contains("-comm-");
            assert_eq!((found.start_calls, found.nonblocking) == (0, 0), has_bytes, "{case}");
            if has_bytes {
                assert_eq!((found.send_calls, found.receive_calls), (sends, receives), "{case}");
                assert_eq!(found.received_bytes + found.completed_bytes, received, "{case}");
            } else {
                let range = found.received_bytes..=found.received_bytes + found.completed_bytes;
                assert!(range.contains(&received), "{case}: {received}");
            }
        }
        // Collective operations as well, except for the bytes of the nonblocking one.
        let mut expected = with_profile(&trace, &profile).expect("compared").collective_calls;
        for calls in expected.iter_mut().filter(|calls| name.contains("-comm-") && calls.operation == "allreduce") {
            (calls.sent, calls.received) = (0, 0);
        }
        assert_eq!(compared(&sums, &profile).collective_calls, expected, "{name}");
    }
}

#[test]
fn every_sum_is_equal_or_explained_for_every_way_of_capturing() {
    in_parallel(&profiled(), |_, run| {
        let name = &run.name;
        let sums = sums(&place(run));
        let nodes = run.node_of_rank();
        let truth = run.truth("truth.csv").expect("truth");
        let is_between = |(src, dst): &(u32, u32)| nodes[src] != nodes[dst];
        let within =
            by_rank(&truth.iter().filter(|(pair, _)| !is_between(pair)).map(|(pair, sums)| (*pair, *sums)).collect());
        let between =
            by_rank(&truth.iter().filter(|(pair, _)| is_between(pair)).map(|(pair, sums)| (*pair, *sums)).collect());
        let wire = run.truth("wire.csv").map(|wire| by_rank(&wire));
        for paths in every_way(run) {
            let result = compared(&sums, &analyzed(&paths));
            assert_eq!(result.ranks.len(), 2 * nodes.len(), "{name}");
            for row in &result.ranks {
                let case = format!("{name}: {row:?}");
                let end = (row.rank, row.direction);
                let of =
                    |sums: &BTreeMap<(u32, RankDirection), (u64, u64)>| sums.get(&end).copied().unwrap_or_default();
                assert_ne!(row.verdict, CrosscheckVerdict::Unexplained, "{case}");
                assert_eq!(
                    (row.wire.messages - row.tracer.messages, row.wire.bytes - row.tracer.bytes),
                    of(&between),
                    "{case}"
                );
                if let Some(wire) = &wire {
                    assert_eq!((row.wire.messages, row.wire.bytes), of(wire), "{case}");
                }
                if row.uncertain_bytes == 0 {
                    assert_eq!(row.missing_bytes, of(&within).1, "{case}");
                    assert_eq!(row.causes.contains(&Cause::SameNode), of(&within).1 > 0, "{case}");
                }
                assert!(!row.causes.contains(&Cause::Lost) && !row.causes.contains(&Cause::NotCaptured), "{case}");
            }
        }
    });
}

/// The port of node 1 does not show the messages between other nodes.
#[test]
fn sums_of_ports_that_were_not_captured_are_explained() {
    for name in ["scorep-ompi-rc-halo-4x1", "scorep-ompi-rc-comm-4x1"] {
        let run = runs::named(name);
        let result = compared(&sums(&place(&run)), &analyzed(&[run.node(1)]));
        for row in &result.ranks {
            assert_ne!(row.verdict, CrosscheckVerdict::Unexplained, "{name}: {row:?}");
            // The port has less of the other ranks than they sent.
            assert_eq!(
                row.causes.contains(&Cause::NotCaptured),
                row.rank != 0 && row.missing_bytes > 0,
                "{name}: {row:?}"
            );
        }
        assert!(result.ranks.iter().any(|row| row.causes.contains(&Cause::NotCaptured)), "{name}");
    }
}

/// Changes the first value of `bytes_sent`, of a call that sends: 8 bytes after the header of its
/// file.
fn with_first_sent(run: &RecordedRun, folder: &Path, change: impl Fn(u64) -> u64) -> PathBuf {
    let mut bytes = std::fs::read(place(run)).expect("profile");
    let mut archive = tar::Archive::new(&bytes[..]);
    let member = archive.entries().expect("entries").map(|entry| entry.expect("entry"));
    let at =
        member.filter(|entry| entry.path_bytes().as_ref() == b"8.data").map(|entry| entry.raw_file_position()).next();
    let at = at.expect("bytes_sent") as usize + 10;
    let value = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("value"));
    bytes[at..at + 8].copy_from_slice(&change(value).to_le_bytes());
    let path = folder.join("changed.cubex");
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn one_changed_byte_of_a_sum_is_found_and_named() {
    for name in ["scorep-ompi-rc-ring-2x1", "scorep-ompi-rc-halo-4x1", "scorep-ompi-rc-mixed-2x2"] {
        let run = runs::named(name);
        let folder = tempfile::tempdir().expect("folder");
        for change in [|value: u64| value + 1, |value: u64| value - 1] {
            let changed = with_first_sent(&run, folder.path(), change);
            let ran = ibscope([
                OsStr::new("crosscheck"),
                run.sink().as_os_str(),
                changed.as_os_str(),
                OsStr::new("--format"),
                OsStr::new("csv"),
            ]);
            assert_eq!(ran.code, 4, "{name}: {} {}", ran.stdout, ran.stderr);
            let bad: Vec<&str> = ran.stdout.lines().filter(|line| line.contains(",unexplained,")).collect();
            // Of two ranks on one node, either may be the wrong one.
            assert!(bad.iter().any(|line| line.starts_with("0,sent,")), "{name}: {}", ran.stdout);
            let nodes = run.node_of_rank();
            let rank = |line: &str| line.split(',').next().expect("rank").parse::<u32>().expect("rank");
            assert!(bad.iter().all(|line| nodes[&rank(line)] == nodes[&0]), "{name}: {}", ran.stdout);
        }
    }
}

#[test]
fn profiles_are_shown_as_a_table_and_draw_no_pairs() {
    let run = runs::named("scorep-ompi-rc-mixed-2x2");
    let arguments = [OsStr::new("crosscheck").to_owned(), run.sink().into_os_string(), place(&run).into_os_string()];
    let ran = ibscope(&arguments);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("placement     4 ranks on 2 nodes, from the trace"), "{}", ran.stdout);
    assert!(ran.stdout.contains("the wire and the trace agree"), "{}", ran.stdout);
    let folder = tempfile::tempdir().expect("folder");
    let svg = folder.path().join("c.svg");
    let ran =
        ibscope(arguments.iter().map(std::ffi::OsString::as_os_str).chain([OsStr::new("--svg"), svg.as_os_str()]));
    assert_eq!((ran.code, ran.stdout.as_str(), svg.exists()), (2, "", false), "{}", ran.stderr);
    assert!(ran.stderr.contains("draw pairs of ranks"), "{}", ran.stderr);
}

/// Files of a profile.
pub(super) type ArchiveFiles = BTreeMap<&'static str, Vec<u8>>;

/// A profile built by hand: big-endian, a dense index, a call tree whose order matters, two threads
/// of a rank.
pub(super) fn built(folder: &Path, change: impl Fn(&mut ArchiveFiles)) -> PathBuf {
    let region =
        |id: u32, name: &str, role: &str| format!("<region id='{id}'><name>{name}</name><role>{role}</role></region>");
    let metric = |id: u32, name: &str| {
        format!("<metric id='{id}' type='EXCLUSIVE'><uniq_name>{name}</uniq_name><dtype>UINT64</dtype></metric>")
    };
    let group = |rank: u32, locations: &[u32]| {
        let location = |id: &u32| ["<location Id='", &id.to_string(), "'><rank>0</rank></location>"].concat();
        let locations: String = locations.iter().map(location).collect();
        format!(
            "<systemtreenode Id='{rank}'><name>node n{rank}</name><class>node</class><locationgroup Id='{rank}'><rank>{rank}</rank>\
             <type>process</type>{locations}</locationgroup></systemtreenode>"
        )
    };
    // The ids of tree nodes differ from their positions: main (0), work (3) with `MPI_Send` (1),
    // `MPI_Recv` (2).
    let anchor = format!(
        "<?xml version='1.0'?><cube version='4.4'><attr key='Creator' value='Score-P 9'/><metrics>{}{}</metrics><program>{}{}{}\
         <cnode id='0' calleeId='0'><cnode id='3' calleeId='0'><cnode id='1' calleeId='1'></cnode></cnode><cnode id='2' calleeId='2'/></cnode>\
         </program><system>{}{}</system></cube>",
        metric(4, "visits"),
        metric(7, "bytes_sent"),
        region(0, "main", "function"),
        region(1, "MPI_Send", "point2point"),
        region(2, "MPI_Recv", "point2point"),
        group(0, &[0, 2]),
        group(1, &[1]),
    );
    let data = |values: &[u64]| -> Vec<u8> {
        b"CUBEX.DATA".iter().copied().chain(values.iter().flat_map(|value| value.to_be_bytes())).collect()
    };
    let head = |form: u8| [&b"CUBEX.INDEX"[..], &1_u32.to_be_bytes(), &[0, 0, form]].concat();
    let mut files = ArchiveFiles::new();
    files.insert("anchor.xml", anchor.into_bytes());
    files.insert("4.index", head(0));
    // Rows: main, work, `MPI_Send`, `MPI_Recv`; columns: locations.
    files.insert("4.data", data(&[1, 1, 0, 1, 1, 0, 3, 5, 4, 7, 9, 8]));
    files.insert("7.index", [head(1), 1_u32.to_be_bytes().to_vec(), 2_u32.to_be_bytes().to_vec()].concat());
    files.insert("7.data", data(&[300, 500, 1 << 40]));
    change(&mut files);
    let path = folder.join("built.cubex");
    let mut archive = tar::Builder::new(std::fs::File::create(&path).expect("archive"));
    for (name, bytes) in &files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &bytes[..]).expect("member");
    }
    archive.finish().expect("archive");
    path
}

#[test]
fn calls_are_found_by_their_position_in_the_tree() {
    let folder = tempfile::tempdir().expect("folder");
    let sums = sums(&built(folder.path(), |_| {}));
    let hosts: Vec<Option<&str>> = sums.trace.ranks.values().map(Option::as_deref).collect();
    assert_eq!(hosts, [Some("n0"), Some("n1")]);
    // Locations 0 and 2 are threads of rank 0.
    let [zero, one] = [sums.ranks[&0], sums.ranks[&1]];
    assert_eq!((zero.send_calls, zero.receive_calls, zero.sent_bytes), (7, 15, 300 + (1 << 40)));
    assert_eq!((one.send_calls, one.receive_calls, one.sent_bytes), (5, 9, 500));
}

#[test]
fn broken_profiles_are_rejected_with_the_reason() {
    let folder = tempfile::tempdir().expect("folder");
    let refused = |change: &dyn Fn(&mut ArchiveFiles), expected: &str| {
        let error = cubex::read(&built(folder.path(), change)).expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("built.cubex"), "{error}");
    };
    refused(&|files| drop(files.remove("anchor.xml")), "it has no anchor.xml");
    refused(&|files| files.get_mut("anchor.xml").expect("anchor").truncate(300), "anchor.xml cannot be read");
    refused(
        &|files| drop(files.insert("anchor.xml", b"<cube><cnode id='0' calleeId='9'/></cube>".to_vec())),
        "is missing required definitions",
    );
    refused(&|files| drop(files.remove("4.index")), "metric visits: its files are inconsistent");
    refused(&|files| drop(files.remove("7.data")), "metric bytes_sent: its files are inconsistent");
    refused(&|files| files.get_mut("4.data").expect("data").truncate(50), "its files are inconsistent");
    refused(
        &|files| files.get_mut("7.index").expect("index")[25] = 4,
        "the index refers to a call that does not exist",
    );
    refused(&|files| files.get_mut("7.index").expect("index")[11] = 9, "the index cannot be read");
    refused(&|files| files.get_mut("7.data").expect("data")[..10].copy_from_slice(b"ZCUBEX.DAT"), "compressed");
    let whole = std::fs::read(built(folder.path(), |_| {})).expect("profile");
    let path = folder.path().join("broken.cubex");
    // Truncated or changed anywhere: rejected or read, without a panic.
    let mut random = random(5);
    let mut refused = 0;
    for round in 0..400 {
        let mut bytes = whole.clone();
        if round % 4 == 0 {
            bytes.truncate(random(whole.len()));
        } else {
            (0..3).for_each(|_| bytes[random(whole.len())] ^= 1 << random(8));
        }
        std::fs::write(&path, bytes).expect("written");
        refused += u32::from(cubex::read(&path).is_err());
    }
    assert!(refused > 100, "{refused}");
}

/// Inputs that must not exhaust a reader: a tree of a hundred thousand levels, numbers of any size.
#[test]
fn profiles_of_any_depth_and_size_are_read() {
    const LEVELS: usize = 100_000;
    let folder = tempfile::tempdir().expect("folder");
    let deep = |files: &mut ArchiveFiles| {
        let anchor = format!(
            "<cube><program><region id='0'><name>f</name></region>{}{}</program><system><locationgroup Id='0'><rank>0</rank>\
             <location Id='0'/></locationgroup></system></cube>",
            "<cnode id='0' calleeId='0'>".repeat(LEVELS),
            "</cnode>".repeat(LEVELS)
        );
        files.insert("anchor.xml", anchor.into_bytes());
    };
    assert_eq!(sums(&built(folder.path(), deep)).ranks.len(), 1);
    let huge = |files: &mut ArchiveFiles| {
        files.get_mut("4.data").expect("data")[10..].fill(0xFF);
    };
    let sums = sums(&built(folder.path(), huge));
    assert_eq!((sums.ranks[&0].send_calls, sums.ranks[&0].receive_calls), (u64::MAX, u64::MAX));
    let row: &RankSums = &compared(&sums, &analyzed(&[runs::named("ompi-rc-ring2").sink()])).ranks[0];
    assert_eq!(row.verdict, CrosscheckVerdict::Unexplained, "{row:?}");
}
