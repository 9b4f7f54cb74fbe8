//! The command `trace`: valid input for viewers, with the messages of `messages` and of the truth.

use crate::runs;
use crate::tools::{CsvRow, csv_rows, ibscope, result, sample};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

fn events(inputs: &[PathBuf], more: &[&str]) -> (Value, Vec<Value>) {
    let text = result(&[&["trace"], more].concat(), inputs);
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    let Value::Array(events) = document["traceEvents"].take() else { panic!("events") };
    (document, events)
}

fn of<'a>(events: &'a [Value], ph: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == ph).collect()
}

/// The slices of messages, or of collective operations.
fn slices<'a>(events: &'a [Value], category: &str) -> Vec<&'a Value> {
    of(events, "X").into_iter().filter(|slice| slice["cat"] == category).collect()
}

/// A time in nanoseconds.
fn ns(time: &Value) -> i64 {
    (time.as_f64().expect("time") * 1000.0).round() as i64
}

fn track(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().expect("pid"), event["tid"].as_u64().expect("tid"))
}

#[test]
fn slices_nest_and_flows_pair_up() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    for (inputs, transport) in
        [(vec![run.sink()], false), (run.every_node(), true), (vec![sample("ucx-ud-ring2")], false)]
    {
        let more: &[&str] = if transport { &["--transport"] } else { &[] };
        let (_, events) = events(&inputs, more);
        let mut on_track: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
        for slice in of(&events, "X") {
            let start = ns(&slice["ts"]);
            on_track.entry(track(slice)).or_default().push((start, start + ns(&slice["dur"])));
        }
        for of_track in on_track.values_mut() {
            of_track.sort_unstable();
            assert!(of_track.windows(2).all(|pair| pair[0].1 < pair[1].0), "slices of a track overlap");
        }
        let ends = |ph: &str| -> BTreeMap<u64, &Value> {
            let all = of(&events, ph);
            let ends: BTreeMap<u64, &Value> = all.iter().map(|end| (end["id"].as_u64().expect("id"), *end)).collect();
            assert_eq!(ends.len(), all.len(), "an id has one {ph}");
            ends
        };
        let (starts, finishes) = (ends("s"), ends("f"));
        assert!(starts.len() > 20 && starts.keys().eq(finishes.keys()));
        for (start, finish) in starts.values().zip(finishes.values()) {
            assert!(ns(&start["ts"]) <= ns(&finish["ts"]));
            assert_eq!(finish["bp"], "e");
            for end in [start, finish] {
                let at = ns(&end["ts"]);
                assert!(
                    on_track[&track(end)].iter().any(|(from, to)| (*from..=*to).contains(&at)),
                    "{end} is on no slice"
                );
            }
        }
        assert_eq!(slices(&events, "message").len(), 2 * starts.len());
        // Every process and track has a name, and track numbers are unique.
        let named: BTreeSet<(u64, u64)> =
            of(&events, "M").into_iter().filter(|event| event["name"] == "thread_name").map(track).collect();
        assert!(on_track.keys().eq(named.iter()));
        assert_eq!(named.iter().map(|(_, tid)| tid).collect::<BTreeSet<_>>().len(), named.len());
    }
}

/// Messages and bytes by pair of ranks, of the application only: a run without a tracer has no
/// others.
#[test]
fn a_trace_has_the_messages_of_the_truth_at_their_times() {
    let run = runs::named("ompi-openib-notrace-mixed-4x1");
    let (document, events) = events(&[run.sink()], &[]);
    let processes: BTreeMap<u64, String> = of(&events, "M")
        .into_iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| (event["pid"].as_u64().expect("pid"), event["args"]["name"].as_str().expect("name").to_owned()))
        .collect();
    assert_eq!(processes.values().collect::<BTreeSet<_>>().len(), 4);
    let rank = |text: &str| text.strip_prefix("rank ").expect("rank").parse::<u32>().expect("number");
    let mut sums: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    let mut times: Vec<(i64, i64)> = Vec::new();
    let origin_ns = document["otherData"]["start_ns"].as_i64().expect("start");
    for slice in slices(&events, "message") {
        let (from, to) = (&slice["args"]["from"], &slice["args"]["to"]);
        if processes[&track(slice).0] != from.as_str().expect("from") {
            continue;
        }
        let start = origin_ns + ns(&slice["ts"]);
        times.push((start, start + ns(&slice["dur"])));
        if slice["name"].as_str().expect("name").starts_with("point-to-point") {
            let pair = (rank(from.as_str().expect("from")), rank(to.as_str().expect("to")));
            let sum = sums.entry(pair).or_default();
            *sum = (sum.0 + 1, sum.1 + slice["args"]["bytes"].as_u64().expect("bytes"));
        }
    }
    let truth = run.truth("wire.csv").expect("truth");
    assert_eq!(sums, truth.into_iter().filter(|(_, (messages, _))| *messages > 0).collect());
    let csv = result(&["messages", "--format", "csv"], &[run.sink()]);
    let time = |line: &str| {
        let mut fields = line.split(',').map(|field| field.parse::<i64>().expect("time"));
        let (first, last) = (fields.next().expect("first"), fields.next().expect("last"));
        // A slice has at least 1 ns, because viewers do not draw slices without a duration.
        (first, last.max(first + 1))
    };
    let mut expected: Vec<(i64, i64)> = csv
        .lines()
        .skip(1)
        .map(|line| line.splitn(3, ',').take(2).collect::<Vec<_>>().join(","))
        .map(|t| time(&t))
        .collect();
    expected.sort_unstable();
    times.sort_unstable();
    assert_eq!(times, expected);
}

