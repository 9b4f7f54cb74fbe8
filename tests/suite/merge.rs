//! Merged partial profiles equal one analysis of all captures, byte for byte. The captures have the
//! same paths in both, so no part of a profile is excluded, not even its data for the next merge.

use crate::align::{ClockSetting, port, set};
use crate::runs::{self, RecordedRun, decompressed};
use crate::tools::{HEADER_BYTES, ibscope, ibscope_fed, in_parallel, walk};
use ibscope::model::profile::{ConnectionRow, CoverageState, TimelineRow, Traffic};
use ibscope::model::{Profile, TrafficKind};
use ibscope::pipeline::{
    self, AnalysisLimits, AnalysisMeasures, AnalysisOptions, ClockOptions, MergeError, ProfileWriter,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of the ERF header of the records of a sink; it numbers them.
const ERF_HEADER_BYTES: usize = 16;

pub(crate) fn partial() -> AnalysisOptions {
    AnalysisOptions { keep_parts: true, threads: 2, ..AnalysisOptions::default() }
}

fn write(profile: &Profile, place: &Path) -> PathBuf {
    ProfileWriter::create(place, &[]).expect("place").finish(profile).expect("written");
    place.to_owned()
}

pub(crate) fn analyzed(captures: &[PathBuf], options: &AnalysisOptions, place: &Path) -> PathBuf {
    write(&pipeline::analyze(captures, options, &|_| {}).expect("profile"), place)
}

pub(crate) fn merged(profiles: &[PathBuf], place: &Path) -> PathBuf {
    let options = AnalysisOptions { threads: 2, ..AnalysisOptions::default() };
    write(&pipeline::merge(profiles, &options).unwrap_or_else(|error| panic!("{profiles:?}: {error}")), place)
}

/// All files of a profile.
fn files(place: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(place).expect("profile").map(|entry| entry.expect("entry").path());
    let name = |path: &Path| path.file_name().expect("name").to_string_lossy().into_owned();
    entries.map(|path| (name(&path), std::fs::read(&path).expect("file"))).collect()
}

pub(crate) fn assert_same(case: &str, one: &Path, other: &Path) {
    let (one, other) = (files(one), files(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{case}");
    assert!(
        one.contains_key("parts.bin") && one.len() == 14 + usize::from(one.contains_key("senders.parquet")),
        "{case}: {:?}",
        one.keys()
    );
    let text = |files: &BTreeMap<String, Vec<u8>>| String::from_utf8(files["profile.json"].clone()).expect("text");
    let (one_text, other_text) = (text(&one), text(&other));
    let different = one_text.lines().zip(other_text.lines()).find(|(one, other)| one != other);
    let tables: Vec<_> = one.iter().filter(|(name, bytes)| other[*name] != **bytes).map(|(name, _)| name).collect();
    assert!(tables.is_empty(), "{case}: {tables:?} differ; {different:?}");
}

/// Options that read each of the captures as a stream of its own, like one that is analyzed alone.
pub(crate) fn apart(captures: &[PathBuf], options: &AnalysisOptions) -> AnalysisOptions {
    streams(&alone(captures), options)
}

/// Options that read each group of captures as one stream. The packets do not show which of two captures
/// with the same packets a file continues.
fn streams(groups: &[Vec<PathBuf>], options: &AnalysisOptions) -> AnalysisOptions {
    let of_group = |(number, group): (usize, &Vec<PathBuf>)| -> Vec<(PathBuf, String)> {
        group.iter().map(|path| (path.clone(), number.to_string())).collect()
    };
    AnalysisOptions { streams: groups.iter().enumerate().flat_map(of_group).collect(), ..options.clone() }
}

/// Merges the groups of captures, each analyzed separately, and asserts that the result equals one
/// analysis of all, in which no capture continues another.
fn check(case: &str, groups: &[Vec<PathBuf>], options: &AnalysisOptions) {
    let options = apart(&groups.concat(), options);
    check_with(case, groups, &options, &options);
}

/// Merges the groups of captures, each analyzed separately, and asserts that the result equals one
/// analysis of all with the options `of_whole`.
fn check_with(case: &str, groups: &[Vec<PathBuf>], options: &AnalysisOptions, of_whole: &AnalysisOptions) {
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name);
    let mut all: Vec<PathBuf> = groups.concat();
    all.sort();
    let whole = analyzed(&all, of_whole, &place("whole.ibp"));
    let parts: Vec<PathBuf> = groups
        .iter()
        .enumerate()
        .map(|(index, group)| analyzed(group, options, &place(&format!("{index}.ibp"))))
        .collect();
    let backwards: Vec<PathBuf> = parts.iter().rev().cloned().collect();
    assert_same(case, &merged(&backwards, &place("merged.ibp")), &whole);
}

fn alone(captures: &[PathBuf]) -> Vec<Vec<PathBuf>> {
    captures.iter().map(|capture| vec![capture.clone()]).collect()
}

/// Splits a capture by its records into `count` files.
pub(crate) fn cut(capture: &Path, count: usize, folder: &Path) -> Vec<PathBuf> {
    let bytes = decompressed(capture);
    let records = walk(&bytes);
    let name = capture.file_name().expect("name").to_string_lossy().replace(".pcap.zst", "");
    let part = |index: usize| {
        let range = records.len() * index / count..records.len() * (index + 1) / count;
        let own = records[range].iter().flat_map(|record| &bytes[record.place.clone()]);
        let place = folder.join(format!("{name}.{index}.pcap"));
        std::fs::write(&place, bytes[..HEADER_BYTES].iter().chain(own).copied().collect::<Vec<u8>>()).expect("part");
        place
    };
    (0..count).map(part).collect()
}

/// The wanted records of a capture.
fn some(capture: &Path, name: &str, folder: &Path, mut is_wanted: impl FnMut(usize, &[u8]) -> bool) -> PathBuf {
    let bytes = decompressed(capture);
    let wanted = walk(&bytes).into_iter().enumerate().filter(|(index, record)| is_wanted(*index, record.data(&bytes)));
    let own = wanted.flat_map(|(_, record)| bytes[record.place].to_vec());
    let place = folder.join(name);
    std::fs::write(&place, bytes[..HEADER_BYTES].iter().copied().chain(own).collect::<Vec<u8>>()).expect("capture");
    place
}

/// Every recorded run, a profile for each port: the two directions of a connection, and the two
/// observations of a packet, are in two captures.
#[test]
fn runs_split_by_port_merge_to_the_whole() {
    let runs: Vec<RecordedRun> = runs::all().into_iter().filter(|run| run.nodes >= 2).collect();
    assert_eq!(runs.len(), 32);
    in_parallel(&runs, |_, run| check(&run.name, &alone(&run.every_node()), &partial()));
}

/// Every recorded run at its sink, a profile for each third of its time.
#[test]
fn runs_split_by_time_merge_to_the_whole() {
    in_parallel(&runs::all(), |_, run| {
        let folder = tempfile::tempdir().expect("folder");
        check(&run.name, &alone(&cut(&run.sink(), 3, folder.path())), &partial());
    });
}

/// Every recorded run, the capture of each node in three files, a profile for each node: the files of a
/// node are one stream. The numbers are those of the captures in one file each.
#[test]
fn files_of_one_capture_in_one_call_merge_to_the_whole() {
    let runs: Vec<RecordedRun> = runs::all().into_iter().filter(|run| run.nodes >= 2).collect();
    in_parallel(&runs, |_, run| {
        let folder = tempfile::tempdir().expect("folder");
        let nodes = run.every_node();
        let groups: Vec<Vec<PathBuf>> = nodes.iter().map(|node| cut(node, 3, folder.path())).collect();
        check_with(&run.name, &groups, &partial(), &streams(&groups, &partial()));
        let rows = |captures: &[PathBuf]| -> Vec<_> {
            let profile = pipeline::analyze(captures, &streams(&groups, &partial()), &|_| {}).expect("profile");
            let rows = profile.connections.into_iter();
            rows.map(|row| (row.src, row.dst, row.src_qp, row.dest_qp, row.traffic, row.coverage.state)).collect()
        };
        assert_eq!(rows(&groups.concat()), rows(&nodes), "{}", run.name);
    });
}

/// Names do not have to be in the order of time, and a merge of some of the profiles merges further.
#[test]
fn streams_merge_in_any_order_and_grouping() {
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name);
    let run = runs::named("ompi-rc-halo-2x2");
    let [mut first, second] = [1, 2].map(|node| cut(&run.node(node), 3, folder.path()));
    let renamed = folder.path().join("z.pcap");
    std::fs::rename(&first[0], &renamed).expect("renamed");
    first[0] = renamed;
    first.sort();
    let mut all: Vec<PathBuf> = [&first[..], &second].concat();
    all.sort();
    let of_whole = streams(&[first.clone(), second.clone()], &partial());
    let whole = analyzed(&all, &of_whole, &place("whole.ibp"));
    let parts = [analyzed(&first, &partial(), &place("0.ibp")), analyzed(&second, &partial(), &place("1.ibp"))];
    assert_same("both", &merged(&parts, &place("both.ibp")), &whole);
    let one = merged(&parts[..1], &place("one.ibp"));
    assert_same("one", &one, &parts[0]);
    assert_same("nested", &merged(&[parts[1].clone(), one], &place("nested.ibp")), &whole);
}

/// Files of one capture that were analyzed separately are named; captures of two nodes are not.
#[test]
fn files_of_one_capture_are_named_in_a_note() {
    let folder = tempfile::tempdir().expect("folder");
    let run = runs::named("ompi-openib-ring2");
    let notes = |name: &str, captures: &[PathBuf]| -> Vec<String> {
        let parts = (0..).zip(captures).map(|(part, capture)| {
            analyzed(std::slice::from_ref(capture), &partial(), &folder.path().join(format!("{name}{part}.ibp")))
        });
        let parts: Vec<PathBuf> = parts.collect();
        let place = merged(&parts, &folder.path().join(format!("{name}.ibp")));
        let notes = ibscope::profile::read(&place).expect("profile").notes;
        notes.into_iter().filter(|note| note.contains("look like one capture in parts")).collect()
    };
    let thirds = cut(&run.sink(), 3, folder.path());
    let found = notes("thirds", &thirds);
    let [first, last] = [&thirds[0], &thirds[2]].map(|path| path.display().to_string());
    assert!(found.len() == 1 && found[0].starts_with(&format!("{first} to {last} (3 files) ")), "{found:?}");
    assert_eq!(notes("nodes", &run.every_node()), [""; 0]);
}

/// A sink's capture, cut between the two mirror copies of a packet: both parts hold the packet, so
/// the merged profile may count it twice. It must not be complete then.
#[test]
fn packets_in_two_parts_are_not_complete() {
    let names = ["ompi-openib-ring2", "ompi-rc-halo-2x2", "ompi-ud-ring2", "perf-read-lat"];
    in_parallel(&names, |_, name| {
        let folder = tempfile::tempdir().expect("folder");
        let sink = runs::named(name).sink();
        let whole = pipeline::analyze(std::slice::from_ref(&sink), &partial(), &|_| {}).expect("profile");
        let bytes = decompressed(&sink);
        let records = walk(&bytes);
        let packet = |at: usize| records[at].data(&bytes).get(ERF_HEADER_BYTES..);
        // Parts of a few packets do not show that the sink has two ports.
        let middle = records.len() / 4..records.len() * 3 / 4;
        let between_copies: Vec<usize> = middle.filter(|at| packet(at - 1) == packet(*at)).collect();
        let mut repeated = 0;
        for cut in between_copies.iter().step_by(between_copies.len() / 6) {
            let parts = [0, 1].map(|part| {
                let capture = some(&sink, &format!("{part}.pcap"), folder.path(), |at, _| (at < *cut) == (part == 0));
                analyzed(&[capture], &partial(), &folder.path().join(format!("{part}.ibp")))
            });
            let options = AnalysisOptions { threads: 2, ..AnalysisOptions::default() };
            let merged = pipeline::merge(&parts, &options).expect("merged");
            assert_eq!(merged.connections.len(), whole.connections.len(), "{name} at {cut}");
            for (own, of_whole) in merged.connections.iter().zip(&whole.connections) {
                let is_more = own.traffic.packets > of_whole.traffic.packets;
                assert!(!is_more || own.coverage.state == CoverageState::Unknown, "{name} at {cut}: {own:?}");
                repeated += u64::from(is_more);
            }
        }
        assert!(repeated > 0, "{name}");
    });
}

/// A capture of UCX over UD, with a gap between two parts: UCX's numbers show the missing
/// datagrams of each connection that has messages in the second part too.
#[test]
fn datagrams_between_two_parts_are_missing() {
    let others = runs::of_fourth_set().into_iter().filter(|run| run.name.contains("-ud-"));
    let mut captures: Vec<PathBuf> = others.map(|run| run.every_node().remove(0)).collect();
    captures.push(runs::named("ompi-ud-ring2").sink());
    assert_eq!(captures.len(), 3);
    let found = AtomicU64::new(0);
    in_parallel(&captures, |_, capture| {
        let folder = tempfile::tempdir().expect("folder");
        let name = capture.display();
        let whole = pipeline::analyze(std::slice::from_ref(capture), &partial(), &|_| {}).expect("profile");
        let records = walk(&decompressed(capture)).len();
        for (start, gap_records) in (4..17).flat_map(|start| [(start, 3), (start, 30)]) {
            let gap = records * start / 20..records * start / 20 + gap_records;
            let parts = [0, 1].map(|part| {
                some(capture, &format!("{part}.pcap"), folder.path(), |at, _| {
                    if part == 0 { at < gap.start } else { at >= gap.end }
                })
            });
            let options = apart(&parts, &partial());
            let cut = pipeline::analyze(&parts, &options, &|_| {}).expect("profile");
            let second = pipeline::analyze(&parts[1..], &options, &|_| {}).expect("profile");
            let key = |row: &ConnectionRow| (row.src, row.dst, row.src_qp, row.dest_qp, row.kind);
            // UCX numbers the datagrams of messages, and not those that only acknowledge.
            let sums = |row: &ConnectionRow| {
                let Traffic { p2p_messages, p2p_mpi_bytes, collective_messages, collective_mpi_bytes, .. } =
                    row.traffic;
                (p2p_messages + collective_messages, p2p_mpi_bytes + collective_mpi_bytes)
            };
            let of = |profile: &Profile| -> BTreeMap<_, (u64, u64)> {
                profile.connections.iter().map(|row| (key(row), sums(row))).collect()
            };
            let (all, after) = (of(&whole), of(&second));
            let shows_gap = |row: &&ConnectionRow| after.get(&key(row)).is_some_and(|(messages, _)| *messages > 0);
            for row in cut.connections.iter().filter(shows_gap) {
                let is_short = all.get(&key(row)).is_some_and(|whole| sums(row) < *whole);
                let is_complete = row.coverage.state == CoverageState::Complete;
                assert!(!(is_short && is_complete), "{name}, {gap:?}: {row:?}");
                found.fetch_add(is_short.into(), Ordering::Relaxed);
            }
        }
    });
    let found = found.into_inner();
    assert!(found > 10, "{found}");
}

/// Every recorded run, its captures split by time and distributed over three profiles at random.
#[test]
fn runs_split_at_random_merge_to_the_whole() {
    let mut state = 20_261_122u64;
    let mut dealt = |runs: &[RecordedRun]| {
        let deal = |_: &RecordedRun| {
            // Knuth's linear congruential generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        };
        runs.iter().map(deal).collect::<Vec<u64>>()
    };
    let runs = runs::all();
    let seeds = dealt(&runs);
    in_parallel(&runs, |index, run| {
        let folder = tempfile::tempdir().expect("folder");
        let captures = run.every_node().into_iter().flat_map(|capture| cut(&capture, 2, folder.path()));
        let mut groups = vec![Vec::new(); 3];
        for (at, capture) in captures.enumerate() {
            groups[(seeds[index] >> (8 + 5 * at)) as usize % 3].push(capture);
        }
        groups.retain(|group| !group.is_empty());
        check(&run.name, &groups, &partial());
    });
}

/// Two sinks that both captured some of the packets, a sink and a port, and sinks of one direction
/// each.
#[test]
fn packets_at_two_sinks_count_once() {
    let run = runs::named("ompi-openib-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str, is_wanted: &dyn Fn(usize, &[u8]) -> bool| {
        some(&run.sink(), name, folder.path(), |index, data| is_wanted(index, data))
    };
    // SLID, after the ERF header of 16 bytes.
    let source = |data: &[u8]| data.get(22..24).map(|lid| u16::from_be_bytes([lid[0], lid[1]]));
    let [first, second] = [at("a.pcap", &|index, _| index % 7 != 0), at("b.pcap", &|index, _| index % 5 != 0)];
    let [there, back] =
        [at("c.pcap", &|_, data| source(data) == Some(17)), at("d.pcap", &|_, data| source(data) != Some(17))];
    let ports = [17, 18].map(|lid| port(&run.sink(), lid, folder.path()));
    for captures in [
        vec![first.clone(), second],
        vec![there.clone(), back],
        vec![ports[0].clone(), run.sink()],
        vec![ports[0].clone(), ports[1].clone(), first, there],
        ports.to_vec(),
    ] {
        check(&format!("{captures:?}"), &alone(&captures), &partial());
    }
}

/// Six orders of three profiles, merged at once and step by step.
#[test]
fn order_and_grouping_do_not_matter() {
    for name in ["ompi-rc-halo-2x2", "scorep-ompi-openib-coll-2x2", "ompi-rc-loss1-ring2", "ompi-ud-ring2"] {
        let run = runs::named(name);
        let folder = tempfile::tempdir().expect("folder");
        let place = |name: String| folder.path().join(name);
        let halves = cut(&run.node(2), 2, folder.path());
        let captures = [run.node(1), halves[0].clone(), halves[1].clone()];
        let mut sorted = captures.to_vec();
        sorted.sort();
        let whole = analyzed(&sorted, &apart(&sorted, &partial()), &place("whole.ibp".to_owned()));
        let parts =
            [0, 1, 2].map(|index| analyzed(&captures[index..=index], &partial(), &place(format!("{index}.ibp"))));
        for (number, [a, b, c]) in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].iter().enumerate()
        {
            let [a, b, c] = [a, b, c].map(|index: &usize| parts[*index].clone());
            let case = format!("{name}: {a:?} {b:?} {c:?}");
            let at_once = merged(&[a.clone(), b.clone(), c.clone()], &place(format!("{number}.all.ibp")));
            assert_same(&case, &at_once, &whole);
            let two = merged(&[a, b], &place(format!("{number}.two.ibp")));
            assert_same(&case, &merged(&[two, c], &place(format!("{number}.three.ibp"))), &whole);
        }
        // A merge of a single profile is that profile.
        assert_same(name, &merged(&parts[..1], &place("one.ibp".to_owned())), &parts[0]);
    }
}

/// Parts with room for bins that all together do not have, and other options.
#[test]
fn bounds_and_options_equal_those_of_one_analysis() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let cells = |max_cells| AnalysisLimits { max_cells, ..AnalysisLimits::default() };
    let all = AnalysisMeasures::default();
    let options = [
        AnalysisOptions { limits: cells(300), ..partial() },
        AnalysisOptions { limits: cells(40), bin_ns: Some(1_000_000), ..partial() },
        AnalysisOptions { measures: AnalysisMeasures { mpi: false, ..all }, ..partial() },
        AnalysisOptions { measures: AnalysisMeasures { times: false, ..all }, ..partial() },
        AnalysisOptions {
            bin_ns: None,
            measures: AnalysisMeasures { icrc: false, health: false, sizes: false, ..all },
            ..partial()
        },
        AnalysisOptions { clocks: ClockOptions { align: false, ..ClockOptions::default() }, ..partial() },
    ];
    for (index, options) in options.iter().enumerate() {
        check(&format!("options {index}"), &alone(&run.every_node()), options);
    }
    let few = pipeline::analyze(&run.every_node(), &options[1], &|_| {}).expect("profile");
    let one = pipeline::analyze(&run.every_node()[..1], &options[1], &|_| {}).expect("profile");
    assert!(few.bin_ns > one.bin_ns && one.bin_ns > 1_000_000, "{} {}", few.bin_ns, one.bin_ns);
}

