//! Captures with missing or duplicate packets. The tests know the missing packets, and therefore
//! the expected verdicts.

use super::{Description, archive, noted_sends, read, with_captures, with_profile};
use crate::health::{steps, without};
use crate::recorded::{every_way, node};
use crate::runs::{self, decompressed, is_roce};
use crate::tools::{HEADER_BYTES, in_parallel, random, walk};
use ibscope::crosscheck::{
    Cause, Crosscheck, CrosscheckOptions, CrosscheckVerdict, MessageSums, PairComparison, RankSums, crosscheck_sums,
};
use ibscope::model::{MessageRow, Verb};
use ibscope::pipeline::{self, AnalysisOptions, analyze};
use ibscope_parsers::mpi::Identity;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::truncate;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Identity of a packet on a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LossPosition {
    /// Responses have the PSNs of the opposite direction.
    is_request: bool,
    /// Source and destination node, and the receiver's queue pair.
    ends: (u8, u8, u32),
    psn: u32,
}

/// A packet of a reliable connection: its identity, and its bytes from the BTH on without
/// checksums, which are equal in all files.
fn packet(frame: &[u8], is_sink: bool) -> Option<(LossPosition, &[u8])> {
    // ERF 16, LRH 8, VCRC 2; or Ethernet 14, IPv4 20, UDP 8. The ICRC has 4.
    let (src, dst, body) = if is_sink {
        (frame[23] - 16, frame[19] - 16, &frame[24..frame.len() - 6])
    } else if is_roce(frame) {
        (frame[29], frame[33], &frame[42..frame.len() - 4])
    } else {
        return None;
    };
    let number = |at: usize| u32::from_be_bytes([0, body[at], body[at + 1], body[at + 2]]);
    let is_reliable = body[0] >> 5 == 0 && number(5) > 1;
    let is_request = !(0x0D..=0x12).contains(&body[0]);
    is_reliable.then(|| (LossPosition { is_request, ends: (src, dst, number(5)), psn: number(9) }, body))
}

/// The files without some packets, each with all its copies and retransmissions; and the identities
/// of the dropped packets.
fn lossy(folder: &Path, paths: &[PathBuf], one_in: u64, seed: u64) -> (Vec<PathBuf>, BTreeSet<LossPosition>) {
    let is_lost = |body: &[u8]| {
        let mut hasher = DefaultHasher::new();
        (seed, body).hash(&mut hasher);
        hasher.finish().is_multiple_of(one_in)
    };
    let mut lost = BTreeSet::new();
    let write = |(index, path): (usize, &PathBuf)| {
        let file = decompressed(path);
        let is_sink = path.ends_with("sink.ib.pcap.zst");
        let mut deleted = BTreeSet::new();
        for (record, raw) in walk(&file).iter().enumerate() {
            if let Some((place, _)) = packet(raw.data(&file), is_sink).filter(|(_, body)| is_lost(body)) {
                deleted.insert(record);
                lost.insert(place);
            }
        }
        let cut = folder.join(format!("{seed}-{index}.pcap"));
        std::fs::write(&cut, without(&file, &deleted)).expect("written");
        cut
    };
    (paths.iter().enumerate().map(write).collect(), lost)
}

/// Messages of the program that lost packets, by pair of ranks.
#[derive(Debug, Default)]
struct Losses {
    /// The envelope was in a lost packet.
    certain: CountByPair,
    /// Any packet was lost.
    possible: CountByPair,
    /// The envelope was lost together with everything before it on the connection: the capture does
    /// not show the loss.
    hidden: CountByPair,
}

type CountByPair = BTreeMap<(u32, u32), u64>;