/// The four ranks of the run call 12 barriers, and 10 alltoalls, allreduces and broadcasts; Score-P
/// adds a barrier, and `MPI_Comm_dup` three allreduces. Each rank sends or receives in each of them.
#[test]
fn each_rank_has_a_slice_of_each_operation() {
    let run = runs::named("scorep-ompi-rc-coll-4x1");
    let (document, events) = events(&[run.sink()], &[]);
    let origin_ns = document["otherData"]["start_ns"].as_i64().expect("start");
    let mut of_world: BTreeMap<&str, usize> = BTreeMap::new();
    let mut operations: BTreeMap<(String, u64), Vec<&Value>> = BTreeMap::new();
    for slice in slices(&events, "collective") {
        let communicator = slice["args"]["communicator"].as_str().expect("communicator");
        if communicator == "world" {
            *of_world.entry(slice["name"].as_str().expect("name")).or_default() += 1;
        }
        let number = slice["args"]["instance"].as_u64().expect("number");
        operations.entry((communicator.to_owned(), number)).or_default().push(slice);
    }
    let expected = [("allreduce", 4 * (10 + 3)), ("alltoall", 4 * 10), ("barrier", 4 * (12 + 1)), ("bcast", 4 * 10)];
    assert_eq!(of_world, BTreeMap::from(expected));
    // The slices of an operation are as long as its row, and each is of another process.
    let csv = result(&["collectives", "--view", "instances", "--format", "csv"], &[run.sink()]);
    let rows = csv_rows(&csv);
    assert_eq!(rows.len(), operations.len());
    for row in &rows {
        let key = (row["communicator"].clone(), row["instance"].parse().expect("number"));
        let slices = &operations[&key];
        let times = slices.iter().map(|slice| (ns(&slice["ts"]), ns(&slice["ts"]) + ns(&slice["dur"])));
        let (start, end) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("slices");
        assert_eq!((origin_ns + start).to_string(), row["start_ns"], "{row:?}");
        // The slice of a rank with a single packet has 1 ns.
        let end_ns: i64 = row["end_ns"].parse().expect("time");
        assert!((end_ns..=end_ns + 1).contains(&(origin_ns + end)), "{row:?}");
        let processes: BTreeSet<u64> = slices.iter().map(|slice| track(slice).0).collect();
        assert_eq!(processes.len(), slices.len(), "{row:?}");
        for slice in slices {
            let args = &slice["args"];
            assert_eq!(slice["name"], row["operation"], "{row:?}");
            assert_eq!(
                (&args["algorithm"], &args["confidence"]),
                (&row["algorithm"].clone().into(), &row["confidence"].clone().into())
            );
            assert_eq!(args["bytes"].as_u64().map_or_else(String::new, |bytes| bytes.to_string()), row["bytes"]);
        }
    }
}

/// A slice of a rank begins and ends with packets of messages that the rank sent or received.
#[test]
fn a_slice_reaches_from_the_first_to_the_last_packet_of_the_rank() {
    let run = runs::of_second_set("ompi5-coll-default-4x1");
    let (document, events) = events(&[run.sink()], &[]);
    let origin_ns = document["otherData"]["start_ns"].as_i64().expect("start");
    let csv = result(&["messages", "--format", "csv"], &[run.sink()]);
    let messages = csv_rows(&csv);
    let time = |row: &CsvRow, column: &str| row[column].parse::<i64>().expect("time");
    let mut checked = 0;
    for slice in slices(&events, "collective") {
        let (pid, _) = track(slice);
        let rank = (pid - 10_000).to_string();
        let start = origin_ns + ns(&slice["ts"]);
        let end = start + ns(&slice["dur"]);
        let own = |row: &&CsvRow| row["src_rank"] == rank || row["dst_rank"] == rank;
        let has = |column: &str, at: i64| messages.iter().filter(own).any(|row| time(row, column) == at);
        assert!(end > start, "{slice}");
        let is_single_packet = end == start + 1;
        assert!(has("first_time_ns", start) && (has("last_time_ns", end) || is_single_packet), "{slice}");
        checked += 1;
    }
    assert!(checked >= 4 * 53, "{checked} slices");
}