/// Senders keep narrow bins where those of pairs get wide, with the same sums. A merge has the same.
#[test]
fn senders_have_the_sums_of_their_pairs_in_narrower_bins() {
    let run = runs::named("ompi-openib-mixed-2x2");
    let few = AnalysisLimits { max_cells: 50, ..AnalysisLimits::default() };
    let options = AnalysisOptions { limits: few, bin_ns: Some(1_000_000), ..partial() };
    check("few rows", &alone(&run.every_node()), &options);
    let whole = AnalysisOptions { bin_ns: options.bin_ns, ..AnalysisOptions::default() };
    let [few, mut whole] =
        [&options, &whole].map(|options| pipeline::analyze(&run.every_node(), options, &|_| {}).expect("profile"));
    assert_eq!((whole.bin_ns, whole.sender_bin_ns, whole.senders.len()), (1_000_000, 0, 0));
    assert!(
        few.bin_ns > few.sender_bin_ns && few.sender_bin_ns >= whole.bin_ns,
        "{} {}",
        few.bin_ns,
        few.sender_bin_ns
    );
    assert!(few.timeline.len() <= 50 && few.senders.len() <= 50, "{} {}", few.timeline.len(), few.senders.len());
    let by_sender = |profile: &Profile, rows: &[TimelineRow], bin_ns: i64| {
        let mut sums: BTreeMap<_, Traffic> = BTreeMap::new();
        for row in rows {
            let connection = &profile.connections[row.connection as usize];
            if connection.kind == TrafficKind::Data {
                let key = (connection.src, connection.class, connection.job, row.time_ns.div_euclid(bin_ns));
                *sums.entry(key).or_default() += row.traffic;
            }
        }
        sums
    };
    let width_ns = few.sender_bin_ns;
    assert_eq!(by_sender(&few, &few.senders, width_ns), by_sender(&whole, &whole.timeline, width_ns));
    // A window and the ranks of a map need connections again, or whole bins of both.
    whole.drop_senders();
    assert_eq!(whole.sender_series().1, 1_000_000);
}