/// The losses, from the messages and packets of the whole captures, and the requests that are left.
fn losses(paths: &[PathBuf], cut: &[PathBuf], lost: &BTreeSet<LossPosition>, is_scorep: bool) -> Losses {
    let mut firsts: BTreeMap<(u8, u8, u32), u32> = BTreeMap::new();
    for (path, whole) in cut.iter().zip(paths) {
        let file = std::fs::read(path).expect("capture");
        let is_sink = whole.ends_with("sink.ib.pcap.zst");
        let packets = walk(&file);
        let places = packets.iter().filter_map(|raw| Some(packet(raw.data(&file), is_sink)?.0));
        for LossPosition { ends, psn, .. } in places.filter(|place| place.is_request) {
            let first = firsts.entry(ends).or_insert(psn);
            *first = if steps(psn, *first) > 0 { psn } else { *first };
        }
    }
    let options = AnalysisOptions { bin_ns: None, ..AnalysisOptions::default() };
    let mut stream = pipeline::messages(paths, &options, false, &|_| {}).expect("messages");
    let rows: Vec<_> = stream.by_ref().map(|row| row.expect("row")).collect();
    let profile = stream.profile();
    let mut losses = Losses::default();
    for row in rows.iter().filter(|row| row.identity().is_some_and(|identity| !identity.collective)) {
        let is_tracers = row.identity().is_some_and(|identity| may_be_tracers(identity, row.dst_rank, is_scorep));
        let (Some(src), Some(dst)) = (row.src_rank, row.dst_rank) else { continue };
        let connection = &profile.connections[row.connection as usize];
        let ends = (node(connection.src), node(connection.dst), connection.dest_qp.value());
        let is_lost = |step: u64| {
            let psn = (u64::from(row.raw.psn) + step) as u32 & 0xFF_FFFF;
            lost.contains(&LossPosition { is_request: true, ends, psn })
        };
        // The fragments of an eager message follow the first one.
        let pieces = if row.raw.transfer_verb == Verb::Send { row.raw.packets } else { 1 };
        let is_hidden = firsts.get(&ends).is_none_or(|first| steps(row.raw.psn, *first) > 0);
        for (counts, of) in [
            (is_lost(0) && !is_tracers, &mut losses.certain),
            ((0..pieces).any(is_lost), &mut losses.possible),
            (is_lost(0) && is_hidden, &mut losses.hidden),
        ] {
            *of.entry((src, dst)).or_default() += u64::from(counts);
        }
    }
    losses
}

/// True for messages that may be a tracer's own, which are not in its trace: Score-P's are on the
/// duplicate of `MPI_COMM_WORLD` with context 3, eztrace's go to rank 0 with these tags.
fn may_be_tracers(identity: &Identity, dst: Option<u32>, is_scorep: bool) -> bool {
    if is_scorep { identity.context == 3 } else { dst == Some(0) && [17, 18].contains(&identity.tag) }
}

/// Messages in the trace that the wire does not have; the tracer's own do not count.
fn missing_on_wire(pair: &PairComparison) -> u64 {
    pair.trace.messages.saturating_sub(pair.wire.messages - pair.tracer.messages)
}

/// Reliable connections, all libraries, one and two processes per node.
const RUNS: [&str; 8] = [
    "ompi-rc-ring2",
    "ompi-openib-mixed-2x2",
    "ompi-rc-mixed-2x2",
    "mpich-rc-mixed-2x2",
    "ompi-rc-halo-2x2",
    "scorep-ompi-rc-mixed-2x2",
    "scorep-ompi-rc-halo-4x1",
    "scorep-ompi-rc-comm-4x1",
];

#[test]
fn losses_of_the_capture_are_reported_as_losses() {
    let (certain, without_gap) = (AtomicU64::new(0), AtomicU64::new(0));
    in_parallel(&RUNS, |_, name| {
        let run = runs::named(name);
        let trace = read(&archive(&run).expect("archive"));
        for (seed, paths) in (0..).zip(every_way(&run)) {
            let folder = tempfile::tempdir().expect("folder");
            let (cut, lost) = lossy(folder.path(), &paths, 15, seed);
            let losses = losses(&paths, &cut, &lost, name.starts_with("scorep"));
            certain.fetch_add(losses.certain.values().sum(), Ordering::Relaxed);
            let profile = analyze(&cut, &AnalysisOptions::default(), &|_| {}).expect("profile");
            for result in [with_profile(&trace, &profile).expect("compared"), with_captures(&trace, &cut)] {
                without_gap.fetch_add(assert_losses(&format!("{name}, {seed}"), &result, &losses), Ordering::Relaxed);
            }
        }
    });
    assert!(certain.into_inner() > 100);
    assert!(without_gap.into_inner() > 0, "first messages of connections are among the lost");
}