#[test]
fn operations_beyond_the_limit_and_of_samples_are_noted() {
    let path = runs::of_second_set("ompi5-coll-default-4x1").sink();
    let place = path.to_str().expect("path");
    let of_messages = of(&events(std::slice::from_ref(&path), &[]).1, "s").len() * 4;
    let most = (of_messages + 9).to_string();
    let ran = ibscope(["trace", "--max-events", &most, place]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let shown = slices(document["traceEvents"].as_array().expect("events"), "collective").len();
    assert_eq!(shown, 8, "two operations of four ranks");
    assert!(ran.stderr.contains("collective operations are left out by --max-events"), "{}", ran.stderr);
    let sampled = ibscope(["trace", "--sampled", "1/10", place]);
    let document: Value = serde_json::from_str(&sampled.stdout).expect("JSON");
    assert_eq!(slices(document["traceEvents"].as_array().expect("events"), "collective").len(), 0);
    assert!(sampled.stderr.contains("no collective operations: the mirror sampled"), "{}", sampled.stderr);
}

/// Captures of two of the four ports: the messages of most operations are missing in part.
#[test]
fn operations_that_the_messages_do_not_show_have_no_slices() {
    let run = runs::of_second_set("ompi5-coll-default-4x1");
    let slices_of = |inputs: &[PathBuf]| {
        let ran = ibscope(std::iter::once(PathBuf::from("trace")).chain(inputs.iter().cloned()));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for slice in slices(document["traceEvents"].as_array().expect("events"), "collective") {
            assert_ne!(slice["args"]["confidence"], "unknown", "{slice}");
            *names.entry(slice["name"].as_str().expect("name").to_owned()).or_default() += 1;
        }
        (names, ran.stderr)
    };
    let (whole, _) = slices_of(&run.every_node());
    let (part, notes) = slices_of(&[run.node(1), run.node(2)]);
    assert!(!part.is_empty() && part.iter().all(|(name, found)| found <= &whole[name]), "{part:?} {whole:?}");
    assert!(notes.contains("are left out, because their messages match no known algorithm"), "{notes}");
}

#[test]
fn captures_without_mpi_point_to_the_transport_messages() {
    let sink = runs::named("perf-read-lat").sink();
    let place = sink.to_str().expect("path");
    let ran = ibscope(["trace", place]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("no MPI messages, so the trace is empty; --transport"), "{}", ran.stderr);
    let ran = ibscope(["trace", "--transport", place]);
    assert!(!ran.stderr.contains("no MPI messages"), "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    assert!(slices(events, "message").iter().all(|slice| ns(&slice["dur"]) > 0));
    assert!(!slices(events, "message").is_empty());
}

#[test]
fn no_more_events_than_wanted_and_a_note() {
    let path = sample("openib-mixed-4x1");
    let all = events(std::slice::from_ref(&path), &[]).1;
    let messages = of(&all, "s").len();
    let ran = ibscope(["trace", "--max-events", "41", path.to_str().expect("path")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    assert_eq!(events.iter().filter(|event| event["ph"] != "M").count(), 40);
    assert!(ran.stderr.contains(&format!("{} of {messages} are left out", messages - 10)), "{}", ran.stderr);
}

#[test]
fn a_profile_gives_the_rate_of_each_rank() {
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    let path = sample("openib-mixed-4x1");
    let place = profile.to_str().expect("path");
    result(&["analyze", "--bin", "10ms", "-o", place], std::slice::from_ref(&path));
    let trace = folder.path().join("trace.json");
    let ran = ibscope(["trace", place, "-o", trace.to_str().expect("path")]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("give the captures"), "{}", ran.stderr);
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&trace).expect("trace")).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    // The bytes sent are the rate times the width of a bin.
    let sent: f64 =
        of(events, "C").iter().map(|event| event["args"]["wire bytes/s"].as_f64().expect("rate") * 0.01).sum();
    let csv = result(&["matrix", "--format", "csv"], &[path]);
    let expected: u64 =
        csv.lines().skip(1).map(|line| line.split(',').nth(5).expect("wire").parse::<u64>().expect("bytes")).sum();
    assert_eq!(sent.round() as u64, expected);
}