/// The data for a merge do not depend on threads, and storing them changes nothing else.
#[test]
fn parts_do_not_depend_on_threads() {
    let run = runs::named("ompi-openib-mixed-2x2");
    let of = |captures: &[PathBuf], threads: usize, keep_parts: bool| {
        let options = AnalysisOptions { threads, keep_parts, ..AnalysisOptions::default() };
        pipeline::analyze(captures, &options, &|_| {}).expect("profile")
    };
    for captures in [vec![run.sink()], run.every_node()] {
        let (one, many) = (of(&captures, 1, true), of(&captures, 5, true));
        assert!(one.parts.is_some());
        assert_eq!(one, many);
        assert_eq!(Profile { parts: None, ..one }, of(&captures, 2, false));
    }
}

/// A clock 3 s ahead: the merge fails and returns the clock; analyzed with it, the parts merge to
/// the whole. If the clock was found by way of other captures, some of the parts can be merged
/// alone as well.
#[test]
fn clocks_that_differ_are_found_and_returned() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let clock = |ahead_ns, ppm| ClockSetting { ahead_ns, ppm, resolution_ns: 1 };
    let captures: Vec<PathBuf> = [clock(0, 0.0), clock(3_000_000_000, 20.0), clock(-7_000_000, 0.0), clock(0, 0.0)]
        .into_iter()
        .zip(1..)
        .map(|(clock, node)| set(&run.node(node), clock, folder.path()).0)
        .collect();
    let place = |name: &str| folder.path().join(name);
    let whole = analyzed(&captures, &partial(), &place("whole.ibp"));
    let parts = |options: &AnalysisOptions, name: &str| -> Vec<PathBuf> {
        let part = |(index, capture): (usize, &PathBuf)| {
            analyzed(std::slice::from_ref(capture), options, &place(&format!("{name}{index}.ibp")))
        };
        captures.iter().enumerate().map(part).collect()
    };
    let Err(MergeError::UnalignedClocks { clocks }) =
        pipeline::merge(&parts(&partial(), "first"), &AnalysisOptions::default())
    else {
        panic!("the clocks differ");
    };
    let names: Vec<&str> = clocks.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, [&captures[1], &captures[2]].map(|path| path.to_str().expect("path")));
    // The same clocks as when written to a file and read back.
    let with_clocks = |found| AnalysisOptions {
        clocks: ClockOptions { from_merge: Some(found), ..ClockOptions::default() },
        ..partial()
    };
    let found = with_clocks(pipeline::parse_clocks(&pipeline::clocks_csv(&clocks)).expect("clocks"));
    let again = parts(&found, "again");
    // The data for the next merge contain the clocks of the analysis, so they differ.
    let assert_same = |profile: PathBuf| {
        let (found, whole) = (pipeline::load(&profile).expect("profile"), pipeline::load(&whole).expect("profile"));
        assert_eq!(found.inputs, whole.inputs);
        assert!(found == whole, "{:?} {:?}", found.notes, whole.notes);
    };
    assert_same(merged(&again, &place("merged.ibp")));
    let two = merged(&again[1..3], &place("two.ibp"));
    assert_same(merged(&[again[0].clone(), two, again[3].clone()], &place("merged.ibp")));
    // An unnecessary correction is an error too.
    let straight = runs::named("ompi-rc-ring2");
    let wrong = with_clocks([(straight.node(2), (clocks[0].1, clocks[0].2))].into());
    let pair = [
        analyzed(&[straight.node(1)], &partial(), &place("straight.ibp")),
        analyzed(&[straight.node(2)], &wrong, &place("wrong.ibp")),
    ];
    assert!(
        matches!(pipeline::merge(&pair, &AnalysisOptions::default()), Err(MergeError::UnalignedClocks { clocks }) if clocks.is_empty())
    );
}