/// Checks each pair against the losses; returns the number of pairs whose losses leave no gap between PSNs.
fn assert_losses(case: &str, result: &Crosscheck, losses: &Losses) -> u64 {
    let mut without_gap = 0;
    for pair in &result.pairs {
        let of = |messages: &CountByPair| messages.get(&(pair.src, pair.dst)).copied().unwrap_or(0);
        let (certain, possible, hidden) = (of(&losses.certain), of(&losses.possible), of(&losses.hidden));
        let case = format!("{case}: {certain} to {possible} lost, {hidden} of them hidden: {pair:?}");
        // If PSNs do not show a loss, the counts of the receiver's ACKs may.
        let is_lost = [Cause::Lost, Cause::Incomplete].iter().any(|cause| pair.causes.contains(cause));
        assert!(!is_lost || possible > 0, "{case}");
        if pair.causes.contains(&Cause::SameNode) {
            assert_eq!((pair.verdict, is_lost), (CrosscheckVerdict::Explained, false), "{case}");
            continue;
        }
        assert!((certain..=possible).contains(&missing_on_wire(pair)), "{case}");
        let known = [Cause::Lost, Cause::Incomplete, Cause::Tracer, Cause::Retransmission];
        assert!(pair.causes.iter().all(|cause| known.contains(cause)), "{case}");
        if pair.verdict == CrosscheckVerdict::Unexplained {
            assert!(hidden > 0, "{case}");
            without_gap += 1;
        } else {
            without_gap += u64::from(pair.causes.contains(&Cause::Incomplete));
            assert!(is_lost || missing_on_wire(pair) == 0, "{case}");
            assert_eq!(pair.excess(), (0, 0), "{case}");
        }
    }
    without_gap
}

/// With the same lossy captures, a trace with an additional message on a pair without losses: the
/// losses of other pairs do not explain it.
#[test]
fn losses_do_not_explain_other_differences() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let folder = tempfile::tempdir().expect("folder");
    let (cut, lost) = lossy(folder.path(), &[run.sink()], 15, 3);
    let losses = losses(&[run.sink()], &cut, &lost, false);
    let profile = analyze(&cut, &AnalysisOptions::default(), &|_| {}).expect("profile");
    let truth = run.truth("truth.csv").expect("truth");
    let mut kept = 0;
    for pair in truth.keys().copied().filter(|(src, dst)| src != dst) {
        // More messages than packets were lost between the two.
        let ends = [pair.0, pair.1].map(|rank| rank as u8 + 1);
        let is_between = |place: &&LossPosition| ends.contains(&place.ends.0) && ends.contains(&place.ends.1);
        let more = 1 + lost.iter().filter(is_between).count();
        let mut sends = noted_sends(&run);
        let first_ns = sends[0].0;
        sends.extend((0..more).map(|_| (first_ns, pair.0, pair.1, 7, 64)));
        let mut description = Description::new(4, 1);
        description.sends(&sends);
        let trace = read(&description.write(&folder.path().join(format!("{}-{}", pair.0, pair.1))));
        let result = with_profile(&trace, &profile).expect("compared");
        for found in &result.pairs {
            let is_it = (found.src, found.dst) == pair;
            let hidden = losses.hidden.get(&(found.src, found.dst)).copied().unwrap_or(0);
            assert!(!is_it || found.verdict == CrosscheckVerdict::Unexplained, "{found:?}");
            assert!(is_it || hidden > 0 || found.verdict != CrosscheckVerdict::Unexplained, "{found:?}");
        }
        kept += u32::from(losses.certain[&pair] == 0);
    }
    assert!(kept > 0, "pairs that lost nothing are among them");
}

/// A snap length that truncates the headers of rendezvous messages: the capture holds them, without their
/// lengths.
#[test]
fn truncated_messages_are_incomplete_and_explained() {
    let run = runs::named("scorep-ompi-rc-mixed-2x2");
    let trace = read(&archive(&run).expect("archive"));
    let folder = tempfile::tempdir().expect("folder");
    let truncated = |path: &PathBuf| {
        let place = folder.path().join(path.with_extension("").file_name().expect("name"));
        truncate(&Recording::read(path).expect("capture"), 64).write(&place).expect("written");
        place
    };
    let captures: Vec<PathBuf> = run.every_node().iter().map(truncated).collect();
    let result = with_captures(&trace, &captures);
    let incomplete = result.pairs.iter().filter(|pair| pair.causes.contains(&Cause::Incomplete));
    let incomplete: Vec<&PairComparison> = incomplete.collect();
    assert_eq!(incomplete.len(), 6, "{:?}", result.pairs);
    for pair in &result.pairs {
        assert_ne!(pair.verdict, CrosscheckVerdict::Unexplained, "{pair:?}");
    }
    // The trace has eight rendezvous messages between the nodes.
    assert_eq!(incomplete.iter().map(|pair| missing_on_wire(pair)).sum::<u64>(), 8);
    // The profile of the same run.
    let sums = super::profiles::sums(&run.folder.join("trace/profile.cubex"));
    let profile = analyze(&captures, &AnalysisOptions::default(), &|_| {}).expect("profile");
    let result = crosscheck_sums(&sums, &profile, None, &CrosscheckOptions::default()).expect("compared");
    let is_incomplete = |row: &&RankSums| row.causes.contains(&Cause::Incomplete);
    let ends = |of: fn(&PairComparison) -> u32| incomplete.iter().map(|pair| of(pair)).collect::<BTreeSet<u32>>().len();
    assert_eq!(result.ranks.iter().filter(is_incomplete).count(), ends(|pair| pair.src) + ends(|pair| pair.dst));
    for row in &result.ranks {
        assert_ne!(row.verdict, CrosscheckVerdict::Unexplained, "{row:?}");
    }
}

/// The files from a time on, or up to it.
fn cut_at(folder: &Path, paths: &[PathBuf], keeps: impl Fn(i64) -> bool) -> Vec<PathBuf> {
    let write = |(index, path): (usize, &PathBuf)| {
        let file = decompressed(path);
        let deleted =
            walk(&file).iter().enumerate().filter(|(_, raw)| !keeps(raw.time_ns)).map(|(record, _)| record).collect();
        let cut = folder.join(format!("cut-{index}.pcap"));
        std::fs::write(&cut, without(&file, &deleted)).expect("written");
        cut
    };
    paths.iter().enumerate().map(write).collect()
}

/// Longest time between the observations at two ports.
const BETWEEN_NS: i64 = 2_000_000;