/// A sink that captured nothing of the job is a valid part.
#[test]
fn a_capture_without_infiniband_is_a_part() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let tcp = some(&run.node(1), "tcp.pcap", folder.path(), |_, data| !runs::is_roce(data));
    check("no InfiniBand", &alone(&[run.node(1), run.node(2), tcp]), &partial());
}

/// The commands, and their errors.
#[test]
fn the_command_reports_errors() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let [one, other, all] = ["one.ibp", "other.ibp", "all.ibp"].map(place);
    let captures = run.every_node().into_iter().map(|path| path.to_str().expect("path").to_owned()).collect::<Vec<_>>();
    let go = |arguments: &[&str]| ibscope(arguments);
    let analyze = |capture: &str, place: &str, more: &[&str]| {
        let ran = go(&[&["analyze", capture, "-o", place], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    analyze(&captures[0], &one, &["--partial"]);
    analyze(&captures[1], &other, &[]);
    let ran = go(&["merge", &one, &other, "-o", &all]);
    assert!(
        ran.code == 1 && ran.stderr.contains("other.ibp: has no data for a merge") && ran.stderr.contains("--partial"),
        "{}",
        ran.stderr
    );
    analyze(&captures[1], &other, &["--partial", "--bin", "1ms"]);
    let ran = go(&["merge", &one, &other, "-o", &all]);
    assert!(ran.code == 1 && ran.stderr.contains("--bin"), "{}", ran.stderr);
    let ran = go(&["merge", &one, &one, "-o", &all]);
    assert!(ran.code == 1 && ran.stderr.contains("give each capture once"), "{}", ran.stderr);
    for usage in [
        &["analyze", &captures[0], "--partial"][..],
        &["analyze", &captures[0], "-o", &all, "--partial", "--from", "1"],
        &["merge", &one],
    ] {
        assert_eq!(go(usage).code, 2, "{usage:?}");
    }
    assert!(!Path::new(&all).exists());
    // Names and rank maps that only some profiles have, or that contradict each other.
    let hosts = |name: &str, text: &str| {
        let file = place(name);
        std::fs::write(&file, format!("endpoint,name\n{text}\n")).expect("hosts");
        file
    };
    let [left, right] = [hosts("left.csv", "10.77.0.1,left"), hosts("right.csv", "10.77.0.2,right\n10.77.0.1,wrong")];
    analyze(&captures[0], &one, &["--partial", "--hosts", &left]);
    analyze(&captures[1], &other, &["--partial", "--hosts", &right]);
    let ran = go(&["merge", &one, &other, "-o", &all]);
    assert!(
        ran.code == 1 && ran.stderr.contains("endpoint 10.77.0.1 is left in one profile and wrong in another"),
        "{}",
        ran.stderr
    );
    let ran = go(&["merge", &one, &other, "-o", &all, "--hosts", &left]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let names = pipeline::load(Path::new(&all)).expect("profile").names;
    assert_eq!(names.into_values().collect::<Vec<_>>(), ["left", "right"]);
    // The output equals that of `analyze`, but for the command that shows all findings.
    let (summary, findings) = ran.stdout.split_once("findings").expect("findings");
    assert!(findings.contains(&format!("`ibscope diagnose {all}`")), "{findings}");
    let whole = place("whole.ibp");
    let both = hosts("both.csv", "10.77.0.1,left\n10.77.0.2,right");
    let printed = go(&["analyze", &captures[0], &captures[1], "-o", &whole, "--hosts", &both]);
    assert_eq!(printed.stdout.split_once("findings").expect("findings").0, summary);
    // Inputs that can be read only once.
    let bytes = decompressed(&run.node(1));
    let fed = |words: &[&str]| {
        let ran = ibscope_fed(words, &bytes);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    };
    fed(&["analyze", "-", "-o", &one, "--partial"]);
    fed(&["analyze", "-", &captures[1], "-o", &whole, "--partial"]);
    analyze(&captures[1], &other, &["--partial"]);
    assert_eq!(go(&["merge", &other, &one, "-o", &all]).code, 0);
    assert_same("standard input", Path::new(&all), Path::new(&whole));
    // Damaged data.
    let parts = Path::new(&one).join("parts.bin");
    let mut bytes = std::fs::read(&parts).expect("parts");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&parts, bytes).expect("damaged");
    let ran = go(&["merge", &one, &other, "-o", &all]);
    assert!(ran.code == 1 && ran.stderr.contains("parts.bin: damaged"), "{}", ran.stderr);
}