#[test]
fn messages_before_or_after_the_capture_are_explained_and_no_others() {
    let names =
        ["ompi-rc-ring2", "ompi-openib-ring2", "mpich-rc-ring2", "scorep-ompi-rc-mixed-2x2", "scorep-ompi-rc-ring-2x1"];
    in_parallel(&names, |_, name| {
        let run = runs::named(name);
        let trace = read(&archive(&run).expect("archive"));
        let paths = run.every_node();
        let options = AnalysisOptions { bin_ns: None, ..AnalysisOptions::default() };
        let stream = pipeline::messages(&paths, &options, false, &|_| {}).expect("messages");
        let is_scorep = name.starts_with("scorep");
        let is_programs = |row: &MessageRow| {
            let identity = row.identity().expect("MPI");
            !identity.collective && !may_be_tracers(identity, row.dst_rank, is_scorep)
        };
        let rows: Vec<MessageRow> = stream.map(|row| row.expect("row")).filter(is_programs).collect();
        let mut times: Vec<i64> = rows.iter().map(|row| row.raw.times_ns.0).collect();
        times.sort_unstable();
        // At least half of the messages stay: the detection of a library needs many.
        for (is_start, percents) in [(true, [25, 50]), (false, [50, 75])] {
            for percent in percents {
                let at_ns = times[times.len() * percent / 100] + 1;
                let folder = tempfile::tempdir().expect("folder");
                let keeps = |time_ns: i64| (time_ns >= at_ns) == is_start;
                let cut = cut_at(folder.path(), &paths, keeps);
                let result = with_captures(&trace, &cut);
                for pair in result.pairs.iter().filter(|pair| !pair.causes.contains(&Cause::SameNode)) {
                    let of_pair =
                        || rows.iter().filter(|row| (row.src_rank, row.dst_rank) == (Some(pair.src), Some(pair.dst)));
                    let count = |is_cut: &dyn Fn((i64, i64)) -> bool| {
                        of_pair().filter(|row| is_cut(row.raw.times_ns)).count() as u64
                    };
                    // The two ports observe a packet one after the other.
                    let is_out = |time_ns: i64| !keeps(time_ns - BETWEEN_NS) && !keeps(time_ns + BETWEEN_NS);
                    let is_near = |time_ns: i64| !keeps(time_ns - BETWEEN_NS) || !keeps(time_ns + BETWEEN_NS);
                    let certain = count(&|(first_ns, _)| is_out(first_ns));
                    let possible = count(&|(first_ns, last_ns)| is_near(first_ns) || is_near(last_ns));
                    let case = format!("{name}, {percent} %, {is_start}: {certain} to {possible} outside: {pair:?}");
                    assert_ne!(pair.verdict, CrosscheckVerdict::Unexplained, "{case}");
                    assert!((certain..=possible).contains(&missing_on_wire(pair)), "{case}");
                    assert_eq!(pair.causes.contains(&Cause::OutsideCapture), missing_on_wire(pair) > 0, "{case}");
                    assert!(!pair.causes.contains(&Cause::Lost), "{case}");
                }
                assert!(result.pairs.iter().any(|pair| pair.causes.contains(&Cause::OutsideCapture)), "{name}");
            }
        }
    });
}

/// Some requests occur twice in the capture of a port, 2 ms apart, as if they had been
/// retransmitted.
#[test]
fn retransmissions_are_reported_and_count_once() {
    let run = runs::named("ompi-rc-ring2");
    let trace = read(&archive(&run).expect("archive"));
    let file = decompressed(&run.node(1));
    let mut random = random(11);
    let (mut records, mut again): (Vec<(i64, Vec<u8>)>, [u64; 2]) = (Vec::new(), [0; 2]);
    for raw in walk(&file) {
        let frame = raw.data(&file);
        records.push((raw.time_ns, frame.to_vec()));
        if let Some((place, _)) = packet(frame, false)
            && place.is_request
            && random(20) == 0
        {
            records.push((raw.time_ns + 2_000_000, frame.to_vec()));
            again[usize::from(place.ends.0) - 1] += frame.len() as u64;
        }
    }
    records.sort_by_key(|record| record.0);
    let mut bytes = file[..HEADER_BYTES].to_vec();
    for (time_ns, frame) in &records {
        for word in
            [(time_ns / 1_000_000_000) as u32, (time_ns % 1_000_000_000) as u32, frame.len() as u32, frame.len() as u32]
        {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("again.pcap");
    std::fs::write(&path, bytes).expect("written");
    let result = with_captures(&trace, &[path]);
    assert_eq!(result.pairs.len(), 2);
    for pair in &result.pairs {
        assert!(again[pair.src as usize] > 0);
        assert_eq!(pair.retransmitted_wire_bytes, again[pair.src as usize], "{pair:?}");
        assert!(pair.causes.contains(&Cause::Retransmission), "{pair:?}");
        assert_eq!((pair.excess(), pair.beyond), ((0, 0), MessageSums::default()), "{pair:?}");
        assert_ne!(pair.verdict, CrosscheckVerdict::Unexplained, "{pair:?}");
    }
    // A lossy run, in which the network lost 1 %; and a run without retransmissions.
    for (name, is_lossy) in [("ompi-rc-loss1-ring2", true), ("ompi-rc-ring2", false)] {
        let run = runs::named(name);
        let result = with_captures(&read(&archive(&run).expect("archive")), &run.every_node());
        for pair in &result.pairs {
            assert_eq!(pair.causes.contains(&Cause::Retransmission), is_lossy, "{name}: {pair:?}");
        }
    }
}
